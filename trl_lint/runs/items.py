"""A view in; the lists that one-per-item rules go through out: unknown fields, unknown keywords, imports that fail, …"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from trl_lint import knowledge
from trl_lint.knowledge import Replacement, TrlRelease
from trl_lint.model import Argument, Known, Site, Table
from trl_lint.runs.closest import closest
from trl_lint.runs.logic import Alternatives
from trl_lint.runs.moving import Change, changes, gone, written_anew
from trl_lint.runs.properties import liger_release
from trl_lint.runs.run import NO_METHOD, TRAINING_ARGUMENTS, View, trainer_argument
from trl_lint.sources.module import PARSED


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of a list: what a page may read of it (`item.name`, …), and where it is written."""

    attributes: Mapping[str, object]
    site: Site
    argument: Argument | None = None


class ItemView:
    """A view whose names also hold one item."""

    def __init__(self, view: View, item: Item) -> None:
        self.view = view
        self.item = item

    def alternatives(self, name: str) -> Alternatives:
        if name.startswith("item."):
            return (self.item.attributes.get(name.partition(".")[2]),)
        return self.view.alternatives(name)

    def given(self, name: str) -> Alternatives:
        return self.view.given(name)

    def has(self, name: str) -> bool:
        return self.view.has(name)


def unknown_fields(view: View) -> Iterable[Item]:
    """Config fields given in a call that this release's class does not accept: the call raises TypeError."""
    config, name = view.run.config, view.run.config_class
    if config is None or name is None or config.lenient is not None or view.run.module.unsloth is not None:
        return
    if name != TRAINING_ARGUMENTS and view.world.release.config(name) is None:
        return
    for argument in config.arguments.values():
        if argument.conditional or argument.place.kind not in ("keyword", "entry") or not argument.name.isidentifier():
            continue
        if argument.name not in _accepted(view, name):
            yield _fate(view, "config", name, argument, config)


def unknown_options(view: View) -> Iterable[Item]:
    """Keys of a recipe and options of a command that none of the dataclasses of the script's parser has.

    `item.kind` is "key" or "flag". Where the script is not at hand only what was once a field, or is nearly one, counts.
    """
    parsed, name = view.run.parsed, view.run.config_class
    if parsed is None or parsed.parser is None or name is None or view.run.module.unsloth is not None:
        return
    trained = [t.name for t in parsed.takers if t.name.endswith("Config") and t.name not in NO_METHOD]
    if name != next(iter(trained), name):
        return  # each of the parser's configs is a run: the one that trains says it
    if view.world.transformers is None:
        return
    if any(
        t.name and t.name != TRAINING_ARGUMENTS and view.world.release.config(t.name) is None for t in parsed.takers
    ):
        return
    known = _taken(view)
    for key, argument in parsed.site.arguments.items():
        kind = argument.place.kind
        passes = {"key": parsed.tolerant, "flag": parsed.tolerant_flags}.get(kind, "no option")
        if argument.conditional or passes is not None or key in known or key in _OF_PARSERS:
            continue
        if kind == "flag" and (key.removeprefix("no_") in known or any(k.startswith(key) for k in known)):
            continue  # argparse's own negations and abbreviations
        owners = [t.name for t in parsed.takers if t.name and knowledge.history(t.name, key)]
        item = _fate(view, "config", owners[0] if owners else name, argument, parsed.site)
        similar = _meant(view, key, argument, known)
        if parsed.assumed is not None and item.attributes["last"] is None and similar is None:
            continue  # a script of the project's own may well have such an option
        yield Item({**item.attributes, "similar": None if item.attributes["last"] else similar, "kind": kind, "parser": parsed.parser}, parsed.site, argument)  # fmt: skip


def _meant(view: View, key: str, argument: Argument, known: frozenset[str]) -> str | None:
    """The field that a misspelt key may stand for; one that takes no list is not meant by a list."""
    similar = closest(key, known)
    declared = view.taken(similar) if similar is not None else None
    given = argument.value.value if isinstance(argument.value, Known) else None
    if declared is not None and isinstance(given, tuple) and "list" not in declared.type.lower():
        return None
    already = view.run.parsed is not None and similar in view.run.parsed.site.arguments
    return None if already else similar


