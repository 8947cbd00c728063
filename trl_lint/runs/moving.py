"""A run that is to be moved to another TRL release in; what that release would silently do otherwise, out.

`moved` makes the worlds to judge it by: those of the release that it is moved to, with the one it was written for beside
them. `changes` compares the two: every value that nobody gave and that certainly differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from trl_lint import knowledge
from trl_lint.facts import Fact, Facts, Overrides
from trl_lint.knowledge import REQUIRED, UNREAD, ConfigClass, Field, defaults
from trl_lint.knowledge.idle import is_idle
from trl_lint.model import Derived, Known
from trl_lint.runs.logic import Something, condition, truth
from trl_lint.runs.run import SERVING, View
from trl_lint.runs.worlds import World, Worlds, admits, worlds

ORIGIN = "--target-trl"


# Which worlds ----------------------------------------------------------------------------------------------------------


def overrides_of_a_move(given: Overrides, target: str) -> tuple[Overrides, Overrides]:
    """What is said by hand of the release that files were written for, and of the one they are moved to.

    `--trl` states the former; the other packages are those that the moved files will meet.
    """
    trl = {name: version for name, version in given.packages.items() if name == "trl"}
    return replace(given, packages=trl), replace(given, packages={**given.packages, "trl": f"=={target}"})


def moved(written_for: Facts, judged_by: Facts, target: str) -> tuple[Facts, Worlds]:
    """The facts and worlds of files that are moved to a release: its own, and the world that they were written for."""
    packages = {**judged_by.packages, "trl": Fact("trl", f"=={target}", target, "declared", ORIGIN)}
    notes: list[str] = []
    pinned = packages.get("transformers")
    required = knowledge.trl(target).requires.get("transformers", "")
    if pinned is not None and (pinned.version or pinned.specifier) and not admits(required, pinned):
        del packages["transformers"]
        notes.append(
            f"{pinned.origin}: trl {target} wants transformers {required}, not {pinned.specifier}: change that pin too; "
            "judged by what goes with it (--transformers says which)"
        )
    facts = replace(judged_by, packages=packages)
    source, why = _source(written_for, target)
    return facts, replace(worlds(facts), source=source, notes=(why, *notes))


def _source(facts: Facts, target: str) -> tuple[World | None, str]:
    """The world that files were written for, and a note that says which it is, or why none is known."""
    fact = facts.packages.get("trl")
    if fact is None or not (fact.version or fact.specifier):
        return None, (
            f"nothing says which trl this was written for: names are moved to {target}, and what defaults have changed is "
            "not known; --trl V tells it"
        )
    allowed = worlds(facts)
    if allowed.assumed is None or not allowed.bounded:
        return None, f"trl {fact.version or fact.specifier} ({fact.origin}) is no release known here: only names are moved to {target}"  # fmt: skip
    version = allowed.assumed.version
    newest = "" if fact.version else f", the newest that {fact.specifier} allows"
    return allowed.assumed, f"moved from trl {version} ({fact.origin}{newest}) to {target}"


# What changes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One value that nobody gave: `old` in the release `before`, `new` in the release `after`.

    `literal` is the Python text of the old value as the new release takes it, None where it takes none such. `note` says
    what to do where the new release has no such field at all.
    """

    name: str
    owner: str
    old: object
    new: object
    before: str
    after: str
    literal: str | None = None
    note: str = ""


def changes(view: View) -> Iterator[Change]:
    """Every value of a run that nobody gave and that would change the training or its speed by the move."""
    for before, left, target in _moves(view):
        yield from _not_derived(list(_of_fields(view, before, left, target)), view, target)
        yield from _of_loading(view, before)


def gone(view: View) -> Iterator[Change]:
    """Fields with an effect that nobody gave, and that the new release can only be made to do by hand."""
    for before, left, target in _moves(view):
        for name in left.fields:
            row = knowledge.replacement("config", left.name, name)
            if view.field(name) is not None or row is None or row.how != "by-hand":
                continue
            old = _single(before, name)
            if old is None or not old[0] or truth(view.given(name)) is not False:
                continue
            if truth(condition(defaults.counts(name))(before)) is not False:
                yield Change(
                    name, target.name, old[0], None, _label(before, trl=True), _label(view, trl=True), note=row.note
                )


def written_anew(view: View) -> Iterator[Change]:
    """The trainer, if the new release's is another one by the same name: `new` is the first release with it."""
    source, name = view.run.worlds.source, view.run.config_class
    if source is None or name is None or view.run.method in (None, SERVING):
        return
    found = defaults.anew(name, source.release.version, view.world.release.version)
    if found is not None:
        first, note = found
        yield Change(name, name, None, first, source.label, view.world.label, note=note)


def _moves(view: View) -> Iterator[tuple[View, ConfigClass, ConfigClass]]:
    """The run as it was written, with its config class then and now; nothing where it is not moved or cannot be compared."""
    source, target = view.run.worlds.source, view.config_class
    if source is None or target is None or view.run.method in (None, SERVING):
        return
    before = View(view.run, source)
    left = before.config_class
    if left is not None and defaults.anew(target.name, source.release.version, view.world.release.version) is None:
        yield before, left, target


