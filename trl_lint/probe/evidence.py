"""Measured comparisons in, `.trl-lint/evidence.jsonl` of the user's project out, and back: what was found out, and when.

One JSON object a line, only ever appended, each by a single write, so that several probes may write at once and two
branches merge by keeping both sides' lines. Nothing that is wrong with the file stops a reader: it is a note.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, get_args

from trl_lint.knowledge.idle import is_idle
from trl_lint.probe.comparison import Name, Outcome, Pair, Series, Verdict, times
from trl_lint.reports.redaction import HIDDEN, redact

VERSION = 1
FOLDER = ".trl-lint"
NAME = "evidence.jsonl"

Scalar: TypeAlias = str | int | float | bool | None


class EvidenceError(OSError):
    """ ".trl-lint/evidence.jsonl cannot be written: No space left on device; this measurement is not recorded" """


@dataclass(frozen=True)
class Conditions:
    """What a measurement holds for. A key that is not there is unknown, and then nothing is said of it.

    `model` has type, parameters, layers and hidden; `fields` are the config fields that matter (see `fields_that_matter`);
    `hardware` has gpu, count and driver; `versions` maps packages to releases.
    """

    method: str | None = None
    model: Mapping[str, Scalar] = field(default_factory=dict)
    fields: Mapping[str, Scalar] = field(default_factory=dict)
    hardware: Mapping[str, Scalar] = field(default_factory=dict)
    versions: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One comparison. `date` is UTC in ISO 8601; `key` tells a rule's fixes apart; `command` reproduces it."""

    date: str
    rule: str
    title: str
    key: str
    effect: str
    conditions: Conditions
    pairs: tuple[Pair, ...]
    verdict: Verdict
    command: str
    tool: str


@dataclass(frozen=True)
class Evidence:
    """All records of a file in its order, and notes on what in it could not be read."""

    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()

    def for_finding(
        self, rule: str, method: str | None, *, key: str | None = None, now: Conditions | None = None
    ) -> Record | None:
        """The record that says most of a finding: one that decided, of conditions nearest to `now`, the newest of those.

        Another method's records say nothing of this one; a `method` that is None is not known and matches all.
        """

        def rank(record: Record) -> tuple[bool, int, str]:
            changes = len(stale(record, now)) if now else 0
            return record.verdict.name != "cannot tell", -changes, record.date

        fitting = [
            record
            for record in self.records
            if record.rule == rule
            and (method is None or record.conditions.method in (None, method))
            and key in (None, record.key)
        ]
        # Of equals the last one, which was appended last.
        return max(reversed(fitting), key=rank, default=None)


def place(start: str) -> str:
    """The evidence file for a script or folder: in the nearest folder above with a pyproject.toml or .git, else beside it."""
    start = os.path.abspath(start)
    own = folder = start if os.path.isdir(start) else os.path.dirname(start)
    while not any(os.path.lexists(os.path.join(folder, name)) for name in ("pyproject.toml", ".git")):
        if (parent := os.path.dirname(folder)) == folder:
            folder = own
            break
        folder = parent
    return os.path.join(folder, FOLDER, NAME)


# Conditions ----------------------------------------------------------------------------------------------------------


def fields_that_matter(config: Mapping[str, object]) -> dict[str, Scalar]:
    """The plain values of a config that decide speed, memory or training, in the order of their names."""
    return {
        name: value
        for name, value in sorted(config.items())
        if isinstance(value, str | int | float | bool | None) and not is_idle(name)
    }


def stale(record: Record, now: Conditions) -> list[str]:
    """What has changed since: "trl 1.15.0 -> 1.16.0". Empty when all that is known of both is the same."""
    then = record.conditions
    changes: list[str] = []
    if then.method and now.method and then.method != now.method:
        changes.append(f"method {then.method} -> {now.method}")
    changes += _changes(then.versions, now.versions, same=_same_release)
    changes += _changes(then.hardware, now.hardware, names={"gpu": "GPU", "count": "GPUs"}, same=_same_gpu)
    changes += _changes(then.model, now.model, names={name: f"model {name}" for name in then.model})
    changes += _changes(then.fields, now.fields)
    return changes


