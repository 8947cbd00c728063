"""The part of the probe that runs inside the user's process, under the user's interpreter and launcher.

In: the environment variable ``TRL_LINT_PROBE``, JSON ``{"out": folder, "steps": 8, "seed": 42, ...}``. Out: ``rank-N.jsonl``
in that folder, one JSON object a line (``train``, ``step``, ``end``, ``error``, ``note``, ``harness-error``).

Python imports this file by its name when its folder comes first on PYTHONPATH (not under ``python -I``, ``-E`` or ``-S``). The
``sitecustomize`` that Python would have found without it runs first. Without the variable nothing else happens; with it, a
class is changed only when the user's code imports ``transformers.trainer`` or one of TRL's trainers, and only ``train()`` acts.
The first ``train()`` of a job is run for so many optimizer steps, measured, and the process ends there: what the script would do
afterwards (saving, evaluating, training again) is no part of the measurement.

Two laws: what is measured is the user's training (no argument that shapes the schedule or the numbers is touched), and an
error of ours never becomes the user's (it is written down as ``harness-error`` and the run goes on).

Written for Python 3.9 and the standard library, because it runs wherever TRL runs. torch and transformers are never imported
here, only looked up in ``sys.modules`` once the user has imported them.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing has a price, and this file is read by every Python process of the user
    from collections.abc import Callable, Iterable
    from typing import Any

VARIABLE = "TRL_LINT_PROBE"
# After the last step: what hangs in ending (a peer that died, a server that does not answer) may hang for so long.
PATIENCE = float(os.environ.get("TRL_LINT_PROBE_PATIENCE", "60"))

# Trainer methods and the parts of a trainer that generate completions, outermost first to come is the one that is timed.
# Moving the weights into vLLM is a price of generating with it, and counts.
GENERATING_METHODS = (
    "_generate",
    "_generate_single_turn",
    "_generate_completions",
    "_generate_vllm",
    "_generate_transformers",
    "_generate_on_policy_for_slices",
    "_generate_student_completions",
    "_move_model_to_vllm",
)
GENERATING_PARTS = ("vllm_generation", "vllm_client", "llm")
PART_METHODS = ("generate", "chat", "sync_weights", "update_named_param", "wake_up")

# Everything a trainer does with its result instead of training: each does nothing during a probe.
SILENCED: dict[str, Any] = {
    "save_model": None,
    "save_state": None,
    "_save_checkpoint": None,
    "push_to_hub": None,
    "_push_from_checkpoint": None,
    "create_model_card": None,
    "_finish_current_push": None,
    "evaluate": {},
    "_evaluate": {},
    "generate_completions": None,  # PPO's and the first RLOO's table of samples
}
SECRETS = ("hub_token", "api_key", "access_token", "auth_token", "secret", "password")
DISTRIBUTIONS = (
    "trl",
    "transformers",
    "torch",
    "vllm",
    "liger-kernel",
    "accelerate",
    "peft",
    "datasets",
    "deepspeed",
    "bitsandbytes",
    "flash-attn",
    "kernels",
)


class Finished(BaseException):
    """Raised out of the last step, so that what the trainer started is ended by its own ``finally``; caught by `around`."""


# The one measurement of this process, and what `train()` of this process has come to.
_session: Session | None = None


# ---------------------------------------------------------------------------------------------------------------- the record


class Record:
    """The file of one rank. Every line is one write, so that a process that is killed leaves whole lines."""

    def __init__(self, folder: str, rank: int) -> None:
        self.path = os.path.join(folder, f"rank-{rank}.jsonl")
        self.descriptor: int | None = None

    def open(self) -> bool:
        """False when a process of this rank has trained before."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            self.descriptor = os.open(self.path, flags | os.O_EXCL, 0o644)
            return True
        except FileExistsError:
            self.descriptor = os.open(self.path, flags, 0o644)
            return False

    def write(self, kind: str, **values: Any) -> None:
        import json
        import time

        try:
            if self.descriptor is not None:
                # With several ranks the first error is the cause, and the clock says which one was first.
                line = json.dumps({"kind": kind, "time": time.time(), **values}, default=str, ensure_ascii=True)
                os.write(self.descriptor, (line + "\n").encode())
        except Exception:
            pass  # a full disk is not the user's error, and there is nowhere to say it