def _of_fields(view: View, before: View, left: ConfigClass, target: ConfigClass) -> Iterator[Change]:
    predecessors = _predecessors(left, target)
    # Fields were keywords of the trainer before they were fields; another rule moves them.
    keywords = view.run.trainer.arguments if view.run.trainer is not None else {}
    for name in _fields(view, target):
        names = (name, predecessors.get(name, name))
        if is_idle(name) or any(n in keywords or truth(view.given(n)) is not False for n in names):
            continue
        formerly = name if before.field(name) is not None else names[1]
        old, new = _old(before, left, formerly, name), _single(view, name)
        if old is None or new is None or defaults.alike(name, old[0], new[0]):
            continue
        if truth(condition(defaults.counts(name))(view)) is False:
            continue
        trl = name in left.fields or name in target.fields
        yield Change(
            name, target.name, old[0], new[0], _label(before, trl=trl), _label(view, trl=trl),
            _literal(name, old[0], view.field(name)),
        )  # fmt: skip


def _fields(view: View, target: ConfigClass) -> Iterable[str]:
    inherited = (
        knowledge.training_arguments(view.world.transformers)
        if target.training_arguments and view.world.transformers is not None
        else ()
    )
    return dict.fromkeys((*target.fields, *inherited))


def _predecessors(left: ConfigClass, target: ConfigClass) -> dict[str, str]:
    """The old names of renamed fields, by the new ones."""
    found: dict[str, str] = {}
    for name in left.fields:
        row = knowledge.replacement("config", left.name, name) if name not in target.fields else None
        if row is not None and row.how == "rename" and row.new is not None and row.values is None:
            found[row.new] = name
    return found


def _old(before: View, left: ConfigClass, formerly: str, name: str) -> tuple[object] | None:
    """What the release that is left made of a value that nobody gave, where that is certain."""
    version = before.world.release.version
    if before.field(formerly) is None:
        return defaults.before(left.name, name, version)
    old = _single(before, formerly)
    return None if old is None else defaults.meant(left.name, formerly, version, old[0])


def _single(view: View, name: str) -> tuple[object] | None:
    alternatives = view.alternatives(name)
    if not isinstance(alternatives, tuple) or len(alternatives) != 1 or isinstance(alternatives[0], Something):
        return None
    return (alternatives[0],)


def _not_derived(found: list[Change], view: View, target: ConfigClass) -> Iterator[Change]:
    """The changes without those that follow from others: what the release derives is written once, at its cause."""
    derived = {step.field for step in target.steps}
    causes = {c.name: c for c in found if c.name not in derived or _declared(view, c.name) == (c.new,)}
    told = View(view.run, view.world, {n: Known(c.old, Derived("as it was")) for n, c in causes.items()})
    for change in found:
        then = _single(told, change.name)
        if change.name in causes or then is None or not defaults.alike(change.name, change.old, then[0]):
            yield change


def _declared(view: View, name: str) -> tuple[object, ...]:
    field = view.field(name)
    return () if field is None or field.default in (UNREAD, REQUIRED) else (field.default,)


def _of_loading(view: View, before: View) -> Iterator[Change]:
    """The precision of weights whose loading call does not say it."""
    old, new = _single(before, "model.dtype"), _single(view, "model.dtype")
    if old is None or new is None or old == new or truth(view.given("model.dtype")) is not False:
        return
    # A loaded model comes from transformers alone, a name is loaded by TRL.
    trl = truth(view.alternatives("model.is_name")) is True
    yield Change(
        "model.dtype", "the model", old[0], new[0], _label(before, trl=trl), _label(view, trl=trl), repr(old[0])
    )


def _label(view: View, *, trl: bool) -> str:
    return view.world.label if trl else f"transformers {view.world.transformers}"


def _literal(name: str, old: object, field: Field | None) -> str | None:
    """The old value as the new release takes it."""
    for value in defaults.ways(name, old):
        if field is not None and _takes(field, value):
            return repr(list(value) if isinstance(value, tuple) else value)
    return None


def _takes(field: Field, value: object) -> bool:
    """Whether a field's type, as it is written, admits a value. A type that is not known to forbid it does."""
    if value is None:
        return "None" in field.type or "Optional" in field.type
    if field.choices is not None and not isinstance(value, tuple):
        return value in field.choices
    outer = field.type.partition("[")[0] if field.type.startswith(("list", "tuple", "dict")) else field.type
    known = {kind for name, kind in _KINDS.items() if name in outer}
    return not known or type(value) in known or (type(value) is int and float in known)


_KINDS: dict[str, type] = {
    "bool": bool, "int": int, "float": float, "str": str, "list": tuple, "tuple": tuple, "List": tuple, "dict": dict,
}  # fmt: skip
