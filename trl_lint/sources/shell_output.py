"""What commands print in, and the files it goes to; the sources that the script writes out, each read by its reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.pieces import Piece
from trl_lint.sources.shell_values import Chunk, Field, as_written, contiguous
from trl_lint.sources.shell_wrappers import base_name
from trl_lint.sources.text import Text, Undecodable


class Files:
    """The files that a script writes, as far as it says what goes to them."""

    def __init__(self, root: Text) -> None:
        self.root = root
        self.written: dict[str, list[Chunk] | None] = {}

    def write(self, path: str, append: bool, content: Sequence[Chunk], *, sure: bool) -> None:
        """Remembers what goes to a file; what is written differently on two branches is nobody's guess."""
        if append:
            before = self.written.get(path)
            self.written[path] = None if before is None else [*before, *content][:5000]
        else:
            self.written[path] = None if path in self.written and not sure else list(content)

    def modules(self) -> dict[str, Module]:
        """The sources that the script writes, each read by the reader of its kind."""
        found: dict[str, Module] = {}
        for path, chunks in self.written.items():
            reader = _reader(path)
            if reader is None or not chunks:
                continue
            piece: Text
            if contiguous(chunks) and not any(chunk.likely for chunk in chunks):
                piece = Piece(self.root, chunks[0].start, chunks[-1].end)
            else:
                piece = as_written(self.root, chunks)
            try:
                found[path] = reader(piece)
            except (Unparsable, Undecodable, RecursionError):
                continue
        return found


def _reader(path: str) -> Callable[[Text], Module] | None:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix == ".py":
        from trl_lint.sources.python import read as read_python

        return read_python
    if suffix in (".yaml", ".yml", ".json"):
        from trl_lint.sources.recipe import read as read_recipe

        return read_recipe
    if suffix in (".sh", ".slurm", ".sbatch", ".bash"):
        from trl_lint.sources.shell import read_script

        return read_script
    return None


def printed(fields: Sequence[Field], given: list[Chunk] | None) -> list[Chunk] | None:
    """What `cat`, `tee`, `echo` and `printf` print."""
    names = [base_name(field.text) for field in fields[:2]]
    if names[0] == "cat" and len(fields) == 1:
        return given
    if names[0] == "tee" or names[:2] == ["sudo", "tee"]:
        return given
    if names[0] not in ("echo", "printf"):
        return None
    rest = list(fields[1:])
    escapes, newline = names[0] == "printf", names[0] == "echo"
    while names[0] == "echo" and rest and re.fullmatch(r"-[neE]+", rest[0].text or ""):
        escapes = escapes or "e" in (rest[0].text or "")
        newline = newline and "n" not in (rest[0].text or "")
        rest.pop(0)
    if names[0] == "printf" and (len(rest) != 1 or "%" in (rest[0].text or "%")):
        return None
    chunks: list[Chunk] = []
    for field in rest:
        if chunks:
            chunks.append(Chunk(" ", field.start, field.start, same=False))
        chunks += field.chunks
    end = fields[-1].end
    if escapes:
        chunks = [piece for chunk in chunks for piece in _unescaped(chunk)]
    return [*chunks, Chunk("\n", end, end, same=False)] if newline else chunks


def _unescaped(chunk: Chunk) -> list[Chunk]:
    if chunk.text is None or "\\" not in chunk.text:
        return [chunk]
    pieces: list[Chunk] = []
    at = chunk.start
    for run in re.split(r"(\\[nt\\])", chunk.text):
        size = len(run.encode(errors="replace")) if chunk.same else 0
        place = (at, at + size) if chunk.same else (chunk.start, chunk.end)
        code = re.fullmatch(r"\\([nt\\])", run)
        text = {"n": "\n", "t": "\t", "\\": "\\"}[code[1]] if code is not None else run
        if text:
            pieces.append(chunk._replace(text=text, start=place[0], end=place[1], same=chunk.same and code is None))
        at += size
    return pieces
