"""A judged script, recipe or launch file in; the command that starts its training, and the server that it needs, out.

What is run is what the project's launch file says, without what it does before and after. Where a word of it is not
written there (`$MODEL`, `"$@"`), the launch file itself is run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trl_lint.model import Argument, Known
from trl_lint.probe.trials import ServerSpec
from trl_lint.rulebook.files import Examined
from trl_lint.runs import SERVING, Run, port_of
from trl_lint.runs.launches import Launch
from trl_lint.sources.look import kind_of


class CannotStart(ValueError):
    """One line: why it is not known what to run, and what to do."""


@dataclass(frozen=True)
class Start:
    """`command` runs in `folder`, relative to the project, beside `server`. `said` is where that is written."""

    command: tuple[str, ...]
    folder: Path = Path()
    environment: Mapping[str, str] = field(default_factory=dict)
    server: ServerSpec | None = None
    said: str = ""


def start(
    examined: Examined, path: str, *, launcher: str | None, arguments: Sequence[str], project: Path, here: Path
) -> Start:
    """How `path` is started. `here` is the folder that relative paths mean, within `project`. Raises CannotStart.

    A `launcher` given by hand is put before the script. Else one launch in the project's files decides; a script that
    nothing launches is started by this Python.
    """
    inside = here.relative_to(project) if here.is_relative_to(project) else Path()
    kind = kind_of(path)
    if kind == "notebook":
        raise CannotStart(f"{path}: a notebook cannot be started by itself; export it as a script and probe that")
    if launcher is not None:
        script = _within(path, project, inside) if kind == "python" else None
        words = (*shlex.split(launcher), *((script,) if script is not None else ()), *arguments)
        return Start(words, inside, server=_server(_runs(examined, path), project, here, inside))
    runs = _runs(examined, path)
    launched = {run.launch.command.span: run for run in runs if run.launch is not None}
    if not launched:
        if kind != "python":
            raise CannotStart(
                f'{path}: no command of the project starts it; say which: --launcher "python train.py --config {path}"'
            )
        return Start((sys.executable, _within(path, project, inside), *arguments), inside)
    if len(launched) > 1:
        places = sorted((span.path, span.line) for span in launched)
        if len({place for place, _ in places}) == 1 and places[0][0] == path:
            lines = ", ".join(str(line) for _, line in places)
            raise CannotStart(f"{path}: starts {len(places)} trainings (lines {lines}); say which with --launcher")
        shown = ", ".join(f"{place}:{line}" for place, line in places)
        raise CannotStart(f"{path}: started at {shown}; probe one of those files, or say --launcher")
    return _launched(next(iter(launched.values())), path, arguments, project, here, inside)


def _launched(run: Run, path: str, arguments: Sequence[str], project: Path, here: Path, inside: Path) -> Start:
    assert run.launch is not None
    command = run.launch.command
    said = f"{command.span.path}:{command.span.line}"
    words = [word.text for word in command.words]
    file = kind_of(path) not in ("python", "recipe")
    if run.launch.host is not None:
        raise CannotStart(f"{said} starts it on another machine; probe it there, or say --launcher")
    if None in words or command.quoted:
        if file and path.endswith((".sh", ".bash", ".slurm", ".sbatch")):
            return Start(("bash", _within(path, project, inside), *arguments), inside, said=path)
        if file:
            raise CannotStart(f"{said}: not all words are written there; say the whole command with --launcher")
        raise CannotStart(f"{said} starts it, but not all words are written there; probe that file, or say --launcher")
    known = tuple(_python(word) if index == 0 else word for index, word in enumerate(words) if word is not None)
    folder = _folder(run.launch, project, here, inside)
    return Start(
        (*known, *arguments), folder, _environment(command.environment), _server([run], project, here, inside), said
    )


def _runs(examined: Examined, path: str) -> list[Run]:
    """The trainings that a file leads, configures or launches."""
    return [run for run in examined.runs if run.method not in (None, SERVING) and path in (*run.paths, run.module.path)]


def _python(word: str) -> str:
    """Where there is no `python` on the path, the one that runs us is meant."""
    return sys.executable if word in ("python", "python3") and shutil.which(word) is None else word


def _within(path: str, project: Path, inside: Path) -> str:
    """The path as seen from the folder that the command runs in."""
    return Path(os.path.relpath(Path(path).resolve(), project / inside)).as_posix()


def _folder(launch: Launch, project: Path, here: Path, inside: Path) -> Path:
    """The folder in which what the command names is there: this one, the launch file's, the project's."""
    config = launch.config.value if launch.config is not None else None
    named = [launch.program, config.value if isinstance(config, Known) else None]
    names = [name for name in named if isinstance(name, str) and not Path(name).is_absolute()]
    beside = (here / launch.command.span.path).parent.resolve()
    for folder in (project / inside, beside, project):
        if folder.is_relative_to(project) and all((folder / name).exists() for name in names):
            return folder.relative_to(project)
    return inside


def _environment(given: Mapping[str, Argument]) -> dict[str, str]:
    """What the file sets, as far as it says to what."""
    return {name: str(argument.value.value) for name, argument in given.items() if isinstance(argument.value, Known)}


def _server(runs: Sequence[Run], project: Path, here: Path, inside: Path) -> ServerSpec | None:
    """The server that the launch files start beside the training."""
    servers = {server.command.span: server for run in runs for server in run.servers}
    if not servers:
        return None
    server = next(iter(servers.values()))
    words = [word.text for word in server.command.words]
    port = port_of(server)
    where = f"{server.command.span.path}:{server.command.span.line}"
    if len(servers) > 1 or server.host is not None or None in words or not isinstance(port, Known):
        raise CannotStart(f"{where}: how its server is started is not all written there; probe the launch file itself")
    path = "/health/" if server.server == "trl vllm-serve" else "/health"
    return ServerSpec(
        tuple(_python(word) if index == 0 else word for index, word in enumerate(words) if word is not None),
        f"http://127.0.0.1:{port.value}{path}",
        cwd=_folder(server, project, here, inside),
        environment=_environment(server.command.environment),
    )
