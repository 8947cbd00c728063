"""The METADATA of a distribution in, its requirements and Python floor out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from typing import Any

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement

from trl_lint.knowledge.source import Source

_EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']""")


def read_metadata(source: Source) -> dict[str, Any]:
    """`python` (specifier text) and `requires` of a wheel, an installed package or a checkout."""
    if source.metadata["Requires-Python"] or source.metadata["Requires-Dist"]:
        return described(source.metadata["Requires-Dist"], source.metadata["Requires-Python"])
    if "pyproject.toml" in source.names:
        return project(source.text("pyproject.toml"))
    return {"python": "", "requires": {}}


def described(lines: Iterable[str], python: Iterable[str]) -> dict[str, Any]:
    """`Requires-Dist` lines as extra name ("" for the core) to package to ["specifier; marker", …]."""
    requires: dict[str, dict[str, list[str]]] = {}
    for line in lines:
        extra, package, text = _requirement(line)
        requires.setdefault(extra, {}).setdefault(package, []).append(text)
    return {
        "python": next(iter(python), ""),
        "requires": {e: {p: sorted(t) for p, t in r.items()} for e, r in requires.items()},
    }


def project(text: str) -> dict[str, Any]:
    """The same, of a `pyproject.toml`; empty when it describes no requirements."""
    declared = tomllib.loads(text).get("project", {})
    lines = list(declared.get("dependencies", []))
    for extra, more in declared.get("optional-dependencies", {}).items():
        lines += [f'{line}{" and" if ";" in line else ";"} extra == "{extra}"' for line in more]
    return described(lines, [declared["requires-python"]] if "requires-python" in declared else [])


def _requirement(line: str) -> tuple[str, str, str]:
    try:
        parsed = Requirement(line)
    except InvalidRequirement:
        name = re.match(r"[\w.-]+", line)
        return "", name[0].lower() if name else line, line
    marker = str(parsed.marker or "")
    extra = _EXTRA.search(marker)
    rest = _without_extra(parsed.marker)
    package = re.sub(r"[-_.]+", "-", parsed.name).lower() + (
        f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    )
    return extra[1] if extra else "", package, f"{parsed.specifier}{'; ' + rest if rest else ''}"


def _without_extra(marker: Marker | None) -> str:
    """The marker text with its `extra == …` clauses taken out."""
    text = str(marker or "")
    text = re.sub(r"""\s*(?:and|or)?\s*\bextra\s*==\s*["'][^"']+["']""", "", text)
    return re.sub(r"^\s*(?:and|or)\s+", "", text).strip()
