"""The body of a dataclass in, the fields that it declares out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from trl_lint.knowledge.source import UNREADABLE, literal


def own_fields(node: ast.ClassDef, constants: Mapping[str, ast.expr]) -> Iterator[tuple[str, list[Any]]]:
    """The dataclass fields that a class body declares: name, then [type, default, choices].

    A default is `[literal]`, `{"expr": text}` or `{"factory": text}`; None marks a required field. Choices are left
    out where there are none.
    """
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                kind = ast.unparse(annotation)
                if "ClassVar" in kind or _keyword(value, "init") is False:
                    continue
                choices = _choices(annotation, value, constants)
                yield name, [_type(annotation), _default(value, constants), *([choices] if choices else [])]


def _type(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation)


def _default(value: ast.expr | None, constants: Mapping[str, ast.expr]) -> Any:
    if value is None:
        return None
    if not (isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field"):
        known = literal(value, constants)
        return {"expr": ast.unparse(value)} if known is UNREADABLE else [known]
    given = {keyword.arg: keyword.value for keyword in value.keywords}
    if "default" in given:
        return _default(given["default"], constants)
    factory = given.get("default_factory")
    match factory:
        case None:
            return None
        case ast.Name(id="list" | "dict" as kind):
            return [[] if kind == "list" else {}]
        case ast.Lambda(body=body):
            known = literal(body, constants)
            return {"factory": ast.unparse(factory)} if known is UNREADABLE else [known]
    return {"factory": ast.unparse(factory)}


def _choices(annotation: ast.expr, value: ast.expr | None, constants: Mapping[str, ast.expr]) -> list[Any] | None:
    metadata = (
        next((word.value for word in value.keywords if word.arg == "metadata"), None)
        if isinstance(value, ast.Call)
        else None
    )
    if isinstance(metadata, ast.Dict):
        for key, entry in zip(metadata.keys, metadata.values, strict=True):
            if key is not None and literal(key) == "choices":
                known = literal(entry, constants)
                return None if known is UNREADABLE else list(known)
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
            known = literal(node.slice)
            return None if known is UNREADABLE else known if isinstance(known, list) else [known]
    return None


def _keyword(value: ast.expr | None, name: str) -> Any:
    if not isinstance(value, ast.Call):
        return None
    return next((literal(keyword.value) for keyword in value.keywords if keyword.arg == name), None)
