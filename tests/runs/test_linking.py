"""Files that belong to one run are read as one: which value wins, whose launch it is, what a class of the project's own adds."""

from __future__ import annotations

import json

import pytest

from trl_lint.knowledge import releases as trl_releases
from trl_lint.knowledge import trl
from trl_lint.model import Known, Unknown
from trl_lint.runs import Project, View
from trl_lint.runs.linking import method_shown

from ..helpers import fix_files, lint_files

SCRIPT = """
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser

parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
trainer = GRPOTrainer(
    model=model_args.model_name_or_path,
    args=training_args,
    reward_funcs=len,
    train_dataset=load(script_args.dataset_name),
)
"""
HEAD = "#!/bin/bash\n# trl-lint: facts trl==1.9.2\n"


def view(files: dict[str, str], method: str = "grpo") -> View:
    runs = [r for r in lint_files(files).runs if r.method == method]
    assert len(runs) == 1, [(r.id, r.method) for r in runs]
    assert runs[0].worlds.assumed is not None
    return View(runs[0], runs[0].worlds.assumed)


def known(files: dict[str, str], name: str, method: str = "grpo") -> object:
    value = view(files, method).value(name)
    assert isinstance(value, Known), value
    return value.value


def test_the_later_layer_wins() -> None:
    files = {
        "train.py": SCRIPT.replace("trainer =", "training_args.seed = 4\ntrainer ="),
        "r.yaml": "model_name_or_path: a/b\nseed: 2\nbeta: 0.1\nnum_generations: 4\n",
        "go.sh": f"{HEAD}python train.py --config r.yaml --seed 3 --num_generations 16\n",
    }
    assert known(files, "seed") == 4  # assigned in the script
    assert known(files, "num_generations") == 16  # the flag
    assert known(files, "beta") == 0.1  # the recipe
    assert known(files, "epsilon") == 0.2  # the release
    assert known(files, "model.name") == "a/b"
    assert known(files, "model.is_name") is True
    assert known(files, "launch.program") == "python"


def test_text_becomes_what_the_field_is() -> None:
    files = {
        "train.py": SCRIPT,
        "r.yaml": "model_name_or_path: a/b\nlearning_rate: 1e-5\nreward_weights: 1\n",
        "go.sh": f"{HEAD}python train.py --config r.yaml --bf16 true --run_name 7\n",
    }
    assert known(files, "learning_rate") == 1e-5
    assert known(files, "bf16") is True
    assert known(files, "run_name") == "7"


def test_a_script_of_two_launches_is_two_runs() -> None:
    files = {
        "train.py": SCRIPT,
        "one.sh": f"{HEAD}python train.py --model_name_or_path a --num_generations 4\n",
        "two.sh": "accelerate launch --num_processes 2 train.py --model_name_or_path a --num_generations 8\n",
    }
    runs = [r for r in lint_files(files).runs if r.method == "grpo"]
    assert sorted(r.id.split("@")[1] for r in runs) == ["one.sh:3", "two.sh:1"]


def test_a_fix_must_be_right_for_every_run_of_a_recipe() -> None:
    files = {
        "train.py": SCRIPT,
        "r.yaml": "model_name_or_path: a/b\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 1\nnum_generations: 8\n",
        "one.sh": f"{HEAD}python train.py --config r.yaml\n",
        "eight.sh": "accelerate launch --num_processes 8 train.py --config r.yaml\n",
    }
    found = [
        f
        for f in lint_files(files).findings
        if f.rule in ("group-does-not-divide-batch", "generation-batch-not-divisible")
    ]
    assert len(found) == 1
    assert found[0].runs == ("train.py#1@one.sh:3",)
    assert not fix_files(files, found[0].rule, unsafe=True).changed


def test_what_cannot_be_read_on_the_command_line_is_unknown() -> None:
    files = {"train.py": SCRIPT, "go.sh": f'{HEAD}python train.py --model_name_or_path a "$@"\n'}
    assert isinstance(view(files).value("use_vllm"), Unknown)
    assert known(files, "model.name") == "a"


def test_a_recipe_that_is_not_there_leaves_everything_open() -> None:
    files = {"train.py": SCRIPT, "go.sh": f"{HEAD}python train.py --config elsewhere.yaml --use_vllm true\n"}
    assert known(files, "use_vllm") is True
    assert isinstance(view(files).value("num_generations"), Unknown)


