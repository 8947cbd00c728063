"""A job and its variants in; every trial run in turn, A B B A …, and what each variant is worth here, out: a `Probed`.

Fixes are judged one at a time, then those that won together, for they interact. Where the script as it is does not
train, what repairs it comes first and the others are judged on top of that.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from trl_lint import __version__
from trl_lint.model import Finding, Severity
from trl_lint.probe import evidence, hardware
from trl_lint.probe.comparison import RULES, Pair, Promise, Verdict, best, compare, needs_more
from trl_lint.probe.evidence import Conditions, Record
from trl_lint.probe.probed import AS_IS, Probed, Ran, Tried
from trl_lint.probe.scratch import Scratch
from trl_lint.probe.starts import Start
from trl_lint.probe.trials import Limits, Trial, TrialSpec, estimate, gpu_memory, reproduce, run_trial, schedule
from trl_lint.probe.variants import Refused, Variant, diff, placed, shadow, together, variants
from trl_lint.reports.redaction import redact
from trl_lint.rulebook.files import Context, Examined

ONLINE = frozenset({"grpo", "rloo", "online_dpo", "nash_md", "xpo", "gold", "gkd", "distillation", "ppo"})
A_TRIAL = 60.0
"""Seconds to expect of a trial before one has been run."""
WARM_UP = "warm-up"
SINGLES = 0.7
"""Of the time that there is, what the fixes by themselves may take, for those that win are then tried together."""
PLACE = "here"
"""The folder, of all copies the same, in which a trial runs."""
GOOD = ("confirmed", "repaired")
TAIL_LINES = 12


class CannotProbe(RuntimeError):
    """One line: the script as it is never came to train, for a reason that no fix is about."""


class Listener(Protocol):
    """Who hears what is going on. `left` is in seconds, an estimate; `pair` counts from 0, None for the warm-up."""

    def begins(self, pair: int | None, name: str, left: float) -> None: ...

    def steps(self, step: int) -> None: ...

    def ended(self, pair: int | None, name: str, trial: Trial) -> None: ...


class Silence:
    """A listener that says nothing."""

    def begins(self, pair: int | None, name: str, left: float) -> None:
        """A trial begins."""

    def steps(self, step: int) -> None:
        """It has done that many steps."""

    def ended(self, pair: int | None, name: str, trial: Trial) -> None:
        """A trial has ended."""


@dataclass(frozen=True)
class Job:
    """What is run. `start` says how a variant is started, None being the script as it is.

    `before` holds the bytes of the files that variants change, by the paths that variants use, which are relative to
    `here`; `project` is copied for each variant. `command` is what a person types to do it again.
    `keep` is a folder that takes the copies and what the trials wrote, and is left there. `minutes` are those that all
    trials together may take, None as many as it takes; what is then left open cannot be told.
    """

    script: str
    project: Path
    here: Path
    start: Callable[[Variant | None], Start]
    before: Mapping[str, bytes] = field(default_factory=dict)
    method: str | None = None
    command: str = ""
    steps: int = 8
    pairs: int = RULES.pairs
    seed: int = 42
    keep: Path | None = None
    limits: Limits = field(default_factory=Limits)
    minutes: float | None = None

    @property
    def most(self) -> int:
        """The pairs after which an undecided comparison ends; a person who asks for fewer than a verdict takes gets those."""
        return max(self.pairs, RULES.most_pairs) if self.pairs >= RULES.pairs else self.pairs


@dataclass
class _Stage:
    """Variants measured against one base, in the same pairs. `first` is the number of its first pair."""

    base: Variant | None
    variants: list[Variant]
    first: int
    trials: dict[str, dict[int, Trial]] = field(default_factory=dict)

    def pairs(self, variant: Variant) -> list[Pair]:
        """The pairs in which both the base and the variant were run."""
        base, fixed = self.trials.get(AS_IS, {}), self.trials.get(variant.name, {})
        return [(base[n].series, fixed[n].series) for n in sorted(base.keys() & fixed.keys())]


class Session:
    """The trials of one job: a context manager, for the copies of the project are removed when it ends."""

    def __init__(self, job: Job, listener: Listener | None = None) -> None:
        self.job = job
        self.listener: Listener = listener or Silence()
        self.verdicts: dict[str, Verdict] = {}
        self.known: dict[str, Record] = {}
        self.warm_up: Trial | None = None
        self.base: Variant | None = None
        self.stages: list[_Stage] = []
        self.refused: list[Refused] = []
        self.notes: list[str] = []
        self._free = gpu_memory()
        self._temporary: Scratch | None = None
        self._began = datetime.now(UTC)
        self._deadline = math.inf if job.minutes is None else time.monotonic() + job.minutes * 60
        self._folders: dict[str, Path] = {}
        self._seconds: dict[str, list[float]] = {}
        self._warmed: set[str] = set()

    def __enter__(self) -> Session:
        if self.job.keep is None:
            self._temporary = Scratch()
            self._scratch = self._temporary.folder
            return self
        self._scratch = self.job.keep.absolute()
        try:
            self._scratch.mkdir(parents=True)
        except OSError as error:
            raise CannotProbe(f"{self.job.keep}: {error.strerror}; name a folder that is not there yet") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._temporary is not None:
            self._temporary.close()

    # what is run -------------------------------------------------------------------------------------------------------

    def search(
        self, examined: Examined, context: Context, wanted: Callable[[Finding], bool],
        recorded: evidence.Evidence | None = None,
    ) -> None:  # fmt: skip
        """Every wanted fix by itself, then the winners together. Of fixes with a record in `recorded` that still holds
        the verdict is taken from there. Raises CannotProbe."""
        found, self.refused = variants(examined, context, wanted)
        if not found:
            return
        if self._warm(found).series.trained:
            self.measure(
                [v for v in found if recorded is None or not self._recorded(v, recorded)],
                share=SINGLES if len(found) > 1 else 1.0,
            )
        else:
            self.base = self._repaired(found, examined, context)
            if self.base is None:
                return
            others, refused = variants(examined, context, wanted, self.base.findings)
            self.refused += refused
            self.measure(others, self.base)
        winners = self._winners()
        combined = together(winners, examined, context)
        if combined is None or any(v.changed == combined.changed for s in self.stages for v in s.variants):
            return
        if recorded is not None and self._recorded(combined, recorded):
            return
        if (
            estimate([AS_IS, combined.name] * self.job.pairs, self._seconds, A_TRIAL)
            > self._deadline - time.monotonic()
        ):
            self.notes.append(f"no time to try {combined.name} of what won together")
            return
        self.measure([combined], self.base)

    def measure(self, found: Sequence[Variant], base: Variant | None = None, *, share: float = 1.0) -> None:
        """Judge each variant against `base` (None: the script as it is), all in the same pairs, within that share of the
        time that is left. Raises CannotProbe. What ends it early, Ctrl-C too, leaves verdicts over the pairs so far."""
        if not found:
            return
        self._warm(found)
        until = time.monotonic() + (self._deadline - time.monotonic()) * share
        stage = _Stage(base, list(found), sum(self._length(s) for s in self.stages))
        self.stages.append(stage)
        if base is None and self.warm_up is not None and not self.warm_up.series.trained:
            stage.trials[AS_IS] = {stage.first: self.warm_up}  # it stopped cold or warm: that is no measurement
        try:
            self._measure(stage, until)
        finally:
            for one in found:
                if pairs := stage.pairs(one):
                    self.verdicts[one.name] = compare(pairs, self.promise(one))

    def _measure(self, stage: _Stage, until: float) -> None:
        base, found = stage.base, stage.variants
        waiting = {v.name for v in found}
        begun = -1
        for pair, variant in schedule([base, *found] if base is not None else [None, *found], self.job.most):
            if pair != begun:
                waiting = {v.name for v in found if v.name in waiting and self._wants(stage, v, pair)}
                waiting = self._fitting(stage, waiting, pair, until)
                begun = pair
            if not waiting:
                break
            name = AS_IS if variant is base else variant.name if variant is not None else AS_IS
            if (name != AS_IS and name not in waiting) or stage.first + pair in stage.trials.get(name, {}):
                continue
            left = estimate(self._ahead(stage, waiting, pair), self._seconds, A_TRIAL)
            trial = self._run(variant, stage.first + pair, name, left)
            stage.trials.setdefault(name, {})[stage.first + pair] = trial

    def _fitting(self, stage: _Stage, waiting: set[str], pair: int, until: float) -> set[str]:
        """Those of which a verdict can be had by then, after a first pair of each: the slowest are given up first.
        One that is left alone takes all the time, as nothing will be tried together with it."""
        so_far = {v.name: compare(stage.pairs(v), self.promise(v)) for v in stage.variants}
        kept = sorted(waiting, key=lambda name: -(so_far[name].ratio or 1.0))
        others = {name: one for name, one in {**self.verdicts, **so_far}.items() if name not in waiting}
        alone = all(one.name not in GOOD for one in others.values())
        now = time.monotonic()
        while pair and kept:
            left = (self._deadline if alone and len(kept) == 1 else until) - now
            if estimate(self._ahead(stage, set(kept), pair), self._seconds, A_TRIAL) <= left:
                break
            name = kept.pop()
            if pair < self.job.pairs:
                self.notes.append(f"no time for the pairs that a verdict on {name} takes")
        return set(kept)

    def _warm(self, found: Sequence[Variant]) -> Trial:
        """One trial of the script as it is, not counted: a cold machine is slow, and what cannot start is known at once."""
        if self.warm_up is not None:
            return self.warm_up
        taken = hardware.look({**os.environ, **self.job.start(None).environment}).taken()
        self.notes += [str(flaw) for flaw in hardware.shared(taken)]
        names = [AS_IS, *(v.name for v in found)]
        left = estimate([AS_IS, *(n for n in names for _ in range(self.job.pairs))], {}, A_TRIAL)
        self.warm_up = self._run(None, None, AS_IS, left)
        if why := _hopeless(self.warm_up):
            raise CannotProbe(f"{self.job.script}: {why}; {self._by_hand()}")
        return self.warm_up

    def _recorded(self, variant: Variant, recorded: evidence.Evidence) -> bool:
        """Whether a record that still holds spares the measurement; its verdict is then the variant's."""
        assert self.warm_up is not None
        now = conditions(self.warm_up, self.job.method)
        record = recorded.for_finding(variant.rule, now.method, key=variant.key, now=now)
        if record is None or record.title != variant.title or record.verdict.name == "cannot tell":
            return False
        if evidence.stale(record, now):
            return False
        self.known[variant.name] = record
        self.verdicts[variant.name] = record.verdict
        self.stages.append(_Stage(None, [variant], 0))
        return True

    def _repaired(self, found: Sequence[Variant], examined: Examined, context: Context) -> Variant | None:
        """What makes a script train that does not: the fixes of all errors, else a single one, else everything."""

        def repairs(variant: Variant | None) -> Variant | None:
            if variant is None:
                return None
            self.measure([variant])
            return variant if self.verdicts[variant.name].name == "repaired" else None

        errors = [f for v in found for f in v.findings if f.severity is Severity.error]
        if all_errors := repairs(together(errors, examined, context, "repairs")):
            return all_errors
        self.measure(found)
        single = next((v for v in found if self.verdicts[v.name].name == "repaired"), None)
        return single or repairs(together([f for v in found for f in v.findings], examined, context))

    def _winners(self) -> list[Finding]:
        """What the fixes that won solve, the repairs first, then the fastest."""
        good = [v for s in self.stages for v in s.variants if self.verdicts[v.name].name in GOOD]
        good.sort(key=lambda v: (self.verdicts[v.name].name != "repaired", -(self.verdicts[v.name].ratio or 1.0)))
        return _once(f for v in good for f in v.findings)

    def _wants(self, stage: _Stage, variant: Variant, pair: int) -> bool:
        """Whether a variant gets pair number `pair` of its stage."""
        pairs, promise = stage.pairs(variant), self.promise(variant)
        if pairs and compare(pairs, promise).name == "changes training":
            return False
        if pair < self.job.pairs and all(a.trained and b.trained for a, b in pairs):
            return True
        return needs_more(pairs, promise)

    def _ahead(self, stage: _Stage, waiting: set[str], pair: int) -> Iterator[str]:
        names = (AS_IS, *(v.name for v in stage.variants if v.name in waiting))
        for number in range(pair, max(self.job.pairs, pair + 1)):
            yield from (n for n in names if stage.first + number not in stage.trials.get(n, {}))

    def _run(self, variant: Variant | None, pair: int | None, name: str, left: float) -> Trial:
        """One trial of a variant; a second one where the first compiled kernels, which no training does more than once."""
        copy, label = self._copy(variant), _label(variant)
        out = self._scratch / "out" / f"{WARM_UP if pair is None else pair}-{list(self._folders).index(label)}"
        first = label not in self._warmed
        self._warmed.add(label)
        with placed(copy, self._scratch / PLACE):
            spec = self._spec(variant, self._scratch / PLACE, name, out)
            self.listener.begins(pair, name, left)
            trial = self._once(spec)
            if first and pair is not None and trial.compiled and trial.series.trained:
                self.listener.ended(None, name, trial)
                self.listener.begins(pair, name, left)
                trial = self._once(replace(spec, out=out.with_name(f"{out.name}-again")))
        trial = replace(trial, reproduce=reproduce(self._spec(variant, copy, name, trial.spec.out)))
        self.listener.ended(pair, name, trial)
        return trial

    def _spec(self, variant: Variant | None, folder: Path, name: str, out: Path) -> TrialSpec:
        """What is run of a variant whose copy stands in `folder`."""
        start = self.job.start(variant)
        server = start.server
        if server is not None:
            server = replace(server, cwd=folder / (server.cwd or Path()))
        return TrialSpec(
            name, start.command, folder / start.folder, out,
            environment=start.environment, steps=self.job.steps, seed=self.job.seed, limits=self.job.limits, server=server,
            holds=(self._temporary.hold,) if self._temporary is not None else (),
        )  # fmt: skip

    def _once(self, spec: TrialSpec) -> Trial:
        trial = run_trial(spec, baseline=self._free, on_step=self.listener.steps)
        self.notes += [note for note in trial.notes if note not in self.notes]
        self._seconds.setdefault(spec.name, []).append(trial.seconds)
        return trial

    def _copy(self, variant: Variant | None) -> Path:
        """The copy of the project that holds a variant."""
        label = _label(variant)
        if label not in self._folders:
            folder = self._scratch / f"{len(self._folders)}"
            project, here = self.job.project, self.job.here
            given = {} if variant is None else variant.changed
            changed = {(here / p).resolve().relative_to(project).as_posix(): data for p, data in given.items()}
            shadow(project, folder, changed, self._scratch)
            self._folders[label] = folder
        return self._folders[label]

    # what it says ------------------------------------------------------------------------------------------------------

    def promise(self, variant: Variant) -> Promise:
        """What the pages say of the variant's fixes, and how exact the arithmetic is that it trains with."""
        methods = {f.method for f in variant.findings} | {self.job.method}
        train = self._train()
        fields = (train.get("fields") or {}) if train is not None else {}
        exact = (
            train is not None and str(train.get("device")) == "cpu" and not (fields.get("bf16") or fields.get("fp16"))
        )
        return Promise(variant.effect, bool(methods & ONLINE), exact)

    def _train(self) -> Mapping[str, Any] | None:
        """What was trained, of the first trial that came so far: the script as it is, if ever that does."""
        trials = [
            t
            for s in self.stages
            for name in sorted(s.trials, key=lambda n: n != AS_IS)
            for t in s.trials[name].values()
        ]
        first = [self.warm_up] if self.warm_up is not None else []
        return next((t.train for t in (*first, *trials) if t.train is not None), None)

    def kept(self) -> Variant | None:
        """The variant to keep: the fastest confirmed one that trains, with what repairs the script in it."""
        known = {v.name: v for s in self.stages for v in s.variants}
        if self.base is not None:
            later = {n: d for n, d in self.verdicts.items() if d.name == "confirmed"}
            name = best(later)
            return known[name] if name is not None else self.base
        name = best(self.verdicts)
        return known[name] if name is not None else None

    def findings(self, name: str) -> tuple[Finding, ...]:
        """What a variant is about: one finding, or all those that it solves together."""
        variant = {v.name: v for s in self.stages for v in s.variants}[name]
        return variant.findings if variant.about is None else (variant.about,)

    def probed(self) -> Probed:
        """Everything so far, as reports need it."""
        kept = self.kept()
        first = self.warm_up
        tried = [
            Tried(
                v.name, v.title, v.effect, v.rules, diff(v.changed, self.job.before), self.verdicts[v.name],
                tuple(self._ran(n, t) for n, t in sorted(s.trials.get(v.name, {}).items())),
                self.known[v.name].date if v.name in self.known else None,
            )
            for s, v in self._last()
        ]  # fmt: skip
        as_is = [
            replace(self._ran(n, t), notes=(f"with {', '.join(s.base.rules)} fixed",) if s.base is not None else ())
            for s in self.stages
            for n, t in sorted(s.trials.get(AS_IS, {}).items())
        ]
        return Probed(
            self.job.script, self.job.command, self._began.isoformat(timespec="seconds"), f"trl-lint {__version__}",
            self.job.steps, (datetime.now(UTC) - self._began).total_seconds(),
            conditions(first, self.job.method), tuple(as_is), tuple(tried), kept.name if kept is not None else None,
            tuple((f.rule, why) for f, why in self.refused), tuple(self.notes),
        )  # fmt: skip

    def _ran(self, pair: int, trial: Trial) -> Ran:
        tail = () if trial.series.trained else tail_of(trial.stderr)
        again = trial.reproduce if self.job.keep is not None else self.job.command
        return Ran(pair, trial.series, trial.seconds, again, tail, trial.notes)

    def _by_hand(self) -> str:
        """What to type to see the script as it is do the same, without us."""
        begun = self.job.start(None)
        words = [f"{name}={shlex.quote(value)}" for name, value in begun.environment.items()]
        return redact(
            f"(cd {shlex.quote(str(self.job.project / begun.folder))} && {' '.join([*words, shlex.join(begun.command)])})"
        )

    def _last(self) -> list[tuple[_Stage, Variant]]:
        """Each variant in the stage that judged it last: one that was judged on top of the repairs counts there."""
        return list({v.name: (s, v) for s in self.stages for v in s.variants if v.name in self.verdicts}.values())

    def records(self) -> Iterator[Record]:
        """What was measured, for the evidence file."""
        for stage, variant in self._last():
            pairs = stage.pairs(variant)
            if variant.name in self.known or not pairs:
                continue
            first = next((t for t in stage.trials.get(AS_IS, {}).values() if t.train is not None), None)
            fixed = next((t for t in stage.trials.get(variant.name, {}).values() if t.train is not None), None)
            where = conditions(first or fixed, self.job.method)
            if first is None:
                # Only the fixed script came to train: what the fixes set is not what was there.
                mine = {i.name for f in variant.findings if f.fix is not None for i in f.fix.intents}
                where = replace(where, fields={n: v for n, v in where.fields.items() if n not in mine})
            yield Record(
                datetime.now(UTC).isoformat(timespec="seconds"), variant.rule, variant.title, variant.key, variant.effect,
                where, tuple(pairs), self.verdicts[variant.name], self.job.command, f"trl-lint {__version__}",
            )  # fmt: skip

    def _length(self, stage: _Stage) -> int:
        return max((n + 1 - stage.first for trials in stage.trials.values() for n in trials), default=0)


