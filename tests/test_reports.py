"""Bug reports that people filed, as inputs: what each expects is found, and what only looks wrong is left alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trl_lint.facts import forget
from trl_lint.model import Finding, Severity, Site, Span
from trl_lint.rulebook.files import Examined, examine
from trl_lint.sources.text import Text

from .helpers import ROOT, context

FOLDER = ROOT / "fixtures" / "reports"
CASES = {p.name: json.loads((p / "expected.json").read_text("utf-8")) for p in sorted(FOLDER.iterdir())}
PYTHON = {name: case for name, case in CASES.items() if case["input"].endswith(".py")}

# Recipes and launch scripts are read from part 2 on; until then nothing looks at them.
WAITING = sorted(set(CASES) - set(PYTHON))

# What a trap is about: the groups or rules that must not speak of it.
UNDECIDABLE = {
    # The dataset's content decides; the file does not show it.
    ("c048", 7),
}


def judged(name: str) -> Examined:
    forget()
    path = os.path.relpath(FOLDER / name / "train.py")
    return examine(path, Text(path, Path(path).read_bytes()), context())


def touched(finding: Finding, examined: Examined) -> list[Span]:
    """The spans that a finding touches: its own, its related ones, and the calls these stand in."""
    spans = [finding.span, *(r.span for r in finding.related)]
    sites: list[Site] = [
        s for s in examined.module.sites if any(s.span.start <= p.start and p.end <= s.span.end for p in spans)
    ]
    return [*spans, *(s.span for s in sites)]


def meets(finding: Finding, expected: dict[str, Any], examined: Examined) -> bool:
    if finding.severity < Severity.warning or finding.certainty == "possible":
        return False
    if not any(s.line <= expected["line"] <= s.end_line for s in touched(finding, examined)):
        return False
    argument = expected["argument"]
    text = " ".join(
        [finding.message, *finding.fields, *(examined.text.code[slice(*_points(s, examined))] for s in [finding.span])]
    )
    return argument is None or argument in text


def _points(span: Span, examined: Examined) -> tuple[int, int]:
    return examined.text.point(examined.text.utf8_of_byte(span.start)), examined.text.point(
        examined.text.utf8_of_byte(span.end)
    )


@pytest.mark.parametrize("name", [n for n, c in PYTHON.items() if c["verdict"] == "finding"])
def test_report_is_found(name: str) -> None:
    examined = judged(name)
    for expected in PYTHON[name]["findings"]:
        if (name, expected["line"]) in UNDECIDABLE:
            continue
        met = [f for f in examined.findings if meets(f, expected, examined)]
        assert met, (
            f"{expected['problem']}\nfound only: {[(f.span.line, f.rule, f.message) for f in examined.findings]}"
        )
        if PYTHON[name]["fix"]["safety"] == "safe" and expected["severity"] == "error":
            assert any(f.fix is not None or f.alternatives for f in met), (
                f"no fix is offered: {PYTHON[name]['fix']['change']}"
            )


@pytest.mark.parametrize("name", [n for n, c in PYTHON.items() if c["verdict"] == "silent"])
def test_trap_stays_silent(name: str) -> None:
    loud = [f for f in judged(name).findings if f.severity >= Severity.warning]
    assert not loud, [(f.span.line, f.rule, f.message) for f in loud]


def test_what_waits_for_other_kinds_of_source_is_listed() -> None:
    assert len(WAITING) + len(PYTHON) == 94
    assert all(CASES[name]["input"].endswith((".sh", ".yaml")) for name in WAITING)
