"""What a rule may ask of a run besides its config's fields: the model, PEFT, the data, the launch, the hardware, releases.

Importing this module registers the names with the view; `docs/writing-rules.md` lists them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path

from trl_lint import knowledge
from trl_lint.model import Default, Derived, Known, Object, OneOf, Site, Stated, Symbol, Unknown, Value, Written
from trl_lint.runs.logic import truth
from trl_lint.runs.run import FAMILIES, PROPERTIES, View, parsed
from trl_lint.sources.model_config import adapter_of

SMOKE_STEPS = 20
_PROMPT_LEARNING = frozenset(
    {"PromptTuningConfig", "PrefixTuningConfig", "PromptEncoderConfig", "MultitaskPromptTuningConfig", "CPTConfig"}
)


def property_(name: str) -> Callable[[Callable[[View], Value]], Callable[[View], Value]]:
    def register(function: Callable[[View], Value]) -> Callable[[View], Value]:
        PROPERTIES[name] = function
        return function

    return register


def properties() -> frozenset[str]:
    """The dotted names that a page may use besides `trainer.…`, `versions.…`, `installed.…` and entries of mapping fields."""
    return frozenset(PROPERTIES)


def _not_given(view: View) -> Default:
    return Default(view.world.label)


# model: how the policy is loaded


def model_value(view: View) -> Value:
    """The model that the trainer gets: a name, a load, or unknown. Adapters around it are looked through."""
    run = view.run
    if run.trainer is not None:
        return _base(view.value("trainer.model"))
    if run.loaded is not None:
        return Known(Object(run.loaded), Written(run.loaded.span))
    if model_is_parsed(view):
        return view.option("model_name_or_path")
    return Unknown("no trainer in this file")


def model_is_parsed(view: View) -> bool:
    """Whether no script is at hand and a ModelConfig on the command line says how the model is loaded."""
    parsed = view.run.parsed
    return view.run.trainer is None and parsed is not None and parsed.takes("ModelConfig")


def _base(value: Value) -> Value:
    for _ in range(5):
        if not (isinstance(value, Known) and isinstance(value.value, Object) and value.value.site.kind == "peft"):
            return value
        inner = value.value.site.arguments.get("0") or value.value.site.arguments.get("model")
        value = inner.value if inner is not None else Unknown("its base is not shown")
    return value


def model_site(view: View, *, reference: bool = False) -> Site | None:
    """The loading call of the model (or of the reference model), where this file shows it."""
    value = _base(view.value("trainer.ref_model")) if reference else model_value(view)
    return (
        value.value.site
        if isinstance(value, Known) and isinstance(value.value, Object) and value.value.site.kind == "model"
        else None
    )


@property_("model.is_name")
def _model_is_name(view: View) -> Value:
    if model_is_parsed(view):
        if view.script is None or view.script.model is None:
            return Unknown("the script is not in this project")
        return Known(view.script.model == "name", Default(view.world.label))
    value = model_value(view)
    if isinstance(value, Known) and isinstance(value.value, str):
        return Known(True, value.origin)
    if isinstance(value, Known) and isinstance(value.value, Object):
        return Known(False, value.origin)
    return Unknown("the model is not shown in this file")


@property_("model.name")
def _model_name(view: View) -> Value:
    value = model_value(view)
    if isinstance(value, Known) and isinstance(value.value, str):
        return value
    site = model_site(view)
    if site is None:
        return value if isinstance(value, Unknown) else Unknown("the model is not shown in this file")
    if site.origin.endswith(".from_config"):
        return Unknown("the model is built from a config")
    for name in ("0", "pretrained_model_name_or_path", "model_name"):
        if name in site.arguments:
            return view.settle(site.arguments[name].value)
    return Unknown("the model's name is not shown")


@property_("model.billions")
def _model_billions(view: View) -> Value:
    """Parameters in billions, as the model's name states them ("Qwen2.5-7B")."""
    name = view.value("model.name")
    if not isinstance(name, Known) or not isinstance(name.value, str):
        return Unknown("the model's name is not shown")
    found = re.findall(r"(?:^|[-_/])(\d+(?:\.\d+)?)([bm])(?=$|[-_/.])", name.value.lower())
    if not found:
        return Unknown("the model's name does not state its size")
    number, unit = found[-1]
    return Known(float(number) / (1000 if unit == "m" else 1), Derived("the model's name"))


