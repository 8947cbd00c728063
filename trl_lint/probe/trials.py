"""A command to run in; out a `Trial`: what it did step by step, how it ended, and nothing of it still running.

`run_trial` waits until the GPUs are as free as they were, starts the server that the run needs, runs the command under
a supervisor (`trl_lint.probe.supervisor`) and reads what the harness inside it wrote. `schedule` and `estimate` say in
which order trials run and how long they take.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from trl_lint.probe import hardware, kernels, supervisor
from trl_lint.probe.comparison import Outcome, Series
from trl_lint.probe.endings import Cause, Ending, Record, classify, last_line, shown
from trl_lint.reports.redaction import redact

HARNESS = Path(__file__).parent / "harness"  # holds the sitecustomize.py that measures
FREE_SLACK = 512 * 2**20  # bytes in use beyond the start that do not count: contexts come and go
FREE_WITHIN = 120.0  # seconds that we wait for the GPUs before we go on and say so
POLL = 0.5

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """In seconds. `silent`: without a new line in a rank file and without output, as long as the longest compilation.

    `leaving`: after one rank said that it is done, until the last process must have left. `grace`: from SIGTERM to
    SIGKILL.
    """

    whole: float | None = 3600.0
    silent: float | None = 600.0
    leaving: float = 120.0
    grace: float = 10.0


@dataclass(frozen=True)
class ServerSpec:
    """A server that must answer `health` (an http URL) with 200 before the trial starts; `gpus` as for CUDA."""

    command: tuple[str, ...]
    health: str
    cwd: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: str | None = None
    healthy_within: float = 900.0


@dataclass(frozen=True)
class TrialSpec:
    """`command` runs in `cwd` for `steps` steps; `out` is a folder of this trial alone, made if it is not there.

    `environment` is added to our own. `name` is the variant's, "A" for the script as it is. `holds` are descriptors that
    stay open as long as the supervisors of the trial live, whatever becomes of us (see `scratch.Scratch`).
    """

    name: str
    command: tuple[str, ...]
    cwd: Path
    out: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: int = 8
    seed: int = 42
    limits: Limits = Limits()
    server: ServerSpec | None = None
    holds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One measured execution. `series` is what is compared; `cause` says more exactly how it ended.

    `train` is rank 0's record of what was trained, where and with which versions; None when it never came to that.
    `reproduce` are the shell commands that run it again. `compiled`: kernels were compiled that a next run finds on the
    disk, so that this one says little of how fast it is. `stdout` and `stderr` are files (their first 64 KiB and last
    1 MiB), as the child wrote them: redact what is shown of them.
    """

    spec: TrialSpec
    series: Series
    cause: Cause
    train: Record | None
    ranks: int
    started: float  # Unix time
    seconds: float
    returncode: int | None
    reproduce: str
    notes: tuple[str, ...] = ()
    compiled: bool = False

    @property
    def stdout(self) -> Path:
        return self.spec.out / "stdout.txt"

    @property
    def stderr(self) -> Path:
        return self.spec.out / "stderr.txt"


# -- the order of trials -----------------------------------------------------------------------------------------------


def schedule(variants: Sequence[T], pairs: int) -> Iterator[tuple[int, T]]:
    """(number of the pair from 0, variant) in the order to run: A B, B A, A B, …; with more variants A B C, C B A, ….

    A machine that warms up or slows down then favours neither side.
    """
    for pair in range(pairs):
        for variant in variants if pair % 2 == 0 else reversed(variants):
            yield pair, variant


def estimate(names: Iterable[str], measured: Mapping[str, Sequence[float]], guess: float) -> float:
    """Seconds that the trials `names` will take: a variant's median so far, else that of all, else `guess` each."""
    everything = list(chain.from_iterable(measured.values()))
    other = statistics.median(everything) if everything else guess
    return sum(statistics.median(measured[name]) if measured.get(name) else other for name in names)


# -- running one -------------------------------------------------------------------------------------------------------


