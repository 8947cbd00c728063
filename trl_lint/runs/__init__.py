"""The sites of a file and its facts in; the training runs that they describe out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from trl_lint.facts import Facts
from trl_lint.model import Known, Object, Site
from trl_lint.runs import properties  # noqa: F401  registers the names that rules may ask
from trl_lint.runs.run import TRAINING_ARGUMENTS, Run, View, trainer_argument
from trl_lint.runs.worlds import World, Worlds, worlds
from trl_lint.sources.module import EXPECTED_TO_RAISE, Module

__all__ = ["TRAINING_ARGUMENTS", "Run", "View", "World", "Worlds", "link", "method_of", "worlds"]

# Classes that belong to a training but are no training of their own.
_NO_METHOD = frozenset(
    {"ModelConfig", "ScriptArguments", "BaseConfig", "_BaseConfig", TRAINING_ARGUMENTS, "DatasetMixtureConfig"}
)


def link(module: Module, facts: Facts, allowed: Worlds) -> Iterator[Run]:
    """The runs of one file: one for each trainer, one for each config without a trainer, one for the imports."""
    prefix = module.path
    if any(site.kind == "import" for site in module.sites):
        yield Run(f"{prefix}#imports", None, module, None, None, None, facts, allowed)
    trainers = [s for s in module.sites if s.kind == "trainer"]
    used: set[int] = set()
    for index, trainer in enumerate(trainers):
        config = _config_of(trainer, module)
        if config is not None:
            used.add(id(config))
        if EXPECTED_TO_RAISE in (trainer.lenient, config.lenient if config is not None else None):
            continue
        name = config.name if config is not None else _config_name(trainer)
        yield Run(f"{prefix}#{index + 1}", method_of(trainer.name), module, config, name, trainer, facts, allowed)
    configs = [s for s in module.sites if s.kind == "config" and id(s) not in used and s.origin.startswith("trl.")]
    loaded = None if trainers else _only(s for s in module.sites if s.kind == "model")
    adapter = None if trainers else _only(s for s in module.sites if s.kind == "peft" and s.name.endswith("Config"))
    for index, config in enumerate(configs):
        # A test that builds a config to look at it trains nothing; a trainer class of one's own that builds one in its
        # constructor, for callers who give none, is no TRL trainer.
        function = config.function or ""
        if config.lenient == EXPECTED_TO_RAISE or function.startswith("test_") or function == "__init__":
            continue
        method = method_of(config.name) if config.name not in _NO_METHOD and config.name.endswith("Config") else None
        alone = not trainers and method is not None
        yield Run(
            f"{prefix}#{len(trainers) + index + 1}", method, module, config, config.name, None, facts, allowed,
            loaded if alone else None, adapter if alone else None,
        )  # fmt: skip


def method_of(name: str) -> str:
    """The method of a trainer or config class: GRPOTrainer is grpo, OnlineDPOConfig online_dpo."""
    stem = re.sub(r"(Trainer|Config)$", "", name)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})", "_", stem).lower()
    return "minillm" if words == "mini_llm" else words


def _config_name(trainer: Site) -> str:
    return re.sub(r"Trainer$", "Config", trainer.name)


def _config_of(trainer: Site, module: Module) -> Site | None:
    """The config that a trainer call is given, by keyword or by position."""
    for name in ("args", "config"):
        argument = trainer_argument(trainer, name, None)
        if argument is not None:
            value = argument.value
            return (
                value.value.site
                if isinstance(value, Known) and isinstance(value.value, Object) and value.value.site.kind == "config"
                else None
            )
    positional = [
        argument.value.value.site
        for argument in trainer.arguments.values()
        if argument.place.kind == "positional"
        and isinstance(argument.value, Known)
        and isinstance(argument.value.value, Object)
    ]
    return _only(s for s in positional if s.kind == "config")


def _only(sites: Iterable[Site]) -> Site | None:
    found = list(sites)
    return found[0] if len(found) == 1 else None
