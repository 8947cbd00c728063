"""YAML and DeepSpeed JSON as the reader understands them: whose file it is, every value and place, and what commands it holds."""

from __future__ import annotations

import random
import re
import sys
import types

import pytest
import yaml

from trl_lint.model import Argument, Command, Known, OneOf, Table, Unknown, Value, Word
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.recipe import read
from trl_lint.sources.text import Text, Undecodable

HEAD = "model_name_or_path: m\nper_device_train_batch_size: 4\n"
"""Enough for a file to be a recipe."""

RECIPE = """\
# Model arguments
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
torch_dtype: bfloat16  # as trained
attn_implementation: "kernels-community/flash-attn"

# Data
dataset_mixture:
  datasets:
    - id: open-r1/OpenR1-Math
      config: default
      columns: [prompt, completion]
      weight: 0.5
  seed: 0
reward_funcs:
- accuracy
- format
reward_weights: [1.0, 0.5]
chat_template: "{% for m in messages %}{{ m.content }}{% endfor %}"
system_prompt: |
  You are a helpful AI Assistant — être.

  Think first.
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: no
learning_rate: 1e-5
warmup_ratio: 1.0e-1
max_steps: -1
hub_model_id:
report_to: ~
"""


def module(code: str, path: str = "recipe.yaml") -> Module:
    return read(Text(path, code.encode()))


def arguments(code: str, path: str = "recipe.yaml") -> dict[str, Argument]:
    (site,) = module(code, path).sites
    return dict(site.arguments)


def bare(value: object) -> object:
    if isinstance(value, Table):
        return {name: shown(argument.value) for name, argument in value.entries.items()}
    return [bare(item) for item in value] if isinstance(value, tuple) else value


def shown(value: Value) -> object:
    """A value as safe_load would give it; "?" for what cannot be read."""
    assert not isinstance(value, OneOf)
    return bare(value.value) if isinstance(value, Known) else "?"


# Values ----------------------------------------------------------------------------------------------------------------


def test_a_recipe_reads_as_safe_load_reads_it() -> None:
    assert {name: shown(a.value) for name, a in arguments(RECIPE).items()} == yaml.safe_load(RECIPE)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-5", "1e-5"),  # YAML 1.1 wants a dot: TRL gets a text
        ("1.0e-5", 1e-5),
        ("1.e+3", 1000.0),
        (".inf", float("inf")),
        ("5", 5),
        ("1_000", 1000),
        ("0x10", 16),
        ("017", 15),
        ("0o17", "0o17"),
        ("1:30", 90),
        ("on", True),
        ("No", False),
        ("TRUE", True),
        ("'yes'", "yes"),
        ("n", "n"),
        ("~", None),
        ("null", None),
        ("", None),
        ("bf16", "bf16"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
        ("2024-05-01", "?"),
        ("!env HOME", "?"),
        ("!!python/name:torch.bfloat16", "?"),
        ("!!int five", "?"),
        ("${oc.env:LR}", "?"),
        ("'{{ lr }}'", "?"),
        ("[1, a, null]", [1, "a", None]),
        ("[]", []),
        ("{}", {}),
        ("[2024-05-01]", "?"),
        ("{a: 1, b: {c: no}}", {"a": 1, "b": {"c": False}}),
        ("[{a: 1}, {b: x}]", [{"a": 1}, {"b": "x"}]),
        ("[[1, 2], [3]]", [[1, 2], [3]]),
        (">-\n  one\n  two", "one two"),
        ("|\n  one\n  two\n", "one\ntwo\n"),
        ('"a\\tb\\u00e9"', "a\tbé"),
        ("one\n  two", "one two"),
    ],
)
def test_scalars(written: str, value: object) -> None:
    found = shown(arguments(f"{HEAD}max_steps: {written}\n")["max_steps"].value)
    assert found == value
    assert type(found) is type(value)


def test_what_cannot_be_read_says_why() -> None:
    value = arguments(f"{HEAD}run_name: 2024-05-01\n")["run_name"].value
    assert value == Unknown("it is a date")


