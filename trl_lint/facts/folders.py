"""One folder of a project in; out its `Level`: what the files there say of versions, exact pins apart from ranges.

Levels are cached for the life of the process, since every file below a folder asks for the same ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from trl_lint.facts.requirements import Reading, allows, disagreement, wanted
from trl_lint.facts.words import Fact, read_text, says, shown


@dataclass(frozen=True, slots=True)
class Level:
    """What one folder says. `exact`, `ranges` and `bare` hold for each package the file of the highest precedence.

    `bounds` are all ranges, which an installed version must satisfy; `own` is set in TRL's own repository. `locked` and
    `members` belong to a uv workspace: the pins of its lock, and the folders (relative to this one) that share it.
    """

    folder: str
    own: Fact | None = None
    exact: Mapping[str, Fact] = field(default_factory=dict)
    ranges: Mapping[str, Fact] = field(default_factory=dict)
    bare: Mapping[str, Fact] = field(default_factory=dict)
    bounds: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict)
    environments: tuple[str, ...] = ()
    locked: Mapping[str, Fact] = field(default_factory=dict)
    members: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


@cache
def folders_above(folder: str, root: str) -> tuple[str, ...]:
    """From a file's folder up to the project root, or to the folder that git calls one; nearest first."""
    above: list[str] = [folder]
    while folder != root and ".git" not in _entries(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        above.append(folder)
    return tuple(above)


@cache
def read_level(folder: str, root: str) -> Level:
    entries = _entries(folder)
    readers = _readers(folder, entries)
    names = (".venv", "venv", "env", ".env")
    environments = tuple(os.path.join(folder, name) for name in names if _is_environment(folder, name))
    own = _own_repository(folder, entries)
    if not readers:
        return Level(folder, own, environments=environments)
    exact: dict[str, Fact] = {}
    bare: dict[str, Fact] = {}
    bounds: dict[str, tuple[Fact, ...]] = {}
    notes: list[str] = []
    for path, reader in readers:
        try:
            facts, said = reader(path, root)
        except OSError as error:
            notes.append(f"{shown(path, root)}: cannot be read: {error.strerror}; ignored")
            continue
        except RecursionError:
            notes.append(f"{shown(path, root)}: cannot be read: nested too deeply; ignored")
            continue
        notes += said
        for package, fact in facts.items():
            if not says(fact):
                bare.setdefault(package, fact)
            elif fact.version is None:
                bounds[package] = (*bounds.get(package, ()), fact)
            elif (used := exact.setdefault(package, fact)).version != fact.version:
                notes.append(disagreement(used, fact))
    notes += _stale_pins(exact, bounds)
    locked, members = _workspace(folder, root) if "uv.lock" in entries else ({}, frozenset[str]())
    ranges = {package: facts[0] for package, facts in bounds.items()}
    return Level(folder, own, exact, ranges, bare, bounds, environments, locked, members, tuple(dict.fromkeys(notes)))


def forget() -> None:
    """Drop all that was read; for a process that outlives a change of the project's files."""
    from trl_lint.facts.environment import read_environment

    for cached in (_entries, folders_above, read_level, stated_in, read_environment):
        cached.cache_clear()


# Which files -----------------------------------------------------------------------------------------------------------

Reader: TypeAlias = Callable[[str, str], tuple[dict[str, Fact], list[str]]]

_LOCKS = r"(?:uv|poetry|pdm)\.lock|pylock(?:\..+)?\.toml"
_MANIFESTS = (
    r"requirements.*\.txt|pyproject\.toml|setup\.(?:cfg|py)|"
    r"(?:environment.*|conda)\.ya?ml|Dockerfile(?:\..+)?|.+\.[Dd]ockerfile"
)


def _readers(folder: str, entries: Mapping[str, bool]) -> list[tuple[str, Reader]]:
    """The files of a folder that may say something, in order of precedence."""
    files = [name for name, is_folder in entries.items() if not is_folder]
    locks = [name for name in files if re.fullmatch(_LOCKS, name)]
    manifests = [name for name in files if re.fullmatch(_MANIFESTS, name)]
    if entries.get("requirements"):
        inside = _entries(os.path.join(folder, "requirements"))
        manifests += [f"requirements/{name}" for name in inside if name.endswith(".txt")]
    found: list[tuple[str, Reader]] = [(name, _lock) for name in sorted(locks, key=_rank)]
    found += [(name, _manifest) for name in sorted(manifests, key=_rank)]
    return [(os.path.join(folder, name), reader) for name, reader in found]


_ORDER = (
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "pylock",
    "requirements",
    "pyproject",
    "setup.cfg",
    "setup.py",
    "environment",
    "conda",
)


def _rank(name: str) -> tuple[int, str]:
    """The place in the order; of its kind, "requirements.txt" comes before "requirements-dev.txt", whose "-" sorts first."""
    place = next((place for place, start in enumerate(_ORDER) if name.startswith(start)), len(_ORDER))
    return place, os.path.splitext(name)[0]


def _lock(path: str, root: str) -> tuple[dict[str, Fact], list[str]]:
    from trl_lint.facts.locks import read_lock

    return read_lock(read_text(path), shown(path, root))


def _manifest(path: str, root: str) -> tuple[dict[str, Fact], list[str]]:
    reading, one_after_the_other = _read(path, root)
    return reading.settled(last=one_after_the_other), reading.notes


def _read(path: str, root: str) -> tuple[Reading, bool]:
    """What a manifest says, and whether that is installs that run one after the other, as in a Dockerfile."""
    from trl_lint.facts import manifests

    match os.path.basename(path):
        case "pyproject.toml":
            return manifests.read_pyproject(path, root), False
        case "setup.cfg":
            return manifests.read_setup_cfg(path, root), False
        case "setup.py":
            return manifests.read_setup_py(path, root), False
        case name if name.endswith(".txt"):
            return manifests.read_requirements(path, root), False
        case name if name.endswith((".yml", ".yaml")):
            return manifests.read_conda(path, root), False
        case _:
            return manifests.read_dockerfile(path, root), True


@cache
def stated_in(folder: str, root: str, package: str) -> tuple[Fact, ...]:
    """Everything that the files of a folder state of a package, also what another statement outweighs; locks included."""
    found: list[Fact] = []
    for path, reader in _readers(folder, _entries(folder)):
        try:
            if reader is _lock:
                found += (fact for name, fact in _lock(path, root)[0].items() if name == package)
            else:
                reading, _ = _read(path, root)
                found += (fact for fact in (*reading.always, *reading.perhaps) if fact.package == package)
        except (OSError, RecursionError):
            continue  # read_level has said so
    return tuple(fact for fact in found if says(fact))


@cache
def _entries(folder: str) -> Mapping[str, bool]:
    """The names in a folder and whether each is a folder; empty when it may not be read."""
    try:
        with os.scandir(folder) as found:
            return {entry.name: entry.is_dir() for entry in found}
    except OSError:
        return {}


def _is_environment(folder: str, name: str) -> bool:
    return _entries(folder).get(name, False) and os.path.isfile(os.path.join(folder, name, "pyvenv.cfg"))


# What a folder says beyond its files ---------------------------------------------------------------------------------


def _stale_pins(exact: Mapping[str, Fact], bounds: Mapping[str, tuple[Fact, ...]]) -> list[str]:
    """A lock that was not renewed after the range was raised."""
    return [
        f"{pin.origin} pins {package} {pin.version}, which {bound.origin} ({wanted(bound)}) does not allow; the pin is used"
        for package, pin in exact.items()
        for bound in bounds.get(package, ())
        if pin.version and not allows(bound.specifier, pin.version)
    ]


def _workspace(folder: str, root: str) -> tuple[dict[str, Fact], frozenset[str]]:
    from trl_lint.facts.locks import workspace_members

    path = os.path.join(folder, "uv.lock")
    try:
        members = workspace_members(read_text(path))
        return (_lock(path, root)[0], members) if members - {"."} else ({}, frozenset[str]())
    except OSError:
        return {}, frozenset[str]()


def _own_repository(folder: str, entries: Mapping[str, bool]) -> Fact | None:
    """TRL's own repository is judged as itself: `trl/` beside a manifest that calls the project so."""
    if not entries.get("trl") or not os.path.isfile(os.path.join(folder, "trl", "__init__.py")):
        return None
    project: Mapping[str, object] = {}
    if "pyproject.toml" in entries:
        from trl_lint.facts import manifests

        project = manifests.project_of(os.path.join(folder, "pyproject.toml"))
    # Before its pyproject.toml named the project (0.2x), setup.cfg or setup.py did.
    named = project.get("name") == "trl" or any(
        re.search(r"(?m)^\s*name\s*=\s*[\"']?trl\b(?![-.])", _text(os.path.join(folder, name)))
        for name in ("setup.cfg", "setup.py")
        if name in entries
    )
    version = _own_version(folder, project) if named else None
    if version is None:
        return None
    return Fact("trl", f"=={version}", version, "declared", f"this repository ({version})")


def _own_version(folder: str, project: Mapping[str, object]) -> str | None:
    for place in ("VERSION", os.path.join("trl", "VERSION")):
        if version := _text(os.path.join(folder, place)).strip():
            return version
    if isinstance(declared := project.get("version"), str):
        return declared
    written = re.search(r"(?m)^__version__ = [\"']([^\"']+)", _text(os.path.join(folder, "trl", "__init__.py")))
    return written[1] if written else None


def _text(path: str) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""
