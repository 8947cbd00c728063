"""What is measured on a GPU: scripts of this folder, the texts they are tried as, and which two are compared for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AS_IS = "as it is"


@dataclass(frozen=True)
class Arm:
    """A text of the job's script: that of `of` with each `edits` pair replaced, or as the fix of the rule `fix` leaves it."""

    name: str
    edits: tuple[tuple[str, str], ...] = ()
    fix: str | None = None
    of: str = AS_IS


@dataclass(frozen=True)
class Question:
    """What becomes of a training if the arm `before` is written as the arm `after`.

    `name` is that of the rule whose fix leads from one to the other, if `rule`; else what the comparison is called.
    """

    name: str
    before: str
    after: str
    title: str = ""
    effect: Literal["same", "numerics", "training"] = "same"
    rule: bool = False


@dataclass(frozen=True)
class Job:
    """One script and all that is asked of it; its arms share their trials. The most important arms and questions first.

    `trl` is the release that it runs on. `vllm`: its first trial on a machine compiles for a minute. `pairs` is 1 where
    only the way it stops is asked for. Before trials of the arms `served` a vLLM server is started, on the same GPU.
    `environment` are variables that all its trials get.
    """

    name: str
    script: str
    method: str
    arms: tuple[Arm, ...]
    questions: tuple[Question, ...]
    steps: int = 8
    pairs: int = 5
    trl: str = "1.16.0"
    vllm: bool = False
    served: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def _set(name: str, before: str, after: str, *more: tuple[str, str]) -> Arm:
    return Arm(name, ((before, after), *more))


_SFT_ARMS = (
    _set("eager", '"sdpa"', '"eager"'),
    _set("padding-free", "padding_free=False", "padding_free=True", ("max_length=2048", "max_length=None")),
    _set("no checkpointing", "gradient_checkpointing=True", "gradient_checkpointing=False"),
    _set("bf16 weights", '"float32"', '"bfloat16"'),
    _set("packing", "packing=False", "packing=True"),
    _set("unfused AdamW", "adamw_torch_fused", "adamw_torch"),
    _set("Liger", "use_liger_kernel=False", "use_liger_kernel=True"),
    _set("float32", "bf16=True", "bf16=False"),
)
_SFT_QUESTIONS = (
    Question("eager-where-sdpa-serves", "eager", AS_IS, rule=True),
    Question("padding-free", AS_IS, "padding-free", "compute without padding"),
    Question("checkpointing-with-memory-to-spare", AS_IS, "no checkpointing", "keep the activations"),
    Question("bfloat16-weights", AS_IS, "bf16 weights", "load the weights in bfloat16", "numerics"),
    Question("packing", AS_IS, "packing", "pack the samples", "training"),
    Question("unfused-adamw", "unfused AdamW", AS_IS, "use the fused AdamW"),
    Question("liger-layers", AS_IS, "Liger", "patch the layers with Liger", "numerics"),
    Question("float32-on-ampere", "float32", AS_IS, "train in bfloat16", "numerics"),
)


def _sft(name: str, *arms: str, steps: int = 8) -> Job:
    """A job about those arms of sft_choices.py."""
    return Job(
        name,
        "sft_choices.py",
        "sft",
        tuple(arm for arm in _SFT_ARMS if arm.name in arms),
        tuple(question for question in _SFT_QUESTIONS if {question.before, question.after} & set(arms)),
        steps=steps,
    )


