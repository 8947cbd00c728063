"""Inside an environment with TRL: scripts in, what became of each out. One process serves many cases, so TRL is imported once.

Plain Python 3.9, importing nothing of this project. One JSON object a line on stdin and stdout; everything that scripts print
goes to stderr. Two requests: ``{"describe": [[module, class, trainer module, trainer], ...]}`` and ``{"script": text}``.
"""

import ast
import dataclasses
import gc
import importlib
import inspect
import json
import logging
import os
import sys
import textwrap
import traceback
import warnings

SCRIPT = "train.py"


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)
    environment = dict(os.environ)
    import_all()
    gc.freeze()  # a collection over the modules of torch and transformers takes longer than most cases
    tell(answers, {"versions": versions()})
    for line in sys.stdin:
        request = json.loads(line)
        if "describe" in request:
            tell(answers, [describe(*each) for each in request["describe"]])
            continue
        restore(environment)
        tell(answers, run(request["script"]))


def import_all():
    import datasets  # noqa: F401
    import peft  # noqa: F401
    import transformers  # noqa: F401
    import trl

    for method in ("SFT", "DPO", "GRPO", "RLOO", "KTO", "Reward"):
        getattr(trl, f"{method}Trainer", None)


def tell(answers, answer):
    print(json.dumps(answer), file=answers, flush=True)


def versions():
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version.split()[0]}
    for name in ("trl", "transformers", "torch", "accelerate", "datasets", "peft", "liger-kernel", "vllm", "kernels"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def restore(environment):
    """Nothing that one script left behind may decide the next: accelerate's singletons and what TrainingArguments exports."""
    from accelerate.state import AcceleratorState, GradientState

    os.dup2(2, 1)  # `open(True)` is descriptor 1, and there are fields that TRL opens
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    os.environ.clear()
    os.environ.update(environment)


# Running a script ---------------------------------------------------------------------------------------------------


def run(script):
    """``error`` None if the script ended, else type, message, its line in the script and the place that raised."""
    import torch

    torch.manual_seed(0)
    heard = Heard()
    logging.getLogger().addHandler(heard)
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(script, SCRIPT, "exec"), {"__name__": "__main__", "__file__": SCRIPT})
        except (Exception, SystemExit) as raised:
            error = said(raised)
    logging.getLogger().removeHandler(heard)
    told = [[each.category.__name__, first_line(str(each.message)), where(each.filename)] for each in caught]
    told = [each for each in told if each[2].startswith(("trl/", "transformers/")) or each[2] == SCRIPT]
    return {"error": error, "warnings": told + heard.lines}


class Heard(logging.Handler):
    """What TRL's and transformers' loggers say at warning level or above."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []
        for name in ("transformers", "trl"):
            logging.getLogger(name).propagate = True

    def emit(self, record):
        if record.name.startswith(("trl", "transformers", "accelerate")):
            self.lines.append([record.levelname, first_line(record.getMessage()), record.name])


def said(raised):
    frames = traceback.extract_tb(raised.__traceback__)
    own = [frame.lineno for frame in frames if frame.filename == SCRIPT]
    last = frames[-1]
    known = [frame for frame in frames if where(frame.filename).startswith(("trl/", "transformers/", "accelerate/"))]
    place = known[-1] if known else last
    return {
        "type": type(raised).__name__,
        "message": str(raised),
        "line": own[0] if own else 0,
        "place": f"{where(place.filename)}:{place.lineno} {place.name}",
    }


def first_line(text):
    return text.strip().split("\n")[0][:300]


def where(filename):
    """The path inside site-packages."""
    return filename.rpartition("site-packages/")[2].replace(os.sep, "/")


# What a release accepts ----------------------------------------------------------------------------------------------


def describe(module, name, trainer_module, trainer):
    """Fields and keywords of a config and its trainer, and the conditions under which their source raises or warns."""
    try:
        config = getattr(importlib.import_module(module), name)
        builder = getattr(importlib.import_module(trainer_module), trainer) if trainer else None
    except Exception as unusable:
        return {"name": name, "unusable": f"{type(unusable).__name__}: {first_line(str(unusable))}"}
    fields = {each.name: field(each) for each in dataclasses.fields(config) if each.init}
    guards = []
    for owner in (config, builder):
        for kind in inspect.getmro(owner) if owner else ():
            if kind.__module__.startswith("trl.") or kind.__name__ == "TrainingArguments":
                own = kind.__module__.startswith("trl.")
                guards += [{"own": own, "fields": each} for each in read_guards(kind, fields)]
    keywords = list(inspect.signature(builder.__init__).parameters)[1:] if builder else []
    return {"name": name, "fields": fields, "keywords": keywords, "guards": guards}


def field(each):
    default = each.default
    if default is dataclasses.MISSING:
        default = each.default_factory() if each.default_factory is not dataclasses.MISSING else None
    choices = (each.metadata or {}).get("choices")
    kind = getattr(each.type, "__name__", None) if isinstance(each.type, type) else None
    return {"type": kind or str(each.type), "default": plain(default), "choices": plain(list(choices or []))}


def plain(value):
    value = getattr(value, "value", value)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if isinstance(value, (bool, int, float, str, dict, type(None))) else None


def read_guards(kind, fields):
    """For each raise and warning of a class: the fields that its conditions name, with the literals they are held against."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return []
    found = []
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        gather(function.body, (), fields, found)
    return found


def gather(statements, tests, fields, found):
    for statement in statements:
        if isinstance(statement, ast.If):
            gather(statement.body, (*tests, statement.test), fields, found)
            gather(statement.orelse, (*tests, statement.test), fields, found)
        elif speaks(statement):
            named = {}
            for test in tests:
                literals(test, fields, named)
            if named:
                found.append({name: sorted(values, key=repr) for name, values in sorted(named.items())})
        else:
            for inner in ("body", "orelse", "finalbody"):
                gather(getattr(statement, inner, None) or (), tests, fields, found)


def speaks(statement):
    if isinstance(statement, (ast.Raise, ast.Assert)):
        return True
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    return ast.unparse(statement.value.func) in ("warnings.warn", "logger.warning", "logger.warning_once")


def literals(test, fields, named):
    for node in ast.walk(test):
        if field_of(node) in fields:
            named.setdefault(field_of(node), set())
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            owners = {field_of(each) for side in sides for each in ast.walk(side)} & set(fields)
            values = {each.value for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant)}
            for owner in owners:
                named.setdefault(owner, set()).update(v for v in values if isinstance(v, (bool, int, float, str)))


def field_of(node):
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "args"):
        return node.attr
    return None


if __name__ == "__main__":
    main()
