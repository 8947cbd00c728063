"""Options that Liger's fused losses are said to ignore, trained with two values each: do the losses know the difference?

    python -m tests.oracle.ignored --envs DIR [--output FILE]

Real TRL trains two layers of random weights for three steps on the CPU, from the same seed: with Liger and each of the two
values, and without Liger and each of them. Equal losses with Liger and others without: the option is ignored, as the page
says; equal losses without Liger, too: it has no effect at all. Liger's Triton layers do not run on a CPU, so they are not put
into the model: only its loss is asked about. Run with `child` it is the process inside an environment, which knows nothing of
this project.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isnan
from pathlib import Path
from typing import Any, Literal, TypeAlias

Verdict: TypeAlias = Literal["ignored", "honoured", "raises", "NaN", "without effect", "nothing shown"]
STEPS = 3
SAME = 1e-6  # relative; float32 sums of another order differ by less


@dataclass(frozen=True)
class Experiment:
    """What a page of rules/liger says of an option in a release: `values` are two settings of it, `common` goes with both."""

    page: str
    method: Literal["dpo", "grpo", "kto"]
    trl: str
    liger: str
    values: tuple[Mapping[str, Any], Mapping[str, Any]]
    common: Mapping[str, Any]
    said: Verdict


def _each(
    page: str,
    method: Literal["dpo", "grpo", "kto"],
    values: tuple[Mapping[str, Any], Mapping[str, Any]],
    *releases: tuple[str, str, Verdict],
    **common: Any,
) -> list[Experiment]:
    return [Experiment(page, method, trl, liger, values, common, said) for trl, liger, said in releases]


EXPERIMENTS = (
    *_each(
        "liger-ignores-label-smoothing", "dpo", ({"label_smoothing": 0.1}, {"label_smoothing": 0.4}),
        ("0.24.0", "0.6.2", "ignored"), loss_type="sigmoid",
    ),
    *_each(
        "liger-ignores-label-smoothing", "dpo", ({"label_smoothing": 0.1}, {"label_smoothing": 0.4}),
        ("1.5.1", "0.8.2", "ignored"), ("1.13.0", "0.8.2", "honoured"), loss_type="robust",
    ),
    *_each(
        "liger-ignores-ld-alpha", "dpo", ({"ld_alpha": None}, {"ld_alpha": 0.2}),
        ("0.24.0", "0.6.2", "ignored"), ("1.13.0", "0.8.2", "ignored"), ("1.14.2", "0.8.2", "honoured"),
    ),
    *_each("liger-ignores-rpo-alpha", "dpo", ({"rpo_alpha": None}, {"rpo_alpha": 1.0}), ("0.24.0", "0.6.2", "ignored")),
    *_each(
        "liger-ignores-f-divergence", "dpo",
        ({"f_divergence_type": "reverse_kl"}, {"f_divergence_type": "js_divergence"}),
        ("0.22.2", "0.6.2", "ignored"), ("0.24.0", "0.6.2", "ignored"), ("1.5.1", "0.8.2", "ignored"), ("1.13.0", "0.8.2", "raises"),
        ("1.14.2", "0.8.2", "honoured"),
    ),
    *_each(
        "liger-ignores-loss-weights", "dpo", ({"loss_weights": [1.0]}, {"loss_weights": [0.5]}),
        ("0.24.0", "0.6.2", "ignored"), ("1.13.0", "0.8.2", "ignored"), ("1.14.2", "0.8.2", "honoured"),
    ),
    *_each(
        "liger-trains-bnpo-for-dapo", "grpo", ({"loss_type": "bnpo"}, {"loss_type": "dapo"}),
        ("0.24.0", "0.6.4", "ignored"), ("0.29.1", "0.8.0", "ignored"), ("1.5.1", "0.8.2", "ignored"), ("1.13.0", "0.8.2", "honoured"),
        gradient_accumulation_steps=2, max_completion_length=40,
    ),
    *_each(
        "liger-with-padding-free-pairs", "dpo", ({"padding_free": False}, {"padding_free": True}),
        ("0.22.2", "0.6.2", "NaN"), ("0.28.0", "0.6.2", "NaN"),
    ),
    *_each(
        "f-divergence-without-effect",
        "dpo", ({"f_divergence_type": "reverse_kl"}, {"f_divergence_type": "js_divergence"}),
        ("0.28.0", "0.6.2", "without effect"),
    ),
    *_each(
        "liger-ignores-kto-weights", "kto", ({"desirable_weight": 1.0}, {"desirable_weight": 3.0}),
        ("0.24.0", "0.6.2", "ignored"), ("1.13.0", "0.8.2", "raises"), ("1.14.2", "0.8.2", "honoured"),
    ),
    *_each(
        "liger-ignores-sapo-temperature", "grpo", ({"sapo_temperature_pos": 1.0}, {"sapo_temperature_pos": 3.0}),
        ("0.29.1", "0.8.0", "ignored"), ("1.5.1", "0.8.2", "honoured"), loss_type="sapo",
    ),
    *_each(
        "liger-ignores-bias-correction-kl", "grpo", ({"use_bias_correction_kl": False}, {"use_bias_correction_kl": True}),
        ("0.29.1", "0.8.0", "ignored"), ("1.5.1", "0.8.2", "honoured"), beta=0.5, num_iterations=2,
    ),
    # vLLM is not asked for samples: what its correction leads to, a ratio for each token, is put into the batch.
    *_each(
        "liger-ignores-vllm-correction", "grpo", ({"ratio": 1.0}, {"ratio": 0.5}),
        ("0.24.0", "0.6.2", "ignored"), ("0.29.1", "0.8.0", "honoured"), loss_type="grpo", num_iterations=2,
    ),
)  # fmt: skip


# In the environment ---------------------------------------------------------------------------------------------------


def child() -> None:
    """Runs on stdin, a JSON list; their losses or their error on stdout, a line each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # trainers print
    import liger_kernel.transformers

    liger_kernel.transformers._apply_liger_kernel_to_instance = lambda **_: None
    for run in json.load(sys.stdin):
        try:
            print(json.dumps({"losses": losses(run["method"], run["settings"])}), file=answers, flush=True)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {str(error)[:200]}"}), file=answers, flush=True)


