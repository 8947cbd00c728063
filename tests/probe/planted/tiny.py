"""A causal model of two layers with random weights, and a tokenizer of single characters: neither needs the network."""

import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

_vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "<unk>", *map(chr, range(32, 127))])}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.BPE(vocab=_vocabulary, merges=[], unk_token="<unk>")),
    pad_token="<pad>",
    eos_token="<eos>",
    unk_token="<unk>",
)
tokenizer.padding_side = "left"
tokenizer.model_input_names = ["input_ids", "attention_mask"]
torch.manual_seed(0)
model = Qwen2ForCausalLM(
    Qwen2Config(
        vocab_size=len(_vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
)
print("a model is made", flush=True)  # importing TRL takes as long again: a sign of life