def guarded(where: str, record: Record, work: Callable[..., Any], *args: Any) -> Any:
    """`work`, or None and a line in the record: no error of ours reaches the user's run."""
    try:
        return work(*args)
    except Exception as error:
        record.write("harness-error", where=where, **describe(error))
        return None


def describe(error: BaseException) -> dict[str, str]:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return {"type": name, "message": lines[0].strip()[:500] if lines else ""}


# --------------------------------------------------------------------------------------------------------------- the session


class Session:
    """One measured ``train()``: what it was, one line a step, and how it ended."""

    def __init__(self, trainer: Any, settings: dict[str, Any]) -> None:
        self.trainer = trainer
        self.arguments = trainer.args
        self.limit = int(settings.get("steps", 8))
        self.seed = int(settings.get("seed", 42))
        self.rank, self.world = whereabouts(self.arguments)
        self.record = Record(settings["out"], self.rank)
        self.first = self.record.open()
        self.torch = sys.modules.get("torch")
        self.device = getattr(self.arguments, "device", None)
        self.steps = 0
        self.begins = 0
        self.failed = False
        # of the step that runs
        self.began: float | None = None
        self.ended: float | None = None
        self.losses: list[Any] = []
        self.batch_tokens: list[Any] = []
        self.samples: int | None = None
        self.generation: float | None = None
        self.rollout: float | None = None
        self.depth: dict[str, int] = {}
        self.logged: dict[str, Any] = {}
        self.gpu_used: int | None = None
        # of all steps so far
        self.counted: float | None = None
        self.metric_lengths: dict[str, int] = {}

    # ---- before

    def prepare(self) -> None:
        """Each part on its own: when one fails, the others still stand."""
        # What the run is, before anything is changed.
        self.record.write("train", **(guarded("identity", self.record, self.identity) or {}))
        for name in ("silence", "listen", "time_generation", "watch", "sow"):
            guarded(name, self.record, getattr(self, name))

    def identity(self) -> dict[str, Any]:
        trainer = self.trainer
        return {
            "pid": os.getpid(),
            "rank": self.rank,
            "world": self.world,
            "trainer": known_name(type(trainer)),
            "class": type(trainer).__name__,
            "config": known_name(type(self.arguments)),
            "device": str(self.device),
            "gpu": guarded("gpu", self.record, self.gpu),
            "versions": guarded("versions", self.record, versions),
            "model": guarded("model", self.record, shape, getattr(trainer, "model", None)),
            "fields": guarded("fields", self.record, scalars, self.arguments),
            # Methods that generate for several steps at once repeat in so many steps: only whole cycles compare.
            "cycle": guarded("cycle", self.record, cycle, self.arguments) or 1,
        }

    def gpu(self) -> str | None:
        if self.torch is None or getattr(self.device, "type", None) != "cuda":
            return None
        return str(self.torch.cuda.get_device_name(self.device))

    def silence(self) -> None:
        trainer, arguments = self.trainer, self.arguments
        for name, result in SILENCED.items():
            if hasattr(trainer, name):
                setattr(trainer, name, nothing(result))
        for name, value in (("push_to_hub", False), ("report_to", []), ("eval_on_start", False)):
            if hasattr(arguments, name):
                object.__setattr__(arguments, name, value)
        handler = getattr(trainer, "callback_handler", None)
        if handler is not None:
            # `report_to` has become callbacks by now, all of them from here.
            handler.callbacks = [
                each for each in handler.callbacks if not type(each).__module__.startswith("transformers.integrations")
            ]

    def sow(self) -> None:
        """Seed all generators; a trainer that gives each process its own seed keeps that."""
        own = getattr(self.arguments, "seed", None)
        seed = self.seed
        if self.torch is not None and isinstance(own, int):
            apart = int(self.torch.initial_seed()) - own
            seed += apart if 0 < apart < self.world else 0
        sow_light(seed)
        if self.torch is not None:
            self.torch.manual_seed(seed)

    def listen(self) -> None:
        """Losses, batches and, where the trainer has a loop of its own, its logs."""
        trainer = self.trainer
        step = getattr(trainer, "training_step", None)
        if step is not None:
            wrapped = step

            def training_step(*args: Any, **kwargs: Any) -> Any:
                guarded("batch", self.record, self.batch, args, kwargs)
                loss = wrapped(*args, **kwargs)
                self.losses.append(loss)
                return loss

            trainer.training_step = training_step
        log = getattr(trainer, "log", None)
        if log is not None:

            def logging(*args: Any, **kwargs: Any) -> Any:
                logs = args[0] if args else kwargs.get("logs")
                if isinstance(logs, dict):
                    self.logged.update(logs)
                return log(*args, **kwargs)

            trainer.log = logging

    def time_generation(self) -> None:
        trainer = self.trainer
        for name in GENERATING_METHODS:
            self.time_method(trainer, name, "generation")
        for part in GENERATING_PARTS:
            for name in PART_METHODS:
                self.time_method(getattr(trainer, part, None), name, "generation")
        self.time_method(trainer, "_generate_and_score_completions", "rollout")
        # A model's own generate(), under whichever wrapper: the one class that all of them take it from.
        module = sys.modules.get("transformers.generation.utils")
        mixin = getattr(module, "GenerationMixin", None)
        if mixin is not None and "generate" in vars(mixin):
            mixin.generate = self.timed(mixin.generate, "generation")

    def time_method(self, holder: Any, name: str, into: str) -> None:
        method = getattr(holder, name, None)
        if callable(method):
            setattr(holder, name, self.timed(method, into))

    def timed(self, function: Callable[..., Any], into: str) -> Callable[..., Any]:
        import functools
        import threading
        import time

        home = threading.get_ident()

        @functools.wraps(function)
        def timing(*args: Any, **kwargs: Any) -> Any:
            # Nested calls belong to the outermost; another thread's generation overlaps training and costs the step nothing.
            if self.depth.get(into) or threading.get_ident() != home:
                return function(*args, **kwargs)
            self.depth[into] = 1
            guarded("generation", self.record, self.synchronise)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                guarded("generation", self.record, self.synchronise)
                setattr(self, into, (getattr(self, into) or 0.0) + time.perf_counter() - start)
                self.depth[into] = 0
                guarded("memory", self.record, self.look)

        return timing

    def watch(self) -> None:
        add = getattr(self.trainer, "add_callback", None)
        if add is None:
            raise TypeError(f"{type(self.trainer).__name__} has no callbacks: its steps cannot be seen")
        # Added last, so that it has the last word on saving, evaluating and logging.
        add(watcher(self))

    # ---- during

    def train_begins(self) -> None:
        import time

        self.begins += 1
        if self.begins > 1:
            # auto_find_batch_size starts the loop again
            size = getattr(self.trainer, "_train_batch_size", None)
            self.record.write("note", message=f"the trainer started again with batch size {size}")
        self.steps = 0
        self.ended = time.perf_counter()
        self.clear()

    def clear(self) -> None:
        """For the step that begins. That a method generates (0.0, not None) is not forgotten."""
        self.losses = []
        self.batch_tokens = []
        self.samples = None
        self.logged = {}
        self.gpu_used = None
        self.generation = None if self.generation is None else 0.0
        self.rollout = None if self.rollout is None else 0.0
        for index in self.gpus():
            self.torch.cuda.reset_peak_memory_stats(index)  # type: ignore[union-attr]
        reset_host_peak()

    def step_begins(self) -> None:
        import time

        self.synchronise()
        self.clear()
        self.began = time.perf_counter()

    def step_ends(self) -> None:
        import time

        self.synchronise()
        now = time.perf_counter()
        # Trainers with a loop of their own (PPO, the first RLOO) call no on_step_begin: their step begins where one ended.
        start = self.began if self.began is not None else self.ended
        self.steps += 1
        self.look()
        logs = guarded("metrics", self.record, self.metrics) or {}
        allocated, reserved = guarded("memory", self.record, self.peaks) or (None, None)
        self.record.write(
            "step",
            step=self.steps,
            seconds=None if start is None else now - start,
            # From the end of the last step to the beginning of this one: waiting for data, mostly.
            between=self.began - self.ended if self.began is not None and self.ended is not None else None,
            generation=self.generation,
            rollout=self.rollout,
            tokens=guarded("tokens", self.record, self.tokens),
            samples=None if self.samples is None else self.samples * self.world,
            loss=guarded("loss", self.record, self.loss),
            logs=logs,
            allocated=allocated,
            reserved=reserved,
            gpu_used=self.gpu_used,
            host=guarded("memory", self.record, host_peak),
        )
        self.began = None
        self.clear()
        self.ended = time.perf_counter()

    def batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs = kwargs.get("inputs", args[1] if len(args) > 1 else None)
        if isinstance(inputs, list):  # rows of a method that generates; a batch may hold several steps' worth of them
            size = getattr(self.arguments, "per_device_train_batch_size", None)
            self.samples = None if size is None else (self.samples or 0) + int(size)
            return
        if inputs is None or not hasattr(inputs, "items"):
            return
        tensors = {name: value for name, value in inputs.items() if hasattr(value, "numel")}
        ids = [name for name in tensors if name.endswith("input_ids")]
        for name in ids:
            mask = tensors.get(name[: -len("input_ids")] + "attention_mask")
            # Summed on the device now, read after the step: reading here would make the device wait.
            self.batch_tokens.append(tensors[name].numel() if mask is None else mask.sum())
        flattened = "position_ids" in tensors and "attention_mask" not in tensors
        if ids and not flattened:
            self.samples = (self.samples or 0) + int(tensors[ids[0]].shape[0])

    def loss(self) -> float | None:
        """As the trainer would log it: every micro-batch's share has been divided by their number already."""
        values = [number(each) for each in self.losses]
        found = [each for each in values if each is not None]
        if found:
            return sum(found)
        for name in ("loss", "loss/policy_avg"):
            value = number(self.logged.get(name))
            if value is not None:
                return value
        return None

    def tokens(self) -> int | None:
        """Of all processes, without padding where the trainer or its batches say so; None if nobody counts."""
        state = getattr(self.trainer, "state", None)
        own = number(getattr(self.trainer, "_total_train_tokens", None))
        online = number(getattr(state, "num_input_tokens_seen", None))
        total = own or online
        if total:
            new, self.counted = total - (self.counted or 0), total
            return int(new)
        if self.batch_tokens:
            return int(sum(number(each) or 0 for each in self.batch_tokens)) * self.world
        return None

    def metrics(self) -> dict[str, float]:
        """What the trainer computed in this step, by the names it logs: the mean of what was added since the last step."""
        found: dict[str, float] = {}
        trainer = self.trainer
        for holder in ("_metrics", "_stored_metrics", "stats"):
            values = getattr(trainer, holder, None)
            if not isinstance(values, dict):
                continue
            series = values.get("train", values)
            for name, entries in list(series.items()) if isinstance(series, dict) else []:
                if not isinstance(entries, list) or name == "num_tokens":
                    continue
                key = f"{holder}/{name}"
                before = self.metric_lengths.get(key, 0)
                self.metric_lengths[key] = len(entries)
                fresh = entries[before:] if before <= len(entries) else entries
                numbers = [value for value in (number(each) for each in fresh[-64:]) if value is not None]
                if numbers:
                    found[str(name)] = sum(numbers) / len(numbers)
        for name, value in self.logged.items():
            one = number(value)
            if one is not None:
                found.setdefault(str(name), one)
        return found

    # ---- the device

    def synchronise(self) -> None:
        kind = getattr(self.device, "type", None)
        if self.torch is None or kind in (None, "cpu"):
            return
        if kind == "cuda":
            for index in self.gpus():
                self.torch.cuda.synchronize(index)
        else:
            getattr(self.torch, kind).synchronize()

    def gpus(self) -> list[int]:
        """Those that this process has memory on: one, unless the model is spread over several."""
        if self.torch is None or getattr(self.device, "type", None) != "cuda":
            return []
        main = getattr(self.device, "index", None) or 0
        if self.world > 1:
            return [main]
        cuda = self.torch.cuda
        return [each for each in range(cuda.device_count()) if each == main or cuda.memory_reserved(each) > 0]

    def peaks(self) -> tuple[int | None, int | None]:
        """Allocated and reserved by torch on the fullest GPU, since the step began."""
        gpus = self.gpus()
        if not gpus:
            return None, None
        cuda = self.torch.cuda  # type: ignore[union-attr]
        return max(cuda.max_memory_allocated(each) for each in gpus), max(
            cuda.max_memory_reserved(each) for each in gpus
        )

    def look(self) -> None:
        """What the driver says is taken on the fullest GPU, by anybody: it sees a vLLM engine in a process of its own.

        cudaMemGetInfo asks the driver as NVML does, needs no package and no translation of CUDA_VISIBLE_DEVICES.
        """
        for index in self.gpus():
            free, total = self.torch.cuda.mem_get_info(index)  # type: ignore[union-attr]
            self.gpu_used = max(self.gpu_used or 0, int(total - free))