def losses(method: str, settings: dict[str, Any]) -> list[float]:
    """What a trainer of the method computes in its first steps."""
    import torch
    import trl
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i + 3 for i in range(60)}}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip

    def model() -> Any:
        set_seed(1)
        made = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=63, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, pad_token_id=0, eos_token_id=1, bos_token_id=None,
            )
        )  # fmt: skip
        made.save_pretrained("model")  # GRPO loads its reference by the name of the model
        return Qwen2ForCausalLM.from_pretrained("model")

    rows: dict[str, list[Any]] = {"prompt": [f"w{i} w{i + 1}" for i in range(8)]}
    more: dict[str, Any] = {}
    ratio = settings.pop("ratio", None)
    if method == "dpo":
        rows |= {"chosen": ["w3 w4 w5 w6 w7 w8"] * 8, "rejected": ["w9 w2"] * 8}  # of two lengths
        more["ref_model"] = model()
    elif method == "kto":
        rows |= {"completion": [f"w{i + 5} w{i + 6} w{i + 7}" for i in range(8)], "label": [True, False] * 4}
        more["ref_model"] = model()
    else:
        settings = {"num_generations": 4, "max_completion_length": 8, **settings}
        more["reward_funcs"] = lambda completions, **_: [float(len(set(each.split()))) for each in completions]
    name = {"dpo": "DPO", "grpo": "GRPO", "kto": "KTO"}[method]
    arguments = {
        "output_dir": "out", "use_cpu": True, "bf16": False, "report_to": [], "max_steps": STEPS, "learning_rate": 1e-2,
        "per_device_train_batch_size": 4, "save_strategy": "no", "disable_tqdm": True, "logging_steps": 100, **settings,
    }  # fmt: skip
    config = getattr(trl, f"{name}Config")(**arguments)
    trainer = getattr(trl, f"{name}Trainer")(
        model=model(), args=config, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer, **more
    )
    computed: list[float] = []
    compute, score = trainer.compute_loss, getattr(trainer, "_generate_and_score_completions", None)

    def noted(*given: Any, **named: Any) -> Any:
        trainer.use_vllm = ratio is not None  # only while the loss is computed: the samples are transformers'
        loss = compute(*given, **named)
        trainer.use_vllm = False
        computed.append(float(loss[0] if isinstance(loss, tuple) else loss))
        return loss

    def with_ratio(*given: Any, **named: Any) -> Any:
        batch = score(*given, **named)
        batch["importance_sampling_ratio"] = torch.full(batch["completion_mask"].shape, ratio)
        return batch

    trainer.compute_loss = noted
    if ratio is not None:
        trainer._generate_and_score_completions = with_ratio
    set_seed(2)
    trainer.train()
    return computed


