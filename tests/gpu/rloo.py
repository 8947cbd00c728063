# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""RLOO without vLLM: what `online-without-vllm` is measured on."""

from datasets import Dataset
from texts import prompts
from trl import RLOOConfig, RLOOTrainer


def variety(completions, **kwargs):
    return [len(set(completion)) / 100 for completion in completions]


args = RLOOConfig(
    output_dir="out",
    per_device_train_batch_size=32,
    num_generations=8,
    max_completion_length=128,
    max_steps=200,
    logging_steps=1,
    report_to=[],
)
trainer = RLOOTrainer(
    model="Qwen/Qwen2-0.5B",
    reward_funcs=variety,
    args=args,
    train_dataset=Dataset.from_dict({"prompt": prompts(200)}),
)
trainer.train()