CONFIGS = """
from dataclasses import dataclass, field

import trl


@dataclass
class MyConfig(trl.GRPOConfig):
    benchmarks: list[str] = field(default_factory=list)
    system_prompt: str | None = None


@dataclass
class MyArguments(trl.ScriptArguments):
    reward: str = "accuracy"
"""


@pytest.mark.parametrize(
    "statement", ["from pkg.configs import MyArguments, MyConfig", "from .configs import MyArguments, MyConfig"]
)
def test_a_config_of_the_projects_own_adds_its_fields(statement: str) -> None:
    script = SCRIPT.replace("from trl import GRPOConfig,", f"{statement}\nfrom trl import")
    script = script.replace("(ScriptArguments, GRPOConfig, ModelConfig)", "(MyArguments, MyConfig, ModelConfig)")
    files = {
        "pkg/train.py": script,
        "pkg/configs.py": CONFIGS,
        "r.yaml": "model_name_or_path: a/b\nbenchmarks: [math]\nsystem_prompt: hi\nreward: format\nuse_vllm: true\nnum_generation: 4\n",
        "go.sh": f"{HEAD}accelerate launch pkg/train.py --config r.yaml\n",
    }
    assert known(files, "use_vllm") is True
    unknown = [f.fields for f in lint_files(files).findings if f.rule == "unknown-recipe-key"]
    assert unknown == [("num_generation",)]


def test_an_argparse_option_is_what_the_command_gives() -> None:
    script = """
import argparse
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-4)
parser.add_argument("--packing", action="store_true")
parser.add_argument("--steps", type=int, default=7)
args = parser.parse_args()
config = SFTConfig(output_dir="o", learning_rate=args.lr, packing=args.packing, max_steps=args.steps)
SFTTrainer("m", args=config, train_dataset=data)
"""
    files = {"train.py": script, "go.sh": f"{HEAD}python train.py --lr 2e-5 --packing\n"}
    assert known(files, "learning_rate", "sft") == 2e-5
    assert known(files, "packing", "sft") is True
    assert known(files, "max_steps", "sft") == 7


def test_accelerate_and_deepspeed_configs_are_followed() -> None:
    files = {
        "train.py": SCRIPT,
        "acc.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 6\ndeepspeed_config:\n  deepspeed_config_file: ds/z3.json\n",
        "ds/z3.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n',
        "go.sh": f"{HEAD}accelerate launch --config_file acc.yaml train.py --model_name_or_path a\n",
    }
    assert known(files, "launch.zero_stage") == 3
    assert known(files, "launch.num_processes") == 6


@pytest.mark.parametrize(
    ("launch", "shared"),
    [
        ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model a &\nCUDA_VISIBLE_DEVICES=0 python train.py", True),
        ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model a &\nCUDA_VISIBLE_DEVICES=1 python train.py", False),
        ("export CUDA_VISIBLE_DEVICES=0,1,2\ntrl vllm-serve --model a --tensor-parallel-size 2 &\npython train.py", True),
        ("CUDA_VISIBLE_DEVICES=0,1 trl vllm-serve --model a --data_parallel_size 2 &\nCUDA_VISIBLE_DEVICES=2,3 accelerate launch --num_processes 2 train.py", False),
        ("CUDA_VISIBLE_DEVICES=0,1,2 trl vllm-serve --model a &\nCUDA_VISIBLE_DEVICES=1,2 accelerate launch --num_processes 2 train.py", False),
        ("trl vllm-serve --model a &\npython train.py", None),
        ("ssh other CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model a &\nCUDA_VISIBLE_DEVICES=0 python train.py", None),
        ('CUDA_VISIBLE_DEVICES=$GPU trl vllm-serve --model a &\nCUDA_VISIBLE_DEVICES=0 python train.py', None),
    ],
)  # fmt: skip
def test_whether_server_and_trainer_share_a_gpu(launch: str, shared: bool | None) -> None:
    value = view({"train.py": SCRIPT, "go.sh": f"{HEAD}{launch} --model_name_or_path a\n"}).value("server.shares_gpu")
    assert (value.value if isinstance(value, Known) else None) is shared


