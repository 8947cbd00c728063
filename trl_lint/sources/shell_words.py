"""A word of the source in; the words that the shell hands over for it out, expansions filled in as far as this says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tree_sitter import Node

from trl_lint.sources.shell_arithmetic import computed
from trl_lint.sources.shell_parts import Part, as_parts, defaults, fields_of, flat, standing
from trl_lint.sources.shell_state import State
from trl_lint.sources.shell_syntax import JOINED, QUOTED, shape_of, short, source_of
from trl_lint.sources.shell_values import Chunk, Field, Script, Variable, contiguous, joined, unknown

DEPTH = 180
"""Deeper nesting than this is left out: no person writes it, and Python's own stack ends."""

NOT_UNDERSTOOD = "the syntax there is not understood"

ANSI = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{1,4}|[\x00-\x7f])")
ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v", "E": "\x1b"}
EXPANSION = re.compile(rb"\$\{([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[([^\]]*)\])?(?:(:?[-=+?])(.*))?\}", re.DOTALL)
LOOSE = re.compile(rb"\\.|\$([A-Za-z_]\w*|[0-9@*#?!])", re.DOTALL)
PLAIN = {"word", "number", "command_name"}
SIMPLE = re.compile(rb"[A-Za-z0-9_./:=,@%+-]+")
LENGTH = re.compile(rb"\$\{#([A-Za-z_]\w*)\[[@*]\]\}")
BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")


