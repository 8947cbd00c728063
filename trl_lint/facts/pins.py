"""A file of a run in; out every place where its project says which TRL it runs on, with the text to write for another.

Only what a reader of this room has found is a place: the text of its line is searched for the very range that was read, so
that the bytes of a range are known and nothing else is touched. What has no such text (a lock, a git build) says why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trl_lint.facts.folders import folders_above, stated_in
from trl_lint.facts.head import read_comment, read_script
from trl_lint.facts.requirements import poetry_range, stated
from trl_lint.facts.words import Fact, says, shown
from trl_lint.settings import Settings

PACKAGE = "trl"
_CLAUSE = r"(?:===|==|~=|!=|<=|>=|<|>|=)\s*v?\d[\w.*+!-]*"
_RANGE = rf"{_CLAUSE}(?:\s*,\s*{_CLAUSE})*"
_REQUIRED = rf"(?<![\w./-])trl\s*(?:\[[^\]]*\])?\s*\(?\s*(?P<range>{_RANGE})"
# Poetry's table and our own settings: the range is a string of its own.
_TABLE = r"(?<![\w./-])[\"']?trl[\"']?\s*=\s*(?:\{.*?\bversion\s*=\s*)?[\"'](?P<range>[^\"']+)[\"']"


@dataclass(frozen=True)
class Pin:
    """One statement of a TRL range. `start` and `end` are byte offsets of `text`, the range as it is written, in `path`.

    `kind` is "text", or what it is instead: "lock" or "build".
    """

    path: str
    origin: str
    specifier: str
    kind: str = "text"
    start: int = 0
    end: int = 0
    text: str = ""


def pins(path: str, head: bytes, root: str, settings: Settings, *, header: bool = True) -> tuple[Pin, ...]:
    """The statements that hold for a file whose bytes are `head`: its own, its settings', and those of the nearest folder
    that makes any. `header` is False for a script that something starts in its project's environment."""
    path = os.path.abspath(path)
    name = shown(path, root)
    script = _of(read_script(head, name)[0])
    own = [*_of(read_comment(head, name).packages), *script]
    found = [pin for fact in own for pin in _in_text(fact, path, head)]
    for version in (v for p, v in settings.packages.items() if p == PACKAGE):
        fact = stated(PACKAGE, version, settings.origins[PACKAGE])
        found += _in_file(fact, root)
    if not script or not header:  # a script with requirements of its own runs in an environment of its own
        folders = folders_above(os.path.dirname(path), root)
        nearest = next((facts for folder in folders if (facts := stated_in(folder, root, PACKAGE))), ())
        found += [pin for fact in nearest for pin in _in_file(fact, root)]
    return tuple(dict.fromkeys(found))


def raised(text: str, specifier: str, version: str, releases: Sequence[str]) -> str | None:
    """The range `text` for another release, in the same style; None where it leads to that release already.

    `specifier` is what it means in PEP 440, `releases` all that are known. A range that would lead to a newer release
    becomes an exact pin.
    """
    from packaging.specifiers import SpecifierSet

    def newest(allowed: str) -> str | None:
        return next((r for r in reversed(releases) if SpecifierSet(allowed).contains(r)), None)

    if newest(specifier) == version:
        return None
    for candidate in _candidates(text, version):
        as_pep = poetry_range(candidate)
        try:
            if newest(as_pep if as_pep[:1] in "<>=!~" else f"=={as_pep}") == version:
                return candidate
        except ValueError:
            continue
    return version if text[:1].isdigit() else f"=={version}"


def _candidates(text: str, version: str) -> Iterator[str]:
    """The range with the new release in place of the old ones: lower bounds become it, upper ones the next such bound."""

    def moved(clause: re.Match[str]) -> str:
        operator, space, old = clause.groups()
        if operator in ("<", "<="):
            return f"{operator}{space}{version if operator == '<=' else _next(old, version)}"
        if old.endswith(".*"):
            return f"{operator}{space}{_cut(version, old.count('.'))}.*"
        return f"{operator}{space}{version}"

    yield re.sub(r"(===|==|~=|<=|>=|<|>|\^|~|=|^)(\s*)v?(\d[\w.*+-]*)", moved, text)


def _next(old: str, version: str) -> str:
    """The first release beyond a series, at the place where an upper bound ended one: `<0.20` becomes `<1.17`."""
    numbers = [int(n) for n in re.findall(r"\d+", old)]
    place = max((i for i, n in enumerate(numbers) if n), default=0)
    given = [int(n) for n in version.split(".")]
    raised_at = [*given[:place], (given[place] if place < len(given) else 0) + 1]
    return ".".join(map(str, raised_at + [0] * (len(numbers) - len(raised_at))))


def _cut(version: str, length: int) -> str:
    return ".".join(version.split(".")[:length])


# Where it stands ---------------------------------------------------------------------------------------------------------


def _of(facts: Mapping[str, Fact]) -> list[Fact]:
    return [fact for name, fact in facts.items() if name == PACKAGE and says(fact)]


def _in_file(fact: Fact, root: str) -> list[Pin]:
    place = re.fullmatch(r"(.+?)(?::\d+|, cell \d+)?", fact.origin)
    path = os.path.join(root, place[1] if place else fact.origin)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return []
    return _in_text(fact, path, data)


def _in_text(fact: Fact, path: str, data: bytes) -> list[Pin]:
    """The pin of a fact in the bytes of its file; of a notebook's cell every repetition of the same words."""
    if re.search(r"(?:\.lock|(?:^|/)pylock(?:\..+)?\.toml)$", path):
        return [Pin(path, fact.origin, fact.specifier, "lock")]
    if fact.commit is not None or not fact.specifier:
        return [Pin(path, fact.origin, fact.specifier, "build")] if fact.commit is not None else []
    lines = data.split(b"\n")
    place = re.search(r":(\d+)$", fact.origin)
    number = int(place[1]) - 1 if place else 0
    first, last = (number, number + 1) if place else (0, len(lines))
    offset = sum(len(line) + 1 for line in lines[:first])
    text = b"\n".join(lines[first:last]).decode("utf-8", "surrogateescape")
    found = [
        Pin(path, fact.origin, fact.specifier, "text", *_span(text, match, offset), match["range"])
        for pattern in (_REQUIRED, _TABLE)
        for match in re.finditer(pattern, text)
        if _means(match["range"], fact.specifier)
    ]
    return found or [Pin(path, fact.origin, fact.specifier, "other")]


def _span(text: str, match: re.Match[str], offset: int) -> tuple[int, int]:
    start = offset + len(text[: match.start("range")].encode("utf-8", "surrogateescape"))
    return start, start + len(match["range"].encode("utf-8", "surrogateescape"))


def _means(text: str, specifier: str) -> bool:
    """Whether a range as it is written, by any of the ways to write one, is the one that was read."""
    for way in (text, poetry_range(text), f"={text}", f"={text}.*"):
        try:
            if stated(PACKAGE, way, "").specifier == specifier:
                return True
        except ValueError:
            continue
    return False
