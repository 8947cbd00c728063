"""A shell script, batch file, Makefile or Dockerfile in; out its commands, in the order they run, and the files it writes.

The script is walked once, top to bottom, with what its variables hold; nothing is run and no variable of this machine is
looked at. What the file does not say (`$1`, `$HOME`, `$(nvidia-smi)`) makes a word unknown, and says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import takewhile
from pathlib import PurePosixPath
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from trl_lint.model import Argument, Command, Known, Place, Span, Unknown, Value, Word, Written
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.pieces import Piece
from trl_lint.sources.shell_values import (
    LIMIT,
    Chunk,
    Field,
    Script,
    Variable,
    as_written,
    contiguous,
    joined,
    likely,
    limited,
    merged,
    reason,
    unknown,
    words_of,
)
from trl_lint.sources.text import Text, Undecodable

DEPTH = 120
"""Deeper nesting than this is left out: no person writes it, and Python's own stack ends."""

EXPORTS = 200
"""More exported variables than this are not followed: every command would carry them all."""

SHELLS = {"bash", "sh", "zsh", "dash", "ksh"}
QUIET = {"echo", "printf", "which", "type", "grep", "man", "command", "sed", "awk", "cat", "tee", "alias", "trap"}
SETTERS = {"read", "mapfile", "readarray", "getopts", "let"}
ENV_WRAPPERS = {"nohup", "setsid", "time", "exec", "sudo", "command", "nice", "stdbuf", "srun", "builtin"}
GIVING = ENV_WRAPPERS | {"env", "docker", "podman", "timeout"}
REMOTE = {"ssh", "srun"}
SSH_VALUES = set("BbcDEeFIiJLlmOopQRSWw")
TMUX_RUNS = {"new", "new-session", "new-window", "neww", "split-window", "splitw", "respawn-pane", "respawn-window"}
TMUX_VALUES = {"-s", "-n", "-t", "-c", "-x", "-y", "-F", "-L", "-S", "-f", "-l", "-p"}
SLURM = {
    "N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus-per-task", "p": "partition", "J": "job-name", "t": "time",
    "o": "output", "e": "error", "w": "nodelist", "x": "exclude", "A": "account", "q": "qos", "a": "array",
    "d": "dependency", "C": "constraint", "D": "chdir",
}  # fmt: skip
ESCAPES = {
    "plain": re.compile(rb"\\(\r?\n|[\x00-\x7f]|(?=[\x80-\xff]))"),
    "double": re.compile(rb"\\(\r?\n|[$`\"\\])"),
    "heredoc": re.compile(rb"\\(\r?\n|[$`\\])"),
}
ANSI = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{1,4}|[\x00-\x7f])")
ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v", "E": "\x1b"}
EXPANSION = re.compile(rb"\$\{([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[([^\]]*)\])?(?:(:?[-=+?])(.*))?\}", re.DOTALL)
LOOSE = re.compile(rb"\\.|\$([A-Za-z_]\w*|[0-9@*#?!])", re.DOTALL)
OPENINGS = re.compile(rb"([({])|[)}]")
SIMPLE = re.compile(rb"[A-Za-z0-9_./:=,@%+-]+")
LENGTH = re.compile(rb"\$\{#([A-Za-z_]\w*)\[[@*]\]\}")
BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")

Part = tuple[str, "Chunk | Field | None"]
"""A piece of a word: ("text", chunk), ("split", chunk) for an unquoted expansion, ("item", field) of an array."""


def read(text: Text) -> Module:
    """Everything that a launch file says. By its name it is a Makefile, a Dockerfile, a `.env`, else a shell script."""
    name = PurePosixPath(text.path.replace("\\", "/")).name.lower()
    if name in ("makefile", "gnumakefile") or name.endswith((".mk", ".make")):
        from trl_lint.sources.makefile import read as read_makefile

        return read_makefile(text)
    if name.startswith(("dockerfile", "containerfile")) or name.endswith((".dockerfile", ".containerfile")):
        from trl_lint.sources.dockerfile import read as read_dockerfile

        return read_dockerfile(text)
    if name == ".env" or name.startswith(".env.") or name.endswith(".env"):
        return Module(text.path, ())
    shell = Shell(text)
    shell.directives()
    shell.run()
    return shell.module()


def commands_in(text: Text, start: int, end: int) -> tuple[Command, ...]:
    """The commands of a part of any other file: a notebook's `!` line, a `%%bash` cell, the value of a YAML `run:`."""
    return module_in(text, start, end).commands


def module_in(text: Text, start: int, end: int) -> Module:
    """Like `commands_in`, with the files that these commands write."""
    while start < end and text.utf8[start] & 0xC0 == 0x80:  # never begin or end within a character
        start += 1
    while start < end < len(text.utf8) and text.utf8[end] & 0xC0 == 0x80:
        end -= 1
    piece = Piece.dedented(text, start, end)
    shell = Shell(piece)
    shell.interpolated = text.path.endswith(".ipynb") and text.utf8[:start].rstrip(b" \t").endswith(b"!")
    shell.run()
    return shell.module()


@cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


@cache
def _query(pattern: str) -> Query:
    return Query(_language(), pattern)


def _captured(pattern: str, node: Node) -> list[Node]:
    found = QueryCursor(_query(pattern)).captures(node).get("n", [])
    return sorted(found, key=lambda n: n.start_byte)


def _parsed(data: bytes) -> Node:
    if data.count(b"<<") > 1000:  # the grammar looks for the end of each heredoc to the end of the file
        raise Unparsable("line 1: more than a thousand heredocs")
    depth = 0
    for found in OPENINGS.finditer(data):
        depth = max(0, depth + (1 if found[1] is not None else -1))
        if depth > 2000:  # queries take the square of it
            line = data.count(b"\n", 0, found.start()) + 1
            raise Unparsable(f"line {line}: it is nested too deeply")
    return Parser(_language()).parse(data).root_node


class _Template(NamedTuple):
    """A command of a function that passes the function's arguments on: `run() { nohup "$@" & }`."""

    fields: tuple[Field, ...]
    environment: Mapping[str, Argument]
    background: bool


