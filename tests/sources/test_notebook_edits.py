"""Notebooks before and after a fix: only the JSON of the lines that changed changes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.sources.test_notebook import MAGICS, markdown, notebook
from trl_lint.model import Intent, Site
from trl_lint.runs.launches import launches_of
from trl_lint.sources.edits import CannotEdit
from trl_lint.sources.notebook import read
from trl_lint.sources.notebook_edits import edit
from trl_lint.sources.text import Text

CONFIG = "from trl import SFTConfig\nargs = SFTConfig(\n    max_steps=10,\n    bf16=True,\n)"


def text(data: bytes) -> Text:
    return Text("train.ipynb", data)


def sites(data: bytes) -> list[Site]:
    found = read(text(data))
    return [s for s in (*found.sites, *(s for m in found.written.values() for s in m.sites)) if s.kind != "import"]


def edited(data: bytes, op: Any, name: str, value: object = None) -> bytes:
    """The file after one intent on its first site, which is checked to settle and to be a notebook of the same shape."""
    new = edit(text(data), [Intent(op, sites(data)[0], name, value)]).encode()
    before, after = json.loads(data), json.loads(new)
    for one, other in zip(before["cells"], after["cells"], strict=True):
        assert list(one) == list(other)
        assert type(one.get("source")) is type(other.get("source"))
        one["source"] = other["source"] = None
    assert before == after
    return new


def source(data: bytes, number: int = 1) -> str:
    return "".join(json.loads(data)["cells"][number - 1]["source"])


def changed_lines(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    """The lines of the file that went, and those that came."""
    old, new = before.decode().split("\n"), after.decode().split("\n")
    return [line for line in old if line not in new], [line for line in new if line not in old]


@pytest.mark.parametrize(
    ("op", "name", "value", "gone", "come"),
    [
        ("set", "max_steps", 25, ['    "    max_steps=10,\\n",'], ['    "    max_steps=25,\\n",']),
        ("rename", "max_steps", "steps", ['    "    max_steps=10,\\n",'], ['    "    steps=10,\\n",']),
        ("drop", "bf16", None, ['    "    bf16=True,\\n",'], []),
        ("set", "report_to", "none", [], ['    "    report_to=\\"none\\",\\n",']),
        ("set", "run_name", "größe", [], ['    "    run_name=\\"größe\\",\\n",']),
    ],
)  # fmt: skip
def test_one_line_of_the_file_changes(op: str, name: str, value: object, gone: list[str], come: list[str]) -> None:
    data = notebook("!pip install trl", markdown("# Größe"), CONFIG, 'print("done")')
    assert changed_lines(data, edited(data, op, name, value)) == (gone, come)


LAYOUTS = {
    "indent 1": lambda d: json.dumps(d, indent=1).encode(),
    "indent 2, end": lambda d: json.dumps(d, indent=2, ensure_ascii=False).encode() + b"\n",
    "tabs": lambda d: json.dumps(d, indent="\t").encode(),
    "one line": lambda d: json.dumps(d).encode(),
    "compact": lambda d: json.dumps(d, separators=(",", ":")).encode(),
    "CRLF": lambda d: json.dumps(d, indent=1).replace("\n", "\r\n").encode(),
    "BOM": lambda d: b"\xef\xbb\xbf" + json.dumps(d, indent=1).encode(),
    "sorted": lambda d: json.dumps(d, indent=1, sort_keys=True).encode(),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("single", [False, True], ids=["list", "string"])
@pytest.mark.parametrize("op", ["set", "set new", "drop", "rename"])
def test_the_file_keeps_its_layout(layout: Any, single: bool, op: str) -> None:
    source_: Any = CONFIG if single else CONFIG.splitlines(keepends=True)
    whole = {
        "cells": [{"cell_type": "code", "source": ["x = 1\n", "y"]}, {"cell_type": "code", "source": source_}],
        "nbformat": 4,
    }
    data = layout(whole)
    wanted = {
        "set": ("max_steps", 25, CONFIG.replace("10", "25")),
        "set new": ("seed", 7, CONFIG.replace("bf16=True,\n", "bf16=True,\n    seed=7,\n")),
        "drop": ("bf16", None, CONFIG.replace("    bf16=True,\n", "")),
        "rename": ("bf16", "fp16", CONFIG.replace("bf16", "fp16")),
    }
    name, value, after = wanted[op]
    whole["cells"][1]["source"] = after if single else after.splitlines(keepends=True)  # type: ignore[index]
    new = edit(text(data), [Intent(op.split()[0], sites(data)[0], name, value)])  # type: ignore[arg-type]
    assert new.encode() == layout(whole).removeprefix(b"\xef\xbb\xbf")


def test_a_line_that_is_not_changed_keeps_its_escapes() -> None:
    lines = [
        '"from trl import SFTConfig  # \\u00e9 \\/ \\ud83d\\ude80\\n"', '"args = SFTConfig(\\n"', '"    max_steps=10,  # \\u00E9\\n"',
        '"    run_name=\\u0022x\\u0022,\\n"', '")"',
    ]  # fmt: skip
    data = ('{"cells": [{"cell_type": "code", "source": [' + ", ".join(lines) + ']}], "nbformat": 4}').encode()
    assert edited(data, "set", "max_steps", 25) == data.replace(b"=10,", b"=25,")
    assert edited(data, "rename", "run_name", "name") == data.replace(b"run_name", b"name")
    assert edited(data, "drop", "run_name") == data.replace(lines[3].encode() + b", ", b"")


@pytest.mark.parametrize(("escaped", "spelled"), [(True, b'\\"gr\\u00f6\\u00dfe\\"'), (False, 'größe\\"'.encode())])
def test_new_text_follows_the_files_habit(escaped: bool, spelled: bytes) -> None:
    whole = {"cells": [markdown("é"), {"cell_type": "code", "source": CONFIG.splitlines(keepends=True)}], "nbformat": 4}
    data = json.dumps(whole, ensure_ascii=escaped, indent=1).encode()
    assert spelled in edited(data, "set", "run_name", "größe")


def test_a_list_of_one_line_grows_in_the_files_own_layout() -> None:
    data = notebook("from trl import SFTConfig\n", "x = 1\ny = 2", "args = SFTConfig(max_steps=10)")
    name = "a_rather_long_name_of_an_option_that_needs_a_line"
    new = edited(data, "set", name, "x" * 50)
    assert json.loads(new)["cells"][2]["source"] == [
        "args = SFTConfig(\n", "    max_steps=10,\n", f'    {name}="{"x" * 50}",\n', ")",
    ]  # fmt: skip
    assert b'\n    "args = SFTConfig(\\n",\n    "    max_steps=10,\\n",\n' in new


def test_the_last_line_of_a_cell_may_go() -> None:
    data = notebook("from trl import SFTConfig\nargs = SFTConfig(max_steps=10)\nargs.bf16 = True", "print(1)")
    new = edited(data, "drop", "bf16")
    assert json.loads(new)["cells"][0]["source"] == ["from trl import SFTConfig\n", "args = SFTConfig(max_steps=10)"]


def test_a_cell_may_become_empty() -> None:
    data = notebook("from trl import SFTConfig\nargs = SFTConfig(max_steps=10)", "args.bf16 = True", "print(1)")
    new = edited(data, "drop", "bf16")
    assert source(new, 2) == ""
    assert source(new, 3) == "print(1)"


def test_a_value_is_changed_in_the_cell_that_holds_it() -> None:
    data = notebook("from trl import SFTConfig\nsteps = 10", "args = SFTConfig(max_steps=steps)")
    new = edited(data, "set", "max_steps", 25)
    assert (source(new, 1), source(new, 2)) == ("from trl import SFTConfig\nsteps = 25", source(data, 2))


def test_an_import_goes_to_the_cell_of_the_import() -> None:
    data = notebook("import os\nfrom trl import SFTTrainer", "!ls", "trainer = SFTTrainer(model, max_seq_length=10)")
    trainer = next(s for s in sites(data) if s.kind == "trainer")
    new = edit(
        text(data), [Intent("move", trainer, "max_seq_length", "max_length", path=("new", "SFTConfig"))]
    ).encode()
    assert source(new, 1) == "import os\nfrom trl import SFTConfig, SFTTrainer"
    assert source(new, 3) == 'trainer = SFTTrainer(model, args=SFTConfig(output_dir="tmp_trainer", max_length=10))'


def test_two_cells_change_together() -> None:
    data = notebook("from trl import SFTConfig", "a = SFTConfig(max_steps=1)", "!ls {x}", "b = SFTConfig(max_steps=2)")
    intents = [Intent("set", site, "max_steps", 9) for site in sites(data)]
    new = edit(text(data), intents).encode()
    assert [source(new, n) for n in (2, 3, 4)] == [
        "a = SFTConfig(max_steps=9)",
        "!ls {x}",
        "b = SFTConfig(max_steps=9)",
    ]


@pytest.mark.parametrize("before", MAGICS.values(), ids=MAGICS.keys())
def test_magics_come_back_exactly(before: str) -> None:
    data = notebook("x = 1", before)
    assert source(edited(data, "set", "max_steps", 25), 2) == before.replace("max_steps=10", "max_steps=25")
    assert source(edited(data, "set", "seed", 7), 2) == before.replace("max_steps=10", "max_steps=10, seed=7")


def test_a_magic_of_one_line_is_not_broken_into_several() -> None:
    before = "from trl import SFTConfig\n%time args = SFTConfig(max_steps=10)"
    new = edited(notebook(before), "set", "run_name", "x" * 100)
    assert source(new) == before.replace("10", f'10, run_name="{"x" * 100}"')


def test_line_ends_inside_strings_stay() -> None:
    data = notebook({"cell_type": "code", "source": CONFIG.replace("\n", "\r\n")}, "x = 1\n")
    assert source(edited(data, "set", "seed", 7)) == CONFIG.replace("True,\n", "True,\n    seed=7,\n").replace(
        "\n", "\r\n"
    )
    data = notebook({"cell_type": "code", "source": "x = 1\r\n"}, CONFIG)
    assert source(edited(data, "set", "seed", 7), 2) == CONFIG.replace("True,\n", "True,\n    seed=7,\n")


@pytest.mark.parametrize(
    "parts",
    [
        ["from trl import SFT", "Config\nargs = SFTConfig(\n    max_s", "teps=1", "0,\n    bf16=True,\n)"],
        ["", "from trl import SFTConfig\nargs = SFTConfig(\n", "", "    max_steps=10,\n    bf16=True,\n", ")", ""],
        [CONFIG],
    ],
)
@pytest.mark.parametrize(
    ("op", "name", "value", "after"),
    [
        ("set", "max_steps", 2048, CONFIG.replace("10", "2048")),
        ("set", "seed", 7, CONFIG.replace("bf16=True,\n", "bf16=True,\n    seed=7,\n")),
        ("drop", "max_steps", None, CONFIG.replace("    max_steps=10,\n", "")),
        ("rename", "max_steps", "steps", CONFIG.replace("max_steps", "steps")),
    ],
)
def test_a_source_that_is_cut_elsewhere_than_at_lines(
    parts: Sequence[str], op: str, name: str, value: object, after: str
) -> None:
    data = notebook(list(parts))
    assert source(edited(data, op, name, value)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("%%writefile train.py\n" + CONFIG, "%%writefile train.py\n" + CONFIG.replace("10", "25")),
        ("%%writefile -q 'train.py'\n" + CONFIG + "\n\n", "%%writefile -q 'train.py'\n" + CONFIG.replace("10", "25") + "\n\n"),
    ],
)  # fmt: skip
def test_a_written_script_is_changed_in_its_cell(before: str, after: str) -> None:
    data = notebook("x = 1", before)
    assert source(edited(data, "set", "max_steps", 25), 2) == after


def test_a_file_of_several_cells_is_left_to_its_author() -> None:
    data = notebook("%%writefile t.py\nfrom trl import SFTConfig", "%%writefile -a t.py\nSFTConfig(max_steps=10)")
    with pytest.raises(CannotEdit, match="put together from several cells"):
        edited(data, "set", "max_steps", 25)


RECIPE = "%%writefile r.yaml\nmodel_name_or_path: m\nmax_steps: 10  # ten\nbf16: true\n"


@pytest.mark.parametrize(
    ("op", "name", "value", "after"),
    [
        ("set", "max_steps", 25, RECIPE.replace("10", "25")),
        ("drop", "bf16", None, RECIPE.replace("bf16: true\n", "")),
        ("rename", "bf16", "fp16", RECIPE.replace("bf16", "fp16")),
    ],
)
def test_a_written_recipe_is_changed_in_its_cell(op: str, name: str, value: object, after: str) -> None:
    data = notebook("x = 'é'", RECIPE)
    assert source(edited(data, op, name, value), 2) == after


def test_fixed_twice_is_fixed_once() -> None:
    data = notebook(CONFIG)
    once = edited(data, "set", "max_steps", 25)
    assert edited(once, "set", "max_steps", 25) == once


def test_no_intents_change_nothing() -> None:
    data = notebook(CONFIG, "!ls")
    assert edit(text(data), []).encode() == data


def test_a_site_of_another_file_is_refused() -> None:
    other = sites(notebook("x = 1", "y = 2", CONFIG))[0]
    with pytest.raises(CannotEdit, match="in no cell"):
        edit(text(notebook("x = 1")), [Intent("set", other, "max_steps", 1)])


def test_a_message_counts_lines_within_the_cell() -> None:
    data = notebook("x = 1\n" * 9, CONFIG)
    (site,) = sites(data)
    with pytest.raises(CannotEdit, match="cell 2, line 3"):
        edit(text(data), [Intent("set", site, "max_steps", 1), Intent("set", site, "max_steps", 2)])


def test_random_changes_of_random_notebooks() -> None:
    rng = random.Random(11)
    fillers = [
        *MAGICS.values(),
        "x = 'é🚀'\n",
        "%%bash\nls\n",
        "# just a comment",
        "def f():\n    return 1\n\n",
        "no python here",
    ]
    shapes = [
        "args = SFTConfig(max_steps=10, bf16=True, output_dir='größe')",
        "args = SFTConfig(\n    max_steps=10,  # ten\n    bf16=True,\n    output_dir='größe'\n)\nprint(args)",
        "kw = {'max_steps': 10, 'bf16': True}\nargs = SFTConfig(**kw, output_dir='o')",
        "args = SFTConfig(output_dir='o')\nargs.max_steps = 10\nargs.bf16 = True\n",
    ]
    done = 0
    for _ in range(150):
        fill = [rng.choice(fillers) for _ in range(3)]
        cells = [fill[0], "from trl import SFTConfig", fill[1], rng.choice(shapes), fill[2]]
        if rng.random() < 0.5:
            cells = [c if rng.random() < 0.5 else c.splitlines(keepends=True) for c in cells]  # type: ignore[misc]
        whole = {"cells": [{"cell_type": "code", "source": c} for c in cells], "nbformat": 4}
        data = json.dumps(whole, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1, 2])).encode()
        site = next(s for s in sites(data) if "output_dir" in s.arguments)
        name = rng.choice(["max_steps", "bf16"])
        op, value = rng.choice([("set", 77), ("drop", None), ("rename", "other")])
        new = edit(text(data), [Intent(op, site, name, value)]).encode()  # type: ignore[arg-type]
        after = next(s for s in sites(new) if "output_dir" in s.arguments)
        before = {k: raw_value(data, a) for k, a in site.arguments.items()}
        given = {k: raw_value(new, a) for k, a in after.arguments.items()}
        expected = {
            "set": {**before, name: b"77"},
            "drop": {k: v for k, v in before.items() if k != name},
            "rename": {"other" if k == name else k: v for k, v in before.items()},
        }[op]
        assert given == expected
        kept = [n for n in (1, 2, 3, 5) if source(data, n) == source(new, n)]
        assert kept == [1, 2, 3, 5]
        done += 1
    assert done == 150


def raw_value(data: bytes, argument: Any) -> bytes:
    return data[argument.place.value.start : argument.place.value.end]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("!trl sft --max_steps 10", "!trl sft --max_steps 25"),
        ("x = 'é'\n!trl sft --model {m} --max_steps 10 \\\n  --bf16 {b}", "x = 'é'\n!trl sft --model {m} --max_steps 25 \\\n  --bf16 {b}"),
        ("%%bash\n# größe\ntrl sft --max_steps 10\n", "%%bash\n# größe\ntrl sft --max_steps 25\n"),
        ("%%writefile run.sh\ntrl sft \\\n    --max_steps 10 \\\n    --bf16", "%%writefile run.sh\ntrl sft \\\n    --max_steps 25 \\\n    --bf16"),
        ("%%capture out\nif y:\n    !trl sft --max_steps=10", "%%capture out\nif y:\n    !trl sft --max_steps=25"),
    ],
    ids=["line", "filled in by Python", "cell", "written file", "indented"],
)  # fmt: skip
def test_a_command_is_changed_where_it_stands(before: str, after: str) -> None:
    data = notebook(CONFIG, before, "y = 1")
    found = read(text(data))
    modules = [found, *found.written.values()]
    (launch,) = [launch for module in modules for launch in launches_of(module)]
    new = edit(text(data), [Intent("set", launch.flags, "max_steps", 25)]).encode()
    assert [source(new, n) for n in (1, 2, 3)] == [CONFIG, after, "y = 1"]


def test_a_command_and_python_of_one_cell_change_together() -> None:
    before = CONFIG + "\n!trl sft --max_steps 10"
    data = notebook(before)
    (launch,) = launches_of(read(text(data)))
    intents = [Intent("set", launch.flags, "max_steps", 25), Intent("set", sites(data)[0], "max_steps", 25)]
    assert source(edit(text(data), intents).encode()) == before.replace("10", "25")
