"""The contract, byte for byte."""

import json

from trl_lint.model import Related, RunSummary, Skip, Span

from .building import finding, fix, report, span_of, written

DOCUMENT = """\
{
  "version": 1,
  "tool": "trl-lint 0.1.0",
  "files": 12,
  "runs": [
    {
      "id": "r1",
      "method": "grpo",
      "files": [
        "train.py",
        "launch.sh"
      ],
      "facts": {
        "trl": {
          "value": "1.16.0",
          "origin": "uv.lock:812"
        },
        "gpu": {
          "value": "a100",
          "count": 8,
          "origin": "--gpu"
        }
      }
    }
  ],
  "findings": [
    {
      "rule": "online-without-vllm",
      "group": "vllm",
      "severity": "warning",
      "certainty": "certain",
      "message": "火 generation",
      "path": "train.py",
      "cell": null,
      "line": 1,
      "column": 3,
      "end_line": 1,
      "end_column": 6,
      "method": "grpo",
      "runs": [
        "r1"
      ],
      "fields": [
        "use_vllm"
      ],
      "assumed": null,
      "undecided": null,
      "held_back": null,
      "related": [
        {
          "path": "launch.sh",
          "line": 3,
          "end_line": 3,
          "message": "here"
        }
      ],
      "fix": {
        "title": "turn vLLM on",
        "safety": "unsafe",
        "effect": "same",
        "needs": [
          "install"
        ],
        "edits": [
          {
            "path": "train.py",
            "start": 4,
            "end": 4,
            "text": "use_vllm=True"
          }
        ]
      },
      "evidence": null
    }
  ],
  "skipped": [
    {
      "path": "broken.py",
      "reason": "why"
    }
  ]
}
"""


def test_whole() -> None:
    facts: dict[str, dict[str, object]] = {
        "trl": {"value": "1.16.0", "origin": "uv.lock:812"},
        "gpu": {"value": "a100", "count": 8, "origin": "--gpu"},
    }
    given = finding(
        span_of(b"f(a=1)", "a=1"),
        message="火 generation",
        method="grpo",
        runs=("r1",),
        fields=("use_vllm",),
        related=(Related(Span("launch.sh", 40, 50, 3, 1, 3, 11), "here"),),
        fix=fix(safety="unsafe", needs=("install",)),
    )
    runs = (RunSummary("r1", "grpo", ("train.py", "launch.sh"), facts),)
    assert written(report(given, runs=runs, skipped=(Skip("broken.py", "why"),)), "json", quiet=True) == DOCUMENT


def test_empty() -> None:
    assert json.loads(written(report(runs=()), "json")) == {
        "version": 1,
        "tool": "trl-lint 0.1.0",
        "files": 12,
        "runs": [],
        "findings": [],
        "skipped": [],
    }


def test_keys_are_there_when_they_say_nothing() -> None:
    [bare] = json.loads(written(report(finding(Span("n.ipynb", 0, 1, 1, 1, 1, 2, 3))), "json"))["findings"]
    assert bare["fix"] is bare["method"] is None
    assert (bare["cell"], bare["runs"], bare["fields"], bare["related"]) == (3, [], [], [])


def test_sorted_by_path_cell_line_column_rule() -> None:
    spans = [
        Span("a.py", 0, 1, 2, 1, 2, 2),
        Span("a.py", 0, 1, 2, 5, 2, 6),
        Span("a.py", 0, 1, 10, 1, 10, 2),
        Span("n.ipynb", 0, 1, 9, 1, 9, 2, 2),
        Span("n.ipynb", 0, 1, 1, 1, 1, 2, 10),
    ]
    findings = [finding(span, rule=rule) for span in spans for rule in ("a", "b")]
    shown = json.loads(written(report(*reversed(findings)), "json"))["findings"]
    assert [(row["path"], row["cell"], row["line"], row["column"], row["rule"]) for row in shown] == [
        (given.span.path, given.span.cell, given.span.line, given.span.column, given.rule) for given in findings
    ]
