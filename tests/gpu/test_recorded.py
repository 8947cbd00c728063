"""The jobs ask what rules propose, and what they asked of a GPU is recorded, or listed as not run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import JOBS, Job
from run_jobs import change, main, texts

from trl_lint.probe.evidence import load
from trl_lint.probe.measured import decided
from trl_lint.probe.trials import gpu_memory

HERE = Path(__file__).parent
EVIDENCE = sorted((HERE.parents[1] / "docs" / "evidence").glob("*.jsonl"))
ASKED = {(job.name, question.name) for job in JOBS for question in job.questions}
NOT_RUN = set(
    re.findall(r"(?m)^- `(\S+)`: `(\S+)`", (HERE / "README.md").read_text("utf-8").partition("## Not run")[2])
)


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.name)
def test_the_records_can_be_read(path: Path) -> None:
    found = load(str(path))
    assert found.records
    assert not found.notes


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_fix_of_a_rule_leads_from_one_text_to_the_other(job: Job) -> None:
    made = texts(job)
    assert len(set(made.values())) == len(made) == len(job.arms) + 1
    assert all(text.count('output_dir="out",') == 1 for text in made.values())
    for question in job.questions:
        assert change(job, question, made).title


def test_every_job_has_a_name_and_its_questions_a_record_of_their_own() -> None:
    assert len({job.name for job in JOBS}) == len(JOBS)
    found = [(question.name, job.method, job.trl) for job in JOBS for question in job.questions]
    assert len(set(found)) == len(found)


def test_what_is_not_recorded_is_listed_as_not_run() -> None:
    records = [record for path in EVIDENCE for record in decided(load(str(path)).records)]
    known = {(r.rule, r.conditions.method, (r.conditions.versions.get("trl") or "").partition("+")[0]) for r in records}
    recorded = {(job.name, q.name) for job in JOBS for q in job.questions if (q.name, job.method, job.trl) in known}
    assert recorded | NOT_RUN == ASKED
    assert not recorded & NOT_RUN, "measured since: take it out of README.md"


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_memory(), reason="no GPU")
def test_a_job_runs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, HERE / "make_model.py", tmp_path / "model"], check=True)
    assert main(["lora", "--pairs", "1", "--minutes", "4", "--model", f"{tmp_path}/model", "--out", str(tmp_path)]) == 0
    (record,) = load(str(tmp_path / "evidence.jsonl")).records
    assert record.rule == "base-in-float32"
    assert record.verdict.pairs == 1
