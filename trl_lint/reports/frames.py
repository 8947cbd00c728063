"""A span and the bytes of its file in, the lines to show out, each with the marks to put under it.

Widths are terminal cells, so that marks sit right under tabs, wide characters and redacted secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.cells import cell_len

from trl_lint.model import Span
from trl_lint.reports.redaction import HIDDEN, secrets
from trl_lint.reports.words import printable

TAB_WIDTH = 4

# What Python and YAML call a line; str.splitlines also breaks at form feeds and other separators.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line without its end; `hidden` are code-point ranges in it that must not be shown."""

    text: str
    hidden: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One shown line and the marks under it; `number` None stands for lines left out."""

    number: int | None
    text: str = ""
    marks: str = ""


class Pages:
    """The lines of each file, or notebook cell, that spans point into: read and searched for secrets once."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        self._pages: dict[tuple[str, int | None], list[SourceLine]] = {}

    def rows(self, span: Span, mark: str) -> list[Row]:
        """The first and last line of `span`, with `mark` under what it covers; empty when they are not at hand."""
        lines = self._page(span)
        if not 1 <= span.line <= span.end_line <= len(lines):
            return []
        first, last = lines[span.line - 1], lines[span.end_line - 1]
        if span.line == span.end_line:
            return [_row(first, span.line, span.column - 1, span.end_column - 1, mark)]
        rows = [_row(first, span.line, span.column - 1, len(first.text.rstrip()), mark)]
        if span.end_line - span.line > 1:
            rows.append(Row(None))
        indent = len(last.text) - len(last.text.lstrip())
        return [*rows, _row(last, span.end_line, min(indent, span.end_column - 1), span.end_column - 1, mark)]

    def _page(self, span: Span) -> list[SourceLine]:
        key = (span.path, span.cell)
        if key not in self._pages:
            source = self._sources.get(span.path)
            self._pages[key] = [] if source is None else _lines(source, span.cell)
        return self._pages[key]


def _lines(source: bytes, cell: int | None) -> list[SourceLine]:
    """The lines that spans of this file, or of this cell of it, count by; none when the cell is not there."""
    if cell is None:
        return list(_split(source.decode("utf-8-sig", "replace")))
    try:
        text = json.loads(source)["cells"][cell - 1]["source"]  # cells count from 1, Markdown ones too
    except (ValueError, KeyError, IndexError, TypeError):
        return []
    return list(_split(text if isinstance(text, str) else "".join(map(str, text))))


def _split(text: str) -> Iterator[SourceLine]:
    """Secrets are looked for in the whole text: the name of one may stand on the line before."""
    hidden = secrets(text)
    for match in _LINE.finditer(text):
        start, line = match.start(), match[0].rstrip("\r\n")
        end = start + len(line)
        inside = tuple((max(a, start) - start, min(b, end) - start) for a, b in hidden if a < end and b > start)
        yield SourceLine(line, inside)


def _row(line: SourceLine, number: int, start: int, end: int, mark: str) -> Row:
    """`line` with marks under the code points from `start` to `end`; a place of no width gets one mark."""
    # A span that begins inside a secret is marked from the secret's first star on.
    start = next((first for first, last in line.hidden if first < start < last), start)
    before, until = cell_len(_shown(line, start)), cell_len(_shown(line, end))
    return Row(number, _shown(line, len(line.text)), " " * before + mark * max(1, until - before))


def _shown(line: SourceLine, stop: int) -> str:
    """The first `stop` code points of `line` as a reader sees them."""
    pieces, at = [], 0
    for start, end in line.hidden:
        if start >= stop:
            break
        pieces += [line.text[at:start], HIDDEN]
        at = end
    return _untabbed(printable("".join([*pieces, line.text[at:stop]])))


def _untabbed(text: str) -> str:
    """str.expandtabs by cells: that one counts a wide character as one column."""
    *tabbed, rest = text.split("\t")
    shown = ""
    for piece in tabbed:
        shown += piece
        shown += " " * (TAB_WIDTH - cell_len(shown) % TAB_WIDTH)
    return shown + rest
