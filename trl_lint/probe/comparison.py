"""Pairs of trials in (the script as it is, A, and as fixed, B, in the order they ran); out a `Verdict` with its numbers.

Pure statistics over `Series`: no clock, no file, no process. What counts as a gain, as noise and as another training
stands in `Rules` and `TOLERANCES`, what follows from it in `compare`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["trained", "raised", "out of memory", "hung", "killed", "refused", "not reached"]
Effect: TypeAlias = Literal["same", "numerics", "training"]
Name: TypeAlias = Literal["confirmed", "repaired", "no gain", "slower", "changes training", "broken", "cannot tell"]
Metric: TypeAlias = Literal["steps per second", "tokens per second"]


@dataclass(frozen=True)
class Series:
    """What one trial did, step by step: entry i of every tuple belongs to the optimizer step i + 1.

    An entry that was not measured is None; a tuple that was not measured at all may be empty. Of several ranks: the
    slowest one's `seconds` and `generation`, the sum of `tokens` and `samples`, rank 0's `losses` and `logs`, and the
    fullest device's `allocated`, `reserved` and `gpu_used` (bytes). `startup` is in seconds, from the start of the
    process to the first step. `error` is the child's last error in one line, None when it trained.
    """

    seconds: tuple[float, ...] = ()
    tokens: tuple[float | None, ...] = ()
    losses: tuple[float | None, ...] = ()
    allocated: tuple[int | None, ...] = ()
    gpu_used: tuple[int | None, ...] = ()
    startup: float | None = None
    outcome: Outcome = "trained"
    error: str | None = None
    logs: tuple[Mapping[str, float | None], ...] = ()
    generation: tuple[float | None, ...] = ()
    samples: tuple[float | None, ...] = ()
    reserved: tuple[int | None, ...] = ()

    @property
    def trained(self) -> bool:
        """It left after its last step, and there are steps to look at."""
        return self.outcome == "trained" and bool(self.seconds)


# A's trial and B's, whichever of the two ran first.
Pair: TypeAlias = tuple[Series, Series]


@dataclass(frozen=True)
class Tolerance:
    """How far a loss of B may lie from A's: `absolute` + `relative` times A's, beyond what A's own trials differ by."""

    relative: float
    absolute: float


# By effect, and by whether the arithmetic is exact (fp32 on a CPU) or rounded (bf16, fp16, TF32, or any GPU, whose sums
# come in no fixed order). Rounding alone moved fp32 losses by 1e-6 and bf16 losses by some 1e-2 within a few steps.
TOLERANCES: Mapping[tuple[Effect, bool], Tolerance] = {
    ("same", True): Tolerance(2e-4, 2e-5),
    ("same", False): Tolerance(0.02, 0.01),
    ("numerics", True): Tolerance(0.02, 0.02),
    ("numerics", False): Tolerance(0.05, 0.05),
}


@dataclass(frozen=True)
class Promise:
    """What the page says of a fix. `online`: the method samples its own completions; `exact`: fp32 on a CPU.

    A `tolerance` that the page declares takes the place of the table's.
    """

    effect: Effect = "same"
    online: bool = False
    exact: bool = False
    tolerance: Tolerance | None = None


SAME = Promise()


@dataclass(frozen=True)
class Rules:
    """All numbers that a verdict depends on, and why they are what they are."""

    # The first steps compile, autotune, fill caches. Further ones go while the first that is left is still this much
    # slower than those after it, as long as `kept` or more stay.
    warmup: int = 2
    falling: float = 1.10
    kept: int = 3
    # Less is not worth a diff, and machines wander by as much.
    gain: float = 0.03
    memory_gain: float = 0.05
    # Where B does more tokens in a step (packing), a step is no unit of work.
    tokens_differ: float = 0.02
    # The extremes of 5 pairs are the smallest distribution-free interval of a median with 90 %; see RANKS.
    pairs: int = 5
    most_pairs: int = 12
    # A trial may stop by accident once (a port, a neighbour on the GPU). A usage error does not.
    stops: int = 2
    # The losses that are compared: later ones amplify rounding.
    losses: int = 8
    # Online, the reward of B may lie outside the range of A's by the width of that range, by this part of A's, or by
    # `reward_floor`, whichever is most; B's KL may be this many times A's, or `kl_floor`.
    reward: float = 0.5
    reward_floor: float = 0.1
    kl: float = 10.0
    kl_floor: float = 1.0
    # One trial of A does not say how far A's losses differ from A's.
    loss_pairs: int = 2
    # What a device holds beyond torch's own pool (an inference engine) may differ by this before torch's figures no
    # longer tell the whole.
    outside_torch: int = 2**30


