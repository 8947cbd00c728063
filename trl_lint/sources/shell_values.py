"""What a shell variable may hold, as runs of text that remember where they are written; values in, values out.

All offsets are into the utf8 of the text that the shell reader was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from trl_lint.sources.pieces import Piece, Segment
from trl_lint.sources.text import Text

T = TypeVar("T")

LIMIT = 500
"""More runs of text than this in one value are given up: `X="$X$X"` doubles."""

LONG = 50_000
"""An unquoted value of more characters than this is not split."""

PLACEHOLDER = "\ue000"
"""Stands, in a text made of several runs, for one that cannot be read: an ordinary letter to every parser."""


class Chunk(NamedTuple):
    """One run of text. `start`/`end` say where it stands; `same` that the bytes there are the text.

    `text` is None where the file does not say it, then `why` does. `likely`: a default that a caller may replace.
    `own`: written for this place alone. `apart`: begins a new word when split. `caller`: whoever calls gives it.
    `stands`: the reference (`$X`) that put it into a longer text.
    """

    text: str | None
    start: int
    end: int
    why: str | None = None
    likely: bool = False
    same: bool = True
    own: bool = True
    apart: bool = False
    caller: bool = False
    stands: tuple[int, int] | None = None


class Field(NamedTuple):
    """One word while it is put together. `many`: may stand for any number of words. `arguments`: it is `"$@"`."""

    chunks: tuple[Chunk, ...]
    start: int
    end: int
    plain: bool = True
    binding: tuple[int, int] | None = None
    many: bool = False
    arguments: bool = False

    @property
    def text(self) -> str | None:
        chunks = self.chunks
        return chunks[0].text if len(chunks) == 1 else joined(chunks)


class Variable(NamedTuple):
    """A variable's value: `chunks`, or `items` for an array; the assignment `whole`, its value `at`, its statement.

    `literal` is the range of plain text that is all its value, if the variable is assigned nowhere else.
    """

    chunks: tuple[Chunk, ...]
    items: tuple[Field, ...] | None
    whole: tuple[int, int]
    at: tuple[int, int]
    container: int
    literal: tuple[int, int] | None = None
    exported: bool = False
    sometimes: bool = False
    repeats: tuple[int, int] | None = None


def joined(chunks: Sequence[Chunk]) -> str | None:
    """The text of all chunks, or None if one of them cannot be read."""
    if len(chunks) == 1:
        return chunks[0].text
    texts: list[str] = []
    for chunk in chunks:
        if chunk.text is None:
            return None
        texts.append(chunk.text)
    return "".join(texts)


def reason(chunks: Iterable[Chunk]) -> str | None:
    """Why the first unreadable chunk cannot be read."""
    return next((chunk.why for chunk in chunks if chunk.text is None), None)


def unknown(why: str, start: int, end: int, *, apart: bool = False, caller: bool = False) -> Chunk:
    return Chunk(None, start, end, why, same=False, own=False, apart=apart, caller=caller)


def contiguous(chunks: Sequence[Chunk]) -> bool:
    """Whether the chunks stand one after the other in the file, as they read."""
    return all(chunk.same for chunk in chunks) and all(a.end == b.start for a, b in pairwise(chunks))


def limited(chunks: tuple[Chunk, ...], name: str) -> tuple[Chunk, ...]:
    if len(chunks) <= LIMIT:
        return chunks
    return (unknown(f"${name} is put together from too many parts", chunks[0].start, chunks[0].end),)


def words_of(chunk: Chunk) -> list[Chunk | None]:
    """An unquoted expansion split at blanks: its words, with None for every gap between words or at an end."""
    if chunk.text is None:
        return [None, chunk] if chunk.apart else [chunk]
    if len(chunk.text) > LONG:
        return [unknown("it is too long to be split into words", chunk.start, chunk.end)]
    found: list[Chunk | None] = []
    at = chunk.start
    for run in re.split(r"([ \t\r\n]+)", chunk.text):
        size = len(run.encode()) if chunk.same else 0
        if run and run[0] in " \t\r\n":
            found.append(None)
        elif run:
            place = (at, at + size) if chunk.same else (chunk.start, chunk.end)
            found.append(chunk._replace(text=run, start=place[0], end=place[1]))
        at += size
    return found


def merged(name: str, options: Sequence[Variable | None], line: int) -> Variable | None:
    """What a variable may be where branches meet again: their common beginning, and what follows unknown."""
    present = [option for option in options if option is not None]
    if not present:
        return None
    last = present[-1]
    exported = any(option.exported for option in present)
    sometimes = any(option.sometimes for option in present) or (
        exported and not all(option is not None and option.exported for option in options)
    )
    last = last._replace(exported=exported, sometimes=sometimes, repeats=None)
    if len(present) < len(options):
        why = f"${name} is set on some branches only (line {line})"
        return last._replace(chunks=(unknown(why, *last.at),), items=None, literal=None)
    if all(_texts(option) == _texts(last) for option in present):
        return last if all(option.at == last.at for option in present) else last._replace(literal=None)
    why = f"${name} depends on the branch at line {line}"
    if all(option.items is not None for option in present):
        items = _prefix([option.items or () for option in present])
        rest = Field((unknown(why, *last.at, apart=True),), *last.at, plain=False, many=True)
        return last._replace(items=(*items, rest), literal=None)
    if any(option.items is not None for option in present):
        return last._replace(chunks=(unknown(why, *last.at),), items=None, literal=None)
    default = _default(present)
    if default is not None:
        return default._replace(exported=exported, sometimes=sometimes, literal=None)
    start = _prefix([[chunk._replace(stands=None) for chunk in option.chunks] for option in present])
    rests = [option.chunks[len(start) :] for option in present]
    apart = all(not rest or rest[0].apart or (rest[0].text or "x")[0].isspace() for rest in rests)
    caller = all(chunk.caller for rest in rests for chunk in rest if chunk.text is None)
    caller = caller and all(any(chunk.text is None for chunk in rest) for rest in rests)
    return last._replace(chunks=(*start, unknown(why, *last.at, apart=apart, caller=caller)), literal=None)


def _texts(value: Variable) -> object:
    if value.items is not None:
        return [_same_text(item.chunks) for item in value.items]
    return _same_text(value.chunks)


def _same_text(chunks: tuple[Chunk, ...]) -> object:
    text = joined(chunks)
    return chunks if text is None else (text, any(chunk.likely for chunk in chunks))


def _prefix(rows: Sequence[Sequence[T]]) -> tuple[T, ...]:
    size = 0
    for column in zip(*rows, strict=False):
        if any(value != column[0] for value in column):
            break
        size += 1
    return tuple(rows[0][:size])


def _default(options: Sequence[Variable]) -> Variable | None:
    """`X=8` that an option of the script's own caller may replace (`-n) X="$2"`) is a default."""
    known = [option for option in options if joined(option.chunks) is not None]
    others = [option for option in options if joined(option.chunks) is None]
    if (
        not known
        or not others
        or not joined(known[0].chunks)
        or any(_texts(option) != _texts(known[0]) for option in known)
    ):
        return None
    if not all(all(chunk.caller for chunk in option.chunks if chunk.text is None) for option in others):
        return None
    return likely(known[0])


