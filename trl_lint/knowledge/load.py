"""A package and a release in, what that release accepts out. Tables are read when first asked for and never changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, Literal

from trl_lint.knowledge.fold import at, decode, encode, holds, rows_at

PACKAGES: Final = ("trl", "transformers", "vllm", "liger-kernel", "kernels")
HARVESTED: Final = Path(__file__).parent / "harvested"


class UnknownRelease(LookupError):
    """A release that the tables do not hold; the text says which, and the range that they do hold."""


class _Sentinel:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


UNREAD: Final = _Sentinel("UNREAD")
"""The default of a field whose value is not a literal in the source."""

REQUIRED: Final = _Sentinel("REQUIRED")
"""The default of a field that has none."""


@dataclass(frozen=True, slots=True)
class Field:
    """One config field. `default` is a literal (lists as tuples), REQUIRED, or UNREAD with its text in `expression`."""

    type: str
    default: object
    choices: tuple[object, ...] | None = None
    expression: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One assignment of a `__post_init__`: where `when` holds (always, if empty), `field` becomes `value`.

    Both are expressions over field names, evaluated in the state that the steps before left behind; a `value` of None
    means that the field cannot be known from here on. A `field` such as `_GRPOConfig_1` is no field: it keeps a
    condition that later steps name.
    """

    field: str
    value: str | None
    when: str


@dataclass(frozen=True, slots=True)
class Guard:
    """One place where a config, a trainer or what they call raises or warns, and the condition under which it does.

    `name` is the same in all releases that look alike: the class that it belongs to, and the tests that lead there. `when` is the whole
    condition in the language of rules, where `opaque('…')` stands for what no file can say; of a config it holds in the
    middle of the steps (`TrlRelease.sequence`), of a trainer over the config that these left. `kind` is the exception or
    warning class, "log" for a logged warning. `place` is "file:function" in the package. `phase` is "construction",
    "first step" (of any training), or "training" where nothing says that it is ever met. `certain` is False where one operand
    is opaque, so that no files can make the condition true.
    """

    name: str
    owner: str
    effect: Literal["raise", "warn"]
    kind: str
    when: str
    place: str
    phase: str
    certain: bool

    @property
    def fields(self) -> tuple[str, ...]:
        """The names that the condition reads, in order, `trainer.x` and the like included."""
        return _names_read(self.when)

    @property
    def opaque(self) -> tuple[str, ...]:
        """What the condition asks that no file can say."""
        import ast

        calls = (n for n in ast.walk(ast.parse(self.when or "True")) if isinstance(n, ast.Call))
        return tuple(ast.literal_eval(n.args[0]) for n in calls if ast.unparse(n.func) == "opaque")


SUPER: Final = "super"
"""The field of the step that stands for the steps of transformers' TrainingArguments."""


@dataclass(frozen=True, slots=True)
class ConfigClass:
    """A config class of one release, its TRL bases resolved; fields that only TrainingArguments has are not here."""

    name: str
    module: str
    bases: tuple[str, ...]
    training_arguments: bool
    fields: Mapping[str, Field]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class TrainerClass:
    """The constructor of a trainer of one release, its TRL bases resolved.

    `keywords` are in positional order; `renames` are old names that a decorator still maps; `deprecated` are accepted
    with a warning; `variadic` says that more keywords may be given.
    """

    name: str
    module: str
    bases: tuple[str, ...]
    keywords: tuple[str, ...]
    required: tuple[str, ...]
    variadic: bool
    renames: Mapping[str, str]
    deprecated: tuple[str, ...]
    config: str | None


