"""A Markdown page in; a Rule out, or one clear line that says where the page is wrong.

The page's heading is the rule's title, its first fenced `toml` block the program, the prose the manual. Pages are held
to their form when they are loaded: a name that no release of the page's range knows is an error of the page.
"""

from __future__ import annotations

import difflib
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, cast

from trl_lint import knowledge
from trl_lint.model import Effect, Severity
from trl_lint.rulebook.rule import Alternative, BadPage, Knob, Rule, Variant, sections
from trl_lint.runs import method_of
from trl_lint.runs.items import ITEMS
from trl_lint.runs.logic import BadExpression, compiled, names_in
from trl_lint.runs.properties import properties

__all__ = ["BadPage", "Rule", "blocks", "read", "sections"]

NEEDS = ("install", "memory", "consent")
# What advice of a group usually brings, for the order in which to act on it; a page that knows better says so.
GAINS = {"precision": 30, "attention": 40, "liger": 45, "vllm": 60, "serving": 60}
EFFECTS = ("same", "numerics", "training")
_PAGE_KEYS = {
    "methods",
    "at",
    "when",
    "each",
    "unsloth",
    "possible",
    "target",
    "guards",
    "gain",
    "trl",
    "severity",
    "message",
    "fix",
    "variant",
    "stops",
    "related",
    "tune",
}
_VARIANT_KEYS = {"trl", "when", "severity", "message", "fix", "stops"}
_FIX_KEYS = {"title", "effect", "needs", "set", "drop", "rename", "move", "import", "class", "command", "when"}
_KNOB_KEYS = {"name", "trl", "methods", "values", "when", "valid", "effect", "memory", "first", "set"}


@dataclass(frozen=True)
class Block:
    """One fenced code block; `line` is the 1-based line of its first line of code."""

    language: str
    code: str
    line: int


def blocks(text: str) -> list[Block]:
    """The fenced code blocks in their order."""
    found: list[Block] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.startswith("```"):
            code = itertools.takewhile(lambda inner: inner[1].rstrip() != "```", lines)
            found.append(Block(line[3:].strip(), "".join(f"{inner}\n" for _n, inner in code), number + 1))
    return found


def read(path: Path, root: Path) -> Rule:
    """The rule of one page. Raises BadPage."""
    text = path.read_text("utf-8")
    shown = f"{root.name}/{path.relative_to(root).as_posix()}"
    title = next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), None)
    if title is None:
        raise BadPage(f"{shown}:1: the page has no `# heading`; begin it with the rule's title")
    program = next((b for b in blocks(text) if b.language == "toml"), None)
    if program is None:
        raise BadPage(f"{shown}:1: the page has no ```toml block; put the rule's program into one")
    page = _Page(shown, program.line, program.code)
    rule = page.rule(path.stem, path.parent.name, title, text)
    page.check_names(rule)
    return rule


