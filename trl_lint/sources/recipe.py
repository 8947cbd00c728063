"""A YAML or DeepSpeed JSON file in; out its one site (a recipe, an accelerate or a DeepSpeed config) or whose file it is,
and the shell commands that foreign files (workflows, Kubernetes, compose, dstack, SkyPilot, GitLab) hold.

Scalars are read as `yaml.safe_load` reads them, because that is what TRL's own TrlParser calls: `1e-5` is a text there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from trl_lint.model import Argument, Known, Place, Site, SiteKind, Table, Unknown, Value, Written
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.recipe_commands import RUNS, commands_of
from trl_lint.sources.schemas import SCHEMA_KEYS, schema_of, words
from trl_lint.sources.text import Text
from trl_lint.sources.yaml_tree import (
    MAX_NODES,
    TAG,
    Node,
    Offsets,
    Unreadable,
    documents,
    entries,
    is_kind,
    json_document,
    plain,
    top_level,
)

# Sites ---------------------------------------------------------------------------------------------------------------


_LOOK = re.compile(rb"(?:^|[{,])[ \t]*[\"']?([A-Za-z_][\w.-]*+)[\"']?[ \t]*:", re.MULTILINE)
_TOP = re.compile(rb"^[\"']?([A-Za-z_][\w.-]*+)[\"']?[ \t]*:", re.MULTILINE)

TELLING = words(
    """model_name_or_path per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps
    gradient_checkpointing gradient_checkpointing_kwargs num_train_epochs max_steps learning_rate lr_scheduler_type
    output_dir attn_implementation dataset_name use_vllm vllm_mode vllm_gpu_memory_utilization vllm_device
    vllm_server_host num_generations max_completion_length max_prompt_length max_seq_length use_peft use_liger
    use_liger_kernel dataset_mixture dataset_mixer model_init_kwargs reward_funcs"""
)
"""One of these stands in every recipe: a file without is not even parsed for one."""

FORMER = words(
    """max_seq_length evaluation_strategy torch_dtype use_liger use_liger_loss use_flash_attention_2 max_prompt_length
    max_target_length dataset_mixer dataset_mixture dataset_splits dataset_configs preprocessing_num_workers vllm_device
    vllm_dtype vllm_max_model_len vllm_guided_decoding_regex reward_funcs use_reentrant warmup_ratio logging_dir
    overwrite_output_dir group_by_length per_gpu_train_batch_size generation_aggregation dataset_train_name
    dataset_id_or_path tokenizer_name_or_path sanity_check push_to_hub_revision hub_model_revision save_safetensors
    vllm_server_host model_init_kwargs ref_model_init_kwargs dataset_kwargs gradient_checkpointing_kwargs"""
)
"""Fields that earlier releases had, or that the recipes of Hugging Face's own handbooks have."""

COMMON = words(
    """output_dir learning_rate weight_decay max_steps max_length run_name warmup_steps batch_size load_in_4bit
    load_in_8bit lora_r lora_alpha lora_dropout lora_target_modules lora_modules_to_save top_k top_p min_p
    repetition_penalty max_new_tokens trust_remote_code attn_implementation dataset_name dataset_config data_dir
    data_files eos_token pad_token reward_model_path request_timeout model_revision label_smoothing
    torch_dtype resume_from_checkpoint use_cpu use_rslora use_dora adam_beta1 adam_beta2 adam_epsilon
    project local_rank log_level tp_size"""
)
"""Fields whose names other programs' files use as well: they are no sign of a recipe by themselves."""

_ACCELERATE = frozenset({"compute_environment", "distributed_type"})
_ACCELERATE_TOO = frozenset(
    {"num_processes", "num_machines", "mixed_precision", "deepspeed_config", "fsdp_config", "machine_rank", "use_cpu"}
)


@cache
def _fields() -> frozenset[str]:
    """Every field of TRL's configs and of TrainingArguments that says more than its name would elsewhere."""
    from trl_lint import knowledge

    release = knowledge.trl(knowledge.newest("trl"))
    names = set(knowledge.training_arguments(knowledge.newest("transformers"))) | FORMER
    for name in release.configs():
        config = release.config(name)
        names |= set(config.fields) if config is not None else set()
    return frozenset(n for n in names if "_" in n)


def named(text: Text) -> Module:
    """The recipe that a file is because a launch hands it to a script, however few keys it has. Raises Unparsable."""
    roots = documents(text.code)
    if len(roots) != 1 or roots[0].kind != "mapping" or schema_of(top_level(roots[0])) is not None:
        return Module(text.path, ())
    return Module(text.path, (_site(Offsets(text), roots[0], "recipe"),))


def read(text: Text) -> Module:
    """The site and the commands of one file. Raises Unparsable where the file looks like one of ours and cannot be read."""
    if text.path.lower().endswith(".json"):
        return _read_json(text)
    data = text.utf8
    keys = {k.decode() for k in _LOOK.findall(data)}
    ours = _look(keys)
    if not ours and not RUNS.search(data) and not keys & SCHEMA_KEYS:
        return Module(text.path, ())
    try:
        roots = documents(text.code)
        return _judged(text, roots)
    except Unparsable:
        if _look({k.decode() for k in _TOP.findall(data)}) or (data.lstrip()[:1] == b"{" and ours):
            raise
        return Module(text.path, ())  # a template of something else: nobody would give it to a parser


