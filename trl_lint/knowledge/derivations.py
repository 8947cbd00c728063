"""A `__post_init__` in, the assignments that it makes to `self` out, in order.

A step is `[field, value, when]`: `when` is the condition (empty when it always holds) and `value` the expression, both
over bare field names, both evaluated in the state that the steps before left behind. A value of None means "not known
from here on". `["super", None, when]` stands for the base class's steps. Where a condition or a local value mentions a
field that is about to change, a step first keeps it under a name that starts with an underscore and ends in a number.
Conditions that merely keep a `raise` away are left out: where they fail there is no config.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Step: TypeAlias = "list[str | None]"

MUTATORS: Final = frozenset({"update", "pop", "popitem", "append", "extend", "insert", "remove", "clear", "setdefault"})


def derive(owner: str, function: ast.FunctionDef, enumerations: Collection[str] = ()) -> list[Step]:
    """The steps of the `__post_init__` of class `owner`. What it makes a member of one of `enumerations` stays what it was."""
    plain = _Plain(enumerations).visit(copy.deepcopy(function))
    walk = _Walk(owner, _locals(plain))
    walk.block(plain.body, ())
    return _used(owner, [step for step in walk.steps if step[0] != step[1]])


class _Plain(ast.NodeTransformer):
    """`Kind(self.kind)` becomes `self.kind`: a text and the member that has it say the same. What a file says is no member yet."""

    def __init__(self, enumerations: Collection[str]) -> None:
        self.enumerations = enumerations

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in self.enumerations:
                return inner
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id=name)]) if name in self.enumerations:
                return ast.Constant(False)
        return node


@dataclass(eq=False)
class _Condition:
    """A test over fields; `test` is None when it cannot be expressed. It changes only to a kept name."""

    test: ast.expr | None


@dataclass(frozen=True)
class _Branch:
    condition: _Condition
    holds: bool


_Path: TypeAlias = tuple[_Branch, ...]


class _Walk:
    def __init__(self, owner: str, names: frozenset[str]) -> None:
        self.owner = owner
        self.names = names
        self.steps: list[Step] = []
        # Locals by name, as expressions over fields; None where they cannot be expressed.
        self.values: dict[str, ast.expr | None] = dict.fromkeys(names)
        self.pending: list[tuple[_Condition, _Path]] = []
        self.kept = 0

    def block(self, body: list[ast.stmt], path: _Path) -> bool:
        """Walk statements under `path`; whether the end of the block is never reached."""
        for statement in body:
            ended, path = self.statement(statement, path)
            if ended:
                return True
        return False

    def statement(self, node: ast.stmt, path: _Path) -> tuple[bool, _Path]:
        match node:
            case ast.Raise() | ast.Return() | ast.Continue() | ast.Break():
                self.leave(node, path)
                return True, path
            case ast.If():
                return self.branch(node, path)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.assign(target, value, path)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, value, path)
            case ast.AugAssign(target=target, op=operator, value=value):
                read = copy.deepcopy(target)
                read.ctx = ast.Load()
                self.assign(target, ast.BinOp(read, operator, value), path)
            case ast.Expr(value=ast.Call() as call):
                self.call(call, path)
            case ast.For():
                self.loop(node, path)
            case ast.With(body=body):
                return self.block(body, path), path
            case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
                self.block([*body, *other], path)
                for handler in handlers:
                    self.forget(handler.body, path)
                self.block(last, path)
            case ast.While(body=body):
                self.forget(body, path)
        return False, path

    def leave(self, node: ast.stmt, path: _Path) -> None:
        """A statement after which the block does not go on; derivations need none of them."""

    def branch(self, node: ast.If, path: _Path) -> tuple[bool, _Path]:
        test = self.express(node.test)
        constant = _truth(test)
        if constant is not None:
            return self.block(node.body if constant else node.orelse, path), path
        condition = _Condition(test)
        self.pending.append((condition, path))
        before = dict(self.values)
        ended = self.block(node.body, (*path, _Branch(condition, True)))
        after, self.values = self.values, before
        other_ended = self.block(node.orelse, (*path, _Branch(condition, False)))
        self.merge(condition, after if not ended else None, None if other_ended else self.values)
        if ended and other_ended:
            return True, path
        # After a raise the rest needs no condition: it does not run on a config that exists.
        if ended and _returns(node.body):
            return False, (*path, _Branch(condition, False))
        if other_ended and _returns(node.orelse):
            return False, (*path, _Branch(condition, True))
        self.pending.remove((condition, path))
        return False, path

    def merge(
        self, condition: _Condition, one: dict[str, ast.expr | None] | None, two: dict[str, ast.expr | None] | None
    ) -> None:
        if one is None or two is None:
            self.values = one or two or self.values
            return
        for name in self.names:
            left, right = one.get(name), two.get(name)
            if left is right:
                self.values[name] = left
            elif left is None or right is None or condition.test is None:
                self.values[name] = None
            else:
                self.values[name] = ast.IfExp(condition.test, left, right)

    def assign(self, target: ast.expr, value: ast.expr | None, path: _Path) -> None:
        match target:
            case ast.Attribute(value=ast.Name(id="self"), attr=field):
                self.step(field, self.express(value) if value is not None else None, path)
            case ast.Name(id=name):
                self.values[name] = self.express(value) if value is not None else None
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    self.assign(element, None, path)
            case ast.Subscript(value=inner) | ast.Attribute(value=inner):
                # One entry of a mapping or object that a field holds has changed.
                self.assign(inner, None, path)

    def call(self, call: ast.Call, path: _Path) -> None:
        match call.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__post_init__"):
                self.base(path)
            case ast.Attribute(value=ast.Name(), attr="__post_init__"):
                self.base(path)
            case ast.Name(id="setattr") if len(call.args) == 3 and _is_self(call.args[0]):
                name = self.express(call.args[1])
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    self.step(name.value, self.express(call.args[2]), path)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=field), attr=method):
                if method in MUTATORS:
                    self.step(field, None, path)

    def loop(self, node: ast.For, path: _Path) -> None:
        """A loop over a literal is written out; any other makes what it assigns unknown."""
        rows = list(self.rows(node.iter))
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if not rows or any(len(row) != len(targets) for row in rows):
            self.forget(node.body, path)
            return
        for row in rows:
            for target, item in zip(targets, row, strict=True):
                self.assign(target, item, path)
            self.block(node.body, path)

    def rows(self, iterable: ast.expr) -> Iterator[list[ast.expr]]:
        match iterable:
            case ast.Call(func=ast.Attribute(value=inner, attr="items"), args=[]):
                table = self.express(inner)
                if isinstance(table, ast.Dict):
                    yield from ([key, value] for key, value in zip(table.keys, table.values, strict=True) if key)
            case _:
                items = self.express(iterable)
                if isinstance(items, ast.List | ast.Tuple | ast.Set):
                    yield from ([item] for item in items.elts)

    def forget(self, body: list[ast.stmt], path: _Path) -> None:
        """Every field and local that `body` assigns becomes unknown."""
        for node in ast.walk(ast.Module(body, [])):
            match node:
                case ast.Attribute(ctx=ast.Store()) | ast.Name(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                    self.assign(node, None, path)

    def step(self, field: str, value: ast.expr | None, path: _Path) -> None:
        match value:
            # `x = a if c else x` changes x only where c holds.
            case ast.IfExp(test=test, body=body, orelse=ast.Name(id=name)) if name == field:
                value, path = body, (*path, _Branch(_Condition(test), True))
            case ast.IfExp(test=test, body=ast.Name(id=name), orelse=other) if name == field:
                value, path = other, (*path, _Branch(_Condition(test), False))
        text = None if value is None or any(branch.condition.test is None for branch in path) else _text(value)
        when = self.when(path)
        self.keep(field)
        self.steps.append([field, text, when])

    def base(self, path: _Path) -> None:
        when = self.when(path)
        # The base may change any field, so nothing that is held as text may outlive it.
        self.keep(None)
        self.steps.append(["super", None, when])

    def keep(self, field: str | None) -> None:
        """Before `field` changes (any field: None), write down the pending tests and locals that read it."""
        for condition, outer in self.pending:
            if condition.test is not None and _reads(condition.test, field):
                condition.test = self.remember(condition.test, self.when(outer))
        for name, value in self.values.items():
            if value is not None and _reads(value, field):
                self.values[name] = self.remember(value, "")

    def remember(self, value: ast.expr, when: str) -> ast.expr:
        self.kept += 1
        name = f"_{self.owner.strip('_')}_{self.kept}"
        self.steps.append([name, _text(value), when])
        return ast.Name(name, ast.Load())

    def when(self, path: _Path) -> str:
        parts: list[ast.expr] = []
        for branch in path:
            if branch.condition.test is not None:
                parts.append(branch.condition.test if branch.holds else _negated(branch.condition.test))
        if not parts:
            return ""
        return _text(parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts))

    def express(self, node: ast.expr) -> ast.expr | None:
        """`node` over bare field names with locals put in; None where a local is not known."""
        lowered = _Lower(self.values, self.names)
        result = lowered.visit(copy.deepcopy(node))
        return None if lowered.lost else result


class _Lower(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr | None], names: frozenset[str]) -> None:
        self.values = values
        self.names = names
        self.lost = False

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if _is_self(node.value):
            return ast.Name(node.attr, ast.Load())
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.names:
            return node
        value = self.values.get(node.id)
        self.lost = self.lost or value is None
        return copy.deepcopy(value) if value is not None else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[subject, name, *_]) if _is_self(subject):
                name = self.visit(name)
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    return ast.Name(name.value, ast.Load())
                self.lost = True
                return node
        return self.generic_visit(node)

    def _own_names(self, node: ast.AST) -> ast.AST:
        # Comprehensions and lambdas bind names of their own, which are not ours to replace.
        self.lost = self.lost or any(isinstance(part, ast.Name) and part.id in self.names for part in ast.walk(node))
        return self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_Lambda = _own_names


def _used(owner: str, steps: list[Step]) -> list[Step]:
    """The steps without those kept names that no later step reads, the others numbered in order."""
    used: list[Step] = []
    read: set[str] = set()
    kept = re.compile(rf"_{owner.strip('_')}_\d+")
    for step in reversed(steps):
        if kept.fullmatch(step[0] or "") and step[0] not in read:
            continue
        read |= {name for text in step[1:] for name in kept.findall(text or "")}
        used.insert(0, step)
    order = [step[0] for step in used if step[0] in read]
    names = {name: f"_{owner.strip('_')}_{number}" for number, name in enumerate(order, 1)}
    return [[text and kept.sub(lambda found: names[found[0]], text) for text in step] for step in used]


def _locals(function: ast.FunctionDef) -> frozenset[str]:
    return frozenset(
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _reads(node: ast.expr, field: str | None) -> bool:
    """Whether an expression mentions `field`, or any name at all that is not itself kept."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    if field is not None:
        return field in names
    return any(not name.startswith("_") for name in names) and not isinstance(node, ast.Name)


def _truth(test: ast.expr | None) -> bool | None:
    """What a test of constants comes to; None when it depends on a field."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Compare(left=ast.Constant(value=left), ops=[ast.Eq()], comparators=[ast.Constant(value=right)]):
            return bool(left == right)
        case ast.Compare(left=ast.Constant(value=left), ops=[ast.NotEq()], comparators=[ast.Constant(value=right)]):
            return bool(left != right)
    return None


def _negated(test: ast.expr) -> ast.expr:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Compare(left=left, ops=[ast.Is()], comparators=right):
            return ast.Compare(left, [ast.IsNot()], right)
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=right):
            return ast.Compare(left, [ast.Is()], right)
    return ast.UnaryOp(ast.Not(), test)


def _returns(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Return) for statement in body for node in ast.walk(statement))


def _text(node: ast.expr) -> str:
    return ast.unparse(ast.fix_missing_locations(node))
