"""One fuzz target a kind of source: `python -m tests.fuzz.entry KIND [libFuzzer's options]`.

The bytes are a file of that kind; `tests/properties/invariants.py` says what must hold. Half of the changes are libFuzzer's, half
those of `tests/properties/mutations.py`, which know lines, values and comments. Without atheris a plain loop makes the same changes,
blind to coverage.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

SLOW = 60
"""Seconds after which an input counts as one that the tool hangs on: the slowest honest one takes about three."""
LARGEST = 8_000

_atheris: object
try:
    import atheris as _atheris
except ImportError:  # no wheel for this Python: the loop below does
    _atheris = None


def tried(kind: str, data: bytes) -> None:
    """Raises what is to be reported."""
    from tests.properties.invariants import check, one_world
    from tests.properties.texts import KINDS

    check({KINDS[kind]: data}, unsafe=len(data) % 2 == 0, **one_world(data))


def changed(kind: str, data: bytes, seed: int, blindly: Callable[[bytes], bytes]) -> bytes:
    from tests.properties.mutations import mutated

    random = Random(seed)
    if random.random() < 0.5:
        return blindly(data)
    text = data.decode("utf-8", "surrogateescape")
    return mutated(text, kind, random).encode("utf-8", "surrogatepass")[:LARGEST]


def seeds(kind: str, folder: Path, most: int) -> None:
    """Real texts of a kind as files, from here and there, for libFuzzer to begin with: it tries all of them before it looks at
    the clock."""
    from tests.properties.texts import texts

    known = [t for t in texts(kind) if len(t) <= LARGEST]
    for number, text in enumerate(known[:: -(-len(known) // most)]):
        (folder / f"{number:05}").write_bytes(text.encode("utf-8", "surrogatepass"))


def guided(kind: str, words: list[str]) -> None:
    """libFuzzer's loop; it ends the process."""
    import atheris

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        return changed(kind, data, seed, lambda old: bytes(atheris.Mutate(old, largest)))[:largest]

    # libFuzzer cannot see into what is only wrapped: the tool's own code, on its way from bytes to bytes.
    with atheris.instrument_imports(include=["trl_lint.sources", "trl_lint.fixing"]):
        tried(kind, b"# trl\n")
    atheris.Setup(["fuzz", *words], lambda data: tried(kind, data), custom_mutator=mutate)
    atheris.Fuzz()


def blind(kind: str, seconds: float, seed: int) -> int:
    """The same changes without coverage; the number of inputs that were tried. Raises what the first bad one breaks."""
    from tests.properties.texts import texts

    known = [t.encode("utf-8", "surrogatepass") for t in texts(kind) if len(t) <= LARGEST]
    random = Random(seed)
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        data = changed(kind, random.choice(known), random.randrange(2**32), lambda old: _poked(old, random))
        with _kept_if_it_breaks(kind, data):
            tried(kind, data)
        number += 1
    return number


def _poked(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.randbytes(random.choice((0, 1, 1, 2))) + data[at + random.choice((0, 1, 1, 4)) :]


@contextlib.contextmanager
def _kept_if_it_breaks(kind: str, data: bytes) -> Iterator[None]:
    faulthandler.dump_traceback_later(SLOW, exit=True)
    try:
        yield
    except BaseException:
        path = Path(f"crash-{kind}")
        path.write_bytes(data)
        print(f"the input is in {path.absolute()}", file=sys.stderr)
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()


def main(words: list[str]) -> int:
    kind, *options = words
    if options and options[0] == "--file":
        tried(kind, Path(options[1]).read_bytes())
        return 0
    if _atheris is not None and "--blind" not in options:
        guided(kind, options)
    given = dict(option.lstrip("-").split("=", 1) for option in options if "=" in option)
    number = blind(kind, float(given.get("max_total_time", "60")), int(given.get("seed", "0")))
    print(f"{number} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
