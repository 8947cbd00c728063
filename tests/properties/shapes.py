"""Strategies for scripts and recipes that people might write: the mistakes of the rulebook's examples, in every shape that a
call, a mapping, a file and a command can have."""

from __future__ import annotations

import ast
import itertools
import json
import re
import textwrap
from functools import cache
from typing import NamedTuple

import yaml
from hypothesis import strategies as st

from tests.properties.texts import texts

_FACTS = re.compile(r"# trl-lint: facts [^\n]*")


class Example(NamedTuple):
    """What a page's example gives one config and one trainer; the keywords' values are as they are written."""

    facts: str
    config: str
    trainer: str
    fields: tuple[tuple[str, str], ...]
    keywords: tuple[tuple[str, str], ...]


@cache
def examples() -> tuple[Example, ...]:
    """Of every text that builds one config and one trainer from literals."""
    return tuple(e for text in texts("python") if (e := _example(text)) is not None)


def _example(text: str) -> Example | None:
    found = _FACTS.search(text)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    configs = [c for c in calls if re.fullmatch(r"[A-Z]\w+Config", c.func.id) and c.func.id[:4] not in ("Lora", "Peft")]  # type: ignore[attr-defined]
    trainers = [c for c in calls if re.fullmatch(r"[A-Z]\w+Trainer", c.func.id)]  # type: ignore[attr-defined]
    if found is None or len(configs) != 1 or len(trainers) != 1 or configs[0].args or trainers[0].args:
        return None
    both = [
        tuple((k.arg, ast.unparse(k.value)) for k in call.keywords if k.arg not in (None, "args"))
        for call in (configs[0], trainers[0])
    ]
    names = [c.func.id for c in (configs[0], trainers[0])]  # type: ignore[attr-defined]
    return Example(found[0], *names, *both)  # type: ignore[arg-type]


COMMENTS = ("# why", "# 训练 é 🚀", "#", "# fmt: off", "# a, b) = c", "# trl-lint: ignore", "#'\"")


# Values and layout ---------------------------------------------------------------------------------------------------


@st.composite
def _value(draw: st.DrawFn, text: str, before: list[str], name: str) -> str:
    """The value in other words: bound to a name before, in brackets, as a choice, in a walrus …"""
    match draw(st.sampled_from(("plain",) * 12 + ("bound", "bound", "bound twice", "brackets", "choice", "walrus", "f-string", "joined", "call", "annotated", "chain"))):  # fmt: skip
        case "bound":
            before.append(f"{name.upper()} = {text}")
            return name.upper()
        case "bound twice":
            before += [f"{name}_ = {text}", f"{name}_ = {text}"]
            return f"{name}_"
        case "annotated":
            before.append(f"é_{name}: object = {text}  # bound")
            return f"é_{name}"
        case "chain":
            before += [f"{name}1 = {name}2 = {text}", f"{name}3 = {name}2"]
            return f"{name}3"
        case "brackets":
            return f"(({text}))" if draw(st.booleans()) else f"(\n{text}  # in brackets\n)"
        case "choice":
            return f"{text} if debug else {text}"
        case "walrus":
            return f"({name}_w := {text})"
        case "f-string" if text.startswith(("'", '"')):
            return f'f"{{{text}}}"' if "'" in text else f"f{text}"
        case "joined" if text.startswith("'") and len(text) > 4:
            return f"{text[:3]}' {chr(39)}{text[3:]}"
        case "call":
            return f"(lambda: {text})()"
    return text


@st.composite
def _elements(draw: st.DrawFn, elements: list[str], opening: str, closing: str) -> str:
    """Elements in brackets, laid out in one of many ways; a comment may stand in every gap."""
    style = draw(st.sampled_from(("line", "lines", "lines", "hugged", "ragged", "comma first")))
    trailing = draw(st.booleans())
    if not elements:
        return f"{opening}{closing}"
    if style == "line" and not any("#" in e or "\n" in e for e in elements):
        return f"{opening}{', '.join(elements)}{',' if trailing else ''}{closing}"
    if style == "hugged" and not any("#" in e for e in elements):
        return f"{opening}\n    {', '.join(elements)}{',' if trailing else ''}\n{closing}"
    if style == "comma first":
        return f"{opening}\n    " + "\n    , ".join(elements) + f"\n{closing}"

    def gap() -> str:
        return draw(st.sampled_from(("", "", "", *(f"  {c}" for c in COMMENTS))))

    out = [f"{opening}{gap()}\n"]
    for index, element in enumerate(elements):
        last = index == len(elements) - 1
        if draw(st.integers(0, 5)) == 0:
            out.append(f"    {draw(st.sampled_from(COMMENTS))}\n")
        indent = " " * draw(st.sampled_from((4, 4, 4, 0, 8))) if style == "ragged" else "    "
        comma = "," if not last or trailing else ""
        end = " " if style == "ragged" and not last and draw(st.booleans()) and "#" not in element else f"{gap()}\n"
        out.append(f"{indent}{element}{comma}{end}")
    return "".join(out) + draw(st.sampled_from(("", "", "    # the end\n"))) + closing


