"""The mechanism that releases the name of the candidate with the largest noisy score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Word
from accounting.events.mechanism import Epsilon, Mechanism, mechanism

LAPLACE, GUMBEL, EXPONENTIAL = "laplace", "gumbel", "exponential"


@mechanism
@dataclass(frozen=True, slots=True)
class ReportNoisyMax(Mechanism):
    """The name of the largest of noisy scores, with noise of scale 2 Delta / epsilon; nothing else is released.

    Attributes:
        epsilon: An epsilon of pure DP; Delta is the largest change of any score between neighbours.
    """

    kind: ClassVar[str] = "report_noisy_max"
    filters = ("pure_dp", "approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
    epsilon: Epsilon
    noise: Annotated[
        str,
        Word(
            {
                LAPLACE: "Two-sided exponential noise.",
                GUMBEL: "Noise with which it is the exponential mechanism.",
                EXPONENTIAL: "One-sided exponential noise, with which it is the permute-and-flip mechanism.",
            }
        ),
    ]

    @property
    def reveals_nothing(self) -> bool:
        return self.epsilon == 0.0
