"""A text and a part of it in; a text of its own out, whose offsets still become spans of the whole file.

A heredoc, a block scalar, a cell or the string given to `bash -c` is parsed as if it stood alone. What the outer
language takes away or replaces (indentation, escapes, expansions) is told as segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from trl_lint.model import Span
from trl_lint.sources.text import Text


class Segment(NamedTuple):
    """Bytes of a piece, and the range of the outer text's utf8 that they stand for. Equal bytes map one to one."""

    data: bytes
    start: int
    end: int


class Piece(Text):
    """`outer.utf8[start:end]` as a text. Parsers see offsets, lines and code points of the piece; the world, through
    `span`, `byte` and `line_of`, those of the file."""

    def __init__(self, outer: Text, start: int, end: int) -> None:
        self._fill(outer, [Segment(outer.utf8[start:end], start, end)])

    @classmethod
    def of(cls, outer: Text, segments: Sequence[Segment]) -> Piece:
        """The piece that reads as the segments' bytes one after the other."""
        piece = cls.__new__(cls)
        piece._fill(outer, segments or [Segment(b"", 0, 0)])
        return piece

    @classmethod
    def dedented(cls, outer: Text, start: int, end: int) -> Piece:
        """The lines from `start` to `end` without the indentation that all of them share."""
        first = outer.utf8.rfind(b"\n", 0, start) + 1
        if not outer.utf8[first:start].strip(b" \t"):
            start = first
        lines: list[tuple[int, bytes]] = []
        at = start
        for line in outer.utf8[start:end].splitlines(keepends=True):
            lines.append((at, line))
            at += len(line)
        margins = [len(line) - len(line.lstrip(b" \t")) for _, line in lines if line.strip()]
        margin = min(margins, default=0)
        if margin == 0:
            return cls(outer, start, end)
        cuts = [(at + min(margin, len(line) - len(line.lstrip(b" \t"))), at + len(line)) for at, line in lines]
        return cls.of(outer, [Segment(outer.utf8[a:b], a, b) for a, b in cuts])

    def _fill(self, outer: Text, segments: Sequence[Segment]) -> None:
        self.outer = outer
        self.path, self.data, self.encoding, self._bom = outer.path, outer.data, outer.encoding, outer._bom
        self.segments = segments
        self._own = [0]
        for segment in segments:
            self._own.append(self._own[-1] + len(segment.data))
        self._same = [s.data == outer.utf8[s.start : s.end] for s in segments]  # asked for every offset: once is enough
        self.utf8 = segments[0].data if len(segments) == 1 else b"".join(s.data for s in segments)
        self.code = self.utf8.decode(errors="replace")  # a cut through a character is the caller's mistake, no crash

    def pieces(self, start: int, end: int) -> list[tuple[int, int, int, bool]]:
        """The segments that `start` to `end` of this piece touch: (index, start, end, same), offsets into `outer.utf8`.

        A segment whose bytes are not those of the file is given whole, with `same` False.
        """
        found: list[tuple[int, int, int, bool]] = []
        index = max(0, bisect_right(self._own, start) - 1)
        while index < len(self.segments) and (self._own[index] < end or (start == end and not found)):
            low, high = max(start, self._own[index]), min(end, self._own[index + 1])
            segment = self.segments[index]
            if high > low or start == end:
                if self._same[index]:
                    shift = segment.start - self._own[index]
                    found.append((index, low + shift, max(low, high) + shift, True))
                else:
                    found.append((index, segment.start, segment.end, False))
            index += 1
        if not found:  # at the very end
            last = self.segments[-1]
            found.append((len(self.segments) - 1, last.end, last.end, True))
        return found

    def outward(self, start: int, end: int) -> tuple[int, int]:
        """The range of `outer.utf8` that `start` to `end` of this piece stand for."""
        start, end = max(0, min(start, len(self.utf8))), max(0, min(end, len(self.utf8)))
        low = self._outward(start, ending=False)
        high = low if start == end else self._outward(end, ending=True)
        return low, max(low, high)

    def _outward(self, offset: int, *, ending: bool) -> int:
        # an end belongs to the segment before it, a start to the one after
        index = bisect_right(self._own, offset - 1 if ending else offset) - 1
        index = min(max(index, 0), len(self.segments) - 1)
        segment = self.segments[index]
        if self._same[index]:
            return segment.start + offset - self._own[index]
        return segment.end if ending or offset >= self._own[index + 1] else segment.start

    def byte(self, offset: int) -> int:
        """The offset in the file's own bytes of an offset into this piece."""
        return self.outer.byte(self.outward(offset, offset)[0])

    def line_of(self, offset: int) -> tuple[int, int]:
        """1-based line and column in the file of an offset into this piece."""
        return self.outer.line_of(self.outward(offset, offset)[0])

    def span(self, start: int, end: int) -> Span:
        """The span in the file of the offsets `start` to `end` into this piece."""
        return self.outer.span(*self.outward(start, end))

    def utf8_of_byte(self, byte: int) -> int:
        """The offset into this piece of an offset in the file's own bytes; the nearest one before, if it is not in here."""
        wanted = self.outer.utf8_of_byte(byte)
        nearest = 0
        for index, segment in enumerate(self.segments):
            if segment.start <= wanted <= segment.end:
                inside = wanted - segment.start if self._same[index] else 0
                if wanted < segment.end or index + 1 == len(self.segments) or self.segments[index + 1].start != wanted:
                    return self._own[index] + (inside if wanted < segment.end else len(segment.data))
            if segment.end <= wanted:
                nearest = self._own[index + 1]
        return nearest
