"""What TRL did against what trl-lint said, for one case and for a release's worth of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from packaging.specifiers import SpecifierSet

from tests.helpers import all_rules, lint
from tests.oracle.cases import Case, Drawer, script
from tests.oracle.environments import Environment
from trl_lint import knowledge
from trl_lint.model import Severity

# Errors that no file could have shown: kind, and what "type: message place" is searched for. docs/oracle.md has a line on each.
LIMITS = (
    ("hardware", r"CUDA|cuda|GPU|--tf32|bf16/gpu|fp16 mixed precision|XPU|NPU|HPU|MLU|device_count|pin_memory"),
    ("hardware", r"[Tt]riton|active driver|activation_offloading\.py"),
    ("package", r"not installed|is not available|requires? .*(install|librar|package)|pip install|No module named"),
    ("network", r"offline|Hub|huggingface\.co|Connection|Can't load|couldn't connect"),
    ("dataset", r"dataset is not conversational"),
    ("vocabulary", r"is not found in the vocabulary"),
    ("architecture", r"is not a Mixture-of-Experts model"),
    ("architecture", r"Logits \(batch and sequence length dim\) and labels must have the same shape"),
    ("type", r"^TypeError: (unsupported operand|'[<>]=?' not supported|object of type '\w+' has no len)"),
    ("type", r"^TypeError: '(bool|int|float)' object is not (subscriptable|iterable)"),
    ("type", r"^TypeError: .*argument after \*\* must be a mapping"),
    (
        "type",
        r"^AttributeError: '(bool|int|float)' object has no attribute '(endswith|startswith|replace|split|lower)'",
    ),
    ("type", r"^OSError: .*Bad file descriptor .*from_json_file"),
    ("zero", r"^ZeroDivisionError"),
)
_SAME = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|-?\d+(\.\d+)?")


@dataclass(frozen=True)
class Said:
    """The findings of a text, by rule name: all, the errors, and those of them that say the run raises."""

    rules: frozenset[str]
    errors: frozenset[str]
    stopping: frozenset[str]


@dataclass(frozen=True)
class Outcome:
    """A case, what became of it (`error` None: it ran to its end) and what the tool said of the same text.

    `cell` is "runs", "raises", "false alarm", "miss", "limit" or "undecided" (the tool speaks of what comes after
    the config, and this class is not trained here).
    """

    case: Case
    text: str
    said: Said
    stage: str
    error: Mapping[str, Any] | None
    warnings: tuple[tuple[str, ...], ...]

    @property
    def cell(self) -> str:
        if self.error is not None:
            if self.said.errors:
                return "raises"
            return "miss" if self.reason is None else "limit"
        if not self.said.stopping:
            return "runs"
        return "false alarm" if self.case.trains else "undecided"

    @property
    def reason(self) -> str | None:
        """Which kind of limit the error is; None where files could have shown it."""
        if self.error is None:
            return None
        if self.error["type"] in ("crash", "hang"):
            return str(self.error["type"])
        text = f"{self.error['type']}: {self.error['message']} {self.error['place']}"
        return next((name for name, pattern in LIMITS if re.search(pattern, text)), None)

    @property
    def key(self) -> tuple[str, ...]:
        """Outcomes of one key are one disagreement."""
        if self.error is None:
            return (self.cell, self.case.config, *sorted(self.said.stopping))
        line = _SAME.sub("…", self.error["message"].strip().split("\n")[0])
        ours = self.error["place"].startswith("trl/")
        where = self.case.config if ours else self.error["place"].partition(":")[0]
        return (self.cell, where, self.stage, self.error["type"], line)


@cache
def _stopping(release: str) -> dict[str, tuple[re.Pattern[str], ...]]:
    """For each rule, the messages with which it says of this release that the run raises."""
    return {
        rule.name: tuple(
            re.compile(".*".join(map(re.escape, re.split(r"\{.*?\}", variant.message))), re.DOTALL)
            for variant in rule.variants
            if variant.stops and SpecifierSet(variant.trl).contains(release)
        )
        for rule in all_rules()
    }


def judge(text: str, versions: Mapping[str, str]) -> Said:
    """What the tool is certain of, told the versions of the environment and that it has no GPU."""
    facts = {name.replace("-", "_"): version for name, version in versions.items() if name != "python"}
    facts["torch"] = facts["torch"].partition("+")[0]
    findings = [each for each in lint(text, gpu="none", **facts).findings if each.certainty != "possible"]
    errors = [each for each in findings if each.severity is Severity.error]
    stopping = _stopping(versions["trl"])
    stops = [each.rule for each in errors if any(said.match(each.message) for said in stopping.get(each.rule, ()))]
    return Said(frozenset(each.rule for each in findings), frozenset(each.rule for each in errors), frozenset(stops))


# Config classes that only others are made of.
_BASES = ("_BaseConfig", "BaseConfig", "OnPolicyConfig", "SelfDistillationConfig")


def classes(release: str) -> list[tuple[str, str, str, str]]:
    """The config classes of a release that extend TrainingArguments: module, name, module and name of its trainer."""
    known = knowledge.trl(release)
    found = []
    for name in known.configs():
        config = known.config(name)
        trainer = name.removesuffix("Config") + "Trainer"
        if name in _BASES or config is None or not config.training_arguments:
            continue
        trainer = trainer if trainer in known.trainers() and known.modules_of(trainer) else ""
        found.append((known.modules_of(name)[0], name, (known.modules_of(trainer) or ("",))[0], trainer))
    return found


@dataclass
class Tally:
    """What a release's cases came to. `groups` holds the first outcome of each kind of disagreement, made small.

    `reasons` are the limits met, `ignored` the errors of the tool where the run goes on otherwise than configured,
    `unwarned` the warnings of TRL in cases of which the tool found nothing at all.
    """

    versions: Mapping[str, str]
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    groups: dict[tuple[str, ...], Outcome] = field(default_factory=dict)
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    unusable: Mapping[str, str] = field(default_factory=dict)
    reasons: Counter[tuple[str, ...]] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    unwarned: Counter[tuple[str, ...]] = field(default_factory=Counter)


class Bench:
    """One release: its environment, its cases, its tally."""

    def __init__(self, environment: Environment, seed: int) -> None:
        self.environment = environment
        self.release = environment.versions["trl"]
        self.drawer = Drawer(self.release, environment.describe(classes(self.release)), seed)
        self.tally = Tally(environment.versions, unusable=self.drawer.unusable)

    def run(self, constructed: int, trained: int, told: Callable[[str], None] = lambda _: None) -> Tally:
        """So many configs constructed and so many trainers trained; where only training can decide, it does."""
        for index in range(constructed + trained):
            trains = index >= constructed
            self._count(self.try_case(self.drawer.case(index, trains=trains)), "trained" if trains else "constructed")
            if index % 100 == 99:
                told(f"{self.release}: {index + 1} of {constructed + trained}")
        return self.tally

    def try_case(self, case: Case) -> Outcome:
        """Run a case and judge it. A config that the tool says will stop later is trained, if its trainer can be."""
        outcome = self._try(case)
        if outcome.cell == "undecided" and self.drawer.can_train(case.config):
            return self._try(replace(case, trains=True))
        return outcome

    def minimise(self, outcome: Outcome) -> Outcome:
        """Without every field and keyword that the disagreement does not need."""
        smaller = next((each for each in map(self._try, outcome.case.smaller()) if each.key == outcome.key), None)
        return outcome if smaller is None else self.minimise(smaller)

    def confirmed(self) -> Iterator[Outcome]:
        """The disagreements that a fresh process shows again."""
        if self.tally.groups:
            self.environment.restart()
        for key, outcome in self.tally.groups.items():
            if self._try(outcome.case).key == key:
                yield outcome

    def _try(self, case: Case) -> Outcome:
        text, lines = script(case, self.release)
        answer = self.environment.run(text)
        error = answer["error"]
        stage = "end"
        if error is not None:
            stage = next((name for name, line in reversed(lines.items()) if error["line"] >= line), "import")
        said = judge(text, self.environment.versions)
        return Outcome(case, text, said, stage, error, tuple(map(tuple, answer["warnings"])))

    def _count(self, outcome: Outcome, share: str) -> None:
        tally = self.tally
        tally.cells[share, outcome.cell] += 1
        if outcome.cell == "limit" and outcome.reason is not None:
            tally.reasons[outcome.reason, *outcome.key[1:]] += 1
        if outcome.cell == "runs":
            tally.ignored.update(outcome.said.errors)
        if outcome.cell == "runs" and not outcome.said.rules:
            told = {(category, _SAME.sub("…", text), origin) for category, text, origin in outcome.warnings}
            tally.unwarned.update(each for each in told if each[2].startswith("trl"))
        if outcome.cell in ("false alarm", "miss"):
            tally.counts[outcome.key] += 1
            if outcome.key not in tally.groups:
                tally.groups[outcome.key] = self.minimise(outcome)
