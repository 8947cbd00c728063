"""The options of a ModelConfig in; out what TRL's own helpers build of them: an adapter, a quantisation."""

from __future__ import annotations

from trl_lint.model import Argument, Derived, Known, Object, Site, Unknown, Value

_ADAPTER = {
    "lora_r": "r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout", "lora_target_modules": "target_modules",
    "lora_modules_to_save": "modules_to_save", "lora_task_type": "task_type", "use_rslora": "use_rslora", "use_dora": "use_dora",
}  # fmt: skip


def adapter_of(site: Site) -> Site:
    """The LoraConfig that get_peft_config builds from the ModelConfig options at a site."""
    given = {new: site.arguments[old] for old, new in _ADAPTER.items() if old in site.arguments}
    return Site(
        "peft", "LoraConfig", "trl.get_peft_config", site.span, site.callee, given, open=site.open, layers=site.layers
    )


def quantization_of(site: Site, four: Value, eight: Value) -> Value:
    """The BitsAndBytesConfig that get_quantization_config builds; None where neither option is on."""
    for name, value in (("load_in_4bit", four), ("load_in_8bit", eight)):
        if isinstance(value, Known) and value.value:
            given = {name: site.arguments[name]} if name in site.arguments else {}
            made = Site(
                "quantization", "BitsAndBytesConfig", "trl.get_quantization_config", site.span, site.callee, given,
                open="the ModelConfig's other options decide",
            )  # fmt: skip
            return Known(Object(made), value.origin)
    if isinstance(four, Known) and isinstance(eight, Known):
        return Known(None, four.origin)
    return four if isinstance(four, Unknown) else eight


def made_by(helper: str, config: Site) -> Value | None:
    """What a helper ("get_peft_config") makes of a ModelConfig that is written out; None for another helper."""
    if helper == "get_peft_config":
        used = _switch(config, "use_peft")
        if not isinstance(used, Known):
            return used
        return Known(Object(adapter_of(config)) if used.value else None, used.origin)
    if helper == "get_quantization_config":
        return quantization_of(config, _switch(config, "load_in_4bit"), _switch(config, "load_in_8bit"))
    return None


def _switch(config: Site, name: str) -> Value:
    """A switch of the config; every release has it off."""
    argument: Argument | None = config.arguments.get(name)
    if argument is not None:
        return Unknown("it is set only on one branch") if argument.conditional else argument.value
    return Unknown(config.open) if config.open is not None else Known(False, Derived("not given"))
