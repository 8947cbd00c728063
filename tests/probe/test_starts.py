"""How a training is started: by the project's launch file as far as that is written there, else as the user says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trl_lint.probe.starts import CannotStart, Start, start

from ..helpers import lint_files

SCRIPT = """# trl-lint: facts trl==1.16.0
from trl import GRPOConfig, GRPOTrainer, TrlParser

parser = TrlParser((GRPOConfig,))
(args,) = parser.parse_args_and_config()
GRPOTrainer(args=args).train()
"""
RECIPE = "output_dir: out\nnum_generations: 8\n"


def started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, files: dict[str, str], *,
    launcher: str | None = None, arguments: tuple[str, ...] = (),
) -> Start:  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    examined = lint_files(files)
    return start(examined, path, launcher=launcher, arguments=arguments, project=tmp_path, here=tmp_path)


def test_a_script_that_nothing_launches_is_started_by_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = started(tmp_path, monkeypatch, "train.py", {"train.py": SCRIPT}, arguments=("--max_steps", "9"))
    assert found == Start((sys.executable, "train.py", "--max_steps", "9"))


def test_a_launcher_by_hand_comes_before_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"train.py": SCRIPT, "run.sh": "torchrun train.py\n"}
    found = started(tmp_path, monkeypatch, "train.py", files, launcher="accelerate launch --num_processes 2")
    assert found.command == ("accelerate", "launch", "--num_processes", "2", "train.py")


@pytest.mark.parametrize("path", ["train.py", "run.sh", "recipe.yaml"])
def test_the_launch_file_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    files = {
        "train.py": SCRIPT,
        "recipe.yaml": RECIPE,
        "run.sh": "set -e\nexport NCCL_DEBUG=WARN\necho begins\n"
        "CUDA_VISIBLE_DEVICES=1 accelerate launch --num_processes 1 train.py --config recipe.yaml\necho done\n",
    }
    found = started(tmp_path, monkeypatch, path, files, arguments=("--seed", "1"))
    assert found.command == (
        "accelerate", "launch", "--num_processes", "1", "train.py", "--config", "recipe.yaml", "--seed", "1",
    )  # fmt: skip
    assert found.environment == {"NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": "1"}
    assert found.said == "run.sh:4"


def test_the_folder_is_the_one_in_which_the_names_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"jobs/train.py": SCRIPT, "jobs/run.sh": "torchrun --nproc_per_node 2 train.py --max_steps 5\n"}
    found = started(tmp_path, monkeypatch, "jobs/run.sh", files)
    assert found.folder == Path("jobs")


def test_the_server_is_started_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "train.py": SCRIPT,
        "run.sh": "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model Qwen/Qwen3-0.6B --port 8123 &\n"
        "CUDA_VISIBLE_DEVICES=1 python train.py --use_vllm true --vllm_mode server --vllm_server_port 8123\n",
    }
    found = started(tmp_path, monkeypatch, "run.sh", files)
    assert found.server is not None
    assert found.server.command == ("trl", "vllm-serve", "--model", "Qwen/Qwen3-0.6B", "--port", "8123")
    assert found.server.health == "http://127.0.0.1:8123/health/"
    assert found.server.environment == {"CUDA_VISIBLE_DEVICES": "0"}
    assert found.environment == {"CUDA_VISIBLE_DEVICES": "1"}


def test_a_launch_file_whose_words_are_not_all_written_there_is_run_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"train.py": SCRIPT, "run.sh": 'accelerate launch train.py --max_steps 5 "$@"\n'}
    found = started(tmp_path, monkeypatch, "run.sh", files, arguments=("--seed", "1"))
    assert found.command == ("bash", "run.sh", "--seed", "1")
    with pytest.raises(CannotStart, match=r"^run.sh:1 starts it, but not all words are written there; probe that file"):
        started(tmp_path, monkeypatch, "train.py", files)


def test_what_cannot_be_started_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"train.py": SCRIPT, "a.sh": "python train.py --seed 1\n", "b.sh": "python train.py --seed 2\n"}
    with pytest.raises(CannotStart, match=r"^train.py: started at a.sh:1, b.sh:1; probe one of those files"):
        started(tmp_path, monkeypatch, "train.py", files)
    two = {"train.py": SCRIPT, "run.sh": "python train.py --seed 1\npython train.py --seed 2\n"}
    with pytest.raises(CannotStart, match=r"^run.sh: starts 2 trainings \(lines 1, 2\); say which with --launcher"):
        started(tmp_path, monkeypatch, "run.sh", two)
    with pytest.raises(CannotStart, match=r"^recipe.yaml: no command of the project starts it"):
        started(tmp_path, monkeypatch, "recipe.yaml", {"recipe.yaml": RECIPE + "use_vllm: true\n"})


def test_a_recipe_with_a_whole_command_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"recipe.yaml": RECIPE + "use_vllm: true\n"}
    found = started(tmp_path, monkeypatch, "recipe.yaml", files, launcher="trl grpo --config recipe.yaml")
    assert found.command == ("trl", "grpo", "--config", "recipe.yaml")
