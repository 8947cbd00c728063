"""The words of a command that runs another in; the script that it carries out, or the environment that it gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from trl_lint.model import Argument
from trl_lint.sources.shell_values import Chunk, Field, Variable

SHELLS = {"bash", "sh", "zsh", "dash", "ksh"}
QUIET = {"echo", "printf", "which", "type", "grep", "man", "command", "sed", "awk", "cat", "tee", "alias", "trap"}
ENV_WRAPPERS = {"nohup", "setsid", "time", "exec", "sudo", "command", "nice", "stdbuf", "srun", "builtin"}
GIVING = ENV_WRAPPERS | {"env", "docker", "podman", "timeout"}
REMOTE = {"ssh", "srun"}
AWAY = {"docker", "podman", "kubectl", "ssh"}
SSH_VALUES = set("BbcDEeFIiJLlmOopQRSWw")
TMUX_RUNS = {"new", "new-session", "new-window", "neww", "split-window", "splitw", "respawn-pane", "respawn-window"}
TMUX_VALUES = {"-s", "-n", "-t", "-c", "-x", "-y", "-F", "-L", "-S", "-f", "-l", "-p"}


class Carried(NamedTuple):
    """The script in a command: its text, the scope it runs in, the wrapper's words to keep, whether it is left alone."""

    chunks: list[Chunk]
    scope: Literal["same", "child", "remote"]
    kept: Sequence[Field] = ()
    alone: bool = False


def base_name(text: str | None) -> str:
    return (text or "").rsplit("/", 1)[-1]


def carried(fields: Sequence[Field], given: list[Chunk] | None, data: bytes) -> Carried | None:
    """The script in a command, if there is one; `given` is what the command reads, `data` the whole file."""
    first = base_name(fields[0].text)
    if first in QUIET:
        return None
    if first == "eval":
        return Carried(_glued(fields[1:], data), "same")
    texts = [field.text for field in fields]
    for index, text in enumerate(texts):
        if text is not None and text.endswith("sh") and base_name(text) in SHELLS:
            script = _shell_script(fields, index, given)
            if script is None:
                continue
            wrapper = next((i for i in range(index) if base_name(texts[i]) in REMOTE), index)
            away = first in AWAY or any(base_name(text) == "ssh" for text in texts[:3])
            kept = fields[wrapper:index]
            return Carried(list(script), "remote" if away else "child", kept, first in ("screen", "tmux"))
    for index, text in enumerate(texts[:4]):
        name = base_name(text)
        if name == "ssh":
            return _ssh(fields, index, given, data)
        if name == "tmux":
            return _tmux(fields, index, data)
        if name == "sbatch":
            return _sbatch(fields, index, given)
    return None


def _shell_script(fields: Sequence[Field], index: int, given: list[Chunk] | None) -> Sequence[Chunk] | None:
    """The string of `bash -c`, or the heredoc of a `bash` that is given no file."""
    at = index + 1
    while at < len(fields):
        option = fields[at].text or ""
        if re.fullmatch(r"-[a-z]*c", option):
            return fields[at + 1].chunks if at + 1 < len(fields) else None
        if option in ("-s", "-"):
            return given
        if not option.startswith(("-", "+")):
            return None
        at += 2 if option in ("-o", "+o", "-O", "--rcfile", "--init-file") else 1
    return given


def _ssh(fields: Sequence[Field], index: int, given: list[Chunk] | None, data: bytes) -> Carried | None:
    at = index + 1
    while at < len(fields) and (fields[at].text or "").startswith("-"):
        option = fields[at].text or ""
        at += 2 if len(option) == 2 and option[1] in SSH_VALUES else 1
    rest = fields[at + 1 :]
    script = _glued(rest, data) if rest else given
    return Carried(script, "remote", fields[index : at + 1]) if script else None


def _tmux(fields: Sequence[Field], index: int, data: bytes) -> Carried | None:
    texts = [field.text for field in fields]
    at = index + 1
    while at < len(fields) and (texts[at] or "").startswith("-"):
        at += 2 if texts[at] in TMUX_VALUES else 1
    if at >= len(fields):
        return None
    action = texts[at] or ""
    at += 1
    while at < len(fields) and (texts[at] or "").startswith("-"):
        at += 2 if texts[at] in TMUX_VALUES or (texts[at] or "-")[-1] in "stnc" or texts[at] == "-e" else 1
    rest = fields[at:]
    if action in ("send-keys", "send"):
        rest = [field for field in rest if field.text not in ("C-m", "Enter", "ENTER", "KPEnter")]
        return Carried(_glued(rest, data), "child", alone=True) if rest and rest[0].text not in ("C-c", "C-d") else None
    if action in TMUX_RUNS and rest:
        return Carried(_glued(rest, data), "child", alone=True)
    return None


