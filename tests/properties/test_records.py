"""The record of the corpus is data of the form that `python -m tests.corpus` reads and writes, and nothing but data."""

from __future__ import annotations

import json
import re

import pytest

from tests import corpus
from tests.helpers import all_rules

PINNED, INSTALLED = corpus.read()


def test_at_least_thirty_repositories_by_commit() -> None:
    assert len({one.name for one in PINNED}) == len(PINNED) >= 30
    assert all(re.fullmatch(r"[0-9a-f]{40}", one.commit) for one in PINNED)
    assert {path.name for path in corpus.RECORDED.glob("*")} == {one.record.name for one in PINNED}


@pytest.mark.parametrize("one", PINNED, ids=lambda one: one.name)
def test_a_record_holds_places_and_no_code(one: corpus.Pinned) -> None:
    lines = one.record.read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [json.dumps(row) for row in rows] == lines
    assert rows == sorted(rows, key=lambda r: (r["path"], r.get("cell", 0), r["line"], r["rule"]))
    assert all(list(row) in (["rule", "path", "line"], ["rule", "path", "cell", "line"]) for row in rows)
    known = {rule.name for rule in all_rules()} | {"unused-ignore", "bare-ignore", "unknown-ignore"}
    assert {row["rule"] for row in rows} <= known, "record again: python -m tests.corpus --record"


def test_a_repository_that_cannot_be_had_is_said(tmp_path, capsys) -> None:
    assert corpus.main(["--mirror", str(tmp_path), PINNED[0].name]) == 2
    said = capsys.readouterr()
    assert f"{PINNED[0].name}: not reached: not in {tmp_path}" in said.out
    assert "nothing was compared" in said.err


def test_what_changed_is_shown_and_can_be_recorded(tmp_path, capsys, monkeypatch) -> None:
    """The whole way, with a repository made here in place of a public one."""
    import subprocess

    source, mirror = tmp_path / "source", tmp_path / "mirror"
    source.mkdir()
    (source / "train.py").write_text(
        "from trl import GRPOConfig, GRPOTrainer\n\nargs = GRPOConfig(output_dir='o', no_such_field=1)\n"
        "GRPOTrainer(model='m', args=args, reward_funcs=len, train_dataset=d).train()\n"
    )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(source)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run(["git", "clone", "-q", "--bare", str(source), str(mirror / "a" / "b.git")], check=True)
    monkeypatch.setattr(corpus, "RECORDED", tmp_path / "records")
    monkeypatch.setattr(corpus, "read", lambda: ((corpus.Pinned("a/b", commit),), INSTALLED))

    words = ["--mirror", str(mirror)]
    assert corpus.main(words) == 1
    assert '+{"rule": "unknown-config-field", "path": "train.py", "line": 3}' in capsys.readouterr().out
    assert corpus.main([*words, "--record"]) == 0
    assert corpus.main(words) == 0
    assert "1 of 1 repositories reached" in capsys.readouterr().out
