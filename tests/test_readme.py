"""What the README shows is what the tool says."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from .helpers import ROOT

TUNED = ROOT / "docs" / "evidence" / "tuned" / "grpo.txt"
UNSEEN = re.compile(r"pair \d|note: |recorded in |report in |summary in |\S*%, ")
"""Lines of it that are left out: what leads to the table, and what stands in it again."""
FOLDERS = ("fixtures/walkthrough", "fixtures/recipe-and-launch")
BLOCK = re.compile(r"(?s)```text\n(.*?)```")


def shown() -> list[str]:
    return BLOCK.findall((ROOT / "README.md").read_text("utf-8"))


@pytest.mark.parametrize(("index", "folder"), list(enumerate(FOLDERS)))
def test_the_output_in_the_readme_is_real(index: int, folder: str) -> None:
    """`python -m tests.test_readme` rewrites it."""
    assert shown()[index] == real(folder)


def real(folder: str) -> str:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-m", "trl_lint", folder, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return done.stdout


def test_the_tuning_in_the_readme_is_the_recorded_one() -> None:
    assert shown()[len(FOLDERS)] == tuning()


def tuning() -> str:
    """What `tests/gpu/run_tuning.py tune grpo` recorded, without the lines in between."""
    lines = TUNED.read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not UNSEEN.match(line))


if __name__ == "__main__":
    outputs = iter([*(real(folder) for folder in FOLDERS), tuning()])
    text = (ROOT / "README.md").read_text("utf-8")
    (ROOT / "README.md").write_text(BLOCK.sub(lambda _: f"```text\n{next(outputs)}```", text), "utf-8")
