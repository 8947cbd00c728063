"""Measure jobs of jobs.py on this machine, one after the other, for so many minutes and no longer.

Usage: python3 run_jobs.py NAME... --minutes M --out FOLDER [--model FOLDER] [--release 1.12.0=FOLDER] [--forks]

Each verdict is appended to FOLDER/evidence.jsonl as soon as it stands, and the last lines of a trial that did not train
to FOLDER/failures.txt. What is cut short keeps the pairs that it has. With `--forks` torch and TRL are imported once for all
trials of a release, each of which is a fork of that process: half of what a short trial takes, and of no arm more than of
another.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from jobs import AS_IS, JOBS, Job, Question  # noqa: E402

from tests import nursery  # noqa: E402
from trl_lint import __version__, rulebook  # noqa: E402
from trl_lint.facts import Overrides  # noqa: E402
from trl_lint.fixing import verified  # noqa: E402
from trl_lint.model import Effect, Fix  # noqa: E402
from trl_lint.probe import evidence  # noqa: E402
from trl_lint.probe.comparison import Pair, Promise, Verdict, compare, median, needs_more  # noqa: E402
from trl_lint.probe.session import ONLINE, PLACE, conditions  # noqa: E402
from trl_lint.probe.trials import (  # noqa: E402
    Limits,
    ServerSpec,
    Trial,
    TrialSpec,
    estimate,
    gpu_memory,
    run_trial,
    schedule,
    wait_for_gpus,
)
from trl_lint.probe.variants import placed, shadow  # noqa: E402
from trl_lint.reports.redaction import redact  # noqa: E402
from trl_lint.rulebook.files import Context, examine  # noqa: E402
from trl_lint.settings import Settings  # noqa: E402
from trl_lint.sources.text import Text  # noqa: E402

MODEL = "Qwen/Qwen2-0.5B"  # as the scripts call it: a folder of this name takes the place of the hub's
LONGEST = 240.0  # seconds that a trial may take
FIRST = {False: 25.0, True: 70.0}  # seconds to expect of a first trial, without and with vLLM
HEALTHY = 180.0  # seconds until the server must answer
ENDING = 8.0  # seconds kept to end a trial and to write down what there is
SLOWER = 1.1  # the first trial of an arm, over later ones
FURTHER = 2  # pairs beyond the job's own while a verdict is open
TAIL = 40
SERVER = (
    "vllm.entrypoints.cli.main", "serve", MODEL, "--weight-transfer-config", '{"backend": "nccl"}', "--logprobs-mode",
    "processed_logprobs", "--max-logprobs", "-1", "--max-model-len", "2048", "--gpu-memory-utilization", "0.3",
)  # fmt: skip


class OutOfTime(Exception):
    """The next trial would not end in time, or the last one did not."""


def environment(job: Job, options: argparse.Namespace) -> dict[str, str]:
    """Another release of TRL comes first on the path; without a GPU the texts are short."""
    paths = [options.release.get(job.trl), os.environ.get("PYTHONPATH")]
    letters = {"PROBE_LETTERS": "300"} if options.cpu else {}
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path), **letters, **dict(job.environment)}


# The texts ------------------------------------------------------------------------------------------------------------


def edited(text: str, edits: Sequence[tuple[str, str]]) -> str:
    """The text with each `before` replaced, which must stand in it once."""
    for before, after in edits:
        if text.count(before) != 1:
            raise ValueError(f"{before!r} stands {text.count(before)} times in the script")
        text = text.replace(before, after)
    return text


def fixed(script: str, text: str, rule: str) -> tuple[str, Fix]:
    """What the fix of `rule` leaves of a script, as `trl-lint probe` would try it."""
    context = Context(
        str(HERE), rulebook.load(HERE.parents[1] / "rules"), Overrides({}, None, None), lambda _: Settings()
    )
    path = str(HERE / script)
    before = examine(path, Text(path, text.encode()), context)
    for finding in before.findings:
        if finding.rule == rule and finding.fix is not None:
            return verified(before, [finding], context).text.code, finding.fix
    raise ValueError(f"{script}: no fix of {rule}")


def texts(job: Job) -> dict[str, str]:
    """The script as each arm has it."""
    made = {AS_IS: (HERE / job.script).read_text("utf-8")}
    for arm in job.arms:
        before = made[arm.of]
        made[arm.name] = fixed(job.script, before, arm.fix)[0] if arm.fix else before
        made[arm.name] = edited(made[arm.name], arm.edits)
    return made


def place_model(folder: Path, model: Path, name: str = MODEL) -> None:
    """Let a script that is started in `folder` find the model by the name that the hub has it by."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(model.resolve())


