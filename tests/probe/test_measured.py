"""No figure of a page's "Measured" section is typed by hand."""

from __future__ import annotations

from trl_lint.probe.measured import pages


def test_the_pages_say_what_the_records_say() -> None:
    made = pages()
    assert {p.stem for p in made} >= {"online-without-vllm", "fp16-on-ampere", "h200"}
    for page, text in made.items():
        assert page.read_text("utf-8") == text, f"{page}: run python -m trl_lint.probe.measured"
