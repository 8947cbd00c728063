"""What a trial left behind (its supervisor's report, its rank files) in; how it ended and why in one line out.

The words of the line are the child's own last error wherever there is one. Text of PyTorch, NCCL, vLLM, huggingface_hub
and the launchers is recognised by what their releases of 2024-2026 print.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from trl_lint.probe.comparison import Outcome
from trl_lint.reports.redaction import redact

Cause: TypeAlias = Literal[
    "none", "error", "memory", "stdin", "hub", "nccl", "port", "disk", "usage", "signal", "limit", "no training",
    "not started", "server", "stopped",
]  # fmt: skip
Record: TypeAlias = Mapping[str, Any]
LONGEST = 400  # characters of a line that is shown


@dataclass(frozen=True)
class Ending:
    """`outcome` is what is compared, `cause` what it was in particular, `error` one redacted line, None if it trained."""

    outcome: Outcome
    cause: Cause
    error: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Raised:
    """An exception as it was printed: its dotted type, the first line of its message, and the lines after that."""

    type: str
    message: str
    more: str = ""

    @property
    def line(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def text(self) -> str:
        return f"{self.line}\n{self.more}"

    @property
    def is_consequence(self) -> bool:
        """It only says that another process failed, whose own words are better."""
        return bool(_CONSEQUENCE.search(self.text))


# First match wins: NCCL's text quotes CUDA's "out of memory", the hub's errors wrap those of the network.
_CAUSES: tuple[tuple[Cause, str, re.Pattern[str]], ...] = (
    (
        "memory",
        "",
        re.compile(
            r"OutOfMemory|\bMemoryError\b|(?i:out of memory)|OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED"
            r"|DefaultCPUAllocator|Cannot allocate memory|oom[-_]kill|(?i:exceeded (?:job |step )?memory limit)"
            # vLLM, when weights and cache do not fit the share that it was given
            r"|No available memory for the cache blocks|less than desired GPU memory utilization"
            r"|larger than the (?:available KV cache memory|maximum number of tokens that can be stored)"
        ),
    ),
    ("stdin", "it asks a question on stdin, which is closed in a trial: ", re.compile(r"EOF when reading a line")),
    (
        "port",
        "a port that it needs is taken: ",
        re.compile(r"(?i:address already in use)|EADDRINUSE|errno:? 98\b|attempting to bind on address"),
    ),
    ("disk", "the disk is full: ", re.compile(r"No space left on device|Disk quota exceeded|Errno 28\b|Errno 122\b")),
    (
        "nccl",
        "NCCL failed: ",
        re.compile(r"NCCL (?:error|WARN)|\bnccl[A-Z]\w*(?:Error|Usage|Argument)\b|DistBackendError|ProcessGroupNCCL"),
    ),
    (
        "hub",
        "the hub does not give it: ",
        re.compile(
            r"GatedRepo|RepositoryNotFound|RevisionNotFound|DatasetNotFound|(?:401|403|404) Client Error"
            r"|is not a valid model identifier|DisabledRepo"
        ),
    ),
    (
        "hub",
        "the hub was not reached: ",
        re.compile(
            r"(?i:couldn't (?:connect to|reach))|LocalEntryNotFound|OfflineMode|HF_HUB_OFFLINE|outgoing traffic has been"
            r"|(?:Connect|MaxRetry|Timeout|NameResolution|SSL)\w*.*(?:huggingface\.co|\bhf\.co)"
        ),
    ),
)
_CONSEQUENCE = re.compile(
    r"^(?:[\w.]*\.)?(?:CalledProcessError|ChildFailedError|ProcessRaisedException|ProcessExitedException|SignalException"
    r"|EngineDeadError|KeyboardInterrupt|SystemExit|BrokenPipeError|DistBackendError|DistStoreError)\b"
    r"|Engine core initialization failed|EngineCore encountered an issue|WorkerProc initialization failed"
    r"|Connection (?:closed by peer|reset by peer|refused)"
)
# What launchers and vLLM put before each line that a process of theirs prints.
_PREFIX = re.compile(
    r"^(?:\[(?:default|rank)\d+\]:[ ]?"
    r"|\((?:EngineCore|Worker|VllmWorker|APIServer|ApiServer|Executor)[^)]*\)[ ]?(?:[A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\][ ]?)?"
    r"|[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\][ ]?"
    r"|\d{1,4}: )"
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_EXCEPTION = re.compile(
    r"^(?P<type>(?:\w+\.)+[A-Z]\w*|\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout|StopIteration))"
    r"(?:: ?(?P<message>.*))?$"
)
_DIED = re.compile(
    r"died with <Signals\.(?P<name>SIG[A-Z]+)|Signal \d+ \((?P<named>SIG[A-Z]+)\) received by PID"
    r"|exitcode\s*:\s*-(?P<number>\d+)"
)


def lines(text: str) -> Iterator[tuple[str, str]]:
    """(the launcher's prefix, the line) of what a terminal would show in the end: colours and redrawn bars are gone."""
    for line in _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n"):
        left = line.rstrip().rsplit("\r", 1)[-1]
        prefix = ""
        while match := _PREFIX.match(left):
            prefix, left = prefix + re.sub(r"\d\d:\d\d:\d\d|:\d+\]", "", match[0]), left[match.end() :]
        yield prefix, left


def raised(text: str) -> list[Raised]:
    """The exceptions whose tracebacks `text` holds, in order; those of several processes may be interleaved."""
    found: list[list[str]] = []
    inside: set[str] = set()
    last: dict[str, list[str]] = {}
    for prefix, line in lines(text):
        if "Traceback (most recent call last)" in line or (line.startswith('  File "') and prefix not in inside):
            inside.add(prefix)
            last.pop(prefix, None)
        elif prefix in inside and line and not line[0].isspace() and _EXCEPTION.match(line):
            inside.discard(prefix)
            last[prefix] = [line]
            found.append(last[prefix])
        elif (block := last.get(prefix)) and len(block) < 8:
            if line:
                block.append(line)
            else:
                last.pop(prefix)
    return [_raised(block) for block in found]


def _raised(block: Sequence[str]) -> Raised:
    match = _EXCEPTION.match(block[0])
    assert match
    message, more = match["message"] or "", list(block[1:])
    if match["message"] == "" and more:  # `ValueError:` and the text on its next line
        message = more.pop(0).strip()
    return Raised(match["type"], message, "\n".join(more))


def classify(
    report: Record, ranks: Mapping[int, Sequence[Record]], steps: int, oom_kills: int | None = None, *, done: int = 0
) -> Ending:
    """How a trial of `steps` steps ended, from its supervisor's `report` and the records of its ranks.

    `done` steps are complete. `oom_kills` is how many processes the kernel ended for want of memory meanwhile, None
    where it does not say.
    """
    trained = [rank for rank, records in ranks.items() if any(r["kind"] == "train" for r in records)]
    ended = [rank for rank, records in ranks.items() if any(r["kind"] == "end" for r in records)]
    errors = [
        Raised(str(record.get("type")), str(record.get("message") or ""))
        for rank in sorted(ranks)
        for record in ranks[rank]
        if record["kind"] == "error"
    ]
    reason, code = report["reason"], report.get("returncode")
    printed = raised(report["stderr"]) or raised(report["stdout"])
    where = _where(trained, done, steps)
    match reason:
        case "not started":
            return Ending("not reached", "not started", shown("; ".join(report["problems"])))
        case "stopped" | "parent":
            return Ending("killed", "stopped", "the trial was stopped by hand")
        case "lost":
            return Ending("killed", "stopped", f"the trial's supervisor was ended from outside{where}")
    if errors:
        return _because(_best(errors, printed))
    if ended and (set(ended) >= set(trained) or code == 0):
        return Ending("trained", "none", None, _leaving_notes(reason, code))
    if reason != "ended":
        return _hung(reason, report, trained, where, printed)
    if not trained and code and (usage := _usage(report["stderr"])) and all(e.is_consequence for e in printed):
        return Ending("refused", "usage", shown(usage))
    number = _signal(code, report["stderr"], printed)
    if number is not None:
        return _killed(number, code, report, where, oom_kills)
    if code == 0 and not trained:
        after = f"; its last error: {printed[-1].line}" if printed else ""
        return Ending("not reached", "no training", shown(f"it ended without calling a trainer's train(){after}"))
    if code == 0:
        return Ending("raised", "error", f"it left with exit code 0{where}")
    if printed:
        return _because(_best([], printed))
    said = last_line(report["stderr"]) or last_line(report["stdout"])
    cause, prefix = cause_of(said)
    outcome: Outcome = "out of memory" if cause == "memory" else "raised"
    return Ending(outcome, cause, shown(f"{prefix}exit code {code}{where}: {said or 'it printed nothing'}"))


def cause_of(text: str) -> tuple[Cause, str]:
    """What an error is about, and the words that go before it."""
    for cause, prefix, pattern in _CAUSES:
        if pattern.search(text):
            return cause, prefix
    return "error", ""


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for _, line in reversed(list(lines(text))) if line.strip()), "")


