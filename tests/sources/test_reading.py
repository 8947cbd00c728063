"""What a file says, as the reader understands it: how classes are found, how values resolve, what stays unknown."""

from __future__ import annotations

import pytest

from trl_lint.model import Known, Object, OneOf, Site, Symbol, Table, Unknown, Value
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.python import read
from trl_lint.sources.text import Text


def module(code: str) -> Module:
    return read(Text("train.py", code.encode()))


def configs(code: str) -> list[Site]:
    return [s for s in module(code).sites if s.kind == "config"]


def shown(value: Value) -> object:
    """A value in short: the literal, alternatives as a set, "?" for what cannot be read."""
    match value:
        case Known(value=Symbol(name=name)):
            return name
        case Known(value=Table(entries=entries)):
            return {k: shown(a.value) for k, a in entries.items()}
        case Known(value=Object(site=site)):
            return site.name
        case Known():
            return value.value
        case OneOf():
            return {v.value for v in value.values}
        case Unknown(likely=None):
            return "?"
        case Unknown():
            return f"? likely {value.likely.value if value.likely else None}"


@pytest.mark.parametrize(
    "code",
    [
        "from trl import GRPOConfig\nGRPOConfig()",
        "from trl import GRPOConfig as C\nC()",
        "import trl\ntrl.GRPOConfig()",
        "import trl as t\nt.GRPOConfig()",
        "import trl.trainer.grpo_config\ntrl.trainer.grpo_config.GRPOConfig()",
        "from trl.trainer import grpo_config\ngrpo_config.GRPOConfig()",
        "from trl.experimental.gold import GOLDConfig\nGOLDConfig()",
        "try:\n    from trl import ORPOConfig\nexcept ImportError:\n    from trl.experimental.orpo import ORPOConfig\nORPOConfig()",
        "try:\n    from trl import GRPOConfig\nexcept ImportError:\n    GRPOConfig = None\nGRPOConfig()",
        "from trl import *\nGRPOConfig()",
        "from trl import GRPOConfig\nclass Mine(GRPOConfig):\n    extra: int = 1\nMine()",
        "from trl import GRPOConfig\nC = GRPOConfig\nC()",
        "def f():\n    from trl import GRPOConfig\n    return GRPOConfig()",
    ],
)
def test_found_however_it_is_imported(code: str) -> None:
    assert len(configs(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "from mylib import GRPOConfig\nGRPOConfig(x=1)",
        "class GRPOConfig: ...\nGRPOConfig()",
        "from trl import GRPOConfig\nfrom mylib import GRPOConfig\nGRPOConfig()",
        "import trl\nimport mylib\nG = mylib.Mock if mylib.mac else trl.GRPOConfig\nG()",
        "from .trl import GRPOConfig\nGRPOConfig()",
        "from trlx import GRPOConfig\nGRPOConfig()",
        "text = 'from trl import GRPOConfig; GRPOConfig()'",
    ],
)
def test_not_ours(code: str) -> None:
    assert configs(code) == []


VALUES = {
    "literal": ("1e-5", 1e-5),
    "negative": ("-1", -1),
    "text": ("'a' 'b'", "ab"),
    "bound once": ("LR", 2e-4),
    "arithmetic": ("2 * 4 + 1", 9),
    "f-string": ("f'out-{NAME}'", "out-qwen"),
    "f-string with a format": ("f'{LR:.1f}'", "?"),
    "not": ("not FLAG", False),
    "comparison": ("NAME == 'qwen'", True),
    "decided conditional": ("1 if FLAG else 2", 1),
    "open conditional": ("1 if unknown() else 2", {1, 2}),
    "builtin": ("int('8')", 8),
    "call": ("torch.cuda.is_bf16_supported()", "?"),
    "not of a call": ("not torch.cuda.is_bf16_supported()", "?"),
    "symbol": ("torch.bfloat16", "torch.bfloat16"),
    "list": ("['a', 'b']", ("a", "b")),
    "mapping": ("{'use_reentrant': False}", {"use_reentrant": False}),
    "dict()": ("dict(a=1, **{'b': 2})", {"a": 1, "b": 2}),
    "subscript": ("TABLE['lr']", 0.1),
    "get": ("TABLE.get('lr', 3)", 0.1),
    "item set later": ("TABLE['late']", True),
    "argparse": ("args.batch", "? likely 8"),
    "environment": ("os.getenv('LR', '1')", "? likely 1"),
    "class constant": ("Settings.lr", 0.3),
    "builder": ("build()", 5),
    "parameter with one call": ("given(7)", 7),
    "rebound": ("MANY", {1, 2}),
    "loop variable": ("item", "?"),
    "augmented": ("GROWS", "?"),
    "nowhere": ("undefined_name", "?"),
    "division by zero": ("1 / 0", "?"),
    "huge power": ("10 ** 10 ** 10", "?"),
}
HEAD = """
import argparse, os, torch
from trl import SFTConfig
LR = 2e-4
NAME = "qwen"
FLAG = True
TABLE = {"lr": 0.1}
TABLE["late"] = True
MANY = 1
if unknown():
    MANY = 2
GROWS = 1
GROWS += 1
class Settings:
    lr = 0.3
def build():
    return 5
def given(x):
    return x
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
args = parser.parse_args()
for item in (1, 2):
    pass
"""


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    text, expected = VALUES[name]
    site = configs(f"{HEAD}\nconfig = SFTConfig(field={text})\n")[0]
    assert shown(site.arguments["field"].value) == expected