def test_of_several_servers_the_one_on_the_port_counts() -> None:
    launch = "trl vllm-serve --model a --port 8001 &\ntrl vllm-serve --model b --port 8002 &\npython train.py --model_name_or_path b --vllm_server_port 8002\n"
    assert known({"train.py": SCRIPT, "go.sh": HEAD + launch}, "server.model") == "b"


RELEASE = trl("1.9.2")


@pytest.mark.parametrize(
    ("words", "keys", "method"),
    [
        ("recipes qwen grpo config", "learning_rate", "grpo"),
        ("recipes qwen sft config", "packing", "sft"),
        ("recipes demo config", "learning_rate", None),
        ("recipes demo config", "packing assistant_only_loss", "sft"),
        ("recipes demo config", "num_generations reward_weights loss_type", "grpo"),
        ("recipes demo config", "num_generations", None),  # GRPO and RLOO
        ("sft and grpo", "learning_rate", None),
        ("dpo", "num_generations", None),  # the name and the keys disagree
    ],
)  # fmt: skip
def test_a_recipe_shows_its_method_only_where_one_is_left(words: str, keys: str, method: str | None) -> None:
    assert method_shown(tuple(words.split()), frozenset(keys.split()), RELEASE) == method


def test_a_recipe_that_leaves_several_methods_stays_silent() -> None:
    examined = lint_files({"config.yaml": "model_name_or_path: a/b\nlearning_rate: 0.1\nfp16: true\nbf16: true\n"})
    assert not examined.runs
    assert not examined.findings


def test_an_own_field_of_the_projects_script_is_known_to_a_recipe_that_nothing_launches() -> None:
    script = SCRIPT.replace("GRPOConfig,", "", 1).replace("import  GRPOTrainer", "import GRPOTrainer")
    script = "from configs import MyConfig\n" + script.replace("GRPOConfig, ModelConfig))", "MyConfig, ModelConfig))")
    recipe = "model_name_or_path: a/b\nbenchmarks: [x]\nnum_generations: 4\nreward_weights: [1]\nlogging_step: 3\n"
    files = {"train.py": script, "configs.py": CONFIGS, "recipes/grpo/r.yaml": recipe}
    found = [f.fields for f in lint_files(files, trl="1.9.2").findings if f.rule == "unknown-recipe-key"]
    assert found == [("logging_step",)]


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("", [("max_prompt_length",)]),  # a field that TRL once had is not one of the project's own
        ("dataset_mixer: {a: 1}\n", []),  # no release ever had it: somebody's own parser takes this recipe
    ],
)
def test_a_recipe_for_a_script_that_is_not_there(key: str, found: list[tuple[str, ...]]) -> None:
    recipe = f"model_name_or_path: a/b\nnum_generations: 4\nreward_weights: [1]\nmax_prompt_length: 8\n{key}"
    findings = lint_files({"grpo/r.yaml": recipe}, trl="1.9.2").findings
    assert [f.fields for f in findings if f.rule == "unknown-recipe-key"] == found


def test_classes_that_a_package_hands_on_are_followed() -> None:
    script = SCRIPT.replace("from trl import GRPOConfig,", "from pkg import MyArguments, MyConfig\nfrom trl import")
    files = {
        "train.py": script.replace(
            "(ScriptArguments, GRPOConfig, ModelConfig)", "(MyArguments, MyConfig, ModelConfig)"
        ),
        "pkg/__init__.py": "from .configs import MyArguments\nfrom .configs import *\n",
        "pkg/configs.py": CONFIGS,
        "r.yaml": "benchmarks: [math]\nreward: format\nnum_generation: 4\n",
        "go.sh": f"{HEAD}python train.py --config r.yaml\n",
    }
    assert [f.fields for f in lint_files(files).findings if f.rule == "unknown-recipe-key"] == [("num_generation",)]


def test_a_script_that_builds_no_trainer_is_not_judged_as_one() -> None:
    script = SCRIPT[: SCRIPT.index("trainer =")]
    files = {
        "filter.py": script,
        "r.yaml": "model_name_or_path: a\nnum_generations: 4\n",
        "go.sh": f"{HEAD}python filter.py --config r.yaml\n",
    }
    assert not [r for r in lint_files(files).runs if r.method is not None]


