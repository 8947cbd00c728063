"""What probes have recorded, shown beside the findings it is about."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trl_lint.cli.measured import PLACE
from trl_lint.probe import evidence
from trl_lint.probe.comparison import Series, Verdict
from trl_lint.probe.evidence import Conditions, Record

from .test_check import imported, project, trl_lint

__all__ = ["project"]

SCRIPT = """# trl-lint: facts gpu=h200 n_gpu=1 num_processes=1
from trl import GRPOConfig

args = GRPOConfig(output_dir="out", per_device_train_batch_size=8, num_generations=8, learning_rate=1e-6)
"""
THEN = Conditions(
    "grpo",
    fields={"per_device_train_batch_size": 8, "learning_rate": 1e-6, "use_vllm": True, "beta": 0.0},
    hardware={"gpu": "NVIDIA H200", "count": 1},
    versions={"trl": "1.9.2", "torch": "2.11.0+cu130", "transformers": "5.0.0"},
)
CONFIRMED = Verdict(
    "confirmed", gains=("speed",), ratio=6.8, low=6.2, high=7.1, memory_ratio=None, metric="steps per second", pairs=5
)


def record(verdict: Verdict = CONFIRMED, where: Conditions = THEN, rule: str = "online-without-vllm") -> Record:
    series = Series((1.0,), (), ())
    key = "(('set', 'use_vllm', True),)"
    return Record(
        "2026-11-30T12:00:00+00:00",
        rule,
        "vLLM",
        key,
        "same",
        where,
        ((series, series),),
        verdict,
        "trl-lint probe",
        "t",
    )


@pytest.fixture
def measured(project: Path) -> Path:
    (project / "train.py").write_text(SCRIPT, "utf-8")
    (project / "pyproject.toml").touch()
    evidence.append(str(project / PLACE), record())
    return project


def said(project: Path, *words: str) -> str:
    """The evidence line under the finding."""
    done = trl_lint("--select", "online-without-vllm", *words, cwd=project)
    assert "online-without-vllm" in done.stdout, done.stderr
    lines = [line.partition("evidence: ")[2] for line in done.stdout.splitlines() if "= evidence: " in line]
    assert len(lines) < 2
    return lines[0] if lines else ""


def test_the_place_is_the_probes() -> None:
    assert os.path.join(evidence.FOLDER, evidence.NAME) == PLACE


def test_a_finding_says_what_was_measured(measured: Path) -> None:
    assert said(measured) == "6.8x, measured on NVIDIA H200 on 2026-11-30"


CHANGES = {
    "another release": (SCRIPT, "trl==1.16.0\n", "trl 1.9.2 -> 1.16.0"),
    "another transformers": (SCRIPT, "trl==1.9.2\ntransformers==5.1.0\n", "transformers 5.0.0 -> 5.1.0"),
    "another GPU": (SCRIPT.replace("h200", "h100"), "trl==1.9.2\n", "GPU NVIDIA H200 -> h100"),
    "more processes": (SCRIPT.replace("num_processes=1", "num_processes=2"), "trl==1.9.2\n", "GPUs 1 -> 2"),
    "another batch": (SCRIPT.replace("size=8", "size=16"), "trl==1.9.2\n", "per_device_train_batch_size 8 -> 16"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_since_is_named(measured: Path, name: str) -> None:
    script, requirements, change = CHANGES[name]
    (measured / "train.py").write_text(script, "utf-8")
    (measured / "requirements.txt").write_text(requirements, "utf-8")
    assert said(measured) == f"6.8x, measured on NVIDIA H200 on 2026-11-30; your run has since changed ({change})"


@pytest.mark.parametrize(
    "script",
    [
        SCRIPT.replace("gpu=h200 n_gpu=1 ", ""),  # which GPU is not said
        SCRIPT.replace("size=8", "size=int(input())"),
        SCRIPT.replace(", learning_rate=1e-6", ""),
        SCRIPT.replace('"out"', '"elsewhere"'),
        SCRIPT.replace(")\n", ", logging_steps=3, report_to=[])\n"),
        SCRIPT.replace(")\n", ", use_vllm=False)\n"),  # what the fix itself is about
    ],
)
def test_what_is_not_known_or_does_not_matter_is_no_change(measured: Path, script: str) -> None:
    (measured / "train.py").write_text(script, "utf-8")
    assert said(measured) == "6.8x, measured on NVIDIA H200 on 2026-11-30"


def test_a_release_that_is_only_assumed_is_no_change(measured: Path) -> None:
    (measured / "requirements.txt").write_text("trl>=1.0\n", "utf-8")
    assert "changed" not in said(measured)


@pytest.mark.parametrize(
    "other",
    [
        record(rule="fp16-on-ampere"),
        record(where=Conditions("rloo")),
        Record("2026-11-30T12:00:00+00:00", "online-without-vllm", "x", "other", "same", THEN, (), CONFIRMED, "c", "t"),
    ],
)
def test_records_of_something_else_say_nothing(measured: Path, other: Record) -> None:
    (measured / PLACE).unlink()
    evidence.append(str(measured / PLACE), other)
    assert said(measured) == ""


@pytest.mark.parametrize("name", ["no gain", "slower", "broken"])
def test_a_fix_that_brought_nothing_stays_a_finding_and_is_no_first_step(measured: Path, name: str) -> None:
    (measured / PLACE).unlink()
    verdict = Verdict(name, ratio=0.9, low=0.8, high=1.0, metric="steps per second", pairs=5)  # type: ignore[arg-type]
    evidence.append(str(measured / PLACE), record(verdict))
    words = ["--select", "online-without-vllm,fp16-on-ampere,unknown-config-field"]
    (measured / "train.py").write_text(SCRIPT.replace(")\n", ", fp16=True, max_prompt_length=9)\n"), "utf-8")
    done = trl_lint(*words, cwd=measured)
    assert done.returncode == 1
    assert "warning[online-without-vllm]" in done.stdout
    assert f"evidence: {'0.90x' if name == 'slower' else name}, measured on NVIDIA H200" in done.stdout
    first = done.stdout.partition("What to do first:")[2]
    assert "fp16-on-ampere" in first
    assert "online-without-vllm" not in first
    # Measured on another GPU it is advice like any other.
    (measured / "train.py").write_text(SCRIPT.replace("h200", "h100").replace(")\n", ", fp16=True)\n"), "utf-8")
    assert "online-without-vllm" in trl_lint(*words, cwd=measured).stdout.partition("What to do first:")[2]


def test_machines_get_it_too(measured: Path) -> None:
    told = json.loads(trl_lint("--output-format", "json", cwd=measured).stdout)["findings"]
    found = next(f for f in told if f["rule"] == "online-without-vllm")
    summary = {"verdict": "confirmed", "speedup": 6.8, "low": 6.2, "high": 7.1}
    summary |= {"hardware": "NVIDIA H200", "date": "2026-11-30", "stale": False}
    assert found["evidence"] == summary
    results = json.loads(trl_lint("--output-format", "sarif", cwd=measured).stdout)["runs"][0]["results"]
    result = next(r for r in results if r["ruleId"] == "online-without-vllm")
    assert result["properties"]["evidence"] == summary | {"text": "6.8x, measured on NVIDIA H200 on 2026-11-30"}
    (measured / "requirements.txt").write_text("trl==1.16.0\n", "utf-8")
    for name in ("concise", "github", "gitlab", "junit"):
        text = trl_lint("--output-format", name, cwd=measured).stdout
        assert "(6.8x, measured on NVIDIA H200 on 2026-11-30, of a run that has changed since)" in text


def test_it_is_found_from_the_folders_of_the_project_only(measured: Path) -> None:
    deep = measured / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "train.py").write_text(SCRIPT, "utf-8")
    assert said(measured, "a/b/train.py").startswith("6.8x")
    assert said(deep).startswith("6.8x")
    (measured / "a" / ".git").mkdir()  # another repository
    assert said(deep) == ""


def test_a_line_that_cannot_be_read_is_a_note(measured: Path) -> None:
    path = measured / PLACE
    path.write_bytes(b"{}\n" + path.read_bytes())
    done = trl_lint(cwd=measured)
    assert "note: .trl-lint/evidence.jsonl:1: cannot be read" in done.stdout.replace(os.sep, "/")
    assert "evidence: 6.8x" in done.stdout


def test_without_evidence_nothing_of_the_probe_is_imported(measured: Path) -> None:
    assert "trl_lint.probe.evidence" in imported("train.py", cwd=measured)
    (measured / PLACE).unlink()
    assert not any(name.startswith("trl_lint.probe") for name in imported("train.py", cwd=measured))
