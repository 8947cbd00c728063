"""A file's text and its findings in; the findings that no comment ignores out.

`# trl-lint: ignore[name-or-group] reason` counts on any line of a call that the finding touches, on its own line, and on
the comment line directly above it; `ignore-file[…]` in the first comment block counts for the whole file.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass

from trl_lint.model import Finding, Severity, Site, Span
from trl_lint.sources.text import Text

MARK = b"trl-lint: ignore"
_COMMENT = re.compile(r"#\s*trl-lint:\s*(ignore(?:-file)?)\b(?:\[([^\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment. `names` is empty for a bare ignore, which ignores nothing."""

    line: int
    column: int
    end_column: int
    names: frozenset[str]
    whole_file: bool
    own_line: bool


def read(text: Text) -> list[Ignore]:
    """The ignore comments of a Python text; strings that look like one do not count."""
    found: list[Ignore] = []
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text.code).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return found
    for token in tokens:
        if token.type != tokenize.COMMENT:
            continue
        match = _COMMENT.search(token.string)
        if match is None:
            continue
        names = frozenset(n.strip() for n in (match.group(2) or "").split(",") if n.strip())
        own_line = not token.line[: token.start[1]].strip()
        found.append(
            Ignore(
                token.start[0], token.start[1] + 1, token.end[1] + 1, names, match.group(1) == "ignore-file", own_line
            )
        )
    return found


def apply(findings: Iterable[Finding], ignores: list[Ignore], sites: Iterable[Site], text: Text) -> list[Finding]:
    """The findings that remain, with a note for each bare ignore."""
    kept = [f for f in findings if not any(_covers(i, f, sites) for i in ignores)]
    for ignore in ignores:
        if not ignore.names:
            kept.append(_bare(ignore, text))
    return kept


def _covers(ignore: Ignore, finding: Finding, sites: Iterable[Site]) -> bool:
    if not {finding.rule, finding.group} & ignore.names:
        return False
    if ignore.whole_file:
        return True
    for span in (finding.span, *(r.span for r in finding.related)):
        for first, last in ((span.line, span.end_line), *_around(span, sites)):
            if first <= ignore.line <= last or (ignore.own_line and ignore.line == first - 1):
                return True
    return False


def _around(span: Span, sites: Iterable[Site]) -> Iterable[tuple[int, int]]:
    """The lines of the calls that a span lies in."""
    for site in sites:
        if site.span.path == span.path and site.span.start <= span.start and span.end <= site.span.end:
            yield site.span.line, site.span.end_line


def _bare(ignore: Ignore, text: Text) -> Finding:
    span = text.span(text.offset(ignore.line, ignore.column), text.offset(ignore.line, ignore.end_column))
    return Finding(
        "bare-ignore",
        "ignores",
        Severity.note,
        "certain",
        "this comment names no rule, so it ignores nothing: write `ignore[rule-name] reason`",
        span,
    )
