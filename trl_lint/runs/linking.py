"""What every file says in; the training runs that they describe together out.

A run is put together from a script, the recipe and the options that a command hands it, the launcher's own config, and
the vLLM servers that the same file starts. A script that several commands start is several runs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from trl_lint import knowledge
from trl_lint.facts import Facts, Stated
from trl_lint.knowledge import Field, TrlRelease
from trl_lint.model import Argument, Default, Known, Object, Site, Span, Unknown, Value
from trl_lint.runs.closest import closest
from trl_lint.runs.launches import Launch, launches_of, read_text
from trl_lint.runs.run import NO_METHOD, SERVING, TRAINING_ARGUMENTS, Parsed, Run, Taker, trainer_argument
from trl_lint.runs.worlds import Worlds
from trl_lint.sources.module import EXPECTED_TO_RAISE, PARSED, LocalClass, Module, Parser

# Methods with which a trainer of the project's own samples, or trains, in another way than TRL's does.
_GENERATING = frozenset(
    {"_generate_and_score_completions", "_prepare_inputs", "_generate", "_generate_single_turn", "_move_model_to_vllm"}
)
_PASSES = "TRL's own script lets them pass"

FactsOf = Callable[[tuple[str, ...], bool], tuple[Facts, Worlds]]


@dataclass(frozen=True)
class Project:
    """The files of one project: `modules` are those that were read, `names` all that a command may name.

    `load` reads one of `names` that was not read so far; None where it cannot be read or says nothing. `named` reads a
    recipe again, that few keys do not show to be one, because a launch hands it to a script.
    """

    modules: Mapping[str, Module]
    names: tuple[str, ...] = ()
    load: Callable[[str], Module | None] = field(default=lambda _path: None, repr=False)
    named: Callable[[str], Module | None] = field(default=lambda _path: None, repr=False)
    kept: dict[str, Module | None] = field(default_factory=dict, repr=False)
    recipes: dict[str, Site | None] = field(default_factory=dict, repr=False)

    def module(self, path: str) -> Module | None:
        """What a file says, read when it is asked for."""
        if path in self.modules:
            return self.modules[path]
        if path not in self.kept:
            self.kept[path] = self.load(path)
        return self.kept[path]

    def recipe(self, path: str) -> Site | None:
        """The recipe that a file is, because a launch says so."""
        if path not in self.recipes:
            module = self.module(path)
            if module is None or not any(s.kind == "recipe" for s in module.sites):
                module = self.named(path)
            self.recipes[path] = _only(s for s in module.sites if s.kind == "recipe") if module is not None else None
        return self.recipes[path]

    @cached_property
    def by_name(self) -> Mapping[str, list[str]]:
        """Paths by their last part."""
        found: dict[str, list[str]] = {}
        for path in dict.fromkeys((*self.modules, *self.names)):
            found.setdefault(posixpath.basename(path), []).append(path)
        return found

    def find(self, text: str, near: str) -> str | bool | None:
        """The file that a path in file `near` means: None if there is none, False if it may be one of several.

        A command runs in a folder that no file tells, mostly its own or one above it; after a `cd`, one below. A path with
        folders of its own may stand anywhere.
        """
        given = posixpath.normpath(text.strip())
        wanted = given
        while wanted.startswith("../"):
            wanted = wanted[3:]
        folder = posixpath.dirname(posixpath.normpath(near))
        same = [p for p in self.by_name.get(posixpath.basename(wanted), ()) if _may_be(p, wanted)]
        for above in _above(folder):
            beside = posixpath.normpath(posixpath.join(above, given))
            if beside in same:
                return beside
        if "/" not in wanted:
            same = [p for p in same if p.startswith(f"{folder}/" if folder else "")]
        return same[0] if len(same) == 1 else (False if same else None)


def _above(folder: str) -> Iterator[str]:
    """A folder and every one above it."""
    yield folder
    while folder and folder != posixpath.dirname(folder):
        folder = posixpath.dirname(folder)
        yield folder


def _may_be(path: str, wanted: str) -> bool:
    path = posixpath.normpath(path)
    inside = wanted.lstrip("/")
    return path == inside or path.endswith(f"/{inside}") or (wanted.startswith("/") and wanted.endswith(f"/{path}"))


@dataclass(frozen=True)
class _Start:
    """One command of a file that launches something, with the servers that the file starts for it."""

    path: str
    module: Module
    launch: Launch
    servers: tuple[Launch, ...]


class Linker:
    """Links the files of a project. `facts_of` says what is known for the files of one run, the first of them leading, and
    whether the run heeds its script's PEP 723 header.
    """

    def __init__(self, project: Project, facts_of: FactsOf) -> None:
        self.project = project
        self.facts_of = facts_of

    @cached_property
    def starts(self) -> list[_Start]:
        """Every launch of every file that was read."""
        found: list[_Start] = []
        for path, module in self.project.modules.items():
            for inner in (module, *module.written.values()):
                launches = launches_of(inner)
                servers = tuple(launch for launch in launches if launch.server is not None)
                for launch in launches:
                    own = () if launch.server is not None else _servers_for(launch, servers)
                    found.append(_Start(path, inner, launch, own))
        return found

    @cached_property
    def by_script(self) -> Mapping[str, list[_Start]]:
        """The launches of each script of the project."""
        found: dict[str, list[_Start]] = {}
        for start in self.starts:
            script = self.script_of(start)
            if isinstance(script, str):
                found.setdefault(script, []).append(start)
        return found

    @cached_property
    def told(self) -> Mapping[str, list[_Start]]:
        """What prose shows of a script or recipe: a launch of each file that does, a notebook that says how to go on.

        Nobody runs it from there, so of the launch only the file's own versions count, and which script takes a recipe.
        """
        found: dict[str, dict[str, _Start]] = {}
        for path, module in self.project.modules.items():
            for launch in launches_of(replace(module, commands=module.told)) if module.told else ():
                start = _Start(path, module, launch, ())
                for name in (self.script_of(start), self.recipe_of(start)):
                    if isinstance(name, str):
                        found.setdefault(name, {}).setdefault(path, start)
        return {name: list(starts.values()) for name, starts in found.items()}

    @cached_property
    def launched_recipes(self) -> frozenset[str]:
        return frozenset(r for s in self.starts if isinstance(r := self.recipe_of(s), str))

    def script_of(self, start: _Start) -> str | bool | None:
        """The project's file that a launch runs; None for none, False where that cannot be told."""
        launch = start.launch
        if launch.server is not None or launch.subcommand is not None:
            return None
        if launch.module is not None:
            return self.project.find(f"{launch.module.replace('.', '/')}.py", start.path)
        return self.project.find(launch.program, start.path) if launch.program is not None else False

    def recipe_of(self, start: _Start) -> str | bool | None:
        """The file that `--config` names; None without one, False where that cannot be told."""
        config = start.launch.config
        if config is None:
            return None
        if not isinstance(config.value, Known) or not isinstance(config.value.value, str):
            return False
        found = self.project.find(config.value.value, start.path)
        return found if isinstance(found, str) else False

    def bundles(self) -> Iterator[tuple[str, ...]]:
        """The files that belong together, for every launch and every class that comes from another file."""
        for start in self.starts:
            accelerate, deepspeed = self.launcher_configs(start)
            script = self.script_of(start)
            yield _paths(
                script if isinstance(script, str) else None, self.recipe(start), accelerate, deepspeed, start.path
            )
        for name, told in self.told.items():
            yield _paths(name, *(start.path for start in told))
        for path, module in tuple(self.project.modules.items()):
            if module.parsers or any(s.kind == "elsewhere" for s in module.sites):
                yield (path, *_Seen(self, path, module).files)

    def facts(self, paths: tuple[str, ...], start: _Start | None = None) -> tuple[Facts, Worlds]:
        """What is known for the files of one run."""
        return self.facts_of(paths, start is None or start.launch.header)

    # runs --------------------------------------------------------------------------------------------------------------

    def runs(self, paths: Iterable[str]) -> Iterator[Run]:
        """The runs that the files of `paths` describe, as far as they lead."""
        for path in paths:
            module = self.project.module(path)
            if module is None:
                continue
            yield from self.of_script(path, module)
            for name, inner in module.written.items():
                if name.endswith(".py"):
                    yield from self.of_script(path, inner)
                else:
                    yield from self.of_documents(path, inner)
            yield from self.of_documents(path, module)
            for start in self.starts:
                if start.path == path:
                    yield from self.of_start(start)

    def of_start(self, start: _Start) -> Iterator[Run]:
        """The run of a command that no script of the project stands behind."""
        if start.launch.server is not None:
            beside = (self.script_of(s) for s in self.starts if s.path == start.path)
            facts, allowed = self.facts(_paths(start.path, *(p for p in beside if isinstance(p, str))))
            yield Run(
                _id(start), SERVING, start.module, None, None, None, facts, allowed, launch=start.launch,
                servers=(start.launch,), paths=(start.path,),
            )  # fmt: skip
        elif start.launch.subcommand is not None:
            yield from self.of_command(start)
        elif self.script_of(start) is None:
            yield from self.of_stranger(start)

    def of_command(self, start: _Start) -> Iterator[Run]:
        """`trl grpo …`: TRL's own script, which needs no file of the project."""
        recipe = self.recipe(start)
        facts, allowed = self.facts(_paths(start.path, recipe))
        if allowed.assumed is None or start.launch.subcommand is None:
            return
        script = allowed.assumed.release.script(start.launch.subcommand)
        if script is None:
            return
        takers = (Taker(n, _defaults(script.own.get(n, {}))) for n in script.classes)
        parsed = self.parsed(start, recipe, tuple(takers), script.parser)
        keys, flags = script.tolerant or script.launches, script.tolerant_flags or script.launches
        parsed = replace(parsed, tolerant=_PASSES if keys else None, tolerant_flags=_PASSES if flags else None)
        yield from self.without_script(start, recipe, parsed, start.launch.subcommand, facts, allowed)

    def of_stranger(self, start: _Start) -> Iterator[Run]:
        """A command whose script is not in the project: judged where its name or its options show which method it is."""
        recipe = self.recipe(start)
        facts, allowed = self.facts(_paths(start.path, recipe))
        if allowed.assumed is None:
            return
        parsed = self.parsed(start, recipe, (), "TrlParser")
        words = _words(start.launch.program or start.launch.module or "")
        keys = frozenset(parsed.site.arguments)
        method = _told(facts) or method_shown(words, keys, allowed.assumed.release)
        if method is None or foreign(keys):
            return
        what = start.launch.program or start.launch.module
        if not _shows_fields(keys, method, allowed.assumed.release):
            parsed = replace(
                parsed, site=replace(parsed.site, open=parsed.site.open or f"{what} is not in this project")
            )
        parsed = replace(
            parsed, takers=_usual(method, facts, allowed.assumed.release), assumed=f"{what} is not in this project"
        )
        yield from self.without_script(start, recipe, parsed, method, facts, allowed)

    def without_script(
        self, start: _Start, recipe: Site | None, parsed: Parsed, method: str, facts: Facts, allowed: Worlds
    ) -> Iterator[Run]:
        name = config_of_method(method, allowed.assumed.release) if allowed.assumed is not None else None
        config = replace(parsed.site, name=name or "", origin=f"trl.{name}")
        accelerate, deepspeed = self.launcher_configs(start)
        yield Run(
            _id(start), method, start.module, config, name, None, facts, allowed, parsed=parsed, launch=start.launch,
            servers=start.servers, accelerate=accelerate, deepspeed=deepspeed,
            paths=_paths(start.path, recipe, accelerate, deepspeed),
        )  # fmt: skip

    def of_documents(self, path: str, module: Module) -> Iterator[Run]:
        """A recipe, or with a method told by hand a launcher config, that nothing here launches."""
        recipe = _only(s for s in module.sites if s.kind == "recipe")
        launcher = _only(s for s in module.sites if s.kind == "accelerate")
        if (recipe is None and launcher is None) or path in self.launched_recipes:
            return
        for told in self.told.get(path, ()) or (None,):
            yield from self.of_document(path, module, recipe, launcher, told)

    def of_document(
        self, path: str, module: Module, recipe: Site | None, launcher: Site | None, told: _Start | None
    ) -> Iterator[Run]:
        """The run of such a file by the versions of the prose that tells how to launch it, if any does."""
        paths = _paths(path, told.path if told is not None else None)
        facts, allowed = self.facts(paths, told)
        if allowed.assumed is None:
            return
        release = allowed.assumed.release
        suffix = f"@{_id(told)}" if told is not None else ""
        if recipe is None:
            method = _told(facts)
            if method is not None and launcher is not None:
                yield Run(
                    f"{path}#accelerate{suffix}", method, module, None, config_of_method(method, release), None, facts,
                    allowed, accelerate=launcher, paths=paths,
                )  # fmt: skip
            return
        named = self.script_of(told) if told is not None else None
        script = named if isinstance(named, str) else None
        keys = frozenset(recipe.arguments)
        method = _told(facts) or self.method_parsed(script) or method_shown(_words(path), keys, release)
        if method is None:
            return
        parsed = self.orphaned(recipe, method, facts, release, script)
        if parsed is None:
            return
        site = parsed.site
        name = config_of_method(method, release)
        config = replace(site, name=name or "", origin=f"trl.{name}")
        launch = stated(facts.launch, path)
        yield Run(
            f"{path}#recipe{suffix}", method, module, config, name, None, facts, allowed, parsed=parsed, launch=launch,
            paths=paths,
        )  # fmt: skip

    def method_parsed(self, script: str | None) -> str | None:
        """The one method whose config the parsers of a script build."""
        module = self.project.module(script) if script is not None else None
        if module is None or script is None:
            return None
        seen = _Seen(self, script, module)
        names = {taker.name for parser in module.parsers for taker in seen.takers(parser)[0]}
        methods = {method_of(n) for n in names if n.endswith("Config") and n not in NO_METHOD}
        return methods.pop() if len(methods) == 1 else None

    def orphaned(
        self, recipe: Site, method: str, facts: Facts, release: TrlRelease, script: str | None = None
    ) -> Parsed | None:
        """What a recipe that nothing launches is handed to: the project's one script of its method, else a usual one.

        `script` is the one that prose hands it to. None where the project has recipe parsers, and none of them is for the
        method.
        """
        site, usual = _merged((recipe,), None), _usual(method, facts, release)
        if facts.parser is not None:
            return Parsed(site, usual, "TrlParser")
        fitting: list[tuple[tuple[Taker, ...], str | None, bool]] = []
        others = False
        for path, module in self.project.modules.items():
            for parser in module.parsers if script in (None, path) else ():
                takers, why = _Seen(self, path, module).takers(parser)
                if any(method_of(t.name) == method for t in takers):
                    trains = any(s.kind == "trainer" or s.name.endswith("Trainer") for s in module.sites)
                    fitting.append((takers, parser.tolerant or why, trains))
                else:
                    others = others or parser.name == "TrlParser"
        own = foreign(frozenset(recipe.arguments))
        taking = [f for f in fitting if own <= {n for t in f[0] for n in t.own}] if own else fitting
        training = [f for f in taking if f[2]]
        if taking and not training:
            return None  # a script that builds no trainer takes these keys
        if len(training) == 1:
            return Parsed(site, training[0][0], "TrlParser", tolerant=training[0][1])
        if own or (others and not fitting):
            return None
        more = (Taker("", t.own) for takers, _why, _trains in fitting for t in takers if t.own)
        return Parsed(site, (*usual, *more), "TrlParser", assumed="nothing here launches this recipe")

    # scripts -----------------------------------------------------------------------------------------------------------

    def of_script(self, path: str, module: Module) -> Iterator[Run]:
        """The runs of a Python file: for each launch of it, one for each trainer and each config without a trainer."""
        if not any(s.kind not in ("recipe", "accelerate", "deepspeed") for s in module.sites):
            return
        seen = _Seen(self, path, module)
        for start in self.by_script.get(path, ()):
            yield from seen.runs(start)
        if path not in self.by_script:
            for told in self.told.get(path, ()) or (None,):
                yield from seen.runs(None, told)

    # parts -------------------------------------------------------------------------------------------------------------

    def recipe(self, start: _Start) -> Site | None:
        """The recipe that a launch names, where it can be read."""
        found = self.recipe_of(start)
        return self.project.recipe(found) if isinstance(found, str) else None

    def parsed(self, start: _Start, recipe: Site | None, takers: tuple[Taker, ...], parser: str | None) -> Parsed:
        """What a launch hands to a script's parser."""
        flags = start.launch.flags
        without = (
            {n: a for n, a in flags.arguments.items() if n != "config"} if parser == "TrlParser" else flags.arguments
        )
        why = flags.open or start.launch.unreadable
        if parser == "TrlParser" and recipe is None and start.launch.config is not None:
            value = start.launch.config.value
            shown = value.value if isinstance(value, Known) else "that --config names"
            why = why or f"the recipe {shown} is not in this project"
        layers = (*((recipe,) if recipe is not None else ()), replace(flags, arguments=without, open=why))
        # The layers are the sites of the files themselves: an edit must find them there.
        return Parsed(replace(_merged(layers, why), layers=(*layers[:-1], flags)), takers, parser)

    def launcher_configs(self, start: _Start | None) -> tuple[Site | None, Site | None]:
        """The accelerate config and the DeepSpeed config that a launch names, where they are in the project."""
        if start is None:
            return None, None
        accelerate = self.document(start, start.launch.starter, "config_file", "accelerate")
        deepspeed = self.document(start, start.launch.starter, "deepspeed_config_file", "deepspeed")
        deepspeed = deepspeed or self.document(start, start.launch.flags, "deepspeed", "deepspeed")
        if deepspeed is None and accelerate is not None:
            inner = accelerate.arguments.get("deepspeed_config")
            table = inner.value.value if inner is not None and isinstance(inner.value, Known) else None
            entries = getattr(table, "entries", {})
            deepspeed = self.named(entries.get("deepspeed_config_file"), accelerate.span.path, "deepspeed")
        return accelerate, deepspeed

    def document(self, start: _Start, site: Site, name: str, kind: str) -> Site | None:
        return self.named(site.arguments.get(name), start.path, kind)

    def named(self, argument: Argument | None, near: str, kind: str) -> Site | None:
        if argument is None or not isinstance(argument.value, Known) or not isinstance(argument.value.value, str):
            return None
        found = self.project.find(argument.value.value, near)
        module = self.project.module(found) if isinstance(found, str) else None
        return _only(s for s in module.sites if s.kind == kind) if module is not None else None

    # classes -----------------------------------------------------------------------------------------------------------

    def class_of(
        self, path: str, module: Module, depth: int = 0
    ) -> tuple[str, Mapping[str, Value], tuple[str, ...]] | None:
        """The TRL class behind a dotted path ("" for none), the fields added on the way, and the files that say so.

        None where the class is not in the project.
        """
        root, _, name = path.rpartition(".")
        if path.startswith("trl."):
            return name, {}, ()
        if path in ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"):
            return TRAINING_ARGUMENTS, {}, ()
        if depth > 6 or not path:
            return None
        if root == "<local>":
            return self._local(module.classes.get(name), module, depth, ())
        home = self.home_of(root, name, module)
        if home is None or home.path == module.path:
            return None
        if name in home.classes:
            return self._local(home.classes[name], home, depth, (home.path,))
        # A package hands on what its modules define.
        for onward in (home.imports.get(name), *(f"{star}.{name}" for star in home.stars)):
            found = self.class_of(onward, home, depth + 1) if onward is not None else None
            if found is not None:
                return found[0], found[1], (home.path, *found[2])
        return None

    def _local(
        self, found: LocalClass | None, module: Module, depth: int, files: tuple[str, ...]
    ) -> tuple[str, Mapping[str, Value], tuple[str, ...]] | None:
        if found is None:
            return None
        base, own = "", dict(found.fields)
        for path in found.bases:
            above = self.class_of(path, module, depth + 1)
            if above is not None:
                base, own, files = base or above[0], {**above[1], **own}, (*files, *above[2])
        return base, own, files

    def overrides(self, path: str, module: Module, names: frozenset[str], depth: int = 0) -> bool:
        """Whether a class of the project's own, or one of its bases there, defines one of some methods itself."""
        root, _, name = path.rpartition(".")
        home = module if root == "<local>" else self.home_of(root, name, module)
        found = home.classes.get(name) if home is not None else None
        if found is None or home is None or depth > 6:
            return False
        return bool(found.methods & names) or any(self.overrides(b, home, names, depth + 1) for b in found.bases)

    def home_of(self, root: str, name: str, module: Module) -> Module | None:
        """The project's module that a dotted name leads to from a file."""
        dots = len(root) - len(root.lstrip("."))
        parts = root[dots:].replace(".", "/")
        folder = posixpath.dirname(module.path)
        for _ in range(dots - 1):
            folder = posixpath.dirname(folder)
        tries = [posixpath.normpath(posixpath.join(folder, parts + ending)) for ending in (".py", "/__init__.py")]
        for path in tries:
            if path in self.project.modules or path in self.project.by_name.get(posixpath.basename(path), ()):
                return self.project.module(path)
        if dots:
            return None
        for ending in (f"{parts}.py", f"{parts}/__init__.py"):
            found = self.project.find(ending, module.path)
            if isinstance(found, str):
                return self.project.module(found)
        return None


