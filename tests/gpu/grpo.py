# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""GRPO on a model of make_model.py, without vLLM: what `online-without-vllm` is measured on."""

import glob
import os
from pathlib import Path

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

MODEL = os.environ.get("PROBE_MODEL", "model")
files = sorted(glob.glob(f"{os.path.dirname(torch.__file__)}/**/*.py", recursive=True))[300:330]
text = "".join(Path(f).read_text(errors="ignore") for f in files)


def variety(completions, **kwargs):
    return [len(set(completion)) / 100 for completion in completions]


training_args = GRPOConfig(
    output_dir="out",
    per_device_train_batch_size=32,
    num_generations=8,
    max_completion_length=128,
    max_steps=200,
    logging_steps=1,
    report_to=[],
)
trainer = GRPOTrainer(
    model=MODEL,
    reward_funcs=variety,
    args=training_args,
    train_dataset=Dataset.from_dict({"prompt": [text[i * 400 : (i + 1) * 400] for i in range(800)]}),
)
trainer.train()
