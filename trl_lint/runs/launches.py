"""One shell command in; what it launches out: the program or server, its options, its processes, nodes and GPUs.

Wrappers (`nohup`, `env`, `srun`, `uv run`, …) are peeled off first. What a word that cannot be read may hide is said in
`Site.open` and `Launch.unreadable`, never guessed.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trl_lint.model import (
    Argument,
    Command,
    Derived,
    Known,
    Origin,
    Place,
    Site,
    SiteKind,
    Span,
    Table,
    Unknown,
    Value,
    Word,
    Written,
)
from trl_lint.sources.module import Module, Unparsable
from trl_lint.sources.text import Text, Undecodable


@dataclass(frozen=True)
class Launch:
    """One start of a Python program or of a vLLM server.

    `launcher` is what starts the processes ("python", "accelerate", "torchrun", "deepspeed", "trl"); None for a server
    and for a program whose launcher cannot be read. `program` is the script as written, `module` what `-m` names,
    `subcommand` the method's name where TRL's own script runs ("grpo"), `server` which server it is ("trl vllm-serve",
    "vllm serve", "vllm openai"). `starter` holds the launcher's own options, `flags` those of the program, and `config`
    the program's recipe: `--config x.yaml`, else a YAML file that it is given as first word.

    `processes` and `nodes` are counts, `gpus` the device names that the command can see. `host` is another machine that
    it runs on. `unreadable` says why the program, or all of its options, cannot be known; a program beside it is a
    default that a caller may replace. `header` is False where the interpreter of the project runs the script: its
    PEP 723 header is then a comment. Only `uv run train.py` and its like, or the script itself as command, heed it.
    """

    command: Command
    launcher: str | None
    program: str | None
    module: str | None
    subcommand: str | None
    server: str | None
    starter: Site
    flags: Site
    config: Argument | None
    processes: Value
    nodes: Value
    gpus: Value
    host: str | None
    unreadable: str | None
    header: bool = True


def read(command: Command) -> Launch | None:
    """What the command launches; None if that is neither a Python program nor a server."""
    context = _Context(dict(command.environment), _last_launcher(command.words))
    start = _peel(command.words, 0, context)
    try:
        found = _identify(command.words, start, context)
    except RecursionError:  # a launcher of a launcher of …, hundreds deep: nobody's training
        return None
    return _launch(command, found, context) if found is not None else None


def read_text(text: str, where: str, before: bytes = b"") -> Launch | None:
    """The first launch of a command line that a user states in a comment: of the file `where`, which has `before` in front of it."""
    from trl_lint.sources import shell

    try:
        source = Text(where, before + text.encode())
        commands = shell.commands_in(source, source.utf8_of_byte(len(before)), len(source.utf8))
    except (Undecodable, Unparsable, UnicodeEncodeError):
        return None
    return next(_launches(commands), None)


def launches_of(module: Module) -> tuple[Launch, ...]:
    """What the commands of one file launch, in their order."""
    return tuple(_launches(module.commands))


def _launches(commands: Iterable[Command]) -> Iterator[Launch]:
    return (launch for launch in map(read, commands) if launch is not None)


# Words ---------------------------------------------------------------------------------------------------------------

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*|[@*])")
_LISTS = re.compile(r"ARG|FLAG|OPT|EXTRA|OVERRIDE|PARAM|[@*]", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d*)")
_PYTHON = re.compile(r"python[\d.]*w?t?")
_UNREAD_OPTION = "?"
_UNSEEN = "a word that cannot be read"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _base(word: Word) -> str:
    """The command's name without its folder; empty where it cannot be read."""
    return (word.text or "").rpartition("/")[2]


def _why(word: Word) -> str:
    return word.why or ("it is a default that the caller may replace" if word.likely else _UNSEEN)


def _spelling(word: Word) -> str | None:
    """The word as far as it can be read if it is an option: `--port=$PORT` is at least `--port=`."""
    if word.text is None:
        return word.head if word.head.startswith("-") and "=" in word.head else None
    return word.text


def _variable(word: Word) -> str | None:
    """The variable that decides an unknown word, by the reason that is given for it."""
    found = _VARIABLE.search(word.why or "")
    return found[1] if found else None


def _may_be_many(word: Word) -> bool:
    """Whether an unknown word is likely to be a list of options rather than one value: `$EXTRA_ARGS`, `"$@"`."""
    variable = _variable(word)
    return word.many if variable is None else _LISTS.search(variable) is not None


def _is_option(word: Word) -> bool:
    """Whether argparse takes the word for an option: `-1` and `-0.5` are values, and so is a lone dash."""
    text = _spelling(word)
    if text is None or len(text) < 2 or text[0] != "-" or _NUMBER.fullmatch(text) is not None:
        return False
    return " " not in text.partition("=")[0]


def _is_sure_launcher(word: Word) -> bool:
    """Names that stand for nothing but the launcher, so not for a value (an environment may well be called `trl`)."""
    base = _base(word)
    return _PYTHON.fullmatch(base) is not None or base in ("accelerate", "torchrun", "deepspeed")


def _last_launcher(words: Sequence[Word]) -> int:
    """Where the last launcher stands, so that an unknown word before it is a wrapper's; -1 without one."""
    names = [_base(word) for word in words]
    for index in range(len(names) - 1, -1, -1):
        if tuple(names[index : index + 2]) in (("trl", "vllm-serve"), ("vllm", "serve")) or _is_sure_launcher(
            words[index]
        ):
            return index
    return -1


# Wrappers ------------------------------------------------------------------------------------------------------------


@dataclass
class _Context:
    """What wrappers change: the environment, the machine, how many copies are started, which GPUs are handed on.

    `last` is where the last launcher stands.
    """

    environment: dict[str, Argument]
    last: int = -1
    host: str | None = None
    unreadable: str | None = None
    copies: Value | None = None
    devices: Value | None = None


