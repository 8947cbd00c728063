"""The time of a process passes only while it sleeps, and never quite as fast as it should, like that of any machine.

A trial takes milliseconds then, and what else the machine does changes no verdict. The noise is of known size, and the same
for a trial of the same number: 0.4 % between trials, 1 % between sleeps, one sleep in a hundred is three times as long, and
the first steps take longer.
"""

import json
import os
import random
import time

_out = os.path.basename(json.loads(os.environ["TRL_LINT_PROBE"])["out"])
_random = random.Random(f"{os.environ.get('PLANTED_SEED')} {_out}")
_machine = _random.gauss(1, 0.004)
_now = time.perf_counter()
_slept = 0


def _sleep(seconds):
    global _now, _slept
    _slept += 1
    cold = 1 + 2 / _slept**2
    late = 3 if _random.random() < 1 / 100 else 1 + abs(_random.gauss(0, 0.01))
    _now += seconds * _machine * cold * late


time.sleep, time.perf_counter = _sleep, lambda: _now
