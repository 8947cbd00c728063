"""Every end of every range of TRL releases is proven: by what was harvested from the releases on both sides, or by the page.

An *edge* is a pair of neighbouring releases of which a variant's range holds one. What can prove that the range ends there, the
strongest first. `guard`: a check of TRL's own that the page names is made on one side only, or the page's example meets other
checks about the same fields. `names`: what the page asks about is there, or has that default, on one side only, so that without
its range the variant would fall silent there, too. Where neither shows it, because it happens inside a method, the page names
under Sources the file of TRL, and one of the two releases as the one with which something ends or begins ("0.19.0 to 1.3.0", "1.4.0");
with it, `checks`: the checks about the same fields differ, too, or `source`: nothing that is harvested does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pytest

from trl_lint import knowledge, rulebook
from trl_lint.knowledge import Guard
from trl_lint.rulebook.engine import _contains, judge
from trl_lint.rulebook.files import examine_group
from trl_lint.rulebook.pages import _classes, sections
from trl_lint.rulebook.rule import Variant
from trl_lint.runs import Run, View
from trl_lint.runs.guards import judged
from trl_lint.runs.items import ITEMS, ItemView
from trl_lint.runs.logic import names_in
from trl_lint.sources.text import Text

from ..helpers import all_rules, context
from .test_pages import groups_of

RELEASES = knowledge.releases("trl")
PIN = re.compile(r"\btrl==[0-9.]+")
ROOTS = {"model", "ref_model", "peft", "trainer", "dataset", "launch", "versions", "installed"}
"""Of the names of the condition language those, beside config fields, that checks of TRL's are put into."""

MISSING = {"unknown-config-field", "unknown-trainer-keyword", "unknown-recipe-key", "missing-import"}
NOT_THERE = tuple(rule for rule in all_rules() if rule.name in MISSING)


@dataclass(frozen=True, eq=False)
class Edge:
    """One end of the range of a variant: the last release in it and the first outside, or the other way round."""

    rule: rulebook.Rule
    variant: Variant
    inside: str
    outside: str

    def __str__(self) -> str:
        number = self.rule.variants.index(self.variant) + 1
        return f"{self.rule.name}-{number}-{self.inside}-not-{self.outside}"


def edges() -> Iterator[Edge]:
    for rule in all_rules():
        for variant in rule.variants:
            held = [not variant.trl or _contains(variant.trl, release) for release in RELEASES]
            for index in range(len(held) - 1):
                if held[index] != held[index + 1]:
                    here, there = RELEASES[index : index + 2] if held[index] else RELEASES[index : index + 2][::-1]
                    yield Edge(rule, variant, here, there)


EDGES = tuple(edges())
every_edge = pytest.mark.parametrize("edge", EDGES, ids=str)


def at(files: dict[str, str], release: str) -> dict[str, str]:
    """The same files, said to be of another TRL release."""
    return {path: PIN.sub(f"trl=={release}", code) for path, code in files.items()}


def runs(edge: Edge, files: dict[str, str]) -> tuple[Run, ...]:
    return _runs(tuple(files.items()), edge.rule.target)


@cache
def _runs(files: tuple[tuple[str, str], ...], target: str | None) -> tuple[Run, ...]:
    texts = {path: Text(path, code.encode()) for path, code in files}
    return examine_group(texts, context(rules=(), target=target)).runs


def speaks(edge: Edge, files: dict[str, str], *, everywhere: bool = False) -> bool:
    """Whether this variant alone finds something; `everywhere` takes its range away."""
    variant = replace(edge.variant, trl="") if everywhere else edge.variant
    alone = (replace(edge.rule, variants=(variant,)),)
    return any(True for run in runs(edge, files) for _ in judge(run, alone, possible=edge.rule.possible))


def stands(edge: Edge, files: dict[str, str]) -> bool:
    """Whether everything that the files name is there in their release."""
    return not any(True for run in runs(edge, files) for _ in judge(run, NOT_THERE))


@cache
def asked(edge: Edge) -> frozenset[str]:
    """What the conditions of a variant read of all that a check of TRL's could ask, too."""
    texts = (edge.rule.when, edge.variant.when)
    read = {name for text in texts if text for names in names_in(text) for name in names}
    return frozenset(subject(n) for n in read if subject(n) in knowledge.fields_ever() or n.partition(".")[0] in ROOTS)


def subject(name: str) -> str:
    """A config field without the entry of a mapping; any other name whole."""
    root = name.partition(".")[0]
    return name if root in ROOTS else root


def about(guard: Guard, names: frozenset[str]) -> bool:
    """Whether a check of TRL's asks about what the page asks about, too: two of its names, where there are two."""
    shared = names & {subject(name) for name in guard.fields}
    return len(shared) >= min(2, len(names)) > 0


def views(edge: Edge, files: dict[str, str]) -> Iterator[View]:
    for run in runs(edge, files):
        if run.worlds.assumed is not None:
            yield View(run, run.worlds.assumed)


def met(edge: Edge, files: dict[str, str]) -> frozenset[str]:
    """The checks of TRL's own that the files meet, by name."""
    found = (each for view in views(edge, files) for each in judged(view))
    return frozenset(each.guard.name for each in found if each.truth and about(each.guard, asked(edge)))


def owners(rule: rulebook.Rule) -> Iterator[str]:
    """The config and trainer classes of a page's methods."""
    for method in rule.methods or ():
        for name in _classes().get(method, ()):
            yield from (name, f"{name.removesuffix('Config')}Trainer")


