"""What CI systems read: GitLab's Code Quality report and JUnit XML."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trl_lint.model import Finding, Measured, Severity

from .building import finding, report, span_of, written

SOURCE = b"args = GRPOConfig(\n    use_vllm=False,\n)\n"
SPAN = span_of(SOURCE, "use_vllm=False")
SEVERITIES = [
    (Severity.error, "certain", "critical"),
    (Severity.warning, "assumed", "major"),
    (Severity.note, "certain", "info"),
    (Severity.error, "possible", "info"),
]


def gitlab(*findings: Finding) -> list[dict[str, object]]:
    issues: list[dict[str, object]] = json.loads(written(report(*findings, sources={"train.py": SOURCE}), "gitlab"))
    return issues


def test_a_gitlab_issue() -> None:
    (issue,) = gitlab(finding(SPAN))
    assert issue == {
        "description": "generation takes most of each step",
        "check_name": "online-without-vllm",
        "fingerprint": issue["fingerprint"],
        "severity": "major",
        "location": {"path": "train.py", "lines": {"begin": 2, "end": 2}},
    }


@pytest.mark.parametrize(("severity", "certainty", "shown"), SEVERITIES)
def test_gitlab_severities(severity: Severity, certainty: str, shown: str) -> None:
    assert gitlab(finding(SPAN, severity=severity, certainty=certainty))[0]["severity"] == shown


def test_a_gitlab_fingerprint_is_of_the_finding_and_not_of_its_line() -> None:
    moved = replace(finding(SPAN), span=SPAN._replace(line=9, end_line=9))
    assert gitlab(finding(SPAN))[0]["fingerprint"] == gitlab(moved)[0]["fingerprint"]
    twice = [issue["fingerprint"] for issue in gitlab(finding(SPAN), moved)]
    assert len(set(twice)) == 2
    assert gitlab(finding(SPAN, rule="other"))[0]["fingerprint"] not in twice


def test_gitlab_paths_are_those_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    monkeypatch.chdir(tmp_path / "jobs")
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    assert gitlab(finding(SPAN))[0]["location"] == {"path": "jobs/train.py", "lines": {"begin": 2, "end": 2}}
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path / "elsewhere"))
    assert gitlab(finding(SPAN))[0]["location"] == {"path": "train.py", "lines": {"begin": 2, "end": 2}}


def test_no_finding_is_an_empty_list() -> None:
    assert written(report(), "gitlab") == "[]\n"


# JUnit -------------------------------------------------------------------------------------------------------------------

# What Jenkins' xunit plugin lets stand where (junit-10.xsd), as far as it is used here.
ELEMENTS = {
    "testsuites": ({"name", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped"}, {"testcase"}),
    "testcase": ({"name", "classname"}, {"failure", "skipped"}),
    "failure": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
}


def junit(*findings: Finding) -> ElementTree.Element:
    root = ElementTree.fromstring(written(report(*findings, sources={"train.py": SOURCE}), "junit"))
    for element in root.iter():
        attributes, children = ELEMENTS[element.tag]
        assert set(element.attrib) <= attributes
        assert {child.tag for child in element} <= children
    for suite in root:
        assert suite.get("tests") == str(len(suite))
        assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
    return root


def test_a_suite_for_a_file_and_a_case_for_a_finding() -> None:
    other = finding(SPAN._replace(path="other.py"), severity=Severity.note)
    root = junit(finding(SPAN), finding(SPAN, rule="b"), other)
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "2", "0")
    assert [suite.get("name") for suite in root] == ["other.py", "train.py"]
    case = root.find("testsuite[@name='train.py']/testcase")
    assert case is not None
    assert case.attrib == {"name": "b at train.py:2:5", "classname": "train.py"}
    failure = case.find("failure")
    assert failure is not None
    assert failure.attrib == {"type": "warning", "message": "generation takes most of each step"}


@pytest.mark.parametrize(("severity", "certainty", "shown"), SEVERITIES)
def test_what_fails_a_junit_run(severity: Severity, certainty: str, shown: str) -> None:
    root = junit(finding(SPAN, severity=severity, certainty=certainty))
    assert root.get("failures") == ("0" if shown == "info" else "1")
    assert root[0].get("skipped") == ("1" if shown == "info" else "0")


def test_no_finding_is_a_case_that_passes() -> None:
    root = junit()
    assert (root.get("tests"), root.get("failures")) == ("1", "0")
    assert root.find("testsuite/testcase[@name='no findings']") is not None


def test_what_xml_cannot_hold_is_shown_otherwise() -> None:
    root = junit(finding(SPAN, message='a \x1b[31m <b> & "c" \ud800 \ufffe hf_abcdefghijklmnopqrstuvwx'))
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.get("message") == 'a ␛[31m <b> & "c" \ufffd \ufffd ***'


# Evidence ----------------------------------------------------------------------------------------------------------------

SUMMARY = {"verdict": "confirmed", "speedup": 6.8, "stale": False}
SAID = "6.8x, measured on NVIDIA H200 on 2026-11-30"


@pytest.mark.parametrize("format", ["concise", "github", "gitlab", "junit"])
def test_evidence_follows_the_message(format: str) -> None:
    shown = finding(SPAN, measured=Measured(SAID, SUMMARY))
    text = written(report(shown, sources={"train.py": SOURCE}), format)
    assert f"generation takes most of each step ({SAID})" in text
    changed = finding(SPAN, measured=Measured(f"{SAID}; your run has since changed (trl 1 -> 2)", SUMMARY))
    text = written(report(changed, sources={"train.py": SOURCE}), format)
    assert f"generation takes most of each step ({SAID}, of a run that has changed since)" in text


def test_evidence_has_a_line_of_its_own_in_the_terminal() -> None:
    shown = finding(SPAN, measured=Measured(SAID, SUMMARY))
    assert f"= evidence: {SAID}\n" in written(report(shown, sources={"train.py": SOURCE}), "terminal")
