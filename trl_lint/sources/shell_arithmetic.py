"""The inside of `$((…))` in, with a way to read its operands; the integer out, or why it cannot be computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tree_sitter import Node

from trl_lint.sources.shell_syntax import short, source_of
from trl_lint.sources.shell_values import Chunk, joined, reason, unknown

Read: TypeAlias = Callable[[Node], Sequence[Chunk]]
"""Expands one operand: a name, an expansion or a string."""


class _Open(ValueError):
    """An arithmetic expression that cannot be computed; says why."""


def computed(node: Node, place: tuple[int, int], read: Read) -> Chunk:
    """What `$((…))` stands for."""
    inner = [child for child in node.named_children if child.type != "comment"]
    try:
        if len(inner) != 1 or node.has_error:
            raise _Open("the arithmetic there is not understood")
        value, sure = _number(inner[0], 0, read)
    except _Open as unclear:
        return unknown(str(unclear), *place)
    return Chunk(str(value), *place, likely=not sure, same=False, own=False)


def _number(node: Node, depth: int, read: Read) -> tuple[int, bool]:
    """The integer that an arithmetic expression is, and whether no default went into it."""
    if depth > 40:
        raise _Open("it is nested too deeply")
    match node.type:
        case "number" | "word" | "variable_name" | "simple_expansion" | "expansion" | "string":
            return _integer(node, read)
        case "parenthesized_expression" if node.named_child_count == 1:
            return _number(node.named_children[0], depth + 1, read)
        case "unary_expression" if node.named_child_count == 1:
            value, sure = _number(node.named_children[0], depth + 1, read)
            if node.children[0].type in ("-", "+"):
                return (-value if node.children[0].type == "-" else value), sure
        case "binary_expression" if len(node.children) == 3:
            left, sure_left = _number(node.children[0], depth + 1, read)
            right, sure_right = _number(node.children[2], depth + 1, read)
            return _calculated(left, node.children[1].type, right), sure_left and sure_right
    raise _Open(f"`{short(source_of(node))}` is worked out by the shell")


def _integer(node: Node, read: Read) -> tuple[int, bool]:
    source = source_of(node)
    if re.fullmatch(r"0|[1-9]\d{0,17}", source):
        return int(source), True
    chunks = read(node)
    text = joined(chunks)
    if text is None:
        raise _Open(reason(chunks) or f"`{short(source)}` is not known")
    if not re.fullmatch(r"-?(0|[1-9]\d{0,17})", text):
        raise _Open(f"`{short(source)}` is no plain integer")
    return int(text), not any(chunk.likely for chunk in chunks)


def _calculated(left: int, operator: str, right: int) -> int:
    if operator in ("/", "%"):
        if right == 0:
            raise _Open("it divides by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    results = {"+": left + right, "-": left - right, "*": left * right}
    if operator not in results or abs(results[operator]) >= 1 << 63:
        raise _Open(f"`{operator}` is worked out by the shell")
    return results[operator]
