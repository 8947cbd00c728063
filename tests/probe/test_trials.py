"""Stub scripts that behave like every kind of training; what the trial says of them."""

from __future__ import annotations

import _thread
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trl_lint.probe import trials
from trl_lint.probe.supervisor import Progress
from trl_lint.probe.trials import (
    Limits,
    ServerSpec,
    Trial,
    TrialSpec,
    estimate,
    gpu_memory,
    read_ranks,
    reproduce,
    run_trial,
    schedule,
    wait_for_gpus,
)  # fmt: skip

from .test_supervisor import free_port

STUB = Path(__file__).parent / "stub_training.py"
LIMITS = Limits(whole=60, silent=30, leaving=0.5, grace=0.3)


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "POLL", 0.05)


def spec(folder: Path, *words: str, limits: Limits = LIMITS, **more: object) -> TrialSpec:
    command = (sys.executable, str(STUB), *words)
    given = {"command": command, "cwd": folder, "out": folder / "out", "limits": limits, **more}
    return TrialSpec(name="A", **given)  # type: ignore[arg-type]


def run(folder: Path, *words: str, limits: Limits = LIMITS, **more: object) -> Trial:
    return run_trial(spec(folder, *words, limits=limits, **more))


def test_what_it_measures(tmp_path: Path) -> None:
    heard: list[int] = []
    trial = run_trial(spec(tmp_path, "print=hello", "complain=careful", "train", "end"), on_step=heard.append)
    series = trial.series
    assert (series.outcome, series.error, trial.cause, trial.notes) == ("trained", None, "none", ())
    assert series.seconds == (0.01,) * 8
    assert series.tokens == (100.0,) * 8
    assert series.samples == (4.0,) * 8
    assert series.losses[:2] == (2.0, 1.0)
    assert series.allocated[-1] == 8000
    assert series.gpu_used == series.generation == series.reserved == (None,) * 8
    assert series.logs[0] == {"reward": 0.5}
    assert series.startup is not None
    assert trial.train is not None
    assert trial.train["versions"] == {"trl": "1.16.0"}
    assert trial.stdout.read_text() == "hello\n"
    assert trial.stderr.read_text() == "careful\n"
    assert heard == sorted(heard)
    assert heard[-1] == 8


@pytest.mark.parametrize(
    ("words", "outcome", "cause", "error", "steps"),
    [
        (["train", "end", "exit=1"], "trained", "none", None, 8),
        (["train", "end", "hang"], "trained", "none", None, 8),
        (["train=3", "raise=ValueError: no good"], "raised", "error", "ValueError: no good", 3),
        (["raise=ValueError: no good"], "raised", "error", "ValueError: no good", 0),
        (["train=2", "error=KeyError: 'prompt'", "raise=ValueError: x"], "raised", "error", "KeyError: 'prompt'", 2),
        (["train=2"], "raised", "error", "it left with exit code 0 after step 2 of 8", 2),
        (["complain=oh no", "exit=3"], "raised", "error", "exit code 3 before training: oh no", 0),
        (["ask"], "raised", "stdin", "it asks a question on stdin, which is closed in a trial: EOFError: EOF when reading a line", 0),
        (["write=/no/x"], "raised", "error", "FileNotFoundError: [Errno 2] No such file or directory: '/no/x'", 0),
        (["train=1", "raise=OSError: [Errno 28] No space left on device"], "raised", "disk", "the disk is full: OSError: [Errno 28] No space left on device", 1),
        (["train=1", "error=torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", "exit=1"], "out of memory", "memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", 1),
        (["train=1", "error=torch.OutOfMemoryError: CUDA out of memory.", "hang"], "out of memory", "memory", "torch.OutOfMemoryError: CUDA out of memory.", 1),
        (["raise=MemoryError"], "out of memory", "memory", "MemoryError", 0),
        (["kill=SIGSEGV"], "killed", "signal", "killed by SIGSEGV before training", 0),
        (["train=1", "kill=SIGTERM"], "killed", "signal", "killed by SIGTERM after step 1 of 8", 1),
        (["--bogus"], "refused", "usage", "stub_training.py: error: unrecognized arguments: --bogus", 0),
        (["print=done"], "not reached", "no training", "it ended without calling a trainer's train()", 0),
        (["complain=token hf_abcdefghijklmnopqrst refused", "exit=1"], "raised", "error", "exit code 1 before training: token *** refused", 0),
    ],
)  # fmt: skip
def test_how_it_ends(words: list[str], outcome: str, cause: str, error: str | None, steps: int, tmp_path: Path) -> None:
    trial = run(tmp_path, *words)
    assert (trial.series.outcome, trial.cause, trial.series.error) == (outcome, cause, error)
    assert len(trial.series.seconds) == steps
    assert bool(trial.notes) == (outcome == "trained")


