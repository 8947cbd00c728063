"""A TRL release in; each of its guards out, with who speaks of it: a page, the generic rule, or nobody, and then why."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from packaging.version import Version

from trl_lint import knowledge
from trl_lint.knowledge import Guard, guards

OBJECTS: Final = frozenset({"model", "ref_model", "teacher_model", "processing_class", "tokenizer"})
"""Keywords that stand for what is loaded."""

NOT_DECIDABLE: Final = "not decidable from files"
GENERIC: Final = {"raise": "refused-by-trl", "warn": "warned-by-trl"}

REASONS: Final = (
    ("reached while training only", r" runs while training$"),
    ("inside a function that others call", r" is called$"),
    ("errors that are caught", r"^(inside a try|except )"),
    ("loop over what the run holds", r"^(for|while) "),
    ("an attribute that is not set yet", r"^self\.args\."),
    ("environment variable", r"os\.environ|getenv"),
    ("files on disk", r"os\.path|\bcheckpoints\b"),
    ("a running server or clock", r"\bresponse\.|\bserver_|teacher_client|elapsed|timeout|rollout_worker"),
    ("what is installed", r"\bis_\w+_available|package_version|_SUPPORTS|inspect\.signature|^hasattr\(self, "),
    ("tokenizer or chat template", r"processing_class|processor\b|tokenizer|chat_template|pad_token|eos_token|token_id\b|schema\b|"
     r"added_tokens|get_vocab|teacher_proc|generation_markers|collator"),
    ("tools, environments and their calls", r"\btools?\b|tool_|environment|has_reset|rollout_func|\bhas_reward"),
    ("reward functions", r"reward"),
    ("processes and devices", r"accelerator|process|device|distributed|n_gpu|fsdp|deepspeed|parallelism|is_main|FSDP|lora_sync"),
    ("the datasets", r"dataset|example|column|messages?\b|bootstrap|num_\w*desirable|weight_\w+_bound|\bcols\b"),
    ("a step's batch and tensors", r"labels?\b|(?<!router_)logits|logps|input_ids|attention_mask|_mask\b|numel|\.shape|\.size\(|outputs?\b|probs|"
     r"missing_|lengths?\b|byte_offsets|topk|entropy|tensor|trimmed|batch_len|flag\b|\binputs\b|\bbatch\b|images?\b|prompts?\b|completion|slice_|pixel"),
    ("the adapter's own settings", r"peft_config|LoraConfig|PromptLearning|default_config|adapter|lora"),
    ("model object", r"model|vocab_size|_vlm\b|head_detected|lm_head|layer|\bmodule|head\b|embeddings|text_config|quantization_config|\bconfig\.|"
     r"attn_implementation|logit_scale|aux_loss_coef|loaded|wrapped|unwrapped"),
    ("how far the training has come", r"\bstate\.|self\.control|_step\b|step\b|\bcount\b|_buffered|fraction|is_okay"),
)  # fmt: skip
"""Why files cannot decide a guard: the first whose pattern is found in what stands in the way."""

OTHER: Final = "another runtime object"

OLDEST: Final = Version("0.14")
"""The first release that the table counts."""

BUILTINS: Final = frozenset(
    {"len", "isinstance", "str", "int", "float", "bool", "list", "tuple", "dict", "set", "type", "any", "all", "sorted", "min", "max", "getattr", "hasattr"}
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Print the guards of a release; 0, or 2 for a release or a class that is not known."""
    parser = argparse.ArgumentParser(prog="python -m trl_lint.knowledge guards", description=__doc__)
    parser.add_argument("--trl", default=knowledge.newest("trl"), metavar="VERSION", help="the newest one if not given")
    parser.add_argument("--class", dest="owner", metavar="NAME", help="one config or trainer class; all if not given")
    parser.add_argument(
        "--rules", type=Path, default=Path(__file__).parents[2] / "rules", help="the folder of the pages"
    )
    parser.add_argument("--table", action="store_true", help="the page docs/guards.md: every release since 0.14")
    parser.add_argument("--totals", action="store_true", help="the totals alone")
    options = parser.parse_args(arguments)
    try:
        release = knowledge.trl(options.trl)
    except knowledge.UnknownRelease as error:
        print(f"guards: {error}", file=sys.stderr)
        return 2
    owners = (*release.configs(), *release.trainers())
    if options.owner is not None and options.owner not in owners:
        print(f"guards: trl {options.trl} has no config or trainer {options.owner}", file=sys.stderr)
        return 2
    pages = page_guards(options.rules)
    if options.table:
        print(table(pages), end="")
        return 0
    said = speakers(options.trl, pages, owners if options.owner is None else [options.owner])
    if not options.totals:
        for guard, speaks in said:
            print(f"{guard.effect} {guard.kind:20} {guard.name}\n    {speaks}; {guard.place}")
    print(f"trl {options.trl}: {len(said)} guards")
    for speaks, number in Counter(_kind(speaks) for _, speaks in said).most_common():
        print(f"{number:6} {speaks}")
    return 0