def test_the_last_of_a_repeated_key_counts() -> None:
    code = f"{HEAD}max_steps: 1\nmax_steps: 2\n"
    argument = arguments(code)["max_steps"]
    assert shown(argument.value) == 2
    assert argument.place.whole.line == 4


def test_keys_that_are_no_text_leave_the_mapping_open() -> None:
    table = arguments(f"{HEAD}lr_scheduler_kwargs:\n  1: a\n  b: c\n")["lr_scheduler_kwargs"].value
    assert isinstance(table, Known)
    assert isinstance(table.value, Table)
    assert list(table.value.entries) == ["b"]
    assert table.value.open == "a key is no text"


# Places ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [lambda b: b, lambda b: b.replace(b"\n", b"\r\n"), lambda b: b"\xef\xbb\xbf" + b])
def test_places_slice_the_file(change) -> None:  # type: ignore[no-untyped-def]
    data = change(RECIPE.encode())
    text = Text("recipe.yaml", data)
    (site,) = read(text).sites
    cut = {n: data[a.place.value.start : a.place.value.end].decode() for n, a in site.arguments.items()}
    assert cut["model_name_or_path"] == "Qwen/Qwen2.5-1.5B-Instruct"
    assert cut["torch_dtype"] == "bfloat16"
    assert cut["attn_implementation"] == '"kernels-community/flash-attn"'
    assert cut["reward_weights"] == "[1.0, 0.5]"
    assert cut["reward_funcs"].split() == ["-", "accuracy", "-", "format"]
    assert cut["system_prompt"].endswith("Think first.")
    assert cut["hub_model_id"] == ""
    assert cut["report_to"] == "~"
    for name, argument in site.arguments.items():
        place = argument.place
        assert place.kind == "key"
        assert data[place.whole.start : place.whole.end].decode() == name + ":" + _gap(data, place.whole) + cut[name]
        assert place.container == site.span.start
        assert text.span(text.utf8_of_byte(place.value.start), text.utf8_of_byte(place.value.end)) == place.value
    assert data[site.callee.start : site.callee.end] == b"model_name_or_path"
    assert data[site.span.start : site.span.end].decode().startswith("model_name_or_path")
    assert site.span.end == data.rstrip().__len__()


def _gap(data: bytes, span: object) -> str:
    start, end = span.start, span.end  # type: ignore[attr-defined]
    found = re.match(r"[\w]+:(\s*)", data[start:end].decode())
    assert found is not None
    return found[1]


def test_nested_entries_have_places_of_their_own() -> None:
    table = arguments(RECIPE)["gradient_checkpointing_kwargs"].value
    assert isinstance(table, Known)
    assert isinstance(table.value, Table)
    place = table.value.entries["use_reentrant"].place
    assert RECIPE.encode()[place.whole.start : place.whole.end] == b"use_reentrant: no"
    assert (place.whole.line, place.whole.column) == (25, 3)
    assert table.value.span is not None
    assert place.container == table.value.span.start


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("&x 5", "5"),
        ("&x  # why\n  5", "5"),
        ("!!str &x 'a'", "'a'"),
        ("&x !<tag:yaml.org,2002:str> b", "b"),
        ("&x", ""),
        ("&x {a: 1}", "{a: 1}"),
        ("&x\n  a: 1", "a: 1"),
        ("&x\n- 1", "- 1"),
        ("|+\n  s\n", "|+\n  s\n"),
        ("|\n  s\n\n\n# end\n", "|\n  s"),
    ],
)
def test_a_value_begins_behind_its_anchor_and_ends_with_its_last_character(written: str, value: str) -> None:
    code = f"{HEAD}run_name: {written}\nseed: 1\n"
    place = arguments(code)["run_name"].place
    assert code[place.value.start : place.value.end] == value


# Anchors and merges ------------------------------------------------------------------------------------------------------


def test_an_alias_points_at_what_it_repeats() -> None:
    code = f"{HEAD}max_steps: &n 7\nsave_steps: *n\n"
    argument = arguments(code)["save_steps"]
    assert shown(argument.value) == 7
    assert code[argument.place.value.start : argument.place.value.end] == "*n"
    assert argument.place.binding is not None
    assert code[argument.place.binding.start : argument.place.binding.end] == "7"


