"""A Report in, the JSON contract (version 1) out.

Every key is always there and null, or empty, when it does not apply; only `ledger` comes with fixing alone. Beyond what
a finding shows elsewhere: `assumed` is the release it was judged by when the pins allow others, `undecided` the value
that would decide a possible finding, `held_back` why its fix must not be written. Lines and columns are 1-based code
points, ends exclusive, counted within `cell` when it is set; an edit's `start` and `end` are byte offsets in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from trl_lint.model import Edit, Finding, Fix, Ledger, Related, Report, RunSummary, Skip
from trl_lint.reports.redaction import redact_all
from trl_lint.reports.words import ordered, portable

VERSION = 1


def render(report: Report) -> str:
    """One document, indented by two, with a newline at its end."""
    document: dict[str, object] = {
        "version": VERSION,
        "tool": f"trl-lint {report.version}",
        "files": report.files,
        "runs": [_run(run) for run in report.runs],
        "findings": [_finding(finding) for finding in ordered(report)],
        "skipped": [_skip(skip) for skip in report.skipped],
    }
    if report.ledger is not None:
        document["ledger"] = _ledger(report.ledger)
    return json.dumps(redact_all(document), indent=2, ensure_ascii=False) + "\n"


def _run(run: RunSummary) -> dict[str, object]:
    facts = {name: dict(fact) for name, fact in run.facts.items()}
    return {"id": run.id, "method": run.method, "files": list(run.files), "facts": facts}


def _finding(finding: Finding) -> dict[str, object]:
    span = finding.span
    return {
        "rule": finding.rule,
        "group": finding.group,
        "severity": finding.severity.name,
        "certainty": finding.certainty,
        "message": finding.message,
        "path": span.path,
        "cell": span.cell,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
        "method": finding.method,
        "runs": list(finding.runs),
        "fields": list(finding.fields),
        "assumed": finding.assumed,
        "undecided": finding.undecided,
        "held_back": finding.held_back,
        "related": [_related(related) for related in finding.related],
        "fix": None if finding.fix is None else _fix(finding.fix),
        "evidence": None if finding.measured is None else dict(finding.measured.summary),
    }


def _related(related: Related) -> dict[str, object]:
    span = related.span
    return {"path": span.path, "line": span.line, "end_line": span.end_line, "message": related.message}


def _fix(fix: Fix) -> dict[str, object]:
    return {
        "title": fix.title,
        "safety": fix.safety,
        "effect": fix.effect,
        "needs": list(fix.needs),
        "edits": [_edit(edit) for edit in fix.edits] if portable(fix) else [],
    }


def _edit(edit: Edit) -> dict[str, object]:
    return {"path": edit.path, "start": edit.start, "end": edit.end, "text": edit.text}


def _skip(skip: Skip) -> dict[str, object]:
    return {"path": skip.path, "reason": skip.reason}


def _ledger(ledger: Ledger) -> Mapping[str, object]:
    return {
        "applied": len(ledger.applied),
        "held_back": _unwritten(ledger.held_back),
        "failed": _unwritten(ledger.failed),
    }


def _unwritten(entries: Iterable[tuple[Finding, str]]) -> list[dict[str, object]]:
    return [
        {"rule": finding.rule, "path": finding.span.path, "line": finding.span.line, "reason": why}
        for finding, why in sorted(entries, key=lambda entry: entry[0].order)
    ]
