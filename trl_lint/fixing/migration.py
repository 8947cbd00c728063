"""Files that were moved to another TRL release in; their pins written for it, or what is to be written by hand, out.

The moving itself is done by the rules: names by those about names, changed defaults by `default-changed`. A pin is bumped
only once nothing is left that only a comparison with the old release can find.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trl_lint import knowledge
from trl_lint.facts.pins import Pin, pins, raised
from trl_lint.fixing import Fixed
from trl_lint.rulebook.files import Context, Examined

WAITS_FOR = "default-changed"


@dataclass(frozen=True)
class _Bump:
    """A pin that is to change: `new` replaces its text; `why` says why it cannot be written here."""

    pin: Pin
    new: str
    why: str | None = None


def notes(examined: Iterable[Examined], context: Context) -> list[str]:
    """What must change where TRL is pinned, one line a pin."""
    found = {bump.pin: bump for one in examined for bump in _bumps(one, context)}
    return [_asked(bump, context) for bump in found.values()]


def with_pins(fixed: Sequence[Fixed], context: Context) -> tuple[list[Fixed], list[str]]:
    """The files with their pins written for the release that they were moved to, and a note for each pin that was not."""
    waiting = {bump.pin for one in fixed if _unsettled(one) for bump in _bumps(one.examined, context)}
    said: dict[Pin, str] = {}
    done: set[Pin] = set()
    written: list[Fixed] = []
    for one in fixed:
        ready: dict[str, list[_Bump]] = {}
        for bump in _bumps(one.examined, context):
            if bump.why is not None:
                said[bump.pin] = _asked(bump, context)
            elif bump.pin in waiting:
                said[bump.pin] = (
                    f"{bump.pin.origin}: trl{bump.pin.text} stays until what {WAITS_FOR} found is settled: "
                    "--unsafe-fixes keeps the old values, --ignore default-changed takes the new ones"
                )
            elif bump.pin not in done:
                done.add(bump.pin)
                ready.setdefault(bump.pin.path, []).append(bump)
        written.append(_bumped(one, ready))
    return written, list(said.values())


def _unsettled(one: Fixed) -> bool:
    return any(f.rule == WAITS_FOR and f.fix is not None and f.certainty != "possible" for f in one.examined.findings)


def _bumped(one: Fixed, ready: dict[str, list[_Bump]]) -> Fixed:
    changed = dict(one.changed)
    for path, bumps in ready.items():
        name = next((p for p in one.examined.sources.texts if os.path.abspath(p) == path), _shown(path))
        before, data = changed.get(name, (None, _bytes(one.examined, name, path)))
        after = data
        for bump in sorted(bumps, key=lambda b: -b.pin.start):
            after = after[: bump.pin.start] + bump.new.encode() + after[bump.pin.end :]
        changed[name] = (data if before is None else before, after)
    return replace(one, changed=changed)


def _shown(path: str) -> str:
    here = os.path.join(os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path


def _bytes(examined: Examined, name: str, path: str) -> bytes:
    text = examined.sources.texts.get(name)
    if text is not None:
        return text.data
    with open(path, "rb") as file:
        return file.read()


def _bumps(examined: Examined, context: Context) -> Iterable[_Bump]:
    """The pins of all given files of a group that do not lead to the new release yet."""
    target, known = context.target, knowledge.releases("trl")
    if target is None:
        return
    for path in examined.paths:
        if path not in examined.sources.given or path not in examined.sources.texts:
            continue
        head = examined.sources.texts[path].data
        started = [run.launch for run in examined.runs if run.launch is not None and run.paths[:1] == (path,)]
        header = all(launch.header for launch in started)
        for pin in pins(path, head, context.root, context.settings(path), header=header):
            if pin.kind == "text":
                new = raised(pin.text, pin.specifier, target, known)
                if new is not None:
                    yield _Bump(pin, new)
            elif pin.specifier != f"=={target}":
                yield _Bump(pin, f"=={target}", _BY_HAND[pin.kind])


_BY_HAND = {
    "lock": "lock again, for example with uv lock --upgrade-package trl",
    "build": "it is a git build: name the tag of that release there",
    "other": "its text is not one that is edited here: change it by hand",
}


def _asked(bump: _Bump, context: Context) -> str:
    if bump.why is not None:
        return f"{bump.pin.origin} states trl{bump.pin.specifier}, not {context.target}: {bump.why}"
    return f"{bump.pin.origin}: trl{bump.pin.text} is to become {bump.new}: --bump-pin writes it"
