"""A view in; what its TRL and its transformers refuse and warn of out: which condition holds, with the values in force.

The guards are knowledge (`TrlRelease.guards`), in the order in which the release looks; those of a config are asked in the
midst of the steps of its `__post_init__`, replayed here together with those of TrainingArguments. A run that raises goes no
further, so nothing is said of what comes after the first guard that holds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from trl_lint import knowledge
from trl_lint.knowledge import SUPER, Guard, Step
from trl_lint.model import Derived, Known, Object, Site, Symbol, Table, Unknown, Value
from trl_lint.runs.items import ITEMS, Item, unknown_fields, unknown_keywords, unknown_options
from trl_lint.runs.logic import UNKNOWN, Alternatives, BadExpression, Something, compiled, distinct, dotted, truth
from trl_lint.runs.run import PROPERTIES, TRAINING_ARGUMENTS, View, _alternatives, trainer_argument
from trl_lint.runs.targets import Target, written

PLAIN_ARGUMENTS = "run.plain_arguments"
DEPRECATIONS = ("FutureWarning", "DeprecationWarning")
MOST_ATOMS = 4
MOST_VALUES = 4


@dataclass(frozen=True)
class Judged:
    """A guard, whether it holds (None: undecided), and where it holds what exactly does, with the values in force.

    `atoms` are the comparisons that make it true, `values` the names in them with what they are, `target` the first place
    where the user wrote one of them. `unknown` are the names that an undecided one waits for.
    """

    guard: Guard
    truth: bool | None
    atoms: tuple[str, ...] = ()
    values: Mapping[str, object] = field(default_factory=dict)
    target: Target | None = None
    unknown: tuple[str, ...] = ()


def judged(view: View, *, every: bool = False) -> Iterator[Judged]:
    """The guards that a run meets, as far as the first that certainly raises; `every` one, or those that files can decide."""
    state = _State(view)
    for guard in _met(view, state):
        if not guard.certain and not every:
            continue
        holds = state.truth(guard.when)
        if holds:
            yield _explained(guard, state)
            if guard.effect == "raise":
                return
        elif holds is None:
            unknown = tuple(name for name in guard.fields if state.alternatives(name) is UNKNOWN)
            yield Judged(guard, None, unknown=unknown)
        else:
            yield Judged(guard, False)


def _met(view: View, state: _State) -> Iterator[Guard]:
    """The guards in their order; between them the state goes through the steps."""
    run, release = view.run, view.world.release
    name = view.config_class.name if view.config_class is not None else None
    if run.config is not None and run.config.lenient is not None:
        name = None  # a subclass of its own, or a call that is ready for a refusal
    if any(True for _ in unknown_fields(view)) or any(True for _ in unknown_options(view)):
        return  # Python or the parser stops the run before
    if run.config is not None and view.config_class is not None and _namesake(run.config, view.config_class.module):
        return
    trainer = run.trainer if run.trainer is not None and run.trainer.lenient is None else None
    if view.stand_in is not None:
        trainer = None
    if trainer is not None and view.trainer_class is not None and _namesake(trainer, view.trainer_class.module):
        trainer = None
    if trainer is not None and (any(True for _ in unknown_keywords(view)) or _incomplete(view)):
        trainer = None
    later = release.guards(view.trainer_class.name) if trainer is not None and view.trainer_class is not None else ()
    if name is not None and run.config_class != TRAINING_ARGUMENTS:
        rows = list(_written_out(release.sequence(name), view))
        for row in _needed(rows, later):
            if isinstance(row, Guard):
                yield row
            else:
                state.step(row)
    elif run.config is not None:
        # Most trainers take a plain TrainingArguments as it is: what their own config refuses, nothing asks then. And what
        # a subclass leaves behind, nobody knows.
        yield from (guard for guard in later if guard.when == PLAIN_ARGUMENTS)
        return
    state.built()
    yield from (guard for guard in later if guard.phase != "training")


def _namesake(site: Site, module: str) -> bool:
    """Whether a class that is imported from one experiment is known by its name only, and the known one stands elsewhere.

    `trl.experimental.gspo_token` had a GRPOTrainer of its own.
    """
    experiment = re.match(r"trl\.experimental\.\w+", site.origin)
    return experiment is not None and not module.startswith(experiment[0])


def _incomplete(view: View) -> bool:
    """Whether a trainer call lacks an argument without a default: TypeError."""
    trainer, known = view.run.trainer, view.trainer_class
    if trainer is None or known is None or trainer.open is not None:
        return False
    old = {new: name for name, new in known.renames.items()}
    missing = [name for name in known.required if trainer_argument(trainer, name, known) is None]
    return any(old.get(name) not in trainer.arguments for name in missing)


def _needed(rows: list[Step | Guard], later: Iterable[Guard]) -> list[Step | Guard]:
    """The rows without those steps whose field nothing asks for afterwards."""
    asked = {word for guard in later if guard.certain for word in _words(guard.when)}
    kept: list[Step | Guard] = []
    for row in reversed(rows):
        if isinstance(row, Step):
            if row.field not in asked:
                continue
            asked |= _words(row.value or "")
        if isinstance(row, Step) or row.certain:
            asked |= _words(row.when)
        kept.append(row)
    return kept[::-1]


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", text))


def _written_out(rows: Iterable[Step | Guard], view: View) -> Iterator[Step | Guard]:
    for row in rows:
        if isinstance(row, Guard) or row.field != SUPER:
            yield row
        elif row.when == "" and view.world.transformers is not None:
            certain = _transformers_certain(view)
            inner = knowledge.training_arguments_sequence(view.world.transformers)
            yield from (step for step in inner if certain or isinstance(step, Step))


def _transformers_certain(view: View) -> bool:
    fact = view.run.facts.packages.get("transformers")
    return fact is not None and fact.version is not None


class _State:
    """The names of a view as they stand in the middle of a `__post_init__`."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.changed: dict[str, Alternatives] = {}
        self.sources: dict[str, str] = {}
        # What is assigned to the config once it is built: `__post_init__` has not seen it.
        arguments = view.run.config.arguments if view.run.config is not None else {}
        self.assigned = {n: a.place.whole for n, a in arguments.items() if a.place.kind == "assignment"}
        self.hidden = frozenset(self.assigned)

    def built(self) -> None:
        """The config is there: from here on its fields are as they are assigned, unless that comes after the trainer."""
        trainer = self.view.run.trainer
        for name, span in self.assigned.items():
            if trainer is None or span.path != trainer.span.path or span.start < trainer.span.start:
                self.changed.pop(name, None)
                self.hidden -= {name}

    def step(self, step: Step) -> None:
        """Go through one assignment."""
        holds = self.truth(step.when) if step.when else True
        if holds is False:
            return
        after = self.ask(step.value) if step.value is not None else UNKNOWN
        before = self.alternatives(step.field)
        if holds is None:
            known = isinstance(after, tuple) and isinstance(before, tuple)
            after = distinct((*before, *after)) if known else UNKNOWN  # type: ignore[misc]
        self.changed[step.field] = after
        self.sources[step.field] = step.value or ""

    def ask(self, text: str) -> Alternatives:
        try:
            return compiled(text)(self)
        except BadExpression:
            return UNKNOWN

    def truth(self, text: str) -> bool | None:
        return truth(self.ask(text)) if text else True

    def alternatives(self, name: str) -> Alternatives:
        root, _, rest = name.partition(".")
        if root in self.hidden:
            return UNKNOWN
        found = self.changed.get(name)
        if found is not None:
            return found
        if root == "installed" and self.assumed_missing(rest):
            return UNKNOWN
        if root == "trainer" and self.renamed(rest):
            return UNKNOWN
        if rest and root in self.changed:
            return _entry(self.changed[root], rest)
        if not rest and self.view.field(name) is None and name != "world_size":
            return UNKNOWN
        return _alternatives(self.view.value(name))

    def assumed_missing(self, package: str) -> bool:
        """Whether a package is called missing only because a script's own list of requirements leaves it out."""
        fact = self.view.run.facts.packages.get(package.replace("_", "-"))
        return fact is not None and fact.state == "not-installed" and re.search(r"\.py:\d+$", fact.origin) is not None

    def renamed(self, keyword: str) -> bool:
        """Whether a trainer's keyword is given by an older name, which the release still maps to it."""
        trainer, known = self.view.run.trainer, self.view.trainer_class
        old = [name for name, new in known.renames.items() if new == keyword] if known is not None else []
        return trainer is not None and any(name in trainer.arguments for name in old)

    def given(self, name: str) -> Alternatives:
        return self.view.given(name)

    def has(self, name: str) -> bool:
        return self.view.has(name)


