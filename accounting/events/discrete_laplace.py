"""Discrete Laplace noise on a scalar sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.events.grid import GridNoise
from accounting.events.mechanism import mechanism


@mechanism
@dataclass(frozen=True, slots=True)
class DiscreteLaplace(GridNoise):
    """Discrete Laplace noise on a scalar sum of contributions on a grid.

    Attributes:
        noise_multiplier: The scale b of e^(-|noise| / b).
    """

    kind: ClassVar[str] = "discrete_laplace"
    filters = ("pure_dp", "approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
    noise_multiplier_is = (
        "scale b of the noise's mass e^(-|z|/b) on the sum of contributions, over the contribution bound"
    )
