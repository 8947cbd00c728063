"""The hand-kept rows: each names things that some release had, and leads to things that a later one has."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest

from trl_lint import knowledge
from trl_lint.knowledge import curated


def rows() -> Iterator[knowledge.Replacement]:
    yield from curated._renames().values()


TRAINING_ARGUMENTS = {
    name for release in knowledge.releases("transformers") for name in knowledge.training_arguments(release)
}


def accepted(row: knowledge.Replacement, owner: str, name: str) -> bool:
    match row.kind:
        case "training_arguments":
            return name in TRAINING_ARGUMENTS
        case "config" if name in TRAINING_ARGUMENTS:
            return True
        case "trainer" if owner == "*":
            return bool(knowledge.history("SFTTrainer", name))
    return bool(knowledge.history(owner, name))


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: f"{row.owner}.{row.old}")
def test_row_names_what_releases_had(row: knowledge.Replacement) -> None:
    assert accepted(row, row.owner, row.old)
    assert row.new or row.how != "rename", "a rename leads somewhere"
    assert row.note or row.how not in ("by-hand", "drop"), "a person is told what to do, or what else changes"
    assert (row.into is not None) is (row.how == "move")
    if row.into is not None:
        target = row.new or row.old
        assert target in TRAINING_ARGUMENTS or knowledge.history(row.into, target)
    elif row.new is not None:
        assert accepted(row, row.owner, row.new)


def test_every_row_has_a_source() -> None:
    for name in ("renames", "gpus"):
        for table in tomllib.loads((curated.ROWS / f"{name}.toml").read_text()).values():
            assert all(row["source"] for row in table)


@pytest.mark.parametrize(
    ("kind", "owner", "old", "new", "into"),
    [
        ("config", "SFTConfig", "max_seq_length", "max_length", None),
        ("config", "GKDConfig", "max_seq_length", "max_length", None),
        ("config", "GRPOConfig", "vllm_guided_decoding_regex", "vllm_structured_outputs_regex", None),
        ("config", "MiniLLMConfig", "use_liger_loss", "use_liger_kernel", None),
        ("config", "RLOOConfig", "rloo_k", "num_generations", None),
        ("trainer", "KTOTrainer", "tokenizer", "processing_class", None),
        ("trainer", "SFTTrainer", "max_seq_length", "max_length", "SFTConfig"),
        ("trainer", "DPOTrainer", "beta", None, "DPOConfig"),
        ("training_arguments", "GRPOConfig", "evaluation_strategy", "eval_strategy", None),
    ],
)
def test_replacement(kind: str, owner: str, old: str, new: str | None, into: str | None) -> None:
    found = knowledge.replacement(kind, owner, old)
    assert found is not None
    assert (found.new, found.into) == (new, into)


def test_value_map() -> None:
    found = knowledge.replacement("training_arguments", "*", "group_by_length")
    assert found is not None
    assert found.values == {True: "group_by_length", False: "random"}


@pytest.mark.parametrize("name", ["learning_rate", "beta", "no_such_field"])
def test_no_replacement(name: str) -> None:
    assert knowledge.replacement("config", "GRPOConfig", name) is None


@pytest.mark.parametrize(
    ("name", "capability", "memory", "bf16"),
    [
        ("a100", (8, 0), (40, 64, 80), True),
        ("a100:8", (8, 0), (40, 64, 80), True),
        ("A100-80GB", (8, 0), (80,), True),
        ("A100-SXM4-80GB", (8, 0), (80,), True),
        ("NVIDIA A100 80GB PCIe", (8, 0), (80,), True),
        ("a100_3g.20gb", (8, 0), (20,), True),
        ("H100", (9, 0), (64, 80, 96), True),
        ("NVIDIA H100 80GB HBM3", (9, 0), (80,), True),
        ("nvidia_h100_80gb_hbm3", (9, 0), (80,), True),
        ("h200", (9, 0), (140,), True),
        ("T4", (7, 5), (15,), False),
        ("tesla_t4", (7, 5), (15,), False),
        ("T4-16GB", (7, 5), (15,), False),
        ("V100", (7, 0), (16, 32), False),
        ("Tesla V100-SXM2-32GB", (7, 0), (32,), False),
        ("RTX4090", (8, 9), (24,), True),
        ("RTX4090-24GB", (8, 9), (24,), True),
        ("NVIDIA GeForce RTX 3090", (8, 6), (24,), True),
        ("QuadroRTX6000-24GB(sm_75)", (7, 5), (24,), False),
        ("A10G-24GB", (8, 6), (22,), True),
        ("L4", (8, 9), (22,), True),
        ("L20", (8, 9), (48,), True),
        ("Kaggle P100", (6, 0), (12, 16), False),
        ("NVIDIA GH200 480GB", (9, 0), (95, 141), True),
        ("B200", (10, 0), (179,), True),
        ("SomethingNew-48GB(sm_89)", (8, 9), (48,), True),
        ("rtx6000(sm_75)", (7, 5), (), False),
    ],
)
def test_gpu(name: str, capability: tuple[int, int], memory: tuple[int, ...], bf16: bool) -> None:
    found = knowledge.gpu(name)
    assert found is not None
    assert (found.capability, found.memory, found.bf16) == (capability, memory, bf16)


@pytest.mark.parametrize("name", ["none", "none(mps)", "", "cpu", "rtx6000", "MI300X", "a1000000", "gpu"])
def test_no_gpu(name: str) -> None:
    assert knowledge.gpu(name) is None
