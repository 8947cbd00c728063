"""The command line of each release: which classes a script parses, how it loads the model, what its parser drops."""

from __future__ import annotations

import ast
import json
import random

import pytest

from trl_lint import knowledge
from trl_lint.knowledge import script_reader
from trl_lint.knowledge.source import Module

MIXTURE = ("ModelConfig", "DatasetMixtureConfig")
REVISION_AND_TRUST = {"revision": "model_revision", "trust_remote_code": "trust_remote_code"}
OLD_LOAD = {**REVISION_AND_TRUST, "attn_implementation": "attn_implementation", "torch_dtype": "torch_dtype"}
NEW_LOAD = {"revision": "model_revision", "attn_implementation": "attn_implementation", "dtype": "dtype"}


def script(release: str, name: str) -> knowledge.Script:
    found = knowledge.trl(release).script(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("release", "name", "classes"),
    [
        ("0.9.6", "sft", ("SFTScriptArguments", "SFTConfig", "ModelConfig")),
        ("0.11.0", "kto", ("ScriptArguments", "KTOConfig", "ModelConfig")),
        ("0.13.0", "chat", ("ChatArguments",)),
        ("0.13.0", "dpo", ("ScriptArguments", "DPOConfig", "ModelConfig")),
        ("0.17.0", "grpo", ("GRPOScriptArguments", "GRPOConfig", "ModelConfig")),
        ("0.22.0", "rloo", ("RLOOScriptArguments", "RLOOConfig", *MIXTURE)),
        ("0.25.0", "reward", ("ScriptArguments", "RewardConfig", *MIXTURE)),
        ("1.10.0", "distillation", ("ScriptArguments", "DistillationConfig", *MIXTURE)),
        ("1.16.0", "grpo", ("GRPOScriptArguments", "GRPOConfig", *MIXTURE)),
        ("1.16.0", "vllm-serve", ("ScriptArguments",)),
    ],
)
def test_classes(release: str, name: str, classes: tuple[str, ...]) -> None:
    assert script(release, name).classes == classes


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("0.13.0", "grpo"),
        ("0.15.2", "vllm-serve"),
        ("1.16.0", "chat"),
        ("1.16.0", "env"),
        ("1.16.0", "no-such-command"),
    ],
)
def test_no_script(release: str, name: str) -> None:
    assert knowledge.trl(release).script(name) is None


@pytest.mark.parametrize("release", knowledge.releases("trl"))
def test_every_class_has_fields(release: str) -> None:
    known = knowledge.trl(release)
    for command in known.commands:
        found = known.script(command)
        if command in ("env", "skills"):
            assert found is None
            continue
        assert found is not None, command
        for name in found.classes:
            config = known.config(name)
            assert found.own.get(name) or (config is not None and config.fields), (command, name)


@pytest.mark.parametrize(
    ("release", "name", "model", "reaches", "keeps"),
    [
        ("0.9.6", "sft", "name", OLD_LOAD, False),
        ("0.17.0", "sft", "loaded", OLD_LOAD, False),
        ("0.17.0", "grpo", "loaded", {"trust_remote_code": "trust_remote_code"}, False),
        # A dtype given to `trl grpo` or `trl rloo` has no effect here.
        ("0.22.0", "grpo", "name", {}, True),
        ("0.29.1", "rloo", "name", {}, True),
        ("0.29.1", "kto", "loaded", {"trust_remote_code": "trust_remote_code"}, False),
        ("0.28.0", "grpo", "name", NEW_LOAD, False),
        ("1.0.0", "sft", "loaded", {**NEW_LOAD, "trust_remote_code": "trust_remote_code"}, False),
        ("1.8.0", "kto", "name", NEW_LOAD, False),
        ("1.16.0", "sft", "name", NEW_LOAD, True),
        ("1.16.0", "distillation", "name", NEW_LOAD, True),
        ("1.16.0", "vllm-serve", None, {}, False),
    ],
)
def test_load(release: str, name: str, model: str | None, reaches: dict[str, str], keeps: bool) -> None:
    found = script(release, name)
    assert (found.model, found.reaches, found.keeps) == (model, reaches, keeps)