def _entry(alternatives: Alternatives, key: str) -> Alternatives:
    """An entry of a mapping that a step has made."""
    if isinstance(alternatives, tuple) and all(a is None or isinstance(a, dict) for a in alternatives):
        return distinct(a.get(key) if isinstance(a, dict) else None for a in alternatives)
    return UNKNOWN


# In our words ------------------------------------------------------------------------------------------------------------


def _explained(guard: Guard, state: _State) -> Judged:
    """A guard that holds, with the comparisons that make it hold: of many, those that the user has a hand in."""
    atoms = dict.fromkeys(_because(_tree(guard.when or "True"), state, wanted=True))
    chosen = [a for a in atoms if not _implied(a, atoms)]
    if len(chosen) > MOST_ATOMS:
        chosen = [a for a in chosen if any(_touched(name, state) for name in _names(a))] or chosen
    values: dict[str, object] = {}
    for atom in chosen:
        for name in _names(atom):
            found = state.alternatives(name)
            if isinstance(found, tuple) and len(found) == 1 and _sayable(found[0]):
                values[name] = found[0]
    names = [*(name for atom in chosen for name in _names(atom)), *guard.fields]
    target = next((t for name in names if (t := _origin(name, state)) is not None), None)
    return Judged(guard, True, tuple(chosen), values, target)


