"""`trl-lint tune` from words to a written file, with a stub trainer in the place of TRL's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STUB = Path(__file__).parent.parent / "probe" / "stub"
# The stub's batches are all alike: here they have as many samples as the config says, and a size that is best.
SCRIPT = """# trl-lint: facts trl==1.16.0 transformers==5.24.0
import time
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", per_device_train_batch_size=2, gradient_accumulation_steps=8)


class Trainer(SFTTrainer):
    def batch(self):
        from transformers.trainer import Batch, Tensor

        rows = self.args.per_device_train_batch_size
        return Batch(input_ids=Tensor(rows, 8), attention_mask=Tensor(rows, 5))

    def training_step(self, *given, **named):
        seconds = {1: 0.32, 2: 0.24, 4: 0.16, 8: 0.04, 16: 0.2}[self.args.per_device_train_batch_size]
        time.sleep(seconds / self.args.gradient_accumulation_steps)
        return super().training_step(*given, **named)


trainer = Trainer(args=args)
trainer.train()
"""
FAST = ("--steps", "5", "--patience", "99")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def tune(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(STUB), "TRL_LINT_CACHE_DIR": str(folder / ".cache"), **more}
    return subprocess.run(
        [sys.executable, "-m", "trl_lint", "tune", "train.py", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip


def test_the_fastest_settings_are_found_confirmed_and_written(project: Path) -> None:
    words = ("--allow", "numerics", *FAST, "--trials", "7", "--summary", "summary.md", "--report", "out.html")
    done = tune(project, *words, "--apply", "--print-command")
    assert done.returncode == 0, done.stdout + done.stderr
    code = (project / "train.py").read_text()
    assert "per_device_train_batch_size=8, gradient_accumulation_steps=2)" in code, done.stdout + done.stderr
    assert "+args = SFTConfig(output_dir" in done.stdout
    assert "wrote train.py\n" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" train.py")
    record = json.loads((project / ".trl-lint" / "evidence.jsonl").read_text().splitlines()[-1])
    assert (record["rule"], record["verdict"]["name"]) == ("tuned", "confirmed")
    assert record["fix"] == {"title": "batch=8", "key": "batch=8", "effect": "numerics"}
    assert "- batch=8\n" in (project / "summary.md").read_text()
    assert "All 7 trials were run" in (project / "out.html").read_text()
    # No trial with a setting that the trainer does not take is run more often than it takes to see that.
    assert done.stderr.count("unexpected keyword argument") <= 2


def test_what_is_searched_can_be_listed(project: Path) -> None:
    done = tune(project, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Not searched, as they round otherwise: batch, padding-free; ask for them with --allow numerics.\n")  # fmt: skip
    assert "  checkpointing: as it is, False (same)\n" in done.stdout
    assert "  packing: not searched (training)\n" in done.stdout
    more = tune(project, "--dry-run", "--allow", "numerics", "--allow-training", "packing")
    assert "  packing: as it is, True (training)\n" in more.stdout
    assert "  batch: as it is, 1, 4, 8, 16 (numerics)\n" in more.stdout


def test_what_cannot_be_done_is_one_line(project: Path) -> None:
    for words, line in (
        (("--trials", "1"), "--trials 1: a search compares at least 2 settings"),
        (("--pairs", "3"), "--pairs 3: a verdict takes at least 5"),
        (("--steps", "3"), "--steps 3: the first 2 only warm up; take 4 or more"),
        (("--worker", "--apply"), "--worker runs trials for another tune, which has the --workers, --resume and --apply"),
        (("--allow-training", "speed"), "--allow-training speed: there is no such setting or rule; --dry-run lists those that apply"),
        (("--resume",), "train.py: there is no study to resume"),
        (("--storage", "nonsense"), "--storage nonsense: Could not parse SQLAlchemy URL from given URL string; is it running, and made by this Optuna?"),
    ):  # fmt: skip
        done = tune(project, *words)
        assert (done.returncode, done.stderr) == (2, f"trl-lint: {line}\n"), words


def test_nothing_to_tune(project: Path) -> None:
    (project / "train.py").write_text(SCRIPT.replace('output_dir="out", ', '**values, output_dir="out", '))
    assert "train.py: nothing to tune" in tune(project).stdout


def test_nothing_trains(project: Path) -> None:
    (project / "train.py").write_text(
        SCRIPT.replace("seconds = {", "raise MemoryError('no room')\n        seconds = {")
    )
    done = tune(project, *FAST, "--trials", "2")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("trl-lint: train.py: none of 2 trials trained; most often: "), done.stderr
    changed = (project / "train.py").read_text() + "# another\n"
    (project / "train.py").write_text(changed)
    again = tune(project, "--resume")
    assert again.stderr == "trl-lint: train.py: there is no study to resume: train.py changed since; start anew without it\n"  # fmt: skip
    shutil.rmtree(project / ".trl-lint")


def test_workers_take_a_free_gpu_each(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    seen = tmp_path_factory.mktemp("seen")
    tests = Path(__file__).parents[2]
    (seen / "pynvml.py").write_text(
        "import sys\n"
        f"sys.path.append({str(tests)!r})\n"
        "from tests.probe.fake_nvml import GIB, Card, pynvml\n"
        "taken = Card(uuid='GPU-2', index=1, used=60 * GIB, running=[(1, 60 * GIB)])\n"
        "sys.modules['pynvml'] = pynvml(Card(), taken, Card(uuid='GPU-3', index=2), names={1: 'python'})\n"
    )
    note = f"import os, pathlib\npathlib.Path({str(seen)!r}, 'gpu-' + os.environ['CUDA_VISIBLE_DEVICES']).touch()\n"
    (project / "train.py").write_text(SCRIPT.replace("import time\n", f"import time\n{note}"))
    words = ("--allow", "numerics", *FAST, "--trials", "16", "--workers")
    environment = {"PYTHONPATH": os.pathsep.join([str(STUB), str(seen)])}
    refused = tune(project, *words, "3", **environment)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (
        2,
        "trl-lint: --workers 3: only 2 of the GPUs are free",
    )
    done = tune(project, *words, "2", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in seen.glob("gpu-*")} == {"gpu-0", "gpu-2"}
    assert "Search: all 16 trials were run" in done.stdout
