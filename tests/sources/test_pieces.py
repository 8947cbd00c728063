"""A part of a file reads as a text of its own, and every offset in it is a place of the file."""

from __future__ import annotations

import pytest

from trl_lint.model import Span
from trl_lint.sources.pieces import Piece, Segment
from trl_lint.sources.text import Text


def outer(code: str = "a: é\nrun: |\n  echo 1\n  echo 2\n") -> Text:
    return Text("job.yaml", code.encode())


def covered(text: Text, span: Span) -> str:
    return text.data[span.start : span.end].decode()


def test_a_piece_points_into_its_file() -> None:
    text = outer()
    start = text.utf8.index(b"echo 1")
    piece = Piece(text, start, start + 6)
    assert (piece.path, piece.code, piece.utf8) == ("job.yaml", "echo 1", b"echo 1")
    span = piece.span(5, 6)
    assert covered(text, span) == "1"
    assert (span.line, span.column, span.end_line, span.end_column) == (3, 8, 3, 9)
    assert piece.line_of(5) == (3, 8)
    assert piece.utf8_of_byte(span.start) == 5


@pytest.mark.parametrize("prefix", ["", "\ufeff", "# 日本語\n", "# 😀\r\n"])
def test_whatever_comes_before_it(prefix: str) -> None:
    text = Text("x.sh", (prefix + "a 'b c' d").encode())
    start = text.utf8.index(b"b c")
    assert covered(text, Piece(text, start, start + 3).span(2, 3)) == "c"


def test_a_piece_of_a_piece() -> None:
    text = outer("x\n0123456789\n")
    inner = Piece(Piece(text, 2, 12), 3, 8)
    assert inner.code == "34567"
    assert covered(text, inner.span(1, 3)) == "45"
    assert inner.span(1, 3).line == 2
    assert inner.utf8_of_byte(inner.span(4, 5).start) == 4


def test_another_encoding() -> None:
    text = Text("x.py", "# coding: latin-1\né = 'ab'\n".encode("latin-1"))
    start = text.utf8.index(b"ab")
    span = Piece(text, start, start + 2).span(0, 2)
    assert text.data[span.start : span.end] == b"ab"


def test_the_indentation_that_all_lines_share_is_no_part_of_it() -> None:
    text = outer()
    start = text.utf8.index(b"echo 1")
    piece = Piece.dedented(text, start, len(text.utf8))
    assert piece.code == "echo 1\necho 2\n"
    second = piece.utf8.index(b"echo 2")
    span = piece.span(second, second + 6)
    assert covered(text, span) == "echo 2"
    assert (span.line, span.column) == (4, 3)
    assert piece.utf8_of_byte(span.start) == second


def test_deeper_lines_and_empty_ones_keep_what_is_theirs() -> None:
    text = Text("x", b"  if a\n\n    b\n  fi\n")
    assert Piece.dedented(text, 2, len(text.utf8)).code == "if a\n\n  b\nfi\n"


def test_replaced_bytes_stand_for_what_they_replace() -> None:
    text = Text("x", b'say "a\\"b" end')
    piece = Piece.of(text, [Segment(b"a", 5, 6), Segment(b'"', 6, 8), Segment(b"b", 8, 9)])
    assert piece.code == 'a"b'
    assert covered(text, piece.span(0, 3)) == 'a\\"b'
    assert covered(text, piece.span(1, 2)) == '\\"'
    assert covered(text, piece.span(2, 3)) == "b"
    assert piece.pieces(0, 2) == [(0, 5, 6, True), (1, 6, 8, False)]


def test_an_end_belongs_to_what_is_before_it() -> None:
    text = Text("x", b"ab--cd")
    piece = Piece.of(text, [Segment(b"ab", 0, 2), Segment(b"cd", 4, 6)])
    assert covered(text, piece.span(0, 2)) == "ab"
    assert covered(text, piece.span(2, 4)) == "cd"
    assert covered(text, piece.span(1, 3)) == "b--c"


def test_nothing_at_all() -> None:
    piece = Piece.of(Text("x", b"abc"), [])
    assert (piece.code, piece.span(0, 0)[1:3]) == ("", (0, 0))
    assert Piece(Text("x", b"abc"), 3, 3).span(0, 0).start == 3
