"""if, case, loops, `&&` and `||` in; out the state after all the ways that the script may have gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tree_sitter import Node

from trl_lint.sources.shell_state import State
from trl_lint.sources.shell_syntax import (
    asks_if_unset,
    captured,
    is_append,
    is_given,
    is_word,
    source_of,
    word_groups,
)
from trl_lint.sources.shell_values import Field, Variable, likely, merged, unknown
from trl_lint.sources.shell_words import Words


class Flow:
    """Reads every branch once; `run` reads statements, one after the other."""

    def __init__(self, state: State, words: Words, run: Callable[[Sequence[Node]], None]) -> None:
        self.state = state
        self.words = words
        self.run = run

    def if_(self, node: Node) -> None:
        test = node.child_by_field_name("condition")
        bodies: list[list[Node]] = [[]]
        exhaustive = False
        reading = False
        for child in node.children:
            if child.type == "then":
                reading = True
            elif child.type == "elif_clause":
                bodies.append([c for c in child.children if c.type not in ("elif", "then")])
            elif child.type == "else_clause":
                bodies.append([c for c in child.children if c.type != "else"])
                exhaustive = True
            elif reading:
                bodies[-1].append(child)
            elif child.is_named:
                self.run([child])
        self.branches(node, bodies, exhaustive=exhaustive, test=source_of(test) if test else "")

    def case(self, node: Node) -> None:
        items = [child for child in node.named_children if child.type == "case_item"]
        bodies: list[list[Node]] = []
        exhaustive = False
        for item in items:
            values = item.children_by_field_name("value")
            exhaustive = exhaustive or any(source_of(value) == "*" for value in values)
            bodies.append([child for child in item.children if child not in values])
        self.branches(node, bodies, exhaustive=exhaustive)

    def list_(self, node: Node) -> None:
        """`a && b || c`, however long: the right side of `||`, and of `&&` after a test, may not run."""
        steps: list[tuple[str, Node]] = []
        while node.type == "list" and len(node.children) >= 3:
            steps.append((node.children[1].type, node.children[-1]))
            node = node.children[0]
        self.run([node])
        before = node
        for operator, right in reversed(steps):
            if operator == "&&" and before.type != "test_command":
                self.run([right])
            else:
                test = source_of(before) if operator == "&&" else ""
                self.branches(right, [[right]], exhaustive=False, test=test)
            before = right if operator == "&&" else node

    def for_(self, node: Node) -> None:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None:
            return
        name = source_of(variable)
        values = [c for c in node.children if is_word(c) and c != variable and c.end_byte <= body.start_byte]
        fields = [field for group in word_groups(values) for field in self.words.fields(*group)]
        sure = bool(fields) and not any(field.many or field.text is None for field in fields)
        if len(fields) == 1 and sure and node.children[0].type == "for":
            place = (fields[0].start, fields[0].end)
            self.state.set(name, Variable(fields[0].chunks, None, place, place, place[0]))
            self.run(body.children)
            return
        self.loop(node, body, name, runs=sure)

    def while_(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        if body is None:
            return
        for condition in node.children_by_field_name("condition"):
            if condition.is_named:
                self.run([condition])
        self.loop(node, body, None, runs=False)

    def c_for(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        counters = captured("(variable_assignment name: (variable_name) @n)", node)
        if body is not None:
            name = source_of(counters[0]) if counters and counters[0].end_byte < body.start_byte else None
            self.loop(node, body, name, runs=False)

    def loop(self, node: Node, body: Node, name: str | None, *, runs: bool) -> None:
        """The body once, with what an earlier round may have left; what it assigns is unknown but for its beginning."""
        line = self.state.line(node)
        self.state.journals.append({})
        appends: dict[str, bool] = {}
        given: dict[str, bool] = {}
        for assignment in captured("(variable_assignment) @n", body):
            target = assignment.child_by_field_name("name")
            if target is not None:
                key = source_of(target).split("[")[0]
                appends[key] = appends.get(key, True) and is_append(assignment)
                given[key] = given.get(key, True) and is_given(assignment)
        for key, appending in appends.items():
            old = self.state.variables.get(key)
            if old is not None:
                self.state.set(key, _unsettled(key, old, line, appending=appending, given=given[key]))
        if name is not None:
            self.state.forget(name, f"${name} changes in the loop at line {line}", node)
        with self.state.within(conditional=self.state.conditional or not runs, stopped=False):
            self.run(body.children)
        changes = self.state.undone()
        for key in sorted(changes):
            options = [changes[key]] if runs else [self.state.variables.get(key), changes[key]]
            self.state.set(key, merged(key, options, line))

    def branches(self, node: Node, bodies: Sequence[Sequence[Node]], *, exhaustive: bool, test: str = "") -> None:
        """Reads every branch from the same state; afterwards a variable is what all of them agree on."""
        results: list[dict[str, Variable | None]] = []
        for body in bodies:
            self.state.journals.append({})
            with self.state.within(conditional=True, stopped=False):
                self.run(body)
                ended = self.state.stopped
            changes = self.state.undone()
            if not ended:
                results.append(changes)
        if not results and exhaustive:
            self.state.stopped = True
        if not exhaustive:
            results.append({})
        line = self.state.line(node)
        for name in sorted({name for changes in results for name in changes}):
            old = self.state.variables.get(name)
            options = [changes.get(name, old) for changes in results]
            if old is None and len(results) == 2 and asks_if_unset(test, name) and options[0] is not None:
                self.state.set(name, likely(options[0]))
                continue
            self.state.set(name, merged(name, options, line))


def _unsettled(name: str, old: Variable, line: int, *, appending: bool, given: bool) -> Variable:
    """A variable at the beginning of any round of a loop that assigns it."""
    why = f"${name} changes in the loop at line {line}"
    rest = unknown(why, *old.at, apart=appending, caller=given)
    if not appending:
        return old._replace(chunks=(rest,), items=None, literal=None, repeats=None)
    if old.items is not None:
        return old._replace(items=(*old.items, Field((rest,), *old.at, plain=False, many=True)), literal=None)
    return old._replace(chunks=(*old.chunks, rest), literal=None, repeats=None)
