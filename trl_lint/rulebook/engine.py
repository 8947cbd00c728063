"""Runs and rules in; findings out, each with its certainty over the worlds that the pins allow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from string import Formatter
from typing import TypeAlias, cast

from trl_lint import knowledge
from trl_lint.model import Certainty, Finding, Fix, Intent, Known, Related, Safety, Site, Source, Span, Table, Unknown
from trl_lint.rulebook.rule import Alternative, Rule, Variant
from trl_lint.runs import SERVING, Run, View, World
from trl_lint.runs.items import ITEMS, Item, ItemView
from trl_lint.runs.logic import UNKNOWN, Compiled, condition, guard, names_in, truth
from trl_lint.runs.run import TRAINING_ARGUMENTS
from trl_lint.runs.targets import Target, place_for, written
from trl_lint.sources.look import kind_of

Names: TypeAlias = View | ItemView


@dataclass(frozen=True, slots=True)
class _Hit:
    """A rule that holds, or whose truth is undecided, for one run in one world."""

    rule: Rule
    variant: Variant
    names: Names
    item: Item | None
    undecided: str | None = None

    @property
    def key(self) -> object:
        """What makes two hits of one rule the same in different worlds."""
        return self.item.attributes.get("name") if self.item is not None else None


def judge(run: Run, rules: tuple[Rule, ...], *, possible: bool = False) -> Iterator[Finding]:
    """Every finding of one run. `possible` also yields what some unknown value would decide."""
    world = run.worlds.assumed
    if world is None:
        return
    views: dict[int, View] = {}
    view = View(run, world)
    said: list[tuple[Rule, Finding]] = []
    generic: list[tuple[Item, Finding]] = []
    guarded: dict[Compiled, bool | None] = {}
    for rule, variants, guarding, when in _applicable(rules, run, world):
        # Most rules do not hold for most runs, and most of those share what rules them out: asked here, once.
        if guarding is not None:
            if guarding not in guarded:
                guarded[guarding] = truth(guarding(view))
            if guarded[guarding] is False:
                continue
        if rule.each is None:
            holds = truth(when(view))
            if holds is False or (holds is None and not possible):
                continue
        for hit in _hits(rule, variants, view, possible=possible):
            certainty = _certainty(hit, run, views)
            if certainty == "possible" and not possible:
                continue
            finding = _finding(hit, view, certainty)
            if rule.each in GENERIC and hit.item is not None:
                generic.append((hit.item, finding))
            else:
                said.append((rule, finding))
                yield finding
    yield from (finding for item, finding in generic if not _explained(item, finding, said))


GENERIC = frozenset({"run.refused", "run.warned"})
"""The lists of what TRL itself checks, in its order: of refusals only the first is in it."""


def _explained(item: Item, finding: Finding, said: list[tuple[Rule, Finding]]) -> bool:
    """Whether a page of its own speaks of what TRL refuses or warns of: it names the guard, or is about one of its fields."""
    fields = {str(field) for field in cast("tuple[object, ...]", item.attributes["fields"])}
    for rule, other in said:
        if other.certainty == "possible":
            continue
        if item.attributes["name"] in rule.guards:
            return True
        if other.severity >= finding.severity and fields.intersection(other.fields):
            return True
    return False


_Applicable: TypeAlias = list[tuple[Rule, list[Variant], Compiled | None, Compiled]]
_APPLICABLE: dict[tuple[object, ...], tuple[tuple[Rule, ...], _Applicable]] = {}


def _applicable(rules: tuple[Rule, ...], run: Run, world: World) -> _Applicable:
    """The rules that concern such a run in such a release: with their variants, what guards them, and their condition.

    Worked out once for all runs alike.
    """
    unsloth = run.module.unsloth is not None
    key = (id(rules), run.method, unsloth, world.version)
    known = _APPLICABLE.get(key)
    if known is None:
        found = [
            (r, variants, guard(r.when) if r.each is None else None, condition(r.when))
            for r in rules
            if _applies(r, run.method, unsloth=unsloth)
            and (variants := [v for v in r.variants if in_range(v.trl, world)])
        ]
        # The rules are kept beside the answer so that their id stays theirs.
        known = _APPLICABLE[key] = (rules, found)
    return known[1]


def _applies(rule: Rule, method: str | None, *, unsloth: bool) -> bool:
    if rule.methods is not None and method not in rule.methods:
        return False
    if method == SERVING and rule.methods is None:
        return False  # a server command is no training
    if unsloth and not rule.unsloth:
        return False
    # A run without a method is a file's imports or a helper's config: only one-per-item rules concern it.
    return method is not None or rule.each is not None


def _hits(rule: Rule, variants: list[Variant], view: View, *, possible: bool) -> Iterator[_Hit]:
    if rule.each is None:
        yield from _hit(rule, variants, view, None, possible=possible)
        return
    items = view.items.get(rule.each)
    if items is None:
        items = view.items[rule.each] = list(ITEMS[rule.each](view))
    for item in items:
        yield from _hit(rule, variants, ItemView(view, item), item, possible=possible)


def _hit(rule: Rule, variants: list[Variant], names: Names, item: Item | None, *, possible: bool) -> Iterator[_Hit]:
    holds = truth(condition(rule.when)(names))
    if holds is False or (holds is None and not possible):
        return
    for variant in variants:
        own = truth(condition(variant.when)(names)) if variant.when is not None else True
        if own is False:
            continue
        if holds and own:
            yield _Hit(rule, variant, names, item)
            return
        if possible:
            yield _Hit(rule, variant, names, item, _undecided(rule, variant, names))
            return


def in_range(specifier: str, world: World) -> bool:
    """Whether a world's TRL lies in a page's range. A development version counts as the release that it comes after."""
    if not specifier:
        return True
    return _contains(specifier, knowledge.known("trl", world.version) or world.version)


@cache
def _contains(specifier: str, version: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(version, prereleases=True)


def _certainty(hit: _Hit, run: Run, views: dict[int, View]) -> Certainty:
    """Certain where the rule holds in every world that the pins allow, assumed where only the newest says so."""
    if hit.undecided is not None:
        return "possible"
    if not run.worlds.bounded and (hit.variant.trl or hit.rule.each is not None):
        return "possible"
    if hit.item is not None and hit.item.attributes.get("package") == "transformers" and not _in_newest(hit, run):
        return "possible"
    for index, world in enumerate(run.worlds.others):
        view = views.setdefault(index, View(run, world))
        variants = [v for v in hit.rule.variants if in_range(v.trl, world)]
        if not variants or all(other.key != hit.key for other in _hits(hit.rule, variants, view, possible=False)):
            return "possible" if _twice_assumed(run) else "assumed"
    return "certain"


def _twice_assumed(run: Run) -> bool:
    """Whether neither the release nor the script is known: a commit that no table dates, a script elsewhere without a pin."""
    fact = run.facts.packages.get("trl")
    if (
        fact is not None
        and fact.commit is not None
        and not fact.specifier
        and re.fullmatch("[0-9a-f]{7,40}", fact.commit)
    ):
        return True
    stranger = run.parsed is not None and run.parsed.assumed is not None
    return stranger and (fact is None or (fact.version is None and not fact.specifier))


def _in_newest(hit: _Hit, run: Run) -> bool:
    """Whether the newest transformers that the pins allow says the same: the one assumed is only the likeliest."""
    assumed = run.worlds.assumed
    same = [w for w in run.worlds.others if assumed is not None and w.release is assumed.release]
    if not same:
        return True
    variants = [v for v in hit.rule.variants if in_range(v.trl, same[-1])]
    return any(other.key == hit.key for other in _hits(hit.rule, variants, View(run, same[-1]), possible=False))


def _undecided(rule: Rule, variant: Variant, names: Names) -> str:
    """The first value that the condition would need and the files do not show."""
    view = names.view if isinstance(names, ItemView) else names
    for text in (rule.when, variant.when or "True"):
        read, _guarded = names_in(text)
        for name in sorted(read):
            if names.alternatives(name) is UNKNOWN:
                value = view.value(name)
                return f"{name}: {value.why}" if isinstance(value, Unknown) else f"{name} may be one of several values"
    return "several values"


# Findings --------------------------------------------------------------------------------------------------------------


def _finding(hit: _Hit, view: View, certainty: Certainty) -> Finding:
    rule, variant = hit.rule, hit.variant
    span, related = _spans(hit, view)
    fix, alternatives = _fix(hit, view)
    run = view.run
    return Finding(
        rule=rule.name, group=rule.group, severity=variant.severity, certainty=certainty, message=fill(variant.message, hit.names),
        span=span, related=related, method=run.method, runs=(run.id,), fields=_finding_key(hit),
        fix=fix if certainty != "possible" else None, alternatives=alternatives,
        assumed=_assumption(run, view.world) if certainty == "assumed" else None, undecided=(hit.undecided or _unsettled(run, view.world)) if certainty == "possible" else None, gain=rule.gain,
    )  # fmt: skip


def _unsettled(run: Run, world: World) -> str:
    """Why a finding that holds in the assumed world is only possible."""
    return (
        "which trl it runs on is not known"
        if run.worlds.bounded
        else f"trl {world.version} is newer than all that is known"
    )


def _assumption(run: Run, world: World) -> str:
    """What a finding assumes: the TRL release, or with that pinned the transformers release."""
    if len(run.worlds.candidates) != 1 or world.transformers is None:
        return world.label
    return f"transformers {world.transformers}"


def _spans(hit: _Hit, view: View) -> tuple[Span, tuple[Related, ...]]:
    """The primary span is what the first written name of `at` shows; the other ones are related."""
    if hit.item is not None:
        primary = hit.item.argument.place.whole if hit.item.argument is not None else hit.item.site.span
        return primary, _related(hit, view, {primary})
    found: list[Span] = []
    for name in hit.rule.at:
        target = written(view, name)
        if target is not None and target.span not in found:
            found.append(target.span)
    anchor = view.run.anchor
    if not found and anchor is not None:
        found.append(anchor.callee)
    return found[0], _related(hit, view, {found[0]})


def _related(hit: _Hit, view: View, seen: set[Span]) -> tuple[Related, ...]:
    found: list[Related] = []
    for name in (*hit.rule.at, *hit.rule.related):
        target = written(view, name)
        if target is None or target.span in seen:
            continue
        seen.add(target.span)
        found.append(Related(target.span, fill(hit.rule.related.get(name, f"`{name}` is given here"), hit.names)))
    return tuple(found)


MOST_SHOWN = 3


class _Words(str):
    """Text that stands for a value and is not one: no quotes around it with !r."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Shown(Formatter):
    """Templates over dotted names: `{loss_type!r}`, `{versions.trl}`, `{item.name}`."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def get_field(self, field_name: str, args: object, kwargs: object) -> tuple[object, str]:
        alternatives = self.names.alternatives(field_name)
        if isinstance(alternatives, tuple) and len(alternatives) == 1:
            return _plain(alternatives[0]), field_name
        if not isinstance(alternatives, tuple) or not alternatives:
            return _Words("?"), field_name
        if len(alternatives) > MOST_SHOWN:
            return _Words(f"{_plain(alternatives[0])} … {_plain(alternatives[-1])}"), field_name
        return _Words(" or ".join(str(_plain(a)) for a in alternatives)), field_name


class _Listed(list[object]):
    """A list that reads as a list of words in a sentence, and as Python with !r."""

    def __str__(self) -> str:
        return ", ".join(map(str, self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return _Listed(_plain(v) for v in value)
    if isinstance(value, Table):
        return {k: _plain(a.value.value) if isinstance(a.value, Known) else "..." for k, a in value.entries.items()}
    return value


def fill(template: str, names: Names) -> str:
    """A message with its values."""
    return _Shown(names).vformat(template, (), {})


# Fixes -----------------------------------------------------------------------------------------------------------------


def _fix(hit: _Hit, view: View) -> tuple[Fix | None, tuple[str, ...]]:
    """The first alternative that has a place to be written, and the titles of the others that hold."""
    chosen: Fix | None = None
    others: list[str] = []
    offered = [f for f in hit.variant.fixes if f.when is None or truth(condition(f.when)(hit.names)) is True]
    for alternative in offered:
        title = fill(alternative.title, hit.names)
        if chosen is None and alternative.actions:
            intents = _intents(alternative, hit, view)
            if intents is not None:
                sole = hit.variant.stops and len(offered) == 1
                chosen = Fix(
                    title,
                    alternative.effect,
                    alternative.needs,
                    _safety(alternative, sole=sole),
                    intents,
                    key=repr(alternative.actions),
                )
                continue
        others.append(title)
    return chosen, tuple(others)


def disagreement(finding: Finding, run: Run, rules: tuple[Rule, ...]) -> str | None:
    """The first allowed release for which the page of a finding writes something else than the finding's fix."""
    rule = next((r for r in rules if r.name == finding.rule), None)
    if rule is None or finding.fix is None or run.id not in finding.runs:
        return None
    drops = any(intent.op == "drop" for intent in finding.fix.intents)
    for world in run.worlds.others:
        variants = [v for v in rule.variants if in_range(v.trl, world)]
        view = View(run, world)
        same = [h for h in _hits(rule, variants, view, possible=False) if _finding_key(h) == finding.fields]
        name = world.label if len(run.worlds.candidates) != 1 else f"transformers {world.transformers}"
        if not same and drops:  # what is dropped still means something there
            return name
        for hit in same:
            fix, _others = _fix(hit, view)
            if fix is not None and fix.key != finding.fix.key:
                return name
    return None


