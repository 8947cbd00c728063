"""What a notebook says: its Python across cells, IPython's own lines, where things stand, its commands and written files."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from trl_lint.model import Known, Site, Span, Unknown
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.notebook import cells, python_of, read
from trl_lint.sources.text import Text

CONFIG = "from trl import SFTConfig\nargs = SFTConfig(max_steps=10)"


def notebook(*sources: str | list[str] | dict[str, Any], indent: int | None = 1, **more: Any) -> bytes:
    """A notebook of code cells; a dict is a cell of its own making."""
    made = [
        s if isinstance(s, dict)
        else {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": s}
        for s in (s.splitlines(keepends=True) if isinstance(s, str) else s for s in sources)
    ]  # fmt: skip
    whole = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}
    return json.dumps(whole, indent=indent, ensure_ascii=False).encode() + b"\n"


def markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def module(data: bytes) -> Module:
    return read(Text("train.ipynb", data))


def configs(data: bytes) -> list[Site]:
    return [s for s in module(data).sites if s.kind == "config"]


def argument(data: bytes, name: str = "max_steps") -> object:
    """The value that the only config of a notebook is given; "?" for one that cannot be read."""
    (site,) = configs(data)
    value = site.arguments[name].value
    return value.value if isinstance(value, Known) else "?"


def raw(data: bytes, span: Span) -> str:
    return data[span.start : span.end].decode()


# Python ---------------------------------------------------------------------------------------------------------------


def test_names_reach_across_cells() -> None:
    data = notebook(
        "from trl import SFTConfig", markdown("# Train"), "steps = 25\n", "args = SFTConfig(max_steps=steps)"
    )
    assert argument(data) == 25


def test_a_span_is_bytes_of_the_file_and_lines_of_the_cell() -> None:
    data = notebook(
        "from trl import SFTConfig", markdown("é"), "# größe 🚀\nargs = SFTConfig(  # ü\n    max_steps=10,\n)"
    )
    (site,) = configs(data)
    assert raw(data, site.callee) == "SFTConfig"
    assert (site.callee.cell, site.callee.line, site.callee.column) == (3, 2, 8)
    place = site.arguments["max_steps"].place
    assert raw(data, place.value) == "10"
    assert raw(data, place.whole) == "max_steps=10"
    assert (place.whole.line, place.whole.column, place.whole.end_line, place.whole.end_column) == (3, 5, 3, 17)
    assert (site.span.line, site.span.end_line, site.span.end_column) == (2, 4, 2)
    # Between two lines of a cell the file holds JSON.
    assert raw(data, site.span) == 'SFTConfig(  # ü\\n",\n    "    max_steps=10,\\n",\n    ")'


@pytest.mark.parametrize("indent", [None, 1, 2], ids=["one line", "indent 1", "indent 2"])
@pytest.mark.parametrize("single", [False, True], ids=["list", "string"])
@pytest.mark.parametrize(
    ("source", "column"),
    [
        ('from trl import SFTConfig\nx = "é🚀"; args = SFTConfig(max_steps=10)', 18),
        ('from trl import SFTConfig\nx = "\\t\\"q\\""; args = SFTConfig(max_steps=10)', 23),
        ("from trl import SFTConfig\r\nargs = SFTConfig(max_steps=10)\r\n", 8),
    ],
    ids=["wide", "escapes", "CRLF"],
)
@pytest.mark.parametrize("ascii_", [False, True], ids=["raw", "\\u"])
def test_every_spelling_of_the_json_gives_the_same_places(
    source: str, column: int, single: bool, indent: int | None, ascii_: bool
) -> None:
    lines: Any = source if single else [line + "\n" for line in source.split("\n")[:-1]] + [source.split("\n")[-1]]
    whole = {"cells": [{"cell_type": "code", "source": lines}], "nbformat": 4}
    data = json.dumps(whole, indent=indent, ensure_ascii=ascii_).encode()
    (site,) = configs(data)
    assert raw(data, site.callee) == "SFTConfig"
    assert raw(data, site.arguments["max_steps"].place.value) == "10"
    assert (site.callee.cell, site.callee.line, site.callee.column) == (1, 2, column)


def test_a_byte_order_mark_moves_every_byte() -> None:
    data = b"\xef\xbb\xbf" + notebook(CONFIG)
    (site,) = configs(data)
    assert raw(data, site.callee) == "SFTConfig"


def test_the_last_of_two_equal_keys_counts() -> None:
    data = (
        b'{"cells": [], "cells": [{"cell_type": "code", "source": "x", "sour\\u0063e": '
        + json.dumps(CONFIG).encode()
        + b'}], "nbformat": 4}'
    )
    assert argument(data) == 10


def test_numbers_that_json_does_not_have_are_no_obstacle() -> None:
    output = {
        "cell_type": "code",
        "source": "1",
        "outputs": [{"data": {"x": float("nan"), "y": [float("-inf"), "NaN"]}}],
    }
    assert argument(notebook(output, CONFIG)) == 10


MAGICS = {
    "line magic": f"%matplotlib inline\n{CONFIG}",
    "command": f"!pip install -q trl\n{CONFIG}",
    "one byte": f"!\n{CONFIG}",
    "two commands": f"!!ls 'it''s\n{CONFIG}",
    "continued command": f"!pip install \\\n    trl \\\n  'peft>=0.1'\n{CONFIG}",
    "CRLF continued": f"!pip install \\\r\n  trl\r\n{CONFIG}",
    "non-ASCII command": f"!écho größe\n{CONFIG}",
    "help before": f"?SFTConfig\n{CONFIG}",
    "help behind": f"{CONFIG}\nargs.max_steps?",
    "more help": f"{CONFIG}\nargs??",
    "assigned command": f"files = !ls *.py\n{CONFIG}",
    "assigned magic": f"where = %pwd\n{CONFIG}",
    "timed": "from trl import SFTConfig\n%time args = SFTConfig(max_steps=10)",
    "timed with options": "from trl import SFTConfig\n%timeit -n 1 -r 1 args = SFTConfig(max_steps=10)",
    "timed command": f"%time !ls\n{CONFIG}",
    "timed loop": f"{CONFIG}\n%time for x in y: pass",
    "timed cell": f"%%time\n{CONFIG}",
    "captured cell": f"%%capture out --no-stderr\n!pip install trl\n{CONFIG}",
    "two cell magics": f"%%capture\n%%time\n\n{CONFIG}",
    "comment above": f"#@title Train\n\n%%time\n{CONFIG}",
    "in a block": f"import os\nif 'COLAB' in os.environ:\n    !pip install trl\nelse:\n    %pip install trl\n{CONFIG}",
    "in a function": f"def setup():\n    !pip install trl\n\n{CONFIG}",
    "automagic": f"pip install trl==0.9\n{CONFIG}",
    "await": f"await client.start()\n{CONFIG}",
    "return": f"{CONFIG}\nif args: return",
    "semicolon": f"{CONFIG};",
    "percent in a bracket": f"x = (7\n  %3)\n!ls\n{CONFIG}",
}


@pytest.mark.parametrize("source", MAGICS.values(), ids=MAGICS.keys())
def test_ipython_lines_do_not_hide_the_python(source: str) -> None:
    data = notebook(source)
    assert argument(data) == 10
    (site,) = configs(data)
    assert raw(data, site.callee) == "SFTConfig"
    (cell,) = cells(Text("x", data))
    assert cell.python is not None
    assert len(cell.python.encode()) == len(source.encode())
    assert cell.python.count("\n") == source.count("\n")


@pytest.mark.parametrize("given", ["!echo 10", "%env STEPS", "!w"])
def test_what_a_magic_gives_is_unknown(given: str) -> None:
    assert argument(notebook(f"from trl import SFTConfig\nn = {given}\nargs = SFTConfig(max_steps=n)")) == "?"


def test_a_string_is_not_searched_for_magics() -> None:
    source = 'text = """\n!ls\n%time x\n"""\n!ls\nfrom trl import SFTConfig\nargs = SFTConfig(run_name=text)'
    assert argument(notebook(source), "run_name") == "\n!ls\n%time x\n"


@pytest.mark.parametrize(
    "other",
    [
        "Collecting trl\n  Downloading trl-0.9.tar.gz (100 kB)",
        "this is prose, not Python",
        "%%html\n<b>x</b>",
        "%%javascript\nalert(1)",
        "%%bash\npython train.py",
        "x = (",
        "def f(:\n",
        "if x:\n!ls\n",
        "x = 'a\x00b'",
        "(" * 300,
        "\\",
    ],
)
def test_a_cell_that_is_no_python_is_left_out_alone(other: str) -> None:
    data = notebook("from trl import SFTConfig\n", other, "args = SFTConfig(max_steps=10)")
    (site,) = configs(data)
    assert site.callee.cell == 3


def test_a_cell_in_another_language_is_left_out() -> None:
    shell = {"cell_type": "code", "metadata": {"vscode": {"languageId": "shellscript"}}, "source": "x = 1\n!ls"}
    data = notebook(shell, CONFIG)
    assert [p.cell.number for p in python_of(Text("x", data)).pieces] == [2]
    data = notebook(CONFIG, metadata={"kernelspec": {"language": "R"}})
    assert module(data).sites == ()


def test_raw_and_markdown_cells_are_no_code() -> None:
    data = notebook({"cell_type": "raw", "source": CONFIG}, markdown(CONFIG))
    assert module(data) == Module("train.ipynb", ())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "line 1: not valid JSON: Expecting value"),
        (b'{"cells": [\n  {"source": "a"\n   "b"}]}', "line 3: not valid JSON: Expecting ',' delimiter"),
        (b"[]", "line 1: no notebook: it is no JSON object"),
        (b"{}", "line 1: no notebook: it has no cells"),
        (b'{"cells": {}}', "line 1: no notebook: it has no cells"),
        (
            b'{"nbformat": 3, "worksheets": []}',
            "line 1: notebook format 3: `jupyter nbconvert --to notebook` makes it format 4",
        ),
        (b"[" * 100_000, "line 1: nested too deeply"),
        (b'{"cells": [1, {"cell_type": "code"}, {"cell_type": "code", "source": [1]}]', "line 1: not valid JSON: Expecting ',' delimiter"),
    ],
)  # fmt: skip
def test_what_is_no_notebook_is_said_in_one_line(data: bytes, reason: str) -> None:
    with pytest.raises(Unparsable) as error:
        module(data)
    assert str(error.value) == reason


@pytest.mark.parametrize("cell", [1, None, [], {}, {"cell_type": "code"}, {"cell_type": "code", "source": [1]}])
def test_a_broken_cell_costs_no_other(cell: Any) -> None:
    data = json.dumps({"cells": [cell, {"cell_type": "code", "source": CONFIG}], "nbformat": 4}).encode()
    (site,) = configs(data)
    assert site.callee.cell == 2


def test_a_lone_surrogate_keeps_its_place() -> None:
    data = b'{"cells": [{"cell_type": "code", "source": ["x = \'\\ud83d\'\\n", ' + b", ".join(
        json.dumps(line).encode() for line in CONFIG.splitlines(keepends=True)
    ) + b"]}]}"  # fmt: skip
    (site,) = configs(data)
    assert raw(data, site.callee) == "SFTConfig"
    assert site.callee.line == 3


def test_offsets_go_there_and_back() -> None:
    source = 'from trl import SFTConfig\n!echo é\nx = "\té🚀\\""\n'
    data = notebook("a = 1", source, "", "b = 'ü'", indent=2)
    text = python_of(Text("x", data))
    checked = 0
    for offset in range(len(text.utf8)):
        if text.utf8[offset] & 0xC0 == 0x80:
            continue
        found = text.place(offset)
        assert found is not None
        cell, inside = found
        if cell.lines.utf8[inside : inside + 1]:
            assert text.utf8_of_byte(text.byte(offset)) == offset
            span = text.span(offset, offset)
            assert text.utf8_of_byte(span.start) == offset
            assert cell.lines.offset(span.line, span.column) == inside
            checked += 1
    assert checked == 58


# Commands ---------------------------------------------------------------------------------------------------------------


def commands(*sources: str) -> list[list[str | None]]:
    return [[w.text for w in c.words] for c in module(notebook(*sources)).commands]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("!accelerate launch train.py --lr 1e-5", [["accelerate", "launch", "train.py", "--lr", "1e-5"]]),
        ("!python a.py \\\n   --x 1\n", [["python", "a.py", "--x", "1"]]),
        ("!!ls -l", [["ls", "-l"]]),
        ("out = !python a.py", [["python", "a.py"]]),
        ("%system python a.py", [["python", "a.py"]]),
        ("%%bash\npython a.py\npython b.py", [["python", "a.py"], ["python", "b.py"]]),
        ("%%script bash --bg\npython a.py", [["python", "a.py"]]),
        ("%%sh\npython a.py", [["python", "a.py"]]),
        ("%%capture\n!python a.py", [["python", "a.py"]]),
        ("x = 1\n!python a.py\ny = 2\n!python b.py", [["python", "a.py"], ["python", "b.py"]]),
        ("!python a.py --model {model} --n 3", [["python", "a.py", "--model", None, "--n", "3"]]),
        ("!python a.py '--model={model}'", [["python", "a.py", None]]),
        ("!python a.py --x ${HOME}", [["python", "a.py", "--x", None]]),
        ("!awk '{print $1}' file", [["awk", "{print $1}", "file"]]),
        ("%%html\npython a.py", []),
        ("text = '''\n!ls\n'''", []),
        ("%pip install trl", []),
    ],
)
def test_commands(source: str, words: list[list[str | None]]) -> None:
    assert commands(source) == words


def test_a_command_says_where_it_stands() -> None:
    data = notebook("x = 'é'", "if x:\n    !trl sft --max_steps 10")
    (command,) = module(data).commands
    assert [raw(data, w.span) for w in command.words] == ["trl", "sft", "--max_steps", "10"]
    word = command.words[3]
    assert (word.span.cell, word.span.line, word.span.column) == (2, 2, 26)
    assert command.conditional
    (plain,) = module(notebook("!trl sft")).commands
    assert not plain.conditional


def test_a_background_cell_is_in_the_background() -> None:
    (command,) = module(notebook("%%bash --bg\ntrl vllm-serve --model M")).commands
    assert command.background


def test_what_python_fills_in_says_so() -> None:
    (command,) = module(notebook("!trl sft --max_steps {steps * 2}")).commands
    assert command.words[3].why == "`{steps * 2}` is filled in by Python"


def test_env_magics_hold_for_the_commands_after_them() -> None:
    data = notebook(
        "!python a.py", "%env CUDA_VISIBLE_DEVICES=0,1\n%set_env N 3\n!N=4 python b.py", "%env X={x}", "!python c.py"
    )
    first, second, third = module(data).commands
    assert dict(first.environment) == {}
    devices = second.environment["CUDA_VISIBLE_DEVICES"]
    assert isinstance(devices.value, Known)
    assert devices.value.value == "0,1"
    assert raw(data, devices.place.whole) == "CUDA_VISIBLE_DEVICES=0,1"
    assert raw(data, devices.place.value) == "0,1"
    assert {n: a.value.value for n, a in second.environment.items() if isinstance(a.value, Known)}["N"] == "4"
    assert {n: a.value.value for n, a in third.environment.items() if isinstance(a.value, Known)}["N"] == "3"
    assert isinstance(third.environment["X"].value, Unknown)


# Files ------------------------------------------------------------------------------------------------------------------


def test_a_written_script_is_read() -> None:
    data = notebook(f"%%writefile src/train.py\n{CONFIG}")
    found = module(data)
    assert found.sites == ()
    (site,) = [s for s in found.written["src/train.py"].sites if s.kind == "config"]
    assert raw(data, site.callee) == "SFTConfig"
    assert (site.callee.cell, site.callee.line, site.callee.column) == (1, 3, 8)


def test_a_file_may_be_written_in_parts() -> None:
    first, second = CONFIG.split("\n")
    data = notebook(
        f"%%writefile t.py\n{first}", f"%%writefile -a t.py\n{second}", "%%file 'old.py'\nx", "%%file 'old.py'\ny"
    )
    found = module(data).written
    (site,) = [s for s in found["t.py"].sites if s.kind == "config"]
    assert raw(data, site.callee) == "SFTConfig"
    assert (site.callee.cell, site.callee.line) == (2, 2)
    assert set(found) == {"t.py", "old.py"}


def test_a_written_script_that_is_no_python_costs_nothing() -> None:
    data = notebook("%%writefile t.py\nthis is no script", "%%writefile notes.txt\nhello", "%%writefile\n", CONFIG)
    assert dict(module(data).written) == {}
    assert argument(data) == 10


RECIPE = "model_name_or_path: m\nmax_steps: 10\nlearning_rate: 1.0e-5\nbf16: true\n"


@pytest.mark.parametrize(
    ("head", "name"),
    [("%%writefile r.yaml", "r.yaml"), ("%%file r.yml", "r.yml"), ("%%yaml parameters", "<parameters>")],
)
def test_a_written_recipe_is_read(head: str, name: str) -> None:
    data = notebook("x = 'é'", f"{head}\n{RECIPE}")
    (site,) = module(data).written[name].sites
    assert site.kind == "recipe"
    place = site.arguments["max_steps"].place
    assert raw(data, place.value) == "10"
    assert (place.value.cell, place.value.line, place.value.column) == (2, 3, 12)


def test_a_written_launch_script_is_read() -> None:
    data = notebook("%%writefile run.sh\n#!/bin/bash\ntrl sft --max_steps 10")
    found = module(data)
    assert found.commands == ()
    (command,) = found.written["run.sh"].commands
    assert [w.text for w in command.words] == ["trl", "sft", "--max_steps", "10"]
    assert raw(data, command.words[3].span) == "10"


# Robustness -------------------------------------------------------------------------------------------------------------

ODD = [*MAGICS.values(), "%%bash\npython a.py {x}", f"%%writefile a.py\n{CONFIG}", f"%%yaml p\n{RECIPE}", "%", "!", "?", "%%", "x = !", "\ud83d"]  # fmt: skip


def test_no_input_raises_anything_but_unparsable() -> None:
    rng = random.Random(3)
    read_ = 0
    reasons: list[str] = []
    whole = json.dumps({"cells": [{"cell_type": "code", "source": s} for s in ODD]}).encode()
    for turn in range(400):
        if turn % 2:
            data = whole[: rng.randrange(len(whole))] if turn % 4 == 1 else bytearray(whole)
            if isinstance(data, bytearray):
                for _ in range(rng.randrange(1, 6)):
                    data[rng.randrange(len(data))] = rng.randrange(32, 127)
        else:
            sources = []
            for _ in range(3):
                source = list(rng.choice(ODD))
                for _ in range(rng.randrange(4)):
                    source.insert(rng.randrange(len(source) + 1), rng.choice("'\"\\\n%!?{}()#é🚀\x00\t\r"))
                sources.append("".join(source))
            data = json.dumps({"cells": [{"cell_type": "code", "source": s} for s in sources]}).encode()
        try:
            module(bytes(data))
            read_ += 1
        except Unparsable as error:
            reasons.append(str(error))
    assert read_ > 150
    assert reasons
    assert not [reason for reason in reasons if "\n" in reason]


@pytest.mark.parametrize(
    "source",
    ["'" + "x" * 1_000_000, "(" * 100 + "\n" + CONFIG, '"""' * 50_001 + "\\", "!" + "{" * 1_000, "%time " * 50_000, "=" * 300_000 + "!x"],
    ids=["string", "brackets", "quotes", "braces", "magic", "equals"],
)  # fmt: skip
def test_long_nonsense_takes_no_time(source: str) -> None:
    start = time.process_time()
    data = notebook(source, CONFIG)
    assert configs(data)
    assert time.process_time() - start < 4


def test_images_in_outputs_cost_little() -> None:
    image = {"cell_type": "code", "source": "plot()", "outputs": [{"data": {"image/png": "iVBOR/+" * 150_000}}] * 5}
    data = notebook(image, CONFIG)
    assert len(data) > 5_000_000
    start = time.process_time()
    assert argument(data) == 10
    assert time.process_time() - start < 1


# Prose ----------------------------------------------------------------------------------------------------------------

FENCED = """# Train
```bash
$ accelerate launch --num_processes 2 train.py \\
    --config é.yaml
```
~~~
python other.py
~~~
```python
python = third.py
```
Run `python fourth.py`.
"""


def test_prose_shows_commands_that_nothing_runs() -> None:
    data = notebook(markdown(FENCED), "!python real.py")
    told = [[w.text for w in c.words] for c in module(data).told]
    assert told == [
        ["accelerate", "launch", "--num_processes", "2", "train.py", "--config", "é.yaml"],
        ["python", "other.py"],
    ]
    assert [[w.text for w in c.words] for c in module(data).commands] == [["python", "real.py"]]
    span = module(data).told[0].words[-1].span
    assert (raw(data, span), span.cell, span.line) == ("é.yaml", 1, 4)
