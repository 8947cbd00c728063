"""What a probe found in; one HTML file out that says it all: no script, nothing fetched, for any screen and for paper."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import get_args

from trl_lint.probe.comparison import RULES, Name, Pair, Series, times
from trl_lint.probe.evidence import Scalar
from trl_lint.probe.page import numbers
from trl_lint.probe.page.charts import Charts, scale
from trl_lint.probe.probed import AS_IS, Probed, Ran, Searched, Tried
from trl_lint.probe.table import (
    COLUMNS,
    Row,
    failures,
    headline,
    memory,
    pace,
    rows,
    shown,
    speed,
    stopped,
    summary,
    where,
)
from trl_lint.reports.redaction import HIDDEN, redact
from trl_lint.reports.words import plural

READING: dict[Name, str] = {
    "confirmed": f"The interval lies above +{RULES.gain:.0%} speed, or below -{RULES.memory_gain:.0%} memory at no loss of speed.",
    "repaired": "As it is the script stops; as fixed it trains.",
    "no gain": f"The interval lies within {RULES.gain:.0%} of the script's own speed, and memory is no lower.",
    "slower": f"The interval lies below -{RULES.gain:.0%} speed.",
    "changes training": "The losses (or, where completions are sampled, reward and KL) leave the tolerance of the fix.",
    "broken": "As it is the script trains; as fixed it stops, hangs or runs out of memory.",
    "cannot tell": "Too few pairs, or a spread wider than the gain: measured again on a quieter machine it may be decided.",
}
# A sign for each verdict, so that none is told by its color alone.
_SIGNS: dict[Name, str] = {
    "confirmed": "✓",
    "repaired": "✓",
    "no gain": "=",
    "slower": "▼",
    "changes training": "≠",
    "broken": "✕",
    "cannot tell": "?",
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(probed: Probed) -> str:
    """The report as one HTML document that needs nothing else. All that came from the user is escaped and without secrets."""
    charts = Charts()
    style = resources.files(__package__).joinpath("style.css").read_text("utf-8")
    sections = "".join(
        _section(name, heading, body)
        for name, heading, body in (
            ("tried", "What was tried", _tried(probed)),
            ("search", "The search before", _search(probed, charts)),
            ("gains", "Speed and memory, before and after", _gains(probed, charts)),
            ("time", "Where the time goes", _time(probed, charts)),
            ("steps", "Step by step", _steps(probed, charts)),
            ("diffs", "What was confirmed, as it is written", _diffs(probed)),
            ("failures", "What stopped", _failures(probed)),
            ("machine", "Where it was measured", _machine(probed)),
            ("notes", "Notes", _notes(probed)),
            ("reading", "How to read the verdicts", _reading()),
        )
        if body
    )
    title = f"{shown(probed.script)}: {headline(probed)}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{_header(probed)}<main>\n{sections}</main>\n{_footer(probed)}</body>\n</html>\n"
    )


# Sections ------------------------------------------------------------------------------------------------------------


def _header(probed: Probed) -> str:
    trials = len(probed.as_is) + sum(len(tried.ran) for tried in probed.tried)
    told = f"{plural(trials, 'trial')} of {plural(probed.steps, 'step')} in {_duration(probed.seconds)}"
    return (
        f'<header>\n<p class="over">trl-lint {"probe" if probed.search is None else "tune"} <code>{_text(probed.script)}</code></p>\n'
        f"<h1>{_text(headline(probed))}</h1>\n<p>{_text(where(probed))}</p>\n<p>{_text(told)}, <time>{_text(shown(probed.date)[:10])}</time></p>\n</header>\n"
    )


def _tried(probed: Probed) -> str:
    refused = _list(f"<code>{_text(name)}</code>: {_text(why)}" for name, why in probed.refused)
    return _table(probed) + (f"<h3>Not tried</h3>\n{refused}" if refused else "")


def _table(probed: Probed) -> str:
    """With its roles said outright: on a phone each row is laid out as a block, and a browser then forgets them."""
    found = list(zip(probed.tried, rows(probed), strict=True))
    if not found:
        return "<p>No fix was tried.</p>\n"
    heads = "".join(f'<th role="columnheader" scope="col">{column}</th>' for column in COLUMNS)
    body = "".join(_row(tried, row, tried.name == probed.kept) for tried, row in found)
    return (
        '<table role="table">\n<caption>Speed, memory and start-up of each fix against the script as it is: the median over pairs of '
        "trials, its interval, and the steps after which a slower start is earned back.</caption>\n"
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>\n<tbody role="rowgroup">\n{body}</tbody>\n</table>\n'
    )


def _row(tried: Tried, row: Row, kept: bool) -> str:
    title, _, *cells = row.cells
    rules = ", ".join(f"<code>{_text(name)}</code>" for name in tried.rules)
    small = f'<small class="why">{_text(row.explanation)}</small>' if row.explanation else ""
    first = (
        f'<th role="rowheader" scope="row"><span>{_text(title)}</span> {"<b>kept</b>" if kept else ""}'
        f"<small>{rules}</small>{small}</th>"
    )
    others = "".join(
        f'<td role="cell" data-label="{label}">{_text(cell)}</td>'
        for label, cell in zip(COLUMNS[2:], cells, strict=True)
    )
    return f'<tr role="row">{first}<td role="cell">{_verdict(row.verdict)}</td>{others}</tr>\n'


def _search(probed: Probed, charts: Charts) -> str:
    """What led to the variants, where a tuner did: every trial, and what made the difference."""
    search = probed.search
    if search is None:
        return ""
    said = f"{summary(search)[:1].upper()}{summary(search)[1:]}"
    told = [
        f"{shown(one.title)}: {pace(search, one.speed) if one.speed is not None else shown(one.outcome)}"
        for one in search.attempts
    ]
    figures = [_attempts_chart(search, told, charts)]
    if search.importances:
        figures.append(_importance_chart(search, charts))
    every = "".join(f"<li>{_text(line)}</li>\n" for line in told)
    return (
        f"<p>{_text(said)} The best of them went into the pairs above.</p>\n"
        f'<div class="columns">\n{"".join(figures)}</div>\n{_list(_text(line) for line in failures(search))}'
        f"<details><summary>Every trial</summary>\n<ol>\n{every}</ol>\n</details>\n"
    )


def _attempts_chart(search: Searched, told: Sequence[str], charts: Charts) -> str:
    speeds = [one.speed for one in search.attempts]
    most = max((speed for speed in speeds if speed is not None), default=1.0)
    svg = charts.attempts(speeds, most, "The trials of the search", "; ".join(told))
    legend = _legend(("fixed", "a trial"), ("as-is", "the fastest so far"))
    scale = f"0 to {_number(most)} {search.metric}, {plural(len(speeds), 'trial')}"
    caption = f"<b>Every trial</b>, higher is faster: {scale}. A cross did not train, or was ended early.{legend}"
    return f"<figure>\n<figcaption>{caption}</figcaption>\n{svg}</figure>\n"


def _importance_chart(search: Searched, charts: Charts) -> str:
    most = search.importances[0][1]
    made = [
        _bar(name, charts.bar("fixed", share, most, shown(name), f"{share:.0%}"), f"{share:.0%}", wide=True)
        for name, share in search.importances
    ]
    caption = "<b>What mattered</b>: the share of the differences between trials that each choice makes, by fANOVA."
    return f"<figure>\n<figcaption>{caption}</figcaption>\n{''.join(made)}</figure>\n"


def _gains(probed: Probed, charts: Charts) -> str:
    timed = [tried for tried in probed.tried if tried.verdict.ratio is not None]
    weighed = [tried for tried in probed.tried if tried.verdict.memory_ratio is not None]
    figures = [_speed_chart(probed, timed, charts)] if timed else []
    if weighed:
        figures.append(_memory_chart(probed, weighed, charts))
    return f'<div class="columns">\n{"".join(figures)}</div>\n' if figures else ""


def _speed_chart(probed: Probed, tried: Sequence[Tried], charts: Charts) -> str:
    most = max(max(1.0, t.verdict.ratio or 0.0, t.verdict.high or 0.0) for t in tried)
    made = []
    for one in tried:
        verdict = one.verdict
        absolute = numbers.speeds(probed.pairs(one), verdict)
        unit = "tokens/s" if verdict.metric == "tokens per second" else "steps/s"
        before, after = (
            (f"{_number(value)} {unit}" for value in absolute)
            if absolute
            else ("1x", f"{times(verdict.ratio or 0.0)}x")
        )
        bounds = (verdict.low, verdict.high) if verdict.low is not None and verdict.high is not None else None
        made.append(_compared(one, speed(verdict), before, after, verdict.ratio or 0.0, bounds, most, charts))
    caption = (
        "<b>Speed.</b> Longer is faster. The thin line is the script as it is, whiskers are the interval over pairs."
    )
    return f"<figure>\n<figcaption>{caption}</figcaption>\n{''.join(made)}</figure>\n"


def _memory_chart(probed: Probed, tried: Sequence[Tried], charts: Charts) -> str:
    most = max(max(1.0, t.verdict.memory_ratio or 0.0, t.verdict.memory_high or 0.0) for t in tried)
    made = []
    for one in tried:
        verdict = one.verdict
        absolute = numbers.peaks(probed.pairs(one), verdict)
        ratio = f"{times(verdict.memory_ratio or 0.0)}x"
        before, after = (_bytes(value) for value in absolute) if absolute else ("1x", ratio)
        bounds, told = None, memory(verdict)
        if verdict.memory_low is not None and verdict.memory_high is not None:
            bounds = verdict.memory_low, verdict.memory_high
            low, high = (f"{bound - 1:+.0%}" for bound in bounds)
            told += f" ({low} to {high})" if low != high else ""
        made.append(_compared(one, told, before, after, verdict.memory_ratio or 0.0, bounds, most, charts))
    device = any(one.verdict.memory_metric == "gpu_used" for one in tried)
    counted = (
        "as torch counts it, or all that the device holds where an engine beside torch takes some"
        if device
        else "as torch counts it"
    )
    caption = f"<b>Peak memory.</b> Shorter is leaner; {counted if _gpu(probed) else 'of the process'}."
    return f"<figure>\n<figcaption>{caption}</figcaption>\n{''.join(made)}</figure>\n"


def _compared(
    tried: Tried, told: str, before: str, after: str, ratio: float, bounds: tuple[float, float] | None, most: float, charts: Charts
) -> str:  # fmt: skip
    """A fix's two bars, relative to the script as it is."""
    title = shown(tried.title)
    first = charts.bar("as-is", 1.0, most, f"{title}: as it is", before)
    second = charts.bar("fixed", ratio, most, f"{title}: as fixed", f"{after}: {told}", bounds, 1.0)
    return (
        f'<div class="compared"><p><span>{_text(title)}</span> <b>{_text(told)}</b></p>'
        f"{_bar(AS_IS, first, before)}{_bar('as fixed', second, after)}</div>\n"
    )


