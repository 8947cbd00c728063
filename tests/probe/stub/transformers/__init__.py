"""Imitates the part of transformers that the probe's harness touches: names, callback order, what train() does around steps."""

from importlib import import_module


def __getattr__(name: str) -> object:  # lazy, like the real package
    if name in ("Trainer", "TrainingArguments"):
        return getattr(import_module("transformers.trainer"), name)
    if name == "TrainerCallback":
        return import_module("transformers.trainer_callback").TrainerCallback
    raise AttributeError(name)
