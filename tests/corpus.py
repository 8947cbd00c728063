"""Public repositories, pinned by commit, judged as they stand: `python -m tests.corpus` prints what the tool says otherwise than recorded.

Recorded is data only: rule, path, line (and cell), one finding a line in `tests/corpus/OWNER+NAME.jsonl`. What a project does not pin
itself is taken from an environment made here, so that a new release changes nothing. Needs git and the public host, or `--mirror`.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORDED = HERE / "corpus"
HOST = "https://github.com"
ENOUGH = 900.0
"""Seconds for one repository to be fetched, and to be judged."""

# What the tool reads: sources, and what states versions. Nothing else is fetched.
PATTERNS = (
    "*.py", "*.ipynb", "*.yaml", "*.yml", "*.sh", "*.bash", "*.slurm", "*.sbatch", "*.mk", "*.dockerfile", "*.toml", "*.cfg", "*.lock",
    "*.txt", "Makefile*", "Dockerfile*", "Containerfile*", ".gitignore", "ds_*.json", "*zero*.json", "*deepspeed*.json",
)  # fmt: skip


class Unreachable(Exception):
    """The repository, or its commit, cannot be had here; one line says why."""


@dataclass(frozen=True)
class Pinned:
    """One repository at one commit; `only` are the folders to judge, all if there are none."""

    name: str
    commit: str
    only: tuple[str, ...] = ()

    @property
    def record(self) -> Path:
        return RECORDED / f"{self.name.replace('/', '+')}.jsonl"


def read(file: Path = HERE / "corpus.toml") -> tuple[tuple[Pinned, ...], Mapping[str, str]]:
    """The repositories, and the versions that count where a project pins nothing."""
    data = tomllib.loads(file.read_text("utf-8"))
    pinned = tuple(Pinned(r["name"], r["commit"], tuple(r.get("only", ()))) for r in data["repository"])
    return pinned, data["installed"]


# Getting -------------------------------------------------------------------------------------------------------------


def checked_out(one: Pinned, folder: Path, mirror: Path | None) -> None:
    """The commit's files that the tool reads, in `folder`. Raises Unreachable."""
    _git(folder, "init", "-q")
    _git(folder, "sparse-checkout", "set", "--no-cone", *PATTERNS)
    if mirror is None:
        _git(folder, "fetch", "-q", "--depth", "1", "--filter=blob:none", f"{HOST}/{one.name}", one.commit, first=True)
        _git(folder, "remote", "add", "origin", f"{HOST}/{one.name}")  # a partial clone asks it for what is checked out
        _git(folder, "config", "remote.origin.promisor", "true")
        _git(folder, "checkout", "-q", one.commit)
        return
    bare = next((path for path in _mirrored(one.name, mirror) if (path / "objects").is_dir()), None)
    if bare is None:
        raise Unreachable(f"not in {mirror}")
    (folder / ".git" / "objects" / "info" / "alternates").write_text(f"{(bare / 'objects').absolute()}\n")
    _git(folder, "cat-file", "-e", f"{one.commit}^{{commit}}", first=True)
    # A mirror may lack its largest files; those that are there are checked out.
    _git(folder, "checkout", "-q", "--force", one.commit, fails=True)


def _mirrored(name: str, mirror: Path) -> Iterator[Path]:
    """Where a bare clone of a repository may be."""
    flat = name.replace("/", "+")
    yield from (mirror / flat / "repo", mirror / f"{flat}.git", mirror / flat, mirror / f"{name}.git", mirror / name)