def _time(probed: Probed, charts: Charts) -> str:
    found = [(tried, parts) for tried in probed.tried if (parts := numbers.parts(probed.pairs(tried))) is not None]
    figures = (_step_chart(found, charts) if found else "") + _whole_chart(probed, charts)
    return f'<div class="columns">\n{figures}</div>\n' if figures else ""


def _step_chart(found: Sequence[tuple[Tried, tuple[numbers.Parts, numbers.Parts]]], charts: Charts) -> str:
    most = max(parts.step for _, both in found for parts in both)
    # Trials of the script as it is are shared, yet each variant may have met others of them.
    listed = [(AS_IS, found[0][1][0]), *((shown(tried.title), b) for tried, (_, b) in found)]
    made = []
    for name, parts in listed:
        if parts.generation is None:
            shares, told = [("rest", parts.step)], f"{_seconds(parts.step)} a step"
        else:
            rest = parts.step - parts.generation
            shares = [("generation", parts.generation), ("rest", rest)]
            told = f"{_seconds(parts.generation)} generation, {_seconds(rest)} the rest of the step"
        made.append(_bar(name, charts.stack(shares, most, f"A step: {name}", told), _seconds(parts.step), wide=True))
    measured = any(parts.generation is not None for _, parts in listed)
    legend = _legend(("generation", "generation"), ("rest", "the rest of the step")) if measured else ""
    caption = "<b>A step</b> once it runs steadily" + ("." if measured else "; time in generation was not measured.")
    return f"<figure>\n<figcaption>{caption}{legend}</figcaption>\n{''.join(made)}</figure>\n"


