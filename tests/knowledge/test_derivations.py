"""What a `__post_init__` does to fields, as steps; and what running the steps gives."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from trl_lint import knowledge
from trl_lint.knowledge.derivations import derive


def steps(body: str) -> list[list[str | None]]:
    function = ast.parse("def __post_init__(self):\n" + textwrap.indent(textwrap.dedent(body), "    ")).body[0]
    assert isinstance(function, ast.FunctionDef)
    return derive("C", function, {"Kind"})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("self.a = self.b", [["a", "b", ""]]),
        ("self.a = not self.b if self.a is None else self.a", [["a", "not b", "a is None"]]),
        ("self.a = self.a if self.a else self.b", [["a", "b", "not a"]]),
        ("n = self.world_size\nself.a = n * 2", [["a", "world_size * 2", ""]]),
        ("super().__post_init__()", [["super", None, ""]]),
        ("if self.a:\n    self.b = 1\nelse:\n    self.b = 2", [["b", "1", "a"], ["b", "2", "not a"]]),
        (
            "if self.a is None:\n    self.b = 1\nelse:\n    self.b = 2",
            [["b", "1", "a is None"], ["b", "2", "a is not None"]],
        ),
        ("if self.a:\n    raise ValueError\nself.b = 1", [["b", "1", ""]]),
        ("if self.a:\n    return\nself.b = 1", [["b", "1", "not a"]]),
        ("self.a += 1", [["a", "a + 1", ""]]),
        ("self.a['k'] = 1", [["a", None, ""]]),
        ("self.a.update(b=1)", [["a", None, ""]]),
        ("setattr(self, 'a', 1)", [["a", "1", ""]]),
        ("for x in self.xs:\n    self.a = x", [["a", None, ""]]),
        ("for x in ('a', 'b'):\n    setattr(self, x, None)", [["a", "None", ""], ["b", "None", ""]]),
        ("x = load()\nx = more(x)\nself.a = x", [["a", "more(load())", ""]]),
        ("x, y = self.a\nself.b = x", [["b", None, ""]]),
        ("if self.a:\n    x = 1\nelse:\n    x = 2\nself.b = x", [["b", "1 if a else 2", ""]]),
        ("if unknown_local():\n    x = 1\nself.b = x", [["b", None, ""]]),
        # A test that a branch itself makes false is kept under a name.
        (
            "if self.a is None:\n    self.a = 1\n    self.b = 2",
            [["_C_1", "a is None", ""], ["a", "1", "a is None"], ["b", "2", "_C_1"]],
        ),
        ("old = self.a\nself.a = 1\nself.b = old", [["_C_1", "a", ""], ["a", "1", ""], ["b", "_C_1", ""]]),
        # A member of an enumeration says what its text says.
        ("self.a = Kind(self.a)", []),
        ("if isinstance(self.a, str):\n    self.b = Kind(self.a)", [["b", "a", "isinstance(a, str)"]]),
        ("if isinstance(self.a, Kind):\n    self.a = self.a.value", []),
        ("self.a = Other(self.a)", [["a", "Other(a)", ""]]),
        ("pass", []),
        ("x = 1", []),
        ("warnings.warn('…')", []),
    ],
)
def test_steps(body: str, expected: list[list[str | None]]) -> None:
    assert steps(body) == expected


def run(release: str, config: str, **given: Any) -> dict[str, Any]:
    """The fields after the steps of a release, from its defaults and what is given; unreadable ones are left out."""
    found = knowledge.trl(release).config(config)
    assert found is not None
    arguments = knowledge.training_arguments(knowledge.newest("transformers"))
    state: dict[str, Any] = {name: field.default for name, field in {**arguments, **found.fields}.items()}
    state |= {"world_size": 1, **given}
    for step in found.steps:
        try:
            if step.when and not eval(step.when, {}, state):
                continue
            state[step.field] = eval(step.value or "unread", {}, state)
        except (NameError, AttributeError):
            state.pop(step.field, None)
    return state


@pytest.mark.parametrize(
    ("given", "steps_per_generation", "generation_batch_size"),
    [
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 2, 8),
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "world_size": 8}, 2, 64),
        ({"per_device_train_batch_size": 4, "generation_batch_size": 64, "world_size": 2}, 8, 64),
        ({"per_device_train_batch_size": 4, "steps_per_generation": 3}, 3, 12),
    ],
)
@pytest.mark.parametrize("release", ["0.18.0", "0.22.0", "1.0.0", "1.16.0"])
def test_grpo_batches(
    release: str, given: dict[str, Any], steps_per_generation: int, generation_batch_size: int
) -> None:
    state = run(release, "GRPOConfig", **given)
    assert (state["steps_per_generation"], state["generation_batch_size"]) == (
        steps_per_generation,
        generation_batch_size,
    )


@pytest.mark.parametrize(
    ("release", "given", "bf16"),
    [
        ("1.16.0", {}, True),
        ("1.16.0", {"fp16": True}, False),
        ("1.16.0", {"bf16": False}, False),
        ("0.19.0", {}, True),
        ("0.18.2", {}, False),
    ],
)
def test_bf16(release: str, given: dict[str, Any], bf16: bool) -> None:
    assert run(release, "SFTConfig", **given)["bf16"] is bf16


def test_old_rloo_names_are_mapped() -> None:
    state = run("0.24.0", "RLOOConfig", rloo_k=4, kl_coef=0.1, total_episodes=100, gradient_accumulation_steps=4)
    assert (state["num_generations"], state["beta"], state["max_steps"], state["rloo_k"]) == (4, 0.1, 25, None)
