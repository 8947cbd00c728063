"""Findings, spans and fixes in, the phrases that several formats share out: where, what, how safe, how many."""

from __future__ import annotations

from collections.abc import Mapping

from trl_lint.model import Finding, Fix, Report, Severity, Span
from trl_lint.reports.redaction import redact

# What would move a terminal's cursor, change its colors, or reorder the text that a reader sees (CVE-2021-42574).
_INVISIBLE = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) != "\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
)


def printable(text: str) -> str:
    """`text` with control characters made visible."""
    return text.translate(_INVISIBLE)


def one_line(text: str) -> str:
    """`text` redacted and on one line, fit for a terminal."""
    return printable(redact(" ".join(text.splitlines())))


def ordered(report: Report) -> list[Finding]:
    """The findings in the order of every report."""
    return sorted(report.findings, key=lambda finding: finding.order)


def advised(report: Report) -> list[Finding]:
    """The findings in the order to act on: run by run, what stops or is wrong first, then by what is to be gained."""
    lead = {run.id: run.files[0] for run in report.runs if run.files}

    def rank(finding: Finding) -> tuple[object, ...]:
        first = min((lead[r] for r in finding.runs if r in lead), default=finding.span.path)
        return (first, *urgency(finding), finding.order)

    return sorted(report.findings, key=rank)


def urgency(finding: Finding) -> tuple[bool, bool, int, int]:
    """What is certain before what is possible, errors before advice, the larger gain before the smaller."""
    error = finding.severity is Severity.error
    return (finding.certainty == "possible", not error, 0 if error else -finding.gain, -finding.severity)


def location(span: Span) -> str:
    """`path:line:column`, or `path:cell 3:line:column` in a notebook: what editors and terminals make a link of."""
    cell = "" if span.cell is None else f":cell {span.cell}"
    return one_line(f"{span.path}{cell}:{span.line}:{span.column}")


def in_file(span: Span, sources: Mapping[str, bytes]) -> Span | None:
    """`span` with the lines and columns of the file itself, which viewers of a notebook's JSON count by.

    None when a cell's file is not at hand to count in.
    """
    if span.cell is None:
        return span
    source = sources.get(span.path)
    if source is None:
        return None
    line, column = _position(source, span.start)
    end_line, end_column = _position(source, span.end)
    return span._replace(line=line, column=column, end_line=end_line, end_column=end_column, cell=None)


def _position(source: bytes, offset: int) -> tuple[int, int]:
    """The 1-based line and code-point column of a byte offset."""
    before = source[:offset]
    return before.count(b"\n") + 1, len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1


def told(finding: Finding) -> str:
    """The message, with the release or the value that it hangs on: for formats that have one line."""
    if finding.undecided is not None:
        return f"{finding.message} (undecided: {finding.undecided})"
    if finding.assumed is not None:
        return f"{finding.message} (assuming {finding.assumed})"
    return finding.message


def told_with_evidence(finding: Finding) -> str:
    """What is told, and in brackets what was measured of the fix: for lines that people read."""
    if finding.measured is None:
        return told(finding)
    said, _, changed = finding.measured.said.partition(";")
    return f"{told(finding)} ({said}{', of a run that has changed since' if changed else ''})"


def safety(fix: Fix) -> str:
    """`safe`, or `unsafe: ` and why."""
    if fix.safety == "safe":
        return "safe"
    needs = [f"needs {' and '.join(fix.needs)}"] if fix.needs else []
    changes = [] if fix.effect == "same" else [f"changes {fix.effect}"]
    return ": ".join(["unsafe", *filter(None, [", ".join(needs + changes)])])


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def portable(fix: Fix) -> bool:
    """Whether the edits may leave this machine: one that carries a secret would, redacted, write `***` into a file."""
    return all(redact(edit.text) == edit.text for edit in fix.edits)