@pytest.mark.parametrize(
    ("release", "name", "trainer", "peft", "quantization"),
    [
        ("0.9.6", "sft", "SFTTrainer", True, True),
        ("0.17.0", "grpo", "GRPOTrainer", True, False),
        ("0.29.1", "reward", "RewardTrainer", True, False),
        ("1.16.0", "reward", "RewardTrainer", True, True),
        ("1.16.0", "vllm_serve", None, False, False),
    ],
)
def test_trainer(release: str, name: str, trainer: str | None, peft: bool, quantization: bool) -> None:
    found = script(release, name)
    assert (found.trainer, found.peft, found.quantization) == (trainer, peft, quantization)


@pytest.mark.parametrize(
    ("release", "name", "parser", "tolerant", "flags", "launches"),
    [
        ("0.11.0", "kto", "HfArgumentParser", False, False, False),
        ("0.12.2", "sft", "TrlParser", False, False, False),
        ("0.17.0", "sft", "TrlParser", False, False, False),
        ("0.18.0", "sft", "TrlParser", True, True, True),
        ("0.21.0", "grpo", "TrlParser", False, False, False),
        # Up to 0.28 what `trl grpo` does not know is lost, `--num_processes` included.
        ("0.22.0", "grpo", "TrlParser", True, True, False),
        ("0.28.0", "dpo", "TrlParser", True, True, False),
        ("0.29.0", "grpo", "TrlParser", True, True, True),
        ("1.0.0", "grpo", "TrlParser", True, False, True),
        ("1.16.0", "distillation", "TrlParser", True, False, True),
        ("1.10.0", "vllm-serve", "TrlParser", False, False, False),
        ("1.11.0", "vllm-serve", "TrlParser", True, True, False),
    ],
)
def test_what_is_not_known(release: str, name: str, parser: str, tolerant: bool, flags: bool, launches: bool) -> None:
    found = script(release, name)
    assert (found.parser, found.tolerant, found.tolerant_flags, found.launches) == (parser, tolerant, flags, launches)


IGNORED = {"ignore_extra_args": True, "return_remaining_strings": True}
FAILING = {"fail_with_unknown_args": False, "return_remaining_strings": True}


@pytest.mark.parametrize(
    ("release", "unknown", "lenient", "commands"),
    [
        ("0.9.6", "raises", IGNORED, True),
        ("0.12.2", "raises", IGNORED, True),
        ("0.13.0", "dropped", {}, False),
        ("0.17.0", "dropped", {}, False),
        ("0.18.0", "dropped", {}, True),
        ("0.18.2", "dropped", {}, True),
        ("0.19.0", "raises", FAILING, True),
        ("1.16.0", "raises", FAILING, True),
    ],
)
def test_parser(release: str, unknown: str, lenient: dict[str, bool], commands: bool) -> None:
    found = knowledge.trl(release).parser
    assert found is not None
    assert (found.unknown, found.lenient, found.commands) == (unknown, lenient, commands)
    assert (found.joined, found.abbreviations) == (False, True)


@pytest.mark.parametrize(
    ("release", "field", "type_", "default"),
    [
        ("0.16.0", "host", "str", "0.0.0.0"),
        ("0.16.0", "port", "int", 8000),
        ("0.16.0", "gpu_memory_utilization", "float", 0.9),
        ("0.18.2", "enforce_eager", "Optional[bool]", None),
        ("0.19.0", "enforce_eager", "Optional[bool]", False),
        ("0.17.0", "data_parallel_size", "int", 1),
        ("1.16.0", "model", "str", knowledge.REQUIRED),
        ("1.16.0", "max_model_len", "int | None", None),
        ("1.3.0", "speculative_config", "str | None", None),
    ],
)
def test_serve(release: str, field: str, type_: str, default: object) -> None:
    found = knowledge.trl(release).serve[field]
    assert (found.type, found.default) == (type_, default)


@pytest.mark.parametrize(
    ("release", "field"),
    [
        ("0.16.1", "data_parallel_size"),
        ("0.17.0", "kv_cache_dtype"),
        ("0.20.0", "vllm_model_impl"),
        ("0.15.2", "model"),
    ],
)
def test_not_served_yet(release: str, field: str) -> None:
    assert field not in knowledge.trl(release).serve


def test_serve_is_no_script_arguments() -> None:
    config = knowledge.trl("1.16.0").config("ScriptArguments")
    assert config is not None
    assert "dataset_name" in config.fields
    assert "tensor_parallel_size" not in config.fields
    assert "dataset_name" not in knowledge.trl("1.16.0").serve


