"""A config's `__post_init__` or a trainer's `__init__` in; what it refuses and warns of, and under which condition, out.

Both are walked like derivations (`derivations`), but what is called is walked into as well, and every expression is put
into the condition language of rules: fields by bare name, `trainer.x`, `model.…`, `versions.…`. What the language cannot
say stands there as `opaque('source text')`, whose truth is unknown, so that the other operands may still decide.

A config gives a *sequence*: rows `[field, value, when]` as derivations have them, rows `["super", None, when]`, and in
their midst the guards, `[effect + kind, test, when, place, owner, phase]`; each is evaluated in the state that the rows before left
behind. A trainer gives guards only, all over the config as its `__post_init__` left it. `effect` is "!" for a raise and "?" for a
warning, `test` the tests that lead there as far as they can be said, which together with `owner` names the guard, `place` "file:function", `phase` one of
"construction", "first step" and, where nothing says that it is ever met, "training"; `uncertain` may follow.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from trl_lint.knowledge.derivations import MUTATORS, _Branch, _Condition, _negated, _Path, _Walk
from trl_lint.knowledge.source import UNREADABLE, Module, literal

Row: TypeAlias = "list[str | None]"

UNCERTAIN: Final = "uncertain"
"""Stands at the end of a guard of which one operand is opaque: whatever the files say, it never holds for certain."""

RAISE: Final = "!"
WARNING: Final = "?"

DEEPEST: Final = 4
"""How many calls a walk follows into each other."""

LARGEST: Final = 480
"""Characters of an expression beyond which it is no longer carried along where a part of it is opaque anyway."""

LARGEST_KNOWN: Final = 1600
"""The same where files can decide all of it."""

LARGEST_MAPPING: Final = 8000
"""The same for a mapping: conditions ask for single entries of it."""

LONGEST: Final = 70
"""Characters of source that `opaque` quotes."""

ARGS: Final = "__args__"
MODEL: Final = "__model__"
LOADED: Final = "__loaded__"
WRAPPED: Final = "__wrapped__"
DEEPSPEED: Final = "__deepspeed__"
FILLED: Final = "__filled__"
DTYPE: Final = "__dtype__"
REST: Final = "__rest__"
UPDATED: Final = "__updated__"
OLDER: Final = "__older__"
MARKERS: Final = frozenset({ARGS, OLDER, MODEL, LOADED, WRAPPED, DEEPSPEED, FILLED, DTYPE, REST, UPDATED})
"""Things that a walk follows but the language does not know: the config, the model as the trainer is given it, a model
that the trainer loads, one that it wraps in PEFT, accelerate's DeepSpeed plugin, a list of which items were replaced,
the config under an older name where the usual one is there as well, the dtype that torch has by a name, what a constructor hands on without looking (`*args`, `**kwargs`), a mapping of which
entries were replaced (None: taken out)."""

ACCELERATOR: Final = "accelerator_config"
"""The field that transformers turns from a mapping into an object; the language has its entries."""

CONFIGS: Final = ("args", "config", "training_args")
"""What trainers call the parameter that takes the config, the usual name first."""

STEP: Final = "training_step"
FIRST_STEP: Final = ("_prepare_inputs", "compute_loss")
"""What transformers' `Trainer.training_step` calls without a condition: the first step of any training meets it."""

ALWAYS: Final = frozenset({"is_torch_available", "is_accelerate_available"})
"""Checks for what every training has."""

LOADERS: Final = frozenset({"create_model_from_path", "from_pretrained", "from_config", "merge_and_unload"})
WRAPPERS: Final = frozenset({"get_peft_model"})
SAME: Final = frozenset(
    {"prepare_model_for_kbit_training", "enable_gradient_checkpointing", "peft_module_casting_to_bf16", "list", "tuple", "dict"}
)  # fmt: skip
"""Functions that hand their first argument back, as far as conditions can tell."""

LENGTHS: Final = frozenset({"len", "min", "max", "abs", "int", "float", "bool", "str"})
PLAIN: Final = frozenset({"str", "int", "float", "bool", "list", "tuple", "dict"})
PROMPT_LEARNING: Final = frozenset({"PrefixTuningConfig", "PromptTuningConfig", "PromptEncoderConfig", "CPTConfig"})
PACKAGES: Final = frozenset(
    {"vllm", "peft", "liger_kernel", "deepspeed", "bitsandbytes", "kernels", "unsloth", "jmespath", "mergekit", "weave", "rich", "wandb",
     "diffusers", "llm_blender", "aiohttp", "math_verify", "harbor", "openreward", "requests", "fastapi", "uvicorn", "pydantic", "comet", "trackio"}
)  # fmt: skip
STRATEGIES: Final = {name: name.lower() for name in ("NO", "STEPS", "EPOCH", "BEST")}
ENUMERATIONS: Final[Mapping[str, Mapping[str, str]]] = {"IntervalStrategy": STRATEGIES, "SaveStrategy": STRATEGIES}
"""The enumerations of transformers that TRL compares with; their members equal these texts. TRL's own come on top of them: a text
that a config makes a member of one stays that text here."""

NOT_FIELDS: Final = frozenset(
    {"n_gpu", "device", "process_index", "local_process_index", "distributed_state", "parallel_mode", "train_batch_size", "eval_batch_size",
     "should_save", "should_log", "ddp_timeout_delta", "place_model_on_device", "hf_deepspeed_config", "_n_gpu", "get_process_log_level"}
)  # fmt: skip
"""What a `TrainingArguments` offers beside its fields; the files say nothing of them."""

OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
LOGGED: Final = frozenset({"warning", "warning_once", "warn"})