def watcher(session: Session) -> Any:
    """The callback. Its base class comes from the user's transformers, so that it knows that release's events."""
    module = sys.modules["transformers.trainer_callback"]
    base: Any = module.TrainerCallback

    class Watcher(base):  # type: ignore[misc]
        def quiet(self, control: Any) -> Any:
            control.should_save = control.should_evaluate = control.should_log = False
            return control

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            guarded("train_begins", session.record, session.train_begins)
            return self.quiet(control)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            return self.quiet(control)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            guarded("step_begins", session.record, session.step_begins)
            return self.quiet(control)

        def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            return self.quiet(control)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            before = session.steps
            guarded("step_ends", session.record, session.step_ends)
            session.steps = before + 1
            if session.steps >= session.limit:
                control.should_training_stop = True
                raise Finished
            return self.quiet(control)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            return self.quiet(control)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            return self.quiet(control)

    return Watcher()


# ------------------------------------------------------------------------------------------------------- what a training is


def whereabouts(arguments: Any) -> tuple[int, int]:
    """Rank and world size."""
    distributed = initialised()
    if distributed is not None:
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank = os.environ.get("RANK") or (os.environ.get("SLURM_PROCID") if "SLURM_STEP_ID" in os.environ else None)
    world = getattr(arguments, "world_size", None)
    return int(rank or 0), int(world) if isinstance(world, int) else 1


