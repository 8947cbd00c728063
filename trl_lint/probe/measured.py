"""Recorded comparisons in; the "Measured" section of each rule's page out, so that no figure there is typed by hand.

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
        model = record.conditions.model
        size = f"{int(model['parameters'] or 0) / 1e9:.1f} billion parameters" if model.get("parameters") else "a model"
        lines.append(
            f"- {record.verdict.name}: {record.verdict.reason}. {record.conditions.hardware.get('gpu')}, {versions}, "
            f"{record.conditions.method} on {model.get('type')} of {size}, {record.date[:10]}: `{record.command}`.\n"
        )
    return "".join([*lines, "\n"])


def pooled(records: Iterable[Record]) -> list[Record]:
    """One record for each fix under the same conditions, its verdict over the pairs of all sittings; only decided ones."""
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
    return [record for record in found if record.verdict.name != "cannot tell"]


def pages() -> dict[Path, str]:
    """Every page that a record is about, with its section as the records have it."""
    found: dict[str, list[Record]] = {}
    for path in sorted((ROOT / "docs" / "evidence").glob("*.jsonl")):
        for record in pooled(load(str(path)).records):
            found.setdefault(record.rule, []).append(record)
    made: dict[Path, str] = {}
    for rule, records in found.items():
        for page in (ROOT / "rules").glob(f"*/{rule}.md"):
            text = _SECTION.sub("", page.read_text("utf-8"))
            made[page] = text.replace("## Sources\n", f"{section(records)}## Sources\n")
    return made


def main(words: list[str]) -> int:
    """Write the sections, or with --check say which are not current."""
    stale = [(page, text) for page, text in pages().items() if page.read_text("utf-8") != text]
    for page, text in stale:
        if "--check" in words:
            print(f"{page.relative_to(ROOT)}: its Measured section is not what docs/evidence says")
        else:
            page.write_text(text, "utf-8")
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
