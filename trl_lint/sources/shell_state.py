"""Assignments in, as the script makes them; out what every variable holds at this point, and where anything stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tree_sitter import Node

from trl_lint.model import Argument, Known, Place, Span, Unknown, Value, Written
from trl_lint.sources.pieces import Piece
from trl_lint.sources.shell_syntax import captured, is_append, parsed, source_of
from trl_lint.sources.shell_values import Chunk, Field, Script, Variable, joined, reason, unknown
from trl_lint.sources.text import Text

EXPORTS = 200
"""More exported variables than this are not followed: every command would carry them all."""

SETTERS = {"read", "mapfile", "readarray", "getopts", "let"}
ESCAPES = {
    "plain": re.compile(rb"\\(\r?\n|[\x00-\x7f]|(?=[\x80-\xff]))"),
    "double": re.compile(rb"\\(\r?\n|[$`\"\\])"),
    "heredoc": re.compile(rb"\\(\r?\n|[$`\\])"),
}
BLANKS_BEFORE = {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}


class Counts:
    """How often a whole text assigns each variable and calls each function."""

    def __init__(self) -> None:
        self.writes: dict[str, int] = {}
        self.resets: dict[str, int] = {}
        self.last_write: dict[str, int] = {}
        self.calls: dict[str, int] = {}

    def count(self, node: Node, at: Callable[[Node], tuple[int, int]]) -> None:
        """Counts the text that `node` is all of; `at` says where its nodes stand in the file."""
        for assignment in captured("(variable_assignment) @n", node):
            name = assignment.child_by_field_name("name")
            if name is None:
                continue
            key = source_of(name).split("[")[0]
            self.writes[key] = self.writes.get(key, 0) + 1
            self.resets[key] = self.resets.get(key, 0) + (not is_append(assignment))
            self.last_write[key] = max(self.last_write.get(key, 0), at(assignment)[0])
        for loop in captured("(for_statement variable: (variable_name) @n)", node):
            self._touched(source_of(loop), at(loop)[0])
        for call in captured("(command name: (command_name (word) @n))", node):
            key = source_of(call)
            self.calls[key] = self.calls.get(key, 0) + 1
            if key in SETTERS and call.parent is not None and call.parent.parent is not None:
                for argument in call.parent.parent.children_by_field_name("argument"):
                    self._touched(source_of(argument).split("=")[0], at(argument)[0])

    def _touched(self, name: str, at: int) -> None:
        self.writes[name] = self.writes.get(name, 0) + 1
        self.resets[name] = self.resets.get(name, 0) + 1
        self.last_write[name] = max(self.last_write.get(name, 0), at)


class State:
    """What holds where the script has been read to."""

    def __init__(self, root: Text) -> None:
        self.root = root
        self.text: Text = root
        self.interpolated = False
        self.counts = Counts()
        # what holds at this point
        self.variables: dict[str, Variable] = {}
        self.positional: tuple[Field, ...] | None = None
        self.journals: list[dict[str, Variable | None]] = []
        self.exports: dict[str, Argument] = {}
        self.slurm: dict[str, Argument] = {}
        self.allexport = False
        self.stopped = False
        self._environment: dict[str, Argument] | None = None
        # what is around it
        self.conditional = False
        self.quoted = False
        self.function: str | None = None
        self.locals: set[str] = set()
        self.depth = 0

    @contextmanager
    def reading(self, text: Text) -> Iterator[Node]:
        """A text, parsed and counted, is the one at hand for a while."""
        before, self.text = self.text, text
        try:
            node = parsed(text.utf8)
            self.counts.count(node, self.at)
            yield node
        finally:
            self.text = before

    @property
    def replaced(self) -> bool:
        """Whether the bytes of the text at hand may stand for others."""
        return isinstance(self.text, Piece) and len(self.text.segments) > 1

    def range(self, start: int, end: int) -> tuple[int, int]:
        """Offsets of the text at hand as offsets of the root."""
        if isinstance(self.text, Piece) and self.text is not self.root:
            return self.text.outward(start, end)
        return start, end

    def at(self, node: Node) -> tuple[int, int]:
        return self.range(self.begin(node), node.end_byte)

    def begin(self, node: Node) -> int:
        """Where a node really starts: in a string, the grammar counts the blanks before an expansion to it."""
        data = self.text.utf8[node.start_byte : node.end_byte]
        return node.start_byte + len(data) - len(data.lstrip()) if node.type in BLANKS_BEFORE else node.start_byte

    def span(self, start: int, end: int) -> Span:
        """Offsets of the root as a span of the file."""
        return self.root.span(start, end)

    def line(self, node: Node) -> int:
        return self.root.line_of(self.at(node)[0])[0]

    def raw(self, start: int, end: int) -> list[Chunk]:
        """The bytes `start` to `end` of the text at hand, as they stand."""
        if isinstance(self.text, Script):
            return self.text.read(start, end)
        if isinstance(self.text, Piece) and self.text is not self.root:
            utf8 = self.root.utf8
            return [
                Chunk(utf8[low:high].decode(errors="replace"), low, high)
                for _, low, high, _ in self.text.pieces(start, end)
            ]
        low, high = self.range(start, end)
        return [Chunk(self.text.utf8[start:end].decode(errors="replace"), low, high)]

    def literal(self, start: int, end: int, mode: str) -> list[Chunk]:
        """The bytes `start` to `end` with the escapes of their kind of quoting taken away."""
        if start >= end:
            return []
        data = self.text.utf8[start:end]
        if b"\\" not in data:
            return self.raw(start, end)
        chunks: list[Chunk] = []
        position = 0
        for found in ESCAPES[mode].finditer(data):
            if found.start() > position:
                chunks += self.raw(start + position, start + found.start())
            escaped = found[1].decode()
            low, high = self.range(start + found.start(), start + found.end())
            chunks.append(Chunk("" if escaped in ("\n", "\r\n") else escaped, low, high, same=False))
            position = found.end()
        if position < len(data):
            chunks += self.raw(start + position, end)
        return chunks

    def set(self, name: str, value: Variable | None) -> None:
        if self.journals:
            self.journals[-1].setdefault(name, self.variables.get(name))
        self._put(name, value)

    def _put(self, name: str, value: Variable | None) -> None:
        old = self.variables.pop(name, None)
        if value is not None:
            self.variables[name] = value
        if value is not None and value.exported and (name in self.exports or len(self.exports) < EXPORTS):
            self.exports[name] = self.argument(name, value)
            self._environment = None
        elif old is not None and old.exported and self.exports.pop(name, None) is not None:
            self._environment = None

    def undone(self) -> dict[str, Variable | None]:
        """Takes back what was assigned since the last journal began, and says what it was."""
        journal = self.journals.pop()
        changes = {name: self.variables.get(name) for name in journal}
        for name, old in journal.items():
            self._put(name, old)
        return changes

    def forget(self, name: str, why: str, node: Node) -> None:
        place = self.at(node)
        old = self.variables.get(name)
        exported = old is not None and old.exported
        self.set(name, Variable((unknown(why, *place),), None, place, place, place[0], exported=exported))

    @contextmanager
    def within(self, **changes: object) -> Iterator[None]:
        """Some attributes have other values for a while."""
        before = {name: getattr(self, name) for name in changes}
        for name, value in changes.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def environment(self) -> Mapping[str, Argument]:
        """What every command of this point is given: exports of the file and the directives of its batch system."""
        if self._environment is None:
            self._environment = {**self.slurm, **self.exports}
        return self._environment

    def argument(self, name: str, variable: Variable) -> Argument:
        chunks = variable.chunks if variable.items is None else ()
        text = None if variable.items is not None else joined(chunks)
        at = self.span(*variable.at)
        value: Value
        if text is None:
            value = Unknown(reason(chunks) or f"{name} is an array")
        elif any(chunk.likely for chunk in chunks):
            value = Unknown(f"the environment may give {name}", likely=Known(text, Written(at)))
        else:
            value = Known(text, Written(at))
        binding = self.span(*variable.repeats) if variable.repeats is not None else None
        place = Place("env", self.span(*variable.whole), at, self.root.byte(variable.container), binding)
        return Argument(name, value, place, conditional=variable.sometimes)


def unread(why: str, place: tuple[int, int], *, caller: bool = False, old: Variable | None = None) -> Variable:
    chunk = unknown(why, *place, caller=caller)
    if old is not None:
        return old._replace(chunks=(chunk,), items=None, literal=None, repeats=None)
    return Variable((chunk,), None, place, place, place[0])
