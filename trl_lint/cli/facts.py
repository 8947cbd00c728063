"""`trl-lint facts [PATHS]`: paths in; what would be believed of versions and hardware there, and from where, out.

With --probe also what the driver of this machine says, and what of the installed packages cannot work with it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from trl_lint import __version__, facts, settings
from trl_lint.cli import UsageError
from trl_lint.cli.discover import NoSuchPath, discover
from trl_lint.runs import worlds
from trl_lint.sources import look

if TYPE_CHECKING:
    from trl_lint.probe.hardware import Flaw, Machine, Wheel


@dataclass
class _Group:
    """Files of which the same is believed."""

    found: facts.Facts
    paths: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Probed:
    """This machine, torch and vllm of the environment that trains, and what is wrong with them."""

    machine: Machine
    wheels: list[Wheel]
    flaws: list[Flaw]


def run(words: list[str]) -> int:
    """Print the facts of each file that mentions TRL, files with the same facts together."""
    options = _parser().parse_args(words)
    overrides = facts.Overrides(
        {p: v for p in ("trl", "vllm", "transformers") if (v := getattr(options, p)) is not None},
        options.gpu,
        options.python,
    )
    groups = _groups(options.paths or ["."], overrides)
    probed = _probe([group.found for group in groups.values()], options.python) if options.probe else None
    if options.output_format == "json":
        print(_document(groups, probed))
        return 0
    if not groups:
        print("No file here mentions TRL.")
    for lines, group in groups.items():
        paths = group.paths
        shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        print("\n".join([f"{shown}:", *(f"  {line}" for line in lines)]))
    if probed is not None:
        from trl_lint.probe.hardware import describe

        print("\n".join(["this machine:", *(f"  {line}" for line in describe(probed.machine, probed.wheels))]))
        for flaw in probed.flaws:
            print(flaw)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trl-lint facts",
        allow_abbrev=False,
        description="What trl-lint believes of versions and hardware, and from where.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--probe", action="store_true", help="also ask this machine's NVIDIA driver (NVML)")
    for package in ("trl", "vllm", "transformers"):
        parser.add_argument(f"--{package}", metavar="V")
    parser.add_argument("--gpu", metavar="NAME[:N]")
    parser.add_argument("--python", metavar="PATH")
    parser.add_argument("--output-format", choices=("terminal", "json"), default="terminal")
    return parser


def _groups(paths: list[str], overrides: facts.Overrides) -> dict[tuple[str, ...], _Group]:
    """By the lines that describe them. Raises UsageError."""
    grouped: dict[tuple[str, ...], _Group] = {}
    try:
        for path in discover(paths, (), []):
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except FileNotFoundError:  # git tracks it, and it has been deleted
                continue
            if not look.mentions(path, data):
                continue
            found = facts.gather(path, head=data, root=os.getcwd(), overrides=overrides, settings=settings.load(path))
            grouped.setdefault((*_judged(found), *facts.describe(found)), _Group(found)).paths.append(path)
    except NoSuchPath as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    except (settings.SettingsError, facts.FactsError) as error:
        raise UsageError(str(error)) from None
    return grouped


def _judged(found: facts.Facts) -> list[str]:
    """By which world the file is judged, and how many others its pins allow."""
    allowed = worlds(found)
    if allowed.assumed is None:
        return ["judged by no release", *allowed.notes]
    others = len(allowed.candidates) - 1
    also = f"; {others} other TRL release{'' if others == 1 else 's'} also fit" if others else ""
    return [
        f"judged by trl {allowed.assumed.version} ({allowed.origin}) with transformers {allowed.assumed.transformers or 'unknown'}{also}",
        *allowed.notes,
    ]


# -- this machine ------------------------------------------------------------------------------------------------------


def _probe(believed: list[facts.Facts], python: str | None) -> _Probed:
    from trl_lint.probe import hardware

    machine = hardware.look()
    installed = next(filter(None, (hardware.wheels(folders) for folders in _environments(believed, python))), [])
    stated = {found.processes for found in believed if found.processes is not None}
    taken = machine.taken(stated.pop() if len(stated) == 1 else None)
    return _Probed(machine, installed, [*hardware.shared(taken), *hardware.unfit(machine, installed)])


def _environments(believed: list[facts.Facts], python: str | None) -> Iterator[Iterable[str]]:
    """Package folders of what may be the environment that trains: the named one, else the project's, the active, our own."""
    from trl_lint.facts.environment import package_folders, prefix_of

    if python is not None:
        if (prefix := prefix_of(python)) is None:
            raise UsageError(f"--python: {python} is neither an interpreter nor the folder of an environment")
        yield package_folders(prefix)
        return
    for found in believed:
        if found.source_tree is not None:
            yield [found.source_tree]
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if prefix := os.environ.get(variable):
            yield package_folders(prefix)
    yield [folder for folder in sys.path if folder]


# -- JSON --------------------------------------------------------------------------------------------------------------


def _document(groups: dict[tuple[str, ...], _Group], probed: _Probed | None) -> str:
    """`machine` is null without --probe. Memory is in bytes; null is what is not known."""
    import json

    from trl_lint.reports.redaction import redact_all

    document = {
        "version": 1,
        "tool": f"trl-lint {__version__}",
        "groups": [{"files": group.paths, **_believed(group.found)} for group in groups.values()],
        "machine": None,
    }
    if probed is not None:
        machine = probed.machine
        document["machine"] = {
            "gpus": [asdict(gpu) for gpu in machine.gpus],
            "reason": machine.reason,
            "driver": machine.driver,
            "cuda": None if machine.cuda is None else "{}.{}".format(*machine.cuda),
            "peers": [asdict(peers) for peers in machine.peers],
            "seen": [device.place for device in machine.seen],
            "packages": [asdict(wheel) for wheel in probed.wheels],
            "findings": [asdict(flaw) for flaw in probed.flaws],
            "notes": list(machine.notes),
        }
    return json.dumps(redact_all(document), indent=2, ensure_ascii=False)


def _believed(found: facts.Facts) -> dict[str, object]:
    allowed = worlds(found)
    judged = None if allowed.assumed is None else str(allowed.assumed.version)
    packages = {
        name: {
            "version": fact.version,
            "specifier": fact.specifier,
            "commit": fact.commit,
            "state": fact.state,
            "origin": fact.origin,
        }
        for name, fact in found.packages.items()
    }
    return {
        "judged_by": judged,
        "packages": packages,
        "gpu": None if found.hardware is None else asdict(found.hardware),
        "processes": found.processes,
        "notes": [*allowed.notes, *found.notes],
    }
