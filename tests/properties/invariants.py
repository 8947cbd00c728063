"""The bytes of files in; nothing out where all that is promised of them holds, else an AssertionError that says what does not.

The way is the command line's: a look, reading, judging, planning, reporting, fixing, and fixing once more. What is
compared is read here by other means than the tool's own: ast, tokenize, PyYAML, json, shlex and bash.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from packaging.version import Version

from tests.helpers import context
from tests.oracle.environments import RELEASES
from tests.properties import reading
from tests.properties.texts import kind_of
from trl_lint import reports, settings
from trl_lint.cli.reading import parse
from trl_lint.facts import FactsError
from trl_lint.facts import forget as forget_facts
from trl_lint.fixing import Fixed, fix_file, plan
from trl_lint.model import Finding, Intent, Report, Skip
from trl_lint.rulebook.files import Context, Examined, Sources, examine_all
from trl_lint.sources.module import Unparsable
from trl_lint.sources.text import Text

FOLDER = "/nowhere"
_PIN = re.compile(rb"trl==(\d+\.\d+(?:\.\d+)?)")
PLANNED = 3
"""As many findings of a file are planned: each costs as much as judging the file again."""


@dataclass(frozen=True)
class Tried:
    """What became of the files: how many findings, which were fixed, and the one line that was said of each skipped one."""

    findings: int
    applied: tuple[str, ...]
    skipped: tuple[str, ...]
    after: Mapping[str, bytes]


def check(files: Mapping[str, bytes], *, unsafe: bool = True, target: str | None = None, **facts: str) -> Tried:
    """Raises AssertionError, or whatever the tool breaks with, if one promise is not kept."""
    forget_facts()
    judged_by = context(target=target, **facts)
    placed = {f"{FOLDER}/{name}": data for name, data in files.items()}
    groups, skipped = _examined(placed, judged_by)
    assert all(reason and "\n" not in reason for reason in skipped), skipped
    applied: list[Finding] = []
    after = dict(placed)
    for examined in groups:
        _findings_lie_in_their_files(examined)
        _reports_say_it(examined, judged_by)
        fixed = fix_file(examined, judged_by, unsafe=unsafe)
        for path, (before, now) in fixed.changed.items():
            assert placed[path] == before
            _only_what_was_meant(path, before, now, fixed.applied)
            after[path] = now
        assert bool(fixed.changed) <= bool(fixed.applied), "files changed, and nothing was applied"
        applied += fixed.applied
    if after != placed:
        _fixing_again_does_nothing(after, judged_by, unsafe, skipped)
    found = sum(len(e.findings) for e in groups)
    names = tuple(sorted({f.rule for f in applied}))
    return Tried(found, names, tuple(skipped), {p.removeprefix(f"{FOLDER}/"): d for p, d in after.items()})


def one_world(data: bytes) -> dict[str, str]:
    """Facts by hand that leave one release of TRL and of transformers: judging by every allowed one costs thirty times as much."""
    found = _PIN.search(data)
    release = found[1].decode() if found else "1.16.0"
    known = [t for trl, t in RELEASES.items() if Version(trl) <= Version(release)] or list(RELEASES.values())[:1]
    return {"transformers": known[-1]} if found else {"trl": release, "transformers": known[-1]}


def _examined(placed: Mapping[str, bytes], judged_by: Context) -> tuple[list[Examined], list[str]]:
    """The files as the command line reads them: what cannot be read is left out and said in one line."""
    skipped: list[str] = []
    sources = Sources({}, {}, frozenset(placed))
    for path, data in placed.items():
        outcome = parse((path, data), named=len(placed) > 1)
        if isinstance(outcome, str):
            skipped.append(outcome)
        elif outcome is not None:
            sources.texts[path], sources.modules[path] = Text(path, data), outcome
    try:
        return (list(examine_all(sources, judged_by)) if sources.modules else []), skipped
    except (Unparsable, FactsError, settings.SettingsError) as error:  # what the command line turns into one line
        return [], [*skipped, str(error)]


def _findings_lie_in_their_files(examined: Examined) -> None:
    for finding in examined.findings:
        assert finding.message
        assert "\n" not in finding.message, finding.message
        for span in (finding.span, *(r.span for r in finding.related)):
            data = examined.sources.texts[span.path].data
            assert 0 <= span.start <= span.end <= len(data), span
            assert (span.line, span.column) <= (span.end_line, span.end_column), span
            assert min(span.line, span.column) >= 1, span
            if span.cell is None and not span.path.endswith(".ipynb"):
                text = examined.sources.texts[span.path]
                assert reading.place(text.data, text.encoding, span.start) == (span.line, span.column), span
                assert reading.place(text.data, text.encoding, span.end) == (span.end_line, span.end_column), span


def _reports_say_it(examined: Examined, judged_by: Context) -> None:
    """Every format prints the findings, and the edits that JSON shows are ones that stand alone."""
    planned = plan(_only_first(examined), judged_by)
    sources = {p: t.data for p, t in examined.sources.texts.items()}
    for finding in planned:
        edits = finding.fix.edits if finding.fix is not None else ()
        for edit in edits:
            data = sources[edit.path]
            now = data[: edit.start] + edit.text.encode(examined.sources.texts[edit.path].encoding) + data[edit.end :]
            _only_what_was_meant(edit.path, data, now, (finding,))
    report = Report("0", 1, planned, examined.summaries, (Skip("x", "y"),), examined.notes, sources)
    for form in reports.FORMATS:
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        reports.write(report, form, out, color=form == "terminal")
        out.flush()
        if form in ("json", "sarif", "gitlab"):
            json.loads(out.buffer.getvalue())  # type: ignore[attr-defined]


def _only_first(examined: Examined) -> Examined:
    return replace(examined, findings=examined.findings[:PLANNED])


def _fixing_again_does_nothing(after: Mapping[str, bytes], judged_by: Context, unsafe: bool, before: list[str]) -> None:
    groups, skipped = _examined(after, judged_by)
    assert skipped == before, "a fixed file cannot be read any more"
    for examined in groups:
        again: Fixed = fix_file(examined, judged_by, unsafe=unsafe)
        assert not again.changed, f"fixing twice is not fixing once: {[(f.rule, f.message) for f in again.applied]}"


# What a fix may change -----------------------------------------------------------------------------------------------


def _only_what_was_meant(path: str, before: bytes, after: bytes, applied: tuple[Finding, ...]) -> None:
    """Raises AssertionError unless the text is as good as it was and says the same but for what the fixes name."""
    kind = kind_of(path.rpartition("/")[2])
    names = names_of(applied)
    rules = [f.rule for f in applied]
    assert _head(after) == _head(before), "the byte order mark is not as it was"
    if b"\n" in before and before.count(b"\n") == before.count(b"\r\n") and kind != "notebook":
        assert after.count(b"\n") == after.count(b"\r\n"), "the line ends are not all as they were"
    compared = reading.COMPARED[kind](before, after, names)
    if compared is not None:
        was, now = compared
        assert now == was, f"{rules} changed more than {sorted(names.all)}:\n{_difference(was, now)}"
    if kind == "shell" and _bash_takes(before):
        assert _bash_takes(after), f"{rules}: bash does not take the result"


def names_of(applied: tuple[Finding, ...]) -> reading.Names:
    """Everything that the fixes name: what they set, drop, rename and move, with the new names."""
    names = reading.Names()
    for finding in applied:
        for intent in finding.fix.intents if finding.fix is not None else ():
            _add(names, intent)
    return names


def _add(names: reading.Names, intent: Intent) -> None:
    new = intent.value if isinstance(intent.value, str) else None
    match intent.op:
        case "set" if intent.path[:1] == ("new",):
            names.whole |= {intent.path[2], "args"}
            names.symbols |= {intent.path[1]}
        case "set" if intent.path:
            names.inner |= set(intent.path)
            names.holders.add(intent.name)
        case "set":
            names.whole.add(intent.name)
            if isinstance(intent.value, Mapping):
                names.inner |= set(map(str, intent.value))
        case "drop" | "rename":
            named = {*intent.path[-1:]} or {intent.name}
            names.whole |= {intent.name} if not intent.path else set()
            names.inner |= named if intent.path else set()
            names.holders |= {intent.name} if intent.path else set()
            if intent.op == "rename" and new is not None:
                (names.inner if intent.path else names.whole).add(new)
        case "move":
            names.whole |= {intent.name, str(intent.value)}
            if intent.path[:1] == ("new",):
                names.whole.add("args")
                names.symbols.add(intent.path[1])
        case "import":
            names.symbols.add(intent.name)
        case "class":
            names.symbols |= {intent.site.name, str(intent.value)}
        case "command":
            names.words |= set(str(intent.value).split()) | {intent.name}
    if intent.name.startswith("env."):
        names.whole.add(intent.name.removeprefix("env."))


def _head(data: bytes) -> bool:
    return data.startswith(b"\xef\xbb\xbf")


def _bash_takes(data: bytes) -> bool:
    return subprocess.run(["bash", "-n"], input=data, capture_output=True, check=False).returncode == 0


def _difference(was: Any, now: Any) -> str:
    """The first place where two texts, or two lists, differ."""
    if isinstance(was, tuple) and isinstance(now, tuple):
        for a, b in zip(was, now, strict=False):
            if a != b:
                return _difference(a, b)
    left, right = str(was), str(now)
    at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return f"before: …{left[max(0, at - 200) : at + 300]}\nafter:  …{right[max(0, at - 200) : at + 300]}"
