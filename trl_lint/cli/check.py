"""`trl-lint [check] [PATHS]`: lint, and with --fix rewrite. Words in, a report on stdout and an exit code out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from trl_lint.cli import UsageError
from trl_lint.cli.discover import NoSuchPath, discover
from trl_lint.sources import look

if TYPE_CHECKING:
    from trl_lint.cli.cache import Cache
    from trl_lint.fixing import Fixed
    from trl_lint.model import Finding, Report, Skip
    from trl_lint.rulebook.files import Context, Examined
    from trl_lint.sources.module import Module
    from trl_lint.sources.text import Text

LARGEST = 5_000_000
FORMATS = ("terminal", "concise", "json", "github", "sarif")
SEVERITIES = ("error", "warning", "note")
PARALLEL_FROM = 24


def parser() -> argparse.ArgumentParser:
    """The options of `check`."""
    made = argparse.ArgumentParser(
        prog="trl-lint", description="Lint TRL training code against the exact release that it runs on.", allow_abbrev=False,
        epilog="Commands: check (the default), facts [PATHS], rules, explain NAME. Exit: 0 nothing at or above --fail-on, 1 something, 2 usage or internal error.",
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
    choosing = made.add_argument_group("rules")
    choosing.add_argument(
        "--select", action="append", default=[], metavar="NAME", help="only these rules or groups (comma separated)"
    )
    choosing.add_argument(
        "--ignore", action="append", default=[], metavar="NAME", help="not these rules or groups (comma separated)"
    )
    choosing.add_argument("--no-ignores", action="store_true", help="disregard ignore comments")
    choosing.add_argument("--possible", action="store_true", help="also show what an unknown value would decide")
    facts = made.add_argument_group("facts by hand")
    for package in ("trl", "vllm", "transformers"):
        facts.add_argument(f"--{package}", metavar="V", help=f"the {package} version to judge by")
    facts.add_argument("--gpu", metavar="NAME[:N]", help="the GPU that trains, for example a100:8")
    facts.add_argument("--python", metavar="PATH", help="the environment that trains: an interpreter or a folder")
    output = made.add_argument_group("output")
    output.add_argument("--output-format", choices=FORMATS, default="terminal")
    output.add_argument("--output-file", metavar="FILE")
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


def run(words: list[str]) -> int:
    """Run `check`."""
    options = parser().parse_args(words)
    if options.version:
        from trl_lint import __version__

        print(f"trl-lint {__version__}")
        return 0
    if options.strict:
        options.possible = options.fail_on_skip = True
    options.fix = options.fix or options.unsafe_fixes
    if options.show_settings:
        return _show_settings(options)
    return _Check(options).run()


def _show_settings(options: argparse.Namespace) -> int:
    from trl_lint import settings

    try:
        for path in options.paths or ["."]:
            print("\n".join(settings.describe(settings.load(path))))
    except settings.SettingsError as error:
        raise UsageError(str(error)) from None
    return 0


class _Check:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.skips: list[tuple[str, str]] = []
        self.files = 0
        self.root = os.getcwd()
        self.internal_error = False

    def run(self) -> int:
        candidates = list(self.candidates())
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
            if look.mentions(data):
                yield self.options.stdin_filename, data
            return
        paths = self.options.paths or ["."]
        excluded = [g for glob in self.options.exclude for g in glob.split(",")]
        try:
            for path in discover(paths, excluded, self.skips):
                self.files += 1
                data = self.read(path)
                if data is not None and look.mentions(data):
                    yield path, data
        except NoSuchPath as error:
            raise UsageError(str(error)) from None

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
            if os.path.getsize(path) > LARGEST:
                self.skips.append((path, f"larger than {LARGEST // 1_000_000} MB"))
                return None
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            self.skips.append((path, error.strerror or "cannot be read"))
            return None

    def nothing(self) -> int:
        """No file says anything of TRL: say so without importing what would report it."""
        if self.options.output_format not in ("terminal", "concise") or self.skips or self.options.output_file:
            return self.judge([])
        if not self.options.quiet and not self.options.diff:
            print(f"No TRL training found in {self.files} file{'' if self.files == 1 else 's'}.")
        return 0

    # the part that parses ----------------------------------------------------------------------------------------------

    def judge(self, candidates: list[tuple[str, bytes]]) -> int:
        from trl_lint.cli.cache import Cache

        cache = Cache(self.root, enabled=not self.options.no_cache and not self.options.fix)
        context = self.context() if candidates else None
        examined: list[Examined] = []
        if context is not None:
            from trl_lint.rulebook.files import examine

            for path, text, module in self.modules(candidates, cache):
                try:
                    found = self.guarded(lambda p=path, t=text, m=module: examine(p, t, context, m))  # type: ignore[misc]
                except _Skipped as skip:
                    self.skips.append((path, str(skip)))
                    continue
                # A file that nothing is said about is not kept whole: there may be thousands.
                examined.append(found if found.findings else found.light())
        cache.save()
        return self.finish(examined, context)

    def guarded(self, do: Callable[[], Examined]) -> Examined:
        """Run one file; whatever it is that this file breaks, the others go on."""
        from trl_lint import facts, settings
        from trl_lint.sources.module import Unparsable

        try:
            return do()
        except (settings.SettingsError, facts.FactsError) as error:
            raise UsageError(str(error)) from None
        except Unparsable as error:
            raise _Skipped(str(error)) from None

    def modules(self, candidates: list[tuple[str, bytes]], cache: Cache) -> Iterator[tuple[str, Text, Module]]:
        """The sites of every file that holds some: from the cache, else parsed, in several processes if there are many."""
        import gc
        import pickle

        from trl_lint.sources.text import Text, Undecodable

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
        for (path, data), key, outcome in zip(fresh, keys, self.parsed(fresh), strict=True):
            if isinstance(outcome, str):
                self.skips.append((path, outcome))
                continue
            cache.put(key, outcome)
            if outcome is None:
                continue
            try:
                yield path, Text(path, data), outcome
            except Undecodable as error:
                self.skips.append((path, str(error)))

    def parsed(self, files: list[tuple[str, bytes]]) -> Iterator[Module | str | None]:
        jobs = self.options.jobs or os.cpu_count() or 1
        if jobs == 1 or len(files) < PARALLEL_FROM:
            yield from map(_parse, files)
            return
        import multiprocessing

        import trl_lint.sources.python  # noqa: F401  the workers inherit it instead of importing it again each

        method = "fork" if "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin" else "spawn"
        with multiprocessing.get_context(method).Pool(jobs) as pool:
            yield from pool.imap(_parse, files, chunksize=8)

    def context(self) -> Context:
        from trl_lint import facts, rulebook, settings
        from trl_lint.rulebook.files import Context

        options = self.options
        overrides = facts.Overrides(
            {p: v for p in ("trl", "vllm", "transformers") if (v := getattr(options, p)) is not None},
            options.gpu,
            options.python,
        )
        self.check_gpu(options.gpu)
        try:
            rules = rulebook.load()
            chosen = rulebook.select(rules, _names(options.select), _names(options.ignore))
        except rulebook.BadPage as error:
            raise UsageError(str(error)) from None
        except rulebook.UnknownRule as error:
            raise UsageError(f"{error}") from None
        by_settings: dict[object, tuple[rulebook.Rule, ...]] = {}

        def rules_for(path: str) -> tuple[rulebook.Rule, ...]:
            own = settings.load(path)
            key = (own.select, own.ignore)
            if key not in by_settings:
                try:
                    by_settings[key] = rulebook.select(
                        chosen, () if options.select else own.select or (), own.ignore or ()
                    )
                except rulebook.UnknownRule as error:
                    raise UsageError(f"{own.origins.get('select') or own.origins.get('ignore')}: {error}") from None
            return by_settings[key]

        return Context(
            self.root,
            chosen,
            overrides,
            settings.load,
            rules_for,
            options.possible or bool(settings.load(".").possible),
            options.no_ignores,
        )

    def check_gpu(self, given: str | None) -> None:
        from trl_lint import knowledge

        if (
            given is not None
            and not given.lower().startswith("none")
            and knowledge.gpu(given.partition(":")[0]) is None
        ):
            raise UsageError(f"--gpu {given}: no such GPU is known; write it like a100:8, h100, l4 or t4")

    # the outcome ---------------------------------------------------------------------------------------------------------

    def finish(self, examined: list[Examined], context: Context | None) -> int:
        from trl_lint import __version__
        from trl_lint.model import Ledger, Report, Skip

        fixed: list[Fixed] = []
        if context is not None and (self.options.fix or self.options.diff):
            fixed = self.fixed(examined, context)
            if self.options.diff:
                return self.show_diff(fixed)
            self.write(fixed)
            examined = [f.examined for f in fixed]
            findings = [f for e in examined for f in e.findings]
        elif context is not None and self.options.output_format in ("json", "sarif"):
            from trl_lint.fixing import plan

            findings = [f for e in examined for f in plan(e, context)]
        else:
            findings = [f for e in examined for f in e.findings]
        ledger = None
        if self.options.fix:
            ledger = Ledger(
                tuple(f for x in fixed for f in x.applied), tuple(h for x in fixed for h in x.held_back), tuple(h for x in fixed for h in x.failed),
                {x.examined.path: (x.before, x.after) for x in fixed if x.before != x.after},
            )  # fmt: skip
        notes = tuple(dict.fromkeys(n for e in examined for n in e.notes))
        skips = tuple(Skip(*s) for s in sorted(set(self.skips)))
        report = Report(
            __version__, self.files, tuple(sorted(findings, key=lambda f: f.order)), tuple(s for e in examined for s in e.summaries), skips, notes,
            {e.path: e.text.data for e in examined}, ledger,
        )  # fmt: skip
        self.emit(report, skips)
        return self.exit_code(report, changed=bool(ledger is not None and ledger.changed))

    def fixed(self, examined: list[Examined], context: Context) -> list[Fixed]:
        """Every file after fixing. One whose fixes do not settle is left alone and said; the others go on."""
        from trl_lint.fixing import Fixed, NoFixpoint, fix_file

        done: list[Fixed] = []
        for one in examined:
            try:
                done.append(fix_file(one, context, unsafe=self.options.unsafe_fixes))
            except NoFixpoint as error:
                print(f"trl-lint: {error}", file=sys.stderr)
                self.internal_error = True
                done.append(Fixed(one.text.data, one.text.data, one, (), (), ()))
        return done

    def write(self, fixed: list[Fixed]) -> None:
        from trl_lint.fixing.writing import NotWritten, replace_file

        for one in fixed:
            if one.before == one.after:
                continue
            if self.options.paths == ["-"]:
                sys.stdout.buffer.write(one.after)
                continue
            try:
                replace_file(one.examined.path, one.before, one.after)
            except NotWritten as error:
                raise UsageError(str(error)) from None

    def show_diff(self, fixed: list[Fixed]) -> int:
        import difflib

        changed = False
        for one in fixed:
            if one.before == one.after:
                continue
            changed = True
            path = one.examined.path.replace(os.sep, "/")
            before, after = (
                t.decode("utf-8", "surrogateescape").splitlines(keepends=True) for t in (one.before, one.after)
            )
            for line in difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"):
                shown = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
                sys.stdout.buffer.write(shown.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
        if self.internal_error:
            return 2
        return 1 if changed and not self.options.exit_zero else 0

    def emit(self, report: Report, skips: tuple[Skip, ...]) -> None:
        from trl_lint import reports

        if self.options.output_format != "terminal":
            for skip in skips:
                print(f"skipped {skip.path}: {skip.reason}", file=sys.stderr)
        if self.options.output_file:
            try:
                with open(self.options.output_file, "w", encoding="utf-8", newline="\n") as file:
                    reports.write(report, self.options.output_format, file, quiet=self.options.quiet)
            except OSError as error:
                raise UsageError(f"{self.options.output_file}: cannot be written: {error.strerror}") from None
            return
        out = sys.stderr if self.options.paths == ["-"] and self.options.fix else sys.stdout
        reports.write(report, self.options.output_format, out, quiet=self.options.quiet)

    def exit_code(self, report: Report, *, changed: bool) -> int:
        from trl_lint import settings
        from trl_lint.model import Severity

        if self.internal_error or (self.options.fail_on_skip and report.skipped):
            return 2
        if self.options.exit_zero:
            return 0
        least = Severity[self.options.fail_on or settings.load((self.options.paths or ["."])[0]).fail_on or "warning"]
        failing = any(_fails(f, least) for f in report.findings)
        return 1 if failing or (changed and self.options.exit_non_zero_on_fix) else 0


class _Skipped(Exception):
    """A file that could not be judged."""


def _fails(finding: Finding, least: int) -> bool:
    return finding.certainty != "possible" and finding.severity >= least


def _names(given: list[str]) -> tuple[str, ...]:
    return tuple(n.strip() for part in given for n in part.split(",") if n.strip())


def _parse(file: tuple[str, bytes]) -> Module | str | None:
    """The sites of one file: None if it can hold none, a reason if it cannot be read. Runs in workers too."""
    path, data = file
    from trl_lint.sources.text import Text, Undecodable

    try:
        text = Text(path, data)
        if not look.can_hold_site(text.code):
            return None
    except (Undecodable, look.TooDeep) as error:
        return str(error)
    from trl_lint.sources.module import Unparsable
    from trl_lint.sources.python import read

    try:
        module = read(text)
    except Unparsable as error:
        return str(error)
    return module if module.sites else None
