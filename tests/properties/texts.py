"""The real texts that are mutated: fixtures, the pages' examples, and what the tests of the readers read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.helpers import ROOT
from trl_lint.rulebook.pages import blocks
from trl_lint.sources.look import is_read

KINDS = {
    "python": "train.py", "recipe": "recipe.yaml", "notebook": "train.ipynb", "shell": "launch.sh",
    "makefile": "Makefile", "dockerfile": "Dockerfile",
}  # fmt: skip
"""Every kind of source, and a name that makes a file one."""
_LANGUAGES = {"python": "python", "yaml": "recipe", "bash": "shell"}


@cache
def texts(kind: str) -> tuple[str, ...]:
    """All texts of a kind, in a fixed order."""
    return tuple(
        sorted({text for found, text in [*_fixtures(), *_pages(), *_forms(), *_strings(), *_built()] if found == kind})
    )


def kind_of(name: str) -> str:
    """The kind of a file, told from its name as `KINDS` names them."""
    if name.startswith("Makefile") or name.endswith(".mk"):
        return "makefile"
    if name.startswith("Dockerfile"):
        return "dockerfile"
    suffixes = {".py": "python", ".yaml": "recipe", ".yml": "recipe", ".ipynb": "notebook"}
    return suffixes.get(Path(name).suffix, "shell")


def _fixtures() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "fixtures").rglob("*"):
        if path.is_file() and is_read(path.name):
            yield kind_of(path.name), path.read_text("utf-8")


def _pages() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "rules").glob("*/*.md"):
        for block in blocks(path.read_text("utf-8")):
            if block.language in _LANGUAGES:
                yield _LANGUAGES[block.language], block.code


def _forms() -> Iterator[tuple[str, str]]:
    from tests.test_forms import FORMS, MISTAKES

    for write, _owner in FORMS.values():
        for mistake in MISTAKES:
            for name, text in write(mistake).items():
                yield kind_of(name), text


def _built() -> Iterator[tuple[str, str]]:
    """The launch scripts of the forms as a Makefile's and a Dockerfile's: few of these stand anywhere."""
    for kind, text in _forms():
        facts, _, command = text.removeprefix("#!/bin/bash\n").partition("\n")
        if kind != "shell" or not facts.startswith("#") or not command.startswith("trl "):
            continue
        recipe = command.replace("\n", "\n\t").rstrip("\t")
        yield "makefile", f"{facts}\nOUT := out\n\n.PHONY: train\ntrain:  # on one node\n\t@mkdir -p $(OUT)\n\t{recipe}"
        yield "dockerfile", f"{facts}\nFROM python:3.12\nENV HF_HOME=/data\nRUN pip install trl\nCMD {command}"


def _strings() -> Iterator[tuple[str, str]]:
    """The texts that stand as literals in the tests of the readers, each taken for what it looks like."""
    for path in (ROOT / "tests" / "sources").glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
                yield _looks_like(node.value), node.value


def _looks_like(text: str) -> str:
    if text.startswith("FROM "):
        return "dockerfile"
    if "import " in text and ("def " in text or " = " in text):
        return "python"
    if '"cells"' in text:
        return "notebook"
    if ":\n\t" in text:
        return "makefile"
    first = text.lstrip().partition("\n")[0]
    return "recipe" if ": " in first or first.endswith(":") else "shell"
