"""The parts that a word of the source is made of in; the words that the shell makes of them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from trl_lint.sources.shell_values import Chunk, Field, contiguous, unknown, words_of

Part: TypeAlias = tuple[str, Chunk | Field | None]
"""A piece of a word: ("text", chunk), ("split", chunk) for an unquoted expansion, ("item", field) of an array."""


def as_parts(chunks: Sequence[Chunk]) -> list[Part]:
    return [("text", chunk) for chunk in chunks]


def standing(parts: Sequence[Part], place: tuple[int, int]) -> list[Part]:
    """What an expansion puts into a longer text, with the place of the expansion."""
    return [
        (kind, content._replace(stands=place) if isinstance(content, Chunk) and kind == "text" else content)
        for kind, content in parts
    ]


def flat(parts: Sequence[Part]) -> list[Chunk]:
    """The chunks of parts that are not split; items of an array are joined by blanks."""
    chunks: list[Chunk] = []
    for index, (_kind, content) in enumerate(parts):
        if isinstance(content, Field):
            if index and isinstance(parts[index - 1][1], Field):
                chunks.append(Chunk(" ", content.start, content.start, same=False))
            chunks += content.chunks
        elif content is not None:
            chunks.append(content)
    return chunks


def defaults(default: Sequence[Part], kind: str, name: str, place: tuple[int, int]) -> list[Part]:
    """`${X:-d}` of an X that this file does not set: d, unless the environment has it. An empty one says nothing."""
    chunks = flat(default)
    if not any(chunk.text != "" for chunk in chunks):
        if kind == "split":
            return [(kind, unknown(f"{name} is not set in this file", *place, caller=True))]
        return [(kind, Chunk("", *place, likely=True, same=False))]
    return [(kind, chunk._replace(likely=chunk.text is not None)) for chunk in chunks]


def fields_of(parts: Sequence[Part], start: int, end: int) -> list[Field]:
    """Parts put together to words: where an unquoted expansion holds a blank, or an array its next item, a word ends."""
    groups: list[list[Chunk]] = []
    items: dict[int, Field] = {}
    several: set[int] = set()
    current: list[Chunk] | None = None
    split = after_item = False
    for kind, content in parts:
        if isinstance(content, Field):
            if after_item:
                current, split = None, True
            if current is None:
                current = list(content.chunks)
                items[len(groups)] = content
                groups.append(current)
            else:
                current += content.chunks
                items.pop(len(groups) - 1, None)
            after_item = True
            continue
        after_item = False
        for word in [content] if kind == "text" else words_of(content) if content is not None else []:
            if word is None:
                current, split = None, True
                continue
            if current is None:
                current = []
                groups.append(current)
            current.append(word)
            items.pop(len(groups) - 1, None)
            if word.text is None and kind == "split":
                several.add(len(groups) - 1)
    made: list[Field] = []
    for index, chunks in enumerate(groups):
        if index in items:
            made.append(items[index])
            continue
        kept = tuple(chunk for chunk in chunks if chunk.text != "") or tuple(chunks[:1])
        many = index in several
        if split and contiguous(kept):
            plain = all(chunk.own and not chunk.likely for chunk in kept)
            made.append(Field(kept, kept[0].start, kept[-1].end, plain=plain))
        else:
            made.append(Field(kept, start, end, plain=not split, many=many))
    return made
