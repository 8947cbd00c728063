"""A Jupyter notebook in; its Python as one module, its shell commands and the files that it writes out, placed in the notebook.

Code cells are joined in their order with comment lines between them. What IPython adds to Python (`%magic`, `!command`,
`help?`) is masked byte for byte, so that every offset of the joined text is one of a cell, and through it of the JSON.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trl_lint.model import Argument, Command, Known, Place, Span, Unknown, Word, Written
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.text import Text

if TYPE_CHECKING:
    from tree_sitter import Node


def read(text: Text) -> Module:
    """Everything that a notebook says. Raises Unparsable for what is no notebook of format 4; a cell that is no Python is left out."""
    from trl_lint.sources import python

    found, prose = _cells(text)
    try:
        module = python.read(joined(found))
    except Unparsable:  # what ast takes and libcst does not
        module = python.read(joined(found, strict=True))
    commands = sorted((*module.commands, *_commands(found)), key=lambda c: c.span.start)
    return replace(
        module,
        path=text.path,
        commands=tuple(commands),
        written={**module.written, **_written(found)},
        told=_told(prose),
    )


def python_of(text: Text, *, strict: bool = False) -> CellText:
    """The notebook's Python as one text; `strict` leaves out what libcst refuses, not only what no Python accepts."""
    return joined(cells(text), strict=strict)


# Cells ---------------------------------------------------------------------------------------------------------------


class Cell:
    """One code cell. `number` counts all cells from 1; `source` is its text, `code` the same without lone surrogates.

    `strings` are the JSON strings that hold it, as offsets of their content into the notebook's UTF-8, and `parts` what
    they say. `bracket` is the offset behind the `[` of a list of strings, None for a single string.
    """

    def __init__(
        self, outer: Text, number: int, strings: Sequence[tuple[int, int]], parts: Sequence[str], bracket: int | None
    ) -> None:
        self.outer = outer
        self.number = number
        self.strings = tuple(strings)
        self.parts = tuple(parts)
        self.bracket = bracket
        self.source = "".join(parts)
        self.code = re.sub("[\ud800-\udfff]", "\ufffd", self.source)
        self.foreign = False

    @cached_property
    def lines(self) -> Text:
        """The cell as a text of its own, for lines and columns."""
        return _Plain(self.outer.path, self.code)

    @cached_property
    def _segments(self) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """The cell's UTF-8 as runs: where each starts, where it starts in the notebook, and its length in both.

        A run is either verbatim (equally long in both) or one escape.
        """
        starts: list[int] = []
        bytes_: list[int] = []
        lengths: list[tuple[int, int]] = []
        offset = 0

        def add(at: int, length: int, raw: int) -> None:
            nonlocal offset
            if raw:
                starts.append(offset)
                bytes_.append(at)
                lengths.append((length, raw))
                offset += length

        for start, end in self.strings:
            raw = self.outer.utf8[start:end]
            position = 0
            for escape in _ESCAPE.finditer(raw):
                add(start + position, escape.start() - position, escape.start() - position)
                add(start + escape.start(), _utf8_length(escape[0]), len(escape[0]))
                position = escape.end()
            add(start + position, len(raw) - position, len(raw) - position)
        return starts, bytes_, lengths

    def begin(self, offset: int) -> int:
        """Where the character at an offset into the cell's UTF-8 begins in the notebook's UTF-8."""
        starts, bytes_, lengths = self._segments
        index = bisect_right(starts, offset) - 1
        if index < 0:
            return self.strings[0][0] if self.strings else self.bracket or 0
        length, raw = lengths[index]
        inside = offset - starts[index]
        if inside >= length:  # behind the last character
            return bytes_[index] + raw
        return bytes_[index] + (inside if length == raw else 0)

    def finish(self, offset: int) -> int:
        """Where the character before an offset into the cell's UTF-8 ends in the notebook's UTF-8."""
        starts, bytes_, lengths = self._segments
        index = bisect_right(starts, offset - 1) - 1
        if index < 0:
            return self.begin(offset)
        length, raw = lengths[index]
        inside = offset - starts[index]
        return bytes_[index] + (raw if inside >= length or length != raw else inside)

    def offset_at(self, position: int) -> int:
        """The offset into the cell's UTF-8 of a position in the notebook's."""
        starts, bytes_, lengths = self._segments
        index = bisect_right(bytes_, position) - 1
        if index < 0:
            return 0
        length, raw = lengths[index]
        inside = position - bytes_[index]
        if inside >= raw:
            return starts[index] + length
        return starts[index] + (inside if length == raw else 0)

    # what the cell is -----------------------------------------------------------------------------------------------------

    @cached_property
    def head(self) -> list[re.Match[str]]:
        """Its `%%magic` lines: those before the last leave the rest Python."""
        found: list[re.Match[str]] = []
        position = 0
        while match := _CELL_MAGIC.match(self.code, position):
            found.append(match)
            position = match.end()
            if match["name"] not in _PYTHON_INSIDE:
                break
        return found

    @property
    def magic(self) -> re.Match[str] | None:
        """The `%%magic` whose body is no Python of this notebook."""
        return self.head[-1] if self.head and self.head[-1]["name"] not in _PYTHON_INSIDE else None

    @cached_property
    def body(self) -> int:
        """The code point behind the `%%magic` lines."""
        return self.head[-1].end() if self.head else 0

    @cached_property
    def _plain(self) -> bool:
        """Whether the body is Python as it stands: then nothing in it is IPython's."""
        return _parses(self.code[self.body :])

    @cached_property
    def magics(self) -> list[re.Match[str]]:
        """The lines of the body that are IPython's, with the lines that continue them."""
        if self.magic is not None or self.foreign or self._plain:
            return []
        return list(_magics(self.code, self.body))

    @cached_property
    def python(self) -> str | None:
        """The cell as Python of the same length in bytes, None if it is none."""
        if self.magic is not None or self.foreign:
            return None
        head = "".join(_hidden(line) for line in self.code[: self.body].splitlines(keepends=True))
        if self._plain:
            return head + self.code[self.body :]
        if not self.magics:
            return None
        for statements in (True, False):
            shown = _masked(self.code, self.body, self.magics, statements=statements)
            if _parses(shown):
                return head + shown
        return None


