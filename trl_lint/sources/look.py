"""The cheap looks: a file's name and bytes in; whether it can say anything about TRL out, before any parser is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import ast

Kind: TypeAlias = Literal["python", "notebook", "recipe", "shell"]

MARK = b"trl"
SUFFIXES: dict[str, Kind] = {
    ".py": "python", ".ipynb": "notebook", ".yaml": "recipe", ".yml": "recipe", ".json": "recipe", ".sh": "shell",
    ".bash": "shell", ".slurm": "shell", ".sbatch": "shell", ".mk": "shell", ".dockerfile": "shell",
}  # fmt: skip
NAMES = ("Makefile", "Dockerfile", "Containerfile")
# JSON is read only where a launch names it: a repository holds thousands of JSON files, and few are DeepSpeed's.
WALKED = tuple(suffix for suffix in SUFFIXES if suffix != ".json")

_RECIPE = re.compile(
    rb"\b(?:model_name_or_path|per_device_train_batch_size|gradient_accumulation_steps|num_generations|use_vllm)[\"']?\s*:"
)
_LAUNCH = re.compile(rb"\baccelerate\b|\btorchrun\b|\bdeepspeed\b|\bpython[0-9.]*\s|\bsrun\b")


def kind_of(path: str) -> Kind:
    """The kind of source that a file is, by its name; Python where the name does not tell."""
    if path.endswith(".py"):  # by far the most, and asked of every file
        return "python"
    name = os.path.basename(path)
    suffix = os.path.splitext(name)[1].lower()
    return "shell" if name.startswith(NAMES) and suffix not in (".py", ".md") else SUFFIXES.get(suffix, "python")


def is_read(name: str) -> bool:
    """Whether a walk looks into a file of that name."""
    return name.endswith(WALKED) or name.rpartition("/")[2].startswith(NAMES)


def mentions(path: str, data: bytes) -> bool:
    """Whether the bytes say something of TRL: a search, no decoding."""
    return MARK in data or (not path.endswith(".py") and kind_of(path) == "recipe" and _RECIPE.search(data) is not None)


def may_launch(path: str, data: bytes) -> bool:
    """Whether the bytes may start a script: worth a look only if they name one that mentions TRL."""
    return kind_of(path) in ("shell", "recipe") and _LAUNCH.search(data) is not None


def scripts_in(data: bytes) -> list[str]:
    """What looks like the path of a Python script."""
    return [found.decode() for found in set(re.findall(rb"[\w./-]+\.py\b", data))]


class TooDeep(ValueError):
    """Nested deeper than Python itself accepts."""


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
