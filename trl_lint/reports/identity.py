"""Findings in, what makes each the same one tomorrow out: for viewers that follow a finding from commit to commit."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping

from trl_lint.model import Finding


def fingerprints(findings: Iterable[Finding], sources: Mapping[str, bytes]) -> list[str]:
    """Of rule, file and text, not of the line; the nth of equals is told apart."""
    seen: Counter[str] = Counter()
    found = []
    for finding in findings:
        span = finding.span
        text = sources.get(span.path, b"")[span.start : span.end].replace(b"\r\n", b"\n")
        key = b"\0".join([finding.rule.encode(), os.fsencode(span.path.replace("\\", "/")), text])
        digest = hashlib.sha256(key).hexdigest()[:32]
        seen[digest] += 1
        found.append(f"{digest}:{seen[digest]}")
    return found
