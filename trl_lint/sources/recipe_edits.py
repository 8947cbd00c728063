"""A recipe's text and the merged intents of its site in; the new text out, with only the bytes that must change changed.

Each intent is written by itself, and the result must load to the old data plus exactly that change: else CannotEdit.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from trl_lint.model import Intent, Source
from trl_lint.sources.edits import CannotEdit
from trl_lint.sources.module import Unparsable
from trl_lint.sources.text import Text
from trl_lint.sources.yaml_tree import Node, documents, entries, json_document


def edit(text: Text, intents: Sequence[Intent], *, width: int = 88) -> str:
    """The file's text after the intents. Raises CannotEdit, with nothing done, if one of them cannot be written.

    `width` is the project's line length; lines of a recipe are never refitted.
    """
    del width
    code = text.code
    done: dict[tuple[str, ...], tuple[str, object]] = {}
    for intent in intents:
        path = (intent.name, *intent.path)
        wanted = (intent.op, intent.value)
        known = done.setdefault(path, wanted)
        if known != wanted:
            raise CannotEdit(f"two fixes want different things of {'.'.join(path)}")
        if known is not wanted:
            continue
        code = _written(text.path, code, intent, path)
    return code


def _written(path: str, code: str, intent: Intent, keys: tuple[str, ...]) -> str:
    file = _File(path, code)
    before = file.load(code)
    after = _expected(before, intent, keys)
    match intent.op:
        case "set":
            new = file.set(keys, intent.value)
        case "drop":
            new = file.drop(keys)
        case "rename":
            new = file.rename(keys, str(intent.value))
        case _:
            raise CannotEdit(f"{intent.op} has no meaning in a recipe")
    try:
        loaded = file.load(new)
    except CannotEdit as error:
        raise CannotEdit(f"the result would not load: {error}") from None
    if not _same(loaded, after):
        raise CannotEdit(f"{'.'.join(keys)} is tied to other keys here: change it by hand")
    return new


# What must come out ----------------------------------------------------------------------------------------------------


def _expected(data: object, intent: Intent, keys: tuple[str, ...]) -> object:
    """The data after the intent; a mapping that would be left empty goes with its last entry."""
    if not isinstance(data, dict):
        raise CannotEdit("the mapping is not written out here")
    new = dict(data)
    key, rest = keys[0], keys[1:]
    if rest:
        inner = new.get(key)
        if inner is None and intent.op == "set":
            inner = {}
        new[key] = _expected(inner, intent, rest)
        if not new[key]:
            del new[key]
        return new
    if intent.op == "set":
        new[key] = _loaded(intent.value)
        return new
    if key not in new:
        raise CannotEdit(f"{key} is not written here")
    value = new.pop(key)
    if intent.op == "rename":
        if str(intent.value) in new:
            raise CannotEdit(f"{intent.value} is there already")
        new[str(intent.value)] = value
    return new


def _loaded(value: object) -> object:
    """A literal as it is once it has been written and read."""
    if isinstance(value, (list, tuple)):
        return [_loaded(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _loaded(item) for key, item in value.items()}
    return value


def _same(left: object, right: object) -> bool:
    """Equal and of equal types all the way down: 1 is neither True nor 1.0."""
    if type(left) is not type(right):
        return False
    if left is right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return left == right


# The text --------------------------------------------------------------------------------------------------------------

_Entry = tuple[Node, Node]


class _File:
    """One state of the text: its tree, and how its author writes things."""

    def __init__(self, path: str, code: str) -> None:
        self.json = path.lower().endswith(".json")
        self.code = code
        self.newline = "\r\n" if "\r\n" in code else "\n"
        try:
            roots = [json_document(Text(path, code.encode()))] if self.json else documents(code)
        except Unparsable as error:
            raise CannotEdit(str(error)) from None
        if len(roots) != 1 or roots[0].kind != "mapping":
            raise CannotEdit("the file is not one mapping")
        self.root = roots[0]
        self.nodes = list(_all(self.root))

    def load(self, code: str) -> object:
        """What the program that this file is for reads in it."""
        try:
            if self.json:
                return json.loads(code)
            return yaml.safe_load(code)
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", None) or error
            raise CannotEdit(" ".join(str(problem).split())) from None
        except (ValueError, RecursionError) as error:
            raise CannotEdit(" ".join(str(error).split())) from None

    # Where things are

    def holder(self, keys: tuple[str, ...]) -> tuple[Node, Node | None]:
        """The mapping that a path leads to and what holds it; only mappings that stand here, not those of an alias."""
        node, value = self.root, None
        for key in keys:
            pair = self.own(node, key)
            if pair is None:
                raise CannotEdit(f"{key} is not written here")
            value = pair[1]
            if value.kind == "alias":
                raise CannotEdit(f"{key} repeats the mapping *{value.anchor}: change it by hand")
            if value.kind != "mapping":
                raise CannotEdit(f"{key} is no mapping here")
            node = value
        return node, value

    def all_own(self, mapping: Node, key: str) -> list[_Entry]:
        return [(k, v) for k, v in mapping.pairs if k.kind == "scalar" and k.value == key and k.tag.endswith(":str")]

    def own(self, mapping: Node, key: str) -> _Entry | None:
        """The entry that counts: of a key that is written twice the last."""
        found = self.all_own(mapping, key)
        return found[-1] if found else None

    def line_start(self, point: int) -> int:
        return max(self.code.rfind("\n", 0, point), self.code.rfind("\r", 0, point)) + 1

    def line_end(self, point: int) -> int:
        """The end of the line, before its line break."""
        found = re.compile(r"\r|\n|\Z").search(self.code, point)
        return found.start() if found is not None else len(self.code)

    def after_line(self, point: int) -> int:
        """The start of the next line."""
        end = self.line_end(point)
        return end + (2 if self.code.startswith("\r\n", end) else 1 if end < len(self.code) else 0)

    def indent(self, mapping: Node) -> str:
        """The blanks before the first entry of a block mapping."""
        start = mapping.pairs[0][0].first
        before = self.code[self.line_start(start) : start]
        return before if not before.strip() else " " * len(before)

    def colon(self, entry: _Entry) -> int:
        """The offset behind the colon of an entry."""
        key, _value = entry
        found = re.compile(r"\s*:").match(self.code, key.end)
        if found is None:
            raise CannotEdit(f"{key.value} is written in a form that cannot be edited")
        return found.end()

    def replaced(self, *edits: tuple[int, int, str]) -> str:
        out, position = [], 0
        for start, end, new in sorted(edits):
            out += [self.code[position:start], new]
            position = end
        return "".join([*out, self.code[position:]])

    # set

    def set(self, keys: tuple[str, ...], value: object) -> str:
        """Sets the value at a path, and writes out the mappings of it that are not there yet."""
        for depth in range(len(keys) - 1, -1, -1):
            above = keys[:depth]
            if depth == 0 or self.reaches(above):
                break
        mapping, _ = self.holder(above)
        key, rest = keys[len(above)], keys[len(above) + 1 :]
        for inner in reversed(rest):
            value = {inner: value}
        entry = self.own(mapping, key)
        if entry is None:
            return self.add(mapping, key, value)
        if rest and not (entry[1].kind == "scalar" and entry[1].tag.endswith(":null")):
            self.holder((*above, key))  # says why not
        return self.set_value(entry, value, flow=mapping.flow)

    def reaches(self, keys: tuple[str, ...]) -> bool:
        node = self.root
        for key in keys:
            pair = self.own(node, key)
            if pair is None or pair[1].kind != "mapping" or (not pair[1].pairs and not pair[1].flow):
                return False
            node = pair[1]
        return True

    def set_value(self, entry: _Entry, value: object, *, flow: bool) -> str:
        key, old = entry
        if old.anchor is not None and old.kind != "alias":
            if any(node.target is old for node in self.nodes):
                raise CannotEdit(f"other keys repeat this value through *{old.anchor}: change it by hand")
            start = old.first + len(old.anchor) + 1 if self.code[old.first] == "&" else old.first
        else:
            start = old.first
        colon = self.colon(entry)
        touching = start == colon and old.end > start  # `{"a":1}`: its author wants no blank there
        gap = "" if touching or self.code[start - 1] in " \t" else " "
        if self.json or flow or not isinstance(value, (Mapping, list, tuple)) or not value:
            return self.put(key, old, colon, start, gap, self.spelled(value, old, flow=flow))
        is_list = isinstance(value, (list, tuple))
        if old.flow or (is_list and old.kind != "sequence" and not self.lists_are_blocks()):
            return self.put(key, old, colon, start, gap, self.spelled(value, old, flow=True))
        indent = self.code[self.line_start(key.first) : key.first]
        if indent.strip():
            raise CannotEdit(f"{key.value} shares its line")
        block = self.block(value, indent)
        return self.below(key, old, colon, block)

    def put(self, key: Node, old: Node, colon: int, start: int, gap: str, new: str) -> str:
        """A value on the key's own line, in place of whatever stands there or below."""
        if not self.later_line(key, start):
            return self.replaced((start, max(start, old.end), gap + new))
        end = self.line_end(old.end)
        head = self.line_end(colon)
        return self.replaced((colon, colon, " " + new), (head, end, ""))

    def below(self, key: Node, old: Node, colon: int, block: str) -> str:
        """Lines below the key in place of its value; a comment on the key's line stays there."""
        if self.later_line(key, old.first):
            head = self.line_end(colon)
            return self.replaced((head, self.line_end(old.end), self.newline + block))
        if self.line_end(old.first) < old.end:  # it goes on in lines below
            return self.replaced((colon, old.end, self.newline + block))
        head = self.line_end(old.end)
        if not self.code[old.end : head].strip():
            return self.replaced((colon, head, self.newline + block))
        return self.replaced((colon, old.end, ""), (head, head, self.newline + block))

    def later_line(self, key: Node, start: int) -> bool:
        return self.line_end(key.end) < start

    # add

    def add(self, mapping: Node, key: str, value: object) -> str:
        if mapping.flow:
            return self.add_flow(mapping, key, value)
        indent = self.indent(mapping)
        lines = self.entry_lines(key, value, indent)
        after = self.neighbour(mapping, key)
        end = self.line_end(after[1].end if after[1].end > after[0].end else after[0].end)
        return self.replaced((end, end, self.newline + lines))

    def neighbour(self, mapping: Node, key: str) -> _Entry:
        """The entry that a new one goes below: the last of those whose names are nearest, else the last of all."""
        scores = [(_kinship(k.value, key), i) for i, (k, _v) in enumerate(mapping.pairs) if k.kind == "scalar"]
        best, index = max(scores, default=(0, -1))
        return mapping.pairs[index if best else -1]

    def entry_lines(self, key: str, value: object, indent: str) -> str:
        name = self.text_of(key, None, flow=False)
        if isinstance(value, Mapping) and value:
            return f"{indent}{name}:{self.newline}{self.block(value, indent)}"
        if isinstance(value, (list, tuple)) and value and self.lists_are_blocks():
            return f"{indent}{name}:{self.newline}{self.block(value, indent)}"
        return f"{indent}{name}: {self.spelled(value, None, flow=False)}"

    def add_flow(self, mapping: Node, key: str, value: object) -> str:
        name = json.dumps(key) if self.json or self.quoted_keys(mapping) else self.text_of(key, None, flow=True)
        entry = f"{name}: {self.spelled(value, None, flow=True)}"
        if not mapping.pairs:
            return self.replaced((mapping.start + 1, mapping.end - 1, entry))
        last_key, last = self.neighbour(mapping, key)
        end = max(last.end, last_key.end)
        line = self.code[self.line_start(last_key.first) : last_key.first]
        gap = self.newline + line if not line.strip() and self.line_start(last_key.first) > mapping.start else " "
        return self.replaced((end, end, f",{gap}{entry}"))

    def quoted_keys(self, mapping: Node) -> bool:
        return bool(mapping.pairs) and all(k.style == '"' for k, _v in mapping.pairs)

    def block(self, value: object, indent: str) -> str:
        """A mapping or list as lines, one step further in."""
        step = indent + self.step()
        if isinstance(value, Mapping):
            return self.newline.join(self.entry_lines(str(k), v, step) for k, v in value.items())
        assert isinstance(value, (list, tuple))
        dash = indent if self.dashes_flush() else step
        return self.newline.join(f"{dash}- {self.spelled(item, None, flow=True)}" for item in value)

    # drop and rename

    def drop(self, keys: tuple[str, ...]) -> str:
        mapping, _ = self.holder(keys[:-1])
        found = self.all_own(mapping, keys[-1])
        if not found:
            merged = any(key.value == keys[-1] for _holder, key, _value in entries(mapping))
            raise CannotEdit(f"{keys[-1]} comes from a merge (`<<`)" if merged else f"{keys[-1]} is not written here")
        if len(found) == len(mapping.pairs):
            if len(keys) == 1:
                raise CannotEdit("nothing would be left of the file")
            return self.drop(keys[:-1])
        if mapping.flow:
            return self.drop_flow(mapping, found)
        edits = [self.lines_of(entry) for entry in found]
        new = self.replaced(*((start, end, "") for start, end in edits))
        if self.code and self.code[-1] not in "\r\n" and new.endswith(("\r", "\n")):
            new = new[: -len(self.newline)]  # the last line had no line break: the new one has none either
        return new

    def lines_of(self, entry: _Entry) -> tuple[int, int]:
        key, value = entry
        start = self.line_start(key.first)
        if self.code[start : key.first].strip():
            raise CannotEdit(f"{key.value} shares its line")
        self.colon(entry)
        return start, self.after_line(max(key.end, value.end))

    def drop_flow(self, mapping: Node, found: list[_Entry]) -> str:
        edits: list[tuple[int, int, str]] = []
        kept = [i for i, entry in enumerate(mapping.pairs) if entry not in found]
        for index, (key, value) in enumerate(mapping.pairs):
            if index in kept:
                continue
            end = max(key.end, value.end)
            if any(i > index for i in kept):
                following = mapping.pairs[index + 1][0].first
                if "#" in self.code[end:following]:
                    raise CannotEdit(f"{key.value} has a comment behind it that would be lost")
                edits.append((key.first, following, ""))
            else:
                last_key, last = mapping.pairs[index - 1]
                edits.append((max(last_key.end, last.end), end, ""))
        return self.replaced(*edits)

    def rename(self, keys: tuple[str, ...], new: str) -> str:
        mapping, _ = self.holder(keys[:-1])
        found = self.all_own(mapping, keys[-1])
        if not found:
            raise CannotEdit(f"{keys[-1]} is not written here")
        return self.replaced(*((k.start, k.end, self.text_of(new, k, flow=mapping.flow)) for k, _v in found))

    # How values are spelled

    def spelled(self, value: object, old: Node | None, *, flow: bool) -> str:
        """A literal on one line, in the old value's manner where it has one."""
        if isinstance(value, Source):
            raise CannotEdit(f"`{value.text}` is an expression, and a recipe holds none")
        if self.json:
            try:
                return json.dumps(_loaded(value), ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError):
                raise CannotEdit(f"{value!r} cannot be written in JSON") from None
        if value is None:
            return "null"
        if isinstance(value, bool):
            word = str(value)
            return word if self.capital(old) else word.lower()
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return _float(value)
        if isinstance(value, str):
            return self.text_of(value, old, flow=flow)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self.spelled(item, None, flow=True) for item in value)}]"
        if isinstance(value, Mapping):
            inside = (
                f"{self.text_of(str(k), None, flow=True)}: {self.spelled(v, None, flow=True)}" for k, v in value.items()
            )
            return "{" + ", ".join(inside) + "}"
        raise CannotEdit(f"{value!r} cannot be written in a recipe")

    def text_of(self, value: str, old: Node | None, *, flow: bool) -> str:
        """A text, quoted as the old one was, else only if it must be."""
        quote = old.style if old is not None and old.style in ("'", '"') and old.tag.endswith(":str") else ""
        if self.json:
            return json.dumps(value, ensure_ascii=False)
        if not quote and _reads_as(value, value, flow=flow):
            return value
        single = "'" + value.replace("'", "''") + "'"
        if (quote or self.quote()) == "'" and "\n" not in value and _reads_as(single, value, flow=flow):
            return single
        double = json.dumps(value, ensure_ascii=False)
        if not _reads_as(double, value, flow=flow):
            double = json.dumps(value)
        if not _reads_as(double, value, flow=flow):
            raise CannotEdit(f"{value[:40]!r} cannot be written in a recipe")
        return double

    def plain_scalars(self) -> Iterator[str]:
        return (node.value for node in self.nodes if node.kind == "scalar" and not node.style)

    def capital(self, old: Node | None) -> bool:
        """Whether truth is written `True` here: by the old value, else by most of the file."""
        if old is not None and old.tag.endswith(":bool"):
            return old.value[:1].isupper()
        words = Counter(value for value in self.plain_scalars() if value.lower() in ("true", "false"))
        upper = sum(count for word, count in words.items() if word[0].isupper())
        return upper > words.total() - upper

    def quote(self) -> str:
        styles = Counter(node.style for node in self.nodes if node.kind == "scalar")
        return "'" if styles["'"] > styles['"'] else '"'

    def lists_are_blocks(self) -> bool:
        """Whether most lists of the file have a line for each item."""
        styles = Counter(node.flow for node in self.nodes if node.kind == "sequence" and node.items)
        return styles[False] > styles[True]

    def dashes_flush(self) -> bool:
        """Whether the dashes of lists stand right below their key."""
        for _key, value, indent in self.blocks("sequence"):
            return value.start - self.line_start(value.start) == indent
        return False

    def step(self) -> str:
        """The file's own indentation, two blanks where it shows none."""
        for _key, value, indent in self.blocks("mapping"):
            return " " * (value.start - self.line_start(value.start) - indent)
        return "  "

    def blocks(self, kind: str) -> Iterator[tuple[Node, Node, int]]:
        """(key, value, column of the key) of every entry that is a block of its own lines."""
        for mapping in self.nodes:
            for key, value in mapping.pairs:
                if value.kind == kind and not value.flow and self.later_line(key, value.start):
                    yield key, value, key.first - self.line_start(key.first)