@dataclass(frozen=True)
class _Wrapper:
    """A command that runs another: options without a value, and how many words stand between options and command."""

    bare: frozenset[str] = frozenset()
    positionals: int = 0
    subcommands: tuple[tuple[str, ...], ...] = ((),)


def _wrapper(bare: str = "", positionals: int = 0, *subcommands: str) -> _Wrapper:
    return _Wrapper(_names(bare), positionals, tuple(tuple(s.split()) for s in subcommands) or ((),))


_UV = (
    "-q --quiet -v --verbose --no-project --isolated --all-extras --frozen --locked --active --no-sync --no-dev --dev "
    "-s --script --no-cache -n --exact --no-config --offline --all-groups --no-default-groups --all-packages --upgrade -U "
    "--no-editable --no-env-file --managed-python --no-managed-python --refresh --reinstall --no-progress --no-build "
    "--no-binary --native-tls --gui-script --no-index --no-sources --only-dev"
)
_DOCKER = (
    "-i -t -d -it -ti -itd -dit -tid --rm --init --privileged --detach --interactive --tty --read-only -P --publish-all "
    "--no-healthcheck --oom-kill-disable --no-deps --service-ports --build -T --no-TTY"
)
_CONTAINER = (
    "--nv --rocm --contain -c --containall -C --cleanenv -e --no-home --writable --writable-tmpfs -w --fakeroot -f"
)
_SRUN = (
    "-l --label -u --unbuffered --exclusive --overlap -s --oversubscribe --pty --exact -k --no-kill -Q --quiet -v "
    "--verbose -O --overcommit --kill-on-bad-exit -K --container-remap-root --container-mount-home --container-writable "
    "--no-container-mount-home --container-readonly -E --preserve-env --mpi-combine -H --hold --test-only -Z --no-allocate"
)
_SSH = "-t -tt -n -f -q -v -vv -A -a -X -Y -x -T -C -N -4 -6 -K -k -g -M -s"

_DEBUGGERS: Mapping[str, _Wrapper] = {
    "debugpy": _wrapper("--wait-for-client --configure-subProcess"),
    "coverage": _wrapper("-p --parallel-mode --branch -a --append -L --pylib", 0, "run"),
    "cProfile": _wrapper(),
    "pdb": _wrapper(),
    "pyinstrument": _wrapper("--html --show-all"),
    "kernprof": _wrapper("-l -v -b"),
    "torch.utils.bottleneck": _wrapper(),
    "scalene": _wrapper("--cpu --gpu --memory --html --json"),
    "memray": _wrapper("--native -f --force --follow-fork -q --quiet --aggregate", 0, "run"),
    "viztracer": _wrapper("--log_torch"),
}
"""Modules, and mostly commands too, that run the script or module that they are given."""

_WRAPPERS: Mapping[str, _Wrapper] = {
    **_DEBUGGERS,
    "nohup": _wrapper(),
    "setsid": _wrapper("-w --wait -f --fork -c --ctty"),
    "time": _wrapper("-p -v --verbose -a --append --portability"),
    "exec": _wrapper("-c -l"),
    "command": _wrapper("-p"),
    "builtin": _wrapper(),
    "caffeinate": _wrapper("-d -i -m -s -u"),
    "unbuffer": _wrapper("-p"),
    "catchsegv": _wrapper(),
    "xvfb-run": _wrapper("-a --auto-servernum -l"),
    "sudo": _wrapper("-E --preserve-env -n --non-interactive -H --set-home -b --background -S --stdin -i --login -A -k"),
    "timeout": _wrapper("--foreground --preserve-status -v --verbose -p -f", 1),
    "gtimeout": _wrapper("--foreground --preserve-status -v --verbose", 1),
    "stdbuf": _wrapper(),
    "nice": _wrapper("-10 -5 -15 -19 -20"),
    "ionice": _wrapper("-t --ignore"),
    "chrt": _wrapper("-f -r -b -o -i", 1),
    "taskset": _wrapper("-a --all-tasks"),
    "numactl": _wrapper("-l --localalloc -b -s --show -H --hardware --all -a"),
    "prlimit": _wrapper(),
    "cgexec": _wrapper("--sticky"),
    "systemd-run": _wrapper("--user --scope --wait -P --pipe -G --collect -q --quiet --system -t --pty -d --same-dir"),
    "dumb-init": _wrapper("-v -c"),
    "tini": _wrapper("-v -s -g"),
    "nsys": _wrapper("", 0, "profile", "launch"),
    "ncu": _wrapper("-f --force-overwrite"),
    "rocprof": _wrapper("--hip-trace --hsa-trace --stats"),
    "py-spy": _wrapper("-s --subprocesses -n --native -i --idle -t --threads -F --nolineno", 0, "record"),
    "poetry": _wrapper("-q -v -n", 0, "run"),
    "pdm": _wrapper("-q -v -s", 0, "run"),
    "pipenv": _wrapper("-q -v", 0, "run"),
    "hatch": _wrapper("-q -v", 0, "run"),
    "rye": _wrapper("-q -v", 0, "run"),
    "pixi": _wrapper("-q -v --frozen --locked --no-install --clean-env", 0, "run"),
    "uv": _wrapper(_UV, 0, "run", "tool run"),
    "uvx": _wrapper(_UV),
    "pipx": _wrapper("--verbose --system-site-packages", 0, "run"),
    "conda": _wrapper("--no-capture-output --live-stream -v --verbose --dev -s", 0, "run"),
    "mamba": _wrapper("--no-capture-output --live-stream -v --verbose -s", 0, "run"),
    "micromamba": _wrapper("--no-capture-output --live-stream -v --verbose -s", 0, "run"),
    "srun": _wrapper(_SRUN),
    "mpirun": _wrapper("--allow-run-as-root -allow-run-as-root --oversubscribe --tag-output -l -prepend-rank -q"),
    "mpiexec": _wrapper("--allow-run-as-root -allow-run-as-root --oversubscribe --tag-output -l -prepend-rank -q"),
    "ssh": _wrapper(_SSH, 1),
    "docker": _wrapper(_DOCKER, 1, "run", "exec", "container run", "container exec", "compose run", "compose exec"),
    "podman": _wrapper(_DOCKER, 1, "run", "exec"),
    "nvidia-docker": _wrapper(_DOCKER, 1, "run", "exec"),
    "docker-compose": _wrapper(_DOCKER, 1, "run", "exec"),
    "singularity": _wrapper(_CONTAINER, 1, "exec"),
    "apptainer": _wrapper(_CONTAINER, 1, "exec"),
    "enroot": _wrapper("-r --root -w --rw", 1, "start"),
    "kubectl": _wrapper("-i -t -it -ti --stdin --tty", 1, "exec"),
    "hf": _wrapper("-d --detach", 0, "jobs uv run"),
}  # fmt: skip
_CONTAINERS = frozenset({"docker", "podman", "nvidia-docker", "docker-compose"})
_LAUNCHES_COPIES = frozenset({"srun", "mpirun", "mpiexec"})
_MULTI_LETTER_OPTIONS = frozenset({"mpirun", "mpiexec"})