# What TrlParser, argparse and the launchers take beside the dataclasses' fields.
_OF_PARSERS = frozenset({"config", "env", "help", "local_rank"})


def _taken(view: View) -> frozenset[str]:
    """Every field of the dataclasses of the run's parser."""
    assert view.run.parsed is not None
    assert view.world.transformers is not None
    own = frozenset(n for t in view.run.parsed.takers for n in t.own)
    names = tuple(t.name for t in view.run.parsed.takers if t.name)
    return own | _fields_of(view.world.release, names, view.world.transformers)


@lru_cache(maxsize=2_000)
def _fields_of(release: TrlRelease, names: tuple[str, ...], transformers: str) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        config = release.config(name)
        found |= set(config.fields) if config is not None else set()
        if name == TRAINING_ARGUMENTS or (config is not None and config.training_arguments):
            found |= set(knowledge.training_arguments(transformers))
    return frozenset(found)


def _accepted(view: View, name: str) -> frozenset[str]:
    declared = view.config_class if name != TRAINING_ARGUMENTS else None
    own = frozenset(declared.fields) if declared is not None else frozenset()
    if declared is not None and not declared.training_arguments:
        return own
    if (
        view.world.transformers is None
    ):  # older than all that are known: whatever any known release had may have been there
        return own | _ever()
    return own | frozenset(knowledge.training_arguments(view.world.transformers))


def _ever() -> frozenset[str]:
    return frozenset(
        field for version in knowledge.releases("transformers") for field in knowledge.training_arguments(version)
    )


def _fate(view: View, kind: str, owner: str, argument: Argument, site: Site) -> Item:
    """What became of a name that is not accepted: when it was, what replaced it."""
    name = argument.name
    ranges = knowledge.history(owner, name) if owner != TRAINING_ARGUMENTS else ()
    package = "trl"
    replaced = knowledge.replacement(kind, owner, name)
    if not ranges and kind == "config":
        inherited = knowledge.training_arguments_history(name)
        if inherited:
            ranges, package = inherited, "transformers"
            replaced = replaced or knowledge.replacement("training_arguments", owner, name)
    current = view.world.release.version if package == "trl" else view.world.transformers or ""
    past, future = _last_before(package, ranges, current), _first_after(package, ranges, current)
    target = _usable(view, replaced, owner)
    config = view.config_class
    attributes: dict[str, object] = {
        "name": name, "owner": owner, "package": package, "release": f"{package} {current}", "last": past, "first": future,
        "new": target, "how": replaced.how if replaced is not None and (target is not None or replaced.how in ("drop", "by-hand")) else None,
        "into": replaced.into if replaced is not None else None, "note": replaced.note if replaced is not None else None,
        "config": config.name if config is not None else None,
        "value": argument.value.value if isinstance(argument.value, Known) else None,
        "off": isinstance(argument.value, Known) and (argument.value.value is False or argument.value.value is None),
        "new_given": target is not None and _new_given(view, kind, replaced, target),
        "similar": _similar(name, view, kind, owner) if not ranges else None,
    }  # fmt: skip
    return Item(attributes, site, argument)


def _usable(view: View, replaced: Replacement | None, owner: str) -> str | None:
    """The new name, if this release takes it."""
    if replaced is None or replaced.how in ("drop", "by-hand"):
        return None
    new = replaced.new or replaced.old
    if replaced.kind == "trainer" and replaced.into is None:
        trainer = view.trainer_class
        return new if trainer is not None and new in trainer.keywords else None
    owner = replaced.into or owner
    config = view.world.release.config(owner) if owner != TRAINING_ARGUMENTS else view.config_class
    if config is not None and new in config.fields:
        return new
    inherited = knowledge.training_arguments(view.world.transformers) if view.world.transformers is not None else {}
    return new if new in inherited else None


