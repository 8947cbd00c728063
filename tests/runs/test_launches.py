"""What a command launches: programs, servers, options, processes, GPUs; each command as people write it."""

from __future__ import annotations

import random

import pytest

from trl_lint.model import Known, Table, Unknown
from trl_lint.runs.launches import Launch, launches_of, read_text
from trl_lint.sources import shell
from trl_lint.sources.text import Text


def launches(script: str) -> tuple[Launch, ...]:
    return launches_of(shell.read(Text("run.sh", script.encode())))


def launch(line: str) -> Launch:
    (found,) = launches(line + "\n")
    return found


def plain(value: object) -> object:
    return value.value if isinstance(value, Known) else value


def values(arguments: object) -> dict[str, object]:
    return {name: plain(argument.value) for name, argument in arguments.items()}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("line", "launcher", "program", "module", "subcommand", "server"),
    [
        ("python train.py", "python", "train.py", None, None, None),
        ("/opt/venv/bin/python3.11 -u -W ignore src/train.py --a 1", "python", "src/train.py", None, None, None),
        ("python -m open_r1.grpo --config c.yaml", "python", None, "open_r1.grpo", None, None),
        ("accelerate launch --multi_gpu train.py", "accelerate", "train.py", None, None, None),
        ("accelerate launch --config_file z.yaml -m trl.scripts.sft", "accelerate", None, "trl.scripts.sft", "sft", None),
        ("python -m accelerate.commands.launch --num_processes=8 t.py", "accelerate", "t.py", None, None, None),
        ("torchrun --nproc_per_node 4 --standalone train.py", "torchrun", "train.py", None, None, None),
        ("torchrun --nproc_per_node 4 -m pkg.train --x 1", "torchrun", None, "pkg.train", None, None),
        ("python -m torch.distributed.run --nproc-per-node=2 t.py", "torchrun", "t.py", None, None, None),
        ("python3 -m torch.distributed.launch --nproc_per_node=2 t.py", "torchrun", "t.py", None, None, None),
        ("deepspeed --num_gpus=8 train.py --deepspeed z.json", "deepspeed", "train.py", None, None, None),
        ("deepspeed --module pkg.train --a b", "deepspeed", None, "pkg.train", None, None),
        ("trl grpo --config r.yaml", "trl", None, None, "grpo", None),
        ("python -m trl.cli sft --config r.yaml", "trl", None, None, "sft", None),
        ("trl vllm-serve --model M", None, None, None, None, "trl vllm-serve"),
        ("trl vllm_serve --model M", None, None, None, None, "trl vllm-serve"),
        ("python -m trl.scripts.vllm_serve --model M", None, None, None, None, "trl vllm-serve"),
        ("python -m trl.cli vllm-serve --model M", None, None, None, None, "trl vllm-serve"),
        ("vllm serve M --port 8000", None, None, None, None, "vllm serve"),
        ("python -m vllm.entrypoints.openai.api_server --model M", None, None, None, None, "vllm openai"),
        ("docker run --gpus all vllm/vllm-openai:latest --model M", None, None, None, None, "vllm openai"),
        ("./train.py --x", "python", "./train.py", None, None, None),
    ],
)  # fmt: skip
def test_who_is_launched(
    line: str, launcher: str | None, program: str | None, module: str | None, subcommand: str | None, server: str | None
) -> None:
    found = launch(line)
    assert (found.launcher, found.program, found.module, found.subcommand, found.server) == (
        launcher, program, module, subcommand, server,
    )  # fmt: skip
    assert found.flags.kind == ("server" if server else "flags")
    assert found.flags.name == (server or launcher)
    assert found.unreadable is None