def _peel(words: Sequence[Word], at: int, context: _Context) -> int:
    """The index of the first word that is no wrapper's."""
    while at < len(words):
        name = _base(words[at])
        if words[at].text is None or words[at].likely:
            following = at + 1
            if following < len(words) and _is_sure_launcher(words[following]) and not _is_sure_launcher(words[at]):
                context.unreadable = _why(words[at])
                at = following
                continue
            return at
        if name == "env":
            at = _env(words, at + 1, context)
        elif at and re.match(r"[A-Za-z_]\w*=", words[at].text or ""):  # `time A=b python train.py`
            if (words[at].text or "").partition("=")[0] not in context.environment:
                _assign(words[at], context)
            at += 1
        elif (wrapper := _WRAPPERS.get(name)) is not None and (
            inner := _subcommand(words, at + 1, wrapper)
        ) is not None:
            at = _wrapped(words, at, inner, wrapper, context)
        else:
            return at
    return at


def _subcommand(words: Sequence[Word], at: int, wrapper: _Wrapper) -> int | None:
    """The index after the wrapper's subcommand (`uv run`); None if this use of it runs no other command."""
    for names in sorted(wrapper.subcommands, key=len, reverse=True):
        if tuple(word.text for word in words[at : at + len(names)]) == names:
            return at + len(names)
    return None


def _wrapped(words: Sequence[Word], start: int, at: int, wrapper: _Wrapper, context: _Context) -> int:
    """The index of the command that a wrapper runs; what its options say goes into the context."""
    name = _base(words[start])
    at, options = _wrapper_options(words, at, wrapper, context.last, name in _MULTI_LETTER_OPTIONS)
    if name == "taskset" and at < len(words) and re.fullmatch(r"(0x)?[0-9a-fA-F,-]+", words[at].text or "0"):
        at += 1
    elif name in _LAUNCHES_COPIES:
        _copies(name, options, context)
    elif name == "ssh":
        hosts = [word for word in words[start + 1 : at] if not _is_option(word) and word not in options.values()]
        context.host = _host(hosts[-1]) if hosts else "another machine"
    elif name == "kubectl":
        context.host = "a pod"
    elif name == "hf":
        context.host = "Hugging Face Jobs"
    elif name in _CONTAINERS:
        _container(words[start:at], options, context)
    module = options.get("-m") or options.get("--module")
    if name in ("uv", "uvx") and module is not None:
        return words.index(module) - 1
    return at


def _wrapper_options(
    words: Sequence[Word], at: int, wrapper: _Wrapper, last: int, multi_letter: bool
) -> tuple[int, dict[str, Word]]:
    """The index after a wrapper's options and positionals, and the option values that were given."""
    found: dict[str, Word] = {}
    positionals = wrapper.positionals
    while at < len(words) and words[at].text != "--":
        word = words[at]
        text = _spelling(word)
        if text is None or not (len(text) > 1 and text[0] == "-"):
            if wrapper.positionals:
                at += 1
                positionals -= 1
                if positionals == 0:
                    break
            elif text is None and at < last:
                found.setdefault(_UNREAD_OPTION, word)
                at += 1
            else:
                break
            continue
        name, equals, value = text.partition("=")
        at += 1
        if equals:
            found[name] = replace(word, text=value) if word.text is not None else word
        elif name in wrapper.bare or at >= len(words):
            continue
        elif len(name) > 2 and name[1] != "-" and not multi_letter:
            found[name[:2]] = replace(word, text=name[2:])
        elif not _is_sure_launcher(words[at]) and not _is_option(words[at]):
            found[name] = words[at]
            at += 1
    return at + (at < len(words) and words[at].text == "--"), found


def _env(words: Sequence[Word], at: int, context: _Context) -> int:
    """After `env` with its options and assignments; those that the reader did not take for environment are added."""
    while at < len(words):
        text = words[at].text
        if text in ("-u", "--unset", "-C", "--chdir", "-S", "--split-string"):
            if text in ("-u", "--unset") and at + 1 < len(words):
                context.environment.pop(words[at + 1].text or "", None)
            at += 2 if text not in ("-S", "--split-string") else 1
        elif text in ("-i", "-", "--ignore-environment"):
            context.environment.clear()
            at += 1
        elif text is not None and re.match(r"[A-Za-z_]\w*=", text):
            if text.partition("=")[0] not in context.environment:
                _assign(words[at], context)
            at += 1
        elif text is not None and text.startswith("-"):
            at += 1
        else:
            return at
    return at


def _assign(word: Word, context: _Context) -> None:
    name, _, value = (word.text or "").partition("=")
    at = _after_equals(word, len(value))
    known = Known(value, Written(at))
    place = Place("env", word.span, at, word.span.start, word.binding)
    context.environment[name] = Argument(name, Unknown(_why(word), known) if word.likely else known, place)


