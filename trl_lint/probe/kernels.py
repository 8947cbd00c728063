"""The environment of a trial in; whether it compiled kernels that later runs of it find on the disk, out.

Some kernels are compiled when they are first needed and kept in a folder of the user's: by the CUDA driver (cuDNN's attention
is built for each length of a batch, in a second or two), by Triton, by torch.compile, by vLLM. The first run of a text then pays for
what a training pays once, and its steps say nothing of how fast it is.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

DEPTH = 2
"""Folders within folders in which all caches below file what they keep, so that something new changes one of their times."""


def caches(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where compiled kernels are kept, whether it is there or not.

    Source: CUDA C++ Programming Guide, "CUDA Environment Variables"; triton.knobs; torch._inductor.runtime.cache_dir_utils;
    vllm 0.25.1 vllm/envs.py and vllm/compilation/backends.py.
    """
    home = environment.get("HOME") or os.path.expanduser("~")
    triton = environment.get("TRITON_HOME") or home
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # one without a name
        user = f"uid_{os.getuid()}"
    named = (
        ("CUDA_CACHE_PATH", os.path.join(home, ".nv", "ComputeCache")),
        ("TRITON_CACHE_DIR", os.path.join(triton, ".triton", "cache")),
        (
            "TORCHINDUCTOR_CACHE_DIR",
            os.path.join(environment.get("TMPDIR") or tempfile.gettempdir(), f"torchinductor_{user}"),
        ),
    )
    own = environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    vllm = Path(environment.get("VLLM_CACHE_ROOT") or os.path.join(own, "vllm"), "torch_compile_cache")
    return (*(Path(environment.get(variable) or usual) for variable, usual in named), vllm)


def watch(environment: Mapping[str, str]) -> Callable[[], bool]:
    """Asked later: whether a kernel has been put into one of the caches since."""
    folders = caches(environment)
    before = _changed(folders)
    return lambda: _changed(folders) > before


def _changed(folders: tuple[Path, ...]) -> int:
    """When something came into or went from them last, in ns of the file system's clock; 0 where there is none."""
    return max((time for folder in folders for time in _times(folder, DEPTH)), default=0)


def _times(folder: Path, depth: int) -> Iterator[int]:
    try:
        yield folder.stat().st_mtime_ns
        if depth:
            with os.scandir(folder) as entries:
                inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            for path in inner:
                yield from _times(Path(path), depth - 1)
    except OSError:  # never made, or just removed
        return
