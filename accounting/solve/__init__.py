"""Solving: the value of one unknown at which a list of events meets a target, with the certificate of that value.

| unknown | answer | file |
|---|---|---|
| noise multiplier | the smallest that meets the target | noise.py |
| number of steps | the largest that meets it, and that one more does not | integers.py |
| batch size | the largest that meets it, and that one more does not | integers.py |
| sampling probability | the largest that meets it | probability.py |
| a field that events leave out | one of the above, for any list | open_events.py |
| epsilon, delta | the certified upper end at the given value of the other | guarantee.py |

Every returned number carries its own certificate: the cost was certified at this very number, and meets the target. A
target that no value meets, or that every value meets, is refused with the reason.
"""

from __future__ import annotations

from accounting.solve.guarantee import solve_delta, solve_epsilon
from accounting.solve.integers import solve_batch_size, solve_count
from accounting.solve.noise import Calibrated, solve_noise, solve_noise_multiplier
from accounting.solve.open_events import OpenEvents, OpenField, Solved, solve_events
from accounting.solve.probability import solve_sampling_probability
from accounting.solve.solution import EventsAt, EventsAtInteger, IntegerSolution, Solution

__all__ = [
    "Calibrated",
    "EventsAt",
    "EventsAtInteger",
    "IntegerSolution",
    "OpenEvents",
    "OpenField",
    "Solution",
    "Solved",
    "solve_batch_size",
    "solve_count",
    "solve_delta",
    "solve_epsilon",
    "solve_events",
    "solve_noise",
    "solve_noise_multiplier",
    "solve_sampling_probability",
]
