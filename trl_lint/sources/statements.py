"""A libcst module in; every simple statement line of it out, with the block that holds it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

_PARTS = ("body", "orelse", "finalbody", "handlers", "cases")


def lines(module: cst.Module) -> Iterator[tuple[cst.CSTNode, cst.SimpleStatementLine]]:
    """(block, line) for every line, without entering expressions: no statement hides there."""
    stack: list[tuple[cst.CSTNode, cst.CSTNode]] = [(module, n) for n in module.body]
    while stack:
        block, node = stack.pop()
        if isinstance(node, cst.SimpleStatementLine):
            yield block, node
            continue
        for name in _PARTS:
            child = getattr(node, name, None)
            children = child if isinstance(child, (list, tuple)) else (child,)
            stack.extend((node, c) for c in children if isinstance(c, cst.CSTNode))
