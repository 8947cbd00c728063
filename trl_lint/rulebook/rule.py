"""What a page is once it is read: frozen values, apart from the reader so that kept rules load without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trl_lint.model import Effect, Severity


class BadPage(ValueError):
    """A page that cannot be used; the text is `file:line: what is wrong; what to do`."""


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
class Rule:
    """One page. `methods` None means every run; `each` names the list that the rule goes through item by item.

    `possible` pages hang on what no file can show: they are never more than possible.
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
