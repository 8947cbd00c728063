"""Trials whose imports have been done before: importing torch and TRL takes many times as long as what is measured of a trial.

`python nursery.py SOCKET` imports what the scripts import and waits on that Unix socket, until its standard input ends.
`python nursery.py SOCKET SCRIPT` has the script run in a fork of it, with its own folder, environment and standard streams,
and ends as the script does; if it is ended the fork is too. The fork imports the harness as a starting Python would.
"""

import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys


def serve(path):
    """Have the imports done, then fork for each that asks."""
    import datasets  # noqa: F401
    import torch  # noqa: F401
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: F401
    from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer  # noqa: F401

    gc.collect()
    gc.freeze()  # a fork leaves these objects where they are
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a keeper
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(64)
        ready = select.poll()
        ready.register(door, select.POLLIN)
        ready.register(0, select.POLLIN | select.POLLHUP)
        print("ready", flush=True)
        while all(descriptor != 0 for descriptor, _ in ready.poll()):
            client, _ = door.accept()
            if os.fork() == 0:
                door.close()
                os._exit(keep(client))
            client.close()


def keep(client):
    """One trial, from its request to its end or its client's."""
    os.setsid()  # as each trial of a probe has a session of its own: Linux shares the cores out by session
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
    trial = os.fork()
    if trial == 0:
        client.close()
        os._exit(train(streams, **json.loads(request)))
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(trial)
    ready = select.poll()
    ready.register(ended, select.POLLIN)
    ready.register(client, select.POLLIN | select.POLLHUP)
    if all(descriptor != ended for descriptor, _ in ready.poll()):
        os.kill(trial, signal.SIGKILL)
    _, status = os.waitpid(trial, 0)
    with contextlib.suppress(OSError):  # who was ended hears nothing
        client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    return 0


def train(streams, script, folder, environment):
    """What Python does when it is started with a script."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, sys.path[0] = [script], folder
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.modules.pop("sitecustomize", None)
    code = 0
    try:
        import sitecustomize  # noqa: F401

        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else error.code is not None
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def ask(path, script):
    """Run the script in a fork; its exit code, or the signal that ended it, as a shell says it."""
    request = {"script": script, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        socket.send_fds(client, [json.dumps(request).encode()], [0, 1, 2])
        code = int(client.recv(16) or 1)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]) if len(sys.argv) == 2 else ask(*sys.argv[1:]))