def initialised() -> Any:
    """torch.distributed once there is a process group, else None."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed
    except Exception:
        pass
    return None


def known_name(kind: type) -> str:
    """The name by which TRL or transformers knows this class: that of the nearest base that is theirs."""
    for each in kind.__mro__:
        if each.__module__.split(".")[0] in ("trl", "transformers"):
            return each.__name__
    return kind.__name__


def versions() -> dict[str, str | None]:
    """What runs here: the version that a loaded package says it has, else the installed one's."""
    import platform
    from importlib import metadata

    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        loaded = getattr(sys.modules.get(name.replace("-", "_")), "__version__", None)
        try:
            found[name] = str(loaded) if loaded else metadata.version(name)
        except Exception:
            found[name] = None
    return found


def shape(model: Any) -> dict[str, Any]:
    config = getattr(model, "config", None)
    text = getattr(config, "text_config", None) or config
    parameters = list(model.parameters()) if hasattr(model, "parameters") else []
    # DeepSpeed ZeRO-3 leaves an empty tensor and says how many it stands for.
    sizes = [(int(getattr(each, "ds_numel", each.numel())), bool(each.requires_grad)) for each in parameters]
    return {
        "type": getattr(config, "model_type", None),
        "parameters": sum(size for size, _ in sizes),
        "trainable": sum(size for size, trains in sizes if trains),
        "layers": getattr(text, "num_hidden_layers", None),
        "hidden": getattr(text, "hidden_size", None),
        "dtype": str(parameters[0].dtype).replace("torch.", "") if parameters else None,
        "attention": getattr(config, "_attn_implementation", None),
    }


