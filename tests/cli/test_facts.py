"""`trl-lint facts --probe` as a person meets it, on machines of every kind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from trl_lint.cli import main

from ..probe.fake_nvml import GIB, Card, pynvml
from ..probe.test_hardware import TORCH, install

SCRIPT = "# trl-lint: facts trl==1.9.2 num_processes={processes}\nfrom trl import SFTConfig\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def environment(folder: Path, version: str, cuda: str | None) -> str:
    packages = folder / "env" / "lib" / "python3.12" / "site-packages"
    install(packages, "torch", **{"version.py": TORCH.format(version=version, cuda=cuda)})
    return str(folder / "env")


def test_without_a_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    env = environment(folder, "2.13.0+cpu", None)
    assert main(["facts", "--probe", "--python", env]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "No file here mentions TRL.",
        "this machine:",
        "  no GPU: NVML cannot be asked without the pynvml module: pip install 'trl-lint[probe]'",
        f"  torch 2.13.0+cpu, without CUDA ({env}/lib/python3.12/site-packages)",
    ]
    assert main(["facts", "--probe", "--python", env, "--output-format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["version"], said["groups"], said["machine"]["gpus"]) == (1, [], [])
    assert said["machine"]["reason"].startswith("NVML cannot be asked")


def test_what_is_wrong_is_said_and_exits_zero(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card = Card(used=9 * GIB, running=[(4711, 9 * GIB)])
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(card, driver="535.183.01", cuda=12020, names={4711: "python"}))
    (folder / "train.py").write_text(SCRIPT.format(processes=1))
    env = environment(folder, "2.11.0+cu130", "13.0")
    assert main(["facts", "--probe", "--python", env, "train.py"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "train.py:"
    assert lines[lines.index("this machine:") + 1] == "  driver 535.183.01, runs CUDA up to 12.2"
    assert [line.split(":")[0] for line in lines[-2:]] == ["warning[shared-gpu]", "error[old-driver]"]
    assert main(["facts", "--probe", "--python", env, "--output-format", "json", "train.py"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["groups"][0]["files"] == ["train.py"]
    assert said["groups"][0]["packages"]["trl"]["version"] == "1.9.2"
    machine = said["machine"]
    assert [(f["rule"], f["severity"]) for f in machine["findings"]] == [
        ("shared-gpu", "warning"),
        ("old-driver", "error"),
    ]
    assert (machine["cuda"], machine["seen"], machine["packages"][0]["cuda"]) == ("12.2", ["GPU 0"], "13.0")
    assert machine["gpus"][0]["processes"] == [{"pid": 4711, "name": "python", "memory": 9 * GIB, "compute": True}]


@pytest.mark.parametrize(("processes", "findings"), [(1, 0), (2, 1)])
def test_a_run_of_one_process_takes_the_first_gpu(
    folder: Path, processes: int, findings: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    second = Card(uuid="GPU-2", used=9 * GIB, running=[(4711, 9 * GIB)])
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(Card(), second))
    (folder / "train.py").write_text(SCRIPT.format(processes=processes))
    env = environment(folder, "2.11.0+cu130", "13.0")
    assert main(["facts", "--probe", "--python", env, "train.py"]) == 0
    assert capsys.readouterr().out.count("[shared-gpu]") == findings


def test_the_active_environment_is_read_and_ours_when_there_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(Card()))
    monkeypatch.setenv("VIRTUAL_ENV", environment(folder, "2.11.0+cu130", "13.0"))
    main(["facts", "--probe"])
    assert "  torch 2.11.0+cu130, CUDA 13.0 (" in capsys.readouterr().out
    monkeypatch.delenv("VIRTUAL_ENV")
    install(folder / "mine", "torch", **{"version.py": TORCH.format(version="2.10.0", cuda="12.8")})
    monkeypatch.setattr(sys, "path", ["", str(folder / "mine")])
    main(["facts", "--probe"])
    assert f"  torch 2.10.0, CUDA 12.8 ({folder / 'mine'})" in capsys.readouterr().out


def test_no_such_environment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", "--probe", "--python", "gone/bin/python"]) == 2
    assert capsys.readouterr().err == (
        "trl-lint: --python: gone/bin/python is neither an interpreter nor the folder of an environment\n"
    )


def test_without_probe_nothing_is_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(Card()))
    assert main(["facts"]) == 0
    assert capsys.readouterr().out == "No file here mentions TRL.\n"
    assert main(["facts", "--output-format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["machine"] is None