def speakers(version: str, pages: Mapping[str, list[str]], owners: Iterable[str]) -> list[tuple[Guard, str]]:
    """Each guard of a release with who speaks of it. One that several classes inherit counts once."""
    release = knowledge.trl(version)
    found: dict[tuple[str, str], list[Guard]] = {}
    for owner in owners:
        for guard in release.guards(owner):
            found.setdefault((guard.name, guard.place), []).append(guard)
    # Classes that share a place reach it under conditions of their own.
    guards = [min(same, key=lambda one: undecidable(one) is not None) for same in found.values()]
    return [(guard, speaker(guard, pages)) for guard in guards]


def everything(version: str) -> tuple[str, ...]:
    """The config and trainer classes of a release."""
    release = knowledge.trl(version)
    return (*release.configs(), *release.trainers())


PROSE: Final = """\
# What TRL checks, release by release

TRL's configs and trainers raise and warn where options contradict each other. Each such place is a *guard*: its condition is read from the
source of the release, put into the condition language of rules, and kept with what it raises and where it stands
(`trl_lint/knowledge/harvested/trl-guards.json`). Where files can make the condition true, a page that explains the guard speaks, else the
generic rule `refused-by-trl` or `warned-by-trl`. The others ask for something that no file holds, and are counted by that.

A guard that several classes inherit counts once. A condition that consists of several is undecidable if one that must hold is: the reason is
that one's. `python -m trl_lint.knowledge guards --trl 1.16.0` lists every guard with its speaker; this page is written by
`python -m trl_lint.knowledge guards --table > docs/guards.md`, and `tests/knowledge/test_coverage.py` compares it.
[guards-reread.md](guards-reread.md) holds a random draw of the undecidable ones, re-read in the source.
"""


def table(pages: Mapping[str, list[str]]) -> str:
    """The page `docs/guards.md`."""
    counted = {version: row(version, pages) for version in knowledge.releases("trl") if Version(version) >= OLDEST}
    reasons = [r for r, _ in REASONS if any(r in found for found in counted.values())]
    reasons += [OTHER] if any(OTHER in found for found in counted.values()) else []
    lines = [PROSE, "## Who speaks\n"]
    lines += _markdown(
        ["trl", "guards", *SPOKEN, UNDECIDABLE],
        {v: [f[GUARDS], *(f[s] for s in SPOKEN), f[UNDECIDABLE]] for v, f in counted.items()},
    )
    lines += ["\n## Why the others cannot be decided\n"]
    lines += _markdown(["trl", *reasons], {version: [found[r] for r in reasons] for version, found in counted.items()})
    alike = sorted({item for version in counted for item in configurable(version)})
    lines += ["\n## Undecidable, though only options are named\n"]
    lines += ["Their text names nothing but fields, keywords and versions. What stands in the way all the same:\n"]
    reasons_alike: dict[str | None, list[str]] = {}
    for item in alike:
        reasons_alike.setdefault(accounted(item), []).append(item)
    for why, items in sorted(reasons_alike.items(), key=lambda pair: str(pair[0])):
        lines += [f"- {why or 'NOT ACCOUNTED FOR'}:", *(f"  - {_cut(item)}" for item in items)]
    return "\n".join(lines) + "\n"


WIDEST: Final = 160
GUARDS: Final = "guards"
UNDECIDABLE: Final = "undecidable"
SPOKEN: Final = ("a page of its own", *(f"rule {name}" for name in GENERIC.values()))


def row(version: str, pages: Mapping[str, list[str]]) -> Counter[str]:
    """The numbers of one release: of all guards, of those that each speaker has, of those for each reason."""
    said = [_kind(speaks) for _, speaks in speakers(version, pages, everything(version))]
    found = Counter(text.removeprefix(f"{NOT_DECIDABLE}: ") for text in said)
    found[GUARDS] = len(said)
    found[UNDECIDABLE] = sum(text.startswith(NOT_DECIDABLE) for text in said)
    return found


