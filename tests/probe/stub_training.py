"""What a training script looks like from outside: it writes the harness's records itself and then misbehaves.

`python stub_training.py WORD...`: the words are done in order. Not a test; needs nothing but the standard library.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

PROBE = json.loads(os.environ["TRL_LINT_PROBE"])
RANK = int(os.environ.get("RANK", "0"))
HERE = os.path.dirname(os.path.abspath(__file__))


def record(kind, **more):
    with open(os.path.join(PROBE["out"], f"rank-{RANK}.jsonl"), "a") as file:
        file.write(json.dumps({"kind": kind, **more}) + "\n")


def train(steps=None, seconds=0.01):
    record(
        "train", time=time.time(), pid=os.getpid(), rank=RANK, world=1, trainer="SFTTrainer", versions={"trl": "1.16.0"}
    )
    for step in range(1, (PROBE["steps"] if steps is None else steps) + 1):
        time.sleep(seconds)
        record(
            "step", step=step, seconds=seconds, generation=None, tokens=100, samples=4, loss=2.0 / step,
            logs={"reward": 0.5}, allocated=1000 * step, reserved=None, gpu_used=None,
        )  # fmt: skip


def elsewhere(*words, **more):
    return subprocess.Popen([sys.executable, __file__, *words], stdin=subprocess.DEVNULL, **more)


def do(word):
    word, _, value = word.partition("=")
    match word:
        case "train":
            train(int(value) if value else None)
        case "slowly":
            train(10_000, 0.05)
        case "end":
            record("end", steps=PROBE["steps"])
        case "error":
            record("error", type=value.partition(":")[0], message=value.partition(":")[2].strip())
        case "raise":
            kind, _, message = value.partition(":")
            raise {"ValueError": ValueError, "MemoryError": MemoryError, "OSError": OSError}[kind](message.strip())
        case "print":
            print(value, flush=True)
        case "complain":
            print(value, file=sys.stderr, flush=True)
        case "exit":
            sys.stdout.flush()
            os._exit(int(value))
        case "kill":
            os.kill(os.getpid(), getattr(signal, value))
        case "ask":
            input("Log in to W&B? ")
        case "hang":
            time.sleep(1000)
        case "chatter":
            while True:
                print("still here", flush=True)
                time.sleep(0.05)
        case "flood":  # MiB on each stream
            for number in range(int(value) * 256):
                os.write(1, b"%07d " % number + b"x" * 4087 + b"\n")
                os.write(2, b"y" * 4095 + b"\n")
        case "deaf":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        case "fork":  # workers that outlive us
            for _ in range(3):
                elsewhere("hang")
        case "daemon":  # left the session, its parent is gone, its environment is empty
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)", PROBE["out"]], {})
                os._exit(0)
        case "listen":  # a deaf daemon that holds a port
            elsewhere("deaf", f"hold={value}", start_new_session=True)
        case "hold" | "serve":
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", int(value)))
            held.listen()
            while True:
                connection = held.accept()[0]
                if word == "serve":
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                connection.close()
        case "spawn":  # a new process every moment, until somebody is faster
            while True:
                elsewhere("deaf", "hang", start_new_session=True)
                time.sleep(0.02)
        case "die":  # with exit code 7, so many seconds from now
            threading.Timer(float(value), os._exit, (7,)).start()
        case "stdin":
            print(repr(sys.stdin.read()), flush=True)
        case "write":
            with open(value, "w") as file:
                file.write("x")
        case _:
            raise SystemExit(
                f"usage: stub_training.py WORD...\nstub_training.py: error: unrecognized arguments: {word}"
            )


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        do(argument)
