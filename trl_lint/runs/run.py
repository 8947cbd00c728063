"""One training as it would start: its sites and facts in; the value of every name a rule may ask, in a given world, out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from trl_lint import knowledge
from trl_lint.facts import Facts
from trl_lint.knowledge import ConfigClass, Field, TrainerClass
from trl_lint.model import (
    Argument,
    Default,
    Derived,
    Known,
    Object,
    OneOf,
    Site,
    Stated,
    Symbol,
    Table,
    Unknown,
    Value,
    Written,
)
from trl_lint.runs.launches import Launch
from trl_lint.runs.logic import SOMETHING, UNKNOWN, Alternatives, BadExpression, compiled, distinct, truth
from trl_lint.runs.worlds import World, Worlds, matching
from trl_lint.sources.model_config import adapter_of, quantization_of
from trl_lint.sources.module import Module

if TYPE_CHECKING:
    from packaging.version import Version

TRAINING_ARGUMENTS = "TrainingArguments"
SERVING = "vllm_serve"
NO_METHOD = frozenset(
    {"ModelConfig", "ScriptArguments", "BaseConfig", "_BaseConfig", TRAINING_ARGUMENTS, "DatasetMixtureConfig"}
)
"""Classes that belong to a training but are no training of their own."""

# Dotted names and how a view answers them; `properties` fills them in.
PROPERTIES: dict[str, Callable[[View], Value]] = {}
FAMILIES: dict[str, Callable[[View, str], Value]] = {}


@dataclass(frozen=True)
class Taker:
    """One dataclass that a script's parser fills in: the TRL class behind it ("" for none) and the fields of its own."""

    name: str
    own: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Parsed:
    """What a recipe and a command line hand to a script.

    `site` holds every key and option (its `layers` are the recipe and the flags), `takers` the dataclasses that take
    them. `parser` is "TrlParser", "HfArgumentParser" or None where the options are the script's own; `tolerant` says why
    keys of a recipe that no dataclass has are accepted, `tolerant_flags` why such options are; `assumed` why the
    dataclasses are only what such scripts usually have.
    """

    site: Site
    takers: tuple[Taker, ...]
    parser: str | None = None
    tolerant: str | None = None
    tolerant_flags: str | None = None
    assumed: str | None = None

    def takes(self, name: str) -> bool:
        """Whether one of the dataclasses is that TRL class."""
        return any(t.name == name for t in self.takers)


