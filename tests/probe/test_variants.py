"""What a variant is: the fixer's own text in a copy of the project, and nothing of the user's touched."""

from __future__ import annotations

from pathlib import Path

from trl_lint.probe.variants import LARGEST_COPY, diff, placed, shadow, together, variants

from ..helpers import context, lint_files

CODE = """# trl-lint: facts trl==1.16.0 gpu=A100-80GB n_gpu=1
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", fp16=True, max_seq_length=512)
trainer = SFTTrainer(model="Qwen/Qwen3-0.6B", args=args, train_dataset=data, tokenizer=tok)
"""


def test_each_fix_is_a_variant_and_several_can_be_one() -> None:
    examined = lint_files({"train.py": CODE})
    found, refused = variants(examined, context())
    by_name = {v.name: v for v in found}
    assert not refused
    assert {"unknown-config-field", "unknown-trainer-keyword", "fp16-on-ampere"} <= set(by_name)
    only = by_name["unknown-trainer-keyword"].changed["train.py"].decode()
    assert only == CODE.replace("tokenizer=tok", "processing_class=tok")
    both = together([f for v in found for f in v.findings], examined, context())
    assert both is not None
    text = both.changed["train.py"].decode()
    assert "processing_class=tok" in text
    assert "max_length=512" in text
    assert "fp16" not in text
    assert both.effect == "numerics"
    assert '-args = SFTConfig(output_dir="out", fp16=True, max_seq_length=512)' in diff(
        both.changed, {"train.py": CODE.encode()}
    )
    assert together(found[0].findings, examined, context()) is None


def test_fixes_on_top_of_others(tmp_path: Path) -> None:
    examined = lint_files({"train.py": CODE})
    base = [f for f in examined.findings if f.rule == "unknown-config-field"]
    on_top, _ = variants(examined, context(), lambda f: f.rule == "fp16-on-ampere", base)
    assert [v.rules for v in on_top] == [("unknown-config-field", "fp16-on-ampere")]
    assert on_top[0].rule == "fp16-on-ampere"
    assert b"max_length=512" in on_top[0].changed["train.py"]


def test_two_findings_of_one_rule_are_two_variants() -> None:
    code = CODE.replace(
        "max_seq_length=512", "max_seq_length=512, no_cuda=True, logging_dir='x', overwrite_output_dir=True"
    )
    found, _ = variants(lint_files({"train.py": code}), context(), lambda f: f.rule == "unknown-config-field")
    names = [v.name for v in found]
    assert len(set(names)) == len(names) > 1


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


def test_folders_that_are_links_are_there_in_the_copy(tmp_path: Path) -> None:
    project, data, copy = tmp_path / "project", tmp_path / "data", tmp_path / "copy"
    (project / "runs" / "1").mkdir(parents=True)
    (project / "runs" / "1" / "log.txt").write_text("one")
    data.mkdir()
    (data / "train.json").write_text("[]")
    (project / "data").symlink_to(data)
    (project / "runs" / "latest").symlink_to("1")
    shadow(project, copy, {})
    assert (copy / "data" / "train.json").read_text() == "[]"
    with placed(copy, tmp_path / "here"):
        (tmp_path / "here" / "runs" / "latest" / "log.txt").write_text("two")
        assert not copy.exists()
    assert (copy / "runs" / "1" / "log.txt").read_text() == "two"
    assert (project / "runs" / "1" / "log.txt").read_text() == "one"
