"""Logistic noise on a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.events.mechanism import Mechanism, NoiseMultiplier, mechanism
from accounting.events.samplings import SCHEDULES


@mechanism
@dataclass(frozen=True, slots=True)
class Logistic(Mechanism):
    """Logistic noise on a scalar sum of contributions of bounded absolute value.

    Attributes:
        noise_multiplier: Scale of the noise over the contribution bound.
    """

    kind: ClassVar[str] = "logistic"
    samplings = SCHEDULES
    filters = ("pure_dp", "approximate_dp", "zcdp", "gaussian_dp", "renyi_dp")
    norm = "absolute value"
    noise_multiplier_is = "scale of the noise on the sum of contributions, over the contribution bound"
    noise_multiplier: NoiseMultiplier
