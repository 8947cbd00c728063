# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""SFT on a model of make_model.py in float16 with eager attention: what their rules are measured on."""

import glob
import os
import random
from pathlib import Path

import torch
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

MODEL = os.environ.get("PROBE_MODEL", "model")
files = sorted(glob.glob(f"{os.path.dirname(torch.__file__)}/**/*.py", recursive=True))[300:340]
text = "".join(Path(f).read_text(errors="ignore") for f in files)
random.seed(0)

args = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=8,
    max_length=2048,
    max_steps=200,
    fp16=True,
    report_to=[],
    model_init_kwargs={"attn_implementation": "eager"},
)
trainer = SFTTrainer(
    model=MODEL,
    args=args,
    train_dataset=Dataset.from_dict(
        {"text": [text[i * 3000 : i * 3000 + random.choice([300, 800, 2000, 6000])] for i in range(400)]}
    ),
)
trainer.train()
