"""A Python text and the merged intents of its sites in; the new text out, with only the bytes that must change changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import libcst as cst

from trl_lint.model import Argument, Intent, Known, Site, Source, Span, Table
from trl_lint.sources.edits import CannotEdit
from trl_lint.sources.layout import columns, relaid
from trl_lint.sources.positions import positions
from trl_lint.sources.statements import lines
from trl_lint.sources.text import Text

_SHARED = "several names share this value (`a = b = value`): change it by hand"


@dataclass(slots=True)
class _Changes:
    """What happens to the elements of one bracket: replaced or removed by index, appended at the end."""

    node: cst.CSTNode
    replaced: dict[int, str] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    added: dict[str, str] = field(default_factory=dict)


def edit(text: Text, intents: Sequence[Intent], *, width: int = 88) -> str:
    """The file's text after the intents. Raises CannotEdit, with nothing done, if one of them cannot be written."""
    editor = _Editor(text)
    for intent in intents:
        editor.take(intent)
    try:
        return editor.result(width)
    except cst.ParserSyntaxError as error:
        raise CannotEdit(f"the result does not parse: {error.message}") from None


class _Editor:
    def __init__(self, text: Text) -> None:
        self.text = text
        self.data = text.utf8
        self.tree = cst.parse_module(text.code)
        self.spans = positions(self.tree)
        self.by_span: dict[tuple[int, int, type], cst.CSTNode] = {}
        for node, span in self.spans.items():
            if isinstance(
                node,
                (
                    cst.Call,
                    cst.Dict,
                    cst.Arg,
                    cst.Assign,
                    cst.AnnAssign,
                    cst.ImportAlias,
                    cst.ImportFrom,
                    cst.DictElement,
                ),
            ):
                self.by_span[span.start, span.start + span.length, type(node)] = node
        self.changes: dict[int, _Changes] = {}
        self.direct: dict[tuple[int, int], str] = {}
        self.imports: dict[str, set[str]] = {}
        self.new_configs: dict[int, tuple[Site, str, dict[str, str]]] = {}
        self.leaving: dict[str, list[tuple[cst.ImportFrom, cst.ImportAlias]]] = {}
        self.newline = "\r\n" if "\r\n" in text.code else "\n"
        self.quote = "'" if text.code.count("'") > text.code.count('"') else '"'

    # positions ---------------------------------------------------------------------------------------------------------

    def at(self, span: Span) -> tuple[int, int]:
        return self.text.utf8_of_byte(span.start), self.text.utf8_of_byte(span.end)

    def range(self, node: cst.CSTNode) -> tuple[int, int]:
        span = self.spans[node]
        return span.start, span.start + span.length

    def call(self, site: Site) -> cst.Call:
        node = self.by_span.get((*self.at(site.span), cst.Call))
        if not isinstance(node, cst.Call):
            raise CannotEdit(f"{site.name} is not built by a call here")
        return node

    def changed(self, node: cst.CSTNode) -> _Changes:
        return self.changes.setdefault(id(node), _Changes(node))

    def replace(self, start: int, end: int, new: str) -> None:
        known = self.direct.get((start, end))
        if known is not None and known != new:
            raise CannotEdit(f"two fixes want different text at line {self.line(start)}")
        self.direct[start, end] = new

    def line(self, offset: int) -> int:
        return self.text.line_of(offset)[0]

    # intents -----------------------------------------------------------------------------------------------------------

    def take(self, intent: Intent) -> None:
        argument = intent.site.arguments.get(intent.name)
        match intent.op:
            case "set" if intent.path[:1] == ("new",):
                self.new_config(intent.site, intent.path[1], intent.path[2], self.literal(intent.value))
            case "set":
                self.set(intent, argument)
            case "drop":
                self.drop(argument, intent.path)
            case "rename":
                self.rename(self.inner(argument, intent.path), str(intent.value))
            case "move":
                self.move(intent, argument)
            case "import":
                self.move_import(intent.site, intent.name, str(intent.value))
            case "class":
                self.reclass(intent.site, str(intent.value))

    def inner(self, argument: Argument | None, path: tuple[str, ...]) -> Argument:
        """The argument itself, or the entry of it that a path leads to."""
        for key in path:
            if argument is None or not isinstance(argument.value, Known) or not isinstance(argument.value.value, Table):
                raise CannotEdit("the mapping is not written out here")
            argument = argument.value.value.entries.get(key)
        if argument is None:
            raise CannotEdit("the value is not written here")
        return argument

    def set(self, intent: Intent, argument: Argument | None) -> None:
        if not intent.path:
            if argument is not None:
                self.set_value(argument, self.literal(intent.value))
            else:
                self.add(self.call(intent.site), intent.name, self.literal(intent.value))
            return
        key = intent.path[0]
        if argument is None:
            self.add_nested(intent.site, intent.name, key, self.literal(intent.value))
            return
        table = argument.value.value if isinstance(argument.value, Known) else None
        if isinstance(table, Table) and key in table.entries:
            self.set_value(table.entries[key], self.literal(intent.value))
        elif isinstance(table, Table) and table.span is not None:
            start, end = self.at(table.span)
            node = self.by_span.get((start, end, cst.Dict)) or self.by_span.get((start, end, cst.Call))
            if node is None:
                raise CannotEdit("the mapping is not written out here")
            self.add(node, key, self.literal(intent.value))
        elif table is None and isinstance(argument.value, Known):
            self.set_value(argument, self.literal({key: intent.value}))
        else:
            raise CannotEdit(f"{intent.name} is not written out here")

    def add_nested(self, site: Site, name: str, key: str, value: str) -> None:
        """A mapping argument that is not there yet; several keys of it become one literal."""
        changes = self.changed(self.call(site))
        before = changes.added.get(name)
        entry = f"{self.quote}{key}{self.quote}: {value}"
        changes.added[name] = f"{{{entry}}}" if before is None else f"{before[:-1]}, {entry}}}"

    def set_value(self, argument: Argument, value: str) -> None:
        """The last writer owns the value: the binding of a name bound once, else the argument; never one that other names share."""
        for place in (argument.place.binding, argument.place.value):
            if place is not None and not self.shared(*self.at(place)):
                self.replace(*self.at(place), value)
                return
        raise CannotEdit(_SHARED)

    def shared(self, start: int, end: int) -> bool:
        """Whether it is the value of `a = b = value`: to change it would change what the other name stands for too."""
        return any(
            isinstance(n, cst.Assign) and len(n.targets) > 1 and self.range(n.value) == (start, end) for n in self.spans
        )

    def add(self, node: cst.CSTNode, name: str, value: str) -> None:
        changes = self.changed(node)
        if changes.added.get(name, value) != value:
            raise CannotEdit(f"two fixes want different values for {name}")
        changes.added[name] = value

    def element(self, argument: Argument) -> tuple[cst.CSTNode, int]:
        """The call or dict that holds an argument, and its index there."""
        start, end = self.at(argument.place.whole)
        for holder in self.by_span.values():
            if isinstance(holder, cst.Call):
                for index, arg in enumerate(holder.args):
                    if self.range(arg) == (start, end):
                        return holder, index
            elif isinstance(holder, cst.Dict):
                for index, item in enumerate(holder.elements):
                    if isinstance(item, cst.DictElement) and (self.range(item.key)[0], self.range(item.value)[1]) == (
                        start,
                        end,
                    ):
                        return holder, index
        raise CannotEdit(f"{argument.name} is not an element of a call or mapping here")

    def drop(self, argument: Argument | None, path: tuple[str, ...]) -> None:
        if (
            path
            and argument is not None
            and isinstance(argument.value, Known)
            and isinstance(argument.value.value, Table)
        ):
            table = argument.value.value
            if set(table.entries) == set(path) and table.open is None:
                self.drop(argument, ())  # nothing would be left of the mapping
                return
        target = self.inner(argument, path)
        if target.place.kind == "assignment":
            self.drop_statement(target)
            return
        node, index = self.element(target)
        self.changed(node).removed.add(index)

    def drop_statement(self, argument: Argument) -> None:
        """An assignment of its own disappears with its line; the only statement of a block becomes `pass`."""
        if self.shared(*self.at(argument.place.value)):
            raise CannotEdit(_SHARED)
        start, end = self.at(argument.place.whole)
        for block, node in lines(self.tree):  # noqa: B007  the block is asked below
            if len(node.body) == 1 and self.range(node.body[0]) == (start, end):
                break
        else:
            raise CannotEdit("the assignment shares its line")
        alone = isinstance(block, cst.IndentedBlock) and len(block.body) == 1  # a block must not become empty
        if alone or node.trailing_whitespace.comment is not None:
            self.replace(start, end, "pass")
            return
        line_start = self.data.rfind(b"\n", 0, start) + 1
        line_end = self.data.find(b"\n", end)
        self.replace(line_start, line_end + 1 if line_end >= 0 else len(self.data), "")

    def rename(self, argument: Argument, new: str) -> None:
        place = argument.place
        start, end = self.at(place.whole)
        if place.kind == "keyword":
            node = self.by_span.get((start, end, cst.Arg))
            if not isinstance(node, cst.Arg) or node.keyword is None:
                raise CannotEdit(f"{argument.name} is not a keyword here")
            self.replace(*self.range(node.keyword), new)
            return
        if place.kind == "entry":
            _holder, index = self.element(argument)
            assert isinstance(_holder, cst.Dict)
            item = _holder.elements[index]
            if not isinstance(item, cst.DictElement) or not isinstance(item.key, cst.SimpleString):
                raise CannotEdit(f"the key {argument.name!r} is not written out here")
            self.replace(*self.range(item.key), f"{item.key.prefix}{item.key.quote}{new}{item.key.quote}")
            return
        statement = self.by_span.get((start, end, cst.Assign))
        targets = [t.target for t in statement.targets] if isinstance(statement, cst.Assign) else []
        target = targets[0] if len(targets) == 1 else None
        if isinstance(target, cst.Attribute):
            self.replace(*self.range(target.attr), new)
            return
        raise CannotEdit(f"{argument.name} cannot be renamed where it is written")

    def move(self, intent: Intent, argument: Argument | None) -> None:
        if argument is None:
            raise CannotEdit(f"{intent.name} is not written here")
        start, end = self.at(argument.place.value)
        value = self.data[start:end].decode()
        if "\n" in value:
            raise CannotEdit(f"the value of {intent.name} spans several lines: move it by hand")
        node, index = self.element(argument)
        if intent.to is None:
            self.new_config(intent.site, intent.path[1], str(intent.value), value)
        else:
            self.reachable(argument, intent.to)
            if str(intent.value) in intent.to.arguments:
                raise CannotEdit(f"{intent.to.name} already has {intent.value}")
            self.add(self.call(intent.to), str(intent.value), value)
        self.changed(node).removed.add(index)

    def reachable(self, argument: Argument, config: Site) -> None:
        """Raises unless every name in the value means the same where the config is built: bound before, not a local elsewhere."""
        start, end = self.at(argument.place.value)
        node = next(n for n in self.spans if isinstance(n, cst.BaseExpression) and self.range(n) == (start, end))
        names = _names(node)
        if not names:
            return
        limit = self.at(config.span)[0]
        for name in names:
            bound = [o for o, n in self._bindings() if n == name]
            if not bound or any(offset > limit for offset in bound):
                raise CannotEdit(
                    f"`{name}` is not yet, or something else, where {config.name} is built: move it by hand"
                )

    def _bindings(self) -> Iterable[tuple[int, str]]:
        for node in self.spans:
            if isinstance(node, cst.Assign):
                for target in node.targets:
                    if isinstance(target.target, cst.Name):
                        yield self.range(node)[0], target.target.value
            elif isinstance(node, cst.ImportAlias):
                name = node.asname.name if node.asname is not None else node.name
                if isinstance(name, cst.Name):
                    yield self.range(node)[0], name.value
            elif isinstance(node, (cst.FunctionDef, cst.ClassDef)):
                yield self.range(node)[0], node.name.value

    def new_config(self, trainer: Site, config: str, name: str, value: str) -> None:
        _site, _config, fields = self.new_configs.setdefault(id(trainer), (trainer, config, {}))
        if fields.get(name, value) != value:
            raise CannotEdit(f"two fixes want different values for {name}")
        fields[name] = value

    def reclass(self, site: Site, new: str) -> None:
        call = self.call(site)
        self.replace(*self.range(call.func), new)
        self.imports.setdefault("trl", set()).add(new)
        old = site.name
        uses = sum(1 for n in self.spans if isinstance(n, cst.Name) and n.value == old)
        if isinstance(call.func, cst.Name) and uses == 2:  # the import and this call: nothing else needs it
            for node in self.spans:
                if isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
                    for index, alias in enumerate(node.names):
                        if isinstance(alias.name, cst.Name) and alias.name.value == old and alias.asname is None:
                            self.leave(node, index)

    def leave(self, node: cst.ImportFrom, index: int) -> None:
        self.changed(node).removed.add(index)

    def move_import(self, site: Site, name: str, module: str) -> None:
        start, end = self.at(site.span)
        for node in self.spans:
            if not isinstance(node, cst.ImportFrom) or isinstance(node.names, cst.ImportStar):
                continue
            for index, alias in enumerate(node.names):
                if self.range(alias) == (start, end):
                    self.leave(node, index)
                    self.leaving.setdefault(module, []).append((node, alias))
                    return
        raise CannotEdit(f"the import of {name} is not where it was")

    # text ----------------------------------------------------------------------------------------------------------------

    def literal(self, value: object) -> str:
        match value:
            case Source():
                return value.text
            case str():
                body = repr(value)[1:-1] if "'" not in value and '"' not in value else None
                return f"{self.quote}{body}{self.quote}" if body is not None else repr(value)
            case dict():
                return "{" + ", ".join(f"{self.literal(k)}: {self.literal(v)}" for k, v in value.items()) + "}"
            case list() | tuple():
                return "[" + ", ".join(self.literal(v) for v in value) + "]"
        return repr(value)

    def result(self, width: int) -> str:
        edits: list[tuple[int, int, str]] = [(start, end, new) for (start, end), new in self.direct.items()]
        for trainer, config, fields in self.new_configs.values():
            inner = ", ".join(
                [f"output_dir={self.quote}tmp_trainer{self.quote}", *(f"{n}={v}" for n, v in fields.items())]
            )
            self.add(self.call(trainer), "args", f"{config}({inner})")
            self.imports.setdefault("trl", set()).add(config)
        edits += self.import_edits()
        for changes in self.changes.values():
            edits += self.element_edits(changes)
        return self.apply(edits, width)

    def apply(self, edits: list[tuple[int, int, str]], width: int) -> str:
        edits = _joined_removals(sorted(set(edits)))
        for (_, end, _), (start, _, _) in itertools.pairwise(edits):
            if start < end:
                raise CannotEdit(f"edits overlap at line {self.line(start)}")
        out: list[bytes] = []
        touched: list[tuple[int, int]] = []
        position = length = 0
        for start, end, new in edits:
            kept, fresh = self.data[position:start], new.encode()
            out += [kept, fresh]
            length += len(kept)
            touched.append((length, length + len(fresh)))
            length += len(fresh)
            position = end
        out.append(self.data[position:])
        code = b"".join(out).decode()
        if not edits:
            return code
        # A file that was not formatted to this width before has no layout to keep.
        fits = all(columns(line) <= width for line in self.text.code.splitlines())
        return relaid(code, touched, width, self.newline) if fits or self._local(code, touched, width) else code

    def _local(self, code: str, touched: list[tuple[int, int]], width: int) -> bool:
        """Whether the lines that were edited had kept to the width before."""
        lines = self.text.code.splitlines()
        numbers = [self.line(start) for start, _end, _new in sorted(self.direct_ranges())]
        return all(columns(lines[n - 1]) <= width for n in numbers if n <= len(lines))

    def direct_ranges(self) -> list[tuple[int, int, str]]:
        ranges = [(s, e, "") for s, e in self.direct]
        return ranges + [(*self.range(c.node), "") for c in self.changes.values()]

    def element_edits(self, changes: _Changes) -> list[tuple[int, int, str]]:
        node = changes.node
        elements = _elements(node)
        ranges = [self.element_range(e) for e in elements]
        commas = [self.comma_after(elements, i, ranges) for i in range(len(elements))]
        if (
            changes.removed
            and len(changes.removed) == len(elements)
            and not changes.added
            and isinstance(node, cst.ImportFrom)
        ):
            return self.whole_line(node)
        edits: list[tuple[int, int, str]] = []
        kept = [i for i in range(len(elements)) if i not in changes.removed]
        for index in sorted(changes.removed):
            edits.append(self.removal(index, ranges, commas, kept))
        if changes.added:
            edits += self.additions(node, elements, ranges, commas, kept, changes.added)
        return edits

    def element_range(self, element: cst.CSTNode) -> tuple[int, int]:
        if isinstance(element, cst.DictElement):
            return self.range(element.key)[0], self.range(element.value)[1]
        start, end = self.range(element)
        return start, end

    def comma_after(self, elements: Sequence[cst.CSTNode], index: int, ranges: list[tuple[int, int]]) -> int | None:
        """The offset of the comma behind an element."""
        if isinstance(getattr(elements[index], "comma", None), cst.Comma):
            end = ranges[index][1]
            while self.data[end : end + 1] == b")" and isinstance(elements[index], cst.DictElement):
                end += 1
            found = self.data.find(b",", end)
            return found if found >= 0 else None
        return None

    def removal(
        self, index: int, ranges: list[tuple[int, int]], commas: list[int | None], kept: list[int]
    ) -> tuple[int, int, str]:
        start, end = ranges[index]
        comma = commas[index]
        after = comma + 1 if comma is not None else end
        line_start = self.data.rfind(b"\n", 0, start) + 1
        line_end = self.data.find(b"\n", after)
        line_end = len(self.data) if line_end < 0 else line_end
        rest = self.data[after:line_end].strip()
        alone = not self.data[line_start:start].strip() and (not rest or rest.startswith(b"#"))
        if alone and rest.startswith(b"#"):
            return start, self.data.index(b"#", after), ""  # its comment stays, on a line of its own
        if alone:
            return line_start, line_end + 1, ""
        if index + 1 < len(ranges):
            following = ranges[index + 1][0]
            return (start, following, "") if b"#" not in self.data[after:following] else (start, after, "")
        previous = max((i for i in kept if i < index), default=None)
        if previous is None:
            return start, after, ""
        # The comma behind the last element that stays goes too: an import without brackets may not end in one.
        return ranges[previous][1], end, ""

    def additions(
        self,
        node: cst.CSTNode,
        elements: Sequence[cst.CSTNode],
        ranges: list[tuple[int, int]],
        commas: list[int | None],
        kept: list[int],
        added: dict[str, str],
    ) -> list[tuple[int, int, str]]:
        texts = [self.spelled(node, name, value) for name, value in added.items()]
        anchor = max((i for i in kept if not _is_splat(elements[i])), default=None)
        if anchor is None:
            anchor = kept[-1] if kept else None
        if anchor is None:
            inside = self.opening(node)
            return [(inside, inside, ", ".join(texts))]
        start, end = ranges[anchor]
        comma = commas[anchor]
        line_start = self.data.rfind(b"\n", 0, start) + 1
        indent = self.data[line_start:start].decode()
        own_line = not indent.strip() and self.line(start) > self.line(self.range(node)[0])
        after = comma + 1 if comma is not None else end
        line_end = self.data.find(b"\n", after)
        rest = self.data[after:line_end].strip()
        if own_line and (not rest or rest.startswith(b"#")) and (comma is not None or anchor == len(elements) - 1):
            ends_with_comma = comma is not None
            lines = [f"{indent}{text}," for text in texts]
            if not ends_with_comma:
                lines[-1] = lines[-1][:-1]
                if self._one_line_of_arguments(ranges, start, end) and len(ranges) > 1:
                    return [(end, end, "".join(f", {t}" for t in texts))]
            block = "".join(f"{line}{self.newline}" for line in lines)
            edits = [(line_end + 1, line_end + 1, block)]
            return edits if ends_with_comma else [(end, end, ","), *edits]
        if own_line and anchor == len(elements) - 1 and comma is None and self._one_a_line(ranges):
            # The closing bracket stands behind the last one.
            return [(end, end, "".join(f",{self.newline}{indent}{text}" for text in texts))]
        return [(end, end, "".join(f", {t}" for t in texts))]

    def _one_line_of_arguments(self, ranges: list[tuple[int, int]], start: int, end: int) -> bool:
        """Whether the last line holds several arguments: then one more joins them."""
        return sum(1 for s, e in ranges if self.line(s) == self.line(start)) > 1

    def _one_a_line(self, ranges: list[tuple[int, int]]) -> bool:
        """Whether each element begins a line, but for the first, which may stand behind the opening bracket."""
        before = [self.data[self.data.rfind(b"\n", 0, start) + 1 : start] for start, _ in ranges]
        return len(ranges) > 1 and not any(text.strip() for text in before[1:])

    def spelled(self, node: cst.CSTNode, name: str, value: str) -> str:
        if isinstance(node, cst.Dict):
            return f"{self.quote}{name}{self.quote}: {value}"
        if isinstance(node, cst.ImportFrom):
            return name
        return f"{name}={value}"

    def opening(self, node: cst.CSTNode) -> int:
        """The offset just inside an empty bracket."""
        start, _end = self.range(node)
        if isinstance(node, cst.Call):
            return self.data.index(b"(", self.range(node.func)[1]) + 1
        return start + 1

    def whole_line(self, node: cst.CSTNode) -> list[tuple[int, int, str]]:
        start, end = self.range(node)
        line_start = self.data.rfind(b"\n", 0, start) + 1
        line_end = self.data.find(b"\n", end)
        line_end = len(self.data) if line_end < 0 else line_end
        if self.data[line_start:start].strip() or self.data[end:line_end].strip():
            raise CannotEdit("the import shares its line")
        return [(line_start, line_end + 1, "")]

    # imports -------------------------------------------------------------------------------------------------------------

    def import_edits(self) -> list[tuple[int, int, str]]:
        edits: list[tuple[int, int, str]] = []
        for module, aliases in self.leaving.items():
            statements: dict[int, list[tuple[cst.ImportFrom, cst.ImportAlias]]] = {}
            for statement, alias in aliases:
                statements.setdefault(id(statement), []).append((statement, alias))
            for group in statements.values():
                edits += self.moved(group[0][0], [alias for _s, alias in group], module)
        for module, names in self.imports.items():
            edits += self.needed(module, sorted(names))
        return edits

    def moved(
        self, statement: cst.ImportFrom, aliases: list[cst.ImportAlias], module: str
    ) -> list[tuple[int, int, str]]:
        """Names leave for another module: the whole statement if all do, else a statement of their own behind it."""
        assert not isinstance(statement.names, cst.ImportStar)
        start, end = self.range(statement)
        if len(aliases) == len(statement.names) and statement.module is not None:
            self.changes.pop(id(statement), None)
            return [(*self.range(statement.module), module)]
        line_start = self.data.rfind(b"\n", 0, start) + 1
        indent = self.data[line_start:start].decode()
        if indent.strip():
            raise CannotEdit("the import shares its line")
        names = ", ".join(self.data[slice(*self.range(a))].decode() for a in aliases)
        line_end = self.data.find(b"\n", end)
        line = f"{indent}from {module} import {names}{self.newline}"
        if line_end < 0:
            return [(len(self.data), len(self.data), self.newline + line)]
        return [(line_end + 1, line_end + 1, line)]

    def needed(self, module: str, names: list[str]) -> list[tuple[int, int, str]]:
        """Names that must be importable: added to the module's first import of its kind, else a new line behind the imports."""
        candidates = [
            n for line in _top_lines(self.tree) for n in line.body
            if isinstance(n, cst.ImportFrom) and not n.relative and not isinstance(n.names, cst.ImportStar) and n.module is not None
            and self.data[slice(*self.range(n.module))].decode() == module
        ]  # fmt: skip
        present = {a.name.value for n in candidates for a in n.names if isinstance(a.name, cst.Name)}  # type: ignore[union-attr]
        missing = [n for n in names if n not in present]
        if not missing:
            return []
        if candidates:
            statement = candidates[0]
            aliases = [a for a in statement.names if isinstance(a, cst.ImportAlias)]  # type: ignore[union-attr]
            edits: list[tuple[int, int, str]] = []
            for name in missing:
                before = next((a for a in aliases if isinstance(a.name, cst.Name) and a.name.value > name), None)
                if before is not None:
                    at = self.range(before)[0]
                    indent = self.data[self.data.rfind(b"\n", 0, at) + 1 : at].decode()
                    gap = ", " if indent.strip() else f",{self.newline}{indent}"
                    edits.append((at, at, f"{name}{gap}"))
                else:
                    self.changed(statement).added[name] = ""
            return edits
        imports = [
            line
            for line in _top_lines(self.tree)
            if any(isinstance(n, (cst.Import, cst.ImportFrom)) for n in line.body)
        ]
        if not imports:
            raise CannotEdit("there is no import to put another one beside")
        end = self.range(imports[-1].body[-1])[1]
        line_end = self.data.find(b"\n", end)
        return [(line_end + 1, line_end + 1, f"from {module} import {', '.join(missing)}{self.newline}")]