def _changes(
    then: Mapping[str, Scalar],
    now: Mapping[str, Scalar],
    *,
    names: Mapping[str, str] | None = None,
    same: Callable[[str, Scalar, Scalar], bool] | None = None,
) -> list[str]:
    return [
        f"{(names or {}).get(name, name)} {_shown(value)} -> {_shown(now[name])}"
        for name, value in then.items()
        if name in now and not (same or _same_value)(name, value, now[name])
    ]


def _shown(value: Scalar) -> str:
    return "none" if value is None else str(value)


def _same_value(_: str, then: Scalar, now: Scalar) -> bool:
    """As it would be written down: with so many digits, and without users' names."""
    return then == now or then == _clean(now, None)


def _same_release(package: str, then: Scalar, now: Scalar) -> bool:
    """Builds of a release are one ("2.11.0+cu130"), and so are patch releases of Python."""
    one, other = (str(value).partition("+")[0] if value is not None else None for value in (then, now))
    if package == "python" and one and other:
        return one.split(".")[:2] == other.split(".")[:2]
    return one == other


def _same_gpu(name: str, then: Scalar, now: Scalar) -> bool:
    """ "h200", as it is written in a project, is "NVIDIA H200", as the driver calls it."""
    if name != "gpu" or not isinstance(then, str) or not isinstance(now, str):
        return then == now
    from trl_lint.knowledge import gpu

    if (known := gpu(then)) is not None and known == gpu(now):
        return True
    one, other = (f" {' '.join(re.findall(r'[a-z0-9]+', text.lower()))} " for text in (then, now))
    return one in other or other in one


# Words ---------------------------------------------------------------------------------------------------------------


def summary(record: Record, changes: Sequence[str]) -> dict[str, object]:
    """The `evidence` of a finding in the JSON report."""
    verdict = record.verdict
    return {
        "verdict": verdict.name,
        "speedup": verdict.ratio,
        "low": verdict.low,
        "high": verdict.high,
        "hardware": record.conditions.hardware.get("gpu"),
        "date": record.date[:10],
        "stale": bool(changes),
    }


def sentence(record: Record, changes: Sequence[str]) -> str:
    """ "6.8x, measured on NVIDIA H200 on 2026-11-30; your run has since changed (trl 1.15.0 -> 1.16.0)"."""
    verdict = record.verdict
    what: str = verdict.name
    if verdict.name == "confirmed" and "speed" not in verdict.gains and verdict.memory_ratio:
        what = f"{verdict.memory_ratio - 1:+.0%} memory"
    elif verdict.name in ("confirmed", "slower") and verdict.ratio:
        what = f"{times(verdict.ratio)}x"
    on = record.conditions.hardware.get("gpu") or "CPU"
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    since = f"; your run has since changed ({', '.join(changes[:3])}{more})" if changes else ""
    return f"{what}, measured on {on} on {record.date[:10]}{since}"


# Writing -------------------------------------------------------------------------------------------------------------


def append(path: str, record: Record) -> None:
    """Add one record as one line, whole and on the disk when this returns. Raises EvidenceError, one line."""
    try:
        _append(path, record)
    except OSError as error:
        shown = os.path.join(os.path.basename(os.path.dirname(path)), os.path.basename(path))
        why = error.strerror or str(error)
        raise EvidenceError(f"{shown} cannot be written: {why}; this measurement is not recorded") from error


