"""Callbacks as transformers 4.52 to 5.24 call them: in order, each may return a control."""


class TrainerControl:
    def __init__(self):
        self.should_training_stop = self.should_epoch_stop = False
        self.should_save = self.should_evaluate = self.should_log = False


class TrainerState:
    def __init__(self):
        self.global_step = 0
        self.num_input_tokens_seen = 0


EVENTS = (
    "train_begin",
    "train_end",
    "epoch_begin",
    "epoch_end",
    "step_begin",
    "substep_end",
    "step_end",
    "log",
    "save",
)


class TrainerCallback:
    pass


for _event in EVENTS:
    setattr(TrainerCallback, "on_" + _event, lambda self, args, state, control, **kwargs: None)


class DefaultFlowCallback(TrainerCallback):
    """Wants everything after every step."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_log = control.should_evaluate = control.should_save = True
        if state.global_step >= args.total:
            control.should_training_stop = True
        return control

    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_log = control.should_evaluate = control.should_save = True
        return control


class CallbackHandler:
    def __init__(self, callbacks):
        self.callbacks = list(callbacks)

    def call(self, event, args, state, control, **kwargs):
        for callback in self.callbacks:
            result = getattr(callback, "on_" + event)(args, state, control, **kwargs)
            control = control if result is None else result
        return control