def _implied(atom: str, atoms: Iterable[str]) -> bool:
    """Whether `x is not None` goes without saying, because another atom compares x."""
    name, _, rest = atom.partition(" ")
    return rest == "is not None" and any(name in _names(other) for other in atoms if other != atom)


def _because(node: ast.expr, state: _State, *, wanted: bool) -> Iterator[str]:
    """The atoms that make an expression true, or false."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _because(operand, state, wanted=not wanted)
        case ast.BoolOp(op=operator, values=values) if isinstance(operator, ast.And) is wanted:
            for value in values:
                yield from _because(value, state, wanted=wanted)
        case ast.BoolOp(values=values):
            deciding = [v for v in values if state.truth(ast.unparse(v)) is wanted]
            mine = [v for v in deciding if any(_touched(name, state) for name in _names(ast.unparse(v)))]
            yield from _because((mine or deciding or values)[0], state, wanted=wanted)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            chosen = state.truth(ast.unparse(test))
            if not ast.unparse(test).startswith("given("):  # that it is given, its value says
                yield from _because(test, state, wanted=bool(chosen))
            yield from _because(body if chosen else orelse, state, wanted=wanted)
        case ast.Name(id=name) if name in state.sources and name.startswith("_"):
            yield from _because(_tree(state.sources[name]), state, wanted=wanted)
        case ast.Constant():
            return
        case _:
            atom = _chosen(node, state)
            yield ast.unparse(atom if wanted else _opposite(atom))


def _chosen(node: ast.expr, state: _State) -> ast.expr:
    """An atom with every choice in it that is made replaced by what it comes to."""
    if not any(isinstance(inner, ast.IfExp | ast.Call) for inner in ast.walk(node)):
        return node

    class Choose(ast.NodeTransformer):
        def visit_Call(self, call: ast.Call) -> ast.AST:
            if dotted(call.func) != "listed":
                return self.generic_visit(call)
            [item] = call.args
            found = state.ask(ast.unparse(item))
            listed = isinstance(found, tuple) and all(isinstance(value, tuple) for value in found)
            return item if listed else ast.List([item], ast.Load())

        def visit_IfExp(self, inner: ast.IfExp) -> ast.AST:
            holds = state.truth(ast.unparse(inner.test))
            if holds is None:
                return inner
            made: ast.AST = self.visit(inner.body if holds else inner.orelse)
            return made

    made: ast.expr = Choose().visit(ast.parse(ast.unparse(node), mode="eval").body)
    return made


_OPPOSITES: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip


def _opposite(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ast.Compare(node.left, [_OPPOSITES[type(node.ops[0])]()], node.comparators)
    return ast.UnaryOp(ast.Not(), node)


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@cache
def _names(text: str) -> tuple[str, ...]:
    """The names that an expression reads, in order."""
    found: dict[str, None] = {}

    def collect(node: ast.AST) -> None:
        name = dotted(node)
        if name is not None:
            found[name] = None
            return
        if isinstance(node, ast.Call) and dotted(node.func) == "isinstance":
            collect(node.args[0])
            return
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Call) and child is node.func):
                collect(child)

    collect(_tree(text))
    return tuple(found)


def _touched(name: str, state: _State) -> bool:
    """Whether the user wrote a name, or what the release makes it of."""
    return _origin(name, state) is not None


def _origin(name: str, state: _State, depth: int = 0) -> Target | None:
    """Where the user wrote a name, or the first of those that the release derives it from."""
    target = written(state.view, name)
    if target is not None and target.argument is not None:
        return target
    if name in state.sources and depth < 4:
        for source in _names(state.sources[name] or "None"):
            found = _origin(source, state, depth + 1) if source != name else None
            if found is not None:
                return found
    return None


def _sayable(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_sayable, value))
    return not isinstance(value, Something | Table | Symbol | Object)


def _rendered(held: Judged) -> str:
    """`generation_batch_size % num_generations != 0` (generation_batch_size is 24, num_generations 16)."""
    text = " and ".join(_phrase(atom) for atom in held.atoms) or "any such run"
    # What `x`, `not x`, `x is None` or `x == 'y'` says already needs no saying again.
    said = {m[1] for atom in held.atoms if (m := re.fullmatch(r"(?:not )?([\w.]+)(?: is None| == .+)?", atom))}
    worded = {n for atom in held.atoms if not _phrase(atom).startswith("`") for n in _names(atom)}
    shown = sorted(((n, v) for n, v in held.values.items() if n not in said | worded), key=lambda pair: pair[1] is None)
    parts = [
        f"{_plainly(name)} {'is ' if index == 0 else ''}{_value(value)}" for index, (name, value) in enumerate(shown)
    ]
    return f"{text} ({', '.join(parts[:MOST_VALUES])})" if parts else text


def _setting(held: Judged) -> str:
    """`pad_token='<pad>'` where a guard is about one field that has this value, else what it asks."""
    known = list(held.values.items())
    if len(held.atoms) != 1 or len(known) != 1 or not known[0][0].isidentifier():
        return _rendered(held)
    name, value = known[0]
    return f"`{name}={_value(value)}`"


_PHRASES = (
    (r"run\.plain_arguments", "a plain TrainingArguments"),
    (r"not model\.is_name", "a model that is loaded already"),
    (r"model\.is_name", "a model that is given by name"),
    (r"not model\.is_peft", "a model without an adapter"),
    (r"model\.is_peft", "a model that is wrapped in PEFT already"),
    (r"not installed\.(\w+)", r"{0} not being installed"),
    (r"installed\.(\w+)", r"{0} being installed"),
    (r"trainer\.(\w+) is None", r"no `{0}`"),
    (r"(?:bool\()?trainer\.(\w+)(?: is not None|\))?", r"a `{0}`"),
    (r"not isinstance\(trainer\.(\w+), str\)", "no `{0}` that is given by name"),
    (r"not dataset\.streaming", "a dataset that is not streamed"),
    (r"dataset\.streaming", "a streamed dataset"),
    (r"not versions\.(\w+) >= '(.+)'", "{0} older than {1}"),
    (r"versions\.(\w+) < '(.+)'", "{0} older than {1}"),
)


def _phrase(atom: str) -> str:
    """A comparison in words where its names are not the user's, else as code."""
    for pattern, words in _PHRASES:
        found = re.fullmatch(pattern, atom)
        if found is not None:
            return words.format(*(group.replace("_kernel", "-kernel") for group in found.groups()))
    return f"`{_plainly(atom)}`"


