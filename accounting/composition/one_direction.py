"""This module bounds the profile of one direction: the cost of a list for one order of the two neighbours.

`accounting.accountant` bounds the larger of both directions. A filter that refunds steps that were not taken must know
their cost in each direction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accounting.composition.basic import one_step_delta, one_step_delta_in
from accounting.composition.composition import Composition
from accounting.composition.evaluator import FAILURES
from accounting.composition.fourier import delta_in_direction, directed
from accounting.composition.gaussian_dp import AnalyticGaussian
from accounting.composition.shared_lines import deltas_in_direction
from accounting.fourier.effort import question
from accounting.fourier.profiles import DirectedProfiles
from accounting.intervals import Bounds
from accounting.losses.privacy_loss import Direction


def deltas_in(
    direction: Direction, composition: Composition, epsilons: Sequence[float], *, one_by_one: bool = True
) -> list[Bounds | None]:
    """Bound one direction's delta at each epsilon.

    Args:
        direction: The direction.
        composition: Steps that each have a pair. The caller accounts for stated failures and discrepancies.
        epsilons: Numbers of at least 0, in ascending order.
        one_by_one: Whether each epsilon that no shared line answers gets an evaluation of its own, which may take a
            second or more.

    Returns:
        Bounds for each epsilon; None if none were found.

    Guarantees: bounds_contain_the_profile.

    >>> from accounting.composition.composition import compose
    >>> from accounting.events import Event, Gaussian, Poisson
    >>> from accounting.relations import NeighboringRelation
    >>> steps = compose([Event(Gaussian(1.0), Poisson(0.01), 100)], NeighboringRelation.ADD_OR_REMOVE_ONE)
    >>> remove, add = (deltas_in(direction, steps, [0.5])[0] for direction in Direction)
    >>> remove is not None and add is not None and remove.lower > add.upper > 0.0
    True
    """
    with np.errstate(all="ignore"), question():
        return _deltas(composition, direction, epsilons, one_by_one=one_by_one)


def _deltas(
    composition: Composition, direction: Direction, epsilons: Sequence[float], *, one_by_one: bool
) -> list[Bounds | None]:
    if composition.gaussian_only is not None:
        return [AnalyticGaussian().delta(composition, epsilon) for epsilon in epsilons]
    if composition.count == 1 and not composition.steps[0][0].is_enclosed:
        ((loss, _),) = composition.steps
        ends = (
            [one_step_delta_in(direction, loss, epsilon, upward=upward) for epsilon in epsilons]
            for upward in (False, True)
        )
        return [Bounds(lower, upper) for lower, upper in zip(*ends, strict=True)]
    here = directed(composition, direction)
    if here is None:
        return [None] * len(epsilons)
    profiles = DirectedProfiles(here)
    try:
        found = deltas_in_direction(profiles, np.asarray(epsilons, dtype=np.float64))
    except FAILURES:
        found = [None] * len(epsilons)
    found = [bounds if bounds is not None and bounds.is_sound else None for bounds in found]
    if not one_by_one:
        return found
    pairs = zip(epsilons, found, strict=True)
    return [_alone(composition, profiles, epsilon) if bounds is None else bounds for epsilon, bounds in pairs]


def _alone(composition: Composition, profiles: DirectedProfiles, epsilon: float) -> Bounds | None:
    try:
        bounds = delta_in_direction(profiles, one_step_delta(composition, epsilon), epsilon)
    except FAILURES:
        return None
    return bounds if bounds.is_sound else None
