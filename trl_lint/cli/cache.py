"""Bytes in; the sites that the same bytes gave last time out. What cannot be read or written is simply not cached.

A file's sites depend on its bytes, this tool and its knowledge; all three are in the key. Linking and rules always run.
The cache lies in the user's own cache folder and never in the project: it is unpickled, so it must be nobody else's.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from trl_lint import __version__, store

if TYPE_CHECKING:
    from trl_lint.sources.module import Module

NOTHING = b""


@lru_cache(maxsize=1)
def _tool() -> bytes:
    """What the sites of a file depend on besides its bytes: the version, the reading code and the Python."""
    digest = hashlib.blake2b(f"{__version__} {sys.version_info[:2]}".encode(), digest_size=16)
    package = Path(__file__).parent.parent
    for path in (
        package / "model.py",
        *sorted((package / "sources").glob("*.py")),
        package / "knowledge" / "harvested" / "manifest.json",
    ):
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.digest()


class Cache:
    """The cached sites of one folder's files. `NOTHING` stands for a file that holds no site."""

    def __init__(self, root: str, *, enabled: bool) -> None:
        digest = hashlib.blake2b(os.path.abspath(root).encode("utf-8", "surrogateescape"), digest_size=12)
        self.name = f"{digest.hexdigest()}.sites" if enabled else None
        self.entries: dict[bytes, bytes] = {}
        self.used: dict[bytes, bytes] = {}
        found = store.get(self.name) if self.name is not None else None
        if found is None:
            return
        try:
            tool, entries = pickle.loads(found)
        except Exception:  # cut short, or from another version: as good as absent
            return
        if tool == _tool() and isinstance(entries, dict):
            self.entries = entries

    @staticmethod
    def key(path: str, data: bytes) -> bytes:
        """Spans carry their file's name, so the name is part of the key."""
        digest = hashlib.blake2b(path.encode("utf-8", "surrogateescape") + b"\0", digest_size=16)
        digest.update(data)
        return digest.digest()

    def get(self, key: bytes) -> bytes | None:
        found = self.entries.get(key)
        if found is not None:
            self.used[key] = found
        return found

    def put(self, key: bytes, module: Module | None) -> None:
        self.used[key] = pickle.dumps(module, pickle.HIGHEST_PROTOCOL) if module is not None else NOTHING

    def save(self) -> None:
        """Write what this run used, if that is news."""
        if self.name is None or self.used.keys() <= self.entries.keys():
            return
        kept = {**self.entries, **self.used} if len(self.entries) < 20_000 else self.used
        store.put(self.name, pickle.dumps((_tool(), kept), pickle.HIGHEST_PROTOCOL))
