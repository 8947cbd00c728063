from transformers import Trainer
from transformers.generation.utils import GenerationMixin


class PPOTrainer(Trainer):
    def generate_completions(self, sampling=False):
        print("TABLE")

    def train(self):
        self.event("train_begin")
        for step in range(1, 13):
            GenerationMixin().generate(0.005)
            self.state.global_step = step
            self.log({"loss/policy_avg": 0.5, "objective/kl": 0.1 * step})
            self.event("step_end")
            if self.control.should_save:
                self._save_checkpoint()
            self.generate_completions(sampling=True)
        print("TRAINED")
