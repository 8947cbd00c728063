"""What a person sees while trials run: on a terminal one line that moves, elsewhere one line for each trial."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trl_lint.probe.comparison import median
from trl_lint.probe.trials import Trial
from trl_lint.reports.redaction import redact

if TYPE_CHECKING:
    from rich.status import Status

    from trl_lint.probe.session import Listener


def progress() -> Listener:
    """Who tells of the trials on stderr."""
    return Moving() if sys.stderr.isatty() else Lines()


class Lines:
    """One line for each trial when it has ended."""

    def begins(self, pair: int | None, name: str, left: float) -> None:
        """Nothing yet."""

    def steps(self, step: int) -> None:
        """Nothing yet."""

    def ended(self, pair: int | None, name: str, trial: Trial) -> None:
        """What it came to."""
        print(told(pair, name, trial), file=sys.stderr, flush=True)


class Moving:
    """What runs now, how far it is and what is left; above it the trials that have ended."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = None
        self._what = ""
        self._left = ""

    def begins(self, pair: int | None, name: str, left: float) -> None:
        """Show it."""
        self._what = f"{_pair(pair)}, {name}"
        self._left = f"about {_duration(left)} left"
        self._status = self._console.status(self._line("starting"))
        self._status.start()

    def steps(self, step: int) -> None:
        """Show how far it is."""
        if self._status is not None:
            self._status.update(self._line(f"step {step}"))

    def ended(self, pair: int | None, name: str, trial: Trial) -> None:
        """What it came to stays on the screen."""
        if self._status is not None:
            self._status.stop()
        self._console.print(told(pair, name, trial), markup=False)

    def _line(self, state: str) -> str:
        from rich.markup import escape

        return escape(f"{self._what}: {state}; {self._left}")


def told(pair: int | None, name: str, trial: Trial) -> str:
    """One trial in one line."""
    series = trial.series
    what = f"{series.outcome}: {series.error}"
    if series.trained:
        what = f"{median(series.seconds[2:] or series.seconds):.3f} s/step"
    return redact(f"{_pair(pair)}, {name}: {what} ({trial.seconds:.0f} s)")


def _pair(pair: int | None) -> str:
    return "warm-up" if pair is None else f"pair {pair + 1}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
