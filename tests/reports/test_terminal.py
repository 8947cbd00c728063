"""What a person reads, whole."""

import json
import subprocess
import sys
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper

import pytest

from trl_lint.model import Finding, Related, Report, RunSummary, Severity, Skip, Span
from trl_lint.reports import FORMATS, write

from .building import finding, fix, report, span_of, written

TRAIN = b"""\
from trl import GRPOConfig

config = GRPOConfig(
    output_dir="out",
    use_liger_kernel=True,
)
"""
LAUNCH = b"trl vllm-serve --model M &\naccelerate launch train.py\n"


def full() -> Report:
    server = finding(
        span_of(TRAIN, "GRPOConfig(", upto="\n)"),
        rule="server-nobody-uses",
        severity=Severity.error,
        message="TRL 1.9.2 colocates by default: the server idles",
        related=(
            Related(span_of(LAUNCH, "trl vllm-serve", path="launch.sh"), "the server starts here"),
            Related(Span("r.yaml", 0, 1, 14, 1, 14, 5), "use_vllm is set here"),
        ),
        fix=fix(title='set vllm_mode to "server"', safety="unsafe", needs=("consent",)),
        alternatives=("start no server",),
        assumed="trl 1.9.2",
        held_back="other releases that the pins allow default to server",
    )
    liger = finding(span_of(TRAIN, "use_liger_kernel=True"), fix=fix(title="turn Liger off"))
    notebook = finding(
        Span("n.ipynb", 60, 63, 1, 3, 1, 6, 3), severity=Severity.note, certainty="possible", undecided="gpu.model"
    )
    return report(
        server,
        notebook,
        liger,
        sources={"train.py": TRAIN, "launch.sh": LAUNCH},
        skipped=(Skip("broken.py", "line 3: unterminated string"),),
        notes=("trl 9.9 is newer than the newest release known here (1.16.0)",),
    )


FULL = """\
note[online-without-vllm]: generation takes most of each step
 --> n.ipynb:cell 3:1:3
  = undecided: gpu.model
  = help: trl-lint explain online-without-vllm

error[server-nobody-uses]: TRL 1.9.2 colocates by default: the server idles
 --> train.py:3:10
  |
3 | config = GRPOConfig(
  |          ^^^^^^^^^^^
…
6 | )
  | ^
  |
 ::: launch.sh:1:1
  |
1 | trl vllm-serve --model M &
  | -------------- the server starts here
  |
 ::: r.yaml:14:1: use_vllm is set here
  = fix: set vllm_mode to "server" (unsafe: needs consent)
  = or: start no server
  = assuming: trl 1.9.2 (other releases may run; a fix is written if it is right for all of them)
  = held back: other releases that the pins allow default to server
  = help: trl-lint explain server-nobody-uses

warning[online-without-vllm]: generation takes most of each step
 --> train.py:5:5
  |
5 |     use_liger_kernel=True,
  |     ^^^^^^^^^^^^^^^^^^^^^
  |
  = fix: turn Liger off (safe)
  = help: trl-lint explain online-without-vllm

skipped broken.py: line 3: unterminated string
note: trl 9.9 is newer than the newest release known here (1.16.0)
judged by trl 1.9.2 (uv.lock:812)
Found 1 error, 1 warning, 1 possible in 12 files (1 run).
1 fixable with --fix.
What to do first:
  1. train.py:3:10 server-nobody-uses: set vllm_mode to "server"
  2. train.py:5:5 online-without-vllm: turn Liger off
"""


@pytest.mark.parametrize("columns", ["20", "200"])
def test_whole(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert written(full(), "terminal") == FULL


def test_quiet_leaves_the_findings() -> None:
    assert written(full(), "terminal", quiet=True) == FULL[: FULL.index("skipped broken.py")]


def test_the_gutter_is_as_wide_as_the_largest_line_number() -> None:
    source = b"\n" * 11 + b"f(a=1)\n"
    related = Related(span_of(b"a: 1\n", "a", path="r.yaml"), "here")
    shown = written(
        report(finding(span_of(source, "a=1"), related=(related,)), sources={"train.py": source, "r.yaml": b"a: 1\n"}),
        "terminal",
    )
    assert (
        "  --> train.py:12:3\n   |\n12 | f(a=1)\n   |   ^^^\n   |\n  ::: r.yaml:1:1\n   |\n 1 | a: 1\n   | - here\n"
        in shown
    )


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, "(safe)"),
        ({"safety": "unsafe"}, "(unsafe)"),
        ({"safety": "unsafe", "needs": ("install", "memory")}, "(unsafe: needs install and memory)"),
        ({"safety": "unsafe", "effect": "numerics"}, "(unsafe: changes numerics)"),
        (
            {"safety": "unsafe", "effect": "training", "needs": ("consent",)},
            "(unsafe: needs consent, changes training)",
        ),
    ],
)
def test_safety_says_why(changes: dict[str, object], label: str) -> None:
    shown = written(report(finding(span_of(TRAIN, "config"), fix=fix(**changes))), "terminal")
    assert f"= fix: turn vLLM on {label}\n" in shown


