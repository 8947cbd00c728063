"""What a page is once it is read: frozen values, apart from the reader so that kept rules load without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trl_lint.model import Effect, Severity


class BadPage(ValueError):
    """A page that cannot be used; the text is `file:line: what is wrong; what to do`."""


# The rules about ignore comments have no page: they judge comments and no runs. Their names, and their group.
ABOUT_IGNORES = {"bare-ignore": "ignores", "unused-ignore": "ignores"}


@dataclass(frozen=True)
class Alternative:
    """One way out that a page offers. Targets are dotted names; values are TOML literals or templates."""

    title: str
    effect: Effect
    needs: tuple[str, ...]
    when: str | None
    actions: tuple[tuple[str, str, Any], ...]


@dataclass(frozen=True)
class Variant:
    """What a rule says in one range of releases. `trl` is a specifier, `stops` whether the run raises there."""

    trl: str
    when: str | None
    severity: Severity
    message: str
    stops: bool
    fixes: tuple[Alternative, ...]


@dataclass(frozen=True)
class Knob:
    """One setting that a page lets the tuner turn, in the releases of `trl`.

    `values` are TOML literals, `when` says whether it applies to a run at all, `valid` whether one `value` of it does. `set`
    maps a target to an expression over the run and `value`. Where memory is `rising`, each value needs more of it than the
    ones before. `first` is the value that a search begins with; None where none is likelier than the present one.
    """

    name: str
    trl: str
    methods: tuple[str, ...] | None
    values: tuple[Any, ...]
    when: str | None
    valid: str | None
    effect: Effect
    rising: bool
    set: tuple[tuple[str, str], ...]
    first: Any = None


@dataclass(frozen=True)
class Rule:
    """One page. `methods` None means every run; `each` names the list that the rule goes through item by item.

    `possible` pages hang on what no file can show: they are never more than possible. `target` pages speak only where files
    are moved to another release (`--target-trl`); theirs is the one that their examples are moved to. `guards` are the checks
    of TRL's own that the page explains: where it speaks, `refused-by-trl` need not. `knobs` are what the tuner may turn,
    whether the rule has found something or not.
    """

    name: str
    group: str
    title: str
    path: str
    text: str = field(repr=False)
    methods: tuple[str, ...] | None
    at: tuple[str, ...]
    related: Mapping[str, str]
    when: str
    each: str | None
    unsloth: bool
    possible: bool
    gain: int
    variants: tuple[Variant, ...]
    target: str | None = None
    guards: tuple[str, ...] = ()
    knobs: tuple[Knob, ...] = ()

    @cached_property
    def sections(self) -> Mapping[str, str]:
        """The text under each `## heading`."""
        return sections(self.text)


def sections(text: str) -> dict[str, str]:
    """The text under each second-level heading of a page; code fences are not searched for headings."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    fenced = False
    for line in text.splitlines():
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        if line.startswith("## ") and not fenced:
            current = found.setdefault(line[3:].strip(), [])
        elif current is not None:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}
