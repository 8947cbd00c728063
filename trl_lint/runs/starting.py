"""What a rule may ask of how a run is started: its command, its processes and GPUs, and the vLLM server beside it.

Importing this module registers the names with the view; `docs/writing-rules.md` lists them.
"""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import urlsplit

from trl_lint import knowledge
from trl_lint.model import Argument, Default, Derived, Known, Site, Stated, Table, Unknown, Value, Written
from trl_lint.runs.launches import Launch
from trl_lint.runs.properties import property_
from trl_lint.runs.run import FAMILIES, View

NOT_STARTED = "nothing says how the script is launched"
VISIBLE = "CUDA_VISIBLE_DEVICES"


# launch


def launch_argument(view: View, *names: str) -> Argument | None:
    """An option of the launcher, from its command line or from accelerate's config file."""
    launch = view.run.launch
    for site in (launch.starter if launch is not None else None, view.run.accelerate):
        for name in names:
            if site is not None and name in site.arguments:
                return site.arguments[name]
    return None


@property_("launch.num_processes")
def _num_processes(view: View) -> Value:
    facts, launch = view.run.facts, view.run.launch
    if facts.processes is not None:
        return Known(facts.processes, Stated(facts.processes_origin or "stated"))
    if launch is not None and isinstance(launch.processes, Known):
        return launch.processes
    argument = launch_argument(view, "num_processes")
    if argument is not None and isinstance(argument.value, Known) and isinstance(argument.value.value, int):
        return argument.value
    if launch is None and facts.hardware is not None and facts.hardware.count is not None:
        alone = facts.hardware.count <= 1 and (facts.nodes or 1) == 1
        if alone:
            return Known(1, Derived("there is one GPU"))
    if launch is not None and isinstance(launch.processes, Unknown):
        return launch.processes
    return Unknown("nothing says how many processes are launched")


@property_("launch.distributed")
def _distributed(view: View) -> Value:
    processes = view.value("launch.num_processes")
    if isinstance(processes, Known) and isinstance(processes.value, int):
        return Known(processes.value > 1, processes.origin)
    return Unknown(NOT_STARTED)


@property_("launch.num_machines")
def _num_machines(view: View) -> Value:
    if view.run.facts.nodes is not None:
        return Known(view.run.facts.nodes, Stated("stated"))
    if view.run.launch is not None and isinstance(view.run.launch.nodes, Known):
        return view.run.launch.nodes
    argument = launch_argument(view, "num_machines")
    if argument is not None and isinstance(argument.value, Known):
        return argument.value
    return Unknown("nothing says on how many machines it runs")


