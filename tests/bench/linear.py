"""Time over 1, 2, 4, 8 and 16 copies of a tree's Python files: cost must grow with the bytes and no faster.

Usage: python tests/bench/linear.py TREE
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from compare import cpu, peak


def main() -> None:
    tree = Path(sys.argv[1]).resolve()
    files = [p for p in tree.rglob("*.py") if ".git" not in p.parts and "tests" not in p.parts]
    tool = [
        sys.executable,
        "-m",
        "trl_lint",
        "--output-format",
        "concise",
        "--no-cache",
        "-j",
        "1",
        "--trl",
        "1.16.0",
        ".",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        env = {"PYTHONPATH": str(Path(__file__).parents[2]), "TRL_LINT_CACHE_DIR": str(Path(scratch) / "cache")}
        first = 0.0
        copies = 0
        root = Path(scratch) / "tree"
        for wanted in (1, 4, 16):
            while copies < wanted:
                for path in files:
                    target = root / f"copy{copies}" / path.relative_to(tree)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, target)
                copies += 1
            seconds = cpu(tool, runs=1, cwd=root, env=env)
            first = first or seconds
            print(
                f"{wanted:3d}x  {seconds:7.2f} s  {seconds / first:5.1f}x  peak {peak(tool, cwd=root, env=env):.0f} MB"
            )


if __name__ == "__main__":
    main()