class Library:
    """The modules of one package, as a walk asks for them: where names lead, and which class is behind which."""

    def __init__(
        self,
        modules: Mapping[str, Module],
        bases: Callable[[str, ast.ClassDef], list[tuple[str | None, str]]],
        origin: Callable[[str, str], tuple[str, str] | None],
        enumerations: Mapping[str, Mapping[str, str]] = ENUMERATIONS,
    ) -> None:
        self.enumerations = enumerations
        self.modules = modules
        self.bases = bases
        self.origin = origin

    def function(
        self, module: str, name: str, seen: frozenset[str] = frozenset()
    ) -> tuple[str, ast.FunctionDef] | None:
        """The module-level function that `module` calls `name`, and its home."""
        here = self.modules.get(module)
        if here is None or module in seen:
            return None
        found = here.functions.get(name)
        if found is not None:
            return module, found
        target = here.imports.get(name)
        return self.function(target[0], target[1], seen | {module}) if target is not None and target[1] else None

    def constant(self, module: str, name: str) -> ast.expr | None:
        """A module-level literal by the name that `module` has for it."""
        for _ in range(4):
            here = self.modules.get(module)
            if here is None:
                return None
            if name in here.constants:
                value = here.constants[name]
                return value if literal(value) is not UNREADABLE else None
            target = here.imports.get(name)
            if target is None or target[1] is None:
                return None
            module, name = target[0], target[1]
        return None

    def line(self, module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
        """A class and its bases within the package, in method resolution order (which TRL keeps simple)."""
        waiting = [(module, node)]
        seen: set[tuple[str, str]] = set()
        while waiting:
            home, link = waiting.pop(0)
            if (home, link.name) in seen:
                continue
            seen.add((home, link.name))
            yield home, link
            inner = [(m, n) for m, n in self.bases(home, link) if m is not None]
            waiting = [(m, self.modules[m].classes[n]) for m, n in inner if n in self.modules[m].classes] + waiting


def config_sequence(library: Library, module: str, node: ast.ClassDef) -> list[Row]:
    """The rows of the `__post_init__` that a config class defines itself; [] where it defines none."""
    function = method(node, "__post_init__")
    if function is None:
        return []
    walk = _Guards(library, node.name, _Frame(module, node, "self", None, function, frozenset()))
    walk.names_of(function)
    walk.block(function.body, ())
    return _used(node.name, walk.steps)


def trainer_guards(library: Library, module: str, node: ast.ClassDef) -> list[Row]:
    """The guards of a trainer: what its `__init__` (perhaps a base's) meets, then those of its own other methods."""
    line = list(library.line(module, node))
    home = next(((m, c, f) for m, c in line if (f := method(c, "__init__")) is not None), None)
    if home is None:
        return []
    frame = _Frame(home[0], home[1], "self", "self", home[2], frozenset(), named=home[1].name)
    walk = _Guards(library, node.name, frame, line=line)
    walk.parameters(home[2])
    walk.block(home[2].body, ())
    step = next((found for _, owner in line if (found := method(owner, STEP)) is not None), None)
    own = step is not None and f"super().{STEP}(" not in ast.unparse(step)
    for name in (STEP,) if own else FIRST_STEP:
        walk.first_step(name)
    walk.settle()
    for owner, link in line[:1]:
        for other in link.body:
            if isinstance(other, ast.FunctionDef) and other.name not in walk.visited and not _is_property(other):
                walk.later(owner, link, other)
    return _distinct(row for row in walk.steps if is_guard(row))


def is_guard(row: Sequence[str | None]) -> bool:
    """Whether a row of a sequence is a guard."""
    return (row[0] or "")[:1] in (RAISE, WARNING)


def method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """A method that a class defines itself."""
    return next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


@dataclass(frozen=True)
class _Frame:
    """One function that is walked. `receiver` is what its `self` is: None for a config, whose attributes are fields."""

    module: str
    owner: ast.ClassDef | None
    self_name: str | None
    receiver: str | None
    function: ast.FunctionDef
    names: frozenset[str]
    number: int = 0
    base: int = 0
    active: tuple[str, ...] = ()
    named: str = ""
    returned: list[tuple[tuple[_Branch, ...], ast.expr]] = field(default_factory=list, compare=False)

    @property
    def scope(self) -> str:
        name = self.function.name
        return f"{self.owner.name}.{name}" if self.owner is not None else name


class _Guards(_Walk):
    """Values of locals are kept under "number:name", those of an object's attributes under "receiver.name"."""

    def __init__(
        self, library: Library, owner: str, frame: _Frame, *, line: Sequence[tuple[str, ast.ClassDef]] = ()
    ) -> None:
        super().__init__(owner, frozenset())
        self.library = library
        self.frame = frame
        self.line = line
        self.trainer = bool(line)
        self.frames = 0
        self.objects: dict[str, list[tuple[str, ast.ClassDef]]] = {"self": list(line)}
        self.visited: set[str] = {frame.function.name}
        self.phase = "construction"
        self.meant: dict[str, str] = {}
        # By calls within an expression that change what they are called on.
        self.returned: dict[ast.Call, ast.expr] = {}
        self.older: str | None = None  # the parameter that took the config before it was called `args`

    # frames ----------------------------------------------------------------------------------------------------------

    def names_of(self, function: ast.FunctionDef) -> None:
        """From now on the names that `function` binds are locals."""
        self.frame = replace(self.frame, names=_bound(function))

    def parameters(self, function: ast.FunctionDef) -> None:
        """The parameters of a trainer's constructor, as the call gives them."""
        self.names_of(function)
        self.older = next(iter([name for name in CONFIGS if name in _parameters(function)][1:]), None)
        for name in _parameters(function):
            self.bind(name, self.keyword(name, function, self.frame.module))
        for extra in (function.args.vararg, function.args.kwarg):
            if extra is not None:
                self.bind(extra.arg, ast.Name(REST, ast.Load()))

    def keyword(self, name: str, function: ast.FunctionDef, module: str) -> ast.expr:
        """A parameter as the call of the trainer gives it."""
        default = _defaults(function).get(name)
        named = [one for one in CONFIGS if one in _parameters(function)]
        match name:
            case "args" | "config" | "training_args":
                return ast.Name(ARGS if name == named[0] else OLDER, ast.Load())
            case "model":
                return ast.Name(MODEL, ast.Load())
            case _ if default is None or (isinstance(default, ast.Constant) and default.value is None):
                return _dotted("trainer", name)
        given = ast.Call(ast.Name("given", ast.Load()), [_dotted("trainer", name)], [])
        return ast.IfExp(given, _dotted("trainer", name), self.fixed(default, module))

    def bind(self, name: str, value: ast.expr) -> None:
        self.values[f"{self.frame.number}:{name}"] = value

    def later(self, module: str, owner: ast.ClassDef, function: ast.FunctionDef) -> None:
        """A method that only a running training calls: its guards are kept, but nothing says that they are met."""
        outer, before = self.frame, dict(self.values)
        self.frames += 1
        # Nothing is followed from there: what it calls has its own turn.
        active = ("",) * DEEPEST
        self.frame = _Frame(
            module, owner, "self", "self", function, frozenset(), self.frames, active=active, named=owner.name
        )
        self.names_of(function)
        for name in _parameters(function):
            self.bind(name, opaque(name))
        self.block(function.body, (_known(opaque(f"{function.name} runs while training")),))
        self.frame, self.values = outer, before

    def first_step(self, name: str) -> None:
        """A method that the first training step certainly calls, with what it calls itself."""
        home = next(((m, c, f) for m, c in self.line if (f := method(c, name)) is not None), None)
        if home is None:
            return
        outer = self.frame
        self.frames += 1
        self.visited.add(name)
        active = (f"{home[0]}.{home[1].name}.{name}",)
        self.frame = _Frame(*home[:2], "self", "self", home[2], frozenset(), self.frames, 0, active, home[1].name)
        self.names_of(home[2])
        for parameter in _parameters(home[2]):
            # Only evaluation asks for the outputs.
            self.bind(parameter, ast.Constant(False) if parameter == "return_outputs" else opaque(parameter))
        self.phase = "first step"
        self.block(home[2].body, ())
        self.frame = outer

    def settle(self) -> None:
        """After the first step: an attribute that some other method writes may be anything."""
        self.phase = "training"
        for _, link in self.line:
            for function in link.body:
                if isinstance(function, ast.FunctionDef) and function.name not in self.visited:
                    for node in ast.walk(function):
                        if (
                            isinstance(node, ast.Attribute)
                            and isinstance(node.ctx, ast.Store)
                            and _text(node.value) == "self"
                        ):
                            self.values[f"self.{node.attr}"] = opaque(f"self.{node.attr}")

    def enter(
        self,
        call: ast.Call,
        path: _Path,
        function: ast.FunctionDef,
        module: str,
        owner: ast.ClassDef | None,
        receiver: str | None,
    ) -> ast.expr | None:
        """Walk a called function with its arguments put in; what it returns, or None where it is not followed."""
        name = f"{module}.{owner.name if owner else ''}.{function.name}"
        if len(self.frame.active) >= DEEPEST or name in self.frame.active:
            self.unseen(function, path)
            return None
        if owner is not None and receiver == "self":
            self.visited.add(function.name)
        given = self.arguments(call, function, module, bound=owner is not None and not _is_static(function))
        outer = self.frame
        self.frames += 1
        bound = owner is not None and not _is_static(function)
        self_name = function.args.args[0].arg if bound and function.args.args else None
        # A config's helper goes on writing fields; any other function has no self of ours.
        self.frame = _Frame(
            module, owner, self_name, receiver, function, frozenset(), self.frames, len(path), (*outer.active, name),
            owner.name if owner is not None and (module, owner) in self.line else outer.named,
        )  # fmt: skip
        self.names_of(function)
        for parameter, value in given.items():
            self.bind(parameter, value)
        ended = self.block(function.body, path)
        returned, self.frame = self.frame.returned, outer
        result: ast.expr = ast.Constant(None)
        if ended and returned:
            result = returned[-1][1]
            returned = returned[:-1]
        for branches, value in reversed(returned):
            tests = [b.condition.test if b.holds else _negated(b.condition.test) for b in branches if b.condition.test]
            result = _choice(_all(tests), value, result) if tests else value
        return _sized(result, ast.unparse(call.func))

    def unseen(self, function: ast.FunctionDef, path: _Path) -> None:
        """A function that is not followed: what it writes to the same object may be anything."""
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self.store(node, opaque(_short(node)), path)

    def fixed(self, default: ast.expr, module: str) -> ast.expr:
        """The default of a parameter, as the module of its function knows it."""
        if isinstance(default, ast.Name):
            return self.library.constant(module, default.id) or opaque(default.id)
        return default if literal(default) is not UNREADABLE else opaque(_short(default))

    def arguments(self, call: ast.Call, function: ast.FunctionDef, module: str, *, bound: bool) -> dict[str, ast.expr]:
        """What each parameter of a called function stands for."""
        positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][1 if bound else 0 :]
        found: dict[str, ast.expr] = {}
        defaults = function.args.defaults
        for name, default in zip(positional[len(positional) - len(defaults) :], defaults, strict=False):
            found[name] = self.fixed(default, module)
        for argument, keyword_default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            if keyword_default is not None:
                found[argument.arg] = self.fixed(keyword_default, module)
        for name, given in zip(positional, call.args, strict=False):
            if isinstance(given, ast.Starred):
                break
            found[name] = self.lower(given)
        for keyword in call.keywords:
            if keyword.arg is not None:
                found[keyword.arg] = self.lower(keyword.value)
        every = [*positional, *(a.arg for a in function.args.kwonlyargs)]
        starred = [a.value for a in call.args if isinstance(a, ast.Starred)]
        starred += [k.value for k in call.keywords if k.arg is None]
        if starred and self.trainer and all(_is_marker(self.lower(value), REST) for value in starred):
            # A constructor that hands on what it is given: the call of the trainer gives it.
            plain = itertools.takewhile(lambda a: not isinstance(a, ast.Starred), call.args)
            named = _given(call) | {name for name, _ in zip(positional, plain, strict=False)}
            passed = {name: found[name] if name in named else self.keyword(name, function, module) for name in every}
            extra = [a.arg for a in (function.args.vararg, function.args.kwarg) if a is not None]
            return passed | {name: ast.Name(REST, ast.Load()) for name in extra}
        open_call = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
        known = {name: found[name] for name in every if name in found and not (open_call and name not in _given(call))}
        extra = [a.arg for a in (function.args.vararg, function.args.kwarg) if a is not None]
        return {name: known.get(name) or opaque(name) for name in (*every, *extra)}

    # statements ------------------------------------------------------------------------------------------------------

    def statement(self, node: ast.stmt, path: _Path) -> tuple[bool, _Path]:
        match node:
            case ast.Assert(test=test):
                test = ast.UnaryOp(ast.Not(), test)
                self.guard(RAISE, "AssertionError", (*path, _known(self.lower(test))))
                return False, path
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.nested(node, path)
                return False, path
            case ast.Assign(targets=targets, value=value):
                result = self.evaluate(value, path)
                for target in targets:
                    self.store(target, result, path)
                return False, path
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.store(target, self.evaluate(value, path), path)
                return False, path
            case ast.AugAssign(target=target, op=sign, value=value):
                read = copy.deepcopy(target)
                read.ctx = ast.Load()
                self.store(target, self.lower(ast.BinOp(read, sign, value)), path)
                return False, path
            case ast.Expr(value=ast.Call() as call):
                self.called(call, path)
                return False, path
            case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
                caught = (*path, _known(opaque("inside a try")))
                ended = self.block([*body, *other], caught)
                for handler in handlers:
                    kind = ast.unparse(handler.type) if handler.type is not None else "an error"
                    self.forget(handler.body, path)
                    self.block(handler.body, (*path, _known(opaque(f"except {kind}"))))
                if handlers:
                    self.forget(body, path)  # how far it came, nothing says
                self.block(last, path)
                return ended and not handlers, path
            case ast.While(test=test, body=body):
                self.forget(body, path)
                self.block(body, (*path, _known(opaque(f"while {_short(test)}"))))
                self.forget(body, path)
                return False, path
            case ast.Delete(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Subscript):
                        self.store(target.value, opaque(_short(target.value)), path)
                return False, path
            case ast.With(body=body):
                return self.block(body, path), path
            case ast.For():
                self.loop(node, path)
                return False, path
        return super().statement(node, path)

    def leave(self, node: ast.stmt, path: _Path) -> None:
        match node:
            case ast.Raise(exc=ast.Call(func=function)):
                self.guard(RAISE, ast.unparse(function).rpartition(".")[2], path)
            case ast.Raise(exc=ast.Name(id=name)) if name[:1].isupper():
                self.guard(RAISE, name, path)
            case ast.Return(value=value):
                result = self.evaluate(value, path) if value is not None else ast.Constant(None)
                self.frame.returned.append((path[self.frame.base :], result))

    def nested(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, path: _Path) -> None:
        """A function inside the function: when it is called, the walk does not see."""
        self.bind(node.name, opaque(node.name))
        if not isinstance(node, ast.FunctionDef):
            return
        before = dict(self.values)
        for name in _parameters(node):
            self.bind(name, opaque(name))
        self.block(node.body, (*path, _known(opaque(f"{node.name} is called"))))
        self.values = before

    def branch(self, node: ast.If, path: _Path) -> tuple[bool, _Path]:
        match node:
            case ast.If(
                test=ast.UnaryOp(
                    op=ast.Not(), operand=ast.Call(func=ast.Name(id="isinstance"), args=[asked, ast.Name(id="list")])
                ),
                body=[ast.Assign(targets=[ast.Name() as target], value=ast.List(elts=[item]))],
                orelse=[],
            ) if ast.unparse(asked) == ast.unparse(target) == ast.unparse(item):
                self.bind(target.id, _as_list(self.lower(asked), _short(asked)))
                return False, path
        test = _truth(self.evaluate(node.test, path) if _mutates(node.test) else self.lower(node.test))
        if isinstance(test, ast.Constant):
            return self.block(node.body if test.value else node.orelse, path), path
        condition = _Condition(test if _in_reach(test) else opaque(_short(node.test)))
        self.pending.append((condition, path))
        before = dict(self.values)
        ended = self.block(node.body, (*path, _Branch(condition, True)))
        after, self.values = self.values, before
        other_ended = self.block(node.orelse, (*path, _Branch(condition, False)))
        self.merge(condition, after if not ended else None, None if other_ended else self.values)
        if ended and other_ended:
            return True, path
        # After a raise the rest needs no condition: the run has stopped there.
        if ended and _leaves(node.body):
            return False, (*path, _Branch(condition, False))
        if other_ended and _leaves(node.orelse):
            return False, (*path, _Branch(condition, True))
        self.pending.remove((condition, path))
        return False, path

    def merge(
        self, condition: _Condition, one: dict[str, ast.expr | None] | None, two: dict[str, ast.expr | None] | None
    ) -> None:
        if one is None or two is None:
            self.values = one if one is not None else two if two is not None else self.values
            return
        assert condition.test is not None
        merged: dict[str, ast.expr | None] = dict(one)
        for key in {key for key, value in one.items() if two.get(key) is not value} | (two.keys() - one.keys()):
            left, right = one.get(key), two.get(key)
            if key.startswith("args."):
                name = key.partition(".")[2]
                left, right = left or ast.Name(name, ast.Load()), right or ast.Name(name, ast.Load())
            if left is None or right is None or left is right or _text(left) == _text(right):
                merged[key] = left or right
            else:
                merged[key] = _sized(_choice(condition.test, left, right), key.partition(":")[2] or key)
        self.values = merged

    def loop(self, node: ast.For, path: _Path) -> None:
        rows = list(self.rows(node.iter))
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if rows and all(len(row) == len(targets) for row in rows):
            for row in rows:
                for target, item in zip(targets, row, strict=True):
                    self.store(target, item, path)
                self.block(node.body, path)
            return
        self.forget(node.body, path)
        for target in targets:
            self.store(target, opaque(_short(target)), path)
        self.block(node.body, (*path, _known(opaque(f"for {_short(node.target)} in {_short(node.iter)}"))))
        self.forget(node.body, path)

    def rows(self, iterable: ast.expr) -> Iterator[list[ast.expr]]:
        match iterable:
            case ast.Call(func=ast.Attribute(value=inner, attr="items"), args=[]):
                value = self.lower(inner)
                if isinstance(value, ast.Dict) and not isinstance(inner, ast.Attribute):
                    yield from ([k, v] for k, v in zip(value.keys, value.values, strict=True) if k is not None)
            case ast.List() | ast.Tuple() | ast.Set() | ast.Name():
                value = self.lower(iterable)
                if isinstance(value, ast.List | ast.Tuple | ast.Set) and not _has_opaque(value):
                    for item in value.elts:
                        yield list(item.elts) if isinstance(item, ast.Tuple) else [item]

    def forget(self, body: list[ast.stmt], path: _Path) -> None:
        for node in ast.walk(ast.Module(body, [])):
            match node:
                case ast.Attribute(ctx=ast.Store()) | ast.Name(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                    self.store(node, opaque(_short(node)), path)
                case ast.Call(func=ast.Attribute(value=inner, attr=called)) if called in MUTATORS:
                    self.store(inner, opaque(_short(inner)), path)

    def store(self, target: ast.expr, value: ast.expr, path: _Path) -> None:
        match target:
            case ast.Name(id=name):
                self.bind(name, ast.Name(ARGS, ast.Load()) if _is_marker(value, OLDER) else _sized(value, name))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == self.frame.self_name:
                if self.frame.receiver is None:
                    self.step(attribute, value, path)
                else:
                    self.values[f"{self.frame.receiver}.{attribute}"] = _sized(value, attribute)
            case ast.Attribute(value=inner, attr=attribute):
                owner = self.lower(inner)
                if _is_marker(owner, ARGS):
                    self.values[f"args.{attribute}"] = _sized(value, attribute)
                elif _is_marker(owner, ACCELERATOR):
                    self.values[f"args.{ACCELERATOR}.{attribute}"] = _sized(value, attribute)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    self.store(element, opaque(_short(element)), path)
            case ast.Subscript(value=inner, slice=ast.Constant(value=str() as key)) if _is_mapping(self.lower(inner)):
                self.store(inner, _updated(self.lower(inner), {key: value}), path)
            case ast.Subscript(value=inner):
                kept = self.lower(inner)
                self.store(inner, _filled(kept) if _is_list_or_none(kept) else opaque(_short(inner)), path)
            case ast.Starred(value=inner):
                self.store(inner, opaque(_short(inner)), path)

    def step(self, field: str, value: ast.expr | None, path: _Path) -> None:
        assert value is not None
        match value:
            case ast.IfExp(test=test, body=body, orelse=ast.Name(id=name)) if name == field:
                value, path = body, (*path, _known(test))
            case ast.IfExp(test=test, body=ast.Name(id=name), orelse=other) if name == field:
                value, path = other, (*path, _Branch(_Condition(test), False))
            case ast.Name(id=name) if name == field:
                return
        when = self.when(path)
        self.keep(field)
        self.steps.append([field, None if _is_opaque(value) else _text(_plain(value)), when])

    def remember(self, value: ast.expr, when: str) -> ast.expr:
        name = super().remember(value, when)
        self.meant[_text(name)] = self.spelt(_text(value))
        return name

    def spelt(self, text: str) -> str:
        """A text with kept names written out."""
        kept = re.compile(rf"_{self.owner.strip('_')}_\d+\b")
        return kept.sub(lambda found: f"({self.meant[found[0]]})", text)

    def when(self, path: _Path) -> str:
        parts = [b.condition.test if b.holds else _not(b.condition.test) for b in path if b.condition.test is not None]
        test = _all([_plain(part) for part in parts])
        return "" if isinstance(test, ast.Constant) and test.value else _text(test)

    def guard(self, effect: str, kind: str, path: _Path) -> None:
        """Write a guard down where it stands."""
        when = self.when(path)
        if when == "False":
            return
        test = self.spelt(self.when(_telling(path)))
        place = f"{self.frame.module.replace('.', '/')}.py:{self.frame.scope}"
        row: Row = [effect + kind, test, when, place, self.frame.named or self.owner, self.phase]
        tests = [(branch.condition.test, branch.holds) for branch in path if branch.condition.test is not None]
        self.steps.append([*row, UNCERTAIN] if any(blocking(test, holds) for test, holds in tests) else row)

    # calls -----------------------------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr, path: _Path) -> ast.expr:
        """The value of an expression; a call that it consists of is walked into, and what it changes on the way is changed."""
        if isinstance(node, ast.Call):
            return self.called(node, path)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in MUTATORS:
                self.returned[inner] = self.mutated(inner, inner.func.value, inner.func.attr, path)
        return self.lower(node)

    def called(self, call: ast.Call, path: _Path) -> ast.expr:
        name = ast.unparse(call.func).rpartition(".")[2]
        match call.func:
            case ast.Attribute(value=ast.Name(id="warnings"), attr="warn"):
                self.guard(WARNING, _category(call), path)
                return ast.Constant(None)
            case ast.Attribute(value=ast.Name(id="logger" | "logging"), attr=attr) if attr in LOGGED:
                self.guard(WARNING, "log", path)
                return ast.Constant(None)
            case ast.Name(id="setattr") if len(call.args) == 3:
                self.set_attribute(call, path)
                return ast.Constant(None)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=attr):
                return self.of_super(call, attr, path)
            case ast.Attribute(value=ast.Name(), attr="__post_init__"):
                self.base(path)
                return ast.Constant(None)
            case ast.Attribute(value=inner, attr=attr) if attr in MUTATORS:
                return self.mutated(call, inner, attr, path)
            case ast.Name(id=function) if function in self.library.enumerations and len(call.args) == 1:
                # An enumeration refuses what is none of its members.
                members: list[ast.expr] = [ast.Constant(v) for v in self.library.enumerations[function].values()]
                value = self.lower(call.args[0])
                refused = ast.Compare(value, [ast.NotIn()], [ast.List(members, ast.Load())])
                if members and not _has_opaque(value):
                    self.guard(RAISE, "ValueError", (*path, _known(refused)))
                return value
        followed = None if name in LOADERS | WRAPPERS | SAME or _availability(name) else self.follow(call, path)
        return followed if followed is not None else self.lower_call(call)

    def mutated(self, call: ast.Call, inner: ast.expr, attr: str, path: _Path) -> ast.expr:
        """A call that changes the object it is called on; what it returns."""
        kept = self.lower(inner)
        returned = opaque(_short(call))
        new: dict[str, ast.expr] | None = None
        match attr, call.args:
            case "setdefault", [ast.Constant(value=str() as key), default]:
                entry = self.entry(call, kept, key)
                returned = _choice(self.is_none(call, entry, negated=False), self.lower(default), entry)
                new = {key: returned}
            case "pop", [ast.Constant(value=str() as key), *rest]:
                entry = self.entry(call, kept, key)
                absent = self.lower(rest[0]) if rest else entry
                returned = _choice(self.is_none(call, entry, negated=False), absent, entry)
                new = {key: ast.Constant(None)}
            case "update", [other] if not call.keywords:
                given = self.lower(other)
                if _is_mapping(given) and _is_mapping(kept):
                    self.store(inner, ast.Call(ast.Name(UPDATED, ast.Load()), [kept, given], []), path)
                    return ast.Constant(None)
        if isinstance(inner, ast.Name | ast.Attribute):
            changed = _updated(kept, new) if new is not None and _is_mapping(kept) else opaque(_short(inner))
            self.store(inner, changed, path)
        return returned

    def set_attribute(self, call: ast.Call, path: _Path) -> None:
        name = self.lower(call.args[1])
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            target = ast.Attribute(call.args[0], name.value, ast.Store())
            self.store(target, self.lower(call.args[2]), path)

    def follow(self, call: ast.Call, path: _Path) -> ast.expr | None:
        """Walk into a method of the same object, a function or a class of the package; None where it is another call."""
        match call.func:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == self.frame.self_name:
                return self.method_call(call, attr, self.frame.receiver, path)
            case ast.Name(id=name) if f"{self.frame.number}:{name}" not in self.values:
                home = self.library.function(self.frame.module, name)
                if home is not None:
                    return self.enter(call, path, home[1], home[0], None, None)
                made = self.library.origin(self.frame.module, name)
                if made is not None and self.trainer:
                    return self.construct(call, *made, path)
        return None

    def method_call(self, call: ast.Call, name: str, receiver: str | None, path: _Path) -> ast.expr | None:
        line = self.objects.get(receiver or "") or list(self.config_line())
        for module, owner in line:
            function = method(owner, name)
            if function is not None and not _is_property(function):
                return self.enter(call, path, function, module, owner, receiver)
        return None

    def config_line(self) -> Iterator[tuple[str, ast.ClassDef]]:
        if self.frame.receiver is None and self.frame.owner is not None:
            yield from self.library.line(self.frame.module, self.frame.owner)

    def construct(self, call: ast.Call, module: str, name: str, path: _Path) -> ast.expr:
        node = self.library.modules[module].classes[name]
        if name.endswith(("Config", "Arguments")):
            return ast.Name(ARGS, ast.Load())
        line = list(self.library.line(module, node))
        receiver = f"#{self.frames}"
        self.objects[receiver] = line
        for home, owner in line:
            function = method(owner, "__init__")
            if function is not None:
                self.enter(call, path, function, home, owner, receiver)
                break
        return opaque(name)

    def of_super(self, call: ast.Call, name: str, path: _Path) -> ast.expr:
        if name == "__post_init__":
            self.base(path)
            return ast.Constant(None)
        receiver = self.frame.receiver
        line = self.objects.get(receiver or "", [])
        behind = [link for _, link in line]
        at = behind.index(self.frame.owner) if self.frame.owner in behind else len(line)
        for module, owner in line[at + 1 :]:
            function = method(owner, name)
            if function is not None:
                found = self.enter(call, path, function, module, owner, receiver)
                if name == "__init__":
                    self.handed(call, receiver)
                return found if found is not None else opaque(_short(call))
        if name == "__init__":
            self.handed(call, receiver)
        return opaque(_short(call))

    def handed(self, call: ast.Call, receiver: str | None) -> None:
        """What transformers' Trainer keeps of what it is given."""
        for keyword in call.keywords:
            if keyword.arg in ("args", "model", "train_dataset", "eval_dataset", "data_collator", "compute_metrics"):
                key = f"{receiver}.{keyword.arg}"
                if keyword.arg not in ("args", "model") or key not in self.values:
                    self.values[key] = self.lower(keyword.value)

    # expressions, in the language of rules ----------------------------------------------------------------------------

    def express(self, node: ast.expr) -> ast.expr | None:
        return self.lower(node)

    def lower(self, node: ast.expr) -> ast.expr:
        """An expression over fields and names of the language; `opaque` where neither can say it."""
        match node:
            case ast.Constant():
                return node
            case ast.Name(id=name):
                return self.local(name)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self.lower_call(node)
            case ast.BoolOp(op=sign, values=values):
                operands = [self.lower(value) for value in values]
                whole = isinstance(sign, ast.Or) and _is_marker(operands[0], ARGS)  # a config is true
                return operands[0] if whole else _boolean(sign, operands)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return _not(_truth(self.lower(operand)))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.strict(node, [operand], lambda parts: ast.UnaryOp(ast.USub(), parts[0]))
            case ast.BinOp(left=left, op=sign, right=right) if isinstance(sign, OPERATORS):
                return self.strict(node, [left, right], lambda parts: ast.BinOp(parts[0], sign, parts[1]))
            case ast.Compare():
                return self.compare(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return _choice(self.lower(test), self.lower(body), self.lower(orelse))
            case ast.Set(elts=elements):
                return self.strict(node, elements, lambda parts: ast.Set(parts))
            case ast.Tuple(elts=elements):
                return self.strict(node, elements, lambda parts: ast.Tuple(parts, ast.Load()))
            case ast.List(elts=elements):
                if any(isinstance(element, ast.Starred) for element in elements):
                    return opaque(_short(node))
                items = [self.lower(element) for element in elements]
                known = ast.List(items, ast.Load())
                return _filled(ast.List([ast.Constant(None)] * len(items), ast.Load())) if _has_opaque(known) else known
            case ast.Subscript(value=inner, slice=ast.Constant(value=int()) as index):
                return self.strict(node, [inner], lambda parts: ast.Subscript(parts[0], index, ast.Load()))
            case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
                written: dict[str, ast.expr] = {}
                for key, value in zip(keys, values, strict=True):
                    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                        return self.strict(
                            node, values, lambda parts: ast.Dict([k for k in keys if k is not None], parts)
                        )
                    written[key.value] = self.lower(value)
                plain = not any(map(_has_opaque, written.values()))
                return _dict(written) if plain else _updated(_dict({}), written)
            case ast.ListComp(
                elt=ast.Name(id=element), generators=[ast.comprehension(ast.Name(id=name), source, tests)]
            ):
                if element == name and ast.unparse(source).startswith("range("):
                    return self.selection(node, name, source, tests)
        return opaque(_short(node))

    def local(self, name: str) -> ast.expr:
        key = f"{self.frame.number}:{name}"
        if key in self.values:
            return self.values[key] or opaque(name)
        if name in self.frame.names:
            return opaque(name)
        constant = self.library.constant(self.frame.module, name)
        if constant is not None:
            return constant
        return opaque(name)

    def attribute(self, node: ast.Attribute) -> ast.expr:
        name = node.attr
        if isinstance(node.value, ast.Name):
            member = self.library.enumerations.get(node.value.id, {}).get(name)
            if member is not None:
                return ast.Constant(member)
            if name == "__version__":
                return _dotted("versions", node.value.id)
            if node.value.id == self.frame.self_name:
                return self.own(node)
        if name == "num_processes" and ast.unparse(node.value).endswith("accelerator"):
            return ast.Name("world_size", ast.Load())
        if name in ("is_main_process", "is_local_main_process"):
            return ast.Constant(True)  # of one process it is, and the run needs them all
        if self.phase == "first step" and name == "training" and ast.unparse(node.value) in ("self.model", "model"):
            return ast.Constant(True)
        inner = self.lower(node.value)
        if _is_marker(inner, ARGS):
            if name == "deepspeed_plugin":
                return ast.Name(DEEPSPEED, ast.Load())
            if name in NOT_FIELDS:
                return opaque(f"args.{name}")
            kept = self.values.get(f"args.{name}")
            return kept if kept is not None else ast.Name(name, ast.Load())
        if _is_marker(inner, ACCELERATOR):
            kept = self.values.get(f"args.{ACCELERATOR}.{name}")
            return kept if kept is not None else _dotted(ACCELERATOR, name)
        if _is_marker(inner, DEEPSPEED) and name == "zero_stage":
            return _dotted("launch", "zero_stage")
        if _text(inner) == "trainer.peft_config" and name in ("target_modules", "modules_to_save"):
            return _dotted("peft", name)
        return opaque(_short(node))

    def own(self, node: ast.Attribute) -> ast.expr:
        """An attribute of `self`: a config's field, or what an object was seen to keep."""
        name, receiver = node.attr, self.frame.receiver
        if receiver is None and self.frame.self_name is not None and not self.trainer:
            return opaque(_short(node)) if name in NOT_FIELDS else ast.Name(name, ast.Load())
        kept = self.values.get(f"{receiver}.{name}")
        if kept is not None:
            return kept
        for _, owner in self.objects.get(receiver or "", []):
            for statement in owner.body:
                match statement:
                    case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                        return value if literal(value) is not UNREADABLE else opaque(_short(node))
        if name == "is_deepspeed_enabled" and receiver == "self":
            return opaque("self.is_deepspeed_enabled")
        return opaque(_short(node))

    def strict(
        self, node: ast.expr, operands: Iterable[ast.expr], build: Callable[[list[ast.expr]], ast.expr]
    ) -> ast.expr:
        """An operator that needs all its operands; one that is a choice is applied to both ways."""
        return _over(node, [self.lower(operand) for operand in operands], build)

    def compare(self, node: ast.Compare) -> ast.expr:
        match node:
            case ast.Compare(
                left=ast.Constant(value=str() as key), ops=[ast.In() | ast.NotIn() as inside], comparators=[right]
            ):
                mapping = self.lower(right)
                if _is_mapping(mapping) and not isinstance(mapping, ast.Dict):
                    return self.is_none(node, self.entry(node, mapping, key), negated=isinstance(inside, ast.In))
                return _over(node, [mapping], lambda parts: ast.Compare(node.left, [inside], [parts[0]]))
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as link], comparators=[ast.Constant(value=None)]):
                return self.is_none(node, self.lower(left), negated=isinstance(link, ast.IsNot))
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as inside], comparators=[right]):
                items = self.lower(right)
                if isinstance(items, ast.ListComp):
                    found = self.selected(self.lower(left), items)
                    return found if isinstance(inside, ast.In) else _not(found)
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="set"), args=[items]), ops=[ast.LtE()], comparators=[right]
            ):
                return self.strict(node, [items, right], _within)
        if ast.unparse(node) == "type(args) is TrainingArguments":
            return _dotted("run", "plain_arguments")
        sides = [node.left, *node.comparators]
        if len(sides) == 2 and isinstance(node.ops[0], ast.Is):
            one, two = map(self.lower, sides)
            if "trainer.ref_model" in (_text(one), _text(two)):
                return self.same(node, two if _text(one) == "trainer.ref_model" else one)
        return self.strict(node, sides, lambda parts: _folded(ast.Compare(parts[0], node.ops, parts[1:])))

    def same(self, node: ast.expr, value: ast.expr) -> ast.expr:
        """Whether a value is the very object that the trainer is given as the reference model."""
        match value:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return _choice(test, self.same(node, body), self.same(node, orelse))
            case ast.Name(id=name) if name == MODEL:
                return _dotted("ref_model", "same_object")
            case ast.Name(id=name) if name in (LOADED, WRAPPED):
                return ast.Constant(False)
        return opaque(_short(node))

    def is_none(self, node: ast.expr, value: ast.expr, *, negated: bool) -> ast.expr:
        match value:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return _choice(
                    test, self.is_none(node, body, negated=negated), self.is_none(node, orelse, negated=negated)
                )
            case ast.Constant(value=constant):
                return ast.Constant((constant is None) is not negated)
            case ast.Name(id=name) if name == DEEPSPEED:
                stage = ast.Compare(_dotted("launch", "zero_stage"), [ast.Is()], [ast.Constant(None)])
                return _not(stage) if negated else stage
            case ast.Name(id=name) if self.older is not None and name in (ARGS, OLDER):
                keyword = _dotted("trainer", self.older if name == OLDER else "args")
                absent = ast.Compare(keyword, [ast.Is()], [ast.Constant(None)])
                return _not(absent) if negated else absent
            case ast.Name(id=name) if name in MARKERS:
                return ast.Constant(negated)
            case ast.List() | ast.Tuple() | ast.Dict() | ast.Set():
                return ast.Constant(negated)
        if _is_list(value) or _is_made(value) or (_is_mapping(value) and not _is_asked(value)):
            return ast.Constant(negated)
        if _has_opaque(value):
            return opaque(_short(node))
        return ast.Compare(value, [ast.IsNot() if negated else ast.Is()], [ast.Constant(None)])

    def selection(self, node: ast.expr, name: str, source: ast.expr, tests: list[ast.expr]) -> ast.expr:
        """The numbers of a range for which tests hold, as they are asked by `x in …`."""
        assert isinstance(source, ast.Call)
        bounds = [self.lower(argument) for argument in source.args]
        key = f"{self.frame.number}:{name}"
        kept = self.values.get(key)
        self.values[key] = ast.Name("__item__", ast.Load())
        held = [self.lower(test) for test in tests]
        if kept is None:
            del self.values[key]
        else:
            self.values[key] = kept
        if len(bounds) != 2 or any(_has_opaque(part) for part in (*bounds, *held)):
            return opaque(_short(node))
        return ast.ListComp(
            ast.Tuple(bounds, ast.Load()), [ast.comprehension(ast.Name("__item__", ast.Load()), _all(held), [], 0)]
        )

    def selected(self, value: ast.expr, items: ast.ListComp) -> ast.expr:
        assert isinstance(items.elt, ast.Tuple)
        low, high = items.elt.elts
        if _has_opaque(value):
            return value
        held = _Put("__item__", value).visit(_copied(items.generators[0].iter))
        return _all([ast.Compare(value, [ast.GtE()], [low]), ast.Compare(value, [ast.Lt()], [high]), held])

    def lower_call(self, node: ast.Call) -> ast.expr:
        if node in self.returned:
            return self.returned[node]
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in ALWAYS and not node.args:
            return ast.Constant(True)
        package = _availability(name)
        if package is not None:
            return self.available(node, name, package)
        match node:
            case ast.Call(func=ast.Name(id="Version") | ast.Attribute(attr="parse"), args=[inner]):
                return self.lower(inner)
            case ast.Call(func=ast.Attribute(attr="version"), args=[ast.Constant(value=str() as of)]):
                return _dotted("versions", of.replace("-", "_"))
            case ast.Call(func=ast.Name(id="isinstance"), args=[subject, kind]):
                return self.instance(node, self.lower(subject), kind)
            case ast.Call(func=ast.Name(id="is_peft_model"), args=[subject]):
                return self.wrapped(node, self.lower(subject))
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id="torch"), _]):
                return ast.Name(DTYPE, ast.Load())
            case ast.Call(func=ast.Name(id="getattr"), args=[subject, ast.Constant(value=str() as attr), *_]):
                return self.attribute(ast.Attribute(subject, attr, ast.Load()))
            case ast.Call(func=ast.Name(id="getattr"), args=[subject, ast.Name() as named, *_]):
                known = self.lower(named)
                if isinstance(known, ast.Constant) and isinstance(known.value, str):
                    return self.attribute(ast.Attribute(subject, known.value, ast.Load()))
            case ast.Call(func=ast.Name(id="hasattr"), args=[subject, ast.Name() as named]):
                known = self.lower(named)
                if isinstance(known, ast.Constant) and isinstance(known.value, str):
                    return self.lower_call(ast.Call(node.func, [subject, known], []))
            case ast.Call(func=ast.Name(id="hasattr"), args=[subject, ast.Constant(value=str() as attr)]):
                if _is_marker(self.lower(subject), ARGS) or (self.frame.receiver is None and _text(subject) == "self"):
                    return ast.Call(ast.Name("has", ast.Load()), [ast.Name(attr, ast.Load())], [])
                if attr == "__len__":
                    kinds = ast.Tuple([ast.Name(kind, ast.Load()) for kind in ("str", "list", "dict")], ast.Load())
                    return self.instance(node, self.lower(subject), kinds)
            case ast.Call(
                func=ast.Name(id="any" | "all" as which), args=[ast.GeneratorExp() as generator], keywords=[]
            ):
                return self.quantified(node, which, generator)
            case ast.Call(func=ast.Name(id=function), args=[subject, *_]) if function in SAME | WRAPPERS | LOADERS:
                if function in WRAPPERS:
                    return ast.Name(WRAPPED, ast.Load())
                return ast.Name(LOADED, ast.Load()) if function in LOADERS else self.lower(subject)
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in LOADERS:
                owner = ast.unparse(inner)
                if "Peft" in owner:
                    return ast.Name(WRAPPED, ast.Load())
                models = ("Model" in owner or owner in ("architecture", "model")) and "Processor" not in owner
                return ast.Name(LOADED, ast.Load()) if models else opaque(_short(node))
            case ast.Call(func=ast.Name(id="len"), args=[items]):
                return _over(node, [_whole(self.lower(items))], lambda parts: ast.Call(node.func, parts, []))
            case ast.Call(func=ast.Name(id=function), keywords=[]) if function in LENGTHS and node.args:
                made = node.func
                return self.strict(node, node.args, lambda parts: ast.Call(made, parts, []))
            case ast.Call(func=ast.Name(id=function), args=[inner]) if function in self.library.enumerations:
                return self.lower(inner)
            case ast.Call(func=ast.Attribute(value=inner, attr="lower" | "startswith" as attr), keywords=[]):
                called = ast.Name(attr, ast.Load())
                return self.strict(node, [inner, *node.args], lambda parts: ast.Call(called, parts, []))
            case ast.Call(func=ast.Attribute(value=ast.Dict() as table, attr="get"), args=[key, other]):
                return self.strict(
                    node, [key, other], lambda parts: ast.Call(ast.Attribute(table, "get", ast.Load()), parts, [])
                )
            case ast.Call(func=ast.Attribute(value=inner, attr="get"), args=[ast.Constant(value=str() as key), *rest]):
                entry = self.entry(node, self.lower(inner), key)
                if not rest:
                    return entry
                other = self.lower(rest[0])
                absent = self.is_none(node, entry, negated=False)
                return (
                    opaque(_short(node)) if _has_opaque(absent) or _has_opaque(other) else _choice(absent, other, entry)
                )
            case ast.Call(
                func=ast.Name(id="sum"),
                args=[
                    ast.GeneratorExp(
                        elt=ast.Compare(left=ast.Name(id=item)) as asked,
                        generators=[ast.comprehension(ast.Name(id=name), ast.List(elts=items), ifs=[])],
                    )
                ],
            ) if item == name:
                return self.count(node, asked, items)
        return opaque(_short(node))

    def entry(self, node: ast.expr, mapping: ast.expr, key: str) -> ast.expr:
        """What a mapping has under a key; None where it has not."""
        match mapping:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return _choice(test, self.entry(node, body, key), self.entry(node, orelse, key))
            case ast.Call(func=ast.Name(id=name), args=[base, ast.Dict() as new]) if name == UPDATED:
                known = _entries(new)
                return known[key] if key in known else self.entry(node, base, key)
            case ast.Call(func=ast.Name(id=name), args=[base, new]) if name == UPDATED:
                found, before = self.entry(node, new, key), self.entry(node, base, key)
                absent = self.is_none(node, found, negated=False)
                return opaque(_short(node)) if _has_opaque(absent) else _choice(absent, before, found)
            case ast.BoolOp(op=ast.Or(), values=[base, ast.Dict(keys=[])]):
                return self.entry(node, base, key)
            case ast.Name(id=name) if name not in MARKERS:
                return ast.Attribute(mapping, key, ast.Load())
            case ast.Dict():
                return _entries(mapping).get(key, ast.Constant(None))
        return opaque(_short(node))

    def count(self, node: ast.expr, asked: ast.Compare, items: list[ast.expr]) -> ast.expr:
        """How many of several values come out as asked."""
        tests = [self.lower(ast.Compare(item, asked.ops, asked.comparators)) for item in items]
        numbers: list[ast.expr] = [ast.Call(ast.Name("int", ast.Load()), [test], []) for test in tests]
        return _over(node, numbers, lambda parts: functools.reduce(lambda a, b: ast.BinOp(a, ast.Add(), b), parts))

    def quantified(self, node: ast.Call, which: str, generator: ast.GeneratorExp) -> ast.expr:
        """`any(x in S for x in xs)` over a literal S is written out; `all(…)` is `within(xs, S)`."""
        match generator:
            case ast.GeneratorExp(
                elt=ast.Compare(left=ast.Name(id=item), ops=[ast.In()], comparators=[options]),
                generators=[ast.comprehension(target=ast.Name(id=name), iter=source, ifs=[])],
            ) if item == name:
                listed, over = self.lower(options), self.lower(source)
                if which == "all":
                    return _over(node, [over, listed], _within)
                if isinstance(listed, ast.Set | ast.List | ast.Tuple) and not _has_opaque(over):
                    return _boolean(ast.Or(), [ast.Compare(option, [ast.In()], [over]) for option in listed.elts])
        return opaque(_short(node))

    def instance(self, node: ast.expr, subject: ast.expr, kind: ast.expr) -> ast.expr:
        if isinstance(subject, ast.IfExp) and ast.unparse(kind) in PLAIN and not _has_opaque(subject):
            return ast.Call(ast.Name("isinstance", ast.Load()), [subject, kind], [])
        if isinstance(subject, ast.IfExp):
            one, two = self.instance(node, subject.body, kind), self.instance(node, subject.orelse, kind)
            return _choice(subject.test, one, two)
        kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
        if len(kinds) > 1:
            return _boolean(ast.Or(), [self.instance(node, subject, one) for one in kinds])
        named = ast.unparse(kind).rpartition(".")[2]
        if named in self.library.enumerations and isinstance(subject, ast.Name) and subject.id not in MARKERS:
            # A value that can be read in a file is a literal, and no member of an enumeration.
            plain = ast.Call(ast.Name("known", ast.Load()), [subject], [])
            return _boolean(ast.And(), [_not(plain), opaque(_short(node))])
        if named in PLAIN and (_is_list(subject) or _is_mapping(subject)) and not _is_asked(subject):
            return ast.Constant(named == ("list" if _is_list(subject) else "dict"))
        match subject:
            case ast.Name(id=name) if name == MODEL and named == "str":
                return _dotted("model", "is_name")
            case ast.Name(id=name) if name in (LOADED, WRAPPED) and named == "str":
                return ast.Constant(False)
            case ast.Name(id=name) if name == DTYPE:
                return ast.Constant(named == "dtype")
            case ast.Name(id=name) if name in (MODEL, LOADED, WRAPPED) and named == "PeftModel":
                return self.wrapped(node, subject)
            case ast.Name() | ast.Attribute() if _is_asked(subject) and named in PLAIN:
                return ast.Call(ast.Name("isinstance", ast.Load()), [subject, ast.Name(named, ast.Load())], [])
            case ast.Constant(value=value) if named in PLAIN:
                return ast.Constant(type(value).__name__ == named)
        if _text(subject) == "trainer.peft_config":
            if named in PROMPT_LEARNING:
                return ast.Compare(_dotted("peft", "kind"), [ast.Eq()], [ast.Constant(named)])
            if named == "PromptLearningConfig":
                return _dotted("peft", "prompt_learning")
        if _text(subject) == "trainer.train_dataset" and named == "IterableDataset":
            return _dotted("dataset", "streaming")
        if _is_asked(subject):
            # What a file says outright, None included, is an instance of no such class.
            literal_ = ast.Call(ast.Name("is_literal", ast.Load()), [subject], [])
            return _boolean(ast.And(), [_not(literal_), opaque(_short(node))])
        return opaque(_short(node))

    def wrapped(self, node: ast.expr, subject: ast.expr) -> ast.expr:
        match subject:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return _choice(test, self.wrapped(node, body), self.wrapped(node, orelse))
            case ast.Name(id=name) if name == MODEL:
                return _dotted("model", "is_peft")
            case ast.Name(id=name) if name in (LOADED, WRAPPED):
                return ast.Constant(name == WRAPPED)
            case ast.Constant(value=None):
                return ast.Constant(False)
        return opaque(_short(node))

    def available(self, node: ast.Call, name: str, package: str) -> ast.expr:
        """Whether a package is there, and new enough where the release's own helper looks."""
        installed = _dotted("installed", package)
        home = self.library.function(self.frame.module, name)
        minimum: ast.expr | None = None
        if home is not None:
            defaults = home[1].args.defaults
            minimum = defaults[0] if defaults else None
            given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "min_version")]
            bound = given[0] if given else minimum
            module = self.frame.module if given else home[0]
            if isinstance(bound, ast.Name):
                bound = self.library.constant(module, bound.id) or opaque(bound.id)
            if bound is not None and _is_opaque(bound):
                return opaque(_short(node))
            minimum = bound
        elif node.args or node.keywords:
            return opaque(_short(node))
        if minimum is None or (isinstance(minimum, ast.Constant) and minimum.value is None):
            return installed
        newer = ast.Compare(_dotted("versions", package), [ast.GtE()], [minimum])
        return _boolean(ast.And(), [installed, newer])


