"""`trl-lint probe FILE [-- ARGS]`: words in; the run as it is and as fixed, alternating, and a verdict for each fix, out."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from trl_lint import knowledge
from trl_lint.cli import UsageError, check
from trl_lint.cli.discover import project_of
from trl_lint.cli.progress import progress
from trl_lint.facts.environment import prefix_of, read_environment
from trl_lint.facts.requirements import allows
from trl_lint.model import Finding
from trl_lint.probe import evidence, hardware
from trl_lint.probe.comparison import RULES
from trl_lint.probe.probed import Probed
from trl_lint.probe.session import A_TRIAL, CannotProbe, Job, Session
from trl_lint.probe.starts import CannotStart, Start, start
from trl_lint.probe.trials import Limits, estimate
from trl_lint.probe.variants import Variant, variants
from trl_lint.rulebook.files import Context, Examined

VERSIONS = ("trl", "vllm", "transformers")
"""The packages whose version decides what is right."""


def parser() -> argparse.ArgumentParser:
    """The options of `probe`."""
    made = argparse.ArgumentParser(
        prog="trl-lint probe", allow_abbrev=False,
        description="Run a training as it is and as fixed, alternating, on this machine, and say what each fix does.",
        epilog="What follows -- is given to the script. Exit: 0 something was confirmed or repaired and nothing broke, or there was nothing to try; 1 else; 2 could not run.",
    )  # fmt: skip
    add = made.add_argument
    add("file", metavar="FILE", help="a training script, or the launch file or recipe that starts one")
    trial_options(made)
    add("--select", action="append", default=[], metavar="NAME", help="only the fixes of these rules")
    add("--report", metavar="FILE", help="also write what was found as one HTML page")
    add("--keep", metavar="FOLDER", help="leave the copies that were run, and what they printed, in this folder")
    add("--dry-run", action="store_true", help="list the trials and what they may take, run nothing")
    fact_options(made)
    return made


def fact_options(made: argparse.ArgumentParser) -> None:
    """What to judge by in place of what is seen here: the same words for `probe` and `tune`."""
    facts = made.add_argument_group(
        "facts by hand (default: this machine's GPUs, and what is installed where it trains)"
    )
    for package in VERSIONS:
        facts.add_argument(f"--{package}", metavar="V", help=f"the {package} version to judge by")
    facts.add_argument("--gpu", metavar="NAME[:N]", help="the GPU that trains, for example a100:8")
    facts.add_argument("--python", metavar="PATH", help="the environment that trains")


def trial_options(made: argparse._ActionsContainer) -> None:
    """How trials are run: the same words for `probe` and for `--confirm`."""
    add = made.add_argument
    add("--launcher", metavar="WORDS", help='what starts the script, "accelerate launch --num_processes 2" (default: as the project\'s launch file says, else this Python)')  # fmt: skip
    add("--steps", type=_at_least(2), default=8, metavar="N", help="optimizer steps of each trial (default: 8)")
    add("--pairs", type=_at_least(1), default=RULES.pairs, metavar="N", help=f"pairs of trials (default: {RULES.pairs}, more while undecided, at most {RULES.most_pairs})")  # fmt: skip
    add("--minutes", type=float, metavar="M", help="end after so many with what there is; the least promising fixes are given up first (default: as many as it takes)")  # fmt: skip
    add(
        "--trial-minutes", type=float, default=60, metavar="M", help="the longest that one trial may take (default: 60)"
    )
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
    found_in, context = examined(options)
    chosen = {n for part in options.select for n in part.split(",")}

    def wanted(finding: Finding) -> bool:
        return not chosen or finding.rule in chosen

    job = job_of(options, given, found_in, ["probe", *own, *(["--", *given] if given else [])])
    found, refused = variants(found_in, context, wanted)
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
                session.search(found_in, context, wanted)
            except KeyboardInterrupt:
                if session.verdicts:
                    report(session, options.report)
                raise
            return report(session, options.report)
    except CannotProbe as error:
        raise UsageError(str(error)) from None


def examined(options: argparse.Namespace) -> tuple[Examined, Context]:
    """The group of files that `options.file` belongs to, judged for this machine and for what is installed where it trains,
    unless `fact_options` say otherwise. Raises UsageError."""
    group = as_here(options, options.file) or _group(options, options.file)
    if group is None:
        raise UsageError(f"{options.file}: no TRL training found in it")
    return group


def as_here(options: argparse.Namespace, file: str) -> tuple[Examined, Context] | None:
    """Let the options say what is seen on this machine of what they and the project leave open.

    The group of the file, if it was judged on the way and by what the options say in the end.
    """
    options.gpu = options.gpu or _gpu()
    python = options.python or _python(options.launcher)
    prefix = prefix_of(python)
    installed = read_environment(prefix) if prefix is not None else None
    if installed is None:
        return None
    options.python = python
    group = _group(options, file)
    settled = True
    for run in group[0].runs if group is not None else ():
        for package in VERSIONS:
            version, fact = installed.versions.get(package), run.facts.packages.get(package)
            stated = fact is not None and (fact.version is not None or not allows(fact.specifier, version or ""))
            if version is not None and not stated and getattr(options, package) is None:
                setattr(options, package, version)
                settled = False
    return group if settled else None


def _group(options: argparse.Namespace, file: str) -> tuple[Examined, Context] | None:
    told = (*VERSIONS, "gpu", "python")
    facts = [word for name in told if (value := getattr(options, name)) for word in (f"--{name}", value)]
    return check.Check(check.parser().parse_args([*facts, "--no-cache", file])).group(file)


def _gpu() -> str | None:
    """The GPUs of this machine as --gpu takes them, where they are of one kind that is known."""
    kinds = [device.name for device in hardware.look().seen]
    name = kinds[0] if kinds and len(set(kinds)) == 1 else None
    return f"{name}:{len(kinds)}" if name is not None and knowledge.gpu(name) is not None else None


def _python(launcher: str | None) -> str:
    """The interpreter that a launcher names, or that of the environment which its program is installed in; else ours."""
    found = [path for word in shlex.split(launcher or "") if (path := shutil.which(word)) is not None]
    for path in found:
        if os.path.basename(path).startswith("python"):
            return path
    for folder in map(os.path.dirname, found[:1]):
        beside = os.path.join(folder, "python")
        whole = os.path.dirname(folder)
        if os.access(beside, os.X_OK) and any(
            os.path.exists(os.path.join(whole, m)) for m in ("pyvenv.cfg", "conda-meta")
        ):
            return beside
    return sys.executable


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
        keep=Path(options.keep) if options.keep else None, limits=Limits(whole=options.trial_minutes * 60, silent=options.silent_minutes * 60), minutes=options.minutes,
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
    if job.minutes is not None:
        more = f"{more}, within {job.minutes:g}"
    print(f"at a minute each that is {minutes:.0f} minutes{more}")
    program = begun.command[0]
    prefix = prefix_of(program) if os.path.basename(program).startswith("python") else None
    if prefix is not None and read_environment(prefix) is None:
        print(f"note: no trl is installed for {program}; name the Python that trains with --launcher")
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
