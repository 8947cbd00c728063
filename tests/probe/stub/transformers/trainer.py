"""The training loop of transformers.Trainer, without training."""

import dataclasses

from transformers.integrations import WandbCallback
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback, TrainerControl, TrainerState


@dataclasses.dataclass
class TrainingArguments:
    output_dir: str = "out"
    per_device_train_batch_size: int = 2
    gradient_accumulation_steps: int = 2
    max_steps: int = -1
    total: int = 12
    seed: int = 42
    push_to_hub: bool = False
    eval_on_start: bool = False
    report_to: list = dataclasses.field(default_factory=lambda: ["wandb"])
    hub_token: str = "hf_secret"
    eos_token: str = "<eos>"
    pad_to_multiple_of: int | None = None
    retry: int = 0


class Parameter:
    requires_grad = True
    dtype = "torch.float32"

    def numel(self):
        return 10


class Model:
    class config:
        model_type = "stub"
        num_hidden_layers = 2
        hidden_size = 4

    def parameters(self):
        return [Parameter(), Parameter()]


class Batch(dict):
    pass


class Tensor:
    """So much of one: rows x columns, all ones."""

    def __init__(self, rows, columns):
        self.shape = (rows, columns)

    def numel(self):
        return self.shape[0] * self.shape[1]

    def sum(self):
        return self.numel()


class Trainer:
    def __init__(self, args=None, callbacks=()):
        self.args = args or TrainingArguments()
        self.model = Model()
        self.callback_handler = CallbackHandler([DefaultFlowCallback(), WandbCallback(), *callbacks])
        self.control, self.state = TrainerControl(), TrainerState()
        if self.args.push_to_hub:
            self.init_hf_repo()

    def init_hf_repo(self):
        raise OSError("no hub here")

    def add_callback(self, callback):
        self.callback_handler.callbacks.append(callback)

    def event(self, name):
        self.control = self.callback_handler.call(name, self.args, self.state, self.control)

    def training_step(self, model, inputs, num_items_in_batch=None):
        return 1.5 / self.args.gradient_accumulation_steps

    def batch(self):
        return Batch(input_ids=Tensor(2, 8), attention_mask=Tensor(2, 5))

    def log(self, logs, start_time=None):
        print("LOG", logs)

    def evaluate(self):
        print("EVALUATE")
        return {}

    def _evaluate(self):
        return self.evaluate()

    def save_model(self, folder=None):
        print("SAVE MODEL")

    def _save_checkpoint(self):
        print("CHECKPOINT")

    def create_model_card(self):
        print("CARD")

    def push_to_hub(self):
        print("PUSH")

    def _maybe_log_save_evaluate(self):
        if self.control.should_log:
            self.log({"loss": 1.5})
        if self.control.should_evaluate:
            self._evaluate()
        if self.control.should_save:
            self._save_checkpoint()
            self.event("save")

    def train(self, resume_from_checkpoint=None, trial=None):
        if resume_from_checkpoint:
            print("RESUMED")
        for _ in range(1 + self.args.retry):  # auto_find_batch_size
            try:
                return self._inner_training_loop()
            except MemoryError:
                self.state, self.control = TrainerState(), TrainerControl()
        return None

    def _inner_training_loop(self):
        try:
            self.event("train_begin")
            if self.args.eval_on_start:
                self._evaluate()
            while not self.control.should_training_stop:
                self.event("epoch_begin")
                for _ in range(5):
                    self.event("step_begin")
                    for micro in range(self.args.gradient_accumulation_steps):
                        self.training_step(self.model, self.batch())
                        if micro + 1 < self.args.gradient_accumulation_steps:
                            self.event("substep_end")
                    self.state.global_step += 1
                    self.event("step_end")
                    self._maybe_log_save_evaluate()
                    if self.control.should_training_stop:
                        break
                self.event("epoch_end")
                self._maybe_log_save_evaluate()
            self.event("train_end")
            print("TRAINED", self.state.global_step)
            return self.state.global_step
        finally:
            print("UNWOUND")
