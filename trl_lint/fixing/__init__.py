"""Judged files in; their texts with every allowed fix that proved right, and a ledger of what was done and what was not, out.

Fixes go to a fixpoint in memory: all intents of a round become one text, which is read, linked and judged again. A fix
that does not make its finding go away, or brings a new error in any world that the pins allow, is not kept.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trl_lint.fixing.routing import routed
from trl_lint.fixing.width import line_width
from trl_lint.model import Edit, Finding, Fix, Intent, Severity
from trl_lint.rulebook.engine import GENERIC, disagreement
from trl_lint.rulebook.files import Context, Examined, again, errors_in_every_world
from trl_lint.runs import Run
from trl_lint.sources.edits import CannotEdit, as_edit
from trl_lint.sources.look import kind_of
from trl_lint.sources.module import Unparsable
from trl_lint.sources.reading import edit
from trl_lint.sources.text import Text

ROUNDS = 10


class NoFixpoint(RuntimeError):
    """Ten rounds did not settle: two rules undo each other's fixes. An error of the rulebook, never of the file."""


@dataclass(frozen=True)
class Fixed:
    """Files after fixing. `changed` maps a path to its bytes before and after; `examined` is the last state.

    Reasons in `held_back` and `failed` are for people.
    """

    changed: Mapping[str, tuple[bytes, bytes]]
    examined: Examined
    applied: tuple[Finding, ...]
    held_back: tuple[tuple[Finding, str], ...]
    failed: tuple[tuple[Finding, str], ...]

    @property
    def before(self) -> bytes:
        """The leading file as it was."""
        return self.changed.get(self.examined.path, (self.examined.text.data,) * 2)[0]

    @property
    def after(self) -> bytes:
        """The leading file as it is now."""
        return self.examined.text.data


def fix_file(
    examined: Examined, context: Context, *, unsafe: bool, refused: Callable[[Finding], str | None] | None = None
) -> Fixed:
    """Apply what may be applied: safe fixes, with `unsafe` all; or those for which `refused` gives no reason.

    Raises NoFixpoint.
    """
    held = refused or (lambda finding: _allowed(finding, unsafe=unsafe))
    before = dict(examined.sources.texts)
    applied: list[Finding] = []
    failed: dict[tuple[object, ...], tuple[Finding, str]] = {}
    for _ in range(ROUNDS):
        wanted = [f for f in examined.findings if held(f) is None and _attempt(f) not in failed]
        if not wanted:
            break
        examined, done, unwritable = _round(examined, wanted, context)
        applied += done
        failed.update({_attempt(f): (f, why) for f, why in unwritable})
        if not done and not unwritable:
            break
    else:
        raise NoFixpoint(
            f"{examined.path}: the fixes of {', '.join(sorted({f.rule for f in wanted}))} do not settle; please report this"
        )
    left = [(f, why) for f in examined.findings if f.fix is not None and (why := held(f)) is not None]
    standing = {identity(f) for f in examined.findings}
    last = {identity(f): (f, why) for f, why in failed.values()}
    now = examined.sources.texts
    return Fixed(
        {p: (t.data, now[p].data) for p, t in before.items() if p in now and now[p].data != t.data},
        examined,
        tuple(applied),
        tuple(left),
        tuple(v for k, v in last.items() if k in standing),
    )


def plan(examined: Examined, context: Context) -> tuple[Finding, ...]:
    """The findings with the edits that each fix would make on its own, checked as a fix would be; unwritable ones say why."""
    planned: list[Finding] = []
    for finding in examined.findings:
        if finding.fix is None or finding.held_back is not None:
            planned.append(finding)
            continue
        try:
            after = verified(examined, [finding], context)
        except CannotEdit as error:
            planned.append(replace(finding, held_back=str(error)))
            continue
        edits = tuple(
            as_edit(path, text.data, after.sources.texts[path].data, text.encoding)
            for path, text in sorted(examined.sources.texts.items())
            if after.sources.texts[path].data != text.data
        )
        planned.append(replace(finding, fix=replace(finding.fix, edits=edits)))
    return tuple(planned)


