"""Gaussian noise on a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.events.mechanism import Mechanism, NoiseMultiplier, mechanism
from accounting.events.samplings import BATCHES


@mechanism
@dataclass(frozen=True, slots=True)
class Gaussian(Mechanism):
    """Gaussian noise on a sum of contributions of bounded l2 norm."""

    kind: ClassVar[str] = "gaussian"
    samplings = BATCHES
    filters = ("approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
    norm = "l2"
    noise_multiplier_is = (
        "standard deviation of the noise on the sum of contributions, over the contribution bound, in l2"
    )
    parts_cost_less = True
    noise_multiplier: NoiseMultiplier
