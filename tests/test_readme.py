"""What the README shows is what the tool says."""

from __future__ import annotations

import os
import subprocess
import sys

from .helpers import ROOT


def shown() -> str:
    lines = (ROOT / "README.md").read_text("utf-8").split("```text\n", 1)[1]
    return lines.split("```", 1)[0]


def test_the_output_in_the_readme_is_real() -> None:
    """`python -m tests.test_readme` rewrites it."""
    assert shown() == real()


def real() -> str:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-m", "trl_lint", "fixtures/walkthrough", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return done.stdout


if __name__ == "__main__":
    before, rest = (ROOT / "README.md").read_text("utf-8").split("```text\n", 1)
    after = rest.split("```", 1)[1]
    (ROOT / "README.md").write_text(f"{before}```text\n{real()}```{after}", "utf-8")
