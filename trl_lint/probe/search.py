"""A space of settings and a way to measure a point of it in; a study that holds every point tried, with its speed, out.

Search, storage, pruning and importances are Optuna's. What is ours: a point is a text, so none is measured twice; what the
tool refuses and what must run out of memory costs no trial; and the budget is counted in the storage, by all workers alike.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeAlias, cast

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.pruners import MedianPruner
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

from trl_lint.probe import kernels
from trl_lint.probe.comparison import RULES, Metric, Series, Verdict, compare, median, peak, rate, steady_pair
from trl_lint.probe.probed import Attempt, Probed, Searched
from trl_lint.probe.session import GOOD, Job, Listener, Session
from trl_lint.probe.space import Choice, Point, Refused
from trl_lint.probe.trials import Trial
from trl_lint.probe.variants import Variant

HEARTBEAT, GRACE = 20, 90
"""Seconds: how often a worker says that it lives, and after how many its trial is given to another one."""
PACKAGES = {
    "grpc": "grpcio",
    "google": "protobuf",
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
}
"""Where a module that a storage needs is in a package of another name."""
RETRIES = 2
"""A point that ends its worker so often is left alone."""
STOPS = 2
"""A choice that stopped so many trials, and with which none trained, is not tried again."""
NOT_TIMED = "left without steps that could be timed"
_STOPS = frozenset({NOT_TIMED, "raised", "hung", "killed", "refused", "not reached"})
STARTUP = 5
"""Points at random, the starts among them, before anything is learned from them."""
MODEL = 4
"""Every so many proposals come from the model of all points, the others change one choice of the best point. Settings
mostly multiply: of 448 points, timed within 1 %, the best was found in 30 trials by 29 seeds of 30; by TPE alone, by 13 of 20."""
NEAR = 12
"""After so many proposals in a row that needed no trial there is little left around the best point: the next are random."""
IDLE = 60
"""As many of them, and there is nothing left that is worth a trial."""
UNSETTLED = 10.0
"""Seconds of steps below which a trial is not ended early: its steps are too short to time from outside."""
LONGER = 5
"""Without heartbeats a trial that takes so many times as long as the longest before it, and the grace, is that of a dead worker."""
CLAIM = 30.0
"""Seconds until a worker that has come to the same text, and does not say whether it runs it, is taken for dead."""
RUNS = "runs"
"""The attribute of a trial that has been found needed: nothing keeps it from running any more."""
SINGLE = 1000
"""Single trials are numbered from here, so that none has the number of a pair."""
GAIN = 0.01
"""A point has to be faster by so much for the search to be worth going on."""
CLOSE = 0.85
"""A point at least this part as fast as the best one may be no slower: single trials wander by as much."""
TUNED, SIMPLER = "tuned", "simpler"
"""What the best point and a simpler one are called where they are compared with the run as it is."""


class CannotTune(RuntimeError):
    """One line: why the study cannot be opened, or gone on with."""


class TooSlow(optuna.TrialPruned):
    """Slower than the median of the others at this step."""


class _Needless(Exception):
    """A point that needs no trial of its own. Optuna counts it as failed, so that nothing is learned from it."""


class Choosing(Protocol):
    """What is searched: a `Space`."""

    @property
    def choices(self) -> Sequence[Choice]: ...

    def walk(self, ask: Callable[[Choice], int]) -> Point: ...

    def variant(self, point: Point, name: str) -> Variant | None: ...

    def starts(self) -> list[Point]: ...

    def title(self, point: Point) -> str: ...

    def ruled_out(self, point: Point, exhausted: Point) -> bool: ...


Pace: TypeAlias = Callable[[int, float], None]
"""Hears the number of a step and the steps per second up to it; raises TooSlow."""
Measure: TypeAlias = Callable[[Variant | None, str, Pace], Series]
"""Runs a variant (None: the run as it is) under a name, once."""


@dataclass(frozen=True)
class Budget:
    """When a search ends: after so many trials, so many minutes, or so many trials in a row that were no faster.

    Of the minutes it leaves what the comparison at the end is likely to take, which has so many `pairs`.
    """

    trials: int = 30
    minutes: float | None = None
    patience: int | None = 15
    pairs: int = 0


# The study -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """What a study is about. `files` maps the files that matter to digests of their texts."""

    script: str
    files: Mapping[str, str]
    space: str
    steps: int
    command: str

    @property
    def name(self) -> str:
        """The study's name in its storage."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.script} {hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def differs(self, other: Mapping[str, Any]) -> str:
        """What is no longer as it was in another study of this script."""
        files = other.get("files", {})
        changed = sorted(f for f in {*files, *self.files} if files.get(f) != self.files.get(f))
        if changed:
            return f"{', '.join(changed)} changed since"
        if other.get("steps") != self.steps:
            return f"its trials have {other.get('steps')} steps"
        if other.get("command") != self.command:
            return "the script was started in another way"
        return "other settings could be chosen: by another rulebook, on other hardware or with another --allow"


