"""Tune a script that has TRL's defaults, then hold what comes out against the documentation's advice, and its losses against its own.

Usage: python3 run_tuning.py sft|dpo|grpo --minutes M --out FOLDER [--model FOLDER] [--trials N] [--patience N]

Three parts, each in the time that is left. `trl-lint tune` searches and compares the best with the script as it is: its output
goes to FOLDER/NAME.txt. That best and the script as one would write it by hand run in alternating pairs. Script and best run
for fifty steps with the same seeds: FOLDER/tuned.ndjson, a line for each method. Verdicts go to FOLDER/evidence.jsonl. All
trials are forks of a process that has imported TRL (tests/nursery.py).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import run_jobs
from jobs import AS_IS, TUNING, Arm, Job, Question
from run_jobs import HERE, OutOfTime, Running, place_model

from trl_lint.probe import evidence
from trl_lint.probe.trials import Limits, TrialSpec, gpu_memory, run_trial, wait_for_gpus
from trl_lint.probe.variants import diff, shadow
from trl_lint.reports.redaction import redact

SEARCH = 0.45  # of the time, at most; what follows it takes about as long
CURVE = 50  # steps
SHORT = ("max_completion_length=128", "max_completion_length=32")  # fifty steps of generate take minutes otherwise
TUNED = "tuned"


def tuned(job: Job, running: Running, text: str, minutes: float) -> str:
    """What `trl-lint tune --apply` leaves of a script; its output and its evidence are kept."""
    options, folder = running.options, running.scratch / "project"
    folder.mkdir()
    (folder / "texts.py").write_bytes((HERE / "texts.py").read_bytes())
    (folder / job.script).write_text(text)
    (folder / "pyproject.toml").touch()  # the project ends here
    place_model(folder, options.model)
    told = [
        "--allow", "numerics", "--trials", str(options.trials), "--patience", str(options.patience), "--steps", str(job.steps),
    ]  # fmt: skip
    command = [
        *told, "--minutes", f"{minutes:.2f}", "--trial-minutes", "1.5", "--pairs", "5", "--apply",
        "--report", str((options.out / f"{job.name}.html").absolute()),
        "--summary", str((options.out / f"{job.name}.md").absolute()), "--launcher", shlex.join(running.python),
    ]  # fmt: skip
    if options.cpu:
        command += ["--trl", job.trl]
    known = {**os.environ, **run_jobs.environment(job, options), "COLUMNS": "110"}
    known["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), known["PYTHONPATH"]])
    with (options.out / f"{job.name}.txt").open("w") as file:
        file.write(f"$ trl-lint tune {shlex.join([job.script, *told, '--apply'])}\n")
        file.flush()
        words = [sys.executable, "-m", "trl_lint", "tune", job.script, *command]
        subprocess.run(words, cwd=folder, env=known, stdout=file, stderr=file, check=False)
    for record in evidence.load(str(folder / ".trl-lint" / evidence.NAME)).records:
        evidence.append(str(options.out / evidence.NAME), replace(record, command=named(job)))
    return (folder / job.script).read_text()


def named(job: Job) -> str:
    return f"python3 tests/gpu/run_tuning.py {job.name}"


def curves(job: Job, running: Running, texts: dict[str, str]) -> dict[str, dict[str, list[dict[str, float | None]]]]:
    """By seed and arm: loss and reward of each of the first steps. Ends where the time does."""
    options = running.options
    found: dict[str, dict[str, list[dict[str, float | None]]]] = {}
    for seed in options.seeds:
        for number, (arm, text) in enumerate(texts.items()):
            left = running.deadline - time.monotonic()
            if left < options.least:
                print(f"{job.name}: {left:.0f} s left: no more curves", flush=True)
                return found
            folder = running.scratch / f"curve-{number}"
            if not folder.exists():
                shadow(HERE, folder, {job.script: text.replace(*SHORT).encode()})
                place_model(folder, options.model)
            wait_for_gpus(running.baseline, within=20)
            spec = TrialSpec(
                arm, (*running.python, job.script), folder, running.scratch / "curves" / f"{seed}-{number}",
                run_jobs.environment(job, options), options.curve, seed=seed, limits=Limits(left, left, 20.0, 3.0),
            )  # fmt: skip
            trial = run_trial(spec)
            logged = [*trial.series.logs, *({},) * len(trial.series.losses)]
            found.setdefault(str(seed), {})[arm] = [
                {"loss": loss, **({"reward": log["reward"]} if "reward" in log else {})}
                for loss, log in zip(trial.series.losses, logged, strict=False)
            ]
            print(redact(f"{job.name}, seed {seed}, {arm}: {len(trial.series.losses)} steps ({trial.seconds:.0f} s) {trial.series.error or ''}"), flush=True)  # fmt: skip
    return found


def run(job: Job, options: argparse.Namespace, deadline: float, python: tuple[str, ...], scratch: Path) -> None:
    began = time.monotonic()
    before = (HERE / job.script).read_text("utf-8")
    if options.cpu:
        before = run_jobs.rehearsed(before)
    running = Running(job, options, scratch, deadline, gpu_memory(), python)
    after = tuned(job, running, before, (deadline - began) * SEARCH / 60)
    print((options.out / f"{job.name}.txt").read_text(), flush=True)
    print(f"{job.name}: tuned in {time.monotonic() - began:.0f} s", flush=True)
    if after == before:
        return
    # The pairs come last: curves are few and must not be cut.
    rows = curves(job, running, {AS_IS: before, TUNED: after})
    changed = diff({job.script: after.encode()}, {job.script: before.encode()})
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "method": job.method, "command": named(job), "diff": changed, "curves": rows,
    }  # fmt: skip
    with (options.out / "tuned.ndjson").open("a") as file:
        file.write(json.dumps(line) + "\n")
    settings = ", ".join(
        each[1:].strip().rstrip(",") for each in changed.splitlines() if each[:1] == "+" and each[:3] != "+++"
    )
    if not options.cpu:
        title = f"what the tuner found ({settings})"
        hand = Arm(TUNED, ((before, after),))
        question = Question("tuned-over-by-hand", "by hand", TUNED, title, "numerics")
        pairs = replace(job, arms=(*job.arms, hand), questions=(question,))
        Running(pairs, options, scratch / "pairs", deadline, gpu_memory(), python).run()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("name", choices=[job.name for job in TUNING])
    add("--minutes", type=float, required=True)
    add("--out", type=Path, required=True)
    add("--model", type=Path, default=os.environ.get("PROBE_MODEL", HERE / "model"), help="of make_model.py")
    add("--trials", type=int, default=30, metavar="N", help="of the search, at most")
    add("--patience", type=int, default=12, metavar="N", help="end the search after so many that were no faster")
    add("--steps", type=int, metavar="N", help="of each trial")
    add(
        "--seeds",
        type=lambda text: tuple(map(int, text.split(","))),
        default=(42, 1, 2),
        metavar="A,B,C",
        help="of the curves",
    )
    add("--curve", type=int, default=CURVE, metavar="N", help="steps of the curves")
    add("--least", type=float, default=60.0, metavar="S", help="seconds that a curve is worth beginning for")
    add("--cpu", action="store_true", help="rehearse without a GPU, best with a tiny model; no pairs by hand")
    return made


def main(words: list[str]) -> int:
    began = time.monotonic()
    options = parser().parse_args(words)
    options.release, options.warm = {}, False
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = began + options.minutes * 60 - run_jobs.ENDING
    (job,) = (job for job in TUNING if job.name == options.name)
    job = replace(job, steps=options.steps or job.steps)
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="trl-lint-gpu-") as scratch:
        (Path(scratch) / "pairs").mkdir()
        python = run_jobs.forked([job], options, stack)
        try:
            run(job, options, deadline, python, Path(scratch))
        except OutOfTime as end:
            print(f"{job.name}: {end}", flush=True)
    print(f"{time.monotonic() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
