"""What a variant is: the fixer's own text in a copy of the project, and nothing of the user's touched."""

from __future__ import annotations

from pathlib import Path

from trl_lint.probe.variants import LARGEST_COPY, shadow, variants

from ..helpers import context, lint_files

CODE = """# trl-lint: facts trl==1.16.0 gpu=A100-80GB n_gpu=1
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", fp16=True, max_seq_length=512)
trainer = SFTTrainer(model="Qwen/Qwen3-0.6B", args=args, train_dataset=data, tokenizer=tok)
"""


def test_each_fix_is_a_variant_and_all_of_them_one_more() -> None:
    found, refused = variants(lint_files({"train.py": CODE}), context())
    by_name = {v.name: v for v in found}
    assert not refused
    assert {"unknown-config-field", "unknown-trainer-keyword", "fp16-on-ampere", "all"} <= set(by_name)
    only = by_name["unknown-trainer-keyword"].changed["train.py"].decode()
    assert only == CODE.replace("tokenizer=tok", "processing_class=tok")
    together = by_name["all"].changed["train.py"].decode()
    assert "processing_class=tok" in together
    assert "max_length=512" in together
    assert "fp16" not in together
    assert by_name["all"].effect == "numerics"


def test_the_copy_holds_the_variant_and_leaves_the_project_alone(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "train.py").write_text("old")
    (project / "pkg" / "data.json").write_text("{}")
    (project / "weights.bin").write_bytes(b"x" * (LARGEST_COPY + 1))
    copy = tmp_path / "copy"
    shadow(project, copy, {"train.py": b"new"})
    assert (copy / "train.py").read_text() == "new"
    assert (copy / "weights.bin").is_symlink()
    assert not (copy / ".git").exists()
    (copy / "pkg" / "data.json").write_text("changed")
    assert (project / "pkg" / "data.json").read_text() == "{}"
    assert (project / "train.py").read_text() == "old"
