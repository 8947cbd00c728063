"""Whether a run compiled kernels is seen in the folders that they are kept in, wherever those are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from trl_lint.probe.kernels import caches, watch
from trl_lint.probe.trials import TrialSpec, run_trial


@pytest.mark.parametrize(
    ("environment", "kept"),
    [
        ({}, ".nv/ComputeCache/8/4/e11ac2"),
        ({}, ".triton/cache/TTHOA/rope.cubin"),
        ({}, "torchinductor_me/fxgraph/ab/f1234/code"),
        ({}, "torchinductor_me/triton/0/KLMN/x.cubin"),
        ({}, ".cache/vllm/torch_compile_cache/a1b2c3/rank_0_0/backbone"),
        ({}, ".cache/vllm/torch_compile_cache/torch_aot_compile/a1b2c3/rank_0_0/model"),
        ({"XDG_CACHE_HOME": "elsewhere"}, "elsewhere/vllm/torch_compile_cache/a1b2c3/rank_0_0/backbone"),
        ({"VLLM_CACHE_ROOT": "elsewhere"}, "elsewhere/torch_compile_cache/a1b2c3/rank_0_0/backbone"),
        ({"CUDA_CACHE_PATH": "elsewhere"}, "elsewhere/8/4/e11ac2"),
        ({"TRITON_HOME": "elsewhere"}, "elsewhere/.triton/cache/TTHOA/rope.cubin"),
        ({"TRITON_CACHE_DIR": "elsewhere"}, "elsewhere/TTHOA/rope.cubin"),
        ({"TORCHINDUCTOR_CACHE_DIR": "elsewhere"}, "elsewhere/ab/cab.py"),
    ],
)
def test_what_comes_into_a_cache_is_seen(
    environment: Mapping[str, str], kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    known = {
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        **{name: str(tmp_path / folder) for name, folder in environment.items()},
    }
    assert len(caches(known)) == 4
    first = watch(known)
    assert not first()
    path = tmp_path / kept
    path.parent.mkdir(parents=True)
    path.write_bytes(b"kernel")
    assert first()
    second = watch(known)
    path.read_bytes()
    path.write_bytes(b"used again")  # the driver writes down what was used when
    assert not second()
    another = path.parent.with_name("another") / path.name
    another.parent.mkdir()
    another.write_bytes(b"kernel")
    assert second()


def test_a_trial_says_whether_it_compiled(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    given = {"CUDA_CACHE_PATH": str(cache), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    quiet = run_trial(TrialSpec("A", ("true",), tmp_path, tmp_path / "1", given))
    busy = run_trial(TrialSpec("A", ("touch", str(cache / "kernel")), tmp_path, tmp_path / "2", given))
    assert (quiet.compiled, busy.compiled) == (False, True)
