"""A guess is a typo, not another option."""

from __future__ import annotations

import pytest

from trl_lint.runs.closest import closest

FIELDS = frozenset({"model_revision", "gradient_accumulation_steps", "learning_rate", "num_generations", "bf16"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gradient_accumulation_step", "gradient_accumulation_steps"),
        ("leanring_rate", "learning_rate"),
        ("num_generation", "num_generations"),
        ("hub_model_revision", None),
        ("num_generations_eval", None),
        ("fp16", None),
    ],
)
def test_closest(name: str, meant: str | None) -> None:
    assert closest(name, FIELDS) == meant