def _plainly(text: str) -> str:
    """Keywords of the trainer as the user writes them."""
    return re.sub(r"\btrainer\.", "", text)


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return repr(list(value))
    return repr(value) if isinstance(value, str | bool | int | float | dict) or value is None else str(value)


# Lists for rules --------------------------------------------------------------------------------------------------------


def refused(view: View) -> Iterable[Item]:
    """The first thing that the run's TRL (or its transformers) certainly refuses: `item.name`, `item.condition`, ….

    `item.phase` is "config", "trainer" or "first step".
    """
    yield from _items(view, "raise")


def warned(view: View) -> Iterable[Item]:
    """What the run's TRL certainly warns of, because of something that the user wrote.

    That a keyword of the trainer is one of the config by now (0.12) nobody needs to hear who is pinned to that release.
    """
    for item in _items(view, "warn"):
        fields = item.attributes["fields"]
        assert isinstance(fields, tuple)
        only_keywords = all(name.startswith("trainer.") for name in fields)
        if item.argument is not None and (not only_keywords or item.attributes["kind"] in DEPRECATIONS):
            yield item


def _items(view: View, effect: str) -> Iterator[Item]:
    if view.run.method is None or view.run.module.unsloth is not None:
        return
    found = view.items.get("guards")
    if found is None:
        found = view.items["guards"] = list(judged(view))
    for held in found:
        if held.truth and held.guard.effect == effect:
            yield _item(held, view)