_ESCAPE = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.", re.S)


def _utf8_length(escape: bytes) -> int:
    """How long the character that a JSON escape stands for is in UTF-8; a lone surrogate counts as U+FFFD."""
    if len(escape) == 12:
        return 4
    if len(escape) == 2:
        return 1
    code = int(escape[2:], 16)
    return 1 if code < 0x80 else 2 if code < 0x800 else 3


def cells(text: Text) -> tuple[Cell, ...]:
    """The code cells of a notebook. Raises Unparsable."""
    return _cells(text)[0]


def _cells(text: Text) -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
    """The code cells of a notebook, and those of prose."""
    notebook = loaded(text)
    if not isinstance(notebook, dict):
        raise Unparsable("line 1: no notebook: it is no JSON object")
    listed = notebook.get("cells")
    if not isinstance(listed, list):
        version = notebook.get("nbformat")
        if "worksheets" in notebook or (isinstance(version, int) and version < 4):
            raise Unparsable(f"line 1: notebook format {version}: `jupyter nbconvert --to notebook` makes it format 4")
        raise Unparsable("line 1: no notebook: it has no cells")
    foreign = not _language(notebook).startswith(("python", "ipython", "pyspark"))
    found: dict[object, list[Cell]] = {"code": [], "markdown": []}
    for number, (cell, strings, bracket) in enumerate(_placed(text, listed), 1):
        if strings is None or (kind := cell.get("cell_type")) not in ("code", "markdown"):
            continue
        source = cell["source"]
        made = Cell(text, number, strings, source if isinstance(source, list) else [source], bracket)
        made.foreign = foreign or _cell_language(cell) not in (None, "python")
        found[kind].append(made)
    return tuple(found["code"]), tuple(found["markdown"])