def test_a_trainer_that_samples_in_its_own_way_is_not_judged_as_trls() -> None:
    trainer = "from trl import GRPOTrainer\n\n\nclass Mine(GRPOTrainer):\n    def _prepare_inputs(self, inputs):\n        return inputs\n"
    script = SCRIPT.replace("GRPOTrainer, ", "").replace("GRPOTrainer(", "Mine(")
    files = {
        "train.py": f"from mine import Mine\n{script}",
        "mine.py": trainer,
        "go.sh": f"{HEAD}python train.py --num_generations 4\n",
    }
    assert not [r for r in lint_files(files).runs if r.method == "grpo"]


@pytest.mark.parametrize(
    ("text", "near", "found"),
    [
        ("train.py", "a/go.sh", "a/train.py"),
        ("train.py", "b/go.sh", None),
        ("a/train.py", "b/go.sh", "a/train.py"),
        ("/workspace/repo/a/train.py", "b/go.sh", "a/train.py"),
        ("/a/train.py", "b/go.sh", "a/train.py"),
        ("../a/train.py", "b/go.sh", "a/train.py"),
        ("train.py", "go.sh", "a/train.py"),
        ("twice.py", "go.sh", False),
        ("twice.py", "a/go.sh", "a/twice.py"),
    ],
)
def test_the_file_that_a_command_means(text: str, near: str, found: str | bool | None) -> None:
    project = Project({}, ("a/train.py", "a/twice.py", "c/twice.py", "a/go.sh", "b/go.sh", "go.sh"))
    assert project.find(text, near) == found


def test_a_trainer_that_is_not_trls_is_not_judged_as_one() -> None:
    script = SCRIPT.replace("GRPOTrainer, ", "").replace("GRPOTrainer(", "MyTrainer(")
    files = {"train.py": script, "go.sh": f"{HEAD}python train.py --use_vllm false --num_generations 8\n"}
    assert not [r for r in lint_files(files).runs if r.method == "grpo"]


def test_only_given_files_are_reported_and_edited() -> None:
    from trl_lint.fixing import fix_file
    from trl_lint.rulebook.files import Sources, examine_all
    from trl_lint.sources.reading import read
    from trl_lint.sources.text import Text

    from ..helpers import context

    files = {
        "train.py": SCRIPT,
        "r.yaml": "model_name_or_path: a/b\nbf16: true\nfp16: true\nuse_vllm: true\nvllm_mode: colocate\n",
        "go.sh": f"{HEAD}python train.py --config r.yaml\n",
    }
    texts = {p: Text(p, c.encode()) for p, c in files.items()}
    modules = {p: read(t) for p, t in texts.items()}
    for given, expected in ({"r.yaml"}, True), ({"train.py"}, False):
        made = context("both-half-precisions")
        groups = list(examine_all(Sources(dict(texts), dict(modules), frozenset(given)), made))
        assert [bool(g.findings) for g in groups] == [expected]
        assert set(fix_file(groups[0], made, unsafe=True).changed) == ({"r.yaml"} if expected else set())


def test_an_option_of_the_projects_own_dataclass_is_no_field_of_the_config() -> None:
    files = {
        "train.py": """# trl-lint: facts trl==1.16.0
from dataclasses import dataclass

from transformers import HfArgumentParser, TrainingArguments
from trl import SFTTrainer


@dataclass
class DataArguments:
    packing: bool = False


parser = HfArgumentParser((DataArguments, TrainingArguments))
data_args, training_args = parser.parse_args_into_dataclasses()
SFTTrainer(model="Qwen/Qwen3-0.6B", args=training_args, train_dataset=load(), packing=data_args.packing)
""",
        "run.sh": "python train.py --output_dir out --packing True --bf16 True\n",
    }
    found = lint_files(files, "unknown-trainer-keyword").findings
    assert [f.message for f in found] == [
        "SFTTrainer takes no packing in trl 1.16.0 (last in 0.12.2): the call raises TypeError; it is SFTConfig.packing now"
    ]
    assert "packing" in fix_files(files, "unknown-trainer-keyword", unsafe=True).examined.sources.texts["run.sh"].code


# What prose and headers say of a launch ------------------------------------------------------------------------------


def notebook(prose: str, *cells: str) -> str:
    made = [{"cell_type": "markdown", "source": prose}, *({"cell_type": "code", "source": c} for c in cells)]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4})


SHOWN = "```bash\naccelerate launch --num_processes 4 train.py --config r.yaml\n```\n"
PLAIN = SCRIPT.replace("GRPO", "SFT").replace("    reward_funcs=len,\n", "")
RECIPE = "model_name_or_path: a/b\nmax_seq_length: 1024\n"


