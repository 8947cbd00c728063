"""A file's own bytes in; out what it says of itself: the `# trl-lint: facts …` comment, its PEP 723 block, its `pip install`s.

A shell, YAML or Python file carries the comment in its first comment block; a notebook in its first code cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from trl_lint.facts.requirements import NAME, Reading, stated
from trl_lint.facts.words import Fact, canonical, line_at, line_of

_COMMENT = r"\s*#+\s*trl-lint:\s*facts\b(.*)"
_ITEM = rf"(?s)({NAME}|\w+)(?:\[[^\]]*\])?([=<>!~]+)(.*)"
# The reference expression of PEP 723, which also says that only one block of type `script` may stand in a file.
_SCRIPT = r"(?m)^# /// script$\n(?P<content>(?:^#(?:| .*)$\n)+)^# ///$"


@dataclass(slots=True)
class Comment:
    """The comment's items. `where` is the place of each key, for origins; texts are left for other rooms to read."""

    packages: dict[str, Fact] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, other: Comment) -> None:
        """Take from another file of the same run what this one does not say."""
        self.packages = {**other.packages, **self.packages}
        self.texts = {**other.texts, **self.texts}
        self.numbers = {**other.numbers, **self.numbers}
        self.where = {**other.where, **self.where}
        self.notes += other.notes


_TEXTS = {"gpu", "launch", "server", "accelerate", "trainer", "parser"}
_NUMBERS = {"n_gpu", "num_processes", "nodes", "zero_stage"}


def read_comment(head: bytes, shown: str) -> Comment:
    """The in-file comment, empty when there is none; whatever cannot be read of it becomes a note."""
    comment = Comment()
    if b"trl-lint" not in head:
        return comment
    for where, line in _first_comments(head, shown):
        if found := re.match(_COMMENT, line):
            _read_items(found[1], where, comment)
    return comment


def _read_items(text: str, where: str, comment: Comment) -> None:
    import shlex

    try:
        items = shlex.split(text)
    except ValueError as error:
        comment.notes.append(f"{where}: cannot read the facts comment: {str(error).lower()}; the line is ignored")
        return
    for item in items:
        if why := _read_item(item, where, comment):
            comment.notes.append(f"{where}: {why}; ignored")


def _read_item(item: str, where: str, comment: Comment) -> str | None:
    """Take one `key=value` or `package==version`; the answer says why it could not be taken."""
    match = re.fullmatch(_ITEM, item)
    if match is None:
        return f"{item!r} is neither key=value nor package==version"
    key, operator, value = match.groups()
    # With another operator it is a version, also of a package that shares its name with a key: accelerate==1.4.0.
    if operator != "=" or value in ("installed", "not-installed"):
        package = canonical(key)
        try:
            comment.packages[package] = stated(package, value if operator == "=" else operator + value, where)
        except ValueError as error:
            return str(error)
        return None
    if key in _TEXTS:
        comment.texts[key] = value
    elif key in _NUMBERS:
        if not re.fullmatch(r"[0-9]+", value):
            return f"{key} wants a number, not {value!r}"
        comment.numbers[key] = int(value)
    elif re.fullmatch(r"\d+(?:\.\d+)+(?:\.?(?:a|b|rc|post|dev)\d+)?", value):
        return f"{item!r} states no version; write {key}=={value}"
    else:
        return f"nothing here uses {key!r}"
    comment.where[key] = where
    return None


def read_script(head: bytes, shown: str) -> tuple[dict[str, Fact], list[str]]:
    """The packages that a file installs for itself: its PEP 723 block, or the `pip install` lines of a notebook."""
    if shown.endswith(".ipynb"):
        return _read_installs(head, shown) if b"install" in head or b"requirements" in head else ({}, [])
    if b"# /// script" not in head:
        return {}, []
    text = _decoded(head)
    block = re.search(_SCRIPT, text)
    if block is None:
        return {}, []
    return _read_block(text, block, shown)