# Small builders --------------------------------------------------------------------------------------------------------


class _Put(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self.name = name
        self.value = value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.value if node.id == self.name else node


def opaque(text: str) -> ast.expr:
    """What the language cannot say; its truth is unknown."""
    return ast.Call(ast.Name("opaque", ast.Load()), [ast.Constant(text)], [])


def _telling(path: _Path) -> _Path:
    """The branches that name a guard: those that were taken, and of those that were not the last ones, an `else`.

    What no file can say is left out as long as something else remains.
    """
    first = len(path)
    while first > 0 and not path[first - 1].holds:
        first -= 1
    taken = [*(branch for branch in path[:first] if branch.holds), *path[first:]]
    sayable: list[_Branch] = []
    for branch in taken:
        if branch.condition.test is None:
            continue
        parts = branch.condition.test
        if branch.holds and isinstance(parts, ast.BoolOp) and isinstance(parts.op, ast.And):
            kept = [part for part in parts.values if not any(map(_is_opaque, _operands(part, True)))]
            parts = _all(kept) if kept else opaque("")
        if not any(map(_is_opaque, _operands(parts, branch.holds))):
            sayable.append(_Branch(_Condition(parts), branch.holds))
    return tuple(sayable or taken)


def _operands(test: ast.expr, holds: bool) -> Iterator[ast.expr]:
    """What must be true, or false, for a test to come out as it does."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _operands(operand, not holds)
        case ast.BoolOp(op=sign, values=values) if isinstance(sign, ast.And) is holds:
            for value in values:
                yield from _operands(value, holds)
        case _:
            yield test


def blocking(test: ast.expr, holds: bool) -> tuple[str, ...]:
    """What no file can say and without which a test cannot come out as asked; () where files alone can make it."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return blocking(operand, not holds)
        case ast.BoolOp(op=sign, values=values):
            found = [blocking(value, holds) for value in values]
            needs_all = isinstance(sign, ast.And) is holds
            return sum(found, ()) if needs_all or all(found) else ()
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name == FILLED:
            return blocking(inner, holds)
        case ast.IfExp(test=asked, body=body, orelse=orelse):
            one = blocking(asked, True) + blocking(body, holds)
            two = blocking(asked, False) + blocking(orelse, holds)
            return one + two if one and two else ()
    return tuple(_opaque_texts(test))


def _opaque_texts(node: ast.expr) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.expr) and _is_opaque(inner):
            assert isinstance(inner, ast.Call)
            yield ast.literal_eval(inner.args[0])
        elif isinstance(inner, ast.Name) and inner.id in MARKERS - {MODEL}:
            yield inner.id.strip("_")