def run_trial(spec: TrialSpec, *, baseline: Sequence[int] = (), on_step: Callable[[int], None] | None = None) -> Trial:
    """Run it to its end; whatever it started has ended when this returns or raises.

    `baseline` is `gpu_memory()` as it was before the first trial. `on_step` hears the number of each step that rank 0
    has done. Ctrl-C ends the trial and everything of it, and only then raises KeyboardInterrupt; a second one does not
    wait for the processes to leave by themselves. Never raises because of what the child does.
    """
    try:
        (spec.out / "server" if spec.server else spec.out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _trial(spec, _report(problems=[str(error)]), Ending("not reached", "disk", f"no room for it: {error}"))
    if any(spec.out.glob("rank-*.jsonl")):
        raise ValueError(f"{spec.out} holds another trial")
    notes = [note] if (note := wait_for_gpus(baseline, _visible(spec))) else []
    kills = _oom_kills()
    compiled = kernels.watch({**os.environ, **spec.environment})
    server: _Server | None = None
    program: _Program | None = None
    try:
        if spec.server is not None:
            if answers(spec.server.health):
                text = f"the server cannot start: something else answers on {_place(spec.server.health)}"
                return _trial(spec, _report(), Ending("raised", "port", text), notes=notes)
            server = _Server(spec.server, spec)
            if ending := server.wait_until_healthy():
                assert server.program.report is not None
                return _trial(spec, server.program.report, ending, notes=notes)
        program = _Program(spec.command, spec.cwd, _environment(spec), spec.out, spec.limits, spec.holds)
        while not program.read(POLL, on_step):
            if server is not None and server.program.read(0):
                program.stop()  # the trainer would wait for it for minutes
        server_ended = server is not None and server.program.read(0)
    finally:
        _end([program, server.program if server else None])
    kills_now = _oom_kills()
    grown = None if kills is None or kills_now is None else kills_now - kills
    ranks = read_ranks(spec.out)
    assert program.report is not None
    report = program.report
    ending = classify(report, ranks, spec.steps, grown, done=len(_series(ranks, report).seconds))
    # What the trainer says when its server has ended is less than what the server said.
    if server is not None and server_ended and ending.cause in ("stopped", "error", "limit"):
        ending = server.ending("the server ended during the trial: ")
    return replace(_trial(spec, report, ending, ranks, notes), compiled=compiled())


def _trial(
    spec: TrialSpec,
    report: Record,
    ending: Ending,
    ranks: Mapping[int, Sequence[Record]] | None = None,
    notes: Sequence[str] = (),
) -> Trial:
    ranks = ranks or {}
    records = [record for rank in sorted(ranks) for record in ranks[rank]]
    told = [said for record in records if (said := _note(record))]
    left = [f"could not be ended: {name}" for name in report["left"]]
    kept = report["problems"] if ending.cause != "not started" else []
    return Trial(
        spec=spec,
        series=_series(ranks, report, ending),
        cause=ending.cause,
        train=next((record for record in records if record["kind"] == "train"), None),
        ranks=len(ranks),
        started=report["time"],
        seconds=report["seconds"],
        returncode=report["returncode"],
        reproduce=reproduce(spec),
        notes=tuple(dict.fromkeys([*notes, *ending.notes, *kept, *left, *told])),
    )


def _note(record: Record) -> str | None:
    """What the harness had to say beyond its measurements."""
    match record["kind"]:
        case "note":
            return shown(str(record.get("message")))
        case "harness-error":
            return shown(f"{record.get('where')} not measured: {record.get('type')}: {record.get('message')}")
    return None


def _report(**known: object) -> dict[str, Any]:
    """What a supervisor reports of a program that never ran."""
    nothing = {"reason": "ended", "returncode": None, "seconds": 0.0, "first_step": None, "stdout": "", "stderr": ""}
    return {"time": time.time(), "killed": [], "left": [], "problems": [], **nothing, **known}


def _environment(spec: TrialSpec) -> dict[str, str]:
    """What the child gets beyond our own environment, but for the token."""
    given = spec.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return {
        **spec.environment,
        "PYTHONPATH": os.pathsep.join([str(HARNESS), *([given] if given else [])]),
        # vLLM's processes write their title over their environment, and with it the token (setproctitle's README).
        "SPT_NOENV": "1",
        supervisor.VARIABLE: json.dumps({"out": str(spec.out.absolute()), "steps": spec.steps, "seed": spec.seed}),
    }


def reproduce(spec: TrialSpec) -> str:
    """Shell commands that run the trial again, the server in the background first. Secrets are not in it."""
    lines = []
    if server := spec.server:
        lines.append(_line(server.cwd or spec.cwd, _server_environment(server), server.command) + " &")
    out = str(spec.out.absolute() / "again")
    again = {"out": out, "steps": spec.steps, "seed": spec.seed, "token": "by hand"}
    environment = {**spec.environment, supervisor.VARIABLE: json.dumps(again)}
    path = f"PYTHONPATH={shlex.quote(str(HARNESS))}"
    path += (
        f":{shlex.quote(given)}" if (given := environment.pop("PYTHONPATH", "")) else '"${PYTHONPATH:+:$PYTHONPATH}"'
    )
    lines.append(f"mkdir -p {shlex.quote(out)}")
    lines.append(_line(spec.cwd, environment, spec.command, path))
    return "\n".join(lines)


def _line(cwd: Path, environment: Mapping[str, str], command: Sequence[str], *more: str) -> str:
    words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return redact(f"(cd {shlex.quote(str(cwd.absolute()))} && {' '.join([*words, *more, shlex.join(command)])})")


# -- a program under its supervisor ------------------------------------------------------------------------------------


class _Program:
    """A command that runs under a supervisor of its own; `report` is its last word."""

    def __init__(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str], folder: Path, limits: Limits,
        holds: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.report: Record | None = None
        self._token = secrets.token_hex(16)
        self._grace = limits.grace
        self._rest = b""
        marked = {**json.loads(environment[supervisor.VARIABLE]), "token": self._token}
        request = {
            "command": list(command),
            "cwd": str(cwd.absolute()),
            "environment": {**environment, supervisor.VARIABLE: json.dumps(marked)},
            "token": self._token,
            "folder": str(folder.absolute()),
            "whole": limits.whole,
            "silent": limits.silent,
            "leaving": limits.leaving,
            "grace": limits.grace,
        }
        # A session of its own: Ctrl-C on the terminal reaches us, not the supervisor. -I: a json.py in the user's
        # folder, or the user's PYTHONPATH, must not become part of it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            bufsize=0,
            pass_fds=holds,
        )
        self._say((json.dumps(request) + "\n").encode())

    def read(self, timeout: float, on_step: Callable[[int], None] | None = None) -> bool:
        """Wait up to `timeout` seconds for its messages; whether it has ended."""
        assert self._process.stdout
        if self.report is not None:
            return True
        ready = select.poll()
        ready.register(self._process.stdout, select.POLLIN)
        if not ready.poll(timeout * 1000):
            return False
        data = os.read(self._process.stdout.fileno(), 1 << 20)
        if not data:
            self._sweep()
            return True
        *complete, self._rest = (self._rest + data).split(b"\n")
        for line in complete:
            message = json.loads(line)
            match message["event"]:
                case "step" if on_step is not None:
                    on_step(message["step"])
                case "ended":
                    self.report = message
                case "failed":
                    self.report = _report(reason="lost", problems=[message["message"]])
        return self.report is not None

    def stop(self) -> None:
        self._say(b"stop\n")

    def kill(self) -> None:
        self._say(b"kill\n")

    def close(self) -> None:
        """Collect the supervisor, which ends after its report."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(self._grace + 2 * supervisor.PERSISTENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, data: bytes) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):
            while data:
                data = data[self._process.stdin.write(data) or 0 :]

    def _sweep(self) -> None:
        """The supervisor was ended from outside: what it watched is ended here."""
        _, left = supervisor.end_all(self._token, None, lambda: self._grace)
        self.report = _report(reason="lost", left=left)


def _end(programs: Sequence[_Program | None]) -> None:
    """End those that still run and wait until they have. Ctrl-C meanwhile shortens the wait, and is raised after it."""
    running = [program for program in programs if program is not None]
    interrupted: KeyboardInterrupt | None = None
    say = _Program.stop
    while True:
        try:
            for program in running:
                if program.report is None:
                    say(program)
            for program in running:
                while not program.read(POLL):
                    pass
            for program in running:
                program.close()
            break
        except KeyboardInterrupt as error:
            interrupted, say = error, _Program.kill
    if interrupted is not None:
        raise interrupted


# -- the server --------------------------------------------------------------------------------------------------------


def _server_environment(server: ServerSpec) -> dict[str, str]:
    return {**server.environment, **({"CUDA_VISIBLE_DEVICES": server.gpus} if server.gpus is not None else {})}


class _Server:
    """The server of a trial, from its start on."""

    def __init__(self, server: ServerSpec, spec: TrialSpec) -> None:
        self._spec = server
        folder = spec.out / "server"
        environment = {
            **_server_environment(server),
            "SPT_NOENV": "1",
            supervisor.VARIABLE: json.dumps({"out": str(folder.absolute()), "steps": spec.steps, "seed": spec.seed}),
        }
        limits = Limits(whole=None, silent=None, grace=spec.limits.grace)
        self.program = _Program(server.command, server.cwd or spec.cwd, environment, folder, limits, spec.holds)

    def wait_until_healthy(self) -> Ending | None:
        """None once it is; else why it never was, and then it has ended."""
        begin = time.monotonic()
        while not self.program.read(POLL):
            if _healthy(self._spec.health):
                return None
            if time.monotonic() - begin > self._spec.healthy_within:
                _end([self.program])
                text = f"the server was not healthy within {self._spec.healthy_within:.0f} s"
                return Ending("hung", "server", shown(f"{text}; its last line: {self._last_line()}"))
        return self.ending("the server ended before it was healthy: ")

    def ending(self, before: str) -> Ending:
        """How a trial ends whose server has ended by itself."""
        assert self.program.report is not None
        found = classify(self.program.report, {}, 0)
        error = f"exit code 0: {self._last_line()}" if found.cause == "no training" else found.error
        outcome: Outcome = found.outcome if found.outcome in ("out of memory", "killed") else "raised"
        known = found.cause in ("memory", "port", "disk", "nccl", "hub", "not started")
        return Ending(outcome, found.cause if known else "server", shown(f"{before}{error}"))

    def _last_line(self) -> str:
        report = self.program.report
        assert report is not None
        return last_line(report["stderr"]) or last_line(report["stdout"]) or "it printed nothing"


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname or 'localhost'}:{parts.port or 80}"


def answers(url: str) -> bool:
    """Whether something listens where `url` points: it would be taken for the server that we are about to start."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "localhost", parts.port or 80), timeout=2).close()
    except OSError:
        return False
    return True