RULES = Rules()

# Which order statistics of n log ratios, counted from either end, bound the median. If each pair errs in A's favour as
# often as in B's, whatever the distribution, an interval of rank k misses with 2 * P(binomial(n, 1/2) < k); at 5 pairs
# and rank 1 that is 6.25 %. These ranks are chosen so that all intervals from 5 to 12 pairs *together* miss with less
# than 10 % (9.7 %, by counting): looking after each pair and stopping once decided costs no coverage.
RANKS: Mapping[int, int] = {5: 1, 6: 1, 7: 1, 8: 1, 9: 2, 10: 2, 11: 2, 12: 3}


@dataclass(frozen=True)
class Verdict:
    """`ratio` is the speed of B over that of A, `memory_ratio` B's peak over A's, each the median over pairs.

    `low` and `high` bound `ratio`, None below 5 pairs. `pairs` are those in which both trained. `startup_cost_seconds`
    is what B takes longer until it runs steadily (start and warm-up steps), `payback_steps` after how many steps of A's
    size that is earned back: 0 when B starts no slower, None when never or unknown.
    """

    name: Name
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    metric: Metric | None = None
    memory_ratio: float | None = None
    startup_cost_seconds: float | None = None
    payback_steps: int | None = None
    reason: str = ""
    memory_low: float | None = None
    memory_high: float | None = None
    memory_metric: Literal["allocated", "gpu_used"] | None = None
    gains: tuple[Literal["speed", "memory"], ...] = ()


def compare(pairs: Sequence[Pair], promise: Promise = SAME, rules: Rules = RULES) -> Verdict:
    """The verdict over all pairs so far. Every rule is a line here, the first that holds decides."""
    if not pairs:
        return Verdict("cannot tell", reason="nothing was run")
    both = [pair for pair in pairs if pair[0].trained and pair[1].trained]
    a_stops = [a for a, _ in pairs if not a.trained]
    b_stops = [b for _, b in pairs if not b.trained]
    measured = _measure(both, rules) if both else Verdict("cannot tell")
    stops = max(len(a_stops), len(b_stops))
    seen = _count(stops, len(pairs))
    enough = len(pairs) == 1 or stops >= rules.stops
    match bool(a_stops), bool(b_stops):
        case True, True:
            what = "neither trains" if not both else "both stop at times"
            return _named(measured, "cannot tell", f"{what}: as it is it {_end(a_stops)}; as fixed it {_end(b_stops)}")
        case True, False if enough:
            return _named(measured, "repaired", f"as fixed it trains; as it is it {_end(a_stops)} ({seen})")
        case False, True if enough:
            return _named(measured, "broken", f"as fixed it {_end(b_stops)} ({seen}); as it is it trains")
        case False, True:
            return _named(measured, "cannot tell", f"as fixed it {_end(b_stops)} ({seen})")
        case _:
            # A that stopped once says nothing against B.
            pass
    if difference := _other_training(both, promise, rules):
        return _named(measured, "changes training", difference)
    if len(both) < rules.pairs:
        return _named(measured, "cannot tell", f"{len(both)} of the {rules.pairs} pairs that a verdict takes")
    return _judged(measured, rules)


def needs_more(pairs: Sequence[Pair], promise: Promise = SAME, rules: Rules = RULES) -> bool:
    """Whether one more pair could change the verdict and is worth its time."""
    if not pairs or len(pairs) >= rules.most_pairs:
        return not pairs
    a_stops, b_stops = sum(not a.trained for a, _ in pairs), sum(not b.trained for _, b in pairs)
    if len(pairs) in (a_stops, b_stops):
        sure = any(series.outcome in ("refused", "not reached") for pair in pairs for series in pair)
        return not sure and len(pairs) < rules.stops
    if min(a_stops, b_stops) >= rules.stops:
        return False
    return compare(pairs, promise, rules).name == "cannot tell"


