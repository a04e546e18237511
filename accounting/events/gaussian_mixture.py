"""Gaussian noise whose scale is itself drawn at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, get_args

from accounting.described import Described, Real, Reals
from accounting.errors import InvalidValue
from accounting.events.mechanism import Mechanism, NoiseMultiplier, mechanism
from accounting.events.samplings import SCHEDULES, Poisson

_MAX_BRANCHES = 64
#: The most by which the sum of the weights may differ from 1.
_TOLERANCE = 1e-9


@mechanism
@dataclass(frozen=True, slots=True)
class GaussianMixture(Mechanism):
    """Gaussian noise whose scale is drawn at every step, independently of the data, and published.

    Attributes:
        weights: Proportions, whose sum must be 1 up to 1e-9.

    Raises:
        InvalidValue: If the lists differ in length, a number is outside its range, or the weights do not add up to 1.

    >>> GaussianMixture((0.75, 0.25), (4, 8)).least_noise
    4.0
    """

    kind: ClassVar[str] = "gaussian_mixture"
    samplings = (*SCHEDULES, Poisson)
    filters = ("approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
    norm = "l2"
    noise_multiplier_is = (
        "standard deviations of the noise on the sum of contributions, one for each branch, over the contribution "
        "bound, in l2"
    )
    weights: Annotated[
        tuple[float, ...],
        Reals(Real(0.0, 1.0, open_lower=True), _MAX_BRANCHES, "Probabilities of the branches; they add up to 1."),
    ]
    noise_multipliers: Annotated[
        tuple[float, ...], Reals(get_args(NoiseMultiplier)[1], _MAX_BRANCHES, "One for each weight.")
    ]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if len(self.noise_multipliers) != len(self.weights):
            raise InvalidValue("noise_multipliers must have one number for each weight", pointer=("noise_multipliers",))
        total = math.fsum(self.weights)
        if abs(total - 1.0) > _TOLERANCE:
            raise InvalidValue(f"weights must add up to 1, got {total!r}", pointer=("weights",))

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The weights over their sum."""
        total = math.fsum(self.weights)
        return tuple(weight / total for weight in self.weights)

    @property
    def least_noise(self) -> float:
        """The smallest noise multiplier. Its Gaussian dominates every branch."""
        return min(self.noise_multipliers)