def _git(folder: Path, *words: str, first: bool = False, fails: bool = False) -> None:
    """Run git. `first` is the command that shows whether the repository can be had; of one that `fails` nothing is asked."""
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_LFS_SKIP_SMUDGE": "1"}
    command = ["git", "-c", "core.autocrlf=false", "-c", "advice.detachedHead=false", *words]
    try:
        done = subprocess.run(
            command, cwd=folder, env=quiet, capture_output=True, text=True, timeout=ENOUGH, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unreachable("git gave no answer") from None
    if done.returncode and not fails:
        lines = done.stderr.strip().splitlines() or ["git failed"]
        said = next((line for line in lines if line.startswith("fatal:")), lines[-1])
        raise Unreachable(said if first else f"git {words[0]}: {said}")


# Judging -------------------------------------------------------------------------------------------------------------


def environment(folder: Path, installed: Mapping[str, str]) -> Path:
    """An environment's metadata, as the tool reads it: it counts only where the project pins nothing else."""
    packages = folder / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("version = 3.11.7\n")
    for name, version in installed.items():
        metadata = packages / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def findings(folder: Path, only: Sequence[str], python: Path) -> list[str]:
    """The findings of a tree as lines of a record, sorted. With `-P` no module of that tree is ever imported.

    They are read from the concise report: what others say of a fix takes longer to find out than all findings.
    """
    command = [
        sys.executable, "-P", "-m", "trl_lint", *only, "--output-format", "concise", "--exit-zero", "--no-cache", "--jobs", "1",
        "--python", str(python),
    ]  # fmt: skip
    unset = ("VIRTUAL_ENV", "CONDA_PREFIX", "GITHUB_ACTIONS")
    told = {k: v for k, v in os.environ.items() if k not in unset} | {"PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, cwd=folder, env=told, capture_output=True, text=True, timeout=ENOUGH, check=False)
    if done.returncode or not done.stdout:
        raise SystemExit(f"trl-lint ended with {done.returncode} in {folder.name}: {done.stderr.strip()[-2000:]}")
    rows = [_row(match) for match in _FINDING.finditer(done.stdout)]
    return [json.dumps(row) for row in sorted(rows, key=lambda r: (r["path"], r.get("cell", 0), r["line"], r["rule"]))]


_FINDING = re.compile(
    r"^(?P<path>.+?):(?:cell (?P<cell>\d+):)?(?P<line>\d+):\d+: (?:error|warning|note)\[(?P<rule>[\w-]+)\] ", re.M
)


def _row(match: re.Match[str]) -> dict[str, Any]:
    cell = {"cell": int(match["cell"])} if match["cell"] is not None else {}
    return {"rule": match["rule"], "path": match["path"], **cell, "line": int(match["line"])}


def judged(one: Pinned, python: Path, mirror: Path | None) -> list[str] | str:
    """The lines of a repository's record, or why it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as made:
        folder = Path(made) / one.name.partition("/")[2]
        folder.mkdir()
        try:
            checked_out(one, folder, mirror)
        except Unreachable as error:
            return str(error)
        return findings(folder, one.only, python)


# The command ---------------------------------------------------------------------------------------------------------


def difference(one: Pinned, now: Sequence[str]) -> list[str]:
    """What is said now and was not, and what was and is not."""
    before = one.record.read_text("utf-8").splitlines() if one.record.exists() else []
    changed = difflib.unified_diff(before, list(now), "recorded", "now", n=0, lineterm="")
    return [line for line in changed if not line.startswith(("---", "+++", "@@"))]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="OWNER/NAME", help="only these repositories")
    parser.add_argument("--mirror", type=Path, metavar="DIR", help="take bare clones of this folder, and no network")
    parser.add_argument("--record", action="store_true", help="write what is found now")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="repositories at a time (default: 2)")
    options = parser.parse_args(words)
    pinned, installed = read()
    chosen = [one for one in pinned if not options.names or one.name in options.names]
    unknown = set(options.names) - {one.name for one in chosen}
    if unknown:
        parser.error(f"not in corpus.toml: {', '.join(sorted(unknown))}")
    missed = differ = found = 0
    with tempfile.TemporaryDirectory(prefix="corpus-") as made, ThreadPoolExecutor(options.jobs) as pool:
        python = environment(Path(made) / "environment", installed)
        for one, now in zip(chosen, pool.map(lambda o: judged(o, python, options.mirror), chosen), strict=True):
            if isinstance(now, str):
                missed += 1
                print(f"{one.name}: not reached: {now}", flush=True)
                continue
            found += len(now)
            changed = difference(one, now)
            differ += bool(changed)
            print(f"{one.name}: {len(now)} findings{', differ:' if changed else ''}", flush=True)
            if options.record:
                RECORDED.mkdir(exist_ok=True)
                one.record.write_text("".join(f"{line}\n" for line in now), "utf-8")
            print("".join(f"  {line}\n" for line in changed), end="", flush=True)
    reached = len(chosen) - missed
    done = "recorded" if options.record else f"{differ} differ"
    print(f"{reached} of {len(chosen)} repositories reached, {found} findings, {done}")
    if not reached:
        print("nothing was compared: no repository can be reached from here", file=sys.stderr)
        return 2
    return int(bool(differ) and not options.record)


if __name__ == "__main__":
    sys.exit(main())
