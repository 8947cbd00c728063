"""The evidence file: written whole by several at once, read whatever became of it, and never telling more than measured."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from trl_lint.probe import evidence
from trl_lint.probe.comparison import Series, Verdict, compare
from trl_lint.probe.evidence import (
    Conditions,
    Evidence,
    EvidenceError,
    Record,
    append,
    dumped,
    fields_that_matter,
    load,
    parsed,
    place,
    sentence,
    stale,
    summary,
)

A = Series((3.0, *(1.0,) * 5), losses=(2.5, 2.25, math.nan), allocated=(2**34,), startup=12.5, logs=({"reward": 0.5},))
B = Series((2.0, *(0.5,) * 5), tokens=(512, None), losses=(2.5, 2.25, math.inf), generation=(0.25,), startup=40.0)
CONDITIONS = Conditions(
    "grpo",
    {"type": "qwen2", "parameters": 494_032_768, "layers": 24, "hidden": 896},
    {"use_vllm": False, "learning_rate": 1e-6, "max_completion_length": 128, "bf16": True},
    {"gpu": "NVIDIA H200", "count": 1, "driver": "580.95.05"},
    {"trl": "1.16.0", "torch": "2.11.0+cu130", "python": "3.12.3", "vllm": None},
)
PAIRS = ((A, B),) * 5
RECORD = Record(
    "2026-11-30T12:00:00Z",
    "online-without-vllm",
    "generate with vLLM",
    "use_vllm=True",
    "same",
    CONDITIONS,
    PAIRS,
    compare(PAIRS),
    "trl-lint probe train.py",
    "0.1.0",
)


def line(record: Record = RECORD, **other: object) -> bytes:
    return json.dumps({**json.loads(dumped(record)), **other}).encode() + b"\n"


def file(folder: Path) -> Path:
    (folder / "pyproject.toml").touch()
    return Path(place(str(folder)))


# There and back ------------------------------------------------------------------------------------------------------


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    path = file(tmp_path)
    append(str(path), RECORD)
    append(str(path), replace(RECORD, date="2026-12-01T00:00:00Z", verdict=Verdict("broken", reason="it hangs")))
    found = load(str(path))
    assert found.notes == ()
    first, second = found.records
    assert repr(first) == repr(RECORD)  # nan is not nan
    assert second.verdict == Verdict("broken", reason="it hangs")
    assert path.read_bytes().count(b"\n") == 2
    assert (path.parent / ".gitattributes").read_text() == "evidence.jsonl merge=union\n"


def test_a_line_is_standard_json_with_six_digits(tmp_path: Path) -> None:
    record = replace(RECORD, pairs=((Series((1 / 3,), losses=(math.nan,)), Series((2 / 3,))),))
    text = dumped(record)
    data = json.loads(text, parse_constant=lambda word: pytest.fail(word))
    assert data["pairs"] == [
        {"a": {"seconds": [0.333333], "losses": ["nan"], "outcome": "trained"}, "b": {"seconds": [0.666667], "outcome": "trained"}}
    ]  # fmt: skip
    assert list(data) == [
        "version", "date", "rule", "fix", "fingerprint", "hardware", "versions", "pairs", "verdict", "command", "tool",
    ]  # fmt: skip
    assert "\n" not in text


@pytest.mark.parametrize(
    ("marks", "start", "folder"),
    [
        (["pyproject.toml"], "train.py", "."),
        (["pyproject.toml"], "scripts/deep/train.py", "."),
        ([".git", "scripts/pyproject.toml"], "scripts/train.py", "scripts"),
        ([".git"], "scripts", "."),
    ],
)
def test_it_lies_in_the_project(tmp_path: Path, marks: list[str], start: str, folder: str) -> None:
    (tmp_path / "scripts" / "deep").mkdir(parents=True)
    for mark in marks:
        (tmp_path / mark).touch()
    assert place(str(tmp_path / start)) == str((tmp_path / folder / ".trl-lint" / "evidence.jsonl").resolve())


def test_a_script_of_no_project_has_it_beside_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    assert place("/nowhere/at/all/train.py") == "/nowhere/at/all/.trl-lint/evidence.jsonl"


# Nobody's secrets ----------------------------------------------------------------------------------------------------


def test_secrets_and_users_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/root/of/jane")
    project = str(tmp_path)
    error = (
        f"OSError: {project}/train.py, /home/joe/data/x.json, /root/of/jane/.cache, C:\\Users\\jim\\x, /opt/models/y"
    )
    record = replace(
        RECORD,
        command="HF_TOKEN=hf_abcdefghijklmnopqrst trl-lint probe train.py -- --hub_token secret123 --out /home/joe/out",
        conditions=replace(CONDITIONS, fields={"hub_token": "plainsecret", "pad_token": "<pad>", "max_tokens": 5}),
        pairs=((A, Series(outcome="raised", error=error)),),
    )
    text = dumped(record, project)
    for word in ("abcdefghij", "secret123", "plainsecret", "joe", "jane", "jim", project):
        assert word not in text
    data = json.loads(text)
    assert data["pairs"][0]["b"]["error"] == "OSError: ./train.py, ~/data/x.json, ~/.cache, ~\\x, /opt/models/y"
    assert data["fingerprint"]["fields"] == {"hub_token": "***", "pad_token": "<pad>", "max_tokens": 5}


def test_fields_that_matter() -> None:
    config = {
        "use_vllm": True, "learning_rate": 1e-6, "seed": 42, "max_length": None, "optim": "adamw_torch",
        "output_dir": "/x", "logging_steps": 1, "save_strategy": "no", "eval_steps": 5, "report_to": "wandb",
        "hub_token": "x", "push_to_hub": True, "run_name": "x", "log_completions": True, "vllm_server_base_url": "http://x",
        "model_init_kwargs": {"dtype": "bfloat16"}, "disable_tqdm": True,
    }  # fmt: skip
    assert list(fields_that_matter(config)) == ["learning_rate", "max_length", "optim", "seed", "use_vllm"]


# Whatever became of the file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "records", "notes"),
    [
        (b"", 0, []),
        (line(), 1, []),
        (line().rstrip(b"\n"), 1, []),
        (line() + b"\n\n" + line().replace(b"\n", b"\r\n"), 1, []),  # merged: the same line twice
        (line() + line(date="2027-01-01T00:00:00Z"), 2, []),
        # A last line that was cut off.
        (line() + line()[:100], 1, []),
        (line() + b"\xff\xfe{", 1, []),
        # The same, and somebody wrote on after it.
        (line()[:100] + b"\n" + line(), 1, ["e.jsonl:1: cannot be read (no JSON); ignored"]),
        (b'{"a": "\xff"}\n' + line(), 1, ["e.jsonl:1: cannot be read (no JSON); ignored"]),
        # Of a later release.
        (line(version=2), 0, ["e.jsonl: 1 record is of a newer trl-lint (version 2); ignored"]),
        (line() + line(version=2) + line(version=3), 1, ["e.jsonl: 2 records are of a newer trl-lint (version 3); ignored"]),
        (line(something="new"), 1, []),
        # Broken by hand.
        (b"[1]\n", 0, ["e.jsonl:1: cannot be read (no record); ignored"]),
        (line(rule=None), 0, ["e.jsonl:1: cannot be read (no rule); ignored"]),
        (line(pairs=[3]), 0, ["e.jsonl:1: cannot be read (no pair); ignored"]),
        (line(pairs=[{"a": {"seconds": ["x"]}, "b": {}}]), 0, ["e.jsonl:1: cannot be read ('x' is no number); ignored"]),
        (line(pairs=[{"a": {"seconds": [None]}, "b": {}}]), 0, ["e.jsonl:1: cannot be read (a step without seconds); ignored"]),
        (line(pairs=[{"a": {"seconds": 3}, "b": {}}]), 0, ["e.jsonl:1: cannot be read (seconds is no list); ignored"]),
        (line(verdict={"name": "good"}), 0, ["e.jsonl:1: cannot be read ('good' is none of confirmed, repaired, no gain, slower, changes training, broken, cannot tell); ignored"]),
        (b"[" * 100_000 + b"\n" + line(), 1, None),
        # Left by git.
        (
            b"<<<<<<< HEAD\n" + line() + b"=======\n" + line(date="2027-01-01T00:00:00Z") + b">>>>>>> other\n",
            2,
            ["e.jsonl:1: a merge conflict is left; the lines of both sides are used"],
        ),
    ],
)  # fmt: skip
def test_reading(data: bytes, records: int, notes: list[str] | None) -> None:
    found = parsed(data, "e.jsonl")
    assert len(found.records) == records
    assert notes is None or list(found.notes) == notes


def test_no_file_and_one_that_is_none(tmp_path: Path) -> None:
    assert load(str(tmp_path / "none")) == Evidence()
    assert load(str(tmp_path)).notes == (f"{tmp_path} cannot be read: Is a directory; no evidence is used",)


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from dataclasses import replace
from tests.probe.test_evidence import RECORD
from trl_lint.probe.evidence import append
for i in range(25):
    append(sys.argv[1], replace(RECORD, rule=f"{sys.argv[2]}-{i}", pairs=RECORD.pairs * 12))
"""


