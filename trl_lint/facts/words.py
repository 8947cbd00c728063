"""The words of this room, as frozen values, and the small helpers that every reader of it needs; nothing is parsed here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

State: TypeAlias = Literal["declared", "installed", "not-installed"]


class FactsError(ValueError):
    """A fact given by hand, on the command line or in the settings, that cannot be read: a usage error, one line."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What is believed of one package's version.

    `package` is the canonical name ("liger-kernel"), `extras` what it is asked for with, `specifier` PEP 440 text ("" allows any), `version` the exact one
    when there is exactly one. `commit` is the ref of a git pin ("main", "HEAD", a hash).
    """

    package: str
    specifier: str
    version: str | None
    state: State
    origin: str
    commit: str | None = None
    extras: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hardware:
    """`gpu` as it was written ("A100-80GB", "none" for a CPU), `count` the GPUs that the training sees."""

    gpu: str | None
    count: int | None
    origin: str


@dataclass(frozen=True, slots=True)
class Stated:
    """A command line that the facts comment of a file states; `before` are the file's bytes up to it, b"" if not known."""

    text: str
    before: bytes = b""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is believed for one file. None means unknown; a package that nothing mentions is absent.

    `source_tree` is the folder that holds `trl/__init__.py` of a TRL whose source may be read: TRL's own repository,
    or the installed one of the environment that trains; `source_version` is that TRL's version.
    """

    packages: Mapping[str, Fact]
    hardware: Hardware | None = None
    processes: int | None = None
    nodes: int | None = None
    zero_stage: int | None = None
    processes_origin: str | None = None
    launch: Stated | None = None
    server: Stated | None = None
    accelerate: str | None = None
    trainer: str | None = None
    parser: str | None = None
    notes: tuple[str, ...] = ()
    source_tree: str | None = None
    source_version: str | None = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """Facts of the command line: package name to version text, `gpu` as "a100:8", `python` as an interpreter or folder."""

    packages: Mapping[str, str] = field(default_factory=dict)
    gpu: str | None = None
    python: str | None = None


# Locks and environments hold hundreds of packages and only these can matter to a training run: the rest is not parsed.
WATCHED = frozenset(
    (
        *("accelerate", "bitsandbytes", "causal-conv1d", "datasets", "deepspeed", "flash-attn", "flash-attn-3"),
        *("flash-linear-attention", "kernels", "liger-kernel", "llm-blender", "mamba-ssm", "math-verify", "mergekit"),
        *("optimum", "peft", "sglang", "torch", "torchao", "transformers", "trl", "unsloth", "unsloth-zoo", "vllm"),
        "xformers",
    )
)

_SEPARATORS = r"[-_.]+"


def canonical(name: str) -> str:
    """PEP 503's normal form; the same as `packaging.utils.canonicalize_name`, without importing it."""
    return re.sub(_SEPARATORS, "-", name).lower()


def says(fact: Fact) -> bool:
    """False for a bare "trl": a dependency that tells no version leaves the word to whoever does."""
    return bool(fact.specifier or fact.version or fact.commit or fact.state != "declared")


def shown(path: str, root: str) -> str:
    """`path` as a report names it: relative to the project root when inside it."""
    inside = path.startswith(os.path.join(root, ""))
    return os.path.relpath(path, root).replace(os.sep, "/") if inside else path


def read_text(path: str) -> str:
    """A text file with line ends as \\n. Raises OSError; bytes that are no UTF-8 become U+FFFD."""
    with open(path, "rb") as file:
        data = file.read()
    # `pip freeze > requirements.txt` in PowerShell writes UTF-16.
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, "replace").replace("\r\n", "\n")


def line_of(text: str, written: str, start: int = 0) -> int:
    """The 1-based line of a string literal `written` from offset `start`; 1 when it does not stand there as such."""
    places = (text.find(form, start) for form in (f'"{written}"', f"'{written}'"))
    return line_at(text, next((place for place in places if place >= 0), 0))


def line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