def _read_block(text: str, block: re.Match[str], shown: str) -> tuple[dict[str, Fact], list[str]]:
    import tomllib

    from trl_lint.facts.manifests import read_source

    reading = Reading()
    first_line = line_at(text, block.start())
    content = re.sub(r"(?m)^# ?", "", block["content"])
    try:
        table = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        reading.note(f"{shown}:{first_line}", f"the script block is no TOML: {error}")
        return {}, reading.notes
    dependencies = table.get("dependencies", [])
    sources = _uv_sources(table)
    for dependency in dependencies if isinstance(dependencies, list) else []:
        if not isinstance(dependency, str):
            continue
        where = f"{shown}:{line_of(text, dependency, block.start())}"
        name = re.match(NAME, dependency)
        source = sources.get(canonical(name[0])) if name else None
        if name is None or source is None or not read_source(canonical(name[0]), source, where, reading):
            reading.require(dependency, where)
    packages = reading.settled()
    trl = packages.get("trl")
    if trl is not None and "vllm" not in packages and "vllm" not in trl.extras:
        # The block is the whole environment of the script: what it does not ask for is not there.
        packages["vllm"] = Fact("vllm", "", None, "not-installed", f"{shown}:{first_line}")
    return packages, reading.notes


def _uv_sources(table: dict[str, object]) -> dict[str, object]:
    tool = table.get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    sources = uv.get("sources") if isinstance(uv, dict) else None
    return {canonical(name): source for name, source in sources.items()} if isinstance(sources, dict) else {}


def _read_installs(head: bytes, shown: str) -> tuple[dict[str, Fact], list[str]]:
    from trl_lint.facts.manifests import pip_installs

    reading = Reading()
    for number, source in _code_cells(head):
        for text in _written_requirements(source):
            reading.require(text, f"{shown}, cell {number}")
        for text in pip_installs(_shell_lines(source)):
            # "trl=={version}" is Python's or the shell's to fill in: unknown, and nothing that was done wrong.
            if not re.search(r"[{}$]", text):
                reading.require(text, f"{shown}, cell {number}")
    packages = reading.settled(last=True)
    trl = packages.get("trl")
    if (
        trl is not None
        and "vllm" not in packages
        and not any(re.search(_SPEAKS_OF_VLLM, c) for _n, c in _code_cells(head))
    ):
        packages["vllm"] = Fact("vllm", "", None, "not-installed", trl.origin)
    return packages, reading.notes


# A notebook that installs what it needs, all of it by name, has decided on vLLM if its code never speaks of it.
_SPEAKS_OF_VLLM = r"(?i)vllm|\binstall\b.*\s-(?:r|e|-requirement|-editable)\b"


def _written_requirements(cell: str) -> Iterator[str]:
    """The lines of a requirements file that the cell writes."""
    first, _newline, rest = cell.lstrip().partition("\n")
    if re.match(r"%%(?:writefile|file)\s.*requirements[^/\s]*\.txt\s*$", first):
        for line in rest.splitlines():
            text = line.split("#")[0].split(";")[0].strip()
            if re.match(NAME, text):
                yield text


def _shell_lines(cell: str) -> str:
    """What a cell gives to a shell or to pip: its `!` and `%` lines, or all of a `%%bash` cell."""
    cell = re.sub(r"\\\n", " ", cell)
    if re.match(r"\s*%%(?:bash|sh)\b", cell):
        return cell
    return "\n".join(re.findall(r"(?m)^\s*[!%]\s*(?!%)(.*)$", cell))


def _first_comments(head: bytes, shown: str) -> Iterator[tuple[str, str]]:
    """The lines of the first comment block with their places. Blank lines do not end it: a licence often comes first."""
    if shown.endswith(".ipynb"):
        number, text = next(_code_cells(head), (1, ""))
        place = f"{shown}, cell {number}"
    else:
        text = _decoded(head)
        place = ""
    met = False
    for line_number, line in enumerate(text.split("\n"), 1):
        stripped = line.lstrip()
        if stripped.startswith("#"):
            met = True
            yield place or f"{shown}:{line_number}", line
        elif met and stripped:
            return


def _code_cells(head: bytes) -> Iterator[tuple[int, str]]:
    """Code cells with their place among all cells, from 1. A notebook that is no JSON has none: its reader says so."""
    import json

    try:
        notebook = json.loads(head)
    except (ValueError, RecursionError):
        return
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    for number, cell in enumerate(cells if isinstance(cells, list) else [], 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        yield number, "".join(map(str, source)) if isinstance(source, list) else str(source)


def _decoded(head: bytes) -> str:
    return head.decode("utf-8-sig", "replace").replace("\r\n", "\n")
