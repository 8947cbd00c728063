"""The source of one TRL release in, its facts out: exports, config classes, trainers, requirements, coded bounds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from trl_lint.knowledge import guards, script_reader
from trl_lint.knowledge.derivations import derive
from trl_lint.knowledge.fields import own_fields
from trl_lint.knowledge.metadata import read_metadata
from trl_lint.knowledge.source import UNREADABLE, Module, Source, enumerations, literal, top_level

Facts: TypeAlias = dict[str, Any]

PACKAGE: Final = "trl"


def read(source: Source) -> Facts:
    """The facts of a release, in the shape that `fold` takes for "trl"."""
    modules = {module.name: module for module in source.modules(PACKAGE)}
    library = _Library(modules)
    configs = library.homes(("Config", "Arguments"))
    commands = _commands(modules)
    trainers = library.homes(("Trainer",))
    scripts = script_reader.scripts(modules, commands, library.origin, configs)
    known = {**guards.ENUMERATIONS, **library.enumerations}
    calls = guards.Library(modules, library.bases, library.origin, known)
    return {
        "exports": {name: sorted(library.exports(module)) for name, module in modules.items()},
        "configs": {name: library.config(*home) for name, home in configs.items()},
        "trainers": {name: library.trainer(*home) for name, home in trainers.items()},
        "guards": {
            **_present({name: guards.config_sequence(calls, *home) for name, home in configs.items()}),
            **_present({name: guards.trainer_guards(calls, *home) for name, home in trainers.items()}),
        },
        "vllm_range": _vllm_range(modules),
        "liger_minimum": _constant(modules, "LIGER_KERNEL_MIN_VERSION"),
        "attention_varlen": _attention_varlen(modules),
        "commands": commands,
        "parser": script_reader.parser(modules),
        **({"scripts": scripts} if scripts else {}),
        **read_metadata(source),
    }


def _present(found: Mapping[str, list[guards.Row]]) -> dict[str, list[guards.Row]]:
    return {name: rows for name, rows in found.items() if rows}


class _Library:
    """The modules of one release, with names followed to where they are defined."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self.modules = modules
        self.enumerations = {n: members for module in modules.values() for n, members in enumerations(module).items()}
        self.structures: dict[str, Mapping[str, list[str]] | None] = {}

    def exports(self, module: Module) -> set[str]:
        """What `from module import …` can name, submodules of a package included."""
        below = {name for name in self.modules if name.startswith(module.name + ".")} if module.package else set()
        children = {name[len(module.name) + 1 :].partition(".")[0] for name in below}
        structure = self.structure(module)
        if structure is not None:
            # A lazy module replaces itself: nothing else that its file binds can be reached.
            return {name for names in structure.values() for name in names} | children
        return self.bound(module) | children

    def bound(self, module: Module) -> set[str]:
        """Names that a module binds on import."""
        names: set[str] = set()
        for node in top_level(module.tree.body, typing_only=False):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
                case ast.Import(names=aliases):
                    names |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
                case ast.ImportFrom(names=aliases):
                    for alias in aliases:
                        names |= self.starred(module, node) if alias.name == "*" else {alias.asname or alias.name}
                case ast.Assign(targets=targets):
                    names |= {name for target in targets for name in _stored(target)}
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                    names.add(name)
        return {name for name in names if not name.startswith("__")}

    def starred(self, module: Module, node: ast.ImportFrom) -> set[str]:
        other = self.modules.get(module.absolute(node))
        if other is None:
            return set()
        public = literal(other.constants["__all__"]) if "__all__" in other.constants else UNREADABLE
        return set(public) if isinstance(public, list) else {n for n in self.bound(other) if not n.startswith("_")}

    def structure(self, module: Module) -> Mapping[str, list[str]] | None:
        """Submodule to names, of a module that loads lazily; None for any other."""
        if module.name not in self.structures:
            self.structures[module.name] = self.read_structure(module)
        return self.structures[module.name]

    def read_structure(self, module: Module) -> Mapping[str, list[str]] | None:
        if "_import_structure" not in module.constants or not any(
            isinstance(node, ast.Name) and node.id == "_LazyModule" for node in ast.walk(module.tree)
        ):
            return None
        start = module.constants["_import_structure"]
        found: dict[str, list[str]] = {str(key): list(names) for key, names in (literal(start) or {}).items()}
        for node in top_level(module.tree.body):
            match node:
                case ast.Assign(targets=[ast.Subscript(value=ast.Name("_import_structure"), slice=key)], value=value):
                    found[literal(key)] = list(literal(value))
                case ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(
                            value=ast.Subscript(value=ast.Name("_import_structure"), slice=key), attr=method
                        ),
                        args=[value],
                    )
                ):
                    more = literal(value)
                    found.setdefault(literal(key), []).extend(more if method == "extend" else [more])
        return found

    def origin(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> tuple[str, str] | None:
        """Where the class that `module` calls `name` is defined, as (module, name); None outside TRL."""
        here = self.modules.get(module)
        if here is None or (module, name) in seen:
            return None
        if name in here.classes:
            return module, name
        for submodule, names in (self.structure(here) or {}).items():
            if name in names:
                return self.origin(f"{module}.{submodule}", name, seen | {(module, name)})
        target = here.imports.get(name)
        if target is None or target[1] is None:
            return None
        return self.origin(target[0], target[1], seen | {(module, name)})

    def bases(self, module: str, node: ast.ClassDef) -> list[tuple[str | None, str]]:
        """The base classes of a class as (TRL module or None, name there)."""
        found: list[tuple[str | None, str]] = []
        for base in node.bases:
            target = base.value if isinstance(base, ast.Subscript) else base
            text = ast.unparse(target)
            home = self.origin(module, text)
            if home is None:
                imported = self.modules[module].imports.get(text)
                text = (imported[1] if imported and imported[1] else text).rpartition(".")[2]
            found.append(home or (None, text))
        return found

    def homes(self, endings: tuple[str, ...]) -> dict[str, tuple[str, ast.ClassDef]]:
        """Class name to (module, definition), of every dataclass config or every trainer.

        A class that only stands in for one of the same name (a moved or deprecated import path) gives way to it; of
        unrelated classes with one name, the one nearest to the top of the package is meant.
        """
        found: dict[str, list[tuple[str, ast.ClassDef]]] = {}
        for module in self.modules.values():
            # Early wheels carry copies of example scripts there, each with a ScriptArguments of its own.
            if module.name.startswith("trl.commands.scripts."):
                continue
            for name, node in module.classes.items():
                if name.endswith(endings) and (endings == ("Trainer",) or self.dataclass(module.name, node)):
                    found.setdefault(name, []).append((module.name, node))
        return {name: min(homes, key=self.distance) for name, homes in sorted(found.items())}

    def distance(self, home: tuple[str, ast.ClassDef]) -> tuple[bool, bool, int, str]:
        module, node = home
        stands_in = any(base.lstrip("_") == node.name.lstrip("_") for _, base in self.bases(module, node))
        return stands_in, ".experimental." in module, len(module), module

    def dataclass(self, module: str, node: ast.ClassDef) -> bool:
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            return True
        for home, base in self.bases(module, node):
            if home is None and base in ("TrainingArguments", "Seq2SeqTrainingArguments"):
                return True
            if home is not None and self.dataclass(home, self.modules[home].classes[base]):
                return True
        return False

    def config(self, module: str, node: ast.ClassDef) -> Facts:
        """Own fields, bases by name and own `__post_init__` steps of a config class."""
        here = self.modules[module]
        facts: Facts = {"module": module, "bases": [base for _, base in self.bases(module, node)]}
        fields = dict(own_fields(node, here.constants))
        if fields:
            facts["fields"] = fields
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__post_init__":
                facts["steps"] = derive(node.name, statement, self.enumerations)
        return facts

    def trainer(self, module: str, node: ast.ClassDef) -> Facts:
        """Own constructor and bases by name of a trainer class."""
        facts: Facts = {"module": module, "bases": [base for _, base in self.bases(module, node)]}
        init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        return facts if init is None else facts | signature(init)


def signature(init: ast.FunctionDef) -> Facts:
    """The keywords of a constructor: each `[name, required]` in order, `**kwargs`, renames, and the config it takes."""
    arguments = init.args
    positional = [*arguments.posonlyargs, *arguments.args][1:]
    optional = len(arguments.defaults)
    keywords = [[argument.arg, index < len(positional) - optional] for index, argument in enumerate(positional)]
    keywords += [
        [argument.arg, default is None]
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    facts: Facts = {"keywords": keywords, "variadic": arguments.kwarg is not None}
    renames, deprecated = _decorated(init)
    if renames:
        facts["renames"] = renames
    if deprecated:
        facts["deprecated"] = deprecated
    for argument in [*positional, *arguments.kwonlyargs]:
        config = _config_named(argument.annotation) if argument.arg in ("args", "config") else None
        if config is not None:
            facts["config"] = config
    return facts


def _decorated(init: ast.FunctionDef) -> tuple[dict[str, str], list[str]]:
    renames: dict[str, str] = {}
    deprecated: list[str] = []
    for decorator in init.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        keywords = {keyword.arg: literal(keyword.value) for keyword in decorator.keywords}
        match ast.unparse(decorator.func).rpartition(".")[2]:
            case "deprecate_kwarg":
                values = [literal(argument) for argument in decorator.args]
                old = keywords.get("old_name", values[0] if values else None)
                new = keywords.get("new_name", values[2] if len(values) > 2 else None)
                renames |= {str(old): str(new)} if new else {}
                deprecated += [] if new else [str(old)]
            case "_deprecate_arguments":
                deprecated += list(keywords["deprecated_args"])
    return renames, deprecated


def _config_named(annotation: ast.expr | None) -> str | None:
    if annotation is None:
        return None
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    names = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
    return next((name for name in names if name.endswith(("Config", "Arguments"))), None)


def _constant(modules: Mapping[str, Module], name: str) -> Any:
    """A module-level literal by name, wherever TRL keeps it; None where it has none."""
    for module in modules.values():
        if name in module.constants:
            value = literal(module.constants[name])
            if value is not UNREADABLE:
                return value
    return None


def _attention_varlen(modules: Mapping[str, Module]) -> list[str] | None:
    """The attention implementations that SFT takes for padding-free batches without a warning; None without a check."""
    named = _constant(modules, "FLASH_ATTENTION_VARIANTS")
    module = modules.get("trl.trainer.sft_trainer")
    if named is not None or module is None:
        return named if named is None else sorted(named)
    for node in ast.walk(module.tree):
        match node:
            case ast.Compare(left=ast.Attribute(attr="_attn_implementation"), comparators=[right]):
                value = literal(right)
                return [value] if isinstance(value, str) else None if value is UNREADABLE else sorted(value)
    return None


def _vllm_range(modules: Mapping[str, Module]) -> list[str] | None:
    """[lowest, highest] vLLM release that `is_vllm_available` takes without a warning; None without a check."""
    module = modules.get("trl.import_utils")
    functions = [] if module is None else [n for n in module.tree.body if isinstance(n, ast.FunctionDef)]
    check = next((function for function in functions if function.name == "is_vllm_available"), None)
    if check is None:
        return None
    for node in ast.walk(check):
        if isinstance(node, ast.Compare):
            releases = [release for part in [node.left, *node.comparators] for release in _releases(part)]
            if releases:
                return [releases[0], releases[-1]]
    return None


def _releases(node: ast.expr) -> list[str]:
    strings = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return [text for text in strings if text[:1].isdigit()]


def _commands(modules: Mapping[str, Module]) -> list[str]:
    """The subcommands of `trl`, wherever the release registers them."""
    names: set[str] = set()
    for name, module in modules.items():
        if not name.startswith(("trl.cli", "trl.commands", "trl.scripts")):
            continue
        listed = module.constants.get("SUPPORTED_COMMANDS")
        names |= set(literal(listed)) if listed is not None else set()
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).rpartition(".")[2]
            command_class = name.startswith("trl.cli.commands") and called in ("__init__", "TrainingCommand")
            if called != "add_parser" and not command_class:
                continue
            given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
            names |= {value for value in map(literal, given) if isinstance(value, str)}
    return sorted(names)


def _stored(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
