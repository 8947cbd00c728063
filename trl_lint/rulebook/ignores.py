"""A file's text and its findings in; the findings that no comment ignores out.

`# trl-lint: ignore[name-or-group] reason` counts on any line of a call that the finding touches, on its own line, and on
the comment line directly above it; `ignore-file[…]` in the first comment block counts for the whole file.
"""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trl_lint.model import Finding, Severity, Site, Span
from trl_lint.sources.look import kind_of
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
    cell: int | None = None


def read(text: Text) -> list[Ignore]:
    """The ignore comments of a file; in Python, strings that look like one do not count."""
    match kind_of(text.path):
        case "python":
            return list(_of_python(text.code, None))
        case "notebook":
            return [i for cell, code in _cells(text.code) for i in _of_python(code, cell) or _of_lines(code, cell)]
    return list(_of_lines(text.code, None))


def _of_python(code: str, cell: int | None) -> Iterator[Ignore]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                yield from _comment(token.string, *token.start, cell, own_line=not token.line[: token.start[1]].strip())
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return


def _of_lines(code: str, cell: int | None) -> Iterator[Ignore]:
    """YAML's and the shell's comments: what follows a # at the start of a line or after a blank."""
    for number, line in enumerate(code.splitlines(), 1):
        found = re.search(r"(?:^|\s)(#\s*trl-lint:.*)", line)
        if found is not None:
            own = not line[: found.start(1)].strip()
            yield from _comment(found[1], number, found.start(1), cell, own_line=own)


def _comment(comment: str, line: int, column: int, cell: int | None, *, own_line: bool) -> Iterator[Ignore]:
    match = _COMMENT.search(comment)
    if match is not None:
        names = frozenset(n.strip() for n in (match.group(2) or "").split(",") if n.strip())
        whole = match.group(1) == "ignore-file"
        yield Ignore(line, column + 1, column + len(comment) + 1, names, whole, own_line, cell)


def _cells(code: str) -> Iterator[tuple[int, str]]:
    """The code cells of a notebook, counted among all cells from 1."""
    try:
        cells = json.loads(code)["cells"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    for number, cell in enumerate(cells, 1):
        source = cell.get("source") if isinstance(cell, dict) and cell.get("cell_type") == "code" else None
        if source is not None:
            yield number, source if isinstance(source, str) else "".join(map(str, source))


def apply(findings: Iterable[Finding], ignores: list[Ignore], sites: Iterable[Site], text: Text) -> list[Finding]:
    """The findings that remain, with a note for each bare ignore."""
    around = tuple(sites)
    kept = [f for f in findings if not any(_covers(i, f, around, text.path) for i in ignores)]
    for ignore in ignores:
        if not ignore.names:
            kept.append(_bare(ignore, text))
    return kept


def _covers(ignore: Ignore, finding: Finding, sites: Iterable[Site], path: str) -> bool:
    if not {finding.rule, finding.group} & ignore.names:
        return False
    spans = [s for s in (finding.span, *(r.span for r in finding.related)) if s.path == path]
    if ignore.whole_file:
        return bool(spans)
    for span in (s for s in spans if s.cell == ignore.cell):
        for first, last in ((span.line, span.end_line), *_around(span, sites)):
            if first <= ignore.line <= last or (ignore.own_line and ignore.line == first - 1):
                return True
    return False


def _around(span: Span, sites: Iterable[Site]) -> Iterable[tuple[int, int]]:
    """The lines of the calls and commands that a span lies in; a recipe is no call: its lines stand for themselves."""
    for site in sites:
        if (
            site.kind not in ("recipe", "accelerate", "deepspeed")
            and site.span.path == span.path
            and site.span.start <= span.start
            and span.end <= site.span.end
        ):
            yield site.span.line, site.span.end_line


def _bare(ignore: Ignore, text: Text) -> Finding:
    if ignore.cell is None:
        span = text.span(text.offset(ignore.line, ignore.column), text.offset(ignore.line, ignore.end_column))
    else:
        place = (ignore.line, ignore.column, ignore.line, ignore.end_column)
        span = Span(text.path, 0, 0, *place, ignore.cell)
    return Finding(
        "bare-ignore",
        "ignores",
        Severity.note,
        "certain",
        "this comment names no rule, so it ignores nothing: write `ignore[rule-name] reason`",
        span,
    )
