"""Virtual environments with one TRL release each, and the process that serves cases from inside one."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from packaging.version import Version

CHILD = Path(__file__).with_name("child.py")

# Each release with a transformers of its own days that it accepts.
RELEASES = {
    "0.19.1": "4.52.4",
    "0.22.2": "4.56.2",
    "0.24.0": "4.57.6",
    "0.28.0": "4.57.6",
    "0.29.1": "5.4.0",
    "1.5.1": "5.12.1",
    "1.9.2": "5.15.1",
    "1.13.0": "5.17.0",
    "1.14.2": "5.17.0",
    "1.16.0": "5.24.0",
}
# liger-kernel, where it is asked for: the newest that goes with releases from the first one on.
LIGER = {"0.14": "0.6.2", "1.4": "0.8.2"}
SHARED = ("torch==2.13.0", "numpy", "pandas", "psutil", "pyarrow", "requests", "safetensors", "scikit-learn")
IMPORTING = 300.0  # seconds: the first import of torch and TRL on a busy machine


def python_of(envs: Path, release: str) -> Path:
    """The interpreter of a release's environment."""
    return envs / f"trl-{release}" / "bin" / "python"


def build(envs: Path, release: str) -> Path:
    """Make a release's environment unless it is there. torch and other large packages are installed once, for all."""
    python = python_of(envs, release)
    if (envs / f"trl-{release}" / ".done").exists():
        return python
    shared = envs / "_torch"
    if not (shared / ".done").exists():
        _run(sys.executable, "-m", "venv", str(shared))
        _run(str(shared / "bin" / "pip"), "install", "-q", *SHARED)
        (shared / ".done").touch()
    _run(sys.executable, "-m", "venv", str(python.parents[1]))
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    (large,) = shared.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(f"{large}\n")
    wanted = (f"trl=={release}", f"transformers=={RELEASES[release]}", "peft", "jmespath", "rich")
    _run(str(python.with_name("pip")), "install", "-q", *wanted)
    _run(str(python), "-c", "import trl, transformers, peft")
    (python.parents[1] / ".done").touch()
    return python


def build_liger(envs: Path, release: str, version: str | None = None) -> Path:
    """A folder with liger-kernel, of that version or the usual one, and triton to put on the path of a release's interpreter."""
    version = version or [liger for first, liger in LIGER.items() if Version(release) >= Version(first)][-1]
    folder = envs / f"_liger-{version}"
    if not folder.exists():
        pip = str(python_of(envs, release).with_name("pip"))
        _run(pip, "install", "-q", "--no-deps", "--target", str(folder), f"liger-kernel=={version}", "triton")
    return folder


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


class Environment:
    """One interpreter with TRL, and the child in it; `also` is a folder with more packages.

    A child that crashes or takes longer than `patience` seconds is replaced by another.
    """

    def __init__(self, python: Path, *, also: Path | None = None, patience: float = 60.0) -> None:
        self.python = python
        self._also = {} if also is None else {"PYTHONPATH": str(also)}
        self.patience = patience
        self._folder = tempfile.TemporaryDirectory(prefix="trl-lint-oracle-")
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.versions: dict[str, str] = {}
        self._start()

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()

    def describe(self, classes: list[tuple[str, str, str, str]]) -> list[dict[str, Any]]:
        """What the release says of config classes: see `child.describe`."""
        described: list[dict[str, Any]] = self._ask({"describe": classes}, IMPORTING)
        return described

    def run(self, script: str) -> dict[str, Any]:
        """What became of a script. A child that died or took too long is an error of type "crash" or "hang"."""
        answer: dict[str, Any] = self._ask({"script": script}, self.patience)
        return answer

    def restart(self) -> None:
        """Go on with a child that has run nothing yet."""
        self._end()
        self._start()

    def _ask(self, request: dict[str, Any], seconds: float) -> Any:
        assert self._child is not None
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
            line = self._lines.get(timeout=seconds)
        except (queue.Empty, BrokenPipeError):
            line = ""
        if line:
            return json.loads(line)
        kind = "hang" if self._child.poll() is None else "crash"
        self.restart()
        error = {"type": kind, "message": f"{kind}: no answer", "line": 0, "place": ""}
        return {"error": error, "warnings": []}

    def _start(self) -> None:
        quiet = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        quiet |= {"TRL_EXPERIMENTAL_SILENCE": "1", "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"}
        self._child = subprocess.Popen(
            [str(self.python), str(CHILD)],
            cwd=self._folder.name,
            env={**os.environ, **quiet, **self._also},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(Path(self._folder.name) / "child.log").open("ab"),
            text=True,
            start_new_session=True,
        )
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_pump, args=(self._child, self._lines), daemon=True).start()
        hello = self._lines.get(timeout=IMPORTING)
        if not hello:
            raise RuntimeError(f"{self.python}: {(Path(self._folder.name) / 'child.log').read_text()[-2000:]}")
        self.versions = json.loads(hello)["versions"]

    def _end(self) -> None:
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()


def _pump(child: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    """Every line that the child writes, then an empty one: it ended."""
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line)
    lines.put("")