def _whole_chart(probed: Probed, charts: Charts) -> str:
    every: list[tuple[str, Sequence[Ran]]] = [
        (AS_IS, probed.as_is),
        *((shown(t.title), t.ran) for t in probed.tried),
    ]
    found = [(name, whole) for name, ran in every if (whole := numbers.whole(ran)) is not None]
    if not found:
        return ""
    most = max(whole.startup + whole.steps + whole.rest for _, whole in found)
    made = []
    for name, whole in found:
        told = f"{_seconds(whole.startup)} start-up, {_seconds(whole.steps)} steps, {_seconds(whole.rest)} between steps and at the end"
        shares = [("startup", whole.startup), ("rest", whole.steps), ("between", whole.rest)]
        total = _seconds(sum(size for _, size in shares))
        made.append(_bar(name, charts.stack(shares, most, f"A whole trial: {name}", told), total, wide=True))
    legend = _legend(("startup", "start-up"), ("rest", "steps"), ("between", "between steps and at the end"))
    caption = f"<b>A whole trial</b> of {plural(probed.steps, 'step')}: the start weighs less the longer a training is."
    return f"<figure>\n<figcaption>{caption}{legend}</figcaption>\n{''.join(made)}</figure>\n"


def _steps(probed: Probed, charts: Charts) -> str:
    made = [_multiples(tried, probed.pairs(tried), charts) for tried in probed.tried]
    if not any(made):
        return ""
    legend = _legend(("as-is", AS_IS), ("fixed", "as fixed"), ("warming", "warm-up, left out of the comparison"))
    more = "A triangle is a step beyond the scale, a cross the end of a trial that stopped."
    return f"<p>Seconds of each step, a small chart for each pair of trials. {more}</p>\n{legend}{''.join(made)}"