def test_four_writers_at_once(tmp_path: Path) -> None:
    path, root = file(tmp_path), str(Path(__file__).parents[2])
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(i), root]) for i in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    found = load(str(path))
    assert found.notes == ()
    assert sorted(record.rule for record in found.records) == sorted(f"{w}-{i}" for w in range(4) for i in range(25))
    # Each writer's own are in the order in which it wrote them.
    assert [r.rule for r in found.records if r.rule.startswith("2-")] == [f"2-{i}" for i in range(25)]


FULL = ".trl-lint/evidence.jsonl cannot be written: No space left on device; this measurement is not recorded"


@pytest.mark.parametrize("call", ["write", "fsync", "open"])
def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = file(tmp_path)
    append(str(path), RECORD)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(evidence.os, call, full)
        with pytest.raises(EvidenceError) as caught:
            append(str(path), replace(RECORD, rule="other"))
    assert str(caught.value) == FULL
    assert load(str(path)).records[0].rule == RECORD.rule


def test_a_disk_that_fills_within_the_line_costs_that_line_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = file(tmp_path), os.write
    append(str(path), RECORD)
    with monkeypatch.context() as patched:
        patched.setattr(evidence.os, "write", lambda handle, data: write(handle, data[:200]))
        with pytest.raises(EvidenceError, match=r"cannot be written: the disk took only a part of the line"):
            append(str(path), replace(RECORD, rule="torn"))
    assert [r.rule for r in load(str(path)).records] == [RECORD.rule]
    assert load(str(path)).notes == ()
    append(str(path), replace(RECORD, rule="after"))
    assert [r.rule for r in load(str(path)).records] == [RECORD.rule, "after"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has such a device")
def test_a_device_that_is_full(tmp_path: Path) -> None:
    path = file(tmp_path)
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    with pytest.raises(EvidenceError) as caught:
        append(str(path), RECORD)
    assert str(caught.value) == FULL


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / ".trl-lint").touch()
    with pytest.raises(EvidenceError, match=r"^\.trl-lint/evidence\.jsonl cannot be written: "):
        append(str(tmp_path / ".trl-lint" / "evidence.jsonl"), RECORD)


