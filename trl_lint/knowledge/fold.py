"""Facts of single releases in, one range-coded table out, and back.

A *shape* says which parts of the facts are mappings to be merged key by key. Everything below is a leaf, kept as
`[[ranges, value], ...]` in order of first appearance; `ranges` reads "10-25,30-64" and counts into the table's
`releases`, oldest first. A set of names is kept as `{ranges: [names]}`, a list most of whose rows stay the same from one
release to the next as `{"rows": [row, ...], "at": [[ranges, [number of row, ...]], ...]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

FORMAT: Final = 1
LEAF: Final = "leaf"
NAMES: Final = "names"
ROWS: Final = "rows"
ABSENT: Final = object()

Shape: TypeAlias = "str | dict[str, Shape]"
Json: TypeAlias = Any

SHAPES: Final[dict[str, Shape]] = {
    "trl": {
        "attention_varlen": LEAF,
        "commands": LEAF,
        "configs": {"*": {"bases": LEAF, "module": LEAF, "fields": {"*": LEAF}, "steps": LEAF}},
        "exports": {"*": NAMES},
        "guards": {"*": ROWS},
        "liger_minimum": LEAF,
        "parser": LEAF,
        "python": LEAF,
        "requires": {"*": {"*": LEAF}},
        "scripts": {"*": {"own": {"*": {"*": LEAF}}, "*": LEAF}},
        "trainers": {"*": {"*": LEAF}},
        "vllm_range": LEAF,
    },
    "transformers": {
        "attention": NAMES,
        "causal_models": NAMES,
        "guards": {"*": ROWS},
        "kernels_window": LEAF,
        "python": LEAF,
        "requires": {"*": {"*": LEAF}},
        "trainer_keywords": LEAF,
        "training_arguments": {"*": LEAF},
    },
    "liger-kernel": {
        "dpo_losses": LEAF,
        "grpo_losses": LEAF,
        "models": {"*": LEAF},
        "python": LEAF,
        "requires": {"*": {"*": LEAF}},
    },
    "vllm": {"python": LEAF, "requires": {"*": {"*": LEAF}}},
    "kernels": {"python": LEAF, "requires": {"*": {"*": LEAF}}},
}


def encode(indices: Iterable[int]) -> str:
    """Ascending indices as text: (0, 1, 2, 7) is "0-2,7"."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@cache
def decode(text: str) -> tuple[tuple[int, int], ...]:
    """The inclusive (first, last) pairs of a range text."""
    pairs = (part.partition("-") for part in text.split(",") if part)
    return tuple((int(first), int(last or first)) for first, _, last in pairs)


def holds(text: str, index: int) -> bool:
    """Whether `index` lies in one of the ranges of `text`."""
    return any(first <= index <= last for first, last in decode(text))


def at(leaf: Sequence[Sequence[Json]] | None, index: int, default: Json = None) -> Json:
    """The value of a folded leaf at release `index`, or `default` where it has none."""
    for ranges, value in leaf or ():
        if holds(ranges, index):
            return value
    return default


def rows_at(folded: Mapping[str, Json], index: int, default: Json = None) -> Json:
    """The rows of a folded list at release `index`, or `default` where it has none."""
    numbers = at(folded["at"], index)
    return default if numbers is None else [folded["rows"][number] for number in numbers]


def fold(shape: Shape, facts: Sequence[tuple[int, Json]]) -> Json:
    """Facts by release index, in rising order, as one folded value."""
    if shape == LEAF:
        return _fold_leaf(facts)
    if shape == NAMES:
        return _fold_names(facts)
    if shape == ROWS:
        return _fold_rows(facts)
    assert isinstance(shape, dict)
    keys = sorted({key for _, value in facts for key in value})
    return {
        key: fold(shape.get(key) or shape["*"], [(index, value[key]) for index, value in facts if key in value])
        for key in keys
    }


def unfold(shape: Shape, folded: Json, index: int) -> Json:
    """What `fold` was given for `index`, or ABSENT."""
    if shape == LEAF:
        return at(folded, index, ABSENT)
    if shape == NAMES:
        groups = [names for ranges, names in folded.items() if holds(ranges, index)]
        return sorted(name for names in groups for name in names) if groups else ABSENT
    if shape == ROWS:
        return rows_at(folded, index, ABSENT)
    assert isinstance(shape, dict)
    parts = {key: unfold(shape.get(key) or shape["*"], part, index) for key, part in folded.items()}
    present = {key: part for key, part in parts.items() if part is not ABSENT}
    return present if present else ABSENT


def table(package: str, releases: Sequence[tuple[str, str | None, Mapping[str, Json]]]) -> dict[str, Json]:
    """(version, date, facts) of every release, oldest first, as the table of `package`."""
    folded = fold(SHAPES[package], [(index, facts) for index, (_, _, facts) in enumerate(releases)])
    return {
        "format": FORMAT,
        "releases": [version for version, _, _ in releases],
        "dates": [date for _, date, _ in releases],
        **folded,
    }


def released(package: str, folded: Mapping[str, Json], index: int) -> dict[str, Json]:
    """The facts of one release of a table, as they were folded."""
    shape = SHAPES[package]
    assert isinstance(shape, dict)
    parts = {key: unfold(shape[key], folded[key], index) for key in shape if key in folded}
    return {key: part for key, part in parts.items() if part is not ABSENT}


def dump(value: Json, depth: int = 4) -> str:
    """A table as JSON: the same bytes for the same facts, one line per field so that a diff reads well."""
    return "\n".join(_lines(value, 0, depth)) + "\n"


def _fold_leaf(facts: Sequence[tuple[int, Json]]) -> list[list[Json]]:
    groups: dict[str, tuple[list[int], Json]] = {}
    for index, value in facts:
        groups.setdefault(json.dumps(value, sort_keys=True), ([], value))[0].append(index)
    return [[encode(indices), value] for indices, value in groups.values()]


def _fold_names(facts: Sequence[tuple[int, Json]]) -> dict[str, list[str]]:
    where: dict[str, list[int]] = {}
    for index, names in facts:
        for name in names:
            where.setdefault(name, []).append(index)
    # A module without names still exists: its own releases stand with an empty list.
    groups: dict[str, list[str]] = {encode(index for index, _ in facts): []}
    for name in sorted(where):
        groups.setdefault(encode(where[name]), []).append(name)
    return groups


def _fold_rows(facts: Sequence[tuple[int, Json]]) -> dict[str, Json]:
    numbers: dict[str, int] = {}
    rows: list[Json] = []
    for _, listed in facts:
        for row in listed:
            if numbers.setdefault(json.dumps(row), len(rows)) == len(rows):
                rows.append(row)
    where = [(index, [numbers[json.dumps(row)] for row in listed]) for index, listed in facts]
    return {"at": _fold_leaf(where), "rows": rows}


def _lines(value: Json, indent: int, depth: int) -> list[str]:
    if depth == 0 or not isinstance(value, dict) or not value:
        return [json.dumps(value, sort_keys=True, separators=(",", ":"))]
    lines = ["{"]
    for key in sorted(value):
        first, *rest = _lines(value[key], indent + 1, depth - 1)
        lines.append(" " * (indent + 1) + json.dumps(key) + ":" + first)
        lines.extend(rest)
        lines[-1] += ","
    lines[-1] = lines[-1].removesuffix(",")
    return [*lines, " " * indent + "}"]
