"""Requirement strings in, Facts out: specifiers, markers, git and archive pins; and `Reading`, which gathers one file's.

`packaging` is imported by the functions that need it, since a project without requirements should not pay for it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from trl_lint.facts.words import WATCHED, Fact, canonical, says

if TYPE_CHECKING:
    from packaging.markers import Marker
    from packaging.specifiers import SpecifierSet

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_URL = r"(?:git\+)?[a-z]+://\S+|git\+\S+"
_EGG = r"[#&]egg=([A-Za-z0-9._-]+)"
_WHEEL = r"/[A-Za-z0-9_.]+-(\d[^-/]*)-[^/]*\.whl$"
_ARCHIVE = r"/(?:[A-Za-z0-9_.-]+-)?(v?\d[^/]*?)\.(?:zip|tar\.gz)$"
_RELEASE_BRANCH = r"v?(\d+(?:\.\d+)*)-release"

Reach: TypeAlias = Literal["usual", "elsewhere", "nowhere"]


# One requirement -----------------------------------------------------------------------------------------------------


def stated(package: str, text: str, origin: str) -> Fact:
    """A fact given by hand: "1.9.2", ">=0.16,<1.0", "installed" or "not-installed". Raises ValueError."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    text = text.strip()
    if text == "installed":
        return Fact(package, "", None, "installed", origin)
    if text == "not-installed":
        return Fact(package, "", None, "not-installed", origin)
    try:
        specifiers = SpecifierSet(text if text[:1] in "<>=!~" else f"=={text}")
    except InvalidSpecifier:
        raise ValueError(f"{text!r} is neither a version of {package} nor a range of versions") from None
    return _fact(package, specifiers, origin)


def required(text: str, origin: str) -> tuple[Fact, Reach]:
    """One requirement as pip reads it, and where its marker holds. Raises ValueError."""
    from packaging.requirements import InvalidRequirement, Requirement

    text = text.strip()
    if re.match(_URL, text):
        return pinned_by_url(_name_of_url(text), text, origin), "usual"
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(str(error).splitlines()[0]) from None
    package = canonical(requirement.name)
    reach = reach_of(requirement.marker)
    if requirement.url:
        return pinned_by_url(package, requirement.url, origin), reach
    return replace(_fact(package, requirement.specifier, origin), extras=tuple(sorted(requirement.extras))), reach


def pinned_by_url(package: str, url: str, origin: str) -> Fact:
    """A direct reference: a git ref, an archive of a tag, or a wheel, whose name tells the version."""
    url, _, _ = url.partition("#")
    if url.startswith("git+"):
        _, _, ref = url.rpartition("/")[2].partition("@")
        # A ref may hold slashes itself ("refs/pull/12/head"): then the "@" stands before the last of them.
        if not ref and "@" in url.partition("://")[2].partition("/")[2]:
            ref = url.rpartition("@")[2]
        return pinned_by_ref(package, ref or None, origin)
    match = re.search(_WHEEL, url) or re.search(_ARCHIVE, url)
    return pinned_by_ref(package, match[1] if match else "an archive", origin)


def pinned_by_ref(package: str, ref: str | None, origin: str) -> Fact:
    """A git build. A tag is its version, a release branch its series; of any other ref only the name is known."""
    from packaging.version import InvalidVersion, Version

    if branch := re.fullmatch(_RELEASE_BRANCH, ref or ""):
        return Fact(package, f"=={branch[1]}.*", None, "declared", origin, ref)
    # A number without a dot is rather the start of a hash than a tag.
    if ref is not None and "." in ref:
        try:
            version = str(Version(ref.removeprefix("refs/tags/")))
        except InvalidVersion:
            pass
        else:
            return Fact(package, f"=={version}", version, "declared", origin, ref)
    return Fact(package, "", None, "declared", origin, ref or "HEAD")


def allows(specifier: str, version: str) -> bool:
    """Whether PEP 440 text admits a version, pre-releases included. A version that is none is admitted by "" alone."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if not specifier:
        return True
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, ValueError):
        return False


def _fact(package: str, specifiers: SpecifierSet, origin: str) -> Fact:
    from packaging.version import InvalidVersion, Version

    for specifier in specifiers:
        if specifier.operator in ("==", "===") and not specifier.version.endswith("*"):
            try:
                version = str(Version(specifier.version))
            except InvalidVersion:  # only `===` lets one through
                version = specifier.version
            return Fact(package, f"=={version}", version, "declared", origin)
    # SpecifierSet has no order of its own; people write the lower bound first.
    in_order = sorted(specifiers, key=lambda specifier: Version(specifier.version.removesuffix(".*")))
    return Fact(package, ",".join(map(str, in_order)), None, "declared", origin)


def _name_of_url(url: str) -> str:
    if egg := re.search(_EGG, url):
        return canonical(egg[1])
    path = re.sub(r"[@#?].*$", "", url.partition("://")[2].partition("/")[2])
    name = path.rpartition("/")[2].removesuffix(".git")
    return canonical(re.split(r"-\d", name)[0])


def reach_of(marker: Marker | None) -> Reach:
    """Training happens on Linux unless the files know better, so a marker that needs another system weighs less."""
    if marker is None:
        return "usual"
    if any(_holds(marker, "linux", "Linux", machine) for machine in ("x86_64", "aarch64")):
        return "usual"
    if _holds(marker, "darwin", "Darwin", "arm64") or _holds(marker, "win32", "Windows", "AMD64"):
        return "elsewhere"
    return "nowhere"


def _holds(marker: Marker, platform: str, system: str, machine: str) -> bool:
    where = {
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": machine,
        "os_name": "nt" if platform == "win32" else "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    # From the oldest Python that a TRL release known here ran on; both ends of a series, for python_full_version.
    pythons = [(f"3.{minor}", f"3.{minor}.{micro}") for minor in range(8, 16) for micro in (0, 99)]
    return any(
        marker.evaluate({**where, "python_version": series, "python_full_version": full}) for series, full in pythons
    )


# Poetry's and conda's own ways to write a range ----------------------------------------------------------------------


def poetry_range(text: str) -> str:
    """Poetry's constraint as PEP 440 text: "^1.2" becomes ">=1.2,<2". Alternatives ("||") have no such text: any."""
    if "|" in text:
        return ""
    return ",".join(filter(None, (_poetry_part(part.strip()) for part in text.split(","))))