def _copies(name: str, options: Mapping[str, Word], context: _Context) -> None:
    """How many copies srun or mpirun start, and on which machine."""
    if name == "srun":
        where = options.get("-w") or options.get("--nodelist")
        unseen = options.get(_UNREAD_OPTION)
        if where is None and unseen is not None and re.search("NODE|HOST", _variable(unseen) or "", re.IGNORECASE):
            where = unseen
        context.host = _host(where) if where is not None else context.host
        given = options.get("-n") or options.get("--ntasks")
    else:
        given = options.get("-n") or options.get("-np") or options.get("--np")
    number = given.text if given is not None else _directive(context, "ntasks")
    if number is None and _directive(context, "nodes") == "1" and _directive(context, "ntasks-per-node") == "1":
        number = "1"
    if number == "1":
        context.copies = None
    else:
        context.copies = Unknown(f"{name} decides how many copies of it are started")


def _directive(context: _Context, name: str) -> str | None:
    """What an `#SBATCH` line of the script says."""
    for spelling in (name, name.replace("-", "_")):
        argument = context.environment.get(f"#SBATCH {spelling}")
        if argument is not None and isinstance(argument.value, Known):
            return str(argument.value.value)
    return None


def _host(word: Word) -> str:
    if word.text is not None:
        return word.text
    variable = _variable(word)
    return f"${variable}" if variable else "another machine"


def _container(words: Sequence[Word], options: Mapping[str, Word], context: _Context) -> None:
    """A container sees the variables that `-e` hands it, and the GPUs that `--gpus` does."""
    outer, context.environment = context.environment, {}
    for before, word in itertools.pairwise(words):
        text = word.text
        if text is not None and text.startswith(("--env=", "-e=")):
            word = replace(word, text=text.partition("=")[2])
        elif before.text not in ("-e", "--env"):
            continue
        name, equals, value = (word.text or "").partition("=")
        known = outer[name].value if name in outer else None
        if known is not None and (not equals or (isinstance(known, Known) and known.value == value)):
            context.environment[name] = outer[name]  # handed on, or read by the shell's reader already
        elif equals:
            _assign(word, context)
    gpus = options.get("--gpus")
    found = re.fullmatch(r"\"?'?device=([\w,.-]+)'?\"?", gpus.text or "") if gpus is not None else None
    if gpus is not None and found:
        # Inside, the devices handed over are numbered from 0.
        devices = tuple(str(index) for index in range(len(found[1].split(","))))
        context.devices = Known(devices, Written(gpus.span))


# Who is launched -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A launch by word indices: the launcher's words and options, the words that call the program, its options."""

    launcher: str | None
    at: int
    options: tuple[int, int]
    callee: tuple[int, int]
    program: str | None = None
    module: str | None = None
    subcommand: str | None = None
    server: str | None = None
    unreadable: str | None = None

    @property
    def flags(self) -> int:
        return self.callee[1]


_NO_TRAINING = _names(
    "pip venv ensurepip pytest unittest compileall json.tool http.server build twine site sysconfig jupyter "
    "ipykernel tensorboard virtualenv pre_commit ruff mypy black isort timeit zipfile nbconvert notebook "
    "torch.utils.collect_env accelerate.commands.config trl.scripts.env trl.scripts.chat uv"
)
_TRL_OTHER = frozenset({"chat", "env", "skills", "help"})
_TORCHRUN_BARE = _names("standalone no_python run_path use_env virtual_local_rank h help m module enable_mxnet")
_ACCELERATE_BARE = _names(
    "cpu multi_gpu tpu ipex quiet q use_deepspeed use_fsdp use_megatron_lm use_xpu dynamo_use_fullgraph "
    "dynamo_use_dynamic same_network no_python downcast_bf16 enable_cpu_affinity debug tpu_cluster "
    "tpu_use_cluster no_tpu_cluster tpu_use_sudo use_mps_device fp16 fp8_use_autocast_during_eval "
    "fp8_override_linear_precision m module use_parallelism_config dynamo_use_regional_compilation "
    "use_nd_parallel"
)
_DEEPSPEED_BARE = _names(
    "force_multi no_ssh no_ssh_check module no_python no_local_rank save_pid elastic_training "
    "bind_cores_to_rank launcher_force m"
)
_BARE: Mapping[str, frozenset[str]] = {
    "accelerate": _ACCELERATE_BARE,
    "torchrun": _TORCHRUN_BARE,
    "deepspeed": _DEEPSPEED_BARE,
}
_LAUNCHER_OF_TRL = _names(
    "num_processes num_machines machine_rank main_process_ip main_process_port config_file accelerate_config "
    "gpu_ids multi_gpu mixed_precision use_deepspeed use_fsdp zero_stage zero3_init_flag zero3_save_16bit_model "
    "offload_optimizer_device offload_param_device deepspeed_config_file deepspeed_hostfile "
    "deepspeed_multinode_launcher dynamo_backend dynamo_mode num_cpu_threads_per_process same_network "
    "rdzv_backend rdzv_conf max_restarts monitor_interval enable_cpu_affinity"
)
"""Options of `accelerate launch` that no config of TRL has: `trl grpo` hands them on."""

