"""The probe is right of fixes whose effect is known: `tests/bench/planted.py` in small.

Under the stubs of TRL, whose clock is simulated, every plant is judged in CI 20 times, with fresh processes and another noise
each time, elsewhere 3 times. With the real TRL of the interpreters that `TRL_LINT_TEST_PYTHONS` names (see test_harness.py)
twice in CI, else once; without one that test is skipped. The full bench, 20 times each::

    python -m tests.bench.planted --stub --python NEW/bin/python --python OLD/bin/python --forks --jobs 6
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from trl_lint.probe.comparison import Verdict

from ..bench import planted
from .test_harness import REAL

CI = bool(os.environ.get("CI"))
REAL_SETTING = planted.Setting("", (), planted.REAL_PLANTS, {})


def wrong(setting: planted.Setting, times: int, jobs: int) -> list[str]:
    """What the probe says that it should not, with so many sessions side by side."""

    def one(number: int, script: str, plants: Sequence[planted.Plant]) -> list[str]:
        verdicts = planted.judged(setting, number, script, plants)
        return [
            f"{number}: {script}: {plant.name}: {verdicts[plant.name].name}: {verdicts[plant.name].reason}"
            for plant in plants
            if not plant.right(verdicts[plant.name])
        ]

    with ThreadPoolExecutor(jobs) as pool:
        todo = [(number, *group) for number in range(times) for group in planted.groups(setting)]
        return list(chain.from_iterable(pool.map(lambda each: one(*each), todo)))


def test_with_the_stub() -> None:
    """A hang is waited for, and what else the machine does moves no simulated clock."""
    assert wrong(planted.stub(), times=20 if CI else 3, jobs=4) == []


@REAL
def test_with_real_trl(python: str) -> None:
    """A trial mostly waits, so that all sessions run side by side."""
    with planted.forked(planted.real(python)) as setting:
        assert wrong(setting, times=2 if CI else 1, jobs=6) == []


@pytest.mark.parametrize("setting", [planted.stub(), REAL_SETTING], ids=["stub", "real"])
def test_every_plant_is_in_a_group(setting: planted.Setting) -> None:
    grouped = [(script, plant) for script, plants in planted.groups(setting) for plant in plants]
    every = [(script, plant) for script, plants in setting.plants.items() for plant in plants]
    assert sorted(grouped, key=every.index) == every


@pytest.mark.parametrize("setting", [planted.stub(), REAL_SETTING], ids=["stub", "real"])
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
