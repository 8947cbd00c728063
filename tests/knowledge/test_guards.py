"""What a class refuses, read from source texts and from the recorded tables."""

from __future__ import annotations

import ast
import json
import textwrap

import pytest

from trl_lint import knowledge
from trl_lint.knowledge import coverage, fold, guards, load
from trl_lint.knowledge.source import Module
from trl_lint.runs.logic import compiled


def library(**modules: str) -> guards.Library:
    """A package of these modules, `a.py` as `trl.a`."""
    parsed = {f"trl.{n}": Module(f"trl.{n}", False, ast.parse(textwrap.dedent(code))) for n, code in modules.items()}

    def origin(module: str, name: str) -> tuple[str, str] | None:
        here = parsed.get(module)
        if here is None:
            return None
        if name in here.classes:
            return module, name
        target = here.imports.get(name)
        return origin(target[0], target[1]) if target is not None and target[1] is not None else None

    def bases(module: str, node: ast.ClassDef) -> list[tuple[str | None, str]]:
        return [origin(module, ast.unparse(base)) or (None, ast.unparse(base)) for base in node.bases]

    return guards.Library(parsed, bases, origin)


def config(body: str) -> list[tuple[str | None, ...]]:
    """The rows of a config whose `__post_init__` has this body: mark or field, test or value, when."""
    code = "class C:\n    def __post_init__(self):\n" + textwrap.indent(textwrap.dedent(body), " " * 8)
    read = library(a=code)
    return [tuple(row[:3]) for row in guards.config_sequence(read, "trl.a", read.modules["trl.a"].classes["C"])]


def trainer(
    body: str,
    rest: str = "",
    parameters: str = "self, model, args=None, peft_config=None, ref_model=None, train_dataset=None, reward_funcs=None",
) -> list[str]:
    """`mark when` of every guard that the `__init__` of a trainer with this body meets."""
    code = f"class T:\n    def __init__({parameters}):\n" + textwrap.indent(textwrap.dedent(body), " " * 8)
    read = library(a=code + "\n" + textwrap.dedent(rest))
    rows = guards.trainer_guards(read, "trl.a", read.modules["trl.a"].classes["T"])
    return [f"{row[0]} {row[2]}" for row in rows if row[5] != "training"]


