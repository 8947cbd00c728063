"""A judged run in; all settings that may be tried on it, each as the text that would be written, out.

A point of the space says for each fix whether it is made and for each knob of the rulebook where it stands. Which choices
there are depends on those before them: with vLLM on, its memory share may be turned. Nothing is run here.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from trl_lint.fixing import verified
from trl_lint.model import Derived, Effect, Finding, Known, Severity, Value
from trl_lint.probe.probed import AS_IS
from trl_lint.probe.variants import Variant
from trl_lint.rulebook.engine import in_range, judge
from trl_lint.rulebook.files import Context, Examined
from trl_lint.rulebook.rule import Alternative, Knob, Rule
from trl_lint.rulebook.rule import Variant as Said
from trl_lint.runs import SERVING, Run, View
from trl_lint.runs.logic import compiled, condition, truth
from trl_lint.sources.edits import CannotEdit

VERSION = 1
"""What a point means. A study of another version of the space is not gone on with."""

Point: TypeAlias = Mapping[str, int]
"""For each choice that was asked, which of its labels was taken; 0 leaves the run as it is."""

_EFFECTS: tuple[Effect, ...] = ("same", "numerics", "training")
"""The weakest first."""

ROUNDS = 3
"""How often the fixes of a point may make further fixes possible."""


class Refused(ValueError):
    """One line: why a point is not worth a trial. The tool itself can tell, so no GPU is asked."""


@dataclass(frozen=True)
class Choice:
    """One thing to decide: `labels` are what it may be, the first of them as it is.

    `ranks` order the labels by the memory that they need; empty where that is not known. `knob` has the one value of
    `values` for each further label, and is None for a fix.
    """

    name: str
    effect: Effect
    labels: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    knob: Knob | None = None
    values: tuple[object, ...] = ()

    @property
    def first(self) -> int:
        """The label that a search begins with; 0 for none."""
        return self.values.index(self.knob.first) + 1 if self.knob is not None and self.knob.first in self.values else 0


@dataclass(frozen=True)
class Allowed:
    """Which effects may be searched: those of `effects` for every fix and knob, and all for those that are `named`."""

    effects: frozenset[Effect] = frozenset({"same"})
    named: frozenset[str] = frozenset()

    def takes(self, name: str, effect: Effect) -> bool:
        return effect in self.effects or name in self.named


@dataclass(frozen=True)
class _State:
    """The files with the fixes of a point in them, and those fixes."""

    examined: Examined
    fixes: tuple[Finding, ...] = ()


@dataclass
class Space:
    """What may be chosen for the run that `path` leads. `told` is what is known of it beyond its files: how it is started."""

    examined: Examined
    context: Context
    path: str
    allowed: Allowed
    rules: tuple[Rule, ...]
    told: Mapping[str, Value] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _states: dict[tuple[str, ...], _State] = field(default_factory=dict, repr=False)

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """The fixes that apply now, the most promising first, and every knob, whether it applies yet or not."""
        switches = [_switch(name, finding) for name, finding in self._fixes(_State(self.examined), set())]
        same = self._same
        fixes = [replace(each, ranks=same[each.name].ranks) if each.name in same else each for each in switches]
        return (*fixes, *self._knobs)

    def applies(self, choice: Choice) -> bool:
        """Whether a choice changes the run as it is, without any other."""
        run = self._run(self.examined)
        return choice.knob is None or (run is not None and _applies(choice.knob, run, self.told))

    @cached_property
    def withheld(self) -> Mapping[str, Effect]:
        """The knobs that apply and the fixes that could be written, were their effects allowed."""
        everything = replace(self, allowed=Allowed(frozenset(_EFFECTS)), notes=[], _states={})
        found: dict[str, Effect] = {}
        for choice in everything.choices:
            if not self.allowed.takes(choice.name, choice.effect) and self.applies(choice):
                found[choice.name] = choice.effect
        return found

    @cached_property
    def size(self) -> int:
        """How many points there are if every choice that applies now were free; those that conflict are counted, too."""
        return math.prod(len(choice.labels) for choice in self.choices if self.applies(choice))

    @cached_property
    def fingerprint(self) -> str:
        """By this a study is known to be about the same space."""
        said = repr([(c.name, c.effect, c.labels, c.knob) for c in self.choices])
        return hashlib.sha256(f"{VERSION} {said}".encode()).hexdigest()

    def walk(self, ask: Callable[[Choice], int]) -> Point:
        """Ask one choice after the other, only those that apply after the ones before. Raises Refused."""
        taken: dict[str, int] = {}
        state = self._decide(lambda c: taken.setdefault(c.name, ask(c)))
        told = dict(self.told)
        for choice, run in self._turnable(state, told):
            taken[choice.name] = index = ask(choice)
            if index:
                told.update(_settings(choice, index, run, told))
        return taken

    def variant(self, point: Point, name: str) -> Variant | None:
        """The text of a point, judged like every fix; None for the run as it is. Raises Refused."""
        state = self._decide(lambda c: point.get(c.name, 0))
        told = dict(self.told)
        turned: list[Finding] = []
        for choice, run in self._turnable(state, told):
            if index := point.get(choice.name, 0):
                settings = _settings(choice, index, run, told)
                told.update(settings)
                turned += _written(choice, choice.labels[index], settings, run)
        examined = state.examined
        if turned:
            try:
                examined = verified(examined, turned, self.context)
            except CannotEdit as error:
                raise Refused(str(error)) from None
        texts = self.examined.sources.texts
        changed = {p: t.data for p, t in examined.sources.texts.items() if p in texts and t.data != texts[p].data}
        if not changed:
            return None
        findings = (*state.fixes, *turned)
        effect = max((f.fix.effect for f in findings if f.fix is not None), key=_EFFECTS.index)
        return Variant(name, self.title(point), effect, changed, findings, examined)

    def title(self, point: Point) -> str:
        """ "batch=8, checkpointing=False": what differs from the run as it is."""
        labels = {c.name: c.labels for c in self.choices}
        on = [(name, labels.get(name, (AS_IS, name))[index]) for name, index in point.items() if index]
        return ", ".join(label if label == name else f"{name}={label}" for name, label in on) or AS_IS

    def starts(self) -> list[Point]:
        """Where a search begins: the run as it is, all fixes that go together, and on top of them what knobs begin with."""
        nothing: Point = {choice.name: 0 for choice in self.choices}
        fixes = self._gathered({}, lambda choice: int(choice.knob is None))
        more = self._gathered(fixes, lambda choice: choice.first)
        found = [nothing]
        for on in (fixes, more):
            point = {**nothing, **on}
            found += [point] if point not in found else []
        return found

    def _gathered(self, on: Mapping[str, int], label: Callable[[Choice], int]) -> dict[str, int]:
        """Those labels, 0 being none, that can be written one on top of the other and of those in `on`, the first ones first."""
        taken = dict(on)
        refused: set[str] = set()
        while True:
            asked: dict[str, int] = {}

            def one_more(choice: Choice) -> int:
                name, wanted = choice.name, label(choice)
                if wanted and not asked and name not in taken and name not in refused:  # noqa: B023  used up at once
                    asked[name] = wanted  # noqa: B023
                return asked.get(name, taken.get(name, 0))  # noqa: B023

            try:
                self.variant(self.walk(one_more), "")
            except Refused:
                if not asked:
                    return taken
                refused.update(asked)
                continue
            if not asked:
                return taken
            taken.update(asked)

    def ruled_out(self, point: Point, exhausted: Point) -> bool:
        """Whether a point needs at least the memory of one that ran out of it: higher or equal where memory rises, else alike."""
        ranks = {c.name: c.ranks for c in self.choices if c.ranks}
        if point.keys() != exhausted.keys():
            return False
        return all(
            ranks[name][index] >= ranks[name][exhausted[name]] if name in ranks else index == exhausted[name]
            for name, index in point.items()
        )

    # fixes -------------------------------------------------------------------------------------------------------------

    def _decide(self, ask: Callable[[Choice], int]) -> _State:
        """The files with the chosen fixes, which may make others possible."""
        state = _State(self.examined)
        known: set[tuple[object, ...]] = set()
        for _ in range(ROUNDS):
            found = list(self._fixes(state, known))
            if not found:
                break
            chosen = [finding for name, finding in found if ask(_switch(name, finding))]
            state = self._fixed(state, chosen)
        return state

    def _fixes(self, state: _State, known: set[tuple[object, ...]]) -> Iterator[tuple[str, Finding]]:
        """The fixes that may be searched, with the names that their choices have; each is offered once for a point."""
        names = [name for name, *_ in known]
        for finding in sorted(state.examined.findings, key=lambda f: -f.gain):
            fix = finding.fix
            if fix is None or finding.certainty == "possible" or finding.held_back is not None:
                continue
            key = (finding.rule, finding.fields, fix.key)
            if key in known or not self.allowed.takes(finding.rule, fix.effect):
                continue
            known.add(key)
            names.append(finding.rule)
            count = names.count(finding.rule)
            yield finding.rule if count == 1 else f"{finding.rule} ({count})", finding

    def _fixed(self, state: _State, chosen: Sequence[Finding]) -> _State:
        if not chosen:
            return state
        key = tuple(repr((f.rule, f.span, f.message)) for f in (*state.fixes, *chosen))
        if key not in self._states:
            try:
                after = verified(state.examined, chosen, self.context)
            except CannotEdit as error:
                raise Refused(str(error)) from None
            self._states[key] = _State(after, (*state.fixes, *chosen))
        return self._states[key]

    # knobs -------------------------------------------------------------------------------------------------------------

    @cached_property
    def _dials(self) -> tuple[Choice, ...]:
        """Every knob that the page, the method and the release have."""
        run = self._run(self.examined)
        if run is None or run.worlds.assumed is None:
            return ()
        dials = (
            _dial(knob, run, self.told)
            for rule in self.rules
            for knob in rule.knobs
            if self.allowed.takes(knob.name, knob.effect)
            and (knob.methods is None or run.method in knob.methods)
            and in_range(knob.trl, run.worlds.assumed)
        )
        return tuple(dial for dial in dials if dial.values)

    @cached_property
    def _same(self) -> Mapping[str, Choice]:
        """By the name of a fix of the run as it is: the knob that could do just what the fix does, and is no choice of its own."""
        run = self._run(self.examined)
        if run is None:
            return {}
        could: list[tuple[Choice, dict[str, object]]] = []
        for dial in self._dials:
            if len(dial.values) == 1 and self.applies(dial):
                with suppress(Refused):
                    does = _settings(dial, 1, run, self.told)
                    could.append((dial, {name: setting.value for name, setting in does.items()}))
        found: dict[str, Choice] = {}
        for name, finding in self._fixes(_State(self.examined), set()):
            intents = finding.fix.intents if finding.fix is not None else ()
            if all(intent.op == "set" for intent in intents):
                sets = {intent.name: intent.value for intent in intents}
                found.update((name, dial) for dial, does in could if does == sets)
        return found

    @cached_property
    def _knobs(self) -> tuple[Choice, ...]:
        doubles = {dial.name for dial in self._same.values()}
        return tuple(dial for dial in self._dials if dial.name not in doubles)

    def _turnable(self, state: _State, told: Mapping[str, Value]) -> Iterator[tuple[Choice, Run]]:
        """The knobs that apply, each after what was `told` of those before it."""
        run = self._run(state.examined)
        if run is not None:
            yield from ((choice, run) for choice in self._knobs if choice.knob and _applies(choice.knob, run, told))

    def _run(self, examined: Examined) -> Run | None:
        """The one training whose knobs are turned. Where there are several, a value that fits one may not fit another."""
        runs = [
            run
            for run in examined.runs
            if run.method not in (None, SERVING) and self.path in (*run.paths, run.module.path)
        ]
        if len(runs) > 1 and not self.notes:
            self.notes.append(f"{self.path}: {len(runs)} trainings go through it, so only fixes are tried and no knobs")
        return runs[0] if len(runs) == 1 and runs[0].worlds.assumed is not None else None


def _switch(name: str, finding: Finding) -> Choice:
    assert finding.fix is not None
    return Choice(name, finding.fix.effect, (AS_IS, name))


def _dial(knob: Knob, run: Run, told: Mapping[str, Value]) -> Choice:
    """The knob with where it stands now as the first of its labels. Values that do not fit the run as it is are left out."""
    values: list[object] = []
    applies = _applies(knob, run, told)
    for value in knob.values:
        every = Choice(knob.name, knob.effect, (), knob=knob, values=(value,))
        try:
            if not applies or _settings(every, 1, run, told):
                values.append(value)
        except Refused:
            continue
    now = _standing(knob, _view(run, told)) if knob.rising else None
    ranks = (now, *(2 * knob.values.index(value) for value in values)) if now is not None else ()
    return Choice(knob.name, knob.effect, (AS_IS, *map(str, values)), ranks, knob, tuple(values))


def _standing(knob: Knob, view: View) -> int | None:
    """Where the run stands among the values of a knob: at twice the index of its value, or between two of them."""
    turned = next((target for target, text in knob.set if text == "value"), "")
    now = view.alternatives(turned)
    if not isinstance(now, tuple) or len(now) != 1:
        return None
    if now[0] in knob.values:
        return 2 * knob.values.index(now[0])
    if isinstance(now[0], int | float) and all(isinstance(value, int | float) for value in knob.values):
        return 2 * bisect(knob.values, now[0]) - 1
    return None


def _view(run: Run, told: Mapping[str, Value]) -> View:
    assert run.worlds.assumed is not None
    return View(run, run.worlds.assumed, told)


def _applies(knob: Knob, run: Run, told: Mapping[str, Value]) -> bool:
    return knob.when is None or truth(condition(knob.when)(_view(run, told))) is True


def _settings(choice: Choice, index: int, run: Run, told: Mapping[str, Value]) -> dict[str, Known]:
    """What a value of a knob sets, as far as it is not so already. Raises Refused where the value does not fit the run."""
    knob, value = choice.knob, choice.values[index - 1]
    assert knob is not None
    what = Derived(f"{knob.name}={value}")
    asking = _view(run, {**told, "value": Known(value, what)})
    if knob.valid is not None and truth(condition(knob.valid)(asking)) is not True:
        raise Refused(f"{knob.name}={value} does not fit this run ({knob.valid})")
    found: dict[str, Known] = {}
    for target, text in knob.set:
        wanted = compiled(text)(asking)
        if not isinstance(wanted, tuple) or len(wanted) != 1:
            raise Refused(f"{knob.name}={value}: {target} cannot be worked out from these files")
        # After what is set already: what the release derives from that need not be written.
        if _view(run, {**told, **found}).alternatives(target) != wanted:
            found[target] = Known(wanted[0], what)
    return found


def _written(choice: Choice, label: str, settings: Mapping[str, Known], run: Run) -> Iterator[Finding]:
    """What writes the settings: the finding of a rule that always holds. Raises Refused."""
    if not settings:
        return
    title = f"{choice.name}={label}"
    actions = tuple(("set", target, value.value) for target, value in settings.items())
    said = Said("", None, Severity.note, title, False, (Alternative(title, choice.effect, (), None, actions),))
    rule = Rule(
        choice.name, "tune", title, "", "", None, tuple(settings), {}, "True", None, True, False, 0, (said,)
    )  # fmt: skip
    finding = next(judge(run, (rule,)), None)
    if finding is None or finding.fix is None:
        raise Refused(f"{title}: there is no place to write {', '.join(settings)}")
    yield replace(finding, fix=replace(finding.fix, key=title))


def knob_names(rules: Collection[Rule]) -> frozenset[str]:
    """Every name that a knob or a rule can be allowed by."""
    return frozenset(r.name for r in rules) | frozenset(k.name for r in rules for k in r.knobs)
