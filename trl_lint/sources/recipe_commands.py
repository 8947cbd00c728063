"""A foreign YAML file in; the shell commands in it out: workflows, Kubernetes, compose, dstack, SkyPilot, GitLab."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from trl_lint.model import Argument, Command, Known, Place, Span, Unknown, Value, Word, Written
from trl_lint.sources.text import BOM, Text
from trl_lint.sources.yaml_tree import MAX_NODES, TAG, Node, Offsets, entries, inside, top_level

RUNS = re.compile(rb"\b(?:trl|accelerate|torchrun|deepspeed|vllm|CUDA_VISIBLE_DEVICES)\b|\.py\b|\bpython")


# Commands of foreign files -------------------------------------------------------------------------------------------


def commands_of(text: Text, offsets: Offsets, roots: list[Node], schema: str) -> Iterator[Command]:
    if schema not in _WALKS or not RUNS.search(text.utf8):
        return
    reader = _Shell(text, offsets)
    for root in roots:
        if root.kind == "mapping":
            yield from _WALKS[schema](reader, root)


class _Shell:
    """Commands out of scalars: shell text where it stands, lists of words as they are."""

    def __init__(self, text: Text, offsets: Offsets) -> None:
        self.text = text
        self.offsets = offsets

    # Environments

    def environment(self, node: Node | None) -> dict[str, Argument]:
        """`env:` in its three forms: a mapping, a list of NAME=value, a list of {name, value}."""
        real = node.real if node is not None else None
        if real is None:
            return {}
        container = self.offsets.of(real).start
        found: dict[str, Argument] = {}
        if real.kind == "mapping":
            for _holder, key, value in entries(real):
                place = Place(
                    "key", self.offsets.span(key.start, max(key.end, value.end)), self.offsets.of(value), container
                )
                found[key.real.value] = Argument(key.real.value, self.exported(value), place)
        for item in (i.real for i in real.items):
            if item.kind == "mapping":
                parts = top_level(item)
                if "name" in parts:
                    value = parts.get("value", item)
                    place = Place("key", self.offsets.of(item), self.offsets.of(value), container)
                    found[parts["name"].value] = Argument(parts["name"].value, self.exported(value), place)
            elif item.kind == "scalar" and "=" in item.value:
                name, _, spelled = item.value.partition("=")
                place = Place("key", self.offsets.of(item), self.offsets.of(item), container)
                found[name] = Argument(name, self.exported(replace(item, value=spelled)), place)
        return found

    def exported(self, node: Node) -> Value:
        real = node.real
        if real.kind != "scalar":
            return Unknown("it comes from elsewhere (`valueFrom`)")
        if "${" in real.value or "$(" in real.value or real.tag == f"{TAG}null":
            return Unknown("it is filled in by whoever runs the file")
        return Known(real.value, Written(self.offsets.of(node)))

    # Commands

    def words(self, nodes: list[Node], environment: Mapping[str, Argument]) -> Iterator[Command]:
        """An exec form: `["trl", "sft"]`; `["sh", "-c", "…"]` holds shell text."""
        nodes = [n for n in nodes if n.real.kind == "scalar"]
        texts = [n.real.value for n in nodes]
        if not nodes:
            return
        flag = next((i for i, t in enumerate(texts[:4]) if re.fullmatch(r"-[a-z]*c", t)), None)
        if texts[0].rsplit("/", 1)[-1] in ("sh", "bash", "zsh") and flag is not None:
            yield from self.shell(nodes[flag + 1 : flag + 2], environment)
            return
        words = tuple(self.word(n) for n in nodes)
        first, last = nodes[0], nodes[-1]
        span = self.offsets.span(first.start, max(last.end, first.end))
        yield Command(words, dict(environment), span, quoted=True)

    def word(self, node: Node) -> Word:
        value, span = node.real.value, self.offsets.of(node)
        if re.search(r"\$[({]", value):
            return Word(None, span, why="it is filled in by whoever runs the file", plain=False)
        return Word(value, span, plain=False)

    def shell(self, nodes: Iterable[Node], environment: Mapping[str, Argument]) -> Iterator[Command]:
        """Scalars that one shell runs one after the other: their text in place, all around them blanked out."""
        scalars = [n.real for n in nodes if n.real.kind == "scalar"]
        if not scalars:
            return
        start, end = min(n.start for n in scalars), max(n.end for n in scalars)
        first, last = self.offsets.utf8(start), self.offsets.utf8(end)
        shown = bytearray(b" " * (last - first))
        for node in scalars:
            self.show(shown, node, first)
        foreign = any(n.style != "|" for n in scalars)  # YAML has a say in how its text is written
        for command in self.read(bytes(shown), first, environment):
            yield replace(command, quoted=True) if foreign else command

    def show(self, shown: bytearray, node: Node, base: int) -> None:
        """Puts one scalar's shell text where it stands; a newline goes where the next scalar begins."""
        first, last = self.offsets.utf8(node.start), self.offsets.utf8(node.end)
        raw = self.text.utf8[first:last]
        if node.style in ("'", '"'):
            if (b"\\" if node.style == '"' else b"''") in raw[1:-1]:
                return  # the text is not the shell's own bytes
            raw = b" " + raw[1:-1] + b" "
        if node.style in ("|", ">"):
            header = re.match(rb"[^\r\n]*", raw)
            width = header.end() if header is not None else 0
            raw = b" " * width + raw[width:]
        if node.style == "|":
            raw = _dedented(raw) if b"<<" in raw else raw
        else:
            raw = _folded(raw)
        raw = _WORKFLOW.sub(lambda found: b"${" + b"_" * (len(found[0]) - 3) + b"}", raw)
        shown[first - base : last - base] = raw
        if last - base < len(shown):
            shown[last - base : last - base + 1] = b"\n"

    def read(self, shown: bytes, base: int, environment: Mapping[str, Argument]) -> Iterator[Command]:
        from trl_lint.sources.shell import commands_in

        region = Text(self.text.path, shown)
        if shown.startswith(BOM) or region.utf8 != shown:
            return
        for command in commands_in(region, 0, len(shown)):
            yield self.moved(command, base, environment)

    def moved(self, command: Command, base: int, environment: Mapping[str, Argument]) -> Command:
        """A command of a region, with its places in the file."""

        def at(span: Span) -> Span:
            return self.text.span(span.start + base, span.end + base)

        def word(old: Word) -> Word:
            span = at(old.span)
            binding = at(old.binding) if old.binding is not None else None
            if b"${{" in self.text.data[span.start : span.end]:
                why = "it is filled in by whoever runs the file"
                return replace(old, text=None, span=span, binding=binding, why=why, likely=False)
            return replace(old, span=span, binding=binding)

        own: dict[str, Argument] = {}
        for name, argument in command.environment.items():
            place = argument.place
            container = self.text.byte(place.container + base)
            binding = at(place.binding) if place.binding is not None else None
            value = argument.value
            if isinstance(value, Known) and isinstance(value.origin, Written):
                value = replace(value, origin=Written(at(value.origin.span)))
            moved = Place(place.kind, at(place.whole), at(place.value), container, binding)
            own[name] = replace(argument, value=value, place=moved)
        words = tuple(word(w) for w in command.words)
        return replace(command, words=words, span=at(command.span), environment={**environment, **own})