def _sbatch(fields: Sequence[Field], index: int, given: list[Chunk] | None) -> Carried | None:
    for at, field in enumerate(fields[index + 1 :], index + 1):
        head = field.chunks[0].text if field.chunks else None
        if head == "--wrap" and len(field.chunks) == 1 and at + 1 < len(fields):
            return Carried(list(fields[at + 1].chunks), "child")
        if head is not None and head.startswith("--wrap="):
            chunk = field.chunks[0]
            cut = chunk._replace(text=head[7:], start=chunk.start + (7 if chunk.same else 0))
            return Carried([c for c in (cut, *field.chunks[1:]) if c.text != ""], "child")
    if given and all((field.text or "").startswith("-") for field in fields[index + 1 :]):
        return Carried(given, "child")
    return None


def _glued(fields: Sequence[Field], data: bytes) -> list[Chunk]:
    """Several words joined by blanks, as `eval` and `ssh` do."""
    chunks: list[Chunk] = []
    for field in fields:
        if chunks:
            gap = (chunks[-1].end, field.chunks[0].start) if field.chunks else (0, 0)
            same = gap[1] == gap[0] + 1 and data[gap[0] : gap[1]] == b" "
            chunks.append(Chunk(" ", *(gap if same else (field.start, field.start)), same=same))
        chunks += field.chunks
    return chunks


def wrapped_environment(
    fields: Sequence[Field],
    environment: Mapping[str, Argument],
    container: int,
    argument: Callable[[str, Variable], Argument],
) -> Mapping[str, Argument]:
    """What `env A=b`, `sudo A=b` and `docker run -e A=b` give the command behind them, on top of its `environment`.

    `container` is where the command begins; `argument` makes an entry of an environment of a variable.
    """
    if base_name(fields[0].text) not in GIVING:
        return environment
    texts = [field.text for field in fields]
    if base_name(texts[0]) in ("docker", "podman") and "run" in texts[:3]:
        found = dict(environment)
        for option, field in zip(texts, fields[1:], strict=False):
            if option in ("-e", "--env") and (given := _given(field, container)) is not None:
                found[given[0]] = argument(*given)
        return found
    index = 0
    while index < len(texts) and (base_name(texts[index]) in ENV_WRAPPERS or (texts[index] or "").startswith("-")):
        index += 1
    wrapper = base_name(texts[index]) if index < len(texts) else ""
    if wrapper == "env":
        index += 1
    elif index == 0 or base_name(texts[index - 1]) != "sudo":
        return environment
    found = dict(environment)
    while index < len(fields):
        text = texts[index]
        if text in ("-i", "-", "--ignore-environment"):
            found.clear()
        elif text in ("-u", "--unset", "-C", "--chdir"):
            index += 1
            if text in ("-u", "--unset") and index < len(fields):
                found.pop(texts[index] or "", None)
        elif text is not None and text.startswith("--unset="):
            found.pop(text[8:], None)
        elif text is None or not text.startswith("-"):
            given = _given(fields[index], container)
            if given is None:
                break
            found[given[0]] = argument(*given)
        index += 1
    return found


def _given(field: Field, container: int) -> tuple[str, Variable] | None:
    """The variable that a word `NAME=value` sets."""
    first = field.chunks[0].text if field.chunks else None
    match = re.match(r"([A-Za-z_]\w*)=", first or "")
    if match is None or first is None:
        return None
    rest = first[match.end() :]
    low = field.chunks[0]._replace(
        text=rest, start=field.chunks[0].start + (match.end() if field.chunks[0].same else 0)
    )
    chunks = tuple(chunk for chunk in (low, *field.chunks[1:]) if chunk.text != "")
    at = (low.start, field.end) if field.chunks[0].same else (field.start, field.end)
    variable = Variable(chunks, None, (field.start, field.end), (min(at[0], at[1]), at[1]), container)
    return match[1], variable