def _is_opaque(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "opaque"


def _has_opaque(node: ast.expr) -> bool:
    text = _text(node)
    return "opaque(" in text or ("__" in text and any(marker in text for marker in MARKERS))


def _plain(node: ast.expr) -> ast.expr:
    """An expression with what only the walk knows made opaque."""
    if "__" not in _text(node):
        return node
    plain: ast.expr = _Unmarked().visit(_copied(node))
    return plain


def _copied(node: ast.expr) -> ast.expr:
    return ast.parse(_text(node), mode="eval").body


class _Unmarked(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == MODEL:
            return _dotted("trainer", "model")
        return opaque(node.id.strip("_")) if node.id.startswith("__") else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == FILLED:
            items: ast.expr = self.visit(node.args[0])  # only its truth is asked here
            return items
        if isinstance(node.func, ast.Name) and node.func.id == UPDATED:
            return opaque(_text(node.args[0]))
        return self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return opaque("a list of numbers")


def _over(node: ast.expr, operands: list[ast.expr], build: Callable[[list[ast.expr]], ast.expr]) -> ast.expr:
    for index, operand in enumerate(operands):
        if isinstance(operand, ast.IfExp) and _has_opaque(operand):
            one = _over(node, [*operands[:index], operand.body, *operands[index + 1 :]], build)
            two = _over(node, [*operands[:index], operand.orelse, *operands[index + 1 :]], build)
            return _choice(operand.test, one, two)
    match node, operands:
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() as link]), [ast.Name(id=name), ast.Constant()] if name == DTYPE:
            return ast.Constant(isinstance(link, ast.NotEq))
    if any(_has_opaque(operand) or isinstance(operand, ast.ListComp) for operand in operands):
        return opaque(_short(node))
    return build(operands)