def _new_given(view: View, kind: str, replaced: Replacement | None, new: str) -> bool:
    if kind == "trainer" and replaced is not None and replaced.into is None:
        return view.run.trainer is not None and trainer_argument(view.run.trainer, new, view.trainer_class) is not None
    return view.argument(new) is not None


def _similar(name: str, view: View, kind: str, owner: str) -> str | None:
    """A name of this release that a typo may have meant."""
    if kind == "trainer" and view.trainer_class is not None:
        return closest(name, frozenset(view.trainer_class.keywords))
    return closest(name, _accepted(view, owner))


def _last_before(package: str, ranges: tuple[tuple[str, str], ...], current: str) -> str | None:
    order = {v: i for i, v in enumerate(knowledge.releases(package))}
    here = order.get(current, len(order))
    past = [last for _first, last in ranges if order[last] < here]
    return past[-1] if past else None


def _first_after(package: str, ranges: tuple[tuple[str, str], ...], current: str) -> str | None:
    order = {v: i for i, v in enumerate(knowledge.releases(package))}
    here = order.get(current, len(order))
    return next((first for first, _last in ranges if order[first] > here), None)


def unknown_keywords(view: View) -> Iterable[Item]:
    """Keywords of a trainer call that this release's constructor does not accept."""
    trainer, known = view.run.trainer, view.trainer_class
    if (
        trainer is None
        or known is None
        or known.variadic
        or trainer.lenient is not None
        or view.run.module.unsloth is not None
    ):
        return
    for argument in trainer.arguments.values():
        if argument.conditional or argument.place.kind not in ("keyword", "entry") or not argument.name.isidentifier():
            continue
        if argument.name not in known.keywords and argument.name not in known.renames:
            yield _fate(view, "trainer", trainer.name, argument, trainer)


def deprecated_keywords(view: View) -> Iterable[Item]:
    """Keywords that this release still maps to a new name, with a warning."""
    trainer, known = view.run.trainer, view.trainer_class
    if trainer is None or known is None or trainer.lenient is not None or view.run.module.unsloth is not None:
        return
    for argument in trainer.arguments.values():
        if argument.name in known.renames and not argument.conditional:
            item = _fate(view, "trainer", trainer.name, argument, trainer)
            new = known.renames[argument.name]
            given = trainer_argument(trainer, new, known) is not None
            yield Item({**item.attributes, "new": new, "how": "rename", "new_given": given}, trainer, argument)


def missing_imports(view: View) -> Iterable[Item]:
    """Names imported from TRL that this release does not offer there: the import raises."""
    if view.run.method is not None or view.run.config is not None:
        return
    release = view.world.release
    missing: dict[tuple[int, str], list[Site]] = {}
    for site in view.run.module.sites:
        if site.kind != "import" or site.lenient is not None:
            continue
        module = site.origin.rpartition(".")[0]
        exported = release.exports(module)
        if exported is None and not _homes(view, site, module):
            missing.setdefault((site.callee.start, module), []).append(site)
        # Names with an underscore in front are not in the tables.
        elif exported is None or (
            site.name not in exported and not site.name.startswith("_") and release.exports(site.origin) is None
        ):
            yield _missing(view, [site], module, no_module=exported is None)
    for (_start, module), sites in missing.items():
        yield _missing(view, sites, module, no_module=True)


def _homes(view: View, site: Site, module: str) -> list[str]:
    return [m for m in view.world.release.modules_of(site.name) if _may_be_home(m, module, site.name)]


def _missing(view: View, sites: list[Site], module: str, *, no_module: bool) -> Item:
    """One item for a name, or for all names that one statement takes from a module that is not there."""
    release, first = view.world.release, sites[0]
    ranges = knowledge.history(module, first.name)
    homes = _homes(view, first, module)
    replaced = knowledge.replacement("symbol", module, first.name) or knowledge.replacement("symbol", "trl", first.name)
    attributes: dict[str, object] = {
        "name": ", ".join(s.name for s in sites), "module": module, "home": homes[0] if homes else None,
        "last": _last_before("trl", ranges, release.version), "first": _first_after("trl", ranges, release.version),
        "note": replaced.note if replaced is not None and not homes else None, "no_module": no_module, "ever": bool(ranges),
    }  # fmt: skip
    return Item(attributes, first)