@dataclass(frozen=True, slots=True)
class Script:
    """The script behind a subcommand of `trl`.

    `classes` are the dataclasses of its parser, in order; fields of those that the tables hold under no bare name are in
    `own`. `tolerant` scripts are not stopped by recipe keys that no class has, `tolerant_flags` ones not by such flags.
    `launches` says whether `trl NAME` hands both to `accelerate launch` first (which refuses what it does not know
    either); where it does not, a tolerant script loses them, the flags of the launcher included.

    `model` is "name" where the trainer gets `model_name_or_path` itself, "loaded" where the script loads the model, None
    where it trains nothing. `reaches` maps keywords of that load to the ModelConfig fields that they come from: no other
    field of ModelConfig has an effect on it. `keeps` says whether `model_init_kwargs` of the config still counts then
    (it wins over `reaches`). `peft` and `quantization` say whether ModelConfig's LoRA and bitsandbytes fields are used.
    """

    name: str
    module: str
    parser: str
    classes: tuple[str, ...]
    own: Mapping[str, Mapping[str, Field]] = field(repr=False)
    tolerant: bool
    tolerant_flags: bool
    launches: bool
    trainer: str | None
    model: str | None
    reaches: Mapping[str, str]
    keeps: bool
    peft: bool
    quantization: bool


@dataclass(frozen=True, slots=True)
class ParserFacts:
    """What `TrlParser.parse_args_and_config` does with a recipe.

    `unknown` is "raises" or "dropped": keys that no dataclass has; `lenient` are the keyword values that drop them where
    they raise. `joined` says whether `--config=x` as one word is understood, `abbreviations` whether a prefix of a flag
    is, `commands` whether `trl NAME --config x` is.
    """

    unknown: str
    lenient: Mapping[str, bool]
    joined: bool
    abbreviations: bool
    commands: bool


