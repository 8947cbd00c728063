"""Short ways to write the findings and reports that these tests print."""

from __future__ import annotations

from io import StringIO
from typing import Any

from trl_lint.model import Edit, Finding, Fix, Report, RunSummary, Severity, Span
from trl_lint.reports import write

RUN = RunSummary("r1", "grpo", ("train.py",), {"trl": {"value": "1.9.2", "origin": "uv.lock:812"}})


def span_of(source: bytes, piece: str, path: str = "train.py", upto: str | None = None) -> Span:
    """The span from the first `piece` of `source` to its end, or to the end of `upto`."""
    text = source.decode()
    start = text.index(piece)
    end = start + len(piece) if upto is None else text.index(upto, start) + len(upto)

    def position(at: int) -> tuple[int, int]:
        before = text[:at].replace("\r\n", "\n")
        return before.count("\n") + 1, len(before) - before.rfind("\n")

    return Span(path, len(text[:start].encode()), len(text[:end].encode()), *position(start), *position(end))


def finding(span: Span, **changes: Any) -> Finding:
    given: dict[str, Any] = {
        "rule": "online-without-vllm",
        "group": "vllm",
        "severity": Severity.warning,
        "certainty": "certain",
        "message": "generation takes most of each step",
        "span": span,
    }
    return Finding(**(given | changes))


def fix(**changes: Any) -> Fix:
    given: dict[str, Any] = {
        "title": "turn vLLM on",
        "effect": "same",
        "needs": (),
        "safety": "safe",
        "intents": (),
        "edits": (Edit("train.py", 4, 4, "use_vllm=True"),),
    }
    return Fix(**(given | changes))


def report(*findings: Finding, **changes: Any) -> Report:
    given: dict[str, Any] = {
        "version": "0.1.0",
        "files": 12,
        "findings": findings,
        "runs": (RUN,),
        "skipped": (),
        "notes": (),
        "sources": {},
    }
    return Report(**(given | changes))


def written(report: Report, format: str, **options: Any) -> str:
    out = StringIO()
    write(report, format, out, **options)
    return out.getvalue()