def test_markup_emoji_codes_and_control_characters_are_text() -> None:
    source = b"f('[bold]', ':smile:')"
    message = "[red]a[/red] :smile: \x1b[2J\nb"
    shown = written(report(finding(span_of(source, "f"), message=message), sources={"train.py": source}), "terminal")
    assert "[red]a[/red] :smile: ␛[2J b\n" in shown
    assert "1 | f('[bold]', ':smile:')\n" in shown


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("out", "color", "environment", "colored"),
    [
        (Terminal(), None, {}, True),
        (Terminal(), None, {"NO_COLOR": "1"}, False),
        (Terminal(), None, {"TERM": "dumb"}, False),
        (Terminal(), False, {}, False),
        (StringIO(), None, {}, False),
        (StringIO(), None, {"FORCE_COLOR": "1"}, False),
        (StringIO(), True, {"NO_COLOR": "1"}, True),
    ],
)
def test_color(
    monkeypatch: pytest.MonkeyPatch, out: StringIO, color: bool | None, environment: dict[str, str], colored: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    write(full(), "terminal", out, color=color)
    assert ("\x1b[" in out.getvalue()) is colored
    assert colored or out.getvalue() == FULL


def test_an_ascii_stream_gets_escapes() -> None:
    message = "火 🤗"
    for format in FORMATS:
        raw = BytesIO()
        out = TextIOWrapper(raw, encoding="ascii", newline="")
        write(report(finding(span_of(TRAIN, "config"), message=message)), format, out)
        out.flush()
        assert b"\\u706b \\ud83e\\udd17" in raw.getvalue()
        if format == "json":
            assert json.loads(raw.getvalue())["findings"][0]["message"] == message


@pytest.mark.parametrize("format", FORMATS)
def test_same_report_same_bytes_in_any_order(format: str) -> None:
    first = full()
    again = replace(first, findings=first.findings[::-1])
    assert written(first, format) == written(first, format) == written(again, format)


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown output format 'xml'"):
        written(report(), "xml")


def test_nothing_heavy_is_imported_without_findings() -> None:
    program = (
        "import sys; from trl_lint.model import Report; from trl_lint.reports import write;"
        "write(Report('0', 3, (), (), (), (), {}), 'terminal', sys.stdout);"
        "print([name for name in ('rich', 'json') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "No TRL training found in 3 files.\n[]\n"


# The closing lines ---------------------------------------------------------------------------------------------------


def run(number: int, **facts: dict[str, object]) -> RunSummary:
    return RunSummary(f"r{number}", "grpo", ("train.py",), facts)


OLD: dict[str, dict[str, object]] = {"trl": {"value": "0.29.1", "origin": "requirements.txt:1"}}
NEW: dict[str, dict[str, object]] = {
    "gpu": {"value": "a100", "count": 8, "origin": "--gpu"},
    "trl": {"value": "1.16.0", "origin": "newest known"},
    "vllm": {"value": None, "origin": None},
}


@pytest.mark.parametrize(
    ("runs", "lines"),
    [
        ([], []),
        ([run(1, **OLD)], ["judged by trl 0.29.1 (requirements.txt:1)"]),
        ([run(1, **OLD), run(2, **OLD)], ["judged by trl 0.29.1 (requirements.txt:1)"]),
        ([run(1)], ["judged by no known release"]),
        (
            [run(1, **OLD), run(2, **NEW), run(3, **NEW)],
            [
                "judged by trl 1.16.0 (newest known), gpu a100 x8 (--gpu): 2 runs",
                "judged by trl 0.29.1 (requirements.txt:1): 1 run",
            ],
        ),
        (
            [run(n, trl={"value": f"1.{n}.0", "origin": "p"}) for n in range(10)],
            [
                *(f"judged by trl 1.{n}.0 (p): 1 run" for n in range(8)),
                "… and by 2 more sets of facts (trl-lint facts shows all)",
            ],
        ),
    ],
)
def test_judged_by(runs: list[RunSummary], lines: list[str]) -> None:
    assert written(report(runs=tuple(runs)), "terminal").splitlines()[:-1] == lines


def at(line: int, **changes: object) -> Finding:
    return finding(Span("train.py", line, line + 1, line, 1, line, 2), **changes)


@pytest.mark.parametrize(
    ("given", "summary"),
    [
        (report(files=1), "No findings in 1 file (1 run)."),
        (report(runs=()), "No TRL training found in 12 files."),
        (report(at(1), runs=()), "Found 1 warning in 12 files."),
        (
            report(at(1), at(2), at(3, severity=Severity.error), at(4, severity=Severity.note)),
            "Found 1 error, 2 warnings, 1 note in 12 files (1 run).",
        ),
        (report(at(1, certainty="possible", undecided="gpu")), "Found 1 possible in 12 files (1 run)."),
    ],
)
def test_found(given: Report, summary: str) -> None:
    assert written(given, "terminal").splitlines()[-1] == summary


SAFE, UNSAFE = fix(), fix(safety="unsafe", needs=("install",))


@pytest.mark.parametrize(
    ("findings", "line"),
    [
        ([at(1, fix=SAFE), at(2, fix=SAFE), at(3, fix=UNSAFE)], "2 fixable with --fix, 1 more with --unsafe-fixes."),
        ([at(1, fix=SAFE)], "1 fixable with --fix."),
        ([at(1, fix=UNSAFE)], "1 fixable with --unsafe-fixes."),
        ([at(1)], "Found 1 warning in 12 files (1 run)."),
        ([at(1, fix=fix(edits=()))], "1 fixable with --fix."),
        ([at(1, fix=SAFE, certainty="assumed", assumed="trl 1.16.0")], "Found 1 warning in 12 files (1 run)."),
        ([at(1, fix=SAFE, held_back="why")], "Found 1 warning in 12 files (1 run)."),
        ([at(1, fix=SAFE, certainty="possible")], "Found 1 possible in 12 files (1 run)."),
    ],
)
def test_fixable(findings: list[Finding], line: str) -> None:
    assert written(report(*findings), "terminal").splitlines()[-1] == line
