"""A training of one number, under the stubs of TRL and transformers. `tests/bench/planted.py` changes a marked line."""

import threading  # noqa: F401  (a line that hangs needs it)
import time

import clock  # noqa: F401  (before the trainer: time passes only while somebody sleeps)
from trl import SFTConfig, SFTTrainer

spare = bytearray(b"x") * 2**25  # planted: memory
order = range(10)  # planted: order
rate = 0.05  # planted: rate
rows = [float(i * i % 7) for i in order]


class Trainer(SFTTrainer):
    weight = 1.0

    def batch(self):
        time.sleep(0.5)  # planted: sleep
        return super().batch()

    def training_step(self, model, inputs, num_items_in_batch=None):
        time.sleep(0.5)  # what cannot be saved
        self.count = 1  # planted: anything
        error = self.weight - rows[self.state.global_step % len(rows)]
        self.weight -= rate * 2 * error
        return error**2 / self.args.gradient_accumulation_steps


args = SFTConfig()
args.device = "cpu"
Trainer(args).train()
