"""The tuning runner holds what `tune` leaves against what a person would write, and its losses against its own."""

from __future__ import annotations

import json
from dataclasses import replace
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
from trl_lint.probe.trials import Trial, TrialSpec


@pytest.mark.parametrize("job", TUNING, ids=lambda job: job.name)
def test_what_a_person_would_write_differs_from_the_defaults(job: run_jobs.Job) -> None:
    made = run_jobs.texts(job)
    assert len(set(made.values())) == 2
    assert "use_liger_kernel=True" in made["by hand"]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """One on which the tuner finds tf32=True in a hundred seconds, and nothing takes time but trials."""
    made = Machine({"tuned": 3.0, "by hand": 1.5}, {})

    class Tune:
        def __init__(self, words: list[str], *, cwd: Path, **_known: Any) -> None:
            script = cwd / words[words.index("tune") + 1]
            script.write_text(script.read_text().replace("    report_to=[],\n", "    report_to=[],\n    tf32=True,\n"))
            made.now += 100

        def __enter__(self) -> Tune:
            return self

        def __exit__(self, *_: object) -> None: ...

        def wait(self, timeout: float) -> None:
            assert timeout > 0

    for module in (run_jobs, run_tuning):
        monkeypatch.setattr(module, "run_trial", made.run_trial)
        monkeypatch.setattr(module, "gpu_memory", tuple)
    monkeypatch.setattr(run_jobs, "wait_for_gpus", lambda *_, **__: None)
    monkeypatch.setattr(run_jobs, "forked", lambda *_: ("python3",))
    monkeypatch.setattr(run_tuning.subprocess, "Popen", Tune)
    monkeypatch.setattr("time.monotonic", lambda: made.now)
    return made


def test_the_best_is_held_against_advice_and_its_curves_against_the_script(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()

    def run(part: str, *more: str) -> list[str]:
        machine.ran.clear()
        words = [part, "sft", "--minutes", "15", "--model", str(tmp_path / "model"), "--out", str(tmp_path), *more]
        assert run_tuning.main([*words, "--steps", "6"]) == 0
        return list(machine.ran)

    assert run("curves", "--seeds", "42") == ["as it is"]
    assert run("tune") == []
    assert run("pairs") == ["by hand", "tuned", "tuned", "by hand"] * 2 + ["by hand", "tuned"]
    assert sorted(run("curves", "--seeds", "42,1")) == ["as it is", "tuned", "tuned"]  # what was run is not run again
    (record,) = load(str(tmp_path / "evidence.jsonl")).records
    assert (record.rule, record.title) == ("tuned-over-by-hand", "what the tuner found (tf32=True)")
    assert record.verdict.ratio == pytest.approx(2.0)
    assert record.command == "python3 tests/gpu/run_tuning.py pairs sft"
    lines = [json.loads(line) for line in (tmp_path / "tuned.ndjson").read_text().splitlines()]
    assert [len(line["steps"]) for line in lines if "steps" in line] == [50] * 4
    said = tuned_page.page(lines, pooled([record]))
    assert "+    tf32=True," in said
    assert "- over the advice: confirmed: 2.00x the steps per second (2.00 to 2.00, 5 pairs)" in said
    assert "Losses of 100 steps (seeds 42, 1): at most 0 apart, all within the tolerance of 0.05 + 5%." in said
    assert "`python3 tests/gpu/run_tuning.py tune sft`, `python3 tests/gpu/run_tuning.py curves sft`" in said


def test_curves_with_vllm_have_the_gpu_to_themselves_the_second_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    with_vllm = (
        run_tuning.HERE.joinpath("defaults_grpo.py").read_text().replace("output_dir=", "use_vllm=True, output_dir=")
    )
    (tmp_path / "grpo.py").write_text(with_vllm)
    machine.stops = {"broken": "raised"}
    names = iter(["broken", "tuned"])

    def run_trial(spec: TrialSpec) -> Trial:
        return machine.run_trial(replace(spec, name=next(names)) if spec.name == "tuned" else spec)

    monkeypatch.setattr(run_tuning, "run_trial", run_trial)
    words = ["curves", "grpo", "--minutes", "15", "--model", str(tmp_path / "model"), "--out", str(tmp_path)]
    assert run_tuning.main([*words, "--seeds", "42"]) == 0
    assert sorted(machine.ran) == ["as it is", "broken", "tuned"]
    assert machine.ran[-1] == "tuned"


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
    del curves["1"]["tuned"]
    assert tuned_page.rewards(curves).endswith(f"{reward:.4f} tuned: too few to tell.")


@pytest.mark.skipif(not tuned_page.RECORD.exists(), reason="nothing was tuned on a GPU yet")
def test_the_page_says_what_was_recorded() -> None:
    assert tuned_page.PAGE.read_text("utf-8") == tuned_page.current()
