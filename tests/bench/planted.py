"""Planted fixes: scripts of which one line is known to be better or worse, and how often the probe says so.

Usage: python -m tests.bench.planted [--stub] [--python PATH]... [--forks] [--times N] [--jobs N] [--record FILE]

The scripts stand in tests/probe/planted; a plant replaces one of their marked lines. Each time every plant is judged anew,
in fresh processes and as `trl-lint probe` judges a fix: `--stub` under stubs of TRL and transformers whose clock is
simulated, `--python` under the real TRL of that interpreter, on the CPU. Every verdict is a line added to the record
(docs/evidence/planted.ndjson), from which the page beside it is written anew. Exit: 0 if every verdict was right, else 1.

Under real TRL a time is some 50 trials, and of the 10 s of CPU that one costs 9 are spent on importing torch and TRL. With
`--forks` that is done once: a trial is a fork of a process that has imported them (tests/nursery.py), all else is
the same. What is left mostly waits, ten minutes a time, so that many can run side by side (`--jobs`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from threading import Event

from tests import nursery
from trl_lint.probe.comparison import RULES, Name, Verdict
from trl_lint.probe.session import Job, Session, Silence
from trl_lint.probe.starts import Start
from trl_lint.probe.trials import Limits, Trial
from trl_lint.probe.variants import Variant

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "probe" / "planted"
STUBS = ROOT / "tests" / "probe" / "stub"
RECORD = ROOT / "docs" / "evidence" / "planted.ndjson"  # not .jsonl: no evidence of a rule


@dataclass(frozen=True)
class Plant:
    """B is the script with its line that is marked `mark` replaced by `line`; A is the script.

    With `mended` it is the other way round. The verdict's reason must hold `says`; its `gains` must be these and no others.
    """

    name: str
    mark: str
    line: str
    verdict: Name
    gains: tuple[str, ...] = ()
    says: str = ""
    mended: bool = False
    hangs: bool = False

    def right(self, verdict: Verdict) -> bool:
        """Whether this is what the probe should have said."""
        return (verdict.name, verdict.gains) == (self.verdict, self.gains) and self.says in verdict.reason


SLEEP = Plant("a sleep in the data collator is removed", "sleep", "pass", "confirmed", ("speed",))
PLANTS = (
    SLEEP,
    Plant("memory that nothing reads is freed", "memory", "spare = None", "confirmed", ("memory",)),
    Plant("a line that raises is mended", "anything", "raise ValueError('planted')", "repaired", says="planted", mended=True),
    Plant("a line that costs nothing is another", "anything", "self.count = 2", "no gain"),
    Plant("a sleep is added", "anything", "time.sleep(1.5)", "slower"),
    Plant("it raises", "anything", "raise ValueError('planted')", "broken", says="stops: ValueError: planted"),
    Plant("it hangs", "anything", "threading.Event().wait()", "broken", says="hangs", hangs=True),
    Plant("another learning rate", "rate", "rate = 0.01", "changes training", says="the loss of step"),
    Plant("another order of the data", "order", "order = range(9, -1, -1)", "changes training", says="the loss of step"),
)  # fmt: skip
ONLINE_PLANTS = (
    Plant("a sleep in the reward function is removed", "sleep", "pass", "confirmed", ("speed",)),
    Plant("another reward", "scale", "scale = 10.0", "changes training", says="the reward is"),
)
REAL_PLANTS = {"sft.py": PLANTS, "grpo.py": ONLINE_PLANTS}


@dataclass(frozen=True)
class Setting:
    """Where scripts run, and the plants of each. `python` are the words that a script's name is put behind."""

    name: str
    python: tuple[str, ...]
    plants: Mapping[str, Sequence[Plant]]
    environment: Mapping[str, str]
    steps: int = 8


def stub() -> Setting:
    """Under stubs that train within milliseconds."""
    return Setting("stub", (sys.executable,), {"stub.py": PLANTS}, {"PYTHONPATH": str(STUBS)})


