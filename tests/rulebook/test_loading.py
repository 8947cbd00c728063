"""A page with a mistake is one clear line that names file, line and remedy; a good one works by being dropped in."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_lint import rulebook
from trl_lint.rulebook.engine import judge
from trl_lint.rulebook.pages import BadPage

from ..fixing.test_fixing import PAGE
from ..helpers import lint

GOOD = PAGE.format(name="new-rule", when="packing", fix="set = { packing = false }", at="packing")
MISTAKES = {
    "no heading": (GOOD.replace("# A rule", "A rule"), "1: the page has no `# heading`"),
    "no program": (GOOD.replace("```toml", "```text"), "1: the page has no ```toml block"),
    "bad toml": (GOOD.replace('when = "packing"', 'when = "packing'), "6: "),
    "unknown key": (GOOD.replace("when =", "whne ="), "6: unknown key 'whne'"),
    "bad severity": (GOOD.replace('"warning"', '"fatal"'), "7: severity 'fatal' is not one of error, warning, note"),
    "bad condition": (GOOD.replace('"packing"\nseverity', '"packing and"\nseverity'), "6: when: cannot be parsed"),
    "not in the language": (
        GOOD.replace('"packing"\nseverity', '"[x for x in packing]"\nseverity'),
        "6: when: `[x for x in packing]` is not in",
    ),
    "unknown function": (
        GOOD.replace('"packing"\nseverity', '"sorted(packing)"\nseverity'),
        "6: when: there is no function sorted()",
    ),
    "unknown name": (
        GOOD.replace('"packing"\nseverity', '"pakcing"\nseverity'),
        "6: trl 0.9.6: SFTConfig has no field pakcing; guard it",
    ),
    "unknown property": (
        GOOD.replace('"packing"\nseverity', '"model.colour"\nseverity'),
        "6: there is no model.colour",
    ),
    "field of a later release": (
        GOOD.replace('"packing"\nseverity', '"padding_free"\nseverity'),
        "6: trl 0.9.6: SFTConfig has no field padding_free",
    ),
    "bad effect": (
        GOOD.replace("set =", 'effect = "none"\nset ='),
        "effect 'none' is not one of same, numerics, training",
    ),
    "bad need": (
        GOOD.replace("set =", 'needs = ["money"]\nset ='),
        "need 'money' is not one of install, memory, consent",
    ),
    "bad range": (GOOD.replace("severity =", 'trl = "newer"\nseverity ='), "trl = 'newer' is no version range"),
    "no such list": (GOOD.replace("at =", 'each = "run.things"\nat ='), "there is no list 'run.things'"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_its_line(folder: Path, name: str) -> None:
    text, expected = MISTAKES[name]
    (folder / "mine" / "new-rule.md").write_text(text, "utf-8")
    with pytest.raises(BadPage) as error:
        rulebook.load(folder)
    message = str(error.value)
    assert message.startswith(f"{folder.name}/mine/new-rule.md:")
    assert expected in message
    assert "\n" not in message


def test_two_pages_of_one_name(folder: Path) -> None:
    (folder / "other").mkdir()
    for group in ("mine", "other"):
        (folder / group / "new-rule.md").write_text(GOOD, "utf-8")
    with pytest.raises(BadPage, match="is taken by"):
        rulebook.load(folder)


def test_a_page_dropped_in_works(folder: Path) -> None:
    (folder / "mine" / "new-rule.md").write_text(GOOD, "utf-8")
    (rule,) = rulebook.load(folder)
    assert (rule.name, rule.group) == ("new-rule", "mine")
    examined = lint(
        '# trl-lint: facts trl==1.9.2\nfrom trl import SFTConfig\n\nargs = SFTConfig(output_dir="o", packing=True)\n',
        rule.name,
    )
    assert examined.findings == ()
    (run,) = [r for r in examined.runs if r.method == "sft"]
    (finding,) = judge(run, (rule,))
    assert finding.message == "message of new-rule"


def test_the_kept_rulebook_notices_a_changed_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRL_LINT_CACHE_DIR", str(tmp_path / "cache"))
    page = folder / "mine" / "new-rule.md"
    page.write_text(GOOD, "utf-8")
    assert rulebook.load(folder)[0].variants[0].message == "message of new-rule"
    page.write_text(GOOD.replace("message of", "other words of"), "utf-8")
    assert rulebook.load(folder)[0].variants[0].message == "other words of new-rule"
