"""Discrete Gaussian noise on a scalar sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.events.grid import GridNoise
from accounting.events.mechanism import mechanism


@mechanism
@dataclass(frozen=True, slots=True)
class DiscreteGaussian(GridNoise):
    """Discrete Gaussian noise on a scalar sum of contributions on a grid.

    Attributes:
        noise_multiplier: s of e^(-noise^2 / (2 s^2)); about the standard deviation.
    """

    kind: ClassVar[str] = "discrete_gaussian"
    filters = ("approximate_dp", "approximate_gaussian_dp", "zcdp", "renyi_dp")
    noise_multiplier_is = (
        "s of the noise's mass e^(-z^2 / (2 s^2)) on the sum of contributions, over the contribution bound"
    )
