"""CPU of linting a large repository with few TRL files, beside merely reading it; and of one file of it, as a hook does.

Usage: python tests/bench/context.py [--files N] [--runs N]

Builds a repository of N files (default 10,000; Python, YAML, shell and notebooks as repositories have them, 20 of them
TRL's: scripts, recipes, launch scripts), then prints the least CPU seconds of some runs as ratios to the floor: walking
it as git sees it, reading every file of a suffix that trl-lint handles, and searching its bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from compare import cpu

FLOOR = """
import subprocess, sys
from trl_lint.sources.look import SUFFIXES, NAMES, is_read, mentions
listed = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *(f"*{s}" for s in SUFFIXES)],
    capture_output=True, check=True,
).stdout
for name in listed.decode().split("\\0"):
    if name and is_read(name):
        with open(name, "rb") as file:
            mentions(name, file.read())
"""

SCRIPT = """from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser

parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
GRPOTrainer(model=model_args.model_name_or_path, args=training_args, reward_funcs=len, train_dataset=None).train()
"""
RECIPE = "model_name_or_path: Qwen/Qwen2-0.5B\noutput_dir: out\nuse_vllm: false\nnum_generations: 8\n"
LAUNCH = "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 2 train_{i}.py --config recipes/r_{i}.yaml\n"
PYTHON = "import os\nimport sys\n\n\ndef work(x):\n    return [os.fspath(x), sys.argv]\n\n\n" * 200
YAML = "name: job\nitems:\n  - one\n  - two\nnested:\n  key: value\n" * 20
SHELL = "#!/bin/bash\nset -e\nfor f in *.txt; do\n  echo $f\ndone\npython tools/convert.py --all\n" * 10


def build(root: Path, files: int) -> None:
    """The repository; of every ten files seven are Python, one YAML, one shell, one a notebook with an image in it."""
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": ["print(1)\n"], "outputs": [{"data": {"image/png": "A" * 170_000}, "output_type": "display_data", "metadata": {}}]}  # fmt: skip
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    for index in range(files - 20):
        folder = root / f"pkg_{index % 97}"
        folder.mkdir(exist_ok=True)
        kind = index % 10
        name, body = (".py", PYTHON) if kind < 7 else [(".yaml", YAML), (".sh", SHELL), (".ipynb", notebook)][kind - 7]
        (folder / f"file_{index}{name}").write_text(body, "utf-8")
    (root / "recipes").mkdir()
    for index in range(7):
        (root / f"train_{index}.py").write_text(SCRIPT, "utf-8")
        (root / "recipes" / f"r_{index}.yaml").write_text(RECIPE, "utf-8")
    for index in range(6):
        (root / f"launch_{index}.sh").write_text(LAUNCH.replace("{i}", str(index)), "utf-8")
    (root / "requirements.txt").write_text("trl==1.9.2\n", "utf-8")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    tool = [sys.executable, "-m", "trl_lint", "--output-format", "concise", "-j", "1"]
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "repo"
        root.mkdir()
        build(root, options.files)
        env = {"TRL_LINT_CACHE_DIR": str(Path(scratch) / "cache"), "PYTHONPATH": os.fspath(Path(__file__).parents[2])}
        floor = cpu([sys.executable, "-c", FLOOR], runs=options.runs, cwd=root, env=env)
        print(f"walk, read, search       {floor:6.2f} s")
        for name, words in {
            "lint, cold": ["--no-cache"],
            "lint, nothing changed": [],
            "one script, cold": ["--no-cache", "train_3.py"],
            "one recipe, cold": ["--no-cache", "recipes/r_3.yaml"],
            "one launch script, cold": ["--no-cache", "launch_3.sh"],
        }.items():
            seconds = cpu([*tool, *words], runs=options.runs, cwd=root, env=env)
            print(f"{name:<24} {seconds:6.2f} s  = {seconds / floor:.2f}x")


if __name__ == "__main__":
    main()
