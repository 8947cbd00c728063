"""What the tables say, read back from released wheels by hand: releases, fields, keywords, requirements, GPUs."""

from __future__ import annotations

import pytest

from trl_lint import knowledge


@pytest.mark.parametrize(
    ("release", "config", "field", "default"),
    [
        ("0.29.1", "GRPOConfig", "vllm_mode", "server"),
        ("1.0.0", "GRPOConfig", "vllm_mode", "colocate"),
        ("0.18.2", "GRPOConfig", "beta", 0.04),
        ("0.19.0", "GRPOConfig", "beta", 0.0),
        ("0.21.0", "GRPOConfig", "loss_type", "bnpo"),
        ("0.22.0", "GRPOConfig", "loss_type", "dapo"),
        ("1.9.2", "GRPOConfig", "max_completion_length", 256),
        ("1.10.0", "GRPOConfig", "max_completion_length", 512),
        ("0.18.2", "SFTConfig", "bf16", None),
        ("1.16.0", "SFTConfig", "bf16", None),
        ("0.14.0", "SFTConfig", "max_seq_length", None),
        ("0.15.0", "SFTConfig", "max_seq_length", 1024),
        ("1.16.0", "SFTConfig", "max_length", 1024),
        ("1.16.0", "DPOConfig", "loss_type", ("sigmoid",)),
        ("1.16.0", "SFTConfig", "gradient_checkpointing", True),
        ("1.16.0", "GMPOConfig", "num_generations", 8),
    ],
)
def test_default(release: str, config: str, field: str, default: object) -> None:
    found = knowledge.trl(release).config(config)
    assert found is not None
    if (release, config, field) == ("0.18.2", "SFTConfig", "bf16"):
        assert field not in found.fields, "before 0.19.0 it is only TrainingArguments' own"
        return
    assert found.fields[field].default == default


@pytest.mark.parametrize(
    ("owner", "name", "ranges"),
    [
        ("SFTConfig", "max_seq_length", (("0.9.6", "0.19.1"),)),
        ("SFTConfig", "max_length", (("0.16.0", "1.16.0"),)),
        ("GRPOConfig", "vllm_guided_decoding_regex", (("0.16.0", "0.27.2"),)),
        ("GRPOConfig", "use_liger_loss", (("0.17.0", "0.27.2"),)),
        ("RLOOConfig", "rloo_k", (("0.9.6", "0.24.0"),)),
        ("GMPOConfig", "vllm_mode", (("1.7.0", "1.16.0"),)),
        ("SFTTrainer", "packing", (("0.9.6", "0.12.2"),)),
        ("SFTTrainer", "quantization_config", (("1.8.0", "1.16.0"),)),
        ("GRPOTrainer", "environment_factory", (("0.29.0", "1.16.0"),)),
        ("trl", "DataCollatorForCompletionOnlyLM", (("0.9.6", "0.19.1"),)),
        ("trl", "KTOConfig", (("0.9.6", "1.16.0"),)),
        ("trl.experimental.kto", "KTOConfig", (("0.26.0", "1.16.0"),)),
        ("trl", "GRPOConfig", (("0.14.0", "1.16.0"),)),
        ("GRPOConfig", "no_such_field", ()),
        ("NoSuchConfig", "beta", ()),
    ],
)
def test_history(owner: str, name: str, ranges: tuple[tuple[str, str], ...]) -> None:
    assert knowledge.history(owner, name) == ranges


def test_classes_come_and_go() -> None:
    assert knowledge.trl("1.13.0").config("NashMDConfig") is not None
    assert knowledge.trl("1.14.0").config("NashMDConfig") is None
    assert knowledge.trl("1.16.0").config("TrainingArguments") is None
    moved = knowledge.trl("0.27.0").config("CPOConfig")
    assert moved is not None
    assert moved.module == "trl.experimental.cpo.cpo_config"
    assert "cpo_alpha" in moved.fields


@pytest.mark.parametrize(
    ("name", "training_arguments"),
    [("GRPOConfig", True), ("GMPOConfig", True), ("ModelConfig", False), ("ScriptArguments", False)],
)
def test_chain_reaches_training_arguments(name: str, training_arguments: bool) -> None:
    found = knowledge.trl("1.16.0").config(name)
    assert found is not None
    assert found.training_arguments is training_arguments


def test_trainer_keywords() -> None:
    old, new = knowledge.trl("0.12.2").trainer("SFTTrainer"), knowledge.trl("1.16.0").trainer("SFTTrainer")
    assert old is not None
    assert new is not None
    assert old.renames == {"tokenizer": "processing_class"}
    assert "max_seq_length" in old.keywords
    assert "max_seq_length" in old.deprecated
    assert new.keywords[:3] == ("model", "args", "data_collator")
    assert (new.required, new.variadic, new.config, dict(new.renames)) == (("model",), False, "SFTConfig", {})
    assert "model_init" not in new.keywords


def test_trainer_inherits_what_it_passes_on() -> None:
    found = knowledge.trl("1.16.0").trainer("GMPOTrainer")
    assert found is not None
    assert "environment_factory" in found.keywords
    assert not found.variadic
    assert found.config == "GMPOConfig"


@pytest.mark.parametrize(
    ("release", "vllm", "liger", "python"),
    [
        ("0.9.6", None, None, ">=3.7"),
        ("0.23.1", None, "0.5.8", ">=3.9"),
        ("0.24.0", ("0.10.2", "0.10.2"), "0.5.8", ">=3.9"),
        ("0.27.2", ("0.10.2", "0.12.0"), "0.6.4", ">=3.10"),
        ("1.13.0", ("0.19.1", "0.28.0"), "0.8.2", ">=3.10"),
        ("1.16.0", ("0.22.0", "0.31.0"), "0.8.2", ">=3.11"),
    ],
)
def test_bounds(release: str, vllm: tuple[str, str] | None, liger: str | None, python: str) -> None:
    found = knowledge.trl(release)
    assert (found.vllm_range, found.liger_minimum, found.python) == (vllm, liger, python)


