"""`trl-lint [check] [PATHS]`: lint, and with --fix rewrite. Words in, a report on stdout and an exit code out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from trl_lint.cli import UsageError
from trl_lint.cli.discover import NoSuchPath, discover
from trl_lint.sources import look

if TYPE_CHECKING:
    from trl_lint.cli.cache import Cache
    from trl_lint.fixing import Fixed
    from trl_lint.model import Finding, Report, Skip
    from trl_lint.rulebook.files import Context, Examined, Sources
    from trl_lint.sources.module import Module
    from trl_lint.sources.text import Text

T = TypeVar("T")
LARGEST = 5_000_000
FORMATS = ("terminal", "concise", "json", "github", "sarif")
SEVERITIES = ("error", "warning", "note")
PARALLEL_FROM = 24
MOST_LAUNCHING = 50


def parser() -> argparse.ArgumentParser:
    """The options of `check`."""
    made = argparse.ArgumentParser(
        prog="trl-lint", description="Lint TRL training code against the exact release that it runs on.", allow_abbrev=False,
        epilog="Commands: check (the default), facts [PATHS], rules, explain NAME, probe SCRIPT. Exit: 0 nothing at or above --fail-on, 1 something, 2 usage or internal error.",
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
    return Check(options).run()


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
        self.internal_error = False

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
            for found in self.examined(candidates, context, cache):
                # Files that nothing is said about are not kept whole: there may be thousands.
                examined.append(found if found.findings else found.light())
        cache.save()
        return self.finish(examined, context)

    def examined(self, candidates: list[tuple[str, bytes]], context: Context, cache: Cache) -> Iterator[Examined]:
        """Every group of files. A script that no other file has to do with is judged at once, and let go."""
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
        launched = _launched(linked.modules.values())
        for path, text, module in self.modules(scripts, cache):
            if _linkable(module) or os.path.basename(path) in launched:
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
        """Files that were not given but launch one that was, or parse a recipe that was.

        They are read, and nothing is reported of them alone.
        """
        wanted = _names_of(linked.given)
        kinds = {"shell", "recipe"}
        if any(s.kind == "recipe" for m in linked.modules.values() for s in m.sites):
            kinds.add("python")
        budget = LARGEST * 4
        for path in self.names:
            kind = look.kind_of(path)
            if path in self.walked or kind not in kinds or path.endswith(".json"):
                continue
            if budget < 0:
                break
            data = self.quietly(path)
            budget -= len(data)
            if kind == "python":
                matters = look.MARK in data and (b"TrlParser" in data or b"HfArgumentParser" in data)
            else:
                matters = _names_any(data, wanted) and (look.may_launch(path, data) or look.mentions(path, data))
            if matters:
                self.load_into(linked, path, data, cache)

    def load_into(self, linked: Sources, path: str, data: bytes, cache: Cache) -> None:
        for known, text, module in self.modules([(path, data)], cache, skips=[]):
            linked.texts[known], linked.modules[known] = text, module

    def load(self, path: str, cache: Cache) -> tuple[Text, Module] | None:
        """A file of the project that a command or an import names; a package's modules need not mention TRL themselves."""
        import pickle

        from trl_lint.sources.text import Text

        data = self.quietly(path)
        if not data:
            return None
        key = cache.key(f"named {path}", data)
        known = cache.get(key)
        if known is not None:
            return (Text(path, data), pickle.loads(known)) if known else None
        outcome = _parse((path, data), named=True)
        module = None if isinstance(outcome, str) else outcome
        cache.put(key, module)
        return (Text(path, data), module) if module is not None else None

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
        """The sites of every file that holds some: from the cache, else parsed, in several processes if there are many."""
        import gc
        import pickle

        from trl_lint.sources.text import Text, Undecodable

        skips = self.skips if skips is None else skips
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
                skips.append((path, outcome))
                continue
            cache.put(key, outcome)
            if outcome is None:
                continue
            try:
                yield path, Text(path, data), outcome
            except Undecodable as error:
                skips.append((path, str(error)))

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

    def group(self, path: str) -> tuple[Examined, Context] | None:
        """The files that one given file is judged with, and what they were judged by; None if it is no training."""
        from trl_lint.cli.cache import Cache

        candidates = list(self.candidates())
        context = self.context()
        groups = list(self.examined(candidates, context, Cache(self.root, enabled=False)))
        name = os.path.normpath(path)
        return next(((g, context) for g in groups if name in g.paths and any(r.method for r in g.runs)), None)

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
                {path: both for x in fixed for path, both in x.changed.items()},
            )  # fmt: skip
        notes = tuple(dict.fromkeys(n for e in examined for n in e.notes))
        skips = tuple(Skip(*s) for s in sorted(set(self.skips)))
        report = Report(
            __version__, self.files, tuple(sorted(findings, key=lambda f: f.order)), tuple(s for e in examined for s in e.summaries), skips, notes,
            {p: t.data for e in examined for p, t in e.sources.texts.items()}, ledger,
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
                done.append(Fixed({}, one, (), (), ()))
        return done

    def write(self, fixed: list[Fixed]) -> None:
        from trl_lint.fixing.writing import NotWritten, replace_file

        if self.options.paths == ["-"]:
            for one in fixed:
                sys.stdout.buffer.write(one.after)
            return
        for path, (before, after) in sorted(both for one in fixed for both in one.changed.items()):
            try:
                replace_file(path, before, after)
            except NotWritten as error:
                raise UsageError(str(error)) from None

    def show_diff(self, fixed: list[Fixed]) -> int:
        import difflib

        changed = False
        for name, texts in sorted(both for one in fixed for both in one.changed.items()):
            changed = True
            path = name.replace(os.sep, "/")
            before, after = (t.decode("utf-8", "surrogateescape").splitlines(keepends=True) for t in texts)
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


def _fails(finding: Finding, least: int) -> bool:
    return finding.certainty != "possible" and finding.severity >= least


def _names(given: list[str]) -> tuple[str, ...]:
    return tuple(n.strip() for part in given for n in part.split(",") if n.strip())


def _parse(file: tuple[str, bytes], *, named: bool = False) -> Module | str | None:
    """What one file says: None if nothing, a reason if it cannot be read. Runs in workers too.

    A `named` file is read whole whether it mentions TRL or not: another one asks for it.
    """
    path, data = file
    from trl_lint.sources.text import Text, Undecodable

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
    return module if named or module.sites or module.commands or module.written or _linkable(module) else None


def _names_of(paths: Iterable[str]) -> tuple[bytes, ...]:
    """What a command must say to start a script or to hand over a recipe: its name, for `-m` without the suffix."""
    names = (os.path.basename(p) for p in paths if look.kind_of(p) in ("python", "recipe"))
    return tuple({os.path.splitext(n)[0].encode() for n in names} - {b"__init__", b"__main__"})


def _names_any(data: bytes, names: tuple[bytes, ...]) -> bool:
    return any(name in data for name in names)


def _linkable(module: Module) -> bool:
    """Whether other files may have to do with a script: it parses arguments, or uses or defines classes of the project."""
    return bool(
        module.parsers
        or any(_starts(w.text or "") for c in module.commands for w in c.words)
        or any(s.kind == "elsewhere" for s in module.sites)
        or any(
            b.startswith(("trl.", "transformers.TrainingArguments")) for c in module.classes.values() for b in c.bases
        )
    )


def _starts(word: str) -> bool:
    """Whether a word of a command is a script, a launcher or TRL itself."""
    return word.endswith(".py") or word in ("trl", "vllm", "accelerate", "torchrun", "deepspeed")


def _launched(modules: Iterable[Module]) -> set[str]:
    """The names of the scripts that commands start."""
    words = (w.text for m in modules for inner in (m, *m.written.values()) for c in inner.commands for w in c.words)
    return {
        f"{w.rpartition('/')[2].rpartition('.')[2]}.py" if not w.endswith(".py") else os.path.basename(w)
        for w in words
        if w
    }