@pytest.mark.parametrize(
    "wrapper",
    [
        "nohup", "env A=b", "env -u X A=b", "nohup env A=b", "setsid nohup", "time", "sudo -E", "sudo -u me A=b", "timeout 10m",
        "timeout -k 5 10", "stdbuf -oL", "numactl --cpunodebind 0 --membind=0", "taskset -c 0-7", "nice -n 10", "exec",
        "srun -N 1 -n 1", "srun --nodes=1 --ntasks=1 --gres gpu:8", "mpirun -np 1 --allow-run-as-root", "uv run",
        "uv run --with trl --with vllm -p 3.11", "poetry run", "pdm run", "conda run -n trl --no-capture-output",
        "pixi run -e gpu", "docker run --rm -it --gpus all -v /a:/b --name vllm image:tag", "docker exec -it box",
        "docker compose run --rm app", "singularity exec --nv image.sif", "nsys profile -o out --trace=cuda,nvtx",
        "python -m debugpy --listen 0.0.0.0:5678 --wait-for-client", "coverage run", "python -m coverage run -p",
        "time A=b",
    ],
)  # fmt: skip
def test_wrappers_are_peeled(wrapper: str) -> None:
    script = "train.py" if wrapper.endswith(("-client", "coverage run", "run -p")) else "python train.py"
    found = launch(f"{wrapper} {script} --lr 1e-5")
    assert (found.launcher, found.program, found.host) == ("python", "train.py", None)
    assert values(found.flags.arguments) == {"lr": 1e-5}
    assert plain(found.processes) == 1


@pytest.mark.parametrize(
    "line",
    [
        "", "echo python train.py", "python", "python -c 'import x'", "python -m pip install trl", "python - <<EOF\nx\nEOF",
        "accelerate config default", "accelerate launch", "trl", "trl env", "trl chat --model M", "vllm bench", "wandb agent x",
        "uv sync", "uv pip install trl", "docker build .", "pip install vllm", "$CMD", "pytest tests", "python -m pytest",
        "conda activate trl", "bash train.sh", "torchrun", "deepspeed --num_gpus 2",
    ],
)  # fmt: skip
def test_what_launches_nothing(line: str) -> None:
    assert launches(line + "\n") == ()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--a b", {"a": "b"}),
        ("--a=b", {"a": "b"}),
        ('--prompt="a b c" --x', {"prompt": "a b c", "x": True}),
        ("--tensor-parallel-size 2 --data_parallel_size 4", {"tensor_parallel_size": 2, "data_parallel_size": 4}),
        ("--use_vllm", {"use_vllm": True}),
        ("--use_vllm --x", {"use_vllm": True, "x": True}),
        ("--no_bf16", {"bf16": False}),
        ("--no-bf16 --x 1", {"bf16": False, "x": 1}),
        ("--no_cuda", {"no_cuda": True}),
        ("--no_repeat_ngram_size 3", {"no_repeat_ngram_size": 3}),
        ("--bf16 True --fp16 false", {"bf16": True, "fp16": False}),
        ("--x yes --y None", {"x": "yes", "y": "None"}),
        ("--lr 1e-5 --beta 0.0 --n 10 --s .5", {"lr": 1e-5, "beta": 0.0, "n": 10, "s": 0.5}),
        ("--x -1 --y -0.5 --z -1e-3", {"x": -1, "y": -0.5, "z": -1e-3}),
        ("--gpu 0,1 --v 1.2.3 --r 007", {"gpu": "0,1", "v": "1.2.3", "r": "007"}),
        ("--reward_funcs a b c --x 1", {"reward_funcs": ("a", "b", "c"), "x": 1}),
        ("--a 1 --a 2", {"a": 2}),
        ("--bf16 --no_bf16", {"bf16": False}),
        ("recipe.yaml --a=1", {"0": "recipe.yaml", "a": 1}),
        ("--x ''", {"x": ""}),
        ("--x '{a}'", {"x": "{a}"}),
        ("-c x.yaml", {"c": "x.yaml"}),
    ],
)
def test_options(options: str, expected: dict[str, object]) -> None:
    assert values(launch(f"python train.py {options}").flags.arguments) == expected


def test_the_last_one_given_stands_last_and_points_there() -> None:
    line = "python train.py --a 1 --b 2 --a 3"
    found = launch(line).flags.arguments
    assert list(found) == ["b", "a"]
    assert line[found["a"].place.whole.start : found["a"].place.whole.end] == "--a 3"