# What it says of a run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        (CONDITIONS, []),
        (Conditions(), []),
        (Conditions("rloo"), ["method grpo -> rloo"]),
        (Conditions(versions={"trl": "1.16.0", "torch": "2.11.0", "python": "3.12.9"}), []),
        (
            Conditions(versions={"trl": "1.15.0", "python": "3.13.0", "vllm": "0.25.1", "peft": "0.19"}),
            ["trl 1.16.0 -> 1.15.0", "python 3.12.3 -> 3.13.0", "vllm none -> 0.25.1"],
        ),
        (Conditions(hardware={"gpu": "h200", "count": 1}), []),
        (
            Conditions(hardware={"gpu": "NVIDIA A100-SXM4-80GB", "count": 8}),
            ["GPU NVIDIA H200 -> NVIDIA A100-SXM4-80GB", "GPUs 1 -> 8"],
        ),
        (Conditions(hardware={"gpu": None}), ["GPU NVIDIA H200 -> none"]),
        (Conditions(model={"type": "llama", "layers": 24}), ["model type qwen2 -> llama"]),
        (Conditions(fields={"use_vllm": False, "learning_rate": 1.0000000001e-6, "other": 3}), []),
        (Conditions(fields={"max_completion_length": 2048}), ["max_completion_length 128 -> 2048"]),
    ],
)
def test_stale(now: Conditions, changes: list[str]) -> None:
    assert stale(RECORD, now) == changes


