"""Laplace noise on a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.events.mechanism import Mechanism, NoiseMultiplier, mechanism
from accounting.events.samplings import BATCHES, Allocations


@mechanism
@dataclass(frozen=True, slots=True)
class Laplace(Mechanism):
    """Laplace noise on a sum of contributions of bounded l1 norm."""

    kind: ClassVar[str] = "laplace"
    samplings = tuple(cls for cls in BATCHES if not issubclass(cls, Allocations))
    filters = ("pure_dp", "approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
    norm = "l1"
    noise_multiplier_is = "scale b of the noise on the sum of contributions, over the contribution bound, in l1"
    parts_cost_less = True
    noise_multiplier: NoiseMultiplier
