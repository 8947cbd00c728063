"""`python -m tests.fuzz --seconds 60 [--kind python] [--seed 0] [--keep DIR] [--blind]`: each kind of source in a process of its own.

Exit code 1 if one of them broke; its input is kept, and `python -m tests.fuzz.entry KIND --file INPUT` tries it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.entry import LARGEST, SLOW, seeds
from tests.properties.texts import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="how long, for all kinds together")
    parser.add_argument("--kind", choices=tuple(KINDS), action="append", help="only this kind; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="libFuzzer's seed; 0 draws one")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="where inputs that break something go")
    parser.add_argument("--blind", action="store_true", help="without atheris, as where it is not installed")
    chosen = parser.parse_args()
    kinds = chosen.kind or list(KINDS)
    blind = chosen.blind or importlib.util.find_spec("atheris") is None
    if blind:
        print("without atheris: changes are drawn, and not led by what they reach (pip install atheris)")
    broken = [
        k for k in kinds if not held(k, max(1, chosen.seconds // len(kinds)), chosen.seed, chosen.keep, blind=blind)
    ]
    print(f"{len(kinds) - len(broken)} passed, {len(broken)} failed")
    return int(bool(broken))


def held(kind: str, seconds: int, seed: int, keep: Path, *, blind: bool) -> bool:
    """Whether nothing broke; what did is printed and kept."""
    keep.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.entry", kind, f"-max_total_time={seconds}", f"-seed={seed}"]
    with tempfile.TemporaryDirectory() as folder:
        if blind:
            command.append("--blind")
        else:
            seeds(kind, Path(folder), max(10, seconds))
            options = (
                f"-max_len={LARGEST}",
                f"-timeout={SLOW}",
                "-rss_limit_mb=4096",
                f"-artifact_prefix={keep}/{kind}-",
            )
            command += [*options, "-print_final_stats=1", folder]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    told = (done.stdout + done.stderr).splitlines()
    said = [line for line in told if "number_of_executed_units" in line or line.endswith(" inputs")]
    print(
        f"{kind}: {'held' if done.returncode == 0 else 'BROKEN'}, {seconds} s, {' '.join(said) or 'no figures'}",
        flush=True,
    )
    if done.returncode:
        print("\n".join(told[-60:]), flush=True)
    if not any(keep.iterdir()):
        keep.rmdir()
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
