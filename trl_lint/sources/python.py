"""A Python file in; the places that give TRL classes, model loads and their helpers their values out."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import libcst as cst

from trl_lint.model import (
    Argument,
    Command,
    Derived,
    Known,
    Object,
    OneOf,
    Place,
    PlaceKind,
    Site,
    SiteKind,
    Span,
    Symbol,
    Table,
    Unknown,
    Value,
    Word,
    Written,
)
from trl_lint.sources.model_config import made_by
from trl_lint.sources.module import PARSED, LocalClass, Module, Parser, Unparsable
from trl_lint.sources.positions import positions
from trl_lint.sources.scopes import Binding, Here, Outline, Point, Scope, Store, dotted, outline, reaching
from trl_lint.sources.text import Text

MOST_ALTERNATIVES = 8
DEPTH = 40


def read(text: Text) -> Module:
    """All sites of a file. Raises Unparsable."""
    try:
        module = cst.parse_module(text.code)
        if "\f" in text.code and module.code != text.code:  # libcst drops some, and every place after it would be wrong
            pairs = zip(text.code.split("\n"), module.code.split("\n"), strict=False)
            line = next(number for number, (written, kept) in enumerate(pairs, 1) if written != kept)
            raise Unparsable(f"line {line}: a form feed in front of code; put it on a line of its own")
        return _Reader(text, module, outline(module)).module()
    except cst.ParserSyntaxError as error:
        raise Unparsable(f"line {error.raw_line}: {error.message}") from None
    except SyntaxError as error:
        # libcst takes null bytes, half an escape and text joined to bytes, and fails when it is asked for their value.
        raise Unparsable(error.msg) from None
    except RecursionError:
        raise Unparsable("nested too deeply") from None


# Classes that matter ------------------------------------------------------------------------------------------------

# How a script asks its parser to accept what no dataclass has.
_LENIENT = frozenset(
    {
        ("return_remaining_strings", "True"),
        ("fail_with_unknown_args", "False"),
        ("ignore_extra_args", "True"),
        ("allow_extra_keys", "True"),
    }
)
# What argparse gives for an option that is left out, by its action.
_NOT_GIVEN: Mapping[object, object] = {None: None, "store": None, "store_true": False, "store_false": True}
_QUANTIZATION = frozenset(
    {
        "BitsAndBytesConfig",
        "GPTQConfig",
        "AwqConfig",
        "HqqConfig",
        "TorchAoConfig",
        "Mxfp4Config",
        "QuantoConfig",
        "FineGrainedFP8Config",
    }
)
_STRANGERS = frozenset(
    [
        "accelerate",
        "bitsandbytes",
        "dataclasses",
        "datasets",
        "hydra",
        "logging",
        "megatron",
        "omegaconf",
        "openai",
        "pydantic",
        "ray",
        "sentence_transformers",
        "torch",
        "typing",
        "unsloth",
        "vllm",
        "wandb",
    ]
)
_SPAWNING = frozenset(
    [
        "subprocess.Popen",
        "subprocess.run",
        "subprocess.call",
        "subprocess.check_call",
        "subprocess.check_output",
        "os.system",
        "os.popen",
        "asyncio.create_subprocess_exec",
        "asyncio.create_subprocess_shell",
    ]
)
_OF_INTEREST = re.compile(r"\btrl\b|\bvllm\b|\baccelerate\b|\btorchrun\b")
_PASS_THROUGH = frozenset({"to", "cuda", "train", "eval", "requires_grad_", "cpu"})
_CONSTRUCTORS = "__init__|__new__|__post_init__"
_OF_MODEL_CONFIG = frozenset({"trl.get_peft_config", "trl.get_quantization_config", "trl.get_kbit_device_map"})
_MODEL_WRAPPERS = frozenset({"peft.prepare_model_for_kbit_training", "peft.prepare_model_for_int8_training"})


@dataclass(frozen=True, slots=True)
class _Class:
    """What a callee stands for: the kind of site, the name its library gives it, and its qualified path."""

    kind: SiteKind
    name: str
    origin: str
    lenient: str | None = None
    own_fields: tuple[str, ...] = ()


def _classify(path: str) -> _Class | None:
    """The site kind of a fully qualified callee, or None when it is none of ours."""
    root, _, rest = path.partition(".")
    name = path.rpartition(".")[2]
    if root == "trl":
        if name.endswith("Trainer"):
            return _Class("trainer", name, path)
        if name.endswith(("Config", "Arguments")):
            return _Class("config", name, path)
        if name.endswith("Parser"):
            return _Class("parser", name, path)
        return None
    if root == "transformers":
        if name == "TrainingArguments":
            return _Class("config", name, path)
        if name == "HfArgumentParser":
            return _Class("parser", name, path)
        if name in _QUANTIZATION:
            return _Class("quantization", name, path)
        if name in ("from_pretrained", "from_config"):
            owner = rest.split(".")[-2] if "." in rest else ""
            if "Model" in owner or "For" in owner:
                return _Class("model", owner, path)
        elif "For" in name and name[0].isupper() and name.endswith(("LM", "Classification", "Generation")):
            return _Class("model", name, path)
        return None
    if root == "peft":
        if name in ("get_peft_model", "from_pretrained"):
            return _Class("peft", "PeftModel", path)
        if name.endswith("Config"):
            return _Class("peft", name, path)
        return None
    if root == "unsloth" and name in ("from_pretrained", "get_peft_model"):
        return _Class("model" if name == "from_pretrained" else "peft", path.split(".")[-2], path)
    if root == "datasets" and name == "load_dataset":
        return _Class("dataset", name, path)
    if root == "accelerate" and name == "PartialState":
        return _Class("object", name, path)
    if root not in _STRANGERS and name[:1].isupper() and name.endswith(("Config", "Arguments", "Trainer")):
        return _Class("elsewhere", name, path)  # perhaps a subclass of the project's own: linking finds out
    return None


# Reading ------------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, text: Text, module: cst.Module, found: Outline) -> None:
        self.text = text
        self.tree = module
        self.found = found
        self._spans: Mapping[cst.CSTNode, Any] | None = None
        self._made: dict[int, Span] = {}
        self._sites: dict[int, Site] = {}
        self._busy: set[int] = set()
        self._naming: set[int] = set()
        self.guard: str | None = None
        self.replaced: frozenset[str | None] = frozenset()
        self._calls_of: dict[str, list[tuple[cst.Call, Here]]] | None = None
        self._parsed: dict[tuple[int, int], Site | None] = {}
        self.depth = 0

    def module(self) -> Module:
        self.guard = self._guarded()
        self.replaced = self._replaced()
        unsloth = "`import unsloth`" if "unsloth" in self.found.packages else None
        parsers: list[Parser] = []
        handed: set[str] = set()
        for call, here in self.found.calls:
            klass = self.classify(call.func, here.scope, here.point)
            if klass is None:
                handed |= {
                    a.value.value
                    for a in call.args
                    if a.keyword is not None and a.keyword.value == "args" and isinstance(a.value, cst.Name)
                }
                continue
            if klass.kind == "parser":
                parsers.append(self.parser(call, klass, here))
            else:
                self.site(call, klass, here)
        sites = sorted(
            {id(s): s for s in (*self._sites.values(), *(p for p in self._parsed.values() if p))}.values(),
            key=lambda s: s.span.start,
        )
        parsed = {s.variable for s in self._parsed.values() if s is not None and s.variable is not None}
        reads = {v: frozenset(self.found.reads.get(v, ())) for v in sorted(parsed)}
        return Module(
            self.text.path, (*self.import_sites(), *sites), unsloth, reads, tuple(self.commands()), tuple(parsers),
            {c.name: c for c in self.local_classes()}, self.environment(), handed=frozenset(handed),
            imports=self.imported(), stars=tuple(b.target for b in self.found.module.bindings.get("*", ()) if b.target),
        )  # fmt: skip

    def _guarded(self) -> str | None:
        """Why the whole file is for another TRL than the project's: it asks for one itself before it goes on."""
        for call, _here in self.found.calls:
            if (dotted(call.func) or "").rpartition(".")[2] != "require_version" or not call.args:
                continue
            asked = call.args[0].value
            if isinstance(asked, cst.SimpleString) and str(asked.evaluated_value).startswith("trl"):
                return "the file checks the version of trl itself"
        return None

    def _replaced(self) -> frozenset[str | None]:
        """The functions that put something else in the place of a TRL class's constructor, as tests do; None: the file."""
        if not re.search(_CONSTRUCTORS, self.text.code):
            return frozenset()
        found: set[str | None] = set()
        module = self.found.module
        for root, stores in module.stores.items():
            for store in stores:
                if len(store.tail) == 1 and re.fullmatch(_CONSTRUCTORS, store.tail[0]):
                    bindings, _scope = reaching(module, root, store.point)
                    found |= {None for b in bindings if b.kind == "import" and (b.target or "").startswith("trl.")}
        for call, here in self.found.calls:
            if (dotted(call.func) or "").rpartition(".")[2] not in ("setattr", "patch", "object"):
                continue
            words = [a.value.evaluated_value for a in call.args[:2] if isinstance(a.value, cst.SimpleString)]
            owner = self.qualified(call.args[0].value, here.scope, here.point) if call.args else None
            named = ".".join(w for w in (owner, *words) if isinstance(w, str))
            if re.fullmatch(rf"trl\..*(?:Trainer|Config)\.(?:{_CONSTRUCTORS})", named):
                found.add(here.scope.function)
        return frozenset(found)

    def leniency(self, here: Here) -> str | None:
        """Why what stands here may be wrong without harm, whatever class it is of."""
        replaced = bool(self.replaced & {None, here.scope.function})
        return here.lenient or self.guard or ("the constructor of its class is replaced here" if replaced else None)

    def span(self, node: cst.CSTNode) -> Span:
        """The span of a node; positions are resolved once, and only for files that hold a site."""
        made = self._made.get(id(node))
        if made is not None:  # shared, so that a kept file holds each span once
            return made
        if self._spans is None:
            self._spans = positions(self.tree)
        found = self._spans[node]
        made = self._made[id(node)] = self.text.span(found.start, found.start + found.length)
        return made

    # names -----------------------------------------------------------------------------------------------------------

    def qualified(self, node: cst.CSTNode, scope: Scope, point: Point) -> str | None:
        """The dotted path that an expression names, through imports and aliases; None when it is not sure."""
        name = dotted(node)
        if name is None:
            return None
        root, _, rest = name.partition(".")
        bindings, _owner = reaching(scope, root, point)
        if not bindings:
            return self._starred(name)
        paths = {self._imported(b) for b in bindings} - {""}
        if len(paths) > 1:  # try: from trl import X; except ImportError: from trl.experimental.x import X
            names = {p.rpartition(".")[2] for p in paths if p}
            if len(names) != 1 or None in paths:
                return None
            paths = {min((p for p in paths if p), key=len)}
        path = next(iter(paths), None)
        if path is None:
            return None
        return f"{path}.{rest}" if rest else path

    def _imported(self, binding: Binding) -> str | None:
        """The path of an import; "" for a placeholder such as `X = None`; None for anything else, a circle included."""
        if binding.kind == "import":
            return binding.target
        if binding.kind != "assign" or not isinstance(binding.node, (cst.Name, cst.Attribute)):
            return None
        if isinstance(binding.node, cst.Name) and binding.node.value in ("None", "object"):
            return ""
        if id(binding) in self._naming:
            return None
        self._naming.add(id(binding))
        try:
            return self.qualified(binding.node, binding.scope, binding.point)
        finally:
            self._naming.discard(id(binding))

    def _starred(self, name: str) -> str | None:
        stars = self.found.module.bindings.get("*", ())
        if any(b.target == "trl" for b in stars) and name.endswith(("Config", "Trainer", "TrlParser")):
            return f"trl.{name}"
        return None

    def classify(self, func: cst.CSTNode, scope: Scope, point: Point) -> _Class | None:
        """What a callee stands for. A local subclass of one of TRL's classes counts as that class."""
        path = self.qualified(func, scope, point)
        if path is not None:
            return _classify(path)
        name = dotted(func)
        if name is None:
            return None
        bindings, _owner = reaching(scope, name, point)
        if len(bindings) == 1 and isinstance(bindings[0].node, cst.ClassDef):
            return self._subclass(bindings[0].node, bindings[0].scope, bindings[0].point, 0)
        return None

    def _subclass(self, node: cst.ClassDef, scope: Scope, point: Point, depth: int) -> _Class | None:
        for base in node.bases:
            path = self.qualified(base.value, scope, point)
            found = _classify(path) if path is not None else None
            if found is None and depth < 5:
                bindings, _owner = reaching(scope, dotted(base.value) or "", point)
                if len(bindings) == 1 and isinstance(bindings[0].node, cst.ClassDef) and bindings[0].node is not node:
                    found = self._subclass(bindings[0].node, bindings[0].scope, bindings[0].point, depth + 1)
            if found is not None and found.kind in ("config", "trainer"):
                lenient = f"`{node.name.value}` is a subclass of its own"
                return replace(found, lenient=lenient, own_fields=(*found.own_fields, *_annotated(node)))
        return None

    # sites -----------------------------------------------------------------------------------------------------------

    def site(self, call: cst.Call, klass: _Class, here: Here) -> Site:
        """The site of a call, built once."""
        known = self._sites.get(id(call))
        if known is not None:
            return known
        arguments: dict[str, Argument] = {}
        open_: str | None = None
        container = self.span(call).start
        for index, arg in enumerate(call.args):
            if arg.star == "**":
                open_ = self._splat(arg, here, arguments) or open_
            elif arg.star == "*":
                open_ = "positional arguments are unpacked into it"
            else:
                name = arg.keyword.value if arg.keyword is not None else str(index)
                kind: PlaceKind = "keyword" if arg.keyword is not None else "positional"
                place = Place(kind, self.span(arg), self.span(arg.value), container, self.binding_of(arg.value, here))
                arguments[name] = Argument(name, self.value(arg.value, here), place)
        binding = self.found.assigned.get(id(call))
        if binding is not None:
            open_ = self._stores(binding, arguments, here) or open_
        site = Site(
            klass.kind, klass.name, klass.origin, self.span(call), self.span(call.func), arguments, open_,
            here.lenient or klass.lenient or self.leniency(here), here.scope.function, binding.name if binding is not None else None,
        )  # fmt: skip
        self._sites[id(call)] = site
        return site

    def _splat(self, arg: cst.Arg, here: Here, arguments: dict[str, Argument]) -> str | None:
        value = self.value(arg.value, here)
        if isinstance(value, Known) and isinstance(value.value, Table):
            arguments.update(value.value.entries)
            return value.value.open
        return f"`**{self.code(arg.value)}` is not readable here" if not isinstance(value, Unknown) else value.why

    def _stores(self, binding: Binding, arguments: dict[str, Argument], here: Here) -> str | None:
        """Fold what is assigned to the variable after construction into the site's arguments; say why more may follow."""
        open_: str | None = None
        for store in binding.scope.stores.get(binding.name, ()):
            if store.point.order <= binding.point.order:
                continue
            reached, _owner = reaching(store.scope, binding.name, store.point)
            if binding not in reached:
                continue
            if not store.tail and store.kind in ("opaque", "item", "update"):
                open_ = "it is changed through setattr or an index"
                continue
            if not store.tail:
                continue
            sure = len(reached) == 1 and store.point.path == binding.point.path[: len(store.point.path)]
            self._store(store, sure, arguments)
        return open_

    def _store(self, store: Store, sure: bool, arguments: dict[str, Argument]) -> None:
        name = ".".join(store.tail)
        before = arguments.get(name)
        if store.kind == "attribute" and store.value is not None:
            at = Here(store.scope, store.point, None)
            node = store.node
            whole = self.span(node)
            place = Place("assignment", whole, self.span(store.value), whole.start, self.binding_of(store.value, at))
            value = self.value(store.value, at)
            lenient = not sure
            arguments[name] = Argument(name, value if sure else _either(before, value), place, conditional=lenient)
            return
        if before is not None and isinstance(before.value, Known) and isinstance(before.value.value, Table):
            table = self._mutate(before.value.value, _through_attribute(store), sure)
            arguments[name] = replace(before, value=Known(table, before.value.origin))
        elif store.kind in ("item", "update", "opaque"):
            arguments[name] = Argument(
                name, Unknown("it is changed after it was built"), _nowhere(self.span(store.node)), conditional=True
            )

    def import_sites(self) -> list[Site]:
        """One site for each name imported from TRL, so that moved and removed names can be judged and rewritten."""
        sites: list[Site] = []
        for node, here in self.found.imports:
            module = dotted(node.module) if node.module is not None and not node.relative else None
            if module is None or not (module == "trl" or module.startswith("trl.")) or node.module is None:
                continue
            whole = self.span(node.module)
            if isinstance(node.names, cst.ImportStar):
                continue
            for alias in node.names:
                if isinstance(alias.name, cst.Name):
                    name = alias.name.value
                    sites.append(
                        Site(
                            "import",
                            name,
                            f"{module}.{name}",
                            self.span(alias),
                            whole,
                            {},
                            None,
                            here.lenient or self.guard,
                            here.scope.function,
                        )
                    )
        return sites

    # parsers ---------------------------------------------------------------------------------------------------------

    def parser(self, call: cst.Call, klass: _Class, here: Here) -> Parser:
        """What a parser builds, and the sites that stand for its configs in this file."""
        classes = self._dataclasses(call, here) or []
        sites = tuple(self.parsed(call, index, here) for index in range(len(classes)))
        return Parser(
            klass.name, tuple(self._class_path(c, here) for c in classes), sites, self._tolerant(call) if classes else "its classes are not shown"
        )  # fmt: skip

    def _class_path(self, node: cst.BaseExpression, here: Here) -> str:
        """A dataclass by its dotted path, ".name" for one of this file; "" where it cannot be read."""
        path = self.qualified(node, here.scope, here.point)
        if path is not None:
            return path
        name = dotted(node) or ""
        bindings, _owner = reaching(here.scope, name, here.point)
        return f"<local>.{name}" if len(bindings) == 1 and isinstance(bindings[0].node, cst.ClassDef) else ""

    def _tolerant(self, parser: cst.Call) -> str | None:
        """Why arguments that no dataclass has are accepted, where the script asks for that."""
        for call in (parser, *self._parsing(parser)):
            for arg in call.args:
                name = arg.keyword.value if arg.keyword is not None else ""
                value = arg.value.value if isinstance(arg.value, cst.Name) else ""
                if (name, value) in _LENIENT:
                    return f"the script parses with {name}={value}"
        return None

    def _parsing(self, parser: cst.Call) -> Iterable[cst.Call]:
        """The `parser.parse_…()` calls of a parser."""
        bound = self.found.assigned.get(id(parser))
        for call, _here in self.found.calls:
            if isinstance(call.func, cst.Attribute) and call.func.attr.value.startswith("parse"):
                owner = call.func.value
                if owner is parser or (bound is not None and isinstance(owner, cst.Name) and owner.value == bound.name):
                    yield call

    def _dataclasses(self, call: cst.Call, here: Here) -> list[cst.BaseExpression] | None:
        """The classes handed to TrlParser or HfArgumentParser, in order."""
        given = next((a.value for a in call.args if a.keyword is None or a.keyword.value in ("dataclass_types",)), None)
        if isinstance(given, cst.Name):
            bindings, _owner = reaching(here.scope, given.value, here.point)
            if (
                len(bindings) == 1
                and bindings[0].kind == "assign"
                and isinstance(bindings[0].node, (cst.Tuple, cst.List))
            ):
                given = bindings[0].node
        if isinstance(given, (cst.Tuple, cst.List)):
            return [e.value for e in given.elements]
        return [given] if given is not None else None

    def parsed(self, call: cst.Call, index: int, here: Here) -> Site | None:
        """The config that a parser builds from its `index`-th class: nothing is given here, everything may be given elsewhere."""
        key = (id(call), index)
        if key in self._parsed:
            return self._parsed[key]
        classes = self._dataclasses(call, here)
        if classes is None or index >= len(classes):
            return None
        node = classes[index]
        klass = self.classify(node, here.scope, here.point)
        self._parsed[key] = None
        if klass is None or klass.kind not in ("config", "elsewhere"):
            path = self._class_path(node, here)
            if not path:
                return None
            klass = _Class("object", path.rpartition(".")[2], path)
        arguments: dict[str, Argument] = {}
        variable = self._unpacked(call, index, len(classes))
        if variable is not None:
            self._stores(variable, arguments, here)
        span = self.span(node)
        site = Site(
            klass.kind, klass.name, klass.origin, span, span, arguments, PARSED,
            klass.lenient or self.leniency(here), here.scope.function, variable.name if variable is not None else None,
        )  # fmt: skip
        self._parsed[key] = site
        return site

    def _unpacked(self, parser: cst.Call, index: int, total: int) -> Binding | None:
        """The variable that `parser.parse_args_and_config()` gives the `index`-th dataclass to."""
        bound = self.found.assigned.get(id(parser))
        for scope in _scopes(self.found):
            for bindings in scope.bindings.values():
                for binding in bindings:
                    call = binding.node
                    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
                        continue
                    owner = call.func.value
                    same = owner is parser or (
                        bound is not None and isinstance(owner, cst.Name) and owner.value == bound.name
                    )
                    if not same or not call.func.attr.value.startswith("parse"):
                        continue
                    if binding.kind == "unpack" and binding.index == index:
                        return binding
                    if binding.kind == "assign" and total == 1:
                        return binding
        return None

    # classes of the project's own, the environment, commands ---------------------------------------------------------

    def local_classes(self) -> Iterable[LocalClass]:
        """The classes of this file that may be, or be a base of, a config or trainer."""
        for name, bindings in self.found.module.bindings.items():
            if len(bindings) != 1 or not isinstance(bindings[0].node, cst.ClassDef):
                continue
            node, here = bindings[0].node, Here(bindings[0].scope, bindings[0].point, None)
            fields = dict(self._fields_of(node, here))
            bases = tuple(self._class_path(b.value, here) for b in node.bases)
            if fields or bases:
                methods = frozenset(f.name.value for f in node.body.body if isinstance(f, cst.FunctionDef))
                yield LocalClass(name, bases, fields, methods)

    def imported(self) -> dict[str, str]:
        """The names that the file imports at its top level, each bound once."""
        found: dict[str, str] = {}
        for name, bindings in self.found.module.bindings.items():
            if len(bindings) == 1 and bindings[0].kind == "import" and bindings[0].target and name != "*":
                found[name] = bindings[0].target
        return found

    def _fields_of(self, node: cst.ClassDef, here: Here) -> Iterable[tuple[str, Value]]:
        for line in node.body.body:
            for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                    yield small.target.value, self._field_default(small.value, here)

    def _field_default(self, node: cst.BaseExpression | None, here: Here) -> Value:
        """The default of a dataclass field: the literal, or that of `field(default=…)`."""
        if node is None:
            return Unknown("it must be given")
        if isinstance(node, cst.Call) and (dotted(node.func) or "").rpartition(".")[2] == "field":
            node = next((a.value for a in node.args if a.keyword is not None and a.keyword.value == "default"), None)
            if node is None:
                return Unknown("its default is computed")
        return self.value(node, here)

    def environment(self) -> dict[str, Argument]:
        """What the file sets in os.environ by plain statements at its top level."""
        found: dict[str, Argument] = {}
        for store in self.found.module.stores.get("os", ()):
            if store.kind != "item" or store.tail != ("environ",) or store.key is None or store.value is None:
                continue
            here = Here(store.scope, store.point, None)
            key = self.value(store.key, here) if isinstance(store.key, cst.BaseExpression) else Unknown("")
            if not isinstance(key, Known) or not isinstance(key.value, str):
                continue
            span = self.span(store.value)
            place = Place("env", span, span, span.start, self.binding_of(store.value, here))
            found[key.value] = Argument(
                key.value, self.value(store.value, here), place, conditional=bool(store.point.path)
            )
        return found

    def commands(self) -> Iterable[Command]:
        """The commands that the file starts itself through subprocess or os.system, where their words can be read."""
        for call, here in self.found.calls:
            name = self.qualified(call.func, here.scope, here.point) or ""
            if name not in _SPAWNING or not call.args or call.args[0].star:
                continue
            words = self._spawned(call.args[0].value, here)
            if not any(w.text is not None and _OF_INTEREST.search(w.text) for w in words):
                continue
            yield Command(
                tuple(words), self._spawned_environment(call, here), self.span(call),
                background=name.endswith(("Popen", "create_subprocess_exec")), conditional=bool(here.point.path),
                function=here.scope.function, quoted=True,
            )  # fmt: skip

    def _spawned(self, node: cst.BaseExpression, here: Here) -> list[Word]:
        if isinstance(node, cst.Name):
            bindings, _owner = reaching(here.scope, node.value, here.point)
            if len(bindings) == 1 and isinstance(bindings[0].node, (cst.List, cst.Tuple, cst.SimpleString)):
                node, here = bindings[0].node, Here(bindings[0].scope, bindings[0].point, None)
        if isinstance(node, (cst.List, cst.Tuple)):
            return [self._spawned_word(e, here) for e in node.elements]
        text = self.value(node, here)
        if not isinstance(text, Known) or not isinstance(text.value, str):
            return []
        import shlex

        try:
            return [Word(w, self.span(node), plain=False) for w in shlex.split(text.value)]
        except ValueError:
            return []

    def _spawned_word(self, element: cst.BaseElement, here: Here) -> Word:
        span = self.span(element.value)
        if isinstance(element, cst.StarredElement):
            return Word(None, span, f"`{self.code(element.value)}` is unpacked into it", plain=False)
        if self.qualified(element.value, here.scope, here.point) == "sys.executable":
            return Word("python", span, plain=False)
        if isinstance(element.value, cst.Call) and dotted(element.value.func) == "str" and element.value.args:
            element = element.with_changes(value=element.value.args[0].value)
        value = self.value(element.value, here)
        if isinstance(value, Known) and isinstance(value.value, (str, int, float)):
            return Word(str(value.value), span, plain=False)
        return Word(None, span, value.why if isinstance(value, Unknown) else "it is computed at run time", plain=False)

    def _spawned_environment(self, call: cst.Call, here: Here) -> dict[str, Argument]:
        given = next((a.value for a in call.args if a.keyword is not None and a.keyword.value == "env"), None)
        table = _table(self.value(given, here)) if given is not None else None
        return dict(table.entries) if table is not None else {}

    # values ----------------------------------------------------------------------------------------------------------

    def code(self, node: cst.CSTNode) -> str:
        text = self.tree.code_for_node(node)
        return text if len(text) <= 40 and "\n" not in text else text.split("\n")[0][:37] + "..."

    def binding_of(self, node: cst.BaseExpression, here: Here) -> Span | None:
        """The literal behind a name that is bound once: where the value is really written."""
        seen: Span | None = None
        scope, point = here.scope, here.point
        for _ in range(5):
            if not isinstance(node, cst.Name) or node.value in ("True", "False", "None"):
                break
            bindings, owner = reaching(scope, node.value, point)
            if (
                owner is None
                or len(owner.bindings[node.value]) != 1
                or bindings[0].kind != "assign"
                or bindings[0].node is None
            ):
                return None
            binding = bindings[0]
            node, scope, point = binding.node, binding.scope, binding.point  # type: ignore[assignment]
            seen = self.span(node)
        return seen

    def value(self, node: cst.BaseExpression, here: Here) -> Value:
        """What an expression is, as far as this file shows it."""
        self.depth += 1
        try:
            if self.depth > DEPTH:
                return Unknown("it is nested too deeply")
            return self._value(node, here)
        finally:
            self.depth -= 1

    def _value(self, node: cst.BaseExpression, here: Here) -> Value:
        match node:
            case cst.Name():
                return self._name(node, here)
            case cst.SimpleString() | cst.ConcatenatedString() | cst.FormattedString():
                return self._string(node, here)
            case cst.Integer() | cst.Float():
                return Known(node.evaluated_value, Written(self.span(node)))
            case cst.UnaryOperation():
                return self._unary(node, here)
            case cst.BinaryOperation():
                return self._arithmetic(node, here)
            case cst.BooleanOperation():
                return self._boolean(node, here)
            case cst.Comparison():
                return self._comparison(node, here)
            case cst.IfExp():
                return self._conditional(node, here)
            case cst.Tuple() | cst.List() | cst.Set():
                return self._sequence(node, here)
            case cst.Dict():
                return self._dict(node, here)
            case cst.Call():
                return self._call(node, here)
            case cst.Attribute():
                return self._attribute(node, here)
            case cst.Subscript():
                return self._subscript(node, here)
            case cst.NamedExpr():
                return self.value(node.value, here)
            case cst.Lambda():
                return self._known(Symbol("<lambda>"), node)
            case _:
                return Unknown(f"`{self.code(node)}` is computed at run time")

    def _known(self, value: object, node: cst.CSTNode) -> Known:
        return Known(value, Written(self.span(node)))

    def _name(self, node: cst.Name, here: Here) -> Value:
        if node.value in ("True", "False", "None"):
            return self._known({"True": True, "False": False, "None": None}[node.value], node)
        bindings, _owner = reaching(here.scope, node.value, here.point)
        if not bindings:
            path = self._starred(node.value)
            return (
                self._known(Symbol(path), node)
                if path is not None
                else Unknown(f"`{node.value}` is not bound in this file")
            )
        if len(bindings) > MOST_ALTERNATIVES:
            return Unknown(f"`{node.value}` is bound in many places")
        values = [self._bound(b, here) for b in bindings]
        return values[0] if len(values) == 1 else _merge(values, f"`{node.value}` is bound in several places")

    def _bound(self, binding: Binding, here: Here) -> Value:
        key = id(binding)
        if key in self._busy:
            return Unknown(f"`{binding.name}` is defined by itself")
        self._busy.add(key)
        try:
            return self._meaning(binding, here)
        finally:
            self._busy.discard(key)

    def _meaning(self, binding: Binding, here: Here) -> Value:
        at = Here(binding.scope, binding.point, None)
        match binding.kind:
            case "assign" if isinstance(binding.node, cst.BaseExpression):
                value = self.value(binding.node, at)
                if isinstance(value, Known) and isinstance(value.value, Table):
                    return Known(self._mutated(value.value, binding, here), value.origin)
                if isinstance(value, Known) and isinstance(value.value, tuple) and self._changed(binding):
                    return Unknown(f"`{binding.name}` changes as the program runs")
                return value
            case "unpack" if isinstance(binding.node, cst.Call):
                return self._unpack(binding.node, binding.index, at, binding.name)
            case "import":
                return (
                    Known(Symbol(binding.target), Derived("an import")) if binding.target else Unknown("a star import")
                )
            case "param":
                return self._parameter(binding)
            case "def" | "class" if isinstance(binding.node, (cst.FunctionDef, cst.ClassDef)):
                return Known(Symbol(f"<local>.{binding.name}"), Written(self.span(binding.node.name)))
        return Unknown(f"`{binding.name}` changes as the program runs")

    def _unpack(self, call: cst.Call, index: int, at: Here, name: str) -> Value:
        klass = self.classify(call.func, at.scope, at.point)
        if klass is not None and klass.kind == "model" and klass.origin.startswith("unsloth."):
            return (
                Known(Object(self.site(call, klass, self.found.heres[id(call)])), Written(self.span(call)))
                if index == 0
                else Unknown(f"`{name}` comes with the model")
            )
        if isinstance(call.func, cst.Attribute) and call.func.attr.value.startswith("parse"):
            parser = self._parser_call(call.func.value, at)
            if parser is not None:
                site = self.parsed(parser, index, self.found.heres[id(parser)])
                if site is not None:
                    return Known(Object(site), Written(site.span))
            return Unknown("it comes from the command line")
        return Unknown(f"`{name}` is unpacked from `{self.code(call)}`")

    def _parser_call(self, owner: cst.BaseExpression, at: Here) -> cst.Call | None:
        """The TrlParser(…) or HfArgumentParser(…) call behind `parser` in `parser.parse_args_and_config()`."""
        if isinstance(owner, cst.Name):
            bindings, _owner = reaching(at.scope, owner.value, at.point)
            if len(bindings) != 1 or not isinstance(bindings[0].node, cst.Call):
                return None
            owner, at = bindings[0].node, Here(bindings[0].scope, bindings[0].point, None)
        if not isinstance(owner, cst.Call):
            return None
        klass = self.classify(owner.func, at.scope, at.point)
        return owner if klass is not None and klass.kind == "parser" else None

    def _parameter(self, binding: Binding) -> Value:
        """A parameter of a function that is called exactly once is what that call gives; else its default is only likely."""
        function = binding.scope.node
        likely = None
        if isinstance(binding.node, cst.BaseExpression):
            default = self.value(binding.node, Here(binding.scope.parent or binding.scope, binding.point, None))
            likely = default if isinstance(default, Known) else None
        if not isinstance(function, cst.FunctionDef) or (
            binding.scope.parent is not None and binding.scope.parent.kind == "class"
        ):
            return Unknown(f"`{binding.name}` is a parameter", likely)
        name = function.name.value
        calls = self._calls(name)
        if len(calls) != 1 or self.found.loads.get(name, 0) != 1:
            return Unknown(f"`{binding.name}` is a parameter of {name}()", likely)
        call, at = calls[0]
        if any(a.star for a in call.args):
            return Unknown(f"`{binding.name}` is a parameter of {name}()", likely)
        given = next((a.value for a in call.args if a.keyword is not None and a.keyword.value == binding.name), None)
        if given is None:
            positional = [a.value for a in call.args if a.keyword is None]
            given = positional[binding.index] if binding.index < len(positional) else None
        if given is not None:
            return self.value(given, at)
        return likely if likely is not None else Unknown(f"`{binding.name}` is a parameter of {name}()")

    def _calls(self, name: str) -> list[tuple[cst.Call, Here]]:
        if self._calls_of is None:
            self._calls_of = {}
            for call, here in self.found.calls:
                if isinstance(call.func, cst.Name):
                    self._calls_of.setdefault(call.func.value, []).append((call, here))
        return self._calls_of.get(name, [])

    def _string(self, node: cst.BaseExpression, here: Here) -> Value:
        match node:
            case cst.SimpleString():
                text = node.evaluated_value
                return self._known(text, node) if isinstance(text, str) else Unknown("it is bytes")
            case cst.ConcatenatedString():
                left, right = self._string(node.left, here), self._string(node.right, here)
                if isinstance(left, Known) and isinstance(right, Known):
                    return self._known(f"{left.value}{right.value}", node)
                return Unknown(f"`{self.code(node)}` is put together at run time")
            case cst.FormattedString():
                parts: list[str] = []
                for part in node.parts:
                    if isinstance(part, cst.FormattedStringText):
                        parts.append(part.value)
                        continue
                    value = (
                        self.value(part.expression, here)
                        if isinstance(part, cst.FormattedStringExpression)
                        else Unknown("")
                    )
                    plain = (
                        isinstance(part, cst.FormattedStringExpression)
                        and part.conversion is None
                        and part.format_spec is None
                    )
                    if not plain or not isinstance(value, Known) or not isinstance(value.value, (str, int)):
                        return Unknown(f"`{self.code(node)}` is put together at run time")
                    parts.append(str(value.value))
                return self._known("".join(parts), node)
        return Unknown("it is no string")

    def _unary(self, node: cst.UnaryOperation, here: Here) -> Value:
        return self._apply(node, _UNARY.get(type(node.operator)), [self.value(node.expression, here)])

    def _arithmetic(self, node: cst.BinaryOperation, here: Here) -> Value:
        function = _ARITHMETIC.get(type(node.operator))
        left, right = self.value(node.left, here), self.value(node.right, here)
        if isinstance(node.operator, cst.BitOr) and _table(left) is not None and _table(right) is not None:
            first, second = _table(left), _table(right)
            assert first is not None
            assert second is not None
            return self._known(
                Table({**first.entries, **second.entries}, self.span(node), first.open or second.open), node
            )
        return self._apply(node, function, [left, right])

    def _boolean(self, node: cst.BooleanOperation, here: Here) -> Value:
        left = self.value(node.left, here)
        is_or = isinstance(node.operator, cst.Or)
        if isinstance(left, Known) and _plain(left.value):
            return left if bool(left.value) == is_or else self.value(node.right, here)
        return Unknown(f"`{self.code(node)}` is decided at run time")

    def _comparison(self, node: cst.Comparison, here: Here) -> Value:
        if len(node.comparisons) != 1:
            return Unknown(f"`{self.code(node)}` is decided at run time")
        target = node.comparisons[0]
        function = _COMPARISONS.get(type(target.operator))
        return self._apply(node, function, [self.value(node.left, here), self.value(target.comparator, here)])

    def _apply(self, node: cst.BaseExpression, function: Callable[..., object] | None, values: list[Value]) -> Value:
        if function is None or not all(isinstance(v, Known) and _plain(v.value) for v in values):
            reason = next(
                (v.why for v in values if isinstance(v, Unknown)), f"`{self.code(node)}` is computed at run time"
            )
            return Unknown(reason)
        operands = [v.value for v in values if isinstance(v, Known)]
        if any(isinstance(o, int) and abs(o) > 10**12 for o in operands) or any(
            isinstance(o, str) and len(o) > 10_000 for o in operands
        ):
            return Unknown(f"`{self.code(node)}` is too large to compute here")
        try:
            result = function(*operands)
        except Exception:
            return Unknown(f"`{self.code(node)}` cannot be computed")
        return self._known(result, node) if _plain(result) else Unknown(f"`{self.code(node)}` is computed at run time")

    def _conditional(self, node: cst.IfExp, here: Here) -> Value:
        test = self.value(node.test, here)
        if isinstance(test, Known) and _plain(test.value):
            return self.value(node.body if test.value else node.orelse, here)
        return _merge(
            [self.value(node.body, here), self.value(node.orelse, here)], f"`{self.code(node)}` is decided at run time"
        )

    def _sequence(self, node: cst.Tuple | cst.List | cst.Set, here: Here) -> Value:
        values: list[object] = []
        for element in node.elements:
            value = self.value(element.value, here) if isinstance(element, cst.Element) else Unknown("it is unpacked")
            if not isinstance(value, Known):
                return Unknown(f"`{self.code(node)}` holds what cannot be read here")
            values.append(value.value)
        return self._known(tuple(values), node)

    def _dict(self, node: cst.Dict, here: Here) -> Value:
        entries: dict[str, Argument] = {}
        open_: str | None = None
        whole = self.span(node)
        for element in node.elements:
            if isinstance(element, cst.StarredDictElement):
                inner = _table(self.value(element.value, here))
                if inner is None:
                    open_ = f"`**{self.code(element.value)}` is not readable here"
                else:
                    entries.update(inner.entries)
                    open_ = inner.open or open_
                continue
            assert isinstance(element, cst.DictElement)
            key = self.value(element.key, here)
            if not isinstance(key, Known) or not isinstance(key.value, str):
                open_ = f"the key `{self.code(element.key)}` is not readable here"
                continue
            start, end = self.span(element.key), self.span(element.value)
            place = Place("entry", _join(start, end), end, whole.start, self.binding_of(element.value, here))
            entries[key.value] = Argument(key.value, self.value(element.value, here), place)
        return self._known(Table(entries, whole, open_), node)

    def _changed(self, binding: Binding) -> bool:
        """Whether items of the list behind a name are added, replaced or removed, here or in a function."""
        stores = (store for scope in _scopes(self.found) for store in scope.stores.get(binding.name, ()))
        return any(not store.tail and store.kind != "attribute" for store in stores)

    def _mutated(self, table: Table, binding: Binding, here: Here) -> Table:
        """The mapping behind a name as it is when `here` reads it: item assignments and updates in between are folded in."""
        inner = here.scope is not binding.scope
        for store in binding.scope.stores.get(binding.name, ()):
            if store.tail or store.point.order <= binding.point.order:
                continue
            if not inner and (store.point.order >= here.point.order or store.point.excludes(here.point)):
                continue
            sure = store.point.always_before(here.point) if not inner else not store.point.path
            table = self._mutate(table, store, sure)
        return table

    def _mutate(self, table: Table, store: Store, sure: bool) -> Table:
        at = Here(store.scope, store.point, None)
        entries = dict(table.entries)
        key = (
            Known(store.key, Derived("a keyword"))
            if isinstance(store.key, str)
            else self.value(store.key, at)
            if store.key is not None
            else None
        )
        match store.kind:
            case "item" if isinstance(key, Known) and isinstance(key.value, str) and store.value is not None:
                whole = self.span(store.node)
                place = Place(
                    "assignment" if not isinstance(store.node, cst.Arg) else "keyword",
                    whole,
                    self.span(store.value),
                    whole.start,
                    self.binding_of(store.value, at),
                )
                value = self.value(store.value, at)
                before = entries.get(key.value)
                entries[key.value] = Argument(
                    key.value, value if sure else _either(before, value), place, conditional=not sure
                )
                return Table(entries, table.span, table.open)
            case "update" if store.value is not None:
                inner = _table(self.value(store.value, at))
                if inner is None:
                    return Table(entries, table.span, f"it is updated from `{self.code(store.value)}`")
                for name, argument in inner.entries.items():
                    entries[name] = (
                        argument
                        if sure
                        else replace(argument, conditional=True, value=_either(entries.get(name), argument.value))
                    )
                return Table(entries, table.span, table.open or inner.open)
            case "delete" if isinstance(key, Known) and isinstance(key.value, str):
                if sure:
                    entries.pop(key.value, None)
                elif key.value in entries:
                    entries[key.value] = replace(
                        entries[key.value], conditional=True, value=Unknown("it may be deleted again")
                    )
                return Table(entries, table.span, table.open)
        return Table(
            {n: replace(a, value=Unknown("its mapping is changed at run time")) for n, a in entries.items()},
            table.span,
            "keys are set at run time",
        )

    # calls -----------------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call, here: Here) -> Value:
        at = self.found.heres.get(id(node), here)
        klass = self.classify(node.func, at.scope, at.point)
        if klass is not None and klass.kind != "parser":
            if id(node) in self._busy:
                return Unknown("it is defined by itself")
            self._busy.add(id(node))
            try:
                return Known(Object(self.site(node, klass, at)), Written(self.span(node)))
            finally:
                self._busy.discard(id(node))
        path = self.qualified(node.func, at.scope, at.point)
        name = path or dotted(node.func)
        if name in _OF_MODEL_CONFIG and node.args:
            return self._of_model_config(node, name, at)
        if name in _MODEL_WRAPPERS and node.args:
            return self.value(node.args[0].value, at)
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in _PASS_THROUGH:
            return self._through(node, at)
        if isinstance(node.func, cst.Attribute) and node.func.attr.value.startswith("parse"):
            return self._unpack(node, 0, at, node.func.attr.value)
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in ("get", "copy"):
            return self._lookup(node, at)
        if name == "dict":
            return self._dict_call(node, at)
        if name in _BUILTINS and name is not None and not any(a.star or a.keyword for a in node.args):
            return self._apply(node, _BUILTINS[name], [self.value(a.value, at) for a in node.args])
        if name in ("os.getenv", "os.environ.get"):
            likely = self.value(node.args[1].value, at) if len(node.args) > 1 else None
            return Unknown("the environment decides", likely if isinstance(likely, Known) else None)
        last = (name or "").rpartition(".")[2]
        if last[:1].isupper() and not last.isupper():  # a class: its instance is something, whatever it is
            return self._known(Symbol(f"<object>.{last}"), node)
        if isinstance(node.func, cst.Name):
            return self._returned(node, at)
        return Unknown(f"`{self.code(node)}` is computed at run time")

    def _of_model_config(self, node: cst.Call, name: str, at: Here) -> Value:
        """What TRL's helpers make of a ModelConfig: of one that a parser fills in, the command line and the recipe decide."""
        given = self.value(node.args[0].value, at)
        config = given.value.site if isinstance(given, Known) and isinstance(given.value, Object) else None
        helper = name.rpartition(".")[2]
        parsed = config is not None and config.open == PARSED
        if config is not None and not parsed and config.name == "ModelConfig":
            made = made_by(helper, config)
            if made is not None:
                return made
        return Unknown(f"`{self.code(node)}` is computed at run time", field=f"{helper}()" if parsed else None)

    def _through(self, node: cst.Call, at: Here) -> Value:
        assert isinstance(node.func, cst.Attribute)
        inner = self.value(node.func.value, at)
        if isinstance(inner, Known) and isinstance(inner.value, Object):
            return inner
        return Unknown(f"`{self.code(node)}` is computed at run time")

    def _lookup(self, node: cst.Call, at: Here) -> Value:
        assert isinstance(node.func, cst.Attribute)
        table = _table(self.value(node.func.value, at))
        if table is None:
            return Unknown(f"`{self.code(node)}` is computed at run time")
        if node.func.attr.value == "copy":
            return self._known(table, node)
        key = self.value(node.args[0].value, at) if node.args else None
        if isinstance(key, Known) and isinstance(key.value, str) and key.value in table.entries:
            return table.entries[key.value].value
        return Unknown(f"`{self.code(node)}` is computed at run time")

    def _dict_call(self, node: cst.Call, at: Here) -> Value:
        entries: dict[str, Argument] = {}
        open_: str | None = None
        whole = self.span(node)
        for arg in node.args:
            if arg.keyword is not None:
                place = Place(
                    "keyword", self.span(arg), self.span(arg.value), whole.start, self.binding_of(arg.value, at)
                )
                entries[arg.keyword.value] = Argument(arg.keyword.value, self.value(arg.value, at), place)
                continue
            inner = _table(self.value(arg.value, at))
            if inner is None:
                open_ = f"`{self.code(arg.value)}` is not readable here"
            else:
                entries.update(inner.entries)
                open_ = inner.open or open_
        return self._known(Table(entries, whole, open_), node)

    def _returned(self, node: cst.Call, at: Here) -> Value:
        """The value of a call of a function of this file with one `return`."""
        assert isinstance(node.func, cst.Name)
        bindings, _owner = reaching(at.scope, node.func.value, at.point)
        if len(bindings) != 1 or not isinstance(bindings[0].node, cst.FunctionDef):
            return Unknown(f"`{self.code(node)}` is computed at run time")
        returns = self.found.returns.get(id(bindings[0].node), [])
        if len(returns) != 1 or returns[0][0] is None or id(bindings[0]) in self._busy:
            return Unknown(f"`{self.code(node)}` is computed at run time")
        self._busy.add(id(bindings[0]))
        try:
            return self.value(returns[0][0], returns[0][1])
        finally:
            self._busy.discard(id(bindings[0]))

    def _attribute(self, node: cst.Attribute, here: Here) -> Value:
        path = self.qualified(node, here.scope, here.point)
        if path is not None:
            return self._known(Symbol(path), node)
        name = dotted(node)
        if name is None:
            return Unknown(f"`{self.code(node)}` is computed at run time")
        root, *tail = name.split(".")
        if root == "self" and len(tail) == 1:
            return self._self(tail[0], here)
        bindings, _owner = reaching(here.scope, root, here.point)
        if len(bindings) != 1:
            return Unknown(f"`{name}` is set elsewhere")
        binding = bindings[0]
        if isinstance(binding.node, cst.ClassDef) and len(tail) == 1:
            return self._class_constant(binding.node, tail[0], Here(binding.scope, binding.point, None))
        return self._field(binding, tail, name)

    def _self(self, name: str, here: Here) -> Value:
        """`self.x` where the class assigns it exactly once."""
        owner: Scope | None = here.scope
        while owner is not None and owner.kind != "class":
            owner = owner.parent
        stores = [
            store for scope in _scopes(self.found) if _within(scope, owner) for store in scope.stores.get("self", ())
            if store.tail == (name,) and store.kind == "attribute"
        ]  # fmt: skip
        if owner is None or len(stores) != 1 or stores[0].value is None or id(stores[0]) in self._busy:
            return Unknown(f"`self.{name}` is set elsewhere")
        self._busy.add(id(stores[0]))
        try:
            return self.value(stores[0].value, Here(stores[0].scope, stores[0].point, None))
        finally:
            self._busy.discard(id(stores[0]))

    def _class_constant(self, node: cst.ClassDef, name: str, here: Here) -> Value:
        found = [
            small
            for line in node.body.body
            if isinstance(line, cst.SimpleStatementLine)
            for small in line.body
            if _assigns(small, name)
        ]
        if len(found) != 1 or not isinstance(found[0], (cst.Assign, cst.AnnAssign)) or found[0].value is None:
            return Unknown(f"`{node.name.value}.{name}` is set elsewhere")
        return self.value(found[0].value, here)

    def _field(self, binding: Binding, tail: list[str], name: str) -> Value:
        """`args.x`: an argparse default is only likely; a field of a config in this file is what its site says."""
        value = self._bound(binding, Here(binding.scope, binding.point, None)) if len(tail) == 1 else Unknown("")
        if isinstance(value, Known) and isinstance(value.value, Object):
            site = value.value.site
            argument = site.arguments.get(tail[0])
            if argument is not None and not argument.conditional:
                return argument.value
            why = f"`{name}` is not given in this file"
            return Unknown(why, field=tail[0] if site.open == PARSED and argument is None else None)
        if isinstance(value, Known) and isinstance(value.value, Symbol):
            return Unknown(f"`{name}` is an attribute of something not read here")
        likely = self._argparse_default(binding, tail[0]) if len(tail) == 1 else None
        if likely is not None:
            return likely
        return Unknown(f"`{name}` is decided at run time")

    def _argparse_default(self, binding: Binding, name: str) -> Unknown | None:
        """The default of `--name` where an argparse parser of this file declares it: what a user may replace."""
        flags = {f"--{name}", f"--{name.replace('_', '-')}"}
        for call, here in self.found.calls:
            if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "add_argument":
                continue
            if not any(isinstance(a.value, cst.SimpleString) and a.value.evaluated_value in flags for a in call.args):
                continue
            given = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
            if "dest" in given:
                return Unknown(f"--{name} decides")
            if "default" in given:
                likely = self.value(given["default"], here)
            else:
                action = self.value(given["action"], here) if "action" in given else Known(None, Derived(""))
                named = action.value if isinstance(action, Known) else "unknown"
                if named not in _NOT_GIVEN:
                    return Unknown(f"--{name} decides")
                likely = Known(_NOT_GIVEN[named], Written(self.span(call)))
            return Unknown(f"--{name} decides", likely if isinstance(likely, Known) else None, field=name)
        return None

    def _subscript(self, node: cst.Subscript, here: Here) -> Value:
        table = _table(self.value(node.value, here))
        if table is None or len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return Unknown(f"`{self.code(node)}` is computed at run time")
        key = self.value(node.slice[0].slice.value, here)
        if isinstance(key, Known) and isinstance(key.value, str) and key.value in table.entries:
            return table.entries[key.value].value
        return Unknown(f"`{self.code(node)}` is computed at run time")


