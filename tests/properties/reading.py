"""What a text says besides the names that a fix may change, read by other means than the tool's: two that say the same are equal.

Each reader answers None where the text before cannot be read by these means; then nothing can be compared.
"""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

Both: TypeAlias = tuple[object, object] | None


@dataclass
class Names:
    """`whole` go with their values; of `holders` only the `inner` entries do; `symbols` are classes; `words` stand in commands."""

    whole: set[str] = field(default_factory=set)
    holders: set[str] = field(default_factory=set)
    inner: set[str] = field(default_factory=set)
    symbols: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)

    @property
    def all(self) -> set[str]:
        return self.whole | self.inner | self.symbols | self.words


def place(data: bytes, encoding: str, offset: int) -> tuple[int, int]:
    """The 1-based line and column, in code points, of a byte."""
    before = data[:offset].removeprefix(b"\xef\xbb\xbf").decode(encoding)
    lines = re.split("\r\n|\r|\n", before)
    if before.endswith("\r") and data[offset : offset + 1] == b"\n":  # within a line end
        return len(lines) - 1, len(lines[-2]) + 2
    return len(lines), len(lines[-1]) + 1


# Python --------------------------------------------------------------------------------------------------------------


def python(before: bytes, after: bytes, names: Names) -> Both:
    try:
        was = ast.parse(before)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    now = ast.parse(after)
    bound = _bound(was, names.whole | names.inner | names.holders)
    comments = _comments(before)
    return (_said(was, names, bound), comments), (_said(now, names, bound), comments and _comments(after))


def _said(tree: ast.Module, names: Names, bound: set[str]) -> str:
    return ast.dump(_Less(names, bound).visit(tree))


def _comments(data: bytes) -> Counter[str] | None:
    try:
        tokens = list(tokenize.tokenize(io.BytesIO(re.sub(rb"\r\n?", b"\n", data)).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    return Counter(t.string.rstrip() for t in tokens if t.type == tokenize.COMMENT)


def _bound(tree: ast.AST, names: set[str]) -> set[str]:
    """The variables that give such names their values: a fix changes the last writer."""
    found: set[str] = set()
    while True:
        given = {n.id for value in _values(tree, names | found) for n in ast.walk(value) if isinstance(n, ast.Name)}
        if given <= found:
            return found
        found |= given


def _values(tree: ast.AST, names: set[str]) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg=str(name), value=value) if name in names:
                yield value
            case ast.Dict(keys=keys, values=values):
                yield from (
                    v for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant) and k.value in names
                )
            case ast.Assign(targets=targets, value=value):
                if any(_assigned(t) in names for t in targets):
                    yield value
            case ast.AnnAssign(target=target, value=ast.expr() as value) if _assigned(target) in names:
                yield value


def _assigned(target: ast.expr) -> str | None:
    match target:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return None


class _Less(ast.NodeTransformer):
    """A tree without what the names give: keywords, entries and assignments; symbols all look alike, imports of them go."""

    def __init__(self, names: Names, bound: set[str]) -> None:
        self.names, self.bound = names, bound

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [k for k in node.keywords if not self.gone(k.arg, k.value)]
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        kept = [
            (k, v) for k, v in zip(node.keys, node.values, strict=True)
            if not (isinstance(k, ast.Constant) and isinstance(k.value, str) and self.gone(k.value, v))
        ]  # fmt: skip
        node.keys, node.values = [k for k, _ in kept], [v for _, v in kept]
        return node

    def gone(self, name: str | None, value: ast.expr) -> bool:
        if name in self.names.whole | self.names.inner:
            return True
        empty = (isinstance(value, ast.Dict) and not value.keys) or (
            isinstance(value, ast.Constant) and value.value is None
        )
        bare = isinstance(value, ast.Call) and not value.keywords and not value.args
        # A mapping of which nothing is left goes whole; where it has a name, the name is no longer given.
        return name in self.names.holders and (empty or bare or isinstance(value, ast.Name))

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        self.generic_visit(node)
        if len(node.targets) == 1:
            target = node.targets[0]
            name = _assigned(target)
            if not isinstance(target, ast.Name) and name is not None and self.gone(name, node.value):
                return None
            if isinstance(target, ast.Name) and (name in self.bound or name in self.names.whole):
                return ast.Assign(node.targets, ast.Constant(...))
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None and _assigned(node.target) in self.bound | self.names.whole:
            node.value = ast.Constant(...)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        self.generic_visit(node)
        return ast.NamedExpr(node.target, ast.Constant(...)) if node.target.id in self.bound else node

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("_", node.ctx) if node.id in self.names.symbols else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return ast.Name("_", node.ctx) if node.attr in self.names.symbols else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        node.names = [a for a in node.names if a.name not in self.names.symbols]
        return node if node.names else None


# YAML ----------------------------------------------------------------------------------------------------------------


def recipe(before: bytes, after: bytes, names: Names) -> Both:
    try:
        was, comments = _documents(before.decode("utf-8-sig"), names)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    return (was, comments), _documents(after.decode("utf-8-sig"), names)


def _documents(code: str, names: Names) -> tuple[object, Counter[str]]:
    """The data and the comments; those on the lines of a key that goes may go with it."""
    nodes = list(yaml.compose_all(code, yaml.SafeLoader))
    going = {line for node in nodes for line in _lines_going(node, names)}
    comments = Counter(comment for line, comment in _yaml_comments(code) if line not in going)
    return tuple(_plain(node, names) for node in nodes), comments


def _lines_going(node: yaml.Node | None, names: Names) -> Iterator[int]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if _gone(key.value if isinstance(key, yaml.ScalarNode) else None, value, names):
                yield from range(key.start_mark.line, max(key.end_mark.line, value.end_mark.line) + 1)
            else:
                yield from _lines_going(value, names)


