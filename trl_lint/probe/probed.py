"""What a probe found, as its reports need it: the trials of the script as it is, those of each variant, and verdicts.

Plain data: nothing here runs, reads or writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from trl_lint.model import Effect
from trl_lint.probe.comparison import Pair, Series, Verdict
from trl_lint.probe.evidence import Conditions

AS_IS = "as it is"


@dataclass(frozen=True)
class Ran:
    """One trial. `pair` counts from 0, `seconds` is its whole time, start and end included.

    `tail` are the last lines that it wrote to stderr, without secrets, of a trial that did not train.
    """

    pair: int
    series: Series
    seconds: float
    reproduce: str = ""
    tail: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tried:
    """A variant and what came of it. `name` is its rule's, or "all"; `rules` those whose fixes are in it.

    `diff` is a unified diff of all files that it changes. `ran` holds only its own trials: those of the same `pair` in
    `Probed.as_is` are what they are compared with. `known` is the date of the record that the verdict was taken from
    when nothing had to be measured again.
    """

    name: str
    title: str
    effect: Effect
    rules: tuple[str, ...]
    diff: str
    verdict: Verdict
    ran: tuple[Ran, ...] = ()
    known: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One trial of a search. `speed` is None where it did not train or was ended early; `outcome` says which."""

    title: str
    speed: float | None
    outcome: str


@dataclass(frozen=True)
class Searched:
    """The search before the pairs. `speed` of its attempts, in their order, is in `metric`, and so is `as_is`.

    `ended` says why it went no further, `refused` how many settings cost no trial. `failures` and `importances` are
    (error, times) and (choice, share of the differences that it makes), the most first.
    """

    metric: str
    ended: str
    attempts: tuple[Attempt, ...]
    as_is: float | None = None
    refused: int = 0
    failures: tuple[tuple[str, int], ...] = ()
    importances: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Probed:
    """One probe of one script. `date` is ISO 8601, UTC; `command` runs it again; `kept` names the variant to keep.

    `search` is what led to the variants where a tuner did.
    """

    script: str
    command: str
    date: str
    tool: str
    steps: int
    seconds: float
    conditions: Conditions
    as_is: tuple[Ran, ...] = ()
    tried: tuple[Tried, ...] = ()
    kept: str | None = None
    refused: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    search: Searched | None = None

    def pairs(self, tried: Tried) -> list[Pair]:
        """The pairs in which both the script as it is and the variant were run."""
        as_is = {ran.pair: ran.series for ran in self.as_is}
        return [(as_is[ran.pair], ran.series) for ran in sorted(tried.ran, key=lambda r: r.pair) if ran.pair in as_is]