@pytest.mark.parametrize(
    "code",
    [
        "base: &b {seed: 1, beta: 0.1}\n<<: *b\nbeta: 0.2\n",
        "a: &a {seed: 1}\nb: &b {beta: 3}\n<<: [*a, *b]\n",
        "a: &a {seed: 1}\nb: &b {seed: 2, beta: 3}\n<<: [*a, *b]\nseed: 3\n",
        "a: &a {seed: 1}\n<<: *a\n<<: {seed: 2}\n",
        "a: &a {seed: 1}\nb: &b\n  <<: *a\n  beta: 2\n<<: *b\n",
        "<<: {seed: 1}\n",
        "lora_r: &r 16\nlr_scheduler_kwargs: {r: *r, l: [*r, *r]}\n",
    ],
)
def test_merges_resolve_as_safe_load_resolves_them(code: str) -> None:
    found = {name: shown(a.value) for name, a in arguments(HEAD + code).items()}
    assert found == yaml.safe_load(HEAD + code)


def test_merged_mappings_that_give_the_same_key_are_not_decided() -> None:
    code = "a: &a {seed: 1}\nb: &b {seed: 2, beta: 3}\n<<: [*a, *b]\n"
    found = arguments(HEAD + code)
    assert (shown(found["seed"].value), shown(found["beta"].value)) == ("?", 3)


def test_a_merged_key_is_placed_where_it_is_written() -> None:
    code = f"base: &b\n  seed: 1\n{HEAD}<<: *b\n"
    (site,) = module(code).sites
    place = site.arguments["seed"].place
    assert code[place.whole.start : place.whole.end] == "seed: 1"
    assert place.container != site.span.start


@pytest.mark.parametrize(
    "code",
    [
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
        "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 60)),
        "a: &a [*a]\n",
        "a: &a\n  b: *a\n",
        "lora_r: " + "[" * 200 + "]" * 200 + "\n",
    ],
)
def test_what_unfolds_without_end_is_refused_in_one_line(code: str) -> None:
    with pytest.raises(Unparsable, match=r"^line \d+: [^\n]+$"):
        module(HEAD + code)


# Errors ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (f"{HEAD}report_to\n- wandb\n", 4),
        (f"{HEAD}seed: [1\n", 4),
        (f"{HEAD}\tseed: 1\n", 3),
        (f"{HEAD}seed: *nowhere\n", 3),
        (f"{HEAD}seed: \x07\n", 3),
        (f"{HEAD}a: &x 1\nb: &x 2\n", 4),
        (f"{HEAD}<<: 5\n", 1),
        (f"{HEAD}---\nseed: 1\n", 4),
        (f"---\n{HEAD}---\nseed: 1\n", 5),
    ],
)
def test_a_broken_recipe_says_where(code: str, line: int) -> None:
    with pytest.raises(Unparsable, match=rf"^line {line}: [^\n]+$"):
        module(code)


@pytest.mark.parametrize("code", [f"---\n{HEAD}", f"%YAML 1.1\n---\n{HEAD}...\n", f"# only\n\n{HEAD}\n\n# end"])
def test_document_markers_are_no_second_document(code: str) -> None:
    assert arguments(code).keys() == {"model_name_or_path", "per_device_train_batch_size"}


def test_a_broken_file_of_somebody_else_is_nothing() -> None:
    assert module("apiVersion: v1\n{{- if .Values.kind }}\nrun: python train.py\n") == Module("recipe.yaml", ())


