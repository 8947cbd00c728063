"""YAML or JSON text in; a tree of nodes that know their places out. Aliases and merges are followed within bounds."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, islice
from typing import Any, Literal

import yaml

from trl_lint.model import Span
from trl_lint.sources.module import Unparsable
from trl_lint.sources.text import Text

MAX_DEPTH = 100
MAX_NODES = 20_000
"""How many values a site may hold once its aliases are followed: ten lines of YAML can stand for billions."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same events, eighteen times faster


# The tree ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Node:
    """One value of a document. Offsets are code points of `Text.code`.

    `start` is where the value itself begins, `first` where its anchor or tag does; `end` leaves out what follows the
    last thing in it. An alias is a node of its own whose `target` is the value it repeats.
    """

    kind: Literal["scalar", "sequence", "mapping", "alias"]
    first: int
    start: int
    end: int
    tag: str = ""
    value: str = ""
    style: str = ""
    anchor: str | None = None
    target: Node | None = None
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)

    @property
    def real(self) -> Node:
        """The value itself, where this is an alias."""
        return self if self.target is None else self.target

    @property
    def flow(self) -> bool:
        return self.style == "flow"


def documents(code: str) -> list[Node]:
    """The root of every document of a YAML text. Raises Unparsable as safe_load would raise (unknown tags are let through)."""
    try:
        return list(_composed(code))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        position = getattr(error, "position", None)
        line = mark.line + 1 if mark is not None else code.count("\n", 0, position or 0) + 1
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        raise Unparsable(f"line {line}: {' '.join(str(reason).split())}") from None


_PROPERTIES = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*|!<[^>\s]*>|[&!][^\s,\[\]{}]*)*")


def _composed(code: str) -> Iterator[Node]:
    """yaml.compose, but an alias stays a node with a place of its own."""
    stack: list[Node] = []
    waiting: list[Node] = []  # for each open mapping whose key has been read: that key
    anchors: dict[str, Node] = {}
    for event in yaml.parse(code, Loader=_LOADER):
        if isinstance(event, yaml.DocumentStartEvent):
            anchors = {}
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            node = stack.pop()
            node.end = _end(node, _marks(event)[1])
            if not stack:
                yield node
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        node = _node(code, event, anchors)
        if stack:
            _add(stack[-1], node, waiting)
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(node)
            if len(stack) > MAX_DEPTH:
                raise Unparsable(f"line {_marks(event)[2]}: nested more than {MAX_DEPTH} levels deep")
        elif not stack:
            yield node


def _marks(event: Any) -> tuple[int, int, int]:
    """Start, end and 1-based line of an event; only the stubs think that there may be none."""
    return event.start_mark.index, event.end_mark.index, event.start_mark.line + 1


def _node(code: str, event: Any, anchors: dict[str, Node]) -> Node:
    first, end, line = _marks(event)
    if type(event) is yaml.AliasEvent:
        target = anchors.get(str(event.anchor))
        if target is None:
            raise Unparsable(f"line {line}: found undefined alias {event.anchor!r}")
        return Node("alias", first, first, end, target=target, anchor=event.anchor)
    kind: Literal["scalar", "sequence", "mapping"]
    value, style, implicit = "", "", (True, False)
    if isinstance(event, yaml.ScalarEvent):
        kind, value, style, implicit = "scalar", event.value, event.style or "", event.implicit
        if style in ("|", ">"):
            end = _block_end(code, first, end)
    else:
        kind = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
        style = "flow" if event.flow_style else ""
    tag = event.tag
    if tag is None or tag == "!":
        tag = _resolved(kind, value, implicit)
    start = first
    if event.anchor is not None or event.tag is not None:
        found = _PROPERTIES.match(code, first)
        assert found is not None  # it matches nothing, too
        start = min(found.end(), end) if kind == "scalar" else found.end()
    node = Node(kind, first, start, end, tag, value, style, event.anchor)
    if event.anchor is not None:
        if event.anchor in anchors:
            raise Unparsable(f"line {line}: found duplicate anchor {event.anchor!r}")
        anchors[event.anchor] = node
    return node


