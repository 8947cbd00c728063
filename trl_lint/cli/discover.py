"""Paths as a person gives them in; the files to read out, as git sees them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from trl_lint.sources.look import NAMES, SUFFIXES, is_read

_NEVER = frozenset(
    {"__pycache__", "node_modules", "site-packages", ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv"}
)


class NoSuchPath(Exception):
    """A path that is not there."""


def discover(paths: Iterable[str], excluded: Iterable[str], skipped: list[tuple[str, str]]) -> Iterator[str]:
    """Every file to look at, once, in order. Files named outright are looked at if we can read their kind.

    Raises NoSuchPath. What cannot be entered is added to `skipped` with the reason.
    """
    excludes = matcher(tuple(excluded))
    seen: set[str] = set()
    for path in paths:
        if not os.path.lexists(path):
            raise NoSuchPath(f"{path}: no such file or directory")
        if not os.path.isdir(path):
            name = os.path.normpath(path)  # named outright: also a DeepSpeed JSON, and a script without a suffix
            if name not in seen and (is_read(name) or _is_ours(path)) and not excludes(name):
                seen.add(name)
                yield name
            continue
        plain = path in (".", "./")
        for file in sorted(_walk(path, skipped)):
            name = file if plain and not file.startswith("./") else os.path.normpath(file)
            if is_read(name) and name not in seen and not excludes(name):
                seen.add(name)
                yield name


def _walk(folder: str, skipped: list[tuple[str, str]]) -> Iterable[str]:
    listed = _git(folder)
    return listed if listed is not None else _by_hand(folder, skipped)


@lru_cache(maxsize=8)
def _git(folder: str) -> list[str] | None:
    """The files of a folder that git tracks or would track; None outside a repository or without git.

    What is tracked may have been deleted since: to ask for each of ten thousand files costs as much as to read them.

    None as well for a folder that git ignores as a whole: whoever names it wants it looked at.
    """
    listed = _ask_git(
        folder,
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
        "--",
        *(f"*{s}" for s in SUFFIXES),
        *(f"*{n}*" for n in NAMES),
    )
    if listed is None or (not listed and _ask_git(folder, "check-ignore", "-q", ".") is not None):
        return None
    prefix = "" if folder in (".", "./") else folder
    names = [os.fsdecode(n) for n in listed.split(b"\0") if n]
    return [os.path.join(prefix, n) for n in names] if prefix else names


def _ask_git(folder: str, *words: str) -> bytes | None:
    """What git prints; None if it cannot be run or says no."""
    try:
        done = subprocess.run(
            ["git", "-c", "core.quotepath=off", "-C", folder, *words], capture_output=True, check=False
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _by_hand(folder: str, skipped: list[tuple[str, str]]) -> Iterator[str]:
    """A walk that follows no links, skips what no project writes itself, and honours .gitignore files at the top."""
    ignored = matcher(tuple(_lines(os.path.join(folder, ".gitignore"))))
    for root, folders, files in os.walk(
        folder, onerror=lambda e: skipped.append((str(e.filename), e.strerror or "cannot be read"))
    ):
        folders[:] = [
            f
            for f in folders
            if f not in _NEVER and not f.startswith(".") and not os.path.exists(os.path.join(root, f, "pyvenv.cfg"))
        ]
        for file in files:
            path = os.path.join(root, file)
            if (is_read(file) or file.endswith(tuple(SUFFIXES))) and not ignored(os.path.relpath(path, folder)):
                yield path


def project_files(paths: Iterable[str]) -> tuple[str, ...]:
    """Every file of the projects that the paths lie in that a launch may name, relative to this folder."""
    found: dict[str, None] = {}
    for root in dict.fromkeys(project_of(p) for p in paths):
        shown = os.path.relpath(root)
        for path in _walk(shown, []):
            found.setdefault(os.path.normpath(path))
    return tuple(found)


def project_of(path: str) -> str:
    """The folder of the repository that a path lies in, else the highest above it that looks like a project's."""
    folder = os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path) or ".")
    best, above = folder, folder
    while True:
        if os.path.exists(os.path.join(above, ".git")):
            return above
        if any(os.path.exists(os.path.join(above, n)) for n in ("pyproject.toml", "setup.py", "requirements.txt")):
            best = above
        parent = os.path.dirname(above)
        if parent == above:
            return best
        above = parent


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


@lru_cache(maxsize=64)
def matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a path is matched by gitignore-style patterns."""
    given = [p for p in patterns if p.strip()]
    if not given:
        return lambda path: False
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(given).match_file


def _is_ours(path: str) -> bool:
    """A file of a kind that no walk reads, or one without a suffix that says it is Python in its first line."""
    if path.endswith(tuple(SUFFIXES)):
        return True
    if "." in os.path.basename(path):
        return False
    try:
        with open(path, "rb") as file:
            first = file.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first