def _healthy(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not know this machine's ports
    try:
        with direct.open(url, timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False
    except Exception:  # http.client's own, when it is no server for HTTP
        return False


# -- GPUs and memory ---------------------------------------------------------------------------------------------------


def gpu_memory() -> tuple[int, ...]:
    """Bytes in use on each GPU as the driver sees it, in the order of nvidia-smi; empty where there is none."""
    try:
        return hardware.memory_in_use()
    except hardware.NoModule:
        return _nvidia_smi()
    except hardware.NoNvml:
        return ()


def _nvidia_smi() -> tuple[int, ...]:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True, stdin=subprocess.DEVNULL)
        return tuple(int(line) * 2**20 for line in shown.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()


def wait_for_gpus(
    baseline: Sequence[int], which: frozenset[int] | None = None, within: float = FREE_WITHIN
) -> str | None:
    """Wait until the GPUs (all, or `which`) are as free as `baseline` says; a note when they are still not."""
    begin = time.monotonic()
    while baseline:
        fuller = {
            index: now - before
            for index, (now, before) in enumerate(zip(gpu_memory(), baseline, strict=False))
            if now - before > FREE_SLACK and (which is None or index in which)
        }
        if not fuller:
            return None
        if time.monotonic() - begin > within:
            more = ", ".join(f"GPU {index} by {size / 2**30:.1f} GiB" for index, size in fuller.items())
            return f"started although more memory is in use than before the first trial: {more}"
        time.sleep(POLL)
    return None


def _visible(spec: TrialSpec) -> frozenset[int] | None:
    """The GPUs that the trial and its server may use, None for all: UUIDs and MIG names are not looked up."""
    asked = [spec.environment.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))]
    if spec.server is not None:
        asked.append(_server_environment(spec.server).get("CUDA_VISIBLE_DEVICES", asked[0]))
    found: set[int] = set()
    for devices in asked:
        numbers = (devices or "").split(",")
        if not all(number.strip().isdigit() for number in numbers):
            return None
        found.update(map(int, numbers))
    return frozenset(found)