JOBS = (
    _sft("sft", "eager", "padding-free", "no checkpointing", "bf16 weights", "packing", "unfused AdamW", "Liger"),
    Job(
        "rloo",
        "rloo.py",
        "rloo",
        (
            Arm("vLLM", fix="online-without-vllm"),
            Arm("sleep mode", (("use_vllm=True", "use_vllm=True, vllm_enable_sleep_mode=True"),), of="vLLM"),
        ),
        (
            Question("online-without-vllm", AS_IS, "vLLM", rule=True),
            Question("sleep-mode", "vLLM", "sleep mode", "let the engine sleep while the model trains"),
        ),
        steps=5,
        vllm=True,
    ),
    Job(
        "online-dpo",
        "online_dpo.py",
        "online_dpo",
        (Arm("vLLM", fix="online-without-vllm"),),
        (Question("online-without-vllm", AS_IS, "vLLM", rule=True),),
        steps=5,
        vllm=True,
    ),
    Job(
        "lora",
        "sft_lora.py",
        "sft",
        (Arm("bf16 base", fix="base-in-float32"),),
        (Question("base-in-float32", AS_IS, "bf16 base", rule=True),),
    ),
    Job(
        "dpo",
        "dpo.py",
        "dpo",
        (
            _set("precomputed", "precompute_ref_log_probs=False", "precompute_ref_log_probs=True"),
            _set("Liger", "use_liger_kernel=False", "use_liger_kernel=True"),
        ),
        (
            Question("precomputed-reference", AS_IS, "precomputed", "ask the reference once, before the training"),
            Question("liger-layers", AS_IS, "Liger", "patch the layers with Liger", "numerics"),
        ),
    ),
    *(
        Job(
            name,
            f"{method}.py",
            method,
            (Arm("no vLLM", fix="nash-md-xpo-with-vllm"),),
            (Question("nash-md-xpo-with-vllm", AS_IS, "no vLLM", rule=True),),
            steps=3,
            pairs=1,
            trl="1.12.0",
            vllm=True,
        )
        for name, method in (("nash-md", "nash_md"), ("xpo", "xpo"))
    ),
    Job(
        "server",
        "grpo_server.py",
        "grpo",
        (Arm("colocate", fix="vllm-server-on-one-gpu"),),
        (Question("vllm-server-on-one-gpu", AS_IS, "colocate", rule=True),),
        steps=5,
        pairs=1,
        vllm=True,
        served=(AS_IS,),
    ),
    _sft("precision", "float32", steps=5),
    Job(
        "fp16-over-bf16",
        "sft_choices.py",
        "sft",
        (
            _set("fp16", "    bf16=True,", "    fp16=True,", ('"float32"', '"bfloat16"')),
            _set("bf16", '"float32"', '"bfloat16"'),
        ),
        (Question("half-precision-weights-with-fp16", "fp16", "bf16", rule=True),),
        steps=3,
        pairs=1,
    ),
    Job(
        "liger-fused",
        "sft_choices.py",
        "sft",
        (_set("Liger", "use_liger_kernel=False", "use_liger_kernel=True"),),
        (Question("liger-fused-loss", AS_IS, "Liger", "compute the loss without the logits, with Liger", "numerics"),),
        trl="1.12.0",
    ),
    Job(
        "compile",
        "sft_choices.py",
        "sft",
        # Of one length: with others it is compiled again, and eight steps do not end within minutes.
        (
            _set("one length", "packing=False,", "packing=False, pad_to_multiple_of=2048,"),
            Arm("compiled", (("torch_compile=False", "torch_compile=True"),), of="one length"),
        ),
        (Question("torch-compile", "one length", "compiled", "compile the model, batches of one length", "numerics"),),
        steps=6,
    ),
    Job(
        "lengths",
        "sft_choices.py",
        "sft",
        (
            _set("few lengths", "packing=False,", "packing=False, pad_to_multiple_of=64,"),
            _set(
                "without cuDNN",
                "\nargs = SFTConfig(",
                "\nimport torch\n\ntorch.backends.cuda.enable_cudnn_sdp(False)\nargs = SFTConfig(",
            ),
        ),
        (
            Question(
                "padding-multiple",
                AS_IS,
                "few lengths",
                "pad to multiples of 64, with no kernel of an earlier run",
                "numerics",
            ),
            Question(
                "attention-without-cudnn",
                AS_IS,
                "without cuDNN",
                "no attention by cuDNN, with no kernel of an earlier run",
                "numerics",
            ),
        ),
        steps=12,
        environment=(("CUDA_CACHE_DISABLE", "1"),),
    ),
)

# What run_tuning.py starts from, and how a reader of TRL's pages on speed and memory, and of what its configs say of their
# fields, would write it: Liger; no second look at the reference; vLLM. (They also advise FlashAttention, which comes from a hub, and packing, which is another training.)
TUNING = tuple(
    Job(
        name,
        f"defaults_{name}.py",
        name,
        (_set("by hand", "    report_to=[],\n", f"    report_to=[],\n    use_liger_kernel=True,\n{more}"),),
        (),
        vllm="vllm" in more,
    )
    for name, more in (
        ("sft", ""),
        ("dpo", "    precompute_ref_log_probs=True,\n"),
        ("grpo", "    use_vllm=True,\n"),
    )
)