_PYTHON_VALUED = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def _identify(words: Sequence[Word], at: int, context: _Context) -> _Found | None:
    """What the words from `at` start, once wrappers are gone."""
    if at >= len(words):
        return None
    base = _base(words[at])
    after = words[at + 1].text if at + 1 < len(words) else None
    if _PYTHON.fullmatch(base) or _is_python_variable(words[at]):
        return _python(words, at, context)
    if base in ("accelerate", "accelerate-launch"):
        if base == "accelerate" and after != "launch":
            return None
        return _launcher("accelerate", words, at, at + (2 if base == "accelerate" else 1))
    if base in ("torchrun", "deepspeed"):
        return _launcher(base, words, at, at + 1)
    if base in ("-m", "--module"):  # of `uv run -m pkg.train`
        return _module("python", words, at, at + 1, (at, at), context)
    if base == "trl":
        return _trl(words, at, at + 1)
    if base == "vllm":
        return _server("vllm serve", words, at, at + 2) if after == "serve" else None
    if base.endswith(".py") and words[at].text is not None:
        return _Found("python", at, (at, at), (at, at + 1), program=words[at].text)
    if words[at].text is None:
        return _by_unknown_launcher(words, at)
    image = words[at - 1].text if at else None
    if base.startswith("--") and image is not None and "vllm-openai" in image:
        return _Found(None, at, (at, at), (at, at), server="vllm openai")
    return None


def _is_python_variable(word: Word) -> bool:
    return word.text is None and re.fullmatch(r"_?PY(THON)?\w*", _variable(word) or "", re.IGNORECASE) is not None


def _by_unknown_launcher(words: Sequence[Word], at: int) -> _Found | None:
    """`$LAUNCHER --its-options train.py …`: the first script after a word that cannot be read."""
    value = False
    for index in range(at + 1, len(words)):
        text = _spelling(words[index]) or ""
        if text.endswith(".py") and not text.startswith("-"):
            why = _why(words[at])
            return _Found(None, at, (at + 1, index), (index, index + 1), program=text, unreadable=why)
        if not _is_option(words[index]) and not value:
            return None
        value = _is_option(words[index]) and "=" not in text
    return None


def _python(words: Sequence[Word], at: int, context: _Context) -> _Found | None:
    index = at + 1
    while index < len(words):
        text = words[index].text
        if text == "-m" or (text is not None and re.fullmatch(r"-[uOBsEIqvbdix]+m", text)):
            return _module("python", words, at, index + 1, (at + 1, index), context)
        if text in ("-c", "-", "--version", "-V", "--help", "-h"):
            return None
        if text is None or not text.startswith("-"):
            return _script("python", words, at, index, (at + 1, index))
        index += 2 if text in _PYTHON_VALUED else 1
    return None


def _script(launcher: str, words: Sequence[Word], at: int, index: int, options: tuple[int, int]) -> _Found:
    word = words[index]
    callee = (index, index + 1)
    if word.text is None:
        return _Found(launcher, at, options, callee, unreadable=_why(word))
    if launcher != "python" and _base(word) == "trl":
        found = _trl(words, index, index + 1)
        if found is not None:
            return replace(found, launcher=launcher, at=at, options=options)
    unreadable = f"{_why(word)} (by default {word.text})" if word.likely else None
    return _Found(launcher, at, options, callee, program=word.text, unreadable=unreadable)


def _module(
    launcher: str, words: Sequence[Word], at: int, index: int, options: tuple[int, int], context: _Context
) -> _Found | None:
    """`-m NAME`, where `words[index]` is the name: some modules are launchers or servers themselves."""
    if index >= len(words):
        return None
    name = words[index].text
    # The words that call the module are "python -m name" for python, "-m name" behind any other launcher.
    callee = (at if launcher == "python" else index - 1, index + 1)
    if name is None:
        return _Found(launcher, at, options, callee, unreadable=_why(words[index]))
    if name in _NO_TRAINING:
        return None
    if name in ("torch.distributed.run", "torch.distributed.launch"):
        return _launcher("torchrun", words, at, index + 1)
    if name in ("accelerate.commands.launch", "accelerate.commands.accelerate_cli", "accelerate"):
        launch = index + 1 < len(words) and words[index + 1].text == "launch"
        if name != "accelerate.commands.launch" and not launch:
            return None
        return _launcher("accelerate", words, at, index + (2 if launch else 1))
    if name.startswith("deepspeed.launcher") or name == "deepspeed":
        return _launcher("deepspeed", words, at, index + 1)
    if name in ("trl", "trl.cli", "trl.cli.main", "trl.commands.cli"):
        return _trl(words, at, index + 1)
    if name in ("trl.scripts.vllm_serve", "trl.scripts.vllm_serve.py"):
        return _server("trl vllm-serve", words, at, index + 1)
    if name.startswith("trl.scripts."):
        return _Found(launcher, at, options, callee, module=name, subcommand=name.rpartition(".")[2])
    if name == "vllm.entrypoints.openai.api_server":
        return _server("vllm openai", words, at, index + 1)
    if name in ("vllm", "vllm.entrypoints.cli.main"):
        serve = index + 1 < len(words) and words[index + 1].text == "serve"
        return _server("vllm serve", words, at, index + 2) if serve else None
    wrapper = _DEBUGGERS.get(name)
    inner = _subcommand(words, index + 1, wrapper) if wrapper is not None else None
    if launcher == "python" and wrapper is not None and inner is not None:
        return _debugged(words, inner, wrapper, context)
    return _Found(launcher, at, options, callee, module=name)


def _debugged(words: Sequence[Word], at: int, wrapper: _Wrapper, context: _Context) -> _Found | None:
    """`python -m debugpy --listen 5678 train.py`: what follows is what python would be given."""
    at, options = _wrapper_options(words, at, wrapper, context.last, multi_letter=False)
    module = options.get("-m")
    if module is not None:
        index = words.index(module)
        return _module("python", words, index - 1, index, (index - 1, index - 1), context)
    return _script("python", words, at, at, (at, at)) if at < len(words) else None


