"""A file's text and its findings in; the findings that no comment ignores out, and what is wrong with the comments.

`# trl-lint: ignore[name-or-group] reason` counts on any line of a call that the finding touches, on its own line, and on
the comment line directly above it; `ignore-file[…]` in the first comment block counts for the whole file.
"""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from trl_lint.model import Edit, Finding, Fix, Severity, Span
from trl_lint.rulebook.rule import ABOUT_IGNORES
from trl_lint.sources.look import kind_of
from trl_lint.sources.module import Module
from trl_lint.sources.text import Text

MARK = b"trl-lint: ignore"
# The reason ends where another comment begins: `# trl-lint: ignore[x] see #12  # type: ignore`.
_COMMENT = re.compile(r"#\s*trl-lint:\s*(ignore(?:-file)?)\b(?:\[([^\]]*)\])?(?:(?!\s+#\s).)*")


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment; its columns are 1-based. `names`, as written, are none for a bare ignore, which ignores nothing."""

    line: int
    column: int
    end_column: int
    names: tuple[str, ...]
    whole_file: bool
    own_line: bool
    cell: int | None = None


def read(text: Text) -> list[Ignore]:
    """The ignore comments of a file; in Python, strings that look like one do not count."""
    match kind_of(text.path):
        case "python":
            return list(_of_python(text.code, None))
        case "notebook":
            return [i for cell, code in _cells(text.code) for i in _of_python(code, cell) or _of_lines(code, cell)]
    return list(_of_lines(text.code, None))


def _of_python(code: str, cell: int | None) -> Iterator[Ignore]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                yield from _comment(token.string, *token.start, cell, own_line=not token.line[: token.start[1]].strip())
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return


def _of_lines(code: str, cell: int | None) -> Iterator[Ignore]:
    """YAML's and the shell's comments: what follows a # at the start of a line or after a blank."""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", code), 1):
        found = re.search(r"(?:^|\s)(#\s*trl-lint:.*)", line)
        if found is not None:
            own = not line[: found.start(1)].strip()
            yield from _comment(found[1], number, found.start(1), cell, own_line=own)


def _comment(comment: str, line: int, column: int, cell: int | None, *, own_line: bool) -> Iterator[Ignore]:
    match = _COMMENT.search(comment)
    if match is not None:
        names = tuple(n.strip() for n in (match.group(2) or "").split(",") if n.strip())
        whole = match.group(1) == "ignore-file"
        yield Ignore(line, column + match.start() + 1, column + match.end() + 1, names, whole, own_line, cell)


