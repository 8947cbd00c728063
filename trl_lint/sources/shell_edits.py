"""A script's text and the merged intents of its commands in; the new text out, with only the bytes that must change changed.

Every edit is told twice: as bytes, and as the words and variables that the commands must have afterwards. The result is
read again, and what does not read as told is refused.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trl_lint.model import Argument, Command, Intent, Known, Site, Source, Span, Table, Word
from trl_lint.sources.edits import CannotEdit, spliced
from trl_lint.sources.module import Unparsable
from trl_lint.sources.shell_words import NOT_UNDERSTOOD
from trl_lint.sources.text import BOM, Text

_UNREAD = "?"
_BY_HAND = "change it by hand"
_HARMLESS = frozenset(
    {"echo", "printf", "cd", "mkdir", "rm", "ls", "cat", "sleep", "curl", "wget", "kill", "wait", "nvidia-smi", "pip"}
    | {
        "git",
        "date",
        "trap",
        "exit",
        "true",
        "false",
        "[",
        "[[",
        "test",
        "tee",
        "touch",
        "cp",
        "mv",
        "ulimit",
        "module",
    }
    | {
        "which",
        "unset",
        "read",
        "tail",
        "grep",
        "awk",
        "sed",
        "set",
        "export",
        "local",
        "return",
        "shift",
        "break",
        ":",
    }
)
"""Commands that a variable of a training run means nothing to."""
_SWITCHES = frozenset({"accelerate", "torchrun", "deepspeed", "vllm serve", "vllm openai"})
"""Programs whose on/off options take no value; HfArgumentParser's do."""


_NOT_THROUGH = frozenset({"ssh", "docker", "podman", "sudo", "kubectl", "singularity", "apptainer", "time"})
"""Commands that do not hand a variable set before them on to the command that they run, or may not stand behind one."""


def edit(text: Text, intents: Sequence[Intent], *, width: int = 88) -> str:
    """The script's text after the intents. Raises CannotEdit, with nothing done, if one of them cannot be written."""
    del width  # options stand on the lines that their neighbours do
    editor = _Editor(text)
    for intent in intents:
        editor.take(intent)
    return editor.result()


def _commands(text: Text, whole: bool) -> tuple[Command, ...]:
    """The commands of a file, or of a piece of one."""
    from trl_lint.sources import shell

    try:
        return shell.read(text).commands if whole else shell.commands_in(text, 0, len(text.utf8))
    except Unparsable as error:
        raise CannotEdit(str(error)) from None


@dataclass
class _Plan:
    """What is to become of one command: words by index, options behind its program or launcher, variables."""

    words: dict[int, list[str]] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    added: dict[int, list[list[str]]] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class _Set:
    """A value to be written: at a word of a command (`word`) or in an assignment (`assignment`), or at what both repeat."""

    command: int
    word: int | None
    assignment: Span | None
    binding: Span
    new: str
    text: str


@dataclass(frozen=True)
class _Variable:
    """A change of an environment variable that one command wants."""

    op: str
    command: int
    callee: int
    name: str
    argument: Argument | None
    text: str


