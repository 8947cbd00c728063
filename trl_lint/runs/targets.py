"""A view and a dotted name in; where that value is written, or where it would be written, out."""

from __future__ import annotations

from dataclasses import dataclass

from trl_lint.model import Argument, Known, Site, Span, Table
from trl_lint.runs.logic import truth
from trl_lint.runs.properties import model_site, peft_site
from trl_lint.runs.run import View, trainer_argument

_LOADING = {
    "model.attn_implementation": ("attn_implementation", "use_flash_attention_2"),
    "model.dtype": ("dtype", "torch_dtype"),
    "model.device_map": ("device_map",),
    "model.quantized": ("quantization_config", "load_in_4bit", "load_in_8bit"),
    "model.use_cache": ("config.use_cache", "use_cache"),
    "model.name": ("0", "pretrained_model_name_or_path", "model_name"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """An argument at a site; `path` leads into a mapping argument. `argument` is None where nothing is written yet."""

    site: Site
    name: str
    path: tuple[str, ...] = ()
    argument: Argument | None = None

    @property
    def span(self) -> Span:
        return self.argument.place.whole if self.argument is not None else self.site.callee


def written(view: View, name: str) -> Target | None:
    """Where the value of a name is written; None if it is not."""
    root, _, rest = name.partition(".")
    if name in ("model", "peft", "trainer", "config"):
        site = {
            "model": model_site(view),
            "peft": peft_site(view),
            "trainer": view.run.trainer,
            "config": view.run.config,
        }[name]
        return Target(site, name) if site is not None else None
    if not rest:
        return _argument(
            view.run.config,
            name if view.run.config is None or name in view.run.config.arguments or name != "output_dir" else "0",
        )
    if root == "trainer" and view.run.trainer is not None:
        found = trainer_argument(view.run.trainer, rest, view.trainer_class)
        return Target(view.run.trainer, found.name, (), found) if found is not None else None
    if root == "peft":
        return _argument(peft_site(view), rest)
    if root == "dataset":
        value = view.value("trainer.train_dataset")
        site = value.value.site if isinstance(value, Known) and hasattr(value.value, "site") else None
        return _argument(site, rest)
    if root == "model":
        return _loading(view, _LOADING.get(name, (rest.removeprefix("load."),)))
    if root == "ref_model":
        site = model_site(view, reference=True)
        return (
            Target(site, name) if site is not None and rest == "given" else _argument(site, rest.removeprefix("load."))
        )
    return _entry(view.run.config, root, rest)


def place_for(view: View, name: str) -> Target | None:
    """Where a value would be set: where it is written, else where a person would add it. None: there is no place."""
    found = written(view, name)
    if found is not None:
        return found
    root, _, rest = name.partition(".")
    config = view.run.config if view.run.config is not None and view.run.config.open is None else None
    if not rest:
        return Target(config, name) if config is not None else None
    if root == "trainer":
        return (
            Target(view.run.trainer, rest) if view.run.trainer is not None and view.run.trainer.open is None else None
        )
    if root == "model":
        rest = rest.removeprefix("load.")
        site = model_site(view)
        if site is not None:
            return Target(site, rest)
        if config is None or truth(view.alternatives("model.is_name")) is not True:
            return None
        return Target(config, "model_init_kwargs", (rest,), config.arguments.get("model_init_kwargs"))
    if root == "peft":
        site = peft_site(view)
        return Target(site, rest) if site is not None else None
    return Target(config, root, (rest,), config.arguments.get(root)) if config is not None else None


def _argument(site: Site | None, name: str) -> Target | None:
    if site is None or name not in site.arguments:
        return None
    return Target(site, name, (), site.arguments[name])


def _loading(view: View, names: tuple[str, ...]) -> Target | None:
    site = model_site(view)
    for name in names:
        found = _argument(site, name) or _entry(view.run.config, "model_init_kwargs", name)
        if found is not None:
            return found
    return None


def _entry(site: Site | None, name: str, key: str) -> Target | None:
    outer = site.arguments.get(name) if site is not None else None
    if site is None or outer is None or not isinstance(outer.value, Known) or not isinstance(outer.value.value, Table):
        return None
    inner = outer.value.value.entries.get(key)
    return Target(site, name, (key,), inner) if inner is not None else None
