"""A Makefile in; out the commands of its recipes, each line read as the shell gets it from make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.shell import Shell
from trl_lint.sources.shell_values import Chunk, Script, Variable, joined, limited, unknown
from trl_lint.sources.text import Text

ASSIGNMENT = re.compile(rb"[ ]*((?:export|override|private)\s+)?([\w.-]+)\s*(\?=|::?:?=|\+=|!=|=)[ \t]*")
EXPORT = re.compile(rb"[ ]*(un)?export\s+([\w. \t-]+)$")
CONDITION = re.compile(rb"[ ]*(ifeq|ifneq|ifdef|ifndef|else|endif|define|endef)\b")
REFERENCE = re.compile(rb"\$[\x00-\x7f]")
OR = re.compile(r"or\s+\$[({]([\w.-]+)[)}]\s*,\s*([^$,]*)")


@dataclass(frozen=True)
class _Made:
    """A variable of make: what it expands to, whether it is exported, and where it is written."""

    chunks: tuple[Chunk, ...]
    whole: tuple[int, int]
    at: tuple[int, int]
    exported: bool = False


@dataclass
class _Makefile:
    text: Text
    shell: Shell
    variables: dict[str, _Made] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    writes: dict[str, int] = field(default_factory=dict)
    conditions: int = 0
    everything: bool = False


def read(text: Text) -> Module:
    """Variables are taken as they stand at the end of the file: that is when make runs recipes."""
    makefile = _Makefile(text, Shell(text))
    recipes: list[tuple[int, int, bool]] = []
    in_rule = defining = False
    for start, end in _logical_lines(text.utf8):
        line = text.utf8[start:end]
        if defining:
            defining = not line.lstrip().startswith(b"endef")
        elif line.startswith(b"\t") and in_rule:
            if line.strip() and not line.strip().startswith(b"#"):
                recipes.append((start + 1, end, makefile.conditions > 0))
        elif found := CONDITION.match(line):
            defining = found[1] == b"define"
            makefile.conditions += 1 if found[1].startswith(b"if") else -1 if found[1] == b"endif" else 0
        elif assigned := ASSIGNMENT.match(line):
            _assign(makefile, assigned, start, end)
        elif exported := EXPORT.match(line.split(b"#")[0].rstrip()):
            names = {name.decode() for name in exported[2].split()}
            makefile.exported = makefile.exported - names if exported[1] else makefile.exported | names
        elif line.strip() == b"export":
            makefile.everything = True
        elif b":" in line.split(b"#")[0]:
            in_rule = True
            inline = line.find(b";")
            if inline >= 0 and b":" in line[:inline]:
                recipes.append((start + inline + 1, end, makefile.conditions > 0))
    for start, end, conditional in recipes:
        _recipe(makefile, start, end, conditional)
    return makefile.shell.module()


def _logical_lines(data: bytes) -> list[tuple[int, int]]:
    """Lines without their ends; a backslash joins a line to the next."""
    lines: list[tuple[int, int]] = []
    start = at = 0
    for line in data.splitlines(keepends=True):
        at += len(line)
        body = line.rstrip(b"\r\n")
        if not body.endswith(b"\\") or body == line:
            lines.append((start, at - len(line) + len(body)))
            start = at
    if start < len(data):
        lines.append((start, len(data)))
    return lines


def _assign(makefile: _Makefile, found: re.Match[bytes], start: int, end: int) -> None:
    name, operator = found[2].decode(), found[3].decode()
    data = makefile.text.utf8
    low = start + found.end()
    comment = re.search(rb"(?<!\\)#", data[low:end])
    high = low + comment.start() if comment is not None else end
    high -= len(data[low:high]) - len(data[low:high].rstrip())
    high = max(low, high)
    begin = start + found.start(2)
    exported = found[1] is not None and b"export" in found[1]
    if operator == "!=":
        chunks: tuple[Chunk, ...] = (unknown("a command decides", low, high),)
    else:
        chunks = tuple(_expanded(makefile, low, high, 0))
    old = makefile.variables.get(name)
    makefile.writes[name] = makefile.writes.get(name, 0) + 1
    if makefile.conditions and old is not None and operator != "?=":
        chunks = (unknown(f"$({name}) depends on a condition", low, high),)
    elif operator == "?=":
        if old is not None:
            return
        chunks = tuple(replace_likely(chunk) for chunk in chunks)
    elif operator == "+=" and old is not None:
        chunks = (*old.chunks, Chunk(" ", low, low, same=False), *chunks)
    if makefile.writes[name] > 1 or makefile.conditions:
        chunks = tuple(chunk._replace(own=False) for chunk in chunks)
    made = _Made(limited(chunks, name), (begin, high), (low, high), exported)
    makefile.variables[name] = made if not (old is not None and old.exported) else replace(made, exported=True)


def replace_likely(chunk: Chunk) -> Chunk:
    return chunk._replace(likely=chunk.text is not None)


def _expanded(makefile: _Makefile, start: int, end: int, depth: int) -> list[Chunk]:
    """The bytes from `start` to `end` with make's own references replaced; `$$` is the shell's `$`."""
    data = makefile.text.utf8
    chunks: list[Chunk] = []
    position = start
    while (found := REFERENCE.search(data, position, end)) is not None:
        if found.start() > position:
            chunks += _plain(makefile.text, position, found.start())
        position = found.end()
        if found[0] == b"$$":
            chunks.append(Chunk("$", found.start(), found.end(), same=False))
            continue
        if found[0] in (b"$(", b"${"):
            position = _closing(data, found.end(), end, found[0][1:])
            inner = data[found.end() : position - 1].decode(errors="replace")
        else:
            inner = found[0][1:].decode(errors="replace")
        chunks += _reference(makefile, inner, found.start(), position, depth)
    return chunks + _plain(makefile.text, position, end)


def _plain(text: Text, start: int, end: int) -> list[Chunk]:
    return [Chunk(text.utf8[start:end].decode(errors="replace"), start, end)] if end > start else []


def _closing(data: bytes, start: int, end: int, opening: bytes) -> int:
    depth, closing = 1, b")" if opening == b"(" else b"}"
    for at in range(start, end):
        if data[at : at + 1] == opening:
            depth += 1
        elif data[at : at + 1] == closing:
            depth -= 1
            if depth == 0:
                return at + 1
    return end


def _reference(makefile: _Makefile, inner: str, start: int, end: int, depth: int) -> Sequence[Chunk]:
    inner = inner.strip()
    made = makefile.variables.get(inner)
    if made is not None:
        return [chunk._replace(stands=(start, end)) for chunk in made.chunks]
    if (either := OR.fullmatch(inner)) is not None:
        known = makefile.variables.get(either[1])
        if known is not None and joined(known.chunks):
            return [chunk._replace(stands=(start, end)) for chunk in known.chunks]
        return [Chunk(either[2].strip(), start, end, likely=True, same=False, own=False)]
    if re.fullmatch(r"[\w.-]+", inner):
        return [unknown(f"$({inner}) is not set in this file", start, end)]
    if inner in ("@", "<", "^", "*", "?", "+", "%", "|"):
        return [unknown(f"make decides what ${inner} is", start, end)]
    short = " ".join(inner.split())
    return [unknown(f"`$({short if len(short) <= 50 else short[:47] + '…'})` is worked out by make", start, end)]


def _recipe(makefile: _Makefile, start: int, end: int, conditional: bool) -> None:
    """One line of a recipe: a shell of its own, with what make exports."""
    data = makefile.text.utf8
    while start < end and data[start : start + 1] in (b"@", b"-", b"+", b" ", b"\t"):
        start += 1
    chunks = _without_recipe_tabs(_expanded(makefile, start, end, 0))
    shell = makefile.shell
    size = sum(len(chunk.text or "") for chunk in chunks)
    if not chunks or size > shell.nested_left:
        return
    if len(chunks) > 1 or chunks[0].start != start:  # what other lines hold is put in: keep that linear
        shell.nested_left -= size
    exported = {
        name: Variable(made.chunks, None, made.whole, made.at, made.whole[0], exported=True)
        for name, made in makefile.variables.items()
        if made.exported or name in makefile.exported or makefile.everything
    }
    given = {name: shell.argument(name, variable) for name, variable in exported.items()}
    script = Script.made(makefile.text, chunks)
    with shell.within(
        variables=exported, exports=given, _environment=None, conditional=conditional, stopped=False, functions={}
    ):
        try:
            shell.script(script)
        except Unparsable:
            return


def _without_recipe_tabs(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Make takes away the tab that begins each further physical line."""
    kept: list[Chunk] = []
    for chunk in chunks:
        if chunk.text is None or "\n\t" not in chunk.text:
            kept.append(chunk)
            continue
        at = chunk.start
        for run in re.split(r"((?<=\n)\t)", chunk.text):
            size = len(run.encode(errors="replace")) if chunk.same else 0
            if run and run != "\t":
                place = (at, at + size) if chunk.same else (chunk.start, chunk.end)
                kept.append(chunk._replace(text=run, start=place[0], end=place[1]))
            at += size
    return kept