class TrlRelease:
    """What one TRL release accepts. Classes are resolved when asked for."""

    def __init__(self, table: Mapping[str, Any], index: int, version: str) -> None:
        self.version = version
        self._table = table
        self._index = index
        self._configs: dict[str, ConfigClass | None] = {}
        self._trainers: dict[str, TrainerClass | None] = {}
        self._exports: dict[str, frozenset[str] | None] = {}
        self._sequences: dict[str, tuple[Step | Guard, ...]] = {}
        self._guards: dict[str, tuple[Guard, ...]] = {}

    def config(self, name: str) -> ConfigClass | None:
        """A config class by name, or None where the release has none."""
        if name not in self._configs:
            self._configs[name] = self._resolve_config(name) if name in self.configs() else None
        return self._configs[name]

    def configs(self) -> tuple[str, ...]:
        """The names of all config classes, sorted."""
        return self._config_names

    def trainer(self, name: str) -> TrainerClass | None:
        """A trainer class by name, or None where the release has none."""
        if name not in self._trainers:
            self._trainers[name] = self._resolve_trainer(name) if name in self.trainers() else None
        return self._trainers[name]

    def trainers(self) -> tuple[str, ...]:
        """The names of all trainer classes, sorted."""
        return self._trainer_names

    def modules_of(self, symbol: str) -> tuple[str, ...]:
        """The modules that `symbol` can be imported from, the shortest first."""
        found = [module for module, groups in self._table["exports"].items() if _named(groups, symbol, self._index)]
        return tuple(sorted(found, key=lambda module: (module.count("."), len(module), module)))

    def exports(self, module: str) -> frozenset[str] | None:
        """The names that `module` offers; None where the release has no such module."""
        if module not in self._exports:
            groups = self._table["exports"].get(module, {})
            self._exports[module] = _names_at(groups, self._index)
        return self._exports[module]

    def sequence(self, name: str) -> tuple[Step | Guard, ...]:
        """The steps and guards of a config class in the order of its `__post_init__`, its TRL bases written out.

        A step of the field "super" stands for those of TrainingArguments, which depend on the transformers release.
        """
        if name not in self._sequences:
            chain = list(_chain(self._table["configs"], name, self._index))
            self._sequences[name] = tuple(self._sequence(chain, "")) if name in self.configs() else ()
        return self._sequences[name]

    def guards(self, name: str) -> tuple[Guard, ...]:
        """What a config or trainer class refuses and warns of, in the order in which it looks; () for any other."""
        if name in self.configs():
            return tuple(row for row in self.sequence(name) if isinstance(row, Guard))
        if name not in self._guards:
            rows = self._rows(name) if name in self.trainers() else None
            self._guards[name] = tuple(_guard(row, row[2]) for row in rows or ())
        return self._guards[name]

    def _rows(self, name: str) -> list[list[str | None]] | None:
        """The rows of a class in this release: of the table at hand, or of the file that holds those of the releases."""
        entry = self._table["guards"].get(name) if "guards" in self._table else _guarded("trl", name)
        return None if entry is None else rows_at(entry, self._index)

    def _sequence(self, chain: Sequence[str], when: str) -> Iterator[Step | Guard]:
        if not chain:
            yield Step(SUPER, None, when)
            return
        own = self._rows(chain[0])
        if own is None:
            yield from self._sequence(chain[1:], when)
            return
        for row in own:
            both = _both(when, row[2] or "")
            if row[0] == SUPER:
                yield from self._sequence(chain[1:], both)
            else:
                yield _row(row, both)

    @cached_property
    def requires(self) -> Mapping[str, str]:
        """Package to specifier text: what the core requires, else what an extra does. Markers are dropped."""
        return _requires(self._table["requires"], self._index)

    @property
    def python(self) -> str:
        """The Python that the release requires, as specifier text."""
        return str(at(self._table["python"], self._index, ""))

    @property
    def vllm_range(self) -> tuple[str, str] | None:
        """The lowest and highest vLLM that the release takes without a warning; None where it does not look."""
        bounds = at(self._table["vllm_range"], self._index)
        return None if bounds is None else (bounds[0], bounds[1])

    @property
    def liger_minimum(self) -> str | None:
        """The oldest liger-kernel that the release takes; None where it does not look."""
        minimum = at(self._table["liger_minimum"], self._index)
        return None if minimum is None else str(minimum)

    @property
    def attention_varlen(self) -> tuple[str, ...] | None:
        """The attention implementations that SFT takes for padding-free batches; None where it does not look."""
        names = at(self._table["attention_varlen"], self._index)
        return None if names is None else tuple(names)

    @property
    def commands(self) -> tuple[str, ...]:
        """The subcommands of `trl`, sorted."""
        return tuple(at(self._table["commands"], self._index, ()))

    def script(self, name: str) -> Script | None:
        """The script of a subcommand ("vllm-serve") or file ("vllm_serve"); None where the release has none."""
        stem = name.replace("-", "_")
        entry = self._table.get("scripts", {}).get(stem, {})
        given = {key: at(leaf, self._index) for key, leaf in entry.items() if key != "own"}
        if given.get("classes") is None:
            return None
        own = {owner: self._fields(fields) for owner, fields in entry.get("own", {}).items()}
        return Script(
            name=stem,
            module=given["module"],
            parser=given["parser"],
            classes=tuple(given["classes"]),
            own={owner: fields for owner, fields in own.items() if fields},
            tolerant=given["tolerant"],
            tolerant_flags=given["tolerant_flags"],
            launches=given["launches"],
            trainer=given.get("trainer"),
            model=given.get("model"),
            reaches=given.get("reaches") or {},
            keeps=bool(given.get("keeps")),
            peft=bool(given.get("peft")),
            quantization=bool(given.get("quantization")),
        )

    @cached_property
    def serve(self) -> Mapping[str, Field]:
        """The options of `trl vllm-serve` by field name; empty where the release has no such command."""
        script = self.script("vllm-serve")
        return {} if script is None else script.own.get("ScriptArguments", {})

    @cached_property
    def parser(self) -> ParserFacts | None:
        """What the release's `TrlParser` does with a recipe; None where there is none that can be read."""
        facts = at(self._table.get("parser"), self._index)
        return None if facts is None else ParserFacts(**facts)

    def _fields(self, own: Mapping[str, Any]) -> Mapping[str, Field]:
        given = {name: at(leaf, self._index) for name, leaf in own.items()}
        return {name: _field(value) for name, value in given.items() if value is not None}

    @cached_property
    def _config_names(self) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._table["configs"] if self._bases("configs", name) is not None))

    @cached_property
    def _trainer_names(self) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._table["trainers"] if self._bases("trainers", name) is not None))

    def _bases(self, kind: str, name: str) -> list[str] | None:
        bases: list[str] | None = at(self._table[kind].get(name, {}).get("bases"), self._index)
        return bases

    def _resolve_config(self, name: str) -> ConfigClass:
        entry = self._table["configs"][name]
        chain = list(_chain(self._table["configs"], name, self._index))
        fields: dict[str, Field] = {}
        for link in reversed(chain):
            own = self._table["configs"][link].get("fields", {})
            fields |= self._fields(own)
        return ConfigClass(
            name=name,
            module=at(entry["module"], self._index),
            bases=tuple(self._bases("configs", name) or ()),
            training_arguments=any(
                base.endswith("TrainingArguments") for link in chain for base in self._bases("configs", link) or ()
            ),
            fields=fields,
            steps=tuple(self._steps(chain, "")),
        )

    def _steps(self, chain: Sequence[str], when: str) -> Iterator[Step]:
        """The steps of a class whose method resolution order is `chain`, with each `super` written out."""
        if not chain:
            return
        own = at(self._table["configs"][chain[0]].get("steps"), self._index)
        if own is None:
            yield from self._steps(chain[1:], when)
            return
        for name, value, condition in own:
            both = _both(when, condition)
            if name == SUPER:
                yield from self._steps(chain[1:], both)
            else:
                yield Step(name, value, both)

    def _resolve_trainer(self, name: str) -> TrainerClass:
        entry = self._table["trainers"][name]
        keywords: dict[str, bool] = {}
        renames: dict[str, str] = {}
        deprecated: list[str] = []
        config: str | None = None
        variadic = True
        for link in _chain(self._table["trainers"], name, self._index):
            own = {key: at(leaf, self._index) for key, leaf in self._table["trainers"][link].items()}
            if own.get("keywords") is None:
                continue
            for keyword, required in own["keywords"]:
                keywords.setdefault(keyword, required)
            renames = (own.get("renames") or {}) | renames
            deprecated += own.get("deprecated") or []
            config = config or own.get("config")
            variadic = own["variadic"]
            if not variadic:
                break
        named = name.removesuffix("Trainer") + "Config"
        annotated = at(entry.get("config"), self._index)
        if annotated in (None, "TrainingArguments") and named in self.configs():
            config = named
        return TrainerClass(
            name=name,
            module=at(entry["module"], self._index),
            bases=tuple(self._bases("trainers", name) or ()),
            keywords=tuple(keywords),
            required=tuple(keyword for keyword, required in keywords.items() if required),
            variadic=variadic,
            renames=renames,
            deprecated=tuple(deprecated),
            config=config,
        )