class _Page:
    def __init__(self, shown: str, line: int, program: str) -> None:
        self.shown = shown
        self.line = line
        self.program = program
        try:
            self.data = tomllib.loads(program)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"line (\d+)", str(error))
            at = line + int(found.group(1)) - 1 if found is not None else line
            raise BadPage(f"{shown}:{at}: {str(error).partition(' (at')[0]}; correct the TOML") from None

    def bad(self, key: str, what: str) -> BadPage:
        """An error at the line of the program that sets the key, or else at the first one that speaks of it."""
        lines = self.program.splitlines()
        patterns = (rf"\s*\[*\s*(\w+\.)*{re.escape(key)}\s*(=|\]|\.)", rf".*(?<![\w.]){re.escape(key)}\b")
        for pattern in patterns:
            for offset, text in enumerate(lines):
                if re.match(pattern, text):
                    return BadPage(f"{self.shown}:{self.line + offset}: {what}")
        return BadPage(f"{self.shown}:{self.line}: {what}")

    def rule(self, name: str, group: str, title: str, text: str) -> Rule:
        self._keys(self.data, _PAGE_KEYS)
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            raise BadPage(f"{self.shown}:1: the file's name is the rule's name and must be kebab-case")
        each = self.data.get("each")
        if each is not None and each not in ITEMS:
            raise self.bad("each", f"there is no list {each!r}; use one of {', '.join(sorted(ITEMS))}")
        when = self.data.get("when", "True")
        self._expression("when", when)
        variants = self.data.get("variant")
        if variants is None:
            variants = [{k: self.data[k] for k in ("trl", "severity", "message", "fix", "stops") if k in self.data}]
        elif any(k in self.data for k in ("severity", "message", "fix", "trl")):
            raise self.bad("variant", "a page with variants keeps trl, severity, message and fix inside them")
        methods = self.data.get("methods")
        return Rule(
            name, group, title, self.shown, text, tuple(methods) if methods is not None else None, tuple(self.data.get("at", ())),
            dict(self.data.get("related", {})), when, each, bool(self.data.get("unsloth", False)),
            bool(self.data.get("possible", False)), int(self.data.get("gain", GAINS.get(group, 0))),
            tuple(self._variant(v) for v in variants), self._target(), self._guards(),
            tuple(self._knob(k, methods) for k in self.data.get("tune", ())),
        )  # fmt: skip

    def _target(self) -> str | None:
        target = self.data.get("target")
        if target is not None and target not in knowledge.releases("trl"):
            raise self.bad("target", f"target = {target!r} is no known TRL release")
        return cast(str | None, target)

    def _guards(self) -> tuple[str, ...]:
        names = tuple(self.data.get("guards", ()))
        known = knowledge.guard_names() if names else frozenset()
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, sorted(known), 1, 0.0)
                raise self.bad("guards", f"no release has a guard {name!r}; the nearest is {near[0]!r}")
        return names

    def _variant(self, data: dict[str, Any]) -> Variant:
        self._keys(data, _VARIANT_KEYS)
        for key in ("severity", "message"):
            if key not in data:
                raise self.bad("variant", f"a variant has no {key}; every variant says how bad it is and what happens")
        if data["severity"] not in Severity.__members__:
            raise self.bad("severity", f"severity {data['severity']!r} is not one of error, warning, note")
        if "when" in data:
            self._expression("when", data["when"])
        trl = data.get("trl", "")
        self._specifier(trl)
        self._template(data["message"])
        return Variant(
            trl, data.get("when"), Severity[data["severity"]], data["message"], bool(data.get("stops", False)),
            tuple(self._fix(f) for f in data.get("fix", ())),
        )  # fmt: skip

    def _fix(self, data: dict[str, Any]) -> Alternative:
        self._keys(data, _FIX_KEYS)
        effect = data.get("effect", "same")
        if effect not in EFFECTS:
            raise self.bad("effect", f"effect {effect!r} is not one of {', '.join(EFFECTS)}")
        for need in data.get("needs", ()):
            if need not in NEEDS:
                raise self.bad("needs", f"need {need!r} is not one of {', '.join(NEEDS)}")
        if "title" not in data:
            raise self.bad("fix", "a fix has no title; say in a few words what it does")
        if "when" in data:
            self._expression("when", data["when"])
        actions: list[tuple[str, str, Any]] = []
        for op in ("set", "rename", "move", "import", "class", "command"):
            actions += [(op, target, value) for target, value in data.get(op, {}).items()]
        actions += [("drop", target, None) for target in data.get("drop", ())]
        return Alternative(
            data["title"], cast(Effect, effect), tuple(data.get("needs", ())), data.get("when"), tuple(actions)
        )

    def _knob(self, data: dict[str, Any], methods: list[str] | None) -> Knob:
        self._keys(data, _KNOB_KEYS)
        name, values, effect = data.get("name"), data.get("values"), data.get("effect")
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            raise self.bad("tune", "a knob has a name in kebab-case, which `trl-lint tune` calls it by")
        if not isinstance(values, list) or not values or not all(isinstance(v, str | int | float) for v in values):
            raise self.bad("values", f"{name} needs a list of values: strings, numbers, true or false")
        if effect not in EFFECTS:
            raise self.bad("effect", f"effect {effect!r} is not one of {', '.join(EFFECTS)}")
        if data.get("memory", "rising") != "rising":
            raise self.bad("memory", 'memory = "rising" is all that can be said of it; list the hungriest value last')
        if "first" in data and data["first"] not in values:
            raise self.bad("first", f"{name} begins with {data['first']!r}, which is none of its values")
        if not data.get("set"):
            raise self.bad("tune", f"{name} sets nothing; give it a [tune.set] table")
        for key, text in ((k, data[k]) for k in ("when", "valid") if k in data):
            self._expression(key, text)
        for target, text in data["set"].items():
            self._expression(target, text)
        self._specifier(data.get("trl", ""))
        own = data.get("methods", methods)
        return Knob(
            name, data.get("trl", ""), tuple(own) if own is not None else None, tuple(values), data.get("when"),
            data.get("valid"), cast(Effect, effect), "memory" in data, tuple(data["set"].items()),
            data.get("first"),
        )  # fmt: skip

    def check_names(self, rule: Rule) -> None:
        """Every name of every condition is known in every release of its range, or guarded by has(…)."""
        page_read, page_guarded = names_in(rule.when)
        for variant in rule.variants:
            texts = [variant.when, *(f.when for f in variant.fixes)]
            read, guarded = set(page_read), set(page_guarded)
            for text in filter(None, texts):
                more_read, more_guarded = names_in(text)
                read |= more_read
                guarded |= more_guarded
            for name in sorted(read - guarded):
                self._known(name, rule.methods, variant.trl, guarded)
        for knob in rule.knobs:
            _read, guarded = map(set, names_in(knob.when or "True"))
            for text in filter(None, (knob.when, knob.valid, *(part for pair in knob.set for part in pair))):
                for name in sorted(names_in(text)[0] - guarded - {"value"}):
                    self._known(name, knob.methods, knob.trl, guarded)

    def _known(self, name: str, methods: tuple[str, ...] | None, trl: str, guarded: set[str]) -> None:
        root, _, rest = name.partition(".")
        if name == "world_size" or (
            rest and (name in properties() or root in _OPEN_ROOTS or name.startswith(_OPEN_PREFIXES))
        ):
            return
        if rest and root in _CLOSED_ROOTS:
            raise self.bad(name, f"there is no {name}; docs/writing-rules.md lists the names")
        if root in guarded or root in _inherited():
            return
        missing = next(_unknown_in(root, methods, trl), None)
        if missing is not None:
            raise self.bad(name, f"{missing} has no field {root}; guard it with has({root}) or narrow the range")

    def _keys(self, data: Mapping[str, Any], allowed: set[str]) -> None:
        for key in data:
            if key not in allowed:
                raise self.bad(key, f"unknown key {key!r}; use one of {', '.join(sorted(allowed))}")

    def _expression(self, key: str, text: object) -> None:
        if not isinstance(text, str):
            raise self.bad(key, f"{key} must be a string that holds a condition")
        try:
            compiled(text)
        except BadExpression as error:
            raise self.bad(key, f"{key}: {error}") from None

    def _specifier(self, text: str) -> None:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            raise self.bad("trl", f"trl = {text!r} is no version range; write it like '>=1.10,<1.14'") from None

    def _template(self, text: str) -> None:
        try:
            list(Formatter().parse(text))
        except ValueError as error:
            raise self.bad("message", f"message: {error}") from None


