"""What fuzzing and the property tests have found, kept small."""

from __future__ import annotations

import json

import pytest

from tests.properties.invariants import check

# Python refuses these; libcst takes them, and raised SyntaxError as soon as it was asked for the value: the whole run stopped.
REFUSED = {
    "a null byte": "'a\0b'",
    "half an escape": '"\\x"',
    "an unknown character name": '"\\N{no such}"',
    "text joined to bytes": '"a" b"b"',
    "more digits than Python reads": "9" * 5000,
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_python_refuses_is_skipped_in_one_line(value: str) -> None:
    code = f"from trl import SFTConfig\n\nargs = SFTConfig(output_dir={value}, fp16=True, bf16=True)\n"
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": code}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    files = {"train.py": code, "train.ipynb": json.dumps(notebook)}
    for name, text in files.items():
        tried = check({name: text.encode()})
        assert not tried.findings
        assert name.endswith(".ipynb") or len(tried.skipped) <= 1
