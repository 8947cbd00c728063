"""The hand-kept rows: what replaced a removed name, and what a GPU can do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from trl_lint.knowledge import load

ROWS: Final = Path(__file__).parent / "curated"

How: TypeAlias = Literal["rename", "drop", "move", "by-hand"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What became of `old`. `new` is its name now; `into` the config class that a trainer keyword moved to.

    `how`: "rename" keeps the value (through `values` where there are some), "move" takes it to `into` (as `new` if that
    differs), "drop" leaves out what training does not depend on, "by-hand" needs a person; `note` says what for.
    """

    kind: str
    owner: str
    old: str
    new: str | None
    into: str | None
    how: How
    note: str
    source: str
    values: Mapping[object, object] | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: `memory` in GiB as the driver reports it, rounded down, one entry per variant that the name allows."""

    name: str
    architecture: str
    capability: tuple[int, int]
    memory: tuple[int, ...]
    bf16: bool
    tf32: bool
    fp8: bool
    note: str = ""


def replacement(kind: str, owner: str, name: str) -> Replacement | None:
    """What replaced `name` of `owner`: the row of the class itself, then of its bases, then of any class.

    `kind` is "config", "trainer", "training_arguments" or "symbol".
    """
    known = _renames()
    return next((known[kind, link, name] for link in _lineage(kind, owner) if (kind, link, name) in known), None)


@cache
def gpu(name: str) -> Gpu | None:
    """A GPU by driver name, short name or Slurm type ("A100-SXM4-80GB", "a100:8"); None where it means none of ours.

    A memory in the name ("-80GB") narrows `memory`; "(sm_75)" overrides the compute capability.
    """
    stated = re.search(r"\(?sm_?(\d+)(\d)a?\)?", name, re.IGNORECASE)
    capability = (int(stated[1]), int(stated[2])) if stated else None
    memory = re.search(r"(\d+)\s*gi?b\b", name.replace("_", " "), re.IGNORECASE)
    size = int(memory[1]) if memory else None
    found = _named(_key(name))
    if found is None and capability is not None:
        found = _generic(name, capability)
    elif found is not None and capability is not None and capability != found.capability:
        found = replace(_generic(found.name, capability) or found, memory=found.memory)
    return found if found is None or size is None else replace(found, memory=_narrowed(found.memory, size))


def _lineage(kind: str, owner: str) -> Iterator[str]:
    yield owner
    if kind in ("config", "trainer"):
        yield from load.lineage(f"{kind}s", owner)
    yield "*"


@cache
def _renames() -> Mapping[tuple[str, str, str], Replacement]:
    found: dict[tuple[str, str, str], Replacement] = {}
    for row in rows("renames")["rename"]:
        for owner in _listed(row.get("class", "*")):
            for old in _listed(row["old"]):
                found[row["kind"], owner, old] = Replacement(
                    kind=row["kind"],
                    owner=owner,
                    old=old,
                    new=row.get("new"),
                    into=row.get("in"),
                    how=row["how"],
                    note=row.get("note", ""),
                    source=row["source"],
                    values=_values(row.get("values")),
                )
    return found


def _values(row: Mapping[str, object] | None) -> Mapping[object, object] | None:
    """A value map, whose keys TOML can only hold as text: `true` means True."""
    return None if row is None else {json.loads(key): value for key, value in row.items()}


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _key(name: str) -> str:
    """A name as the rows match it: lower case, no vendor words, counts, memory sizes, capability or separators."""
    text = re.sub(r"\(.*?\)|:\d+$|\b\d+\s*x\s+", " ", name.strip().lower())
    text = re.sub(r"[_\-]", " ", text)
    text = re.sub(r"\b\d+\s*gi?b\b|\b\d+g\.\d+gb\b", " ", text)
    text = re.sub(r"\b(nvidia|tesla|geforce|kaggle|gpu)\b", " ", text)
    return re.sub(r"\s+", "", text)


def _named(key: str) -> Gpu | None:
    return next((gpu for pattern, gpu in _gpus() if pattern.match(key)), None)


@cache
def _gpus() -> tuple[tuple[re.Pattern[str], Gpu], ...]:
    return tuple(
        (
            re.compile(rf"(?:{row['match']})$"),
            Gpu(
                row["name"],
                row["architecture"],
                _pair(row["capability"]),
                tuple(row["memory"]),
                *_abilities(row["architecture"]),
                note=row.get("note", ""),
            ),
        )
        for row in rows("gpus")["gpu"]
    )


def _generic(name: str, capability: tuple[int, int]) -> Gpu | None:
    for row in rows("gpus")["architecture"]:
        if capability in map(_pair, row["capabilities"]):
            return Gpu(name, row["name"], capability, (), *_abilities(row["name"]))
    return None


def _abilities(architecture: str) -> tuple[bool, bool, bool]:
    row = next(row for row in rows("gpus")["architecture"] if row["name"] == architecture)
    return row["bf16"], row["tf32"], row["fp8"]


def _narrowed(memory: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The variant that `size` means, which vendors round up; a size that fits none is a slice of the GPU."""
    near = [gib for gib in memory if size * 0.85 <= gib <= size * 1.05]
    if near:
        return (max(near),)
    # "GH200 480GB" names the memory of its CPU.
    return memory if memory and size > max(memory) else (size,)


def _pair(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


@cache
def rows(name: str) -> Mapping[str, Any]:
    """The file `curated/<name>.toml`, parsed."""
    import tomllib

    return tomllib.loads((ROWS / f"{name}.toml").read_text(encoding="utf-8"))