def _choice(test: ast.expr, body: ast.expr, orelse: ast.expr) -> ast.expr:
    """`body if test else orelse`, in the fewest words."""
    if isinstance(test, ast.Constant):
        return body if test.value else orelse
    body, orelse = _assuming(test, True, body), _assuming(test, False, orelse)
    if _text(body) == _text(orelse):
        return body
    match test, body, orelse:
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]), ast.Constant(
            value=None
        ), _:
            if _text(left) == _text(orelse):
                return orelse
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]), _, ast.Constant(
            value=None
        ):
            if _text(left) == _text(body):
                return body
    listed = _listed(test, body, orelse) or _listed(_not(test), orelse, body)
    if listed is not None:
        return listed
    match body, orelse:
        case ast.Constant(value=True), ast.Constant(value=False):
            return test
        case ast.Constant(value=False), ast.Constant(value=True):
            return _not(test)
        case ast.Constant(value=False), _ if _is_truth(orelse):
            return _boolean(ast.And(), [_not(test), orelse])
        case _, ast.Constant(value=False) if _is_truth(body):
            return _boolean(ast.And(), [test, body])
        case ast.Constant(value=True), _ if _is_truth(orelse):
            return _boolean(ast.Or(), [test, orelse])
        case _, ast.Constant(value=True) if _is_truth(body):
            return _boolean(ast.Or(), [_not(test), body])
    return ast.IfExp(test, body, orelse)


