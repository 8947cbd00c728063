# trl-lint: facts trl==1.16.0 gpu=h200 n_gpu=1 num_processes=1
"""SFT as TRL sets it by default, each choice that costs or saves time written out: what their rules are measured on."""

from datasets import Dataset
from texts import mixed
from trl import SFTConfig, SFTTrainer

args = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=16,
    max_length=2048,
    packing=False,
    padding_free=False,
    gradient_checkpointing=True,
    optim="adamw_torch_fused",
    bf16=True,
    use_liger_kernel=False,
    torch_compile=False,
    max_steps=200,
    logging_steps=1,
    report_to=[],
    model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
)
trainer = SFTTrainer(
    model="Qwen/Qwen2-0.5B",
    args=args,
    train_dataset=Dataset.from_dict({"text": mixed(320)}),
)
trainer.train()
