"""What the files of a project say in; the training runs that they describe out."""

from __future__ import annotations

from trl_lint.runs import guards, properties, starting  # noqa: F401  register the names that rules may ask
from trl_lint.runs.linking import Linker, Project, method_of, port_of
from trl_lint.runs.run import SERVING, TRAINING_ARGUMENTS, Run, View
from trl_lint.runs.worlds import World, Worlds, worlds

__all__ = [
    "SERVING", "TRAINING_ARGUMENTS", "Linker", "Project", "Run", "View", "World", "Worlds", "method_of", "port_of", "worlds",
]  # fmt: skip
