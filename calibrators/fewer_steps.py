"""This module reduces the number of steps that a theorem chooses, if they are more work than is done by default."""

from __future__ import annotations

from dataclasses import replace

from accounting.errors import InvalidValue
from calibrators.algorithm import Algorithm, StepCount
from calibrators.choices import Choice
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec
from calibrators.theorem_choices import ITS_OWN
from calibrators.work import FEWEST_STEPS, PATIENCE, UNCAPPED, WORK, minutes_of, work_of

#: The search aims at this share of the allowed work. Some algorithms take larger batches if they have fewer steps, so
#: the work falls more slowly than the number of steps.
_AIM = 0.9


def within_work(
    algorithm: Algorithm, spec: Spec, calibration: Calibration, dimension: int, *, accepts: bool
) -> tuple[Calibration, Choice | None]:
    """Return a calibration whose steps are no more work than is done by default, and the choice of the number of steps.

    A number of steps that the spec gives is never reduced.

    Args:
        algorithm: The algorithm. Its record names the member of a request that sets the number of steps.
        spec: The whole spec.
        calibration: The calibration of the spec, whose plan is executable.
        dimension: The number of parameters, or an assumed number.
        accepts: Whether the request asks for the theorem's number of steps, even if that number is large.

    Raises:
        InvalidValue: If the theorem's steps are far more work, and their number cannot be reduced.
    """
    count, plan = algorithm.fewer_steps, calibration.plan
    given = StepCount.INNER_ITERATIONS in spec.assumptions if count is StepCount.INNER_ITERATIONS else spec.iterations
    work = work_of(calibration, dimension)
    for each in calibration.hyperparameters:
        if each.name == UNCAPPED and isinstance(each.value, float):
            own = int(each.value)
            return _said(
                calibration, "iterations", plan.iterations, own, _takes(own, work * each.value / plan.iterations)
            )
    if given or work <= WORK or plan.iterations <= FEWEST_STEPS:
        return calibration, None
    takes = _takes(plan.iterations, work)
    if accepts or (count is None and work <= PATIENCE * WORK):
        return replace(calibration, warnings=(*calibration.warnings, f"The theorem chooses {takes}.")), None
    if count is None:
        raise InvalidValue(
            f"the theorem of {plan.algorithm} chooses {takes}, and does not allow fewer. To run all of them, "
            "ask for the preset theorem. For a quicker run, leave algorithm out: a quicker algorithm is then "
            "chosen",
            code="too_much_work",
            pointer=("algorithm",),
        )
    found, number = _fewer(algorithm, spec, calibration, count, dimension)
    theorem = number * plan.iterations // found.plan.iterations
    name = str(count) if count is StepCount.ITERATIONS else f"assumptions.{count}"
    return _said(found, name, number, theorem, takes)


def _takes(steps: int, work: float) -> str:
    return f"{steps} steps, which take about {minutes_of(work):.2g} minutes of one core"


def _said(found: Calibration, name: str, number: int, theorem: int, takes: str) -> tuple[Calibration, Choice]:
    """Return the calibration with a warning that it has fewer steps than the theorem chooses, and the choice that
    reduced them.
    """
    warning = (
        f"{name} is {number} instead of the theorem's {theorem}. The theorem's number means {takes}. The bounds "
        "in this answer hold for the smaller number of steps; without bounds, nothing is promised about the "
        f"error. For more steps, give {name}."
    )
    choice = Choice(
        name,
        number,
        f"This is the number of steps that takes about a minute of one core. The theorem's number means {takes}.",
        "docs/concepts/practical_defaults.md",
        theorem,
        ITS_OWN,
    )
    return replace(found, warnings=(*found.warnings, warning)), choice


def _fewer(
    algorithm: Algorithm, spec: Spec, calibration: Calibration, count: StepCount, dimension: int
) -> tuple[Calibration, int]:
    """Return a calibration with fewer steps, and the value of the member that sets their number."""
    number, fewest, found = calibration.plan.iterations, FEWEST_STEPS, calibration
    if count is StepCount.INNER_ITERATIONS:
        [inner] = (each.value for each in calibration.hyperparameters if each.name == count)
        number, fewest = int((inner[0] if isinstance(inner, tuple) else inner) or 1), 1
    while number > fewest and (over := work_of(found, dimension) / WORK) > 1.0:
        number = max(int(_AIM * number / over), fewest)
        fewer = (
            replace(spec, iterations=number)
            if count is StepCount.ITERATIONS
            else replace(spec, assumptions={**spec.assumptions, count: float(number)})
        )
        found = calibrate(algorithm.name, fewer)
    return found, number
