"""Python text with a few lines that became too long, or short enough to join, in; the same text laid out again out.

Only statements that an edit touched are looked at, and only brackets that were laid out the way formatters do it: all
on one line, or all arguments on one indented line. Everything else keeps the shape its author gave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from unicodedata import east_asian_width

import libcst as cst

from trl_lint.sources.positions import positions
from trl_lint.sources.statements import lines

TAB = 4


def columns(text: str) -> int:
    """How wide a line is, as formatters count it: a tab is four columns, a wide character two."""
    if text.isascii():
        return len(text) + (TAB - 1) * text.count("\t")
    return sum(TAB if c == "\t" else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def relaid(code: str, touched: list[tuple[int, int]], width: int, newline: str) -> str:
    """`code` with the statements around the `touched` ranges (offsets into its UTF-8) fitted into `width` columns."""
    module = cst.parse_module(code)
    spans = positions(module)
    data = code.encode()
    edits: list[tuple[int, int, bytes]] = []
    for statement in (line.body[0] for _block, line in lines(module) if len(line.body) == 1):
        start = spans[statement].start
        end = start + spans[statement].length
        if not any(start <= a and b <= end for a, b in touched):
            continue
        text = data[start:end].decode()
        line_start = data.rfind(b"\n", 0, start) + 1
        indent = data[line_start:start].decode()
        if indent.strip() or "#" in _without_strings(text):
            continue
        fitted = _fit(text, indent, _Style(width, newline, "\t" if "\n\t" in code else module.default_indent))
        if fitted is not None and fitted != text:
            edits.append((start, end, fitted.encode()))
    for start, end, replacement in sorted(edits, reverse=True):
        data = data[:start] + replacement + data[end:]
    return data.decode()


def _without_strings(text: str) -> str:
    """The text outside its string literals, to look for comments."""
    return "".join(char for _index, char in _code(text))


@dataclass(frozen=True)
class _Style:
    width: int
    newline: str
    indent: str


def _fit(text: str, indent: str, style: _Style) -> str | None:
    """The statement within the width: joined if its hugged arguments fit one line again, exploded if one line is too long."""
    joined = _joined(text)
    if joined is None:
        return None
    if columns(indent + joined) <= style.width:
        return joined
    return _exploded(joined, indent, style)


def _joined(text: str) -> str | None:
    """The statement on one line, if it stands on one or only hugs its arguments; None for any other layout."""
    if "\n" not in text:
        return text
    lines = [line.strip() for line in text.splitlines()]
    if (
        len(lines) != 3
        or not lines[0].endswith(("(", "[", "{"))
        or lines[1].endswith(",")
        or not lines[2].startswith((")", "]", "}"))
    ):
        return None
    return "".join(lines)


def _exploded(text: str, indent: str, style: _Style) -> str | None:
    """One argument a line inside the outermost bracket, and again inside arguments that are still too long."""
    bounds = _brackets(text)
    if bounds is None:
        return None
    start, end = bounds
    parts = _split(text[start + 1 : end])
    if not parts:
        return None
    inner = indent + style.indent
    lines: list[str] = []
    for part in parts:
        line = part.strip()
        if columns(inner + line) + 1 > style.width:
            line = _exploded(line, inner, style) or line
        lines.append(f"{inner}{line},")
    return style.newline.join([text[: start + 1], *lines, indent + text[end:]])


def _brackets(text: str) -> tuple[int, int] | None:
    """The first bracket that holds something, and its partner."""
    depth: list[int] = []
    candidates: list[tuple[int, int]] = []
    for index, char in _code(text):
        if char in "([{":
            depth.append(index)
        elif char in ")]}" and depth:
            opened = depth.pop()
            if not depth and text[opened + 1 : index].strip() and (text[opened] == "(" or not candidates):
                candidates.append((opened, index))
    return candidates[0] if candidates else None


def _split(text: str) -> list[str]:
    """The text at its outermost commas."""
    parts: list[str] = []
    depth = start = 0
    for index, char in _code(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [p for p in parts if p.strip()]


def _code(text: str) -> list[tuple[int, str]]:
    """The characters outside string literals, with their offsets."""
    found: list[tuple[int, str]] = []
    quote = ""
    index = 0
    while index < len(text):
        char = text[index]
        if quote:
            if char == "\\":
                index += 1
            elif text.startswith(quote, index):
                index += len(quote) - 1
                quote = ""
        elif char in "\"'":
            quote = text[index : index + 3] if text[index : index + 3] in ('"""', "'''") else char
            index += len(quote) - 1
        else:
            found.append((index, char))
        index += 1
    return found
