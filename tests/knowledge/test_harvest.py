"""Harvesting made-up wheels: the bytes, merging, checking, and what a person reads when something is wrong."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from trl_lint import knowledge
from trl_lint.knowledge import fold, harvest, index

CONFIG = """
from dataclasses import dataclass, field
from typing import Literal
from transformers import TrainingArguments
SIZE = 2 ** 10
@dataclass
class SFTConfig(TrainingArguments):
    max_length: int | None = field(default=SIZE, metadata={"help": "…"})
    {more}
    mode: Literal["a", "b"] = "a"
    made: list = field(default_factory=lambda: ["x"])
    hidden: int = field(init=False, default=3)
    def __post_init__(self):
        super().__post_init__()
        self.mode = "b" if self.mode is None else self.mode
"""
TRAINER = """
from .sft_config import SFTConfig
from transformers import Trainer
from transformers.utils.deprecation import deprecate_kwarg
class SFTTrainer(Trainer):
    @deprecate_kwarg("tokenizer", "0.2", "processing_class")
    def __init__(self, model, args: SFTConfig | None = None, *, processing_class=None):
        pass
class TinyTrainer(SFTTrainer):
    def __init__(self, teacher=None, **kwargs):
        super().__init__(**kwargs)
"""
INIT = """
from typing import TYPE_CHECKING
from ._lazy import _LazyModule
_import_structure = {"trainer.sft_config": ["SFTConfig"]}
_import_structure["trainer.sft_trainer"] = ["SFTTrainer"]
if TYPE_CHECKING:
    from .trainer.sft_config import SFTConfig
else:
    import sys
    sys.modules[__name__] = _LazyModule(__name__, _import_structure)
