"""A name and the names that are known in; the one that a typo may have meant out."""

from __future__ import annotations

import difflib
from functools import lru_cache

MOST = 2


@lru_cache(maxsize=20_000)
def closest(name: str, known: frozenset[str]) -> str | None:
    """The known name that differs by a letter or two; None where there is none. Asked again in every world, so kept.

    A name that has a whole word more or less is another option, whatever the two have in common.
    """
    likely = difflib.get_close_matches(name, sorted(known), 3, 0.85)
    return next((other for other in likely if _letters(name, other) <= MOST), None)


def _letters(one: str, other: str) -> int:
    """How many letters differ, two that changed places counted twice."""
    steps = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in steps if tag != "equal")