def _plain(node: yaml.Node | None, names: Names) -> object:
    match node:
        case yaml.ScalarNode(tag=tag, value=value):
            return tag, value
        case yaml.SequenceNode(tag=tag, value=items):
            return tag, tuple(_plain(item, names) for item in items)
        case yaml.MappingNode(tag=tag, value=pairs):
            kept = tuple((k.value if isinstance(k, yaml.ScalarNode) else _plain(k, names), v) for k, v in pairs)
            return tag, tuple((k, _plain(v, names)) for k, v in kept if not _gone(k, v, names))
    return None


def _gone(key: object, value: yaml.Node, names: Names) -> bool:
    if key in names.whole or key in names.inner or (isinstance(key, str) and key.replace("-", "_") in names.whole):
        return True
    inside = isinstance(value, yaml.MappingNode) and all(
        isinstance(k, yaml.ScalarNode) and k.value in names.inner for k, _ in value.value
    )
    return key in names.holders and (inside or value.value in ("", "null", "~"))


def _yaml_comments(code: str) -> Iterator[tuple[int, str]]:
    """What stands behind a `#` between the tokens, with the line's number from 0."""
    end, line = 0, 0
    for token in yaml.scan(code, yaml.SafeLoader):
        gap = code[end : token.start_mark.index]
        for found in re.finditer(r"(?:^|(?<=\s))#[^\r\n]*", gap):
            yield line + len(re.findall(r"\r\n|\r|\n", gap[: found.start()])), found[0].rstrip()
        if token.end_mark.index >= end:
            end, line = token.end_mark.index, token.end_mark.line


# Shell ---------------------------------------------------------------------------------------------------------------


_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#[^\r\n]*")


def shell(before: bytes, after: bytes, names: Names) -> Both:
    try:
        variables = _variables(before.decode(), names)
        was = _words(before.decode(), names, variables)
    except (ValueError, UnicodeDecodeError):
        return None
    if names.words:
        return None  # how a program is called changes with it
    return was, _words(after.decode(), names, variables)


def _options(names: Names) -> set[str]:
    return {name.replace("-", "_") for name in names.whole | names.holders}


def _variables(code: str, names: Names) -> set[str]:
    """The variables that are named, and those that named options repeat."""
    written = "|".join(re.escape(option).replace("_", "[-_]") for option in _options(names)) or "(?!)"
    return {*names.whole, *re.findall(rf"--(?:{written})[= ]\s*[\"']?\$\{{?(\w+)", code)}


def _words(code: str, names: Names, variables: set[str]) -> tuple[tuple[str, ...], Counter[str]]:
    """All words but the named options and variables with their values, and the comments."""
    bare = re.sub(r"(\s)\d>", r"\1>", _COMMENT.sub("", code))  # `2>&1` is no value
    bare = re.sub(r"\\[;|&<>()]", "_", bare)  # an escaped sign ends no command
    lexer = shlex.shlex(re.sub(r"\\\r?\n", " ", bare), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    lexer.commenters = ""
    options = _options(names)
    kept: list[str] = []
    inside, values = False, 0
    for token in lexer:
        word = token.strip("\n")
        inside = inside and word == token  # a command ends with its line
        if not word.strip():
            continue
        if re.search(r"\s--?\w", word):  # a command within quotes
            inside = False
            kept += _words(word, names, variables)[0]
            continue
        option = re.match(r"--?(?:no[-_])?([\w.-]+)(=)?", word)
        variable = re.match(r"(\w+)=", word)
        if kept[-1:] == ["serve"] and "model" in options and option is None:
            continue  # `vllm serve MODEL` gives it without its name
        if option is not None and option[1].replace("-", "_") in options:
            inside, values = option[2] is None, 0
        elif inside and re.match(r"-\d|[^-();<>|&\s]", word) and (values == 0 or not word.startswith("$")):
            values += 1
        else:
            inside = False
            if word != "export" and (variable is None or variable[1] not in variables):
                kept.append(word)
    return tuple(kept), Counter(found.rstrip() for found in _COMMENT.findall(code))


# Notebooks -----------------------------------------------------------------------------------------------------------


def notebook(before: bytes, after: bytes, names: Names) -> Both:
    """The cells' sources compared as what they are, everything else as it stands."""
    try:
        was, now = json.loads(before), None
        cells = was["cells"]
        kinds = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    now = json.loads(after)
    sources = ["".join(cell["source"]) for cell in now["cells"]]
    assert len(sources) == len(kinds), "a cell came or went"
    left: list[object] = []
    right: list[object] = []
    for (kind, old), new in zip(kinds, sources, strict=True):
        read = _COMPARED_CELLS(old) if kind == "code" else None
        both = (
            read(old.encode("utf-8", "replace"), new.encode("utf-8", "replace"), names) if read and old != new else None
        )
        if both is None and old != new and kind == "code":
            continue  # Python with magic in it: its editor is the one of plain cells
        left.append(both[0] if both else old)
        right.append(both[1] if both else new)
    return (left, _without_sources(was)), (right, _without_sources(now))


def _COMPARED_CELLS(source: str) -> Callable[[bytes, bytes, Names], Both]:
    if source.startswith(("%%bash", "%%sh")):
        return shell
    return recipe if source.startswith("%%writefile") and ".y" in source.partition("\n")[0] else python


def _without_sources(data: dict[str, Any]) -> str:
    return json.dumps({**data, "cells": [{k: v for k, v in c.items() if k != "source"} for c in data["cells"]]})


COMPARED: dict[str, Callable[[bytes, bytes, Names], Both]] = {
    "python": python, "recipe": recipe, "notebook": notebook, "shell": shell, "makefile": shell, "dockerfile": shell,
}  # fmt: skip