class _Editor:
    def __init__(self, text: Text) -> None:
        self.text = text
        self.data = text.utf8
        self.whole = type(text) is Text
        self.commands = _commands(text, self.whole)
        self.plans: dict[int, _Plan] = {}
        self.edits: dict[tuple[int, int], str] = {}
        self.sets: list[_Set] = []
        self.variables: list[_Variable] = []
        self.adds: list[tuple[int, Site, list[str]]] = []
        self.bound: set[Span] = set()

    # finding things ----------------------------------------------------------------------------------------------------

    def at(self, span: Span) -> tuple[int, int]:
        return self.text.utf8_of_byte(span.start), self.text.utf8_of_byte(span.end)

    def command_of(self, site: Site) -> int:
        """The innermost command whose words hold the site's callee."""
        best: int | None = None
        for index, command in enumerate(self.commands):
            holds = any(word.span.start == site.callee.start for word in command.words)
            inside = command.span.start <= site.span.start and site.span.end <= command.span.end
            if holds and inside and (best is None or _size(command) < _size(self.commands[best])):
                best = index
        if best is None:
            raise CannotEdit("the command's own words stand in a variable: change it by hand")
        if self.commands[best].quoted:
            raise CannotEdit(f"it stands in a quoted string or a heredoc: {_BY_HAND}")
        if any(word.why == NOT_UNDERSTOOD for word in self.commands[best].words):
            raise CannotEdit(f"part of the command is no shell that is understood here: {_BY_HAND}")
        return best

    def plan(self, command: int) -> _Plan:
        return self.plans.setdefault(command, _Plan())

    def replace(self, start: int, end: int, new: str) -> None:
        known = self.edits.get((start, end))
        if known is not None and known != new:
            raise CannotEdit(f"two fixes want different text at line {self.text.line_of(start)[0]}")
        self.edits[start, end] = new

    def option(self, command: int, argument: Argument) -> tuple[int, int]:
        """The indices of an option's first word and of the word after its last."""
        words = self.commands[command].words
        place = argument.place
        first = next((index for index, word in enumerate(words) if word.span.start == place.whole.start), None)
        if first is None:
            raise CannotEdit(f"{argument.name} is not where it was")
        word, last = words[first], first
        if not _is_joined(word) and place.value != place.whole:
            while last + 1 < len(words) and words[last + 1].span.end <= place.value.end and last - first < 10_000:
                last += 1
        for word in words[first : last + 1]:
            if not word.plain:
                raise CannotEdit(f"it stands in a variable that is put together from parts: {_BY_HAND}")
        return first, last + 1

    def only_once(self, command: int, site: Site, argument: Argument) -> None:
        """An option that is given twice would come back with its first value."""
        names = [_name(word) for word in self.commands[command].words if word.span.start >= site.callee.start]
        twice = {argument.name, f"no_{argument.name}"}
        if argument.place.kind == "flag" and sum(name in twice for name in names) > 1:
            raise CannotEdit(f"{argument.name} is given twice: {_BY_HAND}")

    # intents -----------------------------------------------------------------------------------------------------------

    def take(self, intent: Intent) -> None:
        op: str = intent.op
        command = self.command_of(intent.site)
        if intent.name.startswith("env.") and op in ("set", "drop", "rename"):
            self.take_variable(intent, command)
            return
        argument = intent.site.arguments.get(intent.name)
        if op == "command":
            self.call(intent.site, command, str(intent.value))
        elif op == "set" and argument is None:
            value = _nested({}, intent.path, intent.value) if intent.path else intent.value
            self.add(intent.site, command, intent.name, value)
        elif op not in ("set", "drop", "rename"):
            raise CannotEdit(f"a command line has no place for “{op}”")
        elif argument is None:
            raise CannotEdit("the option is not given here")
        elif intent.path:
            self.inside(intent, command, argument)
        elif op == "set":
            self.change(intent.site, command, argument, intent.value)
        elif op == "drop":
            self.drop(intent.site, command, argument)
        else:
            self.rename(intent.site, command, argument, str(intent.value))

    def change(self, site: Site, command: int, argument: Argument, value: object) -> None:
        first, last = self.option(command, argument)
        word = self.commands[command].words[first]
        start, end = self.at(word.span)
        if argument.place.kind == "positional":
            self.write(command, first, argument.place.binding, _texts(value, self.style(site, command)))
            return
        raw = self.data[start:end].decode()
        off = _name(word) == f"no_{argument.name}"
        if last == first + 1 and not _is_joined(word):
            self.set_bare(site, command, argument, value, raw, off)
            return
        style = self.style(site, command)
        capital = re.search(r"\b(True|False)\b", self.raw(argument.place.value)) is not None
        texts = _texts(value, style.with_capitals(capital))
        if site.kind == "launcher" or site.name in _SWITCHES:
            _only(texts)
        if _is_joined(word):
            self.write_joined(command, first, _only(texts))
        elif last == first + 2:
            self.write(command, first + 1, argument.place.binding, texts)
        else:
            self.write_many(command, first + 1, last, texts)

    def set_bare(self, site: Site, command: int, argument: Argument, value: object, raw: str, off: bool) -> None:
        """An option without a value: turned on by being there, or off by `--no_x`."""
        first, _ = self.option(command, argument)
        _, end = self.at(self.commands[command].words[first].span)
        if isinstance(value, bool) and value is not off:
            return
        on = raw.replace("--no-", "--", 1).replace("--no_", "--", 1) if off else raw
        if value is True:
            self.rewrite(command, first, on)
        elif value is False and site.name in _SWITCHES:
            if site.name.startswith("vllm"):
                self.rewrite(command, first, f"--no-{raw.lstrip('-')}")
            else:
                self.drop(site, command, argument)
        else:
            texts = _texts(value, self.style(site, command))
            if off:
                self.rewrite(command, first, on)
            self.replace(end, end, "".join(f" {_quoted(text)}" for text in texts))
            plan = self.plan(command)
            plan.words[first] = [*plan.words.get(first, [self.commands[command].words[first].text or ""]), *texts]

    def rewrite(self, command: int, index: int, raw: str) -> None:
        start, end = self.at(self.commands[command].words[index].span)
        self.replace(start, end, raw)
        self.plan(command).words[index] = [raw]

    def write(self, command: int, index: int, binding: Span | None, texts: list[str]) -> None:
        """One value word becomes `texts`: where it stands, or at the variable's literal that it repeats."""
        word = self.commands[command].words[index]
        if [word.text] == texts and not word.likely:
            return
        if binding is not None and len(texts) == 1:
            start, end = self.at(binding)
            new = _quoted(texts[0], self.data[start:end].decode())
            self.sets.append(_Set(command, index, None, binding, new, texts[0]))
            return
        start, end = self.at(word.span)
        raw = self.data[start:end].decode()
        self.replace(start, end, " ".join(_quoted(text, raw) for text in texts))
        self.plan(command).words[index] = texts

    def write_joined(self, command: int, index: int, text: str) -> None:
        """The value in `--name=value`; the name stays as it is."""
        word = self.commands[command].words[index]
        start, end = self.at(word.span)
        raw = self.data[start:end].decode()
        plan = self.plan(command)
        name = plan.words.get(index, [word.text or ""])[0].partition("=")[0]
        if (word.text or "").partition("=")[2] == text and not word.likely:
            return
        found = re.match(r"--?[\w.-]+=", raw)
        if found is None:
            self.replace(start, end, _quoted(f"{name}={text}", raw))
        else:
            self.replace(start + len(found[0]), end, _quoted(text, raw[len(found[0]) :]))
        plan.words[index] = [f"{name}={text}"]

    def write_many(self, command: int, first: int, last: int, texts: list[str]) -> None:
        """Several value words become `texts`."""
        words = self.commands[command].words
        if [word.text for word in words[first:last]] == texts:
            return
        start, end = self.at(words[first].span)[0], self.at(words[last - 1].span)[1]
        self.replace(start, end, " ".join(_quoted(text) for text in texts))
        plan = self.plan(command)
        plan.words[first] = texts
        plan.words.update({index: [] for index in range(first + 1, last)})

    def inside(self, intent: Intent, command: int, argument: Argument) -> None:
        """A change within the JSON that an option is given."""
        table = argument.value.value if isinstance(argument.value, Known) else None
        if not isinstance(table, Table):
            raise CannotEdit("the mapping is not written out here")
        before = _plain(table)
        if intent.op == "set":
            after = _nested(before, intent.path, intent.value)
        else:
            after = _without(before, intent.path, str(intent.value) if intent.op == "rename" else None)
        if after:
            self.change(intent.site, command, argument, after)
        else:
            self.drop(intent.site, command, argument)

    def drop(self, site: Site, command: int, argument: Argument) -> None:
        self.only_once(command, site, argument)
        first, last = self.option(command, argument)
        self.plan(command).dropped.update(range(first, last))

    def rename(self, site: Site, command: int, argument: Argument, name: str) -> None:
        if argument.place.kind != "flag":
            raise CannotEdit("the value stands without a name here")
        self.only_once(command, site, argument)
        first, _ = self.option(command, argument)
        word = self.commands[command].words[first]
        start, end = self.at(word.span)
        found = re.match(r"(--?)(no[-_])?([\w.-]+)", self.data[start:end].decode())
        if found is None or _name(word) not in (argument.name, f"no_{argument.name}"):
            raise CannotEdit(f"the option's name is quoted or abbreviated here: {_BY_HAND}")
        off = found[2] if _name(word) != argument.name else ""
        head = found[1] + (off or "")
        old = found[0][len(head) :]
        dashes = "-" in old if "-" in old or "_" in old else self.style(site, command).dashes
        new = name.replace("_", "-") if dashes else name
        self.replace(start + len(head), start + len(found[0]), new)
        plan = self.plan(command)
        texts = plan.words.get(first, [word.text or ""])
        plan.words[first] = [head + new + texts[0][len(found[0]) :], *texts[1:]]

    def call(self, site: Site, command: int, new: str) -> None:
        """Other words call the program: wrappers before them and options behind them stay."""
        words = self.commands[command].words
        indices = [
            index
            for index, word in enumerate(words)
            if site.callee.start <= word.span.start and word.span.end <= site.callee.end
        ]
        first, last = indices[0], indices[-1]
        if indices != list(range(first, last + 1)) or not all(words[index].plain for index in indices):
            raise CannotEdit(f"the words that call it stand in a variable: {_BY_HAND}")
        try:
            texts = shlex.split(new)
        except ValueError as error:
            raise CannotEdit(str(error)) from None
        self.replace(self.at(words[first].span)[0], self.at(words[last].span)[1], new)
        plan = self.plan(command)
        plan.words[first] = texts
        plan.words.update({index: [] for index in range(first + 1, last + 1)})

    # options that are not there yet --------------------------------------------------------------------------------------

    def style(self, site: Site, command: int) -> _Style:
        """How the options of this program are spelled."""
        words = [word for word in self.commands[command].words if word.span.start >= site.callee.start]
        return _Style.of([word.text for word in words], site)

    def add(self, site: Site, command: int, name: str, value: object) -> None:
        if site.kind == "launcher" and site.name not in (*_SWITCHES, "trl"):
            raise CannotEdit(f"{site.name} has no option of that name")
        style = self.style(site, command)
        spelled = f"--{name.replace('_', '-') if style.dashes else name}"
        if site.name in _SWITCHES and isinstance(value, bool):
            if value is False and not site.name.startswith("vllm"):
                raise CannotEdit(f"{spelled} has no way to be turned off")
            texts = [spelled if value else f"--no-{spelled.lstrip('-')}"]
        elif value is True and style.bare:
            texts = [spelled]
        else:
            values = _texts(value, style)
            joined = style.equals and len(values) == 1
            texts = [f"{spelled}={values[0]}"] if joined else [spelled, *values]
        if any(word.text == "--" for word in self.commands[command].words):
            raise CannotEdit(f"the command ends its options with “--”: {_BY_HAND}")
        self.adds.append((command, site, texts))

    def write_adds(self) -> None:
        for command, site, texts in self.adds:
            index = self.last_option(command, site)
            words = self.commands[command].words
            _, end = self.at(words[index].span)
            plan = self.plan(command)
            plan.added.setdefault(index, []).append(texts)
            new = self.separator(command, self.option_start(command, index), end) + " ".join(map(_option_text, texts))
            self.edits[end, end] = self.edits.get((end, end), "") + new

    def last_option(self, command: int, site: Site) -> int:
        """The index of the word that a new option goes behind: the last one that stays and stands in the command itself."""
        called = self.commands[command]
        dropped = self.plan(command).dropped
        ends = [site.callee.end, *(argument.place.whole.end for argument in site.arguments.values())]
        inside = [
            index
            for index, word in enumerate(called.words)
            if called.span.start <= word.span.start and word.span.end <= called.span.end and index not in dropped
        ]
        found = [index for index in inside if called.words[index].span.end in ends]
        if site.kind == "launcher" and site.name == "trl":  # which takes its launcher's options anywhere
            found = [index for index in inside if called.words[index].text is not None]
        if not found:
            raise CannotEdit(f"its options stand in a variable: {_BY_HAND}")
        return found[-1]

    def option_start(self, command: int, index: int) -> int:
        """Where the option starts that ends with a word: its own line is the pattern for a new one."""
        words = self.commands[command].words
        while index > 0 and not (words[index].text or "").startswith("-") and _is_option(words[index - 1]):
            index -= 1
        return self.at(words[index].span)[0]

    def separator(self, command: int, start: int, end: int) -> str:
        """A blank, or a continued line with the same indent if the option at `start` stands on one."""
        begin = self.at(self.commands[command].span)[0]
        line = self.data.rfind(b"\n", 0, start) + 1
        above = self.data[:line].rstrip(b"\r\n")
        if line <= begin or not above.endswith(b"\\") or self.data[start:end].count(b"\n"):
            return " "
        indent = re.match(rb"[ \t]*", self.data[line:])
        newline = "\r\n" if self.data[:line].endswith(b"\r\n") else "\n"
        return " \\" + newline + (indent[0].decode() if indent else "")

    # options that go -----------------------------------------------------------------------------------------------------

    def write_drops(self) -> None:
        for command, plan in self.plans.items():
            run: list[int] = []
            for index in [*sorted(plan.dropped), -1]:
                if run and index != run[-1] + 1:
                    self.cut(command, run)
                    run = []
                run.append(index)

    def cut(self, command: int, run: list[int]) -> None:
        """Removes words that follow each other, with the blanks or the continued line that they alone stood on."""
        words = self.commands[command].words
        start, end = self.at(words[run[0]].span)[0], self.at(words[run[-1]].span)[1]
        if end < start or self.edits_within(start, end):
            raise CannotEdit(f"another fix changes line {self.text.line_of(start)[0]} too")
        before = start
        while gap := re.search(rb"(?:[ \t]|\\\r?\n|\r?\n)\Z", self.data[max(0, before - 3) : before]):
            before -= len(gap[0])
        after = re.compile(rb"[ \t]*").match(self.data, end)
        follows = after.end() if after else end
        following = words[run[-1] + 1] if run[-1] + 1 < len(words) else None
        shares_line = following is not None and self.at(following.span)[0] == follows
        if before == start or (b"\n" in self.data[before:start] and shares_line):
            self.replace(start, follows, "")
        else:
            self.replace(before, end, "")

    def edits_within(self, start: int, end: int) -> bool:
        return any(start <= a and b <= end for a, b in self.edits if a < end)

    # variables -----------------------------------------------------------------------------------------------------------

    def take_variable(self, intent: Intent, command: int) -> None:
        name = intent.name.removeprefix("env.")
        start = intent.site.callee.start
        argument = self.commands[command].environment.get(name)
        if intent.op == "set":
            text = _only(_texts(intent.value, _Style(False, False, False, False)))
            self.variables.append(_Variable("set", command, start, name, argument, text))
        elif argument is None:
            raise CannotEdit(f"{name} is not set here")
        else:
            self.variables.append(_Variable(intent.op, command, start, name, argument, str(intent.value)))

    def write_variables(self) -> None:
        """An assignment that reaches other commands is changed if they all want that; else one command gets its own."""
        for change in self.variables:
            argument = change.argument
            if argument is None:
                self.prefix(change.command, change.callee, change.name, change.text)
                continue
            wanted = {
                c.command for c in self.variables if (c.op, c.name, c.text) == (change.op, change.name, change.text)
            }
            users = {index for index in self.users(argument) if not _is_harmless(self.commands[index])}
            if not users <= wanted and change.op == "set":
                self.prefix(change.command, change.callee, change.name, change.text)
            elif not users <= wanted:
                raise CannotEdit(f"other commands use {change.name} too: {_BY_HAND}")
            elif change.op == "set":
                self.assign(change.command, change.name, argument, change.text)
            elif change.op == "drop":
                self.unset(change.name, argument)
            else:
                self.rename_variable(change.name, change.text, argument)

    def reads_as(self, command: int, argument: Argument, value: str | None, words: Callable[[str], list[str]]) -> None:
        """What a command has for a variable afterwards; an assignment behind `env` is a word of it as well."""
        plan = self.plan(command)
        plan.environment[argument.name] = value
        for index, word in enumerate(self.commands[command].words):
            if word.span == argument.place.whole:
                plan.words[index] = words(word.text or "")

    def rename_variable(self, name: str, new: str, argument: Argument) -> None:
        start, _ = self.at(argument.place.whole)
        if not self.data[start:].startswith(f"{name}=".encode()):
            raise CannotEdit(f"{name} is not assigned in plain words here: {_BY_HAND}")
        self.replace(start, start + len(name.encode()), new)
        for index in self.users(argument):
            known = self.commands[index].environment[name].value
            self.plan(index).environment[new] = str(known.value) if isinstance(known, Known) else _UNREAD
            self.reads_as(index, argument, None, lambda text: [new + text[len(name) :]])

    def users(self, argument: Argument) -> list[int]:
        """The commands that an assignment reaches."""
        place = argument.place.whole
        return [
            index
            for index, command in enumerate(self.commands)
            if (found := command.environment.get(argument.name)) is not None and found.place.whole == place
        ]

    def assign(self, command: int, name: str, argument: Argument, text: str) -> None:
        start, end = self.at(argument.place.value)
        raw = self.data[start:end].decode()
        if argument.place.binding is not None:
            a, b = self.at(argument.place.binding)
            new = _quoted(text, self.data[a:b].decode())
            self.sets.append(_Set(command, None, argument.place.value, argument.place.binding, new, text))
        else:
            self.replace(start, end, _quoted(text, raw))
        for index in self.users(argument):
            self.reads_as(index, argument, text, lambda _: [f"{name}={text}"])

    def prefix(self, command: int, callee: int, name: str, text: str) -> None:
        """`NAME=value` before the command, or in the list of the `env` that it starts with."""
        words = self.commands[command].words
        called = [word.text for word in words if word.span.start < callee]
        closed = next((text for text in called if text in _NOT_THROUGH), None)
        if closed is not None and called[0] != "env":
            raise CannotEdit(f"{closed} does not hand {name} on: {_BY_HAND}")
        index = 0
        while index < len(words) and words[index].text in ("exec", "command", "nohup", "setsid"):
            index += 1
        inside_env = index < len(words) and words[index].text == "env"
        first = 0
        if inside_env:
            first = index + 1
            while first < len(words) and re.match(r"-|[A-Za-z_]\w*=", words[first].text or "x"):
                first += 2 if words[first].text in ("-u", "--unset", "-C", "--chdir") else 1
        if first >= len(words) or not words[first].plain:
            raise CannotEdit(f"the command stands in a variable: {_BY_HAND}")
        start = self.at(words[first].span)[0]
        self.edits[start, start] = self.edits.get((start, start), "") + f"{name}={_quoted(text)} "
        plan = self.plan(command)
        plan.environment[name] = text
        if inside_env:
            plan.added.setdefault(first - 1, []).append([f"{name}={text}"])

    def unset(self, name: str, argument: Argument) -> None:
        start, end = self.at(argument.place.whole)
        container = self.text.utf8_of_byte(argument.place.container)
        line = self.data.rfind(b"\n", 0, start) + 1
        alone = re.compile(rb"[ \t]*(?:export[ \t]+|ENV[ \t]+)?\Z").match(self.data[line:start])
        rest = re.compile(rb"[ \t]*;?[ \t]*(#[^\n]*)?\r?(\n|\Z)").match(self.data, end)
        if alone and rest and container >= line:
            self.replace(line, rest.end(), "")
        else:
            blanks = re.compile(rb"[ \t]*(\\\r?\n[ \t]*)?").match(self.data, end)
            follows = blanks.end() if blanks else end
            if self.data[follows : follows + 1] in (b"", b"\n", b"\r", b";"):
                start, follows = len(self.data[:start].rstrip(b" \t")), end
            self.replace(start, follows, "")
        for index in self.users(argument):
            self.reads_as(index, argument, None, lambda _: [])

    # values of variables that options merely repeat ------------------------------------------------------------------------

    def write_sets(self, allowed: bool) -> None:
        """Writes at the variable's literal if every use of it is to change alike, else where each value stands."""
        for binding in {change.binding: None for change in self.sets}:
            changes = [change for change in self.sets if change.binding == binding]
            targets = {(change.command, change.word, change.assignment) for change in changes}
            together = allowed and len({change.new for change in changes}) == 1 and self.uses(binding) <= targets
            if together:
                self.replace(*self.at(binding), changes[0].new)
                self.bound.add(binding)
            for change in changes:
                if change.word is not None:
                    if not together:
                        self.write(change.command, change.word, None, [change.text])
                    self.plan(change.command).words[change.word] = [change.text]
                elif not together and change.assignment is not None:
                    start, end = self.at(change.assignment)
                    self.replace(start, end, _quoted(change.text, self.data[start:end].decode()))

    def uses(self, binding: Span) -> set[tuple[int, int | None, Span | None]]:
        found: set[tuple[int, int | None, Span | None]] = set()
        for index, command in enumerate(self.commands):
            if _is_harmless(command):
                continue
            found |= {(index, at, None) for at, word in enumerate(command.words) if word.binding == binding}
            found |= {
                (index, None, argument.place.value)
                for argument in command.environment.values()
                if binding in (argument.place.binding, argument.place.value)
            }
        return found

    # result ----------------------------------------------------------------------------------------------------------------

    def result(self) -> str:
        """The text with everything written; a variable that turns out to be used otherwise too is left alone."""
        try:
            return self.copied().written(together=True)
        except CannotEdit:
            if not self.sets and not self.variables:
                raise
            return self.written(together=False)

    def copied(self) -> _Editor:
        """An editor that may be written to while this one stays as it is."""
        other = copy.copy(self)
        other.plans, other.edits, other.bound = copy.deepcopy(self.plans), dict(self.edits), set()
        return other

    def written(self, *, together: bool) -> str:
        self.write_variables()
        self.write_sets(together)
        self.write_drops()
        self.write_adds()
        new = spliced(self.data, [(start, end, text.encode()) for (start, end), text in self.edits.items()])
        self.verify(new.decode())
        return new.decode()

    def verify(self, code: str) -> None:
        """The commands read as they did, but for exactly what was to change."""
        encoding = self.text.encoding if self.whole else "utf-8"
        try:
            data = code.encode(encoding)
        except UnicodeEncodeError:
            raise CannotEdit(f"the value has no spelling in {encoding}") from None
        bom = BOM if self.whole and self.text.data.startswith(BOM) else b""
        commands = _commands(Text(self.text.path, bom + data), self.whole)
        if len(commands) != len(self.commands):
            raise CannotEdit(f"the result reads as other commands: {_BY_HAND}")
        for index, (before, after) in enumerate(zip(self.commands, commands, strict=True)):
            if self.bound and _is_harmless(before):
                continue
            plan = self.plans.get(index, _Plan())
            if [word.text for word in after.words] != _expected(before, plan):
                raise CannotEdit(f"the result reads as other words at line {after.span.line}: {_BY_HAND}")
            if _environment(after) != {
                name: value for name, value in {**_environment(before), **plan.environment}.items() if value is not None
            }:
                raise CannotEdit(f"the result sets other variables at line {after.span.line}: {_BY_HAND}")

    def raw(self, span: Span) -> str:
        start, end = self.at(span)
        return self.data[start:end].decode(errors="replace")