# Scripts -------------------------------------------------------------------------------------------------------------


@st.composite
def _config(draw: st.DrawFn, example: Example, before: list[str], after: list[str]) -> str:
    """The call that builds the config, or what stands for it; what must come before and after goes into the lists."""
    fields = draw(st.permutations(example.fields)) if draw(st.booleans()) else list(example.fields)
    values = [(name, draw(_value(text, before, name))) for name, text in fields]
    late = draw(st.integers(0, 3)) == 0
    keywords, assigned, mapped = list[str](), list[tuple[str, str]](), list[tuple[str, str]]()
    for name, text in values:
        choice = draw(st.sampled_from(("keyword",) * 5 + ("late", "mapping")))
        if choice == "late" and late:
            assigned.append((name, text))
        elif choice == "mapping":
            mapped.append((name, text))
        else:
            keywords.append(f"{name}={text}" if draw(st.integers(0, 9)) else f"{name} = {text}")
    if mapped:
        entries = [f'"{name}": {text}' for name, text in mapped]
        match draw(st.sampled_from(("splat", "named", "dict call", "keyed"))):
            case "splat":
                keywords.append("**" + draw(_elements(entries, "{", "}")))
            case "named":
                before.append(f"kwargs = {draw(_elements(entries, '{', '}'))}")
                keywords.append("**kwargs")
            case "dict call":
                before.append("kwargs = " + draw(_elements([f"{n}={t}" for n, t in mapped], "dict(", ")")))
                keywords.append("**kwargs")
            case "keyed":
                before.append("kwargs = {}  # filled below")
                before += [f'kwargs["{name}"] = {text}' for name, text in mapped]
                keywords.append("**kwargs")
    if draw(st.integers(0, 9)) == 0:
        keywords.append("**(extra or {})")
    for name, text in assigned:
        after.append(f"args.{name} = {text}{draw(st.sampled_from(('', '', '  # late', ';')))}")
    return draw(_elements(keywords, f"{example.config}(", ")"))


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """One script: an example's config and trainer, in a shape that is drawn."""
    example = draw(st.sampled_from(examples()))
    before: list[str] = []
    after: list[str] = []
    call = draw(_config(example, before, after))
    given = [f"{name}={text}" for name, text in example.keywords]
    where = draw(st.sampled_from(("name", "name", "annotated", "inline", "function", "typed function")))
    head: list[str] = []
    match where:
        case "inline" if not after:
            lines = [*before, f"trainer = {draw(_elements([*given, f'args={call}'], f'{example.trainer}(', ')'))}"]
        case "function" | "typed function":
            hint = f" -> {example.config}" if where == "typed function" else ""
            body = [*before, f"args = {call}", *after, "return args"]
            decorator = draw(st.sampled_from(("", "@cache\n", "@wraps(main)  # decorated\n")))
            head = [f"{decorator}def made(debug=False, extra=None, *a, **k){hint}:\n" + _deeper("\n".join(body))]
            trainer = draw(_elements([*given, "args=args"], f"{example.trainer}(", ")"))
            lines = ["args = made()", f"trainer = {trainer}"]
        case _:
            hint = f": {example.config}" if where == "annotated" else ""
            trainer = draw(_elements([*given, "args=args"], f"{example.trainer}(", ")"))
            lines = [*before, f"args{hint} = {call}", *after, f"trainer = {trainer}"]
    lines.append(draw(st.sampled_from(("trainer.train()", "trainer.train(); trainer.save_model()"))))
    body = "\n".join(lines)
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2, 9)))):
        opening = draw(st.sampled_from(_OPENINGS))
        body = f"{opening}\n{_deeper(_deeper(body) if 'case' in opening else body)}{_CLOSINGS.get(opening, '')}"
    imported = draw(st.sampled_from(_IMPORTS)).format(config=example.config, trainer=example.trainer)
    parts = [example.facts, "from datasets import load_dataset", imported, "debug, extra = False, None", *head, body]
    gap = draw(st.sampled_from(("\n\n",) * 5 + ("\n\x0c\n",)))
    return draw(_finished(gap.join(parts) + "\n"))


