"""The probe is right of fixes whose effect is known: `tests/bench/planted.py` in small.

Under the stubs of TRL, whose clock is simulated, every plant is judged in CI 20 times, with fresh processes and another noise
each time, elsewhere 3 times. With the real TRL of the interpreters that `TRL_LINT_TEST_PYTHONS` names (see test_harness.py)
twice in CI, else once; without one these tests are skipped. The full bench, 20 times each::

    python -m tests.bench.planted --stub --python NEW/bin/python --python OLD/bin/python
"""

from __future__ import annotations

import ast
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from trl_lint.probe.comparison import Verdict

from ..bench import planted
from .test_harness import REAL

CI = bool(os.environ.get("CI"))


def wrong(setting: planted.Setting, number: int) -> list[str]:
    """What the probe says that it should not."""
    verdicts = list(planted.judged(setting, number))
    assert {plant for _, plant, _ in verdicts} == {plant for plants in setting.plants.values() for plant in plants}
    return [
        f"{number}: {script}: {plant.name}: {verdict.name}: {verdict.reason}"
        for script, plant, verdict in verdicts
        if not plant.right(verdict)
    ]


def test_with_the_stub() -> None:
    """Side by side: a hang is waited for, and what else the machine does moves no simulated clock."""
    setting, times = planted.stub(), 20 if CI else 3
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: wrong(setting, number), range(times)))
    assert found == [[]] * times


@REAL
@pytest.mark.parametrize("number", range(2 if CI else 1))
def test_with_real_trl(python: str, number: int) -> None:
    assert wrong(planted.real(python), number) == []


@pytest.mark.parametrize(
    "setting", [planted.stub(), planted.Setting("", "", planted.REAL_PLANTS, {})], ids=["stub", "real"]
)
def test_a_plant_is_one_line(setting: planted.Setting) -> None:
    for script, plants in setting.plants.items():
        text = (planted.SCRIPTS / script).read_text("utf-8")
        for plant in plants:
            changed = planted.planted(text, plant)
            differ = [pair for pair in zip(text.splitlines(), changed.splitlines(), strict=True) if pair[0] != pair[1]]
            assert len(differ) == 1, plant
            ast.parse(changed)


def test_a_verdict_is_right_by_its_gain_and_reason_too() -> None:
    assert planted.SLEEP.right(Verdict("confirmed", gains=("speed",)))
    assert not planted.SLEEP.right(Verdict("confirmed", gains=("memory",)))
    assert not planted.SLEEP.right(Verdict("confirmed", gains=("speed", "memory")))
    raises = next(plant for plant in planted.PLANTS if plant.name == "it raises")
    assert raises.right(Verdict("broken", reason="as fixed it stops: ValueError: planted (all 2 pairs)"))
    assert not raises.right(Verdict("broken", reason="as fixed it hangs"))


def test_the_page_counts() -> None:
    plants, verdicts = planted.PLANTS[:2], [Verdict("confirmed", gains=("speed",)), Verdict("no gain", reason="1.00x")]
    lines = [planted.line(planted.stub(), "stub.py", p, v) for p, v in zip(plants, verdicts, strict=True)]
    assert json.loads(lines[0])["right"] is True
    lines.append(json.dumps({**json.loads(lines[0]), "setting": "trl 1.16.0", "script": "sft.py"}))
    page = planted.page(lines)
    assert "| what B changes | it should say | stub | trl 1.16.0 |" in page
    assert f"| {plants[0].name} | confirmed | 1 of 1 | 1 of 1 |" in page
    assert f"| {plants[1].name} | confirmed | 0 of 1 |  |" in page
    assert f": {plants[1].name}: no gain: 1.00x" in page
