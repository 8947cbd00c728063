"""What a read Python file is to the rooms after this one; apart from its reader, so that a cached file needs no libcst."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trl_lint.model import Argument, Command, Site, Value

PARSED = "the command line and --config decide"
"""The `open` of a config that a parser builds: nothing is given where it stands, everything may be given elsewhere."""

EXPECTED_TO_RAISE = "a test expects it to raise"
"""The `lenient` of a site that stands in `with pytest.raises(…)`: whatever is wrong there is meant."""


class Unparsable(ValueError):
    """The file is no Python that anybody could run; one line says where."""


@dataclass(frozen=True)
class LocalClass:
    """A class that a file defines: its bases as dotted names (imports resolved), its annotated fields with their
    defaults, and the names of its methods.
    """

    name: str
    bases: tuple[str, ...]
    fields: Mapping[str, Value]
    methods: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Parser:
    """A TrlParser or HfArgumentParser: the dataclasses that it builds, in order, as dotted names (imports resolved).

    `tolerant` says why unknown arguments are accepted; `sites` holds, beside each class, the config site that stands
    for it in this file, None for a class that is none of TRL's.
    """

    name: str
    classes: tuple[str, ...]
    sites: tuple[Site | None, ...]
    tolerant: str | None = None


@dataclass(frozen=True)
class Module:
    """What one source says: its sites and commands, and for Python the unsloth import that patches TRL if there is one.

    `reads` has, for each variable that holds a parsed config, the attributes of it that the file reads; "" stands for
    the object being passed on whole. `schema` says whose file a YAML document is when it is not TRL's. `written` holds the sources that a notebook or script writes to files
    of their own (`%%writefile train.py`), by the path they are given. `environment` is what Python sets in os.environ.
    `handed` are the variables of configs that the file gives, as `args`, to a trainer that is none of TRL's. `imports` are
    the names that the file takes from elsewhere, by dotted path: a package hands on its modules' names so. `told` are the
    commands that its prose shows to a reader: nothing here runs them.
    """

    path: str
    sites: tuple[Site, ...]
    unsloth: str | None = None
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    commands: tuple[Command, ...] = ()
    parsers: tuple[Parser, ...] = ()
    classes: Mapping[str, LocalClass] = field(default_factory=dict)
    environment: Mapping[str, Argument] = field(default_factory=dict)
    schema: str | None = None
    written: Mapping[str, Module] = field(default_factory=dict)
    handed: frozenset[str] = frozenset()
    imports: Mapping[str, str] = field(default_factory=dict)
    stars: tuple[str, ...] = ()
    told: tuple[Command, ...] = ()
