"""A Report in, text for people or machines out: one module a format, each imported only when it is asked for."""

from __future__ import annotations

import codecs
import os
from typing import TextIO

from trl_lint.model import Report
from trl_lint.reports.redaction import redact

__all__ = ["FORMATS", "redact", "write", "write_statistics"]

FORMATS: tuple[str, ...] = ("terminal", "concise", "json", "github", "gitlab", "junit", "sarif")


def write(report: Report, format: str, out: TextIO, *, color: bool | None = None, quiet: bool = False) -> None:
    """Print `report` on `out`, the same bytes for the same report.

    `color` None asks the stream and NO_COLOR; only the terminal format has colors. `quiet` leaves the findings alone:
    no skips, notes, facts or summary; machine formats are whole either way. Raises ValueError for an unknown format.
    """
    match format:
        case "terminal" if report.findings:
            from trl_lint.reports import terminal

            text = terminal.render(report, color=_wants_color(out) if color is None else color, quiet=quiet)
        case "terminal":  # without findings there is nothing to draw, and rich costs 50 ms to import
            from trl_lint.reports import summary

            text = "" if quiet else summary.render(report)
        case "concise":
            from trl_lint.reports import concise

            text = concise.render(report, quiet=quiet)
        case "json":
            from trl_lint.reports import json

            text = json.render(report)
        case "github":
            from trl_lint.reports import github

            text = github.render(report)
        case "gitlab":
            from trl_lint.reports import gitlab

            text = gitlab.render(report)
        case "junit":
            from trl_lint.reports import junit

            text = junit.render(report)
        case "sarif":
            from trl_lint.reports import sarif

            text = sarif.render(report)
        case _:
            raise ValueError(f"unknown output format {format!r}: one of {', '.join(FORMATS)}")
    out.write(_encodable(text, getattr(out, "encoding", None) or "utf-8"))


def write_statistics(report: Report, format: str, out: TextIO, *, quiet: bool = False) -> None:
    """Print how often each rule has found something, as JSON or as text."""
    from trl_lint.reports import statistics

    text = statistics.render_json(report) if format == "json" else statistics.render(report, quiet=quiet)
    out.write(_encodable(text, getattr(out, "encoding", None) or "utf-8"))


def _wants_color(out: TextIO) -> bool:
    """Whether a person looks at `out` and has not asked for plain text (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _encodable(text: str, encoding: str) -> str:
    """`text` with what `encoding` lacks written as \\uXXXX: a report in an ASCII locale must not end in a traceback."""
    return text.encode(encoding, "trl_lint.escape").decode(encoding)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """UTF-16 units rather than Python's \\UXXXXXXXX, since those are also right inside a JSON string."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


codecs.register_error("trl_lint.escape", _escape)
