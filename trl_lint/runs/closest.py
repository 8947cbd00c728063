"""A name and the names that are known in; the one that a typo may have meant out."""

from __future__ import annotations

import difflib
from functools import lru_cache


@lru_cache(maxsize=20_000)
def closest(name: str, known: frozenset[str]) -> str | None:
    """The known name that differs by a letter or two; None where there is none. Asked again in every world, so kept."""
    return next(iter(difflib.get_close_matches(name, sorted(known), 1, 0.85)), None)