def real(python: str) -> Setting:
    """Under the TRL that `python` imports."""
    names = "trl", "transformers", "torch"
    ask = (
        f"from importlib.metadata import version; print(*(f'{{name}} {{version(name)}}' for name in {names}), sep=', ')"
    )
    said = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    if said.returncode:
        raise SystemExit(f"{python}: {said.stderr.strip().splitlines()[-1]}; install trl and torch for it")
    environment = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    # As many steps as a speed takes: the warm-up's, and those that are always kept.
    return Setting(said.stdout.strip(), (python,), REAL_PLANTS, environment, RULES.warmup + RULES.kept)


@contextmanager
def forked(setting: Setting) -> Iterator[Setting]:
    """The same, but every trial is a fork of one process that has imported TRL."""
    scripts = [SCRIPTS / name for name in setting.plants]
    try:
        with nursery.started(setting.python, scripts, {**os.environ, **setting.environment}) as words:
            yield replace(setting, name=f"{setting.name}, forked", python=words)
    except RuntimeError as error:
        raise SystemExit(f"{error}") from None


class Longest(Silence):
    """Hears how long the longest trial took, and begins no further one once `stop` is set."""

    def __init__(self, stop: Event | None) -> None:
        self.seconds = 0.0
        self._stop = stop

    def begins(self, pair: int | None, name: str, left: float) -> None:
        """A trial is about to begin."""
        if self._stop is not None and self._stop.is_set():
            raise KeyboardInterrupt

    def ended(self, pair: int | None, name: str, trial: Trial) -> None:
        """A trial has ended."""
        self.seconds = max(self.seconds, trial.seconds)


def groups(setting: Setting) -> Iterator[tuple[str, Sequence[Plant]]]:
    """Plants of one script that share their A: they are judged in one session, as the fixes of one script are."""
    for script, plants in setting.plants.items():
        for mended in (False, True):
            if some := [plant for plant in plants if plant.mended == mended]:
                yield script, some


def judged(
    setting: Setting, number: int, script: str, plants: Sequence[Plant], stop: Event | None = None
) -> Mapping[str, Verdict]:
    """What the probe says of each plant of a group. The same `number` is the same noise, where that is simulated."""
    text = (SCRIPTS / script).read_text("utf-8")
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        project, temporary = Path(scratch) / "project", Path(scratch) / "tmp"
        project.mkdir()
        temporary.mkdir()  # what hangs and is ended leaves there what it has there
        for path in SCRIPTS.glob("*.py"):
            (project / path.name).write_bytes(path.read_bytes())
        changed = {plant.name: planted(text, plant) for plant in plants}
        if plants[0].mended:
            (plant,) = plants
            (project / script).write_text(changed[plant.name], "utf-8")
            changed[plant.name] = text
        environment = {**setting.environment, "PLANTED_SEED": f"{number}", "TMPDIR": str(temporary)}
        start = Start((*setting.python, script), environment=environment)
        method = "grpo" if script == "grpo.py" else "sft"
        job = Job(script, project, project, lambda _: start, method=method, steps=setting.steps)
        longest = Longest(stop)
        with Session(job, longest) as session:
            for hangs in (False, True):
                if hangs:  # what a hang is depends on how slow the machine was so far
                    session.job = replace(job, limits=Limits(silent=2 + 2 * longest.seconds, grace=1))
                some = [plant for plant in plants if plant.hangs == hangs]
                session.measure([Variant(p.name, p.line, "same", {script: changed[p.name].encode()}) for p in some])
            return session.verdicts


def planted(text: str, plant: Plant) -> str:
    """The script with that one line replaced."""
    changed, count = re.subn(
        rf"^( *)\S.*  # planted: {plant.mark}$", lambda found: found[1] + plant.line, text, flags=re.MULTILINE
    )
    assert count == 1, f"{count} lines are marked {plant.mark}"
    return changed


# The record ------------------------------------------------------------------------------------------------------------


def line(setting: Setting, script: str, plant: Plant, verdict: Verdict) -> str:
    """One verdict as a line of JSON. `load` is how many processes wanted a core in the last minute."""
    numbers = {
        name: round(value, 4)
        for name in ("ratio", "low", "high", "memory_ratio")
        if (value := getattr(verdict, name)) is not None
    }
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
        "setting": setting.name, "script": script, "plant": plant.name, "expected": plant.verdict, "verdict": verdict.name,
        "right": plant.right(verdict), "pairs": verdict.pairs, **numbers, "reason": verdict.reason,
    }  # fmt: skip
    return json.dumps(record)


