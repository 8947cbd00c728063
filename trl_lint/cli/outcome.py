"""Judged files in; files rewritten, a report printed, and an exit code out: the second half of `check`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from trl_lint import __version__, reports, settings
from trl_lint.cli import UsageError
from trl_lint.fixing import Fixed, NoFixpoint, fix_file, plan
from trl_lint.model import Finding, Ledger, Report, Severity, Skip
from trl_lint.rulebook.files import Context, Examined

PLANNED = ("json", "sarif")
"""The formats that show what each fix would write."""


class Outcome:
    """What one run of `check` comes to. `files` were looked at, `walked` are their paths, `skips` could not be read."""

    def __init__(self, options: argparse.Namespace, files: int, walked: set[str], skips: list[tuple[str, str]]) -> None:
        self.options, self.files, self.walked, self.skips = options, files, walked, skips
        self.internal_error = False
        try:
            self.settings = settings.load((options.paths or ["."])[0])
        except settings.SettingsError as error:
            raise UsageError(str(error)) from None

    def finish(self, examined: Sequence[Examined], context: Context | None) -> int:
        ledger = None
        of_pins: list[str] = []
        if context is not None and context.target is not None:
            from trl_lint.fixing import migration

            of_pins = migration.notes(examined, context)
        if context is not None and (self.options.fix or self.options.diff):
            fixed = self.fixed(examined, context)
            if self.options.bump_pin and context.target is not None:
                fixed, of_pins = migration.with_pins(fixed, context)
            if self.options.diff:
                for said in of_pins:
                    print(f"note: {said}", file=sys.stderr)
                return self.show_diff(fixed)
            self.write(fixed)
            ledger = _ledger(fixed)
            examined = [f.examined for f in fixed]
        notes = [*(n for e in examined for n in e.notes), *of_pins]
        groups = [(e, self.shown(e, context)) for e in examined]
        groups = self.less_the_baseline(groups, context, notes)
        if self.options.write_baseline:
            return 2 if self.internal_error else 0
        if self.options.add_ignore is not None and context is not None:
            return self.add_ignores(groups, context)
        groups = self.with_evidence(groups, notes)
        findings = sorted((f for _, found in groups for f in found), key=lambda f: f.order)
        report = Report(
            __version__, self.files, tuple(findings), tuple(s for e in examined for s in e.summaries),
            tuple(Skip(*s) for s in sorted(set(self.skips))), tuple(dict.fromkeys(notes)),
            {p: t.data for e in examined for p, t in e.sources.texts.items()}, ledger,
        )  # fmt: skip
        self.emit(report)
        return self.exit_code(report, changed=bool(ledger is not None and ledger.changed))

    # findings ----------------------------------------------------------------------------------------------------------

    def shown(self, examined: Examined, context: Context | None) -> list[Finding]:
        """The findings of a group of files, as severe as the settings have them."""
        found: Iterable[Finding] = examined.findings
        if found and context is not None and not self.options.fix and self.options.output_format in PLANNED:
            found = plan(examined, context)
        return [_as_severe_as_set(f) for f in found]

    def less_the_baseline(
        self, groups: list[tuple[Examined, list[Finding]]], context: Context | None, notes: list[str]
    ) -> list[tuple[Examined, list[Finding]]]:
        """The findings that the baseline does not hold; with --write-baseline it is written instead."""
        path = self.options.baseline or self.settings.baseline
        if path is None:
            if self.options.write_baseline:
                raise UsageError("--write-baseline needs a file: --baseline FILE, or baseline in [tool.trl-lint]")
            return groups
        from trl_lint.cli import baseline

        if self.options.write_baseline:
            baseline.write(path, groups, self.walked)
            return groups
        ran = frozenset(r.name for r in context.rules) if context is not None else frozenset()
        left, said = baseline.subtract(path, groups, self.walked, ran)
        notes += said
        return left

    def with_evidence(
        self, groups: list[tuple[Examined, list[Finding]]], notes: list[str]
    ) -> list[tuple[Examined, list[Finding]]]:
        """The findings with what was measured of their fixes, where the project has recorded something."""
        from trl_lint.cli import measured

        return [(e, measured.added(e, found, notes) if found else found) for e, found in groups]

    # fixes -------------------------------------------------------------------------------------------------------------

    def fixed(self, examined: Iterable[Examined], context: Context) -> list[Fixed]:
        """Every file after fixing. One whose fixes do not settle is left alone and said; the others go on."""
        if self.options.confirm:
            from trl_lint.cli import confirm

            return confirm.fixed(self.options, examined, context)
        done: list[Fixed] = []
        for one in examined:
            try:
                done.append(fix_file(one, context, unsafe=self.options.unsafe_fixes))
            except NoFixpoint as error:
                print(f"trl-lint: {error}", file=sys.stderr)
                self.internal_error = True
                done.append(Fixed({}, one, (), (), ()))
        return done

    def write(self, fixed: Iterable[Fixed]) -> None:
        if self.options.paths == ["-"]:
            for one in fixed:
                sys.stdout.buffer.write(one.after)
            return
        replaced({path: both for one in fixed for path, both in one.changed.items()})

    def add_ignores(self, groups: list[tuple[Examined, list[Finding]]], context: Context) -> int:
        from trl_lint.cli import ignoring

        changed, added, left = ignoring.added(groups, context, self.options.add_ignore)
        replaced(changed)
        for finding, why in left:
            print(f"{finding.span.path}:{finding.span.line}: {finding.rule} is not ignored: {why}", file=sys.stderr)
        files = f"{len(changed)} file{'' if len(changed) == 1 else 's'}"
        print(f"Added {added} ignore comment{'' if added == 1 else 's'} ({files}).")
        return 1 if left else 0

    def show_diff(self, fixed: Iterable[Fixed]) -> int:
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

    # the report --------------------------------------------------------------------------------------------------------

    def emit(self, report: Report) -> None:
        options = self.options
        if options.output_format != "terminal":
            for skip in report.skipped:
                print(f"skipped {skip.path}: {skip.reason}", file=sys.stderr)
        write = reports.write_statistics if options.statistics else reports.write
        if options.output_file:
            try:
                with open(options.output_file, "w", encoding="utf-8", newline="\n") as file:
                    write(report, options.output_format, file, quiet=options.quiet)
            except OSError as error:
                raise UsageError(f"{options.output_file}: cannot be written: {error.strerror}") from None
            return
        out = sys.stderr if options.paths == ["-"] and options.fix else sys.stdout
        write(report, options.output_format, out, quiet=options.quiet)

    def exit_code(self, report: Report, *, changed: bool) -> int:
        if self.internal_error or (self.options.fail_on_skip and report.skipped):
            return 2
        if self.options.exit_zero:
            return 0
        least = Severity[self.options.fail_on or self.settings.fail_on or "warning"]
        failing = any(f.certainty != "possible" and f.severity >= least for f in report.findings)
        return 1 if failing or (changed and self.options.exit_non_zero_on_fix) else 0


def _ledger(fixed: Sequence[Fixed]) -> Ledger:
    return Ledger(
        tuple(f for x in fixed for f in x.applied), tuple(h for x in fixed for h in x.held_back), tuple(h for x in fixed for h in x.failed),
        {path: both for x in fixed for path, both in x.changed.items()},
    )  # fmt: skip


def _as_severe_as_set(finding: Finding) -> Finding:
    severity = settings.load(finding.span.path).severity_of(finding.span.path, finding.rule, finding.group)
    return finding if severity is None else replace(finding, severity=Severity[severity])


def replaced(changed: dict[str, tuple[bytes, bytes]]) -> None:
    """Write files whole, by path the bytes before and after. Raises UsageError."""
    from trl_lint.fixing.writing import NotWritten, replace_file

    for path, (before, after) in sorted(changed.items()):
        try:
            replace_file(path, before, after)
        except NotWritten as error:
            raise UsageError(str(error)) from None
