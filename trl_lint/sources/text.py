"""One file's bytes in; its text out, and the one converter between UTF-8 offsets, code points, file bytes and lines."""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from functools import cached_property

from trl_lint.model import Span

BOM = b"\xef\xbb\xbf"


class Undecodable(ValueError):
    """The bytes are not text in the encoding that the file declares."""


class Text:
    """A decoded source. Parsers speak offsets into `utf8`; `span` turns those into what the world sees.

    `data` are the file's bytes, `code` its text without a byte order mark, `utf8` that text in UTF-8.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self._bom = len(BOM) if data.startswith(BOM) else 0
        self.encoding = _encoding(data)
        try:
            self.code = data[self._bom :].decode(self.encoding)
        except (UnicodeDecodeError, LookupError) as error:
            raise Undecodable(f"not valid {self.encoding}: {error}") from None
        self.utf8 = data[self._bom :] if self.encoding == "utf-8" else self.code.encode()

    @cached_property
    def _ascii(self) -> bool:
        return self.code.isascii()

    @cached_property
    def _starts(self) -> list[int]:
        """Offset into `utf8` of the start of every line; a line ends at \\n, \\r\\n or \\r, as Python's own tokenizer has it."""
        starts = [0]
        if b"\r" not in self.utf8:
            position = self.utf8.find(b"\n")
            while position >= 0:
                starts.append(position + 1)
                position = self.utf8.find(b"\n", position + 1)
            return starts
        for found in re.finditer(rb"\r\n|\r|\n", self.utf8):
            starts.append(found.end())
        return starts

    def point(self, offset: int) -> int:
        """The code point offset of an offset into `utf8`."""
        return offset if self._ascii else len(self.utf8[:offset].decode())

    def byte(self, offset: int) -> int:
        """The offset in the file's own bytes of an offset into `utf8`."""
        if self.encoding == "utf-8" or self._ascii:
            return self._bom + offset
        return self._bom + len(self.utf8[:offset].decode().encode(self.encoding))

    def line_of(self, offset: int) -> tuple[int, int]:
        """1-based line and column, in code points, of an offset into `utf8`."""
        line = bisect_right(self._starts, offset)
        start = self._starts[line - 1]
        return line, (offset - start if self._ascii else len(self.utf8[start:offset].decode())) + 1

    def line_text(self, line: int) -> str:
        """The text of a 1-based line, its line end included."""
        start = self._starts[line - 1]
        return (self.utf8[start : self._starts[line]] if line < len(self._starts) else self.utf8[start:]).decode()

    def offset(self, line: int, column: int) -> int:
        """The offset into `utf8` of a 1-based line and column."""
        return self._starts[line - 1] + len(self.line_text(line)[: column - 1].encode())

    def span(self, start: int, end: int) -> Span:
        """The span of the offsets `start` to `end` into `utf8`."""
        line, column = self.line_of(start)
        end_line, end_column = self.line_of(end)
        return Span(self.path, self.byte(start), self.byte(end), line, column, end_line, end_column)

    def utf8_of_byte(self, byte: int) -> int:
        """The offset into `utf8` of an offset in the file's own bytes: the way back from a span."""
        if self.encoding == "utf-8" or self._ascii:
            return byte - self._bom
        return len(self.data[self._bom : byte].decode(self.encoding).encode())


def _encoding(data: bytes) -> str:
    """The encoding that Python itself would read the file with (PEP 263). Plain UTF-8 is by far the commonest."""
    if b"coding" not in data[:400]:
        return "utf-8"
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        raise Undecodable(str(error)) from None
    return "utf-8" if encoding in ("utf-8", "utf-8-sig") else encoding