# Words and values ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Style:
    """`--a-b` or `--a_b`, `--a=b` or `--a b`, a bare `--flag` for true, `True` or `true`."""

    dashes: bool
    equals: bool
    bare: bool
    capitals: bool

    @classmethod
    def of(cls, texts: Sequence[str | None], site: Site) -> _Style:
        names = [text.partition("=")[0][2:] for text in texts if text is not None and text.startswith("--")]
        dashes, underscores = sum("-" in name for name in names), sum("_" in name for name in names)
        joined = sum(text is not None and text.startswith("--") and "=" in text for text in texts)
        values = [text.rpartition("=")[2] for text in texts if text is not None]
        trues = sum(value in ("true", "True", "false", "False") for value in values)
        bare = sum(
            argument.place.kind == "flag" and argument.place.value == argument.place.whole and "=" not in argument.name
            for argument in site.arguments.values()
            if isinstance(argument.value, Known) and isinstance(argument.value.value, bool)
        )
        return cls(
            dashes > underscores or (dashes == underscores and site.kind == "server"),
            joined * 2 > len(names) and joined > 0,
            site.kind == "server" or (bare > 0 and trues == 0),
            any(value in ("True", "False") for value in values),
        )

    def with_capitals(self, capitals: bool) -> _Style:
        return _Style(self.dashes, self.equals, self.bare, capitals)


