"""How long the property tests run: the same cases each time and about a minute, or with TRL_LINT_PROPERTIES=N times as many,
drawn anew."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("TRL_LINT_PROPERTIES", "0"))


def cases(number: int) -> settings:
    """The settings of a test that tries `number` cases in CI. Only the long profile makes a failing case small and keeps it."""
    return settings(
        max_examples=number * max(TIMES, 1),
        derandomize=not TIMES,
        database=settings.get_profile("default").database if TIMES else None,
        phases=tuple(Phase) if TIMES else (Phase.explicit, Phase.generate),
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
