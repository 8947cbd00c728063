"""The runner keeps to its minutes, and what it has by then is recorded. No trial is run: a clock of ours goes on instead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import run_jobs
from jobs import AS_IS

from trl_lint.probe.comparison import Outcome, Series
from trl_lint.probe.evidence import Record, load
from trl_lint.probe.trials import Trial, TrialSpec


class Machine:
    """Every trial takes 20 seconds. `speed` is that of an arm's steps, and `stops` names the arms that do not train."""

    def __init__(self, speed: Mapping[str, float], stops: Mapping[str, Outcome]) -> None:
        self.now, self.speed, self.stops = 1000.0, speed, stops
        self.ran: list[str] = []

    def run_trial(self, spec: TrialSpec) -> Trial:
        whole = spec.limits.whole
        assert whole is not None
        self.now += min(20.0, whole)
        self.ran.append(spec.name)
        outcome: Outcome = self.stops.get(spec.name, "trained")
        seconds = (1 / self.speed.get(spec.name, 1.0),) * spec.steps
        losses = (2.0,) * spec.steps
        series = (
            Series(seconds, losses=losses, startup=10.0)
            if outcome == "trained"
            else Series(outcome=outcome, error="ValueError: no")
        )
        train = {"kind": "train", "device": "cuda:0", "gpu": "NVIDIA H200", "versions": {"trl": "1.16.0"}}
        return Trial(spec, series, "none" if whole >= 20 else "limit", train, 1, self.now, 20.0, 0, "again")


def measured(
    monkeypatch: pytest.MonkeyPatch, out: Path, minutes: float, *names: str,
    speed: Mapping[str, float] | None = None, stops: Mapping[str, Outcome] | None = None,
) -> tuple[Machine, dict[str, Record]]:  # fmt: skip
    """What is recorded on a machine of ours, and the machine."""
    machine = Machine(speed or {}, stops or {})
    monkeypatch.setattr(run_jobs, "run_trial", machine.run_trial)
    monkeypatch.setattr("time.monotonic", lambda: machine.now)
    (out / "model").mkdir()
    (out / "model" / "config.json").write_text("{}")
    words = [*names, "--minutes", str(minutes), "--model", str(out / "model"), "--out", str(out), "--cold"]
    assert run_jobs.main([*words, "--release", f"1.12.0={out}"]) == 0
    assert machine.now - 1000 <= minutes * 60
    return machine, {record.rule: record for record in load(str(out / "evidence.jsonl")).records}


def test_a_verdict_for_each_question(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine, records = measured(monkeypatch, tmp_path, 60, "dpo", speed={"precomputed": 2.0})
    assert machine.ran[:6] == [AS_IS, "precomputed", "Liger", "Liger", "precomputed", AS_IS]
    assert len(machine.ran) == 15
    assert {rule: record.verdict.name for rule, record in records.items()} == {
        "precomputed-reference": "confirmed",
        "liger-layers": "no gain",
    }
    assert records["precomputed-reference"].conditions.hardware["gpu"] == "NVIDIA H200"


def test_what_is_slow_in_the_wild_comes_first_in_its_pairs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, records = measured(monkeypatch, tmp_path, 60, "sft", speed={"eager": 0.5})
    assert records["eager-where-sdpa-serves"].verdict.ratio == pytest.approx(2.0)
    assert "attn_implementation" in records["eager-where-sdpa-serves"].key


def test_time_that_does_not_suffice_for_all_goes_to_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine, records = measured(monkeypatch, tmp_path, 7, "sft", "lora")
    assert machine.ran.count("packing") == 1
    assert (records["eager-where-sdpa-serves"].verdict.pairs, records["packing"].verdict.pairs) == (5, 1)
    assert records["packing"].verdict.name == "cannot tell"


def test_what_is_cut_short_keeps_its_pairs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, records = measured(monkeypatch, tmp_path, 2.2, "lora")
    assert 1 <= records["base-in-float32"].verdict.pairs < 5
    assert records["base-in-float32"].verdict.name == "cannot tell"


def test_what_stops_is_known_after_one_pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine, records = measured(monkeypatch, tmp_path, 20, "nash-md", stops={AS_IS: "raised"})
    assert machine.ran == [AS_IS, "no vLLM"]
    assert records["nash-md-xpo-with-vllm"].verdict.name == "repaired"
    assert "ValueError: no" in (tmp_path / "failures.txt").read_text()
