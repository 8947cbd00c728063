"""A TRL release and perhaps a vLLM release in, how trainer and vLLM server meet out. The rows are `curated/serving.toml`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from trl_lint.knowledge.curated import rows
from trl_lint.knowledge.load import known, newest
from trl_lint.knowledge.load import trl as release

Endpoints: TypeAlias = Literal["none", "trl", "vllm"]
Mode: TypeAlias = Literal["none", "engine", "server", "colocate"]
Side: TypeAlias = Literal["server", "trainer", "either"]

GROUP_PORT: Final = 51216
"""The port of the weight group where the config has no `vllm_group_port` (before TRL 0.27)."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of `trl vllm-serve` as `vllm serve` takes it. `off` is the flag for False ("" where there is none).

    `written` says whether the flag must be written though nobody gave it, since vLLM's own default is another; None
    where the vLLM release that decides is not known.
    """

    field: str
    flag: str
    off: str | None
    written: bool | None


@dataclass(frozen=True, slots=True)
class Limit:
    """What a pair of releases cannot do. `holds` is None where it depends on a vLLM release that is not known.

    `when` is the setting that meets it, `what` happens then, `instead` is the way out; `side` is where the setting
    stands.
    """

    name: str
    holds: bool | None
    side: Side
    when: str
    what: str
    instead: str
    trl: str
    vllm: str
    source: str


@dataclass(frozen=True, slots=True)
class Serving:
    """How a trainer and its vLLM server meet; see the head of `curated/serving.toml` for the fields.

    `arguments` are what the wrapper adds to `vllm serve`, those of the given vLLM release included.
    """

    trl: str
    vllm: str | None
    command: bool
    deprecated: bool
    wrapper: bool
    endpoints: Endpoints
    mode: Mode
    same_gpu: Literal["trl", "nccl"] | None
    device: Literal["first", "own"] | None
    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    options: tuple[Option, ...] = field(repr=False)
    limits: tuple[Limit, ...] = field(repr=False)
    source: str

    def limit(self, name: str) -> bool | None:
        """Whether a limit holds; False for one that this TRL release does not know, None where vLLM decides."""
        return next((limit.holds for limit in self.limits if limit.name == name), False)

    def replacement(self, given: Mapping[str, object]) -> tuple[str, ...] | None:
        """The words of the `vllm serve` that the wrapper runs for the options `given` by field name.

        Options that nobody gave are left out where vLLM's default is the same. None where there is no wrapper, where the
        model is not given, or where an option is none of the command's. The environment is `environment`.
        """
        if not self.wrapper or "model" not in given or not given.keys() <= {"model", *_fields(self.options)}:
            return None
        words = ["vllm", "serve", str(given["model"])]
        for option in self.options:
            if option.field in given:
                words += _words(option, given[option.field])
            elif option.written is not False:
                words += _words(option, self._default(option.field))
        return (*words, *self.arguments)

    def _default(self, name: str) -> object:
        found = release(known("trl", self.trl) or newest("trl")).serve.get(name)
        return None if found is None else found.default


def serve_default(name: str) -> object:
    """What `vllm serve` uses for an option that nobody gave, None where that is not recorded."""
    return rows("serving")["default"].get(name)


@cache
def serving(trl_release: str, vllm_version: str | None = None) -> Serving:
    """What holds for a TRL release, known or not (a development version counts by its number), and a vLLM release.

    InvalidVersion for a TRL release that is no version.
    """
    row = next(row for row in rows("serving")["server"] if _within(trl_release, row["trl"]))
    added = [
        row["arguments"]
        for row in rows("serving")["addition"]
        if _within(trl_release, row["trl"]) and _holds(vllm_version, row["vllm"])
    ]
    wrapper = row.get("wrapper", False)
    return Serving(
        trl=trl_release,
        vllm=vllm_version,
        command=row["command"],
        deprecated=row.get("deprecated", False),
        wrapper=wrapper,
        endpoints=row["endpoints"],
        mode=row["mode"],
        same_gpu=row.get("same_gpu"),
        device=row.get("device"),
        environment=row.get("environment", {}),
        arguments=(*(word for words in added if wrapper for word in words), *row.get("arguments", ())),
        options=tuple(_option(entry, vllm_version) for entry in rows("serving")["option"]) if wrapper else (),
        limits=tuple(
            _limit(entry, vllm_version) for entry in rows("serving")["limit"] if _within(trl_release, entry["trl"])
        ),
        source=row["source"],
    )


def _option(row: Mapping[str, Any], vllm_version: str | None) -> Option:
    written = _holds(vllm_version, row["vllm"]) if "vllm" in row else False
    return Option(row["field"], row["flag"], row.get("off"), written)


def _limit(row: Mapping[str, Any], vllm_version: str | None) -> Limit:
    return Limit(
        name=row["name"],
        holds=_holds(vllm_version, row.get("vllm", "")),
        side=row["side"],
        when=row["when"],
        what=row["what"],
        instead=row["instead"],
        trl=row["trl"],
        vllm=row.get("vllm", ""),
        source=row["source"],
    )


def _words(option: Option, value: object) -> list[str]:
    if option.off is not None:
        flag = option.flag if value is True else option.off if value is False else ""
        return [flag] if flag else []
    return [] if value is None else [option.flag, str(value)]


def _fields(options: Iterable[Option]) -> set[str]:
    return {option.field for option in options}


def _holds(version: str | None, specifier: str) -> bool | None:
    """Whether a release lies in a range; None where it is not known, and a range that takes every one needs none."""
    from packaging.version import InvalidVersion

    if specifier in ("", ">=0"):
        return True
    try:
        return None if version is None else _within(version, specifier)
    except InvalidVersion:
        return None


def _within(version: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    return SpecifierSet(specifier).contains(Version(version).public, prereleases=True)