def loaded(text: Text) -> Any:
    """The notebook as Python data, numbers as they are written. Raises Unparsable."""
    try:
        return json.loads(text.code, parse_float=str, parse_int=_number, parse_constant=str)
    except json.JSONDecodeError as error:
        raise Unparsable(f"line {error.lineno}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise Unparsable("line 1: nested too deeply") from None


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) < 20 else digits


def _language(notebook: Mapping[str, Any]) -> str:
    """The kernel's language in lower case; Python where the notebook does not say."""
    metadata = notebook.get("metadata")
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        info = metadata.get(key) if isinstance(metadata, dict) else None
        language = info.get(name) if isinstance(info, dict) else None
        if isinstance(language, str) and language:
            return language.lower()
    return "python"


def _cell_language(cell: Mapping[str, Any]) -> object:
    """What VS Code notes of a cell in another language than the kernel's."""
    metadata = cell.get("metadata")
    code = metadata.get("vscode") if isinstance(metadata, dict) else None
    return code.get("languageId") if isinstance(code, dict) else None


_Placed = tuple[dict[str, Any], "list[tuple[int, int]] | None", "int | None"]


def _placed(text: Text, listed: list[Any]) -> Iterator[_Placed]:
    """Every cell with the places of the strings of its source; None where it has no text."""
    nodes = _cell_nodes(text.utf8)
    if len(nodes) != len(listed):
        raise Unparsable("line 1: its JSON is ambiguous")
    for node, cell in zip(nodes, listed, strict=True):
        source = cell.get("source") if isinstance(cell, dict) else None
        texts = [source] if isinstance(source, str) else source
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            yield cell if isinstance(cell, dict) else {}, None, None
            continue
        value = _member(node, b"source")
        items = [] if value is None else [value] if value.type == "string" else _items(value)
        strings = [(item.start_byte + 1, item.end_byte - 1) for item in items]
        if [_decoded(text.utf8[s - 1 : e + 1]) for s, e in strings] != texts:
            raise Unparsable(f"line {node.start_point[0] + 1}: its JSON is ambiguous")
        yield cell, strings, value.start_byte + 1 if value is not None and value.type == "array" else None


def _cell_nodes(data: bytes) -> list[Node]:
    import tree_sitter_json
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_json.language()))
    root = parser.parse(data).root_node
    if root.has_error:  # Python writes numbers into outputs that JSON does not have
        root = parser.parse(_NO_JSON.sub(lambda m: m[0] if m[0][:1] == b'"' else b"0" * len(m[0]), data)).root_node
    top = next((n for n in root.named_children if n.type == "object"), None)
    value = _member(top, b"cells") if top is not None else None
    return _items(value) if value is not None else []


_NO_JSON = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?(?:NaN|Infinity)', re.S)


def _items(node: Node) -> list[Node]:
    return [n for n in node.named_children if n.type != "comment"]


def _member(node: Node, key: bytes) -> Node | None:
    """The value of a key of an object: the last one, as every JSON reader has it."""
    for pair in reversed(node.named_children):
        name = pair.child_by_field_name("key") if pair.type == "pair" else None
        if name is not None and name.text is not None and _decoded(name.text) == key.decode():
            return pair.child_by_field_name("value")
    return None


def _decoded(string: bytes) -> object:
    try:
        return json.loads(string)
    except ValueError:
        return None


# Texts made of cells --------------------------------------------------------------------------------------------------


class _Plain(Text):
    """A text that was decoded elsewhere: it has neither an encoding nor a byte order mark of its own."""

    def __init__(self, path: str, code: str) -> None:
        self.path = path
        self.code = code
        self.data = self.utf8 = code.encode()
        self.encoding = "utf-8"
        self._bom = 0


