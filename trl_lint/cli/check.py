"""`trl-lint [check] [PATHS]`: lint, and with --fix rewrite. Words in, a report on stdout and an exit code out."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from trl_lint.cli import UsageError
from trl_lint.cli.discover import NoSuchPath, discover
from trl_lint.cli.options import parser, words_of
from trl_lint.sources import look

if TYPE_CHECKING:
    from trl_lint.cli.cache import Cache
    from trl_lint.rulebook.files import Context, Examined, Sources
    from trl_lint.sources.module import Module
    from trl_lint.sources.text import Text

__all__ = ["Check", "parser", "run"]

T = TypeVar("T")
LARGEST = 5_000_000
MOST_LAUNCHING = 50


def run(words: list[str]) -> int:
    """Run `check`."""
    arguments: list[str] = []
    if "--confirm" in words and "--" in words:
        arguments = words[words.index("--") + 1 :]
        words = words[: words.index("--")]
    options = parser().parse_args(words_of(words))
    options.arguments = arguments
    if options.version:
        from trl_lint import __version__

        print(f"trl-lint {__version__}")
        return 0
    if options.strict:
        options.possible = options.fail_on_skip = True
    options.fix = options.fix or options.unsafe_fixes
    _refuse(options)
    if options.confirm:
        from trl_lint.cli import confirm

        confirm.checked(options)
    if options.show_settings:
        return _show_settings(options)
    return Check(options).run()


def _refuse(options: argparse.Namespace) -> None:
    """Words that contradict each other. Raises UsageError."""
    adding = options.add_ignore is not None
    if adding and (options.fix or options.diff or options.paths == ["-"]):
        raise UsageError("--add-ignore writes comments, and goes with files and without --fix and --diff: fix first")
    if options.write_baseline and (options.diff or adding):
        raise UsageError("--write-baseline records findings: it does not go with --diff and --add-ignore")
    if options.bump_pin and (options.target_trl is None or not (options.fix or options.diff) or options.paths == ["-"]):
        raise UsageError("--bump-pin goes with --target-trl V, with --fix or --diff, and with files")
    if options.statistics and options.output_format not in ("terminal", "concise", "json"):
        raise UsageError("--statistics is printed as text or as JSON: --output-format terminal, concise or json")


def _show_settings(options: argparse.Namespace) -> int:
    from trl_lint import settings

    try:
        for path in options.paths or ["."]:
            print("\n".join(settings.describe(settings.load(path))))
    except settings.SettingsError as error:
        raise UsageError(str(error)) from None
    return 0


class Check:
    """One run of `check`: which files, what they say, what is reported and written."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.skips: list[tuple[str, str]] = []
        self.files = 0
        self.launching: list[tuple[str, bytes]] = []
        self.walked: set[str] = set()
        self.root = os.getcwd()

    def run(self) -> int:
        candidates = list(self.candidates())
        if candidates:
            named = _names_of(p for p, _ in candidates)
            candidates += [x for x in self.launching if _names_any(x[1], named)]
        elif self.launching:
            candidates = [x for x in self.launching[:MOST_LAUNCHING] if self.starts_training(x[1])]
        if candidates:
            candidates = self.kept(candidates)
        if not candidates:
            return self.nothing()
        return self.judge(candidates)

    # the cheap part: bytes -------------------------------------------------------------------------------------------

    def candidates(self) -> Iterable[tuple[str, bytes]]:
        """The files whose bytes mention TRL."""
        if self.options.paths == ["-"]:
            self.files = 1
            data = sys.stdin.buffer.read()
            if look.mentions(self.options.stdin_filename, data):
                yield self.options.stdin_filename, data
            return
        paths = self.options.paths or ["."]
        excluded = [g for glob in self.options.exclude for g in glob.split(",")]
        try:
            for path in discover(paths, excluded, self.skips):
                self.walked.add(path)
                data = self.read(path)
                if data is None:
                    continue
                self.files += 1
                if look.mentions(path, data):
                    yield path, data
                elif look.may_launch(path, data):
                    self.launching.append((path, data))
        except NoSuchPath as error:
            raise UsageError(str(error)) from None

    def starts_training(self, data: bytes) -> bool:
        """Whether a launch file names a script of the project that mentions TRL, though no such script was given."""
        wanted = {os.path.basename(name) for name in look.scripts_in(data)}
        return any(
            os.path.basename(path) in wanted and look.mentions(path, self.quietly(path))
            for path in self.names
            if wanted
        )

    def kept(self, candidates: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """The candidates that the settings do not exclude; asked only once there are any, for it costs an import."""
        from trl_lint import settings
        from trl_lint.cli.discover import matcher

        kept: list[tuple[str, bytes]] = []
        try:
            for path, data in candidates:
                own = settings.load(path)
                inside = os.path.relpath(path, own.folder) if own.folder is not None else path
                if not (own.exclude and matcher(own.exclude)(inside)):
                    kept.append((path, data))
        except settings.SettingsError as error:
            raise UsageError(str(error)) from None
        return kept

    def read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size > LARGEST:
                    self.skips.append((path, f"larger than {LARGEST // 1_000_000} MB"))
                    return None
                return file.read()
        except FileNotFoundError:
            return None  # git tracks it, and it has been deleted
        except OSError as error:
            self.skips.append((path, error.strerror or "cannot be read"))
            return None

    def nothing(self) -> int:
        """No file says anything of TRL: say so without importing what would report it."""
        options = self.options
        if options.output_format not in ("terminal", "concise") or self.skips or options.output_file:
            return self.judge([])
        if options.baseline or options.write_baseline or options.statistics:
            return self.judge([])
        if not self.options.quiet and not self.options.diff:
            print(f"No TRL training found in {self.files} file{'' if self.files == 1 else 's'}.")
        return 0

    # the part that parses ----------------------------------------------------------------------------------------------

    def judge(self, candidates: list[tuple[str, bytes]]) -> int:
        from trl_lint.cli.cache import Cache
        from trl_lint.cli.outcome import Outcome

        cache = Cache(self.root, enabled=not self.options.no_cache and not self.options.fix)
        context = self.context() if candidates else None
        examined: list[Examined] = []
        if context is not None:
            for found in self.examined(candidates, context, cache):
                # Files that nothing is said about are not kept whole: there may be thousands.
                examined.append(found if found.findings or context.target is not None else found.light())
        cache.save()
        return Outcome(self.options, self.files, self.walked, self.skips).finish(examined, context)

    def examined(self, candidates: list[tuple[str, bytes]], context: Context, cache: Cache) -> Iterator[Examined]:
        """Every group of files. A script that no other file has to do with is judged at once, and let go."""
        from trl_lint.cli import reading
        from trl_lint.rulebook.files import Sources, examine, examine_all

        linked = Sources({}, {}, frozenset(p for p, _ in candidates))
        # Whatever may launch a script comes first, so that each script is known to be launched or alone.
        scripts = [c for c in candidates if look.kind_of(c[0]) in ("python", "notebook")]
        for path, text, module in self.modules(
            [c for c in candidates if look.kind_of(c[0]) in ("shell", "recipe")], cache
        ):
            linked.texts[path], linked.modules[path] = text, module
        candidates.clear()
        self.add_context(linked, cache)
        launched = reading.launched(linked.modules.values())
        for path, text, module in self.modules(scripts, cache):
            if reading.linkable(module) or os.path.basename(path) in launched:
                linked.texts[path], linked.modules[path] = text, module
                continue
            found = self.guarded(path, lambda p=path, t=text, m=module: examine(p, t, context, m))  # type: ignore[misc]
            if found is not None:
                yield found
        if linked.modules:
            complete = Sources(linked.texts, linked.modules, linked.given, self.names, lambda p: self.load(p, cache))
            yield from self.guarded(self.root, lambda: list(examine_all(complete, context))) or ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All files of the project, for what commands name."""
        from trl_lint.cli.discover import project_files

        return () if self.options.paths == ["-"] else project_files(self.options.paths or ["."])

    def add_context(self, linked: Sources, cache: Cache) -> None:
        """Files that were not given but launch one that was, or show how to, or parse a recipe that was.

        They are read, and nothing is reported of them alone.
        """
        wanted = _names_of(linked.given)
        kinds = {"shell", "recipe", "notebook"}
        if any(s.kind == "recipe" for m in linked.modules.values() for s in m.sites):
            kinds.add("python")
        budget = LARGEST * 4
        for path in sorted(self.names, key=lambda p: p.endswith(".ipynb")):  # the largest ones last
            kind = look.kind_of(path)
            if path in self.walked or kind not in kinds or path.endswith(".json"):
                continue
            if budget < 0:
                break
            data = self.quietly(path)
            budget -= len(data)
            if kind == "python":
                matters = look.MARK in data and (b"TrlParser" in data or b"HfArgumentParser" in data)
            elif kind == "notebook":
                matters = _starts_any(data, wanted)
            else:
                matters = _names_any(data, wanted) and (look.may_launch(path, data) or look.mentions(path, data))
            if matters:
                self.load_into(linked, path, data, cache)

    def load_into(self, linked: Sources, path: str, data: bytes, cache: Cache) -> None:
        for known, text, module in self.modules([(path, data)], cache, skips=[]):
            linked.texts[known], linked.modules[known] = text, module

    def load(self, path: str, cache: Cache) -> tuple[Text, Module] | None:
        """A file of the project that a command or an import names."""
        from trl_lint.cli import reading

        data = self.quietly(path)
        return reading.named(path, data, cache) if data else None

    def quietly(self, path: str) -> bytes:
        """A context file's bytes; nothing where it cannot be read or is too large to be a script."""
        try:
            if os.path.getsize(path) > LARGEST // 5:
                return b""
            with open(path, "rb") as file:
                return file.read()
        except OSError:
            return b""

    def guarded(self, path: str, do: Callable[[], T]) -> T | None:
        """Judge; whatever it is that a file breaks, the others go on."""
        from trl_lint import facts, settings
        from trl_lint.sources.module import Unparsable

        try:
            return do()
        except (settings.SettingsError, facts.FactsError) as error:
            raise UsageError(str(error)) from None
        except Unparsable as error:
            self.skips.append((path, str(error)))
            return None

    def modules(
        self, candidates: list[tuple[str, bytes]], cache: Cache, skips: list[tuple[str, str]] | None = None
    ) -> Iterator[tuple[str, Text, Module]]:
        """The sites of every file that holds some; what cannot be read is added to `skips`, ours unless told."""
        from trl_lint.cli import reading

        return reading.modules(candidates, cache, self.skips if skips is None else skips, self.options.jobs)

    def context(self) -> Context:
        """What all files are judged by."""
        from trl_lint.cli.judging import context_of

        return context_of(self.options, self.root)

    def group(self, path: str) -> tuple[Examined, Context] | None:
        """The files that one given file is judged with, all to be edited, and what they were judged by; None if it is no
        training."""
        from dataclasses import replace

        from trl_lint.cli.cache import Cache
        from trl_lint.rulebook.files import again

        candidates = list(self.candidates()) or list(self.launching)
        context = replace(self.context(), unused_ignores=False)  # removing a comment is nothing to measure
        name = os.path.normpath(path)
        for found in self.examined(candidates, context, Cache(self.root, enabled=False)):
            if name in found.paths and any(run.method for run in found.runs):
                whole = replace(found, sources=replace(found.sources, given=frozenset(found.paths)))
                return again(whole, {}, context), context
        return None


def _names_of(paths: Iterable[str]) -> tuple[bytes, ...]:
    """What a command must say to start a script or to hand over a recipe: its name, for `-m` without the suffix."""
    names = (os.path.basename(p) for p in paths if look.kind_of(p) in ("python", "recipe"))
    return tuple({os.path.splitext(n)[0].encode() for n in names} - {b"__init__", b"__main__"})


def _starts_any(data: bytes, names: tuple[bytes, ...]) -> bool:
    """Whether one of the names stands as the name of a file or of a module to run. Notebooks are dear to read."""
    found = tuple(name for name in names if name in data)
    if any(name + suffix in data for name in found for suffix in (b".py", b".yaml", b".yml")):
        return True
    return b" -m " in data and any(re.search(rb" -m\s+[\w.]*\b%b\b" % re.escape(name), data) for name in found)


def _names_any(data: bytes, names: tuple[bytes, ...]) -> bool:
    return any(name in data for name in names)
