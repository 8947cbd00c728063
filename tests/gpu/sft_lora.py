# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""SFT of an adapter on a base without a dtype: what `base-in-float32` is measured on."""

from datasets import Dataset
from peft import LoraConfig
from texts import mixed
from trl import SFTConfig, SFTTrainer

args = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=16,
    max_length=2048,
    learning_rate=2e-4,
    max_steps=200,
    logging_steps=1,
    report_to=[],
)
trainer = SFTTrainer(
    model="Qwen/Qwen2-0.5B",
    args=args,
    train_dataset=Dataset.from_dict({"text": mixed(320)}),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
