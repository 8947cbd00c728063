"""What the run's own TRL refuses and warns of, judged from scripts; and what other pages say first."""

from __future__ import annotations

import pytest

from trl_lint import knowledge
from trl_lint.knowledge import Guard
from trl_lint.rulebook import Rule

from ..helpers import all_rules, lint, lint_files

FACTS = '# trl-lint: facts trl=={trl} transformers=={transformers} launch="python train.py"\n'
NEW = FACTS.format(trl="1.16.0", transformers="5.24.0")
OLD = FACTS.format(trl="0.19.1", transformers="4.52.4")


def said(code: str, only: str = "refused-by-trl", facts: str = NEW) -> list[str]:
    return [f.message for f in lint(facts + code, only).findings]


GRPO = "from trl import GRPOConfig\nargs = GRPOConfig(output_dir='out', {})\n"
DPO = "from trl import DPOConfig\nargs = DPOConfig(output_dir='out', {})\n"
SFT = "from trl import SFTConfig\nargs = SFTConfig(output_dir='out', {})\n"

REFUSED = {
    "over the batch that the release derives": (
        GRPO.format("per_device_train_batch_size=3, gradient_accumulation_steps=2, num_generations=4"),
        "trl 1.16.0 refuses `generation_batch_size % num_generations != 0` (generation_batch_size is 6, num_generations 4): "
        "building the config raises ValueError",
    ),
    "both of a contradiction are said": (
        GRPO.format("log_completions_hub_repo='me/it'"),
        "trl 1.16.0 refuses `log_completions_hub_repo is not None` and `not log_completions` "
        "(log_completions_hub_repo is 'me/it'): building the config raises ValueError",
    ),
    "a list as the release makes it": (
        DPO.format("loss_weights=[1.0, 0.5]"),
        "trl 1.16.0 refuses `len(loss_weights) != len(loss_type)` (loss_weights is [1.0, 0.5], loss_type ['sigmoid']): "
        "building the config raises ValueError",
    ),
    "what transformers derives first": (
        GRPO.format("eval_strategy='steps', per_device_eval_batch_size=3, num_generations=8"),
        "trl 1.16.0 refuses `do_eval` and `eval_strategy != 'no'` and "
        "`per_device_eval_batch_size * world_size % (num_generations_eval or num_generations) != 0` "
        "(eval_strategy is 'steps', per_device_eval_batch_size 3, world_size 1, num_generations 8): "
        "building the config raises ValueError",
    ),
    "transformers itself": (
        SFT.format("dataloader_prefetch_factor=2"),
        "transformers 5.24.0 refuses `dataloader_num_workers == 0` and `dataloader_prefetch_factor is not None` "
        "(dataloader_prefetch_factor is 2): building the config raises ValueError",
    ),
    "no member of an enumeration": (
        SFT.format("lr_scheduler_type='cosin'"),
        "transformers 5.24.0 refuses `lr_scheduler_type not in",
    ),
}


