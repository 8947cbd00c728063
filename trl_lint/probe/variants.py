"""A judged script in; the texts that each of its fixes would leave, and a copy of the project that holds them, out.

What is measured is what would be written: a variant is the text that the fixer itself makes, never a config changed in
memory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trl_lint.fixing import verified
from trl_lint.model import Effect, Finding
from trl_lint.rulebook.files import Context, Examined
from trl_lint.sources.edits import CannotEdit

LARGEST_COPY = 2_000_000
_NEVER = frozenset(
    {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".trl-lint", ".mypy_cache", ".pytest_cache"}
)
_STRENGTH: Mapping[Effect, int] = {"same": 0, "numerics": 1, "training": 2}


@dataclass(frozen=True)
class Variant:
    """What one fix, or all of them together, would leave: `changed` maps a path to its new bytes.

    `effect` is the strongest of its fixes; `findings` are what it solves.
    """

    name: str
    title: str
    effect: Effect
    changed: Mapping[str, bytes]
    findings: tuple[Finding, ...]


def variants(examined: Examined, context: Context) -> tuple[list[Variant], list[tuple[Finding, str]]]:
    """A variant for each fix that can be written, and one with all that go together; and why the others cannot be tried."""
    found: list[Variant] = []
    refused: list[tuple[Finding, str]] = []
    for finding in sorted(examined.findings, key=lambda f: -f.gain):
        if finding.fix is None or finding.certainty == "possible":
            continue
        try:
            after = verified(examined, [finding], context)
        except CannotEdit as error:
            refused.append((finding, str(error)))
            continue
        found.append(
            Variant(finding.rule, finding.fix.title, finding.fix.effect, _changed(examined, after), (finding,))
        )
    if len(found) > 1:
        together = _together([v.findings[0] for v in found], examined, context)
        if together is not None:
            found.append(together)
    return found, refused


def _together(findings: list[Finding], examined: Examined, context: Context) -> Variant | None:
    """All fixes that can be written one on top of the other, the most promising first."""
    taken: list[Finding] = []
    after = examined
    for finding in findings:
        try:
            after = verified(examined, [*taken, finding], context)
        except CannotEdit:
            continue
        taken.append(finding)
    if len(taken) < 2:
        return None
    effects = [f.fix.effect for f in taken if f.fix is not None]
    strongest = max(effects, key=lambda e: _STRENGTH[e])
    return Variant("all", f"{len(taken)} fixes together", strongest, _changed(examined, after), tuple(taken))


def _changed(before: Examined, after: Examined) -> dict[str, bytes]:
    return {
        path: after.sources.texts[path].data
        for path, text in before.sources.texts.items()
        if after.sources.texts[path].data != text.data
    }


def shadow(project: Path, destination: Path, changed: Mapping[str, bytes]) -> None:
    """A copy of a project with some files replaced; `changed` names them relative to `project`.

    Files that a training may read or write are copied, so that nothing it does reaches the user's own; only what is
    larger than a script or a config can be is linked to. Raises OSError.
    """
    for root, folders, files in os.walk(project):
        folders[:] = [f for f in folders if f not in _NEVER and not os.path.exists(os.path.join(root, f, "pyvenv.cfg"))]
        inside = Path(root).relative_to(project)
        (destination / inside).mkdir(parents=True, exist_ok=True)
        for file in files:
            source = Path(root) / file
            name = (inside / file).as_posix()
            if name in changed:
                (destination / name).write_bytes(changed[name])
            elif source.is_file() and source.stat().st_size > LARGEST_COPY:
                (destination / name).symlink_to(source.resolve())
            elif source.is_file():
                shutil.copy2(source, destination / name)
