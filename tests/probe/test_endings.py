"""Texts as launchers, PyTorch, NCCL, vLLM and the hub print them; what is made of them."""

from __future__ import annotations

import random

import pytest

from trl_lint.probe.endings import LONGEST, Ending, Raised, classify, last_line, raised

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    trainer.train()\n'


def ending(stderr: str, code: int = 1, *, stdout: str = "", reason: str = "ended", steps: int = 8) -> Ending:
    report = {"reason": reason, "returncode": code, "seconds": 60.0, "stderr": stderr, "stdout": stdout, "problems": []}
    return classify(report, {}, steps)


TORCHRUN_OOM = """\
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 9, in <module>
[rank0]:   File "/job/train.py", line 9, in <module>
[rank1]:     main()
[rank0]:     main()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 139.81 GiB
[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.
W1130 12:00:00.000000 140 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 141 closing signal SIGTERM
E1130 12:00:01.000000 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 1 (pid: 142)
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 142)
============================================================
"""
ACCELERATE = """\
Traceback (most recent call last):
  File "/job/train.py", line 2, in <module>
    trainer = GRPOTrainer(model, reward_funcs=[])
  File "/venv/lib/python3.12/site-packages/trl/trainer/grpo_trainer.py", line 300, in __init__
    raise ValueError("...")
ValueError: The generation batch size (6) must be divisible by num_generations (8)
Traceback (most recent call last):
  File "/venv/bin/accelerate", line 10, in <module>
    sys.exit(main())
subprocess.CalledProcessError: Command '['/venv/bin/python', 'train.py']' returned non-zero exit status 1.
"""
VLLM = """\
(EngineCore_DP0 pid=4242) ERROR 11-30 12:00:00 [core.py:842] EngineCore failed to start.
(EngineCore_DP0 pid=4242) ERROR 11-30 12:00:00 [core.py:842] Traceback (most recent call last):
(EngineCore_DP0 pid=4242) ERROR 11-30 12:00:00 [core.py:842]   File "/v/core.py", line 833, in run_engine_core
(EngineCore_DP0 pid=4242) ERROR 11-30 12:00:01 [core.py:842]     engine_core = EngineCoreProc(*args, **kwargs)
(EngineCore_DP0 pid=4242) ERROR 11-30 12:00:01 [core.py:842] ValueError: Free memory on device (20.1/139.8 GiB) on startup is less than desired GPU memory utilization (0.9, 125.8 GiB).
Traceback (most recent call last):
  File "/job/train.py", line 5, in <module>
    trainer = GRPOTrainer(...)
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
NCCL = (
    TRACE
    + """torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 40000
"""
)
HUB = (
    TRACE
    + """
The above exception was the direct cause of the following exception:

"""
    + TRACE
    + "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.\n"
)
PORT = TRACE + (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
)
SHELL_KILL = """\
Traceback (most recent call last):
  File "/venv/bin/accelerate", line 10, in <module>
    sys.exit(main())
subprocess.CalledProcessError: Command '['/venv/bin/python', 'train.py']' died with <Signals.SIGKILL: 9>.
"""
TORCHRUN_SEGV = """\
E1130 12:00:01.000000 140 torch/x.py:874] failed (exitcode: -11) local_rank: 1 (pid: 142) of binary: python
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  exitcode  : -15 (pid: 141)
  exitcode  : -11 (pid: 142)
  traceback : Signal 11 (SIGSEGV) received by PID 142
"""
ABORT = """\
terminate called after throwing an instance of 'c10::AcceleratorError'
  what():  CUDA error: out of memory
