"""A libcst module in; which name is bound where, in which order and under which branches out.

Walked by hand over the statements that matter: libcst's own ScopeProvider costs twenty times the parse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import libcst as cst

from trl_lint.sources.module import EXPECTED_TO_RAISE

Path: TypeAlias = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of the program text: `order` counts statements, `path` lists the (branching statement, arm) around it."""

    order: int
    path: Path

    def always_before(self, other: Point) -> bool:
        """Whether this statement has run whenever `other` runs."""
        return self.order < other.order and other.path[: len(self.path)] == self.path

    def excludes(self, other: Point) -> bool:
        """Whether the two stand in different arms of one `if` or `match`, so that never both run."""
        for mine, theirs in zip(self.path, other.path, strict=False):
            if mine == theirs:
                continue
            return mine[0] == theirs[0]
        return False


BindingKind: TypeAlias = Literal["assign", "unpack", "import", "def", "class", "param", "opaque"]


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place that gives a name a meaning. `node` is the value, definition or default; `target` the import's dotted path."""

    kind: BindingKind
    name: str
    node: cst.CSTNode | None
    point: Point
    scope: Scope
    index: int = 0
    target: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A change to the object behind a name: `x.a.b = v`, `x["k"] = v`, `x.update(…)`, `setattr(x, …)`, `del x["k"]`."""

    kind: Literal["attribute", "item", "update", "delete", "opaque"]
    tail: tuple[str, ...]
    key: cst.BaseExpression | str | None
    value: cst.BaseExpression | None
    node: cst.CSTNode
    point: Point
    scope: Scope


@dataclass(slots=True, eq=False)
class Scope:
    """One namespace, with everything that happens to its names in order."""

    kind: Literal["module", "function", "class", "expression"]
    node: cst.CSTNode | None
    parent: Scope | None
    point: Point | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    stores: dict[str, list[Store]] = field(default_factory=dict)

    def bind(self, binding: Binding) -> None:
        self.bindings.setdefault(binding.name, []).append(binding)

    @property
    def function(self) -> str | None:
        """The name of the function this namespace belongs to."""
        scope: Scope | None = self
        while scope is not None:
            if isinstance(scope.node, cst.FunctionDef):
                return scope.node.name.value
            scope = scope.parent
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Here:
    """Where an expression stands. `lenient` says why a call here may be refused without harm (a version shim)."""

    scope: Scope
    point: Point
    lenient: str | None


@dataclass(slots=True, eq=False)
class Outline:
    """What the walk found: the module's scope and, for every call, where it stands."""

    module: Scope
    calls: list[tuple[cst.Call, Here]] = field(default_factory=list)
    imports: list[tuple[cst.ImportFrom, Here]] = field(default_factory=list)
    assigned: dict[int, Binding] = field(default_factory=dict)
    returns: dict[int, list[tuple[cst.BaseExpression | None, Here]]] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    loads: dict[str, int] = field(default_factory=dict)
    reads: dict[str, set[str]] = field(default_factory=dict)
    heres: dict[int, Here] = field(default_factory=dict)