STORES = {
    "assigned": ("c.use_vllm = True", True, False),
    "assigned twice": ("c.use_vllm = True\nc.use_vllm = False", False, False),
    "on one branch": ("if x():\n    c.use_vllm = True", "? likely True", True),
    "setattr": ("setattr(c, 'use_vllm', True)", True, False),
    "before it exists": ("", None, False),
}


@pytest.mark.parametrize("name", STORES)
def test_assignment_after_construction(name: str) -> None:
    code, expected, conditional = STORES[name]
    site = configs(f"from trl import GRPOConfig\nc = GRPOConfig(output_dir='o')\n{code}\n")[0]
    found = site.arguments.get("use_vllm")
    assert (shown(found.value) if found is not None else None) == expected
    assert (found.conditional if found is not None else False) == conditional


def test_a_later_object_of_the_same_name_is_another() -> None:
    first, second = configs(
        "from trl import SFTConfig\nc = SFTConfig(seed=1)\nc = SFTConfig(seed=2)\nc.packing = True\n"
    )
    assert "packing" not in first.arguments
    assert "packing" in second.arguments


def test_opaque_setattr_opens_the_config() -> None:
    site = configs("from trl import SFTConfig\nc = SFTConfig()\nfor k, v in extra.items():\n    setattr(c, k, v)\n")[0]
    assert site.open is not None


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    c = SFTConfig(a=1)\nexcept TypeError:\n    c = SFTConfig()",
        "if Version(trl.__version__) >= Version('0.16'):\n    c = SFTConfig(a=1)",
        "if 'a' in inspect.signature(SFTConfig).parameters:\n    c = SFTConfig(a=1)",
        "with pytest.raises(TypeError):\n    c = SFTConfig(a=1)",
        "require_version('trl>=0.8.6,<=0.9.6', 'pip install trl')\nc = SFTConfig(a=1)",
    ],
)
def test_version_shims_are_lenient(code: str) -> None:
    assert configs(f"from trl import SFTConfig\n{code}\n")[0].lenient is not None


def test_splats() -> None:
    code = "from trl import SFTConfig\nbase = {'seed': 1}\nbase.update(bf16=True)\nSFTConfig(**base, **other(), output_dir='o')\n"
    site = configs(code)[0]
    assert shown(site.arguments["seed"].value) == 1
    assert shown(site.arguments["bf16"].value) is True
    assert site.open is not None


def test_parsed_configs_are_open() -> None:
    code = (
        "from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser\n"
        "parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))\n"
        "script_args, training_args, model_args = parser.parse_args_and_config()\n"
        "training_args.packing = True\n"
    )
    site = next(s for s in configs(code) if s.name == "SFTConfig")
    assert site.open == "the command line and --config decide"
    assert shown(site.arguments["packing"].value) is True


def test_a_trainer_refers_to_its_parts() -> None:
    code = (
        "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\n"
        "model = AutoModelForCausalLM.from_pretrained('m', dtype='bfloat16')\nmodel = get_peft_model(model, LoraConfig(r=8))\n"
        "trainer = SFTTrainer(model, args=SFTConfig(output_dir='o'))\n"
    )
    trainer = next(s for s in module(code).sites if s.kind == "trainer")
    assert shown(trainer.arguments["0"].value) == "PeftModel"
    assert shown(trainer.arguments["args"].value) == "SFTConfig"


def test_names_that_stand_for_each_other() -> None:
    assert configs("from trl import SFTConfig\na = b\nb = a\nif x:\n    a = SFTConfig\nb()\na()\nSFTConfig(seed=a)\n")


def test_unsloth_counts_wherever_it_is_imported() -> None:
    assert (
        module("def cell():\n    from unsloth import FastLanguageModel\nfrom trl import SFTConfig\n").unsloth
        is not None
    )


def test_spans_are_code_points_and_bytes() -> None:
    code = "# 🚀\nfrom trl import SFTConfig\nname = '模型'; c = SFTConfig(output_dir='é', fp16=True)\n"
    place = configs(code)[0].arguments["fp16"].place
    assert code.encode()[place.whole.start : place.whole.end] == b"fp16=True"
    line = code.splitlines()[place.whole.line - 1]
    assert line[place.whole.column - 1 : place.whole.end_column - 1] == "fp16=True"


@pytest.mark.parametrize(
    ("code", "line"),
    [("\ffrom trl import SFTConfig\n", 1), ("import os\n\fSFTConfig()\n", 2), ("if a:\n    b\n\f    c\n", 3)],
)
def test_a_form_feed_that_would_move_all_places_is_said(code: str, line: int) -> None:
    with pytest.raises(Unparsable, match=f"^line {line}: a form feed in front of code; put it on a line of its own$"):
        read(Text("train.py", code.encode()))


def test_a_form_feed_on_a_line_of_its_own_is_read() -> None:
    [site] = read(Text("train.py", b"from trl import SFTConfig\n\f\nSFTConfig(seed=1)\n")).sites[1:]
    assert (site.span.line, site.span.column) == (3, 1)
