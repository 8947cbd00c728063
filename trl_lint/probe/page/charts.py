"""Numbers in, inline SVG out.

No chart has a viewBox: places are percentages and sizes are pixels, so that it is as wide as its column on any screen
while its lines and letters stay as they are. Words that may be long stand in HTML beside it and wrap.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from itertools import count

from trl_lint.probe.comparison import Series, median

# Dots of longer trials would be a smear.
_DOTS = 30
# A first step that compiles would press the others flat: it is drawn at the upper edge, as a triangle.
_CUT = 1.6


class Charts:
    """The charts of one page: it gives each its own ids, which a title and a description are bound by."""

    def __init__(self) -> None:
        self._ids = count(1)

    def _svg(self, kind: str, title: str, description: str, marks: str) -> str:
        number = next(self._ids)
        return (
            f'<svg class="{kind}" role="img" aria-labelledby="t{number} d{number}">'
            f'<title id="t{number}">{html.escape(title)}</title><desc id="d{number}">{html.escape(description)}</desc>'
            f"{marks}</svg>"
        )

    def bar(
        self, side: str, value: float, most: float, title: str, description: str,
        bounds: tuple[float, float] | None = None, reference: float | None = None,
    ) -> str:  # fmt: skip
        """One bar from 0 to `value` on a scale that ends at `most`; whiskers at `bounds`, a line at `reference`."""
        marks = [f'<rect class="{side}" y="2" height="14" width="{_at(value, most)}" rx="2"/>']
        if reference is not None:
            x = _at(reference, most)
            marks.append(f'<line class="reference" x1="{x}" x2="{x}" y1="0" y2="18"/>')
        if bounds is not None:
            low, high = (_at(bound, most) for bound in bounds)
            marks += [
                f'<line class="{kind}" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"/>'
                for kind in ("halo", "whisker")
                for x1, x2, y1, y2 in ((low, high, 9, 9), (low, low, 5, 13), (high, high, 5, 13))
            ]
        return self._svg("bar", title, description, "".join(marks))

    def stack(self, shares: Sequence[tuple[str, float]], most: float, title: str, description: str) -> str:
        """Parts, each (class, size), one after the other on a scale that ends at `most`."""
        marks, start = [], 0.0
        for kind, size in shares:
            marks.append(f'<rect class="{kind}" x="{_at(start, most)}" y="2" height="14" width="{_at(size, most)}"/>')
            start += size
        # Parts are told apart by a gap too, not by color alone.
        ends = [sum(size for _, size in shares[:index]) for index in range(1, len(shares))]
        marks += [f'<line class="gap" x1="{_at(x, most)}" x2="{_at(x, most)}" y1="0" y2="18"/>' for x in ends if x > 0]
        return self._svg("bar", title, description, "".join(marks))

    def attempts(self, speeds: Sequence[float | None], most: float, title: str, description: str) -> str:
        """A dot for the speed of each trial on a scale that ends at `most`, the best so far as a line, a cross for None."""
        longest, top = len(speeds), most * 1.08
        fastest = [(number, best) for number, best in enumerate(_best_so_far(speeds), 1) if best > 0]
        at = " ".join(
            f"{100 * (number - 0.5) / longest:.2f},{100 - _height(best, top):.2f}" for number, best in fastest
        )
        marks = ['<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>']
        if len(fastest) > 1:
            marks.append(
                '<svg aria-hidden="true" viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%">'
                f'<polyline class="as-is" points="{at}"/></svg>'
            )
        for number, speed in enumerate(speeds, 1):
            x = _x(number, longest)
            if speed is None:
                marks.append(_cross("as-is", x, "96%"))
            else:
                marks.append(f'<circle class="fixed" cx="{x}" cy="{100 - _height(speed, top):.2f}%" r="3.5"/>')
        return self._svg("attempts", title, description, "".join(marks))

    def steps(self, a: Series, b: Series, dropped: int, most: float, longest: int, title: str, description: str) -> str:
        """Seconds of each step of a pair of trials on a scale of `most` seconds and `longest` steps."""
        marks = [
            f'<rect class="warming" x="0" y="0" height="100%" width="{_x(dropped + 0.5, longest)}"/>'
            if dropped
            else "",
            '<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>',
            *_line("as-is", a, dropped, most, longest),
            *_line("fixed", b, dropped, most, longest),
        ]
        return self._svg("steps", title, description, "".join(marks))


def _best_so_far(speeds: Sequence[float | None]) -> Iterator[float]:
    best = 0.0
    for speed in speeds:
        best = max(best, speed or 0.0)
        yield best


def scale(series: Sequence[tuple[Series, int]]) -> float:
    """Where the axis of step times ends: above all kept steps, above the dropped ones only if they are not far off."""
    kept = [s for one, dropped in series for s in one.seconds[dropped:] or one.seconds if math.isfinite(s)]
    every = [s for one, _ in series for s in one.seconds if math.isfinite(s)]
    if not every:
        return 1.0
    return min(max(every), _CUT * max([*kept, median(every)])) * 1.08 or 1.0


def _line(side: str, series: Series, dropped: int, most: float, longest: int) -> Iterator[str]:
    points = [(step, s) for step, s in enumerate(series.seconds, 1) if math.isfinite(s)]
    at = " ".join(f"{100 * (step - 0.5) / longest:.2f},{100 - _height(s, most):.2f}" for step, s in points)
    if len(points) > 1:
        yield (
            '<svg aria-hidden="true" viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%">'
            f'<polyline class="{side}" points="{at}"/></svg>'
        )
    for step, s in points:
        x = _x(step, longest)
        if s > most:
            yield f'<svg aria-hidden="true" class="beyond" x="{x}" y="0"><path class="{side}" d="M-4 7L0 0L4 7Z"/></svg>'
        elif len(points) <= _DOTS:
            hollow = " dropped" if step <= dropped else ""
            yield f'<circle class="{side}{hollow}" cx="{x}" cy="{100 - _height(s, most):.2f}%" r="2.5"/>'
    if not series.trained:
        step, s = points[-1] if points else (1, 0.0)
        yield _cross(side, _x(step, longest), f"{100 - _height(s, most):.2f}%")


def _cross(side: str, x: str, y: str) -> str:
    return f'<svg aria-hidden="true" class="beyond" x="{x}" y="{y}"><path class="{side} end" d="M-4 -4L4 4M-4 4L4 -4"/></svg>'


def _height(seconds: float, most: float) -> float:
    return 100 * min(max(seconds, 0.0), most) / most


def _x(step: float, longest: int) -> str:
    return f"{100 * (step - 0.5) / longest:.2f}%"


def _at(value: float, most: float) -> str:
    share = value / most if most > 0 and math.isfinite(value) else 0.0
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"
