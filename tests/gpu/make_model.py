"""A model of real shape with random weights, and a tokenizer trained on what lies around: no hub is needed.

Usage: python make_model.py FOLDER [--vocabulary N] [--float32]   (the shape of Qwen2-0.5B, bfloat16)

The tokenizer knows 32,000 tokens. A model that is to generate must know no others: vLLM has no text for them.
"""

from __future__ import annotations

import argparse
import glob
import os
import tempfile

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


TOKENS = 32000


def main(folder: str, vocabulary: int, dtype: torch.dtype = torch.bfloat16) -> None:
    trainer = ByteLevelBPETokenizer()
    files = sorted(glob.glob(f"{os.path.dirname(torch.__file__)}/**/*.py", recursive=True))[:300]
    trainer.train(files, vocab_size=TOKENS, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        trainer.save(file.name)
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=file.name, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
        )
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).to(dtype).save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--vocabulary", type=int, default=151936, help="(default: Qwen2's %(default)s)")
    parser.add_argument(
        "--float32", action="store_true", help="for scripts with fp16=True that load it in its own dtype"
    )
    options = parser.parse_args()
    main(options.folder, options.vocabulary, torch.float32 if options.float32 else torch.bfloat16)