def scalars(arguments: Any) -> dict[str, Any]:
    import dataclasses
    import enum

    names: Iterable[str]
    if dataclasses.is_dataclass(arguments):
        names = [each.name for each in dataclasses.fields(arguments)]
    else:
        names = list(vars(arguments))
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(arguments, name, None)
        if isinstance(value, enum.Enum):
            value = value.value
        if name.startswith("_") or (isinstance(value, str) and name.endswith(SECRETS)):
            continue
        if value is None or isinstance(value, (bool, int, float, str)):
            found[name] = value
    return found


def cycle(arguments: Any) -> int:
    """Optimizer steps after which a method that generates for several of them at once begins again."""
    import math

    every = getattr(arguments, "steps_per_generation", None)
    accumulation = getattr(arguments, "gradient_accumulation_steps", 1) or 1
    if not isinstance(every, int) or every < 1:
        return 1
    every *= getattr(arguments, "num_iterations", 1) or 1
    return every // math.gcd(every, accumulation)


def number(value: Any) -> float | None:
    """Python's number of a number or of a tensor with one element."""
    if isinstance(value, (bool, str)) or value is None:
        return None
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value.item()) if value.numel() == 1 else float(value.float().mean().item())
    except Exception:
        pass
    try:
        return float(value)
    except Exception:
        return None


