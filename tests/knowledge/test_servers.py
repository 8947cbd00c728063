"""How trainer and vLLM server meet: read back from TRL's and vLLM's own source by hand, and checked against the tables."""

from __future__ import annotations

import tomllib
from itertools import pairwise

import pytest

from trl_lint import knowledge
from trl_lint.knowledge import curated

RELEASES = knowledge.releases("trl")
NCCL = ("--weight-transfer-config", '{"backend": "nccl"}')
IMPOSED = (*NCCL, "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1")


@pytest.mark.parametrize(
    ("release", "command", "deprecated", "endpoints", "mode", "same_gpu", "device"),
    [
        ("0.9.6", False, False, "none", "none", None, None),
        ("0.14.0", False, False, "none", "engine", None, None),
        ("0.15.2", False, False, "none", "engine", None, None),
        ("0.16.0", True, False, "trl", "server", "nccl", "first"),
        ("0.19.1", True, False, "trl", "server", "nccl", "first"),
        ("0.20.0", True, False, "trl", "server", "trl", "own"),
        ("0.29.1", True, False, "trl", "server", "trl", "own"),
        ("1.0.0", True, False, "trl", "colocate", "trl", "own"),
        ("1.10.0", True, False, "trl", "colocate", "trl", "own"),
        ("1.11.0", True, True, "vllm", "colocate", "nccl", "own"),
        ("1.16.0", True, True, "vllm", "colocate", "nccl", "own"),
        ("1.17.0.dev0", True, True, "vllm", "colocate", "nccl", "own"),
    ],
)
def test_serving(
    release: str,
    command: bool,
    deprecated: bool,
    endpoints: str,
    mode: str,
    same_gpu: str | None,
    device: str | None,
) -> None:
    found = knowledge.serving(release)
    assert (found.command, found.deprecated, found.wrapper) == (command, deprecated, deprecated)
    assert (found.endpoints, found.mode, found.same_gpu, found.device) == (endpoints, mode, same_gpu, device)


@pytest.mark.parametrize("version", RELEASES)
def test_rows_agree_with_the_tables(version: str) -> None:
    found, release = knowledge.serving(version), knowledge.trl(version)
    assert found.command is ("vllm-serve" in release.commands) is bool(release.serve)
    config = release.config("GRPOConfig")
    if config is not None and "vllm_mode" in config.fields:
        assert config.fields["vllm_mode"].default == found.mode
    else:
        assert found.mode in ("none", "engine", "server")
    if found.wrapper:
        assert {option.field for option in found.options} | {"model"} == set(release.serve)
    else:
        assert (found.options, found.arguments) == ((), ())


@pytest.mark.parametrize("version", RELEASES)
def test_exactly_one_row_is_for_a_release(version: str) -> None:
    from packaging.specifiers import SpecifierSet

    assert sum(SpecifierSet(row["trl"]).contains(version) for row in curated.rows("serving")["server"]) == 1


def test_every_row_has_a_source() -> None:
    for name in ("server", "addition", "limit"):
        assert all(row["source"] for row in tomllib.loads((curated.ROWS / "serving.toml").read_text())[name])