def _append(path: str, record: Record) -> None:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        # So that git, too, merges by keeping the lines of both sides.
        with contextlib.suppress(FileExistsError), open(os.path.join(folder, ".gitattributes"), "x") as attributes:
            attributes.write(f"{NAME} merge=union\n")
    line = dumped(record, project=os.path.dirname(folder)).encode() + b"\n"
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with _locked(handle):
            # A line that another writer could not finish, or an editor left without its end, must not take ours with it.
            if os.fstat(handle).st_size and os.lseek(handle, -1, os.SEEK_END) >= 0 and os.read(handle, 1) != b"\n":
                line = b"\n" + line
            if os.write(handle, line) < len(line):
                raise OSError(0, "the disk took only a part of the line")
            os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _locked(handle: int) -> Iterator[None]:
    """Alone with the file, where the file system can do that; without, a single O_APPEND write is atomic on a local disk."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    yield


def dumped(record: Record, project: str | None = None) -> str:
    """The record as one line of JSON without secrets, users' names and the place of the `project`."""
    where = record.conditions
    data = {
        "version": VERSION,
        "date": record.date,
        "rule": record.rule,
        "fix": {"title": record.title, "key": record.key, "effect": record.effect},
        "fingerprint": {"method": where.method, "model": where.model, "fields": where.fields},
        "hardware": where.hardware,
        "versions": where.versions,
        "pairs": [{"a": _plain(a), "b": _plain(b)} for a, b in record.pairs],
        "verdict": _plain(record.verdict),
        "command": record.command,
        "tool": record.tool,
    }
    return json.dumps(_clean(data, project), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Series | Verdict) -> dict[str, object]:
    """Its fields; what was not measured is left out."""
    return {f.name: item for f in fields(value) if (item := getattr(value, f.name)) not in (None, ())}


def _clean(value: object, project: str | None) -> object:
    """JSON has no NaN, six digits are more than a clock knows, and a team's repository is no place for secrets."""
    match value:
        case str():
            return _anonymous(redact(value), project)
        case float() if not math.isfinite(value):
            return str(value)
        case float():
            return float(f"{value:.6g}")
        case Mapping():
            return {key: _hidden(key, _clean(item, project)) for key, item in value.items()}
        case list() | tuple():
            return [_clean(item, project) for item in value]
        case _:
            return value


def _hidden(name: str, value: object) -> object:
    """Some values are secrets by their name alone."""
    return HIDDEN if isinstance(value, str) and value and HIDDEN in redact(f'{name}: "{value}"') else value


def _anonymous(text: str, project: str | None) -> str:
    """Paths without the folders that are the user's own."""
    if project and len(project) > 1:
        text = re.sub(rf"{re.escape(project)}(?=[/\\])", ".", text)
    home = os.path.expanduser("~")
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?=[/\\\s\"':]|$)", "~", text)
    return re.sub(r"(?<![\w.~])(?:[A-Za-z]:)?[/\\]+(?:home|Users)[/\\]+[^/\\\s\"':]+", "~", text)


# Reading -------------------------------------------------------------------------------------------------------------


