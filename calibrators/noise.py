"""Targets to noise: the smallest noise multiplier whose certified epsilon meets the target."""

from __future__ import annotations

from accounting.events import Event, Gaussian, Sampling
from accounting.relations import NeighboringRelation
from accounting.solve import Calibrated, solve_noise_multiplier
from calibrators.spec import ApproximateDpTarget


def solve_gaussian_noise(
    sampling: Sampling, iterations: int, relation: NeighboringRelation, target: ApproximateDpTarget
) -> Calibrated:
    """Noise multiplier of ``iterations`` equal Gaussian steps.

    Guarantees: the certified upper epsilon at the returned multiplier is at most the target's.

    Raises:
        Unreachable: no noise multiplier in the engine's range meets the target.
    """

    def events_at(noise_multiplier: float) -> tuple[Event, ...]:
        return (Event(Gaussian(noise_multiplier), sampling, iterations),)

    return solve_noise_multiplier(events_at, relation, epsilon=target.epsilon, delta=target.delta)
