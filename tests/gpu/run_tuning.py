"""Tune scripts that have TRL's defaults, hold what comes out against the documentation's advice, and its losses against its own.

Usage: python3 run_tuning.py tune|pairs|curves sft dpo grpo --minutes M --out FOLDER [--model FOLDER]

`tune` runs `trl-lint tune --apply`, which searches and then compares the best with the script as it is: its output goes to
FOLDER/NAME.txt, what it leaves of the script to FOLDER/NAME.py. `pairs` runs that and the script as one would write it by hand
in alternating pairs. `curves` runs fifty steps of the scripts as they are, and as tuned where that is known, with the same
seeds; what was run before is not run again. Verdicts go to FOLDER/evidence.jsonl, diffs and curves to FOLDER/tuned.ndjson.
All trials are forks of a process that has imported TRL (tests/nursery.py).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import run_jobs
from jobs import AS_IS, TUNING, Arm, Job, Question
from run_jobs import HERE, Running, place_model
from tuned_page import by_hand

from trl_lint.probe import evidence
from trl_lint.probe.session import ONLINE
from trl_lint.probe.trials import Limits, TrialSpec, gpu_memory, run_trial
from trl_lint.probe.variants import diff, shadow
from trl_lint.reports.redaction import redact

CURVE = 50  # steps
SHORT = ("max_completion_length=128", "max_completion_length=32")  # fifty steps of generate take minutes otherwise
TUNED = "tuned"
RECORD = "tuned.ndjson"
TOGETHER = 8  # curves at a time: nothing is timed


def text_of(job: Job, options: argparse.Namespace) -> str:
    """The script as it is."""
    text = (HERE / job.script).read_text("utf-8")
    return run_jobs.rehearsed(text) if options.cpu else text


def tuned_text(job: Job, options: argparse.Namespace) -> str | None:
    """What the tuner has left of it, if it has been tuned and became another."""
    path: Path = options.out / f"{job.name}.py"
    text = path.read_text("utf-8") if path.exists() else None
    return text if text != text_of(job, options) else None


def digest(text: str) -> str:
    """By this the records of one text are known."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(options: argparse.Namespace, job: Job, part: str, **found: Any) -> None:
    line = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "method": job.method, "command": named(job, part)}
    with (options.out / RECORD).open("a") as file:
        file.write(json.dumps({**line, **found}) + "\n")


def records(options: argparse.Namespace) -> list[dict[str, Any]]:
    path: Path = options.out / RECORD
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def named(job: Job, part: str) -> str:
    return f"python3 tests/gpu/run_tuning.py {part} {job.name}"