@pytest.mark.parametrize(("code", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(code: str, message: str) -> None:
    [found] = said(code)
    assert found.startswith(message)


SILENT = {
    "right values": GRPO.format("num_generations=4, per_device_train_batch_size=4"),
    "an unknown value decides": "import sys\n" + GRPO.format("num_generations=int(sys.argv[1])"),
    "one branch only": GRPO.format("num_generations=4") + "import sys\nif sys.argv:\n    args.num_generations = 1\n",
    "assigned once the config is built": GRPO.format("num_generations=4") + "args.num_generations = 1\n",
    "an open mapping": GRPO.format("log_completions_hub_repo='me/it', **options"),
    "a subclass": "from trl import GRPOConfig\nclass C(GRPOConfig):\n    pass\nargs = C(output_dir='out', num_generations=1)\n",
    "unsloth": "import unsloth\n" + GRPO.format("num_generations=1"),
    "a plain TrainingArguments": "from transformers import TrainingArguments\nfrom trl import SFTTrainer\n"
    "args = TrainingArguments(output_dir='out', dataloader_prefetch_factor=2)\n"
    "SFTTrainer(model='m', args=args, train_dataset=data)\n",
}


@pytest.mark.parametrize("code", SILENT.values(), ids=SILENT)
def test_silent(code: str) -> None:
    assert said(code) == []


def test_only_the_first_refusal() -> None:
    found = said(GRPO.format("auto_find_batch_size=True, num_generations=1"))
    assert ["auto_find_batch_size" in message for message in found] == [True]


def test_by_release() -> None:
    code = GRPO.format("auto_find_batch_size=True")
    assert len(said(code)) == 1
    assert said(code, facts=OLD) == []


def test_transformers_that_no_pin_names() -> None:
    code = SFT.format("dataloader_prefetch_factor=2")
    assert said(code, facts="# trl-lint: facts trl==1.16.0\n") == []


TRAINER = """
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

model = AutoModelForCausalLM.from_pretrained("m")
args = DPOConfig(output_dir="out", {options})
DPOTrainer(model={model}, args=args, train_dataset=data, {keywords})
"""


def built(options: str = "", model: str = '"m"', keywords: str = "") -> list[str]:
    return said(TRAINER.format(options=options, model=model, keywords=keywords))


def test_trainer() -> None:
    assert built() == []
    assert built("f_divergence_type='js_divergence', loss_type=['sigmoid', 'hinge']") == []
    assert built("f_divergence_type='js_divergence', loss_type='apo_zero'") == [
        "trl 1.16.0 refuses `f_divergence_type != 'reverse_kl'` and `not within(loss_type, {'sigmoid', 'sigmoid_norm', 'hinge', "
        "'ipo', 'exo_pair', 'robust', 'discopop', 'sft'})` (f_divergence_type is 'js_divergence', loss_type ['apo_zero']): "
        "building the trainer raises ValueError"
    ]
    assert built("sync_ref_model=True", keywords="peft_config=LoraConfig()") == [
        "trl 1.16.0 refuses `sync_ref_model` and a `peft_config`: building the trainer raises NotImplementedError"
    ]


def test_assignments_between_config_and_trainer() -> None:
    code = """
from trl import DPOConfig, DPOTrainer
args = DPOConfig(output_dir="out", sync_ref_model=True)
{before}
trainer = DPOTrainer(model="m", args=args, train_dataset=data)
{after}
"""
    assert len(said(code.format(before="args.precompute_ref_log_probs = True", after=""))) == 1
    assert said(code.format(before="", after="args.precompute_ref_log_probs = True")) == []


def test_calls_that_stop_before() -> None:
    assert said(GRPO.format("num_generations=1, no_such_field=2")) == []
    assert built("sync_ref_model=True, precompute_ref_log_probs=True", keywords="no_such_keyword=1") == []


def test_renamed_keyword_counts_as_given() -> None:
    code = """
from trl import OnlineDPOConfig, OnlineDPOTrainer
args = OnlineDPOConfig(output_dir="out")
OnlineDPOTrainer(model=model, args=args, train_dataset=data, reward_model=reward, {}=tokenizer)
"""
    facts = FACTS.format(trl="0.14.0", transformers="4.48.1")
    assert not any("processing_class" in message for message in said(code.format("tokenizer"), facts=facts))


def test_warned() -> None:
    assert said(SFT.format("pad_token='<pad>'"), "warned-by-trl") == ["`pad_token='<pad>'` is deprecated in trl 1.16.0"]
    assert said(SFT.format("max_length=1024"), "warned-by-trl") == []


def test_recipe_and_command_are_where_it_points() -> None:
    files = {
        "/nowhere/train.py": "# trl-lint: facts trl==1.16.0\nfrom trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser\n"
        "args, model = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config()\n"
        "GRPOTrainer(model=model.model_name_or_path, args=args, reward_funcs=reward, train_dataset=data)\n",
        "/nowhere/recipe.yaml": "output_dir: out\nnum_generations: 1\n",
        "/nowhere/launch.sh": "python train.py --config recipe.yaml\n",
    }
    [finding] = lint_files(files, "refused-by-trl").findings
    assert (finding.span.path, finding.span.line) == ("/nowhere/recipe.yaml", 2)


def test_a_page_that_explains_it_speaks_instead() -> None:
    code = NEW + GRPO.format("num_generations=1")
    rules = [f.rule for f in lint(code).findings]
    assert "group-size-below-two" in rules
    assert "refused-by-trl" not in rules


def test_possible_pages_do_not_speak_instead() -> None:
    code = NEW + GRPO.format("log_completions_hub_repo='me/it'")
    assert "refused-by-trl" in [f.rule for f in lint(code, possible=True).findings]


def named() -> list[tuple[Rule, str]]:
    return [(rule, name) for rule in all_rules() for name in rule.guards]


def test_pages_name_guards() -> None:
    assert len(named()) > 40
    assert {name for _, name in named()} <= knowledge.guard_names()


def test_every_guard_has_a_class_that_meets_it() -> None:
    release = knowledge.trl("1.16.0")
    for owner in (*release.configs(), *release.trainers()):
        for guard in release.guards(owner):
            assert isinstance(guard, Guard)
            assert guard.name.startswith(f"{guard.owner}: ")
            assert guard.place.startswith("trl/")
            assert guard.certain or guard.opaque


REWARDED = """
from trl import GRPOConfig, GRPOTrainer
from elsewhere import judge

def one(completions, **kwargs):
    return [1.0 for _ in completions]

def two(completions, **kwargs):
    return [1.0 for _ in completions]

grown = [one]
grown.append(two)
args = GRPOConfig(output_dir="out", reward_weights=[0.5, 0.5])
GRPOTrainer(model="m", args=args, reward_funcs={functions}, train_dataset=data)
"""


@pytest.mark.parametrize(
    ("functions", "refused"),
    [
        ("one", True),
        ("[one]", True),
        ("[one, judge]", False),
        ("[one, two, judge]", True),
        ("judge", False),
        ("grown", False),
    ],
)
@pytest.mark.parametrize("facts", [NEW, OLD])
def test_as_many_weights_as_reward_functions(functions: str, refused: bool, facts: str) -> None:
    found = said(REWARDED.format(functions=functions), facts=facts)
    assert [" refuses `len(reward_weights) != len(" in message for message in found] == [True] * refused


def test_keyword_that_is_absent() -> None:
    code = """
from trl.experimental.kto import KTOConfig, KTOTrainer
args = KTOConfig(output_dir="out", ref_model_init_kwargs={{"dtype": "bfloat16"}})
KTOTrainer(model="m", args=args, train_dataset=data, processing_class=tokenizer{more})
""".replace("trl.experimental.kto", "trl")
    assert said(code.format(more=""), facts=OLD) == [
        "trl 0.19.1 refuses `ref_model_init_kwargs is not None` and no `ref_model` that is given by name: building the trainer raises ValueError"
    ]
    assert said(code.format(more=", ref_model='m'"), facts=OLD) == []
    assert said(code.format(more=", ref_model=anything"), facts=OLD) == []


def test_plain_training_arguments() -> None:
    code = """
from transformers import TrainingArguments
from trl import KTOTrainer
KTOTrainer(model="m", args=TrainingArguments(output_dir="out"), train_dataset=data, processing_class=tokenizer)
"""
    assert said(code, facts=OLD) == [
        "trl 0.19.1 refuses a plain TrainingArguments: building the trainer raises ValueError"
    ]


STAND_INS = {
    "an object that has what it needs": "GRPOTrainer(model='m', reward_funcs=f, args=SimpleNamespace(beta=0.1))",
    "a constructor that a test replaces": "monkeypatch.setattr(GRPOTrainer, '__init__', f)\n    GRPOTrainer(model='m', reward_funcs=f)",
    "replaced by its path": "mock.patch('trl.trainer.grpo_trainer.GRPOTrainer.__init__', f)\n    GRPOTrainer(model='m', reward_funcs=f)",
    "replaced on the object": "mock.patch.object(SFTTrainer, '__init__', f)\n    GRPOTrainer(model='m', reward_funcs=f, other=1)",
}


@pytest.mark.parametrize("body", STAND_INS.values(), ids=STAND_INS)
def test_what_is_no_trainer_of_trl_is_not_refused(body: str) -> None:
    head = "from unittest import mock\nfrom types import SimpleNamespace\nfrom trl import GRPOTrainer, SFTTrainer\n\n\n"
    assert said(f"{head}def check(monkeypatch, f):\n    {body}\n") == []
    plain = (
        f"{head}def check(monkeypatch, f):\n    {body}\n\n\ndef main(f):\n    GRPOTrainer(model='m', reward_funcs=f)\n"
    )
    assert len(said(plain)) == 1  # of the call in the other function


def test_a_constructor_replaced_for_the_whole_file() -> None:
    head = "from trl import GRPOTrainer\n\nGRPOTrainer.__init__ = lambda *_a, **_k: None\n"
    assert said(f"{head}GRPOTrainer(model='m', reward_funcs=len)\n") == []