def _allowed(finding: Finding, *, unsafe: bool) -> str | None:
    """Why a fix may not be written now; None if it may."""
    if finding.fix is None:
        return "no fix"
    if finding.certainty == "possible":
        return "only possible"
    if finding.held_back is not None:
        return finding.held_back
    if finding.fix.safety == "unsafe" and not unsafe:
        return f"{_unsafe(finding.fix)}: --unsafe-fixes"
    return None


def _unsafe(fix: Fix) -> str:
    if fix.needs:
        return f"unsafe, needs {', '.join(fix.needs)}"
    return "unsafe, changes the training" if fix.effect == "training" else "unsafe, changes the numerics"


def identity(finding: Finding) -> tuple[object, ...]:
    """What a finding is, wherever edits above have moved it."""
    return finding.rule, finding.fields, finding.message


def _attempt(finding: Finding) -> tuple[object, ...]:
    """A finding with what its fix would write: what cannot be written now may have another place once others are."""
    intents = finding.fix.intents if finding.fix is not None else ()
    return identity(finding), tuple((i.op, i.site.name, i.name, i.path, repr(i.value)) for i in intents)


def _round(
    examined: Examined, wanted: Sequence[Finding], context: Context
) -> tuple[Examined, list[Finding], list[tuple[Finding, str]]]:
    """All safe fixes in one text, then the others one by one, the most promising first: one may make the next one moot.

    If the text of all does not prove right they go one by one too, so that one bad fix does not cost the others.
    """
    done: list[Finding] = []
    # A fix that brings its own edits goes alone: after any other one they would be somewhere else.
    safe = [f for f in wanted if f.fix is not None and f.fix.safety == "safe" and f.fix.intents]
    others = sorted((f for f in wanted if f not in safe), key=lambda f: -f.gain)
    if safe:
        try:
            examined, done = verified(examined, safe, context), list(safe)
        except CannotEdit as error:
            if len(wanted) == 1:
                return examined, [], [(wanted[0], str(error))]
            others = [*safe, *others]
    refused: list[tuple[Finding, str]] = []
    for finding in others:
        current = next((f for f in examined.findings if identity(f) == identity(finding)), None)
        if current is None:
            continue  # another fix has solved it already
        try:
            examined = verified(examined, [current], context)
            done.append(current)
        except CannotEdit as error:
            refused.append((current, str(error)))
    return examined, done, refused


def verified(examined: Examined, findings: Sequence[Finding], context: Context) -> Examined:
    """The file after the fixes, read, linked and judged again. Raises CannotEdit with the reason if it is not right."""
    intents = [intent for finding in findings if finding.fix is not None for intent in finding.fix.intents]
    edits = [e for f in findings if f.fix is not None and not f.fix.intents for e in f.fix.edits]
    after = _written(examined, intents, context, edits)
    was, now = Counter(map(identity, examined.findings)), Counter(map(identity, after.findings))
    # What the tuner turns solves nothing that was found.
    if any(now[key] > was[key] - solved for key, solved in Counter(map(identity, findings)).items() if was[key]):
        raise CannotEdit("the finding would still be there")
    known = {(f.rule, f.fields) for f in examined.findings if f.severity is Severity.error}
    new = [f for f in after.findings if f.severity is Severity.error and (f.rule, f.fields) not in known]
    new = [f for f in new if not _uncovered(f.rule, f.fields, intents, context)]
    if new:
        raise CannotEdit(f"it would bring a new error: {new[0].message}")
    _nobody_undoes(examined, after, findings, context)
    if any(run.worlds.others for run in examined.runs):
        _right_everywhere(examined, after, findings, context)
    return after