def away(files: dict[str, str]) -> dict[str, str]:
    """The same files where no project around them says anything."""
    return {f"/nowhere/{name}": text for name, text in files.items()}


def releases(files: dict[str, str]) -> dict[str, str]:
    found = lint_files(away(files)).runs
    return {r.id.replace("/nowhere/", ""): r.worlds.assumed.version for r in found if r.method and r.worlds.assumed}


def test_a_launch_that_prose_shows_tells_the_release() -> None:
    files = {"train.py": PLAIN, "r.yaml": RECIPE, "how.ipynb": notebook(SHOWN, "!pip install trl==0.14.0")}
    assert releases(files) == {"train.py#1@how.ipynb:2": "0.14.0", "r.yaml#recipe@how.ipynb:2": "0.14.0"}
    assert lint_files(away(files), "unknown-recipe-key").findings == ()
    # Nothing else of it counts: nobody says that it is run as shown.
    assert all(r.launch is None for r in lint_files(away(files)).runs)
    # The recipe goes to the script that prose hands it to, whatever else there is.
    other = {**files, "other.py": SCRIPT.replace("GRPO", "DPO")}
    assert "r.yaml#recipe@how.ipynb:2" in releases(other)


def test_a_real_launch_speaks_before_prose() -> None:
    files = {
        "train.py": PLAIN,
        "r.yaml": RECIPE,
        "how.ipynb": notebook(SHOWN, "!pip install trl==0.14.0"),
        "go.sh": "# trl-lint: facts trl==0.19.0\npython train.py --config r.yaml\n",
    }
    assert releases(files) == {"train.py#1@go.sh:2": "0.19.0"}


def test_prose_of_two_notebooks_is_two_runs() -> None:
    shown = SHOWN.replace("train.py --config r.yaml", "theirs.py --config sft.yaml")
    files = {
        "sft.yaml": RECIPE,
        "one.ipynb": notebook(shown, "!pip install trl==0.14.0"),
        "two.ipynb": notebook(shown, "!pip install trl==0.19.1"),
    }
    assert sorted(releases(files).values()) == ["0.14.0", "0.19.1"]


def test_prose_without_versions_tells_none() -> None:
    files = {"train.py": PLAIN, "r.yaml": RECIPE, "how.ipynb": notebook(SHOWN, "import os")}
    assert set(releases(files).values()) == {trl_releases("trl")[-1]}


HEADER = '# /// script\n# dependencies = ["trl==1.16.0"]\n# ///\n'


@pytest.mark.parametrize(
    ("command", "release"),
    [
        ("python train.py", "0.19.1"),
        ("accelerate launch train.py", "0.19.1"),
        ("torchrun train.py", "0.19.1"),
        ("uv run python train.py", "0.19.1"),
        ("uv run accelerate launch train.py", "0.19.1"),
        ("uv run train.py", "1.16.0"),
        ("uv run --script train.py", "1.16.0"),
        ("pipx run ./train.py", "1.16.0"),
        ("hf jobs uv run --flavor a100-large train.py", "1.16.0"),
        ("./train.py", "1.16.0"),
        ("$LAUNCHER train.py", "1.16.0"),
    ],
)
def test_who_heeds_the_header_of_a_script(command: str, release: str) -> None:
    files = {
        "train.py": HEADER + PLAIN,
        "go.ipynb": notebook("", "!pip install trl==0.19.1", f"!{command}"),
    }
    assert list(releases(files).values()) == [release]


def test_a_launch_that_a_comment_states_has_its_place_there() -> None:
    code = """
# trl-lint: facts trl==1.16.0
# é: trl-lint: facts n_gpu=2
# trl-lint: facts launch="CUDA_VISIBLE_DEVICES=0 python train.py"
from trl import SFTConfig, SFTTrainer

SFTTrainer("m", args=SFTConfig(output_dir="o")).train()
""".lstrip()
    run = view({"train.py": code}, "sft").run
    assert run.launch is not None
    assert (run.launch.command.span.line, run.launch.command.span.column) == (3, 27)
    span = run.launch.command.span
    assert code.encode()[span.start : span.end] == b"CUDA_VISIBLE_DEVICES=0 python train.py"
