"""A sample of the oracle (docs/oracle.md), for the interpreters that `TRL_LINT_TEST_PYTHONS` names (tests/probe/test_harness.py says
how to make them); without any, what a case looks like is tested and nothing is run."""

import ast
import os
from pathlib import Path

import pytest

from tests.oracle.bench import Outcome, Said, classes, judge
from tests.oracle.cases import TRAINED, Case, script
from tests.oracle.environments import RELEASES, Environment
from trl_lint import knowledge

PYTHONS = [each for each in os.environ.get("TRL_LINT_TEST_PYTHONS", "").split(":") if each]


@pytest.mark.parametrize("python", PYTHONS)
def test_what_trl_does_the_tool_says(python):
    from tests.oracle.bench import Bench

    with Environment(Path(python)) as environment:
        bench = Bench(environment, seed=0)
        bench.run(constructed=120, trained=12)
        shown = [f"{outcome.key}\n{outcome.text}" for outcome in bench.confirmed()]
        # Of each cell there is something: a bench that compares nothing finds nothing either.
        assert {"runs", "raises"} <= {cell for _, cell in bench.tally.cells}
    assert shown == []


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_paired_with_a_transformers_that_it_accepts(release):
    from packaging.specifiers import SpecifierSet

    assert RELEASES[release] in knowledge.releases("transformers")
    assert SpecifierSet(knowledge.trl(release).requires["transformers"]).contains(RELEASES[release])


@pytest.mark.parametrize("release", RELEASES)
def test_scripts_name_what_the_release_has(release):
    configs = {name for _, name, _, _ in classes(release)}
    assert {f"{method}Config" for method in TRAINED} <= configs
    versions = {"trl": release, "transformers": RELEASES[release], "torch": "2.13.0+cpu"}
    for method in TRAINED:
        text, lines = script(Case(f"{method}Config", trains=True), release)
        ast.parse(text)
        assert text.splitlines()[lines["trainer"] - 1] == f"trainer = {method}Trainer("
        assert text.splitlines()[lines["train"] - 1] == "trainer.train()"
        # The scripts start from something that trains; before 0.22 RLOO is built in another way.
        assert method == "RLOO" or not judge(text, versions).stopping, (method, release)


def outcome(error, *stopping, trains=True):
    said = Said(frozenset(stopping), frozenset(stopping), frozenset(stopping))
    return Outcome(Case("SFTConfig", trains=trains), "", said, "config", error, ())


def raised(kind, message, place="trl/trainer/sft_config.py:1 __post_init__"):
    return {"type": kind, "message": message, "line": 1, "place": place}


@pytest.mark.parametrize(
    ("found", "cell"),
    [
        (outcome(None), "runs"),
        (outcome(None, "refused-by-trl"), "false alarm"),
        (outcome(None, "refused-by-trl", trains=False), "undecided"),
        (outcome(raised("ValueError", "beta must be positive")), "miss"),
        (outcome(raised("ValueError", "beta must be positive"), "refused-by-trl"), "raises"),
        (outcome(raised("ImportError", "vLLM is not available")), "limit"),
        (outcome(raised("hang", "hang: no answer", "")), "limit"),
        (outcome(raised("TypeError", "unsupported operand type(s) for %: 'int' and 'NoneType'")), "limit"),
        (outcome(raised("TypeError", "__init__() got an unexpected keyword argument 'x'")), "miss"),
        (outcome(raised("ImportError", "vLLM is not available"), "vllm-not-installed"), "raises"),
    ],
)
def test_cells(found, cell):
    assert found.cell == cell


def test_disagreements_that_differ_in_values_are_one():
    first, second = (outcome(raised("ValueError", f"`beta` is {value}, 'x'\nmore {value}")) for value in (1, 2.5))
    assert first.key == second.key


def test_a_case_becomes_smaller_by_one_each_time():
    case = Case("SFTConfig", {"packing": True, "max_length": None}, {"callbacks": "[]"})
    assert [(set(each.fields), set(each.keywords)) for each in case.smaller()] == [
        ({"packing", "max_length"}, set()),
        ({"max_length"}, {"callbacks"}),
        ({"packing"}, {"callbacks"}),
    ]
