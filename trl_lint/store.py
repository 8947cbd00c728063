"""The user's cache folder: bytes in under a name, the same bytes out in a later run, or nothing.

It lies in the user's own cache and never in a project. A disk that cannot be written, or a file cut short, is no error.
"""

from __future__ import annotations

import os
import tempfile


def folder() -> str:
    """Where caches of this user lie."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("TRL_LINT_CACHE_DIR") or os.path.join(base, "trl-lint")


def get(name: str) -> bytes | None:
    """What was put under `name`; None if nothing was."""
    try:
        with open(os.path.join(folder(), name), "rb") as file:
            return file.read()
    except OSError:
        return None


def put(name: str, data: bytes) -> None:
    """Keep `data` under `name`, replacing it whole or not at all."""
    target = os.path.join(folder(), name)
    try:
        os.makedirs(folder(), exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder())
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, target)
    except OSError:
        pass
