"""The terminal's table and the one for a pull request: the page's words, whatever the width, the colors and the texts."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tests.probe import sample_probed
from trl_lint.probe.comparison import Verdict
from trl_lint.probe.probed import Probed
from trl_lint.probe.table import COLUMNS, headline, memory, plain, print_table, rows, speed, startup, where


def printed(probed: Probed, width: int = 110, **known: Any) -> str:
    out = StringIO()
    print_table(probed, Console(file=out, width=width, **known))
    return out.getvalue()


def test_the_table() -> None:
    lines = printed(sample_probed.probed(), 140).splitlines()
    assert lines[0] == "5.0x as fast here (4.8 to 5.7), with 6.0x the memory: 2 fixes together"
    assert lines[1] == "grpo.py on NVIDIA H200, trl 1.16.0, transformers 5.17.0, torch 2.11.0+cu130, vllm 0.25.1"
    assert lines[3].split() == ["Fix", "Verdict", "Speed", "Memory", "Start-up", "Pairs"]
    table = "\n".join(" ".join(line.split()) for line in lines[4:])
    for row in (
        "sample with vLLM on the training GPUs confirmed 4.7x (4.6 to 5.4) +638% +7.6 s (4 steps) 5",
        "drop gradient_checkpointing=False, use the fused AdamW confirmed 1.00x (0.98 to 1.02) -38% +0.3 s (22 steps) 5",
        "attend with sdpa no gain 1.00x (0.99 to 1.01) same -0.1 s 5",
        "compile the model slower 0.78x (0.78 to 0.79) same +41.7 s (never) 5",
        "train in bfloat16 weights changes training 1.30x (1.29 to 1.31) same -0.5 s 5",
        "use batches of 256 broken",
        "start a process for each GPU cannot tell 0.99x same +0.2 s 2",
        "2 fixes together confirmed 5.0x (4.8 to 5.7) +498% +7.5 s (4 steps) 5",
    ):
        assert row in table
    assert "changed-loss: changes training: the loss of step 1 is 0.41 instead of 2.8312e-07" in table
    assert "fp16-on-ampere: no gain: recorded on 2026-11-28, not measured again" in table
    assert "zero3-for-small-model: not tried: the launch file is written by another program" in table
    assert "note: pair 2: started although more memory is in use" in table
    assert f"  {sample_probed.REPRODUCE}" in lines


@pytest.mark.parametrize("width", [30, 60, 87])
def test_a_narrow_terminal_breaks_no_number_and_no_command(width: int) -> None:
    lines = printed(sample_probed.probed(), width).splitlines()
    command = f"  {sample_probed.REPRODUCE}"
    assert command in lines
    assert max(len(line) for line in lines if line != command) <= width
    text = " ".join(" ".join(lines).split())
    for row in rows(sample_probed.probed()):
        assert all(cell in text for cell in (row.verdict, row.speed, row.memory, row.startup))


def test_sixty_columns() -> None:
    lines = printed(sample_probed.probed(), 60).splitlines()
    at = lines.index("compile the model")
    assert [line.rstrip() for line in lines[at + 1 : at + 3]] == [
        "  slower, speed 0.78x (0.78 to 0.79), memory same, start-up",
        "  +41.7 s (never), 5 pairs",
    ]


def test_the_wide_table_keeps_to_its_width() -> None:
    for width in (88, 100, 200):
        lines = printed(sample_probed.probed(), width).splitlines()
        assert max(len(line) for line in lines if not line.startswith("  cd ")) <= width


def test_colors_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in printed(sample_probed.probed())
    assert "\x1b[1;32mconfirmed" in printed(sample_probed.probed(), force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "32m" not in printed(sample_probed.probed(), force_terminal=True, color_system="standard")


@pytest.mark.parametrize("width", [60, 110])
def test_texts_of_the_users_neither_steer_the_terminal_nor_tell_secrets(width: int) -> None:
    text = printed(sample_probed.hostile(), width)
    assert not re.search(r"[\x00\x1b\u202e\ud800]|hf_[a-z]", text)
    assert text.encode()


@pytest.mark.parametrize("made", [sample_probed.empty, sample_probed.repaired])
def test_there_may_be_nothing_to_compare(made: type[Probed]) -> None:
    assert printed(made()).startswith(("No fix was tried\n", "It trains here: drop max_prompt_length\n"))
    assert plain(made())


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (Verdict("confirmed", 4.69, 4.56, 5.36, 5, "steps per second", gains=("speed",)), "4.7x as fast here (4.6 to 5.4): a fix"),
        (
            Verdict("confirmed", 1.94, 1.9, 2.0, 5, "tokens per second", gains=("speed",)),
            "1.94x the tokens per second here (1.90 to 2.00): a fix",
        ),
        (
            Verdict("confirmed", 1.5, 1.4, 1.6, 5, "steps per second", 0.7, gains=("speed", "memory")),
            "1.50x as fast here (1.40 to 1.60), with 30% less memory: a fix",
        ),
        (
            Verdict("confirmed", 1.5, 1.4, 1.6, 5, "steps per second", 2.0, gains=("speed",)),
            "1.50x as fast here (1.40 to 1.60), with 2.00x the memory: a fix",
        ),
        (Verdict("confirmed", 1.0, 0.99, 1.01, 5, "steps per second", 0.62, gains=("memory",)), "38% less memory here, no slower: a fix"),
        (Verdict("repaired"), "It trains here: a fix"),
    ],
)  # fmt: skip
def test_the_outcome_in_one_sentence(verdict: Verdict, told: str) -> None:
    found = sample_probed.probed()
    tried = replace(found.tried[0], title="a fix", verdict=verdict)
    assert headline(replace(found, tried=(tried,), kept=tried.name)) == told


def test_nothing_to_keep_counts_the_verdicts() -> None:
    found = sample_probed.probed()
    tried = tuple(replace(found.tried[0], verdict=Verdict(name)) for name in ("slower", "no gain", "slower"))
    assert headline(replace(found, tried=tried, kept=None)) == "Nothing to keep: 1 no gain, 2 slower"


@pytest.mark.parametrize(
    ("verdict", "cells"),
    [
        (Verdict("cannot tell"), ("", "", "")),
        (Verdict("cannot tell", 1.1, memory_ratio=1.004, startup_cost_seconds=0.4), ("1.10x", "same", "+0.4 s")),
        (
            Verdict("confirmed", 2.0, 1.9, 2.1, 5, "tokens per second", 1.3, 4.0, 1),
            ("2.00x the tokens (1.90 to 2.10)", "+30%", "+4.0 s (1 step)"),
        ),
        (Verdict("slower", 0.5, 0.4, 0.6, 5, "steps per second", 0.5, 4.0), ("0.50x (0.40 to 0.60)", "-50%", "+4.0 s (never)")),
        (Verdict("confirmed", 120.4, startup_cost_seconds=-3.0, payback_steps=0), ("120x", "", "-3.0 s")),
    ],
)  # fmt: skip
def test_cells(verdict: Verdict, cells: tuple[str, str, str]) -> None:
    assert (speed(verdict), memory(verdict), startup(verdict)) == cells


def test_where_says_only_what_is_known() -> None:
    found = sample_probed.probed()
    assert where(sample_probed.empty()) == "CPU"
    several = replace(
        found.conditions, hardware={"gpu": "NVIDIA H200", "count": 8}, versions={"trl": "1.16.0", "vllm": None}
    )
    assert where(replace(found, conditions=several)) == "NVIDIA H200 x8, trl 1.16.0"


# A pull request ------------------------------------------------------------------------------------------------------


def test_markdown() -> None:
    lines = plain(sample_probed.probed()).splitlines()
    assert lines[0] == "**5.0x as fast here (4.8 to 5.7), with 6.0x the memory: 2 fixes together**"
    table = [line for line in lines if line.startswith("|")]
    assert table[0] == f"| {' | '.join(COLUMNS)} |"
    assert (
        table[2]
        == "| sample with vLLM on the training GPUs | confirmed | 4.7x (4.6 to 5.4) | +638% | +7.6 s (4 steps) | 5 |"
    )
    assert len(table) == 2 + 9
    assert "- `fp16-on-ampere`: no gain: `recorded on 2026-11-28, not measured again`" in lines
    assert lines[-1] == "Measured 2026-11-30 by `trl-lint probe grpo.py -- --lr 1e-6`"


def test_markdown_of_any_text() -> None:
    found = sample_probed.probed()
    nasty = "a | b\n| c ``d`` <img src=x> @somebody #12 *e* \\ hf_abcdefghijklmnopqrstuvwx"
    fix = replace(found.tried[5], title=nasty, verdict=Verdict("broken", reason=nasty))
    text = plain(replace(found, tried=(fix,), kept=None, notes=(nasty,)))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 3
    assert len(re.findall(r"(?<!\\)\|", table[2])) == len(COLUMNS) + 1
    assert "- `batch-too-small`: broken: ``` a | b | c ``d`` <img src=x> @somebody #12" in text
    outside = re.sub(r"(`+) ?.*?\1(?!`)", "", text)
    assert "<img" not in outside
    assert "@somebody" not in outside
    assert "#12" not in outside
    assert "hf_a" not in text
