"""A probe that found one of everything: two comparisons recorded on an H200, the other verdicts made up around them."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

from trl_lint.model import Effect
from trl_lint.probe.comparison import Outcome, Pair, Promise, Series, compare
from trl_lint.probe.evidence import Record, load
from trl_lint.probe.probed import Attempt, Probed, Ran, Searched, Tried

RECORDS = Path(__file__).parents[2] / "docs" / "evidence" / "h200.jsonl"
GIB = 2**30
REPRODUCE = "cd /tmp/trl-lint-probe/variant-3 && TRL_LINT_PROBE='{\"steps\": 6}' python grpo.py --lr 1e-6 2>&1 | less"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 31.25 GiB. GPU 0 has a total capacity of 139.80 GiB"
)
TAIL = (
    "Traceback (most recent call last):",
    '  File "/home/***/project/grpo.py", line 41, in <module>',
    "    trainer.train()",
    '  File "site-packages/trl/trainer/grpo_trainer.py", line 1187, in _get_per_token_logps_and_entropies',
    "    logits = self.model(**model_inputs).logits / self.temperature",
    OOM,
)
VLLM_DIFF = """\
--- grpo.py
+++ grpo.py
@@ -21,6 +21,7 @@
     output_dir="out",
     per_device_train_batch_size=32,
     num_generations=8,
+    use_vllm=True,
     max_completion_length=128,  # long enough for the sums, and this comment is long enough to run off a phone's screen
     bf16=True,
 )
"""
BOTH_DIFF = """\
--- grpo.py
+++ grpo.py
@@ -21,9 +21,9 @@
     output_dir="out",
     per_device_train_batch_size=32,
     num_generations=8,
+    use_vllm=True,
     max_completion_length=128,  # long enough for the sums, and this comment is long enough to run off a phone's screen
-    gradient_checkpointing=False,
     bf16=True,
 )
"""
CHECKPOINTING_DIFF = """\
--- grpo.py
+++ grpo.py
@@ -22,7 +22,6 @@
     per_device_train_batch_size=32,
     num_generations=8,
     max_completion_length=128,
-    gradient_checkpointing=False,
     bf16=True,
 )
--- recipes/grpo.yaml
+++ recipes/grpo.yaml
@@ -3,3 +3,3 @@
 learning_rate: 1.0e-6
-optim: adamw_torch
+optim: adamw_torch_fused
 lr_scheduler_type: linear
"""


@cache
def recorded(rule: str) -> Record:
    """The comparison of one rule's fix as it stands in the project's evidence."""
    return next(record for record in load(str(RECORDS)).records if record.rule == rule)


def as_it_is() -> list[Series]:
    """The script's own trials as they were recorded, and what a neighbour of the same length would have taken."""
    return [a for a, _ in recorded("online-without-vllm").pairs]


def changed(series: Series, seed: int, *, speed: float = 1.0, memory: float = 1.0, noise: float = 0.01) -> Series:
    """The same trial with its steps, its memory and its start as another config would have them."""
    draw = random.Random(seed)
    factors = [draw.lognormvariate(0, noise) / speed for _ in series.seconds]
    return replace(
        series,
        seconds=tuple(s * f for s, f in zip(series.seconds, factors, strict=True)),
        generation=tuple(g and g * f for g, f in zip(series.generation, factors, strict=True)),
        allocated=tuple(m and int(m * memory) for m in series.allocated),
        gpu_used=tuple(m and int(m * memory) for m in series.gpu_used),
        reserved=tuple(m and int(m * memory) for m in series.reserved),
        startup=(series.startup or 0.0) + draw.uniform(-0.4, 0.9),
    )


def stops(outcome: Outcome, error: str, seconds: tuple[float, ...] = ()) -> Series:
    return Series(seconds=seconds, outcome=outcome, error=error)


def ran(trials: list[Series], *, tail: tuple[str, ...] = ()) -> tuple[Ran, ...]:
    return tuple(
        Ran(
            pair,
            series,
            (series.startup or 9.0) + sum(series.seconds) + 4.2,
            REPRODUCE if not series.trained else "",
            tail if not series.trained else (),
        )
        for pair, series in enumerate(trials)
    )


def tried(
    name: str,
    title: str,
    trials: list[Series],
    *,
    diff: str = CHECKPOINTING_DIFF,
    effect: Effect = "same",
    rules: tuple[str, ...] = (),
    tail: tuple[str, ...] = (),
    known: str | None = None,
) -> Tried:
    pairs: list[Pair] = list(zip(as_it_is(), trials, strict=False))
    verdict = compare(pairs, Promise(effect, online=name != "changed-loss"))
    return Tried(name, title, effect, rules or (name,), diff, verdict, () if known else ran(trials, tail=tail), known)