def rehearsed(text: str) -> str:
    """The script as it runs without a GPU, where bfloat16 is slower than anything else."""
    precision = "" if "bf16=" in text else " bf16=False,"
    text = text.replace("bf16=True", "bf16=False")
    return edited(text, [('output_dir="out",', f'output_dir="out", use_cpu=True,{precision}')])


@dataclass(frozen=True)
class Change:
    """What the record says of a question's fix."""

    title: str
    key: str
    effect: Effect


def change(job: Job, question: Question, made: Mapping[str, str]) -> Change:
    """The fix of the rule, which must lead from one text to the other; else what the question itself says."""
    if not question.rule:
        return Change(question.title, "", question.effect)
    after, fix = fixed(job.script, made[question.before], question.name)
    if after != made[question.after]:
        raise ValueError(f"{job.name}: {question.name} writes something else than {question.after!r}")
    return Change(fix.title, fix.key, fix.effect)


# One job --------------------------------------------------------------------------------------------------------------


@dataclass
class Running:
    """A job under way. `deadline` is on the monotonic clock; `trials` are those of each arm by the number of the pair."""

    job: Job
    options: argparse.Namespace
    scratch: Path
    deadline: float
    baseline: tuple[int, ...]
    python: tuple[str, ...] = (sys.executable,)
    folders: dict[str, Path] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    trials: dict[str, dict[int, Trial]] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    warmed: set[str] = field(default_factory=set)
    count: int = 0
    named: str | None = None  # the command, where it is not this file's

    def run(self) -> None:
        """All pairs of all arms while there is time; each question is written down once it is decided."""
        made = texts(self.job)
        self.changes = {question.name: change(self.job, question, made) for question in self.job.questions}
        for number, (arm, text) in enumerate(made.items()):
            if self.options.cpu:
                text = rehearsed(text)
            self.folders[arm] = folder = self.scratch / f"arm-{number}"
            shadow(HERE, folder, {self.job.script: text.encode()})
            place_model(folder, self.options.model)
        asked = {arm for question in self.job.questions for arm in (question.before, question.after)}
        arms = [arm for arm in made if arm in asked]
        try:
            self.warm(arms)
            self.measure(arms)
        except OutOfTime as end:
            print(f"{self.job.name}: {end}", flush=True)
        finally:
            for question in self.job.questions:
                self.record(question)

    def warm(self, arms: Sequence[str]) -> None:
        """A trial that does not count: on a cold machine the first one takes three to five times as long."""
        mark = Path(tempfile.gettempdir()) / f"trl-lint-warm-{'vllm' if self.job.vllm else 'torch'}-{self.job.trl}"
        if self.options.warm and self.job.pairs > 1 and not mark.exists():
            self.trial(arms[-1], "warm-up")
            mark.touch()

    def measure(self, arms: list[str]) -> None:
        most = self.job.pairs + (FURTHER if self.job.pairs > 1 else 0)
        begun = 0
        for pair, arm in schedule(tuple(arms), most):
            if pair != begun:
                begun = pair
                arms = self.fitting(self.wanted(pair), pair)
                for question in self.job.questions:
                    if not self.open(question, pair):
                        self.record(question)
            if arm in arms:
                self.trials.setdefault(arm, {})[pair] = self.trial(arm, str(pair + 1))

    def wanted(self, pair: int) -> list[str]:
        """The arms that some question still needs."""
        asked = [question for question in self.job.questions if self.open(question, pair)]
        return [arm for arm in self.folders if any(arm in (question.before, question.after) for question in asked)]

    def open(self, question: Question, pair: int) -> bool:
        """Whether one more pair is wanted: all that were asked for, unless it stops anyway, then while undecided."""
        pairs = self.pairs(question)
        if question.name in self.recorded or not pairs or {question.before, question.after} & self.dropped:
            return False
        stopped = any(not series.trained for both in pairs for series in both)
        return (pair < self.job.pairs and not stopped) or needs_more(pairs, self.promise(question))

    def fitting(self, arms: list[str], pair: int) -> list[str]:
        """The first of the arms whose pairs can all be had in the time that is left, the last ones going first."""
        took = {arm: [trial.seconds for trial in trials.values()] for arm, trials in self.trials.items()}
        left = self.deadline - time.monotonic()
        rounds = max(self.job.pairs - pair, 1) / (SLOWER if pair == 1 else 1)
        kept = list(arms)
        while len(kept) > 2 and estimate(kept, took, LONGEST) * rounds > left:
            self.dropped.add(kept[-1])
            print(f"{self.job.name}: no time for all pairs of {kept.pop()!r}: left out", flush=True)
        return kept

    def trial(self, arm: str, label: str) -> Trial:
        took = [trial.seconds for trial in self.trials.get(arm, {}).values()]
        server = self.server(arm)
        expected = median(took) if took else FIRST[self.job.vllm] + (HEALTHY if server else 0)
        if (left := self.deadline - time.monotonic()) < expected:
            raise OutOfTime(f"{left:.0f} s left: not enough for another trial of {arm!r}")
        note = wait_for_gpus(self.baseline, within=min(20.0, left / 4))
        left = self.deadline - time.monotonic() - (HEALTHY if server else 0)
        self.count += 1
        place = self.scratch / PLACE
        spec = TrialSpec(
            arm, (*self.python, self.job.script), place, self.scratch / "out" / str(self.count),
            environment(self.job, self.options), self.job.steps, limits=Limits(min(LONGEST, left), LONGEST, 20.0, 3.0), server=server,
        )  # fmt: skip
        with placed(self.folders[arm], place):
            trial = run_trial(spec)
        if trial.cause == "limit" and left < LONGEST:
            raise OutOfTime(f"a trial of {arm!r} was cut off")
        first = arm not in self.warmed
        self.warmed.add(arm)
        if first and self.job.pairs > 1 and trial.compiled and trial.series.trained:
            self.say(arm, "warm-up", trial, note)
            return self.trial(arm, label)
        self.say(arm, label, trial, note)
        return trial

    def server(self, arm: str) -> ServerSpec | None:
        if arm not in self.job.served:
            return None
        known = {**environment(self.job, self.options), "VLLM_SERVER_DEV_MODE": "1"}
        return ServerSpec(
            (sys.executable, "-m", *SERVER), "http://localhost:8000/health", self.scratch / PLACE, known,
            healthy_within=HEALTHY,
        )  # fmt: skip

    def say(self, arm: str, label: str, trial: Trial, note: str | None) -> None:
        """One line for a trial, and the last lines of one that did not train."""
        series = trial.series
        if series.trained:
            what = f"{median(series.seconds[2:] or series.seconds):.3f} s/step, start {series.startup or 0:.0f} s"
        else:
            what = f"{series.outcome}: {series.error}"
        line = redact(f"{self.job.name}, pair {label}, {arm}: {what} ({trial.seconds:.0f} s)")
        print("; ".join([line, *([note] if note else []), *trial.notes]), flush=True)
        if series.trained:
            return
        with (self.options.out / "failures.txt").open("a") as file:
            file.write(f"== {line}\n{redact(trial.reproduce)}\n")
            for path in (trial.stderr, trial.spec.out / "server" / "stderr.txt"):
                if path.exists():
                    tail = path.read_text(errors="replace").splitlines()[-TAIL:]
                    file.write(redact("\n".join(["", path.name, *tail, ""])))

    # the verdicts

    def pairs(self, question: Question) -> list[Pair]:
        before, after = self.trials.get(question.before, {}), self.trials.get(question.after, {})
        return [(before[n].series, after[n].series) for n in sorted(before.keys() & after.keys())]

    def promise(self, question: Question) -> Promise:
        trial = self.first(question)
        train = trial.train if trial is not None and trial.train is not None else {}
        fields = train.get("fields") or {}
        exact = train.get("device") == "cpu" and not (fields.get("bf16") or fields.get("fp16"))
        return Promise(self.changes[question.name].effect, self.job.method in ONLINE, exact)

    @property
    def how(self) -> str:
        return " --forks" if self.python != (sys.executable,) else ""

    def first(self, question: Question) -> Trial | None:
        """A trial of what a reader of the record has, which is the text before; of the one after, if that never trained."""
        arms = (self.trials.get(arm, {}) for arm in (question.before, question.after))
        return next((trial for trials in arms for trial in trials.values() if trial.train is not None), None)

    def record(self, question: Question) -> None:
        """Write down what the pairs so far say, once."""
        pairs = self.pairs(question)
        if question.name in self.recorded or not pairs:
            return
        self.recorded.add(question.name)
        verdict = compare(pairs, self.promise(question))
        fix = self.changes[question.name]
        record = evidence.Record(
            datetime.now(UTC).isoformat(timespec="seconds"), question.name, fix.title, fix.key, fix.effect,
            conditions(self.first(question), self.job.method), tuple(pairs), verdict,
            self.named or f"python3 tests/gpu/run_jobs.py {self.job.name}{self.how}", f"trl-lint {__version__}",
        )  # fmt: skip
        evidence.append(str(self.options.out / evidence.NAME), record)
        print(f"{self.job.name}: {question.name}: {verdict.name}: {redact(told(verdict))}", flush=True)