def _assuming(test: ast.expr, holds: bool, value: ast.expr) -> ast.expr:
    """A value where a test is known to hold, or not to: a choice in it that asks for the same is made."""
    if not isinstance(value, ast.IfExp | ast.Compare):
        return value
    known = {_text(one): one_holds for one, one_holds in _settled(test, holds)}
    while isinstance(value, ast.IfExp):
        truth = _truth_among(known, value.test)
        if truth is None:
            return value
        value = value.body if truth else value.orelse
    truth = _truth_among(known, value) if isinstance(value, ast.Compare) else None
    return value if truth is None else ast.Constant(truth)


def _truth_among(known: Mapping[str, bool], test: ast.expr) -> bool | None:
    parts = [known.get(_text(one)) is holds if _text(one) in known else None for one, holds in _settled(test, True)]
    return False if False in parts else None if None in parts else True


def _settled(test: ast.expr, holds: bool) -> Iterator[tuple[ast.expr, bool]]:
    """What is true and what is false for certain where a test holds, or does not; `is not None` counts as not `is None`."""
    for part in _operands(test, holds):
        opposite = _OPPOSITE.get(type(part.ops[0])) if isinstance(part, ast.Compare) and len(part.ops) == 1 else None
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
            yield part.operand, not holds
        elif isinstance(part, ast.Compare) and opposite in (ast.Is, ast.Eq, ast.In):
            yield ast.Compare(part.left, [opposite()], part.comparators), not holds
        else:
            yield part, holds


