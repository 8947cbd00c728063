"""A Report in, GitLab's Code Quality report out (https://docs.gitlab.com/ci/testing/code_quality/): for merge requests."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from trl_lint.model import Finding, Report, Severity
from trl_lint.reports.identity import fingerprints
from trl_lint.reports.redaction import redact_all
from trl_lint.reports.words import in_file, ordered, told_with_evidence

_SEVERITIES = {Severity.error: "critical", Severity.warning: "major", Severity.note: "info"}


def render(report: Report) -> str:
    """One list, indented by two, with a newline at its end."""
    findings = ordered(report)
    issues = [
        _issue(finding, fingerprint, report.sources)
        for finding, fingerprint in zip(findings, fingerprints(findings, report.sources), strict=True)
    ]
    return json.dumps(redact_all(issues), indent=2, ensure_ascii=False) + "\n"


def _issue(finding: Finding, fingerprint: str, sources: Mapping[str, bytes]) -> dict[str, object]:
    span = in_file(finding.span, sources)
    lines = {"begin": 1} if span is None else {"begin": span.line, "end": span.end_line}
    return {
        "description": told_with_evidence(finding),
        "check_name": finding.rule,
        "fingerprint": fingerprint,
        # What is only possible must not stand among what is.
        "severity": "info" if finding.certainty == "possible" else _SEVERITIES[finding.severity],
        "location": {"path": _path(finding.span.path), "lines": lines},
    }


def _path(path: str) -> str:
    """GitLab wants paths from the repository's root, which a job names; a job may have gone into a folder."""
    root = os.environ.get("CI_PROJECT_DIR")
    here = os.path.abspath(path)
    inside = root is not None and here.startswith(os.path.join(os.path.abspath(root), ""))
    shown = os.path.relpath(here, root) if inside else path
    return shown.replace("\\", "/").removeprefix("./")
