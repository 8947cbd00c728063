"""The same mistake in every way that a run is written: found in each, and fixed in the file that owns the value."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
import yaml

from .helpers import fix_files, lint_files


class Mistake(NamedTuple):
    rule: str
    method: str
    facts: str
    fields: dict[str, Any]
    fixed: bool = True


MISTAKES = [
    Mistake("bad-vllm-mode", "grpo", "trl==1.4.0", {"use_vllm": True, "vllm_mode": "colocated"}),
    Mistake("kto-batch-of-one", "kto", "trl==0.24.0", {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16}),
    Mistake("liger-with-grpo-delta", "grpo", "trl==1.3.0", {"use_liger_kernel": True, "delta": 4.0}),
    Mistake(
        "generation-batch-and-steps-both-given", "grpo", "trl==1.9.0",
        {"per_device_train_batch_size": 8, "generation_batch_size": 64, "steps_per_generation": 4, "num_generations": 8},
    ),
    Mistake("group-size-below-two", "grpo", "trl==1.16.0 num_processes=1", {"per_device_train_batch_size": 8, "num_generations": 1}),
    Mistake("liger-ignores-label-smoothing", "dpo", "trl==0.28.0 liger-kernel==0.6.4", {"use_liger_kernel": True, "label_smoothing": 0.1}),
    Mistake("vllm-options-without-vllm", "grpo", "trl==1.9.2", {"vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.4, "num_generations": 8}),
    Mistake("precomputed-reference-with-sync", "dpo", "trl==1.16.0", {"precompute_ref_log_probs": True, "sync_ref_model": True}),
    Mistake("sleep-mode-stale-weights", "grpo", "trl==1.4.0 gpu=H100-80GB n_gpu=8", {"use_vllm": True, "vllm_mode": "colocate", "vllm_enable_sleep_mode": True}),
    Mistake("padding-free-ignored", "dpo", "trl==1.9.0", {"padding_free": True}),
    Mistake("both-half-precisions", "sft", "trl==1.9.0 gpu=H100", {"fp16": True, "bf16": True}),
    Mistake("tf32-on-pre-ampere", "sft", "trl==0.24.0 gpu=T4 n_gpu=1", {"fp16": True, "tf32": True}),
    Mistake("wpo-weighting-with-aot", "dpo", "trl==1.0.0", {"loss_type": "aot", "use_weighting": True}),
    Mistake("liger-refuses-dpo-loss-type", "dpo", "trl==1.12.0", {"use_liger_kernel": True, "loss_type": "ipo"}),
    Mistake("online-without-vllm", "grpo", "trl==1.9.2 vllm==0.20.0 gpu=H100 n_gpu=8", {"use_vllm": False, "num_generations": 8}),
    Mistake("vllm-mode-left-to-default", "grpo", "trl==0.21.0", {"use_vllm": True}),
    Mistake("liger-config-without-liger", "sft", "trl==1.9.0 transformers==5.4.0", {"liger_kernel_config": {"rope": True}}),
    Mistake("liger-deprecated", "sft", "trl==1.16.0 transformers==5.12.1", {"use_liger_kernel": True}, fixed=False),
    Mistake("bf16-on-pre-ampere", "sft", "trl==0.24.0 gpu=T4 n_gpu=1", {"bf16": True}, fixed=False),
    Mistake("eval-batch-not-divisible-by-group", "grpo", "trl==0.26.0 num_processes=1", {"num_generations": 8, "eval_strategy": "steps", "per_device_eval_batch_size": 3, "per_device_train_batch_size": 8}),
]  # fmt: skip

CLASSES = {"grpo": "GRPO", "dpo": "DPO", "sft": "SFT", "kto": "KTO"}
REWARD = {"grpo": "    reward_funcs=reward,\n"}


def trainer(method: str, model: str) -> str:
    name = CLASSES[method]
    return f"""
