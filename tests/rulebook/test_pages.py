"""Every page is held to its form, and its code blocks are run: the examples are the manual and the tests at once."""

from __future__ import annotations

import ast

import pytest
import yaml

from trl_lint import knowledge, rulebook
from trl_lint.model import Severity
from trl_lint.rulebook.engine import _contains
from trl_lint.rulebook.pages import _classes, blocks, sections
from trl_lint.runs import SERVING

from ..helpers import all_rules, fix_files, lint_files

RULES = all_rules()
METHODS = frozenset(_classes()) | {SERVING}
FILES = {"python": "/nowhere/train.py", "yaml": "/nowhere/recipe.yaml", "bash": "/nowhere/launch.sh"}
NEAR_MISSES = 4
"""How many cases a page shows in which it stays silent, each for a reason of its own."""

every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)


def groups_of(rule: rulebook.Rule, section: str) -> list[dict[str, str]]:
    """The code blocks of a section as little projects: a group ends where a language comes again."""
    groups: list[dict[str, str]] = []
    for block in blocks(sections(rule.text).get(section, "")):
        name = FILES.get(block.language)
        if name is not None and (not groups or name in groups[-1]):
            groups.append({})
        if name is not None:
            groups[-1][name] = block.code
    return groups


def fires(files: dict[str, str], rule: rulebook.Rule) -> list[str]:
    found = lint_files(files, rule.name, possible=rule.possible, target=rule.target).findings
    return [f"{f.span.path}:{f.span.line}: {f.message}" for f in found if f.rule == rule.name]


def check_syntax(files: dict[str, str]) -> None:
    for name, code in files.items():
        if name.endswith(".py"):
            ast.parse(code)
        elif name.endswith(".yaml"):
            yaml.safe_load(code)


@every_rule
def test_example_is_found(rule: rulebook.Rule) -> None:
    examples = groups_of(rule, "Example")
    assert examples, f"{rule.path}: needs a code block under ## Example"
    for files in examples:
        check_syntax(files)
        assert fires(files, rule), f"{rule.path}: the example is not found"


@every_rule
def test_use_instead_is_what_the_fix_writes(rule: rulebook.Rule) -> None:
    instead = groups_of(rule, "Use instead")
    assert instead, f"{rule.path}: needs a code block under ## Use instead"
    fixable = any(a.actions for v in rule.variants for a in v.fixes)
    for example, after in zip(groups_of(rule, "Example"), instead, strict=False):
        complete = {**example, **after} if fixable else after
        assert not fires(complete, rule), f"{rule.path}: the rule still fires on what it says to use instead"
        if fixable:
            fixed = fix_files(example, rule.name, unsafe=True, target=rule.target)
            texts = {p: t.data.decode() for p, t in fixed.examined.sources.texts.items()}
            assert texts == complete, [why for _f, why in (*fixed.failed, *fixed.held_back)]


@every_rule
def test_traps_stay_silent(rule: rulebook.Rule) -> None:
    traps = groups_of(rule, "No finding")
    assert len(traps) >= NEAR_MISSES, f"{rule.path}: needs at least {NEAR_MISSES} code blocks under ## No finding"
    assert len({tuple(files.items()) for files in traps}) == len(traps), (
        f"{rule.path}: the same code under ## No finding twice"
    )
    for files in traps:
        check_syntax(files)
        assert not fires(files, rule), f"{rule.path}: fires on its own trap:\n{files}"


@every_rule
def test_form(rule: rulebook.Rule) -> None:
    found = sections(rule.text)
    for name in ("Example", "Use instead", "No finding", "Fix safety", "Sources"):
        assert found.get(name), f"{rule.path}: section '## {name}' is missing or empty"
    assert "](" in found["Sources"] or "`" in found["Sources"], f"{rule.path}: sources name a file of a release"
    fixable = any(a.actions for v in rule.variants for a in v.fixes)
    safety = found["Fix safety"].lower()
    assert "this rule has no fix" not in safety if fixable else "no fix" in safety, (
        f"{rule.path}: '## Fix safety' says why its fix is safe or not, or that the rule has none"
    )
    assert rule.methods is None or METHODS.issuperset(rule.methods), (
        f"{rule.path}: no release has a trainer of the method {', '.join(sorted(set(rule.methods) - METHODS))}"
    )
    for variant in rule.variants:
        assert not variant.message.endswith("."), (
            f"{rule.path}: a message is a clause, without a full stop: {variant.message}"
        )
        assert "please" not in variant.message.lower()


@every_rule
def test_ranges_do_not_overlap_and_name_known_releases(rule: rulebook.Rule) -> None:
    for version in knowledge.releases("trl"):
        here = [v for v in rule.variants if not v.trl or _contains(v.trl, version)]
        plain = [v for v in here if v.when is None and v is not here[-1]]
        assert not plain, f"{rule.path}: in trl {version} the variant {plain[0].message!r} hides the ones after it"
    for variant in rule.variants:
        assert not variant.trl or any(_contains(variant.trl, v) for v in knowledge.releases("trl")), (
            f"{rule.path}: {variant.trl} holds no known release"
        )


@every_rule
def test_severity_of_what_stops(rule: rulebook.Rule) -> None:
    for variant in rule.variants:
        assert not variant.stops or variant.severity is Severity.error, f"{rule.path}: what stops a run is an error"
