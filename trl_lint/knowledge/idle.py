"""The name of a config field in; whether it decides neither how fast nor what is trained, out."""

from __future__ import annotations

import re

# Fields of TrainingArguments and the TRL configs that change neither how fast nor what it trains within some steps: where
# results go, how they are called, who is told, when is saved and evaluated.
_IDLE = re.compile(
    r"(?:.*_)?(?:dir|path|url)|(?:hub|push|log|logging|save|eval|report|trackio|wandb|mlflow)(?:_.*)?|run_name|project|"
    r"overwrite_output_dir|disable_tqdm|do_(?:train|eval|predict)|load_best_model_at_end|metric_for_best_model|"
    r"greater_is_better|resume_from_checkpoint|restore_callback_states_from_checkpoint|ignore_data_skip|"
    r"per_device_eval_batch_size|num_completions_to_print|local_rank|_n_gpu|ddp_timeout|skip_memory_metrics"
)


def is_idle(name: str) -> bool:
    """Whether a field only says where results go, how they are called, who is told, or when is saved and evaluated."""
    return _IDLE.fullmatch(name) is not None
