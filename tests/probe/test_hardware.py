"""What NVML says, or refuses to say, and what is made of it. No test here needs a GPU."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from trl_lint.probe import hardware
from trl_lint.probe.hardware import Machine, Wheel, describe, look, memory_in_use, shared, unfit, wheels
from trl_lint.probe.trials import gpu_memory

from .fake_nvml import GIB, NOTHING, Card, pynvml

ONE = "GPU-11111111-aaaa"
TWO = "GPU-22222222-bbbb"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask a machine that has these cards."""

    def asked(*cards: Card, environment: dict[str, str] | None = None, **more: Any) -> Machine:
        module: Any = pynvml(*cards, **more)
        monkeypatch.setitem(sys.modules, "pynvml", module)
        found = look(environment or {})
        assert module.open == 0
        return found

    return asked


def test_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = look({})
    assert found.gpus == ()
    assert found.reason == "NVML cannot be asked without the pynvml module: pip install 'trl-lint[probe]'"
    assert describe(found) == [f"no GPU: {found.reason}"]
    with pytest.raises(hardware.NoModule):
        memory_in_use()


@pytest.mark.parametrize(
    "why", ["NVML Shared Library Not Found", "Driver/library version mismatch", "Driver Not Loaded"]
)
def test_no_driver(machine: Any, why: str) -> None:
    found = machine(no_driver=why)
    assert describe(found) == [f"no GPU: the NVIDIA driver does not answer: {why}"]
    assert gpu_memory() == ()


def test_a_driver_without_a_gpu(machine: Any) -> None:
    found = machine()
    assert describe(found) == ["driver 580.159.04, runs CUDA up to 13.0", "no GPU: the NVIDIA driver sees no GPU"]
    assert not shared(found.taken())
    assert not unfit(found, [Wheel("torch", "2.13.0+cpu", "none", "/env")])