def digests(texts: Mapping[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(data).hexdigest()[:16] for path, data in sorted(texts.items())}


def opened(url: str, *, heartbeat: int = HEARTBEAT, grace: int = GRACE) -> BaseStorage:
    """The storage behind a URL of SQLAlchemy's, or of Optuna's gRPC proxy (grpc://host:port). Raises CannotTune."""
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    with _quiet(), _reached(url):
        if url.startswith("grpc://"):
            from optuna.storages import GrpcStorageProxy

            host, _, port = url.removeprefix("grpc://").rpartition(":")
            proxy = GrpcStorageProxy(host=host, port=int(port))
            proxy.wait_server_ready(timeout=30)
            return proxy
        if url.startswith("sqlite:///"):
            Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        # Workers wait for each other's writes rather than fail; a server that went away is noticed before it is asked.
        more: dict[str, Any] = (
            {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
        )
        return RDBStorage(
            url, engine_kwargs=more, heartbeat_interval=heartbeat, grace_period=grace,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=RETRIES),
        )  # fmt: skip


@contextmanager
def _reached(url: str) -> Iterator[None]:
    """What a storage that is not there raises is as varied as storages are."""
    shown = _anonymous(url)
    try:
        yield
    except ImportError as error:
        chain: list[BaseException | None] = [error, error.__cause__, error.__context__]
        module = next((e.name for e in chain if isinstance(e, ImportError) and e.name), "its driver")
        package = PACKAGES.get(module.partition(".")[0])
        remedy = f"; `pip install '{package}'`" if package is not None else ""
        raise CannotTune(f"--storage {shown}: {module} is not installed{remedy}") from None
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = lines[0] if lines else type(error).__name__
        raise CannotTune(f"--storage {shown}: {why.rstrip('.')}; is it running, and made by this Optuna?") from None


def _anonymous(url: str) -> str:
    """The URL without its password."""
    scheme, mark, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}{mark}{user.partition(':')[0]}{at}{place}" if at else url


def study_of(
    identity: Identity, storage: BaseStorage, budget: Budget, space: Choosing, *, resume: bool, join: bool
) -> optuna.Study:
    """The study, made, or with `resume` gone on with, or with `join` worked on with others. Raises CannotTune."""
    with _quiet():
        known = {s.study_name: s for s in optuna.get_all_study_summaries(storage)}
        if identity.name not in known:
            if resume or join:
                raise CannotTune(f"{identity.script}: there is no study to {'join' if join else 'resume'}{_nearest(identity, known)}")  # fmt: skip
            study = optuna.create_study(storage=storage, study_name=identity.name, direction="maximize")
            study.set_user_attr("identity", asdict(identity))
            for number, point in enumerate(space.starts()):
                study.enqueue_trial(dict(point), user_attrs={"start": number})
        elif not resume and not join:
            raise CannotTune(f"{identity.script}: a study of it is there already; go on with it: --resume, or name another --storage")  # fmt: skip
        study = optuna.load_study(study_name=identity.name, storage=storage, pruner=_pruner())
        if not join:
            study.set_user_attr("budget", asdict(budget))
            study.set_user_attr("began", time.time())
        return study


def _nearest(identity: Identity, known: Mapping[str, optuna.study.StudySummary]) -> str:
    others = [s for s in known.values() if s.user_attrs.get("identity", {}).get("script") == identity.script]
    if not others:
        return ""
    newest = max(others, key=lambda s: s.user_attrs.get("began", 0.0))
    return f": {identity.differs(newest.user_attrs['identity'])}; start anew without it"


def _pruner() -> MedianPruner:
    return MedianPruner(n_startup_trials=4, n_warmup_steps=RULES.warmup)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's warnings that what is used here may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# The search ----------------------------------------------------------------------------------------------------------


