"""What a read Python file is to the rooms after this one; apart from its reader, so that a cached file needs no libcst."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trl_lint.model import Site

EXPECTED_TO_RAISE = "a test expects it to raise"
"""The `lenient` of a site that stands in `with pytest.raises(…)`: whatever is wrong there is meant."""


class Unparsable(ValueError):
    """The file is no Python that anybody could run; one line says where."""


@dataclass(frozen=True)
class Module:
    """What one Python source says: its sites, and the unsloth import that patches TRL if there is one.

    `reads` has, for each variable that holds a parsed config, the attributes of it that the file reads; "" stands for
    the object being passed on whole.
    """

    path: str
    sites: tuple[Site, ...]
    unsloth: str | None = None
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
