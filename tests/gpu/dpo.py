# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""DPO with a reference model that is asked in every step: what precomputing and Liger are measured against."""

from datasets import Dataset
from texts import preferences
from trl import DPOConfig, DPOTrainer

args = DPOConfig(
    output_dir="out",
    per_device_train_batch_size=16,
    max_length=1024,
    precompute_ref_log_probs=False,
    use_liger_kernel=False,
    max_steps=200,
    logging_steps=1,
    report_to=[],
)
trainer = DPOTrainer(
    model="Qwen/Qwen2-0.5B",
    args=args,
    train_dataset=Dataset.from_dict(preferences(160)),
)
trainer.train()