_WORKFLOW = re.compile(rb"\$\{\{[^{}\n]*\}\}")
_INDENTED = re.compile(rb"(\r?\n)([ \t]+)")
_FOLD = re.compile(rb"(?:\r?\n[ \t]*)+")


def _dedented(raw: bytes) -> bytes:
    """The same length without indentation, so that a heredoc finds its end: empty lines instead, which no shell minds."""
    indent = re.search(rb"\n([ \t]*)\S", raw)
    width = len(indent[1]) if indent is not None else 0
    if not width:
        return raw

    def flat(found: re.Match[bytes]) -> bytes:
        if raw[: found.start()].endswith(b"\\"):
            return found[0]  # a continued line: blanks at its start do not matter, a newline would
        return found[1] + b"\n" * min(width, len(found[2])) + found[2][width:]

    return _INDENTED.sub(flat, raw)


def _folded(raw: bytes) -> bytes:
    """The same length with line breaks as YAML folds them: one becomes a blank, more stay."""

    def fold(found: re.Match[bytes]) -> bytes:
        many = found[0].count(b"\n") > 1
        return (b"\n" if many else b" ") + b" " * (len(found[0]) - 1)

    return _FOLD.sub(fold, raw)


def _listed(node: Node | None) -> list[Node]:
    real = node.real if node is not None else None
    if real is None:
        return []
    return real.items if real.kind == "sequence" else [real]