@property_("model.type")
def _model_type(view: View) -> Value:
    name = view.value("model.name")
    if not isinstance(name, Known) or not isinstance(name.value, str):
        return Unknown("the model's name is not shown")
    lower = name.value.lower()
    for pattern, kind in _model_types():
        if re.search(pattern, lower):
            return Known(kind, Derived("the model's name"))
    return Unknown("the model's name does not tell its architecture")


def load_argument(view: View, *names: str, reference: bool = False) -> Value:
    """A keyword of `from_pretrained`, wherever it is written: the loading call, or the config's `model_init_kwargs`."""
    if not reference and model_is_parsed(view):
        return _parsed_load(view, names)
    site = model_site(view, reference=reference)
    if site is not None:
        for name in names:
            if name in site.arguments:
                found = site.arguments[name]
                return Unknown("it is set only on one branch") if found.conditional else view.settle(found.value)
        return Unknown(site.open) if site.open is not None else Known(None, _not_given(view))
    if reference:
        return Unknown("how the reference model is loaded is not shown")
    if truth(view.alternatives("model.is_name")):
        return next(
            (v for v in (view.inside(view.value("model_init_kwargs"), n) for n in names) if not _absent(v)),
            view.inside(view.value("model_init_kwargs"), names[0]),
        )
    if view.run.trainer is None and view.run.loaded is None:
        # A config alone still shows what it would load a named model with.
        inside = [view.inside(view.value("model_init_kwargs"), n) for n in names]
        return next(
            (v for v in inside if isinstance(v, Known) and not _absent(v)),
            Unknown("the model is not shown in this file"),
        )
    return Unknown("the model is not shown in this file")


def _parsed_load(view: View, names: tuple[str, ...]) -> Value:
    """A loading keyword as a ModelConfig gives it: as TRL's own script hands it on, or a project's script usually does."""
    script = view.script
    if script is None:
        usual = next((n for n in names if n in MODEL_OPTIONS and view.taken(n) is not None), None)
        return view.option(usual) if usual is not None else Unknown("how the script loads the model is not shown")
    if script.keeps:
        for name in names:
            if not _absent(inside := view.inside(view.value("model_init_kwargs"), name)):
                return inside
    reached = next((script.reaches[n] for n in names if n in script.reaches), None)
    return view.option(reached) if reached is not None else Known(None, _not_given(view))


# The options of ModelConfig that are loading keywords by the same name.
MODEL_OPTIONS = frozenset({"dtype", "torch_dtype", "attn_implementation", "load_in_4bit", "load_in_8bit"})


def _absent(value: Value) -> bool:
    return isinstance(value, Known) and value.value is None and not isinstance(value.origin, Written)


@property_("model.attn_implementation")
def _attention(view: View) -> Value:
    legacy = load_argument(view, "use_flash_attention_2")
    if isinstance(legacy, Known) and legacy.value is True:
        return Known("flash_attention_2", legacy.origin)
    return load_argument(view, "attn_implementation")


@property_("model.device_map")
def _device_map(view: View) -> Value:
    return load_argument(view, "device_map")


@property_("model.dtype")
def _dtype(view: View) -> Value:
    """The dtype of the loaded weights as torch names it ("bfloat16", "float32"), or "auto"."""
    value = _dtype_name(load_argument(view, "dtype", "torch_dtype"))
    if isinstance(value, Known) and value.value is None:
        if view.run.module.unsloth is not None:
            return Unknown("unsloth chooses the dtype")
        return _default_dtype(view)
    return value


def _dtype_name(value: Value) -> Value:
    """A dtype as torch names it, of `torch.bfloat16` or "bfloat16"."""
    if isinstance(value, Known) and isinstance(value.value, Symbol):
        return Known(value.value.name.removeprefix("torch.").replace("half", "float16"), value.origin)
    if isinstance(value, Known) and isinstance(value.value, str):
        return Known(value.value.removeprefix("torch."), value.origin)
    return value


def _default_dtype(view: View) -> Value:
    is_name = truth(view.alternatives("model.is_name"))
    for row in _loading()["dtype"]:
        if "string" in row and row["string"] is not is_name:
            continue
        if "trl" in row and not _matches(view.world.version, row["trl"]):
            continue
        if "transformers" in row and (
            view.world.transformers is None or not _matches(view.world.transformers, row["transformers"])
        ):
            continue
        return Known(row["value"], Default(view.world.label))
    return Unknown("the default dtype of this transformers release is not known")