class _Seen:
    """One script with its classes looked up in the project."""

    def __init__(self, linker: Linker, path: str, module: Module) -> None:
        self.linker, self.path, self.module = linker, path, module
        self.files: list[str] = []
        self.known: dict[int, Site] = {}
        self.own: dict[int, Mapping[str, Value]] = {}
        self.own_ways: set[int] = set()
        self.sites = tuple(s for site in module.sites if (s := self.resolved(site)) is not None)

    def resolved(self, site: Site) -> Site | None:
        """A site with the TRL class that it stands for; None for a class that is none of TRL's."""
        if site.kind != "elsewhere":
            return site
        found = self.linker.class_of(site.origin, self.module)
        if found is None or not found[0]:
            return None
        name, own, files = found
        self.files += files
        made = replace(
            site, kind="trainer" if name.endswith("Trainer") else "config", name=name, origin=f"trl.{name}",
            lenient=site.lenient or f"`{site.name}` is a subclass of its own",
        )  # fmt: skip
        if name == TRAINING_ARGUMENTS:
            made = replace(made, origin="transformers.TrainingArguments")
        self.known[id(site)] = made
        self.own[id(made)] = own
        if made.kind == "trainer" and self.linker.overrides(site.origin, self.module, _GENERATING):
            self.own_ways.add(id(made))
        return made

    def runs(self, start: _Start | None, shown: _Start | None = None) -> Iterator[Run]:
        """The runs of one launch; where there is none, by what prose shows."""
        module, sites = self.module, self.sites
        accelerate, deepspeed = self.linker.launcher_configs(start)
        recipe = self.linker.recipe(start) if start is not None else None
        by = start or shown
        paths = _paths(self.path, recipe, accelerate, deepspeed, *self.files, by.path if by is not None else None)
        facts, allowed = self.linker.facts(paths, by)
        launch, servers = (start.launch, start.servers) if start is not None else (None, _own_servers(module))
        launch = launch or stated(facts.launch, self.path)
        told = stated(facts.server, self.path)
        if not servers and told is not None and told.server is not None:
            servers = (told,)
        common = {
            "launch": launch, "servers": servers, "accelerate": accelerate, "deepspeed": deepspeed, "paths": paths,
        }  # fmt: skip
        suffix = f"@{_id(by)}" if by is not None else ""
        if any(site.kind == "import" for site in sites):
            yield Run(f"{self.path}#imports", None, module, None, None, None, facts, allowed, paths=(self.path,))
        trainers = [s for s in sites if s.kind == "trainer"]
        used: set[int] = set()
        for index, trainer in enumerate(trainers):
            config = self.config_of(trainer)
            if config is not None:
                used.add(id(config))
            if EXPECTED_TO_RAISE in (trainer.lenient, config.lenient if config is not None else None):
                continue
            name = config.name if config is not None else re.sub(r"Trainer$", "Config", trainer.name)
            parsed = self.parsed(config, start, recipe)
            method = None if id(trainer) in self.own_ways else method_of(trainer.name)
            yield Run(
                f"{self.path}#{index + 1}{suffix}", method, module, _given(config, parsed), name, trainer,
                facts, allowed, parsed=parsed, **common,  # type: ignore[arg-type]
            )  # fmt: skip
        configs = [s for s in sites if s.kind == "config" and id(s) not in used and s.origin.startswith("trl.")]
        loaded = None if trainers else _only(s for s in sites if s.kind == "model")
        adapter = None if trainers else _only(s for s in sites if s.kind == "peft" and s.name.endswith("Config"))
        for index, config in enumerate(configs):
            # A test that builds a config to look at it trains nothing; a trainer class of one's own that builds one in
            # its constructor, for callers who give none, is no TRL trainer.
            function = config.function or ""
            if config.lenient == EXPECTED_TO_RAISE or function.startswith("test_") or function == "__init__":
                continue
            method = method_of(config.name) if config.name not in NO_METHOD and config.name.endswith("Config") else None
            # It goes to a trainer that is not TRL's, or a script that builds none parses it: what becomes of it is not known.
            if not trainers and (config.variable in module.handed or config.open == PARSED):
                method = None
            alone = not trainers and method is not None
            parsed = self.parsed(config, start, recipe)
            yield Run(
                f"{self.path}#{len(trainers) + index + 1}{suffix}", method, module, _given(config, parsed), config.name, None,
                facts, allowed, loaded if alone else None, adapter if alone else None, parsed=parsed, **common,  # type: ignore[arg-type]
            )  # fmt: skip

    def config_of(self, trainer: Site) -> Site | None:
        """The config that a trainer call is given, by keyword or by position."""
        for name in ("args", "config"):
            argument = trainer_argument(trainer, name, None)
            if argument is not None:
                return self.as_config(argument.value)
        return _only(
            c
            for a in trainer.arguments.values()
            if a.place.kind == "positional" and (c := self.as_config(a.value)) is not None
        )

    def as_config(self, value: Value) -> Site | None:
        if not isinstance(value, Known) or not isinstance(value.value, Object):
            return None
        site = self.known.get(id(value.value.site), value.value.site)
        return site if site.kind == "config" else None

    def parsed(self, config: Site | None, start: _Start | None, recipe: Site | None) -> Parsed | None:
        """What the launch hands to the parser behind a config, or to the options of the script itself."""
        if start is None:
            return None
        parser = self.parser_of(config)
        if parser is None:
            return self.linker.parsed(start, None, (), None)
        takers, why = self.takers(parser)
        parsed = self.linker.parsed(start, recipe, takers, parser.name)
        both = why or (parser.tolerant if parser.tolerant and "fail_with" not in parser.tolerant else None)
        return replace(parsed, tolerant=parser.tolerant or why, tolerant_flags=both)

    def parser_of(self, config: Site | None) -> Parser | None:
        """The parser that builds a config; the only parser of the file where the config is none of them."""
        for parser in self.module.parsers:
            if any(s is not None and self.known.get(id(s), s) is config for s in parser.sites):
                return parser
        parsers = self.module.parsers
        return parsers[0] if len(parsers) == 1 and config is None else None

    def takers(self, parser: Parser) -> tuple[tuple[Taker, ...], str | None]:
        """The dataclasses of a parser, and why what they take is not known in full."""
        found: list[Taker] = []
        why = None
        for path in parser.classes:
            known = self.linker.class_of(path, self.module)
            if known is None:
                why = f"{path.rpartition('.')[2] or 'a dataclass of its parser'} is not in this project"
                continue
            name, own, files = known
            self.files += files
            found.append(Taker(name, own))
        return tuple(found), why