@pytest.mark.parametrize(
    ("line", "name", "whole", "value"),
    [
        ("A=1 python t.py --lr 1e-5 --x 1", "lr", "--lr 1e-5", "1e-5"),
        ("python t.py --lr=1e-5", "lr", "--lr=1e-5", "1e-5"),
        ("python t.py --use_vllm", "use_vllm", "--use_vllm", "--use_vllm"),
        ("python t.py --é ü --r a 'b c' d", "r", "--r a 'b c' d", "a 'b c' d"),
        ("python t.py r.yaml", "0", "r.yaml", "r.yaml"),
        ("python t.py --no_bf16 --x", "bf16", "--no_bf16", "--no_bf16"),
    ],
)
def test_places(line: str, name: str, whole: str, value: str) -> None:
    data = line.encode()
    place = launch(line).flags.arguments[name].place
    assert data[place.whole.start : place.whole.end].decode() == whole
    assert data[place.value.start : place.value.end].decode() == value
    assert place.container == 0


def test_a_repeated_variable_is_bound_where_it_is_assigned() -> None:
    script = "N=4\naccelerate launch --num_processes $N train.py\n"
    (found,) = launches(script)
    place = found.starter.arguments["num_processes"].place
    assert plain(found.processes) == 4
    assert place.binding is not None
    assert script[place.binding.start : place.binding.end] == "4"
    assert script[place.value.start : place.value.end] == "$N"


def test_json_is_a_table() -> None:
    found = launch(
        """python t.py --model_init_kwargs '{"attn_implementation": "sdpa", "n": [1, 2], "o": {"p": null}}'"""
    )
    argument = found.flags.arguments["model_init_kwargs"]
    table = plain(argument.value)
    assert isinstance(table, Table)
    assert values(table.entries)["attn_implementation"] == "sdpa"
    assert values(table.entries)["n"] == (1, 2)
    inner = values(table.entries)["o"]
    assert isinstance(inner, Table)
    assert values(inner.entries) == {"p": None}
    assert table.entries["n"].place.value == argument.place.value


@pytest.mark.parametrize(
    ("line", "processes", "nodes"),
    [
        ("python t.py", 1, 1),
        ("accelerate launch --num_processes 8 --num_machines 2 t.py", 8, 2),
        ("torchrun t.py", 1, 1),
        ('torchrun --nproc_per_node="8" --nnodes="2" t.py', 16, 2),
        ("deepspeed --num_gpus 4 t.py", 4, 1),
        ("deepspeed --hostfile h --num_nodes 2 --num_gpus 8 t.py", 16, 2),
        ("deepspeed --include localhost:0,1,3 t.py", 3, 1),
        ("deepspeed --include a:0,1@b:0,1 t.py", 4, 2),
        ("CUDA_VISIBLE_DEVICES=2,3 deepspeed t.py", 2, 1),
        ("trl grpo --num_processes 4 --num_machines 1", 4, 1),
    ],
)
def test_processes(line: str, processes: int, nodes: int) -> None:
    found = launch(line)
    assert (plain(found.processes), plain(found.nodes)) == (processes, nodes)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("accelerate launch t.py", "accelerate's config file or default decides"),
        ("trl grpo --config r.yaml", "accelerate's config file or default decides"),
        ("accelerate launch --num_processes $N t.py", "$N is not set in this file"),
        ("torchrun --nproc_per_node gpu t.py", "nproc_per_node=gpu is decided when it starts"),
        ("torchrun --nnodes 1:4 t.py", "nnodes=1:4 is decided when it starts"),
        ("deepspeed t.py", "deepspeed starts one process for every GPU that it finds"),
        ("deepspeed --include worker t.py", "deepspeed's --include or --exclude decides"),
        ("srun -n 8 python t.py", "srun decides how many copies of it are started"),
        ("mpirun -np 4 -x PATH python t.py", "mpirun decides how many copies of it are started"),
        ("$LAUNCHER --opt x t.py", "$LAUNCHER is not set in this file"),
    ],
)
def test_unknown_processes(line: str, why: str) -> None:
    assert launch(line).processes == Unknown(why)


