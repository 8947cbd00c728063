"""A Dockerfile in; out the commands of RUN, CMD and ENTRYPOINT, with what ENV and ARG give them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tree_sitter_json
from tree_sitter import Language, Node, Parser

from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.pieces import Piece, Segment
from trl_lint.sources.shell import Shell
from trl_lint.sources.shell_values import Chunk, Field, Variable, likely
from trl_lint.sources.text import Text

INSTRUCTION = re.compile(rb"[ \t]*([A-Za-z]+)[ \t]+((?:--[\w-]+(?:=\S+)?[ \t]+)*)")
HEREDOC = re.compile(rb"<<-?[ ]*[\"']?([A-Za-z_]\w*)[\"']?")
SINGLE_ENV = re.compile(rb"([A-Za-z_]\w*)[ \t]+(.*)", re.DOTALL)


def read(text: Text) -> Module:
    """The last ENTRYPOINT with its CMD is one command, where both are given as lists."""
    shell = Shell(text)
    last: dict[str, list[tuple[int, int]]] = {}
    for ranges in _instructions(text.utf8):
        start, end = ranges[0][0], ranges[-1][1]
        found = INSTRUCTION.match(text.utf8, start, end)
        if found is None:
            continue
        name = found[1].upper().decode()
        rest = [(max(low, found.end()), high) for low, high in ranges if high > found.end()]
        if name == "FROM":
            shell.variables, shell.exports, shell._environment, last = {}, {}, None, {}
        elif name == "RUN" and rest:
            _run(text, shell, rest)
        elif name in ("CMD", "ENTRYPOINT") and rest:
            last[name] = rest
        elif name in ("ENV", "ARG") and rest:
            _variables(text, shell, rest, name, start)
    _start(text, shell, last)
    return shell.module()


def _instructions(data: bytes) -> list[list[tuple[int, int]]]:
    """The ranges of each instruction, without the comment lines among its continuation lines; with its heredocs."""
    found: list[list[tuple[int, int]]] = []
    current: list[tuple[int, int]] = []
    ends: list[bytes] = []
    open_line = False
    at = 0
    for line in data.splitlines(keepends=True):
        start, at = at, at + len(line)
        stripped = line.strip()
        if ends:
            current.append((start, at))
            if stripped == ends[0]:
                ends.pop(0)
        elif stripped.startswith(b"#") or (not stripped and open_line):
            continue
        else:
            open_line = stripped.endswith(b"\\")  # which docker takes away, whatever quotes it stands in
            current.append((start, start + len(line.rstrip()) - 1 if open_line else at))
            if not open_line and re.match(rb"\s*(RUN|COPY)\b", data[current[0][0] : current[0][0] + 80], re.IGNORECASE):
                ends = HEREDOC.findall(line)
        if current and not ends and not open_line:
            found.append(current)
            current = []
    return [*found, current] if current else found


def _piece(text: Text, ranges: Sequence[tuple[int, int]]) -> Piece:
    return Piece.of(text, [Segment(text.utf8[low:high], low, high) for low, high in ranges])


def _run(text: Text, shell: Shell, ranges: Sequence[tuple[int, int]]) -> None:
    """Each RUN is a shell of its own: what it sets is gone afterwards."""
    fields = _listed(text, ranges)
    shell.journals.append({})
    if fields is not None:
        _act(shell, fields)
    else:
        piece = _piece(text, ranges)
        heredoc = re.match(rb"<<-?[ ]*[\"']?\w+[\"']?[ \t]*\r?\n", piece.utf8)
        if heredoc is not None and len(ranges) > 2:  # RUN <<EOF: the heredoc is the script
            piece = _piece(text, ranges[1:-1])
        try:
            with shell.within(stopped=False):
                shell.script(piece)
        except Unparsable:
            pass
    shell.undone()


def _variables(text: Text, shell: Shell, ranges: Sequence[tuple[int, int]], name: str, start: int) -> None:
    """ENV holds from here on and at run time; an ARG is a default that the build may replace."""
    piece = _piece(text, ranges)
    single = SINGLE_ENV.match(piece.utf8) if name == "ENV" else None
    if single is not None and b"=" not in single[1]:
        low, high = single.start(2), single.start(2) + len(single[2].rstrip())
        at, whole = piece.outward(low, high), piece.outward(single.start(1), high)
        chunk = Chunk(piece.utf8[low:high].decode(errors="replace"), *at)
        literal = at if "$" not in (chunk.text or "") else None
        if literal is None:
            chunk = chunk._replace(text=None, why=f"`{(chunk.text or '')[:40]}` is worked out by docker", same=False)
        shell.set(single[1].decode(), Variable((chunk,), None, whole, at, start, literal, exported=True))
        return
    for key, variable in shell.assigned_in(piece, start):
        if name == "ENV":
            shell.set(key, variable._replace(exported=True))
        elif key not in shell.variables:
            shell.set(key, likely(variable))


def _start(text: Text, shell: Shell, last: dict[str, list[tuple[int, int]]]) -> None:
    entry, command = last.get("ENTRYPOINT"), last.get("CMD")
    entry_fields = _listed(text, entry) if entry is not None else None
    command_fields = _listed(text, command) if command is not None else None
    if entry_fields is not None and command_fields is not None:
        _act(shell, [*entry_fields, *command_fields])
        return
    given = entry or command
    if given is None:
        return
    fields = entry_fields if entry is not None else command_fields
    if fields is not None:
        _act(shell, fields)
    else:
        _run(text, shell, given)


def _act(shell: Shell, fields: list[Field]) -> None:
    if fields:
        place = (min(field.start for field in fields), max(field.end for field in fields))
        shell.act(fields, shell.environment(), place, None)


def _listed(text: Text, ranges: Sequence[tuple[int, int]]) -> list[Field] | None:
    """The words of `["trl", "sft"]`; None if it is no list of strings, which makes it a shell command."""
    piece = _piece(text, ranges)
    data = piece.utf8
    if not data.lstrip().startswith(b"["):
        return None
    root = Parser(Language(tree_sitter_json.language())).parse(data).root_node
    array = next((child for child in root.named_children if child.type == "array"), None)
    if array is None or root.has_error:
        return None
    if any(child.type != "string" for child in array.named_children):
        return None
    return [_field(piece, child) for child in array.named_children]


def _field(piece: Piece, node: Node) -> Field:
    chunks: list[Chunk] = []
    for child in node.named_children:
        raw = (child.text or b"").decode(errors="replace")
        at = piece.outward(child.start_byte, child.end_byte)
        if child.type == "escape_sequence":
            letters = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
            code = raw[1:]
            text = chr(int(code[1:], 16)) if code.startswith("u") and len(code) == 5 else letters.get(code, code)
            chunks.append(Chunk(text.encode(errors="replace").decode(), *at, same=False))
        else:
            chunks.append(Chunk(raw, *at))
    place = piece.outward(node.start_byte, node.end_byte)
    return Field(tuple(chunks) or (Chunk("", *place, same=False),), *place)