@dataclass(frozen=True)
class Run:
    """One training: what configures it, what it trains, how it is launched, and the facts it is judged by.

    `config` is None where a trainer gets no config of these files; `loaded` is the model load that a file without any
    trainer shows, the only one there. `parsed` is what a recipe and a command line give the script, `launch` the
    command that starts it, `servers` the vLLM servers that the same file starts, `accelerate` and `deepspeed` the
    configs that the launch names. `paths` are the files that describe the run, the script first. A server command is a
    run of its own, of the method "vllm_serve".
    """

    id: str
    method: str | None
    module: Module
    config: Site | None
    config_class: str | None
    trainer: Site | None
    facts: Facts
    worlds: Worlds
    loaded: Site | None = None
    adapter: Site | None = None
    parsed: Parsed | None = None
    launch: Launch | None = None
    servers: tuple[Launch, ...] = ()
    accelerate: Site | None = None
    deepspeed: Site | None = None
    paths: tuple[str, ...] = ()

    @property
    def anchor(self) -> Site | None:
        """The site that a finding about something not written points at."""
        if self.method == SERVING and self.launch is not None:
            return self.launch.flags
        return self.config or self.trainer or self.accelerate

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every site in a file that the run goes through."""
        found = [s for s in (self.config, self.trainer, self.accelerate, self.deepspeed) if s is not None]
        found += [layer for site in tuple(found) for layer in site.layers]
        if self.parsed is not None:
            found += self.parsed.site.layers
        for launch in (*((self.launch,) if self.launch is not None else ()), *self.servers):
            found += [launch.starter, launch.flags]
        return tuple(found)


class View:
    """A run in one world. Values are looked up when asked for and kept; `told` ones are taken as they are."""

    def __init__(self, run: Run, world: World, told: Mapping[str, Value] | None = None) -> None:
        self.run = run
        self.world = world
        self._values: dict[str, Value] = dict(told or {})
        self._known: dict[str, Alternatives] = {}
        self._has: dict[str, bool] = {}
        self.items: dict[str, list[Any]] = {}
        self._derived: dict[str, Alternatives] | None = None

    # the language's questions ----------------------------------------------------------------------------------------

    def alternatives(self, name: str) -> Alternatives:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._possible(name)
        return found

    def _possible(self, name: str) -> Alternatives:
        if "." not in name and name in self._targets:
            derived = self._derive().get(name)
            if derived is not None:
                return derived
        return _alternatives(self.value(name))

    def given(self, name: str) -> Alternatives:
        if "." not in name:
            argument = self.argument(name)
            if argument is not None:
                return UNKNOWN if argument.conditional else (True,)
            if (moved := self._moved.get(name)) is not None and self._takes(moved):
                return (True,)
            return UNKNOWN if self._open is not None else (False,)
        value = self.value(name)
        if isinstance(value, Unknown):
            return UNKNOWN
        return (isinstance(value.origin, Written),)

    def has(self, name: str) -> bool:
        found = self._has.get(name)
        if found is None:
            found = self._has[name] = self._declares(name)
        return found

    def _declares(self, name: str) -> bool:
        if name.startswith("trainer."):
            trainer = self.trainer_class
            return trainer is not None and name.partition(".")[2] in trainer.keywords
        return self.field(name) is not None

    def value(self, name: str) -> Value:
        """The value of a dotted name: as given, else the release's default. Not what the release derives from it."""
        found = self._values.get(name)
        if found is None:
            found = self._values[name] = self._look_up(name)
        return found

    # config fields -----------------------------------------------------------------------------------------------------

    @cached_property
    def config_class(self) -> ConfigClass | None:
        """The config class in this release; for TrainingArguments the config that the trainer turns it into."""
        name = self.run.config_class
        if name == TRAINING_ARGUMENTS or name is None:
            trainer = self.trainer_class
            name = trainer.config if trainer is not None else None
        return self.world.release.config(name) if name is not None else None

    @cached_property
    def script(self) -> knowledge.Script | None:
        """TRL's own script, where a subcommand of `trl` starts it."""
        launch = self.run.launch
        name = launch.subcommand if launch is not None else None
        return self.world.release.script(name) if name is not None else None

    @cached_property
    def _targets(self) -> frozenset[str]:
        """The fields that the release derives."""
        return _targets_of(self.config_class.steps) if self.config_class is not None else frozenset()

    @cached_property
    def trainer_class(self) -> TrainerClass | None:
        trainer = self.run.trainer
        return self.world.release.trainer(trainer.name) if trainer is not None else None

    @property
    def _open(self) -> str | None:
        """Why fields may be given that this file does not show."""
        if self.run.config is not None:
            return self.run.config.open
        if self.run.trainer is None:
            return "no config is shown"
        if (
            self.run.trainer is not None
            and (given := trainer_argument(self.run.trainer, "args", self.trainer_class)) is not None
        ):
            return given.value.why if isinstance(given.value, Unknown) else self.stand_in
        return self.run.trainer.open if self.run.trainer is not None else None

    @cached_property
    def stand_in(self) -> str | None:
        """Why the trainer's `args`, which are there, are no config: a test gives an object that has what it needs."""
        given = trainer_argument(self.run.trainer, "args", self.trainer_class) if self.run.trainer is not None else None
        if given is None or self.run.config is not None or not isinstance(given.value, Known):
            return None
        return "its args are no config of TRL's" if given.value.value is not None else None

    def argument(self, name: str) -> Argument | None:
        """What the user wrote for a config field, and where."""
        config = self.run.config
        if config is None:
            return None
        found = config.arguments.get(name)
        if found is not None and self._of_another_dataclass(name, found):
            return None
        return config.arguments.get("0") if found is None and name == "output_dir" else found

    def _of_another_dataclass(self, name: str, found: Argument) -> bool:
        """Whether what is parsed under a field's name goes into a dataclass of the project's own."""
        parsed = self.run.parsed
        if parsed is None or parsed.site.arguments.get(name) is not found:
            return False
        return any(name in taker.own for taker in parsed.takers) and self.taken(name) is None

    def field(self, name: str) -> Field | None:
        """A config field as this release declares it; None where it knows no such field."""
        config = self.config_class
        if self.run.config_class != TRAINING_ARGUMENTS and config is not None and name in config.fields:
            return config.fields[name]
        if (config is None or config.training_arguments) and self.world.transformers is not None:
            inherited = knowledge.training_arguments(self.world.transformers).get(name)
            if inherited is not None:
                return inherited
        return config.fields.get(name) if config is not None else None

    @cached_property
    def _moved(self) -> Mapping[str, Argument]:
        """Keywords of the trainer that have become fields of its config, by the field's name."""
        trainer = self.run.trainer
        found: dict[str, Argument] = {}
        for argument in trainer.arguments.values() if trainer is not None else ():
            replaced = knowledge.replacement("trainer", trainer.name, argument.name) if trainer is not None else None
            if replaced is not None and replaced.how == "move" and replaced.into is not None:
                names = (argument.name, replaced.new or argument.name)
                found.update({n: argument for n in names if self.field(n) is not None})
        return found

    def _takes(self, keyword: Argument) -> bool:
        return self.trainer_class is not None and keyword.name in self.trainer_class.keywords

    def _by_keyword(self, argument: Argument) -> Value:
        """A field's value where the trainer call gives it: releases that know both let the keyword win."""
        if not self._takes(argument):
            return Unknown(f"the trainer is given {argument.name}, which {self.world.label} takes in the config only")
        return Unknown("it is set only on one branch") if argument.conditional else self.settle(argument.value)

    def _field_value(self, name: str) -> Value:
        argument = self.argument(name)
        declared = self.field(name)
        if (moved := self._moved.get(name)) is not None:
            value = self._by_keyword(moved)
            if argument is None or (isinstance(value, Known) and value.value is not None):
                return value
        if argument is not None:
            return self.typed(argument, declared)
        if self._open is not None:
            return Unknown(self._open)
        if declared is None:
            return Unknown(f"{self.world.label} has no such field")
        if declared.default is knowledge.UNREAD or declared.default is knowledge.REQUIRED:
            return Unknown("its default is computed")
        return Known(declared.default, Default(self.world.label))

    def typed(self, argument: Argument, declared: Field | None) -> Value:
        """The value of an argument; what a recipe or a command line gives becomes what the field's type makes of it."""
        value = self.settle(argument.value)
        if argument.place.kind in ("key", "flag") and declared is not None and isinstance(value, Known):
            return coerced(value, declared.type)
        return value

    def settle(self, value: Value) -> Value:
        """A value that a parsed config or option decides, looked up in what this run is given."""
        if not isinstance(value, Unknown) or value.field is None or self.run.parsed is None:
            return value
        if value.field.endswith("()"):
            return self._of_model_config(value)
        found = self.option(value.field)
        if isinstance(found, Unknown) and value.likely is not None and self._certainly_absent(value.field):
            return value.likely
        return found

    def _certainly_absent(self, name: str) -> bool:
        parsed = self.run.parsed
        return parsed is not None and parsed.site.open is None and name not in parsed.site.arguments

    def option(self, name: str) -> Value:
        """What the recipe and the command line give the script for a field of any of its dataclasses, else its default."""
        parsed = self.run.parsed
        if parsed is None:
            return Unknown("the command line decides")
        argument = parsed.site.arguments.get(name)
        if argument is not None:
            return (
                Unknown("it is set only on one branch")
                if argument.conditional
                else self.typed(argument, self.taken(name))
            )
        if parsed.site.open is not None:
            return Unknown(parsed.site.open)
        if parsed.assumed is not None and self.field(name) is None:
            return Unknown(parsed.assumed)  # the script may do without a ModelConfig
        for taker in parsed.takers:
            if name in taker.own:
                return taker.own[name]
        declared = self.taken(name)
        if declared is None or declared.default in (knowledge.UNREAD, knowledge.REQUIRED):
            return Unknown(f"{name} is not given")
        return Known(declared.default, Default(self.world.label))

    def taken(self, name: str) -> Field | None:
        """The field of one of the TRL dataclasses that take what is parsed."""
        for taker in self.run.parsed.takers if self.run.parsed is not None else ():
            config = self.world.release.config(taker.name) if taker.name else None
            if config is not None and name in config.fields:
                return config.fields[name]
            inherits = taker.name == TRAINING_ARGUMENTS or (config is not None and config.training_arguments)
            if inherits and self.world.transformers is not None:
                inherited = knowledge.training_arguments(self.world.transformers).get(name)
                if inherited is not None:
                    return inherited
        return None

    def _of_model_config(self, value: Unknown) -> Value:
        """What TRL's get_peft_config and get_quantization_config make of the ModelConfig that is parsed."""
        assert self.run.parsed is not None
        if not self.run.parsed.takes("ModelConfig"):
            return value
        site = self.run.parsed.site
        if value.field == "get_peft_config()":
            used = self.option("use_peft")
            if not isinstance(used, Known):
                return used
            return Known(Object(adapter_of(site)), used.origin) if used.value else Known(None, used.origin)
        if value.field == "get_quantization_config()":
            return quantization_of(site, self.option("load_in_4bit"), self.option("load_in_8bit"))
        return value

    def _derive(self) -> Mapping[str, Alternatives]:
        """Replay what the release's own `__post_init__` makes of the fields before it checks them."""
        if self._derived is None:
            self._derived = {}
            config = self.config_class
            state = _State(self, self._derived)
            for step in config.steps if config is not None else ():
                holds = truth(_evaluate(step.when, state)) if step.when else True
                if holds is False:
                    continue
                after = _evaluate(step.value, state) if step.value is not None else UNKNOWN
                before = state.alternatives(step.field)
                if holds is None and after is not UNKNOWN and before is not UNKNOWN:
                    after = distinct((*before, *after))  # type: ignore[misc]
                elif holds is None:
                    after = UNKNOWN
                self._derived[step.field] = after
        return self._derived

    # names -------------------------------------------------------------------------------------------------------------

    def _look_up(self, name: str) -> Value:
        root, _, rest = name.partition(".")
        if not rest:
            return self.value("launch.num_processes") if name == "world_size" else self._field_value(name)
        if root == "trainer":
            return self._trainer_value(rest)
        if root == "versions":
            return self._version(rest)
        if name == "transformers.__version__":  # as releases ask it in their own derivations
            return self._version("transformers")
        if root == "installed":
            return self._installed(rest)
        found = PROPERTIES.get(name)
        if found is not None:
            return found(self)
        for prefix, read in FAMILIES.items():
            if name.startswith(prefix):
                return read(self, name[len(prefix) :])
        return self.inside(self.value(root), rest)

    def inside(self, value: Value, key: str) -> Value:
        """An entry of a mapping field: `gradient_checkpointing_kwargs.use_reentrant`."""
        if isinstance(value, Unknown):
            return value
        if isinstance(value, Known) and isinstance(value.value, Table):
            entry = value.value.entries.get(key)
            if entry is not None:
                return Unknown("it is set only on one branch") if entry.conditional else self.settle(entry.value)
            return (
                Unknown(value.value.open)
                if value.value.open is not None
                else Known(None, value.origin if not isinstance(value.origin, Written) else Derived("not given"))
            )
        if isinstance(value, Known) and isinstance(value.value, dict):
            return Known(value.value.get(key), value.origin)
        if isinstance(value, Known) and value.value is None:
            return Known(None, value.origin if not isinstance(value.origin, Written) else Derived("not given"))
        return Unknown("it is no mapping that can be read")

    def _trainer_value(self, keyword: str) -> Value:
        trainer = self.run.trainer
        if trainer is None:
            return Unknown("no trainer in this file")
        found = trainer_argument(trainer, keyword, self.trainer_class)
        if found is not None:
            return Unknown("it is set only on one branch") if found.conditional else self.settle(found.value)
        return Unknown(trainer.open) if trainer.open is not None else Known(None, Default(self.world.label))

    def _version(self, package: str) -> Value:
        package = package.replace("_", "-")
        fact = self.run.facts.packages.get(package)
        if package == "trl":
            return Known(parsed(self.world.version), Stated(self.run.worlds.origin))
        if package == "transformers" and (fact is None or fact.version is None):
            if self.world.transformers is None:
                return Unknown("no transformers release is pinned")
            return Known(parsed(self.world.transformers), Derived(f"what {self.world.label} goes with"))
        if fact is None:
            return Unknown(f"no {package} version is pinned")
        if fact.version is not None:
            return Known(parsed(fact.version), Stated(fact.origin))
        if fact.specifier and package in ("vllm", "liger-kernel", "kernels"):
            return _one_of(package, fact.specifier, fact.origin)
        return Unknown(f"{fact.origin} allows several {package} versions")

    def _installed(self, package: str) -> Value:
        fact = self.run.facts.packages.get(package.replace("_", "-"))
        if fact is None:
            return Unknown(f"nothing says whether {package} is installed")
        return Known(fact.state != "not-installed", Stated(fact.origin))