def best(verdicts: Mapping[str, Verdict]) -> str | None:
    """The variant to keep: one that repairs before all others, else the fastest confirmed one, else the leanest.

    Its trials trained on this machine, so it fits the memory.
    """

    def rank(name: str) -> tuple[bool, float, float]:
        verdict = verdicts[name]
        speed = verdict.ratio if verdict.ratio is not None and "speed" in verdict.gains else 1.0
        return verdict.name == "repaired", speed, -(verdict.memory_ratio or 1.0)

    kept = [name for name, verdict in verdicts.items() if verdict.name in ("confirmed", "repaired")]
    return max(kept, key=rank, default=None)


# Speed and memory ----------------------------------------------------------------------------------------------------


def median(values: Iterable[float]) -> float:
    """The `statistics` module has one too, but takes 6 ms to import, and linting reads evidence."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Bounds of the median of what `values` were drawn from, with 90 % or more; None when they are too few."""
    rank = RANKS.get(min(len(values), max(RANKS)))
    if rank is None:
        return None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[-rank]


def _judged(measured: Verdict, rules: Rules) -> Verdict:
    """The verdict that speed and memory give once outcomes and losses are in order."""
    low, high, gain = measured.low, measured.high, 1 + rules.gain
    if low is None or high is None:
        return _named(measured, "cannot tell", "the steps could not be timed")
    leaner = measured.memory_high is not None and measured.memory_high < 1 - rules.memory_gain
    memory = _memory(measured)
    if low > gain:
        gains: tuple[Literal["speed", "memory"], ...] = ("speed", "memory") if leaner else ("speed",)
        return _named(measured, "confirmed", f"{_speed(measured)}{memory}", gains)
    if high < 1 / gain:
        return _named(measured, "slower", f"{_speed(measured)}{memory}")
    if leaner and low >= 1 / gain:
        return _named(measured, "confirmed", f"less memory{memory}; {_speed(measured)}", ("memory",))
    if low >= 1 / gain and high <= gain:
        return _named(measured, "no gain", f"{_speed(measured)}: within {rules.gain:.0%}{memory}")
    return _named(measured, "cannot tell", f"{_speed(measured)}: the spread is wider than the gain{memory}")


def _measure(both: Sequence[Pair], rules: Rules) -> Verdict:
    """All numbers over pairs in which both trained, without a verdict yet."""
    steady = [steady_pair(a, b, rules) for a, b in both]
    metric = _metric(steady, rules)
    ratios = [
        math.log(rate_b / rate_a) for a, b in steady if (rate_a := rate(a, metric)) and (rate_b := rate(b, metric))
    ]
    memory_metric, memory = _memory_ratios(both, rules)
    memory_bounds = interval(memory)
    measured = Verdict(
        "cannot tell",
        pairs=len(both),
        memory_ratio=math.exp(median(memory)) if memory else None,
        memory_low=math.exp(memory_bounds[0]) if memory_bounds else None,
        memory_high=math.exp(memory_bounds[1]) if memory_bounds else None,
        memory_metric=memory_metric,
    )
    if len(ratios) < len(both):
        return measured
    bounds = interval(ratios)
    ratio = math.exp(median(ratios))
    started = [(a, b) for a, b in steady if a.startup is not None and b.startup is not None]
    cost = median((b.startup or 0) + b.warming - (a.startup or 0) - a.warming for a, b in started) if started else None
    return replace(
        measured,
        ratio=ratio,
        low=math.exp(bounds[0]) if bounds else None,
        high=math.exp(bounds[1]) if bounds else None,
        metric=metric,
        startup_cost_seconds=cost,
        payback_steps=_payback(cost, median(a.seconds for a, _ in steady) * (1 - 1 / ratio)),
    )


def _payback(cost: float | None, saved: float) -> int | None:
    """Steps until `cost` seconds are earned back by `saved` seconds a step."""
    if cost is None or (cost > 0 and saved <= 0):
        return None
    return math.ceil(cost / saved) if cost > 0 else 0


@dataclass(frozen=True)
class _Steady:
    """A trial once it runs steadily: the median `seconds` of a step, `rate` in tokens per second, mean `tokens` a step.

    `warming` is what the dropped steps took beyond steady ones: compiling in the first step is start-up too.
    """

    seconds: float
    rate: float | None
    tokens: float | None
    startup: float | None
    warming: float


def steady_pair(a: Series, b: Series, rules: Rules) -> tuple[_Steady, _Steady]:
    """Both without the same first steps: seeded alike, step i of both has the same data."""
    cycle, dropped = max(_cycle(a), _cycle(b)), warmup(a, b, rules)
    return _steady(a, dropped, cycle), _steady(b, dropped, cycle)