def reset_host_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass  # not Linux, or not allowed: the peak is then that of the whole run


def host_peak() -> int | None:
    """Peak resident memory of this process in bytes, since the step began."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def nothing(result: Any) -> Callable[..., Any]:
    def silenced(*args: Any, **kwargs: Any) -> Any:
        return dict(result) if isinstance(result, dict) else result

    return silenced


def sow_light(seed: int) -> None:
    import random

    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


# ----------------------------------------------------------------------------------------------------------- around train()


def around(train: Callable[..., Any]) -> Callable[..., Any]:
    """`train` as the user's class has it, measured."""
    import functools

    @functools.wraps(train)
    def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _session
        session = _session
        if session is not None and session.trainer is self and not session.failed:
            return train(self, *args, **kwargs)  # a train() that calls another one
        if session is not None:
            # The script goes on to train after an error, or its first training trains a second model (a callback does).
            session.record.write("note", message="a later train() was not run")
            leave(1 if session.failed else 0)
        try:
            session = _session = begin(self)
        except Exception as error:
            complain(error)
        if session is None:
            return train(self, *args, **kwargs)
        args, kwargs = from_the_start(session, args, kwargs)
        try:
            result = train(self, *args, **kwargs)
        except Finished:
            result = None
        except BaseException as error:
            session.failed = True
            session.record.write("error", **describe(error))
            raise
        session.record.write("end", steps=session.steps)
        leave(0)
        return result

    measured.__trl_lint_probe__ = True  # type: ignore[attr-defined]
    return measured


def begin(trainer: Any) -> Session:
    session = Session(trainer, settings())
    if not session.first:
        with open(session.record.path) as file:
            failed = '"kind": "error"' in file.read()
        session.record.write("note", message="a later train() was not run")
        leave(1 if failed else 0)
    session.prepare()
    return session


def settings() -> dict[str, Any]:
    import json

    found = json.loads(os.environ[VARIABLE])
    if not isinstance(found, dict):
        raise TypeError(f"{VARIABLE} holds no JSON object")
    return found


def complain(error: Exception) -> None:
    """Before there is a record of this rank."""
    try:
        record = Record(settings()["out"], int(os.environ.get("RANK") or 0))
        record.open()
        record.write("harness-error", where="begin", **describe(error))
    except Exception:
        sys.stderr.write(f"trl-lint probe: {type(error).__name__}: {error}\n")