@dataclass(frozen=True, slots=True)
class TransformersRelease:
    """What one transformers release knows. `kernels_window` is (lowest accepted, first refused) `kernels` release.

    `attention` are the names of `AttentionInterface`, "eager" included; a Hub kernel such as "org/repo" is never there.
    """

    version: str
    python: str
    requires: Mapping[str, str]
    kernels_window: tuple[str | None, str | None] | None
    attention: frozenset[str]
    trainer_keywords: tuple[str, ...]
    causal_models: frozenset[str]


@dataclass(frozen=True, slots=True)
class LigerRelease:
    """What one liger-kernel release patches. `models` is model type to the keys that `liger_kernel_config` may have."""

    version: str
    python: str
    requires: Mapping[str, str]
    models: Mapping[str, Mapping[str, object]] = field(repr=False)
    dpo_losses: frozenset[str] | None
    grpo_losses: frozenset[str] | None

    @property
    def model_types(self) -> frozenset[str]:
        """The model types that the release patches; others it leaves as they are, silently."""
        return frozenset(self.models)

    @property
    def all_keys(self) -> frozenset[str]:
        """Every key that some model type takes."""
        return frozenset(key for keys in self.models.values() for key in keys)

    def keys(self, model_type: str) -> tuple[str, ...] | None:
        """The keys that `model_type` takes, in order; None for one that is not patched."""
        found = self.models.get(model_type)
        return None if found is None else tuple(found)

    def defaults(self, model_type: str) -> Mapping[str, object] | None:
        """The keys of `model_type` with what each is unless given; None for one that is not patched."""
        return self.models.get(model_type)


@dataclass(frozen=True, slots=True)
class PackageRelease:
    """The requirements of one release of a package that is only read for them."""

    version: str
    python: str
    requires: Mapping[str, str]


VllmRelease = PackageRelease


def releases(package: str) -> tuple[str, ...]:
    """The known releases of a package, oldest first."""
    return tuple(_table(package)["releases"])