"""
METADATA = """Metadata-Version: 2.1
Name: trl
Requires-Python: >=3.10
Requires-Dist: transformers>=4.0
Requires-Dist: vllm<2,>=1; extra == "vllm"
"""


def wheel(folder: Path, version: str, more: str = "pass") -> Path:
    """A wheel of a tiny TRL; the same arguments give the same facts."""
    path = folder / f"trl-{version}-py3-none-any.whl"
    files = {
        "trl/__init__.py": INIT,
        "trl/_lazy.py": "class _LazyModule: ...",
        "trl/trainer/__init__.py": "",
        "trl/trainer/sft_config.py": CONFIG.replace("{more}", more),
        "trl/trainer/sft_trainer.py": TRAINER,
        f"trl-{version}.dist-info/METADATA": METADATA,
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), text)
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(package: str, version: str | None, command: str, *arguments: str) -> str:
        raise index.HarvestError(f"{package}: the package index cannot be read (offline)")

    monkeypatch.setattr(index, "_pip", refuse)


def run(*arguments: object) -> int:
    return harvest.main(["harvest", *map(str, arguments)])


def make(tables: Path, wheels: Path) -> None:
    wheel(wheels, "0.1.0")
    wheel(wheels, "0.2.0", "beta: float = 0.1")
    assert run("--tables", tables, "--wheels", wheels, "--add", "trl", "0.1.0", "0.2.0") == 0


def test_same_wheels_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        make(tmp_path / name / "tables", tmp_path / name)
    first, second = (sorted((tmp_path / name / "tables").iterdir()) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    table = tmp_path / "one" / "tables" / "trl.json"
    before = table.read_bytes()
    assert before.isascii()
    assert before.endswith(b"}\n")
    # Read again one by one, in the wrong order, and all at once: still the same.
    for releases in (["0.2.0", "trl==0.1.0"], []):
        assert run("--tables", table.parent, "--wheels", tmp_path / "one", *releases) == 0
        assert table.read_bytes() == before


def test_table(tmp_path: Path) -> None:
    make(tmp_path / "tables", tmp_path)
    table = json.loads((tmp_path / "tables" / "trl.json").read_text())
    assert (table["releases"], table["dates"]) == (["0.1.0", "0.2.0"], ["2026-01-02", "2026-01-02"])
    fields = table["configs"]["SFTConfig"]["fields"]
    assert fields["max_length"] == [["0-1", ["int | None", [1024]]]]
    assert fields["beta"] == [["1", ["float", [0.1]]]]
    assert fields["mode"] == [["0-1", ["Literal['a', 'b']", ["a"], ["a", "b"]]]]
    assert fields["made"] == [["0-1", ["list", [["x"]]]]]
    assert "hidden" not in fields
    assert table["configs"]["SFTConfig"]["steps"] == [["0-1", [["super", None, ""], ["mode", "'b'", "mode is None"]]]]
    assert table["exports"]["trl"]["0-1"] == ["SFTConfig", "SFTTrainer", "_lazy", "trainer"]
    assert table["requires"]["vllm"] == {"vllm": [["0-1", ["<2,>=1"]]]}


def test_a_release_is_put_in_its_place(tmp_path: Path) -> None:
    make(tmp_path / "tables", tmp_path)
    wheel(tmp_path, "0.1.1", "beta: float = 0.1")
    assert run("--tables", tmp_path / "tables", "--wheels", tmp_path, "--", "0.1.1") == 0
    table = json.loads((tmp_path / "tables" / "trl.json").read_text())
    assert table["releases"] == ["0.1.0", "0.1.1", "0.2.0"]
    assert table["configs"]["SFTConfig"]["fields"]["beta"] == [["1-2", ["float", [0.1]]]]


def test_check_says_that_all_is_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "tables", tmp_path)
    assert run("--tables", tmp_path / "tables", "--wheels", tmp_path, "--check") == 0
    out = capsys.readouterr().out
    assert "current: 2 trl releases" in out
    assert "newer releases of trl are not known: trl: the package index cannot be read (offline)" in out


def test_check_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "tables", tmp_path)
    wheel(tmp_path, "0.2.0", "beta: float = 0.2")
    assert run("--tables", tmp_path / "tables", "--wheels", tmp_path, "--check", "--", "0.2.0") == 1
    assert (
        'trl 0.2.0: configs.SFTConfig.fields.beta: recorded ["float", [0.1]] -> ["float", [0.2]]'
        in capsys.readouterr().out
    )


def test_check_notices_an_edited_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "tables", tmp_path)
    table = tmp_path / "tables" / "trl.json"
    table.write_text(table.read_text().replace("1024", "2048"))
    assert run("--tables", table.parent, "--wheels", tmp_path, "--check") == 1
    out = capsys.readouterr().out
    assert "manifest.json does not describe the tables beside it" in out
    assert "configs.SFTConfig.fields.max_length" in out


def test_check_says_what_a_newer_release_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "tables", tmp_path)
    wheel(tmp_path, "0.3.0", "gamma: float = 0.1")
    monkeypatch.setattr(index, "versions", lambda package: ["0.3.0", "0.2.0", "0.1.0"])
    assert run("--tables", tmp_path / "tables", "--wheels", tmp_path, "--check") == 0
    out = capsys.readouterr().out
    assert "trl: newer than 0.2.0: 0.3.0" in out
    assert '0.3.0: configs.SFTConfig.fields.beta: ["float", [0.1]] -> nothing' in out
    assert '0.3.0: configs.SFTConfig.fields.gamma: nothing -> ["float", [0.1]]' in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["9.9.9"], "trl: the package index cannot be read (offline)"),
        (["one"], "'one' is not a version"),
        (["numpy==1.0"], "numpy is not a package that is harvested"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--tables", tmp_path / "tables", *arguments) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_a_wheel_that_is_laid_out_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "liger_kernel-9.0-py3-none-any.whl", "w") as archive:
        archive.writestr("liger_kernel/__init__.py", "")
    assert run("--tables", tmp_path / "tables", "--wheels", tmp_path, "--", "liger-kernel==9.0") == 2
    assert "liger_kernel-9.0-py3-none-any.whl is not laid out as the reader expects" in capsys.readouterr().err


def test_a_folder_reads_like_its_wheel(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel(tmp_path, "0.2.0", "beta: float = 0.1")) as archive:
        archive.extractall(tmp_path / "site")
    release = knowledge.read_trl(tmp_path / "site" / "trl", "0.3.0.dev0")
    config, trainer = release.config("SFTConfig"), release.trainer("SFTTrainer")
    assert config is not None
    assert trainer is not None
    assert (release.version, release.python, release.requires["transformers"]) == ("0.3.0.dev0", ">=3.10", ">=4.0")
    assert (config.fields["beta"].default, config.training_arguments) == (0.1, True)
    assert trainer.keywords == ("model", "args", "processing_class")
    assert dict(trainer.renames) == {"tokenizer": "processing_class"}
    tiny = release.trainer("TinyTrainer")
    assert tiny is not None
    assert (tiny.keywords, tiny.required) == (("teacher", "model", "args", "processing_class"), ("model",))
    assert (tiny.variadic, tiny.config) == (False, "SFTConfig")


def test_a_folder_without_a_package(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no package"):
        knowledge.read_trl(tmp_path, "1.0.0")


@pytest.mark.parametrize(
    ("indices", "text"), [([], ""), ([3], "3"), ([0, 1, 2], "0-2"), ([0, 2, 3, 9], "0,2-3,9"), ([64], "64")]
)
def test_ranges(indices: list[int], text: str) -> None:
    assert fold.encode(indices) == text
    assert [i for i in range(70) if fold.holds(text, i)] == indices


def test_what_was_folded_comes_back() -> None:
    for package in knowledge.load.PACKAGES:
        table = knowledge.load._table(package)
        rows = [
            (version, date, fold.released(package, table, i))
            for i, (version, date) in enumerate(zip(table["releases"], table["dates"], strict=True))
        ]
        assert fold.dump(fold.table(package, rows)) == (knowledge.load.HARVESTED / f"{package}.json").read_text()
