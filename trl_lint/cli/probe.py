"""`trl-lint probe SCRIPT [-- ARGS]`: words in; the script run as it is and as fixed, alternating, and a verdict each, out."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from trl_lint import __version__
from trl_lint.cli import UsageError, check
from trl_lint.cli.discover import project_of
from trl_lint.model import Finding
from trl_lint.probe import evidence
from trl_lint.probe.comparison import Pair, Promise, Verdict, best, compare, needs_more
from trl_lint.probe.trials import Limits, Trial, TrialSpec, estimate, gpu_memory, run_trial, schedule
from trl_lint.probe.variants import Variant, shadow, variants
from trl_lint.reports.redaction import redact
from trl_lint.rulebook.files import Context, Examined

AS_IS = "as it is"
ONLINE = frozenset({"grpo", "rloo", "online_dpo", "nash_md", "xpo", "gold", "gkd", "distillation", "ppo"})
LEAST_PAIRS = 5
MOST_PAIRS = 12
A_TRIAL = 60.0
"""Seconds to expect of a trial before one has been run."""


def parser() -> argparse.ArgumentParser:
    """The options of `probe`."""
    made = argparse.ArgumentParser(
        prog="trl-lint probe", allow_abbrev=False,
        description="Run a training script as it is and as fixed, alternating, on this machine, and say what each fix does.",
        epilog="What follows -- is given to the script. Exit: 0 a verdict was reached, 1 something broke or nothing was confirmed, 2 could not run.",
    )  # fmt: skip
    add = made.add_argument
    add("script", metavar="SCRIPT")
    add(
        "--launcher",
        metavar="WORDS",
        help='what starts it (default: this Python): "accelerate launch --num_processes 2"',
    )
    add("--steps", type=int, default=8, metavar="N", help="optimizer steps of each trial (default: 8)")
    add("--pairs", type=int, default=LEAST_PAIRS, metavar="N", help="pairs of trials (default: 5, more while undecided, at most 12)")  # fmt: skip
    add("--minutes", type=float, default=60, metavar="M", help="the longest that one trial may take")
    add("--select", action="append", default=[], metavar="NAME", help="only the fixes of these rules")
    add("--dry-run", action="store_true", help="list the trials and what they may take, run nothing")
    for package in ("trl", "vllm", "transformers"):
        add(f"--{package}", metavar="V", help=argparse.SUPPRESS)
    add("--gpu", metavar="NAME[:N]", help=argparse.SUPPRESS)
    return made


def run(words: list[str]) -> int:
    """Run `probe`."""
    own, given = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    options = parser().parse_args(own)
    if not os.path.isfile(options.script):
        raise UsageError(f"{options.script}: no such file")
    examined, context = _examined(options)
    found, refused = variants(examined, context)
    chosen = {n for part in options.select for n in part.split(",")}
    found = [v for v in found if not chosen or v.name in chosen]
    for finding, why in refused:
        print(f"not tried: {finding.rule}: {why}")
    if not found:
        print(f"{options.script}: no fix to try.")
        return 0
    probe = _Probe(options, given, examined, found)
    if options.dry_run:
        return probe.dry_run()
    return probe.run()


def _examined(options: argparse.Namespace) -> tuple[Examined, Context]:
    """The group of files that the script belongs to, judged as `check` would judge it."""
    facts = [w for p in ("trl", "vllm", "transformers", "gpu") if (v := getattr(options, p)) for w in (f"--{p}", v)]
    checking = check.Check(check.parser().parse_args([*facts, "--no-cache", options.script]))
    group = checking.group(options.script)
    if group is None:
        raise UsageError(f"{options.script}: no TRL training found in it")
    return group


class _Probe:
    def __init__(
        self, options: argparse.Namespace, given: Sequence[str], examined: Examined, found: Sequence[Variant]
    ) -> None:
        self.options, self.given, self.examined, self.found = options, given, examined, found
        self.project = Path(project_of(options.script)).resolve()
        here = Path.cwd().resolve()
        # The folder that the script is started from, within the project: relative paths mean the same in the copy.
        self.inside = here.relative_to(self.project) if here.is_relative_to(self.project) else Path()
        self.script = Path(os.path.relpath(Path(options.script).resolve(), self.project / self.inside))
        self.trials: dict[str, dict[int, Trial]] = {}
        self.baseline = gpu_memory()

    def command(self) -> tuple[str, ...]:
        launcher = shlex.split(self.options.launcher) if self.options.launcher else [sys.executable]
        return (*launcher, self.script.as_posix(), *self.given)

    def dry_run(self) -> int:
        names = [AS_IS, *(v.name for v in self.found)]
        print(f"{len(names) * self.options.pairs} trials of {self.options.steps} steps: {shlex.join(self.command())}")
        for variant in self.found:
            print(f"  {variant.name}: {variant.title} ({', '.join(sorted(variant.changed))})")
        seconds = estimate([n for n in names for _ in range(self.options.pairs)], {}, A_TRIAL)
        print(f"at a minute each that is {seconds / 60:.0f} minutes")
        return 0

    def run(self) -> int:
        with tempfile.TemporaryDirectory(prefix="trl-lint-probe-") as scratch:
            folders = {AS_IS: Path(scratch) / "as-is"}
            shadow(self.project, folders[AS_IS], {})
            here = Path.cwd()
            for index, variant in enumerate(self.found):
                folders[variant.name] = Path(scratch) / f"variant-{index}"
                changed = {
                    (here / path).resolve().relative_to(self.project).as_posix(): data
                    for path, data in variant.changed.items()
                }
                shadow(self.project, folders[variant.name], changed)
            verdicts = self.measured(folders, Path(scratch) / "out")
        return self.report(verdicts)

    def measured(self, folders: dict[str, Path], out: Path) -> dict[str, Verdict]:
        """Every trial, A B B A …, until each variant has its pairs and its verdict."""
        waiting = {v.name for v in self.found}
        begun = -1
        for pair, name in schedule([AS_IS, *(v.name for v in self.found)], MOST_PAIRS):
            if pair != begun and pair >= self.options.pairs:
                waiting = {v.name for v in self.found if needs_more(self.pairs(v), self.promise(v))}
            begun = pair
            if not waiting:
                break
            if name != AS_IS and name not in waiting:
                continue
            spec = TrialSpec(
                name, self.command(), folders[name] / self.inside, out / f"{pair}-{list(folders).index(name)}",
                steps=self.options.steps, limits=Limits(whole=self.options.minutes * 60),
            )  # fmt: skip
            trial = run_trial(spec, baseline=self.baseline)
            self.trials.setdefault(name, {})[pair] = trial
            self.say(pair, name, trial)
            if trial.series.outcome in ("refused", "not reached") and name == AS_IS:
                raise UsageError(
                    f"{self.options.script}: {trial.series.error or trial.series.outcome}; {trial.reproduce}"
                )
        return {v.name: compare(self.pairs(v), self.promise(v)) for v in self.found}

    def say(self, pair: int, name: str, trial: Trial) -> None:
        series = trial.series
        steps = sorted(series.seconds[2:] or series.seconds)
        what = (
            f"{steps[len(steps) // 2]:.3f} s/step" if steps and series.trained else f"{series.outcome}: {series.error}"
        )
        print(redact(f"pair {pair + 1}, {name}: {what} ({trial.seconds:.0f} s)"), file=sys.stderr)

    def pairs(self, variant: Variant) -> list[Pair]:
        """The pairs in which both were run."""
        as_is, fixed = self.trials.get(AS_IS, {}), self.trials.get(variant.name, {})
        return [(as_is[n].series, fixed[n].series) for n in sorted(as_is.keys() & fixed.keys())]

    def promise(self, variant: Variant) -> Promise:
        methods = {f.method for f in variant.findings}
        first = next(iter(self.trials.get(AS_IS, {}).values()), None)
        train = first.train if first is not None else None
        fields = train.get("fields", {}) if train is not None else {}
        exact = (
            train is not None and str(train.get("device")) == "cpu" and not (fields.get("bf16") or fields.get("fp16"))
        )
        return Promise(variant.effect, bool(methods & ONLINE), exact)

    def report(self, verdicts: dict[str, Verdict]) -> int:
        path = evidence.place(str(self.project))
        width = max(len(name) for name in verdicts)
        for variant in self.found:
            verdict = verdicts[variant.name]
            print(redact(f"{variant.name:{width}}  {verdict.name}: {_told(verdict)}"))
            self.record(path, variant, verdict)
        kept = best(verdicts)
        if kept is not None:
            print(f"fastest that was confirmed: {kept}")
        print(f"recorded in {os.path.relpath(path)}")
        good = any(v.name in ("confirmed", "repaired") for v in verdicts.values())
        broke = any(v.name == "broken" for v in verdicts.values())
        return 0 if good and not broke else 1

    def record(self, path: str, variant: Variant, verdict: Verdict) -> None:
        trial = next((t for t in self.trials.get(variant.name, {}).values() if t.train is not None), None)
        finding: Finding = variant.findings[0]
        evidence.append(
            path,
            evidence.Record(
                datetime.now(UTC).isoformat(timespec="seconds"), variant.name, variant.title,
                finding.fix.key if finding.fix is not None else "", variant.effect,
                _conditions(trial, finding), tuple(self.pairs(variant)), verdict,
                shlex.join(["trl-lint", "probe", self.options.script, "--select", variant.name]), f"trl-lint {__version__}",
            ),
        )  # fmt: skip


def _conditions(trial: Trial | None, finding: Finding) -> evidence.Conditions:
    train = trial.train if trial is not None else None
    if train is None:
        return evidence.Conditions(method=finding.method)
    return evidence.Conditions(
        finding.method, train.get("model") or {}, evidence.fields_that_matter(train.get("fields") or {}),
        {"gpu": train.get("gpu"), "count": trial.ranks if trial is not None else None}, train.get("versions") or {},
    )  # fmt: skip


def _told(verdict: Verdict) -> str:
    """The numbers of a verdict in one line."""
    if verdict.payback_steps:
        return f"{verdict.reason}; a slower start pays back after {verdict.payback_steps} steps"
    return verdict.reason
