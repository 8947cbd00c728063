"""A Report in, the sentences about the whole of it out: what was skipped, judged by, found, fixed and fixable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from trl_lint.model import Finding, Ledger, Report, RunSummary, Severity
from trl_lint.reports.words import location, one_line, plural, urgency

MOST_FACT_SETS = 8
MOST_STEPS = 3


def render(report: Report) -> str:
    """What the terminal says after the last finding, a line each."""
    return "".join(f"{line}\n" for line in closing(report))


def closing(report: Report) -> Iterator[str]:
    yield from (one_line(f"skipped {skip.path}: {skip.reason}") for skip in report.skipped)
    yield from (one_line(f"note: {note}") for note in report.notes)
    yield from judged_by(report.runs)
    yield found(report)
    if report.ledger is not None:
        yield from unfixed(report.ledger)
        yield fixed(report.ledger)
    elif line := fixable(report.findings):
        yield line
    yield from first_steps(report.findings)


# Found ---------------------------------------------------------------------------------------------------------------


def found(report: Report) -> str:
    """`Found 3 errors, 1 note in 12 files (4 runs).`, or that there is nothing, and nothing of what."""
    files = plural(report.files, "file")
    if not report.findings and not report.runs:
        return f"No TRL training found in {files}."
    runs = f" ({plural(len(report.runs), 'run')})" if report.runs else ""
    return f"{counted(report.findings) or 'No findings'} in {files}{runs}."


def counted(findings: Iterable[Finding]) -> str:
    """`Found 2 errors, 1 warning, 1 possible`; empty when there are none.

    A possible finding is not counted as the error that it may be: it never fails a run.
    """
    kinds = Counter("possible" if finding.certainty == "possible" else finding.severity for finding in findings)
    counts = [plural(kinds[severity], severity.name) for severity in reversed(Severity) if kinds[severity]]
    if kinds["possible"]:
        counts.append(f"{kinds['possible']} possible")
    return f"Found {', '.join(counts)}" if counts else ""


def first_steps(findings: Iterable[Finding]) -> Iterator[str]:
    """What to do first, where there is a choice: the most urgent rules, once each, with where and what."""
    urgent = [f for f in findings if f.certainty != "possible" and f.severity > Severity.note and _promising(f)]
    ranked = sorted(urgent, key=lambda f: (urgency(f), f.order))
    steps = list({f.rule: f for f in reversed(ranked)}.values())[::-1]
    if len(steps) < 2:
        return
    yield "What to do first:"
    for number, step in enumerate(steps[:MOST_STEPS], 1):
        what = step.fix.title if step.fix is not None else step.message
        yield one_line(f"  {number}. {location(step.span)} {step.rule}: {what}")


def _promising(finding: Finding) -> bool:
    """Not what a probe on this very run found to bring nothing; an error is one whatever its fix brings."""
    return finding.severity is Severity.error or finding.measured is None or finding.measured.advises


# Judged by -----------------------------------------------------------------------------------------------------------


def judged_by(runs: Iterable[RunSummary]) -> Iterator[str]:
    """A line for each distinct set of facts, most runs first: by which releases it was judged, and how we know."""
    sets = Counter(_facts(run.facts) for run in runs)
    ranked = sorted(sets.items(), key=lambda item: (-item[1], item[0]))
    for facts, count in ranked[:MOST_FACT_SETS]:
        share = f": {plural(count, 'run')}" if len(ranked) > 1 else ""
        yield one_line(f"judged by {facts}{share}")
    more = len(ranked) - MOST_FACT_SETS
    if more > 0:
        yield f"… and by {plural(more, 'more set')} of facts (trl-lint facts shows all)"


def _facts(facts: Mapping[str, Mapping[str, object]]) -> str:
    names = sorted(facts, key=lambda name: (name != "trl", name))
    known = [name for name in names if facts[name].get("value") is not None]
    # Those of one origin that stand side by side name it once.
    groups = groupby(known, key=lambda name: facts[name].get("origin"))
    return (
        ", ".join(_told(origin, [(name, facts[name]) for name in group]) for origin, group in groups)
        or "no known release"
    )


def _told(origin: object, facts: list[tuple[str, Mapping[str, object]]]) -> str:
    """`trl 1.9.2 and torch 2.9.0 (uv.lock)`, `gpu a100 x8 (--gpu)`."""
    said = [
        f"{name} {fact['value']}" if fact.get("count") is None else f"{name} {fact['value']} x{fact['count']}"
        for name, fact in facts
    ]
    listed = " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
    return f"{listed} ({origin})" if origin else listed


# Fixed ---------------------------------------------------------------------------------------------------------------


def fixed(ledger: Ledger) -> str:
    """`Fixed 3 (2 files), 1 held back (unsafe: --unsafe-fixes), 1 not applied: edits overlap at line 12.`"""
    if not (ledger.applied or ledger.held_back or ledger.failed):
        return "Nothing to fix."
    files = f" ({plural(len(ledger.changed), 'file')})" if ledger.changed else ""
    held_back = [f"{count} held back ({why})" for why, count in _reasons(ledger.held_back)]
    failed = [f"{count} not applied: {why}" for why, count in _reasons(ledger.failed)]
    return one_line(", ".join([f"Fixed {len(ledger.applied)}{files}", *held_back, *failed]) + ".")


def unfixed(ledger: Ledger) -> Iterator[str]:
    """A line for each fix that was not written, and why."""
    for verdict, entries in (("held back", ledger.held_back), ("not applied", ledger.failed)):
        for finding, why in sorted(entries, key=lambda entry: entry[0].order):
            yield one_line(f"{verdict}: {location(finding.span)} {finding.rule}: {why}")


def fixable(findings: Iterable[Finding]) -> str:
    """`2 fixable with --fix, 1 more with --unsafe-fixes.`; empty when no fix could be written."""
    kinds = Counter(finding.fix.safety for finding in findings if finding.fix is not None and writable(finding))
    match kinds["safe"], kinds["unsafe"]:
        case 0, 0:
            return ""
        case safe, 0:
            return f"{safe} fixable with --fix."
        case 0, unsafe:
            return f"{unsafe} fixable with --unsafe-fixes."
        case safe, unsafe:
            return f"{safe} fixable with --fix, {unsafe} more with --unsafe-fixes."


def writable(finding: Finding) -> bool:
    """A fix that nothing forbids to write. One judged by the newest release alone is only written where all agree: not counted."""
    return finding.fix is not None and finding.held_back is None and finding.certainty == "certain"


def _reasons(entries: Iterable[tuple[Finding, str]]) -> list[tuple[str, int]]:
    """Each reason once, with how many share it, the most frequent first."""
    return sorted(Counter(why.rstrip(".") for _, why in entries).items(), key=lambda item: (-item[1], item[0]))