def from_the_start(
    session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of train() without the checkpoint to resume from: both variants begin where the script's model is."""
    given = args[0] if args else kwargs.get("resume_from_checkpoint")
    if not isinstance(given, (str, bool, os.PathLike)) or given is False:
        return args, kwargs
    session.record.write("note", message="resume_from_checkpoint was ignored")
    if args:
        return (None, *args[1:]), kwargs
    return args, {**kwargs, "resume_from_checkpoint": None}


def leave(code: int) -> None:
    """End this process, all ranks together, without running the rest of the script."""
    import atexit
    import threading

    end = threading.Timer(PATIENCE, os._exit, (code,))
    end.daemon = True
    end.start()
    attempt(end_engine)
    attempt(end_children)
    if code == 0:  # after an error the other ranks are not here to meet
        attempt(part)
    attempt(atexit._run_exitfuncs)  # temporary folders, the weight-transfer group with a vLLM server, loggers
    for stream in (sys.stdout, sys.stderr):
        attempt(getattr(stream, "flush", None))
    os._exit(code)


def attempt(work: Any) -> None:
    import contextlib

    with contextlib.suppress(BaseException):
        work()


def part() -> None:
    """All ranks have done their last step before the first one goes."""
    import time

    distributed = initialised()
    if distributed is None:
        return
    host = distributed.get_world_size() > 1 and distributed.get_rank() == 0
    distributed.barrier()
    distributed.destroy_process_group()
    if host:
        time.sleep(0.5)  # rank 0 may hold the store that the others say goodbye to


def end_engine() -> None:
    """vLLM's engine, when it lives in processes of its own."""
    trainer = _session.trainer if _session is not None else None
    for holder in (trainer, getattr(trainer, "vllm_generation", None)):
        engine = getattr(getattr(holder, "llm", None), "llm_engine", None)
        core = getattr(engine, "engine_core", None)
        if core is not None and hasattr(core, "shutdown"):
            core.shutdown()


def end_children() -> None:
    """Workers of this process (data loaders, rollout workers, engines): asked, then ended."""
    if "multiprocessing.process" not in sys.modules:
        return
    import multiprocessing

    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    for child in children:
        child.join(5)
        if child.is_alive():
            child.kill()


# ------------------------------------------------------------------------------------------------------------- installation


def is_wanted(name: str) -> bool:
    return name == "transformers.trainer" or (name.startswith("trl.") and name.endswith("_trainer"))


def dress(module: Any) -> None:
    """Wrap the trainers of a module that has just been imported."""
    for kind in list(vars(module).values()):
        if not isinstance(kind, type) or kind.__module__ != module.__name__ or not kind.__name__.endswith("Trainer"):
            continue
        train = vars(kind).get("train")
        code = getattr(train, "__code__", None)
        # A train() that calls super().train() is measured there, after what it does first.
        if train is None or code is None or "__class__" in code.co_freevars or hasattr(train, "__trl_lint_probe__"):
            continue
        kind.train = around(train)  # type: ignore[attr-defined]
        if "init_hf_repo" in vars(kind):
            kind.init_hf_repo = nothing(None)  # type: ignore[attr-defined]  # called by the constructor, needs the hub
    if module.__name__ == "transformers.trainer" and not is_spawned():
        # A script that shuffles its data without a seed would train A and B on different data.
        sow_light(int(settings().get("seed", 42)))


def is_spawned() -> bool:
    """A child of multiprocessing. While it imports the script's main module, only `_inheriting` says so."""
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    return process.parent_process() is not None or getattr(process.current_process(), "_inheriting", False)


class Finder:
    """Finds nothing itself: has a module found by the others, and dresses it once it is there."""

    def __init__(self) -> None:
        self.looking: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not is_wanted(name) or name in self.looking:
            return None
        self.looking.add(name)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = None if finder is self or find is None else find(name, path, target)
                if spec is not None:
                    follow(spec.loader)
                    return spec
        finally:
            self.looking.discard(name)
        return None


def follow(loader: Any) -> None:
    """Dress what `loader` executes; the loader itself stays, so that `inspect` and `pickle` see what they always see."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: Any) -> None:
        vars(loader).pop("exec_module", None)
        execute(module)
        try:
            dress(module)
        except Exception as error:
            complain(error)

    try:
        loader.exec_module = exec_module
    except Exception as error:
        complain(error)


def install() -> None:
    # Whatever else in the script reports, reports nowhere.
    for name, value in (("WANDB_MODE", "disabled"), ("COMET_MODE", "disabled")):
        os.environ[name] = value
    sys.meta_path.insert(0, Finder())
    for name, module in list(sys.modules.items()):
        if is_wanted(name):  # the user's sitecustomize was faster
            dress(module)


def chain() -> None:
    """Import the `sitecustomize` that Python would have found: under its name, its errors reported by site.

    By the import statement, since importing importlib's own modules costs more than all the rest here.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    ours, path = sys.modules.pop("sitecustomize"), list(sys.path)
    sys.path[:] = [each for each in path if os.path.abspath(each or os.curdir) != here]
    without = list(sys.path)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if sys.path == without:  # else it has changed the path, and means it
            sys.path[:] = path
        sys.modules.setdefault("sitecustomize", ours)


if __name__ == "sitecustomize":
    try:
        chain()
    finally:
        if os.environ.get(VARIABLE):
            try:
                install()
            except Exception as error:
                complain(error)
