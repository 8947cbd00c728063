"""The top of a YAML document in; whose file it is, where it is none of TRL's, out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trl_lint.sources.yaml_tree import Node, inside, is_kind

# Whose file it is ----------------------------------------------------------------------------------------------------


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCHEMA_KEYS = words(
    """base_model finetuning_type cutoff_len rlhf_type tuner_type train_type split_dataset_ratio actor_rollout_ref
    policy data_stages training checkpoints apiVersion services"""
)


def schema_of(top: Mapping[str, Node]) -> str | None:
    """The program that a file is for, if that is none that hands it to TRL's own parser."""
    for name, holds in _SCHEMAS:
        if holds(top):
            return name
    return None


def _has(*names: str) -> Callable[[Mapping[str, Node]], bool]:
    return lambda top: any(name in top for name in names)


def _component(top: Mapping[str, Node], name: str) -> bool:
    return any(name in (k.value for k, _v in node.pairs) for node in top.values() if node.kind == "mapping")


def _axolotl(top: Mapping[str, Node]) -> bool:
    marks = {"micro_batch_size", "sequence_len", "adapter", "val_set_size", "sample_packing", "datasets", "rl"}
    return "base_model" in top and bool(top.keys() & marks)


def _llama_factory(top: Mapping[str, Node]) -> bool:
    stage = "stage" in top and top["stage"].value in ("pt", "sft", "rm", "ppo", "dpo", "kto")
    return (
        "finetuning_type" in top
        or ("cutoff_len" in top and bool(top.keys() & {"template", "dataset", "train_dataset", "model_class"}))
        or ("template" in top and bool(top.keys() & {"infer_backend", "export_dir", "adapter_name_or_path"}))
        or (stage and bool(top.keys() & {"template", "dataset", "do_train"}))
        or bool(top.keys() & {"dist_config", "kernel_config"} and "model_class" in top)
    )


def _ms_swift(top: Mapping[str, Node]) -> bool:
    marks = {"rlhf_type", "tuner_type", "train_type", "split_dataset_ratio", "sampler_type", "model_author"}
    return bool(top.keys() & marks) and bool(top.keys() & {"model", "dataset", "model_id_or_path", "model_type"})


def _hydra(top: Mapping[str, Node]) -> bool:
    if "hydra" in top or _component(top, "_target_"):
        return True
    defaults = top.get("defaults")
    return defaults is not None and defaults.kind == "sequence" and "_self_" in [i.real.value for i in defaults.items]


def _github(top: Mapping[str, Node]) -> bool:
    runs = inside(top["runs"]) if "runs" in top else {}
    jobs = inside(top["jobs"]) if "jobs" in top else {}
    return "using" in runs or any(inside(job).keys() & {"runs-on", "steps", "uses"} for job in jobs.values())


def _gitlab(top: Mapping[str, Node]) -> bool:
    return any("script" in inside(job) for job in top.values()) or (
        is_kind(top, "steps", "sequence") and any("script" in inside(i.real) for i in top["steps"].items)
    )


def _dstack(top: Mapping[str, Node]) -> bool:
    return "type" in top and top["type"].value in ("task", "service", "dev-environment", "fleet", "gateway", "volume")


_SCHEMAS: tuple[tuple[str, Callable[[Mapping[str, Node]], bool]], ...] = (
    ("kubernetes", lambda top: "apiVersion" in top and "kind" in top),
    ("github", _github),
    ("compose", lambda top: is_kind(top, "services", "mapping")),
    ("dstack", _dstack),
    ("skypilot", lambda top: is_kind(top, "run", "scalar") and bool(top.keys() & {"resources", "setup", "num_nodes"})),
    ("gitlab", _gitlab),
    ("wandb", _has("_wandb", "wandb_version")),
    ("axolotl", _axolotl),
    ("llama-factory", _llama_factory),
    ("ms-swift", _ms_swift),
    ("verl", _has("actor_rollout_ref")),
    ("nemo-rl", lambda top: is_kind(top, "policy", "mapping") and bool(top.keys() & {"grpo", "sft", "dpo", "cluster"})),
    ("nanotron", lambda top: "checkpoints" in top and "parallelism" in top),
    ("torchtune", lambda top: _component(top, "_component_")),
    ("hydra", _hydra),
    ("oumi", lambda top: is_kind(top, "model", "mapping") and bool(top.keys() & {"data", "training", "generation"})),
)
