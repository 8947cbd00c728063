# trl-lint: facts trl==1.12.0 vllm==0.25.1 gpu=h200 n_gpu=1 num_processes=1
"""XPO with vLLM, which it accepts and cannot use: what `nash-md-xpo-with-vllm` is measured on."""

from datasets import Dataset
from texts import prompts
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl.experimental.xpo import XPOConfig, XPOTrainer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2-0.5B")
args = XPOConfig(
    output_dir="out",
    per_device_train_batch_size=8,
    use_vllm=True,
    max_new_tokens=64,
    max_steps=200,
    logging_steps=1,
    report_to=[],
)
trainer = XPOTrainer(
    model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2-0.5B"),
    ref_model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2-0.5B"),
    reward_funcs=AutoModelForSequenceClassification.from_pretrained("Qwen/Qwen2-0.5B", num_labels=1),
    args=args,
    train_dataset=Dataset.from_dict({"prompt": prompts(200)}),
    processing_class=tokenizer,
)
trainer.train()
