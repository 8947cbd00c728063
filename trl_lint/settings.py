"""A file's path in; out the `Settings` for it: `[tool.trl-lint]` of the nearest pyproject.toml above that has the table.

A mistake in the table is the user's to correct before anything is linted: `SettingsError`, one line with the place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any


class SettingsError(ValueError):
    """ "pyproject.toml:12: unknown key 'selct' in [tool.trl-lint]; did you mean 'select'?" """


# The packages whose version the table may state: those with a name of their own on the command line, and Liger's kin.
PACKAGES = ("trl", "vllm", "transformers", "liger-kernel", "kernels")

_LISTS = ("select", "ignore", "exclude", "rules")
_TEXTS = (*PACKAGES, "gpu", "python", "fail-on", "baseline")
_FLAGS = ("possible",)
_TABLES = ("severity", "per-path")
_KEYS = (*_LISTS, *_TABLES, "fail-on", "possible", "baseline", *PACKAGES, "gpu", "python")
_OF_A_PATH = ("ignore", "severity")
_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class PerPath:
    """What one `[tool.trl-lint.per-path."glob"]` adds for the files that the glob matches."""

    glob: str
    ignore: tuple[str, ...] = ()
    severity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """The table's values; None where it has none. `origins` maps each given key to "pyproject.toml:12".

    `packages` maps names to version text ("1.9.2", ">=0.16,<1.0"). `python` is joined to `folder`, the table's folder,
    when it was written as a relative path, and so are `rules`, the folders of the project's own pages, and `baseline`;
    `exclude` and `per_path` globs, written as in .gitignore, are relative to that folder too. `severity` maps names of
    rules and groups to a severity.
    """

    folder: str | None = None
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    rules: tuple[str, ...] | None = None
    severity: Mapping[str, str] | None = None
    per_path: tuple[PerPath, ...] | None = None
    fail_on: str | None = None
    possible: bool | None = None
    baseline: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    gpu: str | None = None
    python: str | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    def ignored_at(self, path: str) -> frozenset[str]:
        """The rules and groups that `per-path` tables ignore for a file."""
        return frozenset(name for table in self._of_path(path) for name in table.ignore)

    def severity_of(self, path: str, rule: str, group: str) -> str | None:
        """The severity that is set for a rule in a file: a table of its path before the common one, its own name before its group's."""
        for severities in (*(t.severity for t in reversed(self._of_path(path))), self.severity or {}):
            if found := severities.get(rule) or severities.get(group):
                return found
        return None

    def rule_names(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Every name of a rule or group in the table, by the key of `origins` it stands under."""
        yield "select", self.select or ()
        yield "ignore", self.ignore or ()
        yield "severity", tuple(self.severity or ())
        yield "per-path", tuple(n for table in self.per_path or () for n in (*table.ignore, *table.severity))

    def _of_path(self, path: str) -> tuple[PerPath, ...]:
        if not self.per_path or self.folder is None:
            return ()
        inside = os.path.relpath(path, self.folder)
        return tuple(table for table in self.per_path if _matcher(table.glob)(inside))


_NOTHING = Settings()


def load(start: str) -> Settings:
    """The settings that hold for a file or folder, read once a folder. Raises SettingsError."""
    path = os.path.abspath(start)
    return _load(path if os.path.isdir(path) else os.path.dirname(path))


@cache
def _load(folder: str) -> Settings:
    path = os.path.join(folder, "pyproject.toml")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        data = b""
    # Parsing costs more than all the rest, and few files name this tool.
    if b"trl-lint" in data and (settings := _read(path, data)):
        return settings
    parent = os.path.dirname(folder)
    if parent == folder or os.path.lexists(os.path.join(folder, ".git")):
        return _NOTHING
    return _load(parent)


def forget() -> None:
    """Drop all that was read; for a process that outlives a change of a pyproject.toml."""
    _load.cache_clear()


def describe(settings: Settings) -> list[str]:
    """The lines of `--show-settings`: every key with its value, and where that was given."""
    lines: list[str] = []
    for key in _KEYS:
        value = _value(settings, key)
        if key == "per-path" and settings.per_path is not None:
            value = {t.glob: {"ignore": list(t.ignore), "severity": t.severity} for t in settings.per_path}
        text = "not set" if value is None else repr(list(value)) if isinstance(value, tuple) else repr(value)
        lines.append(f"{key} = {text} (from {settings.origins.get(key, 'the default')})")
    return lines


def _value(settings: Settings, key: str) -> object:
    return settings.packages.get(key) if key in PACKAGES else getattr(settings, key.replace("-", "_"))


def _read(path: str, data: bytes) -> Settings | None:
    """The table of one file, or None when the file has none."""
    import tomllib

    shown = _shown(path)
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        line = re.search(r"line (\d+)", place)
        number = line[1] if line else text.count("\n") + 1
        raise SettingsError(f"{shown}:{number}: cannot read [tool.trl-lint], the file is no TOML: {what}") from None
    tool = document.get("tool")
    if not isinstance(tool, dict) or "trl-lint" not in tool:
        return None
    table = tool["trl-lint"]
    if not isinstance(table, dict):
        raise SettingsError(f"{shown}:{_line(text, 'trl-lint')}: tool.trl-lint must be a table")
    origins = {key: f"{shown}:{_line(text, key)}" for key in table}
    for key, value in table.items():
        if why := _mistake(key, value):
            raise SettingsError(f"{origins[key]}: {why}")
    folder = os.path.dirname(path)
    return Settings(
        folder=folder,
        select=_words(table, "select"),
        ignore=_words(table, "ignore"),
        exclude=_words(table, "exclude"),
        rules=tuple(_joined(folder, f) for f in table["rules"]) if "rules" in table else None,
        severity=table.get("severity"),
        per_path=_per_path(table["per-path"]) if "per-path" in table else None,
        fail_on=table.get("fail-on"),
        possible=table.get("possible"),
        baseline=_joined(folder, table["baseline"]) if "baseline" in table else None,
        packages={key: table[key] for key in PACKAGES if key in table},
        gpu=table.get("gpu"),
        python=_path(folder, table.get("python")),
        origins=origins,
    )


def _mistake(key: str, value: object) -> str | None:
    """What is wrong with one entry, or None."""
    if key not in _KEYS:
        import difflib

        # People write the command line's `--fail-on` as an attribute, and TOML does not mind.
        close = difflib.get_close_matches(key.replace("_", "-").lower(), _KEYS, 1)
        return f"unknown key {key!r} in [tool.trl-lint]" + (f"; did you mean {close[0]!r}?" if close else "")
    if key in _LISTS and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return f"{key} must be a list of strings, not {value!r}"
    if key in _TEXTS and not isinstance(value, str):
        return f"{key} must be a string, not {value!r}"
    if key in _FLAGS and not isinstance(value, bool):
        return f"{key} must be true or false, not {value!r}"
    if key == "fail-on" and value not in _SEVERITIES:
        return f"fail-on must be one of {', '.join(_SEVERITIES)}, not {value!r}"
    if key == "severity":
        return _no_severities(value)
    if key == "per-path":
        return _no_paths(value)
    return None


def _no_severities(value: object) -> str | None:
    if not isinstance(value, dict):
        return f'severity must be a table like {{ "rule-or-group" = "note" }}, not {value!r}'
    wrong = next((item for item in value.items() if item[1] not in _SEVERITIES), None)
    if wrong is None:
        return None
    return f"severity of {wrong[0]} must be one of {', '.join(_SEVERITIES)}, not {wrong[1]!r}"


def _no_paths(value: object) -> str | None:
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        return 'per-path holds tables by glob: [tool.trl-lint.per-path."tests/**"]'
    for glob, table in value.items():
        for key, given in table.items():
            if key not in _OF_A_PATH:
                return f"unknown key {key!r} in per-path.{glob!r}: it takes {' and '.join(_OF_A_PATH)}"
            if why := _mistake(key, given):
                return f"per-path.{glob!r}: {why}"
    return None


def _per_path(tables: Mapping[str, Mapping[str, Any]]) -> tuple[PerPath, ...]:
    return tuple(PerPath(g, tuple(t.get("ignore", ())), t.get("severity", {})) for g, t in tables.items())


@cache
def _matcher(glob: str) -> Callable[[str], bool]:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines([glob]).match_file


def _joined(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _words(table: Mapping[str, list[str]], key: str) -> tuple[str, ...] | None:
    return tuple(table[key]) if key in table else None


def _path(folder: str, python: str | None) -> str | None:
    """A path is relative to its pyproject.toml; a bare "python3.12" is looked up on PATH unless it stands there."""
    if python is None:
        return None
    joined = os.path.join(folder, os.path.expanduser(python))
    return joined if os.sep in python or os.path.exists(joined) else python


def _line(text: str, key: str) -> int:
    """The line of a key, searched from the table's header on: tomllib keeps no places."""
    header = re.search(r"(?m)^\s*\[\s*tool\s*\.\s*[\"']?trl-lint[\"']?\s*\]", text)
    start = header.end() if header else 0
    quoted = re.escape(key)
    found = re.compile(rf"(?m)(?:^|[{{,.])\s*[\"']?{quoted}[\"']?\s*[=.]").search(text, start)
    offset = found.end() if found else max(text.find("trl-lint"), 0)
    return text.count("\n", 0, offset) + 1


def _shown(path: str) -> str:
    """As a person in this folder would name the file."""
    here = os.path.join(os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path
