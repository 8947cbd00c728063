"""Fixes from finding to text: several on one call, conflicts, moves between calls and modules, and what is held back."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_lint import rulebook
from trl_lint.fixing import Fixed, NoFixpoint, fix_file
from trl_lint.rulebook.files import Context, examine
from trl_lint.sources.text import Text

from ..helpers import ROOT, all_rules, context, fix, fix_files
from ..rulebook.test_pages import groups_of

PAGE = """# A rule made up by a test

```toml
methods = ["sft"]
at = ["{at}"]
when = "{when}"
severity = "warning"
message = "message of {name}"
[[fix]]
title = "fix of {name}"
{fix}
```
"""


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    (tmp_path / "made-up").mkdir()
    return tmp_path


def page(folder: Path, name: str, when: str, fix: str, at: str = "seed") -> None:
    (folder / "made-up" / f"{name}.md").write_text(PAGE.format(name=name, when=when, fix=fix, at=at), "utf-8")


def fixed(code: str, folder: Path, **options: bool) -> Fixed:
    made: Context = context(rules=rulebook.load(folder), trl="1.9.2")
    return fix_file(
        examine("/nowhere/train.py", Text("/nowhere/train.py", code.encode()), made),
        made,
        unsafe=options.get("unsafe", False),
    )


CALL = 'from trl import SFTConfig\n\nargs = SFTConfig(\n    output_dir="out",\n    fp16=True,  # fast\n    seed=1,\n    packing=True,\n)\n'


def test_six_rules_on_one_call_land_in_one_pass(pages: Path) -> None:
    page(pages, "one", "fp16", "set = { fp16 = false }")
    page(pages, "two", "not bf16", "set = { bf16 = true }")
    page(pages, "three", "given(seed)", 'drop = ["seed"]')
    page(pages, "four", "has(max_length) and not given(max_length)", "set = { max_length = 2048 }")
    page(
        pages,
        "five",
        "has(packing_strategy) and packing_strategy == 'bfd' and not given(packing_strategy)",
        'set = { packing_strategy = "wrapped" }',
    )
    page(pages, "six", "model_init_kwargs is None", 'set = { "model_init_kwargs.dtype" = "bfloat16" }')
    done = fixed(CALL, pages)
    assert len(done.applied) == 6
    assert done.after.decode() == (
        'from trl import SFTConfig\n\nargs = SFTConfig(\n    output_dir="out",\n    fp16=False,  # fast\n    packing=True,\n'
        '    packing_strategy="wrapped",\n    max_length=2048,\n    model_init_kwargs={"dtype": "bfloat16"},\n    bf16=True,\n)\n'
    ) or sorted(done.after.decode().splitlines()) == sorted(
        [
            "from trl import SFTConfig",
            "",
            "args = SFTConfig(",
            '    output_dir="out",',
            "    fp16=False,  # fast",
            "    packing=True,",
            '    packing_strategy="wrapped",',
            "    max_length=2048,",
            '    model_init_kwargs={"dtype": "bfloat16"},',
            "    bf16=True,",
            ")",
        ]
    )


def test_two_rules_that_disagree_are_reported(pages: Path) -> None:
    page(pages, "low", "seed != 2", "set = { seed = 2 }")
    page(pages, "other", "packing and seed == 1", "set = { seed = 3 }")
    done = fixed(CALL, pages)
    assert b"seed=2" in done.after
    assert len(done.applied) + len(done.failed) >= 1


def test_rules_that_undo_each_other_leave_the_choice(pages: Path) -> None:
    page(pages, "up", "seed == 1", "set = { seed = 2 }")
    page(pages, "down", "seed == 2", "set = { seed = 1 }")
    done = fixed(CALL, pages)
    assert done.after == done.before
    assert [why for _f, why in done.failed] == ["down would undo it"]


def test_a_longer_circle_is_an_error(pages: Path) -> None:
    page(pages, "one", "seed == 1", "set = { seed = 2 }")
    page(pages, "two", "seed == 2", "set = { seed = 3 }")
    page(pages, "three", "seed == 3", "set = { seed = 1 }")
    with pytest.raises(NoFixpoint, match="do not settle"):
        fixed(CALL, pages)


@pytest.mark.parametrize(
    "report", sorted((ROOT / "fixtures" / "reports").glob("*/train.py")), ids=lambda p: p.parent.name
)
def test_reports_settle(report: Path) -> None:
    once = fix(report.read_bytes(), unsafe=True)
    assert fix(once.after, unsafe=True).after == once.after


def test_a_fix_that_changes_nothing_is_not_applied(pages: Path) -> None:
    page(pages, "stubborn", "packing", "set = { seed = 2 }")
    done = fixed(CALL, pages)
    assert done.after == done.before
    assert [why for _f, why in done.failed] == ["the finding would still be there"]


def test_consent_is_asked_for(pages: Path) -> None:
    page(pages, "costly", "seed == 1", 'needs = ["memory"]\nset = { seed = 2 }')
    assert fixed(CALL, pages).held_back[0][1] == "unsafe, needs memory: --unsafe-fixes"
    assert b"seed=2" in fixed(CALL, pages, unsafe=True).after


def test_a_fix_that_one_run_needs_and_another_does_not_is_held_back(pages: Path) -> None:
    page(pages, "streams", "dataset.streaming and seed == 1", "set = { seed = 2 }")
    code = (
        'from datasets import load_dataset\nfrom trl import SFTConfig, SFTTrainer\n\nargs = SFTConfig(output_dir="o", seed=1)\n'
        'SFTTrainer("m", args=args, train_dataset=load_dataset("d", streaming=True))\n'
        'SFTTrainer("m", args=args, train_dataset=load_dataset("d"))\n'
    )
    done = fixed(code, pages)
    assert done.after == done.before
    assert done.held_back[0][1] == "another run goes through the same call and does not need it"


def test_the_binding_of_a_name_bound_once_is_edited(pages: Path) -> None:
    page(pages, "low", "seed == 1", "set = { seed = 2 }")
    code = 'from trl import SFTConfig\n\nSEED = 1\nargs = SFTConfig(output_dir="o", seed=SEED)\nprint(SEED)\n'
    assert fixed(code, pages).after.decode() == code.replace("SEED = 1", "SEED = 2")


@pytest.mark.parametrize(
    ("code", "fixed_code"),
    [
        ("OTHER = SEED = 1\nargs = SFTConfig(output_dir='o', seed=SEED)\n", "OTHER = SEED = 1\nargs = SFTConfig(output_dir='o', seed=2)\n"),
        ("OTHER = SEED = 1\nRUN = SEED\nargs = SFTConfig(output_dir='o', seed=RUN)\n", "OTHER = SEED = 1\nRUN = SEED\nargs = SFTConfig(output_dir='o', seed=2)\n"),
        ("args = SFTConfig(output_dir='o')\nargs.data_seed = args.seed = 1\nprint(args)\n", None),
    ],
    ids=["name", "name of a name", "attribute"],
)  # fmt: skip
def test_a_value_that_several_names_share_is_left_alone(pages: Path, code: str, fixed_code: str | None) -> None:
    page(pages, "low", "seed == 1", "set = { seed = 2 }")
    head = "from trl import SFTConfig\n\n"
    done = fixed(head + code, pages)
    assert done.after.decode() == head + (fixed_code or code)
    assert bool(done.failed) == (fixed_code is None)
    assert all("several names share this value" in why for _f, why in done.failed)


@pytest.mark.parametrize("fix", ["drop = ['seed']", "rename = { seed = 'data_seed' }"], ids=["drop", "rename"])
def test_nor_is_it_dropped_or_renamed(pages: Path, fix: str) -> None:
    page(pages, "low", "seed == 1", fix)
    code = "from trl import SFTConfig\n\nargs = SFTConfig(output_dir='o')\nargs.full_determinism = args.seed = 1\nprint(args)\n"
    done = fixed(code, pages)
    assert done.after.decode() == code
    assert done.failed


def test_a_fix_that_could_not_be_written_is_tried_again_where_another_makes_room() -> None:
    files = {
        "train.py": "from datasets import load_dataset\nfrom trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser\n\n"
        "args, model_args = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()\n"
        "trainer = SFTTrainer(\n    model=model_args.model_name_or_path,\n    args=args,\n"
        "    train_dataset=load_dataset('trl-lib/tldr', split='train'),\n)\n",
        "launch.sh": "# trl-lint: facts trl==0.19.1 transformers==4.52.3 gpu=A100-80GB\n"
        'trl sft --model_init_kwargs \'{"attn_implementation": "flash_attention_2"}\' --packing true'
        " --model_name_or_path Qwen/Qwen3-0.6B --output_dir out\n",
    }
    changed = fix_files(files, unsafe=True).changed
    [after] = [new.decode() for path, (_old, new) in changed.items() if path.endswith("launch.sh")]
    assert "--model_init_kwargs" not in after
    assert "--attn_implementation flash_attention_2" in after


# The real rules ----------------------------------------------------------------------------------------------------------

MOVES = {
    "keyword into the config": (
        '# trl-lint: facts trl==1.9.2\nfrom trl import SFTConfig, SFTTrainer\n\ntrainer = SFTTrainer("m", args=SFTConfig(output_dir="o"), packing=True)\n',
        '# trl-lint: facts trl==1.9.2\nfrom trl import SFTConfig, SFTTrainer\n\ntrainer = SFTTrainer("m", args=SFTConfig(output_dir="o", packing=True))\n',
    ),
    "keyword into a new config": (
        '# trl-lint: facts trl==1.9.2\nfrom trl import SFTTrainer\n\ntrainer = SFTTrainer("m", packing=True)\n',
        '# trl-lint: facts trl==1.9.2\nfrom trl import SFTConfig, SFTTrainer\n\ntrainer = SFTTrainer("m", args=SFTConfig(output_dir="tmp_trainer", packing=True))\n',
    ),
    "TrainingArguments becomes the config, its learning rate stays": (
        "# trl-lint: facts trl==0.15.2\nfrom transformers import TrainingArguments\nfrom trl import SFTTrainer\n\n"
        'args = TrainingArguments(output_dir="o")\ntrainer = SFTTrainer("m", args=args, packing=True)\n',
        "# trl-lint: facts trl==0.15.2\nfrom trl import SFTConfig, SFTTrainer\n\n"
        'args = SFTConfig(output_dir="o", packing=True, learning_rate=5e-05)\ntrainer = SFTTrainer("m", args=args)\n',
    ),
    "all names move": (
        "# trl-lint: facts trl==1.5.0\nfrom trl import ORPOConfig, ORPOTrainer\n",
        "# trl-lint: facts trl==1.5.0\nfrom trl.experimental.orpo import ORPOConfig, ORPOTrainer\n",
    ),
    "some names move": (
        "# trl-lint: facts trl==1.5.0\nfrom trl import ORPOConfig, SFTConfig, ORPOTrainer as T\n",
        "# trl-lint: facts trl==1.5.0\nfrom trl import SFTConfig\nfrom trl.experimental.orpo import ORPOConfig, ORPOTrainer as T\n",
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    before, after = MOVES[name]
    assert fix(before, unsafe=False).after.decode() == after


@pytest.mark.parametrize(
    "rule", [r for r in all_rules() if any(a.actions for v in r.variants for a in v.fixes)], ids=lambda r: r.name
)
def test_fixed_twice_is_fixed_once(rule: rulebook.Rule) -> None:
    for files in groups_of(rule, "Example"):
        once = fix_files(files, unsafe=True).examined.sources.texts
        again = fix_files({path: text.data.decode() for path, text in once.items()}, unsafe=True)
        assert not again.changed


def test_a_class_of_the_same_name_is_not_where_a_name_moved_to() -> None:
    code = "# trl-lint: facts trl==1.16.0\nfrom trl.experimental.gspo_token import GRPOTrainer\n"
    done = fix(code, unsafe=True)
    assert done.after.decode() == code
    assert [f.rule for f in done.examined.findings] == ["missing-import"]


def test_the_same_finding_on_two_calls_is_fixed_on_both(pages: Path) -> None:
    page(pages, "costly", "seed == 1", 'needs = ["memory"]\nset = { seed = 2 }')
    code = 'from trl import SFTConfig\n\na = SFTConfig(output_dir="a", seed=1)\nb = SFTConfig(output_dir="b", seed=1)\n'
    done = fixed(code, pages, unsafe=True)
    assert done.after.decode() == code.replace("seed=1", "seed=2")
    assert len(done.applied) == 2


KEPT = {
    # The last names of an import without brackets leave: no comma may stay behind the first.
    "from trl import SFTTrainer, ORPOConfig, ORPOTrainer": "from trl import SFTTrainer\nfrom trl.experimental.orpo import ORPOConfig, ORPOTrainer",
    "from trl import ORPOConfig, SFTTrainer, ORPOTrainer": "from trl import SFTTrainer\nfrom trl.experimental.orpo import ORPOConfig, ORPOTrainer",
    "from trl import (\n    ORPOConfig,\n    SFTTrainer,\n    ORPOTrainer,\n)": "from trl import (\n    SFTTrainer,\n)\nfrom trl.experimental.orpo import ORPOConfig, ORPOTrainer",
}  # fmt: skip


@pytest.mark.parametrize("before", KEPT)
def test_names_that_leave_an_import(before: str) -> None:
    head = "# trl-lint: facts trl==1.16.0\n"
    assert fix(f"{head}{before}\n").after.decode() == f"{head}{KEPT[before]}\n"


@pytest.mark.parametrize(
    "field",
    [
        "max_prompt_length=4096",
        "warmup_ratio=0.03",
    ],  # older allowed releases know the one and want it; transformers 4 the other
)
def test_a_fix_must_be_right_for_every_release_that_the_pins_allow(field: str) -> None:
    code = f'# trl-lint: facts trl>=0.20\nfrom trl import GRPOConfig\n\nargs = GRPOConfig(output_dir="o", {field})\n'
    assert fix(code, unsafe=True).after.decode().count(field) == 1
