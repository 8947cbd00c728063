"""Releases in, the tables of `harvested/` out: `python -m trl_lint.knowledge harvest`.

Without releases, every recorded one is read again; the tables themselves hold the list. The same wheels give the same
bytes. `--check` writes nothing and says what differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from packaging.version import InvalidVersion, Version

from trl_lint.knowledge import fold, index, package_readers, trl_reader
from trl_lint.knowledge.index import HarvestError
from trl_lint.knowledge.load import HARVESTED, PACKAGES
from trl_lint.knowledge.metadata import described
from trl_lint.knowledge.source import Source

Facts: TypeAlias = dict[str, Any]
Release: TypeAlias = tuple[str | None, Facts]

WHEELS: Final[Mapping[str, Callable[[Source], Facts]]] = {
    "trl": trl_reader.read,
    "transformers": package_readers.read_transformers,
    "liger-kernel": package_readers.read_liger,
}
"""Packages whose source is read; of the others only the metadata is."""

PINNED: Final = frozenset({"torch", "transformers", "flashinfer-python", "xformers", "huggingface-hub"})
"""The requirements of those others that can clash with a training environment."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; 0, or 1 when `--check` finds a difference, or 2 when something cannot be read."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except HarvestError as error:
        print(f"harvest: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trl_lint.knowledge", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    harvest = commands.add_parser("harvest", help="read releases into the tables")
    harvest.add_argument(
        "releases", nargs="*", metavar="RELEASE", help="PACKAGE==VERSION, or VERSION of trl; all recorded ones if none"
    )
    harvest.add_argument(
        "--add", nargs="+", action="append", default=[], metavar=("PACKAGE", "VERSION"), help="more releases"
    )
    harvest.add_argument(
        "--wheels", nargs="+", action="extend", default=[], type=Path, metavar="DIR", help="look here first"
    )
    harvest.add_argument("--keep", type=Path, metavar="DIR", help="keep what is downloaded here")
    harvest.add_argument("--check", action="store_true", help="write nothing, say what differs")
    harvest.add_argument("--tables", type=Path, default=HARVESTED, metavar="DIR", help="the folder of the tables")
    return parser


def _run(options: argparse.Namespace) -> int:
    wanted = _wanted(options.releases, options.add)
    tables = {package: _recorded(options.tables, package) for package in PACKAGES}
    everything = not wanted
    if everything:
        wanted = {package: list(table["releases"]) for package, table in tables.items() if table}
    with tempfile.TemporaryDirectory() as scratch:
        keep = options.keep or Path(scratch)
        keep.mkdir(parents=True, exist_ok=True)
        fetch = partial(gather, folders=options.wheels, keep=keep)
        read = {package: fetch(package, versions) for package, versions in wanted.items()}
        if not options.check:
            _write(
                options.tables, {package: _merged(package, tables[package], found) for package, found in read.items()}
            )
            return 0
        found = [line for package, facts in read.items() for line in _differences(package, tables[package], facts)]
        found += _stale_manifest(options.tables)
        for line in found:
            print(line)
        if not found:
            print(f"current: {', '.join(f'{len(facts)} {package}' for package, facts in read.items())} releases")
        for line in _news(tables, fetch):
            print(line)
    return 1 if found else 0


def gather(package: str, versions: Sequence[str], folders: Sequence[Path], keep: Path) -> dict[str, Release]:
    """The date and the facts of every release asked for."""
    if package not in WHEELS:
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda version: index.metadata(package, version, folders, keep), versions)
            return {version: (None, _slim(metadata)) for version, metadata in zip(versions, found, strict=True)}
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda version: index.wheel(package, version, folders, keep), versions))
    if len(paths) < 3:
        return dict(zip(versions, map(partial(_read, package), paths), strict=True))
    with ProcessPoolExecutor() as pool:
        return dict(zip(versions, pool.map(partial(_read, package), paths), strict=True))


def _read(package: str, path: Path) -> Release:
    source = Source.wheel(path)
    try:
        return source.date, WHEELS[package](source)
    except (KeyError, AssertionError, StopIteration, SyntaxError) as error:
        raise HarvestError(f"{path.name} is not laid out as the reader expects ({error!r})") from error


def _slim(metadata: Mapping[str, Any]) -> Facts:
    python = metadata.get("requires_python")
    facts = described(metadata.get("requires_dist", []), [python] if python else [])
    core = {package: lines for package, lines in facts["requires"].get("", {}).items() if package in PINNED}
    return {**facts, "requires": {"": core} if core else {}}


