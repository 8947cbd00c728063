"""A shell script, batch file, Makefile or Dockerfile in; out its commands, in the order they run, and the files it writes.

The script is walked once, top to bottom, with what its variables hold; nothing is run and no variable of this machine is
looked at. What the file does not say (`$1`, `$HOME`, `$(nvidia-smi)`) makes a word unknown, and says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import PurePosixPath
from typing import NamedTuple

from tree_sitter import Node

from trl_lint.model import Argument, Command, Word
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.pieces import Piece
from trl_lint.sources.shell_assignments import Assignments
from trl_lint.sources.shell_directives import directives
from trl_lint.sources.shell_flow import Flow
from trl_lint.sources.shell_output import Files, printed
from trl_lint.sources.shell_parts import flat
from trl_lint.sources.shell_state import SETTERS, State, unread
from trl_lint.sources.shell_syntax import captured, source_of, word_groups
from trl_lint.sources.shell_values import Chunk, Field, Script, Variable, contiguous, joined, reason
from trl_lint.sources.shell_words import Words
from trl_lint.sources.shell_wrappers import base_name, carried, wrapped_environment
from trl_lint.sources.text import Text

DEPTH = 120
"""Deeper nesting than this is left out: no person writes it, and Python's own stack ends."""


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


def read_script(text: Text) -> Module:
    """A text that is a shell script whatever its file is called."""
    shell = Shell(text)
    shell.directives()
    shell.run()
    return shell.module()


class _Template(NamedTuple):
    """A command of a function that passes the function's arguments on: `run() { nohup "$@" & }`."""

    fields: tuple[Field, ...]
    environment: Mapping[str, Argument]
    background: bool


