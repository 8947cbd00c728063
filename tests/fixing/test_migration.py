"""From one TRL release to another: names, defaults that have changed, and the pins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trl_lint import cli, knowledge
from trl_lint.facts import Overrides, forget
from trl_lint.facts.pins import raised
from trl_lint.knowledge import curated, defaults
from trl_lint.knowledge.idle import is_idle
from trl_lint.runs.moving import overrides_of_a_move

from ..helpers import fix_files, lint_files

RELEASES = knowledge.releases("trl")


def moved(code: str, target: str = "1.16.0", only: str | None = "default-changed", **facts: str) -> str:
    """A script after everything of one rule is written, or after every fix."""
    fixed = fix_files({"/nowhere/train.py": code}, only, unsafe=True, target=target, **facts)
    again = fix_files({"/nowhere/train.py": fixed.after.decode()}, only, unsafe=True, target=target, **facts)
    assert not again.changed, "a second run changes something"
    return fixed.after.decode()


def call(name: str, given: str = "", *, facts: str) -> str:
    return f"# trl-lint: facts {facts}\nfrom trl import {name}\n\nargs = {name}(output_dir='out'{', ' if given else ''}{given})\n"


def written(name: str, given: str = "", *, facts: str, target: str = "1.16.0") -> dict[str, object]:
    """The keywords that a move adds to a call, as Python reads them."""
    import ast

    def keywords(code: str) -> dict[str, object]:
        (found,) = (n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call))
        return {k.arg or "**": ast.literal_eval(k.value) for k in found.keywords}

    before = call(name, given, facts=facts)
    old, new = keywords(before), keywords(moved(before, target))
    assert old.items() <= new.items(), "what was given stays"
    return {k: v for k, v in new.items() if k not in old}


# Defaults ----------------------------------------------------------------------------------------------------------------

OLD, NEW = "trl==0.19.1 transformers==4.56.2", "trl==1.16.0 transformers==4.57.6"


@pytest.mark.parametrize(
    ("name", "given", "facts", "target", "expected"),
    [
        ("SFTConfig", "", OLD, "1.16.0", {"gradient_checkpointing": False}),
        ("SFTConfig", "gradient_checkpointing=True", OLD, "1.16.0", {}),
        ("SFTConfig", "packing=True, gradient_checkpointing=True", OLD, "1.16.0", {}),  # ffd is bfd now
        ("DPOConfig", "", OLD, "1.16.0", {"gradient_checkpointing": False, "truncation_mode": "keep_end"}),
        ("DPOConfig", "max_length=None", OLD, "1.16.0", {"gradient_checkpointing": False}),
        ("RewardConfig", "", OLD, "1.16.0", {"gradient_checkpointing": False, "learning_rate": 5e-5}),
        (
            "GRPOConfig",
            "beta=0.1, use_vllm=False",
            OLD,
            "1.16.0",
            {
                "gradient_checkpointing": False,
                "loss_type": "bnpo",
                "max_completion_length": 256,
                "use_bias_correction_kl": False,
            },
        ),
        # Before the fields were there.
        (
            "GRPOConfig",
            "beta=0.0, gradient_checkpointing=True, max_completion_length=64",
            "trl==0.15.2 transformers==4.49.0",
            "1.16.0",
            {"bf16": False, "loss_type": "grpo", "temperature": 0.9},
        ),
        # What the model decided is not known.
        ("SFTConfig", "fp16=True, average_tokens_across_devices=False", "trl==0.12.2 transformers==4.46.3", "1.16.0", {"gradient_checkpointing": False}),
        # A default that stood for another value.
        ("KTOConfig", "bf16=True, gradient_checkpointing=False", "trl==0.12.2 transformers==4.46.3", "1.16.0", {"max_length": 512}),
        # Backwards.
        (
            "GRPOConfig",
            "beta=0.1, use_vllm=True",
            NEW,
            "0.29.1",
            {"max_completion_length": 512, "use_bias_correction_kl": True, "vllm_mode": "colocate"},
        ),
        ("GRPOConfig", "scale_rewards='none', loss_type='dapo'", NEW, "0.29.1", {"max_completion_length": 512}),
        # Trainers that were written anew have nothing to compare.
        ("RLOOConfig", "", OLD, "1.16.0", {}),
        ("SFTConfig", "", "trl==1.16.0", "1.16.0", {}),
        # Of a range the newest release counts.
        ("GRPOConfig", "", "'trl>=1.9,<1.10' transformers==5.12.1", "1.16.0", {"max_completion_length": 256}),
    ],
)  # fmt: skip
def test_changed_defaults_are_written_as_the_target_takes_them(
    name: str, given: str, facts: str, target: str, expected: dict[str, object]
) -> None:
    assert written(name, given, facts=facts, target=target) == expected


def test_a_list_where_the_target_wants_one() -> None:
    # 0.28 takes a name and 1.16 a list; the default is the same.
    assert "loss_type" not in written("DPOConfig", facts=OLD)
    assert list(defaults.ways("loss_type", "sigmoid")) == ["sigmoid", ("sigmoid",)]


def test_what_is_derived_is_written_at_its_cause() -> None:
    # steps_per_generation follows from gradient_accumulation_steps in both.
    found = written("GRPOConfig", "gradient_accumulation_steps=4", facts=OLD)
    assert not {"steps_per_generation", "generation_batch_size"} & found.keys()


@pytest.mark.parametrize(
    "code",
    [
        "from trl import GRPOConfig\n\nargs = GRPOConfig(output_dir='out')\n",
        "# trl-lint: facts trl==0.19.1\nfrom trl import GRPOConfig\n\nfrom mine import more\n\nargs = GRPOConfig(output_dir='out', **more)\n",
        "# trl-lint: facts trl==0.19.1\nfrom trl import ModelConfig\n\nmodel_args = ModelConfig()\n",
        "# trl-lint: facts trl==7.0\nfrom trl import GRPOConfig\n\nargs = GRPOConfig(output_dir='out')\n",
    ],
)
def test_what_is_not_known_is_left_alone(code: str) -> None:
    assert moved(code) == code


def test_a_model_that_transformers_5_loads_in_its_own_dtype() -> None:
    code = (
        "# trl-lint: facts trl==0.29.1 transformers==4.57.6\n"
        "from transformers import AutoModelForCausalLM\nfrom trl import RLOOConfig, RLOOTrainer\n\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-0.6B')\n"
        "args = RLOOConfig(output_dir='out', max_completion_length=256)\n"
        "trainer = RLOOTrainer(model=model, args=args, reward_funcs=f, train_dataset=data)\n"
    )
    assert moved(code, transformers="5.24.0") == code.replace("-0.6B')", "-0.6B', dtype='float32')")


def test_a_keyword_of_the_trainer_that_becomes_a_field_is_given() -> None:
    code = (
        "# trl-lint: facts trl==0.12.2 transformers==4.46.3\nfrom trl import DPOConfig, DPOTrainer\n\n"
        "args = DPOConfig(output_dir='out', bf16=True, gradient_checkpointing=True, truncation_mode='keep_start')\n"
        "trainer = DPOTrainer('Qwen/Qwen3-0.6B', args=args, train_dataset=data, max_length=2048)\n"
    )
    assert moved(code) == code


def test_a_command_line_takes_no_none() -> None:
    files = {
        "/nowhere/launch.sh": "# trl-lint: facts trl==0.12.2 transformers==4.46.3\n"
        "trl dpo --model_name_or_path Qwen/Qwen3-0.6B --output_dir out --dataset_name d\n"
    }
    fixed = fix_files(files, "default-changed", unsafe=True, target="1.16.0", transformers="5.24.0")
    assert fixed.after.decode().endswith(" --bf16 false --gradient_checkpointing false --truncation_mode keep_end\n")
    assert [(f.fields, why) for f, why in fixed.failed] == [(("max_length",), "None cannot be given on a command line")]


def test_a_trainer_that_was_written_anew_is_named() -> None:
    found = lint_files({"/nowhere/train.py": call("RLOOConfig", facts=OLD)}, target="1.16.0").findings
    assert {f.rule for f in found if f.group == "api"} == {"trainer-rewritten"}


def test_a_default_whose_field_is_gone_is_named() -> None:
    found = lint_files({"/nowhere/train.py": call("DPOConfig", facts=OLD)}, "default-gone", target="1.16.0").findings
    assert [f.fields for f in found] == [("max_prompt_length",)]


def test_names_and_defaults_in_a_recipe() -> None:
    files = {
        "/nowhere/train.py": (
            "# trl-lint: facts trl==0.19.1\nfrom trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser\n\n"
            "parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))\n"
            "script_args, training_args, model_args = parser.parse_args_and_config()\n"
            "trainer = GRPOTrainer(model=model_args.model_name_or_path, args=training_args, reward_funcs=f, train_dataset=data)\n"
        ),
        "/nowhere/recipe.yaml": "model_name_or_path: Qwen/Qwen3-0.6B\noutput_dir: out\nbeta: 0.0  # none\nuse_liger_loss: false\n",
        "/nowhere/launch.sh": "accelerate launch train.py --config recipe.yaml --max_completion_length 128\n",
    }
    fixed = fix_files(files, unsafe=True, target="1.16.0", transformers="5.24.0")
    texts = {p: t.data.decode() for p, t in fixed.examined.sources.texts.items()}
    assert texts["/nowhere/launch.sh"] == files["/nowhere/launch.sh"]
    recipe = texts["/nowhere/recipe.yaml"].splitlines()
    assert {"gradient_checkpointing: false", "loss_type: bnpo", "beta: 0.0  # none"} <= set(recipe)
    assert not any(line.startswith(("use_liger_loss", "max_completion_length")) for line in recipe)
    again = fix_files(texts, unsafe=True, target="1.16.0", transformers="5.24.0")
    assert not again.changed


def test_rows_name_fields_of_some_release_and_have_sources() -> None:
    ever = knowledge.fields_ever()
    for kind, rows in curated.rows("defaults").items():
        for row in rows:
            assert row["source"], kind
            fields = row.get("field", [])
            assert {fields} <= ever if isinstance(fields, str) else set(fields) <= ever, row
            for owner in [row["class"]] if isinstance(row.get("class"), str) else row.get("class", []):
                assert any(owner in knowledge.trl(v).configs() for v in RELEASES), owner


def test_what_goes_where_logs_go_is_idle() -> None:
    assert all(is_idle(n) for n in ("logging_steps", "output_dir", "report_to", "save_strategy", "run_name"))
    assert not any(is_idle(n) for n in ("learning_rate", "bf16", "loss_type", "vllm_mode"))


def test_what_is_said_by_hand_is_of_the_target_except_trl() -> None:
    source, target = overrides_of_a_move(Overrides({"trl": "0.19.1", "transformers": "5.24.0"}, "h100", None), "1.16.0")
    assert source.packages == {"trl": "0.19.1"}
    assert target.packages == {"trl": "==1.16.0", "transformers": "5.24.0"}
    assert source.gpu == target.gpu == "h100"


# Pins --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "specifier", "version", "expected"),
    [
        ("==0.19.1", "==0.19.1", "1.16.0", "==1.16.0"),
        ("== 0.19.1", "==0.19.1", "1.16.0", "== 1.16.0"),
        ("0.19.1", "==0.19.1", "1.16.0", "1.16.0"),
        ("==0.19.*", "==0.19.*", "1.16.0", "==1.16.*"),
        ("~=0.19.1", "~=0.19.1", "1.10.0", "~=1.10.0"),
        ("^0.19", ">=0.19,<0.20", "1.16.0", "^1.16.0"),
        (">=0.19,<0.20", ">=0.19,<0.20", "1.16.0", ">=1.16.0,<1.17"),
        (">=0.19.1, <0.20.0", ">=0.19.1,<0.20.0", "1.10.0", ">=1.10.0, <1.11.0"),
        (">=0.19,<1", ">=0.19,<1", "1.16.0", ">=1.16.0,<2"),
        ("<=0.19.1", "<=0.19.1", "1.10.0", "<=1.10.0"),
        (">=0.19", ">=0.19", "1.10.0", "==1.10.0"),  # would lead further
        (">=0.19", ">=0.19", "1.16.0", None),  # leads there
        ("==1.16.0", "==1.16.0", "1.16.0", None),
    ],
)
def test_a_pin_is_raised_in_its_own_style(text: str, specifier: str, version: str, expected: str | None) -> None:
    assert raised(text, specifier, version, ("0.19.0", "0.19.1", "0.20.0", "1.10.0", "1.11.0", "1.16.0")) == expected


SCRIPT = "from trl import SFTConfig\n\nargs = SFTConfig(output_dir='out', max_seq_length=512)\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    forget()
    return tmp_path


def run(*words: str) -> int:
    forget()
    return cli.main(
        ["--target-trl", "1.16.0", "--transformers", "5.24.0", "--select", "api", "--no-cache", *words, "."]
    )


PINNED = {
    "requirements.txt": "torch>=2.6\ntrl[vllm] == 0.19.1 ; python_version>='3.10'  # ours: trl==0.19.1\n",
    "pyproject.toml": '[project]\nname = "x"\ndependencies = ["peft", "trl~=0.19.1"] # é\n\n[project.optional-dependencies]\ngpu = ["trl[vllm]>=0.19,<0.20"]\n',
    "environment.yml": "dependencies:\n  - python=3.11\n  - pip:\n      - trl==0.19.1\n",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("requirements.txt", "torch>=2.6\ntrl[vllm] == 1.16.0 ; python_version>='3.10'  # ours: trl==1.16.0\n"),
        ("pyproject.toml", PINNED["pyproject.toml"].replace("~=0.19.1", "~=1.16.0").replace(">=0.19,<0.20", ">=1.16.0,<1.17")),
        ("environment.yml", PINNED["environment.yml"].replace("0.19.1", "1.16.0")),
    ],
)  # fmt: skip
def test_the_pin_is_bumped_in_place(project: Path, name: str, expected: str) -> None:
    (project / name).write_bytes(PINNED[name].replace("\n", "\r\n").encode())
    assert run("--unsafe-fixes", "--bump-pin") == 0
    assert (project / name).read_bytes() == expected.replace("\n", "\r\n").encode()
    assert "max_length=512, gradient_checkpointing=False" in (project / "train.py").read_text()
    after = {p: p.read_bytes() for p in project.iterdir() if p.is_file()}
    assert run("--unsafe-fixes", "--bump-pin") == 0
    assert after == {p: p.read_bytes() for p in project.iterdir() if p.is_file()}, "a second run changes something"


def test_pins_in_the_script_itself(project: Path) -> None:
    block = '# /// script\n# dependencies = [\n#     "trl==0.19.1",\n# ]\n# ///\n'
    (project / "train.py").write_text(block + SCRIPT)
    (project / "other.py").write_text("# trl-lint: facts trl==0.19.1 gpu=h100\n" + SCRIPT)
    assert run("--unsafe-fixes", "--bump-pin") == 0
    assert (project / "train.py").read_text().startswith(block.replace("0.19.1", "1.16.0"))
    assert (project / "other.py").read_text().startswith("# trl-lint: facts trl==1.16.0 gpu=h100\n")


def test_a_header_that_the_launcher_does_not_read_is_not_the_only_pin(project: Path) -> None:
    block = '# /// script\n# dependencies = [\n#     "trl==0.19.1",\n# ]\n# ///\n'
    (project / "train.py").write_text(block + SCRIPT)
    (project / "requirements.txt").write_text("trl==0.19.1\n")
    (project / "go.sh").write_text("accelerate launch train.py\n")
    assert run("--unsafe-fixes", "--bump-pin") == 0
    assert (project / "requirements.txt").read_text() == "trl==1.16.0\n"
    assert (project / "train.py").read_text().startswith(block.replace("0.19.1", "1.16.0"))


def test_a_pin_stays_while_only_the_old_release_shows_what_is_left(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "requirements.txt").write_text("trl==0.19.1\n")
    assert run("--fix", "--bump-pin") == 1
    assert (project / "requirements.txt").read_text() == "trl==0.19.1\n"
    assert (
        "requirements.txt:1: trl==0.19.1 stays until what default-changed found is settled" in capsys.readouterr().out
    )
    assert run("--fix", "--bump-pin", "--ignore", "default-changed") == 0
    assert (project / "requirements.txt").read_text() == "trl==1.16.0\n"


def test_what_is_not_bumped_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "requirements.txt").write_text("trl==0.19.1\ntransformers==4.52.4\n")
    (project / "uv.lock").write_text('version = 1\n\n[[package]]\nname = "trl"\nversion = "0.19.1"\n')
    forget()
    assert cli.main(["--target-trl", "1.16.0", "--select", "api", "--no-cache", "."]) == 1
    out = capsys.readouterr().out
    assert "requirements.txt:1: trl==0.19.1 is to become ==1.16.0: --bump-pin writes it" in out
    assert "uv.lock:4 states trl==0.19.1, not 1.16.0: lock again" in out
    assert "requirements.txt:2: trl 1.16.0 wants transformers >=4.56.2, not ==4.52.4" in out
    assert "moved from trl 0.19.1 (uv.lock:4) to 1.16.0" in out


def test_a_git_build_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "requirements.txt").write_text("trl @ git+https://github.com/huggingface/trl.git@v0.19.1\n")
    run("--unsafe-fixes", "--bump-pin")
    assert "it is a git build" in capsys.readouterr().out
    assert (project / "requirements.txt").read_text().endswith("@v0.19.1\n")


def test_diff_shows_the_pin_and_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "requirements.txt").write_text("trl==0.19.1\n")
    assert run("--unsafe-fixes", "--diff", "--bump-pin") == 1
    out = capsys.readouterr().out
    assert "-trl==0.19.1\n+trl==1.16.0\n" in out
    assert "+args = SFTConfig(output_dir='out', max_length=512, gradient_checkpointing=False)\n" in out
    assert (project / "requirements.txt").read_text() == "trl==0.19.1\n"
    assert (project / "train.py").read_text() == SCRIPT


def test_a_notebook_with_its_install(project: Path) -> None:
    (project / "train.py").unlink()
    cells = ["!pip install -q trl==0.19.1 peft\n", SCRIPT]
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": c.splitlines(True)} for c in cells]  # fmt: skip
    text = json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    (project / "train.ipynb").write_text(text)
    assert run("--unsafe-fixes", "--bump-pin") == 0
    after = (project / "train.ipynb").read_text()
    expected = text.replace("trl==0.19.1", "trl==1.16.0")
    assert after == expected.replace("max_seq_length=512)", "max_length=512, gradient_checkpointing=False)")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target-trl", "9.9"], "no such release is known"),
        (["--bump-pin", "--fix"], "--bump-pin goes with --target-trl V"),
        (["--bump-pin", "--target-trl", "1.16.0"], "--bump-pin goes with --target-trl V"),
    ],
)
def test_words_that_do_not_go(project: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words, "."]) == 2
    assert said in capsys.readouterr().err


def test_an_ordinary_run_says_nothing_of_defaults(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "requirements.txt").write_text("trl==1.16.0\n")
    (project / "train.py").write_text(SCRIPT.replace("max_seq_length", "max_length"))
    forget()
    assert cli.main(["--select", "default-changed", "."]) == 0
    assert "default-changed" not in capsys.readouterr().out
