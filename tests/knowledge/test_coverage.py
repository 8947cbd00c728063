"""The table of guards is what the program counts, and nothing that options alone decide is left undecided."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.version import Version

from trl_lint import knowledge
from trl_lint.knowledge import coverage, load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guards.md").read_text("utf-8")
SOME = (knowledge.newest("trl"), "0.24.0")


def numbers(version: str) -> list[int]:
    """The numbers that the page has for a release, of both of its tables."""
    rows = re.findall(rf"^\| {re.escape(version)} \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 2
    return [int(number) for row in rows for number in row.split(" | ")]


def heads() -> list[str]:
    return [name for row in re.findall(r"^\| trl \| (.*) \|$", PAGE, re.MULTILINE) for name in row.split(" | ")]


@pytest.mark.parametrize("version", SOME)
def test_the_page_is_current(version: str) -> None:
    counted = coverage.row(version, coverage.page_guards(ROOT / "rules"))
    assert dict(zip(heads(), numbers(version), strict=True)) == {name: counted[name] for name in heads()}
    assert set(counted) <= set(heads())


def test_the_page_has_every_release() -> None:
    listed = re.findall(r"^\| ([\d.]+) \|", PAGE, re.MULTILINE)
    expected = [v for v in knowledge.releases("trl") if Version(v) >= coverage.OLDEST]
    assert listed == expected * 2


@pytest.mark.parametrize("version", SOME)
def test_every_number_adds_up(version: str) -> None:
    found = dict(zip(heads(), numbers(version), strict=True))
    assert found["guards"] == sum(found[name] for name in coverage.SPOKEN) + found["undecidable"]
    reasons = heads()[heads().index("undecidable") + 1 :]
    assert found["undecidable"] == sum(found[reason] for reason in reasons)


@pytest.mark.parametrize("version", SOME)
def test_what_options_alone_decide_is_decided(version: str) -> None:
    assert [item for item in coverage.configurable(version) if coverage.accounted(item) is None] == []


def test_nothing_is_left_unaccounted_on_the_page() -> None:
    assert "NOT ACCOUNTED FOR" not in PAGE


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("a and opaque('self.parallelism_config.cp_enabled')", "processes and devices"),
        ("opaque('model.config.output_router_logits')", "model object"),
        ("opaque('args.n_gpu > 1')", "processes and devices"),
        ("opaque('labels is None')", "a step's batch and tensors"),
        ("opaque('for i in xs') and opaque('labels is None')", "loop over what the run holds"),
        ("a or opaque('labels is None')", None),
        ("not (a and opaque('labels is None'))", None),
        ("b if a else opaque('labels is None')", None),
        ("opaque('is_joblib_available()')", "what is installed"),
    ],
)
def test_reason(condition: str, reason: str | None) -> None:
    uncertain = coverage.guards.blocking(coverage.ast.parse(condition, mode="eval").body, True)
    row = ["!ValueError", "", condition, "trl/a.py:C.f", "C", "construction", *(["uncertain"] if uncertain else [])]
    assert coverage.undecidable(load._guard(row, condition)) == reason