# Small helpers --------------------------------------------------------------------------------------------------------


def _small(number: Any, limit: int) -> Any:
    """The number, unless computing with it here could take for ever."""
    if abs(number) > limit:
        raise OverflowError
    return number


_UNARY: dict[type, Callable[..., object]] = {cst.Not: operator.not_, cst.Minus: operator.neg, cst.Plus: operator.pos}
_ARITHMETIC: dict[type, Callable[..., object]] = {
    cst.Add: operator.add, cst.Subtract: operator.sub, cst.Multiply: operator.mul, cst.Divide: operator.truediv,
    cst.FloorDivide: operator.floordiv, cst.Modulo: operator.mod, cst.LeftShift: lambda a, b: a << _small(b, 64),
    cst.Power: lambda a, b: _small(a, 10**6) ** _small(b, 16),
}  # fmt: skip
_COMPARISONS: dict[type, Callable[..., object]] = {
    cst.Equal: operator.eq, cst.NotEqual: operator.ne, cst.LessThan: operator.lt, cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt, cst.GreaterThanEqual: operator.ge, cst.Is: lambda a, b: a is b if b is None else a == b,
    cst.IsNot: lambda a, b: a is not b if b is None else a != b, cst.In: lambda a, b: a in b, cst.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_BUILTINS: dict[str, Callable[..., object]] = {
    "int": int, "float": float, "str": str, "bool": bool, "min": min, "max": max, "len": len, "abs": abs, "round": round, "os.path.join": os.path.join,
}  # fmt: skip


def _plain(value: object) -> bool:
    """Whether a value is plain data, that arithmetic can be done with here."""
    return (
        value is None
        or isinstance(value, (bool, int, float, str))
        or (isinstance(value, tuple) and all(_plain(v) for v in value))
    )


def _table(value: Value) -> Table | None:
    return value.value if isinstance(value, Known) and isinstance(value.value, Table) else None


def _merge(values: list[Value], why: str) -> Value:
    """One value of several possible ones."""
    known: list[Known] = []
    for value in values:
        if isinstance(value, Known):
            known.append(value)
        elif isinstance(value, OneOf):
            known.extend(value.values)
        else:
            return Unknown(value.why)
    distinct: list[Known] = []
    for value in known:
        if not any(type(value.value) is type(other.value) and value.value == other.value for other in distinct):
            distinct.append(value)
    if len(distinct) == 1:
        return distinct[0]
    return OneOf(tuple(distinct), Derived(why)) if len(distinct) <= MOST_ALTERNATIVES else Unknown(why)


def _either(before: Argument | None, value: Value) -> Value:
    """The value after an assignment that may not have run."""
    if before is None:
        likely = value if isinstance(value, Known) else None
        return Unknown("it is set only on one branch", likely)
    return _merge([before.value, value], "it is set again on one branch")


def _join(first: Span, last: Span) -> Span:
    return Span(first.path, first.start, last.end, first.line, first.column, last.end_line, last.end_column)


def _nowhere(span: Span) -> Place:
    return Place("assignment", span, span, span.start)


def _through_attribute(store: Store) -> Store:
    """The same change seen from the attribute it goes through: `args.kw["x"] = 1` changes `args.kw`."""
    return replace(store, tail=())


def _annotated(node: cst.ClassDef) -> Iterable[str]:
    for line in node.body.body:
        if isinstance(line, cst.SimpleStatementLine):
            for small in line.body:
                if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                    yield small.target.value


def _assigns(node: cst.CSTNode, name: str) -> bool:
    if isinstance(node, cst.AnnAssign):
        return isinstance(node.target, cst.Name) and node.target.value == name
    return isinstance(node, cst.Assign) and any(
        isinstance(t.target, cst.Name) and t.target.value == name for t in node.targets
    )


def _scopes(found: Outline) -> Iterable[Scope]:
    """Every scope that a call or return stands in, and the module's: enough to find who assigns what."""
    seen: dict[int, Scope] = {id(found.module): found.module}
    for here in (*(h for _c, h in found.calls), *(h for rs in found.returns.values() for _r, h in rs)):
        scope: Scope | None = here.scope
        while scope is not None and id(scope) not in seen:
            seen[id(scope)] = scope
            scope = scope.parent
    return seen.values()


def _within(scope: Scope, owner: Scope | None) -> bool:
    inner: Scope | None = scope
    while inner is not None:
        if inner is owner:
            return True
        inner = inner.parent
    return False
