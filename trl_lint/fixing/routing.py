"""An intent on what a run was put together from in; the same intent on the one site of a file that owns the value, out."""

from __future__ import annotations

from dataclasses import replace

from trl_lint.model import Intent, Site
from trl_lint.sources.edits import CannotEdit


def routed(intent: Intent) -> Intent:
    """The intent at the layer that gives the value; a value that none gives goes into the recipe, else to the flags.

    Raises CannotEdit where neither a recipe nor a command is there to take it.
    """
    if not intent.site.layers:
        return intent
    argument = intent.site.arguments.get(intent.name)
    if argument is not None:
        for layer in reversed(intent.site.layers):
            for name, own in layer.arguments.items():
                if own is argument:
                    return replace(intent, site=layer, name=name)
    home = _home(intent.site)
    if home is None or intent.op != "set":
        raise CannotEdit(f"there is no place to write {intent.name}")
    return replace(intent, site=home)


def _home(site: Site) -> Site | None:
    for kind in ("recipe", "flags"):
        for layer in site.layers:
            if layer.kind == kind:
                return layer
    return None
