"""A Report in, what a person reads out: each finding with its source framed and what to do about it, then the whole."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.console import Console
from rich.text import Text

from trl_lint.model import Finding, Report, Severity, Span
from trl_lint.reports import summary
from trl_lint.reports.frames import Pages, Row
from trl_lint.reports.words import advised, location, one_line, safety

_STYLES = {Severity.error: "bold red", Severity.warning: "bold yellow", Severity.note: "bold cyan"}
_GUTTER = "blue"


def render(report: Report, *, color: bool, quiet: bool) -> str:
    """Every line whole, however narrow the terminal: a source line broken in two is above the wrong marks."""
    out = StringIO()
    console = Console(
        file=out,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    pages = Pages(report.sources)
    for finding in advised(report):
        for line in _lines(finding, pages):
            console.print(line, soft_wrap=True)
        console.print()
    for closing in () if quiet else summary.closing(report):
        console.print(Text(closing), soft_wrap=True)
    return out.getvalue()


def _lines(finding: Finding, pages: Pages) -> Iterator[Text]:
    style = _STYLES[finding.severity]
    primary = pages.rows(finding.span, "^")
    related = [(other, pages.rows(other.span, "-")) for other in finding.related]
    numbers = [row.number or 0 for rows in (primary, *(rows for _, rows in related)) for row in rows]
    width = len(str(max(numbers, default=0)))

    yield Text.assemble((f"{finding.severity.name}[{finding.rule}]", style), (f": {one_line(finding.message)}", "bold"))
    yield _pointer("-->", finding.span, width)
    yield from _frame(primary, width, style)
    for other, rows in related:
        message = one_line(other.message)
        yield _pointer(":::", other.span, width, "" if rows else f": {message}")
        yield from _frame(rows, width, _GUTTER, message)
    for label, text in _advice(finding):
        yield Text.assemble((f"{'':{width}} = ", _GUTTER), (f"{label}:", "bold"), f" {one_line(text)}")


def _pointer(arrow: str, span: Span, width: int, message: str = "") -> Text:
    return Text.assemble((f"{'':{width}}{arrow} ", _GUTTER), location(span) + message)


def _frame(rows: list[Row], width: int, style: str, message: str = "") -> Iterator[Text]:
    """The rows behind a gutter of line numbers; `message` follows the last marks."""
    if not rows:
        return
    bar = (f"{'':{width}} |", _GUTTER)
    yield Text.assemble(bar)
    for row in rows:
        if row.number is None:
            yield Text("…", _GUTTER)
            continue
        said = f" {message}" if message and row is rows[-1] else ""
        yield Text.assemble((f"{row.number:{width}} |", _GUTTER), f" {row.text}".rstrip())
        yield Text.assemble(bar, " ", (row.marks + said, style))
    yield Text.assemble(bar)


def _advice(finding: Finding) -> Iterator[tuple[str, str]]:
    """What can be done, and what stands in the way, as (label, text)."""
    if finding.fix is not None:
        yield "fix", f"{finding.fix.title} ({safety(finding.fix)})"
    for title in finding.alternatives:
        yield "or", title
    if finding.measured is not None:
        yield "evidence", finding.measured.said
    if finding.assumed is not None:
        written = "" if finding.fix is None else "; a fix is written if it is right for all of them"
        yield "assuming", f"{finding.assumed} (other releases may run{written})"
    if finding.undecided is not None:
        yield "undecided", finding.undecided
    if finding.held_back is not None:
        yield "held back", finding.held_back
    yield "help", f"trl-lint explain {finding.rule}"
