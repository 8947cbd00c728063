"""The modules of one TRL release in, what its command line does out: the parser, and the script behind each command."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from trl_lint.knowledge.fields import own_fields
from trl_lint.knowledge.source import Module, literal

Facts: TypeAlias = dict[str, Any]
Home: TypeAlias = tuple[str, ast.ClassDef]

FOLDERS: Final = ("trl.scripts", "trl.commands.scripts")
PARSERS: Final = ("TrlParser", "HfArgumentParser")
MODEL_ARGUMENTS: Final = frozenset({"model_args", "model_config"})
"""What every script calls the ModelConfig that it was given."""


def parser(modules: Mapping[str, Module]) -> Facts | None:
    """What `TrlParser` does with a recipe; None for a release without one."""
    module = next((found for found in modules.values() if "TrlParser" in found.classes), None)
    if module is None:
        return None
    functions = {node.name: node for node in module.classes["TrlParser"].body if isinstance(node, ast.FunctionDef)}
    parse, init = functions.get("parse_args_and_config"), functions.get("__init__")
    if parse is None or init is None:
        return None
    taken = {argument.arg for function in (parse, init) for argument in function.args.args}
    lenient = {
        "fail_with_unknown_args": False,
        "ignore_extra_args": True,
        "return_remaining_strings": True,
    }
    strict = _raises_after_parsing(parse)
    return {
        # 0.13 and 0.14 take `ignore_extra_args` but return what is left over rather than raise.
        "unknown": "raises" if strict else "dropped",
        "lenient": {name: value for name, value in lenient.items() if name in taken} if strict else {},
        "joined": not any(_tests_for_word(node) for node in ast.walk(parse)),
        "abbreviations": not any(_keyword(node, "allow_abbrev") is False for node in _calls(init)),
        "commands": not _refuses_recipes(modules),
    }


def scripts(
    modules: Mapping[str, Module],
    commands: Sequence[str],
    origin: Callable[[str, str], tuple[str, str] | None],
    tables: Mapping[str, Home],
) -> dict[str, Facts]:
    """The script behind every command that parses dataclasses, by the name of its file.

    `tables` are the classes that the tables hold under a bare name; fields of others go with the script.
    """
    found: dict[str, Facts] = {}
    launched = _launched(modules)
    for name in sorted({*commands, *_stems(modules, "trl.scripts")}):
        stem = name.replace("-", "_")
        module = next((modules[f"{folder}.{stem}"] for folder in FOLDERS if f"{folder}.{stem}" in modules), None)
        facts = None if module is None else _script(module, origin, tables, modules)
        if facts is not None:
            found[stem] = facts | {"launches": launched(name)}
    return found


def _stems(modules: Mapping[str, Module], folder: str) -> Iterator[str]:
    return (name.removeprefix(f"{folder}.") for name in modules if name.startswith(f"{folder}."))


def _script(
    module: Module,
    origin: Callable[[str, str], tuple[str, str] | None],
    tables: Mapping[str, Home],
    modules: Mapping[str, Module],
) -> Facts | None:
    built = next((call for call in _calls(module.tree) if _called(call) in PARSERS), None)
    if built is None:
        return None
    classes = _classes(built, module.tree)
    if not classes:
        return None
    own: dict[str, Any] = {}
    for name in classes:
        home = origin(module.name, name)
        # Another class may have taken the bare name in the tables.
        if home is not None and (name not in tables or tables[name][0] != home[0]):
            node, constants = modules[home[0]].classes[home[1]], modules[home[0]].constants
            own[name] = dict(own_fields(node, constants))
    parsed = [call for call in _calls(module.tree) if _called(call).startswith("parse_args_")]
    facts: Facts = {"module": module.name, "parser": _called(built), "classes": classes}
    if own:
        facts["own"] = own
    flags = any(_keyword(call, "return_remaining_strings") is True for call in parsed)
    facts["tolerant_flags"] = flags
    facts["tolerant"] = flags or any(_keyword(call, "fail_with_unknown_args") is False for call in parsed)
    return facts | _training(module.tree)


def _training(tree: ast.Module) -> Facts:
    """How the script makes its trainer: which class, from a name or a loaded model, and what reaches the load."""
    made = next((call for call in _calls(tree) if _called(call).endswith("Trainer")), None)
    if made is None:
        return {}
    given = {keyword.arg: keyword.value for keyword in made.keywords if keyword.arg}
    model = given.get("model", made.args[0] if made.args else None)
    facts: Facts = {"trainer": _called(made), "peft": "peft_config" in given}
    facts["quantization"] = any(_called(call) == "get_quantization_config" for call in _calls(tree))
    match model:
        case ast.Attribute(attr="model_name_or_path"):
            facts["model"] = "name"
            facts |= _init_kwargs(tree)
        case ast.Name(id=name):
            facts["model"] = "loaded"
            loads = [value for value in _values(tree, name) if isinstance(value, ast.Call)]
            facts["reaches"] = {
                key: field
                for call in loads
                if _called(call) == "from_pretrained"
                for key, field in _passed(tree, call.keywords)
            }
    return facts


def _init_kwargs(tree: ast.Module) -> Facts:
    """What the script puts into `training_args.model_init_kwargs`, and whether what was there stays."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr="model_init_kwargs")], value=value):
                keywords = [ast.keyword(arg=None, value=value)] if isinstance(value, ast.Name) else []
                keywords = value.keywords if isinstance(value, ast.Call) else keywords
                return {"reaches": dict(_passed(tree, keywords)), "keeps": any(map(_merges, _calls(tree)))}
    return {"reaches": {}, "keeps": True}


