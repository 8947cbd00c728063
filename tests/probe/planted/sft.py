"""SFT of a tiny random model on ten rows. `tests/bench/planted.py` changes one of the lines that are marked `planted`.

A step computes for some hundredths of a second and is made to last a second, whose rest is waited for: how long it takes is
decided by the wait, not by what else the machine does.
"""

import threading  # noqa: F401  (a line that hangs needs it)
import time

import torch
from datasets import Dataset
from tiny import model, tokenizer
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer

spare = torch.ones(64 * 2**20)  # planted: memory
order = range(10)  # planted: order
rate = 1e-3  # planted: rate
rows = Dataset.from_list([{"text": f"row {i}: " + "words to learn " * (1 + i % 4)} for i in order])
args = SFTConfig(
    output_dir="out",
    max_length=64,
    per_device_train_batch_size=1,
    num_train_epochs=4,
    learning_rate=rate,
    report_to="none",
    use_cpu=True,
    bf16=False,
)


class Pace(TrainerCallback):
    def on_step_begin(self, *args, **kwargs):
        self.end = time.monotonic() + 1

    def on_step_end(self, *args, **kwargs):
        time.sleep(max(0.0, self.end - time.monotonic()))  # what cannot be saved


class Trainer(SFTTrainer):
    def compute_loss(self, *args, **kwargs):
        self.count = 1  # planted: anything
        return super().compute_loss(*args, **kwargs)


trainer = Trainer(model, args=args, train_dataset=rows, processing_class=tokenizer)
collate = trainer.data_collator


def collator(examples):
    time.sleep(0.5)  # planted: sleep
    return collate(examples)


trainer.data_collator = collator
trainer.add_callback(Pace())
trainer.train()
