"""Two of TRL's trainers: one on transformers' loop, one with a loop of its own (PPO, RLOO before 0.22)."""

from importlib import import_module


def __getattr__(name: str) -> object:  # lazy, like the real package
    if name in ("SFTConfig", "SFTTrainer"):
        return getattr(import_module("trl.trainer.sft_trainer"), name)
    if name == "TrlParser":
        return getattr(import_module("trl.scripts.utils"), name)
    raise AttributeError(name)
