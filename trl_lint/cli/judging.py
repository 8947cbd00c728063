"""Options in, what every file is judged by out: facts by hand, and for each path the rules that its settings leave."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from trl_lint import facts, knowledge, rulebook, settings
from trl_lint.cli import UsageError
from trl_lint.cli.options import names
from trl_lint.model import Finding
from trl_lint.rulebook import Rule
from trl_lint.rulebook.files import Context
from trl_lint.settings import Settings


def context_of(options: argparse.Namespace, root: str) -> Context:
    """The context of one invocation. Raises UsageError."""
    overrides = facts.Overrides(
        {p: v for p in ("trl", "vllm", "transformers") if (v := getattr(options, p)) is not None},
        options.gpu,
        options.python,
    )
    _check_gpu(options.gpu)
    _check_target(options.target_trl)
    try:
        chosen = Chosen(options)
    except settings.SettingsError as error:
        raise UsageError(str(error)) from None
    return Context(
        root,
        chosen.rules,
        overrides,
        settings.load,
        chosen.of,
        options.possible or bool(settings.load(".").possible),
        options.no_ignores,
        chosen.keeps,
        # What was not asked may be what a comment is there for, and removing one is nothing to measure.
        unused_ignores=not (options.select or options.ignore or options.confirm),
        target=options.target_trl,
    )


def _check_gpu(given: str | None) -> None:
    if given is None or given.lower().startswith("none") or knowledge.gpu(given.partition(":")[0]) is not None:
        return
    raise UsageError(f"--gpu {given}: no such GPU is known; write it like a100:8, h100, l4 or t4")


def _check_target(given: str | None) -> None:
    known = knowledge.releases("trl")
    if given is not None and given not in known:
        raise UsageError(f"--target-trl {given}: no such release is known; {known[0]} to {known[-1]} are")


def rules_of(own: Settings) -> tuple[Rule, ...]:
    """The rulebook, and the pages of the project's own that its settings name. Raises UsageError."""
    try:
        rules = rulebook.load()
        for folder in own.rules or ():
            rules += rulebook.load_own(Path(folder), rules)
    except rulebook.BadPage as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        where = own.origins.get("rules")
        raise UsageError(f"{where}: rules: {error.filename}: {error.strerror}") from None
    return rules


class Chosen:
    """The rules that options and settings leave. Those of a project's own count where its settings hold."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.moving = options.target_trl is not None
        self.selected, self.ignored = frozenset(names(options.select)), frozenset(names(options.ignore))
        starts = [settings.load(p if p != "-" else options.stdin_filename) for p in options.paths or ["."]]
        every = {rule.name: rule for own in starts for rule in rules_of(own)}
        _known(every.values(), self.selected | self.ignored)
        self.rules = tuple(rule for rule in every.values() if self._asked(rule.name, rule.group))
        self._by_settings: dict[int, tuple[Settings, tuple[Rule, ...]]] = {}

    def of(self, path: str) -> tuple[Rule, ...]:
        """The rules for the files of a path."""
        own = settings.load(path)
        if id(own) not in self._by_settings:
            # The settings are kept beside the answer so that their id stays theirs.
            self._by_settings[id(own)] = own, self._of(own)
        return self._by_settings[id(own)][1]

    def _of(self, own: Settings) -> tuple[Rule, ...]:
        every = rules_of(own)
        for key, given in own.rule_names():
            _known(every, given, own.origins.get(key))
        kept = rulebook.select(every, () if self.selected else own.select or (), own.ignore or ())
        return tuple(r for r in kept if self._asked(r.name, r.group) and (self.moving or r.target is None))

    def keeps(self, finding: Finding) -> bool:
        """Whether a finding is to be reported, by where it stands: also those about ignore comments, which no page makes."""
        ignored = settings.load(finding.span.path).ignored_at(finding.span.path)
        return self._asked(finding.rule, finding.group) and not {finding.rule, finding.group} & ignored

    def _asked(self, rule: str, group: str) -> bool:
        given = {rule, group}
        return not given & self.ignored and (not self.selected or bool(given & self.selected))


def _known(rules: Iterable[Rule], given: Iterable[str], origin: str | None = None) -> None:
    try:
        rulebook.select(rules, (), given)
    except rulebook.UnknownRule as error:
        raise UsageError(f"{origin}: {error}" if origin else str(error)) from None
