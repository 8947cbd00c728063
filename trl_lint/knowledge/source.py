"""A wheel or a folder in, its parsed modules and metadata out. Nothing is imported or run."""

from __future__ import annotations

import ast
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from typing import Any, Final

UNREADABLE: Final = object()


@dataclass(frozen=True)
class Module:
    """One parsed module: `name` is dotted, `package` says whether it is an `__init__`."""

    name: str
    package: bool
    tree: ast.Module

    @cached_property
    def imports(self) -> Mapping[str, tuple[str, str | None]]:
        """Local name to (module, name there); the name is None for `import module`."""
        found: dict[str, tuple[str, str | None]] = {}
        for statement in top_level(self.tree.body):
            if isinstance(statement, ast.ImportFrom):
                origin = self.absolute(statement)
                found |= {alias.asname or alias.name: (origin, alias.name) for alias in statement.names}
            elif isinstance(statement, ast.Import):
                found |= {alias.asname or alias.name.partition(".")[0]: (alias.name, None) for alias in statement.names}
        return found

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        """The classes of the top level, inside `if` and `try` too."""
        return {node.name: node for node in top_level(self.tree.body) if isinstance(node, ast.ClassDef)}

    @cached_property
    def functions(self) -> Mapping[str, ast.FunctionDef]:
        """The functions of the top level."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def constants(self) -> Mapping[str, ast.expr]:
        """Names assigned on the top level, to their last expression."""
        found: dict[str, ast.expr] = {}
        for node in top_level(self.tree.body):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    found[name] = value
        return found

    def absolute(self, statement: ast.ImportFrom) -> str:
        """The dotted module that a `from … import` names."""
        if not statement.level:
            return statement.module or ""
        up = statement.level - 1 if self.package else statement.level
        parts = self.name.split(".")
        return ".".join(parts[: len(parts) - up] + (statement.module or "").split(".")).rstrip(".")


class Source:
    """The files of one release. `names` are POSIX paths below the folder that holds the package."""

    def __init__(self, names: tuple[str, ...], read: Callable[[str], bytes], date: str | None) -> None:
        self.names = names
        self.date = date
        self._read = read
        self._modules: dict[str, Module] = {}

    @classmethod
    def wheel(cls, path: Path) -> Source:
        """A wheel; its date is that of its newest entry, ISO."""
        archive = zipfile.ZipFile(path)
        entries = archive.infolist()
        year, month, day = max(entry.date_time for entry in entries)[:3]
        names = tuple(sorted(entry.filename for entry in entries))
        return cls(names, archive.read, f"{year:04}-{month:02}-{day:02}")

    @classmethod
    def folder(cls, package: Path) -> Source:
        """An installed package or a checkout: `package` holds the `__init__.py`."""
        package = package.resolve()
        root = package.parent
        described = [*root.glob(f"{package.name}-*.dist-info/METADATA"), *root.glob("pyproject.toml")]
        names = sorted(path.relative_to(root).as_posix() for path in [*package.rglob("*.py"), *described])
        return cls(tuple(names), lambda name: (root / name).read_bytes(), None)

    def text(self, name: str) -> str:
        """A file as text; KeyError when there is none."""
        if name not in self.names:
            raise KeyError(name)
        return self._read(name).decode("utf-8")

    def modules(self, package: str) -> Iterator[Module]:
        """Every module of `package`, by path; tests are left out."""
        for path in self.names:
            if path.startswith(f"{package}/") and path.endswith(".py") and "/tests/" not in path:
                module = self.module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
                if module is not None:
                    yield module

    def module(self, name: str) -> Module | None:
        """A module by dotted name, or None."""
        if name not in self._modules:
            base = name.replace(".", "/")
            path = next((path for path in (f"{base}.py", f"{base}/__init__.py") if path in self._paths), None)
            if path is None:
                return None
            with warnings.catch_warnings():
                # Old releases hold invalid escapes in strings; the reader is not the one to complain.
                warnings.simplefilter("ignore")
                tree = ast.parse(self.text(path))
            self._modules[name] = Module(name, path.endswith("__init__.py"), tree)
        return self._modules[name]

    @cached_property
    def metadata(self) -> Mapping[str, list[str]]:
        """`Requires-Dist` and `Requires-Python` of the METADATA file; empty lists without one."""
        path = next((name for name in self.names if name.endswith(".dist-info/METADATA")), None)
        message = HeaderParser().parsestr(self.text(path) if path else "")
        return {key: [value for name, value in message.items() if name == key] for key in METADATA_KEYS}

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(self.names)


METADATA_KEYS: Final = ("Requires-Dist", "Requires-Python")


def top_level(body: list[ast.stmt], *, typing_only: bool = True) -> Iterator[ast.stmt]:
    """Statements that run on import: those of the body and of its `if`, `try` and `with` blocks.

    Without `typing_only`, `if TYPE_CHECKING:` blocks are left out.
    """
    for statement in body:
        yield statement
        match statement:
            case ast.If(test=test, body=inner, orelse=other):
                if typing_only or not ast.unparse(test).endswith("TYPE_CHECKING"):
                    yield from top_level(inner, typing_only=typing_only)
                yield from top_level(other, typing_only=typing_only)
            case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=last):
                for block in (inner, *(handler.body for handler in handlers), other, last):
                    yield from top_level(block, typing_only=typing_only)
            case ast.With(body=inner):
                yield from top_level(inner, typing_only=typing_only)


def enumerations(module: Module) -> dict[str, dict[str, str]]:
    """The enumerations of texts that a module defines: the text of each member."""
    found: dict[str, dict[str, str]] = {}
    for name, node in module.classes.items():
        if any(ast.unparse(base).endswith("Enum") for base in node.bases):
            members = {
                target.id: literal(statement.value)
                for statement in node.body
                if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name)
            }
            found[name] = {member: text for member, text in members.items() if isinstance(text, str)}
    return {name: members for name, members in found.items() if members}


def literal(node: ast.expr, names: Mapping[str, ast.expr] | None = None) -> Any:
    """A JSON value of a literal expression, or UNREADABLE. `names` are constants that it may refer to.

    Tuples become lists, sets sorted lists. Infinities and bytes have no JSON and are not read.
    """
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return UNREADABLE if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = literal(operand, names)
            return -value if isinstance(value, int | float) else UNREADABLE
        case ast.BinOp(left=left, op=operator, right=right):
            return _arithmetic(literal(left, names), operator, literal(right, names))
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            items = [literal(element, names) for element in elements]
            if any(item is UNREADABLE for item in items):
                return UNREADABLE
            return sorted(items, key=repr) if isinstance(node, ast.Set) else items
        case ast.Dict(keys=keys, values=values):
            known = {
                literal(key, names) if key else UNREADABLE: literal(value, names)
                for key, value in zip(keys, values, strict=True)
            }
            readable = all(isinstance(key, str) and value is not UNREADABLE for key, value in known.items())
            return known if readable else UNREADABLE
        case ast.Name(id=name) if names and name in names:
            return literal(names[name])
    return UNREADABLE


def _arithmetic(left: Any, operator: ast.operator, right: Any) -> Any:
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return UNREADABLE
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Pow() if abs(right) < 64:
            return left**right
        case ast.Div() if right:
            return left / right
    return UNREADABLE
