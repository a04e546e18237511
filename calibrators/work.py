"""The work of default choices: about a minute of one core. A request that wants more says so."""

from __future__ import annotations

from calibrators.spec import Calibration

#: Numbers that all steps together may multiply. It decides steps and batch sizes that nobody gives.
WORK = 5e10
#: No default has fewer steps than this for the sake of its work.
FEWEST_STEPS = 100
#: Where a theorem's steps cannot be fewer, as many times the work is accepted of a request that does not ask for them.
PATIENCE = 10.0
#: A calibrator's own name for the number of steps that it would choose without a limit to their work.
UNCAPPED = "iterations_uncapped"
#: Numbers that are multiplied in the time in which the noise of one coordinate is drawn, and in which a step begins:
#: estimates for a core that multiplies about 1e9 numbers a second (60 ns a coordinate, 30 us a step). What defaults
#: really take stands beside them in docs/measured.md, from `python -m benchmarks.runs.minutes`.
_NOISE, _STEP = 60.0, 3e4


def affordable_steps(dataset_size: int, dimension: int) -> int:
    """Return how many steps over all records fit the work, and `FEWEST_STEPS` at least.

    >>> affordable_steps(50_000, 1_000), affordable_steps(10**7, 10**3)
    (998, 100)
    """
    return max(int(WORK / _work(dataset_size, 1, dimension)), FEWEST_STEPS)


def work_of(calibration: Calibration, dimension: int) -> float:
    """Return about how many numbers a plan multiplies, with what its noise and the steps themselves take beside that.

    Args:
        calibration: It says how many gradients of records the plan takes.
        dimension: Number of parameters.
    """
    [gradients] = (each.value for each in calibration.utility if each.name == "gradient_evaluations")
    assert isinstance(gradients, float), "a number of gradients is one number"
    return _work(gradients, calibration.plan.iterations, dimension)


def _work(gradients: float, steps: int, dimension: int) -> float:
    return (gradients + _NOISE * steps) * dimension + _STEP * steps


def minutes_of(work: float) -> float:
    """Return about how many minutes of one core the work takes.

    >>> minutes_of(5e11)
    10.0
    """
    return work / WORK
