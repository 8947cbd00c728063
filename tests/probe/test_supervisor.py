"""Whatever the probe and its children do to one another: nothing is left, and nobody else is touched."""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pytest

from trl_lint.probe import supervisor
from trl_lint.probe.supervisor import HEAD, TAIL, Kept, Process, belonging, end_all

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

STUB = Path(__file__).parent / "stub_training.py"
ROOT = STUB.parents[2]

# A probe: runs trials of a stub one after the other, forever, and says when each begins.
PROBE = """
import itertools, signal, sys
from pathlib import Path
from trl_lint.probe.trials import Limits, ServerSpec, TrialSpec, run_trial
stub, project, out, port, server = sys.argv[1:]
command = (sys.executable, stub, "fork", "daemon", f"listen={port}", "slowly")
limits = Limits(whole=60, silent=60, grace=0.3)
serving = ServerSpec((sys.executable, stub, "fork", "deaf", f"serve={server}"), f"http://127.0.0.1:{server}/health/")
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background inherits it ignored
print("begin", flush=True)
for number in itertools.count():
    run_trial(TrialSpec("A", command, Path(project), Path(out) / str(number), limits=limits, server=serving))
"""


# Below those that the kernel hands out, and for each worker of the tests its own: that one is free again afterwards is a
# test's assertion, so nobody else may have come by it meanwhile.
_WORKER = int("".join(filter(str.isdigit, os.environ.get("PYTEST_XDIST_WORKER", "0"))))
_PORTS = cycle(range(20000 + 1000 * (_WORKER % 12), 21000 + 1000 * (_WORKER % 12)))


def free_port() -> int:
    while True:
        port = next(_PORTS)
        with socket.socket() as one, suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", port))
            return port


def marked(folder: Path) -> set[int]:
    """Processes that were given a folder below `folder`: in their environment, or in their words (daemons without one)."""
    found = set()
    for process in supervisor.processes():
        for name in ("environ", "cmdline"):
            try:
                if str(folder).encode() in Path(f"/proc/{process.pid}/{name}").read_bytes():
                    found.add(process.pid)
            except OSError:
                continue
    return found - {os.getpid()}