def _oom_kills() -> int | None:
    """How many processes this kernel has ended for want of memory since it booted; None where it does not say."""
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in counters.splitlines() if line.startswith("oom_kill ")), None)


# -- what the harness wrote --------------------------------------------------------------------------------------------


def read_ranks(folder: Path) -> dict[int, list[Record]]:
    """The records of each rank. A torn last line and lines of no known form are left out."""
    ranks: dict[int, list[Record]] = {}
    for path in sorted(folder.glob("rank-*.jsonl")):
        number = path.stem.removeprefix("rank-")
        if not number.isdigit():
            continue
        with suppress(OSError):
            ranks[int(number)] = list(_records(path.read_bytes()))
    return ranks


def _records(data: bytes) -> Iterator[Record]:
    for line in data.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("kind"), str):
            yield record


def _series(ranks: Mapping[int, Sequence[Record]], report: Record, ending: Ending | None = None) -> Series:
    """The steps that every training rank has done, as `Series` puts several ranks together.

    Where no GPU trains, the process's own memory is what is allocated.
    """
    by_rank = [
        steps
        for _, records in sorted(ranks.items())
        if (steps := _steps(records)) or any(r["kind"] == "train" for r in records)
    ]
    count = 0
    while by_rank and all(count + 1 in steps for steps in by_rank):
        count += 1
    rows = [[steps[number] for steps in by_rank] for number in range(1, count + 1)]
    seconds = tuple(max(map(_whole, row)) for row in rows)
    return Series(
        seconds=seconds,
        tokens=tuple(_total(row, "tokens") for row in rows),
        losses=tuple(_number(row[0], "loss") for row in rows),
        allocated=tuple(_most(row, "allocated", "host") for row in rows),
        gpu_used=tuple(_most(row, "gpu_used") for row in rows),
        startup=_startup(rows, seconds, report),
        outcome=ending.outcome if ending else "trained",
        error=ending.error if ending else None,
        logs=tuple(_logs(row[0]) for row in rows),
        generation=tuple(_largest(row, "generation") for row in rows),
        samples=tuple(_total(row, "samples") for row in rows),
        reserved=tuple(_most(row, "reserved") for row in rows),
    )