def told(verdict: Verdict) -> str:
    """The reason, and the start-up that a faster step has to earn back."""
    if verdict.startup_cost_seconds is None or abs(verdict.startup_cost_seconds) < 1:
        return verdict.reason
    return f"{verdict.reason}; start-up {verdict.startup_cost_seconds:+.0f} s"


# The command ----------------------------------------------------------------------------------------------------------


def _release(word: str) -> tuple[str, str]:
    version, _, folder = word.partition("=")
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"{folder or word}: no such folder; write 1.12.0=FOLDER")
    return version, os.path.abspath(folder)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("names", nargs="+", metavar="NAME", choices=[job.name for job in JOBS])
    made.add_argument("--minutes", type=float, required=True)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument(
        "--model",
        type=Path,
        default=os.environ.get("PROBE_MODEL", HERE / "model"),
        help="of make_model.py (default: PROBE_MODEL or %(default)s)",
    )
    made.add_argument("--release", type=_release, action="append", default=[], metavar="V=FOLDER")
    made.add_argument("--ask", action="append", default=[], metavar="QUESTION", help="only these questions of the jobs")
    made.add_argument("--forks", action="store_true", help="import TRL once for all trials")
    made.add_argument("--pairs", type=int, metavar="N", help="fewer or more than the jobs say")
    made.add_argument("--steps", type=int, metavar="N", help="likewise")
    made.add_argument("--cpu", action="store_true", help="rehearse without a GPU, best with a tiny model")
    made.add_argument("--cold", dest="warm", action="store_false", help="no trial before those that count")
    return made