def dotted(node: cst.CSTNode | None) -> str | None:
    """`a.b.c` of a chain of names, else None."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    parts.append(node.value)
    return ".".join(reversed(parts))


def reaching(scope: Scope, name: str, point: Point | None) -> tuple[list[Binding], Scope | None]:
    """The bindings that may be in force for `name` at `point`, latest first, and the scope that owns the name.

    Within the owning scope order and branches count; seen from an inner function every binding may be in force.
    """
    owner: Scope | None = scope
    local = True
    while owner is not None:
        if name in owner.bindings and not (owner.kind == "class" and not local):
            break
        if owner.kind != "expression":
            local = False
        elif owner.point is not None:
            point = point or owner.point
        owner = owner.parent
    if owner is None:
        return [], None
    bindings = owner.bindings[name]
    if not local or point is None or len(bindings) == 1:
        return list(reversed(bindings)), owner
    found: list[Binding] = []
    arms: dict[int, set[str]] = {}
    for binding in reversed(bindings):
        if binding.point.order > point.order or binding.point.excludes(point):
            continue
        found.append(binding)
        if binding.point.always_before(point) or binding.point.path == point.path:
            break
        if binding.point.path:
            branch, arm = binding.point.path[-1]
            seen = arms.setdefault(branch, set())
            seen.add(arm)
            # Both arms of one if/else bind it, so nothing earlier survives.
            if {"then", "else"} <= seen and point.path[: len(binding.point.path) - 1] == binding.point.path[:-1]:
                break
    return found, owner


_SKIPPED = frozenset(
    (
        *("lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "comma", "equal", "operator", "leading_lines"),
        *("lines_after_decorators", "header", "footer", "indent", "trailing_whitespace", "semicolon", "colon", "star"),
        *("attr", "keyword", "dot", "asynchronous", "annotation", "returns"),
    )
)
_LEAVES = (cst.Integer, cst.Float, cst.SimpleString, cst.Ellipsis)
_FIELDS: dict[type, tuple[str, ...]] = {}


def _fields(kind: type) -> tuple[str, ...]:
    names = _FIELDS.get(kind)
    if names is None:
        names = tuple(n for n in kind.__dataclass_fields__ if n not in _SKIPPED and not n.startswith("whitespace"))  # type: ignore[attr-defined]
        _FIELDS[kind] = names
    return names


def outline(module: cst.Module) -> Outline:
    """Walk a module once."""
    walk = _Walk()
    walk.body(module.body)
    return walk.found


class _Walk:
    def __init__(self) -> None:
        self.scope = Scope("module", None, None)
        self.found = Outline(self.scope)
        self.path: Path = ()
        self.order = 0
        self.lenient: str | None = None
        self.branches = 0

    def point(self) -> Point:
        return Point(self.order, self.path)

    # statements ------------------------------------------------------------------------------------------------------

    def body(self, statements: Sequence[cst.CSTNode]) -> None:
        for statement in statements:
            self.order += 1
            if isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    self.small(small)
            else:
                self.compound(statement)

    def block(self, block: cst.BaseSuite, branch: int | None, arm: str, lenient: str | None = None) -> None:
        path, before = self.path, self.lenient
        if branch is not None:
            self.path = (*path, (branch, arm))
        self.lenient = lenient or before
        if isinstance(block, cst.SimpleStatementSuite):
            self.body([cst.SimpleStatementLine(block.body)])
        else:
            self.body(block.body)
        self.path, self.lenient = path, before

    def compound(self, node: cst.CSTNode) -> None:
        match node:
            case cst.FunctionDef():
                self.function(node)
            case cst.ClassDef():
                self.klass(node)
            case cst.If():
                self.if_(node)
            case cst.For():
                self.expression(node.iter)
                self.targets(node.target, None)
                self.loop(node.body, node.orelse)
            case cst.While():
                self.expression(node.test)
                self.loop(node.body, node.orelse)
            case cst.With():
                for item in node.items:
                    self.expression(item.item)
                    if item.asname is not None:
                        self.targets(item.asname.name, None)
                self.block(node.body, None, "", EXPECTED_TO_RAISE if any(_raises(i.item) for i in node.items) else None)
            case cst.Try() | cst.TryStar():
                self.try_(node)
            case cst.Match():
                self.match(node)

    def match(self, node: cst.Match) -> None:
        self.expression(node.subject)
        self.branches += 1
        branch = self.branches
        for index, case in enumerate(node.cases):
            self.block(case.body, branch, f"case {index}")

    def loop(self, body: cst.BaseSuite, orelse: cst.Else | None) -> None:
        self.branches += 1
        self.block(body, self.branches, "loop")
        if orelse is not None:
            self.block(orelse.body, None, "")

    def if_(self, node: cst.If) -> None:
        self.expression(node.test)
        # `if __name__ == "__main__"` is the program itself, not one of two ways.
        if _is_main(node.test) and node.orelse is None:
            self.block(node.body, None, "")
            return
        self.branches += 1
        branch = self.branches
        shim = "a version check around it" if _mentions_version(node.test) else None
        if (dotted(node.test) or "").rpartition(".")[2] == "TYPE_CHECKING":
            shim = "it is for type checkers only"
        self.block(node.body, branch, "then", shim)
        if isinstance(node.orelse, cst.If):
            path, before = self.path, self.lenient
            self.path = (*path, (branch, "else"))
            self.lenient = shim or before
            self.if_(node.orelse)
            self.path, self.lenient = path, before
        elif node.orelse is not None:
            self.block(node.orelse.body, branch, "else", shim)

    def try_(self, node: cst.Try | cst.TryStar) -> None:
        self.branches += 1
        branch = self.branches
        caught = {name for handler in node.handlers for name in _caught(handler)}
        shim = (
            "its error is caught"
            if caught & {"TypeError", "ImportError", "ModuleNotFoundError", "AttributeError", "Exception", ""}
            else None
        )
        self.block(node.body, branch, "try", shim)
        handlers: Sequence[cst.ExceptHandler | cst.ExceptStarHandler] = node.handlers
        for index, handler in enumerate(handlers):
            if handler.name is not None:
                self.targets(handler.name.name, None)
            self.block(handler.body, branch, f"except {index}", shim)
        if node.orelse is not None:
            self.block(node.orelse.body, branch, "try", None)
        if node.finalbody is not None:
            self.block(node.finalbody.body, None, "")

    def function(self, node: cst.FunctionDef) -> None:
        for decorator in node.decorators:
            self.expression(decorator.decorator)
        self.scope.bind(Binding("def", node.name.value, node, self.point(), self.scope))
        xfail = any("xfail" in set(_names(d.decorator)) for d in node.decorators)
        self.enter("function", node, node.params, node.body, EXPECTED_TO_RAISE if xfail else None)

    def klass(self, node: cst.ClassDef) -> None:
        for decorator in node.decorators:
            self.expression(decorator.decorator)
        for base in (*node.bases, *node.keywords):
            self.expression(base.value)
        self.scope.bind(Binding("class", node.name.value, node, self.point(), self.scope))
        self.enter("class", node, None, node.body)

    def enter(
        self,
        kind: Literal["function", "class"],
        node: cst.CSTNode,
        params: cst.Parameters | None,
        body: cst.BaseSuite,
        expected: str | None = None,
    ) -> None:
        outer, path, lenient = self.scope, self.path, self.lenient
        self.scope = Scope(kind, node, outer, self.point())
        self.path, self.lenient = (), expected if kind == "function" else lenient
        if params is not None:
            self.params(params)
        self.block(body, None, "")
        self.scope, self.path, self.lenient = outer, path, lenient

    def params(self, params: cst.Parameters) -> None:
        every = (*params.posonly_params, *params.params, *params.kwonly_params)
        for index, param in enumerate(every):
            if param.default is not None:
                self.expression(param.default)
            self.scope.bind(Binding("param", param.name.value, param.default, self.point(), self.scope, index))
        for star in (params.star_arg, params.star_kwarg):
            if isinstance(star, cst.Param):
                self.scope.bind(Binding("opaque", star.name.value, None, self.point(), self.scope))

    # simple statements -----------------------------------------------------------------------------------------------

    def small(self, node: cst.CSTNode) -> None:
        match node:
            case cst.Assign():
                self.expression(node.value)
                for target in node.targets:
                    self.targets(target.target, node.value, node)
            case cst.AnnAssign():
                if node.value is not None:
                    self.expression(node.value)
                    self.targets(node.target, node.value, node)
            case cst.AugAssign():
                self.expression(node.value)
                self.augmented(node)
            case cst.Expr():
                self.expression(node.value)
                self.mutation(node)
            case cst.Return():
                if node.value is not None:
                    self.expression(node.value)
                self.found.returns.setdefault(id(self._function_node()), []).append((node.value, self.here()))
            case cst.Import():
                self.import_(node)
            case cst.ImportFrom():
                self.import_from(node)
            case cst.Del():
                self.delete(node)
            case cst.Global() | cst.Nonlocal():
                for item in node.names:
                    self.scope.bind(Binding("opaque", item.name.value, None, self.point(), self.scope))
            case cst.Assert():
                self.expression(node.test)
            case cst.Raise():
                if node.exc is not None:
                    self.expression(node.exc)

    def _function_node(self) -> cst.CSTNode | None:
        scope: Scope | None = self.scope
        while scope is not None and scope.kind != "function":
            scope = scope.parent
        return scope.node if scope is not None else None

    def here(self) -> Here:
        return Here(self.scope, self.point(), self.lenient)

    def targets(
        self, target: cst.CSTNode, value: cst.BaseExpression | None, statement: cst.CSTNode | None = None
    ) -> None:
        match target:
            case cst.Name():
                kind: BindingKind = "opaque" if value is None else "assign"
                binding = Binding(kind, target.value, value, self.point(), self.scope)
                self.scope.bind(binding)
                if isinstance(value, cst.Call):
                    self.found.assigned[id(value)] = binding
            case cst.Tuple() | cst.List():
                self.unpack(target, value, statement)
            case cst.Attribute():
                if value is not None and statement is not None:
                    self.store(target, value, statement)
            case cst.Subscript():
                if value is not None and statement is not None:
                    self.item(target, value, statement)
            case cst.StarredElement():
                self.targets(target.value, None)

    def unpack(
        self, target: cst.Tuple | cst.List, value: cst.BaseExpression | None, statement: cst.CSTNode | None
    ) -> None:
        paired = isinstance(value, (cst.Tuple, cst.List)) and len(value.elements) == len(target.elements)
        for index, element in enumerate(target.elements):
            if paired and isinstance(value, (cst.Tuple, cst.List)):
                self.targets(element.value, value.elements[index].value, statement)
            elif isinstance(element.value, cst.Name) and value is not None:
                self.scope.bind(Binding("unpack", element.value.value, value, self.point(), self.scope, index))
            else:
                self.targets(element.value, None)

    def store(self, target: cst.Attribute, value: cst.BaseExpression, statement: cst.CSTNode) -> None:
        name = dotted(target)
        if name is None:
            return
        root, *tail = name.split(".")
        self._add(root, Store("attribute", tuple(tail), None, value, statement, self.point(), self.scope))

    def item(self, target: cst.Subscript, value: cst.BaseExpression, statement: cst.CSTNode) -> None:
        name = dotted(target.value)
        if name is None or len(target.slice) != 1 or not isinstance(target.slice[0].slice, cst.Index):
            return
        root, *tail = name.split(".")
        key = target.slice[0].slice.value
        self._add(root, Store("item", tuple(tail), key, value, statement, self.point(), self.scope))

    def _add(self, root: str, store: Store) -> None:
        self.scope.stores.setdefault(root, []).append(store)

    def augmented(self, node: cst.AugAssign) -> None:
        name = dotted(node.target)
        if name is not None and "." not in name:
            if isinstance(node.operator, cst.BitOrAssign):
                self._add(name, Store("update", (), None, node.value, node, self.point(), self.scope))
            else:
                self.scope.bind(Binding("opaque", name, None, self.point(), self.scope))
        elif name is not None:
            root, *tail = name.split(".")
            self._add(root, Store("opaque", tuple(tail), None, None, node, self.point(), self.scope))

    def mutation(self, statement: cst.Expr) -> None:
        """`x.update(…)`, `x.pop("k")`, `x.append(v)`, `setattr(x, "k", v)` as statements of their own."""
        call = statement.value
        if not isinstance(call, cst.Call):
            return
        function = dotted(call.func)
        if function == "setattr" and len(call.args) == 3:
            self.setattr(call, statement)
            return
        if not isinstance(call.func, cst.Attribute) or function is None:
            return
        root, *tail = function.split(".")
        method = tail.pop()
        if method == "update":
            for arg in call.args:
                if arg.keyword is not None:
                    key = arg.keyword.value
                    self._add(root, Store("item", tuple(tail), key, arg.value, arg, self.point(), self.scope))
                else:
                    self._add(root, Store("update", tuple(tail), None, arg.value, statement, self.point(), self.scope))
        elif method in ("pop", "__delitem__") and call.args:
            self._add(root, Store("delete", tuple(tail), call.args[0].value, None, statement, self.point(), self.scope))
        elif method in ("clear", "popitem", "setdefault", "append", "extend", "insert", "remove"):
            self._add(root, Store("opaque", tuple(tail), None, None, statement, self.point(), self.scope))

    def setattr(self, call: cst.Call, statement: cst.Expr) -> None:
        root = dotted(call.args[0].value)
        if root is None or "." in root:
            return
        key = call.args[1].value
        if isinstance(key, cst.SimpleString):
            tail = (str(key.evaluated_value),)
            self._add(root, Store("attribute", tail, None, call.args[2].value, statement, self.point(), self.scope))
        else:
            self._add(root, Store("opaque", (), None, None, statement, self.point(), self.scope))

    def delete(self, node: cst.Del) -> None:
        target = node.target
        if isinstance(target, cst.Subscript) and isinstance(target.slice[0].slice, cst.Index):
            name = dotted(target.value)
            if name is not None:
                root, *tail = name.split(".")
                key = target.slice[0].slice.value
                self._add(root, Store("delete", tuple(tail), key, None, node, self.point(), self.scope))

    def import_(self, node: cst.Import) -> None:
        for alias in node.names:
            module = dotted(alias.name) or ""
            self.found.packages.add(module.partition(".")[0])
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                name, target = alias.asname.name.value, module
            else:
                name = target = module.partition(".")[0]
            self.scope.bind(Binding("import", name, node, self.point(), self.scope, target=target))

    def import_from(self, node: cst.ImportFrom) -> None:
        module = "." * len(node.relative) + (dotted(node.module) or "")
        self.found.imports.append((node, self.here()))
        self.found.packages.add(module.partition(".")[0])
        if isinstance(node.names, cst.ImportStar):
            self.scope.bind(Binding("import", "*", node, self.point(), self.scope, target=module))
            return
        for alias in node.names:
            symbol = alias.name.value if isinstance(alias.name, cst.Name) else ""
            name = (
                alias.asname.name.value
                if alias.asname is not None and isinstance(alias.asname.name, cst.Name)
                else symbol
            )
            self.scope.bind(Binding("import", name, node, self.point(), self.scope, target=f"{module}.{symbol}"))

    # expressions -----------------------------------------------------------------------------------------------------

    def expression(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.Name):
            self.found.loads[node.value] = self.found.loads.get(node.value, 0) + 1
            self.found.reads.setdefault(node.value, set()).add("")
            return
        if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
            self.found.loads[node.value.value] = self.found.loads.get(node.value.value, 0) + 1
            self.found.reads.setdefault(node.value.value, set()).add(node.attr.value)
            return
        if isinstance(node, _LEAVES):
            return
        if isinstance(node, cst.Call):
            here = self.here()
            self.found.calls.append((node, here))
            self.found.heres[id(node)] = here
        elif isinstance(node, cst.Lambda):
            self.inner(node, node.params, [node.body])
            return
        elif isinstance(node, (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)):
            self.comprehension(node)
            return
        elif isinstance(node, cst.NamedExpr):
            self.expression(node.value)
            self.targets(node.target, node.value)
            return
        for name in _fields(type(node)):
            child = getattr(node, name)
            if isinstance(child, cst.CSTNode):
                self.expression(child)
            elif isinstance(child, (list, tuple)):
                for item in child:
                    if isinstance(item, cst.CSTNode):
                        self.expression(item)

    def inner(self, node: cst.CSTNode, params: cst.Parameters | None, bodies: list[cst.CSTNode]) -> None:
        outer = self.scope
        self.scope = Scope("expression", node, outer, self.point())
        if params is not None:
            self.params(params)
        for body in bodies:
            self.expression(body)
        self.scope = outer

    def comprehension(self, node: cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp) -> None:
        outer = self.scope
        self.scope = Scope("expression", node, outer, self.point())
        loop: cst.CompFor | None = node.for_in
        while loop is not None:
            self.expression(loop.iter)
            self.targets(loop.target, None)
            for condition in loop.ifs:
                self.expression(condition.test)
            loop = loop.inner_for_in
        for part in (node.key, node.value) if isinstance(node, cst.DictComp) else (node.elt,):
            self.expression(part)
        self.scope = outer


def _is_main(test: cst.BaseExpression) -> bool:
    return isinstance(test, cst.Comparison) and isinstance(test.left, cst.Name) and test.left.value == "__name__"


def _mentions_version(test: cst.BaseExpression) -> bool:
    """Whether a condition looks at what is installed: the classic shims ask a version, a signature or the fields."""
    words = {
        "version",
        "Version",
        "parse",
        "signature",
        "fields",
        "hasattr",
        "__version__",
        "__dataclass_fields__",
        "parameters",
    }
    return any(name.lower().endswith("version") or name in words for name in _names(test)) or any(
        "version" in name.lower() for name in _names(test)
    )


def _names(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
        return
    if isinstance(node, cst.Attribute):
        yield node.attr.value
    for name in _fields(type(node)):
        child = getattr(node, name)
        for item in child if isinstance(child, (list, tuple)) else (child,):
            if isinstance(item, cst.CSTNode):
                yield from _names(item)


def _raises(item: cst.BaseExpression) -> bool:
    """Whether a context expects its body to fail: `pytest.raises(…)`, `self.assertRaises(…)`."""
    name = dotted(item.func) if isinstance(item, cst.Call) else None
    return name is not None and name.rpartition(".")[2] in ("raises", "assertRaises", "assertRaisesRegex")


def _caught(handler: cst.ExceptHandler | cst.ExceptStarHandler) -> Iterator[str]:
    if handler.type is None:
        yield ""
        return
    elements = [e.value for e in handler.type.elements] if isinstance(handler.type, cst.Tuple) else [handler.type]
    for element in elements:
        name = dotted(element)
        if name is not None:
            yield name.rpartition(".")[2]