def test_a_default_of_the_script_is_likely() -> None:
    found = launch("torchrun --nproc_per_node ${N:-8} --nnodes 2 ${SCRIPT:-train.py}")
    assert isinstance(found.processes, Unknown)
    assert found.processes.likely is not None
    assert found.processes.likely.value == 16
    assert found.program == "train.py"
    assert found.unreadable is not None


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model M", ("0",)),
        ("CUDA_VISIBLE_DEVICES=1,2,3 python t.py", ("1", "2", "3")),
        ('CUDA_VISIBLE_DEVICES="4, 5" python t.py', ("4", "5")),
        ("CUDA_VISIBLE_DEVICES= python t.py", ()),
        ("CUDA_VISIBLE_DEVICES=-1 python t.py", ()),
        ("CUDA_VISIBLE_DEVICES=0,-1,2 python t.py", ("0",)),
        ("nohup env NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=6 python t.py", ("6",)),
        ("export CUDA_VISIBLE_DEVICES=7\npython t.py", ("7",)),
        ("CUDA_VISIBLE_DEVICES=0 accelerate launch --gpu_ids 1,2 t.py", ("1", "2")),
        ("CUDA_VISIBLE_DEVICES=0 accelerate launch --gpu_ids all t.py", ("0",)),
        ("deepspeed --include localhost:4,5 t.py", ("4", "5")),
        ("CUDA_VISIBLE_DEVICES=4,5 deepspeed --num_gpus 2 t.py", ("0", "1")),
        ("CUDA_VISIBLE_DEVICES=4 docker run -e CUDA_VISIBLE_DEVICES=1 img python t.py", ("1",)),
        ("docker run --gpus '\"device=2,3\"' img python t.py", ("0", "1")),
    ],
)
def test_gpus(line: str, gpus: tuple[str, ...]) -> None:
    assert plain(launch(line).gpus) == gpus


@pytest.mark.parametrize(
    "line",
    ["python t.py", "CUDA_VISIBLE_devices=0 python t.py", "CUDA_VISIBLE_DEVICES=$GPU python t.py", "deepspeed --num_gpus $N t.py"],
)  # fmt: skip
def test_unknown_gpus(line: str) -> None:
    assert isinstance(launch(line).gpus, Unknown)


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("ssh -p 22 me@node1 python t.py", "me@node1"),
        ("ssh $NODE python t.py", "$NODE"),
        ("srun --nodelist=n1 trl vllm-serve --model M", "n1"),
        ("srun -N1 -n 1 -w $VLLM_NODE trl vllm-serve --model M", "$VLLM_NODE"),
        ("srun --nodelist=$VLLM_NODE trl vllm-serve --model M", "$VLLM_NODE"),
        ("hf jobs uv run --flavor a100-large --secrets HF_TOKEN t.py", "Hugging Face Jobs"),
        ("kubectl exec -it pod -- python t.py", "a pod"),
        ("python t.py", None),
    ],
)
def test_hosts(line: str, host: str | None) -> None:
    assert launch(line).host == host


@pytest.mark.parametrize(
    ("line", "config"),
    [
        ("trl grpo --config r.yaml", "r.yaml"),
        ("python t.py --config=r.yaml --x 1", "r.yaml"),
        ("python t.py recipes/r.yaml --x=1", "recipes/r.yaml"),
        ("python t.py data.json", None),
        ("python t.py --a 1", None),
    ],
)
def test_config(line: str, config: str | None) -> None:
    found = launch(line).config
    assert (plain(found.value) if found is not None else None) == config


@pytest.mark.parametrize("words", ['"$@"', "$EXTRA_ARGS", "--use_vllm $EXTRA_ARGS", "--a 1 $X", "$X --a 1"])
def test_what_cannot_be_read_leaves_the_options_open(words: str) -> None:
    found = launch(f"python t.py {words} --b 2")
    assert found.flags.open is not None
    assert found.unreadable == found.flags.open
    assert values(found.flags.arguments)["b"] == 2


