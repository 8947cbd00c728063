"""A launch command as text in; how many processes it starts, on which GPUs, and its flags out.

Only commands that the facts state are read here; launch files come as sources of their own.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Launch:
    """One command. None means that the command does not say."""

    program: str | None = None
    processes: int | None = None
    nodes: int | None = None
    gpus: tuple[str, ...] | None = None
    flags: Mapping[str, str | None] = field(default_factory=dict)
    words: tuple[str, ...] = ()


def read(text: str) -> Launch:
    """The launch that a command line describes. Text that no shell would take says nothing."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return Launch()
    environment: dict[str, str] = {}
    while words and words[0].partition("=")[1] and words[0].partition("=")[0].isidentifier():
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if not words:
        return Launch()
    program = words[0].rpartition("/")[2]
    flags = _flags(words[1:])
    processes = _int(
        flags.get("num_processes") or flags.get("nproc_per_node") or flags.get("num_gpus") or flags.get("n")
    )
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = tuple(g for g in visible.split(",") if g) if visible is not None else None
    if program in ("python", "python3"):
        processes = 1
    return Launch(program, processes, _int(flags.get("num_machines") or flags.get("nnodes")), gpus, flags, tuple(words))


def _flags(words: list[str]) -> dict[str, str | None]:
    """`--a b`, `--a=b`, `--a` and `-n b`, dashes read as underscores."""
    found: dict[str, str | None] = {}
    for index, word in enumerate(words):
        if not word.startswith("-") or word in ("-", "--"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        following = words[index + 1] if index + 1 < len(words) else None
        found[name.replace("-", "_")] = (
            value if equals else following if following is not None and not following.startswith("-") else None
        )
    return found


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
