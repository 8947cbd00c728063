"""A file, the project root, the command line and the settings in; out the `Facts` to judge the file by.

The order in which sources are believed, for each package on its own: the command line; the file's comment; the file's
PEP 723 block or `pip install`s; `[tool.trl-lint]`; then the nearest folder that says anything - there TRL's own
repository, exact pins, the environment that trains, ranges. A mention without a version leaves the word to the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trl_lint.facts.folders import Level, folders_above, read_level
from trl_lint.facts.head import Comment, read_comment, read_script
from trl_lint.facts.requirements import allows, stated, wanted
from trl_lint.facts.words import Fact, Facts, FactsError, Hardware, Overrides, Stated, canonical, says, shown
from trl_lint.settings import Settings

if TYPE_CHECKING:
    from trl_lint.facts.environment import Environment


@dataclass(frozen=True, slots=True)
class _Decision:
    """The fact that the files settle on, and the level it came from (None: told by hand, or nothing tells a version)."""

    fact: Fact | None
    level: Level | None = None

    @property
    def open(self) -> bool:
        """Whether an installed version may make it exact. A range that somebody told by hand is meant as one."""
        return self.fact is None or not says(self.fact) or (self.level is not None and self.fact.version is None)


def gather(
    path: str,
    *,
    head: bytes,
    root: str,
    overrides: Overrides,
    settings: Settings,
    others: Sequence[tuple[str, bytes]] = (),
    header: bool = True,
) -> Facts:
    """What to believe for one file; `head` is all of its bytes. Raises FactsError for an override or setting only.

    `others` are further files of the same run: what they state of themselves counts where the first says nothing.
    `header` is False for a script that is started in its project's environment, whatever its PEP 723 block asks for.
    """
    path, root = os.path.abspath(path), os.path.abspath(root)
    name = shown(path, root)
    notes: list[str] = []
    comment = read_comment(head, name)
    for other, bytes_ in others:
        comment.add(read_comment(bytes_, shown(os.path.abspath(other), root)))
    script, said = read_script(head, name)
    asked: Fact | None = None
    if not header and not name.endswith(".ipynb"):
        asked, script = script.get("trl"), {}
    levels = _levels(os.path.dirname(path), root)
    notes += comment.notes + said + [note for level in levels for note in level.notes]
    # What a notebook that launches the script installs counts where the script's own project says nothing of TRL, and
    # so does the TRL that the script asks for itself, though it is not started that way.
    if "trl" not in script and not any("trl" in (*level.exact, *level.ranges) or level.own for level in levels):
        for other, bytes_ in others:
            installed, _said = read_script(bytes_, shown(os.path.abspath(other), root))
            there = {n: f for n, f in installed.items() if f.state != "not-installed"}
            script = {**(there if other.endswith(".ipynb") else {}), **script}
    if "trl" in script or any("trl" in (*level.exact, *level.ranges, *level.bare) or level.own for level in levels):
        asked = None
    if any(level.own for level in levels):
        script.pop("trl", None)  # TRL's own examples ask for `trl` and are run with the source beside them
    elif "trl" in script:
        levels = []  # a script with a block of its own runs in an environment of its own: the project's files say nothing
    if asked is not None:
        script["trl"] = asked
    told = [_from_overrides(overrides), comment.packages, script, _from_settings(settings)]

    trl = _decide("trl", told, levels)
    environment, where = _environment(trl, levels, root, overrides, settings, notes)
    packages = _packages(told, levels, environment, where, notes)
    notes += _git_builds(packages.values())
    tree, version = _source(packages.get("trl"), levels, environment)
    return Facts(
        packages=packages,
        hardware=_hardware(comment, overrides, settings),
        processes=comment.numbers.get("num_processes"),
        nodes=comment.numbers.get("nodes"),
        zero_stage=comment.numbers.get("zero_stage"),
        processes_origin=comment.where.get("num_processes"),
        launch=_command_line(comment.texts.get("launch"), head),
        server=_command_line(comment.texts.get("server"), head),
        accelerate=comment.texts.get("accelerate"),
        trainer=comment.texts.get("trainer"),
        parser=comment.texts.get("parser"),
        notes=tuple(dict.fromkeys(notes)),
        source_tree=tree,
        source_version=version,
    )


def _command_line(text: str | None, head: bytes) -> Stated | None:
    if text is None:
        return None
    before, found, _ = head.partition(text.encode())
    return Stated(text, before if found and b"trl-lint" in before else b"")


# Told by hand --------------------------------------------------------------------------------------------------------


def _from_overrides(overrides: Overrides) -> dict[str, Fact]:
    named = {canonical(name): text for name, text in overrides.packages.items()}
    return {package: _stated(package, text, f"--{package}", f"--{package}") for package, text in named.items()}


def _from_settings(settings: Settings) -> dict[str, Fact]:
    texts = settings.packages.items()
    return {package: _stated(package, text, "[tool.trl-lint]", settings.origins[package]) for package, text in texts}


def _stated(package: str, text: str, origin: str, place: str) -> Fact:
    try:
        return stated(package, text, origin)
    except ValueError as error:
        raise FactsError(f"{place}: {error}") from None


def _hardware(comment: Comment, overrides: Overrides, settings: Settings) -> Hardware | None:
    """The first GPU that is named; the first count that is not the count of another GPU."""
    in_file = comment.where.get("gpu") or comment.where.get("n_gpu", "")
    sources = [
        _gpu(overrides.gpu, None, "--gpu"),
        _gpu(comment.texts.get("gpu"), comment.numbers.get("n_gpu"), in_file),
        _gpu(settings.gpu, None, "[tool.trl-lint]"),
    ]
    known = [source for source in sources if source]
    named = next((source for source in known if source.gpu), None)
    gpu = named.gpu if named else None
    counted = next((source for source in known if source.count is not None and source.gpu in (None, gpu)), None)
    origins = dict.fromkeys(source.origin for source in known if source is named or source is counted)
    return Hardware(gpu, counted.count if counted else None, ", ".join(origins)) if origins else None


def _gpu(text: str | None, count: int | None, origin: str) -> Hardware | None:
    """ "a100:8" is eight of them; "none" and a count of 0 are the same thing said twice: a CPU."""
    name, colon, number = (text or "").rpartition(":")
    if colon and number.isdecimal():
        text, count = name, int(number) if count is None else count
    if not text and count is None:
        return None
    if text and text.lower().startswith("none"):
        count = 0
    return Hardware(text or ("none" if count == 0 else None), count, origin)


# Told by the project -------------------------------------------------------------------------------------------------


def _levels(folder: str, root: str) -> list[Level]:
    levels = [read_level(above, root) for above in folders_above(folder, root)]
    for position, near in enumerate(levels):
        for far in levels[position + 1 :]:
            # A member of a uv workspace is locked by the workspace's lock, as if it stood beside it.
            if far.members and os.path.relpath(near.folder, far.folder).replace(os.sep, "/") in far.members:
                levels[position] = replace(near, exact={**near.exact, **far.locked})
    return levels


def _decide(package: str, told: Sequence[Mapping[str, Fact]], levels: Sequence[Level]) -> _Decision:
    for facts in told:
        if (fact := facts.get(package)) and says(fact) and not _only_installed(fact):
            return _Decision(fact)
    for level in levels:
        if package == "trl" and level.own:
            return _Decision(level.own, level)
        if fact := level.exact.get(package) or level.ranges.get(package):
            return _Decision(fact, level)
    mentions = [*(facts.get(package) for facts in told), *(level.bare.get(package) for level in levels)]
    return _Decision(next((fact for fact in mentions if fact and not _only_installed(fact)), None))


def _packages(
    told: Sequence[Mapping[str, Fact]],
    levels: Sequence[Level],
    environment: Environment | None,
    where: str,
    notes: list[str],
) -> dict[str, Fact]:
    names = {name for facts in told for name in facts}
    for level in levels:
        names.update(level.exact, level.ranges, level.bare, ["trl"] if level.own else [])
    names.update(environment.versions if environment else ())
    packages: dict[str, Fact] = {}
    for name in sorted(names):
        decision = _decide(name, told, levels)
        fact = decision.fact
        if environment and decision.open and (version := environment.versions.get(name)):
            fact = _installed(name, version, decision, environment, where, notes)
        # "vllm=installed" tells that it is there; which version may still be known from elsewhere.
        there = next((facts[name] for facts in told if name in facts and _only_installed(facts[name])), None)
        if there and fact and fact.state == "declared":
            fact = replace(fact, state="installed", origin=f"{there.origin}, {fact.origin}") if says(fact) else there
        if fact := fact or there:
            packages[name] = fact
    return packages


def _only_installed(fact: Fact) -> bool:
    return fact.state == "installed" and fact.version is None


# The environment that trains -----------------------------------------------------------------------------------------


def _environment(
    trl: _Decision,
    levels: Sequence[Level],
    root: str,
    overrides: Overrides,
    settings: Settings,
    notes: list[str],
) -> tuple[Environment | None, str]:
    """The first environment that holds a TRL which the files allow, and how to call it."""
    from_file = trl.level is not None
    for prefix, where, chosen in _candidates(levels, root, overrides, settings, notes):
        from trl_lint.facts.environment import read_environment

        environment = read_environment(prefix)
        if environment is None:
            notes += [f"{where} holds no trl: not the environment that trains"] if chosen == "by hand" else []
            continue
        if refusal := _refused(environment, trl):
            # An activated environment may have nothing to do with this project; one beside it, or named, has.
            if chosen == "by hand" or (chosen == "beside" and from_file):
                notes.append(
                    f"{where} holds trl {environment.versions['trl']}, which {refusal} does not allow: not used"
                )
            continue
        return environment, where
    return None, ""


def _candidates(
    levels: Sequence[Level], root: str, overrides: Overrides, settings: Settings, notes: list[str]
) -> Iterator[tuple[str, str, str]]:
    named = overrides.python or settings.python
    if named:
        from trl_lint.facts.environment import prefix_of

        origin = f"--python {named}" if overrides.python else f"{settings.origins['python']} ({named})"
        if prefix := prefix_of(named):
            yield prefix, origin, "by hand"
        elif overrides.python:
            raise FactsError(f"--python: {named} is neither an interpreter nor the folder of an environment")
        else:
            notes.append(f"{origin} is neither an interpreter nor the folder of an environment; ignored")
        return
    for level in levels:
        for prefix in level.environments:
            yield prefix, shown(prefix, root), "beside"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if prefix := os.environ.get(variable):
            yield os.path.abspath(prefix), f"{variable} ({prefix})", "activated"


def _refused(environment: Environment, trl: _Decision) -> str | None:
    """Which of the declarations does not allow the installed TRL; None when all do."""
    if trl.level and trl.level.own and environment.tree == trl.level.folder:
        return None  # an editable install of this very repository: its metadata may be of an older day
    bounds = trl.level.bounds.get("trl", ()) if trl.level and trl.open else ()
    for bound in bounds or filter(None, (trl.fact,)):
        if bound.state == "not-installed" or not allows(bound.specifier, environment.versions["trl"]):
            return f"{bound.origin} ({wanted(bound) or bound.state})"
    return None


def _installed(
    package: str, version: str, decision: _Decision, environment: Environment, where: str, notes: list[str]
) -> Fact | None:
    for bound in decision.level.bounds.get(package, ()) if decision.level else ():
        if not allows(bound.specifier, version):
            notes.append(
                f"{where} holds {package} {version}, which {bound.origin} ({wanted(bound)}) does not allow: not used"
            )
            return decision.fact
    commit = decision.fact.commit if decision.fact else None
    if package == "trl":
        commit = environment.commit or commit
    return Fact(package, f"=={version}", version, "installed", where, commit)


# What else follows ---------------------------------------------------------------------------------------------------


def _source(
    trl: Fact | None, levels: Sequence[Level], environment: Environment | None
) -> tuple[str | None, str | None]:
    for level in levels:
        if trl is not None and trl is level.own:
            return level.folder, level.own.version
    if environment and environment.tree:
        return environment.tree, environment.versions["trl"]
    return None, None


def _git_builds(facts: Iterable[Fact]) -> list[str]:
    return [
        f"{fact.origin}: {fact.package} is a git build ({fact.commit}): judged as the newest release known"
        for fact in facts
        if fact.commit and not fact.specifier
    ]


def describe(facts: Facts) -> list[str]:
    """The lines of `trl-lint facts`: each belief with its origin, TRL first, then what could not be used."""
    names = sorted(facts.packages, key=lambda name: (name != "trl", name))
    lines = [] if "trl" in facts.packages else ["trl: any release (nothing says which)"]
    lines += [f"{name} {_belief(facts.packages[name])} ({facts.packages[name].origin})" for name in names]
    if hardware := facts.hardware:
        count = "" if hardware.count is None else f" x {hardware.count}"
        lines.append(f"gpu {hardware.gpu or 'unknown'}{count} ({hardware.origin})")
    if facts.processes is not None:
        lines.append(f"processes {facts.processes} ({facts.processes_origin})")
    for word in ("nodes", "zero_stage", "launch", "server", "accelerate", "trainer", "parser"):
        if (value := getattr(facts, word)) is not None:
            lines.append(f"{word} {value}")
    if facts.source_tree:
        lines.append(f"source of trl {facts.source_version}: {facts.source_tree}")
    return lines + [f"note: {note}" for note in facts.notes]


def _belief(fact: Fact) -> str:
    if fact.state == "not-installed":
        return "not installed"
    known = fact.version or fact.specifier or (f"git build {fact.commit}" if fact.commit else "")
    return known or ("installed" if fact.state == "installed" else "any release")