def test_an_unknown_value_is_a_value() -> None:
    found = launch("python t.py --model $MODEL --b 2")
    assert found.flags.open is None
    assert found.flags.arguments["model"].value == Unknown("$MODEL is not set in this file")


def test_unknown_options_of_the_launcher() -> None:
    found = launch("accelerate launch $ACCELERATE_ARGS train.py --a b")
    assert found.program == "train.py"
    assert found.starter.open is not None
    assert found.processes == Unknown("$ACCELERATE_ARGS is not set in this file")


def test_options_of_the_launcher_and_of_trl() -> None:
    found = launch(
        "accelerate launch --config-file z.yaml --use_deepspeed --zero_stage 3 --main_process_port=1 t.py --a 1"
    )
    assert values(found.starter.arguments) == {
        "config_file": "z.yaml", "use_deepspeed": True, "zero_stage": 3, "main_process_port": 1,
    }  # fmt: skip
    found = launch(
        "trl sft --config r.yaml --accelerate_config zero3 --num_processes 2 --gradient_accumulation_steps 4"
    )
    assert values(found.starter.arguments) == {"accelerate_config": "zero3", "num_processes": 2}
    assert values(found.flags.arguments) == {"config": "r.yaml", "gradient_accumulation_steps": 4}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vllm serve M -tp 2 --enforce-eager", {"model": "M", "tensor_parallel_size": 2, "enforce_eager": True}),
        ("vllm serve --enforce-eager -dp 2 M", {"enforce_eager": True, "data_parallel_size": 2, "model": "M"}),
        ("vllm serve M --no-enable-prefix-caching", {"model": "M", "enable_prefix_caching": False}),
        ("vllm serve --model M --max-model-len 4096", {"model": "M", "max_model_len": 4096}),
    ],
)
def test_options_of_vllm(line: str, expected: dict[str, object]) -> None:
    assert values(launch(line).flags.arguments) == expected


SPANS = [
    ("A=1 nohup trl vllm-serve --model M --port 1 > log &", "trl vllm-serve", "trl vllm-serve --model M --port 1"),
    ("accelerate launch --num_processes 2 t.py --a 1", "t.py", "t.py --a 1"),
    ("python -m trl.scripts.vllm_serve --model M", "python -m trl.scripts.vllm_serve", None),
    ("uv run trl grpo --config r.yaml", "trl grpo", "trl grpo --config r.yaml"),
]


@pytest.mark.parametrize(("line", "callee", "span"), SPANS)
def test_spans_of_the_flags(line: str, callee: str, span: str | None) -> None:
    site = launch(line).flags
    assert line[site.callee.start : site.callee.end] == callee
    assert line[site.span.start : site.span.end] == (span or line)


def test_spans_of_the_launcher() -> None:
    line = "A=1 accelerate launch --num_processes 2 t.py --a 1"
    site = launch(line).starter
    assert line[site.callee.start : site.callee.end] == "accelerate launch"
    assert line[site.span.start : site.span.end] == "accelerate launch --num_processes 2"


def test_a_server_and_its_trainer() -> None:
    server, trainer = launches(
        "export CUDA_VISIBLE_DEVICES=0\n"
        "setsid trl vllm-serve --model M \\\n    --tensor-parallel-size 1 > log 2>&1 &\n"
        "CUDA_VISIBLE_DEVICES=1,2,3 \\\naccelerate launch --config_file zero2.yaml \\\n"
        "    --num_processes=3 src/grpo.py --config r.yaml --vllm_mode server\n"
    )
    assert (server.server, plain(server.gpus), server.command.background) == ("trl vllm-serve", ("0",), True)
    assert (trainer.program, plain(trainer.gpus), plain(trainer.processes)) == ("src/grpo.py", ("1", "2", "3"), 3)


def test_arrays_functions_and_nested_shells() -> None:
    found = launches(
        'LAUNCHER=(accelerate launch --num_processes 2)\nserve() { CUDA_VISIBLE_DEVICES="$1" trl vllm-serve --model M & }\n'
        'serve 0\n"${LAUNCHER[@]}" train.py\n'
        'tmux new -d -s x "cd /a && CUDA_VISIBLE_DEVICES=1 python -m trl.scripts.vllm_serve --model M"\n'
    )
    assert [(item.server, item.program) for item in found] == [
        ("trl vllm-serve", None), (None, "train.py"), ("trl vllm-serve", None),
    ]  # fmt: skip
    assert plain(found[1].processes) == 2
    assert plain(found[2].gpus) == ("1",)


