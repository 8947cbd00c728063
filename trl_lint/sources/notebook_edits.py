"""A notebook and the merged intents of its sites in; the new notebook out, with only the JSON of changed source lines changed.

Each kind of cell is edited by the editor of its language, on the text that its reader saw. What comes back is compared
line by line with what it was, so that magics, escapes, outputs and every other byte of the file stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, takewhile

from trl_lint.model import Intent, Site
from trl_lint.sources import notebook
from trl_lint.sources.edits import CannotEdit, spliced
from trl_lint.sources.module import Unparsable
from trl_lint.sources.notebook import Cell, CellText, Piece
from trl_lint.sources.text import Text

_Change = tuple[int, int, str]  # these code points of a cell's source become that text


def edit(text: Text, intents: Sequence[Intent], *, width: int = 88) -> str:
    """The notebook's text after the intents, without a byte order mark. Raises CannotEdit, with nothing done."""
    try:
        cells = notebook.cells(text)
    except Unparsable as error:
        raise CannotEdit(str(error)) from None
    changes: dict[int, list[_Change]] = {}
    shows: dict[int, str | None] = {}  # what a cell's Python is to be; None where a command of the cell changes too
    for target, wanted in _grouped(cells, intents):
        for piece, shown in target.edited(wanted, width):
            number = piece.cell.number
            shows[number] = shown if target.text.mark and number not in changes else None
            changes.setdefault(number, []).extend(_changes(piece, shown))
    by_number = {cell.number: cell for cell in cells}
    sources = {number: _applied(by_number[number].source, made) for number, made in changes.items() if made}
    sources = {number: new for number, new in sources.items() if new != by_number[number].source}
    habit = _Habit.of(text, cells)
    edits = [edit_ for number, new in sources.items() for edit_ in _json_edits(by_number[number], new, habit)]
    code = spliced(text.utf8, edits).decode()
    _verify(text, code, sources, shows)
    return code


# Who edits what --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Target:
    """One text that intents can lie in, and the language that it is in."""

    text: CellText
    language: str

    def edited(self, intents: Sequence[Intent], width: int) -> Iterator[tuple[Piece, str]]:
        """The pieces that change, with what they show then."""
        if not self.text.mark and len(self.text.pieces) > 1:
            raise CannotEdit("the file is put together from several cells: change it by hand")
        text, after = self.text, ""
        try:
            text, after = self._run(intents, width)
        except CannotEdit as error:
            raise CannotEdit(_in_cells(self.text, str(error))) from None
        shown = text.split(after)
        if shown is None:
            raise CannotEdit("the change does not stay within its cells")
        for piece, new in zip(text.pieces, shown, strict=True):
            if not piece.shown.endswith("\r"):
                new = new.removesuffix("\r")  # of a line end whose other half was put between the cells
            if "\r\n" not in piece.shown:
                new = new.replace("\r\n", "\n")
            if new != piece.shown:
                yield piece, new

    def _run(self, intents: Sequence[Intent], width: int) -> tuple[CellText, str]:
        if self.language == "yaml":
            from trl_lint.sources import recipe_edits

            return self.text, recipe_edits.edit(self.text, intents, width=width)
        if self.language == "sh":
            from trl_lint.sources import shell_edits

            return self.text, shell_edits.edit(self.text, intents, width=width)
        import libcst as cst

        from trl_lint.sources import python_edits

        try:
            return self.text, python_edits.edit(self.text, intents, width=width)
        except cst.ParserSyntaxError as error:
            if not self.text.mark:
                raise CannotEdit(f"it does not parse: {error.message}") from None
        # What ast takes and libcst does not: the reader has left such cells out as well.
        text = notebook.joined([p.cell for p in self.text.pieces], strict=True)
        return text, python_edits.edit(text, intents, width=width)


def _grouped(cells: Sequence[Cell], intents: Sequence[Intent]) -> list[tuple[_Target, list[Intent]]]:
    """The intents by the text that they change."""
    targets = [_Target(notebook.joined(cells), "py")]
    for name, text in notebook.files(cells).items():
        suffix = "yaml" if name.startswith("<") else name.rpartition(".")[2].lower()
        targets.append(_Target(text, {"yml": "yaml"}.get(suffix, suffix)))
    commands = [_Target(shell.text, "sh") for cell in cells for shell in notebook.shells(cell)]
    groups: dict[int, list[Intent]] = {}
    for intent in intents:
        index = _target(targets + commands, intent.site)
        if intent.to is not None and _target(targets + commands, intent.to) != index:
            raise CannotEdit(f"{intent.to.name} is built in another file")
        groups.setdefault(index, []).append(intent)
    return [((targets + commands)[index], wanted) for index, wanted in groups.items()]


