"""A Report in, JUnit XML out: for CI systems that show test results.

The attributes are those that Jenkins accepts (its xunit plugin's junit-10.xsd), the strictest of the readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

from trl_lint.model import Finding, Report, Severity
from trl_lint.reports.redaction import redact
from trl_lint.reports.words import location, ordered, printable, told_with_evidence

# What XML 1.0 cannot hold, not even escaped; control characters are shown as signs before (`printable`).
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    """A suite for each file with findings, a test case for each finding; without any one case that passes."""
    by_path: dict[str, list[Finding]] = {}
    for finding in ordered(report):
        by_path.setdefault(finding.span.path, []).append(finding)
    root = ElementTree.Element("testsuites", {"name": "trl-lint", **_counts(report.findings)})
    for path, findings in by_path.items():
        suite = ElementTree.SubElement(
            root, "testsuite", {"name": _text(path), **_counts(findings), "skipped": _notes(findings)}
        )
        for finding in findings:
            _case(suite, finding)
    if not by_path:
        suite = ElementTree.SubElement(root, "testsuite", {"name": "trl-lint", **_counts(()), "tests": "1"})
        ElementTree.SubElement(suite, "testcase", {"name": "no findings", "classname": "trl-lint"})
        root.set("tests", "1")
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _case(suite: ElementTree.Element, finding: Finding) -> None:
    given = {"name": f"{finding.rule} at {location(finding.span)}", "classname": finding.span.path}
    case = ElementTree.SubElement(suite, "testcase", {name: _text(value) for name, value in given.items()})
    # A note, and what is only possible, is no failure: it must not turn a pipeline red.
    outcome = "failure" if _fails(finding) else "skipped"
    said = {"type": finding.severity.name, "message": _text(told_with_evidence(finding))}
    ElementTree.SubElement(case, outcome, said).text = _text(f"trl-lint explain {finding.rule}")


def _counts(findings: Iterable[Finding]) -> dict[str, str]:
    every = list(findings)
    return {"tests": str(len(every)), "failures": str(sum(map(_fails, every))), "errors": "0"}


def _notes(findings: Iterable[Finding]) -> str:
    return str(sum(not _fails(f) for f in findings))


def _fails(finding: Finding) -> bool:
    return finding.certainty != "possible" and finding.severity > Severity.note


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", printable(redact(text)))
