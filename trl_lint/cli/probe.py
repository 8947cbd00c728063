"""`trl-lint probe FILE [-- ARGS]`: words in; the run as it is and as fixed, alternating, and a verdict for each fix, out."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from trl_lint.cli import UsageError, check
from trl_lint.cli.discover import project_of
from trl_lint.cli.progress import progress
from trl_lint.model import Finding
from trl_lint.probe import evidence
from trl_lint.probe.comparison import RULES
from trl_lint.probe.probed import Probed
from trl_lint.probe.session import A_TRIAL, CannotProbe, Job, Session
from trl_lint.probe.starts import CannotStart, Start, start
from trl_lint.probe.trials import Limits, estimate
from trl_lint.probe.variants import Variant, variants
from trl_lint.rulebook.files import Context, Examined


def parser() -> argparse.ArgumentParser:
    """The options of `probe`."""
    made = argparse.ArgumentParser(
        prog="trl-lint probe", allow_abbrev=False,
        description="Run a training as it is and as fixed, alternating, on this machine, and say what each fix does.",
        epilog="What follows -- is given to the script. Exit: 0 something was confirmed or repaired and nothing broke, 1 else, 2 could not run.",
    )  # fmt: skip
    add = made.add_argument
    add("file", metavar="FILE", help="a training script, or the launch file or recipe that starts one")
    trial_options(made)
    add("--select", action="append", default=[], metavar="NAME", help="only the fixes of these rules")
    add("--report", metavar="FILE", help="also write what was found as one HTML page")
    add("--keep", metavar="FOLDER", help="leave the copies that were run, and what they printed, in this folder")
    add("--dry-run", action="store_true", help="list the trials and what they may take, run nothing")
    for package in ("trl", "vllm", "transformers"):
        add(f"--{package}", metavar="V", help=argparse.SUPPRESS)
    add("--gpu", metavar="NAME[:N]", help=argparse.SUPPRESS)
    return made


def trial_options(made: argparse._ActionsContainer) -> None:
    """How trials are run: the same words for `probe` and for `--confirm`."""
    add = made.add_argument
    add("--launcher", metavar="WORDS", help='what starts the script, "accelerate launch --num_processes 2" (default: as the project\'s launch file says, else this Python)')  # fmt: skip
    add("--steps", type=_at_least(2), default=8, metavar="N", help="optimizer steps of each trial (default: 8)")
    add("--pairs", type=_at_least(1), default=RULES.pairs, metavar="N", help=f"pairs of trials (default: {RULES.pairs}, more while undecided, at most {RULES.most_pairs})")  # fmt: skip
    add("--minutes", type=float, default=60, metavar="M", help="the longest that one trial may take (default: 60)")
    add("--silent-minutes", type=float, default=10, metavar="M", help="without a step or output for so long it counts as hung (default: 10)")  # fmt: skip


def _at_least(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is less than {least}")
        return number

    return whole


def run(words: list[str]) -> int:
    """Run `probe`."""
    own, given = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    options = parser().parse_args(own)
    if not os.path.isfile(options.file):
        raise UsageError(f"{options.file}: no such file")
    examined, context = _examined(options)
    chosen = {n for part in options.select for n in part.split(",")}

    def wanted(finding: Finding) -> bool:
        return not chosen or finding.rule in chosen

    job = job_of(options, given, examined, ["probe", *own, *(["--", *given] if given else [])])
    found, refused = variants(examined, context, wanted)
    if options.dry_run or not found:
        for finding, why in refused:
            print(f"not tried: {finding.rule}: {why}")
        if not found:
            print(f"{options.file}: no fix to try.")
            return 0
        return _dry_run(job, found)
    try:
        with ending_well(), Session(job, progress()) as session:
            try:
                session.search(examined, context, wanted)
            except KeyboardInterrupt:
                if session.verdicts:
                    report(session, options.report)
                raise
            return report(session, options.report)
    except CannotProbe as error:
        raise UsageError(str(error)) from None


def _examined(options: argparse.Namespace) -> tuple[Examined, Context]:
    """The group of files that the file belongs to, judged as `check` would judge it."""
    facts = [w for p in ("trl", "vllm", "transformers", "gpu") if (v := getattr(options, p)) for w in (f"--{p}", v)]
    checking = check.Check(check.parser().parse_args([*facts, "--no-cache", options.file]))
    group = checking.group(options.file)
    if group is None:
        raise UsageError(f"{options.file}: no TRL training found in it")
    return group


def job_of(options: argparse.Namespace, given: Sequence[str], examined: Examined, words: Sequence[str]) -> Job:
    """What is to be run for the options of `trial_options`, beside `options.file`."""
    project, here = Path(project_of(options.file)).resolve(), Path.cwd().resolve()
    name = os.path.normpath(options.file)

    def started(variant: Variant | None) -> Start:
        state = examined if variant is None or variant.after is None else variant.after
        return start(state, name, launcher=options.launcher, arguments=given, project=project, here=here)

    try:
        started(None)
    except CannotStart as error:
        raise UsageError(str(error)) from None
    methods = {run.method for run in examined.runs if name in (*run.paths, run.module.path)} - {None}
    return Job(
        options.file, project, here, started, {p: t.data for p, t in examined.sources.texts.items()},
        methods.pop() if len(methods) == 1 else None, shlex.join(["trl-lint", *words]), options.steps, options.pairs,
        keep=Path(options.keep) if options.keep else None, limits=Limits(whole=options.minutes * 60, silent=options.silent_minutes * 60),
    )  # fmt: skip


def _dry_run(job: Job, found: Sequence[Variant]) -> int:
    begun = job.start(None)
    trials = 1 + (len(found) + 1) * job.pairs
    said = f" ({begun.said})" if begun.said else ""
    print(f"{trials} trials of {job.steps} steps: {shlex.join(begun.command)}{said}")
    if begun.server is not None:
        print(f"  beside a server of each trial's own: {shlex.join(begun.server.command)}")
    for variant in found:
        print(f"  {variant.name}: {variant.title} ({', '.join(sorted(variant.changed))})")
    minutes = estimate(["trial"] * trials, {}, A_TRIAL) / 60
    more = ", and more pairs where they leave it open"
    if len(found) > 1:
        more = f"{more}; then those that won together"
    print(f"at a minute each that is {minutes:.0f} minutes{more}")
    return 0


def report(session: Session, page: str | None, out: TextIO | None = None) -> int:
    """Print what was found, record it, write the page. The exit code of `probe`."""
    from rich.console import Console

    from trl_lint.probe.table import print_table

    probed = session.probed()
    print_table(probed, Console(file=out, highlight=False))
    path = evidence.place(str(session.job.project))
    recorded = 0
    try:
        for record in session.records():
            evidence.append(path, record)
            recorded += 1
    except evidence.EvidenceError as error:
        print(f"trl-lint: {error}", file=sys.stderr)
    if recorded:
        print(f"recorded in {os.path.relpath(path)}", file=out)
    if page is not None:
        write_page(probed, page)
        print(f"report in {page}", file=out)
    names = [tried.verdict.name for tried in probed.tried]
    return 0 if {"confirmed", "repaired"} & set(names) and "broken" not in names else 1


def write_page(probed: Probed, path: str) -> None:
    """The report page, whole or not at all."""
    from trl_lint.probe.page import page

    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            file.write(page(probed))
        os.replace(beside, path)
    except OSError as error:
        if os.path.exists(beside):
            os.unlink(beside)
        raise UsageError(f"{path}: the report cannot be written: {error.strerror}") from None


@contextmanager
def ending_well() -> Iterator[None]:
    """A polite request to end is taken like Ctrl-C, so that trials end and copies are removed."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
