# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""DPO with what TRL sets by default: where the tuner starts from."""

from datasets import Dataset
from texts import preferences
from trl import DPOConfig, DPOTrainer

args = DPOConfig(
    output_dir="out",
    report_to=[],
)
trainer = DPOTrainer(
    model="Qwen/Qwen2-0.5B",
    args=args,
    train_dataset=Dataset.from_dict(preferences(160)),
)
trainer.train()