def _target(targets: Sequence[_Target], site: Site) -> int:
    # A `!` line also lies in the joined Python, where it is masked.
    shell = site.kind in ("flags", "launcher", "server")
    for index, target in enumerate(targets):
        if (target.language == "sh") is shell and target.text.holds(site.span):
            return index
    raise CannotEdit(f"{site.name} is in no cell that can be changed")


def _in_cells(text: CellText, message: str) -> str:
    """An editor counts lines in the text it was given; people count them in cells."""

    def numbered(found: re.Match[str]) -> str:
        number = int(found[1])
        if not 1 <= number <= text.utf8.count(b"\n") + 1:
            return found[0]
        span = text.span(offset := text.offset(number, 1), offset)
        return f"cell {span.cell}, line {span.line}"

    return re.sub(r"\bline (\d+)", numbered, message)


# Lines that changed -----------------------------------------------------------------------------------------------------


def _changes(piece: Piece, new: str) -> Iterator[_Change]:
    """The changes to a cell's source that make its piece show `new`. Raises CannotEdit where a magic would be lost."""
    cell = piece.cell
    start = len(cell.lines.utf8[: piece.start].decode())
    length = len(cell.lines.utf8[piece.start : piece.end].decode())
    actual = _lines(cell.source[start : start + length])
    old, after = _lines(piece.shown), _lines(new)
    starts = list(accumulate(map(len, actual), initial=start))
    for first, last, new_first, new_last in _hunks(old, after):
        paired = min(last - first, new_last - new_first)
        if last - first != new_last - new_first and old[first:last] != actual[first:last]:
            raise CannotEdit("a magic there takes only one line: change it by hand")
        for index in range(paired):
            before, now = old[first + index], after[new_first + index]
            kept, tail = _common(before, now)
            there = actual[first + index]
            if len(there) != len(before) or there[kept : len(before) - tail] != before[kept : len(before) - tail]:
                raise CannotEdit("a magic stands there: change it by hand")
            at = starts[first + index]
            yield at + kept, at + len(before) - tail, now[kept : len(now) - tail]
        yield starts[first + paired], starts[last], "".join(after[new_first + paired : new_last])


def _applied(source: str, changes: Sequence[_Change]) -> str:
    out: list[str] = []
    position = 0
    for start, end, new in sorted(set(changes)):
        if start < position:
            raise CannotEdit("two fixes want different text in the same place")
        if "\ufffd" in new:
            raise CannotEdit("a character there is half of a surrogate pair: change it by hand")
        out += [source[position:start], new]
        position = end
    return "".join([*out, source[position:]])


