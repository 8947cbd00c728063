"""GRPO of a tiny random model on ten prompts. `tests/bench/planted.py` changes one of the lines that are marked `planted`."""

import time

from datasets import Dataset
from tiny import model, tokenizer
from trl import GRPOConfig, GRPOTrainer


def reward(completions, **kwargs):
    time.sleep(2)  # planted: sleep
    scale = 1.0  # planted: scale
    return [scale * len(set(each)) for each in completions]


args = GRPOConfig(
    output_dir="out",
    num_generations=2,
    max_completion_length=8,
    per_device_train_batch_size=2,
    num_train_epochs=2,
    report_to="none",
    use_cpu=True,
    bf16=False,
)
rows = Dataset.from_list([{"prompt": f"tell me {i}"} for i in range(10)])
GRPOTrainer(model, reward_funcs=reward, args=args, train_dataset=rows, processing_class=tokenizer).train()
