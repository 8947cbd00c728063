"""`trl-lint probe` is ended at random moments of a trial on a GPU: is the memory free again, the script as it was?

Usage: python3 kill.py --model FOLDER [--times N]

By SIGINT and by SIGKILL in turn. Exit: 0 if nothing was left each time, else 1. On machines without a GPU the same is tested
by tests/probe/test_kill.py.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from run_jobs import HERE

from trl_lint.probe.trials import gpu_memory, wait_for_gpus

SCRIPT = "sft.py"
MOMENTS = 8.0, 30.0  # seconds after the start, between which torch is imported, the model loaded, and steps are made
WITHIN = 20.0  # seconds until all must be free


def once(how: signal.Signals, seconds: float, model: Path, folder: Path) -> str | None:
    """What was left, None if nothing was."""
    before = (HERE / SCRIPT).read_bytes()
    (folder / SCRIPT).write_bytes(before)
    (folder / "pyproject.toml").touch()
    (folder / "model").symlink_to(model.resolve())
    (folder / "tmp").mkdir()
    free = gpu_memory()
    path = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    known = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder / "tmp")}
    words = [sys.executable, "-m", "trl_lint", "probe", SCRIPT, "--pairs", "2", "--steps", "200"]
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(words, cwd=folder, env=known, stdout=said, stderr=said, start_new_session=True)
        time.sleep(seconds)
        taken = [now - was for now, was in zip(gpu_memory(), free, strict=True)]
        process.send_signal(how)
        process.wait(60)
    late = wait_for_gpus(free, within=WITHIN)
    print(f"{how.name} after {seconds:.1f} s, {max(taken, default=0) / 2**30:.1f} GiB of the GPU taken: {late or 'free again'}", flush=True)  # fmt: skip
    if (folder / SCRIPT).read_bytes() != before:
        return "another script"
    deadline = time.monotonic() + WITHIN
    while ours := sorted(
        path.name for path in (folder / "tmp").glob("trl-lint*")
    ):  # torch leaves files of its own there
        if time.monotonic() > deadline:
            return f"temporary files: {', '.join(ours)}"
        time.sleep(0.2)
    return late


def main(words: list[str]) -> int:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", type=Path, required=True, help="of make_model.py")
    made.add_argument("--times", type=int, default=6)
    options = made.parse_args(words)
    if not (options.model / "config.json").is_file():
        made.error(f"{options.model}: no model there; make one with make_model.py")
    chance = random.Random(0)
    left: list[str] = []
    for number in range(options.times):
        how = (signal.SIGINT, signal.SIGKILL)[number % 2]
        with tempfile.TemporaryDirectory(prefix="trl-lint-kill-", ignore_cleanup_errors=True) as folder:
            if what := once(how, chance.uniform(*MOMENTS), options.model, Path(folder)):
                left.append(what)
    print(f"{options.times} times, {len(left)} with something left{': ' + '; '.join(left) if left else ''}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