def _texts(value: object, style: _Style) -> list[str]:
    """A value as the words of a command line."""
    match value:
        case bool():
            return [str(value) if style.capitals else str(value).lower()]
        case int() | float():
            return [repr(value)]
        case str():
            return [value]
        case dict():
            try:
                return [json.dumps(value)]
            except (TypeError, ValueError):
                raise CannotEdit("the mapping has no spelling in JSON") from None
        case list() | tuple():
            return [text for item in value for text in _texts(item, style)]
        case None:
            raise CannotEdit("None cannot be given on a command line")
        case Source():
            raise CannotEdit("an expression of Python cannot be given on a command line")
    raise CannotEdit("the value has no spelling on a command line")


def _only(texts: list[str]) -> str:
    if len(texts) != 1:
        raise CannotEdit("several values cannot be given here")
    return texts[0]


def _quoted(text: str, like: str = "") -> str:
    """A word that the shell reads as the text, quoted as the word that it replaces if that was quoted."""
    if like[:1] == "'" == like[-1:] and len(like) > 1 and "'" not in text:
        return f"'{text}'"
    if like[:1] == '"' == like[-1:] and len(like) > 1:
        body = re.sub(r'([\\"$`])', r"\\\1", text)
        return f'"{body}"'
    return text if re.fullmatch(r"[\w@%+=:,./-]+", text) else shlex.quote(text)