def test_the_record_for_a_finding() -> None:
    old = replace(RECORD, date="2026-01-01T00:00:00Z", tool="old")
    undecided = replace(RECORD, date="2027-01-01T00:00:00Z", verdict=Verdict("cannot tell"), tool="undecided")
    a100 = replace(
        RECORD,
        date="2026-12-24T00:00:00Z",
        conditions=replace(CONDITIONS, hardware={"gpu": "NVIDIA A100"}),
        tool="a100",
    )
    rloo = replace(RECORD, conditions=replace(CONDITIONS, method="rloo"), tool="rloo")
    other_fix = replace(RECORD, key="vllm_mode='server'", date="2026-12-31T00:00:00Z", tool="other fix")
    everything = Evidence((old, RECORD, undecided, a100, rloo))

    def found(records: Evidence, *names: str, **more: object) -> str | None:
        record = records.for_finding(*names, **more)  # type: ignore[arg-type]
        return record.tool if record else None

    rule = RECORD.rule
    assert found(everything, rule, "grpo") == "a100"  # the newest that decided
    assert found(everything, rule, "grpo", now=CONDITIONS) == "0.1.0"  # of this hardware
    assert found(everything, rule, "grpo", now=Conditions(hardware={"gpu": "a100"})) == "a100"
    assert found(everything, rule, "rloo") == "rloo"
    assert found(everything, rule, "dpo") is None
    assert found(everything, "other-rule", "grpo") is None
    assert found(Evidence((undecided,)), rule, "grpo") == "undecided"
    assert found(Evidence((RECORD, other_fix)), rule, "grpo") == "other fix"
    assert found(Evidence((RECORD, other_fix)), rule, "grpo", key="use_vllm=True") == "0.1.0"
    assert found(Evidence((RECORD, replace(RECORD, tool="later"))), rule, "grpo") == "later"
    assert found(Evidence((RECORD,)), rule, None) == "0.1.0"  # type: ignore[arg-type]


def test_words() -> None:
    on = "measured on NVIDIA H200 on 2026-11-30"
    assert sentence(RECORD, []) == f"2.00x, {on}"
    changed = ["trl 1.15.0 -> 1.16.0", "GPUs 1 -> 2", "a 1 -> 2", "b 1 -> 2", "c 1 -> 2"]
    assert sentence(RECORD, changed[:1]) == f"2.00x, {on}; your run has since changed (trl 1.15.0 -> 1.16.0)"
    assert sentence(RECORD, changed).endswith("(trl 1.15.0 -> 1.16.0, GPUs 1 -> 2, a 1 -> 2 and 2 more)")
    assert sentence(replace(RECORD, verdict=Verdict("no gain", 1.0)), []) == f"no gain, {on}"
    lean = Verdict("confirmed", 1.0, memory_ratio=0.5, gains=("memory",))
    assert sentence(replace(RECORD, verdict=lean), []) == f"-50% memory, {on}"
    assert summary(RECORD, changed) == {
        "verdict": "confirmed", "speedup": pytest.approx(2), "low": pytest.approx(2), "high": pytest.approx(2),
        "hardware": "NVIDIA H200", "date": "2026-11-30", "stale": True,
    }  # fmt: skip
