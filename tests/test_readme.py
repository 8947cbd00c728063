"""What the README shows is what the tool says."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from .helpers import ROOT

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


if __name__ == "__main__":
    outputs = iter([real(folder) for folder in FOLDERS])
    text = (ROOT / "README.md").read_text("utf-8")
    (ROOT / "README.md").write_text(BLOCK.sub(lambda _: f"```text\n{next(outputs)}```", text), "utf-8")