def _steps(records: Sequence[Record]) -> dict[int, Record]:
    """By number; the first record of a step counts, since only the first train() does.

    Trainers with a loop of their own (PPO, the first RLOO) do not say when their first step began: it takes no time.
    """
    found: dict[int, Record] = {}
    for record in records:
        number = record.get("step")
        if record["kind"] == "step" and isinstance(number, int) and not isinstance(number, bool):
            found.setdefault(number, record)
    return found


def _whole(record: Record) -> float:
    """Seconds of a step with what came before it: transformers collates the next batch between two steps."""
    return (_number(record, "between") or 0.0) + (_number(record, "seconds") or 0.0)


def _startup(rows: Sequence[Sequence[Record]], seconds: Sequence[float], report: Record) -> float | None:
    """From the start of the process to that of the first step, by the record's own clock if it has one, else by ours."""
    if not rows:
        return None
    at = [time for record in rows[0] if (time := _number(record, "time")) is not None]
    end = max(at) - report["time"] if at else report["first_step"]
    return None if end is None else max(0.0, end - seconds[0])


def _number(record: Record, name: str) -> float | None:
    value = record.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _numbers(row: Sequence[Record], name: str) -> list[float]:
    return [value for record in row if (value := _number(record, name)) is not None]


def _total(row: Sequence[Record], name: str) -> float | None:
    """Of all ranks together: each writes what all have done, or that many times its own share, so the mean is right."""
    values = _numbers(row, name)
    return statistics.fmean(values) if values else None


def _largest(row: Sequence[Record], name: str) -> float | None:
    return max(_numbers(row, name), default=None)


def _most(row: Sequence[Record], *names: str) -> int | None:
    """Bytes on the fullest device, by the first of `names` that was measured."""
    largest = next((largest for name in names if (largest := _largest(row, name)) is not None), None)
    return None if largest is None else int(largest)


def _logs(record: Record) -> Mapping[str, float | None]:
    logs = record.get("logs")
    return {str(name): _number(cast(Record, logs), name) for name in logs} if isinstance(logs, dict) else {}