def _kind(said: str) -> str:
    return "a page of its own" if said.startswith("page ") else said


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _markdown(heads: Sequence[str], rows: Mapping[str, Sequence[int]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|---{'|---:' * (len(heads) - 1)}|"
    for name, numbers in rows.items():
        yield f"| {name} | {' | '.join(map(str, numbers))} |"


def configurable(version: str) -> Iterator[str]:
    """The guards that would be decidable if what names nothing but fields, keywords and versions could be said, with that."""
    release, fields = knowledge.trl(version), knowledge.fields_ever()
    for owner in everything(version):
        trainer = release.trainer(owner)
        keywords = frozenset(trainer.keywords) if trainer is not None else frozenset()
        for guard in release.guards(owner):
            if guard.certain or not guard.place.endswith(("__init__", "__post_init__")):
                continue
            asked = [text for text in blocking(guard) if _only_options(text, fields, keywords)]
            tree = ast.parse(guard.when, mode="eval").body
            if asked and not guards.blocking(_Sayable(asked).visit(tree), True):
                yield f"{guard.name} ({', '.join(dict.fromkeys(asked))})"


class _Sayable(ast.NodeTransformer):
    """Puts a name for what is opaque."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node.func) == "opaque" and ast.literal_eval(node.args[0]) in self.texts:
            return ast.Name("said", ast.Load())
        return self.generic_visit(node)


def _only_options(text: str, fields: frozenset[str], keywords: frozenset[str]) -> bool:
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    names = [name for name in _read(tree) if name not in BUILTINS]
    return bool(names) and all(_is_option(name, fields, keywords) for name in names)


def _is_option(name: str, fields: frozenset[str], keywords: frozenset[str]) -> bool:
    root, _, rest = name.removeprefix("self.").partition(".")
    if root in ("args", "config") and rest:
        return rest.partition(".")[0] in fields
    if name.startswith("self."):
        return root in fields
    return name in keywords - OBJECTS or name.endswith("__version__")


def _read(tree: ast.AST) -> Iterator[str]:
    """The longest dotted names of an expression, those of called functions and methods included."""
    if isinstance(tree, ast.Name | ast.Attribute):
        text = ast.unparse(tree)
        if re.fullmatch(r"\w+(\.\w+)*", text):
            yield text
            return
    for child in ast.iter_child_nodes(tree):
        yield from _read(child)


ACCOUNTED: Final = (
    (r"parallelism_config\.[cs]p_enabled", "accelerate's ParallelismConfig is an object; what it works out from its sizes is not in the file"),
    (r"self\.args\.max_steps", "`self.args` is read before the base class has set it: AttributeError, whatever the options say"),
)  # fmt: skip
"""Why guards that look as if options alone decided them are not decided: the first whose pattern is found in one."""


def accounted(alike: str) -> str | None:
    """Why a guard that only names options is not decided; None where nothing says why, which is a flaw of the walk."""
    return next((why for pattern, why in ACCOUNTED if re.search(pattern, alike)), None)


def speaker(guard: Guard, pages: Mapping[str, list[str]]) -> str:
    """Who speaks of a guard: "page X", the generic rule, or "not decidable from files: reason"."""
    if guard.name in pages:
        return f"page {', '.join(pages[guard.name])}"
    reason = undecidable(guard)
    return f"rule {GENERIC[guard.effect]}" if reason is None else f"{NOT_DECIDABLE}: {reason}"


def undecidable(guard: Guard) -> str | None:
    """Why no file can decide a guard for certain; None where files can."""
    asked = () if guard.certain else blocking(guard)
    for reason, pattern in REASONS:
        if any(re.search(pattern, text) for text in asked):
            return reason
    return OTHER if asked else None


def blocking(guard: Guard) -> tuple[str, ...]:
    """What no file can say and the guard needs."""
    return guards.blocking(ast.parse(guard.when or "True", mode="eval").body, True)


def page_guards(folder: Path) -> Mapping[str, list[str]]:
    """Guard name to the pages that explain it."""
    found: dict[str, list[str]] = {}
    for page, names in _named(folder):
        for name in names:
            found.setdefault(name, []).append(page)
    return found


def _named(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for path in sorted(folder.glob("*/*.md")):
        program = re.search(r"^```toml\n(.*?)^```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        if program is not None:
            yield path.stem, tomllib.loads(program[1]).get("guards", [])