class Shell(State):
    """The interpreter: runs statements over the state, and keeps what was found so far."""

    def __init__(self, root: Text) -> None:
        super().__init__(root)
        self.commands: list[Command] = []
        self.files = Files(root)
        self.nested_left = 4 * len(root.utf8) + 100_000
        # what is around the command
        self.background = False
        self.prefix: tuple[Field, ...] = ()
        self.out: tuple[str, bool] | None = None
        # functions
        self.functions: dict[str, tuple[Text, Node]] = {}
        self.active: list[str] = []
        self.changes: dict[str, dict[str, Variable | None]] = {}
        self.templates: dict[str, list[_Template]] = {}
        # who does what
        self.words = Words(self, self.substitution)
        self.assigning = assigning = Assignments(self, self.words)
        flow = Flow(self, self.words, self.sequence)
        self.handlers: dict[str, Callable[[Node], object]] = {
            "program": self.block,
            "command": self.command,
            "redirected_statement": self.redirected,
            "pipeline": self.pipeline,
            "list": flow.list_,
            "negated_command": self.block,
            "compound_statement": self.compound,
            "do_group": self.block,
            "subshell": self.subshell,
            "variable_assignment": assigning.assign,
            "variable_assignments": assigning.assignments,
            "declaration_command": assigning.declaration,
            "unset_command": assigning.unset,
            "function_definition": self.define,
            "if_statement": flow.if_,
            "case_statement": flow.case,
            "for_statement": flow.for_,
            "while_statement": flow.while_,
            "c_style_for_statement": flow.c_for,
            "ERROR": self.error,
        }

    def run(self) -> None:
        """Reads the whole text."""
        self.script(self.root)
        self.uncalled()

    def script(self, text: Text) -> None:
        """Reads a text in the state at hand: the file itself, or a part that another reader cut out of it."""
        with self.reading(text) as node:
            self.sequence(node.children)

    def assigned_in(self, text: Text, container: int) -> list[tuple[str, Variable]]:
        """The assignments that a text consists of, not made yet."""
        with self.reading(text) as node:
            found = [self.assigning.assigned(child, container) for child in captured("(variable_assignment) @n", node)]
        return [(name, variable) for name, variable in found if name]

    def module(self) -> Module:
        return Module(self.root.path, (), commands=tuple(self.commands), written=self.files.modules())

    def directives(self, text: Text | None = None) -> None:
        """Takes up the `#SBATCH` lines of a batch script."""
        self.slurm, self._environment = {**self.slurm, **directives(text or self.root)}, None

    def block(self, node: Node) -> None:
        self.sequence(node.children)

    def sequence(self, nodes: Sequence[Node]) -> None:
        """Statements one after the other; `&` behind one sends it to the background."""
        for index, child in enumerate(nodes):
            if child.is_named:
                after = nodes[index + 1].type if index + 1 < len(nodes) else ""
                self.statement(child, background=after == "&")

    def statement(self, node: Node, *, background: bool = False) -> None:
        handler = self.handlers.get(node.type)
        if handler is None or self.depth > DEPTH:
            return
        self.depth += 1
        try:
            if background and not self.background:
                with self.within(background=True):
                    handler(node)
            else:
                handler(node)
        finally:
            self.depth -= 1

    def compound(self, node: Node) -> None:
        if node.children and node.children[0].type == "((":
            for changed in captured(
                "(postfix_expression (variable_name) @n) (binary_expression (variable_name) @n)", node
            ):
                if source_of(changed) in self.variables:
                    self.forget(source_of(changed), f"${source_of(changed)} is counted at line {self.line(node)}", node)
            return
        self.sequence(node.children)

    def subshell(self, node: Node) -> None:
        self.journals.append({})
        with self.within(stopped=False):
            self.sequence(node.children)
        self.undone()

    def substitution(self, node: Node) -> None:
        """The commands of `$(…)`: what they print goes to no file."""
        self.journals.append({})
        with self.within(stopped=False, out=None):
            self.sequence(node.children)
        self.undone()

    def define(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        if name is not None:
            self.functions[source_of(name)] = (self.text, node)

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
                given = self.words.heredoc(redirect)
                for child in redirect.named_children:
                    if child.type == "file_redirect":
                        out = self.target(child) or out
                    elif child.type in self.handlers:
                        rest.append(child)
            elif redirect.type == "herestring_redirect":
                given = [chunk for child in redirect.named_children for chunk in flat(self.words.parts(child))]
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
        if descriptor is not None and source_of(descriptor) != "1":
            return None
        text = joined(flat(self.words.parts(destination)))
        return (text, operator == ">>") if text else None

    def error(self, node: Node) -> None:
        """Where the grammar lost the thread, whole statements are still read."""
        for child in node.named_children:
            if child.type != "command" or not child.has_error:
                self.statement(child)

    def command(
        self,
        node: Node,
        given: list[Chunk] | None = None,
        out: tuple[str, bool] | None = None,
        dash: int = -1,
    ) -> list[Chunk] | None:
        """One simple command; `given` is what it reads from its input, the result what it prints, as far as known."""
        prefix: list[tuple[str, Variable]] = []
        fields: list[Field] = []
        start, end = -1, -1
        out = out or self.out
        for group in word_groups(node.children):
            child = group[0]
            if child.type == "file_redirect":
                out = self.target(child) or out
                continue
            if child.type == "herestring_redirect":
                given = [chunk for c in child.named_children for chunk in flat(self.words.parts(c))]
                continue
            if prefix and not fields and self.apart(end, self.begin(child)):
                for name, variable in prefix:  # the grammar takes `A=1 B=2` and the next line for one command
                    self.set(name, variable._replace(exported=variable.exported or self.allexport))
                prefix, start = [], -1
            if start < 0:
                start = self.begin(child)
            end = group[-1].end_byte
            if child.type == "variable_assignment" and not fields:
                prefix.append(self.assigning.assigned(child, self.range(start, start)[0], group[1:]))
            elif child.is_named or len(group) > 1:
                fields += self.words.fields(*group)
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
        environment = wrapped_environment(fields, environment, self.range(start, start)[0], self.argument)
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
        content = printed(fields, given)
        if content is not None:
            base = base_name(name)
            tee = fields[1:] if base == "tee" else fields[2:] if base == "sudo" else None
            if tee is not None:
                paths = [f.text for f in tee if f.text is not None and not f.text.startswith("-")]
                append = any(f.text in ("-a", "--append") for f in tee)
                for path in paths:
                    self.write(path, append, content)
            elif out is not None:
                self.write(*out, content)
        return content

    def write(self, path: str, append: bool, content: Sequence[Chunk]) -> None:
        self.files.write(path, append, content, sure=not self.conditional and self.function is None)

    def builtin(self, name: str, arguments: Sequence[Field], place: tuple[int, int]) -> None:
        texts = [field.text for field in arguments]
        if name in ("exit", "return", "break", "continue", "exec") and (name != "exec" or texts):
            self.stopped = True
        elif name in SETTERS:
            for text in texts:
                if text and re.fullmatch(r"[A-Za-z_]\w*(=.*)?", text):
                    known = text.split("=")[0]
                    caller = name == "getopts"
                    self.set(known, unread(f"`{name}` decides what ${known} is", place, caller=caller))
            if name == "getopts":
                self.set("OPTARG", unread("the caller gives $OPTARG", place, caller=True))
        elif name == "printf" and texts[:1] == ["-v"] and len(texts) > 1 and texts[1]:
            self.set(texts[1], unread(f"`printf` decides what ${texts[1]} is", place))
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
        if index is not None and self.active and self.counts.calls.get(self.active[-1], 0) > 1:
            template = _Template((*self.prefix, *fields), environment, self.background)
            self.templates.setdefault(self.active[-1], []).append(template)
            return
        words = tuple(self.word(field) for field in (*self.prefix, *fields))
        span = self.span(*place)
        self.commands.append(
            Command(words, environment, span, self.background, self.conditional, self.function, self.quoted)
        )

    def word(self, field: Field) -> Word:
        text, span = field.text, self.span(field.start, field.end)
        if len(field.chunks) == 1 and text is not None and field.binding is None and not field.chunks[0].likely:
            return Word(text, span, plain=field.plain)
        return Word(
            text,
            span,
            reason(field.chunks),
            likely=text is not None and any(chunk.likely for chunk in field.chunks),
            binding=self.span(*field.binding) if field.binding is not None else None,
            plain=field.plain,
            head="" if text is not None else joined(tuple(takewhile(lambda c: c.text is not None, field.chunks))) or "",
            many=field.many,
        )

    def call(self, name: str, arguments: Sequence[Field], place: tuple[int, int]) -> None:
        """The body once, at the first call; every further call only has its effects."""
        if name in self.active or self.depth > DEPTH:
            return
        if name not in self.changes:
            once = self.counts.calls.get(name, 0) <= 1
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
        if self.counts.calls.get(name, 0) > 1:
            counts = self.counts
            changing = [k for k in self.variables if counts.writes.get(k, 0) > 1]
            for key in [k for k in changing if counts.last_write.get(k, 0) > place[0]]:
                self.set(key, unread(f"${key} differs between the calls of {name}", place, old=self.variables[key]))
        with self.within(
            text=text, positional=arguments, function=name, locals=set[str](), stopped=False, depth=self.depth + 1
        ):
            if body.type == "compound_statement":
                self.sequence(body.children)
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

    def nested(
        self,
        fields: list[Field],
        environment: Mapping[str, Argument],
        given: list[Chunk] | None,
        prefix: Sequence[tuple[str, Variable]],
    ) -> bool:
        """Reads the script that a command carries in a string or a heredoc; says whether there was one."""
        found = carried(fields, given, self.root.utf8)
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
            if base_name(fields[0].text) == "sbatch":
                self.directives(script)
            try:
                self.script(script)
            except Unparsable:
                return False
            if scope != "same":
                self.uncalled()
        return True
