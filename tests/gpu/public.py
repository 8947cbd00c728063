"""`trl-lint --fix --confirm` on scripts that people have published, with the model and the data that are there without a hub.

Usage: python3 public.py NAME=FILE... --model FOLDER --out FOLDER   (NAME: see PUBLIC; FILE: the script as it was published)

Of the script only what stands in its `edits` becomes another; the model is a local folder of the name that the script says.
Output, diff, page and evidence of each go to the folder `--out`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from run_jobs import HERE, edited, place_model

from tests import nursery
from trl_lint.probe import evidence
from trl_lint.probe.variants import diff

DATA = ("from datasets import load_dataset", "from hub import load_dataset")
SHORT = "save_steps=250)", "save_steps=250,\n                            max_completion_length=64)"


@dataclass(frozen=True)
class Public:
    """`edits` replace the first text, which stands there once, by the second. `model` is the name that the script loads."""

    repository: str
    commit: str
    path: str
    model: str
    edits: tuple[tuple[str, str], ...]


QWEN = "https://github.com/aarentai/Qwen", "d83efda005242ad053fdd4c0499a8fcae52edeaa"
PUBLIC = {
    "sft": Public(
        "https://github.com/purpose168/huggingface-skills",
        "b417fadb46e3010bb12841e3372f70fb44f1adf7",
        "skills/hugging-face-model-trainer/scripts/train_sft_example.py",
        "Qwen/Qwen2.5-0.5B",
        (
            DATA,
            ("import trackio\n", ""),
            ("    push_to_hub=True,\n", ""),
            ('    hub_model_id="username/qwen-capybara-sft",\n', ""),
            ('    hub_strategy="every_save",  # Push checkpoints\n', ""),
            ("warmup_ratio=0.1", "warmup_steps=0.1"),  # what transformers of today calls it, as the linter says
            ('report_to="trackio",  # Integrate with Trackio', 'report_to="none",'),
            ('    project="meaningful_project_name", # project name for the training name (trackio)\n', ""),
            ("trainer.push_to_hub()\n", ""),
            ("trackio.finish()\n", ""),
        ),
    ),
    "dpo": Public(*QWEN, "trl/train_dpo.py", "Qwen/Qwen2-0.5B-Instruct", (DATA, ('output_dir="/mnt/efs/', 'output_dir="'))),
    "grpo": Public(
        *QWEN, "trl/train_grpo.py", "Qwen/Qwen2-0.5B-Instruct",
        # A model of random weights never ends a completion, and 512 tokens of each by `generate` take minutes.
        (DATA, ('\ntraining_args = GRPOConfig(output_dir="/mnt/efs/', '\ntraining_args = GRPOConfig(output_dir="'), SHORT),
    ),
}  # fmt: skip


def project(public: Public, original: str, folder: Path, model: Path, *, cpu: bool) -> str:
    """A folder in which the script runs; its text."""
    text = edited(original, public.edits)
    if cpu:
        text = text.replace("fp16=True", "fp16=False")
        text = re.sub(r"(?m)^([^#\n]*)output_dir=", r"\1use_cpu=True, bf16=False, output_dir=", text, count=1)
    (folder / "train.py").write_text(text)
    (folder / "pyproject.toml").touch()  # the project ends here
    for name in ("hub.py", "texts.py"):
        (folder / name).write_bytes((HERE / name).read_bytes())
    place_model(folder, model, public.model)
    return text


def confirm(name: str, original: str, options: argparse.Namespace, folder: Path) -> None:
    """One script: what `--fix --confirm` says, and what it leaves."""
    before = project(PUBLIC[name], original, folder, options.model, cpu=options.cpu)
    known = {**os.environ, "COLUMNS": "110", "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])}  # fmt: skip
    with ExitStack() as stack, (options.out / f"{name}.txt").open("w") as file:
        python = stack.enter_context(nursery.started((sys.executable,), [str(folder / "train.py")], known))
        told = ["--steps", str(options.steps), "--pairs", str(options.pairs)]
        told += ["--minutes", f"{options.minutes:g}"] if options.minutes is not None else []
        file.write(f"$ trl-lint --fix --unsafe-fixes --confirm train.py {shlex.join(told)}\n")
        file.flush()
        words = [*told, "--report", str((options.out / f"{name}.html").absolute()), "--launcher", shlex.join(python)]
        command = [sys.executable, "-m", "trl_lint", "--fix", "--unsafe-fixes", "--confirm", "train.py", *words]
        subprocess.run(command, cwd=folder, env=known, stdout=file, stderr=file, check=False)
    after = (folder / "train.py").read_text()
    (options.out / f"{name}.diff").write_text(diff({"train.py": after.encode()}, {"train.py": before.encode()}))
    for record in evidence.load(str(folder / ".trl-lint" / evidence.NAME)).records:
        at = f"{PUBLIC[name].repository}/blob/{PUBLIC[name].commit}/{PUBLIC[name].path}"
        evidence.append(str(options.out / "public.jsonl"), replace(record, command=f"tests/gpu/public.py {name}={at}"))


def main(words: list[str]) -> int:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("scripts", nargs="+", metavar="NAME=FILE")
    add("--model", type=Path, required=True, help="of make_model.py --float32, for grpo with --vocabulary 32000")
    add("--out", type=Path, required=True)
    add("--steps", type=int, default=6)
    add("--pairs", type=int, default=5)
    add("--minutes", type=float, help="of each script's trials")
    add("--cpu", action="store_true", help="rehearse without a GPU, best with a tiny model")
    options = made.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, _, file in (script.partition("=") for script in options.scripts):
        with tempfile.TemporaryDirectory(prefix="trl-lint-public-") as folder:
            confirm(name, Path(file).read_text("utf-8"), options, Path(folder))
        print((options.out / f"{name}.txt").read_text(), (options.out / f"{name}.diff").read_text(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
