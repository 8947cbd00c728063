"""What every kind of source shares when it turns intents into text."""

from __future__ import annotations

from collections.abc import Iterable

from trl_lint.model import Edit


class CannotEdit(ValueError):
    """The intents have no faithful text here; the message says why."""


def spliced(data: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """`data` with every range replaced; ranges must not overlap. Raises CannotEdit where two want different text."""
    out: list[bytes] = []
    position = 0
    for start, end, new in sorted(set(edits)):
        if start < position:
            raise CannotEdit("two fixes want different text in the same place")
        out += [data[position:start], new]
        position = end
    return b"".join([*out, data[position:]])


def as_edit(path: str, before: bytes, after: bytes, encoding: str) -> Edit:
    """The smallest single byte range that turns one text into the other, cut at character boundaries."""
    start, tail = 0, 0
    limit = min(len(before), len(after))
    while start < limit and before[start] == after[start]:
        start += 1
    while tail < limit - start and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    if encoding == "utf-8":
        while start > 0 and start < len(before) and before[start] & 0xC0 == 0x80:
            start -= 1
        while tail > 0 and before[len(before) - tail] & 0xC0 == 0x80:
            tail -= 1
    return Edit(path, start, len(before) - tail, after[start : len(after) - tail].decode(encoding))