@pytest.mark.parametrize(
    ("release", "vllm", "environment", "arguments"),
    [
        ("1.10.0", "0.26.0", {}, ()),
        ("1.11.0", "0.25.1", {"VLLM_SERVER_DEV_MODE": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}, IMPOSED),
        ("1.13.0", "0.30.0", {"VLLM_SERVER_DEV_MODE": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}, IMPOSED),
        (
            "1.14.0",
            "0.30.0",
            {"VLLM_SERVER_DEV_MODE": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"},
            ("--enable-scale-out", *IMPOSED),
        ),
        ("1.15.0", "0.29.0", {"VLLM_SERVER_DEV_MODE": "1"}, IMPOSED),
        ("1.16.0", None, {"VLLM_SERVER_DEV_MODE": "1"}, IMPOSED),
        ("1.16.0", "0.31.0", {"VLLM_SERVER_DEV_MODE": "1"}, ("--enable-scale-out", *IMPOSED)),
    ],
)
def test_what_the_wrapper_runs(
    release: str, vllm: str | None, environment: dict[str, str], arguments: tuple[str, ...]
) -> None:
    found = knowledge.serving(release, vllm)
    assert (found.environment, found.arguments) == (environment, arguments)


MODEL = ("--model-impl", "vllm")
MEMORY = ("--gpu-memory-utilization", "0.9")


@pytest.mark.parametrize(
    ("vllm", "given", "words"),
    [
        ("0.22.0", {}, (*MEMORY, *MODEL)),
        (None, {}, (*MEMORY, *MODEL)),
        ("0.19.1", {}, MODEL),
        ("0.22.0", {"gpu_memory_utilization": 0.5}, ("--gpu-memory-utilization", "0.5", *MODEL)),
        ("0.19.1", {"port": 8001, "host": "127.0.0.1"}, ("--host", "127.0.0.1", "--port", "8001", *MODEL)),
        ("0.19.1", {"vllm_model_impl": "transformers"}, ("--model-impl", "transformers")),
        ("0.19.1", {"enforce_eager": True, "trust_remote_code": True}, (*MODEL, "--enforce-eager", "--trust-remote-code")),
        ("0.19.1", {"enforce_eager": False, "trust_remote_code": False}, MODEL),
        ("0.19.1", {"enable_prefix_caching": True}, (*MODEL, "--enable-prefix-caching")),
        ("0.19.1", {"enable_prefix_caching": False}, (*MODEL, "--no-enable-prefix-caching")),
        ("0.19.1", {"enable_prefix_caching": None, "revision": None}, MODEL),
        ("0.19.1", {"log_level": "debug", "max_model_len": 4096}, (*MODEL, "--uvicorn-log-level", "debug", "--max-model-len", "4096")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("release", ["1.15.0", "1.16.0", "1.17.0.dev0"])
def test_replacement(release: str, vllm: str | None, given: dict[str, object], words: tuple[str, ...]) -> None:
    found = knowledge.serving(release, vllm).replacement({"model": "Qwen/Qwen3-4B", **given})
    assert found is not None
    assert found[:3] == ("vllm", "serve", "Qwen/Qwen3-4B")
    assert sorted(found[3:]) == sorted((*words, *IMPOSED))


@pytest.mark.parametrize(
    ("release", "given"),
    [
        ("1.10.0", {"model": "Qwen/Qwen3-4B"}),
        ("0.13.0", {"model": "Qwen/Qwen3-4B"}),
        ("1.16.0", {"port": 8001}),
        ("1.16.0", {"model": "Qwen/Qwen3-4B", "no_such_option": 1}),
    ],
)
def test_no_replacement(release: str, given: dict[str, object]) -> None:
    assert knowledge.serving(release).replacement(given) is None


def edges(name: str, trl: str, *, first: str, last: str) -> list[tuple[str, str, str | None, bool | None]]:
    """A limit holds from vLLM `first` to `last`, and the releases beside them do not."""
    listed = knowledge.releases("vllm")
    before = {after: release for release, after in pairwise(listed)}
    found: list[tuple[str, str, str | None, bool | None]] = [(name, trl, first, True), (name, trl, last, True)]
    found += [(name, trl, before[first], False)] if first in before else []
    found += [(name, trl, listed[listed.index(last) + 1], False)] if last != listed[-1] else []
    return [*found, (name, trl, None, None)]


OLDEST, NEWEST = knowledge.releases("vllm")[0], knowledge.newest("vllm")


@pytest.mark.parametrize(
    ("name", "trl", "vllm", "holds"),
    [
        *edges("dense-data-parallel", "1.10.0", first="0.14.0", last=NEWEST),
        *edges("dense-data-parallel", "0.17.0", first="0.14.0", last=NEWEST),
        ("dense-data-parallel", "1.11.0", "0.27.1", False),
        ("dense-data-parallel", "0.16.1", "0.14.0", False),
        ("data-parallel-through-cli", "0.16.1", None, False),
        ("data-parallel-through-cli", "0.17.0", None, True),
        ("data-parallel-through-cli", "0.25.0", None, True),
        ("data-parallel-through-cli", "0.25.1", None, False),
        *edges("dtype-not-serializable", "0.19.0", first="0.9.0", last=NEWEST),
        ("dtype-not-serializable", "0.19.1", "0.9.2", False),
        *edges("enforce-eager-none", "0.18.2", first="0.9.1", last=NEWEST),
        ("enforce-eager-none", "0.19.0", "0.9.2", False),
        *edges("no-worker-extension", "0.17.0", first=OLDEST, last="0.7.3"),
        ("no-worker-extension", "0.16.1", "0.7.3", False),
        *edges("weight-engine-changed", "1.12.0", first="0.28.0", last=NEWEST),
        ("weight-engine-changed", "1.13.0", "0.28.0", False),
        *edges("reset-without-answer", "1.14.0", first=OLDEST, last="0.25.1"),
        ("reset-without-answer", "1.14.1", "0.25.1", False),
        *edges("no-scale-out", "1.16.0", first="0.30.0", last=NEWEST),
        *edges("sleep-with-expandable-segments", "1.16.0", first="0.8.0", last="0.20.0"),
        ("sleep-with-expandable-segments", "0.22.2", "0.10.2", False),
        *edges("bfloat16-before-ampere", "0.17.0", first=OLDEST, last="0.8.5.post1"),
        ("bfloat16-asked-before-ampere", "0.17.0", None, True),
        ("no-such-limit", "1.16.0", "0.31.0", False),
    ],
)
def test_limit(name: str, trl: str, vllm: str | None, holds: bool | None) -> None:
    assert knowledge.serving(trl, vllm).limit(name) is holds


def test_a_version_that_is_none() -> None:
    assert knowledge.serving("1.16.0", "nightly").limit("no-scale-out") is None
