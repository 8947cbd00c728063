"""A model of real shape with random weights, and a tokenizer trained on what lies around: no hub is needed.

Usage: python make_model.py FOLDER   (Qwen2 shape, 0.5 billion parameters, bfloat16)
"""

from __future__ import annotations

import glob
import os
import sys
import tempfile

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main(folder: str) -> None:
    trainer = ByteLevelBPETokenizer()
    files = sorted(glob.glob(f"{os.path.dirname(torch.__file__)}/**/*.py", recursive=True))[:300]
    trainer.train(files, vocab_size=32000, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        trainer.save(file.name)
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=file.name, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
        )
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=32000, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