CONFIGS = {
    "a raise where it stands, between the steps": (
        """
        self.x = 2 * self.y
        if self.x > 4:
            raise ValueError("no")
        self.x = None
        """,
        [("x", "2 * y", ""), ("!ValueError", "x > 4", "x > 4"), ("x", "None", "")],
    ),
    "what comes after a raise needs no condition": (
        """
        if self.a:
            raise ValueError
        if self.b:
            raise TypeError("no")
        """,
        [("!ValueError", "a", "a"), ("!TypeError", "b", "b")],
    ),
    "what comes after a return does": (
        """
        if self.a:
            return
        if self.b:
            raise ValueError("no")
        """,
        [("!ValueError", "b", "not a and b")],
    ),
    "the last branch of a chain": (
        """
        if self.a == "x":
            pass
        elif self.a in ("y", "z"):
            pass
        else:
            raise ValueError("no")
        """,
        [("!ValueError", "a != 'x' and a not in ('y', 'z')", "a != 'x' and a not in ('y', 'z')")],
    ),
    "a test is kept before its field changes, and the name of the guard spells it out": (
        """
        if self.a is None:
            self.a = 3
        else:
            raise ValueError("no")
        """,
        [
            ("_C_1", "a is None", ""),
            ("a", "3", "a is None"),
            ("!ValueError", "not (a is None)", "not _C_1"),
        ],
    ),
    "what the language cannot say is opaque, and no part of the name": (
        """
        if self.a and os.path.exists(self.b):
            raise ValueError("no")
        """,
        [("!ValueError", "a", "a and opaque('os.path.exists(self.b)')")],
    ),
    "membership of a computed list": (
        """
        possible = [n for n in range(2, self.size + 1) if self.size % n == 0]
        if self.n not in possible:
            raise ValueError("no")
        """,
        [("!ValueError", "not (n >= 2 and n < size + 1 and size % n == 0)", "not (n >= 2 and n < size + 1 and size % n == 0)")],
    ),
    "entries of mappings": (
        """
        if (self.model_init_kwargs or {}).get("dtype") == "auto" and "revision" in self.model_init_kwargs:
            raise ValueError("no")
        """,
        [("!ValueError",) + ("model_init_kwargs.dtype == 'auto' and model_init_kwargs.revision is not None",) * 2],
    ),
    "warnings": (
        """
        if self.old is not None:
            warnings.warn("old", FutureWarning)
        if self.odd:
            logger.warning("odd")
        logger.info("all is well")
        """,
        [("?FutureWarning", "old is not None", "old is not None"), ("?log", "odd", "odd")],
    ),
    "a try may catch it": (
        """
        try:
            if self.a:
                raise ValueError("no")
        except ValueError:
            pass
        """,
        [("!ValueError", "a", "opaque('inside a try') and a")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "rows"), CONFIGS.values(), ids=CONFIGS)
def test_config(body: str, rows: list[tuple[str, ...]]) -> None:
    assert config(body) == rows


def test_helper_of_the_config() -> None:
    code = """
    class C:
        def __post_init__(self):
            self.check(limit=2)

        def check(self, limit):
            bound = self.b * limit
            if self.a > bound:
                raise ValueError("no")
    """
    read = library(a=code)
    [row] = guards.config_sequence(read, "trl.a", read.modules["trl.a"].classes["C"])
    assert row == ["!ValueError", "a > b * 2", "a > b * 2", "trl/a.py:C.check", "C", "construction"]


TRAINERS = {
    "a keyword by its kind, also where it is absent": (
        """
        if args.ref_model_init_kwargs is not None and not isinstance(ref_model, str):
            raise ValueError("no")
        """,
        ["!ValueError ref_model_init_kwargs is not None and not isinstance(trainer.ref_model, str)"],
    ),
    "the length of a list of which items are replaced": (
        """
        if not isinstance(ref_model, list):
            ref_model = [ref_model]
        for i, one in enumerate(ref_model):
            if isinstance(one, str):
                ref_model[i] = load(one)
        self.models = ref_model
        if len(args.weights) != len(self.models):
            raise ValueError("no")
        """,
        ["!ValueError len(weights) != len(listed(trainer.ref_model))"],
    ),
    "no literal is an instance of a class of a library": (
        """
        if ref_model is not None and not isinstance(ref_model, Module):
            raise TypeError("no")
        """,
        ["!TypeError trainer.ref_model is not None and not (not is_literal(trainer.ref_model) and opaque('isinstance(ref_model, Module)'))"],
    ),
    "a dtype by its name is a dtype": (
        """
        dtype = args.model_init_kwargs.get("dtype")
        if isinstance(dtype, str) and dtype != "auto":
            dtype = getattr(torch, dtype)
        if dtype != "auto" and not isinstance(dtype, torch.dtype):
            raise ValueError("no")
        """,
        ["!ValueError model_init_kwargs.dtype != 'auto' and not ((isinstance(model_init_kwargs.dtype, str) and model_init_kwargs.dtype != 'auto') "
         "or (not is_literal(model_init_kwargs.dtype) and opaque('isinstance(dtype, torch.dtype)')))"],
    ),
    "how many of several keywords are given": (
        """
        if sum(x is not None for x in [ref_model, peft_config]) > 1:
            raise ValueError("no")
        """,
        ["!ValueError trainer.ref_model is not None and trainer.peft_config is not None"],
    ),
    "how many of three keywords are given": (
        """
        given = sum(x is not None for x in [ref_model, peft_config, train_dataset])
        if given == 0:
            raise ValueError("no")
        if given == 2:
            raise TypeError("no")
        """,
        [
            "!ValueError trainer.ref_model is None and trainer.peft_config is None and trainer.train_dataset is None",
            "!TypeError int(trainer.ref_model is not None) + int(trainer.peft_config is not None)"
            " + int(trainer.train_dataset is not None) == 2",
        ],
    ),
    "a mapping of which the trainer sets an entry": (
        """
        if args.gradient_checkpointing:
            args.gradient_checkpointing_kwargs = args.gradient_checkpointing_kwargs or {}
            args.gradient_checkpointing_kwargs["use_reentrant"] = True
        if (args.gradient_checkpointing_kwargs or {}).get("selective"):
            raise ValueError("no")
        if args.gradient_checkpointing_kwargs is not None and args.gradient_checkpointing_kwargs["x"]:
            raise KeyError("not followed")
        if args.gradient_checkpointing_kwargs is None:
            raise TypeError("no")
        """,
        [
            "!ValueError gradient_checkpointing_kwargs.selective",
            "!KeyError (gradient_checkpointing or gradient_checkpointing_kwargs is not None)"
            " and opaque(\"args.gradient_checkpointing_kwargs['x']\")",
            "!TypeError not gradient_checkpointing and gradient_checkpointing_kwargs is None",
        ],
    ),
    "an entry that is set only where it is absent": (
        """
        kwargs = args.model_init_kwargs or {}
        kwargs.setdefault("dtype", "auto")
        if kwargs["dtype"] if False else kwargs.get("dtype") == "float16":
            raise ValueError("no")
        if kwargs.pop("revision", None):
            raise KeyError("no")
        if kwargs.get("revision"):
            raise TypeError("never: it was taken out")
        """,
        [
            "!ValueError ('auto' if model_init_kwargs.dtype is None else model_init_kwargs.dtype) == 'float16'",
            "!KeyError model_init_kwargs.revision",
        ],
    ),
    "a mapping filled from another": (
        """
        kwargs = {"temperature": object(), "top_p": 1.0}
        if args.generation_kwargs is not None:
            kwargs.update(args.generation_kwargs)
        if kwargs.get("stop") is not None:
            raise ValueError("no")
        """,
        ["!ValueError generation_kwargs is not None and generation_kwargs.stop is not None"],
    ),
    "one reward function or a list of them": (
        """
        if reward_funcs is None:
            reward_funcs = [some_function]
        if not isinstance(reward_funcs, list):
            reward_funcs = [reward_funcs]
        for i, one in enumerate(reward_funcs):
            reward_funcs[i] = load(one)
        if len(args.reward_weights) != len(reward_funcs):
            raise ValueError("no")
        """,
        ["!ValueError len(reward_weights) != len([None] if trainer.reward_funcs is None else listed(trainer.reward_funcs))"],
    ),
    "a choice under a condition that makes it": (
        """
        if ref_model is None:
            kind = "a" if ref_model is None else peft_config
        else:
            kind = None if ref_model is None else "b"
        if kind is None:
            raise ValueError("never")
        if kind == "b":
            raise TypeError("no")
        """,
        ["!TypeError ('a' if trainer.ref_model is None else 'b') == 'b'"],
    ),
    "an entry of the accelerator's config, until it is set": (
        """
        if args.accelerator_config.dispatch_batches is True:
            raise ValueError("no")
        args.accelerator_config.dispatch_batches = False
        if args.accelerator_config.dispatch_batches:
            raise ValueError("no")
        """,
        ["!ValueError accelerator_config.dispatch_batches is True"],
    ),
    "fields through args, self.args and attributes": (
        """
        self.args = args
        self.beta = args.beta
        if self.beta == 0.0 and self.args.sync:
            raise ValueError("no")
        """,
        ["!ValueError beta == 0.0 and sync"],
    ),
    "a loaded model is a name no longer, nor has it adapters": (
        """
        if isinstance(model, str):
            model = create_model_from_path(model)
        if is_peft_model(model):
            raise ValueError("no")
        """,
        ["!ValueError not model.is_name and model.is_peft"],
    ),
    "versions and packages": (
        """
        if peft_config is not None and not is_peft_available():
            raise ImportError("no")
        if Version(transformers.__version__) < Version("5.2.0"):
            raise ImportError("no")
        """,
        ["!ImportError trainer.peft_config is not None and not installed.peft", "!ImportError versions.transformers < '5.2.0'"],
    ),
    "kinds of adapters": (
        """
        if isinstance(peft_config, PrefixTuningConfig):
            raise ValueError("no")
        if isinstance(peft_config, LoraConfig):
            raise ValueError("others are LoraConfigs, too")
        """,
        ["!ValueError peft.kind == 'PrefixTuningConfig'", "!ValueError not is_literal(trainer.peft_config) and opaque('isinstance(peft_config, LoraConfig)')"],
    ),
    "one object twice": (
        """
        if isinstance(model, str):
            model = create_model_from_path(model)
        if ref_model is model:
            raise ValueError("no")
        """,
        ["!ValueError not model.is_name and ref_model.same_object"],
    ),
    "a loop over what the run holds": (
        """
        for function in args.functions:
            if args.a:
                raise ValueError("no")
        """,
        ["!ValueError opaque('for function in args.functions') and a"],
    ),
    "one process is the main one": (
        """
        if args.a and self.accelerator.is_main_process and self.accelerator.num_processes % args.b != 0:
            raise ValueError("no")
        """,
        ["!ValueError a and world_size % b != 0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), TRAINERS.values(), ids=TRAINERS)
def test_trainer(body: str, expected: list[str]) -> None:
    assert trainer(body) == expected


def test_keyword_with_a_default() -> None:
    found = trainer("if kind != 'a':\n    raise ValueError('no')", parameters="self, model, args=None, kind='a'")
    assert found == ["!ValueError (trainer.kind if given(trainer.kind) else 'a') != 'a'"]


def test_constructor_of_another_class_is_walked_into_with_its_arguments() -> None:
    found = trainer(
        """
        if args.use:
            self.made = Made(mode=args.mode)
        """,
        """
        class Made:
            def __init__(self, mode="a", size=0):
                self.mode = mode
                self._start()

            def _start(self):
                if self.mode == "a":
                    return
                if self.mode != "b":
                    raise ValueError("no")
        """,
    )
    assert found == ["!ValueError use and mode != 'a' and mode != 'b'"]


def test_first_step_and_what_comes_later() -> None:
    code = """
    class T:
        def __init__(self, model, args):
            self.kind = args.kind

        def compute_loss(self, model, inputs):
            if self.kind != "a":
                raise ValueError("no")

        def other(self, inputs):
            if self.kind == "b":
                raise ValueError("no")
    """
    read = library(a=code)
    rows = guards.trainer_guards(read, "trl.a", read.modules["trl.a"].classes["T"])
    assert [row[2:] for row in rows] == [
        ["kind != 'a'", "trl/a.py:T.compute_loss", "T", "first step"],
        ["opaque('other runs while training') and kind == 'b'", "trl/a.py:T.other", "T", "training", "uncertain"],
    ]


def test_base_class_keeps_its_name() -> None:
    read = library(
        a="class Base:\n    def __init__(self, args):\n        if args.a:\n            raise ValueError('no')",
        b="from .a import Base\nclass T(Base):\n    def __init__(self, args):\n        super().__init__(args)",
    )
    [row] = guards.trainer_guards(read, "trl.b", read.modules["trl.b"].classes["T"])
    assert row[2:5] == ["a", "trl/a.py:Base.__init__", "Base"]


# The recorded tables --------------------------------------------------------------------------------------------------


def rows_of(package: str) -> list[list[str | None]]:
    table = json.loads((load.HARVESTED / f"{package}-guards.json").read_bytes())
    return [row for entry in table["guards"].values() for row in entry["rows"]]


@pytest.mark.parametrize("package", ["trl", "transformers"])
def test_every_condition_is_in_the_language(package: str) -> None:
    for row in rows_of(package):
        if guards.is_guard(row):
            compiled(row[2] or "True")
            assert not any(marker in (row[2] or "") for marker in guards.MARKERS), row


def test_a_line_holds_what_the_table_holds() -> None:
    table = json.loads((load.HARVESTED / "trl-guards.json").read_bytes())
    assert all(load._guarded("trl", name) == entry for name, entry in table["guards"].items())
    assert load._guarded("trl", "NoSuchConfig") is None
    assert tuple(table["releases"]) == knowledge.releases("trl")


def test_rows_fold_and_unfold() -> None:
    facts = [(0, {"A": [["x", "1"], ["y", "2"]]}), (1, {"A": [["x", "1"], ["z", "3"]]}), (3, {"B": []})]
    folded = fold.fold({"*": fold.ROWS}, facts)
    assert folded["A"]["rows"] == [["x", "1"], ["y", "2"], ["z", "3"]]
    assert [fold.unfold({"*": fold.ROWS}, folded, index) for index in (0, 1, 3)] == [value for _, value in facts]
    assert fold.unfold({"*": fold.ROWS}, folded, 2) is fold.ABSENT


HELD = [
    ("GRPOConfig", "GRPOConfig: num_generations < 2", "0.19.1", True),
    ("GRPOConfig", "GRPOConfig: num_generations < 2", "1.16.0", True),
    ("GRPOConfig", "GRPOConfig: auto_find_batch_size", "1.16.0", True),
    ("GRPOConfig", "GRPOConfig: auto_find_batch_size", "0.19.1", False),
    ("GRPOTrainer", "GRPOTrainer: sync_ref_model and beta == 0.0", "1.16.0", True),
    ("DPOTrainer", "DPOTrainer: 'exo_pair' in loss_type and label_smoothing == 0.0", "1.16.0", True),
]


@pytest.mark.parametrize(("owner", "name", "version", "held"), HELD)
def test_recorded(owner: str, name: str, version: str, held: bool) -> None:
    names = {guard.name for guard in knowledge.trl(version).guards(owner)}
    assert (name in names) is held
    assert name in knowledge.guard_names()


def test_sequence_writes_the_bases_out() -> None:
    rows = knowledge.trl("1.16.0").sequence("GRPOConfig")
    supers = [row for row in rows if isinstance(row, knowledge.Step) and row.field == knowledge.SUPER]
    assert len(supers) == 1
    assert supers[0].when == ""
    assert knowledge.trl("1.16.0").guards("NoSuchTrainer") == ()


def test_transformers_refuses_what_its_enumerations_lack() -> None:
    rows = knowledge.training_arguments_sequence("5.24.0")
    whens = [row.when for row in rows if isinstance(row, knowledge.Guard)]
    assert "eval_strategy not in ['no', 'steps', 'epoch']" in whens
    assert "lr_scheduler_type == 'reduce_lr_on_plateau' and eval_strategy == 'no'" in whens


def test_keywords_that_a_subclass_hands_on() -> None:
    code = """
    class Base:
        def __init__(self, model, args=None, peft_config=None):
            if peft_config is not None and args.sync:
                raise ValueError("no")

    class T(Base):
        def __init__(self, args=None, **kwargs):
            super().__init__(args=args, **kwargs)
    """
    read = library(a=code)
    [row] = guards.trainer_guards(read, "trl.a", read.modules["trl.a"].classes["T"])
    assert row[2] == "trainer.peft_config is not None and sync"


def test_a_config_by_an_older_name() -> None:
    body = """
    if config is not None:
        if args is None:
            args = config
        else:
            raise ValueError("no")
    """
    assert trainer(body, parameters="self, model, args=None, config=None") == [
        "!ValueError trainer.config is not None and trainer.args is not None"
    ]


def test_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert coverage.main(["--trl", "1.16.0", "--class", "GRPOConfig"]) == 0
    shown = capsys.readouterr().out
    assert "raise ValueError           GRPOConfig: num_generations < 2\n" in shown
    assert "rule refused-by-trl" in shown
    assert coverage.main(["--trl", "9.9"]) == 2
    assert coverage.main(["--class", "NoConfig"]) == 2
