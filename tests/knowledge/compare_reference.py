"""A reference table of config fields in, every difference from the harvested one out.

`python tests/knowledge/compare_reference.py REFERENCE.json`. The reference maps a config class to its releases and, per
field, to the releases that accept it and its defaults by range ("A..B", "+" for "still so", "<=" for "already so").
Exit 1 when anything differs.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trl_lint import knowledge

RELEASES = knowledge.releases("trl")


def covered(text: str) -> set[int]:
    """The release indices of a range text such as "<=0.9.6..0.19.1, 1.0.0+"."""
    found: set[int] = set()
    for part in text.replace("<=", "").split(","):
        first, _, last = part.strip().rstrip("+").partition("..")
        end = RELEASES.index(last or first)
        found |= set(range(RELEASES.index(first), len(RELEASES) if part.strip().endswith("+") else end + 1))
    return found


def held(name: str) -> Iterator[tuple[int, knowledge.ConfigClass]]:
    """Every release that has the class, with the class."""
    for index, release in enumerate(RELEASES):
        found = knowledge.trl(release).config(name)
        if found is not None:
            yield index, found


def readable(indices: set[int]) -> str:
    return ", ".join(RELEASES[index] for index in sorted(indices)) or "none"


def differences(reference: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind of difference, one line) for everything that differs."""
    everything = {name for release in RELEASES for name in knowledge.trl(release).configs()}
    for name in sorted(everything | reference.keys()):
        ours = dict(held(name))
        if name not in reference or not ours:
            yield "class only here" if ours else "class only in the reference", f"{name}: {readable(set(ours))}"
            continue
        entry = reference[name]
        if covered(entry["releases"]) != ours.keys():
            yield "releases of the class", f"{name}: reference {entry['releases']}, here {readable(set(ours))}"
        fields = {field for config in ours.values() for field in config.fields}
        for field in sorted(fields | entry["fields"].keys()):
            yield from in_field(f"{name}.{field}", field, ours, entry["fields"].get(field))


def in_field(
    label: str, field: str, ours: dict[int, knowledge.ConfigClass], theirs: dict[str, Any] | None
) -> Iterator[tuple[str, str]]:
    here = {index: config.fields[field] for index, config in ours.items() if field in config.fields}
    if theirs is None or not here:
        yield "field only here" if here else "field only in the reference", f"{label}: {readable(set(here))}"
        return
    accepted = covered(theirs["accepted"])
    if accepted != here.keys():
        gained, lost = readable(here.keys() - accepted), readable(accepted - here.keys())
        yield "releases of the field", f"{label}: only here {gained}; only in the reference {lost}"
    for row in theirs["default"]:
        for index in sorted(covered(row["range"]) & here.keys()):
            if not same(row["value"], here[index]):
                yield "default", f"{label} {RELEASES[index]}: reference {row['value']}, here {shown(here[index])}"
    for row in theirs["type"]:
        for index in sorted(covered(row["range"]) & here.keys()):
            if row["type"] != here[index].type:
                yield "type", f"{label} {RELEASES[index]}: reference {row['type']}, here {here[index].type}"


def same(text: str, field: knowledge.Field) -> bool:
    """Whether a default as the reference writes it (JSON, or an expression) is the field's."""
    try:
        return bool(frozen(json.loads(text)) == field.default)
    except ValueError:
        return text == shown(field)


def frozen(value: Any) -> Any:
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def shown(field: knowledge.Field) -> str:
    return field.expression or repr(field.default)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    found = list(differences(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    for kind, line in found:
        print(f"{kind}: {line}")
    print(
        ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(kind for kind, _ in found).items()))
        or "no difference"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
