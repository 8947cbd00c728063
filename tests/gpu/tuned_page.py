"""What run_tuning.py recorded in; docs/evidence/tuned.md out. Usage: python -m tests.gpu.tuned_page"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from trl_lint.probe.comparison import TOLERANCES
from trl_lint.probe.evidence import Record, load
from trl_lint.probe.measured import pooled
from trl_lint.probe.session import ONLINE

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "evidence" / "tuned.ndjson"
PAGE = RECORD.with_suffix(".md")
ABOUT = [
    "# Tuned", "",
    "TRL's defaults (GRPO: with completions of 128 tokens), what `trl-lint tune --allow numerics` made of them (Qwen2's half-billion",
    "shape, random weights), how much faster that is than the defaults, and than what TRL's documentation advises (Liger; for DPO the",
    "reference scored once; for GRPO vLLM), and whether it still trains the same.",
    "`tests/gpu/run_tuning.py` measures it and `python -m tests.gpu.tuned_page` writes this page.",
]  # fmt: skip

AIMS = {
    "grpo": "8 times. As tuned six tenths of a step are still generation, of the 8 completions that TRL's default batch holds.",
    "sft": "2 times. A step as tuned is 8 texts, some 3400 tokens in 0.14 s: 7 % of the operations that the GPU could do in that time.",
    "dpo": "2.5 times.",
}
"""What was aimed at, as a multiple of TRL's defaults, and what the recorded steps say of the distance."""

Curves: TypeAlias = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]
"""By seed and arm ("as it is", "tuned"): what each step logged."""


def losses(curves: Curves) -> str:
    """How far the tuned run's losses lie from those of the run as it is, step by step and seed by seed."""
    allowed = TOLERANCES["numerics", False]
    apart: list[float] = []
    outside = 0
    whole = {seed: arms for seed, arms in curves.items() if len(arms) == 2}
    for arms in whole.values():
        for before, after in zip(arms["as it is"], arms["tuned"], strict=False):
            apart.append(abs(after["loss"] - before["loss"]))
            outside += apart[-1] > allowed.absolute + allowed.relative * abs(before["loss"])
    within = "all within" if not outside else f"{outside} of them outside"
    return (
        f"Losses of {len(apart)} steps (seeds {', '.join(whole)}): at most {max(apart):.2g} apart, {within} the tolerance of "
        f"{allowed.absolute:g} + {allowed.relative:.0%}."
    )


def rewards(curves: Curves) -> str:
    """The mean reward of each seed, as it is and tuned; samples differ, so no step is compared with another."""
    means = {
        arm: sorted(
            sum(step["reward"] for step in arms[arm]) / len(arms[arm]) for arms in curves.values() if arms.get(arm)
        )
        for arm in ("as it is", "tuned")
    }
    before, after = means.values()
    overlap = before[0] <= after[-1] and after[0] <= before[-1]
    shown = {arm: ", ".join(f"{mean:.4f}" for mean in found) for arm, found in means.items()}
    steps = min(len(arms[arm]) for arms in curves.values() for arm in arms)
    said = (
        f"the ranges {'overlap' if overlap else 'lie apart'}" if min(len(before), len(after)) > 1 else "too few to tell"
    )
    return f"Mean reward over {steps} steps, a figure for each seed: {shown['as it is']} as it is, {shown['tuned']} tuned: {said}."


def page(lines: Iterable[Mapping[str, Any]], records: Iterable[Record]) -> str:
    """The page, a section for each method; of several results of one method the newest, with the curves of its texts."""
    known, found = list(lines), list(records)
    made = list(ABOUT)
    for method, line in sorted({line["method"]: line for line in known if "diff" in line}.items()):
        of = [record for record in found if record.conditions.method == method]
        made += ["", f"## {method.upper()}", "", "```diff", line["diff"].rstrip("\n"), "```", ""]
        # A search that ended anew has a newer record; the pairs by hand are about one result.
        newest = {record.rule: record for record in sorted(of, key=lambda record: record.date)}
        hand = next((r for r in of if r.rule == "tuned-over-by-hand" and r.title == by_hand(line["diff"])), None)
        for over, record in (
            ("the defaults", newest.get("tuned")),
            ("the defaults", newest.get("simpler")),
            ("the advice", hand),
        ):
            if record is not None:
                title = f" {record.title}:" if over == "the defaults" else ""
                made.append(f"- over {over}:{title} {record.verdict.name}: {record.verdict.reason}")
        run = curves(known, line)
        if any(len(arms) == 2 for arms in run.values()):
            made.append(f"- {(rewards if method in ONLINE else losses)(run)}")
        made.append(f"- aimed at {AIMS[method]}")
        on = sorted({f"{record.conditions.hardware.get('gpu')}, " for record in of if record.rule.startswith("tuned")})
        commands = dict.fromkeys(each["command"] for each in (line, *known) if each["method"] == method)
        made += ["", f"{''.join(on)}{line['date'][:10]}, {', '.join(f'`{command}`' for command in commands)}"]
    return "\n".join([*made, ""])


def by_hand(diff: str) -> str:
    """The title of a result where it is held against what one writes by hand."""
    added = [each[1:].strip().rstrip(",") for each in diff.splitlines() if each[:1] == "+" and each[:3] != "+++"]
    return f"what the tuner found ({', '.join(added)})"


def curves(lines: Iterable[Mapping[str, Any]], line: Mapping[str, Any]) -> Curves:
    """Of both texts of a result, by seed."""
    found: dict[str, dict[str, Sequence[Mapping[str, float]]]] = {}
    for arm, text in (("as it is", line["before"]), ("tuned", line["after"])):
        for each in lines:
            if each["method"] == line["method"] and each.get("script") == text:
                found.setdefault(str(each["seed"]), {})[arm] = each["steps"]
    return found


def current() -> str:
    """The page as the records have it."""
    records = [record for path in sorted(RECORD.parent.glob("*.jsonl")) for record in pooled(load(str(path)).records)]
    return page(map(json.loads, RECORD.read_text("utf-8").splitlines()), records)


if __name__ == "__main__":
    PAGE.write_text(current(), "utf-8")
    sys.exit(0)