# Outside --------------------------------------------------------------------------------------------------------------


def settings_of(experiment: Experiment, value: Mapping[str, Any], liger: bool) -> dict[str, Any]:
    """The config of one run. Up to 0.24 the loss has a flag of its own."""
    from packaging.version import Version

    flag = "use_liger_loss" if Version(experiment.trl) < Version("0.25") else "use_liger_kernel"
    return {**experiment.common, **value, **({flag: True} if liger else {})}


def verdict(fused: Sequence[Mapping[str, Any]], ordinary: Sequence[Mapping[str, Any]]) -> Verdict:
    """What the two runs with Liger, held against the two without, say of an option."""
    if any("error" in one for one in fused) and not any("error" in one for one in ordinary):
        return "raises"
    if any("error" in one for one in (*fused, *ordinary)):
        return "nothing shown"
    if any(map(isnan, chain(*(one["losses"] for one in fused)))):
        return "NaN"
    if equal(*(one["losses"] for one in ordinary)):
        return "without effect"
    return "ignored" if equal(*(one["losses"] for one in fused)) else "honoured"


def equal(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(abs(x - y) <= SAME * max(abs(x), abs(y), 1e-3) for x, y in zip(a, b, strict=True))


def telling(runs: Sequence[Mapping[str, Any]]) -> int:
    """The step in which the two values differ most without Liger."""
    without = [each.get("losses", [0.0] * STEPS) for each in runs[2:]]
    return max(range(STEPS), key=lambda step: abs(without[0][step] - without[1][step]))


def run(envs: Path, trl: str, liger: str, experiments: Sequence[Experiment]) -> list[list[dict[str, Any]]]:
    """Of each experiment its four runs: with Liger and each value, then without."""
    from tests.oracle.environments import build, build_liger

    python, also = build(envs, trl), build_liger(envs, trl, liger)
    runs = [
        {"method": one.method, "settings": settings_of(one, value, fused)}
        for one in experiments
        for fused in (True, False)
        for value in one.values
    ]
    quiet = {
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(python.absolute()), str(Path(__file__).resolve()), "child"], input=json.dumps(runs), capture_output=True, text=True,
            cwd=folder, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(also.absolute()), **quiet}, check=False,
        )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(runs):
        raise RuntimeError(f"trl {trl}: {done.stderr[-2000:]}")
    return [answers[4 * index : 4 * index + 4] for index in range(len(experiments))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.ignored", description=__doc__)
    parser.add_argument("--envs", type=Path, required=True, help="folder of the environments; missing ones are made")
    parser.add_argument("--output", type=Path, help="all losses, an experiment a line")
    chosen = parser.parse_args()
    print(
        "| page | trl | liger-kernel | two values | as the page has it | seen | losses of a step |\n|---|---|---|---|---|---|---|"
    )
    wrong = 0
    lines = []
    for trl, liger in dict.fromkeys((one.trl, one.liger) for one in EXPERIMENTS):
        mine = [one for one in EXPERIMENTS if (one.trl, one.liger) == (trl, liger)]
        for one, runs in zip(mine, run(chosen.envs, trl, liger, mine), strict=True):
            seen = verdict(runs[:2], runs[2:])
            wrong += seen != one.said
            step = telling(runs)
            shown = ", ".join(each["error"][:60] if "error" in each else f"{each['losses'][step]:.5g}" for each in runs)
            values = " / ".join(f"{name}={value}" for each in one.values for name, value in each.items())
            print(f"| {one.page} | {trl} | {liger} | {values} | {one.said} | {seen} | {shown} |", flush=True)
            lines.append(
                {"page": one.page, "trl": trl, "liger-kernel": liger, "values": one.values, "seen": seen, "runs": runs}
            )
    if chosen.output is not None:
        chosen.output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return int(wrong > 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        child()
    else:
        sys.exit(main())
