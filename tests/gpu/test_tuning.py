"""The tuning runner holds what `tune` leaves against what a person would write, and its losses against its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import run_jobs
import run_tuning
import tuned_page
from jobs import TUNING
from test_run_jobs import Machine

from trl_lint.probe.evidence import load
from trl_lint.probe.measured import pooled


@pytest.mark.parametrize("job", TUNING, ids=lambda job: job.name)
def test_what_a_person_would_write_differs_from_the_defaults(job: run_jobs.Job) -> None:
    made = run_jobs.texts(job)
    assert len(set(made.values())) == 2
    assert "use_liger_kernel=True" in made["by hand"]


def test_the_best_is_held_against_advice_and_its_curves_against_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = Machine({"tuned": 3.0, "by hand": 1.5}, {})

    def tune(words: list[str], *, cwd: Path, **known: Any) -> subprocess.CompletedProcess[bytes]:
        script = cwd / words[words.index("tune") + 1]
        assert script.is_relative_to(cwd)
        script.write_text(script.read_text().replace("    report_to=[],\n", "    report_to=[],\n    tf32=True,\n"))
        machine.now += 100
        return subprocess.CompletedProcess(words, 0)

    for module in (run_jobs, run_tuning):
        monkeypatch.setattr(module, "run_trial", machine.run_trial)
    monkeypatch.setattr(run_jobs, "forked", lambda *_: ("python3",))
    monkeypatch.setattr(run_tuning.subprocess, "run", tune)
    for module in (run_jobs, run_tuning):
        monkeypatch.setattr(module, "gpu_memory", tuple)
        monkeypatch.setattr(module, "wait_for_gpus", lambda *_, **__: None)
    monkeypatch.setattr("time.monotonic", lambda: machine.now)
    (tmp_path / "model").mkdir()
    words = ["sft", "--minutes", "15", "--model", str(tmp_path / "model"), "--out", str(tmp_path), "--seeds", "42,1"]
    assert run_tuning.main([*words, "--steps", "6"]) == 0
    assert machine.ran == ["as it is", "tuned"] * 2 + ["by hand", "tuned", "tuned", "by hand"] * 2 + ["by hand", "tuned"]  # fmt: skip
    (record,) = load(str(tmp_path / "evidence.jsonl")).records
    assert (record.rule, record.title) == ("tuned-over-by-hand", "what the tuner found (tf32=True)")
    assert record.verdict.ratio == pytest.approx(2.0)
    (line,) = map(json.loads, (tmp_path / "tuned.ndjson").read_text().splitlines())
    assert {seed: {arm: len(steps) for arm, steps in arms.items()} for seed, arms in line["curves"].items()} == {
        "42": {"as it is": 50, "tuned": 50},
        "1": {"as it is": 50, "tuned": 50},
    }
    said = tuned_page.page([line], pooled([record]))
    assert "+    tf32=True," in said
    assert "- over the advice: confirmed: 2.00x the steps per second (2.00 to 2.00, 5 pairs)" in said
    assert "Losses of 100 steps (seeds 42, 1): at most 0 apart, all within the tolerance of 0.05 + 5%." in said


def test_losses_beyond_the_tolerance_are_counted() -> None:
    steps = [{"loss": 2.0}, {"loss": 1.0}]
    curves = {"42": {"as it is": steps, "tuned": [{"loss": 2.1}, {"loss": 1.2}]}}
    assert tuned_page.losses(curves) == (
        "Losses of 2 steps (seeds 42): at most 0.2 apart, 1 of them outside the tolerance of 0.05 + 5%."
    )


@pytest.mark.parametrize(("reward", "said"), [(0.32, "overlap"), (0.5, "lie apart")])
def test_rewards_overlap_or_not(reward: float, said: str) -> None:
    before = {"42": 0.30, "1": 0.34}
    curves = {s: {"as it is": [{"reward": r}], "tuned": [{"reward": reward}]} for s, r in before.items()}
    assert tuned_page.rewards(curves).endswith(f"the ranges {said}.")


@pytest.mark.skipif(not tuned_page.RECORD.exists(), reason="nothing was tuned on a GPU yet")
def test_the_page_says_what_was_recorded() -> None:
    assert tuned_page.PAGE.read_text("utf-8") == tuned_page.current()
