"""Bytes and a path in; the file replaced whole, or left as it was, out."""

from __future__ import annotations

import os
import tempfile


class NotWritten(OSError):
    """The file was left as it was; one line says why."""


def replace_file(path: str, expected: bytes, new: bytes) -> None:
    """Replace `path`, which must still hold `expected`: a temporary file beside it, then one rename. The mode is kept.

    Raises NotWritten.
    """
    target = os.path.realpath(path)  # a link stays a link: what it points at is replaced
    try:
        with open(target, "rb") as file:
            if file.read() != expected:
                raise NotWritten(f"{path}: changed while it was being read; nothing written, run again")
        mode = os.stat(target).st_mode
        handle, temporary = tempfile.mkstemp(prefix=".trl-lint-", dir=os.path.dirname(target) or ".")
    except NotWritten:
        raise
    except OSError as error:
        raise NotWritten(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode & 0o7777)
        os.replace(temporary, target)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise NotWritten(f"{path}: cannot be written: {error.strerror}") from None