def _look(keys: set[str]) -> bool:
    if keys & _ACCELERATE or "zero_optimization" in keys:
        return True
    return bool(keys & TELLING) and len(keys & (TELLING | FORMER | COMMON)) > 1


def _judged(text: Text, roots: list[Node]) -> Module:
    offsets = Offsets(text)
    mappings = [(i, top_level(r)) for i, r in enumerate(roots) if r.kind == "mapping"]
    for index, top in mappings:
        schema = schema_of(top)
        if schema is not None:
            return Module(text.path, (), schema=schema, commands=tuple(commands_of(text, offsets, roots, schema)))
        kind = _kind(top)
        if kind is not None:
            if len(roots) > 1:
                second = offsets.span(roots[1].first, roots[1].first).line
                raise Unparsable(f"line {second}: more than one YAML document, and yaml.safe_load takes one")
            return Module(text.path, (_site(offsets, roots[index], kind),))
    return Module(text.path, ())


def _kind(top: Mapping[str, Node]) -> SiteKind | None:
    if "compute_environment" in top or ("distributed_type" in top and top.keys() & _ACCELERATE_TOO):
        return "accelerate"
    if is_kind(top, "zero_optimization", "mapping"):
        return "deepspeed"
    if not top.keys() & TELLING:
        return None
    known = top.keys() & _fields()
    strong = known - COMMON - {"model_name_or_path"}
    if len(strong) >= 2 or (strong and len(known) >= 4) or ("model_name_or_path" in top and len(known) >= 2):
        return "recipe"
    return None


def _site(offsets: Offsets, root: Node, kind: SiteKind) -> Site:
    table = _Values(offsets).table(root)
    key = root.pairs[0][0]
    assert table.span is not None
    arguments = table.entries
    return Site(kind, kind, kind, table.span, offsets.of(key), arguments, open=table.open)


class _Values:
    """Turns nodes into values; counts what aliases unfold to."""

    def __init__(self, offsets: Offsets) -> None:
        self.offsets = offsets
        self.left = MAX_NODES
        self.inside: list[Node] = []

    def table(self, mapping: Node) -> Table:
        found: dict[str, Argument] = {}
        open_: str | None = None
        container = self.offsets.of(mapping).start
        disputed: set[str] = set()
        for holder, key, value in list(entries(mapping, disputed)):
            name = _name(key.real)
            if name is None:
                open_ = "a key is no text"
                continue
            start = container if holder is mapping else self.offsets.of(holder).start
            unclear = holder is not mapping and name in disputed
            read = Unknown("PyYAML's releases disagree on which merge wins") if unclear else self.value(value)
            found[name] = Argument(name, read, self.place(key, value, start))
        return Table(found, self.offsets.of(mapping), open_)

    def place(self, key: Node, value: Node, container: int) -> Place:
        binding = None
        if value.target is not None and value.target.kind == "scalar":
            binding = self.offsets.of(value.target)
        whole = self.offsets.span(key.start, max(key.end, value.end))
        return Place("key", whole, self.offsets.of(value), container, binding)

    def value(self, node: Node) -> Value:
        real = node.real
        self.left -= 1
        if self.left < 0:
            raise Unparsable(f"line {self._line(node)}: more than {MAX_NODES} values once aliases are followed")
        if any(real is holder for holder in self.inside):
            raise Unparsable(f"line {self._line(node)}: the anchor {node.anchor!r} holds itself")
        self.inside.append(real)
        try:
            return self.read(real, Written(self.offsets.of(node)))
        except Unreadable as error:
            return Unknown(str(error))
        finally:
            self.inside.pop()

    def read(self, node: Node, origin: Written) -> Value:
        if node.kind == "scalar":
            value = plain(node)
            if isinstance(value, str) and _PLACEHOLDER.search(value) and node.style not in ("|", ">"):
                return Unknown(f"{value[:40]} is filled in by whoever loads the file")
            return Known(value, origin)
        if node.tag not in (f"{TAG}map", f"{TAG}seq"):
            return Unknown(f"the tag {node.tag.replace(TAG, '!!')} is none of the plain ones")
        if node.kind == "mapping":
            return Known(self.table(node), origin)
        items = [self.value(item) for item in node.items]
        unknown = next((item for item in items if not isinstance(item, Known)), None)
        if unknown is not None:
            return Unknown(f"one of its items {unknown.why}" if isinstance(unknown, Unknown) else "one of its items")
        return Known(tuple(item.value for item in items if isinstance(item, Known)), origin)

    def _line(self, node: Node) -> int:
        return self.offsets.of(node).line


_PLACEHOLDER = re.compile(r"\$\{[^}]*\}|^\{\{[^{}]*\}\}$")


def _name(key: Node) -> str | None:
    """A key as text, if safe_load makes it one."""
    return key.value if key.kind == "scalar" and key.tag == f"{TAG}str" else None


def _read_json(text: Text) -> Module:
    if b'"zero_optimization"' not in text.utf8:
        return Module(text.path, ())
    root = json_document(text)
    if root.kind != "mapping" or _kind(top_level(root)) != "deepspeed":
        return Module(text.path, ())
    return Module(text.path, (_site(Offsets(text), root, "deepspeed"),))
