"""An edit changes only the bytes that must change: call shapes x line ends x encodings, held against a formatter."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize

import pytest

from trl_lint.model import Intent, Site
from trl_lint.sources.python import read
from trl_lint.sources.python_edits import edit
from trl_lint.sources.text import Text

# Every shape is what a formatter leaves alone, and holds one call of SFTConfig with `fp16=True`.
SHAPES = {
    "one line": "args = SFTConfig(output_dir='o', fp16=True)\n",
    "one line, no other argument": "args = SFTConfig(fp16=True)\n",
    "one line, nearly full": "training_arguments = SFTConfig(output_dir='a/rather/long/output/folder', fp16=True)\n",
    "hugged": "training_arguments = SFTConfig(\n    output_dir='a/rather/long/output/folder/for/this', seed=42, fp16=True\n)\n",
    "one argument a line": "args = SFTConfig(\n    output_dir='o',\n    fp16=True,\n    seed=1,\n)\n",
    "last argument": "args = SFTConfig(\n    output_dir='o',\n    fp16=True,\n)\n",
    "comments": "args = SFTConfig(  # the run\n    output_dir='o',  # where\n    fp16=True,  # fast\n    # the end\n)\n",
    "comment lines between": "args = SFTConfig(\n    # first\n    output_dir='o',\n    # then\n    fp16=True,\n    # last\n    seed=1,\n)\n",
    "nested on one line": "trainer = SFTTrainer(model='m', args=SFTConfig(output_dir='o', fp16=True))\n",
    "nested, one argument a line": "trainer = SFTTrainer(\n    model='m',\n    args=SFTConfig(\n        output_dir='o',\n        fp16=True,\n    ),\n)\n",
    "in a function": "def main():\n    args = SFTConfig(output_dir='o', fp16=True)\n    return args\n",
    "splatted": "extra = {'seed': 1}\nargs = SFTConfig(\n    output_dir='o',\n    fp16=True,\n    **extra,\n)\n",
    "mapping": "kwargs = {\n    'output_dir': 'o',\n    'fp16': True,\n}\nargs = SFTConfig(**kwargs)\n",
    "assigned later": "args = SFTConfig(output_dir='o')\nargs.fp16 = True\nprint(args)\n",
    "bound name": "FP16 = True\nargs = SFTConfig(output_dir='o', fp16=FP16)\n",
    "wide characters before it": "args = SFTConfig(output_dir='模型/🚀/é', fp16=True)\n",
}  # fmt: skip
HEADS = {"plain": "", "emoji above": "# 🚀 训练\n"}
ENDS = {"lf": "\n", "crlf": "\r\n"}
ENCODINGS = {"utf-8": ("", "utf-8"), "bom": ("", "utf-8-sig"), "cookie": ("# -*- coding: latin-1 -*-\n", "latin-1")}
INDENTS = {"spaces": "    ", "tabs": "\t"}


def source(shape: str, head: str, newline: str, encoding: str, indent: str) -> bytes:
    cookie, codec = ENCODINGS[encoding]
    body = SHAPES[shape].replace("'", '"').replace("    ", INDENTS[indent])
    text = f"{cookie}{HEADS[head]}from trl import SFTConfig, SFTTrainer\n\n{body}"
    if "def main" in body:
        text = text.replace("\n\ndef", "\n\n\ndef")
    return text.replace("\n", ENDS[newline]).encode(codec, "replace" if codec == "latin-1" else "strict")


def config(text: Text) -> Site:
    return next(s for s in read(text).sites if s.kind == "config")


def changed(data: bytes, *wants: tuple[str, str, object]) -> bytes:
    text = Text("train.py", data)
    site = config(text)
    code = edit(text, [Intent(op, site, name, value) for op, name, value in wants])  # type: ignore[arg-type]
    return (b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b"") + code.encode(text.encoding)


def formatted(data: bytes) -> bool:
    """Whether ruff would leave the file as it is."""
    style = "tab" if b"\t" in data else "space"
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--check",
        "--isolated",
        "--config",
        f"format.indent-style='{style}'",
        "--stdin-filename",
        "t.py",
        "-",
    ]
    return subprocess.run(command, input=data, capture_output=True, check=False).returncode == 0


def comments(data: bytes) -> list[str]:
    return sorted(t.string for t in tokenize.tokenize(io.BytesIO(data).readline) if t.type == tokenize.COMMENT)


def arguments(data: bytes) -> dict[str, str]:
    """The config's values as the reader sees them."""
    return {name: repr(getattr(a.value, "value", None)) for name, a in config(Text("train.py", data)).arguments.items()}


WANTS: dict[str, list[tuple[str, str, object]]] = {
    "set": [("set", "fp16", False)],
    "add": [("set", "bf16", True)],
    "add two": [("set", "bf16", True), ("set", "max_length", 2048)],
    "drop": [("drop", "fp16", None)],
    "rename": [("rename", "fp16", "bf16")],
    "drop and add": [
        ("drop", "fp16", None),
        ("set", "attn_implementation_of_the_model", "kernels-community/flash-attn2"),
    ],
}
EXPECTED = {
    "set": {"fp16": "False"},
    "add": {"bf16": "True"},
    "add two": {"bf16": "True", "max_length": "2048"},
    "rename": {"bf16": "True"},
}
GONE = {"drop": "fp16", "rename": "fp16", "drop and add": "fp16"}


@pytest.mark.parametrize("want", WANTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("newline", ENDS)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("indent", INDENTS)
def test_only_what_was_meant_changes(shape: str, newline: str, encoding: str, indent: str, want: str) -> None:
    before = source(shape, "plain" if encoding == "cookie" else "emoji above", newline, encoding, indent)
    after = changed(before, *WANTS[want])
    ast.parse(after)
    was, now = arguments(before), arguments(after)
    for name, value in EXPECTED.get(want, {}).items():
        assert now.pop(name) == value
        was.pop(name, None)
    was.pop(GONE.get(want, ""), None)
    now.pop("attn_implementation_of_the_model", None)
    assert now == was
    assert comments(after) == comments(before)
    assert after.startswith(b"\xef\xbb\xbf") == before.startswith(b"\xef\xbb\xbf")
    if newline == "crlf":
        assert after.count(b"\n") == after.count(b"\r\n")


@pytest.mark.parametrize("want", WANTS)
@pytest.mark.parametrize("indent", INDENTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_formatted_file_stays_formatted(shape: str, indent: str, want: str) -> None:
    before = source(shape, "emoji above", "lf", "utf-8", indent)
    if not formatted(before):
        pytest.fail(f"the shape itself is not formatted: {shape}")
    after = changed(before, *WANTS[want])
    assert formatted(after), after.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SFTConfig(output_dir='o',\n          seed=1)", "SFTConfig(output_dir='o',\n          seed=1,\n          bf16=True)"),
        ("SFTConfig(\n    output_dir='o',\n    seed=1)", "SFTConfig(\n    output_dir='o',\n    seed=1,\n    bf16=True)"),
        ("SFTConfig(output_dir='o', seed=1,\n          lr=1)", "SFTConfig(output_dir='o', seed=1,\n          lr=1, bf16=True)"),
    ],
    ids=["aligned", "indented", "several a line"],
)  # fmt: skip
def test_what_stands_one_a_line_does_so_before_a_bracket_that_hugs_it(before: str, after: str) -> None:
    head = "from trl import SFTConfig\n\nargs = "
    assert changed(f"{head}{before}\n".encode(), ("set", "bf16", True)).decode() == f"{head}{after}\n"