def newest(package: str) -> str:
    """The newest known release of a package."""
    return releases(package)[-1]


def dated(package: str, version: str) -> str | None:
    """The day of a release, "2026-10-15"; None where it is not known."""
    index = _positions(package).get(version)
    date = None if index is None else _table(package)["dates"][index]
    return None if date is None else str(date)


@cache
def known(package: str, version: str) -> str | None:
    """The release by which `version` is judged: itself, or the newest known one that is not newer than it.

    Local parts ("+cu129") and post-releases count as the release they stand on. None for a version that is older than
    all known, newer than the newest, or no version.
    """
    if version in _positions(package):
        return version
    from packaging.version import InvalidVersion, Version

    try:
        wanted = Version(Version(version).public)
    except InvalidVersion:
        return None
    listed = [(Version(release), release) for release in releases(package)]
    if wanted.is_postrelease and Version(wanted.base_version) >= listed[-1][0]:
        wanted = Version(wanted.base_version)
    if wanted > listed[-1][0]:
        return None
    return next((release for parsed, release in reversed(listed) if parsed <= wanted), None)


@cache
def trl(version: str) -> TrlRelease:
    """A known TRL release; UnknownRelease for any other (see `known`)."""
    return TrlRelease(_table("trl"), _position("trl", version), version)


@cache
def read_trl(root: Path, version: str) -> TrlRelease:
    """The same facts of a TRL that is not in the tables: `root` is the folder of an installed or checked-out `trl`.

    Reading a whole package takes seconds, so the table is kept in the user's cache for as long as no file of it changes.
    Raises FileNotFoundError when `root` holds no package.
    """
    import hashlib

    from trl_lint import store

    if not (root / "__init__.py").is_file():
        raise FileNotFoundError(f"{root} is no package: it has no __init__.py")
    digest = hashlib.blake2b(f"{root.resolve()} {version} {_manifest()}".encode(), digest_size=12)
    for path in sorted(root.rglob("*.py")):
        stat = path.stat()
        digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    name = f"{digest.hexdigest()}.trl"
    kept = store.get(name)
    if kept is not None:
        try:
            return TrlRelease(json.loads(kept), 0, version)
        except ValueError:  # cut short: read it again
            pass
    from trl_lint.knowledge import fold, trl_reader
    from trl_lint.knowledge.source import Source

    table = fold.table("trl", [(version, None, trl_reader.read(Source.folder(root)))])
    store.put(name, json.dumps(table).encode())
    return TrlRelease(json.loads(json.dumps(table)), 0, version)


@cache
def _manifest() -> str:
    return (HARVESTED / "manifest.json").read_text("utf-8")


@cache
def transformers(version: str) -> TransformersRelease:
    """A known transformers release; UnknownRelease for any other."""
    index, table = _position("transformers", version), _table("transformers")
    window = at(table["kernels_window"], index)
    return TransformersRelease(
        version=version,
        python=at(table["python"], index, ""),
        requires=_requires(table["requires"], index),
        kernels_window=None if window is None else (window[0], window[1]),
        attention=_names_at(table["attention"], index) or frozenset(),
        trainer_keywords=tuple(at(table["trainer_keywords"], index, ())),
        causal_models=_names_at(table["causal_models"], index) or frozenset(),
    )


@cache
def training_arguments(version: str) -> Mapping[str, Field]:
    """The fields of `TrainingArguments` in a known transformers release; UnknownRelease for any other."""
    index = _position("transformers", version)
    given = {name: at(leaf, index) for name, leaf in _table("transformers")["training_arguments"].items()}
    return {name: _field(value) for name, value in given.items() if value is not None}


@cache
def training_arguments_sequence(version: str) -> tuple[Step | Guard, ...]:
    """The steps of `TrainingArguments.__post_init__` in a known transformers release, and what it refuses in their midst."""
    index, entry = _position("transformers", version), _guarded("transformers", "TrainingArguments")
    return tuple(_row(row, row[2] or "") for row in (rows_at(entry, index, ()) if entry is not None else ()))


