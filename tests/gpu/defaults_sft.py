# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""SFT with what TRL sets by default: where the tuner starts from."""

from datasets import Dataset
from texts import mixed
from trl import SFTConfig, SFTTrainer

args = SFTConfig(
    output_dir="out",
    report_to=[],
)
trainer = SFTTrainer(
    model="Qwen/Qwen2-0.5B",
    args=args,
    train_dataset=Dataset.from_dict({"text": mixed(320)}),
)
trainer.train()