def _poetry_part(part: str) -> str:
    if part in ("", "*"):
        return ""
    if part[0] in "<>=!" or part.startswith("~="):
        # Poetry also takes a single "=".
        return f"={part}" if re.match(r"=\d", part) else part
    if part[0] not in "^~":
        return f"=={part}"
    lower = part[1:].strip()
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", lower)[0])]
    if not numbers:
        return part  # no range of any kind: the caller's parser says so
    # "~1.2.3" keeps 1.2 and "~1" keeps 1; "^" keeps everything up to the first number that is not zero.
    keep = min(2, len(numbers)) if part[0] == "~" else next((i + 1 for i, n in enumerate(numbers) if n), len(numbers))
    upper = [*numbers[: keep - 1], numbers[keep - 1] + 1]
    return f">={lower},<{'.'.join(map(str, upper))}"


def conda_requirement(text: str) -> str:
    """conda's "conda-forge::trl=0.9" as pip would write it: "trl==0.9.*". PyTorch is `pytorch` there."""
    text = text.rpartition("::")[2].strip()
    name = re.match(NAME, text)
    if name is None:
        return text
    rest = text[name.end() :].strip()
    package = "torch" if canonical(name[0]) == "pytorch" else name[0]
    if fuzzy := re.fullmatch(r"=?\s*([\w.!+]+?)(\.?\*)?(?:[=\s]\s*(\S+))?", rest):
        version, _, build = fuzzy.groups()
        # "=1.2" is any 1.2.x; with a build string, or after a space ("trl 1.2"), it is that version.
        exact = build or (not rest.startswith("=") and not fuzzy[2])
        return f"{package}=={version}" if exact else f"{package}=={version}.*"
    return package + rest


# One file's requirements ---------------------------------------------------------------------------------------------


class Reading:
    """What one file says, while it is being read; `settled` is the outcome, at most one fact a package."""

    def __init__(self) -> None:
        self.always: list[Fact] = []
        self.perhaps: list[Fact] = []  # extras, dependency groups, markers of another system
        self.notes: list[str] = []

    def require(self, text: str, where: str, *, optional: bool = False) -> None:
        """Take one requirement string; `where` is "file:line". Packages that nobody watches are passed over unparsed."""
        name = re.match(NAME, text)
        if name is None:
            return self.note(where, f"{text!r} is no requirement")
        if (_name_of_url(text) if re.match(_URL, text) else canonical(name[0])) not in WATCHED:
            return None
        try:
            fact, reach = required(text, where)
        except ValueError as error:
            return self.note(where, str(error))
        if reach != "nowhere":
            self.take(fact, optional=optional or reach == "elsewhere")
        return None

    def take(self, fact: Fact, *, optional: bool = False) -> None:
        if fact.package in WATCHED:
            (self.perhaps if optional else self.always).append(fact)

    def note(self, where: str, why: str) -> None:
        self.notes.append(f"{where}: {why}; ignored")

    def settled(self, *, last: bool = False) -> dict[str, Fact]:
        """One fact a package. What is always required holds together; of alternatives the first counts.

        With `last`, the facts are installs that ran one after the other, and the last one that told a version counts.
        """
        facts: dict[str, Fact] = {}
        for package in dict.fromkeys(fact.package for fact in self.always + self.perhaps):
            always = [fact for fact in self.always if fact.package == package]
            perhaps = [fact for fact in self.perhaps if fact.package == package]
            if last:
                facts[package] = next((fact for fact in reversed(always) if says(fact)), (always + perhaps)[0])
            elif telling := [fact for fact in always if says(fact)]:
                facts[package] = self._together(telling)
            elif telling := [fact for fact in perhaps if says(fact)]:
                facts[package] = self._first(telling)
            else:
                facts[package] = (always + perhaps)[0]
        return facts

    def _together(self, facts: list[Fact]) -> Fact:
        exact = [fact for fact in facts if fact.version]
        if exact:
            return self._first(exact)
        built = next((fact for fact in facts if fact.commit), None)
        if built is not None or len(facts) == 1:
            return built or facts[0]
        ranges = dict.fromkeys(fact.specifier for fact in facts)
        return replace(
            facts[0], specifier=",".join(ranges), origin=", ".join(dict.fromkeys(fact.origin for fact in facts))
        )

    def _first(self, facts: list[Fact]) -> Fact:
        for other in facts[1:]:
            if other.specifier != facts[0].specifier:
                self.notes.append(disagreement(facts[0], other))
                break
        return facts[0]


def disagreement(used: Fact, other: Fact) -> str:
    one, two = (f"{fact.package}{wanted(fact)}" for fact in (used, other))
    return f"{used.origin} says {one} and {other.origin} says {two}; the first is used"


def wanted(fact: Fact) -> str:
    return fact.specifier or (f"@{fact.commit}" if fact.commit else "")
