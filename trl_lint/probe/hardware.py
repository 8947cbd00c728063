"""The driver's word on this machine in; out a `Machine`: its GPUs, who uses them, and what cannot work with them.

All that asks NVML goes through `nvml`: the `pynvml` module of nvidia-ml-py, which is the extra `probe`. NVML is asked
and never CUDA, so nothing here makes a context or takes memory of a GPU. What the driver, a container, WSL or missing
rights do not let it say is None in the answer and not an error. `look` is the door, `describe` prints what it found;
`shared` and `unfit` are what is wrong with it.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeAlias

from trl_lint.probe.endings import shown

NOISE = 2**30  # bytes in use that no process accounts for and that still say nothing: the driver keeps some for itself
GIB = 2**30


class NoNvml(Exception):
    """NVML cannot be asked; the text says why, in one line."""


class NoModule(NoNvml):
    """There is no `pynvml` to ask it with."""


@dataclass(frozen=True)
class Process:
    """One that holds memory of a device: bytes, None where the driver does not say. `compute`: by CUDA, not by a screen."""

    pid: int
    name: str | None
    memory: int | None
    compute: bool


@dataclass(frozen=True)
class Device:
    """What CUDA counts as one: a GPU, or an instance of one in MIG mode. Memory in bytes, without the driver's own share.

    `processes` is None where they cannot be listed. `visible` is whether CUDA_VISIBLE_DEVICES lets a program see it,
    None where that cannot be known without starting one.
    """

    place: str  # "GPU 0", "MIG 0:1"
    uuid: str | None = None
    name: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    processes: tuple[Process, ...] | None = None
    visible: bool | None = None

    @property
    def unexplained(self) -> int:
        """Bytes in use that are surely no listed process's."""
        listed = [process.memory for process in self.processes or ()]
        if self.memory_used is None or None in listed:
            return 0
        return self.memory_used - sum(memory or 0 for memory in listed)


@dataclass(frozen=True)
class Gpu(Device):
    """A whole card. `index` is nvidia-smi's, `nvlinks` how many are active; `problem` is why it cannot be read at all."""

    index: int = 0
    capability: str | None = None  # "9.0"
    mig: bool | None = None
    instances: tuple[Device, ...] = ()
    nvlinks: int | None = None
    problem: str | None = None


Way: TypeAlias = Literal["NVLink", "PCIe", "none"]


@dataclass(frozen=True)
class Peers:
    """Two GPUs, by index, and how one reads the other's memory: "none" is through the host's, None is unknown."""

    one: int
    other: int
    way: Way | None


@dataclass(frozen=True)
class Machine:
    """`reason` is why there is no GPU. `cuda` is the newest that the driver runs.

    `seen` are the devices that a program sees, and in its order when `ordered`: the run's process N takes the Nth.
    """

    gpus: tuple[Gpu, ...] = ()
    reason: str | None = None
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    peers: tuple[Peers, ...] = ()
    seen: tuple[Device, ...] = ()
    ordered: bool = True
    notes: tuple[str, ...] = ()

    def taken(self, processes: int | None = None) -> tuple[Device, ...]:
        """The devices that a run of so many processes takes: all that it sees when that is not known."""
        if processes is None or processes >= len(self.seen):
            return self.seen
        return self.seen[:processes] if self.ordered else ()


@dataclass(frozen=True)
class Wheel:
    """An installed package with code for CUDA. `cuda` is the one it was built for, "13.0" or "13"; "none", or unknown."""

    package: str
    version: str | None
    cuda: str | None
    folder: str

    @property
    def title(self) -> str:
        return f"{self.package} {self.version or 'of unknown version'} ({self.folder})"

    @property
    def major(self) -> int | None:
        return int(self.cuda.partition(".")[0]) if self.cuda and self.cuda != "none" else None


@dataclass(frozen=True)
class Flaw:
    """Something wrong with the machine as it is now, said as a finding is."""

    rule: str
    severity: Literal["warning", "error"]
    message: str

    def __str__(self) -> str:
        return f"{self.severity}[{self.rule}]: {self.message}"