def probed() -> Probed:
    """GRPO on one H200 with a fix for every verdict."""
    a = as_it_is()
    record = recorded("online-without-vllm")
    vllm = [b for _, b in record.pairs]
    same = [replace(changed(s, 90 + i), startup=s.startup) for i, s in enumerate(a)]
    together = [changed(s, i, speed=1.06, memory=0.81) for i, s in enumerate(vllm)]
    found = (
        tried("online-without-vllm", "sample with vLLM on the training GPUs", vllm, diff=VLLM_DIFF),
        tried(
            "checkpointing-off", "drop gradient_checkpointing=False, use the fused AdamW",
            [changed(s, 20 + i, memory=0.62) for i, s in enumerate(same)],
        ),
        tried("eager-where-sdpa-serves", "attend with sdpa", [changed(s, 40 + i) for i, s in enumerate(a)]),
        tried(
            "torch-compile", "compile the model",
            [replace(changed(s, 50 + i, speed=0.78), startup=(s.startup or 0.0) + 41.0) for i, s in enumerate(a)],
        ),
        tried(
            "changed-loss", "train in bfloat16 weights",
            [replace(changed(s, 60 + i, speed=1.3), losses=(0.41, 0.44, 0.39, 0.47, 0.5, 0.52)) for i, s in enumerate(a)],
            effect="numerics",
        ),
        tried("batch-too-small", "use batches of 256", [stops("out of memory", OOM, (6.2,))] * 2, tail=TAIL),
        tried(
            "unused-gpus", "start a process for each GPU",
            [changed(a[0], 70), stops("hung", "no step and no output any more after step 2 of 6; ended after 120 s"), changed(a[2], 72)],
        ),
        tried("fp16-on-ampere", "train in bfloat16", [changed(s, 80 + i) for i, s in enumerate(a)], known="2026-11-28T08:12:44+00:00"),
        tried(
            "all", "2 fixes together", together,
            diff=BOTH_DIFF, rules=("online-without-vllm", "checkpointing-off"),
        ),
    )  # fmt: skip
    return Probed(
        script="grpo.py",
        command="trl-lint probe grpo.py -- --lr 1e-6",
        date="2026-11-30T17:47:05+00:00",
        tool="trl-lint 0.1.0",
        steps=6,
        seconds=2843.0,
        conditions=replace(record.conditions, hardware={**record.conditions.hardware, "driver": "580.95.05"}),
        as_is=ran(a),
        tried=found,
        kept="all",
        refused=(("zero3-for-small-model", "the launch file is written by another program"),),
        notes=("pair 2: started although more memory is in use than before the first trial: GPU 0 by 1.2 GiB",),
    )


def tuned() -> Probed:
    """What a search of some settings led to; one of its trials ran out of memory, one was too slow to be waited for."""
    attempts = (
        Attempt("as it is", 404.5, "trained"),
        Attempt("online-without-vllm", 2258.0, "trained"),
        Attempt("online-without-vllm, rollout-batch=2, vllm-memory-share=0.9", None, "out of memory"),
        Attempt("checkpointing=False", None, "slower"),
        Attempt("online-without-vllm, vllm-memory-share=0.6", 2429.0, "trained"),
        Attempt("online-without-vllm, vllm-memory-share=0.7", 2487.0, "trained"),
    )
    search = Searched(
        "tokens per second", "the last 3 trials were no faster", attempts, 404.5, 2, ((OOM, 1),),
        (("online-without-vllm", 0.81), ("vllm-memory-share", 0.12)),
    )  # fmt: skip
    whole = probed()
    best = replace(whole.tried[0], name="tuned", title="online-without-vllm, vllm-memory-share=0.7")
    return replace(whole, tried=(best,), kept="tuned", refused=(), search=search)


def repaired() -> Probed:
    """A script that stops by itself, and the fix with which it trains: no pair to compare, nothing measured of A."""
    good = [series for _, series in recorded("online-without-vllm").pairs][:2]
    error = "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'max_prompt_length'"
    bad = [stops("raised", error)] * 2
    fix = Tried(
        "unknown-config-field", "drop max_prompt_length", "same", ("unknown-config-field",),
        "--- grpo.py\n+++ grpo.py\n@@ -7,4 +7,3 @@\n     num_generations=8,\n-    max_prompt_length=512,\n     bf16=True,\n",
        compare(list(zip(bad, good, strict=True))), ran(good),
    )  # fmt: skip
    tail = ("Traceback (most recent call last):", '  File "grpo.py", line 7, in <module>', error)
    whole = probed()
    return replace(whole, as_is=ran(bad, tail=tail), tried=(fix,), kept=fix.name, refused=(), notes=())


def hostile() -> Probed:
    """What a user's files and errors may hold, wherever text can stand."""
    nasty = (
        "</script><script>alert(1)</script> & \"quoted\" 'single' 𝄞🧪 \x1b[31m\x00\u202e hf_abcdefghijklmnopqrstuvwx"
    )
    whole = probed()
    fix = replace(
        whole.tried[5], name=f"a{nasty}", title=f"b{nasty}", rules=(f"c{nasty}",), diff=f"+++ d{nasty}\r\n+e{nasty}\r\n",
        verdict=replace(whole.tried[5].verdict, reason=f"f{nasty}"),
        ran=tuple(
            replace(r, series=replace(r.series, error=f"g{nasty}"), reproduce=f"h{nasty}", tail=(f"i{nasty}",), notes=(f"j{nasty}",))
            for r in whole.tried[5].ran
        ),
    )  # fmt: skip
    diffed = replace(whole.tried[0], diff=f"+++ k{nasty}\n+l{nasty}\n")
    conditions = replace(
        whole.conditions, method=f"m{nasty}", model={"type": f"n{nasty}"}, fields={f"o{nasty}": f"p{nasty}"},
        hardware={"gpu": f"q{nasty}"}, versions={"trl": f"r{nasty}"},
    )  # fmt: skip
    return replace(
        whole, script=f"s{nasty}\ud800.py", command=f"t{nasty}", date=f"u{nasty}", tool=f"v{nasty}", conditions=conditions,
        tried=(fix, diffed), kept=f"a{nasty}", refused=((f"w{nasty}", f"x{nasty}"),), notes=(f"y{nasty}",),
    )  # fmt: skip


def empty() -> Probed:
    """A probe that had nothing to try."""
    whole = probed()
    return replace(whole, as_is=(), tried=(), kept=None, refused=(), notes=(), conditions=type(whole.conditions)())
