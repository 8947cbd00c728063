"""`trl-lint facts [PATHS]`: paths in; what would be believed of versions and hardware there, and from where, out."""

from __future__ import annotations

import argparse
import os

from trl_lint import facts, settings
from trl_lint.cli import UsageError
from trl_lint.cli.discover import NoSuchPath, discover
from trl_lint.runs import worlds
from trl_lint.sources import look


def run(words: list[str]) -> int:
    """Print the facts of each file that mentions TRL, files with the same facts together."""
    parser = argparse.ArgumentParser(
        prog="trl-lint facts",
        allow_abbrev=False,
        description="What trl-lint believes of versions and hardware, and from where.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH")
    for package in ("trl", "vllm", "transformers"):
        parser.add_argument(f"--{package}", metavar="V")
    parser.add_argument("--gpu", metavar="NAME[:N]")
    parser.add_argument("--python", metavar="PATH")
    options = parser.parse_args(words)
    overrides = facts.Overrides(
        {p: v for p in ("trl", "vllm", "transformers") if (v := getattr(options, p)) is not None},
        options.gpu,
        options.python,
    )
    grouped: dict[tuple[str, ...], list[str]] = {}
    try:
        for path in discover(options.paths or ["."], (), []):
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except FileNotFoundError:  # git tracks it, and it has been deleted
                continue
            if not look.mentions(path, data):
                continue
            found = facts.gather(path, head=data, root=os.getcwd(), overrides=overrides, settings=settings.load(path))
            grouped.setdefault((*_judged(found), *facts.describe(found)), []).append(path)
    except NoSuchPath as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    except (settings.SettingsError, facts.FactsError) as error:
        raise UsageError(str(error)) from None
    if not grouped:
        print("No file here mentions TRL.")
    for lines, paths in grouped.items():
        shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        print("\n".join([f"{shown}:", *(f"  {line}" for line in lines)]))
    return 0


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
