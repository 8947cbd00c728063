"""A temporary folder out; it goes when the probe and all its supervisors have gone, however they go, SIGKILL included.

A process of its own waits for the end of a pipe whose other end the probe and each supervisor hold, and then removes the
folder. The programs that a supervisor runs do not hold it, so nothing that is still being ended writes there any more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

_REMOVE = 'cat > /dev/null; rm -rf -- "$1"'


class Scratch:
    """A context manager. `folder` is there from the start to the end; `hold` is the descriptor to pass to supervisors."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trl-lint-probe-"))
        ours, self.hold = os.pipe()
        try:
            # A session of its own: what the terminal says to the probe is not meant for it.
            self._remover = subprocess.Popen(
                ["/bin/sh", "-c", _REMOVE, "sh", str(self.folder)],
                stdin=ours, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(ours)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder, what is left of it included that another process is just writing."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.hold)
        self._remover.wait()
