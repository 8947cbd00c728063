"""An assignment or declaration in; what the variable holds from then on out, and put into the state."""

from __future__ import annotations

from collections.abc import Sequence

from tree_sitter import Node

from trl_lint.sources.shell_parts import flat
from trl_lint.sources.shell_state import State
from trl_lint.sources.shell_syntax import is_plain, source_of, word_groups
from trl_lint.sources.shell_values import LIMIT, Field, Variable, contiguous, joined, limited, unknown
from trl_lint.sources.shell_words import Words


class Assignments:
    """Makes the assignments of a script."""

    def __init__(self, state: State, words: Words) -> None:
        self.state = state
        self.words = words

    def assign(self, node: Node) -> None:
        name, variable = self.assigned(node, self.state.at(node)[0])
        if name:
            self.state.set(name, variable._replace(exported=variable.exported or self.state.allexport))

    def assignments(self, node: Node) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assign(child)

    def declaration(self, node: Node) -> None:
        """`export`, `declare`, `local`, `readonly`: assignments, and what they say of the names."""
        keyword = node.children[0].type
        options = "".join(source_of(child) for child in node.children[1:] if source_of(child).startswith("-"))
        exports = keyword == "export" or (keyword in ("declare", "typeset") and "x" in options)
        container = self.state.at(node)[0]
        for child, *more in word_groups(node.children):
            if child.type == "variable_assignment":
                name, variable = self.assigned(child, container, more)
                if exports and "n" not in options:
                    variable = variable._replace(exported=True, sometimes=False)
                if name:
                    self.localise(keyword, name)
                    self.state.set(name, variable)
            elif child.type == "variable_name":
                name = source_of(child)
                old = self.state.variables.get(name)
                self.localise(keyword, name)
                if exports and old is not None:
                    self.state.set(name, old._replace(exported="n" not in options, sometimes=False))

    def localise(self, keyword: str, name: str) -> None:
        if self.state.function is not None and keyword in ("local", "declare", "typeset"):
            self.state.locals.add(name)

    def unset(self, node: Node) -> None:
        for child in node.named_children:
            if child.type in ("variable_name", "word") and not source_of(child).startswith("-"):
                self.state.set(source_of(child), None)

    def assigned(self, node: Node, container: int, more: Sequence[Node] = ()) -> tuple[str, Variable]:
        """The name and the new value of an assignment that is not made yet; `more` are nodes that belong to its value."""
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        values = [value, *more] if value is not None else list(more)
        whole = self.state.range(node.start_byte, values[-1].end_byte if more else node.end_byte)
        at = self.state.range(self.state.begin(values[0]), values[-1].end_byte) if values else (whole[1], whole[1])
        if target is None:
            return "", Variable((), None, whole, at, container)
        name = source_of(target).split("[")[0]
        old = self.state.variables.get(name)
        exported = old is not None and old.exported
        fresh = Variable((), None, whole, at, container, exported=exported)
        if target.type == "subscript":
            why = f"${name} is filled item by item"
            return name, fresh._replace(chunks=(unknown(why, *at),), whole=whole)
        appends = any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array":
            groups = word_groups([c for c in value.children if c.is_named or c.type == "$"])
            items = tuple(field for group in groups for field in self.words.fields(*group))
            if self.state.counts.resets.get(name, 0) > 1:
                items = tuple(item._replace(plain=False) for item in items)
            if appends and old is not None and old.items is not None:
                items = old.items + items
            elif appends and old is not None:
                items = (Field(old.chunks, *old.at, plain=False), *items)
            if len(items) > LIMIT:
                items = (Field((unknown(f"${name} is put together from too many parts", *at),), *at, False, many=True),)
            return name, fresh._replace(items=items)
        parts = self.words.joint(values, assignment=True) if values else []
        chunks = tuple(flat(parts))
        if self.state.counts.resets.get(name, 0) > 1:
            chunks = tuple(chunk._replace(own=False) for chunk in chunks)
        literal = None
        if self.state.counts.writes.get(name) == 1 and len(values) == 1 and not appends and is_plain(values[0]):
            literal = at if joined(chunks) is not None and not self.state.quoted and contiguous(chunks) else None
        repeats = self.words.repeated(*values) if values and not appends else None
        if appends:
            if old is None:
                chunks = (unknown(f"${name} is not set in this file", *at), *chunks)
            elif old.items is not None:
                chunks = (unknown(f"${name} is an array", *at),)
            else:
                chunks = (*old.chunks, *chunks)
        chunks = limited(tuple(chunk for chunk in chunks if chunk.text != ""), name)
        return name, fresh._replace(chunks=chunks, literal=literal, repeats=repeats)
