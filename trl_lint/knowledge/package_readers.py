"""The source of one transformers or liger-kernel release in, its facts out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from trl_lint.knowledge import guards
from trl_lint.knowledge.fields import own_fields
from trl_lint.knowledge.metadata import read_metadata
from trl_lint.knowledge.source import UNREADABLE, Module, Source, enumerations, literal
from trl_lint.knowledge.trl_reader import signature

Facts: TypeAlias = dict[str, Any]


def read_transformers(source: Source) -> Facts:
    """The facts of a transformers release, in the shape that `fold` takes."""
    arguments = _module(source, "transformers.training_args")
    trainer = _module(source, "transformers.trainer").classes["Trainer"]
    init = next(n for n in trainer.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    return {
        "training_arguments": dict(_inherited_fields(arguments, "TrainingArguments")),
        "guards": {"TrainingArguments": _refusals(arguments, _module(source, "transformers.trainer_utils"))},
        "trainer_keywords": [name for name, _ in signature(init)["keywords"]],
        "kernels_window": _kernels_window(_module(source, "transformers.utils.import_utils")),
        "attention": sorted(_attention(source)),
        "causal_models": sorted(_causal_models(_module(source, "transformers.models.auto.modeling_auto"))),
        **_slim(read_metadata(source)),
    }


def read_liger(source: Source) -> Facts:
    """The facts of a liger-kernel release, in the shape that `fold` takes."""
    patches = _module(source, "liger_kernel.transformers.monkey_patch")
    functions = {node.name: node for node in patches.tree.body if isinstance(node, ast.FunctionDef)}
    table = patches.constants["MODEL_TYPE_TO_APPLY_LIGER_FN"]
    assert isinstance(table, ast.Dict)
    pairs = zip(table.keys, table.values, strict=True)
    models = {literal(key): functions[ast.unparse(value)] for key, value in pairs if key is not None}
    return {
        "models": {name: _keys(function) for name, function in models.items()},
        "dpo_losses": _losses(source, "dpo_loss"),
        "grpo_losses": _losses(source, "grpo_loss"),
        **read_metadata(source),
    }


def _module(source: Source, name: str) -> Module:
    module = source.module(name)
    if module is None:
        raise KeyError(name)
    return module


def _inherited_fields(module: Module, name: str) -> Iterator[tuple[str, list[Any]]]:
    """The fields of a class and of its bases in the same file, the class's own last."""
    node = module.classes[name]
    for base in node.bases:
        if ast.unparse(base) in module.classes:
            yield from _inherited_fields(module, ast.unparse(base))
    yield from own_fields(node, module.constants)


def _refusals(module: Module, utilities: Module) -> list[guards.Row]:
    """What `TrainingArguments.__post_init__` makes of its fields and refuses; not what it warns of."""
    known = {**enumerations(utilities), **enumerations(module)}
    library = guards.Library({module.name: module}, lambda _module, _node: [], lambda _module, _name: None, known)
    rows = guards.config_sequence(library, module.name, module.classes["TrainingArguments"])
    return [row for row in rows if not (row[0] or "").startswith(guards.WARNING)]


def _kernels_window(module: Module) -> list[str | None] | None:
    """[lowest accepted, first refused] `kernels` release; [None, None] where any will do; None before Hub kernels."""
    if "is_kernels_available" not in {n.name for n in module.tree.body if isinstance(n, ast.FunctionDef)}:
        return None
    bounds = [module.constants.get(f"KERNELS_{end}_VERSION") for end in ("MIN", "MAX")]
    return [None if bound is None else literal(bound) for bound in bounds]


def _attention(source: Source) -> set[str]:
    """The names that `attn_implementation` takes, from the interface's table or, before it, from Llama's classes."""
    modeling = _module(source, "transformers.modeling_utils")
    for node in ast.walk(modeling.tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="_global_mapping")], value=ast.Dict(keys=keys)) if keys:
                return {"eager", *(literal(key) for key in keys if key)}
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="ALL_ATTENTION_FUNCTIONS"), attr="update"),
                args=[ast.Dict(keys=keys)],
            ):
                return {"eager", *(literal(key) for key in keys if key)}
    llama = _module(source, "transformers.models.llama.modeling_llama").constants["LLAMA_ATTENTION_CLASSES"]
    assert isinstance(llama, ast.Dict)
    return {literal(key) for key in llama.keys if key}


def _causal_models(module: Module) -> set[str]:
    table = module.constants["MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"]
    pairs = table.args[0] if isinstance(table, ast.Call) else table
    names = literal(pairs)
    return set() if names is UNREADABLE else {name for name, _ in names}


def _keys(function: ast.FunctionDef) -> list[list[Any]]:
    """The keys of `liger_kernel_config` that a patch function takes, each [name, default]; the model is not one."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    given = [*function.args.defaults, *(default for default in function.args.kw_defaults if default)]
    defaults: list[ast.expr | None] = [None] * (len(arguments) - len(given)) + [*given]
    values = [None if default is None else literal(default) for default in defaults]
    return [
        [argument.arg, None if value is UNREADABLE else value]
        for argument, value in zip(arguments, values, strict=True)
        if argument.arg != "model"
    ]


def _losses(source: Source, name: str) -> list[str] | None:
    """The loss types that a chunked loss computes; None where the release has no such loss, or only one."""
    module = source.module(f"liger_kernel.chunked_loss.{name}")
    if module is None:
        return None
    refused: set[str] = set()
    supported: set[str] = set()
    found: set[str] = set()
    for node in ast.walk(module.tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="supported_loss_types")], value=value):
                supported = set(literal(value))
            case ast.If(test=ast.Compare(left=ast.Name(id="loss_type"), comparators=[right]), body=[ast.Raise()]):
                # Named, but only to say that it is not there yet.
                refused.add(literal(right))
    for node in ast.walk(module.tree):
        match node:
            case ast.Compare(left=ast.Name(id="loss_type"), ops=[ast.Eq() | ast.In()], comparators=[right]):
                value = literal(right)
                found |= {value} if isinstance(value, str) else set(value)
    return sorted((supported or found) - refused) or None


def _slim(facts: Facts) -> Facts:
    """transformers repeats every extra in "all", "dev" and the like; the core and the kernels extra are enough."""
    requires: Mapping[str, Any] = facts["requires"]
    kept = {extra: lines for extra, lines in requires.items() if extra in ("", "kernels", "hub-kernels", "torch")}
    return {**facts, "requires": kept}