def checks(edge: Edge, release: str) -> frozenset[str]:
    """The checks about what the page asks that the classes of its methods make in a release."""
    found = (guard for owner in owners(edge.rule) for guard in knowledge.trl(release).guards(owner))
    return frozenset(guard.name for guard in found if about(guard, asked(edge)))


@cache
def harvested(release: str) -> frozenset[str]:
    """The names of all checks that the configs and trainers of a release make."""
    known = knowledge.trl(release)
    return frozenset(g.name for owner in (*known.configs(), *known.trainers()) for g in known.guards(owner))


@cache
def of_transformers() -> frozenset[str]:
    """The names of all checks that transformers' TrainingArguments makes in some release."""
    rows = (row for r in knowledge.releases("transformers") for row in knowledge.training_arguments_sequence(r))
    return frozenset(row.name for row in rows if isinstance(row, Guard))


SPANS = re.compile(r"(?<![\d.])(\d+\.\d+\.\d+) to (\d+\.\d+\.\d+)")
OPEN = re.compile(r"(up to|until) (\d+\.\d+\.\d+)|(?<![\d.])(\d+\.\d+\.\d+)[^;,.]{0,40} and (newer|later|older)")
SINGLE = re.compile(r"(?<![\d.])(\d+\.\d+\.\d+)(?!\.?\d)")


def named(rule: rulebook.Rule) -> Mapping[str, frozenset[str]]:
    """The releases that the items about files of TRL under Sources name: as the "first" or the "last" of some, or "alone"."""
    found: dict[str, set[str]] = {"first": set(), "last": set(), "alone": set()}
    for item in re.split(r"^- ", sections(rule.text)["Sources"], flags=re.MULTILINE):
        if not item.startswith("trl ") or not re.search(r"(\.py|METADATA)`", item):
            continue
        item = " ".join(item.split())
        for first, last in SPANS.findall(item):
            found["first"].add(first)
            found["last"].add(last)
        for _word, last, release, word in OPEN.findall(item):
            found["last" if last or word == "older" else "first"].add(last or release)
        found["alone"] |= set(SINGLE.findall(OPEN.sub("", SPANS.sub("", item))))
    return {role: frozenset(releases) for role, releases in found.items()}


def in_sources(edge: Edge) -> bool:
    """Whether Sources name one of the two releases as the one with which something ends or begins."""
    spoken = named(edge.rule)
    inner, outer = (
        ("last", "first") if RELEASES.index(edge.inside) < RELEASES.index(edge.outside) else ("first", "last")
    )
    return edge.inside in spoken[inner] | spoken["alone"] or edge.outside in spoken[outer] | spoken["alone"]


@cache
def shown(edge: Edge) -> tuple[dict[str, str], ...]:
    """The page's examples in which the variant speaks just inside its range."""
    return tuple(files for files in groups_of(edge.rule, "Example") if speaks(edge, at(files, edge.inside)))


@cache
def proof(edge: Edge) -> str | None:
    """What proves an edge, the strongest first: "guard", "names", "checks", "source"; None if nothing does."""
    guards = frozenset(edge.rule.guards)
    if harvested(edge.inside) & guards != harvested(edge.outside) & guards:
        return "guard"
    for files in shown(edge):
        if met(edge, at(files, edge.inside)) != met(edge, at(files, edge.outside)):
            return "guard"
    for files in shown(edge):
        outside = at(files, edge.outside)
        if not stands(edge, outside) or not speaks(edge, outside, everywhere=True):
            return "names"
    if not in_sources(edge):
        return None
    return "source" if checks(edge, edge.inside) == checks(edge, edge.outside) else "checks"


@every_edge
def test_the_edge_is_proven(edge: Edge) -> None:
    assert proof(edge), (
        f"{edge.rule.path}: {edge.variant.trl!r} ends between {edge.inside} and {edge.outside}, and nothing that is "
        "harvested shows why; name the file and the release under ## Sources"
    )


def answers(edge: Edge, files: dict[str, str]) -> list[tuple[str, object]]:
    """What the conditions of a variant read, and what each run of the files answers, for each item where it goes through them."""
    texts = (edge.rule.when, edge.variant.when)
    read = sorted({name for text in texts if text for name in names_in(text)[0]})
    asked_of: list[View | ItemView] = []
    for view in views(edge, files):
        each = edge.rule.each
        asked_of += [view] if each is None else [ItemView(view, item) for item in ITEMS[each](view)]
    return [(name, names.alternatives(name)) for names in asked_of for name in read]


@every_edge
def test_examples_follow_the_range(edge: Edge) -> None:
    """Just outside no example is found. Just inside all those are that mean the same there as in their own release."""
    for files in groups_of(edge.rule, "Example"):
        inside = at(files, edge.inside)
        assert not speaks(edge, at(files, edge.outside))
        if speaks(edge, files) and answers(edge, files) == answers(edge, inside) and stands(edge, inside):
            assert speaks(edge, inside), f"{edge.rule.path}: not found in trl {edge.inside}"


@pytest.mark.parametrize("rule", [r for r in all_rules() if r.guards], ids=lambda r: r.name)
def test_named_checks_are_made_where_the_page_speaks(rule: rulebook.Rule) -> None:
    spoken = [r for r in RELEASES if any(not v.trl or _contains(v.trl, r) for v in rule.variants)]
    made = frozenset(name for release in spoken for name in harvested(release)) | of_transformers()
    assert made.issuperset(rule.guards), f"{rule.path}: {sorted(set(rule.guards) - made)}"
