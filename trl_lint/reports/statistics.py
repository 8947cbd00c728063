"""A Report in, how often each rule has found something out, the most frequent first."""

from __future__ import annotations

import json
from collections import Counter

from trl_lint.model import Report, Severity
from trl_lint.reports import summary


def render(report: Report, *, quiet: bool) -> str:
    """`3  error    unknown-config-field  2 fixable` a line, then the summary."""
    rows = _rows(report)
    width = max((len(str(row["count"])) for row in rows), default=0)
    name = max((len(str(row["rule"])) for row in rows), default=0)
    lines = []
    for row in rows:
        fixable = f"  {row['fixable']} fixable" if row["fixable"] else ""
        lines.append(f"{row['count']:>{width}}  {row['severity']:<7}  {row['rule']:<{name}}{fixable}".rstrip())
    return "".join(f"{line}\n" for line in [*lines, *([] if quiet else [summary.found(report)])])


def render_json(report: Report) -> str:
    return json.dumps(_rows(report), indent=2, ensure_ascii=False) + "\n"


def _rows(report: Report) -> list[dict[str, object]]:
    """`fixable` counts what --fix or --unsafe-fixes could write."""
    counts: Counter[str] = Counter()
    fixable: Counter[str] = Counter()
    worst: dict[str, Severity] = {}
    groups: dict[str, str] = {}
    for finding in report.findings:
        counts[finding.rule] += 1
        fixable[finding.rule] += summary.writable(finding)
        worst[finding.rule] = max(worst.get(finding.rule, Severity.note), finding.severity)
        groups[finding.rule] = finding.group
    return [
        {"rule": rule, "group": groups[rule], "severity": worst[rule].name, "count": count, "fixable": fixable[rule]}
        for rule, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