def _merges(call: ast.Call) -> bool:
    """Whether a call is `….update(training_args.model_init_kwargs)`."""
    match call:
        case ast.Call(func=ast.Attribute(attr="update"), args=[ast.Attribute(attr="model_init_kwargs")]):
            return True
    return False


def _passed(tree: ast.Module, keywords: Iterable[ast.keyword]) -> Iterator[tuple[str, str]]:
    """(keyword of the load, ModelConfig field) of every value that comes from the command line."""
    for keyword in keywords:
        if keyword.arg is not None:
            field = _field(tree, keyword.value)
            if field is not None:
                yield keyword.arg, field
        elif isinstance(keyword.value, ast.Name):
            for value in _values(tree, keyword.value.id):
                if isinstance(value, ast.Call) and _called(value) == "dict":
                    yield from _passed(tree, value.keywords)


def _field(tree: ast.Module, value: ast.expr) -> str | None:
    """The ModelConfig field that a value is read from, directly or through one name."""
    sources = [value, *(_values(tree, value.id) if isinstance(value, ast.Name) else ())]
    for source in sources:
        for node in ast.walk(source):
            match node:
                case ast.Attribute(value=ast.Name(id=owner), attr=field) if owner in MODEL_ARGUMENTS:
                    return field
    return None


def _values(tree: ast.AST, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=bound)], value=value) if bound == name:
                yield value


def _classes(built: ast.Call, tree: ast.Module) -> list[str]:
    """The names of the dataclasses that a parser is built from, in order."""
    given = next((word.value for word in built.keywords if word.arg in ("dataclass_types", "parsers")), None)
    value = built.args[0] if built.args else given
    if isinstance(value, ast.Name):
        value = next(_values(tree, value.id), value)
    elements = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    names = [element.id for element in elements if isinstance(element, ast.Name)]
    # A name that is no class's stands for a tuple that this file does not spell out.
    return names if all(name[:1].isupper() for name in names) else []


def _raises_after_parsing(parse: ast.FunctionDef) -> bool:
    line = next((call.lineno for call in _calls(parse) if _called(call) == "parse_args_into_dataclasses"), None)
    return line is not None and any(isinstance(node, ast.Raise) and node.lineno > line for node in ast.walk(parse))


def _tests_for_word(node: ast.AST) -> bool:
    """Whether a node is `"--config" in …`, which only the flag as a word of its own passes."""
    match node:
        case ast.Compare(left=ast.Constant(value="--config"), ops=[ast.In()]):
            return True
    return False


def _refuses_recipes(modules: Mapping[str, Module]) -> bool:
    """Whether `trl` parses the whole command line with `parse_args`, which knows no `--config`."""
    module = modules.get("trl.cli")
    if module is None or module.package:
        return False
    return any(_called(call) == "parse_args" and not call.args for call in _calls(module.tree))


def _launched(modules: Mapping[str, Module]) -> Callable[[str], bool]:
    """Whether `trl NAME` hands what its own parser does not know to `accelerate launch`, by name."""
    training = modules.get("trl.cli.commands.training")
    if training is not None:
        commands = modules.get("trl.cli.commands")
        names = {
            literal(call.args[0]) if call.args else _keyword(call, "name")
            for call in (_calls(commands.tree) if commands is not None else ())
            if _called(call) == "TrainingCommand"
        }
        return names.__contains__
    module = modules.get("trl.cli")
    found: set[str] = set()
    for node in ast.walk(module.tree) if module is not None else ():
        match node:
            case ast.If(test=ast.Compare(comparators=[ast.Constant(value=str(name))]), body=body):
                if any(isinstance(n, ast.Name) and n.id == "launch_args" for s in body for n in ast.walk(s)):
                    found.add(name)
    found.discard("--accelerate_config")
    return found.__contains__


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _keyword(call: ast.Call, name: str) -> Any:
    return next((literal(keyword.value) for keyword in call.keywords if keyword.arg == name), None)
