"""Configurations to try: drawn at random from what a release says it accepts, and written as a script.

Drawn with a seeded `random.Random` and not with hypothesis: its shrinker follows one failure to its end within a test, while
the bench collects every kind of disagreement of a long run and then makes one of each kind small (`bench.minimise`),
which for flat keyword lists is dropping one after another.
"""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trl_lint import knowledge

# The trainers that are built and trained; every other config class is only constructed.
TRAINED = ("SFT", "DPO", "GRPO", "RLOO", "KTO", "Reward")

# What would reach for the network, other machines or other devices, write much, take minutes, or change where results go.
_SKIPPED = re.compile(
    r"(hub_|push_to_hub|deepspeed|fsdp|parallelism_config|report_to|run_name|project$|trackio|local_rank|ddp_|tpu|use_cpu"
    r"|no_cuda|use_mps|use_ipex|xpu|torch_compile|torchdynamo|ray_|sagemaker|mp_parameters|resume_from|output_dir"
    r"|overwrite_output|logging_dir|server_|_server|log_completions|num_proc|dataloader_num_workers|multiprocessing"
    r"|persistent_workers|trust_remote|jit_mode|debug|seed|exp_name|tracker|judge|reward_model_path|sft_model_path"
    r"|liger_kernel_config|chat_template|num_train_epochs|max_steps|total_episodes|past_index|log_level|disable_tqdm"
    r"|skip_memory|label_names|sglang|teacher_|enable_jit|full_determinism|vllm_(?!importance|mode|gpu|max_model|sleep))"
)
_MAPPINGS: Mapping[str, tuple[object, ...]] = {
    "gradient_checkpointing_kwargs": ({"use_reentrant": True}, {"use_reentrant": False}),
    "accelerator_config": ({"dispatch_batches": True}, {"split_batches": True}),
    "model_init_kwargs": ({"attn_implementation": "eager"}, {}),
    "ref_model_init_kwargs": ({"attn_implementation": "eager"}, {}),
    "dataset_kwargs": ({"skip_prepare_dataset": False}, {}),
    "generation_kwargs": ({"top_k": 5}, {}),
    "loss_weights": ([1.0], [0.7, 0.3]),
    "reward_weights": ([1.0], [0.5, 0.5]),
}
_LOSSES = (
    "sigmoid",
    "hinge",
    "ipo",
    "sft",
    "robust",
    "exo_pair",
    "apo_zero",
    "grpo",
    "dapo",
    "kto",
    "bco",
    "nll",
    "dft",
)
# What a class cannot be constructed without.
_NEEDED: Mapping[str, Mapping[str, object]] = {
    "ServerDistillationConfig": {"teacher_model_server_url": "http://localhost:8000"},
}
# Trainer keywords: what is written for them, and what must stand before it.
_KEYWORDS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "peft_config": (
        ("LoraConfig(r=2, target_modules=['q_proj'])", "from peft import LoraConfig"),
        ("LoraConfig(r=2, target_modules=['q_proj', 'lm_head'])", "from peft import LoraConfig"),
        ("PromptTuningConfig(task_type='CAUSAL_LM', num_virtual_tokens=2)", "from peft import PromptTuningConfig"),
    ),
    "model": (("'tiny'", ""),),
    "ref_model": (("model", ""), ("copy.deepcopy(model)", "import copy"), ("None", "")),
    "eval_dataset": (("dataset", ""), ("None", "")),
    "compute_metrics": (("lambda prediction: {}", ""),),
    "compute_loss_func": (("None", ""),),
    "formatting_func": (("lambda example: example['text']", ""),),
    "callbacks": (("[]", ""),),
    "tokenizer": (("tokenizer", ""),),
    "tools": (("[]", ""),),
    "max_seq_length": (("64", ""),),
    "dataset_text_field": (("'text'", ""),),
    "packing": (("False", ""),),
    "beta": (("0.1", ""),),
    "force_use_ref_model": (("True", ""),),
}
_OLD_KEYWORDS = ("tokenizer", "max_seq_length", "dataset_text_field", "packing", "beta", "force_use_ref_model")


@dataclass(frozen=True)
class Case:
    """One configuration. `keywords` hold texts; with `trains` false the script ends after the config."""

    config: str
    fields: Mapping[str, object] = field(default_factory=dict)
    keywords: Mapping[str, str] = field(default_factory=dict)
    trains: bool = False

    def smaller(self) -> Iterator[Case]:
        """The same case without one of its fields or keywords."""
        for name in self.keywords:
            yield replace(self, keywords={k: v for k, v in self.keywords.items() if k != name})
        for name in self.fields:
            yield replace(self, fields={k: v for k, v in self.fields.items() if k != name})