def _may_be_home(home: str, module: str, name: str) -> bool:
    """Whether `home` can be where `name` went to: a public module that does not hold another thing of the same name.

    `trl.experimental.gspo_token` had a GRPOTrainer of its own while `trl` had the plain one: that is no move.
    """
    if any(part.startswith("_") for part in home.split(".")):
        return False
    if home != "trl" or not module.startswith("trl.experimental"):
        return True
    order = {v: i for i, v in enumerate(knowledge.releases("trl"))}
    there = {i for first, last in knowledge.history(home, name) for i in range(order[first], order[last] + 1)}
    here = {i for first, last in knowledge.history(module, name) for i in range(order[first], order[last] + 1)}
    return not here or not here <= there


def unknown_liger_keys(view: View) -> Iterable[Item]:
    """Keys of `liger_kernel_config` that no model type of the project's liger-kernel takes: dropped silently."""
    release = liger_release(view)
    value = view.value("liger_kernel_config")
    if release is None or not isinstance(value, Known) or not isinstance(value.value, Table) or view.run.config is None:
        return
    for name, argument in value.value.entries.items():
        if name not in release.all_keys and not argument.conditional:
            yield Item(
                {"name": name, "known": tuple(sorted(release.all_keys)), "liger": release.version},
                view.run.config,
                argument,
            )


def ignored_model_configs(view: View) -> Iterable[Item]:
    """A ModelConfig that is parsed while of its values at most the model's name is read: the others do nothing."""
    if view.run.method is not None or view.run.config is None or view.run.config.name != "ModelConfig":
        return
    config, reads = next(iter(view.run.config.layers), view.run.config), view.run.module.reads
    if config.open != PARSED:
        return
    if config.variable is None or config.lenient is not None or config.variable not in reads:
        return
    fields = reads[config.variable]
    trainers = [s for s in view.run.module.sites if s.kind == "trainer"]
    if not trainers or "" in fields or fields - {"model_name_or_path", "model_revision", "trust_remote_code"}:
        return
    yield Item({"name": config.variable, "used": tuple(sorted(fields))}, config)


def changed_defaults(view: View) -> Iterable[Item]:
    """Values that nobody gave and that the release which the files are moved to sees differently; none where nothing moves.

    `item.before` and `item.after` are the releases, `item.old` and `item.new` the values, `item.literal` the old one as the
    new release takes it (None: it takes none such).
    """
    return _of_changes(view, changes(view))


def gone_defaults(view: View) -> Iterable[Item]:
    """Fields that did something though nobody gave them, and that the release which the files are moved to has not.

    `item.note` says what takes their place.
    """
    return _of_changes(view, gone(view))


def rewritten_trainers(view: View) -> Iterable[Item]:
    """The run's trainer, if the release that the files are moved to has another one by its name. `item.new` is the first
    release with it, `item.note` what is different."""
    return _of_changes(view, written_anew(view))


def _of_changes(view: View, found: Iterable[Change]) -> Iterable[Item]:
    anchor = view.run.anchor
    if anchor is not None:
        site = replace(anchor, span=anchor.callee)
        yield from (Item(asdict(change), site) for change in found)


ITEMS: dict[str, Callable[[View], Iterable[Item]]] = {
    "run.unknown_fields": unknown_fields,
    "run.unknown_options": unknown_options,
    "run.unknown_keywords": unknown_keywords,
    "run.deprecated_keywords": deprecated_keywords,
    "run.missing_imports": missing_imports,
    "run.unknown_liger_keys": unknown_liger_keys,
    "run.ignored_model_configs": ignored_model_configs,
    "run.changed_defaults": changed_defaults,
    "run.gone_defaults": gone_defaults,
    "run.rewritten_trainers": rewritten_trainers,
}