def _elements(node: cst.CSTNode) -> Sequence[cst.CSTNode]:
    match node:
        case cst.Call():
            return node.args
        case cst.Dict():
            return node.elements
        case cst.ImportFrom() if not isinstance(node.names, cst.ImportStar):
            return node.names
    raise CannotEdit("nothing can be added or removed here")


def _is_splat(element: cst.CSTNode) -> bool:
    return isinstance(element, cst.Arg) and element.star == "**"


def _joined_removals(edits: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Removals that meet or overlap are one removal."""
    out: list[tuple[int, int, str]] = []
    for edit_ in edits:
        if out and not edit_[2] and not out[-1][2] and edit_[0] <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], edit_[1]), "")
        else:
            out.append(edit_)
    return out


def _top_lines(tree: cst.Module) -> list[cst.SimpleStatementLine]:
    return [n for n in tree.body if isinstance(n, cst.SimpleStatementLine)]


def _names(node: cst.CSTNode) -> set[str]:
    """The names that an expression reads; None, True and False are no names."""
    if isinstance(node, cst.Name):
        return {node.value} - {"None", "True", "False"}
    if isinstance(node, cst.Attribute):
        return _names(node.value)
    if isinstance(node, cst.Arg):
        return _names(node.value)
    return {name for child in node.children for name in _names(child)}
