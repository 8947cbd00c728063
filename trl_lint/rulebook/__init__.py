"""Rule pages and runs in; findings out. `load` reads the pages, `judge` evaluates them, `merge` joins what runs share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trl_lint.rulebook.engine import judge, merge
from trl_lint.rulebook.pages import BadPage, Rule, read

__all__ = ["BadPage", "Rule", "UnknownRule", "judge", "load", "merge", "rules_folder", "select"]


class UnknownRule(ValueError):
    """A rule or group name that no page has; the text suggests the nearest one."""


def rules_folder() -> Path:
    """Where the rulebook is: beside the package in a checkout or editable install, inside it in a wheel."""
    inside = Path(__file__).parent.parent / "_rules"
    return inside if inside.is_dir() else Path(__file__).parent.parent.parent / "rules"


def load(folder: Path | None = None) -> tuple[Rule, ...]:
    """All rules, sorted by group and name. Raises BadPage for the first page that is wrong."""
    root = folder or rules_folder()
    found: list[Rule] = []
    names: dict[str, str] = {}
    for directory in sorted(root.iterdir()):
        if not directory.is_dir():
            continue
        for page in sorted(directory.glob("*.md")):
            if page.stem == "README":
                continue
            rule = read(page, root)
            if rule.name in names:
                raise BadPage(f"{rule.path}:1: the name {rule.name!r} is taken by {names[rule.name]}; names are unique")
            names[rule.name] = rule.path
            found.append(rule)
    return tuple(found)


def select(rules: Iterable[Rule], selected: Iterable[str], ignored: Iterable[str]) -> tuple[Rule, ...]:
    """The rules that --select and --ignore leave. Raises UnknownRule."""
    every = tuple(rules)
    known = {r.name for r in every} | {r.group for r in every}
    for name in (*selected, *ignored):
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, sorted(known), 1)
            raise UnknownRule(
                f"there is no rule or group {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else "; `trl-lint rules` lists them")
            )
    chosen, dropped = set(selected), set(ignored)
    return tuple(r for r in every if (not chosen or {r.name, r.group} & chosen) and not {r.name, r.group} & dropped)