@property_("model.quantized")
def _quantized(view: View) -> Value:
    """ "4bit", "8bit", "other", or None for a model in full precision."""
    if model_is_parsed(view):
        unread: Value = Known(None, _not_given(view))
        if view.script is not None and not view.script.quantization:
            return unread
        for name in ("4bit", "8bit"):
            asked = view.option(f"load_in_{name}")
            if isinstance(asked, Known) and asked.value:
                return Known(name, asked.origin)
            unread = unread if isinstance(asked, Known) else asked
        return unread
    values = [load_argument(view, "quantization_config"), view.value("trainer.quantization_config")]
    for bits in ("4bit", "8bit"):
        direct = load_argument(view, f"load_in_{bits}")
        if isinstance(direct, Known) and direct.value is True:
            return Known(bits, direct.origin)
        if isinstance(direct, (Unknown, OneOf)):
            values.append(direct)
    for value in values:
        if isinstance(value, Known) and isinstance(value.value, Object):
            site = value.value.site
            for bits in ("4bit", "8bit"):
                argument = site.arguments.get(f"load_in_{bits}")
                if argument is not None and isinstance(argument.value, Known) and argument.value.value is True:
                    return Known(bits, Written(site.span))
            return Known("other", Written(site.span)) if site.open is None else Unknown(site.open)
    if any(isinstance(v, (Unknown, OneOf)) for v in values[:1] + values[2:]):
        return Unknown("how the model is quantised is not shown")
    return Known(None, _not_given(view))


@property_("model.four_bit_compute_dtype")
def _four_bit_compute_dtype(view: View) -> Value:
    """What the 4-bit layers of bitsandbytes compute in: `bnb_4bit_compute_dtype`, which transformers makes float32 if it is absent."""
    if model_is_parsed(view):
        return Unknown("the script makes the quantisation config")
    for value in (load_argument(view, "quantization_config"), view.value("trainer.quantization_config")):
        if isinstance(value, Known) and isinstance(value.value, Object):
            site = value.value.site
            argument = site.arguments.get("bnb_4bit_compute_dtype")
            if argument is not None:
                return _dtype_name(
                    Unknown("it is set only on one branch") if argument.conditional else view.settle(argument.value)
                )
            return Unknown(site.open) if site.open is not None else Known("float32", Default("transformers"))
        if not isinstance(value, Known):
            return Unknown("how the model is quantised is not shown")
    return Unknown("no quantisation config is shown")


@property_("model.use_cache")
def _use_cache(view: View) -> Value:
    site = model_site(view)
    argument = site.arguments.get("config.use_cache") if site is not None else None
    if argument is not None:
        return Unknown("it is set only on one branch") if argument.conditional else view.settle(argument.value)
    return load_argument(view, "use_cache")


@property_("ref_model.given")
def _ref_model_given(view: View) -> Value:
    """Whether the trainer gets a reference model of its own."""
    value = view.value("trainer.ref_model")
    return Known(value.value is not None, value.origin) if isinstance(value, Known) else value


@property_("ref_model.device_map")
def _ref_device_map(view: View) -> Value:
    return load_argument(view, "device_map", reference=True)


@property_("ref_model.same_object")
def _ref_same(view: View) -> Value:
    """Whether policy and reference are one and the same object."""
    policy, reference = view.value("trainer.model"), view.value("trainer.ref_model")
    sites = [v.value.site for v in (policy, reference) if isinstance(v, Known) and isinstance(v.value, Object)]
    trainer = view.run.trainer
    # A load in a function of its own runs once for each call of it.
    if len(sites) != 2 or trainer is None or any(s.function != trainer.function for s in sites):
        return Unknown("how the models are loaded is not shown")
    return Known(sites[0] is sites[1], Written(sites[0].span))


@property_("ref_model.name")
def _ref_model_name(view: View) -> Value:
    site = model_site(view, reference=True)
    if site is None or "0" not in site.arguments:
        return Unknown("how the reference model is loaded is not shown")
    return view.settle(site.arguments["0"].value)


@property_("model.is_peft")
def _model_is_peft(view: View) -> Value:
    """Whether the trainer gets a model that is wrapped in PEFT already."""
    value = view.value("trainer.model") if view.run.trainer is not None else Unknown("no trainer in this file")
    if isinstance(value, Known) and isinstance(value.value, Object):
        return Known(value.value.site.kind == "peft", value.origin)
    if isinstance(value, Known) and isinstance(value.value, str):
        return Known(False, value.origin)
    return Unknown("the model is not shown in this file")