def likely(value: Variable) -> Variable:
    return value._replace(chunks=tuple(chunk._replace(likely=True) for chunk in value.chunks), literal=None)


class Script(Piece):
    """A text put together from chunks: what `eval`, `bash -c`, a heredoc or a Makefile hands to the shell."""

    chunks: Sequence[Chunk]

    @classmethod
    def made(cls, root: Text, chunks: Sequence[Chunk]) -> Script:
        kept = [chunk for chunk in chunks if chunk.text != ""] or [Chunk("", 0, 0)]
        texts = [PLACEHOLDER if chunk.text is None else chunk.text for chunk in kept]
        # Where every chunk stands behind the one before, the script is those places; else it is where they are put in.
        rising = all(a.end <= b.start for a, b in pairwise(kept))
        places = [(c.start, c.end) if rising or c.stands is None else c.stands for c in kept]
        segments = [Segment(t.encode(errors="replace"), *p) for t, p in zip(texts, places, strict=True)]
        script = cls.__new__(cls)
        script._fill(root, segments)
        script.chunks = kept
        return script

    def read(self, start: int, end: int) -> list[Chunk]:
        """The chunks that the bytes `start` to `end` of this script are made of, cut to that range."""
        found: list[Chunk] = []
        for index, low, high, same in self.pieces(start, end):
            chunk = self.chunks[index]
            if chunk.text is None:
                found.append(chunk)
                continue
            a, b = max(start, self._own[index]), min(end, self._own[index + 1])
            text = self.utf8[a:b].decode(errors="replace")
            if same or not chunk.same:
                found.append(chunk._replace(text=text, start=low, end=high, same=same and chunk.same, stands=None))
                continue
            shift = chunk.start - self._own[index]  # put in from elsewhere: its own place is more than the reference
            found.append(chunk._replace(text=text, start=a + shift, end=b + shift))
        return found

    def inserted_at(self, place: tuple[int, int]) -> str:
        """All the text that the reference at `place` put in."""
        return "".join(chunk.text or "" for chunk in self.chunks if chunk.stands == place)


def as_written(root: Text, chunks: Sequence[Chunk]) -> Piece:
    """The text that a script writes to a file; a line of which a part cannot be read, or may be replaced, is left empty."""
    lines: list[list[Chunk]] = [[]]
    for chunk in chunks:
        if chunk.text is None or chunk.likely:
            lines[-1].append(chunk._replace(text=None))
            continue
        at = chunk.start
        for line in re.split(r"(?<=\n)", chunk.text):
            size = len(line.encode(errors="replace"))
            place = (at, at + size) if chunk.same else (chunk.start, chunk.end)
            lines[-1].append(chunk._replace(text=line, start=place[0], end=place[1]))
            at += size
            if line.endswith("\n"):
                lines.append([])
    kept: list[Chunk] = []
    for row in lines:
        if all(chunk.text is not None for chunk in row):
            kept += row
        elif row[-1].text is not None and row[-1].text.endswith("\n"):
            end = row[-1].end
            kept.append(Chunk("\n", end - 1, end, same=row[-1].same))
    return Script.made(root, kept)