# Small helpers -----------------------------------------------------------------------------------------------------------


def _given(config: Site | None, parsed: Parsed | None) -> Site | None:
    """A parsed config with what the recipe and the command line give it; what the script assigns afterwards wins."""
    if config is None or parsed is None or parsed.parser is None or config.open is None:
        return config
    site = parsed.site
    return replace(
        config, span=site.span, callee=site.callee, arguments={**site.arguments, **config.arguments}, open=site.open,
        layers=(config, *site.layers),
    )  # fmt: skip


def _merged(layers: tuple[Site, ...], why: str | None) -> Site:
    """One site of several layers, the later ones stronger. It stands where a new value would be written: at the recipe."""
    arguments = {name: argument for layer in layers for name, argument in layer.arguments.items() if name != "env"}
    home = layers[0]
    return Site("config", "", "", home.span, home.callee, arguments, why, layers=layers)


def stated(told: Stated | None, path: str) -> Launch | None:
    """The launch that a comment states; where it names no program the file itself is meant."""
    if told is None:
        return None
    return read_text(told.text, path, told.before) or read_text(f"{told.text} {path}", path, told.before)


def _defaults(fields: Mapping[str, Field]) -> dict[str, Value]:
    """The fields of a class as values: what is used when nothing is given."""
    unread = (knowledge.UNREAD, knowledge.REQUIRED)
    return {
        name: Unknown("it must be given") if f.default in unread else Known(f.default, Default("TRL's own script"))
        for name, f in fields.items()
    }