@cache
def guard_names() -> frozenset[str]:
    """The names of all guards of all known releases."""
    found: set[str] = set()
    for package in ("trl", "transformers"):
        text = json.loads((HARVESTED / f"{package}-guards.json").read_bytes())
        for entry in text["guards"].values():
            found |= {guard_name(row) for row in entry["rows"] if _is_guard(row)}
    return frozenset(found)


@cache
def liger(version: str) -> LigerRelease:
    """A known liger-kernel release; UnknownRelease for any other."""
    index, table = _position("liger-kernel", version), _table("liger-kernel")
    given = {name: at(leaf, index) for name, leaf in table["models"].items()}
    losses = {name: at(table[name], index) for name in ("dpo_losses", "grpo_losses")}
    return LigerRelease(
        version=version,
        python=at(table["python"], index, ""),
        requires=_requires(table["requires"], index),
        models={name: dict(keys) for name, keys in given.items() if keys is not None},
        dpo_losses=None if losses["dpo_losses"] is None else frozenset(losses["dpo_losses"]),
        grpo_losses=None if losses["grpo_losses"] is None else frozenset(losses["grpo_losses"]),
    )


@cache
def vllm(version: str) -> VllmRelease:
    """The requirements of a known vLLM release; UnknownRelease for any other."""
    return package_release("vllm", version)


@cache
def package_release(package: str, version: str) -> PackageRelease:
    """The requirements of a known release of any package; UnknownRelease for any other."""
    index, table = _position(package, version), _table(package)
    return PackageRelease(version, at(table["python"], index, ""), _requires(table["requires"], index))


@cache
def fields_ever() -> frozenset[str]:
    """Every field that a config, a script's dataclass or TrainingArguments has had in some known release."""
    table = _table("trl")
    classes = [entry.get("fields", {}) for entry in table["configs"].values()]
    classes += [fields for entry in table["scripts"].values() for fields in entry.get("own", {}).values()]
    found = {name for fields in classes for name in fields}
    found |= set(_table("transformers")["training_arguments"])
    return frozenset(found)


@cache
def history(owner: str, name: str) -> tuple[tuple[str, str], ...]:
    """The TRL releases, as inclusive (first, last) ranges, in which `owner` took `name`.

    `owner` is a config class (fields of its TRL bases count, those of TrainingArguments do not), a trainer (constructor
    keywords), or a module such as "trl" (names to import).
    """
    table, listed = _table("trl"), releases("trl")
    indices: Iterable[int] = range(len(listed))
    if owner in table["configs"]:
        held = [i for i in indices if _declared(table["configs"], owner, name, i)]
    elif owner in table["trainers"]:
        held = [i for i, r in enumerate(listed) if (t := trl(r).trainer(owner)) and name in t.keywords]
    else:
        held = [i for i in indices if _named(table["exports"].get(owner, {}), name, i)]
    return _ranges(held, listed)


@cache
def training_arguments_history(name: str) -> tuple[tuple[str, str], ...]:
    """The transformers releases, as inclusive (first, last) ranges, in which `TrainingArguments` had `name`."""
    leaf = _table("transformers")["training_arguments"].get(name, ())
    listed = releases("transformers")
    return _ranges([index for index in range(len(listed)) if at(leaf, index) is not None], listed)


@cache
def _table(package: str) -> Mapping[str, Any]:
    if package not in PACKAGES:
        raise UnknownRelease(f"no releases of {package} are recorded")
    table: Mapping[str, Any] = json.loads((HARVESTED / f"{package}.json").read_bytes())
    return table


@cache
def _positions(package: str) -> Mapping[str, int]:
    return {version: index for index, version in enumerate(_table(package)["releases"])}


def _position(package: str, version: str) -> int:
    index = _positions(package).get(version)
    if index is None:
        raise UnknownRelease(f"{package} {version} is not recorded ({releases(package)[0]} to {newest(package)} are)")
    return index


@cache
def _guarded(package: str, name: str) -> Mapping[str, Any] | None:
    """The guards of one class over the releases. The file has a line for each, so that the others are not read."""
    content = (HARVESTED / f"{package}-guards.json").read_bytes()
    start = content.find(f'\n  "{name}":'.encode())
    if start < 0:
        return None
    end = content.find(b"\n", start + 1)
    entry: Mapping[str, Any] = json.loads(content[content.find(b":", start) + 1 : end].rstrip(b","))
    return entry