def coerced(value: Known, type_: str) -> Value:
    """What a parser makes of a YAML scalar or a word of the command line for a field of that type."""
    given = value.value
    words = set(re.findall(r"\w+", type_))
    if isinstance(given, str):
        if "str" in words and not words & {"bool"}:
            return value
        try:
            if "int" in words and re.fullmatch(r"[+-]?\d+", given):
                return Known(int(given), value.origin)
            if "float" in words:
                return Known(float(given), value.origin)
        except ValueError:
            return value
        if "bool" in words and given.lower() in _BOOLEANS:
            return Known(_BOOLEANS[given.lower()], value.origin)
        return value
    if "list" in words and given is not None and not isinstance(given, (tuple, Table)):
        return Known((given,), value.origin)
    if isinstance(given, bool) or given is None:
        return value
    if isinstance(given, int) and "float" in words and "int" not in words:
        return Known(float(given), value.origin)
    if isinstance(given, (int, float)) and words <= {"str", "None", "Optional"} and value.origin is not None:
        return Known(str(given), value.origin)
    return value


_BOOLEANS = {"yes": True, "true": True, "t": True, "y": True, "1": True, "no": False, "false": False, "f": False, "n": False, "0": False}  # fmt: skip


@cache
def parsed(version: str) -> Version:
    """A version that can be compared."""
    from packaging.version import Version

    return Version(version)