def _lines(text: str) -> list[str]:
    """The lines of a cell as notebooks keep them: each with its line feed."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """The runs of lines that differ: from where to where in the old and in the new."""
    head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    left, right = old[head:], new[head:]
    tail = sum(1 for _ in takewhile(lambda p: p[0] == p[1], zip(reversed(left), reversed(right), strict=False)))
    left, right = left[: len(left) - tail], right[: len(right) - tail]
    for operation, a, b, c, d in SequenceMatcher(None, left, right).get_opcodes():
        if operation != "equal":
            yield head + a, head + b, head + c, head + d


def _common(old: str, new: str) -> tuple[int, int]:
    """How many code points two lines share at their start, and behind that at their end."""
    head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    limit = min(len(old), len(new)) - head
    tail = sum(1 for _ in takewhile(lambda p: p[0] == p[1], zip(reversed(old), reversed(new), strict=False)))
    return head, min(tail, limit)


# JSON -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Habit:
    """How the file writes: whether escapes stand for all that is not ASCII, and what stands between two lines of a source."""

    escaped: bool
    separator: str

    @classmethod
    def of(cls, text: Text, cells: Sequence[Cell]) -> _Habit:
        separator = next((s for cell in cells if (s := _separator(cell)) is not None), None)
        if separator is None:
            separator = ", " if b'": ' in text.utf8 else ","
        return cls(text.utf8.isascii() and b"\\u" in text.utf8, separator)

    def string(self, text: str) -> str:
        """The content of a JSON string."""
        return json.dumps(text, ensure_ascii=self.escaped)[1:-1]


def _separator(cell: Cell) -> str | None:
    """What stands between the lines of a cell that is kept as a list of lines; None where nothing shows it."""
    if cell.bracket is None or not cell.strings:
        return None
    if len(cell.strings) > 1:
        return cell.outer.utf8[cell.strings[0][1] + 1 : cell.strings[1][0] - 1].decode()
    before = cell.outer.utf8[cell.bracket : cell.strings[0][0] - 1].decode()
    return f",{before}" if before.strip(" ") else None


def _json_edits(cell: Cell, new: str, habit: _Habit) -> Iterator[tuple[int, int, bytes]]:
    """The bytes of the notebook that make a cell's source `new`."""
    old, after = _lines(cell.source), _lines(new)
    if cell.bracket is not None and list(cell.parts) == old:
        yield from _list_edits(cell, after, habit)
        return
    starts = [0, *accumulate(map(len, old))]
    for first, last, new_first, new_last in _hunks(old, after):
        before, now = "".join(old[first:last]), "".join(after[new_first:new_last])
        kept, tail = _common(before, now)
        start, end = starts[first] + kept, starts[last] - tail
        bytes_ = habit.string(now[kept : len(now) - tail]).encode()
        if start == end:
            at = cell.finish(_offset(cell, start)) if start else cell.begin(0)
            yield at, at, bytes_
        else:
            yield cell.begin(_offset(cell, start)), cell.finish(_offset(cell, end)), bytes_


def _list_edits(cell: Cell, new: Sequence[str], habit: _Habit) -> Iterator[tuple[int, int, bytes]]:
    """The same for a list of lines: a changed line keeps its string, a new one becomes an element, a removed one goes."""
    separator = _separator(cell) or habit.separator
    strings = cell.strings
    starts = [0, *accumulate(len(_utf8(part)) for part in cell.parts)]
    for first, last, new_first, new_last in _hunks(cell.parts, new):
        paired = min(last - first, new_last - new_first)
        for index in range(first, first + paired):
            before, now = cell.parts[index], new[new_first + index - first]
            kept, tail = _common(before, now)
            begin = starts[index] + len(_utf8(before[:kept]))
            end = starts[index + 1] - len(_utf8(before[len(before) - tail :] if tail else ""))
            bytes_ = habit.string(now[kept : len(now) - tail]).encode()
            if begin == end:
                at = cell.finish(begin) if kept else strings[index][0]
                yield at, at, bytes_
            else:
                yield cell.begin(begin), cell.finish(end), bytes_
        added = [f'"{habit.string(line)}"' for line in new[new_first + paired : new_last]]
        gone = first + paired
        if added and gone:
            at = strings[gone - 1][1] + 1
            yield at, at, "".join(separator + line for line in added).encode()
        elif added:
            at = strings[0][0] - 1
            yield at, at, "".join(line + separator for line in added).encode()
        elif gone < last and last < len(strings):
            yield strings[gone][0] - 1, strings[last][0] - 1, b""
        elif gone < last:
            yield strings[gone - 1][1] + 1 if gone else strings[0][0] - 1, strings[last - 1][1] + 1, b""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _offset(cell: Cell, point: int) -> int:
    return len(cell.code[:point].encode())


# Proof ------------------------------------------------------------------------------------------------------------------


def _verify(text: Text, code: str, sources: dict[int, str], shows: dict[int, str | None]) -> None:
    """Raises CannotEdit unless the new text is the old notebook with these sources and nothing else, and read as `shows` has it."""
    after = Text(text.path, code.encode())
    try:
        before_data, after_data = notebook.loaded(text), notebook.loaded(after)
        cells = {cell.number: cell for cell in notebook.cells(after)} if sources else {}
    except Unparsable as error:
        raise CannotEdit(f"the result is no notebook: {error}") from None
    for number, source in sources.items():
        cell = cells.get(number)
        if cell is None or cell.source != source:
            raise CannotEdit(f"cell {number} would not hold what it should")
        if shows[number] is not None and cell.python != shows[number]:
            raise CannotEdit(f"cell {number} would no longer be the same to IPython")
        before_data["cells"][number - 1]["source"] = after_data["cells"][number - 1]["source"] = None
    if before_data != after_data:
        raise CannotEdit("the result would change more than its cells")