# peft


def peft_site(view: View) -> Site | None:
    """The PEFT config in force: the trainer's, or the one that the model was wrapped with."""
    value = view.value("trainer.peft_config") if view.run.trainer is not None else Unknown("")
    if isinstance(value, Known) and isinstance(value.value, Object) and value.value.site.kind == "peft":
        return value.value.site
    wrapped = view.value("trainer.model") if view.run.trainer is not None else Unknown("")
    if isinstance(wrapped, Known) and isinstance(wrapped.value, Object) and wrapped.value.site.kind == "peft":
        site = wrapped.value.site
        inner = site.arguments.get("1") or site.arguments.get("peft_config")
        if inner is not None and isinstance(inner.value, Known) and isinstance(inner.value.value, Object):
            return inner.value.value.site
        return site
    if model_is_parsed(view) and view.run.parsed is not None:
        used = view.option("use_peft")
        if isinstance(used, Known) and used.value:
            return adapter_of(view.run.parsed.site)
    return view.run.adapter if view.run.trainer is None else None


@property_("peft.used")
def _peft_used(view: View) -> Value:
    site = peft_site(view)
    if site is not None:
        return Known(True, Written(site.span))
    if model_is_parsed(view):
        used = view.option("use_peft")
        return Known(bool(used.value), used.origin) if isinstance(used, Known) else used
    if view.run.trainer is None:
        return Unknown("no trainer in this file")
    given, model = view.value("trainer.peft_config"), view.value("trainer.model")
    if (
        isinstance(given, Known)
        and given.value is None
        and isinstance(model, Known)
        and not isinstance(model.value, Symbol)
    ):
        return Known(False, _not_given(view))
    return Unknown("whether PEFT is used is not shown")


@property_("peft.kind")
def _peft_kind(view: View) -> Value:
    site = peft_site(view)
    return Known(site.name, Written(site.span)) if site is not None else Unknown("no PEFT config is shown")


@property_("peft.prompt_learning")
def _prompt_learning(view: View) -> Value:
    site = peft_site(view)
    if site is None:
        used = view.value("peft.used")
        return Known(False, used.origin) if isinstance(used, Known) else Unknown("no PEFT config is shown")
    return (
        Known(site.name in _PROMPT_LEARNING, Written(site.span))
        if site.name.endswith("Config")
        else Unknown("no PEFT config is shown")
    )


def _of_peft(view: View, name: str, otherwise: str) -> Value:
    """An argument of the PEFT config in force; None, for the reason `otherwise`, where it is not given."""
    site = peft_site(view)
    if site is None:
        return Unknown("no PEFT config is shown")
    argument = site.arguments.get(name)
    if argument is not None:
        return view.settle(argument.value)
    return Unknown(site.open) if site.open is not None else Known(None, Derived(otherwise))


@property_("peft.target_modules")
def _target_modules(view: View) -> Value:
    return _of_peft(view, "target_modules", "peft's own choice")


@property_("peft.modules_to_save")
def _modules_to_save(view: View) -> Value:
    return _of_peft(view, "modules_to_save", "not given")


@property_("peft.on_lm_head")
def _on_lm_head(view: View) -> Value:
    """Whether an adapter sits on lm_head itself: named among the target modules."""
    modules = view.value("peft.target_modules")
    if isinstance(modules, Known) and isinstance(modules.value, tuple):
        return Known(any(str(m).rpartition(".")[2] == "lm_head" for m in modules.value), modules.origin)
    if isinstance(modules, Known) and modules.value in (None, "all-linear"):
        return Known(False, modules.origin)  # peft leaves the output layer out of both
    if truth(view.alternatives("peft.used")) is False:
        return Known(False, _not_given(view))
    return modules if isinstance(modules, Unknown) else Unknown("target_modules is a pattern")


# data, hardware


@property_("dataset.streaming")
def _streaming(view: View) -> Value:
    value = view.value("trainer.train_dataset")
    if isinstance(value, Known) and isinstance(value.value, Object) and value.value.site.kind == "dataset":
        argument = value.value.site.arguments.get("streaming")
        if argument is not None:
            return view.settle(argument.value)
        return Known(False, Default("datasets"))
    return Unknown("how the dataset is loaded is not shown")