@property_("launch.processes_here")
def _processes_here(view: View) -> Value:
    """The processes on one machine."""
    processes, machines = view.value("launch.num_processes"), view.value("launch.num_machines")
    if not isinstance(processes, Known) or not isinstance(processes.value, int):
        return processes if isinstance(processes, Unknown) else Unknown(NOT_STARTED)
    if isinstance(machines, Known) and isinstance(machines.value, int) and machines.value > 0:
        return Known(processes.value // machines.value, processes.origin)
    launch = view.run.launch
    told = (
        launch is None or launch.starter.open is not None or launch_argument(view, "num_machines", "nnodes") is not None
    )
    if not told and view.run.accelerate is None:
        return processes  # one machine is every launcher's default
    return Unknown("nothing says on how many machines it runs")


@property_("launch.program")
def _program(view: View) -> Value:
    launch = view.run.launch
    if launch is None or launch.launcher is None:
        return Unknown(NOT_STARTED)
    return Known(launch.launcher, _at(launch.starter))


@property_("launch.read")
def _read(view: View) -> Value:
    """Whether the command that starts the run was read in full."""
    launch = view.run.launch
    if launch is None:
        return Unknown(NOT_STARTED)
    return Known(launch.unreadable is None and launch.flags.open is None, _at(launch.starter))


@property_("launch.zero_stage")
def _zero_stage(view: View) -> Value:
    facts = view.run.facts
    if facts.zero_stage is not None:
        return Known(facts.zero_stage, Stated("stated"))
    if facts.accelerate is not None and (found := re.search(r"zero_?(?:stage)?\W*([0-3])\b", facts.accelerate.lower())):
        return Known(int(found[1]), Stated("stated"))
    argument = launch_argument(view, "zero_stage")
    if argument is not None:
        return argument.value
    accelerate = view.run.accelerate
    inner = _entry(accelerate, "deepspeed_config", "zero_stage")
    if inner is not None:
        return inner.value
    optimization = _entry(view.run.deepspeed, "zero_optimization", "stage")
    if optimization is not None:
        return optimization.value
    if accelerate is not None and _text(accelerate, "distributed_type") not in (None, "DEEPSPEED"):
        return Known(0, _at(accelerate))
    return Unknown("nothing says which ZeRO stage is used")


@property_("launch.distributed_type")
def _distributed_type(view: View) -> Value:
    """What accelerate's config calls it: "NO", "MULTI_GPU", "FSDP", "DEEPSPEED"."""
    argument = launch_argument(view, "distributed_type")
    return argument.value if argument is not None else Unknown("nothing says how accelerate is configured")


@property_("launch.fsdp_version")
def _fsdp_version(view: View) -> Value:
    """1 or 2 under FSDP, None without it."""
    text, accelerate = view.run.facts.accelerate, view.run.accelerate
    if accelerate is not None:
        kind = _text(accelerate, "distributed_type")
        if kind is None:
            return Unknown("accelerate's config does not say how it distributes")
        if kind != "FSDP":
            return Known(None, _at(accelerate))
        version = _entry(accelerate, "fsdp_config", "fsdp_version")
        return version.value if version is not None else Known(1, _at(accelerate))
    if text is None:
        return Unknown("nothing says how accelerate is configured")
    lower = text.lower().replace(" ", "")
    if "fsdp2" in lower or "fsdp_version:2" in lower:
        return Known(2, Stated("stated"))
    return Known(1 if "fsdp" in lower else None, Stated("stated"))


@property_("launch.mixed_precision")
def _mixed_precision(view: View) -> Value:
    argument = launch_argument(view, "mixed_precision")
    if argument is not None:
        return argument.value
    return Unknown("nothing says which precision the launcher asks for")


@property_("launch.gpus")
def _gpus(view: View) -> Value:
    """The GPUs that the training can see, as device strings."""
    launch = view.run.launch
    given = view.run.module.environment.get(VISIBLE)
    if given is not None and not given.conditional and not (launch is not None and isinstance(launch.gpus, Known)):
        return _devices(given.value)
    return _seen(view, launch)


@property_("launch.visible_gpus")
def _visible_gpus(view: View) -> Value:
    return _count(view.value("launch.gpus"))


def _seen(view: View, launch: Launch | None) -> Value:
    """The GPUs that a command sees: those it names, else all of this machine."""
    if launch is None or not (isinstance(launch.gpus, Known) or launch.host or VISIBLE in launch.command.environment):
        return _all_gpus(view)
    return launch.gpus


def _count(gpus: Value) -> Value:
    return Known(len(gpus.value), gpus.origin) if isinstance(gpus, Known) and isinstance(gpus.value, tuple) else gpus


def _all_gpus(view: View) -> Value:
    """All GPUs of the machine where their number is told and no command narrows it."""
    hardware = view.run.facts.hardware
    if hardware is None or hardware.count is None:
        return Unknown("nothing says which GPUs it sees")
    return Known(tuple(str(i) for i in range(hardware.count)), Stated(hardware.origin))


def _devices(value: Value) -> Value:
    if isinstance(value, Known) and isinstance(value.value, (str, int)):
        return Known(tuple(d.strip() for d in str(value.value).split(",") if d.strip()), value.origin)
    return value


# server


def server_of(view: View) -> Launch | None:
    """The one server that a run may talk to."""
    servers = view.run.servers
    return servers[0] if len(servers) == 1 else None


def _why_no_server(view: View) -> str:
    if len(view.run.servers) > 1:
        return "several servers are started, and nothing says which one it talks to"
    return "whether a server is started elsewhere cannot be known from these files"


@property_("server.started")
def _server_started(view: View) -> Value:
    if view.run.servers:
        return Known(True, _at(view.run.servers[0].flags))
    return Unknown(_why_no_server(view))


@property_("server.command")
def _server_command(view: View) -> Value:
    server = server_of(view)
    return Known(server.server, _at(server.flags)) if server is not None else Unknown(_why_no_server(view))


@property_("server.needed_gpus")
def _needed(view: View) -> Value:
    tensor, data = view.value("server.tensor_parallel_size"), view.value("server.data_parallel_size")
    if isinstance(data, Known) and data.value is None:
        data = Known(1, data.origin)  # TRL 0.16 has no such option
    if isinstance(tensor, Known) and isinstance(data, Known):
        if isinstance(tensor.value, int) and isinstance(data.value, int):
            return Known(tensor.value * data.value, tensor.origin)
        return Unknown("how many GPUs it takes is not shown")
    return tensor if isinstance(tensor, Unknown) else data


@property_("server.gpus")
def _server_gpus(view: View) -> Value:
    """The GPUs that the server can see, as device strings."""
    server = server_of(view)
    if server is None:
        return Unknown(_why_no_server(view))
    return _seen(view, server)


@property_("server.visible_gpus")
def _server_visible(view: View) -> Value:
    return _count(view.value("server.gpus"))


@property_("server.same_host")
def _same_host(view: View) -> Value:
    server, launch = server_of(view), view.run.launch
    if server is None or launch is None:
        return Unknown(_why_no_server(view) if server is None else NOT_STARTED)
    if server.host is None and launch.host is None:
        return Known(True, _at(server.flags))
    return Unknown("they may run on different machines")


@property_("server.shares_gpu")
def _shares_gpu(view: View) -> Value:
    """Whether a GPU that the server takes is one that the training takes, too."""
    server, launch = server_of(view), view.run.launch
    same = view.value("server.same_host")
    if server is None or launch is None or not isinstance(same, Known):
        return same if isinstance(same, Unknown) else Unknown(NOT_STARTED)
    theirs, ours = view.value("server.gpus"), view.value("launch.gpus")
    if not isinstance(theirs, Known) or not isinstance(ours, Known):
        return theirs if isinstance(theirs, Unknown) else ours
    assert isinstance(theirs.value, tuple)
    assert isinstance(ours.value, tuple)
    if not set(theirs.value) & set(ours.value):
        return Known(False, theirs.origin)
    needed, processes = view.value("server.needed_gpus"), view.value("launch.processes_here")
    # Each takes the first of the GPUs that it sees; a process alone without a launcher takes them all (DataParallel).
    taken = set(theirs.value[: needed.value]) if isinstance(needed, Known) and isinstance(needed.value, int) else None
    if launch.launcher == "python":
        used: set[object] | None = set(ours.value)
    else:
        used = (
            set(ours.value[: processes.value])
            if isinstance(processes, Known) and isinstance(processes.value, int)
            else None
        )
    if (taken if taken is not None else set(theirs.value[:1])) & (used if used is not None else set(ours.value[:1])):
        return Known(True, theirs.origin)
    return (
        Known(False, theirs.origin)
        if taken is not None and used is not None
        else Unknown("which of the visible GPUs are taken is not shown")
    )


@property_("server.takes_first_gpu")
def _takes_first(view: View) -> Value:
    """Whether it takes the GPU of the trainer's main process, the first that the training sees."""
    same, machines = view.value("server.same_host"), view.value("launch.num_machines")
    theirs, ours = _list(view, "server.gpus"), _list(view, "launch.gpus")
    if not isinstance(same, Known) or (isinstance(machines, Known) and machines.value != 1):
        return same if isinstance(same, Unknown) else Unknown("its main process may run on another machine")
    if not theirs or not ours:
        return Unknown("which GPUs they see is not shown")
    needed = _number(view, "server.needed_gpus")
    if needed is None and ours[0] != theirs[0]:
        return Unknown("which of the visible GPUs it takes is not shown")
    return Known(ours[0] in theirs[: needed or 1], same.origin)


@property_("launch.free_gpus")
def _free_gpus(view: View) -> Value:
    """The GPUs that the server leaves to the training, as CUDA_VISIBLE_DEVICES lists them: enough for its processes."""
    needed, processes = _number(view, "server.needed_gpus"), _number(view, "launch.processes_here")
    if needed is None or processes is None:
        return Unknown("how many GPUs are taken is not shown")
    taken = _list(view, "server.gpus")[:needed]
    for seen in (view.value("launch.gpus"), _all_gpus(view)):
        left = [gpu for gpu in _listed(seen) if gpu not in taken]
        if taken and left and len(left) >= processes:
            return Known(",".join(left), Derived("the GPUs of the server"))
    return Unknown("the server leaves too few GPUs")


def _list(view: View, name: str) -> tuple[str, ...]:
    return _listed(view.value(name))


def _listed(value: Value) -> tuple[str, ...]:
    """A list of GPUs; empty where it is not known."""
    return tuple(map(str, value.value)) if isinstance(value, Known) and isinstance(value.value, tuple) else ()


def _number(view: View, name: str) -> int | None:
    value = view.value(name)
    return value.value if isinstance(value, Known) and isinstance(value.value, int) else None


@property_("server.alongside")
def _alongside(view: View) -> Value:
    """True where it certainly runs while the training does: it is started before, and neither only on one branch."""
    server, launch, facts = server_of(view), view.run.launch, view.run.facts
    if server is None or launch is None:
        return Unknown(_why_no_server(view) if server is None else NOT_STARTED)
    theirs, ours = server.command, launch.command
    if facts.server is not None or facts.launch is not None:
        return Known(True, _at(server.flags))
    if any(c.conditional or c.function is not None for c in (theirs, ours)) or theirs.span.path != ours.span.path:
        return Unknown("one of the two may be started without the other")
    if theirs.span.start < ours.span.start or ours.background:
        return Known(True, _at(server.flags))
    return Unknown("the training may have ended when it starts")


@property_("server.needed_model_len")
def _needed_model_len(view: View) -> Value:
    """The longest prompt and the longest completion of the training together, in tokens."""
    prompt, completion = view.value("max_prompt_length"), view.value("max_completion_length")
    if isinstance(prompt, Known) and isinstance(completion, Known):
        if isinstance(prompt.value, int) and isinstance(completion.value, int):
            return Known(prompt.value + completion.value, completion.origin)
        return Unknown("a length is not limited")
    return prompt if isinstance(prompt, Unknown) else completion


@property_("server.model_type")
def _server_model_type(view: View) -> Value:
    """As `model.type`, of the model that the server loads."""
    return _of_served(view, "model.type")


@property_("server.billions")
def _server_billions(view: View) -> Value:
    """As `model.billions`, of the model that the server loads."""
    return _of_served(view, "model.billions")


def _of_served(view: View, name: str) -> Value:
    """What a property says that goes by the model's name, asked of the server's model."""
    return View(view.run, view.world, {"model.name": view.value("server.model")}).value(name)


def server_option(view: View, name: str) -> Value:
    """An option of the server's command, else its default."""
    server = server_of(view)
    if server is None:
        return Unknown(_why_no_server(view))
    declared = view.world.release.serve.get(name) if server.server == "trl vllm-serve" else None
    for spelling in (name, f"no_{name}"):
        given = server.flags.arguments.get(spelling)
        if given is not None:
            if spelling != name:
                return Known(False, given.value.origin) if isinstance(given.value, Known) else given.value
            return view.typed(given, declared)
    if server.flags.open is not None:
        return Unknown(server.flags.open)
    if declared is not None:
        if declared.default in (knowledge.REQUIRED, knowledge.UNREAD):
            return Unknown(f"--{name} is not given")
        return Known(declared.default, Default(view.world.label))
    return Known(knowledge.serve_default(name), Default("vLLM"))


# Where the trainer's client looks for its server


@property_("client.port")
def _client_port(view: View) -> Value:
    url = view.value("vllm_server_base_url") if view.has("vllm_server_base_url") else Known(None, Derived(""))
    if isinstance(url, Known) and url.value is None:
        return view.value("vllm_server_port")
    parts = _split(url)
    if parts is None:
        return url if isinstance(url, Unknown) else Unknown("the server's URL cannot be read")
    return Known(parts[1], url.origin) if isinstance(url, Known) else url


@property_("client.host")
def _client_host(view: View) -> Value:
    url = view.value("vllm_server_base_url") if view.has("vllm_server_base_url") else Known(None, Derived(""))
    if isinstance(url, Known) and url.value is None:
        return view.value("vllm_server_host")
    parts = _split(url)
    return (
        Known(parts[0], url.origin)
        if parts is not None and isinstance(url, Known)
        else Unknown("the server's URL cannot be read")
    )


def _split(url: Value) -> tuple[str, int] | None:
    if not isinstance(url, Known) or not isinstance(url.value, str):
        return None
    try:
        parts = urlsplit(url.value if "//" in url.value else f"//{url.value}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    return (parts.hostname or "", port)


# Environments


def environment_argument(launch: Launch | None, name: str) -> Argument | None:
    """What a command's environment says of a variable."""
    return launch.command.environment.get(name) if launch is not None else None


def _environment(view: View, launch: Launch | None, name: str, *, script: bool) -> Value:
    argument = environment_argument(launch, name)
    if argument is None and script:
        argument = view.run.module.environment.get(name) or _entry_of_recipe(view, name)
    if argument is not None:
        return Unknown("it is set only on one branch") if argument.conditional else argument.value
    return Unknown(f"${name} may be set outside of these files")


def _entry_of_recipe(view: View, name: str) -> Argument | None:
    """A variable that the recipe's `env:` sets."""
    parsed = view.run.parsed
    for layer in parsed.site.layers if parsed is not None else ():
        found = _entry(layer, "env", name)
        if found is not None:
            return found
    return None


@property_("launch.misspelt_visible_devices")
def _misspelt(view: View) -> Value:
    """The misspelling of CUDA_VISIBLE_DEVICES in the environment of the command, None without one."""
    found = misspelt(view.run.launch)
    return Known(found.name, Written(found.place.whole)) if found is not None else Known(None, Derived("the command"))


def misspelt(launch: Launch | None) -> Argument | None:
    if launch is None or VISIBLE in launch.command.environment:
        return None
    return next((a for name, a in launch.command.environment.items() if _plain(name) in _MEANT), None)


_MEANT = frozenset({"cudavisibledevices", "cudavisibledevice", "cudavisibledevicess", "cudavisiabledevices"})


@cache
def _plain(name: str) -> str:
    return name.replace("_", "").lower()


@property_("run.parser_shown")
def _parser_shown(view: View) -> Value:
    """Whether the parser that takes the recipe and the options is at hand, or stated, rather than the usual one."""
    parsed = view.run.parsed
    if parsed is None or parsed.parser is None:
        return Unknown("nothing is parsed")
    return Known(parsed.assumed is None, Derived("the script"))


@property_("launch.recipe_unread")
def _recipe_unread(view: View) -> Value:
    """The recipe that the command names as `--config=FILE`, one word, where this release's TrlParser looks for two; else None."""
    launch, parsed = view.run.launch, view.run.parsed
    if launch is None or parsed is None or parsed.parser is None:
        return Unknown(NOT_STARTED)
    joined = next((w.text for w in launch.command.words if (w.text or "").startswith("--config=")), None)
    known = view.world.release.parser
    if joined is None or parsed.parser != "TrlParser" or (known is not None and known.joined):
        return Known(None, _at(launch.flags))
    why = parsed.tolerant or parsed.assumed
    if why is not None or known is None:
        return Unknown(why or "what this release's TrlParser reads is not known")
    if any(name.startswith("config") for taker in parsed.takers for name in taker.own):
        return Unknown("the script has options of its own that begin with config")
    return Known(joined.partition("=")[2], _at(launch.flags))


# Small helpers -----------------------------------------------------------------------------------------------------------


def _at(site: Site) -> Written:
    return Written(site.span)


def _entry(site: Site | None, name: str, key: str) -> Argument | None:
    outer = site.arguments.get(name) if site is not None else None
    if outer is None or not isinstance(outer.value, Known) or not isinstance(outer.value.value, Table):
        return None
    return outer.value.value.entries.get(key)


def _text(site: Site, name: str) -> str | None:
    found = site.arguments.get(name)
    return str(found.value.value) if found is not None and isinstance(found.value, Known) else None


FAMILIES["server.env."] = lambda view, name: _environment(view, server_of(view), name, script=False)
FAMILIES["launch.env."] = lambda view, name: _environment(view, view.run.launch, name, script=True)
FAMILIES["server."] = server_option
FAMILIES["option."] = lambda view, name: view.option(name)