# Whose file ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (HEAD, "recipe"),
        ("{model_name_or_path: m, use_vllm: true}\n", "recipe"),
        ("num_train_epochs: 1\nper_device_train_batch_size: 2\n", "recipe"),
        ("use_vllm: true\nvllm_mode: colocate\n", "recipe"),
        ("model_name_or_path: m\nlearning_rate: 1.0e-5\n", "recipe"),
        ("compute_environment: LOCAL_MACHINE\nnum_processes: 8\n", "accelerate"),
        ("distributed_type: FSDP\nfsdp_config: {}\n", "accelerate"),
        ("zero_optimization:\n  stage: 3\n", "deepspeed"),
        ("model_name_or_path: m\nfinetuning_type: lora\nstage: sft\ntemplate: qwen\n", "llama-factory"),
        ("model_name_or_path: m\ntemplate: qwen\ninfer_backend: vllm\ntrust_remote_code: true\n", "llama-factory"),
        ("base_model: m\ndatasets:\n- path: p\nmicro_batch_size: 1\nlearning_rate: 1\noutput_dir: o\n", "axolotl"),
        ("rlhf_type: grpo\nmodel: m\nuse_vllm: true\nnum_generations: 8\n", "ms-swift"),
        ("model:\n  model_name: m\ntraining:\n  trainer_type: TRL_SFT\n", "oumi"),
        ("actor_rollout_ref:\n  rollout: {n: 5}\n", "verl"),
        ("policy: {model_name: m}\ncluster: {num_nodes: 1}\n", "nemo-rl"),
        ("defaults:\n  - _self_\nlearning_rate: 1\nnum_train_epochs: 1\nper_device_train_batch_size: 1\n", "hydra"),
        ("apiVersion: v1\nkind: Pod\n", "kubernetes"),
        ("services: {a: {image: b}}\n", "compose"),
        ("type: task\ncommands: [trl sft]\n", "dstack"),
        ("on: push\njobs: {a: {runs-on: x, steps: [{run: python a.py}]}}\n", "github"),
        ("resources: {}\nrun: trl sft\n", "skypilot"),
        ("train: {script: [trl sft]}\n", "gitlab"),
        ("_wandb: {value: 1}\nlearning_rate: {value: 1}\nnum_train_epochs: {value: 1}\nmax_steps: {value: 1}\n", "wandb"),
        ("repos:\n- repo: x\n", None),
        ("name: x\nlearning_rate: 3\n", None),
        ("temperature: 1\ntop_p: 1\nmax_new_tokens: 5\n", None),
        ("- model_name_or_path: m\n", None),
        ("just text", None),
        ("", None),
        ("# nothing\n", None),
        ("tests:\n  model_name_or_path: m\n  num_train_epochs: 1\n", None),
    ],
)  # fmt: skip
def test_whose_file_it_is(code: str, kind: str | None) -> None:
    found = module(code)
    named = found.sites[0].kind if found.sites else found.schema
    assert named == kind
    assert not (found.sites and found.schema)


# DeepSpeed JSON ----------------------------------------------------------------------------------------------------------


def test_deepspeed_json() -> None:
    code = '{\n\t"bf16": {"enabled": "auto"},\n\t"é": 1e-5,\n\t"zero_optimization": {"stage": 3}\n}\n'
    found = arguments(code, "ds_config.json")
    assert {n: shown(a.value) for n, a in found.items()} == {
        "bf16": {"enabled": "auto"},
        "é": 1e-5,
        "zero_optimization": {"stage": 3},
    }
    place = found["zero_optimization"].place
    assert code.encode()[place.whole.start : place.whole.end] == b'"zero_optimization": {"stage": 3}'
    assert (place.whole.line, place.whole.column) == (4, 2)


@pytest.mark.parametrize(
    "code", ['{"model_name_or_path": "m", "num_train_epochs": 1}', "[]", "", "{", '"zero_optimization"']
)
def test_other_json_is_nothing(code: str) -> None:
    assert module(code, "a.json") == Module("a.json", ())


@pytest.mark.parametrize(
    "code", ['{"zero_optimization": {"stage": 3}', '{\n"zero_optimization": }', '{"zero_optimization": {},}']
)
def test_broken_deepspeed_json_is_said(code: str) -> None:
    with pytest.raises(Unparsable, match=r"^line \d: not valid JSON$"):
        module(code, "a.json")


