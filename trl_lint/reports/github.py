"""A Report in, GitHub workflow commands out: annotations on the lines of a pull request."""

from __future__ import annotations

from collections.abc import Mapping

from trl_lint.model import Finding, Report, Severity
from trl_lint.reports.redaction import redact
from trl_lint.reports.words import in_file, ordered, told_with_evidence

_COMMANDS = {Severity.error: "error", Severity.warning: "warning", Severity.note: "notice"}


def render(report: Report) -> str:
    """A command a line: `::error file=…,line=…,title=rule::message`."""
    return "".join(f"{_annotation(finding, report.sources)}\n" for finding in ordered(report))


def _annotation(finding: Finding, sources: Mapping[str, bytes]) -> str:
    command = "notice" if finding.certainty == "possible" else _COMMANDS[finding.severity]
    properties: dict[str, object] = {"file": finding.span.path.replace("\\", "/")}
    span = in_file(finding.span, sources)
    if span is not None:
        properties |= {"line": span.line, "endLine": span.end_line}
    # GitHub refuses columns on an annotation of several lines (actions/toolkit, AnnotationProperties).
    if span is not None and span.line == span.end_line:
        properties |= {"col": span.column, "endColumn": span.end_column}
    properties["title"] = finding.rule
    given = ",".join(f"{name}={_property(redact(str(value)))}" for name, value in properties.items())
    cell = "" if finding.span.cell is None else f"cell {finding.span.cell}, line {finding.span.line}: "
    return f"::{command} {given}::{_data(redact(cell + told_with_evidence(finding)))}"


def _data(text: str) -> str:
    """Escaped as actions/toolkit does in packages/core/src/command.ts (escapeData)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The same file's escapeProperty."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