def load(path: str) -> Evidence:
    """All that can be read of a file; nothing when there is none."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return Evidence()
    except OSError as error:
        return Evidence(notes=(f"{path} cannot be read: {error.strerror}; no evidence is used",))
    return parsed(data, path)


def parsed(data: bytes, path: str = NAME) -> Evidence:
    """What the lines say. Lines that came twice by a merge count once; a last line that was cut off is no one's news."""
    records: list[Record] = []
    notes: list[str] = []
    newer: list[object] = []
    lines = data.split(b"\n")
    seen: set[bytes] = set()
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line or line in seen:
            continue
        seen.add(line)
        if line.startswith((b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")):
            if line.startswith(b"<<<<<<<"):
                notes.append(f"{path}:{number}: a merge conflict is left; the lines of both sides are used")
            continue
        try:
            item = json.loads(line)
            if isinstance(item, dict) and isinstance(version := item.get("version"), int) and version > VERSION:
                newer.append(version)
            else:
                records.append(_record(item))
        except (ValueError, TypeError, RecursionError) as error:
            if number < len(
                lines
            ):  # else it has no newline: it was being written when the disk, or the machine, failed
                why = "no JSON" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else str(error)
                notes.append(f"{path}:{number}: cannot be read ({why}); ignored")
    if newer:
        count = f"{len(newer)} records are" if len(newer) > 1 else "1 record is"
        notes.append(f"{path}: {count} of a newer trl-lint (version {newer[-1]}); ignored")
    return Evidence(tuple(records), tuple(notes))


def _record(item: object) -> Record:
    """A record of a line; ValueError says what it lacks. Keys that are not known are ones of later releases."""
    data = _mapping(item, "record")
    fix = _mapping(data.get("fix"), "fix")
    fingerprint = _mapping(data.get("fingerprint"), "fingerprint")
    method = fingerprint.get("method")
    pairs = data.get("pairs")
    if not isinstance(pairs, list):
        raise ValueError("no pairs")
    return Record(
        _text(data, "date"),
        _text(data, "rule"),
        _text(fix, "title"),
        _text(fix, "key"),
        _text(fix, "effect"),
        Conditions(
            method if isinstance(method, str) else None,
            _scalars(fingerprint.get("model")),
            _scalars(fingerprint.get("fields")),
            _scalars(data.get("hardware")),
            {name: value for name, value in _scalars(data.get("versions")).items() if isinstance(value, str | None)},
        ),
        tuple((_series(_mapping(pair, "pair").get("a")), _series(_mapping(pair, "pair").get("b"))) for pair in pairs),
        _verdict(data.get("verdict")),
        _text(data, "command"),
        _text(data, "tool"),
    )


def _series(item: object) -> Series:
    data = _mapping(item, "series")
    logs = data.get("logs", [])
    known: dict[str, Any] = {
        name: tuple(_number(value) for value in _list(data.get(name, []), name))
        for name in ("seconds", "tokens", "losses", "allocated", "gpu_used", "generation", "samples", "reserved")
    }
    if None in known["seconds"]:
        raise ValueError("a step without seconds")
    known["outcome"] = _one_of(get_args(Outcome), data.get("outcome", "trained"))
    error = data.get("error")
    return Series(
        **known,
        startup=_number(data.get("startup")),
        error=error if isinstance(error, str) else None,
        logs=tuple(
            {str(name): _number(value) for name, value in _mapping(step, "logs").items()}
            for step in _list(logs, "logs")
        ),
    )


def _verdict(item: object) -> Verdict:
    data = dict(_mapping(item, "verdict"))
    name, reason = _one_of(get_args(Name), data.get("name")), data.get("reason", "")
    gains, metric, memory_metric = data.get("gains", []), data.get("metric"), data.get("memory_metric")
    numbers: dict[str, Any] = {
        key: _number(data.get(key))
        for key in ("ratio", "low", "high", "memory_ratio", "startup_cost_seconds", "memory_low", "memory_high")
    }
    payback, pairs = _number(data.get("payback_steps")), _number(data.get("pairs"))
    words: dict[str, Any] = {"name": name, "metric": metric, "memory_metric": memory_metric}
    return Verdict(
        **words,
        **numbers,
        reason=str(reason),
        gains=tuple(_list(gains, "gains")),
        payback_steps=None if payback is None else int(payback),
        pairs=int(pairs or 0),
    )


def _mapping(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"no {name}")
    return value


def _list(value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is no list")
    return value


def _text(data: Mapping[str, object], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ValueError(f"no {name}")
    return value


def _one_of(words: Sequence[str], value: object) -> object:
    if value not in words:
        raise ValueError(f"{value!r} is none of {', '.join(words)}")
    return value


def _scalars(value: object) -> dict[str, Scalar]:
    items: Iterable[tuple[object, object]] = value.items() if isinstance(value, dict) else ()
    return {str(name): item for name, item in items if isinstance(item, str | int | float | bool | None)}


def _number(value: object) -> int | float | None:
    """A number, or one of those that JSON has no word for; None for nothing. ValueError for all else."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if value in ("nan", "inf", "-inf"):
        return float(str(value))
    raise ValueError(f"{value!r} is no number")
