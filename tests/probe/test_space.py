"""What may be tried on a run: the knobs of the rulebook, what each would write, and that none changes what is learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trl_lint.model import Derived, Known
from trl_lint.probe.space import Allowed, Choice, Point, Refused, Space
from trl_lint.rulebook import pages
from trl_lint.runs import View

from ..helpers import all_rules, context, lint

NUMERICS = Allowed(frozenset({"same", "numerics"}))
CODE = """# trl-lint: facts trl==1.16.0 transformers==5.24.0 gpu=h200 n_gpu=1
from datasets import load_dataset
from trl import {0}Config, {0}Trainer

args = {0}Config(output_dir="out", {1})
trainer = {0}Trainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset=load_dataset("d", split="train"){2})
trainer.train()
"""


def code(method: str, *values: str) -> str:
    return CODE.format(method, ", ".join(values), ", reward_funcs=reward" if method in ("GRPO", "RLOO") else "")


def space(text: str, allowed: Allowed = NUMERICS, processes: int = 1) -> Space:
    told = Known(processes, Derived("the test"))
    return Space(
        lint(text), context(), "/nowhere/train.py", allowed, all_rules(),
        {"world_size": told, "launch.num_processes": told},
    )  # fmt: skip


def named(found: Space, name: str) -> Choice:
    return next(choice for choice in found.choices if choice.name == name)


def point(found: Space, **labels: str) -> Point:
    """The point where the choices have these labels, underscores for hyphens; all others are as they are."""
    wanted = {name.replace("_", "-"): label for name, label in labels.items()}
    return found.walk(lambda c: c.labels.index(wanted[c.name]) if c.name in wanted else 0)


def text(found: Space, **labels: str) -> str:
    variant = found.variant(point(found, **labels), "tuned")
    assert variant is not None
    return variant.changed["/nowhere/train.py"].decode()


def test_every_knob_has_a_name_of_its_own() -> None:
    names = [knob.name for rule in all_rules() for knob in rule.knobs]
    assert len(names) >= 15
    assert len(set(names)) == len(names)
    assert not set(names) & {rule.name for rule in all_rules()}


def test_a_batch_and_its_accumulation_change_together() -> None:
    found = space(code("SFT", "per_device_train_batch_size=4", "gradient_accumulation_steps=8"))
    assert named(found, "batch").labels == ("as it is", "1", "2", "8", "16", "32")  # 4 it is, 64 does not divide 32
    assert "per_device_train_batch_size=16, gradient_accumulation_steps=2)" in text(found, batch="16")


def test_of_generated_batches_the_whole_and_the_groups_stay() -> None:
    given_values = ("num_generations=8", "per_device_train_batch_size=4", "gradient_accumulation_steps=8")
    found = space(code("GRPO", *given_values))
    # What the release derives from the two is not written: eight micro-batches were one generation, now two are.
    assert "per_device_train_batch_size=16, gradient_accumulation_steps=2)" in text(found, rollout_batch="16")
    kept = space(code("GRPO", *given_values, "steps_per_generation=4"))
    both = text(kept, rollout_batch="16")
    assert "gradient_accumulation_steps=2, steps_per_generation=1)" in both
    assert "32" not in named(kept, "rollout-batch").labels  # 16 completions are drawn at a time


def test_a_loss_of_the_micro_batch_has_no_batch_to_turn() -> None:
    for method, value in {"GRPO": "loss_type='bnpo'", "DPO": "loss_type='aot'", "KTO": "beta=0.1"}.items():
        found = space(code(method, value, "per_device_train_batch_size=4", "gradient_accumulation_steps=8"))
        assert not {"batch", "rollout-batch"} & set(found.walk(lambda _choice: 0)), method


def test_what_a_fix_makes_possible_is_asked_after_it() -> None:
    found = space(code("GRPO", "num_generations=8", "per_device_train_batch_size=8"), Allowed())
    assert "vllm-memory-share" not in point(found)
    after = point(found, online_without_vllm="online-without-vllm", vllm_memory_share="0.5")
    assert "vllm-memory-share" in after
    written = text(found, online_without_vllm="online-without-vllm", vllm_memory_share="0.5", vllm_sleep="True")
    for value in ("use_vllm=True", "vllm_gpu_memory_utilization=0.5", "vllm_enable_sleep_mode=True"):
        assert value in written


def test_only_the_allowed_effects_are_searched() -> None:
    text_ = code("SFT", "per_device_train_batch_size=4", "gradient_accumulation_steps=8")
    plain = space(text_, Allowed())
    assert {c.effect for c in plain.choices} == {"same"}
    assert plain.withheld["batch"] == "numerics"
    assert plain.withheld["packing"] == "training"
    assert "packing" not in {c.name for c in space(text_).choices}
    assert "packing" in {c.name for c in space(text_, Allowed(named=frozenset({"packing"}))).choices}


def test_what_the_tool_refuses_costs_no_trial() -> None:
    found = space(code("SFT", "per_device_train_batch_size=4", "gradient_accumulation_steps=8"))
    with pytest.raises(Refused, match=r"new error: .*padding-free"):
        found.variant(point(found, padding_free="True"), "tuned")


def test_the_starts_are_the_run_as_it_is_all_fixes_and_what_knobs_begin_with() -> None:
    found = space(code("SFT", "per_device_train_batch_size=4"))
    first, second, third = found.starts()
    assert found.variant(first, "") is None
    assert found.title(second) == "checkpointing-with-memory-to-spare"
    assert found.title(third) == "checkpointing-with-memory-to-spare, padding-multiple=64"
    assert "batch" in first  # so that nothing of it is left to chance


def test_where_no_fix_applies_knobs_begin_the_search_all_the_same() -> None:
    found = space(code("SFT", "gradient_checkpointing=False"), Allowed(frozenset({"same", "numerics"})))
    assert [found.title(start) for start in found.starts()] == ["as it is", "padding-multiple=64"]
    found = space(code("GRPO", "use_vllm=True"))
    assert [found.title(start) for start in found.starts()] == ["as it is", "checkpointing=False"]


@pytest.mark.parametrize(
    ("method", "values", "offered"),
    [
        ("SFT", (), True),
        ("DPO", (), True),
        ("SFT", ("pad_to_multiple_of=None",), True),
        ("SFT", ("pad_to_multiple_of=8",), False),
        ("SFT", ("packing=True",), False),
        ("GRPO", (), False),
    ],
)
def test_padding_to_few_lengths_is_a_choice_where_batches_are_padded(
    method: str, values: tuple[str, ...], offered: bool
) -> None:
    found = space(code(method, *values))
    assert any(c.name == "padding-multiple" and found.applies(c) for c in found.choices) == offered


def test_memory_that_ran_out_rules_out_more_of_the_same() -> None:
    found = space(code("SFT", "per_device_train_batch_size=4", "gradient_accumulation_steps=8"))
    full = point(found, batch="16")
    kept = {"checkpointing-with-memory-to-spare": "checkpointing-with-memory-to-spare"}
    for labels, out in (
        ({"batch": "32"}, True), ({"batch": "16", **kept}, True), ({"batch": "8"}, False), ({}, False),
        ({"batch": "32", "dataloader_workers": "2"}, False),
    ):  # fmt: skip
        if point(found, **labels).keys() == full.keys():
            assert found.ruled_out(point(found, **labels), full) is out, labels
    assert not found.ruled_out(full, point(found, batch="16", **kept))


def test_a_knob_that_can_only_do_what_a_fix_does_is_no_choice_of_its_own() -> None:
    named = {choice.name for choice in space(code("SFT")).choices}
    assert "checkpointing-with-memory-to-spare" in named
    assert "checkpointing" not in named
    off = {choice.name for choice in space(code("SFT", "gradient_checkpointing=False")).choices}
    assert "checkpointing" in off  # what it can do here no fix proposes


def test_of_several_trainings_only_fixes_are_tried() -> None:
    twice = code("SFT", "per_device_train_batch_size=4", "gradient_accumulation_steps=8")
    twice += "more = SFTConfig(output_dir='more')\nSFTTrainer('m', args=more, train_dataset=d).train()\n"
    found = space(twice)
    assert all(choice.knob is None for choice in found.choices)
    assert found.notes == ["/nowhere/train.py: 2 trainings go through it, so only fixes are tried and no knobs"]


TRAINED = ("learning_rate", "num_generations", "num_train_epochs", "max_length", "packing", "beta", "num_iterations")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_point_changes_what_is_learned(data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(["SFT", "DPO", "Reward", "GRPO", "RLOO"]))
    batch, accumulation = (data.draw(st.sampled_from([1, 2, 3, 4, 8, 16])) for _ in range(2))
    values = [f"per_device_train_batch_size={batch}", f"gradient_accumulation_steps={accumulation}"]
    if method in ("GRPO", "RLOO"):
        values.append(f"num_generations={data.draw(st.sampled_from([2, 4, 8]))}")
        values.append(f"use_vllm={data.draw(st.booleans())}")
    processes = data.draw(st.sampled_from([1, 2]))
    found = space(code(method, *values), processes=processes)
    try:
        at = found.walk(lambda c: data.draw(st.integers(0, len(c.labels) - 1)))
        variant = found.variant(at, "tuned")
    except Refused:
        return
    if variant is None or variant.after is None:
        return
    assert variant.effect != "training"
    before, after = (_seen(found, examined) for examined in (found.examined, variant.after))
    for name in TRAINED:
        assert before.alternatives(name) == after.alternatives(name), (name, found.title(at))
    assert _whole(before) == _whole(after), found.title(at)
    if "steps-per-generation" not in at or not at["steps-per-generation"]:
        assert _generated(before) == _generated(after), found.title(at)
    if method in ("GRPO", "RLOO"):
        steps, accumulated = _one(after, "steps_per_generation"), _one(after, "gradient_accumulation_steps")
        assert steps <= accumulated or steps == _one(before, "steps_per_generation")


def _seen(found: Space, examined: Any) -> View:
    run = next(run for run in examined.runs if run.method is not None)
    return View(run, run.worlds.assumed, found.told)


def _one(view: View, name: str) -> Any:
    values = view.alternatives(name)
    return values[0] if isinstance(values, tuple) and len(values) == 1 else None


def _whole(view: View) -> int:
    return int(_one(view, "per_device_train_batch_size") * _one(view, "gradient_accumulation_steps"))


def _generated(view: View) -> object:
    return _one(view, "generation_batch_size")


PAGE = """# A page

