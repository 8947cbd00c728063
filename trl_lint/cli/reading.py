"""Files' bytes in, what each says out: from the cache, else parsed, in several processes if there are many."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trl_lint.sources import look
from trl_lint.sources.text import Text, Undecodable

if TYPE_CHECKING:
    from trl_lint.cli.cache import Cache
    from trl_lint.sources.module import Module

PARALLEL_FROM = 24


def modules(
    candidates: list[tuple[str, bytes]], cache: Cache, skips: list[tuple[str, str]], jobs: int
) -> Iterator[tuple[str, Text, Module]]:
    """The sites of every file that holds some. `candidates` is emptied; what cannot be read is added to `skips`."""
    # Trees and sites are made by the hundred thousand and hardly any is garbage: look for it seldom.
    gc.set_threshold(200_000, 20, 100)
    fresh: list[tuple[str, bytes]] = []
    keys: list[bytes] = []
    for path, data in candidates:
        key = cache.key(path, data)
        known = cache.get(key)
        if known is None:
            fresh.append((path, data))
            keys.append(key)
        elif known:
            yield path, Text(path, data), pickle.loads(known)
    candidates.clear()
    for (path, data), key, outcome in zip(fresh, keys, _parsed(fresh, jobs), strict=True):
        if isinstance(outcome, str):
            skips.append((path, outcome))
            continue
        cache.put(key, outcome)
        if outcome is None:
            continue
        try:
            yield path, Text(path, data), outcome
        except Undecodable as error:
            skips.append((path, str(error)))


def _parsed(files: list[tuple[str, bytes]], jobs: int) -> Iterator[Module | str | None]:
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1 or len(files) < PARALLEL_FROM:
        yield from map(parse, files)
        return
    import multiprocessing

    import trl_lint.sources.python  # noqa: F401  the workers inherit it instead of importing it again each

    method = "fork" if "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin" else "spawn"
    with multiprocessing.get_context(method).Pool(jobs) as pool:
        yield from pool.imap(parse, files, chunksize=8)


def named(path: str, data: bytes, cache: Cache) -> tuple[Text, Module] | None:
    """A file that a command or an import of another one names; a package's modules need not mention TRL themselves."""
    key = cache.key(f"named {path}", data)
    known = cache.get(key)
    if known is not None:
        return (Text(path, data), pickle.loads(known)) if known else None
    outcome = parse((path, data), named=True)
    module = None if isinstance(outcome, str) else outcome
    cache.put(key, module)
    return (Text(path, data), module) if module is not None else None


def parse(file: tuple[str, bytes], *, named: bool = False) -> Module | str | None:
    """What one file says: None if nothing, a reason if it cannot be read. Runs in workers too.

    A `named` file is read whole whether it mentions TRL or not: another one asks for it.
    """
    path, data = file
    try:
        text = Text(path, data)
        if look.kind_of(path) == "python" and not look.can_hold_site(text.code) and not named:
            return None
    except (Undecodable, look.TooDeep) as error:
        return str(error)
    from trl_lint.sources.module import Unparsable
    from trl_lint.sources.reading import read

    try:
        module = read(text)
    except Unparsable as error:
        return str(error)
    return module if named or module.sites or module.commands or module.written or linkable(module) else None


def linkable(module: Module) -> bool:
    """Whether other files may have to do with a source: it parses arguments, starts a script or shows how to, or uses or
    defines classes of the project.
    """
    return bool(
        module.parsers
        or any(_starts(w.text or "") for c in (*module.commands, *module.told) for w in c.words)
        or any(s.kind == "elsewhere" for s in module.sites)
        or any(
            b.startswith(("trl.", "transformers.TrainingArguments")) for c in module.classes.values() for b in c.bases
        )
    )


def _starts(word: str) -> bool:
    """Whether a word of a command is a script, a launcher or TRL itself."""
    return word.endswith(".py") or word in ("trl", "vllm", "accelerate", "torchrun", "deepspeed")


def launched(modules: Iterable[Module]) -> set[str]:
    """The names of the scripts that commands start, or prose shows how to."""
    every = (c for m in modules for inner in (m, *m.written.values()) for c in (*inner.commands, *inner.told))
    words = (w.text for c in every for w in c.words)
    return {
        f"{w.rpartition('/')[2].rpartition('.')[2]}.py" if not w.endswith(".py") else os.path.basename(w)
        for w in words
        if w
    }
