"""A Markdown page in; a Rule out, or one clear line that says where the page is wrong.

The page's heading is the rule's title, its first fenced `toml` block the program, the prose the manual. Pages are held
to their form when they are loaded: a name that no release of the page's range knows is an error of the page.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Any, Literal, cast

from trl_lint.model import Effect, Severity
from trl_lint.runs.items import ITEMS
from trl_lint.runs.logic import BadExpression, compiled

NEEDS = ("install", "memory", "consent")
EFFECTS = ("same", "numerics", "training")
_PAGE_KEYS = {
    "methods",
    "at",
    "when",
    "each",
    "unsloth",
    "gain",
    "trl",
    "severity",
    "message",
    "fix",
    "variant",
    "stops",
    "related",
    "scope",
}
_VARIANT_KEYS = {"trl", "when", "severity", "message", "fix", "stops"}
_FIX_KEYS = {"title", "effect", "needs", "set", "drop", "rename", "move", "import", "class", "when"}
SECTIONS = ("Example", "Use instead", "Fix safety", "Measured", "Sources")


class BadPage(ValueError):
    """A page that cannot be used; the text is `file:line: what is wrong; what to do`."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way out that a page offers. Targets are dotted names; values are TOML literals or templates."""

    title: str
    effect: Effect
    needs: tuple[str, ...]
    when: str | None
    actions: tuple[tuple[str, str, Any], ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """What a rule says in one range of releases. `trl` is a specifier, `stops` whether the run raises there."""

    trl: str
    when: str | None
    severity: Severity
    message: str
    stops: bool
    fixes: tuple[Alternative, ...]


@dataclass(frozen=True)
class Rule:
    """One page. `methods` None means every run; `each` names the list that the rule goes through item by item."""

    name: str
    group: str
    title: str
    path: str
    text: str = field(repr=False)
    methods: tuple[str, ...] | None
    at: tuple[str, ...]
    related: Mapping[str, str]
    when: str
    each: str | None
    unsloth: bool
    gain: int
    variants: tuple[Variant, ...]

    @cached_property
    def sections(self) -> Mapping[str, str]:
        """The text under each `## heading`."""
        return sections(self.text)


def sections(text: str) -> dict[str, str]:
    """The text under each second-level heading of a page; code fences are not searched for headings."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    fenced = False
    for line in text.splitlines():
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        if line.startswith("## ") and not fenced:
            current = found.setdefault(line[3:].strip(), [])
        elif current is not None:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def blocks(text: str, language: str) -> list[tuple[int, str]]:
    """The fenced code blocks in a language: (1-based line of the first code line, code)."""
    found: list[tuple[int, str]] = []
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        if lines[index].strip() == f"```{language}":
            start = index + 1
            while index + 1 < len(lines) and lines[index + 1].strip() != "```":
                index += 1
            found.append((start + 1, "\n".join(lines[start : index + 1]) + "\n"))
            index += 1
        index += 1
    return found


def read(path: Path, root: Path) -> Rule:
    """The rule of one page. Raises BadPage."""
    text = path.read_text("utf-8")
    shown = f"{root.name}/{path.relative_to(root).as_posix()}"
    title = next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), None)
    if title is None:
        raise BadPage(f"{shown}:1: the page has no `# heading`; begin it with the rule's title")
    programs = blocks(text, "toml")
    if not programs:
        raise BadPage(f"{shown}:1: the page has no ```toml block; put the rule's program into one")
    line, program = programs[0]
    page = _Page(shown, line, program)
    return page.rule(path.stem, path.parent.name, title, text)


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
        """An error at the first line of the program that names the key."""
        for offset, text in enumerate(self.program.splitlines()):
            if re.match(rf"\s*\[*\s*(\w+\.)*{re.escape(key)}\b", text) or f"{key} =" in text:
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
            dict(self.data.get("related", {})), when, each, bool(self.data.get("unsloth", False)), int(self.data.get("gain", 0)),
            tuple(self._variant(v) for v in variants),
        )  # fmt: skip

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
        for op in ("set", "rename", "move", "import", "class"):
            actions += [(op, target, value) for target, value in data.get(op, {}).items()]
        actions += [("drop", target, None) for target in data.get("drop", ())]
        return Alternative(
            data["title"], cast(Effect, effect), tuple(data.get("needs", ())), data.get("when"), tuple(actions)
        )

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


Kind = Literal["set", "drop", "rename", "move", "import", "class"]