def test_a_stated_command() -> None:
    found = read_text("CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 2 train.py --use_vllm", "train.py")
    assert found is not None
    assert (found.program, plain(found.processes), plain(found.gpus)) == ("train.py", 2, ("0", "1"))
    assert found.command.span.path == "train.py"


@pytest.mark.parametrize("text", ["", "'", "(", "make train", "\udcff", "$("])
def test_a_stated_command_that_is_none(text: str) -> None:
    assert read_text(text, "train.py") is None


def test_any_words_are_read_without_a_traceback() -> None:
    generator = random.Random(7)
    tokens = [
        "python", "-m", "trl", "vllm-serve", "vllm", "serve", "accelerate", "launch", "torchrun", "deepspeed", "srun", "-n",
        "--a", "--a=", "--=", "-", "--", "=", "$X", '"$@"', "$(x)", "t.py", "r.yaml", "--config", "--module", "env", "A=b",
        "ssh", "docker", "run", "-e", "uv", "hf", "jobs", "--include", "a:0@b", "--num_processes", "-1", "'{'", "é", "--no_x",
        "debugpy", "taskset", "0x1", "${N:-8}", "--gpu_ids", "trl.scripts.grpo", "conda", "time",
    ]  # fmt: skip
    read = 0
    for _ in range(3000):
        line = " ".join(generator.choices(tokens, k=generator.randrange(1, 12)))
        for found in launches(line + "\n"):
            read += 1
            assert found.server or found.launcher or found.unreadable
            assert not (found.program and found.module)
            assert found.flags.span.start >= found.command.span.start
    assert read > 300


def test_a_very_long_command_takes_linear_time() -> None:
    found = launch("accelerate launch " + "$A " * 20_000 + "train.py " + "--x y " * 20_000)
    assert found.program == "train.py"
    assert list(found.flags.arguments) == ["x"]


def summary(found: Launch) -> tuple[str | None, object, object]:
    """Who it is, the GPUs it sees (None: unknown), its processes (None: unknown)."""
    gpus, processes = (plain(value) for value in (found.gpus, found.processes))
    who = found.server or found.program or found.module or found.subcommand
    return who, None if isinstance(gpus, Unknown) else gpus, None if isinstance(processes, Unknown) else processes


