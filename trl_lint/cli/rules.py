"""`trl-lint rules` and `trl-lint explain NAME`: the rulebook in, text for people, or JSON, out."""

from __future__ import annotations

import argparse

from trl_lint import settings
from trl_lint.cli import UsageError
from trl_lint.model import Severity
from trl_lint.rulebook.rule import ABOUT_IGNORES, Alternative, Rule, Variant

# The rules without a page, for `explain`.
_PAGELESS = {
    "bare-ignore": """# An ignore comment that names no rule ignores nothing

`# trl-lint: ignore` silences nothing: what it is there for would be hidden together with all that comes later. Write
`# trl-lint: ignore[rule-name] reason`; a group's name will do as well.
""",
    "unused-ignore": """# An ignore comment that silences no finding

The finding that `# trl-lint: ignore[rule-name]` was written for is gone, or never stood there: the comment tells a
reader of a problem that is none, and would hide the next one. `--fix` removes it, or the names in it that silence
nothing. Found only where all rules are asked (without `--select` and `--ignore`), and not for names that the settings
leave out. What only `--possible` shows counts as silenced.
""",
}


def run(command: str, words: list[str]) -> int:
    """List the rules, or print the page of one: the rulebook's, and those that the settings of this folder add."""
    parser = argparse.ArgumentParser(prog=f"trl-lint {command}", allow_abbrev=False)
    if command == "explain":
        parser.add_argument("name", metavar="NAME", help="a rule")
    else:
        parser.add_argument("--output-format", choices=("text", "json"), default="text")
    options = parser.parse_args(words)
    from trl_lint.cli.judging import rules_of

    try:
        rules = rules_of(settings.load("."))
    except settings.SettingsError as error:
        raise UsageError(str(error)) from None
    if command == "explain":
        return _explain(options.name, rules)
    return _list_json(rules) if options.output_format == "json" else _list(rules)


def _explain(name: str, rules: tuple[Rule, ...]) -> int:
    text = _PAGELESS.get(name) or next((r.text for r in rules if r.name == name), None)
    if text is None:
        import difflib

        near = difflib.get_close_matches(name, [*(r.name for r in rules), *_PAGELESS], 1)
        raise UsageError(
            f"there is no rule {name!r}" + (f"; did you mean {near[0]!r}?" if near else "; `trl-lint rules` lists them")
        )
    print(text, end="" if text.endswith("\n") else "\n")
    return 0


def _list(rules: tuple[Rule, ...]) -> int:
    titles = {name: text.splitlines()[0].removeprefix("# ") for name, text in _PAGELESS.items()}
    width = max(len(name) for name in (*(r.name for r in rules), *titles))
    rows = [(r.group, r.name, _worst(r), r.title) for r in rules]
    rows += [(ABOUT_IGNORES[name], name, Severity.note.name, title) for name, title in titles.items()]
    group = None
    for own, name, worst, title in rows:
        if own != group:
            print(f"{'' if group is None else chr(10)}{own}")
            group = own
        print(f"  {name:<{width}}  {worst:<7}  {title}")
    return 0


# JSON ----------------------------------------------------------------------------------------------------------------


def _list_json(rules: tuple[Rule, ...]) -> int:
    import json

    pageless: list[dict[str, object]] = [
        {
            "name": name, "group": ABOUT_IGNORES[name], "title": text.splitlines()[0].removeprefix("# "),
            "severity": Severity.note.name, "fixable": name == "unused-ignore", "gain": 0, "methods": None, "page": None,
            "variants": [],
        }
        for name, text in _PAGELESS.items()
    ]  # fmt: skip
    print(json.dumps([*map(_rule, rules), *pageless], indent=2, ensure_ascii=False))
    return 0


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "name": rule.name,
        "group": rule.group,
        "title": rule.title,
        "severity": _worst(rule),
        "fixable": any(fix.actions for variant in rule.variants for fix in variant.fixes),
        "gain": rule.gain,
        "methods": list(rule.methods) if rule.methods is not None else None,
        "page": rule.path,
        "variants": [_variant(variant) for variant in rule.variants],
    }


def _variant(variant: Variant) -> dict[str, object]:
    return {
        "trl": variant.trl,
        "severity": variant.severity.name,
        "message": variant.message,
        "fixes": [_fix(fix) for fix in variant.fixes],
    }


def _fix(fix: Alternative) -> dict[str, object]:
    return {"title": fix.title, "effect": fix.effect, "needs": list(fix.needs), "automatic": bool(fix.actions)}


def _worst(rule: Rule) -> str:
    return max(variant.severity for variant in rule.variants).name
