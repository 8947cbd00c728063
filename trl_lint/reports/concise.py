"""A Report in, a line for each finding out, for grep and for editors; last a summary."""

from __future__ import annotations

from trl_lint.model import Report
from trl_lint.reports import summary
from trl_lint.reports.words import location, one_line, ordered, told_with_evidence


def render(report: Report, *, quiet: bool) -> str:
    """`path:line:column: severity[rule] message` each. Skips are the caller's, on stderr."""
    lines = [
        f"{location(finding.span)}: {finding.severity.name}[{finding.rule}] {one_line(told_with_evidence(finding))}"
        for finding in ordered(report)
    ]
    return "".join(f"{line}\n" for line in [*lines, *([] if quiet else [_summary(report)])])


def _summary(report: Report) -> str:
    """One line, whatever was found and done."""
    found = f"{counted}." if (counted := summary.counted(report.findings)) else summary.found(report)
    return found if report.ledger is None else f"{found} {summary.fixed(report.ledger)}"