SHAPES = {
    "server and script": (
        "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model M &\nCUDA_VISIBLE_DEVICES=1 python train.py\n",
        [("trl vllm-serve", ("0",), 1), ("train.py", ("1",), 1)],
    ),
    "server and accelerate": (
        "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model M &\nCUDA_VISIBLE_DEVICES=1,2,3 ACCELERATE_LOG_LEVEL=info \\\n"
        "    accelerate launch --config_file zero2.yaml --num_processes=3 grpo.py --config r.yaml\n",
        [("trl vllm-serve", ("0",), 1), ("grpo.py", ("1", "2", "3"), 3)],
    ),
    "nohup env": (
        "nohup env CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model M > log 2>&1 &\nVLLM_PID=$!\n"
        "nohup env NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --num_processes=3 t.py > t.log 2>&1 &\n",
        [("trl vllm-serve", ("0",), 1), ("t.py", ("1", "2", "3"), 3)],
    ),
    "health loop": (
        "trap cleanup EXIT\nCUDA_VISIBLE_DEVICES=7 trl vllm-serve --model M &\nuntil curl -s localhost:8000/health; do sleep 1; done\n"
        "CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 2 t.py\n",
        [("trl vllm-serve", ("7",), 1), ("t.py", ("0", "1"), 2)],
    ),
    "trl trains": (
        "CUDA_VISIBLE_DEVICES=0,1 trl vllm-serve --model M --tensor-parallel-size 2 &\nCUDA_VISIBLE_DEVICES=2,3 trl grpo --config r.yaml\n",
        [("trl vllm-serve", ("0", "1"), 1), ("grpo", ("2", "3"), None)],
    ),
    "default of the GPU": (
        'export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-2}"\ntrl vllm-serve --model "$MODEL_PATH" --port "$PORT"\n',
        [("trl vllm-serve", None, 1)],
    ),
    "shell function in a loop": (
        'serve() { CUDA_VISIBLE_DEVICES="$VLLM_GPU" setsid trl vllm-serve --model M & }\nfor x in 1 2; do serve; python t.py --x $x; done\n',
        [("trl vllm-serve", None, 1), ("t.py", None, 1)],
    ),
    "tmux and a judge": (
        'tmux new -d -s x "cd /a && CUDA_VISIBLE_DEVICES=0 python -m trl.scripts.vllm_serve --model M"\n'
        "CUDA_VISIBLE_DEVICES=1 python -m vllm.entrypoints.openai.api_server --model J --port 8001 &\n",
        [("trl vllm-serve", ("0",), 1), ("vllm openai", ("1",), 1)],
    ),
    "python by a variable": (
        "PY=/opt/venv/bin/python\nCUDA_VISIBLE_DEVICES=0 setsid nohup $PY -m trl.scripts.vllm_serve --gpu_memory_utilization 0.82 &\n",
        [("trl vllm-serve", ("0",), 1)],
    ),
    "slurm": (
        "#SBATCH --nodes=2\nsrun --nodes=1 --ntasks=1 --nodelist=$VLLM_NODE trl vllm-serve --model M --tensor_parallel_size $TP &\n"
        "srun --nodes=1 --ntasks=1 --nodelist=$NODES accelerate launch --num_processes 8 t.py --vllm_server_host=$VLLM_NODE\n",
        [("trl vllm-serve", None, 1), ("t.py", None, 8)],
    ),
    "plain vllm": (
        "VLLM_SERVER_DEV_MODE=1 vllm serve M --weight-transfer-config '{\"backend\":\"nccl\"}' &\nCUDA_VISIBLE_DEVICES=0 accelerate launch g.py\n",
        [("vllm serve", None, 1), ("g.py", ("0",), None)],
    ),
    "all visible GPUs": ("# CUDA_VISIBLE_DEVICES=0\ntrl vllm-serve --model M --data-parallel-size 8\n", [("trl vllm-serve", None, 1)]),
    "a GPU of the trainer's own": (
        "CUDA_VISIBLE_DEVICES=0,1,2,3,4 torchrun --nproc_per_node=4 --nnodes=1 src/g.py --vllm_device cuda:4\n",
        [("src/g.py", ("0", "1", "2", "3", "4"), 4)],
    ),
    "counted processes": (
        "GPU_COUNT=$(nvidia-smi -L | wc -l)\nNUM_PROCESSES=$((GPU_COUNT-1))\naccelerate launch --num_processes $NUM_PROCESSES g.py\n",
        [("g.py", None, None)],
    ),
    "colocate": ("python g.py --use_vllm --vllm_mode colocate --vllm_gpu_memory_utilization 0.3\n", [("g.py", None, 1)]),
    "other front ends": ("axolotl vllm-serve c.yaml\nswift rollout --model M\nswift rlhf --vllm_mode server\n", []),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_how_people_split_their_gpus(shape: str) -> None:
    script, expected = SHAPES[shape]
    assert [summary(found) for found in launches(script)] == expected


def test_a_default_of_the_visible_devices_is_likely() -> None:
    (found,) = launches('export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-2}"\npython t.py\n')
    assert isinstance(found.gpus, Unknown)
    assert found.gpus.likely is not None
    assert found.gpus.likely.value == ("2",)


@pytest.mark.parametrize("part", ["-m accelerate.commands.launch ", "-m debugpy ", "nohup ", "-m ", "python "])
def test_a_very_deep_command_is_no_launch_and_no_traceback(part: str) -> None:
    assert all(found.launcher for found in launches("python " + part * 5000 + "\n"))
