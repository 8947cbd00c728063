"""The search: what it finds, what it does not run, and that no trial is lost or doubled, whoever dies."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from trl_lint.probe import search
from trl_lint.probe.comparison import Series
from trl_lint.probe.search import Budget, CannotTune, Pace, Search, found
from trl_lint.probe.session import Job
from trl_lint.probe.starts import Start
from trl_lint.probe.variants import Variant

from ..bench import tuning
from ..bench.tuning import Sheet
from .test_session import Made, steps
from .test_supervisor import free_port

OOM = Series(outcome="out of memory", error="CUDA out of memory")


def searched(
    sheet: Sheet, seed: int, budget: Budget | None = None, broken: dict[str, Series] | None = None
) -> tuple[optuna.Study, list[str]]:
    """A finished study of a sheet in memory, and the points that were run. `broken` maps a part of a point to its end."""
    noise = random.Random(seed)
    run: list[str] = []

    def measure(variant: Variant | None, name: str, pace: Pace) -> Series:
        point = variant.changed["point"].decode() if variant is not None else ""
        run.append(point)
        ends = next((end for part, end in (broken or {}).items() if part in point), None)
        return ends or tuning.series(sheet.speed(variant), noise)

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    study = search.study_of(
        tuning.identity(sheet), optuna.storages.InMemoryStorage(), budget or Budget(30, None, None), sheet,
        resume=False, join=False,
    )  # fmt: skip
    Search(study, sheet, measure, seed=seed).run()
    return study, run


def test_of_two_workers_with_one_text_one_runs_it() -> None:
    study, _ = searched(Sheet(), 0, Budget(2, None, None))
    worker = Search(study, Sheet(), lambda *_: OOM)
    low, high = study.ask(), study.ask()
    for trial in (low, high):
        trial.set_user_attr("text", "one text")
    with pytest.raises(search._Needless):
        worker._claim(high)  # it sees the other one
    # The higher one looked before the lower one had written, and will say that it runs; or it gives way, being another text.
    threading.Timer(0.3, lambda: high.set_user_attr(search.RUNS, True)).start()
    with pytest.raises(search._Needless):
        worker._claim(low)
    study.tell(high, state=TrialState.FAIL)
    assert low.number not in [t.number for t in worker._claim(low)]
    assert study.trials[low.number].user_attrs[search.RUNS]


def test_who_does_not_say_whether_it_runs_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "CLAIM", 0.1)
    study, _ = searched(Sheet(), 0, Budget(2, None, None))
    low, high = study.ask(), study.ask()
    for trial in (low, high):
        trial.set_user_attr("text", "one text")
    assert Search(study, Sheet(), lambda *_: OOM)._claim(low)


def test_nobody_waits_for_a_worker_that_died_as_it_began() -> None:
    study, _ = searched(Sheet(), 0, Budget(2, None, None))
    study.set_user_attr("budget", {"trials": 4, "minutes": None, "patience": None})
    dead = study.ask()  # it has no heartbeat, and never said what it runs
    noise = random.Random(0)
    worker = Search(study, Sheet(), lambda v, *_: tuning.series(Sheet().speed(v), noise), poll=0.05, grace=0.2)
    assert worker.run() == "all 4 trials were run"
    assert study.trials[dead.number].state == TrialState.FAIL


def test_without_heartbeats_a_trial_that_takes_much_longer_than_others_is_given_up() -> None:
    study, _ = searched(Sheet(), 0, Budget(2, None, None))
    study.set_user_attr("budget", {"trials": 3, "minutes": None, "patience": None})
    dead = study.ask()
    dead.set_user_attr("text", "another")
    noise = random.Random(0)
    worker = Search(study, Sheet(), lambda v, *_: tuning.series(Sheet().speed(v), noise), poll=0.05, grace=0.2)
    assert worker.run() == "all 3 trials were run"
    assert study.trials[dead.number].state == TrialState.FAIL


def test_what_is_tried_next_is_one_choice_from_the_fastest_and_new() -> None:
    study, _ = searched(Sheet(), 0)
    trials = study.get_trials(deepcopy=False)
    tried = [t.params for t in trials]
    for seed in range(20):
        near = search._near(trials, seed)
        assert near is not None
        assert near not in tried
        assert min(sum(near[n] != value for n, value in other.items()) for other in tried) == 1
    assert search._near([], 0) is None


def test_an_optimum_outside_the_starts_is_found_within_30_trials() -> None:
    sheet = Sheet()
    assert sheet.top not in sheet.starts()
    hits = 0
    for seed in range(10):
        study, run = searched(sheet, seed)
        assert len(run) == len(set(run)) == 30  # no text is measured twice
        assert run[0] == ""
        hits += found(study).point == sheet.top
    assert hits >= 9


def test_what_mattered_most_is_said_first() -> None:
    firsts = [
        next(iter(found(searched(Sheet(), seed, Budget(12, None, None))[0]).told.importances))[0] for seed in range(5)
    ]
    assert firsts == ["batch"] * 5
    assert found(searched(Sheet(), 0, Budget(4, None, None))[0]).told.importances == ()


@pytest.mark.parametrize(
    ("gain", "simpler"),
    [(1.05, {"good": 1, "useless": 0}), (1.3, None)],
    ids=["within what trials wander by", "beyond it"],
)
def test_settings_that_may_have_done_nothing_are_left_out_of_a_simpler_point(
    gain: float, simpler: dict[str, int] | None
) -> None:
    result = found(searched(Sheet({"good": (1, 2), "useless": (1, gain)}, rising=()), 0)[0])
    assert result.point == {"good": 1, "useless": 1}
    assert result.simpler == simpler


def test_the_run_as_it_is_is_no_simpler_point() -> None:
    result = found(searched(Sheet({"one": (1, 1.05)}, rising=()), 0)[0])
    assert (result.point, result.simpler) == ({"one": 1}, None)


@pytest.mark.parametrize(
    ("best", "simpler", "kept"),
    [(0.5, 0.5, "simpler"), (0.4, 0.5, "tuned"), (0.5, 1.0, "tuned"), (1.0, 0.5, "simpler"), (1.0, 1.0, None)],
)
def test_the_simpler_point_is_kept_where_the_best_is_no_faster(
    best: float, simpler: float, kept: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("as it is")
    Made(lambda text: steps({"as it is": 1.0, "tuned": best, "simpler": simpler}[text]), monkeypatch)
    job = Job("train.py", tmp_path, tmp_path, lambda _: Start(("python", "train.py")), {"train.py": b"as it is"}, "sft")
    with search.Trials(job) as trials:
        trials.measure([Variant(n, n, "same", {"train.py": n.encode()}) for n in (search.TUNED, search.SIMPLER)])
    assert trials.probed().kept == kept


def test_the_same_measurements_give_the_same_search() -> None:
    assert searched(Sheet(), 3)[1] == searched(Sheet(), 3)[1] != searched(Sheet(), 4)[1]


def test_what_ran_out_of_memory_rules_out_more_of_the_same() -> None:
    study, run = searched(Sheet(), 0, broken={f"('batch', {index})": OOM for index in (4, 5, 6)})
    full = [dict(eval(point)) for point in run if any(f"('batch', {index})" in point for index in (4, 5, 6))]
    for earlier, later in ((a, b) for i, a in enumerate(full) for b in full[i + 1 :]):
        alike = {n: v for n, v in earlier.items() if n != "batch"} == {n: v for n, v in later.items() if n != "batch"}
        assert not (alike and later["batch"] >= earlier["batch"])
    assert found(study).told.failures == (("CUDA out of memory", len(full)),)
    best = found(study).point
    assert best is not None
    assert best["batch"] == 3  # the fastest that fits


def test_a_choice_that_always_stops_is_given_up() -> None:
    stops = Series(outcome="raised", error="TypeError: no liger")
    study, run = searched(Sheet(), 1, broken={"('liger', 1)": stops})
    assert sum("liger" in point for point in run) == search.STOPS
    best = found(study).point
    assert best is not None
    assert best["liger"] == 0


def test_the_search_leaves_time_for_the_pairs_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    study, _ = searched(Sheet({"a": (1, 2), "b": (1, 1.05)}, ()), 0, Budget(4, 1.0, None, 5))
    trials = [t for t in study.get_trials(deepcopy=False) if search.was_run(t)]
    assert [t.user_attrs["warm"] for t in trials] == [pytest.approx(8 / t.value, abs=0.02) for t in trials if t.value]
    study.set_user_attr("budget", {"trials": 9, "minutes": 1.0, "patience": None, "pairs": 5})
    began = study.user_attrs["began"]
    compared = [t for t in trials if t.params != {"a": 0, "b": 1}]  # the run as it is, the best, and the simpler one
    pairs = 5 * sum(t.user_attrs["warm"] for t in compared)
    monkeypatch.setattr("time.time", lambda: began + 60 - pairs - 0.1)
    assert search.ended(study, trials) is None
    monkeypatch.setattr("time.time", lambda: began + 60 - pairs + 0.1)
    assert search.ended(study, trials) == "what is left of 1 minutes is for the pairs at the end"
    monkeypatch.setattr("time.time", lambda: began + 61)
    assert search.ended(study, trials) == "the 1 minutes are over"


def test_it_ends_where_no_gain_is_expected_and_where_all_is_tried() -> None:
    flat = Sheet({"a": (1, 1, 1, 1), "b": (1, 1, 1, 1)}, ())
    study, run = searched(flat, 0, Budget(30, None, 5))
    assert len(run) == 6  # the run as it is, and five that were no faster
    assert search.ended(study, study.get_trials()) == "the last 5 trials were no faster"
    study, run = searched(Sheet({"a": (1, 2), "b": (1, 3)}, ()), 0)
    assert len(run) == 4
    assert found(study).point == {"a": 1, "b": 1}


def test_one_that_is_slower_than_the_others_is_ended_early() -> None:
    sheet = Sheet()
    heard: Counter[str] = Counter()

    def measure(variant: Variant | None, name: str, pace: Pace) -> Series:
        speed = sheet.speed(variant)
        for step in range(1, 9):
            heard[name] += 1
            pace(step, speed)
        return Series(seconds=(1 / speed,) * 8)

    study = search.study_of(
        tuning.identity(sheet), optuna.storages.InMemoryStorage(), Budget(20, None, None), sheet,
        resume=False, join=False,
    )  # fmt: skip
    Search(study, sheet, measure).run()
    slower = [t for t in study.get_trials() if t.user_attrs.get("outcome") == "slower"]
    assert slower
    assert all(heard[f"try {t.number}"] < 8 for t in slower)
    assert heard["try 0"] == 8


def test_nothing_trained() -> None:
    study, _ = searched(Sheet(), 0, Budget(5, None, None), {"": OOM})
    assert found(study).point is None


# Storages ------------------------------------------------------------------------------------------------------------


def test_a_study_is_gone_on_with_only_if_asked_and_only_of_the_same_run(tmp_path: Path) -> None:
    url, sheet = f"sqlite:///{tmp_path}/.trl-lint/tune.db", Sheet()
    with pytest.raises(CannotTune, match=r"train.py: there is no study to resume$"):
        tuning.begun(url, sheet, Budget(), resume=True)
    tuning.begun(url, sheet, Budget())
    with pytest.raises(CannotTune, match="a study of it is there already; go on with it: --resume"):
        tuning.begun(url, sheet, Budget())
    tuning.begun(url, sheet, Budget(7), resume=True)
    assert tuning.joined(url, sheet).user_attrs["budget"]["trials"] == 7
    storage = search.opened(url)
    for other, why in (
        (search.Identity("train.py", {"train.py": "1"}, repr(sheet.gains), 8, "python train.py"), "train.py changed since"),
        (search.Identity("train.py", {}, repr(sheet.gains), 9, "python train.py"), "its trials have 8 steps"),
        (search.Identity("train.py", {}, "", 8, "python train.py"), "other settings could be chosen"),
    ):  # fmt: skip
        with pytest.raises(CannotTune, match=f"no study to resume: {why}"):
            search.study_of(other, storage, Budget(), sheet, resume=True, join=False)


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("postgresql+psycopg://me:secret@127.0.0.1:1/none", "--storage postgresql+psycopg://me@127.0.0.1:1/none: "),
        ("nonsense", "--storage nonsense: Could not parse SQLAlchemy URL"),
        ("sqlite:////dev/null/tune.db", "--storage sqlite:////dev/null/tune.db: "),
        ("mysql+nodriver://h/d", "--storage mysql+nodriver://h/d: "),
    ],
)
def test_a_storage_that_cannot_be_used_is_one_line(url: str, line: str) -> None:
    with pytest.raises(CannotTune) as error:
        search.opened(url)
    assert str(error.value).startswith(line)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_storage_of_another_version_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tune.db"
    search.opened(url)
    subprocess.run(
        ["python3", "-c", "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(\"update alembic_version set version_num = 'v9.9.9'\"); c.commit()",
         str(tmp_path / "tune.db")], check=True,
    )  # fmt: skip
    with pytest.raises(CannotTune, match="made by this Optuna"):
        search.opened(url)


POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of our own, as a user that is not root: PostgreSQL refuses to run as root."""
    pytest.importorskip("psycopg")
    if not POSTGRES:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    user = "postgres" if os.getuid() == 0 else None
    folder = Path(tmp_path_factory.mktemp("postgres"))
    place = (
        Path("/tmp") / f"trl-lint-postgres-{os.getpid()}"
    )  # where another user may write, and short: it holds a socket
    place.mkdir()
    if user is not None:
        shutil.chown(place, user)

    def run(*words: str) -> None:
        subprocess.run(words, check=True, capture_output=True, cwd=place, timeout=120, user=user)

    try:
        run(str(POSTGRES[-1] / "initdb"), "-D", str(place / "data"), "-U", "me", "--auth=trust", "-E", "UTF8")
        server = subprocess.Popen(
            [str(POSTGRES[-1] / "postgres"), "-D", str(place / "data"), "-k", str(place), "-c", "listen_addresses="],
            stdout=(folder / "log").open("w"), stderr=subprocess.STDOUT, cwd=place, user=user,
        )  # fmt: skip
        try:
            for _ in range(300):
                ready = subprocess.run(
                    [str(POSTGRES[-1] / "pg_isready"), "-h", str(place)], capture_output=True, check=False
                )
                if ready.returncode == 0 or server.poll() is not None:
                    break
                time.sleep(0.2)
            assert server.poll() is None, (folder / "log").read_text()
            yield f"postgresql+psycopg://me@/postgres?host={place}"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tune.db"
    return str(request.getfixturevalue("postgres"))


