"""A judged script in; the texts that each of its fixes would leave, and a copy of the project that holds them, out.

What is measured is what would be written: a variant is the text that the fixer itself makes, never a config changed in
memory.
"""

from __future__ import annotations

import difflib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

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
    """What one fix, or several together, would leave: `changed` maps a path to its new bytes, `after` is all of it.

    `effect` is the strongest of its fixes; `findings` are what it solves, and `about` the one that is judged by it, None
    where it is several. `after` is None for a text that no fix made.
    """

    name: str
    title: str
    effect: Effect
    changed: Mapping[str, bytes]
    findings: tuple[Finding, ...] = ()
    after: Examined | None = None
    about: Finding | None = None

    @property
    def key(self) -> str:
        """What is done to which values, however it is worded: by this a record is found again."""
        findings = self.findings if self.about is None else (self.about,)
        return "; ".join(sorted(f.fix.key for f in findings if f.fix is not None))

    @property
    def rule(self) -> str:
        """The rule that a record of it is filed under; its own name where it is not one rule's."""
        return self.about.rule if self.about is not None else self.name

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules whose fixes are in it."""
        return tuple(dict.fromkeys(f.rule for f in self.findings)) or (self.name,)


Refused: TypeAlias = tuple[Finding, str]


def variants(
    examined: Examined, context: Context, wanted: Callable[[Finding], bool] = lambda _finding: True,
    base: Sequence[Finding] = (),
) -> tuple[list[Variant], list[Refused]]:  # fmt: skip
    """A variant for each wanted fix that can be written, the most promising first; and why the others cannot be tried.

    With a `base` each fix comes on top of those of the base.
    """
    found: list[Variant] = []
    refused: list[Refused] = []
    names: Counter[str] = Counter()
    for finding in sorted(examined.findings, key=lambda f: -f.gain):
        if finding.fix is None or finding.certainty == "possible" or finding in base or not wanted(finding):
            continue
        try:
            after = verified(examined, [*base, finding], context)
        except CannotEdit as error:
            refused.append((finding, str(error)))
            continue
        names[finding.rule] += 1
        count = names[finding.rule]
        name = finding.rule if count == 1 else f"{finding.rule} ({count})"
        effect = _strongest([*base, finding])
        found.append(
            Variant(name, finding.fix.title, effect, _changed(examined, after), (*base, finding), after, finding)
        )
    return found, refused


def together(findings: Sequence[Finding], examined: Examined, context: Context, name: str = "all") -> Variant | None:
    """Those fixes that can be written one on top of the other, the first ones first; None when they are less than two."""
    taken: list[Finding] = []
    after = examined
    for finding in findings:
        if finding in taken:
            continue
        try:
            after = verified(examined, [*taken, finding], context)
        except CannotEdit:
            continue
        taken.append(finding)
    if len(taken) < 2:
        return None
    title = f"{len(taken)} fixes together"
    return Variant(name, title, _strongest(taken), _changed(examined, after), tuple(taken), after)


def diff(changed: Mapping[str, bytes], before: Mapping[str, bytes]) -> str:
    """A unified diff of what a variant changes."""
    lines: list[str] = []
    for path, data in sorted(changed.items()):
        was, now = (t.decode("utf-8", "replace").splitlines(keepends=True) for t in (before.get(path, b""), data))
        for line in difflib.unified_diff(was, now, f"a/{path}", f"b/{path}"):
            lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def _strongest(findings: Sequence[Finding]) -> Effect:
    return max((f.fix.effect for f in findings if f.fix is not None), key=lambda e: _STRENGTH[e], default="same")


def _changed(before: Examined, after: Examined) -> dict[str, bytes]:
    return {
        path: after.sources.texts[path].data
        for path, text in before.sources.texts.items()
        if after.sources.texts[path].data != text.data
    }


def shadow(project: Path, destination: Path, changed: Mapping[str, bytes], without: Path | None = None) -> None:
    """A copy of a project with some files replaced; `changed` names them relative to `project`.

    The folder `without`, which holds the copies, is no part of it.

    Files that a training may read or write are copied, so that nothing it does reaches the user's own; only what is
    larger than a script or a config can be is linked to, and a folder that is a link itself, where data often is. Raises
    OSError.
    """
    links: list[tuple[Path, Path]] = []
    for root, folders, files in os.walk(project):
        folders[:] = [
            f
            for f in folders
            if f not in _NEVER and Path(root, f) != without and not os.path.exists(os.path.join(root, f, "pyvenv.cfg"))
        ]
        inside = Path(root).relative_to(project)
        (destination / inside).mkdir(parents=True, exist_ok=True)
        links += [(inside / f, Path(root, f).resolve()) for f in folders if os.path.islink(os.path.join(root, f))]
        for file in files:
            source = Path(root) / file
            name = (inside / file).as_posix()
            if name in changed:
                (destination / name).write_bytes(changed[name])
            elif source.is_file() and source.stat().st_size > LARGEST_COPY:
                (destination / name).symlink_to(source.resolve())
            elif source.is_file():
                shutil.copy2(source, destination / name)
    whole, copy = project.resolve(), destination.resolve()
    for place, target in links:
        # A link to a folder of the project leads to the copy of that folder, if it has one, wherever the copy is put.
        copied = copy / target.relative_to(whole) if target.is_relative_to(whole) else target
        inner = os.path.relpath(copied, (copy / place).parent)
        (copy / place).symlink_to(inner if copied != target and copied.exists() else target)


@contextmanager
def placed(copy: Path, place: Path) -> Iterator[None]:
    """The copy stands at `place` meanwhile, as each other one does when its turn has come.

    What is compiled at run time may be kept under the name of the folder that a training runs in: cuDNN's attention is,
    seen with cuDNN 9.19 of torch 2.11. In a folder of its own each copy would compile all of it anew.
    """
    copy.rename(place)
    try:
        yield
    finally:
        place.rename(copy)
