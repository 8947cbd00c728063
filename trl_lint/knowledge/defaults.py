"""A default that two releases see differently in; when it has an effect, and what it is in the other's words, out.

The rows stand in `curated/defaults.toml`, a source in each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from trl_lint.knowledge.curated import rows


def counts(field: str) -> str:
    """The condition under which a field has an effect at all, in the condition language."""
    found = [row["when"] for row in _of("counts", field)]
    return " and ".join(f"({when})" for when in found) or "True"


def alike(field: str, one: object, other: object) -> bool:
    """Whether two values of a field mean the same, each in its release's words."""
    return _equal(one, other) or any(_equal(other, way) for way in ways(field, one))


def ways(field: str, value: object) -> Iterator[object]:
    """Every way to write a value of a field: as it is, as a list where a list is wanted, in another release's words."""
    yield value
    for row in _of("same", field):
        values = [_value(text) for text in row["values"]]
        if any(_equal(value, known) for known in values):
            yield from (known for known in values if not _equal(value, known))
    if isinstance(value, str):
        yield (value,)
    if isinstance(value, tuple) and len(value) == 1:
        yield value[0]


def meant(owner: str, field: str, version: str, value: object) -> tuple[object] | None:
    """What a release's trainer made of a default: a `max_length` of None was 512 once. None where the model decided."""
    for row in _of("meant", field, owner):
        if _inside(version, row["trl"]) and _equal(value, _value(row["value"])):
            return (_value(row["as"]),) if "as" in row else None
    return (value,)


def before(owner: str, field: str, version: str) -> tuple[object] | None:
    """What a release that has no such field did, as a value of the field; None where that is not recorded."""
    found = (_value(row["value"]) for row in _of("before", field, owner) if _inside(version, row["trl"]))
    return next(((value,) for value in found), None)


def anew(owner: str, one: str, other: str) -> tuple[str, str] | None:
    """Where the trainer was written anew between two releases, so that its defaults say nothing about each other: the
    first release with the new one, and what is different."""
    for row in rows("defaults")["anew"]:
        if row["class"] == owner and _inside(one, f"<{row['first']}") is not _inside(other, f"<{row['first']}"):
            return row["first"], row["note"]
    return None


def _of(kind: str, field: str, owner: str | None = None) -> Iterator[Mapping[str, Any]]:
    for row in rows("defaults")[kind]:
        if field in _listed(row["field"]) and (owner is None or owner in _listed(row["class"])):
            yield row


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@cache
def _value(text: str) -> object:
    return _frozen(json.loads(text))


def _frozen(value: object) -> object:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _equal(one: object, other: object) -> bool:
    """Python's equality, less that True is 1."""
    return isinstance(one, bool) is isinstance(other, bool) and one == other


@cache
def _inside(version: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(version, prereleases=True)
