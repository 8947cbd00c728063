"""What a run is given, wherever it is written: by a keyword that a later release moved, by a ModelConfig in the script."""

from __future__ import annotations

import pytest

from trl_lint.model import Known, Object, Value
from trl_lint.runs import View

from ..helpers import lint


def view(code: str, trl: str) -> View:
    (run,) = (r for r in lint(code, trl=trl).runs if r.method is not None)
    assert run.worlds.assumed is not None
    return View(run, run.worlds.assumed)


def read(value: Value) -> object:
    """What a value says: the kind of an object, "?" where nothing is known."""
    if not isinstance(value, Known):
        return "?"
    return value.value.site.kind if isinstance(value.value, Object) else value.value


# Keywords that became fields -----------------------------------------------------------------------------------------

MOVED = """
import torch
from trl import SFTConfig, SFTTrainer

SFTTrainer(
    model="a/b",
    args=SFTConfig(output_dir="out", max_seq_length=99),
    packing=True,
    max_seq_length=1024,
    model_init_kwargs={"torch_dtype": torch.float16},
)
"""


def test_a_keyword_that_a_release_takes_gives_the_field() -> None:
    seen = view(MOVED, "0.12.2")
    assert read(seen.value("packing")) is True
    assert read(seen.value("max_seq_length")) == 1024  # it wins over the config
    assert read(seen.value("model.dtype")) == "float16"
    assert seen.given("packing") == (True,)
    assert read(seen.value("eval_packing")) is None  # its own default


@pytest.mark.parametrize("trl", ["0.13.0", "1.16.0"])
def test_where_the_release_does_not_take_it_nothing_is_known(trl: str) -> None:
    seen = view(MOVED, trl)
    assert read(seen.value("packing")) == "?"
    assert read(seen.value("model.dtype")) == "?"
    assert lint(MOVED, "base-in-float32", trl=trl).findings == ()
    assert read(seen.value("seed")) == 42  # what was not moved keeps its default


# A ModelConfig that the script itself builds ------------------------------------------------------------------------

BUILT = """
from trl import GRPOConfig, GRPOTrainer, ModelConfig, get_peft_config, get_quantization_config

model_config = ModelConfig(model_name_or_path="a/b-7b", {options})
GRPOTrainer(
    model=model_config.model_name_or_path,
    args=GRPOConfig(
        output_dir="out", model_init_kwargs={{"quantization_config": get_quantization_config(model_config)}}
    ),
    reward_funcs=len,
    peft_config=get_peft_config(model_config),
)
"""


@pytest.mark.parametrize(
    ("options", "peft", "quantized"),
    [
        ("use_peft=True, load_in_4bit=True", True, "4bit"),
        ("use_peft=False, load_in_8bit=True", False, "8bit"),
        ("", False, None),
        ("**options", "?", "?"),
        ("use_peft=sys.argv[1] == 'lora'", "?", None),
    ],
)
def test_what_helpers_make_of_a_model_config(options: str, peft: object, quantized: object) -> None:
    seen = view(BUILT.format(options=options), "1.16.0")
    assert read(seen.value("peft.used")) == peft
    assert read(seen.value("model.quantized")) == quantized
    # The other options of the quantisation come from the ModelConfig too.
    assert read(seen.value("model.four_bit_compute_dtype")) == "?"


def test_an_adapter_has_the_options_of_the_model_config() -> None:
    options = "use_peft=True, lora_target_modules=['q_proj'], lora_task_type='CAUSAL_LM'"
    seen = view(BUILT.format(options=options), "1.16.0")
    assert (read(seen.value("peft.kind")), read(seen.value("peft.target_modules"))) == ("LoraConfig", ("q_proj",))
