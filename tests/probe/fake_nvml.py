"""A `pynvml` module for machines that tests do not have: a card is what a test says of it, all else is refused."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

GIB = 2**30


class NVMLError(Exception):
    """As nvidia-ml-py's: its text is the driver's."""


def refuse(why: str = "Not Supported") -> Any:
    raise NVMLError(why)


@dataclass
class Card:
    """`running` and `graphics` are (pid, bytes or None). What is None is refused; `lost` has no handle at all."""

    name: str | None = "NVIDIA H200"
    uuid: str | None = "GPU-11111111-aaaa"
    total: int | None = 141 * GIB
    used: int = 0
    reserved: int = GIB // 2
    capability: tuple[int, int] | None = (9, 0)
    running: Sequence[tuple[int, int | None]] | None = ()
    graphics: Sequence[tuple[int, int | None]] | None = ()
    mig: bool | None = False
    instances: Sequence[Card] = ()
    links: int | None = None
    peers: dict[int, str] = field(default_factory=dict)  # index of the other: "NVLink", "PCIe" or "none"
    index: int = 0
    lost: bool = False


NOTHING = Card(name=None, uuid=None, total=None, capability=None, running=None, graphics=None, mig=None)


def pynvml(
    *cards: Card,
    driver: str | None = "580.159.04",
    cuda: int | None = 13000,
    names: dict[int, str] | None = None,
    no_driver: str | None = None,
    first_version_only: bool = False,
    bytes_for_text: bool = False,
) -> types.ModuleType:
    """The module. `first_version_only`: a driver that knows neither memory nor process lists of a later version."""
    module: Any = types.ModuleType("pynvml")
    module.NVMLError = NVMLError
    module.nvmlMemory_v2 = 0x02000028
    module.NVML_NVLINK_MAX_LINKS = 36
    module.NVML_P2P_CAPS_INDEX_READ = (0,)  # so it stands in nvidia-ml-py
    module.NVML_P2P_CAPS_INDEX_WRITE = 1
    module.NVML_P2P_CAPS_INDEX_NVLINK = 2
    module.NVML_P2P_STATUS_OK = 0
    module.open = 0
    for index, card in enumerate(cards):
        card.index = index

    def said(text: str | None) -> Any:
        return refuse() if text is None else text.encode() if bytes_for_text else text

    def init() -> None:
        if no_driver:
            refuse(no_driver)
        module.open += 1

    def shutdown() -> None:
        module.open -= 1

    def handle(index: int) -> Card:
        return refuse("GPU is lost") if cards[index].lost else cards[index]

    def memory(card: Card, version: int | None = None) -> Any:
        if card.total is None or (version and first_version_only):
            refuse()
        free = card.total - card.used - card.reserved
        held = {"reserved": card.reserved, "used": card.used} if version else {"used": card.used + card.reserved}
        return types.SimpleNamespace(total=card.total, free=free, **held)

    def listing(what: str, old: bool) -> Callable[[Card], list[Any]]:
        def running(card: Card) -> list[Any]:
            listed = getattr(card, what)
            if listed is None or (first_version_only and not old):
                refuse()
            return [types.SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in listed]

        return running

    def link(card: Card, number: int) -> int:
        return refuse() if card.links is None or number >= 18 else int(number < card.links)

    def peer(one: Card, other: Card, index: int) -> int:
        way = one.peers.get(other.index)
        return refuse() if way is None else 0 if way == "NVLink" or (way == "PCIe" and index == 1) else 5

    module.nvmlInit = init
    module.nvmlShutdown = shutdown
    module.nvmlSystemGetDriverVersion = lambda: said(driver)
    module.nvmlSystemGetCudaDriverVersion_v2 = lambda: refuse("Shared Library Not Found") if cuda is None else cuda
    module.nvmlSystemGetProcessName = lambda pid: said((names or {}).get(pid))
    module.nvmlDeviceGetCount = lambda: len(cards)
    module.nvmlDeviceGetHandleByIndex = handle
    module.nvmlDeviceGetUUID = lambda card: said(card.uuid)
    module.nvmlDeviceGetName = lambda card: said(card.name)
    module.nvmlDeviceGetMemoryInfo = memory
    module.nvmlDeviceGetCudaComputeCapability = lambda card: card.capability or refuse()
    module.nvmlDeviceGetMigMode = lambda card: refuse() if card.mig is None else [int(card.mig), int(card.mig)]
    module.nvmlDeviceGetMaxMigDeviceCount = lambda card: 7 if card.mig else 0
    module.nvmlDeviceGetMigDeviceHandleByIndex = lambda card, number: (
        card.instances[number] if number < len(card.instances) else refuse("Not Found")
    )
    for kind, what in (("Compute", "running"), ("Graphics", "graphics")):
        setattr(module, f"nvmlDeviceGet{kind}RunningProcesses", listing(what, old=False))
        setattr(module, f"nvmlDeviceGet{kind}RunningProcesses_v2", listing(what, old=True))
    module.nvmlDeviceGetNvLinkState = link
    module.nvmlDeviceGetP2PStatus = peer
    return module
