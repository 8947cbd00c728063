"""`trl-lint probe` ends at any moment: nothing of it is left, and the user's project is as it was."""

from __future__ import annotations

import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from trl_lint.probe import evidence
from trl_lint.probe.scratch import Scratch

from .test_supervisor import ROOT, STUB, digest, free_port, marked, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

# Writes beside itself, and starts a worker, a daemon, and a holder of a port.
SCRIPT = """# trl-lint: facts trl==1.16.0
import subprocess
import sys
import tempfile
import time
import time

from trl import SFTConfig, SFTTrainer

for words in (["daemon", "hang"], ["hold={port}"]):
    subprocess.Popen([sys.executable, {stub!r}, *words], start_new_session=True)
with open("seen.txt", "a") as file:
    file.write("trained")


class Trainer(SFTTrainer):
    def training_step(self, *args, **kwargs):
        time.sleep(0.05)
        return super().training_step(*args, **kwargs)


Trainer(SFTConfig(output_dir="out")).train()
"""
# Its fix: `vllm serve`. Both are found on PATH, and are the stub.
LAUNCH = "trl vllm-serve --model m --port {server} &\n{python} train.py\n"
SERVER = '#!/bin/sh\nexec {python} {stub} fork "serve={server}"\n'


@dataclass(frozen=True)
class Probe:
    """A running `trl-lint probe`, and all that it may touch."""

    folder: Path
    ports: tuple[int, int]
    process: subprocess.Popen[str]
    before: dict[str, tuple[str, int]]

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def left(self) -> list[str]:
        """What should not be there any more, or is not as it was."""
        left = [f"a temporary file: {path.name}" for path in (self.folder / "tmp").iterdir()]
        for port in self.ports:
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    left.append(f"port {port}")
        if files_of(self.project) != self.before:
            left.append("another project")
        return [*left, *(f"process {pid}" for pid in marked(self.folder))]


def files_of(project: Path) -> dict[str, tuple[str, int]]:
    """The project's own files."""
    return {name: seen for name, seen in digest(project).items() if not name.startswith(evidence.FOLDER + "/")}


def start(folder: Path) -> Probe:
    """A probe with a pair of trials and one to warm up, each beside a server, in a project, a PATH and a folder for temporary files of its own."""
    project, bin, port, server = folder / "project", folder / "bin", free_port(), free_port()
    for made in (project / ".git", bin, folder / "tmp"):
        made.mkdir(parents=True)
    (project / "train.py").write_text(SCRIPT.format(port=port, stub=str(STUB)))
    (project / "launch.sh").write_text(LAUNCH.format(server=server, python=sys.executable))
    (project / "weights.bin").write_bytes(b"w" * 3_000_000)  # is linked to, not copied
    for name in ("trl", "vllm"):
        (bin / name).write_text(SERVER.format(python=sys.executable, stub=STUB, server=server))
        (bin / name).chmod(0o755)
    # Bytecode may be written: compiling all of trl-lint anew for each probe would be most of the work.
    environment = {
        **os.environ, "PYTHONDONTWRITEBYTECODE": "", "PATH": f"{bin}:{os.environ['PATH']}", "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": f"{STUB.parent / 'stub'}:{ROOT}", "TRL_LINT_CACHE_DIR": str(folder / "cache"),
    }  # fmt: skip
    before = files_of(project)
    words = [sys.executable, "-m", "trl_lint", "probe", "train.py", "--pairs", "1", "--steps", "3"]
    with (folder / "said.txt").open("w") as output:
        process = subprocess.Popen(words, cwd=project, env=environment, stdout=output, stderr=output, text=True)
    return Probe(folder, (port, server), process, before)


def said(probe: Probe) -> str:
    """What it has printed so far: a line for each trial that has ended, then the report."""
    return (probe.folder / "said.txt").read_text()


def test_it_comes_to_its_end(tmp_path: Path) -> None:
    """Else what ends it below would meet something else."""
    probe = start(tmp_path)
    probe.process.wait(300)
    assert "recorded in .trl-lint/evidence.jsonl" in said(probe), said(probe)
    (record,) = evidence.load(evidence.place(str(probe.project))).records
    assert record.verdict.reason.startswith("1 of the 5 pairs")
    assert probe.left() == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda s: s.name)
def test_it_ends_at_any_moment(how: signal.Signals, tmp_path: Path) -> None:
    """20 random moments, five at once: so many trials have ended, and so many seconds have passed since."""
    chance = random.Random(how)
    for batch in range(4):
        waiting = [(start(tmp_path / f"{batch}-{n}"), chance.randrange(3), chance.uniform(0, 2)) for n in range(5)]
        struck, reached = list(waiting), dict[Path, float]()
        while waiting:
            time.sleep(0.01)
            for one in list(waiting):
                probe, ended, seconds = one
                # Not before it runs: the interpreter's own start is not ours to end well.
                if any((probe.folder / "tmp").iterdir()) and said(probe).count("\n") >= ended:
                    reached.setdefault(probe.folder, time.monotonic())
                late = time.monotonic() - reached.get(probe.folder, math.inf) >= seconds
                if late or probe.process.poll() is not None:
                    probe.process.send_signal(how)
                    waiting.remove(one)
        for probe, *moment in struck:
            code = probe.process.wait(120)
            if how == signal.SIGINT and code not in (130, -signal.SIGINT):
                assert "recorded in" in said(probe), (moment, code, said(probe))  # it was faster
            assert until(lambda probe=probe: not probe.left(), 60), (moment, probe.left(), said(probe))
            assert evidence.load(evidence.place(str(probe.project))).notes == ()


def test_the_folder_goes_with_its_last_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that still ends its program keeps it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch = Scratch()
    (scratch.folder / "copy").mkdir()
    supervisor = subprocess.Popen(["sleep", "60"], pass_fds=[scratch.hold])
    os.close(scratch.hold)  # as if we had been killed
    assert not until(lambda: not scratch.folder.exists(), 0.3)
    supervisor.kill()
    supervisor.wait()
    assert until(lambda: not scratch.folder.exists())


def test_the_folder_goes_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Scratch() as scratch:
        (scratch.folder / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []
