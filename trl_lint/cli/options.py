"""The words of `check`: what may be given, and what is said of each."""

from __future__ import annotations

import argparse

FORMATS = ("terminal", "concise", "json", "github", "gitlab", "junit", "sarif")
SEVERITIES = ("error", "warning", "note")


def parser() -> argparse.ArgumentParser:
    """The options of `check`."""
    made = argparse.ArgumentParser(
        prog="trl-lint", description="Lint TRL training code against the exact release that it runs on.", allow_abbrev=False,
        epilog="Commands: check (the default), facts [PATHS], rules, explain NAME, probe FILE, tune FILE. Exit: 0 nothing at or above --fail-on, 1 something, 2 usage or internal error.",
    )  # fmt: skip
    add = made.add_argument
    add("paths", nargs="*", metavar="PATH", help="files or folders (default: .); - is stdin")
    fixing = made.add_argument_group("fixing")
    fixing.add_argument("--fix", action="store_true", help="rewrite files in place where the fix is safe")
    fixing.add_argument(
        "--unsafe-fixes", action="store_true", help="also write fixes that need consent (implies --fix)"
    )
    fixing.add_argument(
        "--diff",
        action="store_true",
        help="write nothing, show what --fix would write; exit 1 if anything would change",
    )
    fixing.add_argument(
        "--target-trl",
        metavar="V",
        help="judge by TRL V, and with --fix rewrite for it what was written for the release that the pins give",
    )
    fixing.add_argument("--bump-pin", action="store_true", help="with --target-trl: also write V where TRL is pinned")
    proving = made.add_argument_group("confirming (with --fix)")
    proving.add_argument(
        "--confirm",
        action="store_true",
        help="run the named scripts as they are and as fixed on this machine and write only what was confirmed; "
        "what follows -- is given to the script",
    )
    proving.add_argument("--launcher", metavar="WORDS", help="what starts the script, as for probe")
    proving.add_argument("--minutes", metavar="M", help="let the trials end after so many with what there is")
    proving.add_argument("--report", metavar="FILE", help="also write what was measured as one HTML page")
    for name, metavar in (("steps", "N"), ("pairs", "N"), ("trial-minutes", "M"), ("silent-minutes", "M")):
        proving.add_argument(f"--{name}", metavar=metavar, help=argparse.SUPPRESS)
    choosing = made.add_argument_group("rules")
    choosing.add_argument(
        "--select", action="append", default=[], metavar="NAME", help="only these rules or groups (comma separated)"
    )
    choosing.add_argument(
        "--ignore", action="append", default=[], metavar="NAME", help="not these rules or groups (comma separated)"
    )
    choosing.add_argument("--no-ignores", action="store_true", help="disregard ignore comments")
    choosing.add_argument(
        "--add-ignore",
        metavar="REASON",
        help='write an ignore comment at each finding that is left; why, if you wish, as in --add-ignore="known"',
    )
    choosing.add_argument("--baseline", metavar="FILE", help="do not report the findings that FILE records")
    choosing.add_argument("--write-baseline", action="store_true", help="record the findings of now in that file")
    choosing.add_argument("--possible", action="store_true", help="also show what an unknown value would decide")
    facts = made.add_argument_group("facts by hand")
    for package in ("trl", "vllm", "transformers"):
        facts.add_argument(f"--{package}", metavar="V", help=f"the {package} version to judge by")
    facts.add_argument("--gpu", metavar="NAME[:N]", help="the GPU that trains, for example a100:8")
    facts.add_argument("--python", metavar="PATH", help="the environment that trains: an interpreter or a folder")
    output = made.add_argument_group("output")
    output.add_argument("--output-format", choices=FORMATS, default="terminal")
    output.add_argument("--output-file", metavar="FILE")
    output.add_argument("--statistics", action="store_true", help="only how often each rule has found something")
    output.add_argument("--stdin-filename", metavar="NAME", default="stdin.py")
    output.add_argument("--quiet", "-q", action="store_true", help="only the findings")
    output.add_argument(
        "--show-settings", action="store_true", help="print the settings in force and where they come from"
    )
    exits = made.add_argument_group("exit code")
    exits.add_argument("--fail-on", choices=SEVERITIES, help="the least severity that fails (default: warning)")
    exits.add_argument("--exit-zero", action="store_true")
    exits.add_argument("--exit-non-zero-on-fix", action="store_true")
    exits.add_argument("--fail-on-skip", action="store_true", help="exit 2 if a file could not be read")
    exits.add_argument("--strict", action="store_true", help="--possible and --fail-on-skip")
    running = made.add_argument_group("running")
    running.add_argument("--exclude", action="append", default=[], metavar="GLOB")
    running.add_argument(
        "--jobs", "-j", type=int, default=0, metavar="N", help="processes (default: as many as there are processors)"
    )
    running.add_argument("--no-cache", action="store_true")
    add("--version", action="store_true", help="print the version")
    return made


def words_of(given: list[str]) -> list[str]:
    """The words with `--add-ignore` as the option without a reason that it may be: argparse would take a path for one."""
    return ["--add-ignore=" if word == "--add-ignore" else word for word in given]


def names(given: list[str]) -> tuple[str, ...]:
    """The names of an option that may be repeated, each time with several of them."""
    return tuple(name.strip() for part in given for name in part.split(",") if name.strip())
