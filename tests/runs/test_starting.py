"""What a rule may ask of how a run is started: its command, its processes and its recipe."""

from __future__ import annotations

import pytest

from trl_lint.model import Known, Unknown

from .test_linking import HEAD, SCRIPT, known, view

RECIPE = "model_name_or_path: a/b\noutput_dir: out\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --config=r.yaml", "r.yaml"),
        ("accelerate launch --config_file=a.yaml train.py --config=r.yaml --seed=3", "r.yaml"),
        ("python train.py --config r.yaml --seed=3", None),
        ("accelerate launch --config_file=a.yaml train.py --config r.yaml", None),
        ("python train.py", None),
    ],
)
def test_a_recipe_in_one_word(command: str, expected: str | None) -> None:
    files = {"train.py": SCRIPT, "r.yaml": RECIPE, "go.sh": f"{HEAD}{command}\n"}
    assert known(files, "launch.recipe_unread") == expected


def test_whether_a_tolerant_script_reads_it_is_not_known() -> None:
    script = SCRIPT.replace("_config()", "_config(return_remaining_strings=True)").replace(
        "model_args =", "model_args, _ ="
    )
    files = {"train.py": script, "r.yaml": RECIPE, "go.sh": f"{HEAD}python train.py --config=r.yaml\n"}
    assert isinstance(view(files).value("launch.recipe_unread"), Unknown)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("accelerate launch --num_processes 8 train.py", 8),
        ("accelerate launch --num_machines 2 --num_processes 8 train.py", 4),
        ("accelerate launch --num_machines $N --num_processes 8 train.py", None),
        ("torchrun --nnodes $N --nproc_per_node 8 train.py", None),
        ("torchrun --nproc_per_node 8 train.py", 8),
    ],
)
def test_processes_of_one_machine(command: str, expected: int | None) -> None:
    value = view({"train.py": SCRIPT, "go.sh": f"{HEAD}{command}\n"}).value("launch.processes_here")
    assert (value.value if isinstance(value, Known) else None) == expected


def test_the_right_name_makes_a_misspelt_one_harmless() -> None:
    files = {"train.py": SCRIPT, "go.sh": f"{HEAD}cuda_visible_devices=1 python train.py\n"}
    assert known(files, "launch.misspelt_visible_devices") == "cuda_visible_devices"
    files["go.sh"] = f"{HEAD}cuda_visible_devices=1 CUDA_VISIBLE_DEVICES=1 python train.py\n"
    assert known(files, "launch.misspelt_visible_devices") is None


def test_how_accelerate_distributes() -> None:
    files = {
        "train.py": SCRIPT,
        "a.yaml": "distributed_type: 'NO'\nnum_processes: 1\n",
        "go.sh": f"{HEAD}accelerate launch --config_file a.yaml train.py\n",
    }
    assert known(files, "launch.distributed_type") == "NO"


def serving(server: str, training: str, head: str = HEAD) -> dict[str, str]:
    return {"train.py": SCRIPT, "go.sh": f"{head}{server}\n{training}\n"}


@pytest.mark.parametrize(
    ("server", "training", "expected"),
    [
        ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model a/b &", "CUDA_VISIBLE_DEVICES=0 python train.py", True),
        ("CUDA_VISIBLE_DEVICES=1 trl vllm-serve --model a/b &", "CUDA_VISIBLE_DEVICES=0,1 python train.py", False),
        # The server takes the first two of the three that it sees.
        (
            "CUDA_VISIBLE_DEVICES=0,1,2 trl vllm-serve --model a/b --tensor_parallel_size 2 &",
            "CUDA_VISIBLE_DEVICES=2 python train.py",
            False,
        ),
        (
            "CUDA_VISIBLE_DEVICES=0,1,2 trl vllm-serve --model a/b --data_parallel_size 2 &",
            "CUDA_VISIBLE_DEVICES=1,2 python train.py",
            True,
        ),
        ("ssh other trl vllm-serve --model a/b &", "CUDA_VISIBLE_DEVICES=0 python train.py", None),
        (
            "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model a/b &",
            "CUDA_VISIBLE_DEVICES=0 accelerate launch --num_machines 2 --num_processes 2 train.py",
            None,
        ),
    ],
)
def test_a_server_on_the_first_gpu(server: str, training: str, expected: bool | None) -> None:
    value = view(serving(server, training)).value("server.takes_first_gpu")
    assert (value.value if isinstance(value, Known) else None) is expected


@pytest.mark.parametrize(
    ("server", "training", "expected"),
    [
        ("export CUDA_VISIBLE_DEVICES=0,1,2\ntrl vllm-serve --model a/b &", "python train.py", "1,2"),
        ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model a/b &", "CUDA_VISIBLE_DEVICES=0 python train.py", "1,2,3"),
        ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model a/b &", "torchrun --nproc_per_node 3 train.py", "1,2,3"),
        ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model a/b &", "torchrun --nproc_per_node 4 train.py", None),
        ("trl vllm-serve --model a/b --tensor_parallel_size $TP &", "python train.py", None),
    ],
)
def test_the_gpus_that_a_server_leaves(server: str, training: str, expected: str | None) -> None:
    head = "#!/bin/bash\n# trl-lint: facts trl==1.9.2 gpu=H100 n_gpu=4\n"
    value = view(serving(server, training, head)).value("launch.free_gpus")
    assert (value.value if isinstance(value, Known) else None) == expected


SERVE = "trl vllm-serve --model a/b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{SERVE} &\npython train.py", True),
        (f"{SERVE}\npython train.py", True),  # two terminals in one file
        (f"python train.py &\n{SERVE}", True),
        (f"python train.py\n{SERVE}", None),
        (f'if [ -n "$X" ]; then\n    {SERVE} &\nfi\npython train.py', None),
        (f"serve() {{\n    {SERVE} &\n}}\nserve\npython train.py", None),
        ("python train.py", None),
    ],
)
def test_a_server_that_runs_beside_the_training(text: str, expected: bool | None) -> None:
    value = view({"train.py": SCRIPT, "go.sh": f"{HEAD}{text}\n"}).value("server.alongside")
    assert (value.value if isinstance(value, Known) else None) is expected


def test_what_the_name_of_the_served_model_says() -> None:
    files = serving("trl vllm-serve --model Qwen/Qwen3-30B-A3B &", "python train.py --model_name_or_path Qwen/Qwen3-8B")
    assert known(files, "server.model_type") == "qwen3_moe"
    assert known(files, "server.billions") == 30.0
    assert known(files, "model.type") == "qwen3"
    assert known(files, "model.billions") == 8.0


def test_the_context_that_a_training_needs() -> None:
    head = "#!/bin/bash\n# trl-lint: facts trl==0.19.1\n"
    files = serving(f"{SERVE} &", "python train.py --max_prompt_length 4000 --max_completion_length 3500", head)
    assert known(files, "server.needed_model_len") == 7500


def test_trl_0_16_has_no_data_parallelism() -> None:
    head = "#!/bin/bash\n# trl-lint: facts trl==0.16.0\n"
    assert known(serving(f"{SERVE} --tensor_parallel_size 2 &", "python train.py", head), "server.needed_gpus") == 2


def test_whose_parser_takes_the_options() -> None:
    files = {"train.py": SCRIPT, "go.sh": f"{HEAD}python train.py --num_generations 4\n"}
    assert known(files, "run.parser_shown") is True
    files = {"go.sh": f"{HEAD}python other/train_grpo.py --num_generations 4\n"}
    assert known(files, "run.parser_shown") is False
