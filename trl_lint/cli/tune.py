"""`trl-lint tune FILE [-- ARGS]`: words in; the settings that make the run fastest here, without another training, out."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trl_lint.cli import UsageError, probe
from trl_lint.cli.options import names
from trl_lint.cli.progress import progress
from trl_lint.fixing.writing import NotWritten, replace_file
from trl_lint.model import Derived, Effect, Known, Value
from trl_lint.probe import evidence, hardware
from trl_lint.probe.comparison import RULES
from trl_lint.probe.probed import Probed
from trl_lint.probe.session import CannotProbe, Job, Silence
from trl_lint.probe.space import Allowed, Refused, Space, knob_names
from trl_lint.probe.table import headline, history, where
from trl_lint.probe.variants import Variant, diff
from trl_lint.reports.redaction import redact
from trl_lint.rulebook.files import Context, Examined

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from trl_lint.probe.search import Found, Trials

DATABASE = "tune.db"
LEAST_TRIALS = 2
"""The run as it is and one other: with fewer there is nothing to compare."""


def parser() -> argparse.ArgumentParser:
    """The options of `tune`."""
    made = argparse.ArgumentParser(
        prog="trl-lint tune", allow_abbrev=False,
        description="Search the settings that make a training fastest on this machine and leave what is learned the same.",
        epilog="What follows -- is given to the script. Exit: 0 a gain was confirmed, 1 none was, 2 could not run.",
    )  # fmt: skip
    add = made.add_argument
    add("file", metavar="FILE", help="a training script, or the launch file or recipe that starts one")
    add("--apply", action="store_true", help="write the settings into the files if their gain was confirmed")
    add("--print-command", action="store_true", help="print the command that starts the tuned run")
    add("--summary", metavar="FILE", help="write what was found as Markdown, for a pull request")
    add("--report", metavar="FILE", help="write what was found as one HTML page")
    add("--dry-run", action="store_true", help="list what would be searched, run nothing")
    space = made.add_argument_group("what is searched")
    space.add_argument("--allow", choices=("numerics",), help="also what rounds otherwise: batch x accumulation, attention, fused kernels, compilation")  # fmt: skip
    space.add_argument("--allow-training", action="append", default=[], metavar="NAME", help="also this setting or rule, though it is another training")  # fmt: skip
    budget = made.add_argument_group("how long")
    budget.add_argument("--trials", type=_whole, default=30, metavar="N", help="trials of the search (default: 30)")
    budget.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="minutes of all trials: the search leaves time for the pairs at the end",
    )
    budget.add_argument("--patience", type=_whole, default=15, metavar="N", help="end after so many trials that were no faster (default: 15)")  # fmt: skip
    trial = made.add_argument_group("each trial")
    trial.add_argument("--launcher", metavar="WORDS", help="what starts the script, as for probe")
    trial.add_argument("--steps", type=_whole, default=8, metavar="N", help="optimizer steps (default: 8)")
    trial.add_argument("--pairs", type=_whole, default=RULES.pairs, metavar="N", help=f"pairs of the comparison at the end (default: {RULES.pairs})")  # fmt: skip
    trial.add_argument("--trial-minutes", type=float, default=60, metavar="M", help="the longest that one may take (default: 60)")  # fmt: skip
    trial.add_argument("--silent-minutes", type=float, default=10, metavar="M", help="without a step or output for so long it counts as hung (default: 10)")  # fmt: skip
    sharing = made.add_argument_group("the study")
    sharing.add_argument("--seed", type=int, default=0, metavar="N", help="of the search (default: 0)")
    sharing.add_argument("--storage", metavar="URL", help="where it is kept: sqlite:///…, postgresql+psycopg://…, grpc://host:port (default: .trl-lint/tune.db)")  # fmt: skip
    sharing.add_argument("--resume", action="store_true", help="go on with the study of these very files")
    sharing.add_argument("--worker", action="store_true", help="only run trials of a study that another tune has begun")
    sharing.add_argument("--workers", type=_whole, default=1, metavar="K", help="workers on this machine, each with one free GPU to itself")  # fmt: skip
    add("--number", type=int, default=0, help=argparse.SUPPRESS)
    probe.fact_options(made)
    return made


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def run(words: list[str]) -> int:
    """Run `tune`."""
    own, given = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    options = parser().parse_args(own)
    _checked(options)
    examined, context = probe.examined(options)
    # The comparison at the end takes the time that it takes.
    trial = argparse.Namespace(**{**vars(options), "minutes": None, "keep": None})
    job = probe.job_of(trial, given, examined, ["tune", *own, *(["--", *given] if given else [])])
    space = _space(options, examined, context, job)
    for note in space.notes:
        print(f"trl-lint: {note}", file=sys.stderr)
    withheld = _withheld(space)
    if space.size == 1:
        print(f"{options.file}: nothing to tune{f'; {withheld}' if withheld else ''}.")
        return 0
    if withheld and not options.worker:
        print(f"{withheld[:1].upper()}{withheld[1:]}.")
    if options.dry_run:
        return _dry_run(space)
    try:
        with probe.ending_well():
            return _tuned(options, own, given, job, space)
    except CannotProbe as error:
        raise UsageError(str(error)) from None


def _checked(options: argparse.Namespace) -> None:
    if not os.path.isfile(options.file):
        raise UsageError(f"{options.file}: no such file")
    if options.trials < LEAST_TRIALS:
        raise UsageError(f"--trials {options.trials}: a search compares at least {LEAST_TRIALS} settings")
    if options.pairs < RULES.pairs:
        raise UsageError(f"--pairs {options.pairs}: a verdict takes at least {RULES.pairs}")
    if options.steps <= RULES.warmup + 1:
        raise UsageError(f"--steps {options.steps}: the first {RULES.warmup} only warm up; take {RULES.warmup + 2} or more")  # fmt: skip
    if options.worker and (options.workers > 1 or options.apply or options.resume):
        raise UsageError("--worker runs trials for another tune, which has the --workers, --resume and --apply")


def _space(options: argparse.Namespace, examined: Examined, context: Context, job: Job) -> Space:
    rules = context.rules_of(options.file)
    named = frozenset(names(options.allow_training))
    for name in sorted(named - knob_names(rules)):
        raise UsageError(f"--allow-training {name}: there is no such setting or rule; --dry-run lists those that apply")
    effects: set[Effect] = {"same", "numerics"} if options.allow == "numerics" else {"same"}
    begun = job.start(None)
    told: dict[str, Value] = {}
    if options.launcher is None and os.path.basename(begun.command[0]).startswith("python"):
        told["world_size"] = told["launch.num_processes"] = Known(1, Derived("it is started by python"))
    return Space(examined, context, os.path.normpath(options.file), Allowed(frozenset(effects), named), rules, told)


def _withheld(space: Space) -> str | None:
    """What could be searched, too, and how to ask for it."""
    asked = sorted(name for name, effect in space.withheld.items() if effect == "numerics")
    return f"not searched, as they round otherwise: {', '.join(asked)}; ask for them with --allow numerics" if asked else None  # fmt: skip


def _dry_run(space: Space) -> int:
    later = [choice.name for choice in space.choices if not space.applies(choice)]
    for choice in space.choices:
        if choice.name not in later:
            shown = ", ".join(choice.labels if choice.knob is not None else ("off", "on"))
            print(f"  {choice.name}: {shown} ({choice.effect})")
    for name, effect in space.withheld.items():
        print(f"  {name}: not searched ({effect})")
    if later:
        print(f"  not as the run stands, only where another choice makes it possible: {', '.join(sorted(later))}")
    print(f"{space.size} points, and those that a choice makes possible.")
    return 0


# The search ----------------------------------------------------------------------------------------------------------


def _tuned(options: argparse.Namespace, own: Sequence[str], given: Sequence[str], job: Job, space: Space) -> int:
    try:
        from trl_lint.probe import search
    except ImportError as error:
        raise UsageError(f"tune needs {error.name}: pip install 'trl-lint[probe,tune]'") from None
    free = _free(options.workers) if options.workers > 1 else []
    folder = os.path.dirname(evidence.place(str(job.project)))
    url = options.storage or f"sqlite:///{os.path.join(folder, DATABASE)}"
    begun = job.start(None)
    told = search.Identity(
        options.file, search.digests({p: job.before[p] for p in space.examined.paths if p in job.before}),
        space.fingerprint, job.steps, shlex.join([os.path.basename(begun.command[0]), *begun.command[1:]]),
    )  # fmt: skip
    try:
        storage = search.opened(url)
        budget = search.Budget(options.trials, options.minutes, options.patience, options.pairs)
        study = search.study_of(told, storage, budget, space, resume=options.resume, join=options.worker)
    except search.CannotTune as error:
        raise UsageError(str(error)) from None
    others = list(_workers(options, own, given, free)) if options.workers > 1 else []
    try:
        with search.Trials(job, Silence()) as session:
            one = search.Search(
                study, space, session.measured, seed=options.seed, worker=options.number, heard=_telling(study)
            )
            reason = one.run()
            if options.worker:
                return 0
            for other in others:
                other.wait()
            return _result(options, session, space, search.found(study, reason))
    except KeyboardInterrupt:
        if not options.worker:
            print(f"trl-lint: {options.file}: what was tried is kept; go on with --resume", file=sys.stderr)
        raise
    finally:
        for other in others:
            other.terminate()
            other.wait()


def _free(workers: int) -> list[str]:
    """The GPUs that nobody uses, enough for all workers; none on a machine without GPUs."""
    machine = hardware.look()
    free = [str(gpu.index) for gpu in machine.gpus if gpu.visible is not False and not hardware.shared([gpu])]
    if machine.gpus and len(free) < workers:
        raise UsageError(f"--workers {workers}: only {len(free)} of the GPUs {'is' if len(free) == 1 else 'are'} free")
    return free


def _workers(
    options: argparse.Namespace, own: Sequence[str], given: Sequence[str], free: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """The other workers, each with one of the free GPUs, if there are any; ours is the first."""
    dropped = ("--apply", "--resume", "--print-command")
    words = [word for word in own if word not in dropped]
    for number in range(options.workers):
        pinned = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": free[number]} if free else {}
        if number == 0:
            os.environ.update(pinned)
            continue
        command = [
            sys.executable,
            "-m",
            "trl_lint",
            "tune",
            *words,
            "--workers",
            "1",
            "--worker",
            "--number",
            str(number),
        ]
        yield subprocess.Popen(
            [*command, *(["--", *given] if given else [])],
            env={**os.environ, **pinned}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip


def _telling(study: Study) -> Callable[[FrozenTrial], None]:
    """What is printed of each trial when it has ended."""
    from trl_lint.probe.search import was_run

    def tell(trial: FrozenTrial) -> None:
        known = trial.user_attrs
        count = sum(was_run(t) for t in study.get_trials(deepcopy=False))
        speed = f"{trial.value:.4g} {study.user_attrs.get('metric')}" if known["outcome"] == "trained" else ""
        what = redact(speed or known.get("error") or known["outcome"])
        of = study.user_attrs["budget"]["trials"]
        print(f"{count} of {of}: {what}: {known['title']} ({known['took']:.0f} s)", file=sys.stderr, flush=True)

    return tell


# The result ----------------------------------------------------------------------------------------------------------


def _result(options: argparse.Namespace, session: Trials, space: Space, found: Found) -> int:
    """Compare the best point with the run as it is; print, record and write what came of it."""
    from trl_lint.probe.search import SIMPLER, TUNED

    told = found.told
    if found.point is None:
        most = f"; most often: {redact(told.failures[0][0])}" if told.failures else ""
        raise UsageError(f"{options.file}: none of {len(told.attempts)} trials trained{most}")
    if len(told.attempts) < LEAST_TRIALS:
        raise UsageError(f"{options.file}: {told.ended} before two settings had been tried; give it more")
    try:
        best = space.variant(found.point, TUNED)
        simpler = space.variant(found.simpler, SIMPLER) if found.simpler is not None else None
    except Refused as error:  # it was written before: only if the files have changed meanwhile
        raise UsageError(f"{options.file}: {error}") from None
    if best is None:
        print("\n".join(history(told)))
        print("Nothing was faster than the run as it is.")
        return 1
    session.told = told
    session.listener = progress()
    session.measure([best] if simpler is None else [best, simpler])
    kept = session.kept()
    if kept is not None and kept.name == SIMPLER and (verdict := session.over_simpler()):
        session.notes.append(f"{best.title} is not kept: over {kept.title} it is {verdict.reason}")
    code = probe.report(session, options.report)
    probed = session.probed()
    if options.summary is not None:
        _write(options.summary, plain(probed, found, kept or best, session.job))
    if kept is None:
        return code
    print(redact(diff(kept.changed, session.job.before)), end="")
    if options.apply:
        _apply(kept, session.job)
    if options.print_command:
        print(_command(kept, session.job))
    return 0


def plain(probed: Probed, found: Found, best: Variant, job: Job) -> str:
    """What a person can paste into a pull request."""
    lines = [
        f"### {headline(probed)}", "",
        f"Measured by {probed.tool} on {where(probed)}, {probed.date[:10]}: the best of {len(found.told.attempts)} settings, then compared with the run as it is in pairs.", "",
    ]  # fmt: skip
    shown = [tried for tried in probed.tried if tried.name == best.name]
    lines += [f"- {tried.verdict.name}: {tried.verdict.reason}" for tried in shown]
    lines += [f"- {finding.fix.title}" for finding in best.findings if finding.fix is not None]
    lines += ["", "```diff", diff(best.changed, job.before).rstrip("\n"), "```", "", f"`{job.command}`", ""]
    return redact("\n".join(lines))


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{path}: the summary cannot be written: {error.strerror}") from None
    print(f"summary in {path}")


def _apply(best: Variant, job: Job) -> None:
    for path, data in sorted(best.changed.items()):
        try:
            replace_file(path, job.before[path], data)
        except NotWritten as error:
            raise UsageError(str(error)) from None
        print(f"wrote {path}")


def _command(best: Variant, job: Job) -> str:
    begun = job.start(best)
    return " ".join([*(f"{n}={shlex.quote(v)}" for n, v in begun.environment.items()), shlex.join(begun.command)])