def _finding_key(hit: _Hit) -> tuple[str, ...]:
    return (str(hit.key),) if hit.key is not None else tuple(n for n in hit.rule.at if "." not in n)


def _safety(alternative: Alternative, *, sole: bool) -> Safety:
    if alternative.needs:
        return "unsafe"
    return "safe" if alternative.effect == "same" or sole else "unsafe"


def _intents(alternative: Alternative, hit: _Hit, view: View) -> tuple[Intent, ...] | None:
    """The alternative at its sites; None if one of its values has no place in these files."""
    found: list[Intent] = []
    for op, template, value in alternative.actions:
        name = fill(template, hit.names)
        made = _intent(op, name, _value(value, hit.names), hit, view)
        if made is None:
            return None
        found.extend(made)
    return tuple(found) or None  # what it would drop is not written here


def _value(value: object, names: Names) -> object:
    if isinstance(value, str) and "{" in value:
        return fill(value, names)
    if isinstance(value, Mapping) and set(value) == {"expr"}:
        text = fill(str(value["expr"]), names)
        try:
            return ast.literal_eval(text)  # a number can be written in any kind of file, an expression in Python only
        except (ValueError, SyntaxError):
            return Source(text)
    return value


def _intent(op: str, name: str, value: object, hit: _Hit, view: View) -> list[Intent] | None:
    match op:
        case "import":
            return [Intent("import", hit.item.site, name, str(value))] if hit.item is not None else None
        case "class" | "command":
            target = written(view, name)
            return [Intent("class" if op == "class" else "command", target.site, name, str(value))] if target else None
        case "move":
            return _move(name, str(value), view)
        case "rename":
            source = written(view, name)
            return (
                [Intent("rename", source.site, source.name, str(value), path=source.path)]
                if _writable(source) and source is not None
                else None
            )
        case "drop":
            source = written(view, name)
            if source is None:
                return []
            return [Intent("drop", source.site, source.name, path=source.path)] if _writable(source) else None
    target = place_for(view, name)
    if target is None and "." not in name and view.run.config is None and _new_config_fits(view):
        assert view.run.trainer is not None
        return [Intent("set", view.run.trainer, "args", value, path=("new", view.trainer_class.config or "", name))]  # type: ignore[union-attr]
    if target is None or not _writable(target):
        return None
    return [Intent("set", target.site, target.name, value, path=target.path)]