def page(lines: Iterable[str]) -> str:
    """The record as Markdown: how often each plant came out right, and every verdict that did not."""
    records = [json.loads(each) for each in lines]
    settings = sorted({r["setting"] for r in records}, key=lambda name: (name != "stub", name))
    plants = dict.fromkeys((r["plant"], r["expected"]) for r in records)
    table = [["what B changes", "it should say", *settings]]
    for plant, expected in plants:
        found = [[r["right"] for r in records if (r["plant"], r["setting"]) == (plant, name)] for name in settings]
        table.append([plant, expected, *(f"{sum(rights)} of {len(rights)}" if rights else "" for rights in found)])
    rows = [f"| {' | '.join(cells)} |" for cells in table]
    rows.insert(1, "|---" * len(table[0]) + "|")
    wrong = [
        f"- {r['date']}, {r['setting']}, load {r['load']} on {r['cores']} cores: {r['plant']}: {r['verdict']}: {r['reason']}"
        for r in records
        if not r["right"]
    ]
    return "\n".join([*ABOUT, *rows, *(["", "What came out wrong:", "", *wrong] if wrong else []), ""])


ABOUT = [
    "# Planted fixes", "",
    "Scripts of which one line is known to be better or worse (`tests/probe/planted`), and how often the probe said so, a column",
    "for each setting that was run: stubs of TRL with a simulated clock, or a real TRL on the CPU. There a step of SFT is made to",
    "last a second, and waits for what is left of it once it has computed, so that its time says little of how busy the machine",
    "was. *Forked*: torch and TRL were imported once and every trial is a fork of that process; else a trial is a Python of its",
    "own. These commands add a line for each verdict to `planted.ndjson` and write this page:", "",
    "```bash", "python -m tests.bench.planted --stub --times 20",
    "python -m tests.bench.planted --python NEW/bin/python --python OLD/bin/python --forks --times 20 --jobs 6", "```", "",
]  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.planted", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--stub", action="store_true", help="under stubs of TRL and transformers")
    add("--python", action="append", default=[], metavar="PATH", help="an interpreter that has TRL")
    add("--forks", action="store_true", help="import TRL once for all trials of an interpreter")
    add("--times", type=int, default=20, metavar="N", help="how often each plant is judged (default: 20)")
    add("--jobs", type=int, default=1, metavar="N", help="how many sessions run side by side (default: 1)")
    add("--record", type=Path, default=RECORD, metavar="FILE", help=f"(default: {RECORD.relative_to(ROOT)})")
    options = parser.parse_args(words)
    settings = [*([stub()] if options.stub else []), *map(real, options.python)]
    if not settings:
        parser.error("nothing to run: --stub, --python PATH, or both")
    stop = Event()
    with ExitStack() as stack, ThreadPoolExecutor(options.jobs) as pool:
        if options.forks:
            settings = [s if s.name == "stub" else stack.enter_context(forked(s)) for s in settings]

        def once(number: int, setting: Setting, script: str, plants: Sequence[Plant]) -> int:
            """How many verdicts of a group were wrong; all are written down when they are there."""
            verdicts = judged(setting, number, script, plants, stop)
            for plant in plants:
                verdict = verdicts[plant.name]
                said = f"{'right' if plant.right(verdict) else 'WRONG'}: {verdict.name}: {verdict.reason}"
                print(f"{number + 1}, {setting.name}: {plant.name}: {said}", flush=True)
                with options.record.open("a", encoding="utf-8") as file:
                    file.write(line(setting, script, plant, verdict) + "\n")
            return sum(not plant.right(verdicts[plant.name]) for plant in plants)

        todo = [(n, s, *group) for n, s in product(range(options.times), settings) for group in groups(s)]
        try:
            wrong = sum(each.result() for each in as_completed([pool.submit(once, *each) for each in todo]))
        except BaseException:
            stop.set()  # the trials that run are waited for
            pool.shutdown(cancel_futures=True)
            raise
    text = page(options.record.read_text("utf-8").splitlines())
    options.record.with_suffix(".md").write_text(text, "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # where it is set every trial would compile TRL anew
    sys.exit(main())