def until(condition: object, seconds: float = 30.0) -> bool:
    """Whether `condition()` holds before `seconds` are over: no measurement, only patience."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def digest(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('mine')\n")
    (folder / "recipe.yaml").write_text("use_vllm: true\n")
    return folder


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda s: s.name)
def test_the_probe_ends_at_any_moment(how: signal.Signals, tmp_path: Path, project: Path) -> None:
    """20 random moments, five probes at a time, each with a server, workers, a daemon and a deaf holder of a port."""
    chance = random.Random(how)
    moments = sorted(chance.uniform(0.0, 3.0) for _ in range(20))
    before = digest(project)
    for batch in range(4):
        running: list[tuple[float, subprocess.Popen[bytes]]] = []
        ports = []
        for number in range(5):
            ports += [free_port(), free_port()]
            out = tmp_path / f"out-{batch}-{number}"
            words = [sys.executable, "-c", PROBE, str(STUB), str(project), str(out), *map(str, ports[-2:])]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            probe = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            running.append((moments[number * 4 + batch], probe))
        for _, probe in running:
            assert probe.stdout
            assert probe.stdout.readline() == b"begin\n"
        begin = time.monotonic()
        for moment, probe in sorted(running, key=lambda one: one[0]):
            time.sleep(max(0.0, begin + moment - time.monotonic()))
            probe.send_signal(how)
        for _, probe in running:
            probe.wait(60)
            if how == signal.SIGINT:
                # It waited for its children: SIGINT is answered by KeyboardInterrupt, after everything has ended.
                assert probe.returncode == -signal.SIGINT
        assert until(lambda: not marked(tmp_path)), marked(tmp_path)
        for port in ports:
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(("127.0.0.1", port))
    assert digest(project) == before


class Running:
    """A supervisor that a test talks to itself."""

    def __init__(self, folder: Path, *words: str, token: str | None = None, **limits: float | None) -> None:
        self.token, self.folder = token or secrets.token_hex(16), folder
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        probe = {"out": str(folder), "steps": 3, "token": self.token}
        request = {
            "command": [sys.executable, str(STUB), *words], "cwd": str(folder), "token": self.token, "folder": str(folder),
            "environment": {"TRL_LINT_PROBE": json.dumps(probe)}, "grace": 30.0, **limits,
        }  # fmt: skip
        self.say(json.dumps(request))

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def messages(self) -> Iterator[dict[str, object]]:
        assert self.process.stdout
        for line in self.process.stdout:
            yield json.loads(line)

    def end(self) -> dict[str, object]:
        *_, last = self.messages()
        assert self.process.wait(30) == 0
        assert not belonging(self.token)
        assert not marked(self.folder)
        return last


def test_it_says_what_happens(tmp_path: Path) -> None:
    messages = list(Running(tmp_path, "train", "end").messages())
    assert [m["event"] for m in messages if m["event"] != "step"] == ["started", "ended"]
    assert [m["step"] for m in messages if m["event"] == "step"][-1] == 3
    last = messages[-1]
    assert (last["reason"], last["returncode"], last["killed"], last["left"]) == ("ended", 0, [], [])
    assert last["first_step"] is not None


@pytest.mark.parametrize(
    ("words", "limits", "reason"),
    [
        (("hang",), {"silent": 0.5}, "progress"),
        (("chatter",), {"silent": 5.0, "whole": 0.8}, "time"),
        (("train", "end", "hang"), {"leaving": 0.3}, "leaving"),
    ],
)
def test_limits(words: tuple[str, ...], limits: dict[str, float], reason: str, tmp_path: Path) -> None:
    report = Running(tmp_path, *words, **limits).end()
    assert (report["reason"], report["killed"], report["left"]) == (reason, [], [])


@pytest.mark.parametrize("words", [("fork", "daemon", "hang"), ("spawn",)])
def test_who_does_not_listen_is_killed(words: tuple[str, ...], tmp_path: Path) -> None:
    running = Running(tmp_path, "deaf", "print=ready", *words, grace=0.3)
    assert until(lambda: (tmp_path / "stdout.txt").exists() and (tmp_path / "stdout.txt").read_text())
    running.say("stop")
    report = running.end()
    assert (report["reason"], report["left"]) == ("stopped", [])
    assert report["killed"]


def test_what_the_program_left_behind_ends_with_it(tmp_path: Path) -> None:
    port = free_port()
    report = Running(tmp_path, "fork", "daemon", f"listen={port}", "train", "end", grace=0.3).end()
    assert report["reason"] == "ended"
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", port))


def test_stop_and_kill(tmp_path: Path) -> None:
    running = Running(tmp_path, "deaf", "hang", grace=60.0)
    for message in running.messages():
        assert message["event"] == "started"
        break
    running.say("stop")
    running.say("kill")
    assert running.end()["reason"] == "stopped"


def test_the_end_of_the_pipe_is_the_end(tmp_path: Path) -> None:
    running = Running(tmp_path, "fork", "hang")
    assert until(lambda: len(belonging(running.token)) == 4)
    assert running.process.stdin
    running.process.stdin.close()
    assert running.end()["reason"] == "parent"


def test_nobody_else_is_touched(tmp_path: Path) -> None:
    """Neither a process with another token, nor one whose words or other variables hold ours, nor our own children."""
    token, script = "feedfacefeedface", "import time; time.sleep(60)"
    environments = [
        {**os.environ, "TRL_LINT_PROBE": '{"token": "feedfacecafecafe"}'},
        {**os.environ, "OTHER": f"TRL_LINT_PROBE={token}"},
        {name: value for name, value in os.environ.items() if name != "TRL_LINT_PROBE"},
    ]
    others = [subprocess.Popen([sys.executable, "-c", script, token], env=env) for env in environments]
    try:
        Running(tmp_path, "fork", "hang", token=token, whole=0.8).end()
        assert [other.poll() for other in others] == [None, None, None]
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_number_that_was_used_again_is_another_process() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert supervisor.send(Process(child.pid, os.getpid(), start=1), signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
    finally:
        child.kill()
        child.wait()


def test_an_empty_token_is_refused() -> None:
    with pytest.raises(ValueError, match="every process"):
        belonging("")
    with pytest.raises(ValueError, match="every process"):
        end_all("", None, lambda: 0.0)


def test_the_child_ignores_no_signal_and_has_no_stdin(tmp_path: Path) -> None:
    report = Running(tmp_path, "stdin", "kill=SIGINT").end()
    assert report["stdout"] == "''\n"
    assert report["returncode"] == -signal.SIGINT


def test_without_proc_the_process_group_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = Path(supervisor.__file__).read_text().replace("/proc", "/no-such-folder")
    elsewhere = tmp_path / "supervisor.py"
    elsewhere.write_text(code)
    monkeypatch.setattr(supervisor, "__file__", str(elsewhere))
    assert Running(tmp_path, "fork", "hang", whole=0.5).end()["reason"] == "time"


def test_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "out"))
    kept.add(b"first\n")
    for _ in range(5000):
        kept.add(b"z" * 1000)
    assert (tmp_path / "out").stat().st_size == HEAD + TAIL
    kept.add(b"\nlast\n")
    kept.close()
    data = (tmp_path / "out").read_bytes()
    assert data.startswith(b"first\nzzz")
    assert data.endswith(b"zzz\nlast\n")
    left_out = 5000 * 1000 + 12 - HEAD - TAIL
    assert f"\n[... {left_out} bytes left out ...]\n".encode() in data
    assert len(data) < HEAD + TAIL + 100


@pytest.mark.parametrize("size", [0, 1, HEAD, HEAD + 1, HEAD + TAIL])
def test_output_that_fits_is_kept_whole(size: int, tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "out"))
    whole = bytes(random.Random(size).randbytes(size))
    for at in range(0, size, 70_001):
        kept.add(whole[at : at + 70_001])
    kept.close()
    assert (tmp_path / "out").read_bytes() == whole


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_loses_no_error(tmp_path: Path) -> None:
    kept = Kept("/dev/full")
    kept.add(b"ValueError: the reason\n")
    kept.close()
    assert kept.problem == "/dev/full: No space left on device"
    assert kept.shown() == "ValueError: the reason\n"
    assert Kept(str(tmp_path / "missing" / "out")).problem