def _uncovered(rule: str, fields: Iterable[str], intents: Sequence[Intent], context: Context) -> bool:
    """Whether an error stood there before, behind one that a fix has taken away, for it is about nothing that the fix wrote.

    Of what a release refuses only the first is said, and nothing where the call itself fails before.
    """
    if not any(r.name == rule and r.each in GENERIC for r in context.rules):
        return False
    wrote = {name for i in intents for name in (i.name, *([i.value] if isinstance(i.value, str) else []))}
    return not wrote.intersection(fields)


def _written(examined: Examined, intents: Iterable[Intent], context: Context, edits: Iterable[Edit] = ()) -> Examined:
    """The files with the intents, or the edits, written into them, read, linked and judged again. Raises CannotEdit."""
    by_path: dict[str, list[Intent]] = {}
    for intent in map(routed, intents):
        by_path.setdefault(intent.site.span.path, []).append(intent)
    texts: dict[str, Text] = {}
    for path, own in by_path.items():
        if path not in examined.sources.given:
            raise CannotEdit(f"it belongs into {path}, which was not given")
        before = examined.sources.texts[path]
        code = edit(before, own, width=line_width(path))
        if kind_of(path) == "python" and _parses(before.code) and not _parses(code):
            raise CannotEdit("the result does not parse")
        texts[path] = Text(path, _encoded(before, code))
    for one in sorted(edits, key=lambda e: -e.start):
        before = texts.get(one.path) or examined.sources.texts[one.path]
        data = before.data
        texts[one.path] = Text(one.path, data[: one.start] + one.text.encode(before.encoding) + data[one.end :])
    try:
        return again(examined, texts, context)
    except Unparsable as error:
        raise CannotEdit(f"the result does not parse: {error}") from None


def _nobody_undoes(before: Examined, after: Examined, findings: Sequence[Finding], context: Context) -> None:
    """Raises CannotEdit if another rule would now change the same values back: which of the two is right is not ours to say."""
    changed = {(i.name, i.path) for f in findings if f.fix is not None for i in f.fix.intents}
    known = {identity(f) for f in before.findings}
    for finding in after.findings:
        if (
            finding.fix is None
            or identity(finding) in known
            or not {(i.name, i.path) for i in finding.fix.intents} & changed
        ):
            continue
        try:
            back = _written(after, finding.fix.intents, context)
        except CannotEdit:
            continue
        if {identity(f) for f in back.findings} & {identity(f) for f in findings}:
            raise CannotEdit(f"{finding.rule} would undo it")


def _right_everywhere(before: Examined, after: Examined, findings: Sequence[Finding], context: Context) -> None:
    """Raises CannotEdit unless the fixes are the right ones, and bring no error, in every release that the pins allow."""
    for finding in findings:
        for run in before.runs:
            other = disagreement(finding, run, context.rules_of(run.module.path))
            if other is not None:
                raise CannotEdit(f"{other}, which nothing here rules out, needs another fix: {_pin(run)}")
    intents = [intent for finding in findings if finding.fix is not None for intent in finding.fix.intents]
    worse = {
        (world, rule, what)
        for world, rule, what in errors_in_every_world(after, context) - errors_in_every_world(before, context)
        if not _uncovered(rule, what.split(","), intents, context)
    }
    if worse:
        world, rule, what = min(worse)
        where = f"{rule}: {what}" if what else rule
        release, _slash, transformers = world.partition("/")
        exact = all(len(run.worlds.candidates) == 1 for run in before.runs)
        which = f"transformers {transformers}" if exact else f"trl {release}"
        raise CannotEdit(f"not right for {which}, which nothing here rules out ({where}): {_pin(before.runs[0])}")


def _pin(run: Run) -> str:
    """What would settle which release counts."""
    package = "transformers" if len(run.worlds.candidates) == 1 else "trl"
    return f"pin {package}, or pass --{package}"


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError):
        return False
    return True


def _encoded(text: Text, code: str) -> bytes:
    bom = text.data[: len(text.data) - len(text.data.removeprefix(b"\xef\xbb\xbf"))]
    try:
        return bom + code.encode(text.encoding)
    except UnicodeEncodeError:
        raise CannotEdit(f"the new text cannot be written in {text.encoding}") from None