Fatal Python error: Aborted
"""


@pytest.mark.parametrize(
    ("stderr", "code", "outcome", "cause", "error"),
    [
        (TORCHRUN_OOM, 1, "out of memory", "memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 139.81 GiB"),
        (ACCELERATE, 1, "raised", "error", "ValueError: The generation batch size (6) must be divisible by num_generations (8)"),
        (VLLM, 1, "out of memory", "memory", "ValueError: Free memory on device (20.1/139.8 GiB) on startup is less than desired GPU memory utilization (0.9, 125.8 GiB)."),
        (NCCL, 1, "raised", "nccl", "NCCL failed: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9"),
        (HUB, 1, "raised", "hub", "the hub was not reached: OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files."),
        (TRACE + "huggingface_hub.errors.GatedRepoError: 401 Client Error.\n", 1, "raised", "hub", "the hub does not give it: huggingface_hub.errors.GatedRepoError: 401 Client Error."),
        (TRACE + "ConnectionError: Couldn't reach 'trl-lib/tldr' on the Hub (LocalEntryNotFoundError)\n", 1, "raised", "hub", "the hub was not reached: ConnectionError: Couldn't reach 'trl-lib/tldr' on the Hub (LocalEntryNotFoundError)"),
        (TRACE + "OSError: my/model is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'\n", 1, "raised", "hub", "the hub does not give it: OSError: my/model is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'"),
        (PORT, 1, "raised", "port", None),
        (TRACE + "OSError: [Errno 122] Disk quota exceeded: 'x'\n", 1, "raised", "disk", "the disk is full: OSError: [Errno 122] Disk quota exceeded: 'x'"),
        (TRACE + "EOFError: EOF when reading a line\n", 1, "raised", "stdin", None),
        (TRACE + "EOFError: Ran out of input\n", 1, "raised", "error", "EOFError: Ran out of input"),
        (TRACE + "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory\n", 1, "out of memory", "memory", None),
        (SHELL_KILL, 1, "out of memory", "memory", "killed by SIGKILL before training, as happens when the machine runs out of memory"),
        (TORCHRUN_SEGV, 1, "killed", "signal", None),
        (ABORT, -6, "out of memory", "memory", "killed by SIGABRT before training: what(): CUDA error: out of memory"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0\nsrun: error: task 0: Out Of Memory\n", 1, "out of memory", "memory", None),
        ('  File "train.py", line 3\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n', 1, "raised", "error", "SyntaxError: invalid syntax"),
        (TRACE + "ValueError:\nthe text stands on the next line\n", 1, "raised", "error", "ValueError: the text stands on the next line"),
        (TRACE + "AssertionError\n", 1, "raised", "error", "AssertionError"),
        ("0: " + TRACE.replace("\n", "\n0: ") + "KeyError: 'x'\n", 1, "raised", "error", "KeyError: 'x'"),
        ("usage: train.py [-h] --model MODEL\ntrain.py: error: the following arguments are required: --model\n", 2, "refused", "usage", "train.py: error: the following arguments are required: --model"),
        ("Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --lr\n", 2, "refused", "usage", "Error: No such option: --lr"),
        ("usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --x\n" + ACCELERATE[ACCELERATE.rindex("Traceback"):], 1, "refused", "usage", "train.py: error: unrecognized arguments: --x"),
        ("\x1b[31mbad luck\x1b[0m\n\n", 5, "raised", "error", "exit code 5 before training: bad luck"),
        ("", 5, "raised", "error", "exit code 5 before training: it printed nothing"),
    ],
)  # fmt: skip
def test_what_is_made_of_it(stderr: str, code: int, outcome: str, cause: str, error: str | None) -> None:
    found = ending(stderr, code)
    assert (found.outcome, found.cause) == (outcome, cause)
    assert found.error
    assert error is None or found.error == error


def test_progress_bars_show_their_last_state() -> None:
    assert last_line("  0%|  | 0/8\r 12%|# | 1/8\r 25%|## | 2/8\n\n") == "25%|## | 2/8"


def test_a_hang_after_an_error_names_it() -> None:
    found = ending(TRACE + "ValueError: bad reward\n", reason="progress")
    assert (found.outcome, found.error) == (
        "hung",
        "no step and no output any more before training; ended after 60 s; it never called a trainer's train(); "
        "its last line: ValueError: bad reward",
    )
    assert ending(TORCHRUN_OOM, reason="time").outcome == "out of memory"


def test_a_message_of_many_lines_keeps_its_first_and_knows_the_others() -> None:
    (one,) = raised(NCCL)
    assert one.type == "torch.distributed.DistBackendError"
    assert "Duplicate GPU detected" in one.more


def test_warnings_and_handled_errors_are_no_reason_for_a_run_that_left_well() -> None:
    report = {
        "reason": "ended",
        "returncode": 0,
        "seconds": 1.0,
        "stderr": TRACE + "ValueError: caught\n",
        "stdout": "",
    }
    ranks = {0: [{"kind": "train"}, {"kind": "end"}]}
    assert classify(report, ranks, 8, done=8) == Ending("trained", "none")


def test_the_lost_ranks_blame_the_one_that_failed() -> None:
    report = {"reason": "ended", "returncode": 1, "seconds": 1.0, "stderr": "", "stdout": ""}
    lost = {"kind": "error", "type": "torch.distributed.DistBackendError", "message": "NCCL communicator was aborted"}
    full = {"kind": "error", "type": "torch.OutOfMemoryError", "message": "CUDA out of memory."}
    bad = {"kind": "error", "type": "ValueError", "message": "bad"}
    train = {"kind": "train"}
    assert classify(report, {0: [train, lost], 1: [train, full]}, 8).outcome == "out of memory"
    assert classify(report, {0: [train, lost], 1: [train, bad]}, 8).error == "ValueError: bad"
    assert classify(report, {0: [train, lost], 1: [train]}, 8).cause == "nccl"


def test_a_line_is_one_line_of_bounded_length_without_secrets() -> None:
    found = ending(TRACE + "ValueError: HF_TOKEN=hf_abcdefghijklmnopqrst " + "x" * 5000 + "\n")
    assert found.error
    assert len(found.error) == LONGEST
    assert "hf_abc" not in found.error


def test_any_text_has_an_ending() -> None:
    """Cut and shuffled, the texts above still give one line."""
    chance = random.Random(0)
    parts = [TORCHRUN_OOM, ACCELERATE, VLLM, NCCL, HUB, PORT, SHELL_KILL, TORCHRUN_SEGV, ABORT, "\r\x1b[", "�\0\n"]
    for _ in range(400):
        text = "".join(chance.sample(parts, 3))
        begin = chance.randrange(len(text))
        found = ending(text[begin : begin + chance.randrange(1, 3000)], chance.choice([0, 1, 2, 137, -6, -9, 255]))
        assert found.error
        assert "\n" not in found.error


def test_an_exception_shows_as_it_was_printed() -> None:
    assert Raised("ValueError", "").line == "ValueError"
    assert Raised("ValueError", "x").line == "ValueError: x"
