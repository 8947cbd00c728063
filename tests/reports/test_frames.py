"""The marks stand under what they mean, whatever is on the line."""

import json

import pytest
from rich.cells import cell_len

from trl_lint.model import Span
from trl_lint.reports.frames import Pages, Row

from .building import span_of

TOKEN = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"


def rows(source: str, piece: str, upto: str | None = None) -> list[Row]:
    data = source.encode()
    return Pages({"train.py": data}).rows(span_of(data, piece, upto=upto), "^")


@pytest.mark.parametrize(
    ("source", "piece", "shown", "marks"),
    [
        ("f(use_vllm=True)", "use_vllm=True", "f(use_vllm=True)", "  ^^^^^^^^^^^^^"),
        ("\tf(a=1)", "a=1", "    f(a=1)", "      ^^^"),
        ("  \tf(\ta=1)", "a=1", "    f(  a=1)", "        ^^^"),
        ("f(p='火車', a=1)", "a=1", "f(p='火車', a=1)", "            ^^^"),
        ("f(p='火車', a=1)", "'火車'", "f(p='火車', a=1)", "    ^^^^^^"),
        ("火\tf(a=1)", "a=1", "火  f(a=1)", "      ^^^"),
        ("f(p='🤗', a=1)", "a=1", "f(p='🤗', a=1)", "          ^^^"),
        ("f(p='é', a=1)", "a=1", "f(p='é', a=1)", "         ^^^"),
        ("f('\x1b[31m', a=1)", "a=1", "f('␛[31m', a=1)", "           ^^^"),
        ("f('\u202e', a=1)", "a=1", "f('\ufffd', a=1)", "       ^^^"),
        (f"f(t='{TOKEN}', a=1)", "a=1", "f(t='***', a=1)", "           ^^^"),
        (f"f(t='{TOKEN}', a=1)", f"t='{TOKEN}'", "f(t='***', a=1)", "  ^^^^^^^"),
        (f"f(t='{TOKEN}', a=1)", TOKEN[3:9], "f(t='***', a=1)", "     ^^^"),
        (f"export HF_TOKEN={TOKEN} A=1", "A=1", "export HF_TOKEN=*** A=1", "                    ^^^"),
        ("c(hub_token='火車火車', a=1)", "a=1", "c(hub_token='***', a=1)", "                   ^^^"),
    ],
)
def test_one_line(source: str, piece: str, shown: str, marks: str) -> None:
    [row] = rows(source, piece)
    assert row == Row(1, shown, marks)
    assert cell_len(row.marks) <= cell_len(row.text)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("lines", "upto", "expected"),
    [
        (["c = f(", "    a=1)"], "a=1)", [Row(1, "c = f(", "    ^^"), Row(2, "    a=1)", "    ^^^^")]),
        (
            ["c = f(  ", "    a=1,", "    b=2,", ")"],
            "\n)",
            [Row(1, "c = f(  ", "    ^^"), Row(None), Row(4, ")", "^")],
        ),
        (["c = f(", "", "\t火)"], "火)", [Row(1, "c = f(", "    ^^"), Row(None), Row(3, "    火)", "    ^^^")]),
    ],
)
def test_several_lines(newline: str, lines: list[str], upto: str, expected: list[Row]) -> None:
    assert rows(newline.join(lines), "f(", upto=upto.replace("\n", newline)) == expected


def test_a_byte_order_mark_takes_no_column() -> None:
    span = Span("train.py", 5, 8, 1, 3, 1, 6)
    assert Pages({"train.py": b"\xef\xbb\xbff(a=1)"}).rows(span, "^") == [Row(1, "f(a=1)", "  ^^^")]


def test_form_feeds_and_unicode_separators_end_no_line() -> None:
    assert rows("a = '\u2028\x0c'\nf(a=1)", "a=1") == [Row(2, "f(a=1)", "  ^^^")]


def test_a_place_of_no_width_gets_one_mark() -> None:
    assert Pages({"r.yaml": b"a: 1\n"}).rows(Span("r.yaml", 4, 4, 1, 5, 1, 5), "^") == [Row(1, "a: 1", "    ^")]


@pytest.mark.parametrize(
    "span",
    [Span("gone.py", 0, 1, 1, 1, 1, 2), Span("train.py", 90, 91, 9, 1, 9, 2), Span("train.py", 0, 1, 1, 1, 1, 2, 1)],
    ids=["no source", "past the end", "no notebook"],
)
def test_no_source_no_frame(span: Span) -> None:
    assert Pages({"train.py": b"f(a=1)\n"}).rows(span, "^") == []


@pytest.mark.parametrize("cell", [["import trl\n", "f(火=1, a=1)"], "import trl\nf(火=1, a=1)"], ids=["list", "string"])
def test_notebook_lines_are_those_of_the_cell(cell: object) -> None:
    source = json.dumps({"cells": [{"source": ["# title"]}, {"source": cell}]}).encode()
    assert Pages({"n.ipynb": source}).rows(Span("n.ipynb", 60, 63, 2, 8, 2, 11, 2), "^") == [
        Row(2, "f(火=1, a=1)", "        ^^^")
    ]


def test_a_secret_on_the_line_after_its_name_is_hidden() -> None:
    source = 'os.environ["HF_TOKEN"] = (\n    "s3cret-value")\n'
    assert rows(source, '"s3cret-value"') == [Row(2, '    "***")', "    ^^^^^")]
