"""`trl-lint rules` and `trl-lint explain NAME`: the rulebook in, text for people out."""

from __future__ import annotations

import argparse

from trl_lint import rulebook
from trl_lint.cli import UsageError


def run(command: str, words: list[str]) -> int:
    """List the rules, or print the page of one."""
    parser = argparse.ArgumentParser(prog=f"trl-lint {command}", allow_abbrev=False)
    if command == "explain":
        parser.add_argument("name", metavar="NAME", help="a rule")
    options = parser.parse_args(words)
    try:
        rules = rulebook.load()
    except rulebook.BadPage as error:
        raise UsageError(str(error)) from None
    if command == "rules":
        return _list(rules)
    rule = next((r for r in rules if r.name == options.name), None)
    if rule is None:
        import difflib

        near = difflib.get_close_matches(options.name, [r.name for r in rules], 1)
        raise UsageError(
            f"there is no rule {options.name!r}"
            + (f"; did you mean {near[0]!r}?" if near else "; `trl-lint rules` lists them")
        )
    print(rule.text, end="" if rule.text.endswith("\n") else "\n")
    return 0


def _list(rules: tuple[rulebook.Rule, ...]) -> int:
    width = max((len(r.name) for r in rules), default=0)
    group = None
    for rule in rules:
        if rule.group != group:
            print(f"{'' if group is None else chr(10)}{rule.group}")
            group = rule.group
        worst = max(v.severity for v in rule.variants)
        print(f"  {rule.name:<{width}}  {worst.name:<7}  {rule.title}")
    return 0