class Words:
    """Expands words with what the state holds; `run` reads the commands of a substitution."""

    def __init__(self, state: State, run: Callable[[Node], None]) -> None:
        self.state = state
        self.run = run
        self.left = len(state.root.utf8) + 20_000

    def fields(self, *nodes: Node) -> list[Field]:
        """The words that one word of the source becomes."""
        node, text = nodes[0], self.state.text
        if len(nodes) == 1 and node.type in PLAIN and not self.state.replaced:
            low, high = node.start_byte, node.end_byte
            data = text.utf8[low:high]
            if SIMPLE.fullmatch(data) is not None:  # most words are, and most of the time goes into words
                if text is not self.state.root:
                    low, high = self.state.range(low, high)
                return [Field((Chunk(data.decode(), low, high),), low, high)]
        start, end = self.state.range(self.state.begin(node), nodes[-1].end_byte)
        if self.left < 0:
            return [Field((unknown("the variables of this file unfold without end", start, end),), start, end)]
        made = fields_of(self.joint(nodes), start, end)
        self.left -= len(made)
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
        if not isinstance(self.state.text, Script) or not field.chunks or not contiguous(field.chunks):
            return None
        first, last = field.chunks[0], field.chunks[-1]
        if first.stands is None or last.stands != first.stands or (first.start, last.end) == (start, end):
            return None
        own = all(chunk.own and not chunk.likely for chunk in field.chunks)
        text, whole = field.text or "", self.state.text.inserted_at(first.stands)
        if text != whole.strip():
            return field._replace(start=first.start, end=last.end, plain=own)
        return field._replace(start=start, end=end, plain=True, binding=(first.start, last.end) if own else None)

    def repeated(self, node: Node, *more: Node) -> tuple[int, int] | None:
        """The literal of the variable that a word merely repeats: `$X`, `"${X}"`."""
        if more:
            return None
        match = re.fullmatch(r'"?\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})"?', source_of(node))
        if match is not None:
            variable = self.state.variables.get(match[1] or match[2])
            return variable.literal if variable is not None else None
        match = re.fullmatch(r'"?\$(?:(\d)|\{(\d+)\})"?', source_of(node))
        number = int(match[1] or match[2]) if match is not None else 0
        if self.state.positional is not None and 0 < number <= len(self.state.positional):
            field = self.state.positional[number - 1]
            return field.binding or ((field.start, field.end) if field.plain and field.text is not None else None)
        return None

    def heredoc(self, redirect: Node) -> list[Chunk]:
        """What the heredoc hands over: as it stands if its word is quoted, else with expansions."""
        body = next((child for child in redirect.children if child.type == "heredoc_body"), None)
        start = next((child for child in redirect.children if child.type == "heredoc_start"), None)
        if body is None or start is None:
            return []
        low = self.state.text.utf8.rfind(b"\n", 0, body.start_byte + 1) + 1
        low = body.start_byte if low <= start.end_byte else low
        quoted = any(mark in source_of(start) for mark in "'\"\\")
        if quoted:
            chunks = self.state.raw(low, body.end_byte)
        else:
            chunks = flat(self.filled(low, body.end_byte, body.named_children, "heredoc"))
        return _without_tabs(chunks) if any(child.type == "<<-" for child in redirect.children) else chunks

    def joint(self, nodes: Sequence[Node], *, assignment: bool = False) -> list[Part]:
        """What one word is made of; the grammar may give it in several nodes that touch."""
        if len(nodes) == 1:
            return self.parts(nodes[0], assignment=assignment)
        children = [c for node in nodes for c in (node.children if node.type in JOINED else [node])]
        children = [c for child in children for c in (child.children if child.type in JOINED else [child])]
        inner = self.filled(self.state.begin(nodes[0]), nodes[-1].end_byte, children, "plain")
        return self.unquoted(inner, shape_of(children), nodes, assignment)

    def parts(self, node: Node, *, assignment: bool = False, double: bool = False) -> list[Part]:
        """What a node contributes to a word."""
        self.state.depth += 1
        try:
            if self.state.depth > DEPTH:
                return [("text", unknown("it is nested too deeply", *self.state.at(node)))]
            return self._parts(node, assignment, double)
        finally:
            self.state.depth -= 1

    def _parts(self, node: Node, assignment: bool, double: bool) -> list[Part]:
        start, end = self.state.begin(node), node.end_byte
        match node.type:
            case "command_name":
                return self.parts(node.children[0]) if node.children else []
            case "word" | "number" | "variable_name" | "extglob_pattern" | "special_variable_name":
                return self.unquoted(
                    as_parts(self.state.literal(start, end, "plain")), source_of(node), [node], assignment
                )
            case "string":
                if self.state.text.utf8[end - 1 : end] != b'"' or end - start < 2:
                    return [("text", unknown("the string does not end", *self.state.at(node)))]
                empty: list[Part] = [("text", Chunk("", *self.state.at(node), same=False))]
                return self.filled(start + 1, end - 1, node.named_children, "double") or empty
            case "raw_string":
                return as_parts(
                    self.state.raw(start + 1, end - 1) if end - start > 2 else [Chunk("", *self.state.at(node))]
                )
            case "ansi_c_string":
                return as_parts(self.ansi(start + 2, end - 1) or [Chunk("", *self.state.at(node))])
            case "translated_string":
                return [part for child in node.named_children for part in self.parts(child)]
            case "concatenation" if any(child.is_error or child.is_missing for child in node.children):
                return [("text", unknown(NOT_UNDERSTOOD, *self.state.at(node)))]
            case "concatenation":
                inner = self.filled(start, end, node.named_children, "plain")
                return self.unquoted(inner, shape_of(node.children), [node], assignment)
            case "simple_expansion":
                return self.expansion(
                    self.state.at(node),
                    source_of(node).strip(),
                    source_of(node).strip()[1:],
                    "",
                    None,
                    [],
                    double or assignment,
                )
            case "expansion":
                return self.braced(node, double or assignment)
            case "command_substitution" | "process_substitution":
                return self.substitution(node, double or assignment)
            case "arithmetic_expansion":
                return [("text", computed(node, self.state.at(node), self.operand))]
            case "array":
                return [("text", unknown("an array stands there", *self.state.at(node)))]
        if node.child_count == 0 and not node.is_error and not node.is_missing:
            return self.unquoted(as_parts(self.state.literal(start, end, "plain")), source_of(node), [node], assignment)
        why = "braces are expanded by the shell" if node.type == "brace_expression" else NOT_UNDERSTOOD
        return [("text", unknown(why, *self.state.at(node)))]

    def filled(self, start: int, end: int, children: Sequence[Node], mode: str) -> list[Part]:
        """The text from `start` to `end` with the expansions among `children` put in."""
        parts: list[Part] = []
        position = start
        for child in children:
            if child.start_byte < position or child.end_byte > end or child.type not in QUOTED:
                continue
            parts += self.loose(position, self.state.begin(child), mode)
            inner = self.parts(child, double=mode != "plain")
            if child.type.endswith("expansion") and (self.state.begin(child), child.end_byte) != (start, end):
                inner = standing(inner, self.state.at(child))
            parts += inner
            position = child.end_byte
        return parts + self.loose(position, end, mode)

    def loose(self, start: int, end: int, mode: str) -> list[Part]:
        """Text between the nodes of a word. The grammar leaves some names there: `a/$B/$C/d` (tree-sitter-bash 0.25)."""
        data = self.state.text.utf8[start:end]
        parts: list[Part] = []
        position = 0
        for found in LOOSE.finditer(data) if b"$" in data else ():
            if found[1] is None:
                continue
            parts += as_parts(self.state.literal(start + position, start + found.start(), mode))
            place = self.state.range(start + found.start(), start + found.end())
            source = found[0].decode()
            parts += standing(self.expansion(place, source, source[1:], "", None, [], mode != "plain"), place)
            position = found.end()
        return parts + as_parts(self.state.literal(start + position, end, mode))

    def unquoted(self, parts: list[Part], shape: str, nodes: Sequence[Node], assignment: bool) -> list[Part]:
        """Unquoted text, unless the shell would make something else of it; `shape` has Q for what is quoted."""
        start, end = self.state.begin(nodes[0]), nodes[-1].end_byte
        source = short(self.state.text.utf8[start:end].decode(errors="replace"))
        why = None
        if shape.startswith("~") and (len(shape) == 1 or shape[1] == "/"):
            why = "~ is the home of whoever runs it"
        elif not assignment and "*" in shape and "://" not in shape and nodes[0].type != "extglob_pattern":
            why = f"`{source}` names files of the machine it runs on"
        elif not assignment and "{" in shape and "${" not in shape and BRACES.search(shape):
            why = "braces are expanded by the shell"
        elif self.state.interpolated and "{" in shape and "${" not in shape and re.search(r"\{[^{}]+\}", shape):
            why = f"Python fills in `{source}`"
        return parts if why is None else [("text", unknown(why, *self.state.range(start, end)))]

    def ansi(self, start: int, end: int) -> list[Chunk]:
        data, chunks, position = self.state.text.utf8[start:end], list[Chunk](), 0
        for found in ANSI.finditer(data):
            if found.start() > position:
                chunks += self.state.raw(start + position, start + found.start())
            code = found[1].decode()
            if code[0] in "xu" and len(code) > 1:
                text = chr(int(code[1:], 16))
            elif code[0] in "01234567":
                text = chr(int(code, 8))
            else:
                text = ANSI_LETTERS.get(code, code)
            text = text.encode(errors="replace").decode()
            chunks.append(Chunk(text, *self.state.range(start + found.start(), start + found.end()), same=False))
            position = found.end()
        return chunks + (self.state.raw(start + position, end) if position < len(data) else [])

    def braced(self, node: Node, double: bool) -> list[Part]:
        begin = self.state.begin(node)
        data = self.state.text.utf8[begin : node.end_byte]
        counted = LENGTH.fullmatch(data)
        if counted is not None:
            variable = self.state.variables.get(counted[1].decode())
            if variable is not None and variable.items is not None and not any(f.many for f in variable.items):
                return [("text", Chunk(str(len(variable.items)), *self.state.at(node), same=False))]
        match = EXPANSION.fullmatch(data)
        if match is None:
            why = f"`{short(source_of(node))}` is worked out by the shell"
            return [
                ("text", unknown(why, *self.state.at(node), caller=re.match(rb"\$\{(?:\d|OPTARG)", data) is not None))
            ]
        operator = (match[3] or b"").decode()
        index = match[2].decode(errors="replace") if match[2] is not None else None
        default: list[Part] = []
        if operator:
            low = begin + match.start(4)
            children = [child for child in node.named_children if child.start_byte >= low]
            mode = "double" if double else "plain"
            default = self.filled(low, node.end_byte - 1, children, mode)
        return self.expansion(
            self.state.at(node), source_of(node).strip(), match[1].decode(), operator, index, default, double
        )

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
            if self.state.positional is not None and int(name) <= len(self.state.positional):
                return [(kind, chunk) for chunk in self.state.positional[int(name) - 1].chunks]
            if operator.endswith(("-", "=")):
                return defaults(default, kind, f"${name}", place)
            return [(kind, unknown(f"${name} is given by the caller", *place, caller=True))]
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return [("text", unknown(f"${name} is known only while it runs", *place))]
        variable = self.state.variables.get(name)
        if variable is None:
            if operator.endswith(("-", "=")):
                parts = defaults(default, kind, f"${name}", place)
                if operator.endswith("="):
                    chunks = tuple(c for c in flat(parts) if c.text != "")
                    self.state.set(name, Variable(chunks, None, place, place, place[0], exported=self.state.allexport))
                return parts
            why = f"${name} is not set in this file" if operator != "+" else f"${name} decides"
            return [(kind, unknown(why, *place, caller=True))]
        if variable.items is not None:
            return self.items(place, source, name, variable.items, index, operator, double)
        text = joined(variable.chunks)
        if operator.endswith("+"):
            if text:
                return [(kind, part) for part in flat(default)]
            return [] if text == "" else [(kind, unknown(f"${name} decides", *place))]
        if text == "" and operator.startswith(":") and operator.endswith(("-", "=")):
            return [(kind, part) for part in flat(default)]
        if index not in (None, "0", "@", "*"):
            return [(kind, unknown(f"${name} is no array", *place))]
        if not variable.chunks and double:
            return [("text", Chunk("", *place, same=False))]
        if kind == "split" and "IFS" in self.state.variables and text is not None and not text.isalnum():
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
            return [("text", unknown(f"`{short(source)}` is worked out by the shell", *place))]
        if index == "@" or (index == "*" and not double):
            return [("item", item) for item in items]
        if index == "*":
            joint: list[Part] = []
            for number, item in enumerate(items):
                joint += [("text", Chunk(" ", *place, same=False))] if number else []
                joint += as_parts(item.chunks)
            return joint or [("text", Chunk("", *place, same=False))]
        number = (
            int(index) if index is not None and index.isdecimal() and len(index) < 6 else 0 if index is None else -1
        )
        if 0 <= number < len(items) and not any(item.many for item in items[: number + 1]):
            return [("text" if double else "split", chunk) for chunk in items[number].chunks]
        return [("text", unknown(f"`{short(source)}` is not known here", *place))]

    def arguments(self, place: tuple[int, int], name: str, double: bool) -> list[Part]:
        if self.state.positional is not None:
            if name == "@" or not double:
                return [("item", field) for field in self.state.positional]
            if all(field.text is not None for field in self.state.positional):
                return [("text", Chunk(" ".join(f.text or "" for f in self.state.positional), *place, same=False))]
        chunk = unknown(f"${name} is given by the caller", *place, caller=True)
        return [("item", Field((chunk,), *place, plain=False, many=True, arguments=name == "@" or not double))]

    def substitution(self, node: Node, double: bool) -> list[Part]:
        """`$(…)`: its commands run, what they print is not known."""
        self.run(node)
        inner = source_of(node).strip().lstrip("$<>(`").rstrip(")`").strip()
        return [("text" if double else "split", unknown(f"`{short(inner)}` decides", *self.state.at(node)))]

    def operand(self, node: Node) -> list[Chunk]:
        """What stands for an operand of `$((…))`, where a name needs no `$`."""
        source = source_of(node)
        if re.fullmatch(r"[A-Za-z_]\w*", source):
            return flat(self.expansion(self.state.at(node), source, source, "", None, [], True))
        return flat(self.parts(node, double=True))


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
