"""Shell text in; its syntax tree out, and what the shape of a node says without running anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from trl_lint.sources.module import Unparsable

OPENINGS = re.compile(rb"([({])|[)}]")

QUOTED = {
    "string", "raw_string", "ansi_c_string", "translated_string", "simple_expansion", "expansion",
    "command_substitution", "process_substitution", "arithmetic_expansion", "concatenation", "brace_expression",
}  # fmt: skip
JOINED = {"concatenation", "command_name"}
WORDS = {"command_name", "word", "number", "variable_assignment", "variable_name", "$", "regex", "extglob_pattern"}


@cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


@cache
def _query(pattern: str) -> Query:
    return Query(_language(), pattern)


def captured(pattern: str, node: Node) -> list[Node]:
    found = QueryCursor(_query(pattern)).captures(node).get("n", [])
    return sorted(found, key=lambda n: n.start_byte)


def parsed(data: bytes) -> Node:
    if data.count(b"<<") > 1000:  # the grammar looks for the end of each heredoc to the end of the file
        raise Unparsable("line 1: more than a thousand heredocs")
    depth = 0
    for found in OPENINGS.finditer(data):
        depth = max(0, depth + (1 if found[1] is not None else -1))
        if depth > 2000:  # queries take the square of it
            line = data.count(b"\n", 0, found.start()) + 1
            raise Unparsable(f"line {line}: it is nested too deeply")
    return Parser(_language()).parse(data).root_node


def source_of(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def short(text: str) -> str:
    text = " ".join(text.split()).replace("`", "'")
    return text if len(text) <= 50 else text[:47] + "…"


def shape_of(nodes: Sequence[Node]) -> str:
    """The unquoted text of a word."""
    return "".join("Q" if node.type in QUOTED else source_of(node) for node in nodes)


def word_groups(nodes: Sequence[Node]) -> list[list[Node]]:
    """The nodes of a command, those that touch together."""
    groups: list[list[Node]] = []
    for node in nodes:
        if groups and groups[-1][-1].end_byte == node.start_byte and is_word(groups[-1][-1]) and is_word(node):
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def is_word(node: Node) -> bool:
    return node.type in WORDS or node.type in QUOTED


def is_append(assignment: Node) -> bool:
    """`X+=…`, or `X="$X …"`: what X held stays."""
    name = assignment.child_by_field_name("name")
    if any(child.type == "+=" for child in assignment.children):
        return True
    value = assignment.child_by_field_name("value")
    if name is None or value is None:
        return False
    own = re.escape(source_of(name))
    pattern = r'"?\$(' + own + r"\b|\{" + own + r'\})|\(\s*"?\$\{' + own + r"\[@\]\}"
    return re.match(pattern, source_of(value)) is not None


def is_given(assignment: Node) -> bool:
    """An option that the script's caller gives: `MODEL="$2"`, `MODEL="${1#*=}"`."""
    value = assignment.child_by_field_name("value")
    return value is not None and re.match(r'"?\$(?:\d|OPTARG\b|\{(?:\d|OPTARG\b))', source_of(value)) is not None


def is_plain(value: Node) -> bool:
    if value.type in ("word", "number", "raw_string"):
        return True
    return value.type == "string" and all(child.type in ('"', "string_content") for child in value.children)


def asks_if_unset(test: str, name: str) -> bool:
    return re.search(r'-z\s+"?\$(' + re.escape(name) + r"\b|\{" + re.escape(name) + r"\b)", test) is not None
