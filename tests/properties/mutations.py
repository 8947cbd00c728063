"""A text and a source of chance in; a text that somebody might have written by accident out.

Chance is a `random.Random`: hypothesis hands in one that it can replay and shrink, the fuzzer a seeded one.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Sequence
from random import Random

from tests.properties.texts import texts

_COMMENT = {"notebook": '"#",\n'}
_MARKS = (
    "# why",
    "#",
    "#!x",
    "# 训练 🚀",
    "# trl-lint: ignore",
    "# trl-lint: ignore[vllm] because",
    "# fmt: skip",
    "# type: ignore",
)
_VALUES = (
    "True", "False", "None", "0", "1", "-1", "8", "1e-5", ".5", "1_000", "0x10", "1e999", "nan", "''", '"x"', "'训练'", '"""a\nb"""',
    "f'{x}'", "rb'x'", "x", "x.y", "x()", "(y := 1)", "a if b else c", "lambda: 0", "[1, *x]", "{**x}", "{'a': 1}", "(1)", "...",
    "true", "no", "~", "!!int 3", "&a b", "*a", "|\n  x", "$X", "${X:-8}", "$(cat x)", '"$@"', "{a,b}", "\\", "8 # eight",
)  # fmt: skip
_SIGNS = ("(", ")", "[", "]", "{", "}", ",", ":", "=", "'", '"', "\\", "#", "\t", "\n", "\r", "\x0c", "\0", "\ufeff", "é", "🚀", "\u2028", "\x85", ";", "$", "`", "<<EOF", "&&", "%", "!", "@", "*", "- ", "---\n")  # fmt: skip
_MAGICS = (
    "%%time\n",
    "%%capture out\n",
    "!pip install trl==1.9.2\n",
    "%load_ext autoreload\n",
    "%%bash\n",
    "%%writefile train.py\n",
    "x?\n",
    "files = !ls\n",
)
_VALUE = re.compile(
    r"""(?<=[=:\s\[(,])(?:"[^"\n]*"|'[^'\n]*'|\b\d[\w.]*|\bTrue\b|\bFalse\b|\bNone\b|\btrue\b|\bfalse\b)"""
)
_NAME = re.compile(r"\b[a-z_]{3,}(?=\s*=|:|\s)")


def mutated(text: str, kind: str, random: Random, times: int | None = None) -> str:
    """The text after some changes, most often few."""
    if kind == "notebook" and random.random() < 0.8:
        return _within_a_cell(text, random)
    for _ in range(random.choice((1, 1, 2, 3, 6)) if times is None else times):
        text = _changed(text, kind, random)
    return text[:20_000]


def _changed(text: str, kind: str, random: Random) -> str:
    """One change; of Python most often one that leaves it Python, so that there is something to judge."""
    for _ in range(4 if kind == "python" else 1):
        new = random.choice(_CHANGES)(text, kind, random)
        if random.random() < 0.1 or _parses(new):
            break
    return new


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _within_a_cell(text: str, random: Random) -> str:
    """The notebook with other Python in one of its cells, laid out in one of the ways that tools write notebooks."""
    try:
        data = json.loads(text)
        cell = random.choice([c for c in data["cells"] if c["cell_type"] == "code"])
        source = "".join(cell["source"])
    except (ValueError, TypeError, KeyError, IndexError):
        return text
    source = mutated(source, "python", random)
    if random.random() < 0.2:
        source = random.choice(_MAGICS) + source
    cell["source"] = random.choice((source, source.splitlines(keepends=True)))
    return json.dumps(data, indent=random.choice((None, 1, 2, 4)), ensure_ascii=random.random() < 0.5)


def _lines(text: str, change: Callable[[list[str]], None]) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        change(lines)
    return "".join(lines)


def _pick(items: Sequence[object], random: Random) -> int:
    return random.randrange(len(items))


def _deleted(text: str, kind: str, random: Random) -> str:
    return _lines(text, lambda lines: lines.__delitem__(_pick(lines, random)))


def _doubled(text: str, kind: str, random: Random) -> str:
    def change(lines: list[str]) -> None:
        start = _pick(lines, random)
        lines[start:start] = lines[start : start + random.choice((1, 1, 1, 5, 20))]

    return _lines(text, change)


def _swapped(text: str, kind: str, random: Random) -> str:
    def change(lines: list[str]) -> None:
        a, b = _pick(lines, random), _pick(lines, random)
        lines[a], lines[b] = lines[b], lines[a]

    return _lines(text, change)


def _commented(text: str, kind: str, random: Random) -> str:
    """A comment on a line of its own, as deep as the next one."""

    def change(lines: list[str]) -> None:
        at = _pick(lines, random)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip(" \t"))]
        lines.insert(at, _COMMENT.get(kind, f"{indent}{random.choice(_MARKS)}\n"))

    return _lines(text, change)


