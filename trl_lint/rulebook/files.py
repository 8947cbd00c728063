"""One Python file's bytes in; its runs and findings out. What the command line, the fixer and the tests all call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from trl_lint import facts as facts_room
from trl_lint.facts import Facts, Overrides
from trl_lint.model import Finding, RunSummary, Severity
from trl_lint.rulebook import ignores
from trl_lint.rulebook.engine import judge, merge
from trl_lint.rulebook.rule import Rule
from trl_lint.runs import Run, Worlds, link, worlds
from trl_lint.settings import Settings
from trl_lint.sources.module import Module
from trl_lint.sources.text import Text


@dataclass(frozen=True)
class Context:
    """What stays the same for all files of one invocation. `settings` gives the settings that hold for a path."""

    root: str
    rules: tuple[Rule, ...]
    overrides: Overrides
    settings: Callable[[str], Settings]
    rules_for: Callable[[str], tuple[Rule, ...]] | None = None
    possible: bool = False
    no_ignores: bool = False


@dataclass(frozen=True)
class Examined:
    """A file as it was judged."""

    path: str
    text: Text
    module: Module
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    facts: Facts
    worlds: Worlds
    notes: tuple[str, ...] = ()
    summaries: tuple[RunSummary, ...] = field(default=())

    def light(self) -> Examined:
        """What a report needs of a file without findings: neither its text nor its sites."""
        return replace(self, text=_NOTHING, module=Module(self.path, ()), runs=())


_NOTHING = Text("", b"")


def examine(path: str, text: Text, context: Context, module: Module | None = None) -> Examined:
    """Read (unless `module` comes from the cache), link and judge one file. Raises Unparsable."""
    if module is None:
        from trl_lint.sources.python import read

        module = read(text)
    facts = facts_room.gather(
        path, head=text.data, root=context.root, overrides=context.overrides, settings=context.settings(path)
    )
    allowed = worlds(facts)
    runs = tuple(link(module, facts, allowed))
    rules = context.rules_for(path) if context.rules_for is not None else context.rules
    found = [finding for run in runs for finding in judge(run, rules, possible=context.possible)]
    merged = merge(found, runs)
    if not context.no_ignores and ignores.MARK in text.data:
        merged = sorted(ignores.apply(merged, ignores.read(text), module.sites, text), key=lambda f: f.order)
    notes = (*facts.notes, *allowed.notes) if runs else facts.notes
    return Examined(
        path,
        text,
        module,
        runs,
        tuple(merged),
        facts,
        allowed,
        notes,
        tuple(_summary(r) for r in runs if r.method is not None),
    )


def _summary(run: Run) -> RunSummary:
    shown: dict[str, Mapping[str, object]] = {}
    assumed = run.worlds.assumed
    if assumed is not None:
        shown["trl"] = {"value": assumed.version, "origin": run.worlds.origin}
    for name, fact in sorted(run.facts.packages.items()):
        if name != "trl" and (fact.version is not None or fact.state == "not-installed"):
            shown[name] = {"value": fact.version or "not installed", "origin": fact.origin}
    hardware = run.facts.hardware
    if hardware is not None:
        shown["gpu"] = {"value": hardware.gpu, "count": hardware.count, "origin": hardware.origin}
    return RunSummary(run.id, run.method, (run.module.path,), shown)


def errors_in_every_world(examined: Examined, rules: tuple[Rule, ...]) -> frozenset[tuple[str, str, str]]:
    """(world, rule, what) of every error in every world that the pins allow: what a fix must not add to."""
    found: set[tuple[str, str, str]] = set()
    for run in examined.runs:
        for world in run.worlds.others:
            single = replace(
                run, worlds=replace(run.worlds, assumed=world, candidates=(world.version,), overlay=world.release)
            )
            label = f"{world.version}/{world.transformers}"
            found.update(
                (label, f.rule, ",".join(f.fields)) for f in judge(single, rules) if f.severity is Severity.error
            )
    return frozenset(found)