def warmup(a: Series, b: Series, rules: Rules = RULES) -> int:
    """How many first steps of both are left out."""
    cycle = max(_cycle(a), _cycle(b))
    return max(_dropped(a.seconds, cycle, rules), _dropped(b.seconds, cycle, rules))


def _cycle(series: Series) -> int:
    """How many steps share one generation: 1 unless an online method trains several steps on one batch of samples.

    A median over single steps would then leave generation out, however long it takes.
    """
    spent = [s for s in series.generation if s is not None]
    if len(spent) < len(series.seconds) or not (top := max(spent, default=0.0)):
        return 1
    generating = [step for step, s in enumerate(spent) if s > 0.05 * top]
    gaps = [after - before for before, after in pairwise(generating)]
    return round(median(gaps)) if gaps else len(spent)


def _dropped(seconds: Sequence[float], cycle: int, rules: Rules) -> int:
    """How many first steps to leave out: the declared ones, in whole cycles, and those that are still falling."""
    count = math.ceil(rules.warmup / cycle) * cycle
    while True:
        units = _means(seconds[count:], cycle)
        if len(units) <= rules.kept or units[0] <= rules.falling * median(units[1:]):
            return count
        count += cycle


def _steady(series: Series, dropped: int, cycle: int) -> _Steady:
    # A short trial keeps its last step, or cycle of steps, whatever is to be dropped.
    dropped = min(dropped, max(len(series.seconds) - cycle, 0))
    times = _means(series.seconds[dropped:], cycle)
    step = median(times)
    tokens = [count for count in series.tokens[dropped:] if count is not None]
    warming = max(0.0, sum(series.seconds[:dropped]) - dropped * step)
    if len(tokens) < len(series.seconds) - dropped or not all(times):
        return _Steady(step, None, None, series.startup, warming)
    rates = [count / time for count, time in zip(_means(tokens, cycle), times, strict=True)]
    return _Steady(step, median(rates), sum(tokens) / len(tokens), series.startup, warming)


def _means(values: Sequence[float], cycle: int) -> list[float]:
    """The mean of each whole cycle; of all values when they are fewer."""
    if len(values) < cycle:
        return [sum(values) / len(values)] if values else []
    return [sum(values[i : i + cycle]) / cycle for i in range(0, len(values) - cycle + 1, cycle)]


def _metric(steady: Sequence[tuple[_Steady, _Steady]], rules: Rules) -> Metric:
    a = [trial.tokens for trial, _ in steady if trial.tokens]
    b = [trial.tokens for _, trial in steady if trial.tokens]
    if len(a) < len(steady) or len(b) < len(steady):
        return "steps per second"
    fewer, more = sorted((median(a), median(b)))
    return "tokens per second" if more / fewer > 1 + rules.tokens_differ else "steps per second"


def rate(trial: _Steady, metric: Metric) -> float | None:
    if metric == "tokens per second":
        return trial.rate
    return 1 / trial.seconds if trial.seconds > 0 else None


def _memory_ratios(both: Sequence[Pair], rules: Rules) -> tuple[Literal["allocated", "gpu_used"] | None, list[float]]:
    """Log ratios of the peaks, by torch's own count, which is exact, or by the device's where torch does not see all."""
    outside = [(_outside(a), _outside(b)) for a, b in both]
    unseen = any(a is not None and b is not None and abs(b - a) > rules.outside_torch for a, b in outside)
    metric: Literal["allocated", "gpu_used"] = "gpu_used" if unseen else "allocated"
    peaks = [(peak(getattr(a, metric)), peak(getattr(b, metric))) for a, b in both]
    ratios = [math.log(b / a) for a, b in peaks if a and b]
    return (metric, ratios) if ratios and len(ratios) == len(both) else (None, [])


