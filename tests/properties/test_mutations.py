"""Real texts with changes that nobody meant: the tool says what it can of them, in one line at least, and its fixes keep their promises."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.properties.invariants import check, one_world
from tests.properties.mutations import mutated
from tests.properties.profiles import cases
from tests.properties.texts import KINDS, texts

NUMBERS = {"python": 100, "recipe": 60, "notebook": 40, "shell": 80, "makefile": 20, "dockerfile": 20}


def test_every_kind_has_texts() -> None:
    assert {kind: bool(texts(kind)) for kind in KINDS} == dict.fromkeys(KINDS, True)


@pytest.mark.parametrize("kind", KINDS)
def test_mutated(kind: str) -> None:
    @cases(NUMBERS[kind])
    @given(st.sampled_from(texts(kind)), st.randoms(use_true_random=False), st.booleans())
    def tried(text: str, random: Random, unsafe: bool) -> None:
        changed = mutated(text, kind, random)
        note(changed)
        data = changed.encode("utf-8", "surrogatepass")
        check({KINDS[kind]: data}, unsafe=unsafe, **one_world(data))

    tried()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8-sig"])
def test_in_other_encodings(kind: str, encoding: str) -> None:
    """What is no UTF-8 is read as what it says it is, or skipped in one line."""
    text = next(t for t in texts(kind) if "trl" in t)
    check({KINDS[kind]: text.encode(encoding, "replace")}, **one_world(text.encode()))


@pytest.mark.parametrize("kind", KINDS)
def test_cut_anywhere(kind: str) -> None:
    """A file that is still being written."""
    text = max((t for t in texts(kind) if len(t) < 1500), key=len)
    for end in range(0, len(text), max(1, len(text) // 12)):
        data = text[:end].encode()
        check({KINDS[kind]: data}, **one_world(data))
