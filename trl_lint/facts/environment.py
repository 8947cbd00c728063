"""A Python environment's folder in; out the versions installed there, read from file names and never by running it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from trl_lint.facts.words import WATCHED, canonical

# `<name>-<version>.dist-info` by the wheel specification; setuptools' older form may add "-py3.11".
_METADATA = r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info"


@dataclass(frozen=True, slots=True)
class Environment:
    """What is installed: watched packages only. `tree` is the folder that holds `trl/__init__.py`, `commit` a git build's."""

    prefix: str
    versions: Mapping[str, str]
    tree: str | None = None
    commit: str | None = None


@cache
def read_environment(prefix: str) -> Environment | None:
    """The environment at a folder, or None when it does not hold TRL: then it is not the one that trains."""
    versions: dict[str, str] = {}
    homes: dict[str, str] = {}
    for folder in package_folders(prefix):
        for name in _listed(folder):
            found = re.fullmatch(_METADATA, name)
            if found and (package := canonical(found["name"])) in WATCHED:
                # The first folder of the path wins, as it does for Python.
                versions.setdefault(package, found["version"])
                homes.setdefault(package, os.path.join(folder, name))
    if "trl" not in versions:
        return None
    tree, commit = _where_from(homes["trl"])
    return Environment(prefix, versions, tree, commit)


def prefix_of(python: str) -> str | None:
    """The folder of an environment from what a person calls it: an interpreter, its name on PATH, or the folder."""
    if os.path.isdir(python):
        inside = os.path.basename(os.path.normpath(python)) in ("bin", "Scripts")
        return os.path.dirname(os.path.abspath(python)) if inside else os.path.abspath(python)
    if os.sep not in python:
        import shutil

        python = shutil.which(python) or python
    if not os.path.isfile(python):
        return None
    # `bin/python` of a virtual environment is a link out of it, so links are not followed.
    folder = os.path.dirname(os.path.abspath(python))
    return os.path.dirname(folder) if os.path.basename(folder) in ("bin", "Scripts") else folder


def package_folders(prefix: str) -> Iterator[str]:
    """Where packages of an environment may stand, those that Python looks at first before the others."""
    if os.path.realpath(prefix) == os.path.realpath(sys.prefix):
        yield from (path for path in sys.path if path)  # our own also has PYTHONPATH
    yield prefix  # a site-packages folder itself
    yield os.path.join(prefix, "Lib", "site-packages")
    # Debian's system Python installs below `local`, and calls the folder dist-packages.
    for library in ("lib", "lib64", "local/lib"):
        for python in sorted(_listed(os.path.join(prefix, library)), reverse=True):
            if python.startswith("python3"):
                yield os.path.join(prefix, library, python, "site-packages")
                yield os.path.join(prefix, library, python, "dist-packages")


def _where_from(metadata: str) -> tuple[str | None, str | None]:
    """Where TRL's source stands and, by PEP 610's direct_url.json, the commit or the checkout it was installed from."""
    import json
    from urllib.parse import unquote, urlsplit

    tree = os.path.dirname(metadata)
    commit: str | None = None
    try:
        with open(os.path.join(metadata, "direct_url.json"), "rb") as file:
            direct = json.load(file)
        if "vcs_info" in direct:
            commit = str(direct["vcs_info"]["commit_id"])
        elif direct.get("dir_info", {}).get("editable"):
            tree = unquote(urlsplit(direct["url"]).path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # no such record, or one that pip did not write: then it came from an index
    for folder in (tree, os.path.join(tree, "src")):
        if os.path.isfile(os.path.join(folder, "trl", "__init__.py")):
            return folder, commit
    return None, commit


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
