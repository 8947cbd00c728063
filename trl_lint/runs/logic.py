"""An expression in Python's syntax in; a three-valued answer over possible values out.

Pages write their conditions in this language and releases' own derivations are replayed in it. Every operand is either
UNKNOWN or the tuple of values it may have; operators work on all combinations, `and`/`or`/`not` follow Kleene: an
unknown operand decides nothing unless the other one decides alone.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import product
from typing import Final, Protocol, TypeAlias

from trl_lint.model import Table

MOST_COMBINATIONS = 256


class _UnknownType:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _UnknownType()
Alternatives: TypeAlias = tuple[object, ...] | _UnknownType


class Something:
    """A value that is certainly there, such as a function, but of which nothing else can be said: it is not None."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("cannot be compared here")

    __hash__ = object.__hash__


SOMETHING: Final = Something()


class Names(Protocol):
    """Where an expression finds its names."""

    def alternatives(self, name: str) -> Alternatives:
        """The values that a dotted name may have."""
        ...

    def given(self, name: str) -> Alternatives:
        """Whether the user wrote the name."""
        ...

    def has(self, name: str) -> bool:
        """Whether this release knows the name."""
        ...


Compiled: TypeAlias = Callable[[Names], Alternatives]


class BadExpression(ValueError):
    """The text is not in the language."""


def truth(alternatives: Alternatives) -> bool | None:
    """True or False where every possible value says so, None where they differ or nothing is known."""
    if isinstance(alternatives, _UnknownType) or not alternatives:
        return None
    first = alternatives[0]
    if len(alternatives) == 1 and not isinstance(first, Something):
        return bool(first)
    if any(isinstance(a, Something) for a in alternatives):
        return None
    return bool(first) if all(bool(a) == bool(first) for a in alternatives[1:]) else None


@cache
def compiled(text: str) -> Compiled:
    """The text as a function of its names. Raises BadExpression."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise BadExpression(f"cannot be parsed: {error.msg}") from None
    return _compile(tree)


@cache
def condition(text: str) -> Compiled:
    """Like `compiled`, for a text of which only the truth counts: what is cheap to ask is asked first."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise BadExpression(f"cannot be parsed: {error.msg}") from None
    return _compile(_cheap_first(tree))


@cache
def guard(text: str) -> Compiled | None:
    """The cheapest operand of a condition that is an `and`: where it is false, so is the whole. Many pages share one."""
    tree = _cheap_first(ast.parse(text.strip(), mode="eval").body)
    first = tree.values[0] if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else tree
    return condition(ast.unparse(first)) if _cost(first) == 0 else None


def _cheap_first(node: ast.expr) -> ast.expr:
    """The operands of `and` and `or` in the order of their cost: their order changes no truth, only who answers."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.operand = _cheap_first(node.operand)
    elif isinstance(node, ast.BoolOp):
        node.values = sorted((_cheap_first(v) for v in node.values), key=_cost)
    return node


def _cost(node: ast.expr) -> int:
    name = dotted(node)
    if name is not None:
        return 0 if "." not in name else 2
    if isinstance(node, ast.UnaryOp):
        return _cost(node.operand)
    if isinstance(node, ast.Call):
        return 0 if dotted(node.func) in ("given", "has") else 3
    if isinstance(node, ast.Compare):
        return 1 + max(_cost(node.left), 0)
    if isinstance(node, ast.BoolOp):
        return 4 + len(node.values)
    return 3 if not isinstance(node, ast.Constant) else 0


def names_in(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The dotted names that an expression reads, and those among them that `has(…)` guards."""
    tree = ast.parse(text.strip(), mode="eval").body
    read: set[str] = set()
    guarded: set[str] = set()
    _collect(tree, read, guarded)
    return frozenset(read), frozenset(guarded)


def _collect(node: ast.AST, read: set[str], guarded: set[str]) -> None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "has":
            guarded.update(filter(None, (dotted(a) for a in node.args)))
            return
        for argument in node.args:
            _collect(argument, read, guarded)
        return
    name = dotted(node)
    if name is not None:
        read.add(name)
        return
    for child in ast.iter_child_nodes(node):
        _collect(child, read, guarded)