def _is_guard(row: Sequence[str | None]) -> bool:
    return (row[0] or "")[:1] in ("!", "?")


def _row(row: Sequence[str | None], when: str) -> Step | Guard:
    return _guard(row, when) if _is_guard(row) else Step(row[0] or "", row[1], when)


def _guard(row: Sequence[str | None], when: str | None) -> Guard:
    mark, _test, _when, place, owner, phase = (text or "" for text in row[:6])
    effect: Literal["raise", "warn"] = "raise" if mark[0] == "!" else "warn"
    return Guard(guard_name(row), owner, effect, mark[1:], when or "", place, phase, certain=len(row) == 6)


def guard_name(row: Sequence[str | None]) -> str:
    """`GRPOConfig: num_generations < 2`: the class, and what leads to the place."""
    return f"{row[4]}: {row[1] or 'always'}"


def _both(one: str, two: str) -> str:
    return f"({one}) and ({two})" if one and two else one or two


@cache
def _names_read(when: str) -> tuple[str, ...]:
    import ast
    import re

    found: dict[str, None] = {}

    def collect(node: ast.AST) -> None:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            collect(node.args[0])
            return
        text = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        if re.fullmatch(r"\w+(\.\w+)*", text):
            found[text] = None
            return
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Call) and child is node.func):
                collect(child)

    collect(ast.parse(when or "True", mode="eval"))
    return tuple(found)


def _field(value: Sequence[Any]) -> Field:
    kind, default, *choices = value
    allowed = tuple(_frozen(choice) for choice in choices[0]) if choices else None
    match default:
        case None:
            return Field(kind, REQUIRED, allowed)
        case [known]:
            return Field(kind, _frozen(known), allowed)
    return Field(kind, UNREAD, allowed, default.get("expr") or default.get("factory"))


def _frozen(value: Any) -> object:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _chain(classes: Mapping[str, Any], name: str, index: int) -> Iterator[str]:
    """`name` and its bases within TRL, in method resolution order (which TRL's classes keep simple)."""
    waiting = [name]
    seen: set[str] = set()
    while waiting:
        link = waiting.pop(0)
        bases = at(classes.get(link, {}).get("bases"), index)
        if link in seen or bases is None:
            continue
        seen.add(link)
        yield link
        waiting = [*bases, *waiting]


def _declared(configs: Mapping[str, Any], owner: str, name: str, index: int) -> bool:
    links = _chain(configs, owner, index)
    return any(at(configs[link].get("fields", {}).get(name), index) is not None for link in links)


def _named(groups: Mapping[str, Sequence[str]], symbol: str, index: int) -> bool:
    return any(symbol in names and holds(ranges, index) for ranges, names in groups.items())


def _names_at(groups: Mapping[str, Sequence[str]], index: int) -> frozenset[str] | None:
    held = [names for ranges, names in groups.items() if holds(ranges, index)]
    return frozenset(name for names in held for name in names) if held else None


def _requires(extras: Mapping[str, Any], index: int) -> Mapping[str, str]:
    """Package to specifier, of the core first and then of the extras by name."""
    found: dict[str, str] = {}
    for extra in sorted(extras):
        for package, leaf in extras[extra].items():
            lines = at(leaf, index)
            if lines is None:
                continue
            # A line with a marker speaks only for some machines; it counts where no other does.
            plain = [line for line in lines if ";" not in line] or [line.partition(";")[0] for line in lines]
            specifier = ",".join(sorted(set(plain)))
            # "dev" and the like repeat a package without its bounds.
            if not found.get(package):
                found[package] = specifier
    return found


def _ranges(indices: Sequence[int], listed: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((listed[first], listed[last]) for first, last in decode(encode(indices)))


def lineage(kind: str, name: str) -> tuple[str, ...]:
    """The TRL bases of a class ("configs" or "trainers"), nearest first, in the newest release that has it."""
    classes = _table("trl")[kind]
    indices = [last for ranges, _ in classes.get(name, {}).get("bases", ()) for _, last in decode(ranges)]
    return tuple(_chain(classes, name, max(indices)))[1:] if indices else ()
