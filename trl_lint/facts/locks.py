"""The text of a lock file in; out the versions that it pins, with lines: uv.lock, poetry.lock, pdm.lock, pylock.toml.

A lock of a training project is about a megabyte, which tomllib reads at some 3 MB a second. All four kinds write one
`[[package]]` table after the other, so only the tables of watched packages are parsed; that also gives their lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from trl_lint.facts.requirements import Reading, pinned_by_ref, reach_of
from trl_lint.facts.words import WATCHED, Fact, canonical, line_at

_TABLE = r"(?m)^\[\[packages?\]\][ \t]*$"
_NAME = r"(?m)^name = [\"']([^\"']+)[\"']"
_MEMBER = r"(?m)^source = \{ (?:editable|virtual|directory) = \"([^\"]+)\" \}"


def read_lock(text: str, shown: str) -> tuple[dict[str, Fact], list[str]]:
    """One fact a watched package. A lock that forks over platforms and keeps several versions gives their range."""
    import tomllib

    reading = Reading()
    if conflict := re.search(r"(?m)^(?:<<<<<<<|>>>>>>>) ", text):
        reading.note(f"{shown}:{line_at(text, conflict.start())}", "an unresolved merge conflict")
        return {}, reading.notes
    pinned: dict[str, list[Fact]] = {}
    named = re.compile(_NAME)
    starts = [match.start() for match in re.finditer(_TABLE, text)]
    for start, end in pairwise([*starts, len(text)]):
        name = named.search(text, start, end)
        if name is None or canonical(name[1]) not in WATCHED:
            continue
        where = f"{shown}:{line_at(text, name.start())}"
        try:
            tables = tomllib.loads(text[start:end])
        except tomllib.TOMLDecodeError as error:
            reading.note(where, f"the entry of {name[1]} is no TOML: {str(error).partition(' (')[0]}")
            continue
        entry = (tables.get("package") or tables["packages"])[0]
        if fact := _pin(canonical(name[1]), entry, where):
            pinned.setdefault(fact.package, []).append(fact)
    return {package: _one(facts) for package, facts in pinned.items()}, reading.notes


def workspace_members(text: str) -> frozenset[str]:
    """The folders, relative to a uv.lock, of the projects that it locks together."""
    return frozenset(match[1] for match in re.finditer(_MEMBER, text))


def _pin(package: str, entry: Mapping[str, object], where: str) -> Fact | None:
    if not _may_hold(entry):
        return None
    version, ref = entry.get("version"), _ref(entry)
    if isinstance(version, str):
        return Fact(package, f"=={version}", version, "declared", where, ref)
    # pylock.toml leaves the version out for a git checkout.
    return pinned_by_ref(package, ref, where) if ref else None


def _may_hold(entry: Mapping[str, object]) -> bool:
    """False for a fork of the lock that no Linux machine takes."""
    markers = entry.get("resolution-markers") or entry.get("marker") or entry.get("markers")
    if isinstance(markers, str):
        markers = [markers]
    return not markers or not isinstance(markers, list) or any(_is_usual(str(marker)) for marker in markers)


def _is_usual(marker: str) -> bool:
    from packaging.markers import Marker

    try:
        return reach_of(Marker(marker)) == "usual"
    except ValueError:  # poetry and uv have words of their own there: then it may hold
        return True


def _ref(entry: Mapping[str, object]) -> str | None:
    """The commit, as each of the four writes it."""
    source, vcs = entry.get("source"), entry.get("vcs")
    if isinstance(vcs, dict):  # pylock.toml
        return _text(vcs.get("commit-id")) or _text(vcs.get("requested-revision"))
    if isinstance(source, dict) and source.get("type") == "git":  # poetry
        return _text(source.get("resolved_reference")) or _text(source.get("reference"))
    if isinstance(source, dict) and "git" in source:  # uv: "https://…?rev=main#<hash>"
        return str(source["git"]).rpartition("#")[2]
    return _text(entry.get("revision")) or _text(entry.get("ref")) if "git" in entry else None  # pdm


def _one(facts: list[Fact]) -> Fact:
    from packaging.version import InvalidVersion, Version

    versions = {fact.version for fact in facts if fact.version}
    if len(versions) <= 1:
        return facts[0]
    try:
        in_order = sorted(map(Version, versions))
    except InvalidVersion:
        return replace(facts[0], specifier="", version=None)
    return replace(facts[0], specifier=f">={in_order[0]},<={in_order[-1]}", version=None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
