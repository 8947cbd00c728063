"""A Report in, SARIF 2.1.0 out (https://docs.oasis-open.org/sarif/sarif/v2.1.0/): for code scanning and IDEs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import PureWindowsPath
from urllib.parse import quote

from trl_lint.model import Edit, Finding, Fix, Report, Severity, Span
from trl_lint.reports.identity import fingerprints
from trl_lint.reports.redaction import redact_all
from trl_lint.reports.words import in_file, ordered, portable, safety, told

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"

_LEVELS = {Severity.error: "error", Severity.warning: "warning", Severity.note: "note"}


def render(report: Report) -> str:
    """One log with one run, indented by two, with a newline at its end."""
    findings = ordered(report)
    rules = sorted({finding.rule: finding.group for finding in findings}.items())
    indexes = {rule: index for index, (rule, _) in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "trl-lint",
                "version": report.version,
                "rules": [_rule(rule, group) for rule, group in rules],
            }
        },
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(report)}],
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(finding, indexes[finding.rule], fingerprint, report.sources)
            for finding, fingerprint in zip(findings, fingerprints(findings, report.sources), strict=True)
        ],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(redact_all(document), indent=2, ensure_ascii=False) + "\n"


def _rule(rule: str, group: str) -> dict[str, object]:
    words = rule.split("-")
    return {
        "id": rule,
        "name": "".join(word.capitalize() for word in words),
        "shortDescription": {"text": " ".join(words).capitalize()},
        "help": {"text": f"trl-lint explain {rule}"},
        "properties": {"group": group},
    }


def _notifications(report: Report) -> list[dict[str, object]]:
    """Skipped files and notes: a scan that left something out says so."""
    skipped: list[dict[str, object]] = [
        {
            "level": "warning",
            "message": {"text": f"skipped: {skip.reason}"},
            "locations": [{"physicalLocation": {"artifactLocation": _artifact(skip.path)}}],
        }
        for skip in report.skipped
    ]
    notes: list[dict[str, object]] = [{"level": "note", "message": {"text": note}} for note in report.notes]
    return skipped + notes


def _result(finding: Finding, index: int, fingerprint: str, sources: Mapping[str, bytes]) -> dict[str, object]:
    properties: dict[str, object] = {"certainty": finding.certainty, "severity": finding.severity.name}
    if finding.measured is not None:
        properties["evidence"] = {**finding.measured.summary, "text": finding.measured.said}
    result: dict[str, object] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        # What is only possible must not trip a gate on errors.
        "level": "note" if finding.certainty == "possible" else _LEVELS[finding.severity],
        "message": {"text": told(finding)},
        "locations": [{"physicalLocation": _physical(finding.span, sources)}],
        "relatedLocations": [
            {"id": id, "physicalLocation": _physical(related.span, sources), "message": {"text": related.message}}
            for id, related in enumerate(finding.related, 1)
        ],
        "partialFingerprints": {"trlLint/v1": fingerprint},
        "properties": properties,
    }
    fix = finding.fix
    # A viewer applies what it is given, so only fixes that may be written are given.
    if fix is not None and fix.edits and finding.held_back is None and portable(fix):
        result["fixes"] = [_fix(fix)]
    return result


# Places --------------------------------------------------------------------------------------------------------------


def _physical(span: Span, sources: Mapping[str, bytes]) -> dict[str, object]:
    region: dict[str, object] = {}
    counted = in_file(span, sources)
    if counted is not None:
        region |= {
            "startLine": counted.line,
            "startColumn": counted.column,
            "endLine": counted.end_line,
            "endColumn": counted.end_column,
        }
    region |= _bytes(span.start, span.end)
    return {"artifactLocation": _artifact(span.path), "region": region}


def _bytes(start: int, end: int) -> dict[str, object]:
    return {"byteOffset": start, "byteLength": end - start}


def _artifact(path: str) -> dict[str, object]:
    """A file as a URI: relative to the root of the checkout, unless the path is absolute."""
    windows = PureWindowsPath(path)
    if windows.drive and windows.root:
        return {"uri": f"file:///{quote(windows.as_posix(), safe='/:')}"}
    # As bytes, since a name on disk need not be UTF-8.
    uri = quote(os.fsencode(path.replace("\\", "/").removeprefix("./")), safe="/")
    return {"uri": f"file://{uri}"} if uri.startswith("/") else {"uri": uri, "uriBaseId": ROOT}


# Fixes ---------------------------------------------------------------------------------------------------------------


def _fix(fix: Fix) -> dict[str, object]:
    edits: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        edits.setdefault(edit.path, []).append(edit)
    return {
        "description": {"text": f"{fix.title} ({safety(fix)})"},
        "artifactChanges": [
            {"artifactLocation": _artifact(path), "replacements": [_replacement(edit) for edit in of_file]}
            for path, of_file in edits.items()
        ],
    }


def _replacement(edit: Edit) -> dict[str, object]:
    return {"deletedRegion": _bytes(edit.start, edit.end), "insertedContent": {"text": edit.text}}