@property_("gpu.count")
def _gpu_count(view: View) -> Value:
    hardware = view.run.facts.hardware
    if hardware is None or hardware.count is None:
        return Unknown("nothing says how many GPUs there are")
    return Known(hardware.count, Stated(hardware.origin))


@property_("gpu.present")
def _gpu_present(view: View) -> Value:
    """Whether there is a CUDA GPU at all."""
    hardware = view.run.facts.hardware
    if hardware is None or (hardware.gpu is None and hardware.count is None):
        return Unknown("nothing says which GPU there is")
    if hardware.count == 0 or (hardware.gpu or "").lower().startswith("none"):
        return Known(False, Stated(hardware.origin))
    return Known(True, Stated(hardware.origin))


@property_("gpu.mps")
def _gpu_mps(view: View) -> Value:
    """Whether it is Apple's GPU."""
    hardware = view.run.facts.hardware
    if hardware is None or hardware.gpu is None:
        return Unknown("nothing says which GPU there is")
    return Known("mps" in hardware.gpu.lower(), Stated(hardware.origin))


def _gpu(view: View, attribute: Callable[[knowledge.Gpu], object]) -> Value:
    hardware = view.run.facts.hardware
    if hardware is None or hardware.gpu is None:
        return Unknown("nothing says which GPU there is")
    found = knowledge.gpu(hardware.gpu)
    if found is None:
        return Unknown(f"the GPU {hardware.gpu!r} is not known")
    return Known(attribute(found), Stated(hardware.origin))


for _name, _attribute in {
    "gpu.name": lambda g: g.name,
    "gpu.architecture": lambda g: g.architecture,
    "gpu.capability": lambda g: float(f"{g.capability[0]}.{g.capability[1]}"),
    "gpu.bf16": lambda g: g.bf16,
    "gpu.tf32": lambda g: g.tf32,
    "gpu.fp8": lambda g: g.fp8,
    "gpu.memory": lambda g: max(g.memory),
}.items():
    PROPERTIES[_name] = lambda view, a=_attribute: _gpu(view, a)  # type: ignore[misc]


# the run itself, and what releases say of themselves


@property_("run.smoke_test")
def _smoke_test(view: View) -> Value:
    """A run too short to be worth tuning: a handful of steps, a tiny model or data made for tests, or a test function."""
    steps = view.value("max_steps")
    if isinstance(steps, Known) and isinstance(steps.value, int) and 0 < steps.value <= SMOKE_STEPS:
        return Known(True, steps.origin)
    trainer = view.run.trainer
    if trainer is not None and (trainer.function or "").startswith("test_"):
        return Known(True, Derived("the function's name"))
    data = view.value("trainer.train_dataset") if trainer is not None else Unknown("")
    names = [view.value("model.name")]
    if isinstance(data, Known) and isinstance(data.value, Object):
        names += [a.value for n, a in data.value.site.arguments.items() if n in ("0", "path")]
    for name in names:
        if isinstance(name, Known) and isinstance(name.value, str) and _FOR_TESTS.search(name.value.lower()):
            return Known(True, name.origin)
    return Known(False, Derived("neither few steps nor a tiny model"))


_FOR_TESTS = re.compile(r"(^|[-_/])(tiny|dummy|test)(ing)?[-_/]")


@property_("run.method")
def _method(view: View) -> Value:
    return Known(view.run.method, Derived("the trainer"))


@property_("run.linked")
def _linked(view: View) -> Value:
    return Known(view.run.trainer is not None, Derived("the file"))


@property_("run.has_config")
def _has_config(view: View) -> Value:
    """Whether the config's values are written in this file, rather than parsed from elsewhere or left out."""
    return Known(view.run.config is not None and view.run.config.open is None, Derived("the file"))


@property_("run.unsloth")
def _unsloth(view: View) -> Value:
    return Known(view.run.module.unsloth is not None, Derived("the imports"))


@property_("trl.vllm_minimum")
def _vllm_minimum(view: View) -> Value:
    return _bound(view, 0)


@property_("trl.vllm_maximum")
def _vllm_maximum(view: View) -> Value:
    return _bound(view, 1)


def _bound(view: View, index: int) -> Value:
    limits = view.world.release.vllm_range
    return (
        Known(parsed(limits[index]), Default(view.world.label))
        if limits is not None
        else Unknown(f"{view.world.label} checks no vLLM version")
    )