```toml
methods = ["sft"]
at = ["packing"]
when = "packing"
[[variant]]
severity = "note"
message = "m"
[[tune]]
{}
```
"""


@pytest.mark.parametrize(
    ("tables", "line", "what"),
    [
        (
            'name = "Batch"\nvalues = [1]\neffect = "same"\nset = { bf16 = "value" }',
            10,
            "a knob has a name in kebab-case",
        ),
        ('name = "b"\nvalues = []\neffect = "same"\nset = { bf16 = "value" }', 12, "b needs a list of values"),
        ('name = "b"\nvalues = [1]\neffect = "none"\nset = { bf16 = "value" }', 13, "effect 'none' is not one of"),
        ('name = "b"\nvalues = [1]\neffect = "same"', 10, "b sets nothing"),
        ('name = "b"\nvalues = [1]\neffect = "same"\nset = { nothing = "value" }', 14, "has no field nothing"),
        ('name = "b"\nvalues = [1]\neffect = "same"\nset = { bf16 = "valu" }', 14, "has no field valu"),
        ('name = "b"\nvalues = [1]\neffect = "same"\nvalid = "1 +"\nset = { bf16 = "value" }', 14, "cannot be parsed"),
        ('name = "b"\nvalues = [1]\neffect = "same"\nmemory = "low"\nset = { bf16 = "value" }', 14, "rising"),
        ('name = "b"\nvalues = [1]\neffect = "same"\nfirst = 2\nset = { bf16 = "value" }', 14, "b begins with 2"),
        ('name = "b"\nvalue = [1]', 12, "unknown key 'value'"),
    ],
)
def test_a_knob_that_is_wrong_is_an_error_of_its_page(tmp_path: Path, tables: str, line: int, what: str) -> None:
    folder = tmp_path / "rules" / "group"
    folder.mkdir(parents=True)
    path = folder / "a-page.md"
    path.write_text(PAGE.format(tables))
    with pytest.raises(pages.BadPage) as error:
        pages.read(path, tmp_path / "rules")
    assert what in str(error.value)
    assert str(error.value).startswith(f"rules/group/a-page.md:{line}:"), str(error.value)