# Sources that no release has yet -------------------------------------------------------------------------------------

SCRIPT = """
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser

def main(training_args, model_args):
    kwargs = dict(dtype=model_args.dtype, revision="main", attn_implementation=model_args.attn_implementation)
    training_args.model_init_kwargs = kwargs
    SFTTrainer(model=model_args.model_name_or_path, args=training_args)

def make_parser(subparsers=None):
    classes = (SFTConfig, ModelConfig)
    return TrlParser(classes)

if __name__ == "__main__":
    main(*make_parser().parse_args_and_config(fail_with_unknown_args=False))
"""

PARSER = """
class TrlParser(HfArgumentParser):
    def __init__(self, dataclass_types=None, **kwargs):
        super().__init__(dataclass_types, allow_abbrev=False, **kwargs)
        self.add_argument("--config")

    def parse_args_and_config(self, args=None, strict=True):
        return self.parse_args_into_dataclasses(args)
"""


def modules(script: str, parser: str = PARSER) -> dict[str, Module]:
    sources = {"trl.scripts.sft": script, "trl.scripts.utils": parser}
    return {name: Module(name, False, ast.parse(text)) for name, text in sources.items()}


def read(script: str) -> dict[str, script_reader.Facts]:
    return script_reader.scripts(modules(script), ["sft"], lambda module, name: None, {})


def test_a_new_script() -> None:
    assert read(SCRIPT)["sft"] == {
        "module": "trl.scripts.sft",
        "parser": "TrlParser",
        "classes": ["SFTConfig", "ModelConfig"],
        "tolerant": True,
        "tolerant_flags": False,
        "launches": False,
        "trainer": "SFTTrainer",
        "model": "name",
        "reaches": {"dtype": "dtype", "attn_implementation": "attn_implementation"},
        "keeps": False,
        "peft": False,
        "quantization": False,
    }


@pytest.mark.parametrize(
    ("old", "new", "key", "value"),
    [
        ("= kwargs\n", "= {**kwargs}\n", "reaches", {}),
        ("= kwargs\n", "= kwargs | {'dtype': model_args.dtype}\n", "reaches", {}),
        ("= kwargs\n", "= dict(dtype=model_args.dtype)\n", "reaches", {"dtype": "dtype"}),
        ("(fail_with_unknown_args=False)", "()", "tolerant", False),
        ("model=model_args.model_name_or_path, ", "", "model", None),
        ("model=model_args.model_name_or_path", "model=load(model_args)", "model", None),
        ("args=training_args)", "args=training_args, peft_config=get_peft_config(model_args))", "peft", True),
    ],
)
def test_variations(old: str, new: str, key: str, value: object) -> None:
    assert old in SCRIPT
    assert read(SCRIPT.replace(old, new))["sft"].get(key) == value


@pytest.mark.parametrize("text", ["", "x = 1", "TrlParser()", "TrlParser(classes)", "TrlParser(get_classes())"])
def test_what_parses_no_classes_is_no_script(text: str) -> None:
    assert read(text) == {}


def test_a_new_parser() -> None:
    assert script_reader.parser(modules("")) == {
        "unknown": "dropped",
        "lenient": {},
        "joined": True,
        "abbreviations": False,
        "commands": True,
    }
    assert script_reader.parser({}) is None


def test_no_source_breaks_the_reader() -> None:
    """Lines of both sources left out, doubled and swapped: what still parses is read, and is JSON."""
    chosen = random.Random(7)
    lines = (SCRIPT + PARSER).splitlines()
    read_some = 0
    for _ in range(2000):
        some = list(lines)
        for _ in range(chosen.randrange(1, 6)):
            at = chosen.randrange(len(some))
            some[at : at + chosen.randrange(3)] = chosen.choice([[], [some[at]] * 2, [chosen.choice(lines)]])
        try:
            found = modules("\n".join(some), "\n".join(some))
        except SyntaxError:
            continue
        facts = script_reader.scripts(found, ["sft"], lambda module, name: None, {})
        read_some += bool(facts)
        assert json.loads(json.dumps([facts, script_reader.parser(found)])) == [facts, script_reader.parser(found)]
    assert read_some > 100