_IMPORTS = (
    "from trl import {config}, {trainer}", "from trl import (\n    {config},  # the config\n    {trainer},\n)",
    "from trl import {config} ; from trl import {trainer}", "from trl import {trainer}, \\\n    {config}", "from trl import *",
    "import os\nfrom trl.trainer import {config}, {trainer}", "try:\n    from trl import {config}, {trainer}\nexcept ImportError:\n    raise",
)  # fmt: skip
_OPENINGS = (
    "if True:", "if debug is not None:  # always", "def main(debug=False):", "async def main():", 'if __name__ == "__main__":',
    "with open(__file__) as é:", "try:", "for _ in range(2):", "class Run:", "match debug:\n    case False:", "else_ = 1\nwhile True:",
)  # fmt: skip
_CLOSINGS = {"try:": "\nexcept (OSError, ValueError) as error:  # what else\n    raise"}


def _deeper(text: str) -> str:
    return textwrap.indent(text, "    ")


@st.composite
def _finished(draw: st.DrawFn, code: str) -> str:
    """The file's tabs, line ends, byte order mark and last line end."""
    if draw(st.integers(0, 5)) == 0:
        code = re.sub("^(?: {4})+", lambda found: "\t" * (len(found[0]) // 4), code, flags=re.M)
    if draw(st.integers(0, 9)) == 0:
        code = code.rstrip("\n")
    # libcst loses a form feed between carriage returns: such a file is skipped in one line.
    newline = draw(st.sampled_from(("\n", "\n", "\r\n", *(() if "\f" in code else ("\r",)))))
    return draw(st.sampled_from(("", "", "\ufeff"))) + code.replace("\n", newline)


# Recipes, notebooks and commands ---------------------------------------------------------------------------------------


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


def _data(example: Example) -> dict[str, object]:
    return {"model_name_or_path": "Qwen/Qwen3-0.6B", **{name: _literal(text) for name, text in example.fields}}


@st.composite
def recipes(draw: st.DrawFn) -> dict[str, str]:
    """A recipe with the script that parses it and the command that starts it."""
    example = draw(st.sampled_from(examples()))
    out: list[str] = []
    for key, value in draw(st.permutations(list(_data(example).items()))):
        if draw(st.integers(0, 3)) == 0:
            out.append(draw(st.sampled_from(COMMENTS)) + "\n")
        flow = draw(st.sampled_from((None, True, False)))
        entry = yaml.safe_dump({key: value}, default_flow_style=flow, width=1000, allow_unicode=draw(st.booleans()))
        if flow and draw(st.booleans()):
            entry = f"{json.dumps(key)}: {json.dumps(value, default=str)}\n"
        elif entry.startswith("{"):
            entry = entry.strip()[1:-1] + "\n"
        if "\n" not in entry.strip() and draw(st.integers(0, 2)) == 0:
            entry = f"{entry.rstrip()}  {draw(st.sampled_from(COMMENTS))}\n"
        out.append(entry + draw(st.sampled_from(("", "", "\n"))))
    start, end = draw(
        st.sampled_from((("", ""), ("", ""), ("---\n", ""), ("---\n", "...\n"), ("%YAML 1.1\n---\n", "")))
    )
    recipe = draw(_finished(start + "".join(out) + end))
    launch = f"#!/bin/bash\n{example.facts}\naccelerate launch train.py --config recipe.yaml\n"
    return {"train.py": _parsed(example), "recipe.yaml": recipe, "launch.sh": launch}


def _parsed(example: Example) -> str:
    given = "".join(f"    {name}={text},\n" for name, text in example.keywords if name != "model")
    return (
        f"from datasets import load_dataset\nfrom trl import {example.config}, {example.trainer}, ModelConfig, TrlParser\n\n"
        f"args, model_args = TrlParser(({example.config}, ModelConfig)).parse_args_and_config()\n"
        f"trainer = {example.trainer}(\n    model=model_args.model_name_or_path,\n    args=args,\n{given})\ntrainer.train()\n"
    )


@st.composite
def commands(draw: st.DrawFn) -> dict[str, str]:
    """A command that gives everything as flags, and the script that parses them."""
    example = draw(st.sampled_from(examples()))
    words: list[str] = []
    before: list[str] = ["#!/bin/bash", example.facts]
    for name, value in draw(st.permutations(list(_data(example).items()))):
        text = json.dumps(value, default=str) if isinstance(value, (dict, list, bool)) else str(value)
        word = text if re.fullmatch(r"[\w./-]+", text) else "'" + text.replace("'", "'\"'\"'") + "'"
        match draw(
            st.sampled_from(("plain", "plain", "plain", "equals", "quoted", "variable", "default", "array", "dashes"))
        ):
            case "equals":
                words.append(f"--{name}={word}")
            case "quoted" if "'" not in text and "$" not in text and '"' not in text:
                words.append(f'--{name} "{text}"')
            case "variable":
                before.append(
                    f"{draw(st.sampled_from(('', 'export ')))}{name.upper()}={word}{draw(st.sampled_from(('', '  # set', ';')))}"
                )
                words.append(f'--{name} "${{{name.upper()}}}"')
            case "default" if re.fullmatch(r"\w+", text):
                words.append(f"--{name} ${{{name.upper()}:-{text}}}")
            case "array":
                before.append(f"{name}_args=(--{name} {word}  # an array\n)")
                words.append(f'"${{{name}_args[@]}}"')
            case "dashes":
                words.append(f"--{name.replace('_', '-')} {word}")
            case _:
                words.append(f"--{name} {word}")
    gap = draw(st.sampled_from((" ", " \\\n    ", " \\\n\t")))
    start = draw(st.sampled_from(("python train.py", "accelerate launch --num_processes 1 train.py", "torchrun train.py", "CUDA_VISIBLE_DEVICES=0 python -u train.py", f"trl {example.trainer.removesuffix('Trainer').lower()}")))  # fmt: skip
    end = draw(st.sampled_from(("", " &", " 2>&1 | tee log", " > log 2>&1 & wait", "  # that is all", " || exit 1")))
    command = f"{start}{gap}{gap.join(words)}{end}"
    wrap = draw(st.sampled_from(_WRAPS))
    code = "\n".join([*before, wrap.format(command)]) + "\n"
    return {"train.py": _parsed(example), "launch.sh": draw(_finished(code)).removeprefix("\ufeff")}


_WRAPS = ("{}",) * 4 + (
    "if [ -n \"$X\" ]; then\n  {}\nfi", "run() {{\n  {}\n}}\nrun", "for seed in 1 2; do\n  {}\ndone", "( cd . && {} )", "bash -c '{}'", "cat <<EOF > job.sh\n{}\nEOF\nsbatch job.sh",
)  # fmt: skip


@st.composite
def notebooks(draw: st.DrawFn) -> str:
    """A script cut into cells, written as one of the tools write notebooks."""
    code = draw(scripts()).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    starts = [
        n.lineno - 1 for n in ast.parse(code).body if isinstance(n, ast.stmt) and not getattr(n, "decorator_list", ())
    ]
    cuts = sorted(draw(st.sets(st.sampled_from(starts), max_size=4)) | {0, 10**6})
    lines = re.split("(?<=\n)", code)
    cells: list[dict[str, object]] = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Train 🚀\n", "from trl import x"]}
    ]
    for start, end in itertools.pairwise(cuts):
        magic = draw(st.sampled_from(("", "", "", "%%time\n", "%load_ext autoreload\n", "!nvidia-smi\n", "help?\n")))
        source = magic + "".join(lines[start:end])
        kept = source if draw(st.integers(0, 3)) == 0 else source.splitlines(keepends=True)
        cells.append({"cell_type": "code", "execution_count": 1, "id": f"c{start}", "metadata": {}, "outputs": [{"name": "stdout", "text": ["from trl import x\n"]}], "source": kept})  # fmt: skip
    data = {"cells": cells, "metadata": {"accelerator": "GPU"}, "nbformat": 4, "nbformat_minor": 5}
    text = json.dumps(data, indent=draw(st.sampled_from((None, 1, 2))), ensure_ascii=draw(st.booleans()))
    return text + draw(st.sampled_from(("", "\n")))