class Shell:
    """The interpreter: what variables hold at this point of the script, and what was found so far."""

    def __init__(self, root: Text) -> None:
        self.root = root
        self.text: Text = root
        self.commands: list[Command] = []
        self.written: dict[str, list[Chunk] | None] = {}
        self.slurm: dict[str, Argument] = {}
        self.interpolated = False
        # what holds at this point
        self.variables: dict[str, Variable] = {}
        self.positional: tuple[Field, ...] | None = None
        self.journals: list[dict[str, Variable | None]] = []
        self.exports: dict[str, Argument] = {}
        self.allexport = False
        self.stopped = False
        self._environment: dict[str, Argument] | None = None
        # what is around the command
        self.conditional = False
        self.background = False
        self.quoted = False
        self.function: str | None = None
        self.prefix: tuple[Field, ...] = ()
        self.out: tuple[str, bool] | None = None
        self.depth = 0
        # functions
        self.functions: dict[str, tuple[Text, Node]] = {}
        self.active: list[str] = []
        self.changes: dict[str, dict[str, Variable | None]] = {}
        self.templates: dict[str, list[_Template]] = {}
        self.locals: set[str] = set()
        # facts about the whole file
        self.writes: dict[str, int] = {}
        self.resets: dict[str, int] = {}
        self.last_write: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.nested_left = 4 * len(root.utf8) + 100_000
        self.words_left = len(root.utf8) + 20_000

    # doors ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Reads the whole text."""
        self.script(self.root)
        self.uncalled()

    def script(self, text: Text) -> None:
        """Reads a text in the state at hand: the file itself, or a part that another reader cut out of it."""
        before, self.text = self.text, text
        try:
            node = _parsed(text.utf8)
            self.count(node)
            self.block(node)
        finally:
            self.text = before

    def module(self) -> Module:
        return Module(self.root.path, (), commands=tuple(self.commands), written=self.files())

    def count(self, node: Node) -> None:
        """How often each variable is assigned and each function is called, once for the text that `node` is all of."""
        for assignment in _captured("(variable_assignment) @n", node):
            name = assignment.child_by_field_name("name")
            if name is None:
                continue
            key = _source(name).split("[")[0]
            self.writes[key] = self.writes.get(key, 0) + 1
            self.resets[key] = self.resets.get(key, 0) + (not _appends(assignment))
            self.last_write[key] = max(self.last_write.get(key, 0), self.at(assignment)[0])
        for loop in _captured("(for_statement variable: (variable_name) @n)", node):
            self.touched(_source(loop), self.at(loop)[0])
        for call in _captured("(command name: (command_name (word) @n))", node):
            key = _source(call)
            self.calls[key] = self.calls.get(key, 0) + 1
            if key in SETTERS and call.parent is not None and call.parent.parent is not None:
                for argument in call.parent.parent.children_by_field_name("argument"):
                    self.touched(_source(argument).split("=")[0], self.at(argument)[0])

    def touched(self, name: str, at: int) -> None:
        self.writes[name] = self.writes.get(name, 0) + 1
        self.resets[name] = self.resets.get(name, 0) + 1
        self.last_write[name] = max(self.last_write.get(name, 0), at)

    @property
    def replaced(self) -> bool:
        """Whether the bytes of the text at hand may stand for others."""
        return isinstance(self.text, Piece) and len(self.text.segments) > 1

    # places --------------------------------------------------------------------------------------------------------

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
        return node.start_byte + len(data) - len(data.lstrip()) if node.type in _BLANKS_BEFORE else node.start_byte

    def span(self, start: int, end: int) -> Span:
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

    # state ---------------------------------------------------------------------------------------------------------

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

    # statements ----------------------------------------------------------------------------------------------------

    def block(self, node: Node) -> None:
        children = node.children
        for index, child in enumerate(children):
            if child.is_named:
                after = children[index + 1].type if index + 1 < len(children) else ""
                self.statement(child, background=after == "&")

    def statement(self, node: Node, *, background: bool = False) -> None:
        handler = _STATEMENTS.get(node.type)
        if handler is None or self.depth > DEPTH:
            return
        self.depth += 1
        try:
            if background and not self.background:
                with self.within(background=True):
                    handler(self, node)
            else:
                handler(self, node)
        finally:
            self.depth -= 1

    def compound(self, node: Node) -> None:
        if node.children and node.children[0].type == "((":
            for changed in _captured(
                "(postfix_expression (variable_name) @n) (binary_expression (variable_name) @n)", node
            ):
                if _source(changed) in self.variables:
                    self.forget(_source(changed), f"${_source(changed)} is counted at line {self.line(node)}", node)
            return
        self.block(node)

    def subshell(self, node: Node) -> None:
        self.journals.append({})
        with self.within(stopped=False):
            self.block(node)
        self.undone()

    def assignments(self, node: Node) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assign(child)

    def assign(self, node: Node) -> None:
        name, variable = self.assigned(node, self.at(node)[0])
        if name:
            self.set(name, variable._replace(exported=variable.exported or self.allexport))

    def assigned(self, node: Node, container: int, more: Sequence[Node] = ()) -> tuple[str, Variable]:
        """The name and the new value of an assignment that is not made yet; `more` are nodes that belong to its value."""
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        values = [value, *more] if value is not None else list(more)
        whole = self.range(node.start_byte, values[-1].end_byte if more else node.end_byte)
        at = self.range(self.begin(values[0]), values[-1].end_byte) if values else (whole[1], whole[1])
        if target is None:
            return "", Variable((), None, whole, at, container)
        name = _source(target).split("[")[0]
        old = self.variables.get(name)
        exported = old is not None and old.exported
        fresh = Variable((), None, whole, at, container, exported=exported)
        if target.type == "subscript":
            why = f"${name} is filled item by item"
            return name, fresh._replace(chunks=(unknown(why, *at),), whole=whole)
        appends = any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array":
            groups = _words([c for c in value.children if c.is_named or c.type == "$"])
            items = tuple(field for group in groups for field in self.fields(*group))
            if self.resets.get(name, 0) > 1:
                items = tuple(item._replace(plain=False) for item in items)
            if appends and old is not None and old.items is not None:
                items = old.items + items
            elif appends and old is not None:
                items = (Field(old.chunks, *old.at, plain=False), *items)
            if len(items) > LIMIT:
                items = (Field((unknown(f"${name} is put together from too many parts", *at),), *at, False, many=True),)
            return name, fresh._replace(items=items)
        parts = self.joint(values, assignment=True) if values else []
        chunks = tuple(_flat(parts))
        if self.resets.get(name, 0) > 1:
            chunks = tuple(chunk._replace(own=False) for chunk in chunks)
        literal = None
        if self.writes.get(name) == 1 and len(values) == 1 and not appends and _is_plain(values[0]):
            literal = at if joined(chunks) is not None and not self.quoted and contiguous(chunks) else None
        repeats = self.repeated(*values) if values and not appends else None
        if appends:
            if old is None:
                chunks = (unknown(f"${name} is not set in this file", *at), *chunks)
            elif old.items is not None:
                chunks = (unknown(f"${name} is an array", *at),)
            else:
                chunks = (*old.chunks, *chunks)
        chunks = limited(tuple(chunk for chunk in chunks if chunk.text != ""), name)
        return name, fresh._replace(chunks=chunks, literal=literal, repeats=repeats)

    def assigned_in(self, text: Text, container: int) -> list[tuple[str, Variable]]:
        """The assignments that a text consists of, not made yet."""
        before, self.text = self.text, text
        try:
            node = _parsed(text.utf8)
            self.count(node)
            found = [self.assigned(child, container) for child in _captured("(variable_assignment) @n", node)]
            return [(name, variable) for name, variable in found if name]
        finally:
            self.text = before

    def declaration(self, node: Node) -> None:
        """`export`, `declare`, `local`, `readonly`: assignments, and what they say of the names."""
        keyword = node.children[0].type
        options = "".join(_source(child) for child in node.children[1:] if _source(child).startswith("-"))
        exports = keyword == "export" or (keyword in ("declare", "typeset") and "x" in options)
        container = self.at(node)[0]
        for child, *more in _words(node.children):
            if child.type == "variable_assignment":
                name, variable = self.assigned(child, container, more)
                if exports and "n" not in options:
                    variable = variable._replace(exported=True, sometimes=False)
                if name:
                    self.localise(keyword, name)
                    self.set(name, variable)
            elif child.type == "variable_name":
                name = _source(child)
                old = self.variables.get(name)
                self.localise(keyword, name)
                if exports and old is not None:
                    self.set(name, old._replace(exported="n" not in options, sometimes=False))

    def localise(self, keyword: str, name: str) -> None:
        if self.function is not None and keyword in ("local", "declare", "typeset"):
            self.locals.add(name)

    def unset(self, node: Node) -> None:
        for child in node.named_children:
            if child.type in ("variable_name", "word") and not _source(child).startswith("-"):
                self.set(_source(child), None)

    def define(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        if name is not None:
            self.functions[_source(name)] = (self.text, node)

    # branches ------------------------------------------------------------------------------------------------------

    def branches(self, node: Node, bodies: Sequence[Callable[[], None]], *, exhaustive: bool, test: str = "") -> None:
        """Reads every branch from the same state; afterwards a variable is what all of them agree on."""
        results: list[dict[str, Variable | None]] = []
        for body in bodies:
            self.journals.append({})
            with self.within(conditional=True, stopped=False):
                body()
                ended = self.stopped
            changes = self.undone()
            if not ended:
                results.append(changes)
        if not results and exhaustive:
            self.stopped = True
        if not exhaustive:
            results.append({})
        line = self.line(node)
        for name in sorted({name for changes in results for name in changes}):
            old = self.variables.get(name)
            options = [changes.get(name, old) for changes in results]
            if old is None and len(results) == 2 and _asks_if_unset(test, name) and options[0] is not None:
                self.set(name, likely(options[0]))
                continue
            self.set(name, merged(name, options, line))

    def if_(self, node: Node) -> None:
        test = node.child_by_field_name("condition")
        bodies: list[list[Node]] = [[]]
        exhaustive = False
        reading = False
        for child in node.children:
            if child.type == "then":
                reading = True
            elif child.type == "elif_clause":
                bodies.append([c for c in child.children if c.type not in ("elif", "then")])
            elif child.type == "else_clause":
                bodies.append([c for c in child.children if c.type != "else"])
                exhaustive = True
            elif reading:
                bodies[-1].append(child)
            elif child.is_named:
                self.statement(child)
        self.branches(node, [self.body(b) for b in bodies], exhaustive=exhaustive, test=_source(test) if test else "")

    def body(self, nodes: Sequence[Node]) -> Callable[[], None]:
        def read_body() -> None:
            for index, child in enumerate(nodes):
                if child.is_named:
                    after = nodes[index + 1].type if index + 1 < len(nodes) else ""
                    self.statement(child, background=after == "&")

        return read_body

    def case(self, node: Node) -> None:
        items = [child for child in node.named_children if child.type == "case_item"]
        bodies: list[list[Node]] = []
        exhaustive = False
        for item in items:
            values = item.children_by_field_name("value")
            exhaustive = exhaustive or any(_source(value) == "*" for value in values)
            bodies.append([child for child in item.children if child not in values])
        self.branches(node, [self.body(b) for b in bodies], exhaustive=exhaustive)

    def for_(self, node: Node) -> None:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None:
            return
        name = _source(variable)
        values = [c for c in node.children if _is_word(c) and c != variable and c.end_byte <= body.start_byte]
        fields = [field for group in _words(values) for field in self.fields(*group)]
        sure = bool(fields) and not any(field.many or field.text is None for field in fields)
        if len(fields) == 1 and sure and node.children[0].type == "for":
            place = (fields[0].start, fields[0].end)
            self.set(name, Variable(fields[0].chunks, None, place, place, place[0]))
            self.block(body)
            return
        self.loop(node, body, name, runs=sure)

    def while_(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        if body is None:
            return
        for condition in node.children_by_field_name("condition"):
            if condition.is_named:
                self.statement(condition)
        self.loop(node, body, None, runs=False)

    def c_for(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        counters = _captured("(variable_assignment name: (variable_name) @n)", node)
        if body is not None:
            name = _source(counters[0]) if counters and counters[0].end_byte < body.start_byte else None
            self.loop(node, body, name, runs=False)

    def loop(self, node: Node, body: Node, name: str | None, *, runs: bool) -> None:
        """The body once, with what an earlier round may have left; what it assigns is unknown but for its beginning."""
        line = self.line(node)
        self.journals.append({})
        appends: dict[str, bool] = {}
        given: dict[str, bool] = {}
        for assignment in _captured("(variable_assignment) @n", body):
            target = assignment.child_by_field_name("name")
            if target is not None:
                key = _source(target).split("[")[0]
                appends[key] = appends.get(key, True) and _appends(assignment)
                given[key] = given.get(key, True) and _is_given(assignment)
        for key, appending in appends.items():
            old = self.variables.get(key)
            if old is not None:
                self.set(key, _unsettled(key, old, line, appending=appending, given=given[key]))
        if name is not None:
            self.forget(name, f"${name} changes in the loop at line {line}", node)
        with self.within(conditional=self.conditional or not runs, stopped=False):
            self.block(body)
        changes = self.undone()
        for key in sorted(changes):
            options = [changes[key]] if runs else [self.variables.get(key), changes[key]]
            self.set(key, merged(key, options, line))

    def list_(self, node: Node) -> None:
        """`a && b || c`, however long: the right side of `||`, and of `&&` after a test, may not run."""
        steps: list[tuple[str, Node]] = []
        while node.type == "list" and len(node.children) >= 3:
            steps.append((node.children[1].type, node.children[-1]))
            node = node.children[0]
        self.statement(node)
        before = node
        for operator, right in reversed(steps):
            if operator == "&&" and before.type != "test_command":
                self.statement(right)
            else:
                test = _source(before) if operator == "&&" else ""
                self.branches(right, [self.body([right])], exhaustive=False, test=test)
            before = right if operator == "&&" else node

    def pipeline(self, node: Node) -> None:
        content: list[Chunk] | None = None
        for child in node.named_children:
            self.journals.append({})
            if child.type == "command":
                content = self.command(child, content)
            elif child.type == "redirected_statement":
                content = self.redirected(child, content)
            else:
                self.statement(child)
                content = None
            self.undone()

    def redirected(self, node: Node, given: list[Chunk] | None = None) -> list[Chunk] | None:
        body = node.child_by_field_name("body")
        out, rest = self.out, list[Node]()
        for redirect in node.children_by_field_name("redirect"):
            if redirect.type == "file_redirect":
                out = self.target(redirect) or out
            elif redirect.type == "heredoc_redirect":
                given = self.heredoc(redirect)
                for child in redirect.named_children:
                    if child.type == "file_redirect":
                        out = self.target(child) or out
                    elif child.type in _STATEMENTS:
                        rest.append(child)
            elif redirect.type == "herestring_redirect":
                given = [chunk for child in redirect.named_children for chunk in _flat(self.parts(child))]
        if body is None:
            return None
        if body.type == "command":
            given = self.command(body, given, out, self.lost_dash(node, body))
        else:
            if out is not None and out is not self.out and not out[1]:
                self.write(out[0], False, ())  # what the group prints is added to it
                out = (out[0], True)
            with self.within(out=out):
                self.statement(body)
        for child in rest:
            if child.type == "pipeline":
                for step in child.named_children:
                    if step.type == "command":
                        given = self.command(step, given)
                    elif step.type == "redirected_statement":
                        given = self.redirected(step, given)
            else:
                self.statement(child)
        return given

    def lost_dash(self, node: Node, body: Node) -> int:
        """Where the `-` of `python - <<EOF` stands, which the grammar loses; -1 if there is none."""
        redirect = node.child_by_field_name("redirect")
        if redirect is None or redirect.type != "heredoc_redirect":
            return -1
        gap = self.text.utf8[body.end_byte : redirect.start_byte]
        return body.end_byte + gap.index(b"-") if gap.strip() == b"-" else -1

    def target(self, redirect: Node) -> tuple[str, bool] | None:
        """The file that `>` or `>>` writes, if this says its name, and whether it appends."""
        operator = next((c.type for c in redirect.children if not c.is_named), "")
        descriptor = redirect.child_by_field_name("descriptor")
        destination = redirect.child_by_field_name("destination")
        if operator not in (">", ">>", ">|") or destination is None:
            return None
        if descriptor is not None and _source(descriptor) != "1":
            return None
        text = joined(_flat(self.parts(destination)))
        return (text, operator == ">>") if text else None

    def heredoc(self, redirect: Node) -> list[Chunk]:
        """What the heredoc hands over: as it stands if its word is quoted, else with expansions."""
        body = next((child for child in redirect.children if child.type == "heredoc_body"), None)
        start = next((child for child in redirect.children if child.type == "heredoc_start"), None)
        if body is None or start is None:
            return []
        low = self.text.utf8.rfind(b"\n", 0, body.start_byte + 1) + 1
        low = body.start_byte if low <= start.end_byte else low
        quoted = any(mark in _source(start) for mark in "'\"\\")
        if quoted:
            chunks = self.raw(low, body.end_byte)
        else:
            chunks = _flat(self.filled(low, body.end_byte, body.named_children, "heredoc"))
        return _without_tabs(chunks) if any(child.type == "<<-" for child in redirect.children) else chunks

    def error(self, node: Node) -> None:
        """Where the grammar lost the thread, whole statements are still read."""
        for child in node.named_children:
            if child.type != "command" or not child.has_error:
                self.statement(child)

    # commands ------------------------------------------------------------------------------------------------------

    def simple(self, node: Node) -> None:
        self.command(node, None)

    def command(
        self,
        node: Node,
        given: list[Chunk] | None,
        out: tuple[str, bool] | None = None,
        dash: int = -1,
    ) -> list[Chunk] | None:
        """One simple command; `given` is what it reads from its input, the result what it prints, as far as known."""
        prefix: list[tuple[str, Variable]] = []
        fields: list[Field] = []
        start, end = -1, -1
        out = out or self.out
        for group in _words(node.children):
            child = group[0]
            if child.type == "file_redirect":
                out = self.target(child) or out
                continue
            if child.type == "herestring_redirect":
                given = [chunk for c in child.named_children for chunk in _flat(self.parts(c))]
                continue
            if prefix and not fields and self.apart(end, self.begin(child)):
                for name, variable in prefix:  # the grammar takes `A=1 B=2` and the next line for one command
                    self.set(name, variable._replace(exported=variable.exported or self.allexport))
                prefix, start = [], -1
            if start < 0:
                start = self.begin(child)
            end = group[-1].end_byte
            if child.type == "variable_assignment" and not fields:
                prefix.append(self.assigned(child, self.range(start, start)[0], group[1:]))
            elif child.is_named or len(group) > 1:
                fields += self.fields(*group)
        if not fields:
            for name, variable in prefix:
                self.set(name, variable)
            return None
        if dash >= 0:
            place = self.range(dash, dash + 1)
            fields.append(Field((Chunk("-", *place),), *place))
            end = dash + 1
        environment = dict(self.environment()) if prefix else self.environment()
        for name, variable in prefix:
            environment = {**environment, name: self.argument(name, variable._replace(sometimes=False))}
        environment = self.wrapped_environment(fields, environment, self.range(start, start)[0])
        return self.act(fields, environment, self.range(start, end), given, out, prefix)

    def apart(self, start: int, end: int) -> bool:
        """Whether a line ends between two offsets."""
        return b"\n" in self.text.utf8[start:end].replace(b"\\\n", b"").replace(b"\\\r\n", b"")

    def act(
        self,
        fields: list[Field],
        environment: Mapping[str, Argument],
        place: tuple[int, int],
        given: list[Chunk] | None,
        out: tuple[str, bool] | None = None,
        prefix: Sequence[tuple[str, Variable]] = (),
    ) -> list[Chunk] | None:
        """What a command with these words does: to the state, to files, to other commands."""
        name = fields[0].text
        if name in self.functions and name is not None:
            self.call(name, fields[1:], place)
            return None
        if self.nested(fields, environment, given, prefix):
            return None
        if name is not None:
            self.builtin(name, fields[1:], place)
        self.emit(fields, environment, place)
        content = _printed(fields, given)
        if content is not None:
            base = _base(name)
            tee = fields[1:] if base == "tee" else fields[2:] if base == "sudo" else None
            if tee is not None:
                paths = [f.text for f in tee if f.text is not None and not f.text.startswith("-")]
                append = any(f.text in ("-a", "--append") for f in tee)
                for path in paths:
                    self.write(path, append, content)
            elif out is not None:
                self.write(*out, content)
        return content

    def builtin(self, name: str, arguments: Sequence[Field], place: tuple[int, int]) -> None:
        texts = [field.text for field in arguments]
        if name in ("exit", "return", "break", "continue", "exec") and (name != "exec" or texts):
            self.stopped = True
        elif name in SETTERS:
            for text in texts:
                if text and re.fullmatch(r"[A-Za-z_]\w*(=.*)?", text):
                    known = text.split("=")[0]
                    caller = name == "getopts"
                    self.set(known, _unread(f"`{name}` decides what ${known} is", place, caller=caller))
            if name == "getopts":
                self.set("OPTARG", _unread("the caller gives $OPTARG", place, caller=True))
        elif name == "printf" and texts[:1] == ["-v"] and len(texts) > 1 and texts[1]:
            self.set(texts[1], _unread(f"`printf` decides what ${texts[1]} is", place))
        elif name == "shift":
            known_count = texts[0] if texts else "1"
            if self.positional is not None and known_count is not None and known_count.isdecimal():
                self.positional = self.positional[int(known_count) :]
        elif name == "set":
            if "-a" in texts or "allexport" in texts:
                self.allexport = "+a" not in texts and "+o" not in texts
            elif "+a" in texts:
                self.allexport = False
            elif texts[:1] == ["--"]:
                self.positional = tuple(arguments[1:])

    def emit(self, fields: Sequence[Field], environment: Mapping[str, Argument], place: tuple[int, int]) -> None:
        index = next((i for i, field in enumerate(fields) if field.arguments), None)
        if index is not None and self.active and self.calls.get(self.active[-1], 0) > 1:
            template = _Template((*self.prefix, *fields), environment, self.background)
            self.templates.setdefault(self.active[-1], []).append(template)
            return
        words = tuple(self.word(field) for field in (*self.prefix, *fields))
        self.commands.append(
            Command(
                words, environment, self.span(*place), self.background, self.conditional, self.function, self.quoted
            )
        )  # fmt: skip

    def word(self, field: Field) -> Word:
        text = joined(field.chunks)
        if len(field.chunks) == 1 and text is not None and field.binding is None and not field.chunks[0].likely:
            return Word(text, self.span(field.start, field.end), plain=field.plain)
        return Word(
            text,
            self.span(field.start, field.end),
            reason(field.chunks),
            likely=text is not None and any(chunk.likely for chunk in field.chunks),
            binding=self.span(*field.binding) if field.binding is not None else None,
            plain=field.plain,
            head="" if text is not None else joined(tuple(takewhile(lambda c: c.text is not None, field.chunks))) or "",
            many=field.many,
        )

    def wrapped_environment(
        self, fields: Sequence[Field], environment: Mapping[str, Argument], container: int
    ) -> Mapping[str, Argument]:
        """What `env A=b`, `sudo A=b` and `docker run -e A=b` give the command behind them."""
        if _base(fields[0].text) not in GIVING:
            return environment
        texts = [field.text for field in fields]
        if _base(texts[0]) in ("docker", "podman") and "run" in texts[:3]:
            found = dict(environment)
            for option, field in zip(texts, fields[1:], strict=False):
                if option in ("-e", "--env") and (given := self.given(field, container)) is not None:
                    found[given.name] = given
            return found
        index = 0
        while index < len(texts) and (_base(texts[index]) in ENV_WRAPPERS or (texts[index] or "").startswith("-")):
            index += 1
        wrapper = _base(texts[index]) if index < len(texts) else ""
        if wrapper == "env":
            index += 1
        elif index == 0 or _base(texts[index - 1]) != "sudo":
            return environment
        found = dict(environment)
        while index < len(fields):
            text = texts[index]
            if text in ("-i", "-", "--ignore-environment"):
                found.clear()
            elif text in ("-u", "--unset", "-C", "--chdir"):
                index += 1
                if text in ("-u", "--unset") and index < len(fields):
                    found.pop(texts[index] or "", None)
            elif text is not None and text.startswith("--unset="):
                found.pop(text[8:], None)
            elif text is None or not text.startswith("-"):
                given = self.given(fields[index], container)
                if given is None:
                    break
                found[given.name] = given
            index += 1
        return found

    def given(self, field: Field, container: int) -> Argument | None:
        """A word `NAME=value` as an entry of the environment."""
        first = field.chunks[0].text if field.chunks else None
        match = re.match(r"([A-Za-z_]\w*)=", first or "")
        if match is None or first is None:
            return None
        rest = first[match.end() :]
        low = field.chunks[0]._replace(
            text=rest, start=field.chunks[0].start + (match.end() if field.chunks[0].same else 0)
        )
        chunks = tuple(chunk for chunk in (low, *field.chunks[1:]) if chunk.text != "")
        at = (low.start, field.end) if field.chunks[0].same else (field.start, field.end)
        variable = Variable(chunks, None, (field.start, field.end), (min(at[0], at[1]), at[1]), container)
        return self.argument(match[1], variable)

    # functions -----------------------------------------------------------------------------------------------------

    def call(self, name: str, arguments: Sequence[Field], place: tuple[int, int]) -> None:
        """The body once, at the first call; every further call only has its effects."""
        if name in self.active or self.depth > DEPTH:
            return
        if name not in self.changes:
            once = self.calls.get(name, 0) <= 1
            self.changes[name] = self.called(name, tuple(arguments) if once else None, place)
        for key, value in self.changes[name].items():
            self.set(key, value)
        for template in self.templates.get(name, []):
            fields: list[Field] = []
            for field in template.fields:
                fields += arguments if field.arguments else [field]
            if fields:
                with self.within(background=self.background or template.background, prefix=()):
                    self.active.append("")  # what it passes on is no argument of the function around it
                    self.emit(fields, template.environment, place)
                    self.active.pop()

    def called(
        self, name: str, arguments: tuple[Field, ...] | None, place: tuple[int, int]
    ) -> dict[str, Variable | None]:
        text, node = self.functions[name]
        body = node.child_by_field_name("body")
        if body is None:
            return {}
        self.journals.append({})
        self.active.append(name)
        if self.calls.get(name, 0) > 1:
            for key in [
                k for k in self.variables if self.writes.get(k, 0) > 1 and self.last_write.get(k, 0) > place[0]
            ]:
                self.set(key, _unread(f"${key} differs between the calls of {name}", place, old=self.variables[key]))
        with self.within(
            text=text, positional=arguments, function=name, locals=set[str](), stopped=False, depth=self.depth + 1
        ):
            if body.type == "compound_statement":
                self.block(body)
            else:
                self.statement(body)
            gone = self.locals
        self.active.pop()
        return {key: value for key, value in self.undone().items() if key not in gone}

    def uncalled(self) -> None:
        """Functions that this file only defines; another may call them."""
        for name in list(self.functions):
            if name not in self.changes:
                self.changes[name] = {}
                with self.within(conditional=True):
                    self.called(name, None, (len(self.root.utf8), len(self.root.utf8)))

    # shells in shells ----------------------------------------------------------------------------------------------

    def nested(
        self,
        fields: list[Field],
        environment: Mapping[str, Argument],
        given: list[Chunk] | None,
        prefix: Sequence[tuple[str, Variable]],
    ) -> bool:
        """Reads the script that a command carries in a string or a heredoc; says whether there was one."""
        found = _carried(fields, given, self.root.utf8)
        if found is None or self.depth > DEPTH:
            return False
        chunks, scope, kept, background = found
        size = sum(len(chunk.text or "") for chunk in chunks)
        if not chunks or size > self.nested_left:
            return False
        self.nested_left -= size + 100
        script: Text
        if contiguous(chunks):
            script, quoted = Piece(self.root, chunks[0].start, chunks[-1].end), self.quoted
        else:
            script, quoted = Script.made(self.root, chunks), True
        state: dict[str, object] = {}
        if scope != "same":
            seen = dict[str, Variable]()
            if scope == "child":
                seen = {n: v for n, v in self.variables.items() if v.exported}
                seen.update({n: v._replace(exported=True) for n, v in prefix})
            state = {
                "variables": seen, "exports": {n: environment[n] for n in seen if n in environment}, "journals": [], "functions": {}, "positional": None, "stopped": False,
                "_environment": None if scope == "remote" else dict(environment), "changes": {}, "out": None,
                "slurm": {} if scope == "remote" else self.slurm, "locals": set(), "templates": {},
            }  # fmt: skip
        with self.within(
            prefix=(*self.prefix, *kept),
            quoted=quoted,
            background=self.background or background,
            depth=self.depth + 10,
            **state,
        ):
            if _base(fields[0].text) == "sbatch":
                self.directives(script)
            try:
                self.script(script)
            except Unparsable:
                return False
            if scope != "same":
                self.uncalled()
        return True

    def directives(self, text: Text | None = None) -> None:
        """`#SBATCH` lines before the first command, as entries of every command's environment."""
        text = text or self.root
        found: dict[str, Argument] = dict(self.slurm)
        at = 0
        for line in text.utf8.splitlines(keepends=True):
            stripped = line.strip()
            if stripped and not stripped.startswith(b"#"):
                break
            if stripped.startswith(b"#SBATCH"):
                self.directive(text, at, line.rstrip(), found)
            at += len(line)
        self.slurm, self._environment = found, None

    def directive(self, text: Text, at: int, line: bytes, found: dict[str, Argument]) -> None:
        low = line.find(b"#SBATCH")
        line = re.split(rb"\s#", line)[0].rstrip()
        for match in re.finditer(
            rb"\s--?([A-Za-z][\w-]*)(?:[= \t]*(\"[^\"]*\"|'[^']*'|[^\s-][^\s]*|-?\d[^\s]*))?", line
        ):
            name, value = match[1].decode(), match[2]
            start, end = (match.start(2), match.end(2)) if value is not None else (match.end(), match.end())
            if not match[0].lstrip().startswith(b"--"):
                if len(name) > 1:  # -N2
                    value, start = line[match.start(1) + 1 : match.end(1)], match.start(1) + 1
                    end = match.end(1)
                name = SLURM.get(name[0], name[0])
            if value is not None and value[:1] in b"\"'":
                value, start, end = value[1:-1], start + 1, end - 1
            said = text.span(at + start, at + end)
            place = Place("env", text.span(at + low, at + len(line)), said, text.byte(at + low))
            key = f"#SBATCH {name}"
            found[key] = Argument(key, Known((value or b"").decode(errors="replace"), Written(said)), place)

    # words ---------------------------------------------------------------------------------------------------------

    def fields(self, *nodes: Node) -> list[Field]:
        """The words that one word of the source becomes."""
        if len(nodes) == 1 and nodes[0].type in ("word", "number", "command_name") and not self.replaced:
            low, high = nodes[0].start_byte, nodes[0].end_byte
            data = self.text.utf8[low:high]
            if SIMPLE.fullmatch(data) is not None:  # most words are, and most of the time goes into words
                low, high = self.range(low, high)
                return [Field((Chunk(data.decode(), low, high),), low, high)]
        start, end = self.range(self.begin(nodes[0]), nodes[-1].end_byte)
        if self.words_left < 0:
            return [Field((unknown("the variables of this file unfold without end", start, end),), start, end)]
        made = _grouped(self.joint(nodes), start, end)
        self.words_left -= len(made)
        if len(made) != 1 or made[0].many or made[0].arguments:
            if len(made) == 1 and start <= made[0].start and made[0].end <= end:
                made = [made[0]._replace(start=start, end=end)]
            return [field._replace(plain=False) if any(c.apart for c in field.chunks) else field for field in made]
        inserted = self.inserted(made[0], start, end)
        if inserted is not None:
            return [inserted]
        return [made[0]._replace(start=start, end=end, plain=True, binding=self.repeated(*nodes))]

    def inserted(self, field: Field, start: int, end: int) -> Field | None:
        """A word that was put into this script from a variable elsewhere: all that the variable holds, or a part of it."""
        if not isinstance(self.text, Script) or not field.chunks or not contiguous(field.chunks):
            return None
        first, last = field.chunks[0], field.chunks[-1]
        if first.stands is None or last.stands != first.stands or (first.start, last.end) == (start, end):
            return None
        own = all(chunk.own and not chunk.likely for chunk in field.chunks)
        text, whole = field.text or "", self.text.inserted_at(first.stands)
        if text != whole.strip():
            return field._replace(start=first.start, end=last.end, plain=own)
        return field._replace(start=start, end=end, plain=True, binding=(first.start, last.end) if own else None)

    def repeated(self, node: Node, *more: Node) -> tuple[int, int] | None:
        """The literal of the variable that a word merely repeats: `$X`, `"${X}"`."""
        if more:
            return None
        match = re.fullmatch(r'"?\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})"?', _source(node))
        if match is not None:
            variable = self.variables.get(match[1] or match[2])
            return variable.literal if variable is not None else None
        match = re.fullmatch(r'"?\$(?:(\d)|\{(\d+)\})"?', _source(node))
        number = int(match[1] or match[2]) if match is not None else 0
        if self.positional is not None and 0 < number <= len(self.positional):
            field = self.positional[number - 1]
            return field.binding or ((field.start, field.end) if field.plain and field.text is not None else None)
        return None

    def parts(self, node: Node, *, assignment: bool = False, double: bool = False) -> list[Part]:
        """What a node contributes to a word."""
        self.depth += 1
        try:
            if self.depth > DEPTH + 60:
                return [("text", unknown("it is nested too deeply", *self.at(node)))]
            return self._parts(node, assignment, double)
        finally:
            self.depth -= 1

    def _parts(self, node: Node, assignment: bool, double: bool) -> list[Part]:
        start, end = self.begin(node), node.end_byte
        match node.type:
            case "command_name":
                return self.parts(node.children[0]) if node.children else []
            case "word" | "number" | "variable_name" | "extglob_pattern" | "special_variable_name":
                return self.unquoted(_texts(self.literal(start, end, "plain")), _source(node), [node], assignment)
            case "string":
                if self.text.utf8[end - 1 : end] != b'"' or end - start < 2:
                    return [("text", unknown("the string does not end", *self.at(node)))]
                empty: list[Part] = [("text", Chunk("", *self.at(node), same=False))]
                return self.filled(start + 1, end - 1, node.named_children, "double") or empty
            case "raw_string":
                return _texts(self.raw(start + 1, end - 1) if end - start > 2 else [Chunk("", *self.at(node))])
            case "ansi_c_string":
                return _texts(self.ansi(start + 2, end - 1) or [Chunk("", *self.at(node))])
            case "translated_string":
                return [part for child in node.named_children for part in self.parts(child)]
            case "concatenation":
                inner = self.filled(start, end, node.named_children, "plain")
                return self.unquoted(inner, _shape(node.children), [node], assignment)
            case "simple_expansion":
                return self.expansion(
                    self.at(node), _source(node).strip(), _source(node).strip()[1:], "", None, [], double or assignment
                )
            case "expansion":
                return self.braced(node, double or assignment)
            case "command_substitution" | "process_substitution":
                return self.substitution(node, double or assignment)
            case "arithmetic_expansion":
                return [("text", self.arithmetic(node))]
            case "array":
                return [("text", unknown("an array stands there", *self.at(node)))]
        if node.child_count == 0 and not node.is_error and not node.is_missing:
            return self.unquoted(_texts(self.literal(start, end, "plain")), _source(node), [node], assignment)
        why = (
            "braces are expanded by the shell"
            if node.type == "brace_expression"
            else "the syntax there is not understood"
        )
        return [("text", unknown(why, *self.at(node)))]

    def filled(self, start: int, end: int, children: Sequence[Node], mode: str) -> list[Part]:
        """The text from `start` to `end` with the expansions among `children` put in."""
        parts: list[Part] = []
        position = start
        for child in children:
            if child.start_byte < position or child.end_byte > end or child.type not in _QUOTED:
                continue
            parts += self.loose(position, self.begin(child), mode)
            inner = self.parts(child, double=mode != "plain")
            if child.type.endswith("expansion") and (self.begin(child), child.end_byte) != (start, end):
                inner = _standing(inner, self.at(child))
            parts += inner
            position = child.end_byte
        return parts + self.loose(position, end, mode)

    def loose(self, start: int, end: int, mode: str) -> list[Part]:
        """Text between the nodes of a word. The grammar leaves some names there: `a/$B/$C/d` (tree-sitter-bash 0.25)."""
        data = self.text.utf8[start:end]
        parts: list[Part] = []
        position = 0
        for found in LOOSE.finditer(data) if b"$" in data else ():
            if found[1] is None:
                continue
            parts += _texts(self.literal(start + position, start + found.start(), mode))
            place = self.range(start + found.start(), start + found.end())
            source = found[0].decode()
            parts += _standing(self.expansion(place, source, source[1:], "", None, [], mode != "plain"), place)
            position = found.end()
        return parts + _texts(self.literal(start + position, end, mode))

    def joint(self, nodes: Sequence[Node], *, assignment: bool = False) -> list[Part]:
        """What one word is made of; the grammar may give it in several nodes that touch."""
        if len(nodes) == 1:
            return self.parts(nodes[0], assignment=assignment)
        children = [c for node in nodes for c in (node.children if node.type in _JOINED else [node])]
        children = [c for child in children for c in (child.children if child.type in _JOINED else [child])]
        inner = self.filled(self.begin(nodes[0]), nodes[-1].end_byte, children, "plain")
        return self.unquoted(inner, _shape(children), nodes, assignment)

    def unquoted(self, parts: list[Part], shape: str, nodes: Sequence[Node], assignment: bool) -> list[Part]:
        """Unquoted text, unless the shell would make something else of it; `shape` has Q for what is quoted."""
        start, end = self.begin(nodes[0]), nodes[-1].end_byte
        source = _short(self.text.utf8[start:end].decode(errors="replace"))
        why = None
        if shape.startswith("~") and (len(shape) == 1 or shape[1] == "/"):
            why = "~ is the home of whoever runs it"
        elif not assignment and "*" in shape and "://" not in shape and nodes[0].type != "extglob_pattern":
            why = f"`{source}` names files of the machine it runs on"
        elif not assignment and "{" in shape and "${" not in shape and BRACES.search(shape):
            why = "braces are expanded by the shell"
        elif self.interpolated and "{" in shape and "${" not in shape and re.search(r"\{[^{}]+\}", shape):
            why = f"Python fills in `{source}`"
        return parts if why is None else [("text", unknown(why, *self.range(start, end)))]

    def ansi(self, start: int, end: int) -> list[Chunk]:
        data, chunks, position = self.text.utf8[start:end], list[Chunk](), 0
        for found in ANSI.finditer(data):
            if found.start() > position:
                chunks += self.raw(start + position, start + found.start())
            code = found[1].decode()
            if code[0] in "xu" and len(code) > 1:
                text = chr(int(code[1:], 16))
            elif code[0] in "01234567":
                text = chr(int(code, 8))
            else:
                text = ANSI_LETTERS.get(code, code)
            text = text.encode(errors="replace").decode()
            chunks.append(Chunk(text, *self.range(start + found.start(), start + found.end()), same=False))
            position = found.end()
        return chunks + (self.raw(start + position, end) if position < len(data) else [])

    def braced(self, node: Node, double: bool) -> list[Part]:
        begin = self.begin(node)
        data = self.text.utf8[begin : node.end_byte]
        counted = LENGTH.fullmatch(data)
        if counted is not None:
            variable = self.variables.get(counted[1].decode())
            if variable is not None and variable.items is not None and not any(f.many for f in variable.items):
                return [("text", Chunk(str(len(variable.items)), *self.at(node), same=False))]
        match = EXPANSION.fullmatch(data)
        if match is None:
            why = f"`{_short(_source(node))}` is worked out by the shell"
            return [("text", unknown(why, *self.at(node), caller=re.match(rb"\$\{(?:\d|OPTARG)", data) is not None))]
        operator = (match[3] or b"").decode()
        index = match[2].decode(errors="replace") if match[2] is not None else None
        default: list[Part] = []
        if operator:
            low = begin + match.start(4)
            children = [child for child in node.named_children if child.start_byte >= low]
            mode = "double" if double else "plain"
            default = self.filled(low, node.end_byte - 1, children, mode)
        return self.expansion(self.at(node), _source(node).strip(), match[1].decode(), operator, index, default, double)

    def expansion(
        self,
        place: tuple[int, int],
        source: str,
        name: str,
        operator: str,
        index: str | None,
        default: list[Part],
        double: bool,
    ) -> list[Part]:
        """What `source`, that is `$name`, `${name[index]}` or `${name:-default}` stands for here."""
        kind = "text" if double else "split"
        if name in ("@", "*"):
            return self.arguments(place, name, double)
        if name.isdecimal() and name != "0":
            if self.positional is not None and int(name) <= len(self.positional):
                return [(kind, chunk) for chunk in self.positional[int(name) - 1].chunks]
            if operator.endswith(("-", "=")):
                return _defaults(default, kind, f"${name}", place)
            return [(kind, unknown(f"${name} is given by the caller", *place, caller=True))]
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return [("text", unknown(f"${name} is known only while it runs", *place))]
        variable = self.variables.get(name)
        if variable is None:
            if operator.endswith(("-", "=")):
                parts = _defaults(default, kind, f"${name}", place)
                if operator.endswith("="):
                    chunks = tuple(c for c in _flat(parts) if c.text != "")
                    self.set(name, Variable(chunks, None, place, place, place[0], exported=self.allexport))
                return parts
            why = f"${name} is not set in this file" if operator != "+" else f"${name} decides"
            return [(kind, unknown(why, *place, caller=True))]
        if variable.items is not None:
            return self.items(place, source, name, variable.items, index, operator, double)
        text = joined(variable.chunks)
        if operator.endswith("+"):
            if text:
                return [(kind, part) for part in _flat(default)]
            return [] if text == "" else [(kind, unknown(f"${name} decides", *place))]
        if text == "" and operator.startswith(":") and operator.endswith(("-", "=")):
            return [(kind, part) for part in _flat(default)]
        if index not in (None, "0", "@", "*"):
            return [(kind, unknown(f"${name} is no array", *place))]
        if not variable.chunks and double:
            return [("text", Chunk("", *place, same=False))]
        if kind == "split" and "IFS" in self.variables and text is not None and not text.isalnum():
            return [(kind, unknown("IFS decides how it is split", *place))]
        return [(kind, chunk) for chunk in variable.chunks]

    def items(
        self,
        place: tuple[int, int],
        source: str,
        name: str,
        items: tuple[Field, ...],
        index: str | None,
        operator: str,
        double: bool,
    ) -> list[Part]:
        if operator.endswith("+") and index in ("@", "*"):  # ${A[@]+"${A[@]}"}: the idiom of `set -u`
            operator = ""
        if operator:
            return [("text", unknown(f"`{_short(source)}` is worked out by the shell", *place))]
        if index == "@" or (index == "*" and not double):
            return [("item", item) for item in items]
        if index == "*":
            joint: list[Part] = []
            for number, item in enumerate(items):
                joint += [("text", Chunk(" ", *place, same=False))] if number else []
                joint += _texts(item.chunks)
            return joint or [("text", Chunk("", *place, same=False))]
        number = (
            int(index) if index is not None and index.isdecimal() and len(index) < 6 else 0 if index is None else -1
        )
        if 0 <= number < len(items) and not any(item.many for item in items[: number + 1]):
            return [("text" if double else "split", chunk) for chunk in items[number].chunks]
        return [("text", unknown(f"`{_short(source)}` is not known here", *place))]

    def arguments(self, place: tuple[int, int], name: str, double: bool) -> list[Part]:
        if self.positional is not None:
            if name == "@" or not double:
                return [("item", field) for field in self.positional]
            if all(field.text is not None for field in self.positional):
                return [("text", Chunk(" ".join(f.text or "" for f in self.positional), *place, same=False))]
        chunk = unknown(f"${name} is given by the caller", *place, caller=True)
        return [("item", Field((chunk,), *place, plain=False, many=True, arguments=name == "@" or not double))]

    def substitution(self, node: Node, double: bool) -> list[Part]:
        """`$(…)`: its commands run, what they print is not known."""
        self.journals.append({})
        with self.within(stopped=False, out=None, conditional=self.conditional):
            self.block(node)
        self.undone()
        inner = _source(node).strip().lstrip("$<>(`").rstrip(")`").strip()
        return [("text" if double else "split", unknown(f"`{_short(inner)}` decides", *self.at(node)))]

    def arithmetic(self, node: Node) -> Chunk:
        place = self.at(node)
        inner = [child for child in node.named_children if child.type != "comment"]
        try:
            if len(inner) != 1 or node.has_error:
                raise _Open("the arithmetic there is not understood")
            value, sure = self.number(inner[0], 0)
        except _Open as unclear:
            return unknown(str(unclear), *place)
        return Chunk(str(value), *place, likely=not sure, same=False, own=False)

    def number(self, node: Node, depth: int) -> tuple[int, bool]:
        """The integer that an arithmetic expression is, and whether no default went into it."""
        if depth > 40:
            raise _Open("it is nested too deeply")
        match node.type:
            case "number" | "word" | "variable_name" | "simple_expansion" | "expansion" | "string":
                return self.integer(node)
            case "parenthesized_expression" if node.named_child_count == 1:
                return self.number(node.named_children[0], depth + 1)
            case "unary_expression" if node.named_child_count == 1:
                value, sure = self.number(node.named_children[0], depth + 1)
                if node.children[0].type in ("-", "+"):
                    return (-value if node.children[0].type == "-" else value), sure
            case "binary_expression" if len(node.children) == 3:
                left, sure_left = self.number(node.children[0], depth + 1)
                right, sure_right = self.number(node.children[2], depth + 1)
                return _calculated(left, node.children[1].type, right), sure_left and sure_right
        raise _Open(f"`{_short(_source(node))}` is worked out by the shell")

    def integer(self, node: Node) -> tuple[int, bool]:
        source = _source(node)
        if re.fullmatch(r"0|[1-9]\d{0,17}", source):
            return int(source), True
        if re.fullmatch(r"[A-Za-z_]\w*", source):
            chunks = _flat(self.expansion(self.at(node), source, source, "", None, [], True))
        else:
            chunks = _flat(self.parts(node, double=True))
        text = joined(chunks)
        if text is None:
            raise _Open(reason(chunks) or f"`{_short(source)}` is not known")
        if not re.fullmatch(r"-?(0|[1-9]\d{0,17})", text):
            raise _Open(f"`{_short(source)}` is no plain integer")
        return int(text), not any(chunk.likely for chunk in chunks)

    # files ---------------------------------------------------------------------------------------------------------

    def write(self, path: str, append: bool, content: Sequence[Chunk]) -> None:
        """Remembers what goes to a file; what is written differently on two branches is nobody's guess."""
        open_ended = self.conditional or self.function is not None
        if append:
            before = self.written.get(path)
            self.written[path] = None if before is None else [*before, *content][:5000]
        else:
            self.written[path] = None if path in self.written and open_ended else list(content)

    def files(self) -> dict[str, Module]:
        """The sources that the script writes, each read by the reader of its kind."""
        found: dict[str, Module] = {}
        for path, chunks in self.written.items():
            reader = _reader(path)
            if reader is None or not chunks:
                continue
            piece: Text
            if contiguous(chunks) and not any(chunk.likely for chunk in chunks):
                piece = Piece(self.root, chunks[0].start, chunks[-1].end)
            else:
                piece = as_written(self.root, chunks)
            try:
                found[path] = reader(piece)
            except (Unparsable, Undecodable, RecursionError):
                continue
        return found


class _Open(ValueError):
    """An arithmetic expression that cannot be computed; says why."""


_QUOTED = {
    "string", "raw_string", "ansi_c_string", "translated_string", "simple_expansion", "expansion",
    "command_substitution", "process_substitution", "arithmetic_expansion", "concatenation", "brace_expression",
}  # fmt: skip

_JOINED = {"concatenation", "command_name"}

_WORDS = {"command_name", "word", "number", "variable_assignment", "variable_name", "$", "regex", "extglob_pattern"}

_BLANKS_BEFORE = {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"}

_STATEMENTS: dict[str, Callable[[Shell, Node], object]] = {
    "program": Shell.block,
    "command": Shell.simple,
    "redirected_statement": Shell.redirected,
    "pipeline": Shell.pipeline,
    "list": Shell.list_,
    "negated_command": Shell.block,
    "compound_statement": Shell.compound,
    "do_group": Shell.block,
    "subshell": Shell.subshell,
    "variable_assignment": Shell.assign,
    "variable_assignments": Shell.assignments,
    "declaration_command": Shell.declaration,
    "unset_command": Shell.unset,
    "function_definition": Shell.define,
    "if_statement": Shell.if_,
    "case_statement": Shell.case,
    "for_statement": Shell.for_,
    "while_statement": Shell.while_,
    "c_style_for_statement": Shell.c_for,
    "ERROR": Shell.error,
}


def _source(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _short(text: str) -> str:
    text = " ".join(text.split()).replace("`", "'")
    return text if len(text) <= 50 else text[:47] + "…"


def _base(text: str | None) -> str:
    return (text or "").rsplit("/", 1)[-1]


def _texts(chunks: Sequence[Chunk]) -> list[Part]:
    return [("text", chunk) for chunk in chunks]


def _standing(parts: Sequence[Part], place: tuple[int, int]) -> list[Part]:
    """What an expansion puts into a longer text, with the place of the expansion."""
    return [
        (kind, content._replace(stands=place) if isinstance(content, Chunk) and kind == "text" else content)
        for kind, content in parts
    ]


def _shape(nodes: Sequence[Node]) -> str:
    """The unquoted text of a word."""
    return "".join("Q" if node.type in _QUOTED else _source(node) for node in nodes)


def _words(nodes: Sequence[Node]) -> list[list[Node]]:
    """The nodes of a command, those that touch together."""
    groups: list[list[Node]] = []
    for node in nodes:
        if groups and groups[-1][-1].end_byte == node.start_byte and _is_word(groups[-1][-1]) and _is_word(node):
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def _is_word(node: Node) -> bool:
    return node.type in _WORDS or node.type in _QUOTED


def _flat(parts: Sequence[Part]) -> list[Chunk]:
    """The chunks of parts that are not split; items of an array are joined by blanks."""
    chunks: list[Chunk] = []
    for index, (_kind, content) in enumerate(parts):
        if isinstance(content, Field):
            if index and isinstance(parts[index - 1][1], Field):
                chunks.append(Chunk(" ", content.start, content.start, same=False))
            chunks += content.chunks
        elif content is not None:
            chunks.append(content)
    return chunks


def _grouped(parts: Sequence[Part], start: int, end: int) -> list[Field]:
    """Parts put together to words: where an unquoted expansion holds a blank, or an array its next item, a word ends."""
    groups: list[list[Chunk]] = []
    items: dict[int, Field] = {}
    several: set[int] = set()
    current: list[Chunk] | None = None
    split = after_item = False
    for kind, content in parts:
        if isinstance(content, Field):
            if after_item:
                current, split = None, True
            if current is None:
                current = list(content.chunks)
                items[len(groups)] = content
                groups.append(current)
            else:
                current += content.chunks
                items.pop(len(groups) - 1, None)
            after_item = True
            continue
        after_item = False
        for word in [content] if kind == "text" else words_of(content) if content is not None else []:
            if word is None:
                current, split = None, True
                continue
            if current is None:
                current = []
                groups.append(current)
            current.append(word)
            items.pop(len(groups) - 1, None)
            if word.text is None and kind == "split":
                several.add(len(groups) - 1)
    made: list[Field] = []
    for index, chunks in enumerate(groups):
        if index in items:
            made.append(items[index])
            continue
        kept = tuple(chunk for chunk in chunks if chunk.text != "") or tuple(chunks[:1])
        many = index in several
        if split and contiguous(kept):
            plain = all(chunk.own and not chunk.likely for chunk in kept)
            made.append(Field(kept, kept[0].start, kept[-1].end, plain=plain))
        else:
            made.append(Field(kept, start, end, plain=not split, many=many))
    return made


def _defaults(default: Sequence[Part], kind: str, name: str, place: tuple[int, int]) -> list[Part]:
    """`${X:-d}` of an X that this file does not set: d, unless the environment has it. An empty one says nothing."""
    chunks = _flat(default)
    if not any(chunk.text != "" for chunk in chunks):
        if kind == "split":
            return [(kind, unknown(f"{name} is not set in this file", *place, caller=True))]
        return [(kind, Chunk("", *place, likely=True, same=False))]
    return [(kind, chunk._replace(likely=chunk.text is not None)) for chunk in chunks]


def _appends(assignment: Node) -> bool:
    """`X+=…`, or `X="$X …"`: what X held stays."""
    name = assignment.child_by_field_name("name")
    if any(child.type == "+=" for child in assignment.children):
        return True
    value = assignment.child_by_field_name("value")
    if name is None or value is None:
        return False
    own = re.escape(_source(name))
    pattern = r'"?\$(' + own + r"\b|\{" + own + r'\})|\(\s*"?\$\{' + own + r"\[@\]\}"
    return re.match(pattern, _source(value)) is not None


def _is_given(assignment: Node) -> bool:
    """An option that the script's caller gives: `MODEL="$2"`, `MODEL="${1#*=}"`."""
    value = assignment.child_by_field_name("value")
    return value is not None and re.match(r'"?\$(?:\d|OPTARG\b|\{(?:\d|OPTARG\b))', _source(value)) is not None


def _is_plain(value: Node) -> bool:
    if value.type in ("word", "number", "raw_string"):
        return True
    return value.type == "string" and all(child.type in ('"', "string_content") for child in value.children)


def _asks_if_unset(test: str, name: str) -> bool:
    return re.search(r'-z\s+"?\$(' + re.escape(name) + r"\b|\{" + re.escape(name) + r"\b)", test) is not None


def _unread(why: str, place: tuple[int, int], *, caller: bool = False, old: Variable | None = None) -> Variable:
    chunk = unknown(why, *place, caller=caller)
    if old is not None:
        return old._replace(chunks=(chunk,), items=None, literal=None, repeats=None)
    return Variable((chunk,), None, place, place, place[0])


def _unsettled(name: str, old: Variable, line: int, *, appending: bool, given: bool) -> Variable:
    """A variable at the beginning of any round of a loop that assigns it."""
    why = f"${name} changes in the loop at line {line}"
    rest = unknown(why, *old.at, apart=appending, caller=given)
    if not appending:
        return old._replace(chunks=(rest,), items=None, literal=None, repeats=None)
    if old.items is not None:
        return old._replace(items=(*old.items, Field((rest,), *old.at, plain=False, many=True)), literal=None)
    return old._replace(chunks=(*old.chunks, rest), literal=None, repeats=None)


def _without_tabs(chunks: Sequence[Chunk]) -> list[Chunk]:
    """`<<-`: leading tabs of every line are dropped."""
    kept: list[Chunk] = []
    fresh = True
    for chunk in chunks:
        if chunk.text is None:
            kept.append(chunk)
            fresh = False
            continue
        at = chunk.start
        for line in re.split(r"(?<=\n)", chunk.text):
            size = len(line.encode(errors="replace"))
            text = line.lstrip("\t") if fresh else line
            cut = len(line) - len(text)
            if text:
                place = (at + cut, at + size) if chunk.same else (chunk.start, chunk.end)
                kept.append(chunk._replace(text=text, start=place[0], end=place[1]))
            at += size
            fresh = line.endswith("\n") or (fresh and not text)
    return kept


def _calculated(left: int, operator: str, right: int) -> int:
    if operator in ("/", "%"):
        if right == 0:
            raise _Open("it divides by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    results = {"+": left + right, "-": left - right, "*": left * right}
    if operator not in results or abs(results[operator]) >= 1 << 63:
        raise _Open(f"`{operator}` is worked out by the shell")
    return results[operator]


def _printed(fields: Sequence[Field], given: list[Chunk] | None) -> list[Chunk] | None:
    """What `cat`, `tee`, `echo` and `printf` print."""
    names = [_base(field.text) for field in fields[:2]]
    if names[0] == "cat" and len(fields) == 1:
        return given
    if names[0] == "tee" or names[:2] == ["sudo", "tee"]:
        return given
    if names[0] not in ("echo", "printf"):
        return None
    rest = list(fields[1:])
    escapes, newline = names[0] == "printf", names[0] == "echo"
    while names[0] == "echo" and rest and re.fullmatch(r"-[neE]+", rest[0].text or ""):
        escapes = escapes or "e" in (rest[0].text or "")
        newline = newline and "n" not in (rest[0].text or "")
        rest.pop(0)
    if names[0] == "printf" and (len(rest) != 1 or "%" in (rest[0].text or "%")):
        return None
    chunks: list[Chunk] = []
    for field in rest:
        if chunks:
            chunks.append(Chunk(" ", field.start, field.start, same=False))
        chunks += field.chunks
    end = fields[-1].end
    if escapes:
        chunks = [piece for chunk in chunks for piece in _unescaped(chunk)]
    return [*chunks, Chunk("\n", end, end, same=False)] if newline else chunks


def _unescaped(chunk: Chunk) -> list[Chunk]:
    if chunk.text is None or "\\" not in chunk.text:
        return [chunk]
    pieces: list[Chunk] = []
    at = chunk.start
    for run in re.split(r"(\\[nt\\])", chunk.text):
        size = len(run.encode(errors="replace")) if chunk.same else 0
        place = (at, at + size) if chunk.same else (chunk.start, chunk.end)
        code = re.fullmatch(r"\\([nt\\])", run)
        text = {"n": "\n", "t": "\t", "\\": "\\"}[code[1]] if code is not None else run
        if text:
            pieces.append(chunk._replace(text=text, start=place[0], end=place[1], same=chunk.same and code is None))
        at += size
    return pieces


def _carried(
    fields: Sequence[Field], given: list[Chunk] | None, data: bytes
) -> tuple[list[Chunk], str, Sequence[Field], bool] | None:
    """The script in a command: its text, the scope it runs in, the wrapper's words to keep, and whether it is left alone."""
    texts = [field.text for field in fields]
    first = _base(texts[0])
    if first in QUIET:
        return None
    if first == "eval":
        return _glued(fields[1:], data), "same", (), False
    away = first in ("docker", "podman", "kubectl", "ssh") or any(_base(text) == "ssh" for text in texts[:3])
    for index, text in enumerate(texts):
        if text is not None and text.endswith("sh") and _base(text) in SHELLS:
            script = _shell_script(fields, index, given)
            if script is None:
                continue
            wrapper = next((i for i in range(index) if _base(texts[i]) in REMOTE), index)
            kept = fields[wrapper:index]
            return list(script), "remote" if away else "child", kept, first in ("screen", "tmux")
    for index, text in enumerate(texts[:4]):
        name = _base(text)
        if name == "ssh":
            return _ssh(fields, index, given, data)
        if name == "tmux":
            return _tmux(fields, index, data)
        if name == "sbatch":
            return _sbatch(fields, index, given)
    return None


def _shell_script(fields: Sequence[Field], index: int, given: list[Chunk] | None) -> Sequence[Chunk] | None:
    """The string of `bash -c`, or the heredoc of a `bash` that is given no file."""
    at = index + 1
    while at < len(fields):
        option = fields[at].text or ""
        if re.fullmatch(r"-[a-z]*c", option):
            return fields[at + 1].chunks if at + 1 < len(fields) else None
        if option in ("-s", "-"):
            return given
        if not option.startswith(("-", "+")):
            return None
        at += 2 if option in ("-o", "+o", "-O", "--rcfile", "--init-file") else 1
    return given


def _ssh(
    fields: Sequence[Field], index: int, given: list[Chunk] | None, data: bytes
) -> tuple[list[Chunk], str, Sequence[Field], bool] | None:
    at = index + 1
    while at < len(fields) and (fields[at].text or "").startswith("-"):
        option = fields[at].text or ""
        at += 2 if len(option) == 2 and option[1] in SSH_VALUES else 1
    rest = fields[at + 1 :]
    script = _glued(rest, data) if rest else given
    return (script, "remote", fields[index : at + 1], False) if script else None


def _tmux(fields: Sequence[Field], index: int, data: bytes) -> tuple[list[Chunk], str, Sequence[Field], bool] | None:
    texts = [field.text for field in fields]
    at = index + 1
    while at < len(fields) and (texts[at] or "").startswith("-"):
        at += 2 if texts[at] in TMUX_VALUES else 1
    if at >= len(fields):
        return None
    action = texts[at] or ""
    at += 1
    while at < len(fields) and (texts[at] or "").startswith("-"):
        at += 2 if texts[at] in TMUX_VALUES or (texts[at] or "-")[-1] in "stnc" or texts[at] == "-e" else 1
    rest = fields[at:]
    if action in ("send-keys", "send"):
        rest = [field for field in rest if field.text not in ("C-m", "Enter", "ENTER", "KPEnter")]
        return (_glued(rest, data), "child", (), True) if rest and rest[0].text not in ("C-c", "C-d") else None
    if action in TMUX_RUNS and rest:
        return _glued(rest, data), "child", (), True
    return None


def _sbatch(
    fields: Sequence[Field], index: int, given: list[Chunk] | None
) -> tuple[list[Chunk], str, Sequence[Field], bool] | None:
    for at, field in enumerate(fields[index + 1 :], index + 1):
        head = field.chunks[0].text if field.chunks else None
        if head == "--wrap" and len(field.chunks) == 1 and at + 1 < len(fields):
            return list(fields[at + 1].chunks), "child", (), False
        if head is not None and head.startswith("--wrap="):
            chunk = field.chunks[0]
            cut = chunk._replace(text=head[7:], start=chunk.start + (7 if chunk.same else 0))
            return [c for c in (cut, *field.chunks[1:]) if c.text != ""], "child", (), False
    if given and all((field.text or "").startswith("-") for field in fields[index + 1 :]):
        return given, "child", (), False
    return None


def _glued(fields: Sequence[Field], data: bytes) -> list[Chunk]:
    """Several words joined by blanks, as `eval` and `ssh` do."""
    chunks: list[Chunk] = []
    for field in fields:
        if chunks:
            gap = (chunks[-1].end, field.chunks[0].start) if field.chunks else (0, 0)
            same = gap[1] == gap[0] + 1 and data[gap[0] : gap[1]] == b" "
            chunks.append(Chunk(" ", *(gap if same else (field.start, field.start)), same=same))
        chunks += field.chunks
    return chunks


def _reader(path: str) -> Callable[[Text], Module] | None:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix == ".py":
        from trl_lint.sources.python import read as read_python

        return read_python
    if suffix in (".yaml", ".yml", ".json"):
        from trl_lint.sources.recipe import read as read_recipe

        return read_recipe
    if suffix in (".sh", ".slurm", ".sbatch", ".bash"):
        return read_script
    return None


def read_script(text: Text) -> Module:
    """A text that is a shell script whatever its file is called."""
    shell = Shell(text)
    shell.directives()
    shell.run()
    return shell.module()