def _item(held: Judged, view: View) -> Item:
    guard = held.guard
    names = [name for atom in held.atoms for name in _names(atom)]
    target = held.target
    inherited = guard.owner == TRAINING_ARGUMENTS
    package = "transformers" if inherited else "trl"
    phase = guard.phase if guard.phase != "construction" else "trainer" if guard.owner.endswith("Trainer") else "config"
    attributes: dict[str, object] = {
        "name": guard.name, "owner": guard.owner, "kind": guard.kind, "scope": guard.place.rpartition(":")[2],
        "place": guard.place, "condition": _rendered(held), "setting": _setting(held), "package": package, "phase": phase,
        "release": f"transformers {view.world.transformers}" if inherited else view.world.label,
        "fields": tuple(dict.fromkeys((*names, *guard.fields))), "field": target.name if target is not None else None,
    }  # fmt: skip
    anchor = view.run.anchor
    assert anchor is not None
    return Item(attributes, target.site, target.argument) if target is not None else Item(attributes, anchor)


def _plain_arguments(view: View) -> Value:
    """Whether the trainer gets transformers' own TrainingArguments."""
    config = view.run.config_class
    return (
        Known(config == TRAINING_ARGUMENTS, Derived("the config"))
        if config is not None
        else Unknown("no config is shown")
    )


PROPERTIES[PLAIN_ARGUMENTS] = _plain_arguments
ITEMS["run.refused"] = refused
ITEMS["run.warned"] = warned
