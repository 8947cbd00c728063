"""The pairs of a variant in; what the charts draw out: before and after in their own units, kept steps, parts of the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl_lint.probe import comparison
from trl_lint.probe.comparison import RULES, Pair, Series, Verdict, median
from trl_lint.probe.probed import Ran


def warming(pair: Pair) -> int:
    """How many first steps of both were left out of the comparison."""
    return comparison.warmup(*pair)


def speeds(pairs: Sequence[Pair], verdict: Verdict) -> tuple[float, float] | None:
    """A's and B's median steps, or tokens, a second, whichever were compared."""
    if verdict.metric is None:
        return None
    steady = [comparison.steady_pair(a, b, RULES) for a, b in _both(pairs)]
    rates = [(comparison.rate(a, verdict.metric), comparison.rate(b, verdict.metric)) for a, b in steady]
    known = [(a, b) for a, b in rates if a and b]
    return (median(a for a, _ in known), median(b for _, b in known)) if known else None


def peaks(pairs: Sequence[Pair], verdict: Verdict) -> tuple[float, float] | None:
    """A's and B's median peak memory in bytes, by the count that was compared."""
    if verdict.memory_metric is None:
        return None
    found = [
        (comparison.peak(getattr(a, verdict.memory_metric)), comparison.peak(getattr(b, verdict.memory_metric)))
        for a, b in _both(pairs)
    ]
    known = [(a, b) for a, b in found if a and b]
    return (median(a for a, _ in known), median(b for _, b in known)) if known else None


def _both(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair[0].trained and pair[1].trained]


@dataclass(frozen=True)
class Parts:
    """Seconds of one step once it runs steadily, the median over trials. `generation` is None where none was measured."""

    step: float
    generation: float | None


def parts(pairs: Sequence[Pair]) -> tuple[Parts, Parts] | None:
    """Where a steady step's time goes, as it is and as fixed; None where nothing trained both ways."""
    both = _both(pairs)
    if not both:
        return None
    kept = [warming(pair) for pair in both]
    return (
        _parts([a for a, _ in both], kept),
        _parts([b for _, b in both], kept),
    )


def _parts(trials: Sequence[Series], kept: Sequence[int]) -> Parts:
    """A mean within each trial, since a batch that was generated once may serve several steps."""
    steps: list[float] = []
    generation: list[float] = []
    for series, dropped in zip(trials, kept, strict=True):
        start = min(dropped, len(series.seconds) - 1)
        steps.append(_mean(series.seconds[start:]))
        spent = [seconds for seconds in series.generation[start:] if seconds is not None]
        if len(spent) == len(series.seconds) - start:
            generation.append(_mean(spent))
    known = len(generation) == len(trials) and any(generation)
    return Parts(median(steps), min(median(generation), median(steps)) if known else None)


@dataclass(frozen=True)
class Whole:
    """Seconds of one whole trial: until the first step, in steps, and all that is left: between them and at the end."""

    startup: float
    steps: float
    rest: float


def whole(ran: Sequence[Ran]) -> Whole | None:
    """The median over the trials that trained; None where none did or their start was not measured."""
    known = [(r, r.series.startup) for r in ran if r.series.trained and r.series.startup is not None]
    if not known:
        return None
    return Whole(
        median(startup for _, startup in known),
        median(sum(r.series.seconds) for r, _ in known),
        median(max(0.0, r.seconds - startup - sum(r.series.seconds)) for r, startup in known),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
