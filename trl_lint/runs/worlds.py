"""Facts in; the worlds they allow out: consistent sets of versions, the newest of them assumed where several remain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from trl_lint import knowledge
from trl_lint.facts import Fact, Facts
from trl_lint.knowledge import TrlRelease

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version


@dataclass(frozen=True, slots=True)
class World:
    """One TRL release with one transformers release. `transformers` is None when it is older than all that are known.

    `version` is what the environment calls its TRL ("1.10.0.dev0"), `release` what that release accepts.
    """

    version: str
    release: TrlRelease
    transformers: str | None

    @property
    def label(self) -> str:
        return f"trl {self.version}"


@dataclass(frozen=True)
class Worlds:
    """All worlds of one file. `assumed` is the one to judge by; `bounded` is False for a TRL newer than all that is known.

    `source` is the world that a file which is to be moved to another release was written for, where that is known.
    """

    assumed: World | None
    facts: Facts
    origin: str
    bounded: bool = True
    notes: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    overlay: TrlRelease | None = field(default=None, repr=False)
    source: World | None = None

    @cached_property
    def others(self) -> tuple[World, ...]:
        """Every other world worth asking, the likeliest to differ first: the oldest, then the rest."""
        if self.assumed is None or self.overlay is not None:
            return ()
        found: list[World] = []
        exact = len(self.candidates) == 1
        for version in self.candidates:
            release = knowledge.trl(version)
            for transformers in _transformers(release, self.facts, every=exact):
                world = World(version, release, transformers)
                if world != self.assumed:
                    found.append(world)
        return tuple(found)


def worlds(facts: Facts) -> Worlds:
    """The worlds that the facts allow."""
    fact = facts.packages.get("trl")
    if (
        facts.source_tree is not None
        and facts.source_version is not None
        and _only_in_source(facts.source_version, fact)
    ):
        release = knowledge.read_trl(Path(facts.source_tree) / "trl", facts.source_version)
        origin = fact.origin if fact is not None else "its source"
        assumed = World(facts.source_version, release, _assumed_transformers(release, facts))
        note = f"trl {facts.source_version} ({origin}) is no release known here: judged by its own source"
        return Worlds(assumed, facts, origin, notes=(note,), candidates=(facts.source_version,), overlay=release)
    if fact is None or (fact.version is None and not fact.specifier):
        known = _consistent(knowledge.releases("trl"), facts)
        if not known:
            return Worlds(
                None, facts, "", notes=("no known TRL release goes with these pins; nothing was judged by version",)
            )
        origin = (
            "no pin: the newest known release is assumed"
            if fact is None
            else f"{fact.origin}, no version: the newest known release is assumed"
        )
        return _of(known, facts, origin)
    if fact.version is not None:
        return _exact(fact, facts)
    specifier = _specifier(fact.specifier)
    allowed = tuple(v for v in knowledge.releases("trl") if specifier.contains(v, prereleases=True))
    if not allowed:
        return _outside(fact, facts, specifier)
    return _of(_consistent(allowed, facts) or allowed, facts, fact.origin)


def _exact(fact: Fact, facts: Facts) -> Worlds:
    assert fact.version is not None
    judged = knowledge.known("trl", fact.version)
    if judged is not None:
        release = knowledge.trl(judged)
        return Worlds(
            World(fact.version, release, _assumed_transformers(release, facts)),
            facts,
            fact.origin,
            candidates=(judged,),
        )
    if _version(fact.version) > _version(knowledge.newest("trl")):
        newest = knowledge.newest("trl")
        note = f"trl {fact.version} ({fact.origin}) is newer than {newest}, the newest release this version of trl-lint knows: only what holds in every release is reported"
        release = knowledge.trl(newest)
        assumed = World(fact.version, release, _assumed_transformers(release, facts))
        return Worlds(assumed, facts, fact.origin, bounded=False, notes=(note,), candidates=(newest,))
    oldest = knowledge.releases("trl")[0]
    note = f"trl {fact.version} ({fact.origin}) is older than {oldest}, the oldest release this version of trl-lint knows: not judged"
    return Worlds(None, facts, fact.origin, notes=(note,))


def _outside(fact: Fact, facts: Facts, specifier: SpecifierSet) -> Worlds:
    newest = knowledge.newest("trl")
    if any(
        specifier.contains(v)
        for v in (f"{_version(newest).major}.{_version(newest).minor + 1}", f"{_version(newest).major + 1}.0", "99.0")
    ):
        note = f"trl{fact.specifier} ({fact.origin}) asks for more than {newest}, the newest release this version of trl-lint knows: only what holds in every release is reported"
        release = knowledge.trl(newest)
        return Worlds(
            World(newest, release, _assumed_transformers(release, facts)),
            facts,
            fact.origin,
            bounded=False,
            notes=(note,),
            candidates=(newest,),
        )
    note = f"trl{fact.specifier} ({fact.origin}) names no release that this version of trl-lint knows: not judged"
    return Worlds(None, facts, fact.origin, notes=(note,))


def _of(candidates: tuple[str, ...], facts: Facts, origin: str) -> Worlds:
    release = knowledge.trl(candidates[-1])
    assumed = World(release.version, release, _assumed_transformers(release, facts))
    return Worlds(assumed, facts, origin, candidates=tuple(candidates))


def _only_in_source(version: str, fact: Fact | None) -> bool:
    """Whether a TRL whose source is at hand must be read there: no release, or newer than all that are known."""
    if fact is not None and fact.version is not None and fact.version != version:
        return False
    return version not in knowledge.releases("trl")


def _consistent(candidates: tuple[str, ...], facts: Facts) -> tuple[str, ...]:
    """Those releases whose declared ranges admit the project's other pins: the resolver would pick among them.

    transformers is always required; what an extra requires counts where TRL is asked for with that extra.
    """
    asked = facts.packages["trl"].extras if "trl" in facts.packages else ()
    for package in ("transformers", *(_EXTRAS[e] for e in asked if e in _EXTRAS)):
        fact = facts.packages.get(package)
        if fact is not None and (fact.version is not None or fact.specifier):
            candidates = tuple(v for v in candidates if admits(knowledge.trl(v).requires.get(package, ""), fact))
    return candidates


_EXTRAS = {"vllm": "vllm", "liger": "liger-kernel"}


def admits(required: str, fact: Fact) -> bool:
    """Whether some known release of a package is in a declared range and in what a fact allows."""
    declared = _specifier(required)
    if fact.version is not None:
        return declared.contains(fact.version, prereleases=True)
    own = _specifier(fact.specifier)
    return any(declared.contains(v) and own.contains(v) for v in knowledge.releases(fact.package))


def _transformers(release: TrlRelease, facts: Facts, *, every: bool) -> Iterator[str | None]:
    """The transformers releases to ask: of every minor series, or for many TRL releases the ends and the likeliest."""
    fact = facts.packages.get("transformers")
    if fact is not None and fact.version is not None:
        yield knowledge.known("transformers", fact.version)
        return
    allowed = _allowed(release.requires.get("transformers", ""), fact.specifier if fact is not None else "")
    if not allowed:
        yield None
    elif every:
        # One of each minor series: within one, patches change nothing that a page asks about.
        yield from {v.rpartition(".")[0]: v for v in allowed}.values()
    else:
        yield from dict.fromkeys((allowed[0], _assumed_transformers(release, facts), allowed[-1]))


def _assumed_transformers(release: TrlRelease, facts: Facts) -> str | None:
    """The transformers that such a project most likely has: the pinned one, else the newest of the release's own days.

    A project that pins last year's TRL was installed last year, so today's transformers is not assumed for it.
    """
    fact = facts.packages.get("transformers")
    if fact is not None and fact.version is not None:
        return knowledge.known("transformers", fact.version)
    allowed = _allowed(release.requires.get("transformers", ""), fact.specifier if fact is not None else "")
    if not allowed:
        return None
    until = _superseded(release.version)
    if until is None:
        return allowed[-1]
    contemporary = [v for v in allowed if (knowledge.dated("transformers", v) or "") <= until]
    if contemporary:
        return contemporary[-1]
    return allowed[0] if fact is not None else None


@cache
def _superseded(version: str) -> str | None:
    """The day on which the release after this one came out; None for the newest."""
    listed = knowledge.releases("trl")
    judged = knowledge.known("trl", version)
    if judged is None or judged == listed[-1]:
        return None
    return knowledge.dated("trl", listed[listed.index(judged) + 1])


@cache
def _allowed(required: str, own: str) -> tuple[str, ...]:
    first, second = _specifier(required), _specifier(own)
    return tuple(v for v in knowledge.releases("transformers") if first.contains(v) and second.contains(v))


@cache
def _specifier(text: str) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)


@cache
def _version(text: str) -> Version:
    from packaging.version import Version

    return Version(text)


def matching(package: str, specifier: str) -> Mapping[str, None]:
    """The known releases of a package that a specifier admits, oldest first."""
    return dict.fromkeys(v for v in knowledge.releases(package) if _specifier(specifier).contains(v, prereleases=True))