def _launcher(launcher: str, words: Sequence[Word], at: int, index: int) -> _Found | None:
    """A launcher's own options, then the script or `-m` module; unknown options are taken to have a value."""
    start = index
    bare = _BARE[launcher]
    module = False
    unreadable: str | None = None
    last = _last_script(words)
    while index < len(words):
        word = words[index]
        text = _spelling(word)
        if text is None:
            if index < last:
                unreadable = _why(word)
                index += 1
                continue
            break
        if not _is_option(word):
            break
        name, equals, _ = text.lstrip("-").replace("-", "_").partition("=")
        module = module or name in ("m", "module")
        index += 1
        if not equals and name not in bare and index < len(words) and not _is_option(words[index]):
            index += 1 if not (words[index].text or "").endswith(".py") else 0
        if name in ("m", "module") and (
            launcher != "deepspeed" or (index < len(words) and not _is_option(words[index]))
        ):
            # Options may stand between deepspeed's --module and the name; for the others the name follows.
            found = _module(launcher, words, at, index, (start, index - 1), _Context({}))
            return replace(found, unreadable=found.unreadable or unreadable) if found is not None else None
    if index >= len(words):
        return None
    found = (
        _module(launcher, words, at, index, (start, index), _Context({}))
        if module
        else _script(launcher, words, at, index, (start, index))
    )
    return replace(found, unreadable=found.unreadable or unreadable) if found is not None else None


def _last_script(words: Sequence[Word]) -> int:
    """Where the last script or `-m` stands, so that an unknown word before it is the launcher's own; -1 without one."""
    for index in range(len(words) - 1, -1, -1):
        text = words[index].text or ""
        if text.endswith(".py") or text in ("-m", "--module"):
            return index
    return -1


def _trl(words: Sequence[Word], at: int, index: int) -> _Found | None:
    if index >= len(words):
        return None
    name = words[index].text
    if name is None:
        return _Found("trl", at, (index + 1, len(words)), (at, index + 1), unreadable=_why(words[index]))
    if name in _TRL_OTHER or name.startswith("-"):
        return None
    if name.replace("_", "-") == "vllm-serve":
        return _server("trl vllm-serve", words, at, index + 1)
    return _Found("trl", at, (index + 1, len(words)), (at, index + 1), subcommand=name)


def _server(name: str, words: Sequence[Word], at: int, index: int) -> _Found:
    return _Found(None, at, (at, at), (at, min(index, len(words))), server=name)


# Options -------------------------------------------------------------------------------------------------------------

_VLLM_ALIASES = {"tp": "tensor_parallel_size", "dp": "data_parallel_size", "pp": "pipeline_parallel_size"}
_VLLM_BARE = re.compile(
    r"enforce_eager|trust_remote_code|enable_\w+|disable_\w+|no_\w+|headless|skip_tokenizer_init|async_scheduling|"
    r"return_tokens_as_token_ids|calculate_kv_scales|h|help|data_parallel_hybrid_lb|data_parallel_external_lb|q"
)
_REALLY_NO = frozenset({"no_cuda"})
"""Options of that name, so that `--no_cuda` alone turns them on."""


@dataclass
class _Options:
    """What a word list gives: arguments by name, and why there may be more."""

    container: int
    arguments: dict[str, Argument] = field(default_factory=dict)
    open: str | None = None

    def give(self, name: str, value: Value, whole: Span, at: Span, binding: Span | None) -> None:
        self.arguments.pop(name, None)  # the last one given wins, and stands last
        self.arguments[name] = Argument(name, value, Place("flag", whole, at, self.container, binding))


def _options(
    words: Sequence[Word],
    container: int,
    *,
    takes: Callable[[str], int | None],
    aliases: Mapping[str, str],
    negated: bool,
    positional: Sequence[str] | None,
) -> _Options:
    """Options and their values as argparse takes them.

    `takes` says how many values an option takes at most (None: any number); `negated` whether a bare `--no_x` turns x
    off; `positional` how words that belong to no option are called, None if by their number.
    """
    found = _Options(container)
    index, count, ended = 0, 0, False
    while index < len(words):
        word = words[index]
        index += 1
        if word.text == "--" and not ended:
            ended = True
        elif _spelling(word) is None:
            found.open = found.open or _why(word)
        elif ended or not _is_option(word):
            name = str(count) if positional is None else positional[count] if count < len(positional) else str(count)
            count += 1
            found.arguments[name] = Argument(
                name, _value([word]), Place("positional", word.span, word.span, container, word.binding)
            )
        else:
            index = _option(words, index, found, takes, aliases, negated)
    return found


def _option(
    words: Sequence[Word],
    index: int,
    found: _Options,
    takes: Callable[[str], int | None],
    aliases: Mapping[str, str],
    negated: bool,
) -> int:
    """Takes the option before `index` with its values; the index after those."""
    word = words[index - 1]
    spelled, equals, text = (_spelling(word) or "").lstrip("-").partition("=")
    name = spelled.replace("-", "_")
    name = aliases.get(name, name)
    if equals:
        span = _after_equals(word, len(text))
        value = replace(word, text=text, span=span) if word.text is not None else word
        found.give(name, _value([value]), word.span, span, word.binding)
        return index
    most = takes(name)
    values: list[Word] = []
    while index < len(words) and (most is None or len(values) < most) and not _is_option(words[index]):
        following = words[index]
        if following.text == "--":
            break
        if _spelling(following) is None:
            if _may_be_many(following):
                found.open = found.open or _why(following)
            # After a value, a word that nobody can read is more likely further options than a second value.
            if values or (most == 0):
                break
        values.append(following)
        index += 1
        if following.text is None:
            break
    if not values:
        off = negated and name.startswith("no_") and name not in _REALLY_NO
        name = name.removeprefix("no_") if off else name
        found.give(name, Known(not off, Written(word.span)), word.span, word.span, None)
        return index
    whole = _joined(word.span, values[-1].span)
    value_span = _joined(values[0].span, values[-1].span)
    binding = values[0].binding if len(values) == 1 else None
    found.give(name, _value(values), whole, value_span, binding)
    return index


def _after_equals(word: Word, length: int) -> Span:
    """The value's span in `--name=value`; the whole word where quotes or expansions stand between."""
    text = word.text or ""
    span = word.span
    if span.end - span.start != len(text.encode(errors="replace")) or span.line != span.end_line:
        return span
    head = len(text) - length
    return span._replace(start=span.start + len(text[:head].encode(errors="replace")), column=span.column + head)