def _option_text(text: str) -> str:
    name, equals, value = text.partition("=")
    return f"{name}={_quoted(value)}" if equals and name.startswith("--") else _quoted(text)


def _plain(value: object) -> dict[str, object]:
    """A mapping as Python has it."""

    def plain(item: object) -> object:
        if isinstance(item, Table):
            return {k: plain(a.value.value) if isinstance(a.value, Known) else None for k, a in item.entries.items()}
        return [plain(part) for part in item] if isinstance(item, tuple) else item

    read = plain(value)
    return read if isinstance(read, dict) else {}


def _nested(table: dict[str, object], path: tuple[str, ...], value: object) -> dict[str, object]:
    """The mapping with `value` at the end of the path."""
    inner = table.get(path[0])
    below = _nested(inner if isinstance(inner, dict) else {}, path[1:], value) if path[1:] else value
    return {**table, path[0]: below}


def _without(table: dict[str, object], path: tuple[str, ...], new: str | None) -> dict[str, object]:
    """The mapping without the key at the end of the path, or with it under a new name."""
    if path[0] not in table:
        raise CannotEdit("the value is not written here")
    if not path[1:]:
        return {(new if key == path[0] and new else key): v for key, v in table.items() if key != path[0] or new}
    inner = table[path[0]]
    below = _without(inner if isinstance(inner, dict) else {}, path[1:], new)
    return {key: below if key == path[0] else v for key, v in table.items() if key != path[0] or below}


def _size(command: Command) -> int:
    return command.span.end - command.span.start


def _is_option(word: Word) -> bool:
    return word.text is not None and word.text.startswith("--")


def _is_joined(word: Word) -> bool:
    """Whether the word is `--name=value`."""
    return word.text is not None and re.match(r"--?[\w.-]+=", word.text) is not None


def _name(word: Word) -> str | None:
    text = word.text
    return text.lstrip("-").partition("=")[0].replace("-", "_") if text is not None and text.startswith("-") else None


def _is_harmless(command: Command) -> bool:
    return not command.words or (command.words[0].text or "").rpartition("/")[2] in _HARMLESS


def _expected(command: Command, plan: _Plan) -> list[str | None]:
    """The words that a command must have once its plan is carried out."""
    found: list[str | None] = []
    for index, word in enumerate(command.words):
        if index in plan.words and index not in plan.dropped:
            found += plan.words[index]
        elif index not in plan.dropped:
            found.append(word.text)
        for texts in plan.added.get(index, ()):
            found += texts
    return found


def _environment(command: Command) -> dict[str, str | None]:
    return {
        name: str(argument.value.value) if isinstance(argument.value, Known) else _UNREAD
        for name, argument in command.environment.items()
    }
