import dataclasses

from transformers import Trainer, TrainingArguments
from transformers.generation.utils import GenerationMixin


@dataclasses.dataclass
class GRPOConfig(TrainingArguments):
    steps_per_generation: int = 4
    num_iterations: int = 1


class GRPOTrainer(Trainer):
    """Generates for two steps at once."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._step = 0
        self._total_train_tokens = 0
        self._metrics = {"train": {}}

    def batch(self):
        return [{"prompt": "a"}] * 8

    def training_step(self, model, inputs, num_items_in_batch=None):
        if self._step % self.args.steps_per_generation == 0:
            self._generate_and_score_completions(inputs)
        self._step += 1
        return super().training_step(model, inputs, num_items_in_batch)

    def _generate_and_score_completions(self, inputs):
        self._generate(inputs)
        self.state.num_input_tokens_seen += 100
        metrics = self._metrics["train"]
        metrics.setdefault("reward", []).append(0.25 * self._step)
        metrics["num_tokens"] = [self.state.num_input_tokens_seen]

    def _generate(self, inputs):
        GenerationMixin().generate(0.01)


class StagedTrainer(GRPOTrainer):
    def train(self, *args, **kwargs):
        print("STAGE ONE")
        return super().train(*args, **kwargs)
