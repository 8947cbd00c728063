"""`action.yml`: its steps as a runner would start them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..helpers import ROOT
from .test_check import project

__all__ = ["project"]

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]

# In place of a virtual environment that is filled from an index: this project.
FAKE_PYTHON = """#!/usr/bin/env bash
if [ "$2" = venv ]; then
  mkdir -p "$3/bin"
  printf '#!/usr/bin/env bash\\necho "$@" >> "$RUNNER/pip"\\n' > "$3/bin/python"
  printf '#!/usr/bin/env bash\\nexec "%s" -m trl_lint "$@"\\n' "$REAL" > "$3/bin/trl-lint"
  chmod +x "$3/bin/python" "$3/bin/trl-lint"
fi
"""


def lint(project: Path, runner: Path, args: str, version: str = "") -> subprocess.CompletedProcess[str]:
    (runner / "python").write_text(FAKE_PYTHON, "utf-8")
    (runner / "python").chmod(0o755)
    (runner / "output").touch()
    given = {"ARGS": args, "VERSION": version, "PYTHON": str(runner / "python"), "SARIF": str(runner / "out.sarif")}
    given |= {"SOURCE": str(ROOT), "VENV": str(runner / "venv"), "RUNNER": str(runner), "REAL": sys.executable}
    given |= {"GITHUB_OUTPUT": str(runner / "output"), "PYTHONPATH": str(ROOT)}
    step = next(s for s in STEPS if s.get("id") == "lint")
    assert set(step["env"]) <= set(given)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=project,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runner")


def test_findings_are_kept_for_the_upload_and_fail_after_it(project: Path, runner: Path) -> None:
    done = lint(project, runner, ". --ignore 'liger, vllm'")
    assert done.returncode == 0, done.stderr
    assert (runner / "output").read_text("utf-8") == f"sarif={runner / 'out.sarif'}\ncode=1\n"
    assert json.loads((runner / "out.sarif").read_text("utf-8"))["runs"][0]["results"]
    assert str(ROOT) in (runner / "pip").read_text("utf-8")
    assert STEPS[-1]["run"] == 'exit "$CODE"'


def test_a_usage_error_fails_at_once(project: Path, runner: Path) -> None:
    done = lint(project, runner, "--select nosuch", version="0.1.0")
    assert done.returncode == 2
    assert "there is no rule or group 'nosuch'" in done.stderr
    assert "trl-lint==0.1.0" in (runner / "pip").read_text("utf-8")


def test_words_are_no_code(project: Path, runner: Path) -> None:
    done = lint(project, runner, "'$(touch owned)' '; touch owned'")
    assert done.returncode == 2
    assert not (project / "owned").exists()
    # What a caller gives reaches the shell through the environment only.
    for step in STEPS:
        assert "${{" not in step.get("run", "")


def test_what_it_uses_is_pinned() -> None:
    used = [s["uses"] for s in STEPS if "uses" in s]
    assert all(u.startswith("actions/") or re.search(r"@[0-9a-f]{40}$", u) for u in used)
