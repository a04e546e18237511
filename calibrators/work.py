"""This module limits the work of default choices to about a minute of one core. A request can ask for more work."""

from __future__ import annotations

from calibrators.spec import Calibration

#: The allowed work: how many numbers all steps together may multiply. It limits the number of steps and the batch size
#: if a request leaves them out.
WORK = 5e10
#: The smallest default number of steps, even if these steps are more work than is allowed.
FEWEST_STEPS = 100
#: If a theorem's number of steps cannot be reduced, this multiple of the allowed work is accepted, even if the request
#: does not ask for the theorem's steps.
PATIENCE = 10.0
#: The name under which a calibrator states the number of steps that it would choose without a limit on the work.
UNCAPPED = "iterations_uncapped"
#: How many numbers are multiplied in the time that it takes to draw the noise of one coordinate, and in the time that
#: it takes to start a step. These are estimates for a core that multiplies about 1e9 numbers a second (60 ns a
#: coordinate, 30 us a step). `python -m benchmarks.runs.minutes` measures what default runs really take, and
#: docs/measured.md compares the two.
_NOISE, _STEP = 60.0, 3e4


def affordable_steps(dataset_size: int, dimension: int) -> int:
    """Return the number of steps over all records that the allowed work suffices for, but at least `FEWEST_STEPS`.

    >>> affordable_steps(50_000, 1_000), affordable_steps(10**7, 10**3)
    (998, 100)
    """
    return max(int(WORK / _work(dataset_size, 1, dimension)), FEWEST_STEPS)


def work_of(calibration: Calibration, dimension: int) -> float:
    """Estimate how many numbers a plan multiplies. The time for the noise and for starting the steps is included as an
    equivalent number of multiplications.

    Args:
        calibration: The calibration, which states the number of per-record gradients.
        dimension: The number of parameters.
    """
    [gradients] = (each.value for each in calibration.utility if each.name == "gradient_evaluations")
    assert isinstance(gradients, float), "the number of gradients is a single number"
    return _work(gradients, calibration.plan.iterations, dimension)


def _work(gradients: float, steps: int, dimension: int) -> float:
    return (gradients + _NOISE * steps) * dimension + _STEP * steps


def minutes_of(work: float) -> float:
    """Return the estimated minutes that this work takes on one core.

    >>> minutes_of(5e11)
    10.0
    """
    return work / WORK
