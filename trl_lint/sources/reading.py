"""A source of any kind in; its module out, and its text with intents written into it. Readers are imported when first needed."""

from __future__ import annotations

from collections.abc import Sequence

from trl_lint.model import Intent
from trl_lint.sources.edits import CannotEdit
from trl_lint.sources.look import Kind, kind_of
from trl_lint.sources.module import Module
from trl_lint.sources.text import Text


def read(text: Text) -> Module:
    """Everything that one source says. Raises Unparsable."""
    match kind_of(text.path):
        case "python":
            from trl_lint.sources import python

            return python.read(text)
        case "notebook":
            from trl_lint.sources import notebook

            return notebook.read(text)
        case "recipe":
            from trl_lint.sources import recipe

            return recipe.read(text)
        case "shell":
            from trl_lint.sources import shell

            return shell.read(text)


def edit(text: Text, intents: Sequence[Intent], *, width: int = 88) -> str:
    """The file's text after the intents, all of whose sites stand in it. Raises CannotEdit."""
    kind = kind_of(text.path)
    if kind != "notebook" and any(i.site.kind in _KINDS and _KINDS[i.site.kind] != kind for i in intents):
        raise CannotEdit("it stands inside a file of another kind: change it by hand")
    match kind:
        case "python":
            from trl_lint.sources import python_edits

            return python_edits.edit(text, intents, width=width)
        case "notebook":
            from trl_lint.sources import notebook_edits

            return notebook_edits.edit(text, intents, width=width)
        case "recipe":
            from trl_lint.sources import recipe_edits

            return recipe_edits.edit(text, intents, width=width)
        case "shell":
            from trl_lint.sources import shell_edits

            return shell_edits.edit(text, intents, width=width)


_KINDS: dict[str, Kind] = {
    "config": "python", "trainer": "python", "model": "python", "peft": "python", "quantization": "python",
    "dataset": "python", "parser": "python", "import": "python", "object": "python", "elsewhere": "python",
    "recipe": "recipe", "accelerate": "recipe", "deepspeed": "recipe", "flags": "shell", "launcher": "shell",
    "server": "shell",
}  # fmt: skip