def _servers_for(launch: Launch, servers: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """The servers of the same file that a launch may talk to: those on the port that it names, if it names one."""
    port = launch.flags.arguments.get("vllm_server_port")
    if port is None or len(servers) < 2 or not isinstance(port.value, Known):
        return servers
    same = tuple(s for s in servers if isinstance(v := port_of(s), Known) and v.value == port.value.value)
    return same or servers


def port_of(server: Launch) -> Value:
    """The port that a server listens on."""
    given = server.flags.arguments.get("port")
    if given is not None:
        return given.value
    return (
        Unknown(server.flags.open)
        if server.flags.open is not None
        else Known(knowledge.serve_default("port"), Default("its default"))
    )


def _own_servers(module: Module) -> tuple[Launch, ...]:
    """The servers that a script starts itself."""
    return tuple(launch for launch in launches_of(module) if launch.server is not None) if module.commands else ()


def _paths(*parts: str | Site | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(p.span.path if isinstance(p, Site) else p for p in parts if p is not None))


def _id(start: _Start) -> str:
    span: Span = start.launch.command.span
    return f"{span.path}:{span.line}"


def _only(sites: Iterable[Site]) -> Site | None:
    found = list(sites)
    return found[0] if len(found) == 1 else None


def method_of(name: str) -> str:
    """The method of a trainer or config class: GRPOTrainer is grpo, OnlineDPOConfig online_dpo."""
    stem = re.sub(r"(Trainer|Config)$", "", name)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})", "_", stem).lower()
    return "minillm" if words == "mini_llm" else words


