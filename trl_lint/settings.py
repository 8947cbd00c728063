"""A file's path in; out the `Settings` for it: `[tool.trl-lint]` of the nearest pyproject.toml above that has the table.

A mistake in the table is the user's to correct before anything is linted: `SettingsError`, one line with the place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache


class SettingsError(ValueError):
    """ "pyproject.toml:12: unknown key 'selct' in [tool.trl-lint]; did you mean 'select'?" """


# The packages whose version the table may state: those with a name of their own on the command line, and Liger's kin.
PACKAGES = ("trl", "vllm", "transformers", "liger-kernel", "kernels")

_LISTS = ("select", "ignore", "exclude")
_TEXTS = (*PACKAGES, "gpu", "python", "fail-on")
_FLAGS = ("possible",)
_KEYS = (*_LISTS, "fail-on", "possible", *PACKAGES, "gpu", "python")
_FAIL_ON = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Settings:
    """The table's values; None where it has none. `origins` maps each given key to "pyproject.toml:12".

    `packages` maps names to version text ("1.9.2", ">=0.16,<1.0"). `python` is joined to `folder`, the table's folder,
    when it was written as a relative path; `exclude` globs are relative to that folder too.
    """

    folder: str | None = None
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    fail_on: str | None = None
    possible: bool | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    gpu: str | None = None
    python: str | None = None
    origins: Mapping[str, str] = field(default_factory=dict)


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
        fail_on=table.get("fail-on"),
        possible=table.get("possible"),
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
    if key == "fail-on" and value not in _FAIL_ON:
        return f"fail-on must be one of {', '.join(_FAIL_ON)}, not {value!r}"
    return None


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