class Drawer:
    """Cases of one release, from what its own sources describe (`child.describe`)."""

    def __init__(self, release: str, described: Iterable[Mapping[str, Any]], seed: int) -> None:
        self.release = release
        described = list(described)
        self._classes = {each["name"]: each for each in described if "unusable" not in each}
        self.unusable = {each["name"]: str(each["unusable"]) for each in described if "unusable" in each}
        self._seed = seed
        self._ever = sorted(knowledge.fields_ever())

    def case(self, index: int, *, trains: bool = False) -> Case:
        """The case of a number: the same for the same release, seed and number."""
        rng = random.Random(f"{self._seed} {self.release} {index} {trains}")
        main = [f"{method}Config" for method in TRAINED if self.can_train(f"{method}Config")]
        others = [name for name in self._classes if name not in main]
        name = rng.choice(main if trains or not others or rng.random() < 0.75 else others)
        described = self._classes[name]
        fields: dict[str, object] = {}
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            if described["guards"] and rng.random() < 0.7:
                fields |= self._guarded(rng, described)
            else:
                fields |= self._any(rng, described)
        if rng.random() < 0.04:
            fields[rng.choice(self._ever)] = rng.choice((True, 1, None))
        fields = {key: value for key, value in fields.items() if _usable(key, trains)}
        return Case(name, fields, self._draw_keywords(rng, described) if trains else {}, trains)

    def can_train(self, config: str) -> bool:
        """Whether this release has the trainer, in the shape that scripts here write."""
        described = self._classes.get(config)
        return config.removesuffix("Config") in TRAINED and described is not None and "model" in described["keywords"]

    def _guarded(self, rng: random.Random, described: Mapping[str, Any]) -> dict[str, object]:
        """The fields of one guard, at and around the values that its condition names."""
        own = [each["fields"] for each in described["guards"] if each["own"]]
        inherited = [each["fields"] for each in described["guards"] if not each["own"]]
        guard = rng.choice(own if own and rng.random() < 0.8 else inherited or own)
        return {
            name: self._value(rng, name, described["fields"][name], literals)
            for name, literals in guard.items()
            if rng.random() < 0.9
        }

    def _any(self, rng: random.Random, described: Mapping[str, Any]) -> dict[str, object]:
        name = rng.choice(list(described["fields"]))
        return {name: self._value(rng, name, described["fields"][name], ())}

    def _draw_keywords(self, rng: random.Random, described: Mapping[str, Any]) -> dict[str, str]:
        known = [name for name in _KEYWORDS if name in described["keywords"] and name not in _OLD_KEYWORDS]
        chosen = rng.sample(known, min(len(known), rng.choice((0, 0, 1, 1, 2))))
        if rng.random() < 0.05:
            chosen.append(rng.choice(_OLD_KEYWORDS))
        task = "SEQ_CLS" if described["name"] == "RewardConfig" else "CAUSAL_LM"
        return {name: rng.choice(_KEYWORDS[name])[0].replace("CAUSAL_LM", task) for name in chosen}

    def _value(self, rng: random.Random, name: str, described: Mapping[str, Any], literals: Iterable[object]) -> object:
        kind, default = described["type"], described["default"]
        if name in _MAPPINGS:
            return rng.choice((*_MAPPINGS[name], None))
        pool: list[object] = [default, *literals, *literals, *(described["choices"] or ())]
        numbers = [each for each in (*literals, default) if isinstance(each, int) and not isinstance(each, bool)]
        if "int" in kind.lower() and "interval" not in kind.lower():
            pool += [1, 2, 3, 4, 8]
            pool += [each + step for each in numbers for step in (-1, 1)]
            pool.append(rng.choice((0, -1, 6, 16)))
        if "float" in kind.lower() and "int" not in kind.lower():
            pool += [0.0, 1.0, 0.5, 0.9, rng.choice((-0.1, 1.5, 2))]
        if "bool" in kind.lower():
            pool += [True, True, False]
        if "loss_type" in name:
            pool += [rng.choice(_LOSSES), rng.choice(_LOSSES)]
            pool += [rng.sample(_LOSSES, 2)] if "list" in kind.lower() else []
        elif "str" in kind.lower() and rng.random() < 0.05:
            pool.append("nonsense")
        if "None" in kind or "Optional" in kind:
            pool.append(None)
        other = [each for each in pool if each != default]
        return rng.choice(other if other and rng.random() < 0.75 else pool)


def _usable(name: str, trains: bool) -> bool:
    return _SKIPPED.search(name) is None and not (trains and name == "use_vllm")


