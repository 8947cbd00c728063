"""Nothing that fixing did, or did not do, vanishes."""

import json

import pytest

from trl_lint.model import Ledger, Span

from .building import finding, report, written

ONE, TWO = (finding(Span("train.py", line, line + 1, line, 5, line, 6)) for line in (12, 20))
CHANGED = {"train.py": (b"a", b"b")}
NEEDS = "unsafe: --unsafe-fixes"
OVERLAP = "edits overlap at line 12"


@pytest.mark.parametrize(
    ("ledger", "lines"),
    [
        (Ledger(), ["Nothing to fix."]),
        (Ledger((ONE, TWO), changed=CHANGED), ["Fixed 2 (1 file)."]),
        (
            Ledger((ONE,), ((TWO, NEEDS),), changed=CHANGED),
            [
                f"held back: train.py:20:5 online-without-vllm: {NEEDS}",
                f"Fixed 1 (1 file), 1 held back ({NEEDS}).",
            ],
        ),
        (
            Ledger((), (), ((TWO, OVERLAP), (ONE, f"{OVERLAP}."))),
            [
                f"not applied: train.py:12:5 online-without-vllm: {OVERLAP}.",
                f"not applied: train.py:20:5 online-without-vllm: {OVERLAP}",
                f"Fixed 0, 2 not applied: {OVERLAP}.",
            ],
        ),
        (
            Ledger((ONE,), ((ONE, NEEDS), (TWO, "b"), (TWO, NEEDS)), ((TWO, OVERLAP),), CHANGED),
            [
                f"held back: train.py:12:5 online-without-vllm: {NEEDS}",
                "held back: train.py:20:5 online-without-vllm: b",
                f"held back: train.py:20:5 online-without-vllm: {NEEDS}",
                f"not applied: train.py:20:5 online-without-vllm: {OVERLAP}",
                f"Fixed 1 (1 file), 2 held back ({NEEDS}), 1 held back (b), 1 not applied: {OVERLAP}.",
            ],
        ),
    ],
)
def test_ledger(ledger: Ledger, lines: list[str]) -> None:
    head = ["judged by trl 1.9.2 (uv.lock:812)", "No findings in 12 files (1 run)."]
    assert written(report(ledger=ledger), "terminal").splitlines() == head + lines
    assert written(report(ledger=ledger), "concise") == f"No findings in 12 files (1 run). {lines[-1]}\n"
    assert written(report(ONE, ledger=ledger), "concise").endswith(f"\nFound 1 warning. {lines[-1]}\n")


def test_json() -> None:
    ledger = Ledger((ONE,), ((TWO, NEEDS),), ((ONE, OVERLAP),), CHANGED)
    entry = {"rule": "online-without-vllm", "path": "train.py"}
    assert json.loads(written(report(ledger=ledger), "json"))["ledger"] == {
        "applied": 1,
        "held_back": [entry | {"line": 20, "reason": NEEDS}],
        "failed": [entry | {"line": 12, "reason": OVERLAP}],
    }
    assert "ledger" not in json.loads(written(report(), "json"))
