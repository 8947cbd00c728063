"""`--fix --confirm`: judged files in; the same with the fixes that were confirmed on this machine, and only those, out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from trl_lint.cli import UsageError, probe
from trl_lint.cli.progress import progress
from trl_lint.fixing import Fixed, NoFixpoint, fix_file, identity
from trl_lint.model import Finding, Severity
from trl_lint.probe import evidence
from trl_lint.probe.session import CannotProbe, Session
from trl_lint.rulebook.files import Context, Examined


def checked(options: argparse.Namespace) -> None:
    """Raises UsageError where trials cannot be run for what was asked. Files are then judged for this machine."""
    if not options.fix or options.diff:
        raise UsageError("--confirm measures what --fix would write; say --fix --confirm, without --diff")
    for path in options.paths or ["."]:
        if path == "-" or not os.path.isfile(path):
            raise UsageError(f"--confirm runs trainings: name the files that start one, not {path}")
    probe.as_here(options, options.paths[0])


def fixed(options: argparse.Namespace, examined: Iterable[Examined], context: Context) -> list[Fixed]:
    """Each group of files with what its trials confirmed. Raises UsageError, KeyboardInterrupt: then nothing is written.

    The text that is written is the one that was measured; only safe fixes of certain errors come on top.
    """
    return [_one(options, options.arguments, one, context) for one in examined]


def _one(options: argparse.Namespace, arguments: Sequence[str], examined: Examined, context: Context) -> Fixed:
    kept: tuple[Finding, ...] = ()
    after, reasons = examined, dict[object, str]()

    def wanted(finding: Finding) -> bool:
        return _untried(finding, unsafe=options.unsafe_fixes) is None

    if any(map(wanted, examined.findings)):
        session = _searched(options, arguments, examined, context, wanted)
        variant = session.kept()
        if variant is not None and variant.after is not None:
            after, kept = variant.after, variant.findings
        reasons = {identity(f): why for f, why in session.refused}
        for tried in session.probed().tried:
            verdict = tried.verdict
            reasons.update((identity(f), f"{verdict.name}: {verdict.reason}") for f in session.findings(tried.name))

    def refused(finding: Finding) -> str | None:
        why = _untried(finding, unsafe=options.unsafe_fixes)
        if why is not None or _certain(finding):
            return why
        return f"not confirmed: {reasons.get(identity(finding), 'it came up after other fixes; confirm again')}"

    try:
        done = fix_file(after, context, unsafe=options.unsafe_fixes, refused=refused)
    except NoFixpoint as error:
        raise UsageError(str(error)) from None
    texts = {p: (t.data, done.examined.sources.texts[p].data) for p, t in examined.sources.texts.items()}
    changed = {path: both for path, both in texts.items() if both[0] != both[1]}
    return replace(done, changed=changed, applied=(*kept, *done.applied))


def _searched(
    options: argparse.Namespace, arguments: Sequence[str], examined: Examined, context: Context, wanted: Callable[[Finding], bool]
) -> Session:  # fmt: skip
    """The session after its trials, reported and recorded."""
    file = next(p for p in map(os.path.normpath, options.paths) if p in examined.paths)
    words = [file]
    for name in ("launcher", "steps", "pairs", "minutes", "trial_minutes", "silent_minutes"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    own = probe.parser().parse_args(words)
    job = probe.job_of(own, arguments, examined, ["probe", *words, *(["--", *arguments] if arguments else [])])
    known = evidence.load(evidence.place(str(job.project)))
    for note in known.notes:
        print(f"trl-lint: {note}", file=sys.stderr)
    with probe.ending_well(), Session(job, progress()) as session:
        try:
            session.search(examined, context, wanted, known)
        except CannotProbe as error:
            raise UsageError(str(error)) from None
        finally:
            if session.verdicts:
                probe.report(session, options.report, sys.stderr)
    return session


def _untried(finding: Finding, *, unsafe: bool) -> str | None:
    """Why a fix is not even tried, None if it is. That something is installed, which makes some unsafe, a trial shows."""
    if finding.fix is None:
        return "no fix"
    if finding.certainty == "possible":
        return "only possible"
    if finding.held_back is not None:
        return finding.held_back
    if unsafe or finding.fix.safety == "safe" or finding.fix.effect == "same":
        return None
    return f"unsafe, changes the {finding.fix.effect}: --unsafe-fixes"


def _certain(finding: Finding) -> bool:
    """Whether a fix is written whatever the trials say: no measurement makes a certain error right."""
    safe = finding.fix is not None and finding.fix.safety == "safe"
    return safe and finding.severity is Severity.error and finding.certainty == "certain"
