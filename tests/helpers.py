"""Running the tool on a text as the command line would, without the command line."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from trl_lint import rulebook
from trl_lint.facts import Overrides
from trl_lint.facts import forget as forget_facts
from trl_lint.fixing import Fixed, fix_file
from trl_lint.rulebook.files import Context, Examined, examine, examine_group
from trl_lint.settings import Settings
from trl_lint.sources.text import Text

ROOT = Path(__file__).parent.parent


@cache
def all_rules() -> tuple[rulebook.Rule, ...]:
    return rulebook.load(ROOT / "rules")


def context(
    only: str | None = None,
    *,
    possible: bool = False,
    rules: tuple[rulebook.Rule, ...] | None = None,
    target: str | None = None,
    **facts: str,
) -> Context:
    """A context without settings. Facts by hand are given as `trl="1.16.0"`, `gpu="a100:8"`; `target` as `--target-trl`."""
    gpu = facts.pop("gpu", None)
    overrides = Overrides({name.replace("_", "-"): version for name, version in facts.items()}, gpu, None)
    chosen = rules if rules is not None else all_rules()
    return Context(
        os.getcwd(),
        tuple(r for r in chosen if only in (None, r.name)),
        overrides,
        lambda _path: Settings(),
        possible=possible,
        target=target,
    )


def lint(
    code: str | bytes, only: str | None = None, *, path: str = "/nowhere/train.py", possible: bool = False, **facts: str
) -> Examined:
    """Judge a text as if it stood in a folder with nothing else."""
    forget_facts()
    data = code.encode() if isinstance(code, str) else code
    return examine(path, Text(path, data), context(only, possible=possible, **facts))


def fix(
    code: str | bytes, only: str | None = None, *, unsafe: bool = False, path: str = "/nowhere/train.py", **facts: str
) -> Fixed:
    """Judge and fix a text; `unsafe` also applies what needs consent."""
    made = context(only, **facts)
    data = code.encode() if isinstance(code, str) else code
    return fix_file(examine(path, Text(path, data), made), made, unsafe=unsafe)


def lint_files(
    files: dict[str, str],
    only: str | None = None,
    *,
    possible: bool = False,
    target: str | None = None,
    **facts: str,
) -> Examined:
    """Judge files that stand together in a folder with nothing else."""
    forget_facts()
    texts = {path: Text(path, code.encode()) for path, code in files.items()}
    return examine_group(texts, context(only, possible=possible, target=target, **facts))


def fix_files(
    files: dict[str, str], only: str | None = None, *, unsafe: bool = False, target: str | None = None, **facts: str
) -> Fixed:
    """Judge and fix files that stand together."""
    made = context(only, target=target, **facts)
    return fix_file(lint_files(files, only, target=target, **facts), made, unsafe=unsafe)


def said(examined: Examined) -> list[str]:
    """`line: severity[rule]` of every finding."""
    return [f"{f.span.line}: {f.severity.name}[{f.rule}]" for f in examined.findings]
