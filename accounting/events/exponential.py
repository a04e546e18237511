"""The exponential mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.events.mechanism import Epsilon, Mechanism, mechanism


@mechanism
@dataclass(frozen=True, slots=True)
class Exponential(Mechanism):
    """The exponential mechanism with weights e^(epsilon score / (2 Delta)), Delta the largest change of any score.

    Attributes:
        epsilon: The length of the interval in which the losses lie, and an epsilon of pure DP.
    """

    kind: ClassVar[str] = "exponential"
    filters = ("pure_dp", "approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
    epsilon: Epsilon

    @property
    def reveals_nothing(self) -> bool:
        return self.epsilon == 0.0