@cache
def _one_of(package: str, specifier: str, origin: str) -> Value:
    allowed = matching(package, specifier)
    if not allowed:
        return Unknown(f"{origin} allows no known {package} version")
    return OneOf(tuple(Known(parsed(v), Stated(origin)) for v in allowed), Stated(origin))


class _State:
    """The names of a view as they stand in the middle of a release's derivations."""

    def __init__(self, view: View, derived: Mapping[str, Alternatives]) -> None:
        self._view = view
        self._derived = derived

    def alternatives(self, name: str) -> Alternatives:
        found = self._derived.get(name)
        return found if found is not None else _alternatives(self._view.value(name))

    def given(self, name: str) -> Alternatives:
        return self._view.given(name)

    def has(self, name: str) -> bool:
        return self._view.has(name)


def trainer_argument(trainer: Site, keyword: str, known: TrainerClass | None) -> Argument | None:
    """What a trainer call gives for a keyword, by name or by position."""
    found = trainer.arguments.get(keyword)
    if found is None and known is not None and keyword in known.keywords:
        found = trainer.arguments.get(str(known.keywords.index(keyword)))
    return found


@cache
def _targets_of(steps: tuple[object, ...]) -> frozenset[str]:
    return frozenset(step.field for step in steps)  # type: ignore[attr-defined]


def _evaluate(text: str, state: _State) -> Alternatives:
    try:
        return compiled(text)(state)
    except BadExpression:
        return UNKNOWN


_SURELY_SOMETHING = ("<local>.", "<lambda>", "<object>.", "torch.", "transformers.", "trl.", "peft.")


def _alternatives(value: Value) -> Alternatives:
    """A value as the condition language sees it: a symbol is something, or nothing is known where it may stand for None."""
    match value:
        case Known():
            return _plain(value.value)
        case OneOf():
            found = [_plain(v.value) for v in value.values]
            if any(f is UNKNOWN for f in found):
                return UNKNOWN
            return tuple(f[0] for f in found if isinstance(f, tuple))
    return UNKNOWN


def _plain(value: object) -> Alternatives:
    if isinstance(value, Symbol):
        return (SOMETHING,) if value.name.startswith(_SURELY_SOMETHING) else UNKNOWN
    return (value,)
