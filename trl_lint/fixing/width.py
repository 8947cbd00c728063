"""A path in; the line width that its project formats to out."""

from __future__ import annotations

import os
import tomllib
from functools import cache

DEFAULT = 88


def line_width(path: str) -> int:
    """`line-length` of ruff or black in the nearest file that sets one; 88, what both default to, otherwise."""
    return _of_folder(os.path.dirname(os.path.abspath(path)))


@cache
def _of_folder(folder: str) -> int:
    for name in ("ruff.toml", ".ruff.toml", "pyproject.toml"):
        found = _read(os.path.join(folder, name), nested=name == "pyproject.toml")
        if found is not None:
            return found
    parent = os.path.dirname(folder)
    return DEFAULT if parent == folder or os.path.isdir(os.path.join(folder, ".git")) else _of_folder(parent)


def _read(path: str, *, nested: bool) -> int | None:
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return None
    tables = [data.get("tool", {}).get(tool, {}) for tool in ("ruff", "black")] if nested else [data]
    return next(
        (t["line-length"] for t in tables if isinstance(t, dict) and isinstance(t.get("line-length"), int)), None
    )