_OPEN_ROOTS = frozenset({"trainer", "versions", "installed", "item", "server", "option"})
_OPEN_PREFIXES = ("model.load.", "ref_model.load.", "launch.env.")
_CLOSED_ROOTS = frozenset(
    {"model", "ref_model", "peft", "dataset", "launch", "client", "gpu", "trl", "transformers", "vllm", "liger", "run"}
)


@cache
def _inherited() -> frozenset[str]:
    """What TrainingArguments has had in some known transformers release: which one a world has, no page decides."""
    return frozenset(
        field for version in knowledge.releases("transformers") for field in knowledge.training_arguments(version)
    )


@cache
def _classes() -> Mapping[str, tuple[str, ...]]:
    """The config classes of each method, over all releases."""
    names = {
        name
        for version in knowledge.releases("trl")
        for name in knowledge.trl(version).configs()
        if name.endswith("Config")
    }
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(names):
        found[method_of(name)] = (*found.get(method_of(name), ()), name)
    return found


def _unknown_in(field: str, methods: tuple[str, ...] | None, specifier: str) -> Iterator[str]:
    """The first release and class of a page's range that does not have a field."""
    from packaging.specifiers import SpecifierSet

    allowed = SpecifierSet(specifier)
    order = {version: index for index, version in enumerate(knowledge.releases("trl"))}
    if methods is None:
        yield "not every config"
        return
    for method in methods:
        for name in _classes().get(method, ()):
            ranges = [(order[first], order[last]) for first, last in knowledge.history(name, field)]
            for version, index in order.items():
                if not allowed.contains(version) or any(first <= index <= last for first, last in ranges):
                    continue
                if name in knowledge.trl(version).configs():
                    yield f"trl {version}: {name}"