def _cells(code: str) -> Iterator[tuple[int, str]]:
    """The code cells of a notebook, counted among all cells from 1."""
    try:
        cells = json.loads(code)["cells"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    for number, cell in enumerate(cells, 1):
        source = cell.get("source") if isinstance(cell, dict) and cell.get("cell_type") == "code" else None
        if source is not None:
            yield number, source if isinstance(source, str) else "".join(map(str, source))


def calls(module: Module) -> tuple[Span, ...]:
    """The calls and commands of a file; a recipe is no call: its lines stand for themselves."""
    sites = (s.span for s in module.sites if s.kind not in ("recipe", "accelerate", "deepspeed"))
    return (*sites, *(c.span for c in module.commands))


def apply(findings: Iterable[Finding], ignores: list[Ignore], around: Iterable[Span], text: Text) -> list[Finding]:
    """The findings that remain, with a note for each bare ignore. `around` are the `calls` of the file."""
    around = tuple(around)
    kept = [f for f in findings if not any(_covers(i, f, around, text.path) for i in ignores)]
    for ignore in ignores:
        if not ignore.names:
            kept.append(_bare(ignore, text))
    return kept


def _covers(ignore: Ignore, finding: Finding, around: Iterable[Span], path: str) -> bool:
    if finding.rule not in ignore.names and finding.group not in ignore.names:
        return False
    spans = [s for s in (finding.span, *(r.span for r in finding.related)) if s.path == path]
    if ignore.whole_file:
        return bool(spans)
    for span in (s for s in spans if s.cell == ignore.cell):
        for first, last in ((span.line, span.end_line), *_lines_around(span, around)):
            if first <= ignore.line <= last or (ignore.own_line and ignore.line == first - 1):
                return True
    return False


def _lines_around(span: Span, around: Iterable[Span]) -> Iterable[tuple[int, int]]:
    """The lines of the calls and commands that a span lies in."""
    for outer in around:
        if outer.path == span.path and outer.start <= span.start and span.end <= outer.end:
            yield outer.line, outer.end_line


def _bare(ignore: Ignore, text: Text) -> Finding:
    return _about(
        "bare-ignore",
        "this comment names no rule, so it ignores nothing: write `ignore[rule-name] reason`",
        ignore,
        text,
    )


# Comments that ignore nothing ----------------------------------------------------------------------------------------


def idle(
    ignores: Iterable[Ignore], findings: Iterable[Finding], around: Iterable[Span], path: str
) -> dict[Ignore, tuple[str, ...]]:
    """The names of each comment that cover none of the findings."""
    every, around = tuple(findings), tuple(around)
    found: dict[Ignore, tuple[str, ...]] = {}
    for ignore in ignores:
        covered = {name for f in every if _covers(ignore, f, around, path) for name in (f.rule, f.group)}
        if names := tuple(n for n in ignore.names if n not in covered and n not in ABOUT_IGNORES):
            found[ignore] = names
    return found


def unused(ignore: Ignore, names: Mapping[str, bool], text: Text) -> Finding:
    """The finding about a comment of which these names ignore nothing; the value says whether such a rule or group exists."""
    shown = ", ".join(f"`{name}`" for name in names)
    if not any(names.values()):
        why = f"there is no rule or group {shown}"
    else:
        why = f"no finding of {shown} touches this place"
    rest = tuple(n for n in ignore.names if n not in names)
    message = f"this comment ignores nothing: {why}" if not rest else f"a part of this comment ignores nothing: {why}"
    title = f"remove {shown} from it" if rest else "remove the comment"
    finding = _about("unused-ignore", message, ignore, text)
    # Inside the JSON of a notebook it is edited by hand.
    edit = _without(ignore, rest, text) if ignore.cell is None else None
    if edit is None:
        return replace(finding, alternatives=(title,))
    return replace(finding, fix=Fix(title, "same", (), "safe", (), (edit,), key="unused-ignore"))


def _without(ignore: Ignore, rest: tuple[str, ...], text: Text) -> Edit | None:
    """The comment with the remaining names only; without any it goes, with its line if it has one of its own.

    None where the tokenizer counts the lines of the file otherwise than we do (a lone carriage return).
    """
    start, end = text.offset(ignore.line, ignore.column), text.offset(ignore.line, ignore.end_column)
    comment = text.utf8[start:end].decode()
    if not _COMMENT.fullmatch(comment):
        return None
    if rest:
        head, _, tail = comment.partition("[")
        return Edit(text.path, text.byte(start), text.byte(end), f"{head}[{', '.join(rest)}]{tail.partition(']')[2]}")
    line = text.line_text(ignore.line)
    body = line.rstrip("\r\n")
    before, after = body[: ignore.column - 1], body[ignore.end_column - 1 :]
    first, last = ignore.column, ignore.end_column
    if not before.strip() and not after.strip():
        begin = text.offset(ignore.line, 1)
        return Edit(text.path, text.byte(begin), text.byte(begin + len(line.encode())), "")
    if after.strip():  # another comment follows and takes this one's place
        last += len(after) - len(after.lstrip())
    else:
        first, last = len(before.rstrip()) + 1, len(body) + 1
    return Edit(text.path, text.byte(text.offset(ignore.line, first)), text.byte(text.offset(ignore.line, last)), "")


def _about(rule: str, message: str, ignore: Ignore, text: Text) -> Finding:
    """A finding about a comment."""
    if ignore.cell is None:
        span = text.span(text.offset(ignore.line, ignore.column), text.offset(ignore.line, ignore.end_column))
    else:
        span = Span(text.path, 0, 0, ignore.line, ignore.column, ignore.line, ignore.end_column, ignore.cell)
    return Finding(rule, ABOUT_IGNORES[rule], Severity.note, "certain", message, span)
