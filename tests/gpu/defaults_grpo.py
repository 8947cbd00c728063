# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""GRPO with what TRL sets by default, but for shorter completions: where the tuner starts from."""

from datasets import Dataset
from texts import prompts
from trl import GRPOConfig, GRPOTrainer


def variety(completions, **kwargs):
    """How many different characters a completion has, in hundreds."""
    return [len(set(completion)) / 100 for completion in completions]


args = GRPOConfig(
    output_dir="out",
    max_completion_length=128,
    report_to=[],
)
trainer = GRPOTrainer(
    model="Qwen/Qwen2-0.5B",
    reward_funcs=variety,
    args=args,
    train_dataset=Dataset.from_dict({"prompt": prompts(800)}),
)
trainer.train()
