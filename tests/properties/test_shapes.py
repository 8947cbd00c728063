"""Mistakes in every shape that people write them in: what a fix promises holds for each."""

from __future__ import annotations

import ast

from hypothesis import given, note
from hypothesis import strategies as st

from tests.properties import shapes
from tests.properties.invariants import Tried, check, one_world
from tests.properties.profiles import cases


def tried(files: dict[str, str], unsafe: bool) -> Tried:
    for name, text in files.items():
        note(f"{name}:\n{text}")
    encoded = {name: text.encode() for name, text in files.items()}
    return check(encoded, unsafe=unsafe, **one_world(b"\n".join(encoded.values())))


@cases(80)
@given(shapes.scripts(), st.booleans())
def test_scripts(script: str, unsafe: bool) -> None:
    ast.parse(script.encode())
    assert not tried({"train.py": script}, unsafe).skipped


@cases(40)
@given(shapes.recipes(), st.booleans())
def test_recipes(files: dict[str, str], unsafe: bool) -> None:
    assert not tried(files, unsafe).skipped


@cases(40)
@given(shapes.commands(), st.booleans())
def test_commands(files: dict[str, str], unsafe: bool) -> None:
    assert not tried(files, unsafe).skipped


@cases(30)
@given(shapes.notebooks(), st.booleans())
def test_notebooks(notebook: str, unsafe: bool) -> None:
    assert not tried({"train.ipynb": notebook}, unsafe).skipped


@cases(10)
@given(shapes.scripts())
def test_what_the_pins_leave_open(script: str) -> None:
    """Without facts by hand a fix must be right in every release that is left."""
    tried_in_all = check({"train.py": script.encode()})
    assert not tried_in_all.skipped


@cases(20)
@given(shapes.scripts(), st.sampled_from(("0.24.0", "1.9.2", "1.16.0")))
def test_moves(script: str, target: str) -> None:
    """`--target-trl` keeps the same promises."""
    check({"train.py": script.encode()}, target=target, transformers="5.15.1")
