"""`python -m tests.oracle --envs DIR --releases 1.16.0,0.19.1 --cases 500 --seed 0`"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.oracle.bench import Bench, Outcome, Tally, judge
from tests.oracle.environments import RELEASES, Environment, build, build_liger

CELLS = ("runs", "raises", "false alarm", "miss", "limit", "undecided")
HEAD = (
    "| trl | transformers | liger-kernel | vllm | share | " + " | ".join(CELLS) + " | kinds |",
    "|" + "---|" * (6 + len(CELLS)),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--envs", type=Path, help="folder of the environments; missing ones are made")
    parser.add_argument("--again", type=Path, help="only judge the disagreements of an earlier --output anew")
    parser.add_argument("--releases", default=",".join(RELEASES), help="TRL releases, separated by commas")
    parser.add_argument("--cases", type=int, default=500, help="configs to construct in each release")
    parser.add_argument(
        "--trained", type=int, help="trainers to build and train a step (default: an eighth of --cases)"
    )
    parser.add_argument("--liger", action="store_true", help="with liger-kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("oracle.jsonl"), help="the disagreements, one a line")
    chosen = parser.parse_args()
    if chosen.again is not None:
        return judge_again(chosen.again)
    if chosen.envs is None:
        parser.error("--envs DIR says where the environments are")
    trained = chosen.cases // 8 if chosen.trained is None else chosen.trained
    tallies: list[Tally] = []
    print("\n".join(HEAD), flush=True)
    with chosen.output.open("w") as output:
        for release in chosen.releases.split(","):
            python = build(chosen.envs, release)
            also = build_liger(chosen.envs, release) if chosen.liger else None
            with Environment(python, also=also) as environment:
                bench = Bench(environment, chosen.seed)
                tallies.append(bench.run(chosen.cases, trained, lambda text: print(text, file=sys.stderr, flush=True)))
                for outcome in bench.confirmed():
                    print(json.dumps(row(outcome, bench.tally)), file=output, flush=True)
                print("\n".join(cells(bench.tally)), flush=True)
    print("\n".join(asides(tallies)))
    return int(any(tally.groups for tally in tallies))


def judge_again(recorded: Path) -> int:
    """Print the recorded disagreements that are still ones, whatever the tool has learnt since. TRL is not asked again."""
    rows = [json.loads(line) for line in recorded.read_text().splitlines()]
    left = [each for each in rows if still_differs(each)]
    for each in left:
        print(each["release"], each["kind"], each["config"], each["fields"], each["keywords"], each["stage"], end=" ")
        print(each["error"], (each["message"] or "").split("\n")[0][:160], each["place"])
    print(f"{len(left)} of {len(rows)}")
    return int(bool(left))


def still_differs(recorded: Mapping[str, Any]) -> bool:
    said = judge(recorded["script"], recorded["versions"])
    return bool(said.stopping) if recorded["kind"] == "false alarm" else not said.errors


def row(outcome: Outcome, tally: Tally) -> dict[str, object]:
    """A disagreement as data, its script ready to be run."""
    error = outcome.error or {}
    return {
        "release": tally.versions["trl"],
        "versions": dict(tally.versions),
        "kind": outcome.cell,
        "count": tally.counts[outcome.key],
        "config": outcome.case.config,
        "fields": dict(outcome.case.fields),
        "keywords": dict(outcome.case.keywords),
        "stage": outcome.stage,
        "error": error.get("type"),
        "message": error.get("message"),
        "place": error.get("place"),
        "errors": sorted(outcome.said.errors),
        "script": outcome.text,
    }


def cells(tally: Tally) -> list[str]:
    """A release's rows of the table."""
    versions = [tally.versions.get(name, "-") for name in ("trl", "transformers", "liger-kernel", "vllm")]
    return [
        "| " + " | ".join((*versions, share, *(str(tally.cells[share, cell]) for cell in CELLS), kinds)) + " |"
        for share, kinds in (("constructed", ""), ("trained", str(len(tally.groups))))
    ]


def asides(tallies: list[Tally]) -> list[str]:
    """What is not counted as a disagreement, to be read: see docs/oracle.md."""
    lines = []
    for tally in tallies:
        lines += ["", f"trl {tally.versions['trl']}"]
        lines += [f"  not here: {name}, {why}" for name, why in tally.unusable.items()]
        lines += [f"  limit {count}: {' | '.join(key)}" for key, count in tally.reasons.most_common()]
        lines += [f"  goes on {count}: {rule}" for rule, count in tally.ignored.most_common()]
        lines += [f"  only TRL warns {count}: {' | '.join(key)}" for key, count in tally.unwarned.most_common()]
    return lines


if __name__ == "__main__":
    sys.exit(main())