def config_of_method(method: str, release: TrlRelease) -> str | None:
    """The config class of a method in a release."""
    named = (n for n in release.configs() if n.endswith("Config") and method_of(n) == method)
    return next(named, None)


# Which method a recipe or command shows ----------------------------------------------------------------------------------


def _words(path: str) -> tuple[str, ...]:
    """The words of a path, its folders included: recipes/Qwen/grpo/config_demo.yaml."""
    return tuple(w for w in re.split(r"[^a-z0-9]+", path.lower()) if w)


def method_shown(words: tuple[str, ...], keys: frozenset[str], release: TrlRelease) -> str | None:
    """The one method of TRL's own trainers that the words of a path and the keys of a recipe leave; None where several are."""
    methods = {m: c for t in release.exports("trl") or () if t.endswith("Trainer") and (c := config_of_method(m := method_of(t), release))}  # fmt: skip
    text = f"_{'_'.join(words)}_"
    named = {m for m in methods if f"_{m}_" in text}
    named -= {m for m in named if any(m != other and f"_{m}_" in f"_{other}_" for other in named)}
    own = {m: frozenset(config.fields) for m, c in methods.items() if (config := release.config(c)) is not None}
    telling = keys & frozenset().union(*own.values()) - _common(release)
    left = {m for m in methods if telling <= own.get(m, frozenset())}
    if len(named) == 1:
        return next(iter(named)) if named <= left or not left else None
    if named or not telling:
        return None
    return next(iter(left)) if len(left) == 1 else None