def _listed(test: ast.expr, body: ast.expr, orelse: ast.expr) -> ast.expr | None:
    """`listed(x)` for `x if isinstance(x, list) else [x]`."""
    match test, orelse:
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, ast.Name(id="list")]), ast.List(elts=[item]):
            if _text(asked) == _text(body) == _text(item):
                return ast.Call(ast.Name("listed", ast.Load()), [body], [])
    return None


def _is_truth(node: ast.expr) -> bool:
    """Whether an expression is a truth value, so that it may stand as an operand of `and`."""
    if isinstance(node, ast.BoolOp):
        return all(_is_truth(value) for value in node.values)
    named = _text(node) in ("model.is_name", "model.is_peft", "peft.prompt_learning", "ref_model.same_object") or _text(
        node
    ).startswith("installed.")
    return (
        isinstance(node, ast.Compare)
        or named
        or _is_opaque(node)
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
    )


def _boolean(sign: ast.boolop, values: Sequence[ast.expr]) -> ast.expr:
    deciding = isinstance(sign, ast.Or)
    found: list[ast.expr] = []
    for value in values:
        if isinstance(value, ast.Constant):
            if bool(value.value) is deciding:
                found.append(value)
                break
            if value is not values[-1]:
                continue
        if isinstance(value, ast.BoolOp) and type(value.op) is type(sign):
            found += value.values
        else:
            found.append(value)
    if deciding and len(found) > 1:  # `(a and b) or b` is b
        texts = {_text(part) for part in found}
        found = [
            part
            for part in found
            if not isinstance(part, ast.BoolOp) or texts.isdisjoint(_text(value) for value in part.values)
        ]
    return found[0] if len(found) == 1 else ast.BoolOp(sign, found)


def _all(tests: Sequence[ast.expr]) -> ast.expr:
    """All of several tests: flat, each once, decided where a constant decides."""
    found: dict[str, ast.expr] = {}
    for test in tests:
        inner = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        for part in inner:
            if isinstance(part, ast.Constant):
                if not part.value:
                    return ast.Constant(False)
                continue
            found.setdefault(_text(part), part)
    if not found:
        return ast.Constant(True)
    parts = list(found.values())
    return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)


def _not(test: ast.expr | None) -> ast.expr:
    assert test is not None
    match test:
        case ast.Constant(value=value):
            return ast.Constant(not value)
        case ast.Compare(left=left, ops=[link], comparators=right) if type(link) in _OPPOSITE:
            return ast.Compare(left, [_OPPOSITE[type(link)]()], right)
    return _negated(test)


_OPPOSITE: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