def _writable(target: Target | None) -> bool:
    """Whether a target stands in text that we may change: a parsed config has arguments only where they are assigned."""
    if target is None:
        return False
    if target.site.kind in ("flags", "launcher", "server") and kind_of(target.site.span.path) not in (
        "shell",
        "notebook",
    ):
        return False  # a command in a comment, a subprocess call, a workflow
    return target.argument is not None or target.site.open is None


def _new_config_fits(view: View) -> bool:
    """Whether a trainer call without a config can be given one."""
    trainer, known = view.run.trainer, view.trainer_class
    if trainer is None or known is None or known.config is None or trainer.open is not None:
        return False
    return (
        "args" in known.keywords
        and "args" not in trainer.arguments
        and not any(a.place.kind == "positional" and a.name not in ("0",) for a in trainer.arguments.values())
    )


def _move(name: str, new: str, view: View) -> list[Intent] | None:
    """A trainer keyword becomes a field of its config; a plain TrainingArguments becomes that config."""
    source = written(view, name)
    if source is None or source.argument is None:
        return None
    config = view.run.config
    if config is None:
        if not _new_config_fits(view) or view.trainer_class is None:
            return None
        return [Intent("move", source.site, source.name, new, path=("new", view.trainer_class.config or ""))]
    if config.open is not None or config.lenient is not None:
        return None
    intents = [Intent("move", source.site, source.name, new, to=config)]
    if config.name == TRAINING_ARGUMENTS and view.trainer_class is not None and view.trainer_class.config is not None:
        intents.append(Intent("class", config, "config", view.trainer_class.config))
        intents += _kept_defaults(view, config)
    return intents


