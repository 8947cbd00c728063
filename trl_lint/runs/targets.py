"""A view and a dotted name in; where that value is written, or where it would be written, out."""

from __future__ import annotations

from dataclasses import dataclass

from trl_lint.model import Argument, Known, Site, Span, Table, Unknown
from trl_lint.runs.logic import truth
from trl_lint.runs.properties import model_is_parsed, model_site, peft_site
from trl_lint.runs.run import View, trainer_argument
from trl_lint.runs.starting import VISIBLE, environment_argument, launch_argument, misspelt, server_of

_LOADING = {
    "model.attn_implementation": ("attn_implementation", "use_flash_attention_2"),
    "model.dtype": ("dtype", "torch_dtype"),
    "model.device_map": ("device_map",),
    "model.quantized": ("quantization_config", "load_in_4bit", "load_in_8bit"),
    "model.use_cache": ("config.use_cache", "use_cache"),
    "model.name": ("0", "pretrained_model_name_or_path", "model_name", "model_name_or_path"),
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
    return _followed(view, _written(view, name))


def _followed(view: View, target: Target | None) -> Target | None:
    """What a script takes from a parsed config or an option is written where the recipe or the command gives it."""
    if target is None or target.argument is None or view.run.parsed is None:
        return target
    value = target.argument.value
    if not isinstance(value, Unknown) or value.field is None or value.field.endswith("()"):
        return target
    site = view.run.parsed.site
    return Target(site, value.field, (), site.arguments.get(value.field))


def _written(view: View, name: str) -> Target | None:
    root, _, rest = name.partition(".")
    if name in ("model", "peft", "trainer", "config", "launch", "server"):
        server = server_of(view)
        site = {
            "model": model_site(view),
            "peft": peft_site(view),
            "trainer": view.run.trainer,
            "config": view.run.config,
            "launch": view.run.launch.starter if view.run.launch is not None else view.run.accelerate,
            "server": server.flags if server is not None else None,
        }[name]
        return Target(site, name) if site is not None else None
    if not rest:
        return _argument(
            view.run.config,
            name if view.run.config is None or name in view.run.config.arguments or name != "output_dir" else "0",
        )
    if root in ("launch", "server"):
        return _of_command(view, root, rest)
    if root == "client":
        return _argument(view.run.config, "vllm_server_base_url") or _argument(view.run.config, f"vllm_server_{rest}")
    if root == "option":
        return _argument(view.run.parsed.site if view.run.parsed is not None else None, rest)
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
    if root in ("launch", "server"):
        return _command_place(view, root, rest)
    if root == "option":
        parsed = view.run.parsed
        return Target(parsed.site, rest) if parsed is not None and parsed.site.open is None else None
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
        if model_is_parsed(view):
            parsed = view.run.parsed
            if parsed is None or parsed.site.open is not None or view.taken(rest) is None:
                return None
            return Target(parsed.site, rest)
        if config is None or truth(view.alternatives("model.is_name")) is not True:
            return None
        return Target(config, "model_init_kwargs", (rest,), config.arguments.get("model_init_kwargs"))
    if root == "ref_model":
        site = model_site(view, reference=True)
        return Target(site, rest.removeprefix("load.")) if site is not None else None
    if root == "peft":
        site = peft_site(view)
        return Target(site, rest) if site is not None else None
    return Target(config, root, (rest,), config.arguments.get(root)) if config is not None else None


def _argument(site: Site | None, name: str) -> Target | None:
    if site is None or name not in site.arguments:
        return None
    return Target(site, name, (), site.arguments[name])


def _of_command(view: View, root: str, rest: str) -> Target | None:
    """An option or a variable of the launch or of the server's command."""
    launch = view.run.launch if root == "launch" else server_of(view)
    name = {"gpus": f"env.{VISIBLE}", "visible_gpus": f"env.{VISIBLE}"}.get(rest, rest)
    if rest == "misspelt_visible_devices":
        wrong = misspelt(launch)
        name = f"env.{wrong.name}" if wrong is not None else name
    if name.startswith("env."):
        argument = environment_argument(launch, name.removeprefix("env."))
        return Target(launch.starter, name, (), argument) if launch is not None and argument is not None else None
    if root == "server":
        return _argument(launch.flags if launch is not None else None, name)
    argument = launch_argument(view, *_LAUNCHER.get(name, (name,)))
    for site in (launch.starter if launch is not None else None, view.run.accelerate):
        if site is None or argument is None:
            continue
        for given, found in site.arguments.items():
            if found is argument:
                return Target(site, given, (), argument)
    return None


_LAUNCHER = {
    "num_processes": ("num_processes", "nproc_per_node", "num_gpus", "n"),
    "num_machines": ("num_machines", "nnodes"),
    "zero_stage": ("zero_stage", "deepspeed_config"),
    "fsdp_version": ("fsdp_config", "distributed_type"),
}


def _command_place(view: View, root: str, rest: str) -> Target | None:
    launch = view.run.launch if root == "launch" else server_of(view)
    if launch is None:
        return None
    if rest == "gpus":
        rest = f"env.{VISIBLE}"
    if rest == "command" or rest.startswith("env.") or root == "launch":
        return Target(launch.starter if rest != "command" else launch.flags, rest)
    return Target(launch.flags, rest) if launch.flags.open is None else None


def _loading(view: View, names: tuple[str, ...]) -> Target | None:
    site = model_site(view)
    if model_is_parsed(view) and view.run.parsed is not None:
        site = view.run.parsed.site
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
