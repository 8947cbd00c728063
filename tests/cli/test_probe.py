"""`trl-lint probe` from words to verdict, with a stub trainer in the place of TRL's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

STUB = Path(__file__).parent.parent / "probe" / "stub"
SCRIPT = """# trl-lint: facts trl==1.16.0
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(args=SFTConfig(output_dir="out", {planted}))
trainer.train()
"""


def probe(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "probe", *words, **more)


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(STUB), "TRL_LINT_CACHE_DIR": str(folder / ".cache"), **more}
    return subprocess.run(
        [sys.executable, "-m", "trl_lint", *words],
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
    assert done.stdout.startswith("It trains here: rename it to max_length\n"), done.stdout
    assert "as it is it stops: TypeError" in " ".join(done.stdout.split())
    record = json.loads((tmp_path / ".trl-lint" / "evidence.jsonl").read_text().splitlines()[0])
    assert record["rule"] == "unknown-config-field"
    assert record["verdict"]["name"] == "repaired"
    assert "max_seq_length" in (tmp_path / "train.py").read_text()  # the user's own file is as it was
    assert sorted(p.name for p in tmp_path.iterdir() if p.name not in (".trl-lint", ".cache")) == before


def test_a_dry_run_lists_the_trials(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(planted="max_seq_length=8"))
    done = probe(tmp_path, "train.py", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("11 trials of 8 steps: ")  # five pairs and the warm-up
    assert "unknown-config-field: rename it to max_length (train.py)" in done.stdout
    python = tmp_path / "none" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    empty = probe(tmp_path, "train.py", "--dry-run", "--launcher", str(python))
    note = f"note: no trl is installed for {python}; name the Python that trains with --launcher"
    assert empty.stdout.splitlines()[-1] == note


def installed(folder: Path, **versions: str) -> Path:
    """An environment that holds these packages, by name only; its `bin`."""
    for package, version in versions.items():
        (folder / f"lib/python3.12/site-packages/{package}-{version}.dist-info").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").touch()
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "bin" / "accelerate").write_text("#!/bin/sh\n")
    (folder / "bin" / "accelerate").chmod(0o755)
    return folder / "bin"


OPEN = """from trl import GRPOConfig, GRPOTrainer

trainer = GRPOTrainer(
    model="Qwen/Qwen3-4B",
    reward_funcs="length",
    args=GRPOConfig(output_dir="out", use_vllm=False),
)
trainer.train()
"""


@pytest.mark.parametrize("launcher", ["python", "accelerate launch", "env A=1 {bin}/python"])
def test_it_is_judged_by_what_is_installed_where_it_trains(tmp_path: Path, launcher: str) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "train.py").write_text(OPEN)
    refused = probe(tmp_path, "train.py", "--dry-run")
    assert "which nothing here rules out, needs another fix: pin trl, or pass --trl" in refused.stdout
    bin = installed(tmp_path / "environment", trl="1.16.0", transformers="5.24.0")
    words = launcher.format(bin=bin) if "{" in launcher else f"{bin}/{launcher}"
    done = probe(tmp_path, "train.py", "--dry-run", "--launcher", words)
    assert done.returncode == 0, done.stderr
    assert "  online-without-vllm: sample with vLLM on the training GPUs (train.py)\n" in done.stdout


def test_what_the_project_pins_counts_for_more_than_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==0.15.0\n")
    (tmp_path / "train.py").write_text(OPEN)
    bin = installed(tmp_path / "environment", trl="1.16.0", transformers="5.24.0")
    done = probe(tmp_path, "train.py", "--dry-run", "--launcher", f"{bin}/python")
    assert "sample with vLLM on the training GPUs" not in done.stdout


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
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_report_page_and_the_copies_that_were_run_are_left_where_asked(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    (tmp_path / "train.py").write_text(SCRIPT.format(planted="max_seq_length=8"))
    words = ("train.py", "--steps", "4", "--pairs", "2", "--report", "out.html", "--keep", "kept")
    done = probe(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "out.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "unknown-config-field" in page
    assert "max_length=8" in (tmp_path / "kept" / "1" / "train.py").read_text()
    assert not (tmp_path / "kept" / "1" / "kept").exists()
    again = probe(tmp_path, *words)
    assert (again.returncode, again.stderr) == (2, "trl-lint: kept: File exists; name a folder that is not there yet\n")


FAKE_TRL = """import http.server, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

assert sys.argv[1] == "vllm-serve" and os.environ["CUDA_VISIBLE_DEVICES"] == "0"
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_a_launch_file_is_run_beside_its_server_and_fixed_in_the_recipe(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    programs = tmp_path / "programs"
    project = tmp_path / "project"
    programs.mkdir()
    project.mkdir()
    (programs / "trl.py").write_text(FAKE_TRL)
    for name, words in {"python": '"$@"', "trl": f'{programs}/trl.py "$@"'}.items():
        (programs / name).write_text(f"#!/bin/sh\nexec {sys.executable} {words}\n")
        (programs / name).chmod(0o755)
    (project / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    (project / "train.py").write_text(
        "# trl-lint: facts trl==1.16.0\nimport urllib.request\nfrom trl import SFTConfig, SFTTrainer, TrlParser\n\n"
        "parser = TrlParser((SFTConfig,))\n(args,) = parser.parse_args_and_config()\n"
        f"urllib.request.urlopen('http://127.0.0.1:{port}/health/')\nSFTTrainer(args=args).train()\n"
    )
    (project / "recipe.yaml").write_text("output_dir: out\nmax_seq_length: 8  # short\n")
    (project / "run.sh").write_text(
        f"CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model m --port {port} &\n"
        "CUDA_VISIBLE_DEVICES=1 python train.py --config recipe.yaml\n"
    )
    words = ("run.sh", "--steps", "4", "--pairs", "2", "--select", "unknown-recipe-key")
    done = probe(project, *words, PATH=f"{programs}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("It trains here: rename it to max_length\n"), done.stdout
    assert "max_seq_length" in (project / "recipe.yaml").read_text()
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.1", port)) != 0  # no server is left


def test_confirm_writes_what_repaired_and_says_why_not_the_rest(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    (tmp_path / "train.py").write_text(SCRIPT.format(planted="max_seq_length=8, fp16=True"))
    words = ("--fix", "--confirm", "--steps", "4", "--gpu", "a100", "train.py")
    done = run(tmp_path, *words)
    assert "max_length=8, fp16=True" in (tmp_path / "train.py").read_text(), done.stdout + done.stderr
    assert "changes the numerics" in done.stdout
    again = run(tmp_path, *words)
    assert "Fixed 0, 1 held back" in again.stdout
    folder = run(tmp_path, "--fix", "--confirm", ".")
    assert (folder.returncode, folder.stderr) == (
        2, "trl-lint: --confirm runs trainings: name the files that start one, not .\n",
    )  # fmt: skip