def _block_end(code: str, first: int, end: int) -> int:
    """A block scalar ends with its last character, unless its header keeps the empty lines behind it."""
    text = code[first:end]
    if "+" in text.split("\n", 1)[0].split("#", 1)[0]:
        return end - len(text) + len(text.removesuffix("\n").removesuffix("\r"))
    return first + len(text.rstrip())


def _add(parent: Node, node: Node, waiting: list[Node]) -> None:
    if parent.kind == "sequence":
        parent.items.append(node)
    elif waiting and waiting[-1] is parent:  # its key came before: (key, parent) lie on top
        waiting.pop()
        parent.pairs.append((waiting.pop(), node))
    else:
        waiting += [node, parent]


def _end(node: Node, end: int) -> int:
    """A flow collection ends with its bracket, a block with its last value: its end event lies lines below."""
    if node.flow:
        return end
    last = node.pairs[-1][1] if node.pairs else node.items[-1] if node.items else None
    return node.start if last is None else max(last.end, node.start)


@cache
def _constructor() -> yaml.SafeLoader:
    return yaml.SafeLoader("")


TAG = "tag:yaml.org,2002:"
_MERGE = f"{TAG}merge"


def _resolved(kind: str, value: str, implicit: tuple[bool, bool]) -> str:
    if kind != "scalar":
        return f"{TAG}{'map' if kind == 'mapping' else 'seq'}"
    if not implicit[0]:
        return f"{TAG}str"
    return str(_constructor().resolve(yaml.ScalarNode, value, implicit))  # type: ignore[no-untyped-call]


class Unreadable(ValueError):
    """A scalar whose value is none of the plain ones; the message says why."""


def plain(node: Node) -> object:
    """The value of a scalar: None, a bool, int, float or str. Raises Unreadable for everything else."""
    tag, value = node.tag, node.value
    if tag == f"{TAG}str":
        return value
    if tag == f"{TAG}null":
        return None
    loader, scalar = _constructor(), yaml.ScalarNode(tag, value)
    try:
        if tag == f"{TAG}bool":
            return bool(loader.construct_yaml_bool(scalar))
        if tag == f"{TAG}int":
            return int(loader.construct_yaml_int(scalar))
        if tag == f"{TAG}float":
            return float(loader.construct_yaml_float(scalar))
    except (ValueError, KeyError, IndexError):
        raise Unreadable(f"{value[:40]!r} is no {tag.removeprefix(TAG)}") from None
    if tag == f"{TAG}timestamp":
        raise Unreadable("it is a date")
    raise Unreadable(f"the tag {tag.replace(TAG, '!!')} is none of the plain ones")


def entries(mapping: Node, disputed: set[str] | None = None) -> Iterator[tuple[Node, Node, Node]]:
    """(mapping that writes it, key, value) of every entry, the winner of each key last: merges first, as safe_load does.

    `disputed` collects the keys that several mappings of one list give (`<<: [*a, *b]`): up to PyYAML 6.0.3 the first
    one wins, as the specification has it, from 6.0.4 on the last.
    """
    left, disputed = [MAX_NODES], set() if disputed is None else disputed
    for key, value in mapping.pairs:
        if key.tag == _MERGE:
            yield from _merged(value.real, left, disputed)
    yield from ((mapping, key, value) for key, value in mapping.pairs if key.tag != _MERGE)


def _merged(node: Node, left: list[int], disputed: set[str], depth: int = 0) -> Iterator[tuple[Node, Node, Node]]:
    """What one `<<` brings in."""
    seen: set[str] = set()
    for source in [item.real for item in reversed(node.items)] if node.kind == "sequence" else [node]:
        left[0] -= 1 + len(source.pairs)
        if left[0] < 0 or depth > MAX_DEPTH:
            raise Unparsable("line 1: its merges unfold to too many values")
        if source.kind != "mapping":
            raise Unparsable("line 1: `<<` takes a mapping or a list of mappings")
        found = [f for k, v in source.pairs if k.tag == _MERGE for f in _merged(v.real, left, disputed, depth + 1)]
        found += [(source, key, value) for key, value in source.pairs if key.tag != _MERGE]
        names = {key.real.value for _holder, key, _value in found}
        disputed |= names & seen
        seen |= names
        yield from found


# Places --------------------------------------------------------------------------------------------------------------