def _multiples(tried: Tried, pairs: Sequence[Pair], charts: Charts) -> str:
    dropped = [numbers.warming(pair) if pair[0].trained and pair[1].trained else 0 for pair in pairs]
    most = scale([(series, first) for pair, first in zip(pairs, dropped, strict=True) for series in pair])
    longest = max((len(series.seconds) for pair in pairs for series in pair), default=0)
    if not longest:
        return ""
    made = []
    for index, ((a, b), first) in enumerate(zip(pairs, dropped, strict=True), 1):
        description = f"As it is: {_told_steps(a, first)}. As fixed: {_told_steps(b, first)}."
        svg = charts.steps(a, b, first, most, longest, f"{shown(tried.title)}, pair {index}", description)
        ends = [f"{side} stopped" for side, series in ((AS_IS, a), ("as fixed", b)) if not series.trained]
        label = "; ".join([f"pair {index}", *ends])
        made.append(f'<div class="multiple"><p>{label}</p>{svg}</div>')
    axis = f"0 to {_seconds(most)}, {plural(longest, 'step')}"
    return (
        f'<div class="series"><h3>{_text(tried.title)} {_verdict(tried.verdict.name)} <small>{axis}</small></h3>'
        f'<div class="multiples">{"".join(made)}</div></div>\n'
    )


