"""Rule pages and runs in; findings out. `load` reads the pages, `judge` evaluates them, `merge` joins what runs share."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from trl_lint import __version__, model, store
from trl_lint.rulebook.engine import judge, merge
from trl_lint.rulebook.rule import ABOUT_IGNORES, BadPage, Rule

__all__ = ["BadPage", "Rule", "UnknownRule", "judge", "load", "load_own", "merge", "rules_folder", "select"]


class UnknownRule(ValueError):
    """A rule or group name that no page has; the text suggests the nearest one."""


def rules_folder() -> Path:
    """Where the rulebook is: beside the package in a checkout or editable install, inside it in a wheel."""
    inside = Path(__file__).parent.parent / "_rules"
    return inside if inside.is_dir() else Path(__file__).parent.parent.parent / "rules"


def load(folder: Path | None = None) -> tuple[Rule, ...]:
    """All rules, sorted by group and name. Raises BadPage for the first page that is wrong.

    Reading the pages costs more than judging a script by them, so what was read is kept in the user's cache for as
    long as no page and none of the reading code changes.
    """
    root = folder or rules_folder()
    pages = [p for d in sorted(root.iterdir()) if d.is_dir() for p in sorted(d.glob("*.md")) if p.stem != "README"]
    name = f"{_digest(root, pages)}.rules"
    kept = store.get(name)
    if kept is not None:
        try:
            return cast(tuple[Rule, ...], pickle.loads(kept))
        except Exception:  # cut short: as good as absent
            pass
    rules = _read(root, pages)
    store.put(name, pickle.dumps(rules, pickle.HIGHEST_PROTOCOL))
    return rules


def load_own(folder: Path, ours: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules of a project's own folder: the same pages, `<group>/<group>-<name>.md`, in groups that are none of `ours`.

    So none of them can clash with a rule that a later release brings. Raises BadPage, and OSError if it is no folder.
    """
    rules = load(folder)
    groups = {rule.group for rule in ours} | set(ABOUT_IGNORES.values())
    for rule in rules:
        if rule.group in groups:
            raise BadPage(f"{rule.path}:1: the group {rule.group} is taken; call the folder by a name of your own")
        if not rule.name.startswith(f"{rule.group}-"):
            wanted = f"{rule.group}-{rule.name}.md"
            raise BadPage(f"{rule.path}:1: a rule of your own carries its group's name; call the page {wanted}")
    return rules


def _read(root: Path, pages: list[Path]) -> tuple[Rule, ...]:
    from trl_lint.rulebook.pages import BadPage, read

    found: list[Rule] = []
    names: dict[str, str] = {}
    for page in pages:
        rule = read(page, root)
        if rule.name in names:
            raise BadPage(f"{rule.path}:1: the name {rule.name!r} is taken by {names[rule.name]}; names are unique")
        names[rule.name] = rule.path
        found.append(rule)
    return tuple(found)


def _digest(root: Path, pages: list[Path]) -> str:
    digest = hashlib.blake2b(f"{__version__} {sys.version_info[:2]} {root.resolve()}".encode(), digest_size=12)
    code = [Path(__file__).with_name("pages.py"), Path(__file__).with_name("rule.py"), Path(model.__file__)]
    for path in (*code, *pages):
        stat = path.stat()
        digest.update(f"{path.parent.name}/{path.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def select(rules: Iterable[Rule], selected: Iterable[str], ignored: Iterable[str]) -> tuple[Rule, ...]:
    """The rules that --select and --ignore leave. Raises UnknownRule."""
    every = tuple(rules)
    known = {r.name for r in every} | {r.group for r in every} | {*ABOUT_IGNORES, *ABOUT_IGNORES.values()}
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