class Search:
    """One worker of a study. `worker` tells those of one seed apart; `heard` hears of each trial that has ended.

    `grace`, in seconds, is the storage's: after so long without a sign of life a trial is no longer waited for.
    """

    def __init__(
        self, study: optuna.Study, space: Choosing, measure: Measure, *, seed: int = 0, worker: int = 0, poll: float = 2.0,
        heard: Callable[[FrozenTrial], None] = lambda _trial: None, grace: float = GRACE,
    ) -> None:  # fmt: skip
        self.study = study
        self.space = space
        self._measure = measure
        self._seed = seed
        self._worker = worker
        self._poll = poll
        self._heard = heard
        self._idle = 0
        self._asked: dict[str, Any] = {}
        self._grace = grace
        self._first_seen: dict[int, float] = {}

    def run(self) -> str:
        """Try points until the study's budget is used up; why it ended. Raises what `measure` raises, and Ctrl-C."""
        while True:
            trials = self.study.get_trials(deepcopy=False)
            if reason := ended(self.study, trials):
                return reason
            if self._idle >= IDLE:
                return "no other point is left that can be written"
            if self._taken(trials) >= self._budget.trials:
                # Another worker has the last trials; should it die, they are ours.
                time.sleep(self._poll)
                with _quiet():
                    optuna.storages.fail_stale_trials(self.study)
                self._bury(trials)
                continue
            with _quiet():
                self.study.sampler = self._sampler(trials)
                try:
                    self.study.optimize(self._try, n_trials=1, catch=(_Needless,), callbacks=[self._tell])
                except KeyboardInterrupt:
                    self.study.enqueue_trial(self._asked)
                    raise

    def _bury(self, trials: Sequence[FrozenTrial]) -> None:
        """End trials of workers that died and left no heartbeat that could stop, so that nobody waits for them.

        A worker that was killed as it began a trial has none, nor has any over the gRPC proxy. Ages are those that we have
        seen, as clocks differ.
        """
        now = time.monotonic()
        spent = [t.user_attrs["took"] for t in trials if "took" in t.user_attrs]
        for trial in trials:
            if trial.state != TrialState.RUNNING:
                continue
            patience = self._grace
            if "text" in trial.user_attrs:
                patience = math.inf if _beats(self.study) else self._grace + LONGER * max(spent, default=math.inf)
            if now - self._first_seen.setdefault(trial.number, now) > patience:
                with suppress(ValueError):  # it has ended meanwhile
                    self.study.tell(trial.number, state=TrialState.FAIL)

    def _tell(self, _study: optuna.Study, trial: FrozenTrial) -> None:
        if was_run(trial):
            self._heard(trial)

    @property
    def _budget(self) -> Budget:
        return Budget(**self.study.user_attrs["budget"])

    def _sampler(self, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """What proposes the next point: seeded by what was tried so far, so that a resumed search goes on as it would have."""
        text = f"{self._seed} {self._worker} {len(trials)}".encode()
        seed = int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
        chance = RandomSampler(seed=seed)
        if _best(trials) is None or sum(map(was_run, trials)) < STARTUP or self._idle >= NEAR:
            return chance
        if self._idle or len(trials) % MODEL:
            return PartialFixedSampler(near, chance) if (near := _near(trials, seed)) is not None else chance
        return TPESampler(n_startup_trials=STARTUP, multivariate=True, group=True, constant_liar=True, seed=seed)

    def _taken(self, trials: Sequence[FrozenTrial], before: int | None = None) -> int:
        """Trials that were run or are being run, all or those with a lower number than `before`."""
        return sum(
            was_run(t) or (t.state == TrialState.RUNNING)
            for t in trials
            if before is None or t.number < before
        )  # fmt: skip

    def _try(self, trial: optuna.Trial) -> float:
        self._idle += 1
        self._asked = {}
        if beats := _beats(self.study):
            beats(trial._trial_id)  # Optuna's own first one comes from a thread that may not live to send it

        def ask(choice: Choice) -> int:
            index = int(trial.suggest_categorical(choice.name, range(len(choice.labels))))
            self._asked[choice.name] = index
            return index

        name = f"try {trial.number}"
        try:
            point = self.space.walk(ask)
            variant = self.space.variant(point, name)
        except Refused as error:
            _refuse(trial, str(error))
        trial.set_user_attr("title", self.space.title(point))
        trial.set_user_attr("text", _digest(variant))
        self._needed(trial, point)
        self._idle = 0
        begin = time.monotonic()
        try:
            series = self._measure(variant, name, _pace(trial))
        except TooSlow:
            _note(trial, outcome="slower", took=time.monotonic() - begin)
            raise
        speed = self._speed(series)
        outcome = series.outcome if speed is not None or series.outcome != "trained" else NOT_TIMED
        _note(
            trial, outcome=outcome, error=series.error, took=time.monotonic() - begin, startup=series.startup,
            warm=(series.startup or 0.0) + sum(series.seconds),
            memory=peak(series.gpu_used) or peak(series.allocated),
        )  # fmt: skip
        if speed is None:
            raise optuna.TrialPruned
        return speed

    def _claim(self, trial: optuna.Trial) -> list[FrozenTrial]:
        """All other trials, none of which has run, runs or is to run the text of this one; else raises _Needless.

        Two workers may come to one text at the same time. Both write it down before they look at the others. The trial with
        the higher number gives way where it sees the other one; where it does not, it says that it runs, and the one with
        the lower number, which must then see it, waits to hear which of the two it is.
        """
        text = trial.user_attrs["text"]
        waits = time.monotonic() + CLAIM
        while True:
            others = [t for t in self.study.get_trials(deepcopy=False) if t.number != trial.number]
            same = [t for t in others if t.user_attrs.get("text") == text]
            running = [t for t in same if t.state == TrialState.RUNNING]
            if any(was_run(t) or t.state == TrialState.WAITING for t in same) or any(
                t.number < trial.number or RUNS in t.user_attrs for t in running
            ):
                raise _Needless
            if not running or time.monotonic() > waits:  # the worker that has not decided until then is dead
                trial.set_user_attr(RUNS, True)
                return others
            time.sleep(0.05)

    def _needed(self, trial: optuna.Trial, point: Point) -> None:
        """Raises what ends a trial that would tell nothing new, or that the budget has no room for."""
        others = self._claim(trial)
        for other in others:
            if other.user_attrs.get("outcome") == "out of memory" and self.space.ruled_out(point, _point(other)):
                _refuse(trial, f"needs more memory than {other.user_attrs['title']}, which ran out of it")
        for name, index in point.items():
            ends = [t.user_attrs["outcome"] for t in others if was_run(t) and index and t.params.get(name) == index]
            if sum(map(_STOPS.__contains__, ends)) >= STOPS and not {"trained", "slower"} & set(ends):
                _refuse(trial, f"{name} stopped every trial that had it so far")
        if self._taken(others, trial.number) >= self._budget.trials:
            raise _Needless

    def _speed(self, series: Series) -> float | None:
        """Tokens per second once it runs steadily; steps where tokens are not known. The first trial decides for all."""
        if not series.trained:
            return None
        steady, _ = steady_pair(series, series, RULES)
        metric: Metric | None = self.study.user_attrs.get("metric")
        if metric is None:
            metric = "steps per second" if rate(steady, "tokens per second") is None else "tokens per second"
            self.study.set_user_attr("metric", metric)
        return rate(steady, metric)


def _beats(study: optuna.Study) -> Callable[[int], None] | None:
    """What tells the storage that a trial lives; None where it does not keep that. A study has no public name for its storage."""
    found: Callable[[int], None] | None = getattr(study._storage, "record_heartbeat", None)
    return found


def _refuse(trial: optuna.Trial, reason: str) -> NoReturn:
    trial.set_user_attr("refused", reason)
    raise optuna.TrialPruned


def _pace(trial: optuna.Trial) -> Pace:
    def hear(step: int, steps_per_second: float) -> None:
        trial.report(steps_per_second, step)
        if trial.should_prune():
            raise TooSlow

    return hear


def _note(trial: optuna.Trial, **known: object) -> None:
    for name, value in known.items():
        if value is not None:
            trial.set_user_attr(name, round(value, 3) if isinstance(value, float) else value)


def _digest(variant: Variant | None) -> str:
    """By this two points that are written alike are known."""
    if variant is None:
        return ""
    whole = hashlib.sha256()
    for path, data in sorted(variant.changed.items()):
        whole.update(f"{path} {len(data)} ".encode() + data)
    return whole.hexdigest()[:24]


def _point(trial: FrozenTrial) -> Point:
    return {name: int(index) for name, index in trial.params.items()}


def _near(trials: Sequence[FrozenTrial], seed: int) -> dict[str, int] | None:
    """One choice away from the fastest point that has such a neighbour that was never proposed; None if none has."""
    known = {frozenset(t.params.items()) for t in trials}
    for trial in sorted((t for t in trials if t.state == TrialState.COMPLETE), key=_rank, reverse=True):
        ways: dict[str, list[int]] = {}
        for name, range_of in sorted(trial.distributions.items()):
            others = [index for index in cast(CategoricalDistribution, range_of).choices if index != trial.params[name]]
            if untried := [i for i in others if frozenset({**trial.params, name: i}.items()) not in known]:
                ways[name] = cast(list[int], untried)
        if ways:
            turned = list(ways)[seed % len(ways)]
            return {**trial.params, turned: ways[turned][seed // len(ways) % len(ways[turned])]}
    return None


def _rank(trial: FrozenTrial) -> tuple[float, int]:
    """The fastest, of equals the first, has the highest."""
    return cast(float, trial.value), -trial.number


def _best(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    good = [t for t in trials if t.state == TrialState.COMPLETE]
    return max(good, key=_rank, default=None)


def _simpler(trials: Sequence[FrozenTrial], best: FrozenTrial) -> Point | None:
    """Of the points with some of the best's settings and no others that were nearly as fast, the one with the fewest.

    The search takes the fastest of many single trials, so what it takes beyond such a point may have done nothing.
    """
    settings = _settings(best)
    nearly = [
        t
        for t in trials
        if t.state == TrialState.COMPLETE and t.user_attrs["text"]
        and _settings(t) < settings and cast(float, t.value) >= CLOSE * cast(float, best.value)
    ]  # fmt: skip
    fewest = min(nearly, key=lambda t: (len(_settings(t)), -cast(float, t.value)), default=None)
    return _point(fewest) if fewest is not None else None


def _settings(trial: FrozenTrial) -> frozenset[tuple[str, int]]:
    return frozenset((name, index) for name, index in _point(trial).items() if index)


def was_run(trial: FrozenTrial) -> bool:
    """Whether a point was run to some end, rather than refused, doubled or given up."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and "outcome" in trial.user_attrs


# What came of it -----------------------------------------------------------------------------------------------------


def ended(study: optuna.Study, trials: Sequence[FrozenTrial]) -> str | None:
    """Why a study has ended; None while it has not."""
    budget = Budget(**study.user_attrs["budget"])
    run = sorted((t for t in trials if was_run(t)), key=lambda t: (t.datetime_complete or 0, t.number))
    if len(run) >= budget.trials:
        return f"all {budget.trials} trials were run"
    if budget.minutes is not None:
        left = budget.minutes * 60 - (time.time() - study.user_attrs["began"])
        if left < 0:
            return f"the {budget.minutes:g} minutes are over"
        if (ending := _ending(run, budget.pairs)) and left < ending + median(t.user_attrs["took"] for t in run):
            return f"what is left of {budget.minutes:g} minutes is for the pairs at the end"
    best, since = 0.0, 0
    for trial in run:
        value = trial.value if trial.state == TrialState.COMPLETE else None
        if value is not None and value > best * (1 + GAIN):
            best, since = value, 0
        else:
            since += 1
    if budget.patience is not None and best and since >= budget.patience:
        return f"the last {since} trials were no faster"
    return None


def _ending(trials: Sequence[FrozenTrial], pairs: int) -> float:
    """Seconds that the comparison at the end is likely to take if the search ends now; 0 where there is none to make."""
    best = _best(trials)
    if best is None or not best.user_attrs["text"]:
        return 0.0
    simpler = _simpler(trials, best)
    compared = [t for t in trials if not t.user_attrs["text"] or t is best or _point(t) == simpler]
    return pairs * math.fsum(t.user_attrs.get("warm", 0.0) for t in compared)


@dataclass(frozen=True)
class Found:
    """What a study has found. `point` is None where nothing trained.

    `simpler` is a point with some of the settings of the best and no others that may be as fast.
    """

    point: Point | None
    simpler: Point | None
    told: Searched


def found(study: optuna.Study, reason: str = "") -> Found:
    """The state of a study, which has ended for that reason."""
    trials = study.get_trials(deepcopy=False)
    run = [t for t in trials if was_run(t)]
    best = _best(run)
    as_is = next((t.value for t in run if t.user_attrs["text"] == "" and t.state == TrialState.COMPLETE), None)
    failures = Counter(
        t.user_attrs.get("error") or t.user_attrs["outcome"]
        for t in run
        if t.state == TrialState.PRUNED and t.user_attrs["outcome"] != "slower"
    )
    attempts = tuple(
        Attempt(
            t.user_attrs["title"], t.value if t.state == TrialState.COMPLETE else None, t.user_attrs["outcome"]
        )
        for t in run
    )  # fmt: skip
    return Found(
        _point(best) if best is not None else None, _simpler(run, best) if best is not None else None,
        Searched(
            study.user_attrs.get("metric", "steps per second"), reason, attempts, as_is, sum("refused" in t.user_attrs for t in trials),
            tuple(failures.most_common()), _importances(study),
        ),
    )  # fmt: skip


def _importances(study: optuna.Study) -> tuple[tuple[str, float], ...]:
    """How much of the difference between points each choice makes, by Optuna's fANOVA; nothing where it cannot tell.

    Speeds multiply, so their logarithms are looked at. Of 448 points, 8 or 30 of them tried, it put the choice that matters
    most first for 8 seeds of 8; PED-ANOVA, which asks what the very best have in common, did for 2 and 5 of 10.
    """
    if sum(t.state == TrialState.COMPLETE for t in study.get_trials(deepcopy=False)) < STARTUP:
        return ()
    with _quiet(), suppress(ImportError, ValueError, RuntimeError, ZeroDivisionError):
        evaluator = FanovaImportanceEvaluator(seed=0)
        shares = get_param_importances(study, evaluator=evaluator, target=lambda trial: math.log(trial.value or 1.0))
        return tuple((name, float(share)) for name, share in shares.items() if share > 0.01)
    return ()


# Running one point ---------------------------------------------------------------------------------------------------


class Trials(Session):
    """A session that also runs the single trials of a search."""

    def __init__(self, job: Job, listener: Listener | None = None) -> None:
        super().__init__(job, listener)
        self._number = SINGLE
        self.told: Searched | None = None

    def __enter__(self) -> Trials:
        super().__enter__()
        return self

    def probed(self) -> Probed:
        """Everything so far, and what the search has `told`."""
        return replace(super().probed(), search=self.told)

    def kept(self) -> Variant | None:
        """The best point; the simpler one if no gain was seen of what the best has beyond it."""
        verdict = self.over_simpler()
        if verdict is None:
            return super().kept()
        name = TUNED if verdict.name == "confirmed" else SIMPLER
        return next(v for s in self.stages for v in s.variants if v.name == name)

    def over_simpler(self) -> Verdict | None:
        """The best point held against the simpler one, in the pairs of both; None where they have not both won."""
        stage = next((s for s in self.stages if len(s.variants) > 1), None)
        if stage is None or any(self.verdicts[v.name].name not in GOOD for v in stage.variants):
            return None
        best, simpler = (stage.trials[name] for name in (TUNED, SIMPLER))
        variant = next(v for v in stage.variants if v.name == TUNED)
        pairs = [(simpler[n].series, best[n].series) for n in sorted(simpler.keys() & best.keys())]
        return compare(pairs, self.promise(variant))

    def measured(self, variant: Variant | None, name: str, pace: Pace) -> Series:
        """One trial. Raises what `pace` raises, and CannotProbe where the run as it is never comes to train."""
        self._warm([])
        self._number += 1
        known = {**os.environ, **self.job.start(variant).environment}
        whole, self.listener = self.listener, _Timed(self.listener, pace, known)
        try:
            return self._run(variant, self._number, name, 0.0).series
        finally:
            self.listener = whole


class _Timed:
    """Passes on what it hears, and tells the pace of the steps after the warm-up, unless kernels are compiled meanwhile."""

    def __init__(self, inner: Listener, pace: Pace, environment: Mapping[str, str]) -> None:
        self._inner = inner
        self._pace = pace
        self._environment = environment

    def begins(self, pair: int | None, name: str, left: float) -> None:
        self._from: tuple[int, float] | None = None
        self._compiled = kernels.watch(self._environment)
        self._inner.begins(pair, name, left)

    def steps(self, step: int) -> None:
        self._inner.steps(step)
        now = time.monotonic()
        if step < RULES.warmup:
            return
        if self._from is None:
            self._from = step, now
        elif now - self._from[1] >= UNSETTLED and not self._compiled():
            self._pace(step, (step - self._from[0]) / (now - self._from[1]))

    def ended(self, pair: int | None, name: str, trial: Trial) -> None:
        self._inner.ended(pair, name, trial)