def cleared(url: str) -> None:
    storage = search.opened(url)
    for known in storage.get_all_studies():
        storage.delete_study(known._study_id)


def test_two_workers_lose_and_double_nothing(url: str) -> None:
    cleared(url)
    study = tuning.begun(url, Sheet(), Budget(12, None, None))
    workers = [tuning.started(url, number, 0.1) for number in (0, 1)]
    said = [worker.communicate(timeout=200)[0].splitlines() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    run = [t for t in study.get_trials() if search.was_run(t)]
    assert len(run) == 12
    assert max(Counter(t.user_attrs["text"] for t in run).values()) == 1
    begun = [line for lines in said for line in lines if line.startswith("begins")]
    assert len(begun) == len(set(begun)) == 12
    assert all(lines for lines in said)  # both had some
    assert not [t for t in study.get_trials() if t.state in (TrialState.RUNNING, TrialState.WAITING)]


def test_workers_share_a_study_over_the_grpc_proxy(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    port = free_port()
    serve = (
        "from optuna.storages import RDBStorage, run_grpc_proxy_server as serve\n"
        f"serve(RDBStorage('sqlite:///{tmp_path}/tune.db'), host='127.0.0.1', port={port})"
    )
    with subprocess.Popen([sys.executable, "-c", serve], stderr=subprocess.DEVNULL) as server:
        try:
            url = f"grpc://127.0.0.1:{port}"
            study = tuning.begun(url, Sheet(), Budget(8, None, None))
            workers = [tuning.started(url, number, 0.1) for number in (0, 1)]
            assert all(worker.communicate(timeout=200)[0] for worker in workers)
            texts = [t.user_attrs["text"] for t in study.get_trials() if search.was_run(t)]
            assert len(texts) == len(set(texts)) == 8
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("url", "module", "remedy"),
    [("grpc://127.0.0.1:1", "grpc", "; `pip install 'grpcio'`"), ("mysql+mysqldb://a@b/c", "MySQLdb", "; `pip install 'mysqlclient'`")],
)  # fmt: skip
def test_a_driver_that_is_missing_is_named(url: str, module: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CannotTune, match=re.escape(f"{module} is not installed{remedy}") + "$"):
        search.opened(url)


def test_the_trial_of_a_worker_that_was_killed_is_run_by_another(url: str) -> None:
    cleared(url)
    study = tuning.begun(url, Sheet(), Budget(6, None, None))
    first = tuning.started(url, 0, 100.0)
    assert first.stdout is not None
    assert first.stdout.readline() == "begins try 0\n"
    first.kill()
    first.wait()
    second = tuning.started(url, 1, 0.05)
    second.communicate(timeout=200)
    trials = study.get_trials()
    run = [t for t in trials if search.was_run(t)]
    assert len(run) == 6
    assert trials[0].state == TrialState.FAIL
    again = [t for t in run if t.system_attrs.get("failed_trial") == 0]
    assert [t.user_attrs["title"] for t in again] == ["as it is"]
    assert max(Counter(t.user_attrs["text"] for t in run).values()) == 1


def test_a_search_that_was_killed_goes_on_with_all_but_the_running_trial(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tune.db"
    study = tuning.begun(url, Sheet(), Budget(8, None, None))
    first = tuning.started(url, 0, 0.3)
    assert first.stdout is not None
    ended = 0
    for line in first.stdout:
        ended += line.startswith("ends")
        if ended == 3 and line.startswith("begins"):
            break
    first.kill()
    first.wait()
    before = {t.number for t in study.get_trials() if search.was_run(t)}
    assert len(before) == 3
    tuning.begun(url, Sheet(), Budget(8, None, None), resume=True)
    second = tuning.started(url, 0, 0.0)
    said = second.communicate(timeout=200)[0].splitlines()
    run = {t.number for t in study.get_trials() if search.was_run(t)}
    assert before < run
    assert len(run) == 8
    assert len([line for line in said if line.startswith("begins")]) == 5


def test_ctrl_c_gives_its_trial_back() -> None:
    sheet = Sheet()
    study = search.study_of(
        tuning.identity(sheet), optuna.storages.InMemoryStorage(), Budget(3, None, None), sheet, resume=False, join=False
    )  # fmt: skip

    def stopped(variant: Variant | None, name: str, pace: Pace) -> Series:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Search(study, sheet, stopped).run()
    run: list[str] = []

    def measure(variant: Variant | None, name: str, pace: Pace) -> Series:
        run.append("" if variant is None else variant.changed["point"].decode())
        return tuning.series(sheet.speed(variant), random.Random(0))

    Search(study, sheet, measure).run()
    assert "" in run
