"""Judged files and their findings in; the findings with what the project's probes have recorded of them out.

Without a `.trl-lint/evidence.jsonl` nothing is imported and nothing is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from trl_lint.cli.discover import project_of
from trl_lint.model import Finding, Measured

if TYPE_CHECKING:
    from trl_lint.probe.evidence import Conditions, Evidence, Scalar
    from trl_lint.rulebook.files import Examined
    from trl_lint.runs import Run, World

PLACE = os.path.join(".trl-lint", "evidence.jsonl")
"""`FOLDER` and `NAME` of probe/evidence.py, which is not imported to find out that there is none."""


def added(examined: Examined, findings: Iterable[Finding], notes: list[str]) -> list[Finding]:
    """The findings with what was measured; `notes` gets what the evidence cannot be read for."""
    path = place(os.path.dirname(os.path.abspath(examined.path)))
    if path is None:
        return list(findings)
    evidence = _loaded(path)
    notes += evidence.notes
    runs = {run.id: run for run in examined.runs}
    return [_with(f, runs.get(next(iter(f.runs), "")), evidence) for f in findings]


@cache
def place(folder: str) -> str | None:
    """The evidence of a folder: in it, or the nearest above within its project."""
    path = os.path.join(folder, PLACE)
    if os.path.isfile(path):
        return path
    above = os.path.dirname(folder)
    return None if above == folder or folder == project_of(folder) else place(above)


@cache
def _loaded(path: str) -> Evidence:
    from trl_lint.probe.evidence import load

    return load(os.path.relpath(path))


def _with(finding: Finding, run: Run | None, evidence: Evidence) -> Finding:
    if run is None or run.worlds.assumed is None or finding.fix is None:
        return finding
    from trl_lint.probe.evidence import sentence, stale, summary

    now = _conditions(run, run.worlds.assumed, finding)
    record = evidence.for_finding(finding.rule, run.method, key=finding.fix.key, now=now)
    if record is None:
        return finding
    changes = stale(record, now)
    return replace(finding, measured=Measured(sentence(record, changes), summary(record, changes)))


def _conditions(run: Run, world: World, finding: Finding) -> Conditions:
    """What is known of the run as it is written now: nothing that is only assumed, and not what the fix itself changes."""
    from trl_lint.probe.evidence import Conditions, fields_that_matter
    from trl_lint.runs import View

    view = View(run, world)

    def known(name: str) -> object:
        values = view.alternatives(name)
        return values[0] if isinstance(values, tuple) and len(values) == 1 else ...

    changing = {*finding.fields, *(i.name for i in finding.fix.intents)} if finding.fix is not None else set()
    written = set(run.config.arguments) - changing if run.config is not None else set()
    versions = {name: fact.version for name, fact in run.facts.packages.items() if fact.version is not None}
    if len(run.worlds.candidates) == 1:
        versions["trl"] = world.version
    hardware: dict[str, Scalar] = {}
    stated = run.facts.hardware
    if stated is not None and stated.gpu is not None:
        hardware["gpu"] = None if stated.gpu.lower() == "none" else stated.gpu
    processes = known("world_size")
    if isinstance(processes, int):
        hardware["count"] = processes
    return Conditions(
        run.method,
        fields=fields_that_matter({name: known(name) for name in written}),
        hardware=hardware,
        versions=versions,
    )
