"""Recorded comparisons in; the "Measured" section of each rule's page out, and a page beside each record that tells all of it.

No figure in either is typed by hand.

Usage: python -m trl_lint.probe.measured [--check]   (from a checkout; records stand in docs/evidence/*.jsonl)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

from trl_lint.probe.comparison import Effect, Promise, compare
from trl_lint.probe.evidence import Record, load, stale
from trl_lint.probe.session import ONLINE

ROOT = Path(__file__).parents[2]
_SECTION = re.compile(r"(?ms)^## Measured\n.*?(?=^## )")


def section(records: list[Record]) -> str:
    """The section for one rule: what was found, on what, and the command that does it again."""
    lines = ["## Measured\n"]
    for record in records:
        versions = ", ".join(f"{p} {record.conditions.versions[p]}" for p in ("trl", "transformers", "torch", "vllm") if record.conditions.versions.get(p))  # fmt: skip
        lines.append(
            f"- {record.title}: {record.verdict.name}: {record.verdict.reason}. {record.conditions.hardware.get('gpu')}, {versions}, "
            f"{record.conditions.method} on {_size(record)}, {record.date[:10]}: `{record.command}`.\n"
        )
    return "".join([*lines, "\n"])


def pooled(records: Iterable[Record]) -> list[Record]:
    """One record for each fix under the same conditions, its verdict over the pairs of all sittings."""
    found: list[Record] = []
    for record in records:
        for place, other in enumerate(found):
            same = (other.rule, other.key, other.title) == (record.rule, record.key, record.title)
            if same and not stale(other, record.conditions) and not stale(record, other.conditions):
                pairs = (*other.pairs, *record.pairs)
                promise = Promise(cast(Effect, record.effect), record.conditions.method in ONLINE)
                found[place] = replace(record, pairs=pairs, verdict=compare(pairs, promise))
                break
        else:
            found.append(record)
    return found


def decided(records: Iterable[Record]) -> list[Record]:
    """Those whose pairs suffice for a verdict."""
    return [record for record in pooled(records) if record.verdict.name != "cannot tell"]


def table(name: str, records: list[Record]) -> str:
    """All comparisons of one record as a page, the undecided ones too."""
    rows = ["| method | what was compared | verdict | measured |", "|---|---|---|---|"]
    for record in sorted(records, key=lambda record: (record.conditions.method, record.date)):
        page = page_of(record.rule)
        what = f"[{record.rule}](../../{page.relative_to(ROOT)})" if page is not None else record.rule
        reason = record.verdict.reason.replace("|", r"\|")
        rows.append(
            f"| {record.conditions.method}, {_size(record)}{_batch(record)}, trl {record.conditions.versions.get('trl')} | {what}: {record.title} "
            f"| {record.verdict.name} | {reason} |"
        )
    hardware = " and ".join(sorted({str(record.conditions.hardware.get("gpu")) for record in records}))
    return "\n".join([
        f"# Measured on {hardware}", "",
        f"All of [{name}]({name}), from which `python -m trl_lint.probe.measured` writes this page: each as it is and as changed, in",
        "alternating pairs, pairs of several sittings together where their conditions were the same. Speed is that of a step once",
        "it runs; in brackets the bounds of its median with 90 % or more. What is still to be measured is listed in",
        "[tests/gpu](../../tests/gpu/README.md#not-run).", "", *rows, "",
    ])  # fmt: skip


def page_of(name: str) -> Path | None:
    """The page of a rule, or the one that owns the knob of that name."""
    pages = sorted((ROOT / "rules").glob("*/*.md"))
    owned = (page for page in pages if re.search(rf'(?m)^\[\[tune\]\]\nname\s*= "{name}"$', page.read_text("utf-8")))
    return next((page for page in pages if page.stem == name), None) or next(owned, None)


def _size(record: Record) -> str:
    """The model, and how much of it is trained where that is not all."""
    model = record.conditions.model
    parameters, trainable = (int(cast(int, model.get(name)) or 0) for name in ("parameters", "trainable"))
    size = (
        f"{model.get('type')} of {parameters / 1e9:.1f} billion parameters" if parameters else f"a {model.get('type')}"
    )
    return f"{size}, {trainable / parameters:.1%} of them trained" if 0 < trainable < parameters else size


def _batch(record: Record) -> str:
    batch = record.conditions.fields.get("per_device_train_batch_size")
    return f", batch {batch}" if batch else ""


def pages() -> dict[Path, str]:
    """Every page that a record is about, with its section as the records have it, and the page beside each record."""
    found: dict[str, list[Record]] = {}
    made: dict[Path, str] = {}
    for path in sorted((ROOT / "docs" / "evidence").glob("*.jsonl")):
        known = load(str(path)).records
        made[path.with_suffix(".md")] = table(path.name, pooled(known))
        for record in decided(known):
            found.setdefault(record.rule, []).append(record)
    for rule, records in found.items():
        if (page := page_of(rule)) is not None:
            text = _SECTION.sub("", page.read_text("utf-8"))
            made[page] = text.replace("## Sources\n", f"{section(records)}## Sources\n")
    return made


def main(words: list[str]) -> int:
    """Write the sections, or with --check say which are not current."""
    stale = [(page, text) for page, text in pages().items() if not page.exists() or page.read_text("utf-8") != text]
    for page, text in stale:
        if "--check" in words:
            print(f"{page.relative_to(ROOT)}: not what the records in docs/evidence say")
        else:
            page.write_text(text, "utf-8")
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
