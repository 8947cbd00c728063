"""`trl-lint probe` from words to verdict, with a stub trainer in the place of TRL's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

STUB = Path(__file__).parent.parent / "probe" / "stub"
SCRIPT = """# trl-lint: facts trl==1.16.0
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(args=SFTConfig(output_dir="out", {planted}))
trainer.train()
"""


def probe(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(STUB), "TRL_LINT_CACHE_DIR": str(folder / ".cache")}
    return subprocess.run(
        [sys.executable, "-m", "trl_lint", "probe", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_script_that_stops_is_repaired(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    (tmp_path / "train.py").write_text(SCRIPT.format(planted="max_seq_length=8"))
    before = sorted(p.name for p in tmp_path.iterdir())
    done = probe(tmp_path, "train.py", "--steps", "4", "--pairs", "2", "--select", "unknown-config-field")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "unknown-config-field  repaired: as fixed it trains" in done.stdout
    record = json.loads((tmp_path / ".trl-lint" / "evidence.jsonl").read_text().splitlines()[0])
    assert record["rule"] == "unknown-config-field"
    assert record["verdict"]["name"] == "repaired"
    assert "max_seq_length" in (tmp_path / "train.py").read_text()  # the user's own file is as it was
    assert sorted(p.name for p in tmp_path.iterdir() if p.name not in (".trl-lint", ".cache")) == before


def test_a_dry_run_lists_the_trials(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(planted="max_seq_length=8"))
    done = probe(tmp_path, "train.py", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("10 trials of 8 steps: ")
    assert "unknown-config-field: rename it to max_length (train.py)" in done.stdout


def test_nothing_to_try_and_no_such_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(planted="max_length=8"))
    assert probe(tmp_path, "train.py").stdout == "train.py: no fix to try.\n"
    (tmp_path / "other.py").write_text("print('hello')\n")
    for script, line in {
        "gone.py": "gone.py: no such file",
        "other.py": "other.py: no TRL training found in it",
    }.items():
        done = probe(tmp_path, script)
        assert (done.returncode, done.stderr) == (2, f"trl-lint: {line}\n")


def test_the_script_is_started_from_the_folder_that_the_user_stands_in(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    inside = tmp_path / "job"
    inside.mkdir()
    (inside / "data.txt").write_text("here")
    code = SCRIPT.format(planted="max_seq_length=8").replace("\ntrainer", "\nopen('data.txt').read()\ntrainer", 1)
    (inside / "train.py").write_text(code)
    done = probe(inside, "train.py", "--steps", "4", "--pairs", "2")
    assert "unknown-config-field  repaired: as fixed it trains" in done.stdout, done.stdout + done.stderr
