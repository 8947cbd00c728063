# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""GRPO that expects a vLLM server, on a machine with one GPU: what `vllm-server-on-one-gpu` is measured on."""

from datasets import Dataset
from texts import prompts
from trl import GRPOConfig, GRPOTrainer


def variety(completions, **kwargs):
    return [len(set(completion)) / 100 for completion in completions]


args = GRPOConfig(
    output_dir="out",
    per_device_train_batch_size=32,
    num_generations=8,
    max_completion_length=128,
    use_vllm=True,
    vllm_mode="server",
    max_steps=200,
    logging_steps=1,
    report_to=[],
)
trainer = GRPOTrainer(
    model="Qwen/Qwen2-0.5B",
    reward_funcs=variety,
    args=args,
    train_dataset=Dataset.from_dict({"prompt": prompts(200)}),
)
trainer.train()