def chosen(options: argparse.Namespace) -> list[Job]:
    """The named jobs as the options want them, but for those whose release is not there."""
    named = {job.name: job for job in JOBS}
    jobs = []
    for name in options.names:
        job = named[name]
        if job.trl not in options.release and job.trl != JOBS[0].trl:
            print(f"{name}: left out: it needs --release {job.trl}=FOLDER")
            continue
        questions = tuple(each for each in job.questions if not options.ask or each.name in options.ask)
        jobs.append(
            replace(job, questions=questions, pairs=options.pairs or job.pairs, steps=options.steps or job.steps)
        )
    return jobs


def forked(jobs: Sequence[Job], options: argparse.Namespace, stack: ExitStack) -> tuple[str, ...]:
    """What starts a script of these jobs, which are of one release, in a fork of a process that has imported it."""
    known = {**os.environ, **environment(jobs[0], options)}
    try:
        return stack.enter_context(
            nursery.started((sys.executable,), sorted({str(HERE / job.script) for job in jobs}), known)
        )
    except RuntimeError as error:
        print(f"{error}: every trial imports for itself", flush=True)
        return (sys.executable,)


def main(words: Sequence[str]) -> int:
    began = time.monotonic()
    options = parser().parse_args(words)
    deadline = began + options.minutes * 60 - ENDING
    options.release = dict(options.release)
    options.out.mkdir(parents=True, exist_ok=True)
    if not (options.model / "config.json").is_file():
        print(f"{options.model}: no model there; make one: python3 {shlex.quote(str(HERE / 'make_model.py'))} FOLDER")
        return 2
    baseline = gpu_memory()
    jobs = chosen(options)
    with ExitStack() as stack:
        forks: dict[str, tuple[str, ...]] = {}
        for job in jobs:
            if deadline - time.monotonic() < FIRST[job.vllm] and not options.cpu:
                print(f"{job.name}: left out: no time", flush=True)
                continue
            if options.forks and job.trl not in forks:
                forks[job.trl] = forked([other for other in jobs if other.trl == job.trl], options, stack)
            python = forks.get(job.trl, (sys.executable,))
            with tempfile.TemporaryDirectory(prefix="trl-lint-gpu-") as scratch:
                Running(job, options, Path(scratch), deadline, baseline, python).run()
    print(f"{time.monotonic() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