def peak(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _outside(series: Series) -> int | None:
    """What the device holds at its peak beyond torch's pool in the trainer's process."""
    used, reserved = peak(series.gpu_used), peak(series.reserved)
    return None if used is None or reserved is None else used - reserved


# The same training? --------------------------------------------------------------------------------------------------


def _other_training(both: Sequence[Pair], promise: Promise, rules: Rules) -> str | None:
    """What shows that B trains something else than A; None if nothing does."""
    if len(both) < rules.loss_pairs:
        return None
    a_losses = _by_step([a.losses for a, _ in both], rules.losses)
    b_losses = _by_step([b.losses for _, b in both], rules.losses)
    steps = list(enumerate(zip(a_losses, b_losses, strict=False), 1))
    for step, (a, b) in steps:
        if all(map(math.isfinite, a)) and not all(map(math.isfinite, b)):
            return f"the loss of step {step} is not finite; as it is {median(a):.5g}"
    if promise.effect == "training":
        return None
    if promise.online:
        return _insane(both, rules)
    tolerance = promise.tolerance or TOLERANCES[promise.effect, promise.exact]
    for step, (a, b) in steps:
        if not all(map(math.isfinite, (*a, *b))):
            continue
        allowed = tolerance.absolute + tolerance.relative * abs(median(a)) + max(a) - min(a)
        if abs(median(b) - median(a)) > allowed:
            return f"the loss of step {step} is {median(b):.5g} instead of {median(a):.5g} (±{allowed:.2g} is allowed)"
    return None


def _by_step(trials: Sequence[Sequence[float | None]], most: int) -> list[list[float]]:
    """For each of the first steps the losses of all trials; it ends with the first step that a trial lacks."""
    columns: list[list[float]] = []
    for column in zip(*trials, strict=False):
        values = [value for value in column if value is not None]
        if len(values) < len(column) or len(columns) == most:
            break
        columns.append(values)
    return columns


def _insane(both: Sequence[Pair], rules: Rules) -> str | None:
    """Sampling differs from trial to trial, so that only a reward or a KL far from all of A's says something."""
    for name in ("reward", "kl"):
        a, b = _logged((a for a, _ in both), name), _logged((b for _, b in both), name)
        if not a or not b or not all(map(math.isfinite, a)):
            continue
        if not all(map(math.isfinite, b)):
            return f"the {name} is not finite; as it is {median(a):.5g}"
        low, high, most = min(a), max(a), max(map(abs, a))
        if name == "reward":
            room = max(high - low, rules.reward * most, rules.reward_floor)
            if not low - room <= median(b) <= high + room:
                return f"the reward is {median(b):.5g}; as it is {low:.5g} to {high:.5g}"
        elif abs(median(b)) > max(rules.kl * most, rules.kl_floor):
            return f"the KL divergence is {median(b):.5g}; as it is at most {most:.5g}"
    return None


def _logged(trials: Iterable[Series], name: str) -> list[float]:
    """All values logged as `name`, or as "objective/name" by trainers that put them in groups."""
    return [
        value
        for series in trials
        for step in series.logs
        for key, value in step.items()
        if value is not None and key.rpartition("/")[2] == name
    ]


# Words ---------------------------------------------------------------------------------------------------------------


def _named(measured: Verdict, name: Name, reason: str, gains: tuple[Literal["speed", "memory"], ...] = ()) -> Verdict:
    return replace(measured, name=name, reason=reason, gains=gains)


def _end(stopped: Sequence[Series]) -> str:
    """ "runs out of memory: CUDA out of memory. Tried to …" of the last one that stopped."""
    last = stopped[-1]
    words = {
        "trained": "leaves without a step",
        "raised": "stops",
        "out of memory": "runs out of memory",
        "hung": "hangs",
        "killed": "is killed",
        "refused": "is refused",
        "not reached": "never trains",
    }
    return f"{words[last.outcome]}: {last.error}" if last.error else words[last.outcome]


def _count(stops: int, pairs: int) -> str:
    if pairs == 1:
        return "one pair"
    return f"all {pairs} pairs" if stops == pairs else f"{stops} of {pairs} pairs"


def _speed(measured: Verdict) -> str:
    ratio, low, high = measured.ratio or 1.0, measured.low or 1.0, measured.high or 1.0
    return f"{times(ratio)}x the {measured.metric} ({times(low)} to {times(high)}, {measured.pairs} pairs)"


def times(ratio: float) -> str:
    """ "1.04", "6.8", "120": as many digits as a measurement can bear."""
    return f"{ratio:.{2 if ratio < 2.995 else 1 if ratio < 99.95 else 0}f}"


def _memory(measured: Verdict) -> str:
    """ ", memory +186 %": only where it says something."""
    if measured.memory_ratio is None or abs(change := measured.memory_ratio - 1) < 0.01:
        return ""
    return f", memory {change:+.0%}"