_NUMERIC: Final[Mapping[type[ast.cmpop], Callable[[float, float], bool]]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def _folded(node: ast.Compare) -> ast.expr:
    """A comparison of two constants comes to a constant, and 0 is a multiple of everything; of truths counted, to a truth."""
    match node:
        case ast.Compare(
            left=ast.BinOp(op=ast.Add()) as total, ops=[link], comparators=[ast.Constant(value=int() as number)]
        ) if (tests := _counted(total)) is not None:
            at_least = {ast.Gt: number + 1, ast.GtE: number, ast.NotEq: 1 if number == 0 else None}.get(type(link))
            if isinstance(link, ast.Eq) and number == 0:
                return _all([_not(test) for test in tests])
            if at_least == 1:
                return _boolean(ast.Or(), tests)
            if at_least == len(tests):
                return _all(tests)
        case ast.Compare(
            left=ast.BinOp(left=ast.Constant(value=0), op=ast.Mod()),
            ops=[ast.Eq()],
            comparators=[ast.Constant(value=0)],
        ):
            return ast.Constant(True)
        case ast.Compare(left=ast.Constant(value=left), ops=[ast.Eq()], comparators=[ast.Constant(value=right)]):
            return ast.Constant(left == right)
        case ast.Compare(left=ast.Constant(value=left), ops=[ast.NotEq()], comparators=[ast.Constant(value=right)]):
            return ast.Constant(left != right)
        case ast.Compare(
            left=ast.Constant(value=int() | float() as left),
            ops=[link],
            comparators=[ast.Constant(value=int() | float() as right)],
        ) if type(link) in _NUMERIC:
            return ast.Constant(_NUMERIC[type(link)](left, right))
    return node


def _counted(total: ast.expr) -> list[ast.expr] | None:
    """The truths of a sum of `int(truth)`."""
    match total:
        case ast.Call(func=ast.Name(id="int"), args=[test]) if _comes_to_truth(test):
            return [test]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, two = _counted(left), _counted(right)
            return one + two if one is not None and two is not None else None
    return None


def _comes_to_truth(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _comes_to_truth(node.body) and _comes_to_truth(node.orelse)
    return _is_truth(node) or (isinstance(node, ast.Constant) and isinstance(node.value, bool))


def _is_asked(node: ast.expr) -> bool:
    """Whether an expression is a name of the language that stands for a value: a field, an entry of one, a keyword."""
    match node:
        case ast.Name(id=name):
            return name not in MARKERS
        case ast.Attribute(value=ast.Name(id=root)):
            return root == "trainer" or root.endswith(("_kwargs", "_config"))
    return False


def _is_made(node: ast.expr) -> bool:
    """Whether a value is an object that a class makes, which is never None."""
    if not _is_opaque(node):
        return False
    [text] = _opaque_texts(node)
    return re.match(r"(\w+\.)*[A-Z]\w*[a-z]\w*(\(|$)", text) is not None


def _is_list(node: ast.expr) -> bool:
    """Whether a value is a list for certain."""
    match node:
        case ast.List():
            return True
        case ast.BinOp(left=left, op=ast.Mult()):
            return _is_list(left)
        case ast.Call(func=ast.Name(id=name)):
            return name in (FILLED, "listed")
        case ast.IfExp(body=body, orelse=orelse):
            return _is_list(body) and _is_list(orelse)
    return False


def _as_list(node: ast.expr, name: str) -> ast.expr:
    """`x` if it is a list, else `[x]`."""
    if isinstance(node, ast.IfExp):
        return _choice(node.test, _as_list(node.body, name), _as_list(node.orelse, name))
    if _is_list(node):
        return node
    if isinstance(node, ast.Constant):
        return ast.List([node], ast.Load())
    return opaque(name) if _has_opaque(node) else ast.Call(ast.Name("listed", ast.Load()), [node], [])


def _is_list_or_none(node: ast.expr) -> bool:
    """The same where None is possible as well, as it is not where an item is set."""
    match node:
        case (
            ast.IfExp(body=body, orelse=ast.Constant(value=None))
            | ast.IfExp(body=ast.Constant(value=None), orelse=body)
        ):
            return _is_list_or_none(body)
    return _is_list(node)


def _filled(node: ast.expr) -> ast.expr:
    """A list of which an item was replaced: only its length is still known."""
    match node:
        case ast.IfExp(test=test, body=body, orelse=ast.Constant(value=None) as none):
            return ast.IfExp(test, _filled(body), none)
        case ast.IfExp(test=test, body=ast.Constant(value=None) as none, orelse=orelse):
            return ast.IfExp(test, none, _filled(orelse))
    return ast.Call(ast.Name(FILLED, ast.Load()), [_whole(node)], [])


def _whole(node: ast.expr) -> ast.expr:
    """A list as long as one of which items may have been replaced."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name == FILLED:
            return inner
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choice(test, _whole(body), _whole(orelse))
    return node


def _is_mapping(node: ast.expr) -> bool:
    """Whether a value is a mapping wherever an entry of it may be set: a field of that kind, `x or {}`, one written out."""
    match node:
        case ast.Dict():
            return all(isinstance(key, ast.Constant) for key in node.keys)
        case ast.Name(id=name):
            return name.endswith(("_kwargs", "_config"))
        case ast.Call(func=ast.Name(id=name)):
            return name == UPDATED
        case ast.BoolOp(op=ast.Or(), values=[inner, ast.Dict(keys=[])]):
            return _is_mapping(inner)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_mapping(body) and _is_mapping(orelse)
    return False


def _updated(mapping: ast.expr, new: Mapping[str, ast.expr]) -> ast.expr:
    """A mapping of which some entries are new; None stands for one that was taken out."""
    base, known = mapping, dict(new)
    match mapping:
        case ast.Dict():
            base, known = _dict({}), {**_entries(mapping), **new}
        case ast.Call(func=ast.Name(id=name), args=[inner, ast.Dict() as before]) if name == UPDATED:
            base, known = inner, {**_entries(before), **new}
    return ast.Call(ast.Name(UPDATED, ast.Load()), [base, _dict(known)], [])


def _dict(entries: Mapping[str, ast.expr]) -> ast.Dict:
    return ast.Dict([ast.Constant(key) for key in entries], list(entries.values()))


def _entries(mapping: ast.Dict) -> dict[str, ast.expr]:
    pairs = zip(mapping.keys, mapping.values, strict=True)
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _mutates(node: ast.expr) -> bool:
    calls = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any(isinstance(function, ast.Attribute) and function.attr in MUTATORS for function in calls)


def _truth(node: ast.expr) -> ast.expr:
    """A value as a test asks for it: a mapping with an entry of its own is true."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[_, ast.Dict(values=values)]) if name == UPDATED:
            if any(not (isinstance(value, ast.Constant) and value.value is None) for value in values):
                return ast.Constant(True)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choice(test, _truth(body), _truth(orelse))
    return node


def _text(node: ast.AST) -> str:
    """An expression as text. A walk never changes one that it has made, so the text is worked out once."""
    found: str | None = getattr(node, "text", None)
    if found is None:
        match node:
            case ast.BoolOp(op=sign, values=values):
                found = (" and " if isinstance(sign, ast.And) else " or ").join(map(_inner, values))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                found = f"{_inner(body)} if {_inner(test)} else {_inner(orelse)}"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                found = f"not {_inner(operand)}"
            case _:
                found = ast.unparse(node)
        node.text = found  # type: ignore[attr-defined]
    return found


def _inner(node: ast.expr) -> str:
    text = _text(node)
    return f"({text})" if isinstance(node, ast.BoolOp | ast.IfExp) else text


def _within(parts: list[ast.expr]) -> ast.expr:
    return ast.Call(ast.Name("within", ast.Load()), parts, [])


def _known(test: ast.expr) -> _Branch:
    return _Branch(_Condition(test), True)


def _sized(value: ast.expr, name: str) -> ast.expr:
    text = _text(value)
    limit = LARGEST_MAPPING if _is_mapping(value) else LARGEST if "opaque(" in text else LARGEST_KNOWN
    return value if len(text) <= limit else opaque(name)


def _in_reach(test: ast.expr) -> bool:
    """Whether a test is short enough to be carried along, for what files can say of it."""
    return len(_text(test)) <= (LARGEST if blocking(test, True) and blocking(test, False) else LARGEST_KNOWN)


def _bound(function: ast.FunctionDef) -> frozenset[str]:
    """The names that a function binds."""
    found: frozenset[str] | None = getattr(function, "bound", None)
    if found is None:
        names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
        found = frozenset(node.id for node in names if isinstance(node.ctx, ast.Store))
        function.bound = found  # type: ignore[attr-defined]
    return found


def _short(node: ast.AST) -> str:
    """An expression of the source, cut where it gets long."""
    found: str | None = getattr(node, "short", None)
    if found is None:
        text = " ".join(ast.unparse(node).split())
        found = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
        node.short = found  # type: ignore[attr-defined]
    return found


def _dotted(root: str, name: str) -> ast.expr:
    return ast.Attribute(ast.Name(root, ast.Load()), name, ast.Load())


def _is_marker(node: ast.expr, marker: str) -> bool:
    return isinstance(node, ast.Name) and node.id == marker


def _availability(name: str) -> str | None:
    """The package that `is_x_available` asks for."""
    found = re.fullmatch(r"is_(\w+)_available", name)
    return found[1] if found is not None and found[1] in PACKAGES else None


def _category(call: ast.Call) -> str:
    given = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "category")]
    return ast.unparse(given[0]).rpartition(".")[2] if given else "UserWarning"


def _leaves(body: list[ast.stmt]) -> bool:
    return any(map(_leaving, body))


def _leaving(statement: ast.stmt) -> bool:
    """Whether a statement may leave its block other than by a raise."""
    found: bool | None = getattr(statement, "leaving", None)
    if found is None:
        found = any(isinstance(node, ast.Return | ast.Continue | ast.Break) for node in ast.walk(statement))
        statement.leaving = found  # type: ignore[attr-defined]
    return found


def _defaults(function: ast.FunctionDef) -> dict[str, ast.expr]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    found = dict(
        zip([a.arg for a in positional][len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)
    )
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found | {argument.arg: default for argument, default in pairs if default is not None}


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [argument.arg for argument in every if argument.arg not in ("self", "cls")]


def _given(call: ast.Call) -> set[str]:
    return {keyword.arg for keyword in call.keywords if keyword.arg is not None}


def _is_static(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "staticmethod" for decorator in function.decorator_list)


def _is_property(function: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def _distinct(rows: Iterable[Row]) -> list[Row]:
    found: dict[tuple[str | None, ...], Row] = {}
    for row in rows:
        found.setdefault(tuple(row[:3]), row)
    return list(found.values())


def _used(owner: str, rows: list[Row]) -> list[Row]:
    """The rows without those kept names that no later row reads, the others numbered in order."""
    kept = re.compile(rf"_{owner.strip('_')}_\d+")
    used: list[Row] = []
    read: set[str] = set()
    for row in reversed(rows):
        if kept.fullmatch(row[0] or "") and row[0] not in read:
            continue
        read |= {name for text in row[1:3] for name in kept.findall(text or "")}
        used.insert(0, row)
    order = [row[0] for row in used if row[0] in read]
    names = {name: f"_{owner.strip('_')}_{number}" for number, name in enumerate(order, 1)}
    return [[text and kept.sub(lambda found: names[found[0]], text) for text in row] for row in used]
