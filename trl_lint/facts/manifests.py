"""The files in which people write their requirements in; out a `Reading` of each.

requirements*.txt, pyproject.toml, setup.cfg, setup.py, environment.yml, Dockerfile. Each reader takes the path and the
project root (for origins); a file or line that cannot be read becomes a note, never an exception.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from trl_lint.facts.requirements import (
    NAME,
    Reading,
    conda_requirement,
    pinned_by_ref,
    pinned_by_url,
    poetry_range,
    stated,
)
from trl_lint.facts.words import WATCHED, Fact, canonical, line_at, line_of, read_text, shown

if TYPE_CHECKING:
    import ast

    import yaml

# requirements.txt ----------------------------------------------------------------------------------------------------

_INCLUDE = r"(?:-r|-c|--requirement|--constraint)[ =]*(\S+)"
_EDITABLE = r"^(?:-e|--editable)[ =]*"


def read_requirements(path: str, root: str) -> Reading:
    """pip's format with its includes and constraints, whose origins name the file they stand in."""
    reading = Reading()
    _read_requirements(path, root, reading, {os.path.realpath(path)})
    return reading


def _read_requirements(path: str, root: str, reading: Reading, seen: set[str]) -> None:
    name = shown(path, root)
    for number, line in _logical_lines(read_text(path)):
        if include := re.match(_INCLUDE, line):
            _include(include[1], path, f"{name}:{number}", root, reading, seen)
            continue
        line = re.sub(_EDITABLE, "", line)
        # Other options (--index-url …), local folders and variables tell no version.
        if line.startswith(("-", ".", "/", "$")):
            continue
        reading.require(re.split(r"\s--", line)[0], f"{name}:{number}")


def _include(target: str, path: str, where: str, root: str, reading: Reading, seen: set[str]) -> None:
    if "://" in target:
        return
    included = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if os.path.realpath(included) in seen:
        return
    seen.add(os.path.realpath(included))
    try:
        _read_requirements(included, root, reading, seen)
    except OSError as error:
        reading.note(where, f"cannot read {target}: {error.strerror}")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined at backslashes, comments and blanks dropped, each with the number of its first line."""
    first, joined = 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        first = first or number
        line = re.sub(r"(?:^|\s)#.*$", "", line).rstrip()
        joined += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if joined.strip():
            yield first, joined.strip()
        first, joined = 0, ""


# pyproject.toml ------------------------------------------------------------------------------------------------------


def read_pyproject(path: str, root: str) -> Reading:
    """PEP 621, PEP 735, and the tables of uv, pdm and Poetry."""
    reading, name, text = Reading(), shown(path, root), read_text(path)
    table = _toml(text, name, reading)
    sources = {canonical(package): source for package, source in _items(table, "tool", "uv", "sources")}
    for dependencies, optional in _pep_lists(table):
        for dependency in dependencies:
            where = f"{name}:{line_of(text, dependency)}"
            package = canonical(match[0]) if (match := re.match(NAME, dependency)) else ""
            source = sources.get(package)
            if source is None or not read_source(package, source, where, reading, optional=optional):
                reading.require(dependency, where, optional=optional)
    for package, constraint, optional in _poetry_entries(table):
        if canonical(package) not in WATCHED:
            continue
        line = re.search(rf"(?m)^\s*[\"']?{re.escape(package)}[\"']?\s*=", text)
        where = f"{name}:{line_at(text, line.end()) if line else 1}"
        _read_poetry(canonical(package), constraint, where, reading, optional)
    return reading


def read_source(package: str, source: object, where: str, reading: Reading, *, optional: bool = False) -> bool:
    """Take a `{ git = …, tag = … }` or `{ url = … }` of uv or Poetry; False when the entry tells no version."""
    if isinstance(source, list):
        return any(read_source(package, entry, where, reading, optional=optional) for entry in source)
    if not isinstance(source, dict):
        return False
    fact: Fact | None = None
    if "git" in source:
        ref = source.get("tag") or source.get("rev") or source.get("branch")
        fact = pinned_by_ref(package, str(ref) if ref else None, where)
    elif isinstance(source.get("url"), str):
        fact = pinned_by_url(package, source["url"], where)
    if fact is None:
        return False
    reading.take(fact, optional=optional)
    return True


def _read_poetry(package: str, constraint: object, where: str, reading: Reading, optional: bool) -> None:
    if isinstance(constraint, list):  # alternatives, one a platform or Python
        for alternative in constraint:
            _read_poetry(package, alternative, where, reading, True)
        return None
    if isinstance(constraint, dict):
        optional = optional or constraint.get("optional") is True
        if read_source(package, constraint, where, reading, optional=optional):
            return None
        constraint = constraint.get("version", "*")
    if not isinstance(constraint, str):
        return None
    try:
        text = poetry_range(constraint)
        fact = stated(package, text, where) if text else Fact(package, "", None, "declared", where)
    except ValueError:
        return reading.note(where, f"{constraint!r} is no version constraint of {package}")
    reading.take(fact, optional=optional)
    return None


def _pep_lists(table: object) -> Iterator[tuple[list[str], bool]]:
    """Lists of requirement strings, and whether one may choose to install them. uv's overrides and constraints hold always."""
    yield _strings(_at(table, "tool", "uv", "override-dependencies")), False
    yield _strings(_at(table, "project", "dependencies")), False
    yield _strings(_at(table, "tool", "uv", "constraint-dependencies")), False
    for path in (("project", "optional-dependencies"), ("dependency-groups",), ("tool", "pdm", "dev-dependencies")):
        for _, dependencies in _items(table, *path):
            yield _strings(dependencies), True
    yield _strings(_at(table, "tool", "uv", "dev-dependencies")), True


