"""Every page is held to its form, and its code blocks are run: the examples are the manual and the tests at once."""

from __future__ import annotations

import ast

import pytest

from trl_lint import knowledge, rulebook
from trl_lint.model import Severity
from trl_lint.rulebook.engine import _contains
from trl_lint.rulebook.pages import blocks, sections

from ..helpers import all_rules, fix, lint

RULES = all_rules()
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)


def code_of(rule: rulebook.Rule, section: str) -> list[str]:
    return [code for _line, code in blocks(sections(rule.text).get(section, ""), "python")]


def fires(code: str, rule: rulebook.Rule) -> list[str]:
    found = lint(code, rule.name, path=f"/nowhere/{rule.name}.py").findings
    return [f"{f.span.line}: {f.message}" for f in found if f.rule == rule.name]


@every_rule
def test_example_is_found(rule: rulebook.Rule) -> None:
    examples = code_of(rule, "Example")
    assert examples, f"{rule.path}: needs a ```python block under ## Example"
    for code in examples:
        ast.parse(code)
        assert fires(code, rule), f"{rule.path}: the example is not found"


@every_rule
def test_use_instead_is_what_the_fix_writes(rule: rulebook.Rule) -> None:
    instead = code_of(rule, "Use instead")
    assert instead, f"{rule.path}: needs a ```python block under ## Use instead"
    fixable = any(a.actions for v in rule.variants for a in v.fixes)
    for example, after in zip(code_of(rule, "Example"), instead, strict=False):
        assert not fires(after, rule), f"{rule.path}: the rule still fires on what it says to use instead"
        if fixable:
            fixed = fix(example, rule.name, unsafe=True, path=f"/nowhere/{rule.name}.py")
            assert fixed.after.decode() == after, [why for _f, why in (*fixed.failed, *fixed.held_back)]


@every_rule
def test_traps_stay_silent(rule: rulebook.Rule) -> None:
    traps = code_of(rule, "No finding")
    assert traps, f"{rule.path}: needs at least one ```python block under ## No finding"
    for code in traps:
        ast.parse(code)
        assert not fires(code, rule), f"{rule.path}: fires on its own trap:\n{code}"


@every_rule
def test_form(rule: rulebook.Rule) -> None:
    found = sections(rule.text)
    for name in ("Example", "Use instead", "No finding", "Fix safety", "Sources"):
        assert found.get(name), f"{rule.path}: section '## {name}' is missing or empty"
    assert "](" in found["Sources"] or "`" in found["Sources"], f"{rule.path}: sources name a file of a release"
    fixable = any(a.actions for v in rule.variants for a in v.fixes)
    assert fixable or "no fix" in found["Fix safety"].lower(), (
        f"{rule.path}: says neither why its fix is safe nor that it has none"
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