def dotted(node: ast.AST) -> str | None:
    """`a.b` of a chain of names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


_OPERATORS: dict[type, Callable[..., object]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
    ast.Is: lambda a, b: a is b if b is None or a is None else a == b,
    ast.IsNot: lambda a, b: a is not b if b is None or a is None else a != b,
}  # fmt: skip


def _listed(items: object) -> tuple[object, ...]:
    if not isinstance(items, tuple):
        raise TypeError("no list")
    return items


_LITERALS: Final[tuple[type, ...]] = (str, int, float, tuple, dict, Table, type(None))
_FUNCTIONS: dict[str, Callable[..., object]] = {
    "len": len, "min": min, "max": max, "abs": abs, "lower": lambda s: s.lower(), "startswith": lambda s, p: s.startswith(p), "bool": bool,
    "int": int, "float": float, "str": str, "is_text": lambda x: isinstance(x, str), "is_list": lambda x: isinstance(x, tuple),
    "is_literal": lambda x: isinstance(x, _LITERALS), "listed": lambda x: x if isinstance(x, tuple) else (x,),
    "within": lambda items, options: all(item in options for item in _listed(items)),
    "without_suffix": lambda s: s.split("@")[0].split(":")[0] if isinstance(s, str) else s,
}  # fmt: skip
_TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str, "list": tuple, "tuple": tuple, "int": int, "float": float, "bool": bool, "dict": (dict, Table),
}  # fmt: skip


def _compile(node: ast.expr) -> Compiled:
    name = dotted(node)
    if name is not None:
        return lambda names: names.alternatives(name)
    match node:
        case ast.Constant():
            constant = (node.value,)
            return lambda names: constant
        case ast.Tuple() | ast.List() | ast.Set():
            return _strict(lambda *items: tuple(items), [_compile(e) for e in node.elts])
        case ast.BoolOp():
            return _boolean(isinstance(node.op, ast.Or), [_compile(v) for v in node.values])
        case ast.UnaryOp(op=ast.Not()):
            return _strict(_negated, [_compile(node.operand)])
        case ast.UnaryOp(op=ast.USub()):
            return _strict(operator.neg, [_compile(node.operand)])
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _strict(_OPERATORS[type(node.op)], [_compile(node.left), _compile(node.right)])
        case ast.Compare():
            return _compare(node)
        case ast.IfExp():
            return _choice(_compile(node.test), _compile(node.body), _compile(node.orelse))
        case ast.Dict() if all(k is not None for k in node.keys):
            keys = [_compile(k) for k in node.keys if k is not None]
            values = [_compile(v) for v in node.values]
            return _strict(
                lambda *items: dict(zip(items[: len(keys)], items[len(keys) :], strict=True)), [*keys, *values]
            )
        case ast.Call():
            return _call(node)
        case ast.Subscript():
            return _strict(operator.getitem, [_compile(node.value), _compile(node.slice)])
    raise BadExpression(f"`{ast.unparse(node)}` is not in the condition language")


def _negated(value: object) -> bool:
    if isinstance(value, Something):
        raise TypeError("its truth is not known here")
    return not value


def _call(node: ast.Call) -> Compiled:
    if node.keywords:
        raise BadExpression(f"`{ast.unparse(node)}`: functions take no keywords here")
    function = dotted(node.func)
    if function in ("given", "has", "known") and len(node.args) == 1:
        target = dotted(node.args[0])
        if target is None:
            raise BadExpression(f"{function}() takes one name")
        if function == "given":
            return lambda names: names.given(target)
        if function == "has":
            return lambda names: (names.has(target),)
        return lambda names: (not isinstance(names.alternatives(target), _UnknownType),)
    if function == "opaque":  # what a release asks and no file can say
        return lambda names: UNKNOWN
    if function == "isinstance" and len(node.args) == 2 and dotted(node.args[1]) in _TYPES:
        kind = _TYPES[dotted(node.args[1]) or ""]
        return _strict(lambda value: _is(value, kind), [_compile(node.args[0])])
    if function in _FUNCTIONS:
        return _strict(_FUNCTIONS[function], [_compile(a) for a in node.args])
    if (
        isinstance(node.func, ast.Attribute) and node.func.attr == "get"
    ):  # {True: "group"}.get(x, x), as releases derive
        return _strict(
            lambda table, *rest: table.get(*rest), [_compile(node.func.value), *(_compile(a) for a in node.args)]
        )
    raise BadExpression(f"there is no function {ast.unparse(node.func)}() in the condition language")


def _is(value: object, kind: type | tuple[type, ...]) -> bool:
    if isinstance(value, Something) and kind is not tuple:
        raise TypeError("its class is not known here")  # a constant of a library, a class that extends dict; no list
    return isinstance(value, kind)


def _strict(function: Callable[..., object], operands: list[Compiled]) -> Compiled:
    """A function of which every operand must be known. What it refuses to compute is unknown, never an error."""

    def evaluate(names: Names) -> Alternatives:
        values: list[tuple[object, ...]] = []
        combinations = 1
        for operand in operands:
            alternatives = operand(names)
            if isinstance(alternatives, _UnknownType):
                return UNKNOWN
            combinations *= len(alternatives)
            values.append(alternatives)
        if combinations > MOST_COMBINATIONS:
            return UNKNOWN
        try:
            if combinations == 1:
                return (function(*(v[0] for v in values)),)
            return distinct(function(*combination) for combination in product(*values))
        except Exception:  # comparing None with a number, dividing by zero, …: the files do not say
            return UNKNOWN

    return evaluate


def distinct(values: object) -> tuple[object, ...]:
    found: list[object] = []
    for value in values:  # type: ignore[attr-defined]
        if value not in found:
            found.append(value)
    return tuple(found)


def _boolean(is_or: bool, operands: list[Compiled]) -> Compiled:
    """Kleene's `and` and `or`, with Python's habit of yielding the deciding operand."""

    def evaluate(names: Names) -> Alternatives:
        undecided = False
        last: Alternatives = UNKNOWN
        for operand in operands:
            last = operand(names)
            # The commonest case first: most conditions of most rules are decided by one plain value.
            if last.__class__ is tuple and len(last) == 1 and last[0].__class__ in _SIMPLE:
                if bool(last[0]) is is_or:
                    return last
                continue
            decided = truth(last)
            if decided is None:
                undecided = True
            elif decided is is_or:
                return last
        return UNKNOWN if undecided else last

    return evaluate


_SIMPLE = frozenset({bool, int, float, str, type(None), tuple})


def _compare(node: ast.Compare) -> Compiled:
    sides = [node.left, *node.comparators]
    versioned = any((dotted(s) or "").startswith(("versions.", "trl.", "transformers.")) for s in sides)
    compiled_sides = [
        _version(s.value) if versioned and isinstance(s, ast.Constant) and isinstance(s.value, str) else _compile(s)
        for s in sides
    ]
    links = [
        _strict(_OPERATORS[type(op)], [compiled_sides[i], compiled_sides[i + 1]])
        for i, op in enumerate(node.ops)
    ]  # fmt: skip
    return links[0] if len(links) == 1 else _boolean(False, links)


def _version(text: str) -> Compiled:
    """A string constant beside a version is a version: "1.10" is newer than "1.9"."""

    @lru_cache(maxsize=1)
    def parsed() -> tuple[object, ...]:
        from packaging.version import InvalidVersion, Version

        try:
            return (Version(text),)
        except InvalidVersion:
            return (text,)

    return lambda names: parsed()


def _choice(test: Compiled, body: Compiled, orelse: Compiled) -> Compiled:
    def evaluate(names: Names) -> Alternatives:
        decided = truth(test(names))
        if decided is not None:
            return body(names) if decided else orelse(names)
        left, right = body(names), orelse(names)
        if isinstance(left, _UnknownType) or isinstance(right, _UnknownType):
            return UNKNOWN
        return distinct([*left, *right])

    return evaluate