def _kubernetes(shell: _Shell, root: Node) -> Iterator[Command]:
    stack, left = [root], MAX_NODES
    while stack and left:
        node, left = stack.pop(), left - 1
        if node.kind == "mapping":
            parts = top_level(node)
            env = shell.environment(parts.get("env"))
            given = [parts[k] for k in ("command", "args") if k in parts and parts[k].kind == "sequence"]
            yield from shell.words([item for listed in given for item in listed.items], env)
            stack += [value for key, value in reversed(parts.items()) if key not in ("command", "args", "env")]
        elif node.kind == "sequence":
            stack += [item.real for item in reversed(node.items)]


def _compose(shell: _Shell, root: Node) -> Iterator[Command]:
    for service in inside(top_level(root)["services"]).values() if "services" in top_level(root) else ():
        parts = inside(service)
        env = shell.environment(parts.get("environment"))
        listed: list[Node] = []
        for key in ("entrypoint", "command"):
            if key in parts and parts[key].kind == "scalar":
                yield from shell.shell([parts[key]], env)
            elif key in parts:
                listed += _listed(parts[key])
        yield from shell.words(listed, env)


def _github_commands(shell: _Shell, root: Node) -> Iterator[Command]:
    top = top_level(root)
    jobs = list(inside(top["jobs"]).values()) if "jobs" in top else []
    outer = shell.environment(top.get("env"))
    for job in [*jobs, *([top["runs"]] if "runs" in top else [])]:
        parts = inside(job)
        env = {**outer, **shell.environment(parts.get("env"))}
        for step in _listed(parts.get("steps")):
            inner = inside(step.real)
            if "run" in inner:
                yield from shell.shell([inner["run"]], {**env, **shell.environment(inner.get("env"))})


def _gitlab_commands(shell: _Shell, root: Node) -> Iterator[Command]:
    top = top_level(root)
    outer = shell.environment(top.get("variables"))
    for job in [*top.values(), *(step.real for step in _listed(top.get("steps")))]:
        parts = inside(job)
        env = {**outer, **shell.environment(parts.get("variables")), **shell.environment(parts.get("env"))}
        lines = [n for key in ("before_script", "script", "after_script", "bash") for n in _listed(parts.get(key))]
        if "script" in parts or "bash" in parts:
            yield from shell.shell(lines, env)


def _dstack_commands(shell: _Shell, root: Node) -> Iterator[Command]:
    top = top_level(root)
    yield from shell.shell(_listed(top.get("commands")), shell.environment(top.get("env")))


def _skypilot(shell: _Shell, root: Node) -> Iterator[Command]:
    top = top_level(root)
    env = shell.environment(top.get("envs"))
    for key in ("setup", "run"):
        yield from shell.shell(_listed(top.get(key)), env)


_WALKS: dict[str, Callable[[_Shell, Node], Iterator[Command]]] = {
    "kubernetes": _kubernetes,
    "compose": _compose,
    "github": _github_commands,
    "gitlab": _gitlab_commands,
    "dstack": _dstack_commands,
    "skypilot": _skypilot,
}
