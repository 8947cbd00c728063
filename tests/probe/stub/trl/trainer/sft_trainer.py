import dataclasses

from transformers import Trainer, TrainingArguments


@dataclasses.dataclass
class SFTConfig(TrainingArguments):
    max_length: int = 1024


class SFTTrainer(Trainer):
    """On transformers' loop, with nothing of its own."""
