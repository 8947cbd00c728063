"""How the tuner's storage carries many workers: fake trials, real studies.

    python -m tests.bench.tuning postgresql+psycopg://USER@HOST/DATABASE [TRIALS] [WORKERS] [SECONDS]

Runs WORKERS processes that share one study until TRIALS (default 1000) of SECONDS (default 0) each have been run, and prints
what the storage took for each trial and whether any trial was lost or doubled. Also the stand-in that the tests search.
"""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from optuna import Study
from optuna.trial import TrialState

from trl_lint.probe import search
from trl_lint.probe.comparison import Series
from trl_lint.probe.search import Budget, Identity, Pace, Search
from trl_lint.probe.space import Choice, Point
from trl_lint.probe.variants import Variant

ROOT = Path(__file__).parent.parent.parent
GAINS: Mapping[str, tuple[float, ...]] = {
    "fix1": (1, 1.2),
    "fix2": (1, 1.08),
    "batch": (1, 0.6, 0.8, 1.3, 1.7, 1.5, 1.2),
    "checkpointing": (1, 1.25),
    "liger": (1, 1.1),
    "workers": (1, 1.02, 1.15, 1.04),
}
"""448 points. The best of them needs a value of each choice, among them four that no start has."""
LARGE = {**GAINS, "more": tuple(1 + index / 100 for index in range(8))}


class Sheet:
    """A space without files: every choice is free."""

    def __init__(self, gains: Mapping[str, tuple[float, ...]] = GAINS, rising: tuple[str, ...] = ("batch",)) -> None:
        self.gains = gains
        self.choices = tuple(
            Choice(name, "same", tuple(map(str, range(len(g)))), tuple(range(len(g))) if name in rising else ())
            for name, g in gains.items()
        )

    def walk(self, ask: Callable[[Choice], int]) -> Point:
        return {choice.name: ask(choice) for choice in self.choices}

    def variant(self, point: Point, name: str) -> Variant | None:
        on = sorted((n, i) for n, i in point.items() if i)
        return Variant(name, "", "same", {"point": repr(on).encode()}) if on else None

    def starts(self) -> list[Point]:
        return [{c.name: 0 for c in self.choices}, {c.name: int(c.name.startswith("fix")) for c in self.choices}]

    def title(self, point: Point) -> str:
        return ", ".join(f"{name}={index}" for name, index in point.items() if index) or "as it is"

    def ruled_out(self, point: Point, exhausted: Point) -> bool:
        return all(index >= exhausted[n] if n == "batch" else index == exhausted[n] for n, index in point.items())

    def speed(self, variant: Variant | None) -> float:
        """Steps per second of a point, without noise."""
        on = dict(eval(variant.changed["point"])) if variant is not None else {}
        return 10 * math.prod(gain[on.get(name, 0)] for name, gain in self.gains.items())

    @property
    def top(self) -> Point:
        """The best of all points."""
        return {name: gain.index(max(gain)) for name, gain in self.gains.items()}


def series(speed: float, noise: random.Random) -> Series:
    """A trial of that speed, as measured: 1 % up or down."""
    return Series(seconds=(1 / (speed * math.exp(noise.gauss(0, 0.01))),) * 8)


def identity(sheet: Sheet, script: str = "train.py") -> Identity:
    return Identity(script, {}, repr(sheet.gains), 8, "python train.py")


def worker(url: str, number: int, seconds: float, heartbeat: int, grace: int, large: int) -> None:
    """Join the study and run trials that sleep. Each is told to stdout when it begins and when it ends."""
    sheet = Sheet(LARGE if large else GAINS)
    study = joined(url, sheet, heartbeat, grace)
    noise = random.Random(number)

    def measure(variant: Variant | None, name: str, pace: Pace) -> Series:
        print("begins", name, flush=True)
        time.sleep(seconds)
        print("ends", name, flush=True)
        return series(sheet.speed(variant), noise)

    Search(study, sheet, measure, seed=0, worker=number, poll=0.2, grace=grace).run()


def begun(url: str, sheet: Sheet, budget: Budget, heartbeat: int = 1, grace: int = 3, **how: bool) -> Study:
    """The study of a sheet, made, or gone on with where `how` says so."""
    storage = search.opened(url, heartbeat=heartbeat, grace=grace)
    return search.study_of(
        identity(sheet), storage, budget, sheet, resume=how.get("resume", False), join=how.get("join", False)
    )


def joined(url: str, sheet: Sheet, heartbeat: int = 1, grace: int = 3) -> Study:
    return begun(url, sheet, Budget(), heartbeat, grace, join=True)


def started(
    url: str, number: int, seconds: float, heartbeat: int = 1, grace: int = 3, large: int = 0
) -> subprocess.Popen[str]:
    """A worker in a process of its own."""
    words = [
        sys.executable,
        "-m",
        "tests.bench.tuning",
        "--worker",
        *map(str, (url, number, seconds, heartbeat, grace, large)),
    ]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def main(url: str, trials: int = 1000, workers: int = 32, seconds: float = 0.0) -> None:
    study = begun(url, Sheet(LARGE), Budget(trials, None, None), search.HEARTBEAT, search.GRACE)
    begin = time.monotonic()
    processes = [started(url, number, seconds, search.HEARTBEAT, search.GRACE, 1) for number in range(workers)]
    said = "".join(process.communicate()[0] for process in processes).splitlines()
    took = time.monotonic() - begin
    found = study.get_trials(deepcopy=False)
    run = [t for t in found if search.was_run(t)]
    texts = Counter(t.user_attrs["text"] for t in run)
    spent = [
        (t.datetime_complete - t.datetime_start).total_seconds() - seconds
        for t in run
        if t.datetime_complete and t.datetime_start
    ]
    print(f"{workers} workers, {len(run)} trials run in {took:.0f} s; {len(found)} proposals")
    print(f"lost: {sum(t.state == TrialState.RUNNING for t in found)}, doubled: {sum(n - 1 for n in texts.values())}")
    print(f"begun {sum(s.startswith('begins') for s in said)}, ended {sum(s.startswith('ends') for s in said)}")
    print(
        f"storage for each trial: median {statistics.median(spent):.2f} s, 95 % within {sorted(spent)[int(len(spent) * 0.95)]:.2f} s"
    )


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:8]))
    else:
        main(sys.argv[1], *map(int, sys.argv[2:4]), *map(float, sys.argv[4:5]))