def _next(utf8: bytes, offset: int) -> int:
    """The offset behind the character at an offset."""
    offset = min(offset + 1, len(utf8))
    while offset < len(utf8) and utf8[offset] & 0xC0 == 0x80:
        offset += 1
    return offset


@dataclass(frozen=True)
class Piece:
    """Offsets `start` to `end` into a cell's UTF-8, the text `shown` for them (equally long), and what is put behind it."""

    cell: Cell
    start: int
    end: int
    shown: str
    after: str = ""


class CellText(_Plain):
    """Pieces of cells as one text. `line_of`, `line_text` and `offset` speak of that text, `span` and `byte` of the notebook.

    A span's start and end are bytes of the .ipynb file, its lines and columns those of the cell as people see it.
    """

    def __init__(self, path: str, pieces: Sequence[Piece], mark: str | None = None) -> None:
        super().__init__(path, "".join(p.shown + p.after for p in pieces))
        self.pieces = tuple(pieces)
        self.mark = mark
        self._at: list[int] = []
        position = 0
        for piece in pieces:
            self._at.append(position)
            position += piece.end - piece.start + len(piece.after.encode())
        self._numbers = [p.cell.number for p in pieces]

    def place(self, offset: int) -> tuple[Cell, int] | None:
        """The cell of an offset, and the offset into that cell's UTF-8; what is put between pieces belongs to the one before."""
        index = bisect_right(self._at, offset) - 1
        if index < 0:
            return None
        piece = self.pieces[index]
        utf8, at = piece.cell.lines.utf8, min(piece.start + offset - self._at[index], piece.end)
        while at < len(utf8) and utf8[at] & 0xC0 == 0x80:  # a mask is as long in bytes, not in code points
            at -= 1
        return piece.cell, at

    def byte(self, offset: int) -> int:
        found = self.place(offset)
        return found[0].outer.byte(found[0].begin(found[1])) if found is not None else 0

    def span(self, start: int, end: int) -> Span:
        first, last = self.place(start), self.place(max(end - 1, start))
        if first is None or last is None:
            return Span(self.path, 0, 0, 1, 1, 1, 1)
        cell, begin = first
        behind, final = last
        if end > start:
            final = _next(behind.lines.utf8, final)
        line, column = cell.lines.line_of(begin)
        end_line, end_column = behind.lines.line_of(final)
        from_, to = cell.begin(begin), behind.finish(final) if end > start else cell.begin(begin)
        outer = cell.outer
        return Span(self.path, outer.byte(from_), outer.byte(to), line, column, end_line, end_column, cell.number)

    def utf8_of_byte(self, byte: int) -> int:
        if not self.pieces:
            return 0
        position = self.pieces[0].cell.outer.utf8_of_byte(byte)
        index = max(bisect_right(self._firsts, position) - 1, 0)
        piece = self.pieces[index]
        offset = min(max(piece.cell.offset_at(position), piece.start), piece.end)
        return self._at[index] + offset - piece.start

    @cached_property
    def _firsts(self) -> list[int]:
        return [p.cell.begin(p.start) for p in self.pieces]

    def holds(self, span: Span) -> bool:
        """Whether a span of the notebook lies in one of the pieces."""
        if not self.pieces or span.cell not in self._numbers:
            return False
        outer = self.pieces[0].cell.outer
        start, end = outer.utf8_of_byte(span.start), outer.utf8_of_byte(span.end)
        return any(
            p.cell.number == span.cell and p.cell.begin(p.start) <= start and end <= p.cell.finish(p.end)
            for p in self.pieces
        )

    def split(self, code: str) -> list[str] | None:
        """What an edited text of this shape shows for each piece; None if it has lost its shape."""
        if self.mark is None:
            if len(self.pieces) != 1:
                return None
            return [code.removesuffix("\n") if self.pieces[0].after else code]
        parts: list[list[str]] = [[]]
        lines = code.split("\n")
        if lines[-1] == "":
            lines.pop()
        for line in lines:
            if line == self.mark:
                parts.append([])
            else:
                parts[-1].append(line)
        if len(parts) != len(self.pieces):
            return None
        return ["\n".join(part) for part in parts]