def _poetry_entries(table: object) -> Iterator[tuple[str, object, bool]]:
    for package, constraint in _items(table, "tool", "poetry", "dependencies"):
        yield package, constraint, False
    for package, constraint in _items(table, "tool", "poetry", "dev-dependencies"):
        yield package, constraint, True
    for group, _ in _items(table, "tool", "poetry", "group"):
        for package, constraint in _items(table, "tool", "poetry", "group", group, "dependencies"):
            yield package, constraint, True


def project_of(path: str) -> Mapping[str, object]:
    """The [project] table of a pyproject.toml, empty when it cannot be read (its reader notes why)."""
    try:
        return dict(_items(_toml(read_text(path), path, Reading()), "project"))
    except OSError:
        return {}


def _toml(text: str, name: str, reading: Reading) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why, _, place = str(error).partition(" (at ")
        line = re.search(r"line (\d+)", place)
        reading.note(f"{name}:{line[1] if line else text.count(chr(10)) + 1}", f"no TOML: {why}")
        return {}


def _at(table: object, *keys: str) -> object:
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _items(table: object, *keys: str) -> list[tuple[str, object]]:
    found = _at(table, *keys)
    return list(found.items()) if isinstance(found, dict) else []


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


# setup.cfg and setup.py ----------------------------------------------------------------------------------------------

# Lists of strings in a setup.py that may hold a package's name and are no requirements.
_NO_REQUIREMENTS = {"packages", "py_modules", "keywords", "classifiers", "scripts", "package_data", "platforms"}


def read_setup_cfg(path: str, root: str) -> Reading:
    import configparser

    reading, name, text = Reading(), shown(path, root), read_text(path)
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        line = re.search(r"\[line:? *(\d+)", str(error))
        reading.note(f"{name}:{line[1] if line else 1}", "no configuration file that configparser reads")
        return reading
    always = parser.get("options", "install_requires", fallback="")
    extras = parser.items("options.extras_require") if parser.has_section("options.extras_require") else []
    for block, optional in [(always, False), *((value, True) for _, value in extras)]:
        for requirement in filter(None, map(str.strip, block.split("\n"))):
            if requirement.startswith(("#", "file:")):
                continue
            line = re.search(rf"(?m)^[^#\n]*(?<![\w-]){re.escape(requirement)}\s*$", text)
            where = f"{name}:{line_at(text, line.end(0) - 1) if line else 1}"
            reading.require(requirement, where, optional=optional)
    return reading


def read_setup_py(path: str, root: str) -> Reading:
    """Any requirement string of a list or mapping literal: people build `install_requires` from tables (`_deps`)."""
    import ast

    reading, name = Reading(), shown(path, root)
    try:
        tree = ast.parse(read_text(path))
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        reading.note(f"{name}:{line or 1}", "no Python that can be parsed")
        return reading
    for element, optional in _listed(tree, False):
        # A URL or a plain sentence in some other list is no mistake, so only what looks like a requirement is taken.
        if re.fullmatch(r"[A-Za-z0-9._-]+(\[[^\]]*\])?\s*([<>=!~;@(].*)?", str(element.value)):
            reading.require(str(element.value), f"{name}:{element.lineno}", optional=optional)
    return reading