# -- asking NVML -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """The `pynvml` module, initialised. Raises NoNvml where there is none or no driver that answers."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        raise NoModule("NVML cannot be asked without the pynvml module: pip install 'trl-lint[probe]'") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoNvml(f"the NVIDIA driver does not answer: {shown(str(error))}") from None
    try:
        yield pynvml
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def memory_in_use() -> tuple[int, ...]:
    """Bytes in use on each GPU, in the order of nvidia-smi; empty where one cannot be read. Raises NoNvml."""
    with nvml() as pynvml:
        handles = [_ask(pynvml, "nvmlDeviceGetHandleByIndex", index) for index in range(_count(pynvml))]
        used = [_memory(pynvml, handle)[1] for handle in handles]
    return () if None in used else tuple(size for size in used if size is not None)


def look(environment: Mapping[str, str] = os.environ) -> Machine:
    """This machine's GPUs as a program with that environment would find them. Never raises for what is not there."""
    try:
        with nvml() as pynvml:
            return _machine(pynvml, environment)
    except NoNvml as error:
        return Machine(reason=str(error))


def _machine(pynvml: Any, environment: Mapping[str, str]) -> Machine:
    driver = _text(_ask(pynvml, "nvmlSystemGetDriverVersion"))
    # Of the libcuda.so that a program would load, forward compatibility packages included; it is not initialised.
    cuda = _ask(pynvml, "nvmlSystemGetCudaDriverVersion_v2") or _ask(pynvml, "nvmlSystemGetCudaDriverVersion")
    newest = divmod(cuda // 10, 100) if isinstance(cuda, int) and cuda else None  # 13020 is 13.2
    gpus, handles = [], {}
    for index in range(_count(pynvml)):
        try:
            handles[index] = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            gpus.append(Gpu(f"GPU {index}", index=index, problem=shown(str(error))))
        else:
            gpus.append(_gpu(pynvml, handles[index], index))
    if not gpus:
        return Machine(reason="the NVIDIA driver sees no GPU", driver=driver, cuda=newest)
    machine = _visible(Machine(tuple(gpus), None, driver, newest), environment)
    among = [gpu.index for gpu in machine.gpus if gpu.visible is not False and not gpu.mig and gpu.index in handles]
    peers = [Peers(a, b, _way(pynvml, handles[a], handles[b])) for a, b in combinations(among, 2)]
    return replace(machine, peers=tuple(peers))


def _ask(pynvml: Any, name: str, *arguments: object) -> Any:
    """What a function of NVML answers, None when it does not.

    Each may be refused by itself: NVMLError by the driver (not supported, no permission, unknown to an old driver),
    NVMLLibraryMismatchError, AttributeError and TypeError by an older pynvml, UnicodeDecodeError for a process's name.
    """
    try:
        return getattr(pynvml, name)(*arguments)
    except Exception:
        return None


def _text(answer: object) -> str | None:
    """Before nvidia-ml-py 11.515 texts were bytes."""
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return text if isinstance(text, str) and text else None


def _count(pynvml: Any) -> int:
    return _ask(pynvml, "nvmlDeviceGetCount") or 0


def _gpu(pynvml: Any, handle: Any, index: int) -> Gpu:
    total, used = _memory(pynvml, handle)
    capability = _ask(pynvml, "nvmlDeviceGetCudaComputeCapability", handle)
    mode = _ask(pynvml, "nvmlDeviceGetMigMode", handle)
    mig = None if mode is None else bool(mode[0])
    return Gpu(
        place=f"GPU {index}",
        uuid=_text(_ask(pynvml, "nvmlDeviceGetUUID", handle)),
        name=_text(_ask(pynvml, "nvmlDeviceGetName", handle)),
        memory_total=total,
        memory_used=used,
        processes=_processes(pynvml, handle),
        index=index,
        capability=None if capability is None else "{}.{}".format(*capability),
        mig=mig,
        instances=tuple(_instances(pynvml, handle, index)) if mig else (),
        nvlinks=_nvlinks(pynvml, handle),
    )


def _instances(pynvml: Any, gpu: Any, index: int) -> Iterator[Device]:
    for number in range(_ask(pynvml, "nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
        if (handle := _ask(pynvml, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, number)) is not None:
            total, used = _memory(pynvml, handle)
            uuid, name = (_text(_ask(pynvml, f"nvmlDeviceGet{what}", handle)) for what in ("UUID", "Name"))
            yield Device(f"MIG {index}:{number}", uuid, name, total, used, _processes(pynvml, handle))


def _memory(pynvml: Any, handle: Any) -> tuple[int | None, int | None]:
    """Total and in use. Version 2 of the question tells the driver's own share apart, about 0.5 GiB of an H200."""
    info = _ask(pynvml, "nvmlDeviceGetMemoryInfo", handle, getattr(pynvml, "nvmlMemory_v2", None))
    if info is None and (info := _ask(pynvml, "nvmlDeviceGetMemoryInfo", handle)) is None:
        return None, None
    # Whether `used` holds the share differs between drivers; what is free never does.
    return int(info.total), max(0, int(info.total - info.free - getattr(info, "reserved", 0)))


def _processes(pynvml: Any, handle: Any) -> tuple[Process, ...] | None:
    found: dict[int, Process] = {}
    listed = False
    for kind in ("Compute", "MPSCompute", "Graphics"):
        name = f"nvmlDeviceGet{kind}RunningProcesses"
        running = _ask(pynvml, name, handle)
        if running is None:  # drivers before 510 know the second version
            running = _ask(pynvml, f"{name}_v2", handle)
        listed = listed or (running is not None and kind == "Compute")
        for process in running or ():
            pid, memory = int(process.pid), process.usedGpuMemory
            found.setdefault(pid, Process(pid, _name(pynvml, pid), memory, kind != "Graphics"))
    return tuple(found.values()) if listed or found else None


def _name(pynvml: Any, pid: int) -> str | None:
    """ "python3", or the title that a process gave itself ("VLLM::EngineCore")."""
    name = _text(_ask(pynvml, "nvmlSystemGetProcessName", pid)) or ""
    name = shown("".join(letter if letter.isprintable() else " " for letter in name))
    return (os.path.basename(name) if name.startswith("/") else name) or None


def _nvlinks(pynvml: Any, handle: Any) -> int | None:
    """How many are active; None where the GPU has none or does not say. A number that it does not have is an error."""
    states = []
    for link in range(getattr(pynvml, "NVML_NVLINK_MAX_LINKS", 18)):
        if (state := _ask(pynvml, "nvmlDeviceGetNvLinkState", handle, link)) is None:
            break
        states.append(bool(state))
    return sum(states) if states else None


def _way(pynvml: Any, one: Any, other: Any) -> Way | None:
    """By NVLink, else by PCIe if writing is possible: pynvml's constant for reading is a tuple by mistake."""
    ok = getattr(pynvml, "NVML_P2P_STATUS_OK", 0)
    nvlink = _ask(pynvml, "nvmlDeviceGetP2PStatus", one, other, getattr(pynvml, "NVML_P2P_CAPS_INDEX_NVLINK", 2))
    if nvlink == ok:
        return "NVLink"
    write = _ask(pynvml, "nvmlDeviceGetP2PStatus", one, other, getattr(pynvml, "NVML_P2P_CAPS_INDEX_WRITE", 1))
    return None if write is None else "PCIe" if write == ok else "none"


# -- what a program sees -----------------------------------------------------------------------------------------------


def _visible(machine: Machine, environment: Mapping[str, str]) -> Machine:
    """Which devices CUDA_VISIBLE_DEVICES leaves, by the CUDA programming guide's appendix on environment variables.

    Numbers and the start of a UUID name a device; what comes after one that names none is not seen. Numbers follow
    CUDA_DEVICE_ORDER, which is by speed unless it is PCI_BUS_ID: with GPUs of several models they are not NVML's. Which
    instance of a GPU in MIG mode a program gets without naming it depends on the driver.
    """
    said = environment.get("CUDA_VISIBLE_DEVICES")
    readable = [gpu for gpu in machine.gpus if gpu.problem is None]
    ordered = len({gpu.name for gpu in readable}) <= 1 or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if said is None:
        chosen = [_single(gpu) for gpu in readable]
    else:
        entries = [entry.strip() for entry in said.split(",")]
        if not ordered and any(entry.isdecimal() for entry in entries):
            note = (
                f"which GPUs CUDA_VISIBLE_DEVICES={shown(said)} means is not known: their models differ and CUDA counts "
                "by speed; CUDA_DEVICE_ORDER=PCI_BUS_ID makes it count as nvidia-smi does"
            )
            return replace(machine, ordered=False, notes=(note,))
        chosen, ordered = _named(entries, machine.gpus), True
    gpus = tuple(_marked(gpu, {device.place for device in chosen}) for gpu in machine.gpus)
    known = {device.place: device for gpu in gpus for device in (gpu, *gpu.instances) if device.visible}
    seen = tuple(known[device.place] for device in chosen if device.place in known)
    return replace(machine, gpus=gpus, seen=seen, ordered=ordered and len(seen) == len(chosen))


def _marked(gpu: Gpu, places: Collection[str]) -> Gpu:
    """With what is seen of it; nothing is known of the instances when it was named as a whole."""
    if gpu.problem is not None or (gpu.mig and gpu.place in places):
        return gpu
    instances = tuple(replace(instance, visible=instance.place in places) for instance in gpu.instances)
    return replace(gpu, instances=instances, visible=gpu.place in places or any(i.visible for i in instances))


def _single(gpu: Gpu) -> Device:
    """The only instance of a GPU in MIG mode is what a program gets of it."""
    return gpu.instances[0] if gpu.mig and len(gpu.instances) == 1 else gpu


def _named(entries: Sequence[str], gpus: Sequence[Gpu]) -> list[Device]:
    """Twice the same is an error, and then CUDA sees no device at all."""
    everything: list[Device] = [device for gpu in gpus for device in (gpu, *gpu.instances)]
    named: list[Device] = []
    for entry in entries:
        if re.fullmatch(r"\d+", entry):
            found: list[Device] = [_single(gpu) for gpu in gpus if gpu.index == int(entry) and gpu.problem is None]
        else:
            found = [d for d in everything if d.uuid and re.match(r"(?:GPU|MIG)-.", entry) and d.uuid.startswith(entry)]
        if len(found) != 1:
            break
        named.append(found[0])
    return named if len({device.place for device in named}) == len(named) else []


# -- what is wrong -----------------------------------------------------------------------------------------------------


def shared(devices: Iterable[Device], ours: Collection[int] = ()) -> list[Flaw]:
    """The devices, of those that a run would take, whose memory somebody else's process holds. `ours` are our own pids.

    Ask before the run starts: where a container hides processes, its own memory looks like another's.
    """
    flaws = []
    for device in devices:
        others = [process for process in device.processes or () if process.compute and process.pid not in ours]
        if others:
            who = ", ".join(map(_who, others[:3])) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            what = f"{device.place} is in use by {who}"
        elif device.unexplained > NOISE:
            what = f"{device.place} has {_gib(device.unexplained)} in use, by whom is not visible here"
        else:
            continue
        taken = f", {_gib(device.memory_used)} of {_gib(device.memory_total)} taken" if device.memory_total else ""
        message = f"{what}{taken}: a run there can run out of memory, and its speed says nothing; wait, or set CUDA_VISIBLE_DEVICES"
        flaws.append(Flaw("shared-gpu", "warning", message))
    return flaws


LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""The oldest driver that runs programs built for any release of a major CUDA version, by its first number.

NVIDIA, CUDA Compatibility, "Minor Version Compatibility", table 1 (https://docs.nvidia.com/deploy/cuda-compatibility/
minor-version-compatibility.html): CUDA 13.x >= 580, 12.x >= 525, 11.x >= 450; newer drivers run older programs.
"""


def unfit(machine: Machine, wheels: Iterable[Wheel]) -> list[Flaw]:
    """Why installed packages cannot use the GPUs that are here. Nothing is said where a version is not known."""
    if not machine.gpus:
        return []
    installed = {wheel.package: wheel for wheel in wheels}
    judged = (flaw for wheel in installed.values() for flaw in (_without_cuda(wheel), _old_driver(machine, wheel)))
    return [flaw for flaw in (*judged, _two_cudas(installed.get("torch"), installed.get("vllm"))) if flaw is not None]


def _without_cuda(wheel: Wheel) -> Flaw | None:
    if wheel.package != "torch" or wheel.cuda != "none":
        return None
    text = (
        f"{wheel.title} is built without CUDA: it finds no GPU, and training runs on the CPU; install a build for CUDA"
    )
    return Flaw("torch-without-cuda", "error", text)


def _old_driver(machine: Machine, wheel: Wheel) -> Flaw | None:
    """By both words of the driver: a forward compatibility package raises the CUDA that an old driver runs."""
    number = re.match(r"\d+", machine.driver or "")
    if number is None or machine.cuda is None or wheel.major is None:
        return None
    least = LEAST_DRIVER.get(wheel.major)
    if machine.cuda[0] >= wheel.major or (least is not None and int(number[0]) >= least):
        return None
    text = (
        f"{wheel.title} is built for CUDA {wheel.cuda}, and driver {machine.driver} runs CUDA {_dotted(machine.cuda)} at "
        f"most: it finds no GPU; install a driver for CUDA {wheel.major}{f' ({least} or newer)' if least else ''}, or a "
        f"build for CUDA {machine.cuda[0]}"
    )
    return Flaw("old-driver", "error", text)


def _two_cudas(torch: Wheel | None, vllm: Wheel | None) -> Flaw | None:
    if torch is None or vllm is None or None in (torch.major, vllm.major) or torch.major == vllm.major:
        return None
    text = (
        f"{vllm.title} is built for CUDA {vllm.cuda} and torch for CUDA {torch.cuda}: vllm stops where it finds no "
        f"libcudart.so.{vllm.major}; install builds for the same CUDA"
    )
    return Flaw("two-cudas", "warning", text)


# -- what is installed -------------------------------------------------------------------------------------------------


def wheels(folders: Iterable[str]) -> list[Wheel]:
    """torch and vllm as they are installed in the first of the package folders that holds each. Nothing is imported."""
    found: dict[str, Wheel] = {}
    for folder in folders:
        for package, read in (("torch", _torch), ("vllm", _vllm)):
            home = os.path.join(folder, package)
            if package not in found and os.path.isfile(os.path.join(home, "__init__.py")):
                found[package] = Wheel(package, *read(home), folder)
    return [found[package] for package in sorted(found)]


def _torch(home: str) -> tuple[str | None, str | None]:
    """torch/version.py is written by its build: `__version__ = '2.11.0+cu130'`, `cuda: Optional[str] = '13.0'`."""
    text = _read(os.path.join(home, "version.py"))
    cuda = re.search(r"(?m)^cuda(?:\s*:[^=\n]+)?\s*=\s*(?:[\"']([\d.]+)[\"']|None)", text)
    return _version(text), (cuda[1] or "none") if cuda else None


def _vllm(home: str) -> tuple[str | None, str | None]:
    """vllm/_version.py names the CUDA of builds that are not the index's own; else its kernels name their runtime library.

    0.25.1: `_C_stable_libtorch.abi3.so` needs libcudart.so.13.
    """
    version = _version(_read(os.path.join(home, "_version.py")))
    if local := re.search(r"\+(?:.*\.)?cu(\d+)(\d)\b", version or ""):
        return version, f"{local[1]}.{local[2]}"
    for extension in sorted(Path(home).glob("*.so")):
        with contextlib.suppress(OSError, ValueError):  # ValueError: it is empty
            if runtime := _runtime(extension):
                return version, runtime
    return version, None


def _runtime(library: Path) -> str | None:
    """The major version of the CUDA runtime that a shared library loads. Raises OSError, and ValueError for an empty file."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        named = re.search(rb"\0libcudart\.so\.(\d+)", data)
        return named[1].decode() if named else None


def _version(text: str) -> str | None:
    written = re.search(r"(?m)^__version__\s*(?::[^=\n]+)?=\s*(?:version\s*=\s*)?[\"']([^\"']+)", text)
    return written[1] if written else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError:
        return ""


# -- words -------------------------------------------------------------------------------------------------------------


def describe(machine: Machine, wheels: Iterable[Wheel] = ()) -> list[str]:
    """The lines of `trl-lint facts --probe`, without what is wrong."""
    lines = []
    if machine.driver or machine.cuda:
        newest = f", runs CUDA up to {_dotted(machine.cuda)}" if machine.cuda else ""
        lines.append(f"driver {machine.driver or 'unknown'}{newest}")
    if machine.reason:
        lines.append(f"no GPU: {machine.reason}")
    for gpu in machine.gpus:
        lines += _lines(gpu)
    lines += _ways(machine.peers)
    for wheel in wheels:
        cuda = {None: "CUDA unknown", "none": "without CUDA"}.get(wheel.cuda, f"CUDA {wheel.cuda}")
        lines.append(f"{wheel.package} {wheel.version or 'of unknown version'}, {cuda} ({wheel.folder})")
    return [*lines, *(f"note: {note}" for note in machine.notes)]


def _lines(gpu: Gpu) -> Iterator[str]:
    if gpu.problem is not None:
        yield f"{gpu.place}: cannot be read: {gpu.problem}"
        return
    more = [
        f"compute capability {gpu.capability}" if gpu.capability else "",
        "MIG mode" if gpu.mig else "",
        f"{gpu.nvlinks} NVLink{'' if gpu.nvlinks == 1 else 's'} active" if gpu.nvlinks is not None else "",
    ]
    yield _line(gpu, *more)
    for instance in gpu.instances:
        yield "  " + _line(instance)
        yield from (f"    {_who(process)}" for process in instance.processes or ())
    if not gpu.instances:
        yield from (f"  {_who(process)}" for process in gpu.processes or ())
        if gpu.unexplained > NOISE:
            yield f"  {_gib(gpu.unexplained)} in use, by whom is not visible here"


def _line(device: Device, *more: str) -> str:
    hidden = {False: "hidden by CUDA_VISIBLE_DEVICES", None: "whether a program sees it is not known"}
    said = [
        f"memory {_gib(device.memory_used)} in use of {_gib(device.memory_total)}",
        *more,
        hidden.get(device.visible, "") if device.visible is not True else "",
    ]
    return f"{device.place}: {', '.join([device.name or 'unknown model', *filter(None, said)])} ({device.uuid or 'no UUID'})"


def _ways(peers: Sequence[Peers]) -> Iterator[str]:
    """ "NVLink between GPUs 0-1, 2-3"; all pairs are not listed one by one."""
    words = {"NVLink": "NVLink", "PCIe": "peer-to-peer over PCIe", "none": "no peer-to-peer", None: "unknown links"}
    for way, text in words.items():
        pairs = [peer for peer in peers if peer.way == way]
        count = len({index for peer in pairs for index in (peer.one, peer.other)})
        if pairs and len(pairs) == len(peers) and count > 2:
            yield f"{text} between all {count} GPUs"
        elif pairs:
            yield f"{text} between GPUs {', '.join(f'{peer.one}-{peer.other}' for peer in pairs)}"


def _who(process: Process) -> str:
    size = "" if process.memory is None else f", {_gib(process.memory)}"
    screen = "" if process.compute else ", for graphics"
    return f"{process.name or 'a process'} (pid {process.pid}{size}{screen})"


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / GIB:.1f} GiB"


def _dotted(version: tuple[int, int] | None) -> str:
    return "unknown" if version is None else f"{version[0]}.{version[1]}"