def tune(job: Job, running: Running) -> None:
    """What `trl-lint tune --apply` leaves of a script; its output and its evidence are kept."""
    options, folder = running.options, running.scratch / "project"
    before = text_of(job, options)
    folder.mkdir()
    (folder / "texts.py").write_bytes((HERE / "texts.py").read_bytes())
    (folder / job.script).write_text(before)
    ignored = f"[tool.trl-lint]\nignore = {json.dumps(options.ignore)}\n" if options.ignore else ""
    (folder / "pyproject.toml").write_text(ignored)  # the project ends here
    place_model(folder, options.model)
    told = [
        "--allow", "numerics", "--trials", str(options.trials), "--patience", str(options.patience), "--steps", str(job.steps),
    ]  # fmt: skip
    left = running.deadline - time.monotonic()
    told += ["--minutes", f"{left / 60:.1f}"]
    command = [
        *told, "--trial-minutes", f"{options.trial_minutes:g}", "--pairs", "5",
        "--apply", "--report", f"{job.name}.html",
        "--summary", f"{job.name}.md", "--launcher", shlex.join(running.python),
    ]  # fmt: skip
    if options.cpu:
        command += ["--trl", job.trl]
    known = {**os.environ, **run_jobs.environment(job, options), "COLUMNS": "110"}
    known["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), known["PYTHONPATH"]])
    with (options.out / f"{job.name}.txt").open("w") as file:
        if ignored:
            file.write(f"$ cat pyproject.toml\n{ignored}")
        file.write(f"$ trl-lint tune {shlex.join([job.script, *told, '--apply'])}\n")
        file.flush()
        words = [sys.executable, "-m", "trl_lint", "tune", job.script, *command]
        with subprocess.Popen(words, cwd=folder, env=known, stdout=file, stderr=file) as process:
            try:
                process.wait(left)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
    for name in (f"{job.name}.html", f"{job.name}.md"):
        if (folder / name).exists():
            (options.out / name).write_bytes((folder / name).read_bytes())
    for record in evidence.load(str(folder / ".trl-lint" / evidence.NAME)).records:
        evidence.append(str(options.out / evidence.NAME), replace(record, command=named(job, "tune")))
    after = (folder / job.script).read_text()
    (options.out / f"{job.name}.py").write_text(after)
    if after != before:
        changed = diff({job.script: after.encode()}, {job.script: before.encode()})
        write(options, job, "tune", diff=changed, before=digest(before), after=digest(after))
    print((options.out / f"{job.name}.txt").read_text(), flush=True)


def pairs(job: Job, running: Running) -> None:
    """The tuned script and the one by hand in alternating pairs."""
    before, after = text_of(job, running.options), tuned_text(job, running.options)
    if after is None:
        print(f"{job.name}: not tuned, or left as it was")
        return
    changed = diff({job.script: after.encode()}, {job.script: before.encode()})
    hand = Arm(TUNED, ((before, after),))
    question = Question("tuned-over-by-hand", "by hand", TUNED, by_hand(changed), "numerics")
    running.job = replace(job, arms=(*job.arms, hand), questions=(question,))
    running.named = named(job, "pairs")
    running.run()


def curves(
    jobs: list[Job], options: argparse.Namespace, deadline: float, python: tuple[str, ...], scratch: Path
) -> None:
    """Loss and reward of each of the first steps of each script, as it is and as tuned, that no record has yet.

    All at the same time, but those with vLLM one after the other: it wants to know how much memory is free. One of them
    that the others kept from training is run once more when they have ended.
    """
    known = {(line["method"], line["script"], line["seed"]) for line in records(options) if "steps" in line}
    writing = threading.Lock()

    def curve(job: Job, seed: int, arm: str, text: str) -> bool:
        folder = scratch / f"{job.name}-{seed}-{arm.replace(' ', '-')}"
        if not folder.exists():
            shadow(HERE, folder, {job.script: text.replace(*SHORT).encode()})
            place_model(folder, options.model)
        left = deadline - time.monotonic()
        out = scratch / "out" / f"{folder.name}-{left:.0f}"
        environment = run_jobs.environment(job, options)
        trial = run_trial(
            TrialSpec(
                arm, (*python, job.script), folder, out, environment, options.curve, seed=seed, limits=Limits(left, left, 20.0, 3.0)
            )
        )  # fmt: skip
        series = trial.series
        logged = [*series.logs, *({},) * len(series.losses)]
        steps = [
            {"loss": loss, **({"reward": log["reward"]} if "reward" in log else {})}
            for loss, log in zip(series.losses, logged, strict=False)
        ]
        with writing:
            print(redact(f"{job.name}, seed {seed}, {arm}: {len(steps)} steps ({trial.seconds:.0f} s) {series.error or ''}"), flush=True)  # fmt: skip
            if series.trained:
                write(options, job, "curves", seed=seed, script=digest(text), steps=steps)
        return series.trained

    wanted: list[tuple[Job, int, str, str]] = []
    for job in jobs:
        for arm, text in ((AS_IS, text_of(job, options)), (TUNED, tuned_text(job, options))):
            seeds = options.seeds or ((42, 1, 2) if job.method in ONLINE else (42,))
            wanted += [
                (job, seed, arm, text)
                for seed in seeds
                if text is not None and (job.method, digest(text), seed) not in known
            ]
    alone = [each for each in wanted if "use_vllm=True" in each[3]]
    with ThreadPoolExecutor(TOGETHER) as pool:
        others = [pool.submit(curve, *each) for each in wanted if each not in alone]
        again = [each for each in alone if not curve(*each)]
        for other in others:
            other.result()
    for each in again:
        curve(*each)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("part", choices=["tune", "pairs", "curves"])
    add("names", nargs="+", choices=[job.name for job in TUNING], metavar="NAME")
    add("--minutes", type=float, required=True, help="of each script; of all for curves")
    add("--out", type=Path, required=True)
    add("--model", type=Path, default=os.environ.get("PROBE_MODEL", HERE / "model"), help="of make_model.py")
    add("--trials", type=int, default=30, metavar="N", help="of the search, at most")
    add("--patience", type=int, default=12, metavar="N", help="end the search after so many that were no faster")
    add("--trial-minutes", type=float, default=1.5, metavar="M", help="the longest that a trial of the search may take")
    add("--ignore", action="append", default=[], metavar="RULE", help="whose settings are not searched")
    add("--steps", type=int, metavar="N", help="of each trial")
    add("--seeds", type=lambda text: tuple(map(int, text.split(","))), metavar="A,B,C", help="of the curves")
    add("--curve", type=int, default=CURVE, metavar="N", help="steps of the curves")
    add("--cpu", action="store_true", help="rehearse without a GPU, best with a tiny model")
    return made


def main(words: list[str]) -> int:
    began = time.monotonic()
    options = parser().parse_args(words)
    options.release, options.warm = {}, False
    options.out.mkdir(parents=True, exist_ok=True)
    jobs = [replace(job, steps=options.steps or job.steps) for job in TUNING if job.name in options.names]
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="trl-lint-gpu-") as scratch:
        python = run_jobs.forked(jobs, options, stack)
        if options.part == "curves":
            curves(jobs, options, began + options.minutes * 60 - run_jobs.ENDING, python, Path(scratch))
        else:
            for job in jobs:
                (folder := Path(scratch) / job.name).mkdir()
                deadline = time.monotonic() + options.minutes * 60 - run_jobs.ENDING
                running = Running(job, options, folder, deadline, gpu_memory(), python)
                {"tune": tune, "pairs": pairs}[options.part](job, running)
    print(f"{time.monotonic() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