# As a script ---------------------------------------------------------------------------------------------------------

_LAUNCH = '# trl-lint: facts launch="python train.py"'
_SCENERY = """\
{imports}
words = {{"<pad>": 0, "<eos>": 1, "<unk>": 2, **{{f"w{{i}}": i + 3 for i in range(60)}}}}
words = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=words,
    pad_token="<pad>",
    eos_token="<eos>",
    unk_token="<unk>",
    model_input_names=["input_ids", "attention_mask"],
)
shape = Qwen2Config(
    vocab_size=63,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    pad_token_id=0,
    eos_token_id=1,
    bos_token_id=None,{more}
)
{model}(shape).save_pretrained("tiny")
tokenizer.save_pretrained("tiny")
model = {model}.from_pretrained("tiny")
dataset = Dataset.from_dict({dataset})
"""
_COLUMNS = {
    "SFT": {"text": "w1 w2 w3 w4"},
    "DPO": {"prompt": "w1 w2 ", "chosen": "w3 w4", "rejected": "w5 w6"},
    "GRPO": {"prompt": "w1 w2 w3"},
    "RLOO": {"prompt": "w1 w2 w3"},
    "KTO": {"prompt": "w1 w2 ", "completion": "w3 w4"},
    "Reward": {"chosen": "w1 w2 w3", "rejected": "w1 w2 w4"},
}


def script(case: Case, release: str) -> tuple[str, dict[str, int]]:
    """The case as a program, and the lines at which its config, its trainer and its training begin."""
    method = case.config.removesuffix("Config")
    given: dict[str, object] = {"output_dir": "out", "use_cpu": True, "report_to": "none"}
    if case.trains:
        given |= {"max_steps": 1, "save_strategy": "no", "bf16": False, "per_device_train_batch_size": 2}
        if method in ("GRPO", "RLOO"):
            given |= {"num_generations": 2, "max_completion_length": 4}
    given |= {**_NEEDED.get(case.config, {}), **case.fields}
    imports = _imports(release, case.config, *([f"{method}Trainer"] if case.trains else []))
    text = f"{_LAUNCH}\n" + (_scenery(case, method, imports) if case.trains else f"{imports}\n\n")
    lines = {"config": text.count("\n") + 1}
    text += _call("args", case.config, {name: repr(value) for name, value in given.items()})
    if case.trains:
        lines["trainer"] = text.count("\n") + 1
        keywords = {"model": "model", "args": "args", "train_dataset": "dataset"}
        keywords |= {} if "tokenizer" in case.keywords else {"processing_class": "tokenizer"}
        if method in ("GRPO", "RLOO"):
            keywords["reward_funcs"] = "longest"
        text += _call("trainer", f"{method}Trainer", {**keywords, **case.keywords})
        lines["train"] = text.count("\n") + 1
        text += "trainer.train()\n"
    return text, lines


def _imports(release: str, *names: str) -> str:
    found = [(knowledge.trl(release).modules_of(name) or ("trl",))[0] for name in names]
    return "\n".join(f"from {module} import {name}" for module, name in zip(found, names, strict=True))


def _scenery(case: Case, method: str, imports: str) -> str:
    model = "Qwen2ForSequenceClassification" if method == "Reward" else "Qwen2ForCausalLM"
    needed = [
        "from datasets import Dataset",
        "from tokenizers import Tokenizer, models, pre_tokenizers",
        f"from transformers import PreTrainedTokenizerFast, Qwen2Config, {model}",
        imports,
    ]
    needed += dict.fromkeys(before for text in case.keywords.values() for before in _needs(text) if before)
    columns = ", ".join(f'"{name}": [{value!r}] * 10' for name, value in _COLUMNS[method].items())
    columns += ', "label": [True, False] * 5' if method == "KTO" else ""
    text = _SCENERY.format(
        imports="\n".join(needed),
        model=model,
        more="\n    num_labels=1," if method == "Reward" else "",
        dataset="{" + columns + "}",
    )
    if method in ("GRPO", "RLOO"):
        text += textwrap.dedent("""

            def longest(completions, **kwargs):
                return [float(len(completion)) for completion in completions]


        """)
    return text


def _needs(text: str) -> list[str]:
    text = text.replace("SEQ_CLS", "CAUSAL_LM")
    return [before for choices in _KEYWORDS.values() for each, before in choices if each == text]


def _call(name: str, function: str, keywords: Mapping[str, str]) -> str:
    inside = "".join(f"    {key}={value},\n" for key, value in keywords.items())
    return f"{name} = {function}(\n{inside})\n"
