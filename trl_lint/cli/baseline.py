"""Findings that a team knows and has not yet mended: judged files in, the baseline file out; or what it does not hold.

An entry is keyed by what survives edits elsewhere in the file: rule, file, site, fields, the text at the finding, and the
message without its version numbers. Equal ones are counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple, TypeAlias

from trl_lint.cli import UsageError
from trl_lint.model import Finding
from trl_lint.reports.redaction import redact
from trl_lint.rulebook.files import Examined
from trl_lint.rulebook.rule import ABOUT_IGNORES

VERSION = 1
LONGEST = 80
MOST_TOLD = 3

Groups: TypeAlias = Sequence[tuple[Examined, list[Finding]]]


class Entry(NamedTuple):
    """What makes a finding a known one. `path` is relative to the baseline's folder, with slashes."""

    path: str
    rule: str
    site: str
    field: str
    value: str
    message: str


def write(path: str, groups: Groups, walked: Set[str]) -> None:
    """Record every finding that is not merely possible. Entries of files that were not looked at stay. Raises UsageError."""
    folder = os.path.dirname(os.path.abspath(path))
    looked = _looked_at(groups, walked, folder)
    entries = Counter(_entry(f, e, folder) for e, f in _counted(groups))
    if os.path.exists(path):
        entries.update({e: n for e, n in _read(path).items() if e.path not in looked and _exists(folder, e.path)})
    text = _text(entries)
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    count = sum(entries.values())
    print(f"Recorded {count} finding{'' if count == 1 else 's'} in {path}.")


def subtract(
    path: str, groups: Groups, walked: Set[str], ran: Set[str]
) -> tuple[list[tuple[Examined, list[Finding]]], list[str]]:
    """The findings that the file does not hold, and notes on what it holds. Raises UsageError.

    Entries of the rules that `ran` that nothing answers to any more are told: they would hide the next finding like them.
    """
    folder = os.path.dirname(os.path.abspath(path))
    left = Counter(_read(path))
    known = 0
    kept: list[tuple[Examined, list[Finding]]] = []
    for examined, findings in groups:
        new: list[Finding] = []
        for finding in sorted(findings, key=lambda f: f.order):
            entry = None if finding.certainty == "possible" else _entry(finding, examined, folder)
            if entry is not None and left[entry] > 0:
                left[entry] -= 1
                known += 1
            else:
                new.append(finding)
        kept.append((examined, new))
    looked = _looked_at(groups, walked, folder)
    gone = {
        e: n
        for e, n in sorted(left.items())
        if n > 0 and (e.rule in ran or e.rule in ABOUT_IGNORES) and (e.path in looked or not _exists(folder, e.path))
    }
    return kept, [*_known_note(path, known), *_gone_note(path, gone)]


def _known_note(path: str, known: int) -> Iterable[str]:
    if known:
        yield f"{known} finding{' that is' if known == 1 else 's that are'} in {path} {'is' if known == 1 else 'are'} not shown"


def _gone_note(path: str, gone: dict[Entry, int]) -> Iterable[str]:
    if not gone:
        return
    count = sum(gone.values())
    told = ", ".join(f"{e.rule} in {e.path}" for e in list(gone)[:MOST_TOLD])
    more = f" and {len(gone) - MOST_TOLD} more" if len(gone) > MOST_TOLD else ""
    entries, are = ("1 entry", "is") if count == 1 else (f"{count} entries", "are")
    yield f"{entries} of {path} {are} no longer found ({told}{more}); --write-baseline drops what is gone"


def _counted(groups: Groups) -> Iterable[tuple[Examined, Finding]]:
    return ((e, f) for e, found in groups for f in found if f.certainty != "possible")


def _looked_at(groups: Groups, walked: Set[str], folder: str) -> set[str]:
    return {_inside(p, folder) for p in walked} | {_inside(f.span.path, folder) for _, found in groups for f in found}


def _exists(folder: str, path: str) -> bool:
    return os.path.exists(os.path.join(folder, path))


def _inside(path: str, folder: str) -> str:
    return os.path.relpath(os.path.abspath(path), folder).replace(os.sep, "/")


# Entries -------------------------------------------------------------------------------------------------------------


def _entry(finding: Finding, examined: Examined, folder: str) -> Entry:
    span = finding.span
    text = examined.sources.texts.get(span.path)
    value = text.data[span.start : span.end].decode(text.encoding, "replace") if text is not None else ""
    return Entry(
        _inside(span.path, folder), finding.rule, _site(finding, examined), ",".join(finding.fields), _short(value), _kind(finding),
    )  # fmt: skip


def _site(finding: Finding, examined: Examined) -> str:
    """The innermost call, recipe or command that a finding stands in: "GRPOConfig in main"; its cell has no say in it."""
    module = examined.sources.modules.get(finding.span.path)
    around = [
        s
        for m in ((module, *module.written.values()) if module is not None else ())
        for s in m.sites
        if s.span.path == finding.span.path and s.span.start <= finding.span.start and finding.span.end <= s.span.end
    ]
    site = min(around, key=lambda s: (s.span.end - s.span.start, s.name), default=None)
    if site is None:
        return ""
    return f"{site.name} in {site.function}" if site.function else site.name


def _short(value: str) -> str:
    """The text at a finding on one line, without secrets; a long one ends in what tells it from others."""
    text = redact(" ".join(value.split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 14].rstrip()}… {_digest(text)}"


def _kind(finding: Finding) -> str:
    """A digest of the message without versions: a newer TRL says the same of the same line."""
    return _digest(re.sub(r"\b\d+(?:\.\d+)+\w*", "V", redact(finding.message)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


# The file ------------------------------------------------------------------------------------------------------------


def _text(entries: Counter[Entry]) -> str:
    """Sorted, an entry a line: two branches merge, and a review shows what was added."""
    lines = [
        json.dumps({**entry._asdict(), **({"count": n} if n > 1 else {})}, ensure_ascii=False)
        for entry, n in sorted(entries.items())
        if n > 0
    ]
    inner = ",\n".join(f"    {line}" for line in lines)
    return f'{{\n  "version": {VERSION},\n  "findings": [{f"{chr(10)}{inner}{chr(10)}  " if lines else ""}]\n}}\n'


def _read(path: str) -> dict[Entry, int]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such baseline; --write-baseline makes it") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: no JSON ({error.msg}); make it again with --write-baseline") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: no JSON; make it again with --write-baseline") from None
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise UsageError(f"{path}: written by a newer trl-lint (version {version}); upgrade trl-lint")
    found: Counter[Entry] = Counter()
    try:
        for item in data["findings"]:
            entry, count = Entry(*(item[name] for name in Entry._fields)), item.get("count", 1)
            if not all(isinstance(value, str) for value in entry) or not isinstance(count, int):
                raise TypeError
            found[entry] += count  # two branches may have added the same
    except (KeyError, TypeError, AttributeError):
        raise UsageError(f"{path}: no baseline of trl-lint; make it again with --write-baseline") from None
    return found
