"""The sources of a project in; its runs and findings out. What the command line, the fixer and the tests all call.

Files that some run goes through together are judged together, as one group: `Examined`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from trl_lint import facts as facts_room
from trl_lint.facts import Facts, Overrides
from trl_lint.model import Finding, RunSummary, Severity, Span
from trl_lint.rulebook import ignores
from trl_lint.rulebook.engine import judge, merge
from trl_lint.rulebook.rule import Rule
from trl_lint.runs import Linker, Project, Run, Worlds, worlds
from trl_lint.runs.moving import moved, overrides_of_a_move
from trl_lint.settings import Settings
from trl_lint.sources.look import kind_of
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.reading import read
from trl_lint.sources.text import Text


@dataclass(frozen=True)
class Context:
    """What stays the same for all files of one invocation. `settings` gives the settings that hold for a path.

    `keeps` says whether a finding is to be reported by where it stands. `unused_ignores` asks for the ignore comments
    that silence nothing, which is known only where all rules are asked. `target` is the TRL release to judge by in place of
    the one that the files state, which they are moved from.
    """

    root: str
    rules: tuple[Rule, ...]
    overrides: Overrides
    settings: Callable[[str], Settings]
    rules_for: Callable[[str], tuple[Rule, ...]] | None = None
    possible: bool = False
    no_ignores: bool = False
    keeps: Callable[[Finding], bool] | None = None
    unused_ignores: bool = False
    target: str | None = None

    def rules_of(self, path: str) -> tuple[Rule, ...]:
        """The rules that the settings of a path leave."""
        return self.rules_for(path) if self.rules_for is not None else self.rules


@dataclass(frozen=True)
class Sources:
    """The files at hand. `given` are those to report on; the others are context.

    `names` are all files of the project that a command may name, and `load` reads one of them.
    """

    texts: dict[str, Text]
    modules: dict[str, Module]
    given: frozenset[str]
    names: tuple[str, ...] = ()
    load: Callable[[str], tuple[Text, Module] | None] = field(default=lambda _path: None, repr=False)

    def project(self) -> Project:
        return Project(self.modules, self.names, self._load, self._named)

    def _load(self, path: str) -> Module | None:
        found = self.load(path)
        if found is None:
            return None
        self.texts[path] = found[0]
        return found[1]

    def _named(self, path: str) -> Module | None:
        if path not in self.texts and self._load(path) is None:
            return None
        if not path.endswith((".yaml", ".yml")):
            return None
        from trl_lint.sources import recipe

        try:
            return recipe.named(self.texts[path])
        except Unparsable:
            return None


@dataclass(frozen=True)
class Examined:
    """Files that were judged together. `path` is the first that leads a run; `facts` and `worlds` are that run's."""

    path: str
    paths: tuple[str, ...]
    sources: Sources
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    facts: Facts
    worlds: Worlds
    notes: tuple[str, ...] = ()
    summaries: tuple[RunSummary, ...] = field(default=())
    known: dict[int, frozenset[tuple[str, str, str]]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """What `errors_in_every_world` has found, by context: a state that many fixes start from is asked once."""

    @property
    def text(self) -> Text:
        """The text of the leading file."""
        return self.sources.texts[self.path]

    @property
    def module(self) -> Module:
        """What the leading file says."""
        return self.sources.modules[self.path]

    def light(self) -> Examined:
        """What a report needs of files without findings: neither their texts nor their sites."""
        return replace(self, sources=_NOTHING, runs=())


_NOTHING = Sources({}, {}, frozenset())


def examine(path: str, text: Text, context: Context, module: Module | None = None) -> Examined:
    """Judge one file as if it stood alone. Raises Unparsable."""
    return examine_group({path: text}, context, {path: module} if module is not None else {})


def examine_group(texts: Mapping[str, Text], context: Context, modules: Mapping[str, Module] | None = None) -> Examined:
    """Judge files together, as one project; the first leads. Raises Unparsable."""
    known = dict(modules or {})
    for path, text in texts.items():
        if path not in known:
            known[path] = read(text)
    return judged(tuple(texts), Sources(dict(texts), known, frozenset(texts)), context)


def examine_all(sources: Sources, context: Context) -> Iterator[Examined]:
    """Judge a whole project, a group of linked files at a time."""
    linker = _linker(sources, context)
    for group in _groups(_drawn_in(linker, sources), sources):
        yield judged(group, sources, context, linker)


def again(examined: Examined, texts: Mapping[str, Text], context: Context) -> Examined:
    """The same files with other texts: read, linked and judged again. Raises Unparsable."""
    before = examined.sources
    modules = dict(before.modules)
    for path, text in texts.items():
        modules[path] = read(text)
    sources = replace(before, texts={**before.texts, **texts}, modules=modules)
    return judged(examined.paths, sources, context)


def judged(paths: tuple[str, ...], sources: Sources, context: Context, linker: Linker | None = None) -> Examined:
    """Link and judge the files of one group."""
    linker = linker or _linker(sources, context)
    runs = tuple({run.id: run for run in linker.runs(paths)}.values())
    found: list[Finding] = []
    for run in runs:
        lead = run.paths[0] if run.paths else run.module.path
        found += judge(run, context.rules_of(lead), possible=context.possible)
    merged = [f for f in merge(found, runs) if _reported(f, sources.given)]
    if not context.no_ignores:
        merged = _heeded(merged, paths, sources, runs, context)
    if context.keeps is not None:
        merged = [f for f in merged if context.keeps(f)]
    facts, allowed = linker.facts_of((paths[0],), True) if not runs else (runs[0].facts, runs[0].worlds)
    notes = [n for run in runs for n in (*run.facts.notes, *run.worlds.notes)] or list(facts.notes)
    return Examined(
        paths[0], paths, sources, runs, tuple(merged), facts, allowed, tuple(dict.fromkeys(notes)),
        tuple(_summary(r) for r in runs if r.method is not None and _concerned(r, sources.given)),
    )  # fmt: skip


def _linker(sources: Sources, context: Context) -> Linker:
    kept: dict[tuple[tuple[str, ...], bool], tuple[Facts, Worlds]] = {}

    def facts_of(paths: tuple[str, ...], header: bool) -> tuple[Facts, Worlds]:
        asked = (paths, header)
        if asked not in kept:
            if context.target is None:
                found = gathered(paths, header, context.overrides)
                kept[asked] = (found, worlds(found))
            else:
                written_for, judged_by = overrides_of_a_move(context.overrides, context.target)
                now, then = gathered(paths, header, written_for), gathered(paths, header, judged_by)
                kept[asked] = moved(now, then, context.target)
        return kept[asked]

    def gathered(paths: tuple[str, ...], header: bool, overrides: Overrides) -> Facts:
        first, *others = paths
        return facts_room.gather(
            first, head=_bytes(sources, first), root=context.root, overrides=overrides,
            settings=context.settings(first), others=[(p, _bytes(sources, p)) for p in others], header=header,
        )  # fmt: skip

    return Linker(sources.project(), facts_of)


def _bytes(sources: Sources, path: str) -> bytes:
    return sources.texts[path].data if path in sources.texts else b""


def _reported(finding: Finding, given: frozenset[str]) -> bool:
    return finding.span.path in given or any(r.span.path in given for r in finding.related)


def _concerned(run: Run, given: frozenset[str]) -> bool:
    return run.module.path in given or any(p in given for p in run.paths)


def _drawn_in(linker: Linker, sources: Sources) -> list[tuple[str, ...]]:
    """Read what the files name and nobody gave: scripts, recipes, launcher configs, the modules of their classes.

    The answer are the files that belong together.
    """
    for _ in range(3):  # what a script imports is known once the script is read
        bundles = list(linker.bundles())
        missing = {p for paths in bundles for p in paths if p not in sources.modules}
        found = {path: module for path in sorted(missing) if (module := linker.project.module(path)) is not None}
        if not found:
            break
        sources.modules.update(found)
    return bundles


def _groups(bundles: list[tuple[str, ...]], sources: Sources) -> Iterator[tuple[str, ...]]:
    """The given files in groups that runs go through together; a file that leads comes before what it draws in."""
    parent = {path: path for path in sources.modules}

    def root(path: str) -> str:
        while parent[path] != path:
            parent[path] = parent[parent[path]]
            path = parent[path]
        return path

    for paths in bundles:
        known = [p for p in paths if p in parent]
        for other in known[1:]:
            parent[root(other)] = root(known[0])
    groups: dict[str, list[str]] = {}
    for path in sources.modules:
        groups.setdefault(root(path), []).append(path)
    for group in groups.values():
        if any(p in sources.given for p in group):
            yield tuple(sorted(group, key=lambda p: (kind_of(p) not in ("python", "notebook"), p)))


def _heeded(
    findings: list[Finding], paths: tuple[str, ...], sources: Sources, runs: tuple[Run, ...], context: Context
) -> list[Finding]:
    """The findings that no ignore comment of their files covers, and those about comments that cover none."""
    every = findings
    about: list[Finding] = []
    for path in paths:
        text = sources.texts.get(path)
        if text is None or ignores.MARK not in text.data:
            continue
        comments, around = ignores.read(text), ignores.calls(sources.modules[path])
        findings = ignores.apply(findings, comments, around, text)
        if context.unused_ignores and path in sources.given:
            about += _unused(ignores.idle(comments, every, around, path), text, around, runs, context)
    return sorted([*findings, *about], key=lambda f: f.order)


def _unused(
    idle: dict[ignores.Ignore, tuple[str, ...]],
    text: Text,
    around: tuple[Span, ...],
    runs: tuple[Run, ...],
    context: Context,
) -> Iterator[Finding]:
    """A finding for each comment with names that ignore nothing. Names whose rules the settings leave out are not judged."""
    if not idle:
        return
    path = text.path
    asked = context.rules_of(path)
    ran = {r.name for r in asked} | {r.group for r in asked}
    known = ran | {r.name for r in context.rules} | {r.group for r in context.rules}
    ran -= {r.group for r in context.rules if r.name not in ran}
    if not context.possible:  # what is shown with --possible only may be what a comment is there for
        named = {name for names in idle.values() for name in names}
        rules = tuple(r for r in asked if {r.name, r.group} & named)
        possible = merge([f for run in runs for f in judge(run, rules, possible=True)], runs)
        still = ignores.idle(idle, possible, around, path)
        idle = {comment: tuple(n for n in names if n in still.get(comment, ())) for comment, names in idle.items()}
    for comment, names in idle.items():
        judged = {n: n in known for n in names if n in ran or n not in known}
        if judged:
            yield ignores.unused(comment, judged, text)


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
    return RunSummary(run.id, run.method, run.paths or (run.module.path,), shown)


def errors_in_every_world(examined: Examined, context: Context) -> frozenset[tuple[str, str, str]]:
    """(world, rule, what) of every error in every world that the pins allow: what a fix must not add to."""
    if (known := examined.known.get(id(context))) is not None:
        return known
    found: set[tuple[str, str, str]] = set()
    for run in examined.runs:
        rules = context.rules_of(run.paths[0] if run.paths else run.module.path)
        for world in run.worlds.others:
            single = replace(
                run, worlds=replace(run.worlds, assumed=world, candidates=(world.version,), overlay=world.release)
            )
            label = f"{world.version}/{world.transformers}"
            found.update(
                (label, f.rule, ",".join(f.fields)) for f in judge(single, rules) if f.severity is Severity.error
            )
    examined.known[id(context)] = frozenset(found)
    return examined.known[id(context)]