# Commands --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that knows words and lines only: what is tested here is where its text comes from and where it lands."""

    def commands_in(text: Text, start: int, end: int) -> list[Command]:
        found = []
        for line in re.finditer(rb"(?:[^\n\\]|\\\r?\n)+", text.utf8[start:end]):
            at = start + line.start()
            words = tuple(
                Word(m[0].decode(), text.span(at + m.start(), at + m.end())) for m in re.finditer(rb"[^\s\\]+", line[0])
            )
            if words:
                found.append(Command(words, {}, text.span(at, at + len(line[0]))))
        return found

    fake = types.ModuleType("trl_lint.sources.shell")
    fake.commands_in = commands_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trl_lint.sources.shell", fake)


def commands(code: str) -> list[list[str | None]]:
    """Every command's words; the words that are plain are checked against the file's bytes."""
    data = code.encode()
    found = module(code).commands
    for command in found:
        for word in command.words:
            cut = data[word.span.start : word.span.end].decode()
            assert word.text is None or cut.strip("\"'") == word.text
            assert Text("recipe.yaml", data).span(word.span.start, word.span.end) == word.span
    return [[word.text for word in command.words] for command in found]


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("type: task\ncommands:\n  - pip install trl\n  - trl sft --x 1\n", [["pip", "install", "trl"], ["trl", "sft", "--x", "1"]]),
        ("type: task\ncommands:\n  - >\n    trl sft\n    --é 1\n  - 'trl dpo'\n", [["trl", "sft", "--é", "1"], ["trl", "dpo"]]),
        ("type: task\ncommands:\n  - |\n    trl sft \\\n      --x 1\n    ls\n", [["trl", "sft", "--x", "1"], ["ls"]]),
        ("type: task\ncommands:\n  - |\n    cat <<EOF\n    trl\n    EOF\n    ls\n", [["cat", "<<EOF"], ["trl"], ["EOF"], ["ls"]]),
        ('type: task\ncommands:\n  - "trl \\"sft\\""\n  - ls\n', [["ls"]]),  # escapes: not the shell's own bytes
        ("resources: {}\nsetup: pip install trl\nrun: |\n  trl sft\n", [["pip", "install", "trl"], ["trl", "sft"]]),
        ("train:\n  before_script: [ls]\n  script:\n    - trl sft\n", [["ls"], ["trl", "sft"]]),
        ("on: push\njobs:\n  a:\n    runs-on: u\n    steps:\n      - run: trl sft\n      - uses: x\n", [["trl", "sft"]]),
        ("services:\n  a:\n    command: trl sft\n", [["trl", "sft"]]),
        ("services:\n  a:\n    entrypoint: [trl]\n    command: [sft, --x, 1]\n", [["trl", "sft", "--x", "1"]]),
        ("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: [trl, sft]\n    args: ['--x', \"1\"]\n", [["trl", "sft", "--x", "1"]]),
        ("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: [/bin/sh, -c]\n    args:\n    - |\n      trl sft\n", [["trl", "sft"]]),
        ("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - args: [trl, $(MODEL)]\n", [["trl", None]]),
        ("apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\nspec: {args: [trl, env]}\n", [["trl", "env"]]),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("by_line")
def test_commands_of_foreign_files(code: str, wanted: list[list[str | None]]) -> None:
    assert commands(code) == wanted


@pytest.mark.parametrize(
    ("written", "quoted"),
    [("|\n    trl sft", False), (">\n    trl sft", True), ("trl sft", True), ("'trl sft'", True)],
)
@pytest.mark.usefixtures("by_line")
def test_only_a_literal_block_holds_the_shell_text_itself(written: str, quoted: bool) -> None:
    (command,) = module(f"type: task\ncommands:\n  - {written}\n").commands
    assert [word.text for word in command.words] == ["trl", "sft"]
    assert command.quoted is quoted


