"""The cheap looks: a file's bytes in; whether it can say anything about TRL out, before libcst is even imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

MARK = b"trl"


class TooDeep(ValueError):
    """Nested deeper than Python itself accepts."""


def mentions(data: bytes) -> bool:
    """Whether the bytes name TRL at all: a search, no decoding."""
    return MARK in data


def can_hold_site(code: str) -> bool:
    """Whether some statement imports TRL. Syntax newer than this Python is let through for libcst to judge.

    Raises TooDeep for nesting that Python's own parser refuses: libcst would take exponential time or overflow there.
    """
    import ast

    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        if "nested" in str(error) or "indentation" in str(error):
            raise TooDeep(str(error.msg)) from None
        return True
    except (RecursionError, MemoryError):
        raise TooDeep("nested too deeply") from None
    except ValueError:  # null bytes: no Python file
        return False
    return any(_imports_trl(node) for node in _statements(tree.body))


def _imports_trl(node: ast.stmt) -> bool:
    import ast

    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and node.module is not None and _is_trl(node.module)
    return isinstance(node, ast.Import) and any(_is_trl(alias.name) for alias in node.names)


def _is_trl(module: str) -> bool:
    return module == "trl" or module.startswith("trl.")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement, depth first, without entering expressions: imports cannot hide there."""
    stack = list(body)
    while stack:
        node = stack.pop()
        yield node
        for name in ("body", "orelse", "finalbody"):
            stack.extend(getattr(node, name, ()))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            stack.extend(part.body)