def _wanted(releases: Iterable[str], added: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    pairs = [tuple(reversed(text.rpartition("==")[::2])) for text in releases]
    pairs += [(version, package) for package, *versions in added for version in versions]
    wanted: dict[str, list[str]] = {}
    for version, package in pairs:
        name = package or "trl"
        if name not in PACKAGES:
            raise HarvestError(f"{name} is not a package that is harvested: {', '.join(PACKAGES)} are")
        try:
            Version(version)
        except InvalidVersion:
            raise HarvestError(f"{version!r} is not a version") from None
        wanted.setdefault(name, []).append(version)
    return wanted


def _recorded(folder: Path, package: str) -> dict[str, Any]:
    path = folder / f"{package}.json"
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    apart = folder / f"{package}-guards.json"
    if apart.is_file():
        table["guards"] = json.loads(apart.read_text(encoding="utf-8"))["guards"]
    if table and table["format"] != fold.FORMAT:
        raise HarvestError(f"{path} has format {table['format']}, this program reads and writes {fold.FORMAT}")
    return table


def _merged(package: str, table: Mapping[str, Any], found: Mapping[str, Release]) -> dict[str, Any]:
    """The table with the found releases put in, or put anew."""
    rows: dict[str, Release] = {}
    if table and not set(table["releases"]) <= set(found):
        listed = zip(table["releases"], table["dates"], strict=True)
        rows = {version: (date, fold.released(package, table, i)) for i, (version, date) in enumerate(listed)}
    rows |= found
    ordered = sorted(rows, key=Version)
    return fold.table(package, [(version, *rows[version]) for version in ordered])


def _write(folder: Path, tables: Mapping[str, Mapping[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for package, table in tables.items():
        # Few runs ask for guards, and then for those of two classes: they stand apart, a class in a line.
        main = {key: value for key, value in table.items() if key != "guards"}
        (folder / f"{package}.json").write_text(fold.dump(main), encoding="ascii", newline="\n")
        if "guards" in table:
            apart = {key: table[key] for key in ("format", "releases", "guards")}
            text = fold.dump(apart, depth=2)
            (folder / f"{package}-guards.json").write_text(text, encoding="ascii", newline="\n")
        print(f"{package}: {len(table['releases'])} releases, {table['releases'][0]} to {table['releases'][-1]}")
    (folder / "manifest.json").write_text(_manifest(folder), encoding="ascii", newline="\n")


def _manifest(folder: Path) -> str:
    entries = {}
    for path in sorted(folder.glob("*.json")):
        if path.name != "manifest.json":
            content = path.read_bytes()
            listed = json.loads(content)["releases"]
            entries[path.stem] = {
                "newest": listed[-1],
                "releases": len(listed),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
    return json.dumps({"format": fold.FORMAT, "tables": entries}, indent=1, sort_keys=True) + "\n"


def _stale_manifest(folder: Path) -> list[str]:
    path = folder / "manifest.json"
    current = path.is_file() and path.read_text(encoding="ascii") == _manifest(folder)
    return [] if current else [f"{path.name} does not describe the tables beside it"]


def _differences(package: str, table: Mapping[str, Any], found: Mapping[str, Release]) -> Iterator[str]:
    """One line for everything that the tables say otherwise than the releases do."""
    listed = list(table["releases"]) if table else []
    for version, (date, facts) in found.items():
        if version not in listed:
            yield f"{package} {version} is not recorded"
            continue
        at = listed.index(version)
        recorded = fold.released(package, table, at)
        for path, text in changes(recorded, _normal(facts)):
            yield f"{package} {version}: {path}: recorded {text}"
        if date != table["dates"][at]:
            yield f"{package} {version}: date: recorded {table['dates'][at]} -> {date}"


def changes(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted path, "old -> new") wherever two facts differ; lists of names are compared as sets."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from changes(old.get(key, fold.ABSENT), new.get(key, fold.ABSENT), f"{path}.{key}".lstrip("."))
    elif old is fold.ABSENT or new is fold.ABSENT:
        yield path, f"nothing -> {_short(new)}" if old is fold.ABSENT else f"{_short(old)} -> nothing"
    elif old != new and _names(old) and _names(new) and set(old) != set(new):
        gained, lost = sorted(set(new) - set(old)), sorted(set(old) - set(new))
        yield path, " ".join([*(f"+{name}" for name in gained), *(f"-{name}" for name in lost)])
    elif old != new:
        yield path, f"{_short(old)} -> {_short(new)}"


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 160 else text[:157] + "..."


def _normal(facts: Facts) -> Facts:
    normal: Facts = json.loads(json.dumps(facts))
    return normal


def _news(
    tables: Mapping[str, Mapping[str, Any]], fetch: Callable[[str, Sequence[str]], dict[str, Release]]
) -> Iterator[str]:
    """What releases newer than the recorded ones would change. Silence of the index is said, and is no failure."""
    for package, table in tables.items():
        if not table:
            continue
        try:
            yield from _newer(package, table, fetch)
        except HarvestError as error:
            yield f"newer releases of {package} are not known: {error}"


def _newer(
    package: str, table: Mapping[str, Any], fetch: Callable[[str, Sequence[str]], dict[str, Release]]
) -> Iterator[str]:
    newest = table["releases"][-1]
    newer = sorted((v for v in index.versions(package) if Version(v) > Version(newest)), key=Version)
    if not newer:
        yield f"{package}: {newest} is the newest release"
        return
    yield f"{package}: newer than {newest}: {', '.join(newer)}"
    last = fold.released(package, table, len(table["releases"]) - 1)
    for version, (_, facts) in fetch(package, newer).items():
        now = _normal(facts)
        for path, text in changes(_public(last), _public(now)):
            yield f"  {version}: {path}: {text}"
        last = now


def _public(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The facts that a script can depend on: of the modules to import from, only the top one."""
    exports = facts.get("exports", {})
    return {**facts, "exports": {name: exports[name] for name in exports if name == "trl"}}
