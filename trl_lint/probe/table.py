"""What a probe found in; the same in words out: a table for a terminal, one for a pull request, and the page's cells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from trl_lint.probe.comparison import RULES, Name, Verdict, times
from trl_lint.probe.probed import Probed, Ran, Searched, Tried
from trl_lint.reports.words import one_line, plural

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

# The verdicts whose numbers do not say why.
_EXPLAINED: frozenset[Name] = frozenset({"repaired", "changes training", "broken", "cannot tell"})
COLUMNS = ("Fix", "Verdict", "Speed", "Memory", "Start-up", "Pairs")
# Below so many columns a table breaks its cells in the middle of numbers.
NARROW = 88
_STYLES: dict[Name, str] = {
    "confirmed": "bold green",
    "repaired": "bold green",
    "no gain": "cyan",
    "slower": "yellow",
    "changes training": "bold magenta",
    "broken": "bold red",
    "cannot tell": "yellow",
}


@dataclass(frozen=True)
class Row:
    """What is said of one fix, each cell on one line, without secrets, empty where nothing was measured."""

    name: str
    title: str
    verdict: Name
    speed: str
    memory: str
    startup: str
    pairs: str
    explanation: str
    reproduce: str

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        return self.title, self.verdict, self.speed, self.memory, self.startup, self.pairs


def rows(probed: Probed) -> list[Row]:
    """One for each variant, in the order of the probe."""
    return [
        Row(
            shown(tried.name),
            shown(tried.title),
            tried.verdict.name,
            speed(tried.verdict),
            memory(tried.verdict),
            startup(tried.verdict),
            str(tried.verdict.pairs or ""),
            _explanation(tried),
            _reproduce(probed, tried),
        )
        for tried in probed.tried
    ]


def _explanation(tried: Tried) -> str:
    """What the numbers do not say, if anything."""
    told = [shown(tried.verdict.reason)] if tried.verdict.name in _EXPLAINED else []
    if tried.known:
        told.append(f"recorded on {shown(tried.known)[:10]}, not measured again")
    return "; ".join(filter(None, told))


def stopped(trials: Sequence[Ran]) -> list[Ran]:
    """The trials that did not train."""
    return [ran for ran in trials if not ran.series.trained]


def _reproduce(probed: Probed, tried: Tried) -> str:
    """The command that shows what decided a verdict: the script's own end where the fix repairs, else the variant's."""
    ended = stopped(probed.as_is if tried.verdict.name == "repaired" else tried.ran)
    return shown(ended[-1].reproduce) if ended else ""


def shown(text: str) -> str:
    """`text` on one line as it may be shown, and written as UTF-8: file names may hold bytes that are none."""
    return one_line(text).encode(errors="replace").decode()


# Words ---------------------------------------------------------------------------------------------------------------


def headline(probed: Probed) -> str:
    """The outcome in one sentence, the number first."""
    kept = next((tried for tried in probed.tried if tried.name == probed.kept), None)
    if kept is not None:
        return f"{_gain(kept.verdict)}: {shown(kept.title)}"
    if not probed.tried:
        return "No fix was tried"
    counts = Counter(tried.verdict.name for tried in probed.tried)
    return f"Nothing to keep: {', '.join(f'{counts[name]} {name}' for name in get_args(Name) if counts[name])}"


def history(search: Searched) -> Iterator[str]:
    """A search in a few lines: how it went, what mattered, what failed."""
    yield f"Search: {summary(search)}"
    best = 0.0
    for number, attempt in enumerate(search.attempts, 1):
        if attempt.speed is not None and attempt.speed > best:
            best = attempt.speed
            yield f"  trial {number}: {pace(search, best)}: {shown(attempt.title)}"
    if search.importances:
        yield f"What mattered: {', '.join(f'{shown(name)} {share:.0%}' for name, share in search.importances)}."
    yield from failures(search)


def summary(search: Searched) -> str:
    """Why it ended, and how far it came."""
    return f"{search.ended}; {len(search.attempts)} settings were run and {search.refused} refused without a trial."


def pace(search: Searched, speed: float) -> str:
    """ "2429 tokens per second, 6.0x": and how many times that of the script as it is."""
    faster = f", {times(speed / search.as_is)}x" if search.as_is and speed != search.as_is else ""
    return f"{speed:.4g} {search.metric}{faster}"


def failures(search: Searched) -> Iterator[str]:
    """The commonest errors of a search."""
    for error, count in search.failures[:3]:
        yield f"{count} of them did not train: {shown(error)}"


def _gain(verdict: Verdict) -> str:
    change = (verdict.memory_ratio or 1.0) - 1
    leaner = f"{-change:.0%} less memory"
    if verdict.name == "repaired":
        return "It trains here"
    if "speed" in verdict.gains and verdict.ratio is not None:
        faster = "as fast" if verdict.metric == "steps per second" else "the tokens per second"
        # What is paid for it belongs to the outcome too.
        dear = f"{times(change + 1)}x the memory" if change >= 1 else f"{change:.0%} more memory"
        hungrier = f", with {dear}" if change > RULES.memory_gain else ""
        also = f", with {leaner}" if "memory" in verdict.gains else hungrier
        return f"{times(verdict.ratio)}x {faster} here{_bounds(verdict)}{also}"
    return f"{leaner} here, no slower" if "memory" in verdict.gains else "Confirmed here"


def speed(verdict: Verdict) -> str:
    """ "4.7x (4.6 to 5.4)" the steps, or "1.9x the tokens (1.8 to 2.0)" where those are what was compared."""
    if verdict.ratio is None:
        return ""
    tokens = " the tokens" if verdict.metric == "tokens per second" else ""
    return f"{times(verdict.ratio)}x{tokens}{_bounds(verdict)}"


def _bounds(verdict: Verdict) -> str:
    if verdict.low is None or verdict.high is None:
        return ""
    return f" ({times(verdict.low)} to {times(verdict.high)})"


def memory(verdict: Verdict) -> str:
    """ "+638%", "same" """
    if verdict.memory_ratio is None:
        return ""
    change = verdict.memory_ratio - 1
    return "same" if abs(change) < 0.005 else f"{change:+.0%}"


def startup(verdict: Verdict) -> str:
    """ "+7.6 s (4 steps)": what it costs, and after how many steps that is earned back."""
    cost = verdict.startup_cost_seconds
    if cost is None:
        return ""
    if cost <= 0:
        return f"{cost:+.1f} s"
    if verdict.payback_steps is None:
        return f"+{cost:.1f} s" + (" (never)" if verdict.name == "slower" else "")
    return f"+{cost:.1f} s ({plural(verdict.payback_steps, 'step')})"


def where(probed: Probed) -> str:
    """ "NVIDIA H200 x1, trl 1.16.0, transformers 5.17.0, torch 2.11.0": what the numbers hold for, as far as it is known."""
    hardware, versions = probed.conditions.hardware, probed.conditions.versions
    gpu = hardware.get("gpu")
    count = hardware.get("count")
    machine = f"{gpu}{f' x{count}' if isinstance(count, int) and count > 1 else ''}" if gpu else "CPU"
    known = (f"{name} {versions[name]}" for name in ("trl", "transformers", "torch", "vllm") if versions.get(name))
    return shown(", ".join([machine, *known]))


# The terminal --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fitting:
    """A table where the terminal is wide enough, else a block of lines for each fix."""

    rows: tuple[Row, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if options.max_width >= NARROW:
            yield _wide(self.rows)
        else:
            yield from _narrow(self.rows)


def table(probed: Probed) -> RenderableType:
    """All fixes with their verdicts and numbers, for a rich console of any width."""
    return _Fitting(tuple(rows(probed)))


def print_table(probed: Probed, console: Console) -> None:
    """The whole report: the outcome, the table, what explains a verdict, what was not tried, what else is to be said."""
    from rich.text import Text

    console.print(Text(headline(probed), "bold"))
    console.print(Text(f"{shown(probed.script)} on {where(probed)}", "dim"))
    console.print()
    found = rows(probed)
    if found:
        console.print(table(probed))
        console.print()
    for row in found:
        if not row.explanation:
            continue
        told = (row.verdict, _STYLES[row.verdict])
        console.print(Text.assemble((row.name, "bold"), ": ", told, f": {row.explanation}"))
        if row.reproduce:
            # On one line however long it is, so that it can be copied.
            console.print(Text(f"  {row.reproduce}"), soft_wrap=True)
    for name, why in probed.refused:
        console.print(Text.assemble((shown(name), "bold"), f": not tried: {shown(why)}"))
    if probed.search is not None:
        for line in history(probed.search):
            console.print(Text(line))
    for note in probed.notes:
        console.print(Text(f"note: {shown(note)}"))


def _wide(found: tuple[Row, ...]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in COLUMNS:
        number = column in ("Speed", "Memory", "Start-up", "Pairs")
        made.add_column(column, justify="right" if number else "left", no_wrap=column != "Fix")
    for row in found:
        title, verdict, *numbers = row.cells
        made.add_row(Text(title), Text(verdict, _STYLES[row.verdict]), *(Text(cell) for cell in numbers))
    return made


def _narrow(found: tuple[Row, ...]) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    for row in found:
        yield Text(row.title)
        told = [Text(row.verdict, _STYLES[row.verdict])]
        labelled = zip(COLUMNS[2:-1], row.cells[2:-1], strict=True)
        told += [Text(f"{label.lower()} {cell}") for label, cell in labelled if cell]
        told += [Text(plural(int(row.pairs), "pair"))] if row.pairs else []
        yield Padding(Text(", ").join(told), (0, 0, 0, 2), expand=False)


# A pull request ------------------------------------------------------------------------------------------------------


def plain(probed: Probed) -> str:
    """The report as Markdown of the kind that forges show in a comment."""
    found = rows(probed)
    lines = [
        f"**{_escaped(headline(probed))}**",
        "",
        f"{_code(shown(probed.script))} on {_escaped(where(probed))}",
        "",
    ]
    if found:
        lines += [_line(COLUMNS), _line(("---", "---", "---:", "---:", "---:", "---:"))]
        lines += [_line(_escaped(cell) for cell in row.cells) for row in found]
        lines.append("")
    for row in found:
        if not row.explanation:
            continue
        again = f"; again with {_code(row.reproduce)}" if row.reproduce else ""
        lines.append(f"- {_code(row.name)}: {row.verdict}: {_code(row.explanation)}{again}")
    lines += [f"- {_code(shown(name))}: not tried: {_code(shown(why))}" for name, why in probed.refused]
    lines += [f"- {_escaped(shown(note))}" for note in probed.notes]
    if lines[-1]:
        lines.append("")
    lines.append(f"Measured {_escaped(shown(probed.date)[:10])} by {_code(shown(probed.command))}")
    return "\n".join(lines) + "\n"


_MARKDOWN = str.maketrans(
    {c: f"\\{c}" for c in "\\`*_[]|~"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {c: f"{c}\u200b" for c in "@#"}
)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """As Markdown shows it: no mark-up, no HTML, no mention of a person, no link to an issue."""
    return text.translate(_MARKDOWN)


def _code(text: str) -> str:
    """A code span around text that may hold backticks."""
    runs = re.findall("`+", text)
    fence = "`" * (1 + max(map(len, runs), default=0))
    return f"{fence} {text} {fence}" if runs or not text else f"{fence}{text}{fence}"