@pytest.mark.parametrize(
    ("kills", "outcome", "error"),
    [
        ([None, None], "out of memory", "as happens when the machine runs out of memory"),
        ([4, 5], "out of memory", "the kernel's out-of-memory killer was at work"),
        ([4, 4], "killed", "not by the kernel for want of memory"),
    ],
)
@pytest.mark.parametrize("word", ["exit=137", "kill=SIGKILL"])
def test_killed_for_memory(
    word: str, kills: list[int | None], outcome: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(kills)
    monkeypatch.setattr(trials, "_oom_kills", lambda: next(counts))
    trial = run(tmp_path, "train=2", word)
    assert trial.series.outcome == outcome
    assert error in str(trial.series.error)


@pytest.mark.parametrize(
    ("words", "limits", "error"),
    [
        (["train=2", "print=waiting for peers", "hang"], Limits(60, 0.5, grace=0.3), "no step and no output any more after step 2 of 8"),
        (["train=2", "chatter"], Limits(1.0, 30, grace=0.3), "(the time limit) after step 2 of 8; its last line: still here"),
        (["chatter"], Limits(1.0, 30, grace=0.3), "it never called a trainer's train()"),
        (["flood=4", "hang"], Limits(60, 0.5, grace=0.3), "no step and no output"),
    ],
)  # fmt: skip
def test_hangs(words: list[str], limits: Limits, error: str, tmp_path: Path) -> None:
    trial = run(tmp_path, *words, limits=limits)
    assert (trial.series.outcome, trial.cause) == ("hung", "limit")
    assert error in str(trial.series.error)


def test_output_has_a_limit(tmp_path: Path) -> None:
    trial = run(tmp_path, "flood=20", "train", "end")
    assert trial.series.outcome == "trained"
    for path in (trial.stdout, trial.stderr):
        assert path.stat().st_size < 1_200_000
        assert b"bytes left out" in path.read_bytes()


@pytest.mark.parametrize("command", [("no-such-launcher", "train.py"), (str(STUB.parent), "x"), ("\0",)])
def test_what_cannot_be_started(command: tuple[str, ...], tmp_path: Path) -> None:
    trial = run_trial(TrialSpec("A", command, tmp_path, tmp_path / "out", limits=LIMITS))
    assert (trial.series.outcome, trial.cause) == ("not reached", "not started")
    assert "cannot start" in str(trial.series.error)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    trial = run_trial(TrialSpec("A", ("true",), tmp_path, tmp_path / "file" / "out"))
    assert (trial.series.outcome, trial.cause) == ("not reached", "disk")


def test_a_folder_is_used_once(tmp_path: Path) -> None:
    run(tmp_path, "train", "end")
    with pytest.raises(ValueError, match="another trial"):
        run(tmp_path, "train", "end")


def test_the_command_to_reproduce_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell runs it as it stands; secrets are not in it."""
    words = ("train=2", "print=it's $HOME", "raise=ValueError: again")
    trial = run(tmp_path, *words, environment={"HF_TOKEN": "hf_abcdefghijklmnopqrst", "COLOUR": "a b"})
    assert "hf_abc" not in trial.reproduce
    assert "COLOUR='a b'" in trial.reproduce
    again = subprocess.run(trial.reproduce, shell=True, capture_output=True, text=True, timeout=60)
    assert again.stdout == "it's $HOME\n"
    assert again.stderr.rstrip().endswith("ValueError: again")
    assert len(read_ranks(tmp_path / "out" / "again")[0]) == 3


def test_the_users_path_stays_behind_the_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    show = ("-c", "import os; print(os.environ['PYTHONPATH'])")
    one = run_trial(TrialSpec("A", (sys.executable, *show), tmp_path, tmp_path / "1", limits=LIMITS))
    assert one.stdout.read_text() == f"{trials.HARNESS}:/mine\n"
    given = {"PYTHONPATH": "/given"}
    two = run_trial(TrialSpec("A", (sys.executable, *show), tmp_path, tmp_path / "2", environment=given, limits=LIMITS))
    assert two.stdout.read_text() == f"{trials.HARNESS}:/given\n"
    assert ":/given" in two.reproduce


# -- several ranks, odd records ----------------------------------------------------------------------------------------


def write_rank(folder: Path, rank: int, *records: dict[str, object], torn: str = "") -> None:
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / f"rank-{rank}.jsonl").write_text(text + torn)


def step(number: int, **more: object) -> dict[str, object]:
    return {"kind": "step", "step": number, "seconds": 1.0, "loss": 2.0, "tokens": 800, **more}


def series_of(folder: Path) -> trials.Series:
    return trials._series(read_ranks(folder), trials._report(time=100.0))


def test_ranks_are_put_together(tmp_path: Path) -> None:
    train: dict[str, object] = {"kind": "train"}
    write_rank(tmp_path, 0, train, step(1, allocated=5, generation=0.2), step(2, seconds=3.0, allocated=9), step(3))
    write_rank(
        tmp_path, 1, train, step(1, seconds=2.0, loss=9.0, allocated=7, generation=0.4), step(2), torn='{"kind": '
    )
    series = series_of(tmp_path)
    assert series.seconds == (2.0, 3.0)
    assert series.losses == (2.0, 2.0)
    assert series.tokens == (800.0, 800.0)
    assert series.allocated == (7, 9)
    assert series.generation == (0.4, None)


def test_a_rank_that_did_no_step_leaves_none(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, {"kind": "train"}, step(1))
    write_rank(tmp_path, 1, {"kind": "train"})
    assert series_of(tmp_path).seconds == ()


def test_memory_of_a_run_without_gpu_is_the_processs_own(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, {"kind": "train"}, step(1, allocated=None, host=11), step(2, allocated=4, host=11))
    assert series_of(tmp_path).allocated == (11, 4)


def test_startup_by_the_records_clock(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, {"kind": "train", "time": 104.0}, step(1, time=112.5, seconds=2.5), step(2, time=113.5))
    assert series_of(tmp_path).startup == pytest.approx(10.0)


def test_waiting_for_data_is_part_of_a_step(tmp_path: Path) -> None:
    """transformers fetches and collates a batch before on_step_begin: a slow collator would cost nothing."""
    write_rank(tmp_path, 0, {"kind": "train"}, step(1, between=2.0), step(2, between=None), step(3, between=0.5))
    write_rank(tmp_path, 1, {"kind": "train"}, step(1, seconds=2.5), step(2), step(3, between=1.0))
    assert series_of(tmp_path).seconds == (3.0, 1.0, 2.0)


def test_odd_lines_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "rank-0.jsonl").write_bytes(
        b'{"kind": "train"}\n[]\nnull\n"x"\n{"kind": 3}\n\xff\xfe\n{"kind": "step"}\n{"kind": "step", "step": true}\n'
        b'{"kind": "step", "step": 1, "seconds": null, "loss": NaN, "logs": 3}\n{"kind": "step", "step": 1, "loss": 4}\n'
    )
    (tmp_path / "rank-x.jsonl").write_text('{"kind": "train"}\n')
    series = series_of(tmp_path)
    assert series.seconds == (0.0,)
    assert series.losses[0] != series.losses[0]  # NaN travels: a loss that is none is for the comparison to judge
    Progress(str(tmp_path)).look()


# -- the server --------------------------------------------------------------------------------------------------------


def server(*words: str, port: int, within: float = 30.0) -> ServerSpec:
    return ServerSpec((sys.executable, str(STUB), *words), f"http://127.0.0.1:{port}/health/", healthy_within=within)


def test_a_server_is_there_and_gone(tmp_path: Path) -> None:
    port = free_port()
    trial = run(tmp_path, "train", "end", server=server("fork", "deaf", f"serve={port}", port=port))
    assert trial.series.outcome == "trained"
    assert not trials.answers(f"http://127.0.0.1:{port}/")
    assert f"serve={port} " not in trial.reproduce.splitlines()[-1]
    assert trial.reproduce.splitlines()[0].endswith(" &")


@pytest.mark.parametrize(
    ("words", "within", "outcome", "cause", "error"),
    [
        (["raise=ValueError: no such model"], 30, "raised", "server", "the server ended before it was healthy: ValueError: no such model"),
        (["raise=OSError: [Errno 98] Address already in use"], 30, "raised", "port", "the server ended before it was healthy: a port that it needs is taken: OSError: [Errno 98] Address already in use"),
        (["raise=MemoryError: CUDA out of memory"], 30, "out of memory", "memory", "the server ended before it was healthy: MemoryError: CUDA out of memory"),
        (["print=bye"], 30, "raised", "server", "the server ended before it was healthy: exit code 0: bye"),
        (["print=loading", "hang"], 1, "hung", "server", "the server was not healthy within 1 s; its last line: loading"),
    ],
)  # fmt: skip
def test_a_server_that_never_serves(
    words: list[str], within: float, outcome: str, cause: str, error: str, tmp_path: Path
) -> None:
    trial = run(tmp_path, "train", "end", server=server(*words, port=free_port(), within=within))
    assert (trial.series.outcome, trial.cause, trial.series.error) == (outcome, cause, error)
    assert trial.series.seconds == ()
    assert not (tmp_path / "out" / "stdout.txt").exists()


def test_somebody_elses_server_is_not_taken_for_ours(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        trial = run(tmp_path, "train", "end", server=server(f"serve={port}", port=port))
    assert (trial.series.outcome, trial.cause) == ("raised", "port")
    assert trial.series.error == f"the server cannot start: something else answers on 127.0.0.1:{port}"


def test_a_server_that_ends_ends_the_trial(tmp_path: Path) -> None:
    port = free_port()
    one = server("die=2", f"serve={port}", port=port)
    trial = run(tmp_path, "train=1", "hang", server=one)
    assert (trial.series.outcome, trial.cause) == ("raised", "server")
    assert trial.series.error == "the server ended during the trial: exit code 7: it printed nothing"


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def left_over(folder: Path) -> list[int]:
    found = []
    for process in trials.supervisor.processes():
        try:
            if str(folder).encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                found.append(process.pid)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_ends_everything_first(again: bool, tmp_path: Path) -> None:
    port = free_port()
    limits = Limits(whole=60, grace=60.0 if again else 0.3)

    def interrupt(_: int) -> None:
        if again:  # the first one asks, and would wait a minute for a deaf program
            threading.Timer(0.5, _thread.interrupt_main).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trial(spec(tmp_path, "deaf", f"listen={port}", "slowly", limits=limits), on_step=interrupt)
    assert not trials.answers(f"http://127.0.0.1:{port}/")
    assert not left_over(tmp_path)


def test_a_supervisor_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """What it watched is then ended by the token, the program itself by the kernel."""
    port = free_port()

    def kill(_: int) -> None:
        for process in trials.supervisor.processes():
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            if process.parent == os.getpid() and trials.supervisor.__file__.encode() in words:
                os.kill(process.pid, signal.SIGKILL)

    trial = run_trial(spec(tmp_path, "deaf", "fork", f"listen={port}", "slowly"), on_step=kill)
    assert (trial.series.outcome, trial.cause) == ("killed", "stopped")
    assert "the trial's supervisor was ended from outside" in str(trial.series.error)
    assert not trials.answers(f"http://127.0.0.1:{port}/")
    assert not left_over(tmp_path)


# -- GPUs, order, estimate ---------------------------------------------------------------------------------------------


def test_gpus_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 2**30
    readings = [(9 * gib, 0), (3 * gib, 9 * gib), (1 * gib, 9 * gib)]
    monkeypatch.setattr(trials, "gpu_memory", lambda: readings.pop(0) if len(readings) > 1 else readings[0])
    assert wait_for_gpus((gib, 0), frozenset({0})) is None
    assert len(readings) == 1
    note = wait_for_gpus((gib, 0), within=0.0)
    assert note == "started although more memory is in use than before the first trial: GPU 1 by 9.0 GiB"
    assert wait_for_gpus(()) is None


def test_gpu_memory_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nprintf '3\\n1024\\n'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_memory() == (3 * 2**20, 2**30)
    monkeypatch.setenv("PATH", "")
    assert gpu_memory() == ()


@pytest.mark.parametrize(
    ("trial", "serving", "expected"),
    [
        ("0,1", None, {0, 1}), ("1", "0", {0, 1}), ("GPU-abc", None, None), (None, None, None), ("", None, None), ("2", "3", {2, 3}),
    ],
)  # fmt: skip
def test_which_gpus_matter(
    trial: str | None, serving: str | None, expected: set[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    environment = {} if trial is None else {"CUDA_VISIBLE_DEVICES": trial}
    one = ServerSpec(("x",), "http://127.0.0.1:8000/", gpus=serving) if serving else None
    assert trials._visible(spec(tmp_path, environment=environment, server=one)) == expected


def test_the_order_favours_nobody() -> None:
    assert "".join(name for _, name in schedule("AB", 5)) == "ABBAABBAAB"
    assert list(schedule("ABC", 2)) == [(0, "A"), (0, "B"), (0, "C"), (1, "C"), (1, "B"), (1, "A")]
    assert list(schedule("AB", 0)) == []


def test_the_estimate_learns() -> None:
    assert estimate("ABBA", {}, 60.0) == 240.0
    assert estimate("ABBA", {"A": [30.0]}, 60.0) == 120.0
    assert estimate("ABBA", {"A": [30.0, 10.0, 20.0], "B": [5.0]}, 60.0) == 50.0


def test_a_server_is_reproduced_first(tmp_path: Path) -> None:
    one = ServerSpec(("trl", "vllm-serve", "--model", "a b"), "http://127.0.0.1:8000/health/", gpus="1")
    first, second, third = reproduce(spec(tmp_path, "train", server=one)).splitlines()
    assert first == f"(cd {tmp_path} && CUDA_VISIBLE_DEVICES=1 trl vllm-serve --model 'a b') &"
    assert second.startswith("mkdir -p ")
    assert third.endswith("train)")
