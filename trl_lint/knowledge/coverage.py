"""A TRL release in; each of its guards out, with who speaks of it: a page, the generic rule, or nobody, and then why."""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from trl_lint import knowledge
from trl_lint.knowledge import Guard

GENERIC: Final = {"raise": "refused-by-trl", "warn": "warned-by-trl"}

REASONS: Final = (
    ("reached while training only", r" runs while training$"),
    ("inside a function that others call", r" is called$"),
    ("errors that are caught", r"^(inside a try|except )"),
    ("loop over what the run holds", r"^(for|while) "),
    ("dataset content", r"dataset|example|column|inputs\b|batch\b|features|images|prompts?\b|completion|sample"),
    ("tokenizer or chat template", r"processing_class|processor|tokenizer|chat_template|token_id|schema|template"),
    ("environment variable", r"os\.environ|getenv"),
    ("reward functions", r"reward"),
    ("processes and devices", r"accelerator|process|device|distributed|n_gpu|fsdp|deepspeed|is_main|world_size"),
    ("a running server", r"server|client|response|url|timeout"),
    ("model object", r"model|config\b|lm_head|layer|module|adapter|peft"),
    ("what is installed", r"is_\w+_available|version|_SUPPORTS|hasattr"),
)
"""Why files cannot decide a guard: the first whose pattern is found in what it asks."""

OTHER: Final = "another runtime object"

ROOTS: Final = frozenset({"model", "peft", "trainer", "launch", "versions", "installed", "dataset", "ref_model"})


def main(arguments: list[str]) -> int:
    """Print the guards of a release; 0, or 2 for a release or a class that is not known."""
    parser = argparse.ArgumentParser(prog="python -m trl_lint.knowledge guards", description=__doc__)
    parser.add_argument("--trl", default=knowledge.newest("trl"), metavar="VERSION", help="the newest one if not given")
    parser.add_argument("--class", dest="owner", metavar="NAME", help="one config or trainer class; all if not given")
    parser.add_argument(
        "--rules", type=Path, default=Path(__file__).parents[2] / "rules", help="the folder of the pages"
    )
    parser.add_argument("--totals", action="store_true", help="the totals alone")
    options = parser.parse_args(arguments)
    try:
        release = knowledge.trl(options.trl)
    except knowledge.UnknownRelease as error:
        print(f"guards: {error}", file=sys.stderr)
        return 2
    owners = (*release.configs(), *release.trainers())
    if options.owner is not None and options.owner not in owners:
        print(f"guards: trl {options.trl} has no config or trainer {options.owner}", file=sys.stderr)
        return 2
    pages = page_guards(options.rules)
    found: dict[tuple[str, str], list[Guard]] = {}
    for owner in owners if options.owner is None else [options.owner]:
        for guard in release.guards(owner):
            found.setdefault((guard.name, guard.place), []).append(guard)
    counted: Counter[str] = Counter()
    for same in found.values():
        # Classes that share a place reach it under conditions of their own.
        guard = min(same, key=lambda one: undecidable(one) is not None)
        said = speaker(guard, pages)
        counted[said if not said.startswith("page ") else "a page of its own"] += 1
        if not options.totals:
            print(f"{guard.effect} {guard.kind:20} {guard.name}\n    {said}; {guard.place}")
    print(f"trl {options.trl}: {sum(counted.values())} guards")
    for said, number in counted.most_common():
        print(f"{number:6} {said}")
    return 0


def speaker(guard: Guard, pages: Mapping[str, list[str]]) -> str:
    """Who speaks of a guard: "page X", the generic rule, or "not decidable from files: reason"."""
    if guard.name in pages:
        return f"page {', '.join(pages[guard.name])}"
    reason = undecidable(guard)
    return f"rule {GENERIC[guard.effect]}" if reason is None else f"not decidable from files: {reason}"


def undecidable(guard: Guard) -> str | None:
    """Why no file can decide a guard for certain; None where files can."""
    asked = guard.opaque
    for reason, pattern in REASONS:
        if any(re.search(pattern, text) for text in asked):
            return reason
    if asked:
        return OTHER
    fields = knowledge.fields_ever()
    strange = [name for name in guard.fields if not _known(name, fields)]
    return f"{strange[0]} is no field" if strange else None


def _known(name: str, fields: frozenset[str]) -> bool:
    root = name.partition(".")[0]
    return root in ROOTS or root in fields or root.startswith("_") or name == "world_size"


def page_guards(folder: Path) -> Mapping[str, list[str]]:
    """Guard name to the pages that explain it."""
    found: dict[str, list[str]] = {}
    for page, names in _named(folder):
        for name in names:
            found.setdefault(name, []).append(page)
    return found


def _named(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for path in sorted(folder.glob("*/*.md")):
        program = re.search(r"^```toml\n(.*?)^```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        if program is not None:
            yield path.stem, tomllib.loads(program[1]).get("guards", [])
