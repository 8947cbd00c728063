"""CPU of trl-lint beside its peers on one tree, in one run, as ratios.

Usage: python tests/bench/compare.py TREE [--runs N] [--peers PATH/TO/BIN] [--slow]

TREE is a checkout, for example of huggingface/trl. `--peers` is the bin folder of an environment that holds fixit and
torchfix; without it (or without `--slow`: they take minutes) only the quick comparisons run. Every figure is the minimum
of user + system seconds of the whole process and its children, which is what noisy machines disturb least.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Where this is set every run compiles every module anew, which no user's machine does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def cpu(command: list[str], *, runs: int, cwd: Path, env: dict[str, str] | None = None) -> float:
    """The least CPU seconds of a command over some runs."""
    best = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return best


def peak(command: list[str], *, cwd: Path, env: dict[str, str]) -> float:
    """Peak memory of a command in MB, its largest process."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=-3, stderr=-3); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--slow", action="store_true")
    options = parser.parse_args()
    tree = options.tree.resolve()
    tool = [sys.executable, "-m", "trl_lint", "--output-format", "concise"]
    with tempfile.TemporaryDirectory() as scratch:
        env = {"TRL_LINT_CACHE_DIR": str(Path(scratch) / "cache"), "PYTHONPATH": str(Path(__file__).parents[2])}
        empty = Path(scratch) / "empty"
        empty.mkdir()
        (empty / "other.py").write_text("print('no training here')\n", "utf-8")
        script = Path(scratch) / "script"
        shutil.copytree(Path(__file__).parents[2] / "fixtures" / "walkthrough", script)
        python = cpu([sys.executable, "-c", "pass"], runs=options.runs, cwd=empty)
        nothing = cpu(tool, runs=options.runs, cwd=empty, env=env)
        one = cpu([*tool, "--no-cache", "train.py"], runs=options.runs, cwd=script, env=env)
        print(f"python -c pass                     {python * 1000:8.0f} ms")
        print(
            f"trl-lint, no TRL file              {nothing * 1000:8.0f} ms  = {(nothing - python) * 1000:.0f} ms above python -c pass"
        )
        print(f"trl-lint, one training script      {one * 1000:8.0f} ms")
        # The first run reads a TRL source tree once and keeps what it learnt; files are parsed anew each time.
        cold = cpu([*tool, "--no-cache", "-j", "1"], runs=max(2, options.runs // 2), cwd=tree, env=env)
        cpu(tool, runs=1, cwd=tree, env=env)
        warm = cpu(tool, runs=options.runs, cwd=tree, env=env)
        print(
            f"trl-lint, tree, cold               {cold:8.2f} s   peak {peak([*tool, '--no-cache', '-j', '1'], cwd=tree, env=env):.0f} MB"
        )
        print(f"trl-lint, tree, nothing changed    {warm:8.2f} s   peak {peak(tool, cwd=tree, env=env):.0f} MB")
        if ruff := shutil.which("ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"):
            seconds = cpu([ruff, "check", "--no-cache", "--quiet", "."], runs=options.runs, cwd=tree)
            print(f"ruff check --no-cache              {seconds:8.2f} s   warm trl-lint is {warm / seconds:.1f}x")
        if options.slow and options.peers is not None:
            peers = options.peers.resolve()
            env_peers = {"PATH": f"{peers}{os.pathsep}{os.environ['PATH']}"}
            for name, command in {
                "fixit": [str(peers / "fixit"), "--quiet", "lint", "."],
                "torchfix": [str(peers / "torchfix"), "."],
            }.items():
                seconds = cpu(command, runs=1, cwd=tree, env=env_peers)
                print(f"{name:<34} {seconds:8.2f} s   {seconds / cold:.0f}x cold trl-lint")


if __name__ == "__main__":
    main()
