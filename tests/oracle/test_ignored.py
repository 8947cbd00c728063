"""What was run of ignored options is what the pages say, and what the comparison of losses makes of four runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.helpers import all_rules, lint
from tests.oracle.ignored import EXPERIMENTS, Experiment, settings_of, verdict

SCRIPT = """from trl import {0}Config, {0}Trainer

args = {0}Config(output_dir="out", {1})
trainer = {0}Trainer(model="Qwen/Qwen3-0.6B", args=args, train_dataset=data{2})
"""


def found(experiment: Experiment, *, liger: bool) -> list[str]:
    """What the linter says of the second value, which is not the one that Liger takes anyway."""
    settings = settings_of(experiment, experiment.values[1], liger)
    if settings.pop("ratio", None) is not None:
        settings |= {"use_vllm": True, "vllm_importance_sampling_correction": True}
    rewards = ", reward_funcs=reward" if experiment.method == "grpo" else ""
    told = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    examined = lint(
        SCRIPT.format(experiment.method.upper(), told, rewards), trl=experiment.trl, liger_kernel=experiment.liger
    )
    return [finding.rule for finding in examined.findings if finding.rule == experiment.page]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: f"{e.page} {e.trl}")
def test_the_page_speaks_where_the_option_is_ignored_or_refused(experiment: Experiment) -> None:
    assert bool(found(experiment, liger=True)) == (experiment.said != "honoured")
    assert bool(found(experiment, liger=False)) == (experiment.said == "without effect")


def test_every_page_on_an_ignored_option_was_run() -> None:
    pages = {rule.name for rule in all_rules() if rule.name.startswith("liger-ignores-")}
    assert pages <= {experiment.page for experiment in EXPERIMENTS if experiment.said == "ignored"}


A, B, STOPS = {"losses": [1.0, 0.5]}, {"losses": [1.0, 0.6]}, {"error": "ValueError: no"}


@pytest.mark.parametrize(
    ("fused", "ordinary", "seen"),
    [
        ((A, A), (A, B), "ignored"),
        ((A, B), (A, B), "honoured"),
        ((A, STOPS), (A, B), "raises"),
        ((A, A), (A, A), "without effect"),
        ((A, {"losses": [float("nan")] * 2}), (A, A), "NaN"),
        ((A, B), (STOPS, B), "nothing shown"),
        ((STOPS, STOPS), (STOPS, STOPS), "nothing shown"),
    ],
)
def test_four_runs_say_what_becomes_of_an_option(
    fused: tuple[Mapping[str, Any], ...], ordinary: tuple[Mapping[str, Any], ...], seen: str
) -> None:
    assert verdict(fused, ordinary) == seen
