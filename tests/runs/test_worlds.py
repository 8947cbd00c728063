"""Which releases a file is judged by, and what a rule's truth over them is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_lint import knowledge
from trl_lint.facts import Fact, Facts
from trl_lint.runs import worlds

from ..helpers import fix, lint


def facts(**packages: str) -> Facts:
    found = {}
    for name, text in packages.items():
        exact = text.removeprefix("==") if text.startswith("==") else None
        found[name] = Fact(name, text, exact, "declared", "requirements.txt:1")
    return Facts(packages=found)


@pytest.mark.parametrize(
    ("given", "trl", "transformers"),
    [
        ({"trl": "==1.9.2"}, "1.9.2", None),
        ({"trl": "==1.16.0"}, "1.16.0", "5.24.0"),
        ({}, "1.16.0", "5.24.0"),
        ({"trl": ">=0.16,<0.20"}, "0.19.1", None),
        ({"trl": "==1.9.2", "transformers": "==5.12.1"}, "1.9.2", "5.12.1"),
        # An old transformers leaves only the TRL releases that accept it: the resolver would pick one of those.
        ({"transformers": "==4.46.3"}, "0.17.0", "4.46.3"),
        ({"trl": "==1.10.0.dev0"}, "1.10.0.dev0", None),
    ],
)
def test_assumed_world(given: dict[str, str], trl: str, transformers: str | None) -> None:
    found = worlds(facts(**given))
    assert found.assumed is not None
    assert found.assumed.version == trl
    assert transformers is None or found.assumed.transformers == transformers


def test_an_extra_narrows_the_releases() -> None:
    """`trl[vllm]` beside vllm==0.11.0 is no TRL 1.16, whose extra wants vLLM 0.22: pip would take 1.2.0."""
    packages = {
        "trl": Fact("trl", "", None, "declared", "requirements.txt:1", extras=("vllm",)),
        "vllm": Fact("vllm", "==0.11.0", "0.11.0", "declared", "requirements.txt:2"),
    }
    found = worlds(Facts(packages=packages)).assumed
    assert found is not None
    assert found.version == "1.2.0"


def test_an_old_pin_is_not_given_todays_transformers() -> None:
    found = worlds(facts(trl="==0.17.0")).assumed
    assert found is not None
    assert found.transformers is not None
    superseded = knowledge.dated("trl", "0.18.0")
    assert superseded is not None
    assert (knowledge.dated("transformers", found.transformers) or "") <= superseded


@pytest.mark.parametrize(("pin", "word"), [("==9.0.0", "newer"), (">=2,<3", "more than"), ("==0.4.7", "older")])
def test_pins_beyond_what_is_known_are_said(pin: str, word: str) -> None:
    found = worlds(facts(trl=pin))
    assert any(word in note for note in found.notes)
    assert found.assumed is None or not found.bounded


SCRIPT = 'from trl import SFTConfig\n\nargs = SFTConfig(output_dir="out", max_seq_length=512)\n'


def test_certain_where_every_allowed_release_agrees() -> None:
    found = lint("# trl-lint: facts trl>=0.20\n" + SCRIPT, "unknown-config-field").findings
    assert [f.certainty for f in found] == ["certain"]


def test_assumed_where_an_older_allowed_release_differs() -> None:
    found = lint(SCRIPT, "unknown-config-field").findings
    assert [(f.certainty, f.assumed) for f in found] == [("assumed", "trl 1.16.0")]


def test_an_assumed_fix_is_not_written_where_it_would_break_an_allowed_release() -> None:
    fixed = fix("# trl-lint: facts trl>=0.14\n" + SCRIPT, "unknown-config-field")
    assert fixed.after == fixed.before
    assert "which nothing here rules out" in fixed.failed[0][1]


def test_an_assumed_fix_is_written_where_it_is_right_in_all_allowed_releases() -> None:
    fixed = fix("# trl-lint: facts trl>=0.16\n" + SCRIPT, "unknown-config-field")
    assert b"max_length=512" in fixed.after


def test_a_trl_newer_than_known_gives_no_version_bounded_error() -> None:
    assert lint("# trl-lint: facts trl==7.0\n" + SCRIPT).findings == ()


def test_a_source_tree_is_read_where_it_is(tmp_path: Path) -> None:
    package = tmp_path / "trl"
    package.mkdir()
    (package / "__init__.py").write_text("from .config import SFTConfig\n", "utf-8")
    (package / "config.py").write_text(
        "from dataclasses import dataclass\nfrom transformers import TrainingArguments\n\n\n@dataclass\nclass SFTConfig(TrainingArguments):\n    brand_new: int = 1\n",
        "utf-8",
    )
    found = worlds(Facts(packages={}, source_tree=str(tmp_path), source_version="2.0.0.dev0"))
    assert found.assumed is not None
    config = found.assumed.release.config("SFTConfig")
    assert config is not None
    assert "brand_new" in config.fields
