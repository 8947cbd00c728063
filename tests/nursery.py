"""Trials whose imports have been done before: importing torch and TRL takes many times as long as what is measured of a trial.

`python nursery.py serve SOCKET SCRIPTS...` imports what these scripts and their neighbours import, and waits on
that Unix socket until its standard input ends. `python nursery.py fork SOCKET SCRIPT` has a script run in a fork of it, with
its own arguments, folder, environment and standard streams, and ends as the script does; if it is ended the fork is too. The
fork imports the harness as a starting Python would. `started` does the first and gives the words of the second.
"""

import ast
import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile


@contextlib.contextmanager
def started(python, scripts, environment):
    """The words before a script's name that run it in a fork of a process which has imported what `scripts` import.

    `python` are the words that start the interpreter. RuntimeError if something cannot be imported, or not be forked.
    """
    with tempfile.TemporaryDirectory(prefix="nursery-") as folder:
        door = os.path.join(folder, "door")
        process = subprocess.Popen(
            [*python, os.path.abspath(__file__), "serve", door, *map(os.path.abspath, scripts)],
            stdin=subprocess.PIPE,  # it ends when this does
            stdout=subprocess.PIPE,
            # Without it torch asks CUDA itself whether there is a GPU, and CUDA that was asked cannot be forked.
            env={**environment, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
            start_new_session=True,  # Ctrl-C ends the trials first
        )
        with process:
            # It may print while it imports.
            if not any(line.strip() == b"nursery: ready" for line in process.stdout):
                raise RuntimeError(f"{python[0]} cannot fork what it has imported for the scripts")
            # -I -S: what only waits for a fork needs no packages.
            yield (*python, "-I", "-S", os.path.abspath(__file__), "fork", door)


def serve(path, scripts):
    """Have the imports done, then fork for each that asks."""
    for script in scripts:
        anticipate(script)
    gc.collect()
    gc.freeze()  # a fork leaves these objects where they are
    if not usable():
        return 1
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a keeper
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(64)
        ready = select.poll()
        ready.register(door, select.POLLIN)
        ready.register(0, select.POLLIN | select.POLLHUP)
        print("nursery: ready", flush=True)
        while all(descriptor != 0 for descriptor, _ in ready.poll()):
            client, _ = door.accept()
            if os.fork() == 0:
                door.close()
                os._exit(keep(client))
            client.close()
    return 0


def anticipate(script):
    """What the script imports at its top, so that it need not; of its neighbours, of which each trial has its own, likewise."""
    with open(script, encoding="utf-8") as file:
        tree = ast.parse(file.read(), script)
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            modules = [statement.module]
        else:
            continue
        paths = [os.path.join(os.path.dirname(script), f"{module.partition('.')[0]}.py") for module in modules]
        beside = [path for path in paths if os.path.exists(path)]
        for path in beside:
            anticipate(path)
        if not beside and modules != ["__future__"]:
            exec(compile(ast.Module([statement], []), script, "exec"), {})


def usable():
    """Whether a fork can use the GPU, if there is one: something that was imported may have used it already."""
    child = os.fork()
    if child == 0:
        torch = sys.modules.get("torch")
        try:
            if torch is not None and torch.cuda.is_available():
                torch.zeros(1, device="cuda")
        except Exception as error:
            print(f"nursery: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


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


def train(streams, words, folder, environment):
    """What Python does when it is started with a script and its arguments."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    script = words[0]
    sys.argv, sys.path[0] = words, os.path.dirname(os.path.join(folder, script))
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.modules.pop("sitecustomize", None)
    code = 0
    try:
        with contextlib.suppress(ModuleNotFoundError):
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


def ask(path, words):
    """Run the script in a fork; its exit code, or the signal that ended it, as a shell says it."""
    request = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        socket.send_fds(client, [json.dumps(request).encode()], [0, 1, 2])
        code = int(client.recv(16) or 1)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    _, verb, place, *rest = sys.argv
    sys.exit({"serve": serve, "fork": ask}[verb](place, rest))