def shown(text: str) -> str:
    """`text` as one line that may be shown: without secrets, not too long."""
    line = redact(" ".join(text.split()))
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _best(errors: Sequence[Raised], printed: Sequence[Raised]) -> Raised:
    """The error that a person would look for: memory before all, then the harness's own record, then the last printed.

    One rank runs out of memory, the others report that they lost it; an engine dies, the trainer reports that.
    """
    own = [error for error in errors if not error.is_consequence]
    others = [error for error in printed if not error.is_consequence]
    candidates = own or others or list(errors) or list(printed)
    memory = [error for error in own or others if cause_of(error.text)[0] == "memory"]
    if memory:
        return memory[0]
    return candidates[0] if own or (errors and not others) else candidates[-1]


def _because(error: Raised) -> Ending:
    cause, prefix = cause_of(error.text)
    return Ending("out of memory" if cause == "memory" else "raised", cause, shown(prefix + error.line))


def _hung(reason: str, report: Record, trained: Sequence[int], where: str, printed: Sequence[Raised]) -> Ending:
    own = [error for error in printed if not error.is_consequence]
    if memory := [error for error in own if cause_of(error.text)[0] == "memory"]:
        return Ending("out of memory", "memory", shown(memory[0].line), ("the other processes hung after it",))
    limit = f"{report['seconds']:.0f} s"
    match reason:
        case "time":
            text = f"still running after {limit} (the time limit){where}"
        case "progress":
            text = f"no step and no output any more{where}; ended after {limit}"
        case _:
            text = f"a rank had ended, the others did not follow{where}; ended after {limit}"
    if not trained:
        text += "; it never called a trainer's train()"
    said = own[-1].line if own else last_line(report["stderr"]) or last_line(report["stdout"])
    return Ending("hung", "limit", shown(f"{text}; its last line: {said}" if said else text))