def _annotated(text: str, kind: str, random: Random) -> str:
    """A comment behind what a line says."""

    def change(lines: list[str]) -> None:
        at = _pick(lines, random)
        body = lines[at].rstrip("\r\n")
        lines[at] = f"{body}  {random.choice(_MARKS)}{lines[at][len(body) :]}"

    return _lines(text, change)


def _revalued(text: str, kind: str, random: Random) -> str:
    found = list(_VALUE.finditer(text))
    if not found:
        return text
    one = random.choice(found)
    new = random.choice(_VALUES) if random.random() < 0.7 else random.choice(found)[0]
    if kind == "notebook":
        new = new.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text[: one.start()] + new + text[one.end() :]


def _renamed(text: str, kind: str, random: Random) -> str:
    """A name takes the place of another one."""
    found = list(_NAME.finditer(text))
    if not found:
        return text
    one, other = random.choice(found), random.choice(found)
    return text[: one.start()] + other[0] + text[one.end() :]


def _cut(text: str, kind: str, random: Random) -> str:
    return text[: random.randrange(len(text) + 1)]


def _holed(text: str, kind: str, random: Random) -> str:
    start = random.randrange(len(text) + 1)
    return text[:start] + text[start + random.choice((1, 1, 2, 5, 40)) :]


def _poked(text: str, kind: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(_SIGNS) + text[at:]


def _crossed(text: str, kind: str, random: Random) -> str:
    """Lines of another text come into this one."""
    others = texts(kind)
    if not others:
        return text
    other = random.choice(others).splitlines(keepends=True) or [""]

    def change(lines: list[str]) -> None:
        at, start = _pick(lines, random), _pick(other, random)
        lines[at:at] = other[start : start + random.choice((1, 3, 10))]

    return _lines(text, change)


def _line_ends(text: str, kind: str, random: Random) -> str:
    new = random.choice(("\r\n", "\r\n", "\r"))
    if random.random() < 0.7:
        return text.replace("\r\n", "\n").replace("\n", new)
    return re.sub("\r?\n", lambda found: random.choice((found[0], new)), text)


def _tabbed(text: str, kind: str, random: Random) -> str:
    return re.sub("^(?: {4})+", lambda found: "\t" * (len(found[0]) // 4), text, flags=re.M)


def _joined(text: str, kind: str, random: Random) -> str:
    """A line runs into the next one."""

    def change(lines: list[str]) -> None:
        at = _pick(lines, random)
        lines[at] = lines[at].rstrip("\r\n") + random.choice((" ", "", "; ", " \\\n"))

    return _lines(text, change)


def _indented(text: str, kind: str, random: Random) -> str:
    """Everything one level deeper, under a head that a block may have."""
    head = random.choice(("if True:", "def main():", "with x as y:", "class A:", "for i in range(3):", "try:", "async def f():", "else:", "key:", "- a:", "if [ $# -gt 0 ]; then", "%%bash"))  # fmt: skip
    return f"{head}\n" + "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def _marked(text: str, kind: str, random: Random) -> str:
    return (
        random.choice(("\ufeff", "# -*- coding: utf-8 -*-\n", "#!/usr/bin/env bash\n", "---\n", "\n\n", "\x0c")) + text
    )


def _bare_end(text: str, kind: str, random: Random) -> str:
    return text.rstrip("\r\n")


_CHANGES: tuple[Callable[[str, str, Random], str], ...] = (
    _deleted, _deleted, _doubled, _doubled, _swapped, _swapped, _commented, _commented, _annotated, _annotated,
    _revalued, _revalued, _revalued, _renamed, _renamed, _crossed, _crossed, _cut, _holed, _poked, _poked, _line_ends,
    _tabbed, _joined, _indented, _marked, _bare_end,
)  # fmt: skip