def joined(found: Iterable[Cell], *, strict: bool = False) -> CellText:
    """The Python of all cells as one text."""
    chosen: list[tuple[Cell, str]] = []
    path = ""
    for cell in found:
        path = cell.outer.path
        if cell.strings and cell.python is not None and (not strict or _libcst_takes(cell.python)):
            chosen.append((cell, cell.python))
    mark = "# %%"
    while any(mark in shown for _cell, shown in chosen):
        mark += "%"
    pieces = [Piece(cell, 0, len(shown.encode()), shown, f"\n{mark}\n") for cell, shown in chosen]
    if pieces:
        pieces[-1] = replace(pieces[-1], after="\n")
    return CellText(path, pieces, mark)


def _body(cell: Cell) -> Piece:
    """What a `%%magic` is given. IPython ends it with a line end whether or not the cell has one."""
    start, end = len(cell.code[: cell.body].encode()), len(cell.lines.utf8)
    shown = cell.code[cell.body :]
    return Piece(cell, start, end, shown, "" if shown.endswith("\n") else "\n")


# IPython's own syntax ---------------------------------------------------------------------------------------------------

_PYTHON_INSIDE = frozenset({"time", "timeit", "capture", "prun", "memit", "wandb", "px", "snakeviz", "scalene"})
_SHELLS = frozenset({"bash", "sh", "shell", "system", "sx", "!"})
_RUN = frozenset({"system", "sx"})
_STATEMENTS = frozenset({"time", "timeit", "prun", "memit"})

_NEWLINE = r"(?:\r\n|\r|\n)"
_REST = rf"(?:\\{_NEWLINE}|[^\r\n])*+"  # to the end of the line, and of the lines that backslashes add to it

# Colab lets comments stand above it.
_CELL_MAGIC = re.compile(
    rf"(?:[ \t]*(?:\#[^\r\n]*)?{_NEWLINE})*+(?P<whole>%%[ \t]*(?P<name>[\w.]+|!)[ \t]*(?P<rest>[^\r\n]*))(?:{_NEWLINE}|\Z)"
)
_MAGIC = re.compile(
    rf"""(?P<indent>[ \t]*+)(?:
      (?P<bang>!!?)[ \t]*(?P<command>{_REST})
    | (?P<percent>%%?)[ \t]*(?P<name>[A-Za-z_][\w.]*+)[ \t]*(?P<rest>{_REST})
    | (?P<target>[\w.][\w.,\[\]*: \t]*=[ \t]*)(?P<magic>!(?P<assigned>{_REST})|%[ \t]*[A-Za-z_]{_REST})
    | (?P<help>\?[^\r\n]*|%{{0,2}}[A-Za-z_*][\w.*\[\]]*\?{{1,2}}[ \t]*(?=[\r\n]|\Z))
    | (?P<auto>(?:pip3?|conda|mamba|uv|cd|ls|load_ext|matplotlib)(?:[ \t]++(?![=(\[.,:+*/<>!|&^-](?:[ \t]|\Z)|in\b|is\b){_REST})(?=[\r\n]|\Z))
    )""",
    re.X,
)
_TOKEN = re.compile(
    r"""\#[^\r\n]*+
    | "{3}[^"\\]*+(?:(?:\\.|\\\Z|"(?!""))[^"\\]*+)*+(?:"{3}|\Z)
    | '{3}[^'\\]*+(?:(?:\\.|\\\Z|'(?!''))[^'\\]*+)*+(?:'{3}|\Z)
    | "(?:[^"\\\r\n]++|\\(?:\r\n|.))*+"?
    | '(?:[^'\\\r\n]++|\\(?:\r\n|.))*+'?
    | (?P<open>[(\[{]) | (?P<close>[)\]}])
    | \\(?:\r\n|\r|\n)
    | (?P<newline>\r\n|\r|\n)""",
    re.X | re.S,
)


