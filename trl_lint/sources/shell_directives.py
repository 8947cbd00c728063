"""The `#SBATCH` lines of a batch script in; entries of every command's environment out."""

from __future__ import annotations

import re

from trl_lint.model import Argument, Known, Place, Written
from trl_lint.sources.text import Text

SLURM = {
    "N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus-per-task", "p": "partition", "J": "job-name", "t": "time",
    "o": "output", "e": "error", "w": "nodelist", "x": "exclude", "A": "account", "q": "qos", "a": "array",
    "d": "dependency", "C": "constraint", "D": "chdir",
}  # fmt: skip


def directives(text: Text) -> dict[str, Argument]:
    """Those before the first command, by their long names: `-N 2` is `#SBATCH nodes`."""
    found: dict[str, Argument] = {}
    at = 0
    for line in text.utf8.splitlines(keepends=True):
        stripped = line.strip()
        if stripped and not stripped.startswith(b"#"):
            break
        if stripped.startswith(b"#SBATCH"):
            _directive(text, at, line.rstrip(), found)
        at += len(line)
    return found


def _directive(text: Text, at: int, line: bytes, found: dict[str, Argument]) -> None:
    low = line.find(b"#SBATCH")
    line = re.split(rb"\s#", line)[0].rstrip()
    for match in re.finditer(rb"\s--?([A-Za-z][\w-]*)(?:[= \t]*(\"[^\"]*\"|'[^']*'|[^\s-][^\s]*|-?\d[^\s]*))?", line):
        name, value = match[1].decode(), match[2]
        start, end = (match.start(2), match.end(2)) if value is not None else (match.end(), match.end())
        if not match[0].lstrip().startswith(b"--"):
            if len(name) > 1:  # -N2
                value, start = line[match.start(1) + 1 : match.end(1)], match.start(1) + 1
                end = match.end(1)
            name = SLURM.get(name[0], name[0])
        if value is not None and value[:1] in b"\"'":
            value, start, end = value[1:-1], start + 1, end - 1
        said = text.span(at + start, at + end)
        place = Place("env", text.span(at + low, at + len(line)), said, text.byte(at + low))
        key = f"#SBATCH {name}"
        found[key] = Argument(key, Known((value or b"").decode(errors="replace"), Written(said)), place)