def test_requirements() -> None:
    assert knowledge.trl("1.16.0").requires["transformers"] == ">=4.56.2"
    assert knowledge.trl("1.16.0").requires["liger-kernel"] == ">=0.8.2"
    assert knowledge.trl("0.9.6").requires["deepspeed"] == ">=0.9.5"
    assert knowledge.trl("0.24.0").requires["transformers"] == ">=4.56.1"
    assert knowledge.vllm("0.33.0").requires["torch"] == "==2.14.0"
    assert knowledge.vllm("0.33.0").requires["transformers"] == "<5.21.0,>=5.16.1"
    assert knowledge.vllm("0.6.0").requires["torch"] == "==2.4.0"
    assert knowledge.vllm("0.8.5").python == "<3.13,>=3.9"


def test_attention_for_padding_free() -> None:
    assert knowledge.trl("0.16.0").attention_varlen == ("flash_attention_2",)
    assert "flash_attention_3" in (knowledge.trl("1.15.0").attention_varlen or ())
    assert knowledge.trl("1.16.0").attention_varlen is None


def test_commands() -> None:
    assert knowledge.trl("0.9.6").commands == ("chat", "dpo", "sft")
    assert "distillation" in knowledge.trl("1.16.0").commands


def test_imports() -> None:
    release = knowledge.trl("1.16.0")
    assert release.modules_of("GRPOConfig")[:3] == ("trl", "trl.trainer", "trl.trainer.grpo_config")
    assert release.modules_of("CPOConfig")[0] == "trl.experimental.cpo"
    assert release.modules_of("NoSuchName") == ()
    assert release.exports("trl.experimental.cpo") is not None
    assert release.exports("trl.experimental.nash_md") is None
    assert "sys" not in (release.exports("trl") or ())
    assert "trainer" in (release.exports("trl") or ())


@pytest.mark.parametrize(
    ("release", "window"),
    [
        ("4.51.3", None),
        ("4.56.2", (None, None)),
        ("5.0.0", ("0.9.0", None)),
        ("5.17.0", ("0.16.0", "0.17.0")),
        ("5.24.0", ("0.18.2", "0.19.0")),
    ],
)
def test_kernels_window(release: str, window: tuple[str | None, str | None] | None) -> None:
    assert knowledge.transformers(release).kernels_window == window


def test_attention_names() -> None:
    assert knowledge.transformers("4.46.1").attention == {"eager", "sdpa", "flash_attention_2"}
    assert "flash_attention_4" in knowledge.transformers("5.4.0").attention
    assert "flash_attention_4" not in knowledge.transformers("5.3.0").attention


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("evaluation_strategy", "4.50.3"),
        ("overwrite_output_dir", "4.57.6"),
        ("group_by_length", "5.1.0"),
        ("warmup_ratio", "5.14.1"),
        ("logging_dir", "5.14.1"),
        ("eval_strategy", "5.24.0"),
    ],
)
def test_training_arguments_end(name: str, last: str) -> None:
    assert knowledge.training_arguments_history(name)[-1][1] == last


def test_training_arguments_defaults() -> None:
    fields = knowledge.training_arguments("4.57.6")
    assert fields["per_device_train_batch_size"].default == 8
    assert fields["optim"].default is knowledge.UNREAD
    assert "_n_gpu" not in fields
    assert "random" in (knowledge.training_arguments("5.24.0")["train_sampling_strategy"].choices or ())


def test_liger() -> None:
    release = knowledge.liger("0.6.4")
    assert release.keys("llama") == ("rope", "cross_entropy", "fused_linear_cross_entropy", "rms_norm", "swiglu")
    assert release.keys("gpt2") is None
    assert "geglu" in release.all_keys
    assert sorted(release.grpo_losses or ()) == ["bnpo", "dapo", "dr_grpo", "grpo"]
    assert sorted(release.dpo_losses or ()) == ["apo_down", "apo_zero", "nca_pair", "sigmoid", "sppo_hard"]
    assert "ipo" not in (knowledge.liger("0.8.5").dpo_losses or ())
    assert "qwen3" not in knowledge.liger("0.5.8").model_types
    assert (knowledge.liger("0.6.4").defaults("llama") or {})["cross_entropy"] is False


@pytest.mark.parametrize(
    ("version", "judged_by"),
    [
        ("1.16.0", "1.16.0"),
        ("1.16", "1.16.0"),
        ("v1.16.0", "1.16.0"),
        ("1.16.0+local", "1.16.0"),
        ("1.16.0.post1", "1.16.0"),
        ("1.16.0.dev0", "1.15.0"),
        ("1.5.7", "1.5.1"),
        ("1.17.0.dev0", None),
        ("0.9.4", None),
        ("main", None),
    ],
)
def test_known(version: str, judged_by: str | None) -> None:
    assert knowledge.known("trl", version) == judged_by


def test_releases() -> None:
    assert knowledge.releases("trl")[0] == "0.9.6"
    assert knowledge.newest("trl") == knowledge.releases("trl")[-1]
    assert knowledge.dated("trl", "1.16.0") == "2026-10-15"
    assert knowledge.dated("trl", "9.9.9") is None
    assert knowledge.dated("vllm", "0.33.0") is None
    with pytest.raises(knowledge.UnknownRelease, match=r"trl 9\.9\.9 is not recorded"):
        knowledge.trl("9.9.9")
    with pytest.raises(knowledge.UnknownRelease, match="numpy"):
        knowledge.releases("numpy")
