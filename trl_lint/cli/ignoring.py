"""`--add-ignore`: findings in; the files with an ignore comment at each, proven by judging them again, out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from trl_lint.model import Finding, Span
from trl_lint.rulebook import ignores
from trl_lint.rulebook.files import Context, Examined, again
from trl_lint.rulebook.rule import ABOUT_IGNORES
from trl_lint.sources.module import Unparsable
from trl_lint.sources.text import Text, Undecodable

Left: TypeAlias = list[tuple[Finding, str]]

# What Python and YAML call a line; str.splitlines also breaks at form feeds and other separators.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


def added(
    groups: Iterable[tuple[Examined, Sequence[Finding]]], context: Context, reason: str
) -> tuple[dict[str, tuple[bytes, bytes]], int, Left]:
    """By path the bytes before and after, the number of comments, and the findings that could not be ignored with why."""
    reason = " ".join(reason.replace("#", "").split())
    changed: dict[str, tuple[bytes, bytes]] = {}
    count = 0
    left: Left = []
    for before, findings in groups:
        after, wanted = before, [f for f in findings if f.certainty != "possible" and f.rule not in ABOUT_IGNORES]
        # From the end, so that the lines of those still to come stay theirs.
        for place in _places(wanted):
            if not _keys(place) <= _keys(after.findings):
                continue  # a comment in the same call has silenced it
            if why := _impossible(place[0], before):
                left += [(f, why) for f in place]
            elif (done := _ignored(after, place, wanted, reason, context)) is None:
                why = "no comment can stand there; use ignore-file, or ignore in [tool.trl-lint]"
                left += [(f, why) for f in place]
            else:
                after, count = done, count + 1
        for path, text in before.sources.texts.items():
            if (now := after.sources.texts[path]).data != text.data:
                changed[path] = text.data, now.data
    return changed, count, sorted(left, key=lambda item: item[0].order)


def _places(findings: Iterable[Finding]) -> Iterator[list[Finding]]:
    """The findings by file and line, the last line first."""
    by_line: dict[tuple[str, int, int], list[Finding]] = {}
    for finding in findings:
        by_line.setdefault((finding.span.path, finding.span.cell or 0, finding.span.line), []).append(finding)
    for key in sorted(by_line, reverse=True):
        yield by_line[key]


def _impossible(finding: Finding, examined: Examined) -> str | None:
    path = finding.span.path
    if path not in examined.sources.given:
        return f"{path} was not given"
    if finding.span.cell is not None:
        return "write the comment into the notebook's cell by hand"
    if path.endswith(".json"):
        return "JSON has no comments; use ignore in [tool.trl-lint]"
    return None


def _ignored(
    examined: Examined, place: list[Finding], wanted: list[Finding], reason: str, context: Context
) -> Examined | None:
    """The files with a comment that silences what is found at a place, and nothing that is not wanted; None where none can."""
    text = examined.sources.texts[place[0].span.path]
    names = sorted({f.rule for f in place})
    for code in _candidates(text, place[0], _around(place[0], examined), names, reason):
        try:
            bom = text.data[: text.byte(0)]
            after = again(examined, {text.path: Text(text.path, bom + code.encode(text.encoding))}, context)
        except (Unparsable, Undecodable, UnicodeEncodeError):
            continue
        was, now = _keys(examined.findings), _keys(after.findings)
        if now <= was and _keys(place) <= was - now <= _keys(wanted):
            return after
    return None


def _keys(findings: Iterable[Finding]) -> Counter[tuple[str, str, str]]:
    return Counter((f.span.path, f.rule, f.message) for f in findings if f.rule not in ABOUT_IGNORES)


def _candidates(text: Text, finding: Finding, outer: Span | None, names: list[str], reason: str) -> Iterator[str]:
    """The text with the comment in each place that may take it: an own one there, the line, its end, the line above."""
    lines = _LINE.findall(text.code)
    line = min(finding.span.line, len(lines))
    for known in ignores.read(text):
        if known.names and not known.whole_file and known.line in (line, finding.span.end_line, line - 1):
            yield _joined(lines, known, names)
    comment = f"# trl-lint: ignore[{', '.join(names)}]{f' {reason}' if reason else ''}"
    for number in dict.fromkeys((line, min(finding.span.end_line, len(lines)))):
        body = lines[number - 1].rstrip("\r\n")
        if not body.endswith("\\"):
            end = lines[number - 1][len(body) :]
            yield "".join([*lines[: number - 1], f"{body.rstrip()}  {comment}{end}", *lines[number:]])
    newline = "\r\n" if "\r\n" in text.code else "\n"
    above = dict.fromkeys((line, outer.line) if outer is not None else (line,))
    for number in above:
        body = lines[number - 1]
        indent = body[: len(body) - len(body.lstrip())]
        yield "".join([*lines[: number - 1], f"{indent}{comment}{newline}", *lines[number - 1 :]])


def _joined(lines: list[str], known: ignores.Ignore, names: list[str]) -> str:
    """The text with the names added to a comment that is there."""
    body = lines[known.line - 1]
    every = ", ".join(dict.fromkeys([*known.names, *names]))
    own = re.sub(r"\[[^\]]*\]", lambda _: f"[{every}]", body[known.column - 1 :], count=1)
    return "".join([*lines[: known.line - 1], body[: known.column - 1] + own, *lines[known.line :]])


def _around(finding: Finding, examined: Examined) -> Span | None:
    """The outermost call or command that a finding stands in: above it a comment may stand where none may inside."""
    module = examined.sources.modules.get(finding.span.path)
    span = finding.span
    around = [
        s for s in (ignores.calls(module) if module is not None else ()) if s.start <= span.start and span.end <= s.end
    ]
    return max(around, key=lambda s: s.end - s.start, default=None)