def _joined(first: Span, last: Span) -> Span:
    """From the first to the last; the first alone where the two stand apart (one came out of a variable)."""
    if first.path != last.path or first.cell != last.cell or last.end < first.start:
        return first
    return first._replace(end=last.end, end_line=last.end_line, end_column=last.end_column)


def _value(words: Sequence[Word]) -> Value:
    """The value of one option: one word, or a tuple of several."""
    unread = next((word for word in words if word.text is None), None)
    if unread is not None:
        return Unknown(_why(unread))
    span = _joined(words[0].span, words[-1].span)
    read = [_literal(word.text or "", span) for word in words]
    known = Known(read[0] if len(read) == 1 else tuple(read), Written(span))
    replaceable = next((word for word in words if word.likely), None)
    return Unknown(_why(replaceable), known) if replaceable is not None else known


def _literal(text: str, span: Span) -> object:
    """What argparse's types make of a word: a bool, a number, a JSON table, else the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text) and text.isascii() and len(text) < 100:
        return int(text)
    if _NUMBER.fullmatch(text) and text.isascii() and not text.lstrip("+-").isdigit():
        return float(text)
    if text.startswith("{"):
        try:
            return _table(json.loads(text), span)
        except (ValueError, RecursionError):
            return text
    return text


def _table(read: object, span: Span) -> object:
    """JSON as the words of the model; every entry stands where the whole text does."""
    if isinstance(read, dict):
        origin = Written(span)
        place = Place("flag", span, span, span.start)
        return Table({k: Argument(k, Known(_table(v, span), origin), place) for k, v in read.items()}, span)
    if isinstance(read, list):
        return tuple(_table(item, span) for item in read)
    return read


# Putting it together -------------------------------------------------------------------------------------------------


def _launch(command: Command, found: _Found, context: _Context) -> Launch:
    words = command.words
    starter = _options(
        words[found.options[0] : found.options[1]] if found.launcher not in ("python", None) else (),
        command.span.start,
        takes=lambda name: 0 if name in _BARE.get(found.launcher or "", _ACCELERATE_BARE) else 1,
        aliases={"n": "num_processes"} if found.launcher == "accelerate" else {},
        negated=False,
        positional=None,
    )
    flags = _program_options(words[found.flags :], command, found.server)
    if found.launcher == "trl":
        starter.arguments = {n: a for n, a in starter.arguments.items() if n in _LAUNCHER_OF_TRL}
        flags.arguments = {n: a for n, a in flags.arguments.items() if n not in _LAUNCHER_OF_TRL}
    name = found.server or found.launcher or "unknown"
    launched = words[found.at : max(found.options[1], found.at + 1)] if found.launcher != "trl" else words[found.at :]
    called = words[found.callee[0] : found.callee[1]] or words[found.at : found.at + 1]
    starting = words[found.at : max(found.at + 1, found.options[0])] if found.options[0] >= found.at else called
    unreadable = found.unreadable or context.unreadable or flags.open or starter.open
    return Launch(
        replace(command, environment=context.environment),
        found.launcher,
        found.program,
        found.module,
        found.subcommand,
        found.server,
        _site("launcher", name, launched, starting, starter, command),
        _site("server" if found.server else "flags", name, words[found.callee[0] :], called, flags, command),
        _config(flags.arguments),
        _processes(found, starter, context),
        _nodes(found, starter),
        _gpus(found, starter, context),
        context.host,
        unreadable,
        header=found.launcher is None or found.callee[0] == found.at,
    )


def _program_options(words: Sequence[Word], command: Command, server: str | None) -> _Options:
    container = command.span.start
    if server in ("vllm serve", "vllm openai"):
        return _options(
            words,
            container,
            takes=lambda name: 0 if _VLLM_BARE.fullmatch(name) else 1,
            aliases=_VLLM_ALIASES,
            negated=True,
            positional=("model",),
        )
    return _options(words, container, takes=lambda _: None, aliases={}, negated=True, positional=None)


def _site(
    kind: SiteKind, name: str, words: Sequence[Word], callee: Sequence[Word], options: _Options, command: Command
) -> Site:
    called = _within(callee, command)
    span = _joined(called, _within(words, command))
    return Site(kind, name, "", span, called, options.arguments, options.open, function=command.function)


def _within(words: Sequence[Word], command: Command) -> Span:
    """From the first to the last of the words that stand in the command's own text."""
    inside = [
        word.span for word in words if command.span.start <= word.span.start and word.span.end <= command.span.end
    ]
    return _joined(inside[0], inside[-1]) if inside else command.span


def _config(arguments: Mapping[str, Argument]) -> Argument | None:
    if "config" in arguments:
        return arguments["config"]
    first = arguments.get("0")
    text = first.value.value if first is not None and isinstance(first.value, Known) else None
    return first if isinstance(text, str) and text.endswith((".yaml", ".yml")) else None


# Processes, nodes, GPUs ----------------------------------------------------------------------------------------------

_BY_ACCELERATE = "accelerate's config file or default decides"


def _processes(found: _Found, options: _Options, context: _Context) -> Value:
    given = options.arguments
    match found.launcher:
        case "accelerate" | "trl":
            return _count(given.get("num_processes"), options, Unknown(_BY_ACCELERATE))
        case "torchrun":
            one = Known(1, Derived("torchrun starts one process on a node unless it is told otherwise"))
            return _product(_count(given.get("nproc_per_node"), options, one), _nodes(found, options))
        case "deepspeed":
            return _deepspeed_processes(found, options, context)
        case "python":
            return context.copies or Known(1, Derived("python starts one process"))
        case _ if found.server:
            return Known(1, Derived("a server is one process that starts its own workers"))
        case _:
            return Unknown(found.unreadable or _UNSEEN)


