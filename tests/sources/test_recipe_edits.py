"""Intents written into recipes: the text before, the intent, the text after; and whatever else must not change."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping

import pytest
import yaml

from trl_lint.model import Intent, Site, Source
from trl_lint.sources.edits import CannotEdit
from trl_lint.sources.module import Unparsable
from trl_lint.sources.recipe import read
from trl_lint.sources.recipe_edits import edit
from trl_lint.sources.text import Text

HEAD = "model_name_or_path: m\nper_device_train_batch_size: 4\n"

OPEN_R1 = """\
# Model arguments
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
model_revision: main
torch_dtype: bfloat16
attn_implementation: flash_attention_2

# Data training arguments
dataset_name: open-r1/OpenR1-Math-220k
dataset_prompt_column: problem
system_prompt: "You are a helpful AI Assistant that provides well-reasoned answers.\\n"

# GRPO trainer config
bf16: true
use_vllm: true
do_eval: false
gradient_accumulation_steps: 4
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
hub_model_id: Qwen2.5-1.5B-Open-R1-GRPO
learning_rate: 2.0e-05
max_prompt_length: 512
max_completion_length: 1024
num_generations: 16
per_device_train_batch_size: 16
push_to_hub: true
report_to:
- wandb
reward_funcs:
- accuracy
- format
- tag_count
reward_weights:
- 1.0
- 1.0
- 1.0
save_strategy: "epoch"
seed: 42
warmup_ratio: 0.1
"""

MIXTURE = """\
model_name_or_path: HuggingFaceTB/SmolLM3-3B   # é
# ---- data ----
dataset_mixture:
    datasets:                       # List of datasets to include in the mixture
        - id: HuggingFaceTB/smoltalk2
          config: SFT
          columns: [messages, 'chat_template_kwargs']
          weight: 0.5
        - {id: x, weight: 1.0}
    seed: 0
    test_split_size: 0.001          # trailing
chat_template: |-
    {%- for message in messages %}

    {{ message.content }}
    {%- endfor %}

per_device_train_batch_size: &bs 4
per_device_eval_batch_size: *bs
packing: True  # doubled
gradient_checkpointing_kwargs: {use_reentrant: False, "other": [1, 2]}
lr_scheduler_kwargs:
    min_lr_rate: 0.1
hub_model_id:
report_to: [wandb, tensorboard]
max_length: 8192"""

ACCELERATE = """\
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_multinode_launcher: standard
  zero3_init_flag: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