class Offsets:
    """Code point offsets of a text in, spans out; one pass over the text, then each in logarithmic time."""

    def __init__(self, text: Text) -> None:
        self.text = text
        code = text.code
        self._utf8 = None if code.isascii() else [0, *accumulate(len(c.encode()) for c in code)]
        self._lines = [0, *(found.end() for found in re.finditer(r"\r\n|\r|\n", code))]

    def utf8(self, point: int) -> int:
        return point if self._utf8 is None else self._utf8[point]

    def _at(self, point: int) -> tuple[int, int, int]:
        line = bisect_right(self._lines, point)
        return self.text.byte(self.utf8(point)), line, point - self._lines[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        if type(self.text) is not Text:  # a piece of another file knows its places itself
            return self.text.span(self.utf8(start), self.utf8(end))
        (first, line, column), (last, end_line, end_column) = self._at(start), self._at(end)
        return Span(self.text.path, first, last, line, column, end_line, end_column)

    def of(self, node: Node) -> Span:
        return self.span(node.start, node.end)


# JSON ----------------------------------------------------------------------------------------------------------------


def json_document(text: Text) -> Node:
    """The tree of a JSON text: the same nodes, numbers as JSON reads them (`1e-5` is a float there)."""
    import tree_sitter
    import tree_sitter_json

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_json.language()))
    root = parser.parse(text.utf8).root_node
    values = [child for child in root.named_children if child.type != "comment"]
    if root.has_error or len(values) != 1:
        raise Unparsable(f"line {_json_error(root)}: not valid JSON")
    point: Callable[[int], int] = int if text.code.isascii() else _points(text.utf8).__getitem__
    return _json_node(text.utf8, values[0], point, 0)


def _points(data: bytes) -> list[int]:
    """For each offset into UTF-8 bytes, its code point."""
    return [0, *accumulate((byte & 0xC0 != 0x80 for byte in data[1:]), initial=1)] if data else [0]


def _json_error(root: object) -> int:
    """The line of the first thing that is no JSON."""
    from tree_sitter import Node as Found

    assert isinstance(root, Found)
    node = root
    while True:
        inside = next((c for c in node.children if c.has_error or c.is_missing), None)
        if inside is None or node.is_error:
            return int(node.start_point[0]) + 1
        node = inside


def _json_node(data: bytes, node: object, point: Callable[[int], int], depth: int) -> Node:
    import json

    from tree_sitter import Node as Found

    assert isinstance(node, Found)
    start, end = point(node.start_byte), point(node.end_byte)
    if depth > MAX_DEPTH:
        raise Unparsable(f"line {node.start_point[0] + 1}: nested more than {MAX_DEPTH} levels deep")

    def below(child: object) -> Node:
        return _json_node(data, child, point, depth + 1)

    if node.type == "object":
        found = Node("mapping", start, start, end, f"{TAG}map", style="flow")
        for pair in node.named_children:
            if pair.type == "pair":
                key, value = (c for c in pair.named_children if c.type != "comment")
                found.pairs.append((below(key), below(value)))
        return found
    if node.type == "array":
        found = Node("sequence", start, start, end, f"{TAG}seq", style="flow")
        found.items = [below(child) for child in node.named_children if child.type != "comment"]
        return found
    raw = data[node.start_byte : node.end_byte].decode()
    try:
        value = json.loads(raw, strict=False)
    except ValueError:
        raise Unparsable(f"line {node.start_point[0] + 1}: not valid JSON") from None
    kind = {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value), "null")
    spelled = value if isinstance(value, str) else _yaml_number(value) if kind == "float" else raw
    return Node("scalar", start, start, end, f"{TAG}{kind}", spelled, '"' if kind == "str" else "")


def _yaml_number(value: float) -> str:
    """A float as YAML's own constructor takes it; infinities are what JSON makes of 1e999."""
    return repr(value).replace("inf", ".inf")


def top_level(root: Node) -> dict[str, Node]:
    """The values of a mapping by key, for deciding what it is."""
    return {k.real.value: v.real for _holder, k, v in islice(entries(root), MAX_NODES) if k.real.kind == "scalar"}


def inside(node: Node) -> dict[str, Node]:
    return top_level(node) if node.kind == "mapping" else {}


def is_kind(top: Mapping[str, Node], key: str, kind: str) -> bool:
    return key in top and top[key].kind == kind