def _nodes(found: _Found, options: _Options) -> Value:
    given = options.arguments
    match found.launcher:
        case "accelerate" | "trl":
            return _count(given.get("num_machines"), options, Unknown(_BY_ACCELERATE))
        case "torchrun":
            one = Known(1, Derived("torchrun uses one node unless it is told otherwise"))
            return _count(given.get("nnodes"), options, one)
        case "deepspeed":
            included = _included(given.get("include"))
            if included is not None:
                return Known(len(included.slots), included.origin)
            if "hostfile" in given or "H" in given:
                return _count(given.get("num_nodes"), options, Unknown("deepspeed's hostfile decides"))
            one = Known(1, Derived("deepspeed uses this machine unless it is told otherwise"))
            return _count(given.get("num_nodes"), options, one)
        case None if not found.server:
            return Unknown(found.unreadable or _UNSEEN)
        case _:
            return Known(1, Derived("it runs on one machine"))


def _deepspeed_processes(found: _Found, options: _Options, context: _Context) -> Value:
    given = options.arguments
    included = _included(given.get("include"))
    if included is not None and all(included.slots):
        return Known(sum(map(len, included.slots)), included.origin)
    if "include" in given or "exclude" in given:
        return Unknown("deepspeed's --include or --exclude decides")
    if "num_gpus" in given:
        return _product(_count(given["num_gpus"], options, Unknown(_UNSEEN)), _nodes(found, options))
    visible = _visible(context)
    seen = visible.value if isinstance(visible, Known) else None
    elsewhere = options.open or given.keys() & {"num_nodes", "hostfile", "H"}
    if isinstance(visible, Known) and isinstance(seen, tuple) and seen and not elsewhere:
        return Known(len(seen), visible.origin)
    return Unknown(options.open or "deepspeed starts one process for every GPU that it finds")


@dataclass(frozen=True)
class _Included:
    """The slots of every node that `deepspeed --include` names; a node without slots gives all that it has."""

    slots: tuple[tuple[str, ...], ...]
    origin: Origin


def _included(argument: Argument | None) -> _Included | None:
    """`--include host:0,1@other:2` read; None if it cannot be."""
    if argument is None or not isinstance(argument.value, Known) or not isinstance(argument.value.value, str):
        return None
    nodes = [node.partition(":")[2] for node in argument.value.value.split("@")]
    slots = tuple(tuple(slot.strip() for slot in node.split(",") if slot.strip()) for node in nodes)
    readable = all(slot.isdigit() for node in slots for slot in node)
    return _Included(slots, argument.value.origin) if readable else None


def _gpus(found: _Found, options: _Options, context: _Context) -> Value:
    """The devices that the launched processes see, the launcher's own word first: it overrides the environment."""
    given = options.arguments
    if found.launcher == "deepspeed":
        included = _included(given.get("include"))
        if included is not None and len(included.slots) == 1 and included.slots[0]:
            return Known(included.slots[0], included.origin)
        if "include" in given or "exclude" in given:
            return Unknown("deepspeed's --include or --exclude decides")
        number = given["num_gpus"].value if "num_gpus" in given else None
        if isinstance(number, Known) and isinstance(number.value, int) and 0 < number.value <= 1024:
            # DeepSpeed ignores CUDA_VISIBLE_DEVICES once --num_gpus is given, and takes the first ones.
            return Known(tuple(map(str, range(number.value))), number.origin)
        if number is not None:
            return Unknown("deepspeed's --num_gpus decides")
    ids = given.get("gpu_ids")
    if ids is not None and not (isinstance(ids.value, Known) and ids.value.value == "all"):
        return _devices(ids.value)
    return _visible(context)


def _visible(context: _Context) -> Value:
    argument = context.environment.get("CUDA_VISIBLE_DEVICES")
    if argument is not None:
        return _devices(argument.value)
    return context.devices or Unknown("nothing says which GPUs it sees")


def _devices(value: Value) -> Value:
    """A list of devices as CUDA reads it: everything from the first `-1` on is invisible."""
    if isinstance(value, Unknown):
        likely = _devices(value.likely) if value.likely is not None else None
        return replace(value, likely=likely if isinstance(likely, Known) else None)
    if not isinstance(value, Known):
        return Unknown("it is one of several lists of GPUs")
    items = value.value if isinstance(value.value, tuple) else str(value.value).split(",")
    devices: list[str] = []
    for item in items:
        name = str(item).strip()
        if not name or name.startswith("-") or name == "NoDevFiles":
            break
        devices.append(name)
    return Known(tuple(devices), value.origin)


def _count(argument: Argument | None, options: _Options, otherwise: Value) -> Value:
    """An option that counts; `otherwise` where it is not given and nothing unread may hold it."""
    if argument is None:
        return Unknown(options.open) if options.open else otherwise
    value = argument.value
    if isinstance(value, Known) and not (isinstance(value.value, int) and not isinstance(value.value, bool)):
        return Unknown(f"{argument.name}={value.value} is decided when it starts")
    return value


def _product(first: Value, second: Value) -> Value:
    """Both multiplied; what is unknown of either stays so, with the product of the likely values."""
    likely = _number(first), _number(second)
    total = likely[0] * likely[1] if likely[0] is not None and likely[1] is not None else None
    for value in (first, second):
        if isinstance(value, Unknown):
            return replace(value, likely=Known(total, Derived("product")) if total is not None else None)
    written = isinstance(second, Known) and isinstance(second.origin, Written)
    origin = (
        second.origin if written and isinstance(second, Known) else first.origin if isinstance(first, Known) else None
    )
    return Known(total, origin) if total is not None and origin is not None else Unknown(_UNSEEN)


def _number(value: Value) -> int | None:
    """The number that is known, or at least likely."""
    known = value.likely if isinstance(value, Unknown) else value
    return known.value if isinstance(known, Known) and isinstance(known.value, int) else None