def _told_steps(series: Series, dropped: int) -> str:
    said = ", ".join(_seconds(s) for s in series.seconds)
    left = f"{plural(dropped, 'step')} left out; " if dropped else ""
    end = "" if series.trained else f"; {series.outcome}"
    return f"{left}{said or 'no step'}{end}"


def _diffs(probed: Probed) -> str:
    """The one to keep first."""
    confirmed = [t for t in probed.tried if t.verdict.name in ("confirmed", "repaired") and t.diff]
    return "".join(
        f"<h3>{_text(tried.title)} {_verdict(tried.verdict.name)}</h3>\n{_diff(tried)}"
        for tried in sorted(confirmed, key=lambda t: t.name != probed.kept)
    )


def _diff(tried: Tried) -> str:
    lines = tried.diff.rstrip("\n").split("\n")
    # As the file has it, without the first column: some secrets are told only by the line before.
    hidden = redact("\n".join(line[1:] for line in lines)).split("\n")
    made = (_diff_line(f"{line[:1]}{rest}") for line, rest in zip(lines, hidden, strict=True))
    return _pre(f"Diff: {tried.title}", "\n".join(made), "diff")


def _diff_line(line: str) -> str:
    text = _text(line.rstrip("\r"))
    match line[:1]:
        case _ if line.startswith(("--- ", "+++ ")):
            return f'<span class="file">{text}</span>'
        case "@":
            return f'<span class="place">{text}</span>'
        case "+":
            return f"<ins>{text}</ins>"
        case "-":
            return f"<del>{text}</del>"
        case _:
            return text


def _failures(probed: Probed) -> str:
    own = _ends("The script as it is", stopped(probed.as_is))
    return own + "".join(
        _ends(f"{_text(tried.title)} {_verdict(tried.verdict.name)}", stopped(tried.ran)) for tried in probed.tried
    )


def _ends(heading: str, trials: Sequence[Ran]) -> str:
    """How trials ended that did not train, the last of each kind: they rarely differ."""
    if not trials:
        return ""
    kinds: dict[tuple[str, str | None], list[Ran]] = {}
    for ran in trials:
        kinds.setdefault((ran.series.outcome, ran.series.error), []).append(ran)
    return f"<h3>{heading}</h3>\n" + "".join(_end(same[-1], len(same)) for same in kinds.values())


def _end(ran: Ran, count: int) -> str:
    error = f": {shown(ran.series.error)}" if ran.series.error else ""
    tail = "\n".join(_text(line) for line in redact("\n".join(ran.tail)).split("\n"))
    return (
        f"<p>{plural(count, 'trial')}: {_text(ran.series.outcome + error)}</p>\n"
        + (_pre("Last lines that it wrote", tail, "tail") if ran.tail else "")
        + _list(_text(note) for note in ran.notes)
        + (f"<p>To see it again:</p>\n{_pre('Command', _text(ran.reproduce), 'command')}" if ran.reproduce else "")
    )


def _machine(probed: Probed) -> str:
    now = probed.conditions
    model = {name: _model_value(name, value) for name, value in now.model.items()}
    groups = [
        ("Hardware", now.hardware),
        ("Versions", {name: version for name, version in now.versions.items() if version is not None}),
        ("Model", {**({"method": now.method} if now.method else {}), **model}),
    ]
    made = "".join(f"<div><h3>{name}</h3>{_pairs(values)}</div>\n" for name, values in groups if values)
    absent = sorted(shown(name) for name, version in now.versions.items() if version is None)
    missing = f"<p>Not installed: {_text(', '.join(absent))}.</p>\n" if absent else ""
    fields = ""
    if now.fields:
        summary = f"Config fields that decide speed, memory or training ({len(now.fields)})"
        fields = f"<details><summary>{summary}</summary>{_pairs(now.fields)}</details>\n"
    return f'<div class="groups">\n{made}</div>\n{missing}{fields}' if made or fields else ""