def _killed(number: int, code: int | None, report: Record, where: str, oom_kills: int | None) -> Ending:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    tail = [line for _, line in lines(report["stderr"])][-40:]
    said = next((line.strip() for line in tail if cause_of(line)[0] == "memory"), "")
    if said:
        return Ending("out of memory", "memory", shown(f"killed by {name}{where}: {said}"))
    text = f"killed by {name}" + (f" (exit code {code})" if code and code > 128 else "") + where
    if number == signal.SIGKILL and oom_kills is None:
        return Ending("out of memory", "memory", f"{text}, as happens when the machine runs out of memory")
    if number == signal.SIGKILL and oom_kills:
        return Ending("out of memory", "memory", f"{text}: the kernel's out-of-memory killer was at work")
    if number == signal.SIGKILL:
        return Ending("killed", "signal", f"{text}; not by the kernel for want of memory")
    said = last_line(report["stderr"])
    return Ending("killed", "signal", shown(f"{text}: {said}" if said else text))


def _signal(code: int | None, stderr: str, printed: Sequence[Raised]) -> int | None:
    """The signal that ended the program, or that its launcher says has ended a process of it."""
    if code is not None and code < 0:
        return -code
    if code is not None and code - 128 in (
        signal.SIGKILL,
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGTERM,
    ):
        return code - 128
    if code == 0 or any(not error.is_consequence for error in printed):
        return None
    numbers = [
        int(match["number"]) if match["number"] else int(signal.Signals[match["name"] or match["named"]])
        for match in _DIED.finditer(stderr)
        if match["number"] or (match["name"] or match["named"]) in signal.Signals.__members__
    ]
    # When one process dies, torchrun ends the others with SIGTERM.
    return next((n for n in numbers if n != signal.SIGTERM), numbers[0] if numbers else None)


def _usage(stderr: str) -> str | None:
    """The complaint of argparse (`train.py: error: …`) or click (`Error: …`) below its usage."""
    printed = [line for _, line in lines(stderr)]
    begin = next((i for i, line in enumerate(printed) if line.lower().startswith("usage:")), None)
    if begin is None:
        return None
    return next((line for line in printed[begin:] if re.match(r"(?:\S.*: )?error: |Error: ", line)), None)


def _leaving_notes(reason: str, code: int | None) -> tuple[str, ...]:
    if reason != "ended":
        return ("it did not leave by itself after its last step",)
    return (f"it left with exit code {code} after its last step",) if code else ()


def _where(trained: Sequence[int], done: int, steps: int) -> str:
    if not steps:  # a server
        return ""
    if not trained:
        return " before training"
    return f" after step {done} of {steps}" if done else " in its first step"