def test_one_free_gpu(machine: Any) -> None:
    found = machine(Card(used=GIB // 4, links=0))
    assert describe(found) == [
        "driver 580.159.04, runs CUDA up to 13.0",
        f"GPU 0: NVIDIA H200, memory 0.2 GiB in use of 141.0 GiB, compute capability 9.0, 0 NVLinks active ({ONE})",
    ]
    assert [device.place for device in found.taken()] == ["GPU 0"]
    assert shared(found.taken()) == []
    assert gpu_memory() == (GIB // 4,)


def test_shared_by_another(machine: Any) -> None:
    card = Card(used=42 * GIB, running=[(4711, 41 * GIB), (12, None)], graphics=[(13, GIB // 8)])
    found = machine(card, names={4711: "VLLM::EngineCore", 12: "/opt/python3", 13: "/usr/lib/Xorg"})
    assert describe(found)[2:] == [
        "  VLLM::EngineCore (pid 4711, 41.0 GiB)", "  python3 (pid 12)", "  Xorg (pid 13, 0.1 GiB, for graphics)",
    ]  # fmt: skip
    (flaw,) = shared(found.taken())
    assert str(flaw) == (
        "warning[shared-gpu]: GPU 0 is in use by VLLM::EngineCore (pid 4711, 41.0 GiB), python3 (pid 12), 42.0 GiB of "
        "141.0 GiB taken: a run there can run out of memory, and its speed says nothing; wait, or set CUDA_VISIBLE_DEVICES"
    )
    assert [flaw.message.split(",")[0] for flaw in shared(found.taken(), ours=[4711])] == [
        "GPU 0 is in use by python3 (pid 12)"
    ]
    assert shared(found.taken(), ours=[4711, 12]) == []


def test_a_screen_is_nobody_who_trains(machine: Any) -> None:
    found = machine(Card(used=GIB, graphics=[(13, GIB)]), names={13: "/usr/lib/Xorg"})
    assert shared(found.taken()) == []


def test_many_share_it(machine: Any) -> None:
    found = machine(Card(used=5 * GIB, running=[(pid, GIB) for pid in range(90001, 90006)]), names={})
    (flaw,) = shared(found.taken())
    assert re.search(r"\(pid 90003, 1\.0 GiB\) and 2 more, 5\.0 GiB of", flaw.message)


@pytest.mark.parametrize("listed", [(), None])
def test_a_container_hides_the_processes(machine: Any, listed: Any) -> None:
    found = machine(Card(used=40 * GIB, running=listed, graphics=None))
    assert describe(found)[-1] == "  40.0 GiB in use, by whom is not visible here"
    (flaw,) = shared(found.taken())
    assert flaw.message.startswith("GPU 0 has 40.0 GiB in use, by whom is not visible here, 40.0 GiB of 141.0 GiB")


@pytest.mark.parametrize(
    "card",
    [
        Card(used=GIB // 2),  # the driver's
        Card(used=41 * GIB, graphics=[(7, None)]),  # how much of it is the screen's is not known
    ],
)
def test_memory_that_proves_nobody(machine: Any, card: Card) -> None:
    assert shared(machine(card).taken()) == []


def test_everything_refused(machine: Any) -> None:
    found = machine(NOTHING, driver=None, cuda=None)
    assert describe(found) == ["GPU 0: unknown model, memory unknown in use of unknown (no UUID)"]
    (gpu,) = found.gpus
    assert (gpu.processes, gpu.mig, gpu.nvlinks, gpu.visible, found.cuda) == (None, None, None, True, None)
    assert shared(found.taken()) == []
    assert unfit(found, [Wheel("torch", "2.11.0+cu130", "13.0", "/env")]) == []
    assert gpu_memory() == ()


def test_a_gpu_that_is_lost(machine: Any) -> None:
    found = machine(Card(lost=True), Card(uuid=TWO))
    assert describe(found)[1] == "GPU 0: cannot be read: GPU is lost"
    assert [device.place for device in found.taken()] == ["GPU 1"]
    assert gpu_memory() == ()


def test_an_old_driver_with_an_old_pynvml(machine: Any) -> None:
    """It knows the first questions only, and its texts are bytes."""
    found = machine(
        Card(used=GIB, running=[(9, GIB)]), first_version_only=True, bytes_for_text=True, names={9: "python"}
    )
    (gpu,) = found.gpus
    assert (gpu.name, found.driver, gpu.memory_used) == ("NVIDIA H200", "580.159.04", GIB + GIB // 2)
    assert [(p.pid, p.name) for p in gpu.processes or ()] == [(9, "python")]


def test_a_name_is_text_of_one_line_without_secrets(machine: Any) -> None:
    names = {1: "job \x1b[31m\nhf_" + "a" * 34, 2: ""}
    found = machine(Card(running=[(1, GIB), (999_999_999, GIB)]), names=names)
    first, second = found.gpus[0].processes or ()
    assert first.name == "job [31m ***"
    assert second.name is None
    assert "  a process (pid 999999999, 1.0 GiB)" in describe(found)


# -- which are seen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (None, "0 1"), ("", ""), ("1", "1"), ("1,0", "1 0"), (" 0 , 1", "0 1"), ("0,-1,1", "0"), ("-1", ""), ("0,7,1", "0"),
        ("NoDevFiles", ""), (TWO, "1"), ("GPU-2222", "1"), ("GPU-2222,0", "1 0"), ("GPU-", ""), ("GPU-3", ""), ("0,0", ""),
    ],
)  # fmt: skip
def test_cuda_visible_devices(machine: Any, said: str | None, seen: str) -> None:
    environment = {} if said is None else {"CUDA_VISIBLE_DEVICES": said}
    found = machine(Card(), Card(uuid=TWO), environment=environment)
    assert " ".join(str(device.index) for device in found.seen) == seen
    assert [gpu.visible for gpu in found.gpus] == [str(gpu.index) in seen for gpu in found.gpus]
    assert found.ordered


def test_only_what_the_run_takes_is_a_finding(machine: Any) -> None:
    cards = Card(), Card(uuid=TWO, used=9 * GIB, running=[(5, 9 * GIB)])
    assert shared(machine(*cards, environment={"CUDA_VISIBLE_DEVICES": "0"}).taken()) == []
    found = machine(*cards)
    assert [len(shared(found.taken(processes))) for processes in (None, 1, 2, 4)] == [1, 0, 1, 1]
    assert len(shared(machine(*cards, environment={"CUDA_VISIBLE_DEVICES": "1,0"}).taken(1))) == 1
    hidden = machine(*cards, environment={"CUDA_VISIBLE_DEVICES": "0"})
    assert "hidden by CUDA_VISIBLE_DEVICES" in describe(hidden)[2]


def test_numbers_of_unlike_gpus_are_cudas_own(machine: Any) -> None:
    cards = Card(name="Tesla T4"), Card(uuid=TWO, used=9 * GIB, running=[(5, 9 * GIB)])
    found = machine(*cards, environment={"CUDA_VISIBLE_DEVICES": "0"})
    assert [gpu.visible for gpu in found.gpus] == [None, None]
    assert describe(found)[-1].startswith("note: which GPUs CUDA_VISIBLE_DEVICES=0 means is not known")
    assert shared(found.taken()) == []
    everything = machine(*cards)
    assert [len(shared(everything.taken(n))) for n in (None, 1, 2)] == [1, 0, 1]
    by_bus = machine(*cards, environment={"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert [device.place for device in by_bus.taken(1)] == ["GPU 1"]
    by_uuid = machine(*cards, environment={"CUDA_VISIBLE_DEVICES": TWO})
    assert [device.place for device in by_uuid.taken(1)] == ["GPU 1"]


MIG = Card(
    mig=True, used=60 * GIB, running=[(5, 60 * GIB)],
    instances=[
        Card("NVIDIA H200 MIG 3g.71gb", "MIG-aaaa", 70 * GIB),
        Card("NVIDIA H200 MIG 4g.71gb", "MIG-bbbb", 70 * GIB, 60 * GIB, running=[(5, 60 * GIB)]),
    ],
)  # fmt: skip


def test_an_instance_is_not_shared_with_its_neighbour(machine: Any) -> None:
    free = machine(MIG, environment={"CUDA_VISIBLE_DEVICES": "MIG-aaaa"})
    assert [device.place for device in free.taken()] == ["MIG 0:0"]
    assert shared(free.taken()) == []
    taken = machine(MIG, environment={"CUDA_VISIBLE_DEVICES": "MIG-bbbb"})
    assert [flaw.message[:29] for flaw in shared(taken.taken())] == ["MIG 0:1 is in use by a process"[:29]]


def test_which_instance_is_not_known(machine: Any) -> None:
    found = machine(MIG)
    assert [found.gpus[0].visible, *(i.visible for i in found.gpus[0].instances)] == [None, None, None]
    assert found.taken() == ()
    assert describe(found)[1:] == [
        f"GPU 0: NVIDIA H200, memory 60.0 GiB in use of 141.0 GiB, compute capability 9.0, MIG mode, "
        f"whether a program sees it is not known ({ONE})",
        "  MIG 0:0: NVIDIA H200 MIG 3g.71gb, memory 0.0 GiB in use of 70.0 GiB, whether a program sees it is not known (MIG-aaaa)",
        "  MIG 0:1: NVIDIA H200 MIG 4g.71gb, memory 60.0 GiB in use of 70.0 GiB, whether a program sees it is not known (MIG-bbbb)",
        "    a process (pid 5, 60.0 GiB)",
    ]


def test_the_only_instance_is_what_is_seen(machine: Any) -> None:
    found = machine(Card(mig=True, instances=[Card("MIG 7g.141gb", "MIG-cccc")]))
    assert [device.place for device in found.taken(1)] == ["MIG 0:0"]
    assert found.gpus[0].visible is True


# -- how they are linked -----------------------------------------------------------------------------------------------


def test_nvlink(machine: Any) -> None:
    found = machine(Card(links=18, peers={1: "NVLink"}), Card(uuid=TWO, links=18))
    assert "18 NVLinks active" in describe(found)[1]
    assert describe(found)[-1] == "NVLink between GPUs 0-1"


@pytest.mark.parametrize(
    ("ways", "lines"),
    [
        (("NVLink", "NVLink", "NVLink"), ["NVLink between all 3 GPUs"]),
        (("NVLink", "PCIe", "PCIe"), ["NVLink between GPUs 0-1", "peer-to-peer over PCIe between GPUs 0-2, 1-2"]),
        (("none", "none", "none"), ["no peer-to-peer between all 3 GPUs"]),
        ((None, "none", "PCIe"), ["peer-to-peer over PCIe between GPUs 1-2", "no peer-to-peer between GPUs 0-2", "unknown links between GPUs 0-1"]),
    ],
)  # fmt: skip
def test_pairs(machine: Any, ways: tuple[str | None, ...], lines: list[str]) -> None:
    one, two, three = ways
    first = Card(peers={n: way for n, way in ((1, one), (2, two)) if way})
    found = machine(first, Card(uuid=TWO, peers={2: three} if three else {}), Card(uuid="GPU-3"))
    assert [line for line in describe(found) if "between" in line] == lines
    hidden = machine(Card(), Card(), environment={"CUDA_VISIBLE_DEVICES": "0"})
    assert hidden.peers == ()


# -- driver and wheels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "cuda", "wheel", "bad"),
    [
        ("535.183.01", 12020, "13.0", True), ("570.86.15", 12080, "13", True), ("470.57.02", 11040, "12.4", True),
        ("525.60.13", 12000, "12.8", False),  # minor version compatibility
        ("580.159.04", 13000, "12.8", False), ("580.65.06", 13000, "13.2", False),
        ("535.183.01", 13000, "13.0", False),  # a forward compatibility package
        ("535.183.01", None, "13.0", False), (None, 12020, "13.0", False),
        ("535.183.01", 12020, None, False), ("580.65.06", 13000, "14.0", True),
    ],
)  # fmt: skip
def test_old_driver(machine: Any, driver: str | None, cuda: int | None, wheel: str | None, bad: bool) -> None:
    found = machine(Card(), driver=driver, cuda=cuda)
    assert [flaw.rule for flaw in unfit(found, [Wheel("torch", "2.11.0", wheel, "/env")])] == ["old-driver"] * bad


def test_old_driver_says_what_to_do(machine: Any) -> None:
    found = machine(Card(), driver="535.183.01", cuda=12020)
    (flaw,) = unfit(found, [Wheel("torch", "2.11.0+cu130", "13.0", "/env")])
    assert str(flaw) == (
        "error[old-driver]: torch 2.11.0+cu130 (/env) is built for CUDA 13.0, and driver 535.183.01 runs CUDA 12.2 at "
        "most: it finds no GPU; install a driver for CUDA 13 (580 or newer), or a build for CUDA 12"
    )


def test_a_torch_without_cuda_and_two_cudas(machine: Any) -> None:
    found = machine(Card())
    cpu = unfit(found, [Wheel("torch", "2.13.0+cpu", "none", "/env"), Wheel("vllm", "0.25.1", "13", "/env")])
    assert [(flaw.severity, flaw.rule) for flaw in cpu] == [("error", "torch-without-cuda")]
    two = unfit(found, [Wheel("torch", "2.11.0+cu130", "13.0", "/env"), Wheel("vllm", "0.19.1", "12", "/env")])
    assert [flaw.rule for flaw in two] == ["two-cudas"]
    assert unfit(found, [Wheel("torch", "2.11.0+cu130", "13.0", "/env"), Wheel("vllm", "0.25.1", "13", "/env")]) == []


TORCH = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda!r}
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = None
"""
VLLM = "__version__: str\n\n__version__ = version = '{version}'\n__version_tuple__ = version_tuple = (0, 25, 1)\n"


def install(folder: Path, package: str, **files: str | bytes) -> None:
    home = folder / package
    home.mkdir(parents=True)
    for name, data in {"__init__.py": b"raise ImportError", **files}.items():
        (home / name).write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.mark.parametrize(
    ("text", "version", "cuda"),
    [
        (TORCH.format(version="2.11.0+cu130", cuda="13.0"), "2.11.0+cu130", "13.0"),
        (TORCH.format(version="2.13.0+cpu", cuda=None), "2.13.0+cpu", "none"),
        ("__version__ = '1.9.0'\ncuda = '11.1'\n", "1.9.0", "11.1"),
        ("", None, None),
    ],
)
def test_torch_is_read(tmp_path: Path, text: str, version: str | None, cuda: str | None) -> None:
    install(tmp_path, "torch", **{"version.py": text})
    assert wheels([str(tmp_path / "gone"), str(tmp_path)]) == [Wheel("torch", version, cuda, str(tmp_path))]


@pytest.mark.parametrize(
    ("version", "library", "cuda"),
    [
        ("0.25.1", b"\x7fELF\0libtorch.so\0libcudart.so.13\0", "13"),
        ("0.25.1", b"\x7fELF\0libtorch.so\0", None),
        ("0.25.1", b"", None),
        ("0.20.0+cu129", b"", "12.9"),
        ("0.20.1.dev3+gb8160878f.cu129", b"", "12.9"),
    ],
)
def test_vllm_is_read(tmp_path: Path, version: str, library: bytes, cuda: str | None) -> None:
    install(tmp_path, "vllm", **{"_version.py": VLLM.format(version=version), "_C.abi3.so": library})
    assert wheels([str(tmp_path)]) == [Wheel("vllm", version, cuda, str(tmp_path))]


def test_the_first_folder_wins_and_a_folder_alone_is_no_package(tmp_path: Path) -> None:
    install(tmp_path / "a", "torch", **{"version.py": TORCH.format(version="2.8.0", cuda="12.8")})
    install(tmp_path / "b", "torch", **{"version.py": TORCH.format(version="2.9.0", cuda="12.8")})
    (tmp_path / "a" / "vllm").mkdir()
    (found,) = wheels([str(tmp_path / "a"), str(tmp_path / "b")])
    assert found.version == "2.8.0"
    assert describe(Machine(), [found]) == [f"torch 2.8.0, CUDA 12.8 ({tmp_path / 'a'})"]


def test_the_functions_that_are_asked_exist() -> None:
    """Whatever is missing is taken for refused, so a misspelt name would never be seen."""
    module = pytest.importorskip("pynvml", reason="of the extra probe")
    source = Path(hardware.__file__).read_text("utf-8")
    asked = set(re.findall(r'"(nvml\w+|NVML_\w+)"', source)) | {"nvmlInit", "nvmlShutdown", "nvmlDeviceGetUUID"}
    asked |= {f"nvmlDeviceGet{kind}RunningProcesses" for kind in ("Compute", "MPSCompute", "Graphics")}
    assert [name for name in sorted(asked) if not hasattr(module, name)] == []