def _kept_defaults(view: View, config: Site) -> list[Intent]:
    """The defaults of TrainingArguments that the trainer's own config would change, written out: the training stays the same."""
    target = view.config_class
    if target is None or view.world.transformers is None:
        return []
    before = knowledge.training_arguments(view.world.transformers)
    found: list[Intent] = []
    for name in ("learning_rate", "bf16", "gradient_checkpointing", "average_tokens_across_devices"):
        if name not in target.fields or name not in before or name in config.arguments:
            continue
        old, new = before[name].default, target.fields[name].default
        if name == "bf16" and config.arguments.get("fp16") is not None:
            continue
        if old != new and old is not knowledge.UNREAD:
            found.append(Intent("set", config, name, False if old is None else old))
    return found


# Several runs ------------------------------------------------------------------------------------------------------------


def merge(findings: Iterable[Finding], runs: Iterable[Run]) -> list[Finding]:
    """One finding per rule and primary span. A fix is held back unless every run through its sites needs it."""
    every = list(runs)
    grouped: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        grouped.setdefault((finding.rule, finding.span, finding.message), []).append(finding)
    merged: list[Finding] = []
    for same in grouped.values():
        ids = tuple(dict.fromkeys(i for f in same for i in f.runs))
        merged.append(_held(replace(same[0], runs=ids), every))
    return sorted(merged, key=lambda f: f.order)


def _held(finding: Finding, runs: list[Run]) -> Finding:
    if finding.fix is None:
        return finding
    touched = {id(intent.site) for intent in finding.fix.intents} | {
        id(i.to) for i in finding.fix.intents if i.to is not None
    }
    touched |= {id(layer) for i in finding.fix.intents for layer in i.site.layers if layer.kind in ("recipe", "flags")}
    through = {
        run.id
        for run in runs
        if run.method is not None
        and (run.method == SERVING) == (finding.method == SERVING)
        and {id(s) for s in run.sites} & touched
    }
    if through - set(finding.runs):
        return replace(finding, held_back="another run goes through the same call and does not need it")
    if any((intent.site.function or "").startswith("test_") for intent in finding.fix.intents):
        return replace(finding, held_back="it stands in a test, which may mean it")
    return finding