def _magics(code: str, position: int) -> Iterator[re.Match[str]]:
    """The magics of a cell: they stand at the start of a line that continues neither a bracket nor a string."""
    while position < len(code):
        if magic := _MAGIC.match(code, position):
            yield magic
            position = magic.end()
        depth = 0
        while token := _TOKEN.search(code, position):
            position = token.end()
            if token["open"]:
                depth += 1
            elif token["close"]:
                depth = max(depth - 1, 0)
            elif token["newline"] and not depth:
                break
        else:
            return


def _masked(code: str, position: int, magics: Sequence[re.Match[str]], *, statements: bool) -> str:
    """The text from `position` on with every magic replaced by an expression and a comment of the same length.

    With `statements` what `%time` and its like are given stays Python.
    """
    out: list[str] = []
    for magic in magics:
        out.append(code[position : magic.start()])
        prefix = _timed(magic) if statements else ""
        if prefix:
            out += [magic["indent"], "0", " " * (len(prefix) - 2), ";", magic["rest"][len(_options(magic["rest"])) :]]
        else:
            kept, hidden, head = magic["indent"], magic[0][len(magic["indent"]) :], "0#"
            if magic["target"]:
                kept, hidden = kept + magic["target"], magic["magic"]
                head = "_()#" if len(hidden.splitlines()[0].encode()) > 2 else "_#"
            first, *others = hidden.splitlines(keepends=True) or [""]
            out += [kept, _hidden(first, head), *(_hidden(line) for line in others)]
        position = magic.end()
    return "".join([*out, code[position:]])


def _timed(magic: re.Match[str]) -> str:
    """The part of `%time statement` before the statement; "" for other magics."""
    if magic["percent"] != "%" or magic["name"] not in _STATEMENTS:
        return ""
    options = _options(magic["rest"])
    if magic["rest"][len(options) :][:1] in ("", "!", "%", "?"):
        return ""
    return magic.string[magic.end("indent") : magic.start("rest") + len(options)]


def _options(rest: str) -> str:
    found = re.match(r"(?:-\w+[ \t]*(?:\d+[ \t]+)?)*+", rest)
    return found[0] if found is not None else ""


def _hidden(line: str, head: str = "#") -> str:
    """A line that begins with `head` and is a comment from there on, as long in UTF-8 as it was."""
    content = line.rstrip("\r\n")
    if not content.strip() and head == "#":
        return line
    taken = 0
    size = 0
    while size < len(head) and taken < len(content):
        size += len(content[taken].encode())
        taken += 1
    return head[:size] + " " * (size - len(head)) + content[taken:] + line[len(content) :]