def conditions(trial: Trial | None, method: str | None) -> Conditions:
    """What a trial ran on and with, as evidence records it."""
    train = trial.train if trial is not None else None
    if trial is None or train is None:
        return Conditions(method=method)
    return Conditions(
        method, train.get("model") or {}, evidence.fields_that_matter(train.get("fields") or {}),
        {"gpu": train.get("gpu"), "count": trial.ranks}, train.get("versions") or {},
    )  # fmt: skip


_MISSING = re.compile(r"ModuleNotFoundError: No module named '(?!trl\b)([^'.]+)")


def _hopeless(trial: Trial) -> str | None:
    """Why the script as it is does not come to train, where no fix could be the remedy."""
    series = trial.series
    if series.outcome in ("refused", "not reached") or trial.cause in ("hub", "disk", "stdin"):
        return series.error or series.outcome
    if missing := _MISSING.search(series.error or ""):
        name = missing[1]
        return f"no {name} in the environment that it runs in; start trl-lint with the Python that trains, or name it with --launcher"
    return None


def tail_of(path: Path, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last lines of what a trial printed, without secrets."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 20_000))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    shown = [line.rpartition("\r")[2].rstrip() for line in text.splitlines()]
    return tuple(redact(line)[:400] for line in shown if line)[-lines:]


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Each of them once, in order: findings have no hash."""
    found: list[Finding] = []
    for finding in findings:
        if finding not in found:
            found.append(finding)
    return found


def _label(variant: Variant | None) -> str:
    """Of two variants with one name, one on top of the repairs and one not, each has a copy of its own."""
    return "" if variant is None else f"{variant.name} {len(variant.findings)}"