def _notes(probed: Probed) -> str:
    own = [
        f"{shown(side)}, pair {ran.pair + 1}: {shown(note)}"
        for side, trials in ((AS_IS, probed.as_is), *((t.title, t.ran) for t in probed.tried))
        for ran in trials
        if ran.series.trained
        for note in ran.notes
    ]
    return _list(_text(note) for note in [*probed.notes, *own])


def _reading() -> str:
    terms = "".join(f"<div><dt>{_verdict(name)}</dt><dd>{_text(READING[name])}</dd></div>\n" for name in get_args(Name))
    return (
        f'<dl class="reading">\n{terms}</dl>\n<p>Trials run A B B A …, each in a fresh process. The interval holds the median of the '
        f"pairs' ratios with 90% or more; it takes {RULES.pairs} pairs.</p>\n"
    )


def _footer(probed: Probed) -> str:
    return f"<footer>\n<p>Run it again:</p>\n{_pre('Command', _text(probed.command), 'command')}<p>{_text(probed.tool)}, {_text(probed.date)}</p>\n</footer>\n"


# Pieces --------------------------------------------------------------------------------------------------------------


def _section(name: str, heading: str, body: str) -> str:
    return f'<section id="{name}" aria-labelledby="{name}-heading">\n<h2 id="{name}-heading">{heading}</h2>\n{body}</section>\n'


def _verdict(name: Name) -> str:
    return (
        f'<span class="verdict {name.replace(" ", "-")}"><span aria-hidden="true">{_SIGNS[name]}</span> {name}</span>'
    )


def _bar(label: str, svg: str, value: str, *, wide: bool = False) -> str:
    kind = "row wide" if wide else "row"
    return f'<div class="{kind}"><span>{_text(label)}</span>{svg}<span class="value">{_text(value)}</span></div>'


def _legend(*entries: tuple[str, str]) -> str:
    keys = "".join(f'<span><i class="{kind}" aria-hidden="true"></i>{text}</span>' for kind, text in entries)
    return f'<p class="legend">{keys}</p>\n'


def _pre(label: str, body: str, kind: str) -> str:
    """Wide lines scroll; with a place in the tab order, so that they do without a mouse too."""
    return f'<pre class="{kind}" tabindex="0" role="region" aria-label="{_text(label)}">{body}</pre>\n'


def _list(items: Iterable[str]) -> str:
    made = "".join(f"<li>{item}</li>\n" for item in items)
    return f"<ul>\n{made}</ul>\n" if made else ""


def _pairs(values: Mapping[str, Scalar]) -> str:
    items = ((name, "none" if value is None else str(value)) for name, value in values.items())
    made = (f"<div><dt>{_text(name)}</dt><dd>{_text(_hidden(name, value))}</dd></div>" for name, value in items)
    return f"<dl>{''.join(made)}</dl>"


def _hidden(name: str, value: str) -> str:
    """Some values are secrets by their name alone."""
    return value if redact(f'{name}: "{value}"') == f'{redact(name)}: "{redact(value)}"' else HIDDEN


def _text(text: str) -> str:
    return html.escape(shown(text))


# Numbers -------------------------------------------------------------------------------------------------------------


def _gpu(probed: Probed) -> bool:
    return bool(probed.conditions.hardware.get("gpu"))


def _model_value(name: str, value: Scalar) -> Scalar:
    counted = name in ("parameters", "trainable") and isinstance(value, int | float)
    return f"{value:,.0f}" if counted else value


def _number(value: float) -> str:
    """Three digits, all of those before the point."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:#.3g}".rstrip(".")


def _seconds(value: float) -> str:
    return f"{_number(value)} s" if value >= 0.0995 else f"{_number(value * 1000)} ms"


def _bytes(value: float) -> str:
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
