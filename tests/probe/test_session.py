"""Which trials a session runs, in which order and on top of what, and what it keeps. Trials are made up from the script."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from trl_lint.model import Finding
from trl_lint.probe import evidence, session
from trl_lint.probe.comparison import Series
from trl_lint.probe.probed import AS_IS, Probed
from trl_lint.probe.session import CannotProbe, Job, Session
from trl_lint.probe.starts import Start
from trl_lint.probe.trials import Trial, TrialSpec
from trl_lint.probe.variants import Variant

from ..helpers import context, lint_files

CODE = """# trl-lint: facts trl==1.16.0 gpu=A100-80GB n_gpu=1
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", fp16=True, max_seq_length=512)
trainer = SFTTrainer(model="Qwen/Qwen3-0.6B", args=args, train_dataset=data, tokenizer=tok)
"""
RULES = ("unknown-config-field", "unknown-trainer-keyword", "fp16-on-ampere")
Behaviour = Callable[[str], Series]
COLD: Mapping[str, float | None] = {"kernels compiled": None}


def steps(seconds: float, loss: float = 2.0, memory: int = 10**9) -> Series:
    """Six equal steps."""
    return Series((seconds,) * 6, (None,) * 6, (loss,) * 6, (memory,) * 6, startup=5.0)


def stops(what: str) -> Series:
    return Series(outcome="raised", error=what)


class Made:
    """A machine that trains as `behaviour` says of a script's text, a little slower each time."""

    def __init__(self, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
        self.behaviour = behaviour
        self.ran: list[str] = []
        self.places: set[Path] = set()
        self.clock = 0.0
        self.drift = itertools.count()
        monkeypatch.setattr(session, "run_trial", self.run)
        monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: self.clock))

    def run(self, spec: TrialSpec, **_: object) -> Trial:
        series = self.behaviour((spec.cwd / "train.py").read_text())
        self.ran.append(spec.name)
        self.places.add(spec.cwd)
        self.clock += 60
        slower = 1 + next(self.drift) * 1e-4
        series = Series(**{**vars(series), "seconds": tuple(s * slower for s in series.seconds)})
        train: Mapping[str, object] | None = None
        if series.trained:
            train = {"device": "cuda:0", "gpu": "NVIDIA A100", "versions": {"trl": "1.16.0"}, "fields": {"fp16": True}}
        return Trial(spec, series, "none", train, 1, 0.0, 60.0, 0, "(again)", compiled=COLD in series.logs)


def searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, *,
    rules: tuple[str, ...] = RULES, pairs: int = 5, recorded: evidence.Evidence | None = None, minutes: float | None = None,
) -> tuple[Session, Made]:  # fmt: skip
    (tmp_path / "train.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    examined = lint_files({"train.py": CODE})
    made = Made(behaviour, monkeypatch)

    def start(_: Variant | None) -> Start:
        return Start(("python", "train.py"))

    def wanted(finding: Finding) -> bool:
        return finding.rule in rules

    job = Job(
        "train.py", tmp_path, tmp_path, start, {"train.py": CODE.encode()}, "sft", "again", 6, pairs, minutes=minutes
    )
    with Session(job) as one:
        one.search(examined, context(), wanted, recorded)
    return one, made


def names(probed: Probed) -> dict[str, str]:
    return {tried.name: tried.verdict.name for tried in probed.tried}


def test_each_fix_by_itself_then_the_winners_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def behaviour(code: str) -> Series:
        seconds = 1.0
        seconds -= 0.3 * ("max_length=512" in code)
        seconds -= 0.3 * ("processing_class" in code)
        return steps(seconds)

    one, made = searched(tmp_path, monkeypatch, behaviour)
    probed = one.probed()
    assert names(probed) == {
        "unknown-config-field": "confirmed", "unknown-trainer-keyword": "confirmed", "fp16-on-ampere": "no gain", "all": "confirmed",
    }  # fmt: skip
    assert probed.kept == "all"
    combined = next(t for t in probed.tried if t.name == "all")
    assert combined.rules == ("unknown-config-field", "unknown-trainer-keyword")
    assert [line for line in combined.diff.splitlines() if line.startswith("+")] == [
        "+++ b/train.py",
        '+args = SFTConfig(output_dir="out", fp16=True, max_length=512)',
        "+" + CODE.splitlines()[-1].replace("tokenizer=", "processing_class="),
    ]
    assert combined.verdict.ratio == pytest.approx(1 / 0.4, rel=0.01)
    assert made.ran[0] == AS_IS  # the warm-up, which no pair counts
    assert sorted(made.ran[1:5]) == sorted([AS_IS, *RULES])
    assert made.ran[5:9] == made.ran[4:0:-1]  # A B C D, D C B A
    assert made.ran.count("all") == 5
    assert len(probed.pairs(combined)) == 5
    assert not one._scratch.exists()


def test_a_first_run_that_compiles_kernels_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: set[str] = set()

    def behaviour(code: str) -> Series:
        """As it is, and with `max_length`, it needs kernels of its own, which are compiled once."""
        seconds = 0.5 if "max_length=512" in code else 1.0
        kernel = "short" if "max_length=512" in code else "long"
        cold = kernel not in known
        known.add(kernel)
        return replace(steps(seconds * 4 if cold else seconds), logs=(COLD,) * cold)

    one, made = searched(tmp_path, monkeypatch, behaviour, rules=("unknown-config-field", "fp16-on-ampere"))
    probed = one.probed()
    faster = next(t for t in probed.tried if t.name == "unknown-config-field")
    assert faster.verdict.name == "confirmed"
    assert faster.verdict.ratio == pytest.approx(2, rel=0.01)
    assert len(probed.pairs(faster)) == 5
    assert max(max(b.seconds) for _, b in probed.pairs(faster)) < 0.6
    assert made.ran.count(AS_IS) == 6  # the warm-up found its kernels for the script as it is
    assert made.ran.count("unknown-config-field") == 6
    assert made.ran.count("fp16-on-ampere") == 5  # the others' kernels serve
    assert len(made.places) == 1


def by_half(code: str) -> Series:
    """Half as long with a `max_length`, a tenth less in bfloat16."""
    return steps(1.0 - 0.5 * ("max_length=512" in code) - 0.1 * ("fp16=True" not in code))


TWO = ("unknown-config-field", "fp16-on-ampere")


def test_where_time_is_short_the_most_promising_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial takes a minute, so that all of both fixes would take 16 and what they are together 10."""
    one, made = searched(tmp_path, monkeypatch, by_half, rules=TWO, minutes=18)
    assert names(one.probed()) == {"unknown-config-field": "confirmed", "fp16-on-ampere": "cannot tell"}
    assert made.ran.count("fp16-on-ampere") == 1
    assert one.notes == ["no time for the pairs that a verdict on fp16-on-ampere takes"]
    assert one.probed().kept == "unknown-config-field"


def test_one_that_is_left_alone_takes_the_time_in_which_winners_would_be_tried_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 0.7 of 15 minutes the four pairs that are missing would not fit behind a warm-up and a first pair of three."""
    one, _ = searched(tmp_path, monkeypatch, by_half, rules=TWO, minutes=15)
    assert names(one.probed()) == {"unknown-config-field": "confirmed", "fp16-on-ampere": "cannot tell"}
    assert one.notes == ["no time for the pairs that a verdict on fp16-on-ampere takes"]


def test_the_winners_are_not_tried_together_where_no_time_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, made = searched(tmp_path, monkeypatch, by_half, rules=TWO, minutes=24)
    assert names(one.probed()) == {"unknown-config-field": "confirmed", "fp16-on-ampere": "confirmed"}
    assert one.notes == ["no time to try all of what won together"]
    assert made.clock / 60 < 24


def test_an_interruption_leaves_the_verdicts_over_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = itertools.count()

    def behaviour(code: str) -> Series:
        if next(trials) == 17:  # a warm-up, five pairs of three, and in the first pair of what won together
            raise KeyboardInterrupt
        return by_half(code)

    (tmp_path / "train.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    Made(behaviour, monkeypatch)
    job = Job("train.py", tmp_path, tmp_path, lambda _: Start(("python", "train.py")), method="sft", steps=6)
    with Session(job) as one:
        with pytest.raises(KeyboardInterrupt):
            one.search(lint_files({"train.py": CODE}), context(), lambda finding: finding.rule in TWO)
        assert names(one.probed()) == {"unknown-config-field": "confirmed", "fp16-on-ampere": "confirmed"}


def test_what_repairs_the_script_comes_first_and_the_others_are_judged_on_top_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behaviour(code: str) -> Series:
        if "max_seq_length" in code:
            return stops("TypeError: unexpected keyword argument 'max_seq_length'")
        return steps(0.5 if "fp16=True" not in code else 1.0)

    one, made = searched(tmp_path, monkeypatch, behaviour)
    probed = one.probed()
    assert names(probed) == {"repairs": "repaired", "fp16-on-ampere": "confirmed"}
    fast = next(t for t in probed.tried if t.name == "fp16-on-ampere")
    assert fast.verdict.ratio == pytest.approx(2, rel=0.01)
    assert fast.rules == (*RULES[:2], "fp16-on-ampere")
    assert probed.kept == "fp16-on-ampere"
    assert made.ran[1] != AS_IS  # the warm-up stopped, and is the first pair's A
    records = {r.rule: r for r in one.records()}
    assert set(records) == {"repairs", "fp16-on-ampere"}
    assert records["fp16-on-ampere"].key == next(
        f.fix.key for f in lint_files({"train.py": CODE}).findings if f.rule == "fp16-on-ampere" and f.fix
    )
    repaired = next(t for t in probed.tried if t.name == "repairs")
    assert repaired.verdict.reason.startswith("as fixed it trains; as it is it stops: TypeError")


def test_an_error_that_is_none_and_a_warning_that_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def behaviour(code: str) -> Series:
        if "fp16=True" in code:
            return stops("ValueError: fp16 is broken here")
        return steps(1.0)

    one, made = searched(tmp_path, monkeypatch, behaviour)
    found = names(one.probed())
    assert (found["repairs"], found["fp16-on-ampere"]) == ("cannot tell", "repaired")
    assert one.probed().kept == "fp16-on-ampere"
    assert made.ran.count("repairs") == 2  # neither trains: two are enough


def test_two_errors_that_only_both_fixes_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def behaviour(code: str) -> Series:
        if "max_seq_length" in code or "tokenizer=" in code:
            return stops("TypeError: unexpected keyword argument")
        return steps(1.0)

    one, _ = searched(tmp_path, monkeypatch, behaviour, rules=RULES[:2])
    probed = one.probed()
    assert names(probed) == {"repairs": "repaired"}
    assert probed.kept == "repairs"


def test_a_record_that_holds_spares_the_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def behaviour(code: str) -> Series:
        return steps(0.5 if "fp16=True" not in code else 1.0)

    first, _ = searched(tmp_path, monkeypatch, behaviour, rules=("fp16-on-ampere",))
    path = tmp_path / "evidence.jsonl"
    for record in first.records():
        evidence.append(str(path), record)
    again, made = searched(
        tmp_path, monkeypatch, behaviour, rules=("fp16-on-ampere",), recorded=evidence.load(str(path))
    )
    assert made.ran == [AS_IS]  # to see on what it would run
    assert again.probed().kept == "fp16-on-ampere"
    assert again.probed().tried[0].known is not None
    assert list(again.records()) == []


def test_a_record_of_other_conditions_spares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def behaviour(code: str) -> Series:
        return steps(0.5 if "fp16=True" not in code else 1.0)

    first, _ = searched(tmp_path, monkeypatch, behaviour, rules=("fp16-on-ampere",))
    path = tmp_path / "evidence.jsonl"
    for record in first.records():
        evidence.append(str(path), record)
    text = path.read_text().replace('"trl":"1.16.0"', '"trl":"1.15.0"')
    assert '"1.15.0"' in text
    recorded = evidence.parsed(text.encode())
    _, made = searched(tmp_path, monkeypatch, behaviour, rules=("fp16-on-ampere",), recorded=recorded)
    assert made.ran.count("fp16-on-ampere") == 5


def test_what_changes_the_training_costs_no_more_pairs_than_it_takes_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behaviour(code: str) -> Series:
        return steps(1.0, loss=2.0 if "fp16=True" in code else 4.0)

    one, made = searched(tmp_path, monkeypatch, behaviour, rules=("fp16-on-ampere",))
    assert names(one.probed()) == {"fp16-on-ampere": "changes training"}
    assert one.probed().kept is None
    assert made.ran.count("fp16-on-ampere") < 5


def test_fewer_pairs_than_a_verdict_takes_give_numbers_and_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behaviour(code: str) -> Series:
        return steps(0.5 if "fp16=True" not in code else 1.0)

    one, made = searched(tmp_path, monkeypatch, behaviour, rules=("fp16-on-ampere",), pairs=2)
    verdict = one.probed().tried[0].verdict
    assert (verdict.name, verdict.pairs) == ("cannot tell", 2)
    assert made.ran.count("fp16-on-ampere") == 2


def test_a_script_that_refuses_its_arguments_is_no_matter_of_fixes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behaviour(_: str) -> Series:
        return Series(outcome="refused", error="train.py: error: the following arguments are required: --model")

    with pytest.raises(CannotProbe, match=r"^train.py: .*are required: --model; \(cd .* && python train.py\)$"):
        searched(tmp_path, monkeypatch, behaviour)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "train.py: no torch in the environment that it runs in; start trl-lint with the Python that trains, or name it with --launcher; (cd "),
        ("ModuleNotFoundError: No module named 'trl.gone'", None),
        ("ImportError: cannot import name 'PPOTrainer' from 'trl'", None),
    ],
)  # fmt: skip
def test_a_missing_package_is_no_matter_of_fixes_but_a_missing_name_is(
    error: str, line: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if line is None:
        one, _ = searched(tmp_path, monkeypatch, lambda _: stops(error))
        assert set(names(one.probed()).values()) == {"cannot tell"}
        return
    with pytest.raises(CannotProbe) as raised:
        searched(tmp_path, monkeypatch, lambda _: stops(error))
    assert str(raised.value).startswith(line)