def foreign(keys: frozenset[str]) -> frozenset[str]:
    """The keys that no dataclass of any TRL release has had, nor nearly: a parser of somebody's own takes them."""
    known = knowledge.fields_ever()
    unknown = {k for k in keys - known - {"env", "config", "local_rank", "help"} if k.removeprefix("no_") not in known}
    return frozenset(k for k in unknown if not k.isdigit() and closest(k, known) is None and not _begins(k, known))


def _begins(name: str, known: frozenset[str]) -> bool:
    """Whether argparse would take a name for an abbreviation."""
    return len(name) > 3 and any(k.startswith(name) for k in known)


def _common(release: TrlRelease) -> frozenset[str]:
    """Fields that tell nothing: those of the model, the script and of every training."""
    found: set[str] = {
        "learning_rate",
        "bf16",
        "gradient_checkpointing",
        "logging_steps",
        "average_tokens_across_devices",
    }
    for name in ("ModelConfig", "ScriptArguments", "DatasetMixtureConfig"):
        config = release.config(name)
        found |= set(config.fields) if config is not None else set()
    return frozenset(found)


def _shows_fields(keys: frozenset[str], method: str, release: TrlRelease) -> bool:
    """Whether a command line hands over fields of the method's config, as only a parser of dataclasses takes them."""
    config = release.config(config_of_method(method, release) or "")
    return config is not None and bool(keys & frozenset(config.fields))


def _usual(method: str, facts: Facts, release: TrlRelease) -> tuple[Taker, ...]:
    """The dataclasses that a script of a method usually parses, or those that the file states."""
    if facts.parser is not None:
        return tuple(Taker(n) for n in re.findall(r"\w+", facts.parser)[1:])
    name = config_of_method(method, release)
    return tuple(Taker(n) for n in ("ScriptArguments", name, "ModelConfig") if n)


def _told(facts: Facts) -> str | None:
    """The method that a file states: the trainer's, or that of the config its parser builds."""
    if facts.trainer is not None:
        return method_of(facts.trainer)
    for name in re.findall(r"\w+", facts.parser or "")[1:]:
        if name.endswith("Config") and name not in NO_METHOD:
            return method_of(name)
    return None
