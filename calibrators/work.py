"""This module bounds the work of default choices to about a minute of one core. A request that wants more says so."""

from __future__ import annotations

from calibrators.spec import Calibration

#: The count of numbers that all steps together may multiply. It decides steps and batch sizes that a request leaves
#: out.
WORK = 5e10
#: The least number of steps by default, however much work they are.
FEWEST_STEPS = 100
#: If a theorem's steps cannot be reduced, this multiple of the work is accepted even if the request does not ask for
#: them.
PATIENCE = 10.0
#: The name under which a calibrator gives the number of steps that it would choose without a limit on their work.
UNCAPPED = "iterations_uncapped"
#: Numbers that are multiplied in the time in which the noise of one coordinate is drawn, and in which a step begins:
#: estimates for a core that multiplies about 1e9 numbers a second (60 ns a coordinate, 30 us a step).
#: `python -m benchmarks.runs.minutes` measures what default runs really take, and docs/measured.md compares the two.
_NOISE, _STEP = 60.0, 3e4


def affordable_steps(dataset_size: int, dimension: int) -> int:
    """Return the number of steps over all records that fit the work, but at least `FEWEST_STEPS`.

    >>> affordable_steps(50_000, 1_000), affordable_steps(10**7, 10**3)
    (998, 100)
    """
    return max(int(WORK / _work(dataset_size, 1, dimension)), FEWEST_STEPS)


def work_of(calibration: Calibration, dimension: int) -> float:
    """Estimate the count of numbers that a plan multiplies, including the equivalent of its noise and of the steps
    themselves.

    Args:
        calibration: The calibration, which states the number of per-record gradients.
        dimension: The number of parameters.
    """
    [gradients] = (each.value for each in calibration.utility if each.name == "gradient_evaluations")
    assert isinstance(gradients, float), "a number of gradients is one number"
    return _work(gradients, calibration.plan.iterations, dimension)


def _work(gradients: float, steps: int, dimension: int) -> float:
    return (gradients + _NOISE * steps) * dimension + _STEP * steps


def minutes_of(work: float) -> float:
    """Estimate the minutes of one core that the work takes.

    >>> minutes_of(5e11)
    10.0
    """
    return work / WORK
