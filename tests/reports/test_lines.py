"""The formats of one line a finding: concise and github."""

import pytest

from trl_lint.model import Finding, Severity, Skip, Span

from .building import finding, report, span_of, written

NOTEBOOK = '{"cells": [\n "source": ["火",\n  "火(a=1)"]]}'.encode()
CELL = Span("n.ipynb", NOTEBOOK.index(b"a=1"), NOTEBOOK.index(b"a=1)") + 3, 2, 3, 2, 6, 3)
TRAIN = span_of(b"a\nf(a=1)\n", "a=1")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (finding(TRAIN), "train.py:2:3: warning[online-without-vllm] generation takes most of each step"),
        (
            finding(TRAIN, severity=Severity.error, message="one\ntwo", assumed="trl 1.16.0"),
            "train.py:2:3: error[online-without-vllm] one two (assuming trl 1.16.0)",
        ),
        (
            finding(CELL, severity=Severity.note, message="m", undecided="gpu.model"),
            "n.ipynb:cell 3:2:3: note[online-without-vllm] m (undecided: gpu.model)",
        ),
    ],
)
def test_concise(given: Finding, line: str) -> None:
    assert written(report(given), "concise", quiet=True) == f"{line}\n"


def test_concise_is_sorted_and_summed_up() -> None:
    late, early = finding(Span("b.py", 0, 1, 1, 1, 1, 2)), finding(Span("a.py", 0, 1, 9, 1, 9, 2))
    lines = written(report(late, early, skipped=(Skip("c.py", "why"),)), "concise").splitlines()
    assert [line[:4] for line in lines[:-1]] == ["a.py", "b.py"]
    assert lines[-1] == "Found 2 warnings."


@pytest.mark.parametrize(
    ("quiet", "line"), [(False, "No findings in 12 files (1 run).\n"), (True, "")], ids=["told", "quiet"]
)
@pytest.mark.parametrize("format", ["concise", "terminal"])
def test_no_findings(format: str, quiet: bool, line: str) -> None:
    assert written(report(), format, quiet=quiet).endswith(line)
    assert not quiet or written(report(), format, quiet=True) == ""


SPOT = "line=2,endLine=2,col=3,endColumn=6"


@pytest.mark.parametrize(
    ("given", "command"),
    [
        (finding(TRAIN, message="m"), f"::warning file=train.py,{SPOT},title=online-without-vllm::m"),
        (
            finding(TRAIN, severity=Severity.error, message="50%\r\na: b, c"),
            f"::error file=train.py,{SPOT},title=online-without-vllm::50%25%0D%0Aa: b, c",
        ),
        (
            finding(Span("a,b:100%.py", 0, 9, 1, 2, 3, 4), severity=Severity.note, message="m"),
            "::notice file=a%2Cb%3A100%25.py,line=1,endLine=3,title=online-without-vllm::m",
        ),
        (
            finding(TRAIN, severity=Severity.error, certainty="possible", message="m", undecided="gpu"),
            f"::notice file=train.py,{SPOT},title=online-without-vllm::m (undecided: gpu)",
        ),
        (
            finding(TRAIN, message="m", assumed="trl 1.16.0"),
            f"::warning file=train.py,{SPOT},title=online-without-vllm::m (assuming trl 1.16.0)",
        ),
        (
            finding(CELL, message="m"),
            "::warning file=n.ipynb,line=3,endLine=3,col=6,endColumn=9,title=online-without-vllm::cell 3, line 2: m",
        ),
        (
            finding(Span("gone.ipynb", 3, 6, 2, 3, 2, 6, 3), message="m"),
            "::warning file=gone.ipynb,title=online-without-vllm::cell 3, line 2: m",
        ),
    ],
)
def test_github(given: Finding, command: str) -> None:
    assert written(report(given, sources={"n.ipynb": NOTEBOOK}), "github") == f"{command}\n"


def test_github_of_nothing_is_nothing() -> None:
    assert written(report(), "github") == ""