def _all(root: Node) -> Iterator[Node]:
    """Every node of a tree; what an alias repeats is visited where it is written."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += [child for pair in reversed(node.pairs) for child in reversed(pair)]
        stack += reversed(node.items)


def _float(value: float) -> str:
    """A float that YAML 1.1 reads as one: with a dot, and a sign in its exponent."""
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa}.0e{power}" if exponent and "." not in mantissa else text


def _reads_as(written: str, value: str, *, flow: bool) -> bool:
    template = "{k: %s, l: 0}\n" if flow else "k: %s  # c\n"
    wanted: dict[str, Any] = {"k": value, "l": 0} if flow else {"k": value}
    if not value or "\n" in written:
        return False if not written else _loads_to(template % written, wanted)
    return _loads_to(template % written, wanted)


def _loads_to(text: str, wanted: object) -> bool:
    try:
        return _same(yaml.safe_load(text), wanted)
    except (yaml.YAMLError, ValueError):
        return False


_PLAIN_WORDS = frozenset({"use", "num", "max", "min", "do", "is", "the", "log", "save", "eval", "model"})
"""First words that say nothing of what a field belongs with."""


def _kinship(left: str, right: str) -> int:
    """How many first words two names share, or 1 if they share a telling one elsewhere (use_vllm, vllm_mode)."""
    a, b = left.split("_"), right.split("_")
    common = 0
    while common < min(len(a), len(b)) and a[common] == b[common]:
        common += 1
    if common > 1 or (common == 1 and a[0] not in _PLAIN_WORDS):
        return 2 * common
    used = re.compile(r"use_(\w+)")
    for one, other in ((left, b), (right, a)):
        found = used.fullmatch(one)
        if found is not None and found[1].split("_")[0] == other[0]:
            return 1
    return 0