def _listed(node: ast.AST, optional: bool) -> Iterator[tuple[ast.Constant, bool]]:
    """String elements of the literals under `node`; those under something called "extras" are optional."""
    import ast

    match node:
        case ast.keyword(arg=str(word)) if word in _NO_REQUIREMENTS:
            return
        case ast.keyword(arg=str(word)) if "extra" in word:
            optional = True
        case ast.Assign(targets=[ast.Name(id=word) | ast.Subscript(value=ast.Name(id=word))]) if "extra" in word:
            optional = True
        case ast.List() | ast.Tuple() | ast.Set():
            for element in node.elts:
                if isinstance(element, ast.Constant) and isinstance(element.value, str):
                    yield element, optional
        case ast.Dict():
            for value in node.values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value, optional
    for child in ast.iter_child_nodes(node):
        yield from _listed(child, optional)


# environment.yml -----------------------------------------------------------------------------------------------------


def read_conda(path: str, root: str) -> Reading:
    """conda's dependencies and the pip ones inside them; `compose` keeps the lines that `safe_load` forgets."""
    import yaml

    reading, name, text = Reading(), shown(path, root), read_text(path)
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reading.note(f"{name}:{mark.line + 1 if mark else 1}", "no YAML that can be parsed")
        return reading
    for entry in _sequence(_entry(document, "dependencies")):
        if isinstance(entry, yaml.ScalarNode):
            reading.require(conda_requirement(entry.value), f"{name}:{entry.start_mark.line + 1}")
            continue
        for pip in _sequence(_entry(entry, "pip")):
            where = f"{name}:{pip.start_mark.line + 1}"
            if not isinstance(pip, yaml.ScalarNode):
                continue
            if include := re.match(_INCLUDE, pip.value):
                _include(include[1], path, where, root, reading, set())
            elif not (line := re.sub(_EDITABLE, "", pip.value)).startswith(("-", ".", "/")):
                reading.require(line, where)
    return reading


def _entry(node: object, key: str) -> object:
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _sequence(node: object) -> list[yaml.Node]:
    import yaml

    return node.value if isinstance(node, yaml.SequenceNode) else []


# Dockerfile and other `pip install` lines ----------------------------------------------------------------------------

_PIP = r"(?m)^(?!\s*#)(?:|.*?[\s;&|(])(?:uv\s+)?pip3?\s+install\s(.*)"
# Options of pip and uv whose value is the next word, so that it is not taken for a package.
_WITH_VALUE = {
    *("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-t", "--target", "--prefix", "--root", "-p"),
    *("--python", "--index", "--default-index", "--platform", "--python-version", "--torch-backend", "--prerelease"),
    *("-r", "--requirement", "-c", "--constraint", "--no-build-isolation-package", "--no-binary", "--only-binary"),
}


def read_dockerfile(path: str, root: str) -> Reading:
    """The `pip install` lines of RUN instructions, in their order; the caller lets the last one count."""
    reading, name = Reading(), shown(path, root)
    for number, line in _logical_lines(read_text(path)):
        for requirement in pip_installs(line):
            # "trl==${TRL_VERSION}" is the builder's to fill in.
            if not re.search(r"[{}$]", requirement):
                reading.require(requirement, f"{name}:{number}")
    return reading


def pip_installs(text: str) -> Iterator[str]:
    """The requirements of all `pip install` commands of a text, one command a line."""
    for match in re.finditer(_PIP, text):
        yield from _pip_words(match[1])


def _pip_words(command: str) -> Iterator[str]:
    import shlex

    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return  # an open quote: no command that a shell would run
    skip = False
    for position, word in enumerate(words):
        if word.startswith((";", "&", "|", ")")):
            # `pip install a && pip install b` is one line and two commands.
            yield from pip_installs(" ".join(map(shlex.quote, words[position + 1 :])))
            return
        if skip:
            skip = False
            continue
        skip = word in _WITH_VALUE
        # Neither an option, nor a local path, nor a redirection.
        if re.match(NAME, word):
            yield word