trainer = {name}Trainer(
    model={model},
    args=training_args,
{REWARD.get(method, "")}    train_dataset=dataset,
)
trainer.train()
"""


def constructor(m: Mistake) -> dict[str, str]:
    name = CLASSES[m.method]
    given = "".join(f"    {k}={v!r},\n" for k, v in m.fields.items())
    code = f'from trl import {name}Config, {name}Trainer\n\ntraining_args = {name}Config(\n    output_dir="out",\n{given})\n'
    return {"train.py": f"# trl-lint: facts {m.facts}\n{code}{trainer(m.method, repr('Qwen/Qwen2-0.5B'))}"}


def parser(m: Mistake) -> str:
    name = CLASSES[m.method]
    return f"""from trl import {name}Config, {name}Trainer, ModelConfig, ScriptArguments, TrlParser

parser = TrlParser((ScriptArguments, {name}Config, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
{trainer(m.method, "model_args.model_name_or_path")}"""


def flags(m: Mistake) -> str:
    """Options as people type them: a dictionary as JSON, True as a word."""
    words = (
        (k, json.dumps(v) if isinstance(v, dict) else str(v).lower() if isinstance(v, bool) else v)
        for k, v in m.fields.items()
    )
    return " \\\n    ".join(f"--{k} '{v}'" if str(v).startswith("{") else f"--{k} {v}" for k, v in words)


def recipe(m: Mistake) -> dict[str, str]:
    keys = yaml.safe_dump({"model_name_or_path": "Qwen/Qwen2-0.5B", "output_dir": "out", **m.fields}, sort_keys=False)
    launch = f"#!/bin/bash\n# trl-lint: facts {m.facts}\npython train.py --config recipe.yaml\n"
    return {"train.py": parser(m), "recipe.yaml": keys, "launch.sh": launch}


def command_line(m: Mistake) -> dict[str, str]:
    launch = f"#!/bin/bash\n# trl-lint: facts {m.facts}\npython train.py --model_name_or_path Qwen/Qwen2-0.5B --output_dir out \\\n    {flags(m)}\n"
    return {"train.py": parser(m), "launch.sh": launch}


def notebook(m: Mistake) -> dict[str, str]:
    lines = constructor(m)["train.py"].splitlines(keepends=True)
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Train\n"]},
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": lines},
    ]
    return {"train.ipynb": json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)}


def launch_script(m: Mistake) -> dict[str, str]:
    return {
        "launch.sh": f"#!/bin/bash\n# trl-lint: facts {m.facts}\ntrl {m.method} --model_name_or_path Qwen/Qwen2-0.5B --output_dir out \\\n    {flags(m)}\n"
    }


FORMS = {
    "constructor": (constructor, "train.py"),
    "recipe": (recipe, "recipe.yaml"),
    "command line": (command_line, "launch.sh"),
    "notebook": (notebook, "train.ipynb"),
    "launch script": (launch_script, "launch.sh"),
}


def placed(files: dict[str, str]) -> dict[str, str]:
    return {f"/nowhere/{name}": text for name, text in files.items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.rule)
def test_found_in_every_form(mistake: Mistake, form: str) -> None:
    write, owner = FORMS[form]
    examined = lint_files(placed(write(mistake)))
    found = [f for f in examined.findings if f.rule == mistake.rule]
    assert len(found) == 1, [(f.span.path, f.span.line, f.rule, f.message) for f in examined.findings]
    plain = lint_files(placed(constructor(mistake))).findings
    assert found[0].message in [f.message for f in plain]
    assert found[0].span.path == f"/nowhere/{owner}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m.fixed], ids=lambda m: m.rule)
def test_fixed_in_the_file_that_owns_the_value(mistake: Mistake, form: str) -> None:
    write, owner = FORMS[form]
    files = placed(write(mistake))
    fixed = fix_files(files, mistake.rule, unsafe=True)
    assert set(fixed.changed) == {f"/nowhere/{owner}"}, (fixed.failed, fixed.held_back)
    after = {path: text.data.decode() for path, text in fixed.examined.sources.texts.items()}
    assert not lint_files(after, mistake.rule).findings
    assert not fix_files(after, mistake.rule, unsafe=True).changed