def _parses(code: str) -> bool:
    """Whether some Python accepts the text: this one, or a newer one whose syntax libcst knows."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the user's own strings look like is no news here
            ast.parse(code)
    except SyntaxError as error:
        return "nested" not in str(error) and "indentation" not in str(error) and _libcst_takes(code)
    except (RecursionError, MemoryError, ValueError):
        return False
    return True


def _libcst_takes(code: str) -> bool:
    import libcst as cst

    try:
        cst.parse_module(code)
    except (cst.ParserSyntaxError, SyntaxError, RecursionError):
        return False
    return True


# Commands and files -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shell:
    """One run of a shell: its text, and where Python puts values of its own into it (bytes of the notebook)."""

    text: CellText
    conditional: bool = False
    background: bool = False
    expansions: tuple[tuple[int, int, str], ...] = ()


def shells(cell: Cell) -> Iterator[Shell]:
    """What a cell gives to a shell: all of it, or its `!` lines."""
    if cell.foreign:
        return
    magic = cell.magic
    if magic is not None:
        words = [magic["name"], *magic["rest"].split()]
        if words[0] == "script":
            words = [w for w in words[1:] if not w.startswith("--")] or [""]
        if words[0].rpartition("/")[2] in _SHELLS:
            yield Shell(CellText(cell.outer.path, [_body(cell)]), background="--bg" in magic["rest"].split())
        return
    at = byte = 0
    for line in cell.magics:
        group = _command_group(line)
        if group is None:
            continue
        start = line.start(group)
        byte += len(cell.code[at:start].encode())
        at = start
        yield _shell(cell, line[group], byte, conditional=bool(line["indent"]))


def _command_group(magic: re.Match[str]) -> str | None:
    """The part of a magic that a shell is given."""
    if magic["bang"]:
        return "command"
    if magic["assigned"] is not None:
        return "assigned"
    if magic["percent"] == "%" and magic["name"] in _RUN:
        return "rest"
    return None


def _shell(cell: Cell, command: str, start: int, *, conditional: bool) -> Shell:
    shown: list[str] = []
    position = 0
    places: list[tuple[int, int, str]] = []
    for found in _expansions(command):
        shown += [command[position : found.start()], "$" + "_" * (len(found[0].encode()) - 1)]
        begin = start + len(command[: found.start()].encode())
        places.append((begin, begin + len(found[0].encode()), found[0]))
        position = found.end()
    text = "".join([*shown, command[position:]])
    piece = Piece(cell, start, start + len(text.encode()), text)
    outer = cell.outer
    bytes_ = tuple((outer.byte(cell.begin(s)), outer.byte(cell.finish(e)), what) for s, e, what in places)
    return Shell(CellText(cell.outer.path, [piece]), conditional, False, bytes_)


_BRACES = re.compile(r"\{\{[^{}\r\n]*\}\}|(?<!\$)\{[^{}\r\n]*\}")


def _expansions(command: str) -> list[re.Match[str]]:
    """The `{expression}`s that Python fills in: all of them or, as IPython has it, none if one is no expression."""
    found = list(_BRACES.finditer(command))
    return found if all(_is_expression(m[0]) for m in found) else []


def _is_expression(field: str) -> bool:
    inner = field.strip("{}").strip()
    for expression in (inner, re.split("[:!]", inner)[0]):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(expression, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return True
    return False


def _commands(found: Iterable[Cell]) -> tuple[Command, ...]:
    """The commands that the cells run, in order, with the environment that `%env` lines gave them before."""
    commands: list[Command] = []
    environment: dict[str, Argument] = {}
    for cell in found:
        events: list[tuple[int, Shell | Argument]] = [(s.text.pieces[0].start, s) for s in shells(cell)]
        events += [(cell.offset_at(cell.outer.utf8_of_byte(a.place.whole.start)), a) for a in _exports(cell)]
        for _offset, event in sorted(events, key=lambda e: e[0]):
            if isinstance(event, Argument):
                environment[event.name] = event
            else:
                commands += _run(event, environment)
    return tuple(commands)


def _told(prose: Iterable[Cell]) -> tuple[Command, ...]:
    """The commands in the shell blocks of the prose."""
    commands: list[Command] = []
    for cell in prose:
        for block in _BLOCK.finditer(cell.code):
            start, end = (len(cell.code[:at].encode()) for at in block.span("body"))
            shown = re.sub(r"(?m)^([ \t]*)[$!%](?=[ \t])", r"\1 ", block["body"])  # the prompt of a console
            commands += _run(Shell(CellText(cell.outer.path, [Piece(cell, start, end, shown)])), {})
    return tuple(commands)


_BLOCK = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)[ \t]*(?:bash|sh|shell|zsh|console|shell-session)?[ \t]*\n(?P<body>.*?)^[ \t]*(?P=fence)",
    re.M | re.S,
)


def _run(shell: Shell, environment: Mapping[str, Argument]) -> Iterator[Command]:
    from trl_lint.sources.shell import commands_in

    for command in commands_in(shell.text, 0, len(shell.text.utf8)):
        given = {n: _filled_value(a, shell) for n, a in command.environment.items()}
        yield replace(
            command,
            words=tuple(_filled(word, shell) for word in command.words),
            environment={**environment, **given},
            conditional=command.conditional or shell.conditional,
            background=command.background or shell.background,
        )


def _filled(word: Word, shell: Shell) -> Word:
    """The word as unknown if Python fills in a part of it."""
    for start, end, what in shell.expansions:
        if word.span.start < end and start < word.span.end:
            return replace(word, text=None, why=f"`{what}` is filled in by Python", likely=False)
    return word


def _filled_value(argument: Argument, shell: Shell) -> Argument:
    span = argument.place.value
    for start, end, what in shell.expansions:
        if span.start < end and start < span.end:
            return replace(argument, value=Unknown(f"`{what}` is filled in by Python"))
    return argument


def _exports(cell: Cell) -> Iterator[Argument]:
    """What `%env NAME=value` and `%set_env NAME value` set for all commands after them."""
    for magic in cell.magics:
        if magic["percent"] != "%" or magic["name"] not in ("env", "set_env"):
            continue
        setting = re.match(r"(\w+)(?:[ \t]*=[ \t]*|[ \t]+)([^\r\n]*\S)", magic["rest"])
        if setting is None:
            continue
        at = magic.start("rest")
        piece = Piece(cell, 0, len(cell.lines.utf8), cell.code)
        text = CellText(cell.outer.path, [piece])
        starts = [len(cell.code[: at + p].encode()) for p in (setting.start(), setting.start(2), setting.end())]
        whole, value = text.span(starts[0], starts[2]), text.span(starts[1], starts[2])
        read_ = setting[2]
        known = (
            Unknown(f"`{read_}` is filled in by Python") if re.search(r"[{$]", read_) else Known(read_, Written(value))
        )
        yield Argument(setting[1], known, Place("env", whole, value, whole.start), conditional=bool(magic["indent"]))


def files(found: Iterable[Cell]) -> dict[str, CellText]:
    """What `%%writefile` cells write, by the path as written; `%%yaml name` cells stand under `<name>`."""
    pieces: dict[str, list[Piece]] = {}
    path = ""
    for cell in found:
        path = cell.outer.path
        magic = cell.magic
        if magic is None or cell.foreign or magic["name"] not in ("writefile", "file", "yaml"):
            continue
        words = re.findall(r'"[^"]*"|\'[^\']*\'|\S+', magic["rest"])
        names = [w.strip("\"'") for w in words if not w.startswith("-")]
        if not names or not names[0]:
            continue
        name = f"<{names[0]}>" if magic["name"] == "yaml" else names[0]
        if not {"-a", "--append"} & set(words):
            pieces[name] = []
        pieces.setdefault(name, []).append(_body(cell))
    return {name: CellText(path, parts) for name, parts in pieces.items()}


def _written(found: Iterable[Cell]) -> dict[str, Module]:
    written: dict[str, Module] = {}
    for name, text in files(found).items():
        try:
            module = _read_file(name, text)
        except Unparsable:
            continue
        if module is not None:
            written[name] = module
    return written


def _read_file(name: str, text: CellText) -> Module | None:
    suffix = ".yaml" if name.startswith("<") else name[name.rfind(".") :].lower() if "." in name else ""
    if suffix == ".py":
        from trl_lint.sources import python

        # Nesting that no Python accepts takes libcst for ever.
        return python.read(text) if _parses(text.code) else None
    if suffix in (".yaml", ".yml"):
        from trl_lint.sources import recipe

        return recipe.read(text)
    if suffix == ".sh":
        from trl_lint.sources import shell

        return shell.read(text)
    return None
