"""The words of the whole program, as frozen values: no behaviour beyond reading them, no import of ours.

Every room speaks these types and nothing else to the next: sources yield `Site`s, runs link them, the rulebook yields
`Finding`s with `Intent`s, fixing turns those into `Edit`s, reports print the rest. None of them has slots, and the two
that come by the ten thousand are tuples: a second run over a repository is mostly unpickling, and those unpickle fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias


class Span(NamedTuple):
    """A piece of one file. `start`/`end` are byte offsets, end exclusive; lines and columns are 1-based code points."""

    path: str
    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int
    cell: int | None = None


# Where a value comes from -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """Read from a file; `span` is the expression that gave the value."""

    span: Span


@dataclass(frozen=True)
class Default:
    """What a release uses when nothing is given; `release` reads "trl 1.16.0"."""

    release: str


@dataclass(frozen=True)
class Derived:
    """Computed from other values, by the release itself or by us; `how` says from what."""

    how: str


@dataclass(frozen=True)
class Stated:
    """A fact of versions or hardware; `where` reads "uv.lock:812", "--gpu", "probed"."""

    where: str


Origin: TypeAlias = Written | Default | Derived | Stated


# Values --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Symbol:
    """A dotted name that stands for itself, such as `torch.bfloat16`; `name` is fully qualified."""

    name: str


@dataclass(frozen=True)
class Table:
    """A mapping whose keys are known: entries keep their own values and places. `open` says why more keys may exist."""

    entries: Mapping[str, Argument]
    span: Span | None
    open: str | None = None


@dataclass(frozen=True)
class Object:
    """The result of a call that we know: the site holds its class and arguments."""

    site: Site


@dataclass(frozen=True)
class Known:
    """Exactly this. `value` is None, a bool, int, float or str, a tuple of those, or a Symbol, Table or Object."""

    value: object
    origin: Origin


@dataclass(frozen=True)
class OneOf:
    """One of these, and the files do not say which."""

    values: tuple[Known, ...]
    origin: Origin


@dataclass(frozen=True)
class Unknown:
    """Cannot be read from this file. `why` completes "cannot be read: …"; `likely` is a default that a caller may replace.

    `field` names the field of a parsed config (or the argparse option) that decides: another file may give it.
    """

    why: str
    likely: Known | None = None
    field: str | None = None


Value: TypeAlias = Known | OneOf | Unknown


# Sites ---------------------------------------------------------------------------------------------------------------

PlaceKind: TypeAlias = Literal["keyword", "positional", "entry", "assignment", "loader", "key", "flag", "env"]


class Place(NamedTuple):
    """Where one argument is written, for editing and for pointing at.

    `whole` covers `name=value` (or `"name": value`, `args.name = value`, YAML's `name: value`, `--name value`,
    `NAME=value`), `value` the expression there (all of `whole` for a flag without a value), and `binding` the
    expression of the name bound once that this one merely repeats: the last writer, which an edit changes.
    `container` is the start byte of the call, mapping or command that holds it.
    """

    kind: PlaceKind
    whole: Span
    value: Span
    container: int
    binding: Span | None = None


@dataclass(frozen=True)
class Argument:
    """One value given at a site, and where. `conditional` ones are given on some branches only."""

    name: str
    value: Value
    place: Place
    conditional: bool = False


SiteKind: TypeAlias = Literal[
    "config", "trainer", "model", "peft", "quantization", "dataset", "parser", "import", "object",
    "recipe", "accelerate", "deepspeed", "flags", "launcher", "server", "elsewhere",
]  # fmt: skip


@dataclass(frozen=True)
class Site:
    """One place in a source that gives a TRL class, a model load, a recipe, a command … its values.

    `name` is the class as its library names it ("GRPOConfig", "AutoModelForCausalLM"), `origin` the fully qualified
    path it was imported from ("trl.GRPOConfig"). `span` runs from the callee to the closing parenthesis. `arguments`
    holds the last writer of each value; `open` says why more may be given (`**kwargs`). `lenient` says why a call
    tolerates unknown fields (a version shim around it). `function` is the enclosing function, for naming runs.
    `layers` are the sites that a run's config was put together from, the weakest first: each argument belongs to one.
    """

    kind: SiteKind
    name: str
    origin: str
    span: Span
    callee: Span
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    open: str | None = None
    lenient: str | None = None
    function: str | None = None
    variable: str | None = None
    layers: tuple[Site, ...] = ()


# Commands ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """One word of a command as the shell would hand it over; `text` is None where the file does not say it.

    `span` is what stands in the command for it. `why` says why it cannot be read. `likely` marks a default that a caller
    may replace (`${X:-y}`); `text` is then that default. `binding` is the literal of the variable that the word merely
    repeats, if that variable is bound once. `plain` is True where `span` holds this word and nothing else, so that the
    text there may be replaced; it is False for a word that came out of a splitting variable or an array. Of a word that
    cannot be read `head` is its readable beginning (`--port=` of `--port=$PORT`); `many` says that it may be several words.
    """

    text: str | None
    span: Span
    why: str | None = None
    likely: bool = False
    binding: Span | None = None
    plain: bool = True
    head: str = ""
    many: bool = False


@dataclass(frozen=True)
class Command:
    """One simple command: its words, and the environment that the file gives it.

    `words` hold neither redirections nor assignments. `environment` maps variables to what is in force for this
    command: its own prefix (`place.kind` "env", `place.container` the command's start), else an earlier export. `span`
    runs from the first prefix to the last word. `background` is True where the shell goes on at once (`&`, tmux).
    `conditional` is True inside if, case or a loop that may not run. `function` is the enclosing shell function.
    `quoted` is True where the command stands inside a string or a heredoc whose text is not the command's own bytes.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Argument]
    span: Span
    background: bool = False
    conditional: bool = False
    function: str | None = None
    quoted: bool = False


# Findings ------------------------------------------------------------------------------------------------------------


class Severity(IntEnum):
    """What happens if a finding is true, in rising order."""

    note = 1
    warning = 2
    error = 3


Certainty: TypeAlias = Literal["certain", "assumed", "possible"]
Effect: TypeAlias = Literal["same", "numerics", "training"]
Safety: TypeAlias = Literal["safe", "unsafe"]


@dataclass(frozen=True)
class Edit:
    """Bytes `start` to `end` of `path` become `text`."""

    path: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Intent:
    """What a fix wants at a target, before any text is thought of.

    `set` gives argument `name` the `value` (a literal, or Source for an expression); `drop` removes it; `rename` calls
    it `value`, keeping its expression; `move` takes it from `site` and gives it to `to` under the name `value`;
    `import` imports `name` from module `value` instead; `class` calls `value` instead of the class at `site`; `command`
    makes `value` the words that call the program of a command. At a launcher or server, `env.X` names a variable.
    """

    op: Literal["set", "drop", "rename", "move", "import", "class", "command"]
    site: Site
    name: str
    value: object = None
    to: Site | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """An expression to write as it stands, rather than a literal to be quoted."""

    text: str


@dataclass(frozen=True)
class Fix:
    """One way out of a finding. `edits` are filled in once the intents have met their file; they stand alone.

    `key` tells the page's alternatives apart whatever their titles are filled with.
    """

    title: str
    effect: Effect
    needs: tuple[str, ...]
    safety: Safety
    intents: tuple[Intent, ...]
    edits: tuple[Edit, ...] = ()
    key: str = ""


@dataclass(frozen=True)
class Related:
    """A second place that a finding is about."""

    span: Span
    message: str


@dataclass(frozen=True)
class Measured:
    """What a probe of this project has recorded of a finding's fix.

    `said` reads "6.8x, measured on NVIDIA H200 on 2026-11-30; your run has since changed (trl 1.15.0 -> 1.16.0)".
    `summary` is the same for machines: verdict, speedup, low, high, hardware, date, stale.
    """

    said: str
    summary: Mapping[str, object]

    @property
    def advises(self) -> bool:
        """Whether the fix is still to be advised: not if it brought nothing, or harm, to this very run."""
        return bool(self.summary["stale"]) or self.summary["verdict"] in ("confirmed", "repaired", "cannot tell")


@dataclass(frozen=True)
class Finding:
    """A rule that holds on one or more runs, at one primary span.

    `assumed` is the release it was judged by when the pins allow others ("trl 1.16.0"); `undecided` names the value
    that would decide a *possible* finding; `held_back` says why its fix must not be written.
    """

    rule: str
    group: str
    severity: Severity
    certainty: Certainty
    message: str
    span: Span
    related: tuple[Related, ...] = ()
    method: str | None = None
    runs: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    fix: Fix | None = None
    alternatives: tuple[str, ...] = ()
    assumed: str | None = None
    undecided: str | None = None
    held_back: str | None = None
    gain: int = 0
    measured: Measured | None = None

    @property
    def order(self) -> tuple[str, int, int, int, str, str]:
        """The sort key of every report: path, (cell,) line, column, rule."""
        return (self.span.path, self.span.cell or 0, self.span.line, self.span.column, self.rule, self.message)


@dataclass(frozen=True)
class Skip:
    """A file that could not be judged, and why, in one line."""

    path: str
    reason: str


@dataclass(frozen=True)
class RunSummary:
    """What a report says of one run: which files describe it and by which facts it was judged."""

    id: str
    method: str | None
    files: tuple[str, ...]
    facts: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Ledger:
    """What fixing did: nothing vanishes. Each entry of `held_back` and `failed` is (finding, why)."""

    applied: tuple[Finding, ...] = ()
    held_back: tuple[tuple[Finding, str], ...] = ()
    failed: tuple[tuple[Finding, str], ...] = ()
    changed: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Everything a reporter may print. `sources` holds the bytes of files that findings point into."""

    version: str
    files: int
    findings: tuple[Finding, ...]
    runs: tuple[RunSummary, ...]
    skipped: tuple[Skip, ...]
    notes: tuple[str, ...]
    sources: Mapping[str, bytes]
    ledger: Ledger | None = None

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)