@property_("trl.liger_minimum")
def _liger_minimum(view: View) -> Value:
    minimum = view.world.release.liger_minimum
    return (
        Known(parsed(minimum), Default(view.world.label))
        if minimum is not None
        else Unknown(f"{view.world.label} checks no liger-kernel version")
    )


@property_("trl.varlen_attention")
def _varlen(view: View) -> Value:
    """The attention names that this release accepts for padding-free batches; None where it no longer checks."""
    return Known(view.world.release.attention_varlen, Default(view.world.label))


def _of_transformers(view: View, read: Callable[[knowledge.TransformersRelease], object]) -> Value:
    if view.world.transformers is None:
        return Unknown("the transformers release is not known")
    return Known(
        read(knowledge.transformers(view.world.transformers)), Default(f"transformers {view.world.transformers}")
    )


@property_("trl.transformers_fits")
def _trl_fits(view: View) -> Value:
    """Whether the pinned transformers lies in the range that this TRL release declares."""
    return _fits(view, "transformers", view.world.release.requires.get("transformers"))


@property_("vllm.transformers_fits")
def _vllm_fits(view: View) -> Value:
    """Whether the pinned transformers lies in the range that the pinned vLLM release declares."""
    fact = view.run.facts.packages.get("vllm")
    release = knowledge.known("vllm", fact.version) if fact is not None and fact.version is not None else None
    if release is None:
        return Unknown("no known vLLM release is pinned")
    return _fits(view, "transformers", knowledge.vllm(release).requires.get("transformers"))


def _fits(view: View, package: str, required: str | None) -> Value:
    fact = view.run.facts.packages.get(package)
    if fact is None or fact.version is None:
        return Unknown(f"no {package} version is pinned")
    if required is None:
        return Unknown("no range is declared")
    return Known(_matches(fact.version, required.split(";")[0].strip()), Stated(fact.origin))


@property_("transformers.attention")
def _attention_names(view: View) -> Value:
    return _of_transformers(view, lambda t: tuple(sorted(t.attention)) if t.attention else None)


def _kernels(view: View, index: int) -> Value:
    def read(release: knowledge.TransformersRelease) -> object:
        limit = release.kernels_window[index] if release.kernels_window is not None else None
        return parsed(limit) if limit is not None else None

    value = _of_transformers(view, read)
    return (
        Unknown("this transformers release sets no such limit")
        if isinstance(value, Known) and value.value is None
        else value
    )


@property_("transformers.kernels_minimum")
def _kernels_minimum(view: View) -> Value:
    return _kernels(view, 0)


@property_("transformers.kernels_maximum")
def _kernels_maximum(view: View) -> Value:
    """The first `kernels` release that this transformers refuses."""
    return _kernels(view, 1)


@property_("liger.model_types")
def _liger_types(view: View) -> Value:
    """The model types that the project's liger-kernel patches; of several allowed releases, what the newest patches."""
    release = liger_release(view)
    return (
        Known(tuple(sorted(release.model_types)), Stated(f"liger-kernel {release.version}"))
        if release is not None
        else Unknown("no liger-kernel is known")
    )


def liger_release(view: View) -> knowledge.LigerRelease | None:
    """The liger-kernel release to judge by: the pinned one, else the newest, which patches most."""
    fact = view.run.facts.packages.get("liger-kernel")
    if fact is not None and fact.version is not None:
        known = knowledge.known("liger-kernel", fact.version)
        return knowledge.liger(known) if known is not None else None
    return knowledge.liger(knowledge.newest("liger-kernel"))


# curated rows ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _loading() -> Mapping[str, list[dict[str, object]]]:
    return tomllib.loads((Path(knowledge.__file__).parent / "curated" / "loading.toml").read_text("utf-8"))


@lru_cache(maxsize=1)
def _model_types() -> tuple[tuple[str, str], ...]:
    rows = tomllib.loads((Path(knowledge.__file__).parent / "curated" / "models.toml").read_text("utf-8"))["model"]
    return tuple((row["pattern"], row["type"]) for row in rows)


@cache
def _matches(version: str, specifier: object) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(str(specifier)).contains(version, prereleases=True)


FAMILIES["model.load."] = lambda view, keyword: load_argument(view, keyword)
FAMILIES["ref_model.load."] = lambda view, keyword: load_argument(view, keyword, reference=True)