@pytest.mark.usefixtures("by_line")
def test_a_workflow_expression_is_not_read() -> None:
    code = "on: push\njobs:\n  a:\n    runs-on: u\n    steps:\n      - run: trl sft --x ${{ matrix.n }}\n"
    (command,) = module(code).commands
    word = command.words[-1]
    assert (word.text, word.why) == (None, "it is filled in by whoever runs the file")
    assert code[word.span.start : word.span.end] == "${{ matrix.n }}"


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("type: task\nenv:\n  - A=1\n  - B\ncommands: [trl sft]\n", {"A": "1"}),
        ("type: task\nenv: {A: 1, B: }\ncommands: [trl sft]\n", {"A": "1", "B": "?"}),
        ("services: {a: {command: trl sft, environment: [A=x=y]}}\n", {"A": "x=y"}),
        ("on: push\nenv: {A: 1, B: 1}\njobs: {a: {runs-on: u, env: {B: 2}, steps: [{run: trl sft, env: {C: '${{ x }}'}}]}}\n", {"A": "1", "B": "2", "C": "?"}),
        ("apiVersion: v1\nkind: Pod\nspec:\n- command: [trl]\n  env:\n  - {name: A, value: '0,1'}\n  - {name: B, valueFrom: {}}\n", {"A": "0,1", "B": "?"}),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("by_line")
def test_environments(code: str, wanted: dict[str, object]) -> None:
    (command,) = module(code).commands
    assert {name: shown(a.value) for name, a in command.environment.items()} == wanted
    assert all(a.place.kind == "key" for a in command.environment.values())


# Whatever comes --------------------------------------------------------------------------------------------------------

SEEDS = [
    RECIPE,
    f"base: &b {{seed: 1}}\n{HEAD}<<: *b\nx: *b\ny: !foo [1]\nz: |+\n  s\n\n",
    "compute_environment: LOCAL_MACHINE\nfsdp_config:\n  a: b\n",
    "on: push\njobs:\n  a:\n    runs-on: u\n    steps:\n      - run: |\n          trl sft\n        env: {A: 1}\n",
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: [bash, -c, 'trl sft']\n    env: [{name: A}]\n",
]
NOISE = ["\t", "\0", "&a ", "*a", "<<: *a\n", "{", "[", "}", '"', "'", "|", ">-", "\r", "\x85", "\u2028", "---\n", "? ", "!x ", "%", "#", ": ", "é", "😀", "- "]  # fmt: skip


def outcome(data: bytes) -> Module | str:
    """What is read, or why it is not."""
    try:
        return read(Text("recipe.yaml", data))
    except (Unparsable, Undecodable) as error:
        return str(error)


@pytest.mark.usefixtures("by_line")
@pytest.mark.parametrize("seed", range(8))
def test_no_input_gives_a_traceback_or_a_wrong_place(seed: int) -> None:
    rng = random.Random(seed)
    read_any = 0
    for _ in range(120):
        code = rng.choice(SEEDS)
        if rng.random() < 0.3:
            code = code[: rng.randrange(len(code))]
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(code) + 1)
            code = code[:at] + rng.choice(NOISE) + code[at + rng.randrange(3) :]
        data = code.encode()
        if rng.random() < 0.1:
            data += bytes(rng.randrange(256) for _ in range(5))
        found = outcome(data)
        if isinstance(found, str):
            assert "\n" not in found
            continue
        read_any += 1
        text = Text("recipe.yaml", data)
        for site in found.sites:
            for argument in site.arguments.values():
                span = argument.place.value
                assert text.span(text.utf8_of_byte(span.start), text.utf8_of_byte(span.end)) == span
    assert read_any > 30


@pytest.mark.parametrize(
    "code",
    [
        HEAD + "x: " + "a" * 1_000_000 + "\n",
        HEAD + "x: [" + "é, " * 20_001 + "]\n",
        HEAD + "# " + "#" * 1_000_000 + "\n",
        "{" * 100_000,
        "model_name_or_path: m\nper_device_train_batch_size: " + "[" * 100_000,
        "," * 300_000 + " " * 300_000 + "a" * 300_000,
    ],
)
def test_long_lines_and_deep_nesting_end(code: str) -> None:
    found = outcome(code.encode())
    assert found.startswith("line ") if isinstance(found, str) else found.path == "recipe.yaml"