mixed_precision: bf16
num_processes: 8
tpu_env: []
"""

FILES = [OPEN_R1, MIXTURE, ACCELERATE]


def site_of(text: Text) -> Site:
    (site,) = read(text).sites
    return site


def edited(code: str, op: str, name: str, value: object = None, *path: str, file: str = "recipe.yaml") -> str:
    text = Text(file, code.encode())
    intent = Intent(op, site_of(text), name, value, path=path)  # type: ignore[arg-type]
    return edit(text, [intent])


# set -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "value", "after"),
    [
        ("a: 1  # why", 2, "a: 2  # why"),
        ("a:   1", 2, "a:   2"),
        ("a:", 2, "a: 2"),
        ("a:  # unset", 2, "a: 2  # unset"),
        ("a: true", False, "a: false"),
        ("a: True", False, "a: False"),
        ("a: yes", False, "a: false"),
        ("a: 1", None, "a: null"),
        ("a: 1", 1e-5, "a: 1.0e-05"),
        ("a: 1", 1.5e-5, "a: 1.5e-05"),
        ("a: 1", 1e16, "a: 1.0e+16"),
        ("a: 1", 2.0, "a: 2.0"),
        ("a: 1", float("inf"), "a: .inf"),
        ("a: 1", float("nan"), "a: .nan"),
        ("a: b", "auto", "a: auto"),
        ("a: b", "kernels-community/flash-attn", "a: kernels-community/flash-attn"),
        ("a: b", "no", 'a: "no"'),
        ("a: b", "1e-5", "a: 1e-5"),  # YAML 1.1 has a text here
        ("a: b", "1.0e-5", 'a: "1.0e-5"'),
        ("a: b", "x # y", 'a: "x # y"'),
        ("a: b", "x: y", 'a: "x: y"'),
        ("a: b", "", 'a: ""'),
        ("a: b", "two\nlines", 'a: "two\\nlines"'),
        ("a: b", "é", "a: é"),
        ("a: 'b'", "c", "a: 'c'"),
        ("a: 'b'", "it's", "a: 'it''s'"),
        ("a: 'b'", 3, "a: 3"),
        ('a: "b"', "c", 'a: "c"'),
        ("a: !!str 5", "c", "a: c"),
        ("a: &x 5", 6, "a: &x 6"),
        ("a: &x", 6, "a: &x 6"),
        ("a: [1, 2]", (3,), "a: [3]"),
        ("a: [x]  # l", ("y", "no"), 'a: [y, "no"]  # l'),
        ("a:\n- x  # one\n- y\nb: 1", "z", "a: z\nb: 1"),
        ("a:  # c\n  - x\n  - y\nb: 1", 1, "a: 1  # c\nb: 1"),
        ("a:\n- x\n- y\nb: 1", ("u", "v"), "a:\n- u\n- v\nb: 1"),
        ("a:\n  - x\nb: 1", ("u", "v"), "a:\n  - u\n  - v\nb: 1"),
        ("a: |\n  x\n\n  y\nb: 1", "z", "a: z\nb: 1"),
        ("a: x\n  y\nb: 1", "z", "a: z\nb: 1"),
        ("a:\n  k: 1\nb: 1", None, "a: null\nb: 1"),
        ("a: {k: 1}", {"j": True}, "a: {j: true}"),
        ("a: 1  # c", {"j": True}, "a:  # c\n  j: true"),
        ("a:", {"j": {"k": 1}}, "a:\n  j:\n    k: 1"),
        ("a: [1]\nb: [2]", {}, "a: {}\nb: [2]"),
        ('"a": 1', 2, '"a": 2'),
    ],
)
def test_setting_a_value(line: str, value: object, after: str) -> None:
    code = f"{HEAD}{line}\n"
    assert edited(code, "set", "a", value) == f"{HEAD}{after}\n"


@pytest.mark.parametrize(
    ("code", "name", "value", "after"),
    [
        (f"{HEAD}# end\n", "zzz", 1, f"{HEAD}zzz: 1\n# end\n"),
        (HEAD.rstrip(), "zzz", 1, f"{HEAD}zzz: 1"),
        (f"use_vllm: true  # c\n{HEAD}", "vllm_mode", "colocate", f"use_vllm: true  # c\nvllm_mode: colocate\n{HEAD}"),
        (f"vllm_device: auto\nseed: 1\n{HEAD}", "vllm_mode", "server", f"vllm_device: auto\nvllm_mode: server\nseed: 1\n{HEAD}"),
        (f"gradient_checkpointing_kwargs:\n  use_reentrant: false\n{HEAD}", "gradient_checkpointing", True,
         f"gradient_checkpointing_kwargs:\n  use_reentrant: false\ngradient_checkpointing: true\n{HEAD}"),
        (f"use_liger: true\n{HEAD}", "use_vllm", True, f"use_liger: true\n{HEAD}use_vllm: true\n"),
        (f"{HEAD}---\n".removesuffix("---\n") + "...\n", "zzz", 1, f"{HEAD}zzz: 1\n...\n"),
        (f"bf16: True\n{HEAD}", "tf32", True, f"bf16: True\n{HEAD}tf32: True\n"),
        (f"a: ['x']\n{HEAD}", "l", ("y",), f"a: ['x']\n{HEAD}l: [y]\n"),
        (f"a:\n- x\n{HEAD}", "l", ("y", "z"), f"a:\n- x\n{HEAD}l:\n- y\n- z\n"),
        (f"a:\n    b: 1\n{HEAD}", "d", {"e": 1}, f"a:\n    b: 1\n{HEAD}d:\n    e: 1\n"),
        (f"base: &b {{seed: 1}}\n{HEAD}<<: *b\n", "seed", 2, f"base: &b {{seed: 1}}\n{HEAD}<<: *b\nseed: 2\n"),
        ("  model_name_or_path: m\n  num_train_epochs: 1\n", "seed", 2, "  model_name_or_path: m\n  num_train_epochs: 1\n  seed: 2\n"),
        ("{model_name_or_path: m, num_train_epochs: 1}\n", "seed", 2, "{model_name_or_path: m, num_train_epochs: 1, seed: 2}\n"),
        ("{\n  model_name_or_path: m,\n  num_train_epochs: 1,\n}\n", "seed", 2, "{\n  model_name_or_path: m,\n  num_train_epochs: 1,\n  seed: 2,\n}\n"),
    ],
)  # fmt: skip
def test_a_new_key_goes_beside_its_kin(code: str, name: str, value: object, after: str) -> None:
    assert edited(code, "set", name, value) == after


@pytest.mark.parametrize(
    ("code", "path", "value", "after"),
    [
        ("a:\n  b: 1  # c\n", ("b",), 2, "a:\n  b: 2  # c\n"),
        ("a:\n  b: 1\n", ("c",), 2, "a:\n  b: 1\n  c: 2\n"),
        ("a: {b: 1}\n", ("b",), 2, "a: {b: 2}\n"),
        ("a: {b: 1}\n", ("c",), "no", 'a: {b: 1, c: "no"}\n'),
        ("a: {}\n", ("c",), 1, "a: {c: 1}\n"),
        ("a:\n", ("c",), 1, "a:\n  c: 1\n"),
        ("a: null  # c\n", ("c",), 1, "a:  # c\n  c: 1\n"),
        ("", ("c",), 1, "a:\n  c: 1\n"),
        ("z:\n    y: 1\n", ("c",), 1, "z:\n    y: 1\na:\n    c: 1\n"),
        ("a:\n  b:\n    c: 1\n", ("b", "d"), 2, "a:\n  b:\n    c: 1\n    d: 2\n"),
        ("a:\n  x: 1\n", ("b", "d"), 2, "a:\n  x: 1\n  b:\n    d: 2\n"),
    ],
)
def test_nested_values(code: str, path: tuple[str, ...], value: object, after: str) -> None:
    assert edited(HEAD + code, "set", "a", value, *path) == HEAD + after


# drop and rename -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "path", "after"),
    [
        ("# above\na: 1  # c\n# below\n", (), "# above\n# below\n"),
        ("a:\n- 1\n- 2\nb: 1\n", (), "b: 1\n"),
        ("a:\n  b:\n    c: 1\nd: 1\n", (), "d: 1\n"),
        ("a: |\n  x\n\nd: 1\n", (), "\nd: 1\n"),
        ("a:\nd: 1\n", (), "d: 1\n"),
        ("b: 2\na: 1", (), "b: 2"),
        ("a: 1\na: 2\n", (), ""),
        ("a:\n  b: 1\n  c: 2\n", ("b",), "a:\n  c: 2\n"),
        ("a:\n  b: 1\n", ("b",), ""),
        ("a:\n  b: {c: 1}\n  d: 1\n", ("b", "c"), "a:\n  d: 1\n"),
        ("a: {b: 1, c: 2, d: 3}\n", ("b",), "a: {c: 2, d: 3}\n"),
        ("a: {b: 1, c: 2, d: 3}\n", ("c",), "a: {b: 1, d: 3}\n"),
        ("a: {b: 1, c: 2, d: 3}\n", ("d",), "a: {b: 1, c: 2}\n"),
        ("a: {b: 1, c: 2,}\n", ("c",), "a: {b: 1,}\n"),
    ],
)
def test_dropping(code: str, path: tuple[str, ...], after: str) -> None:
    assert edited(HEAD + code, "drop", "a", None, *path) == HEAD + after


@pytest.mark.parametrize(
    ("code", "path", "after"),
    [
        ("a: 1  # c\n", (), "new: 1  # c\n"),
        ("'a' : 1\n", (), "'new' : 1\n"),
        ('"a":\n  b: 1\n', (), '"new":\n  b: 1\n'),
        ("a: &x 1\nc: *x\n", (), "new: &x 1\nc: *x\n"),
        ("a:\n  b: 1\n", ("b",), "a:\n  new: 1\n"),
        ("a: {b: 1}\n", ("b",), "a: {new: 1}\n"),
    ],
)
def test_renaming(code: str, path: tuple[str, ...], after: str) -> None:
    assert edited(HEAD + code, "rename", "a", "new", *path) == HEAD + after


# What is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "op", "name", "value", "path", "why"),
    [
        ("a: 1\n", "set", "a", Source("torch.bfloat16"), (), "is an expression"),
        ("a: 1\n", "set", "a", object(), (), "cannot be written"),
        ("a: 1\n", "set", "a", 2, ("b",), "not written out here"),
        ("a: &x 1\nb: *x\n", "set", "a", 2, (), r"repeat this value through \*x"),
        ("a: &x {k: 1}\nb: *x\n", "set", "b", 2, ("k",), r"repeats the mapping \*x"),
        ("a: &x {k: 1}\nb: *x\n", "set", "a", 2, ("k",), "tied to other keys"),
        ("a: &x 1\nb: *x\n", "drop", "a", None, (), "would not load"),
        ("a: &x {k: 1}\n<<: *x\n", "drop", "k", None, (), "comes from a merge"),
        ("a: &x {k: 1}\n<<: *x\nk: 2\n", "drop", "k", None, (), "tied to other keys"),
        ("a: 1\n", "drop", "b", None, (), "not written here"),
        ("a: 1\n", "drop", "b", None, ("c",), "not written out here"),
        ("a: 1\nb: 2\n", "rename", "a", "b", (), "there already"),
        ("a: 1\n", "rename", "c", "b", (), "not written here"),
        ("? a\n: 1\n", "drop", "a", None, (), "shares its line|cannot be edited"),
        ("a: 1\n", "move", "a", "b", (), "no meaning"),
        ("a: !env X\n", "set", "seed", 1, (), "could not determine a constructor"),
    ],
)  # fmt: skip
def test_what_has_no_faithful_text_is_refused(
    code: str, op: str, name: str, value: object, path: tuple[str, ...], why: str
) -> None:
    with pytest.raises(CannotEdit, match=why) as caught:
        edited(HEAD + code, op, name, value, *path)
    assert "\n" not in str(caught.value)


def test_an_alias_is_overridden_where_it_stands() -> None:
    assert edited(HEAD + "a: &x 1\nb: *x  # c\n", "set", "b", 2) == HEAD + "a: &x 1\nb: 2  # c\n"


def test_two_fixes_that_disagree_are_said() -> None:
    text = Text("recipe.yaml", HEAD.encode())
    site = site_of(text)
    with pytest.raises(CannotEdit, match="two fixes want different things of seed"):
        edit(text, [Intent("set", site, "seed", 1), Intent("set", site, "seed", 2)])


def test_intents_of_one_site_compose() -> None:
    text = Text("recipe.yaml", OPEN_R1.encode())
    site = site_of(text)
    intents = [
        Intent("set", site, "vllm_mode", "colocate"),
        Intent("set", site, "vllm_mode", "colocate"),
        Intent("drop", site, "max_prompt_length"),
        Intent("rename", site, "torch_dtype", "dtype"),
        Intent("drop", site, "gradient_checkpointing_kwargs", path=("use_reentrant",)),
    ]
    wanted = (
        OPEN_R1.replace("use_vllm: true\n", "use_vllm: true\nvllm_mode: colocate\n")
        .replace("max_prompt_length: 512\n", "")
        .replace("torch_dtype", "dtype")
        .replace("gradient_checkpointing_kwargs:\n  use_reentrant: false\n", "")
    )
    assert edit(text, intents) == wanted


@pytest.mark.parametrize(
    "change", [lambda s: s.replace("\n", "\r\n"), lambda s: "\ufeff" + s, lambda s: "# é 😀\n" + s]
)
def test_line_ends_and_other_scripts_stay(change) -> None:  # type: ignore[no-untyped-def]
    code = change(MIXTURE)
    wanted = code.removeprefix("\ufeff").replace("min_lr_rate: 0.1", "min_lr_rate: 0.2")
    assert edited(code, "set", "lr_scheduler_kwargs", 0.2, "min_lr_rate") == wanted
    newline = "\r\n" if "\r\n" in code else "\n"
    assert edited(code, "set", "zzz", 1) == code.removeprefix("\ufeff") + newline + "zzz: 1"


# DeepSpeed JSON ----------------------------------------------------------------------------------------------------------

DEEPSPEED = '{\n    "bf16": {"enabled": true},\n    "zero_optimization": {\n        "stage": 3\n    },\n    "é": 1\n}\n'


@pytest.mark.parametrize(
    ("op", "name", "path", "value", "before", "after"),
    [
        ("set", "zero_optimization", ("stage",), 2, '"stage": 3', '"stage": 2'),
        ("set", "zero_optimization", ("x",), 1e-5, '"stage": 3', '"stage": 3,\n        "x": 1e-05'),
        ("set", "é", (), "auto", '"é": 1', '"é": "auto"'),
        ("set", "bf16", ("enabled",), False, "true", "false"),
        ("set", "new", (), None, '"é": 1', '"é": 1,\n    "new": null'),
        ("drop", "bf16", (), None, '"bf16": {"enabled": true},\n    ', ""),
        ("drop", "é", (), None, ',\n    "é": 1', ""),
        ("rename", "é", (), "e", '"é"', '"e"'),
    ],
)
def test_deepspeed_json(op: str, name: str, path: tuple[str, ...], value: object, before: str, after: str) -> None:
    assert edited(DEEPSPEED, op, name, value, *path, file="ds.json") == DEEPSPEED.replace(before, after)


# Whatever comes --------------------------------------------------------------------------------------------------------

VALUES: list[object] = [
    True, False, None, 3, -1, 1e-5, 0.1, 1e16, "auto", "no", "1e-5", "a: b", "x # y", "", "it's", "ünï", "~", "1:30",
    "2001-01-01", "- a", "*x", "&y", "@z", "%q", "multi\nline", " lead", "{x}", "[y", '"q"', (), (1, 2), ("a", "b"), {},
    {"a": 1, "b": "no"},
]  # fmt: skip
NAMES = ["vllm_mode", "use_liger_kernel", "zzz", "lora_foo", "gradient_checkpointing_kwargs", "report_to"]


def literal(value: object) -> object:
    if isinstance(value, tuple):
        return [literal(item) for item in value]
    return {k: literal(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def changed(data: dict[str, object], intent: Intent) -> dict[str, object]:
    """The data after an intent, worked out without any text."""
    new = copy.deepcopy(data)
    holder, keys = new, (intent.name, *intent.path)
    for key in keys[:-1]:
        if holder.get(key) is None:
            holder[key] = {}
        holder = holder[key]  # type: ignore[assignment]
    if intent.op == "set":
        holder[keys[-1]] = literal(intent.value)
    else:
        value = holder.pop(keys[-1])
        if intent.op == "rename":
            holder[str(intent.value)] = value
    if intent.op == "drop" and len(keys) > 1 and not holder:
        del new[intent.name]
    return new


def any_intent(rng: random.Random, site: Site, data: dict[str, object]) -> Intent:
    name = rng.choice([*data, *NAMES])
    inner, path = data.get(name), ()
    if isinstance(inner, dict) and rng.random() < 0.7:
        path = (rng.choice([*inner, "new_key"]),)
    op = rng.choice(["set", "set", "drop", "rename"])
    value = {"set": rng.choice(VALUES), "drop": None, "rename": rng.choice(["renamed", "odd key"])}[op]
    return Intent(op, site, name, value, path=path)  # type: ignore[arg-type]


def comments(code: str) -> list[str]:
    return [line for line in code.splitlines() if line.lstrip().startswith("#")]


@pytest.mark.parametrize("seed", range(4))
def test_any_edit_loads_to_the_old_data_plus_the_change(seed: int) -> None:
    rng = random.Random(seed)
    written = 0
    for _ in range(40):
        code = rng.choice(FILES)
        code = code.replace("\n", "\r\n") if rng.random() < 0.3 else code
        text = Text("recipe.yaml", code.encode())
        site, data = site_of(text), yaml.safe_load(code)
        intent = any_intent(rng, site, data)
        try:
            new = edit(text, [intent])
        except CannotEdit as error:
            assert "\n" not in str(error)  # noqa: PT017
            continue
        written += 1
        assert yaml.safe_load(new) == changed(data, intent), intent
        assert comments(new) == comments(code), intent
        assert new.endswith("\n") == code.endswith("\n")
        assert "\r\n" not in code or "\n" not in new.replace("\r\n", "")
        if intent.op == "set":
            again = Text("recipe.yaml", new.encode())
            assert edit(again, [Intent("set", site_of(again), intent.name, intent.value, path=intent.path)]) == new
    assert written > 25


@pytest.mark.parametrize("seed", range(4))
def test_no_input_gives_a_traceback(seed: int) -> None:
    rng = random.Random(seed)
    noise = [
        "\t",
        "&a ",
        "*a",
        "<<: *a\n",
        "{",
        "[",
        '"',
        "'",
        "|",
        ">-",
        "\r",
        "\x85",
        "\u2028",
        "? ",
        "!x ",
        "#",
        ": ",
        "- ",
    ]
    tried = 0
    for _ in range(60):
        code = rng.choice(FILES)
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(code))
            code = code[:at] + rng.choice(noise) + code[at + rng.randrange(3) :]
        text = Text("recipe.yaml", code.encode())
        try:
            sites = read(text).sites
        except Unparsable:
            continue
        for site in sites:
            data = dict.fromkeys(site.arguments)
            tried += 1
            try:
                assert edit(text, [any_intent(rng, site, data)]) != ""
            except CannotEdit as error:
                assert "\n" not in str(error)  # noqa: PT017
    assert tried > 10
