from transformers.trainer_callback import TrainerCallback


class WandbCallback(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        print("WANDB")
