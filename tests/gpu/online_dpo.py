# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""Online DPO without vLLM: what `online-without-vllm` is measured on."""

from datasets import Dataset
from texts import prompts
from transformers import AutoTokenizer
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer


def variety(completions, **kwargs):
    return [len(set(completion)) / 100 for completion in completions]


args = OnlineDPOConfig(
    output_dir="out",
    per_device_train_batch_size=16,
    max_new_tokens=128,
    max_steps=200,
    logging_steps=1,
    report_to=[],
)
trainer = OnlineDPOTrainer(
    model="Qwen/Qwen2-0.5B",
    reward_funcs=variety,
    args=args,
    train_dataset=Dataset.from_dict({"prompt": prompts(200)}),
    processing_class=AutoTokenizer.from_pretrained("Qwen/Qwen2-0.5B"),
)
trainer.train()
