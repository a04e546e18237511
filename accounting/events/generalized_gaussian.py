"""Noise of a smooth norm on a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Described, Real, Whole
from accounting.errors import InvalidValue
from accounting.events.mechanism import Mechanism, NoiseMultiplier, mechanism
from accounting.events.regularity import kappa_pair
from accounting.events.samplings import SCHEDULES
from accounting.numbers import MAX_DIMENSION

#: A constant that is written with ten digits is accepted as the exact one.
_DIGITS = 1e-9
#: An allowance for the rounding of the formula of the constant.
_ALLOWANCE = 1e-12


@mechanism
@dataclass(frozen=True, slots=True)
class GeneralizedGaussian(Mechanism):
    """Noise of density exp(-|z|_r^2 / (2 sigma^2)) on a sum of contributions that are bounded in the dual norm l_q.

    Attributes:
        norm_order: From 1 to 2.
        kappa: At least the kappa of `accounting.events.regularity.kappa_pair`. A smaller one is refused, because no
            proof covers it.
        noise_multiplier: sigma over the contribution bound.

    >>> GeneralizedGaussian(1.5, 100, 2.0, 4.0).charged_kappa
    2.0
    """

    kind: ClassVar[str] = "generalized_gaussian"
    samplings = SCHEDULES
    filters = ("approximate_dp", "approximate_gaussian_dp", "zcdp", "renyi_dp")
    norm = "l_q, the dual of l_p, 1/p + 1/q = 1, p = norm_order"
    noise_multiplier_is = (
        "sigma of the density exp(-|z|_r^2 / (2 sigma^2)) of the noise on the sum of contributions, over the "
        "contribution bound, in l_q"
    )
    parts_cost_less = True
    norm_order: Annotated[float, Real(1.0, 2.0, "p of the norm of the parameters; 1/p + 1/q = 1.")]
    dimension: Annotated[int, Whole(1, MAX_DIMENSION, "Dimension of the released vector.")]
    kappa: Annotated[
        float, Real(0.0, 1e12, "Regularity constant of the noise's norm; one that is not proved is refused.", True)
    ]
    noise_multiplier: NoiseMultiplier

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        least = kappa_pair(self.norm_order, self.dimension)
        if self.kappa < least.kappa * (1.0 - _DIGITS):
            raise InvalidValue(
                f"kappa {self.kappa:g} is not a regularity constant for norm_order {self.norm_order:g} in "
                f"dimension {self.dimension}; the smallest that is proved is {least.kappa:.12g}, with noise of the "
                f"norm l_r, r = {least.r:.12g} (2 ln d is not a regularity constant)",
                pointer=("kappa",),
            )

    @property
    def charged_kappa(self) -> float:
        """The constant, never below the smallest one that is proved."""
        least = kappa_pair(self.norm_order, self.dimension)
        # Without a power of d, the constant is r - 1 and has no rounding error.
        proved = least.kappa if least.kappa == least.kappa_plus else least.kappa * (1.0 + _ALLOWANCE)
        return max(self.kappa, proved)

    @property
    def is_gaussian(self) -> bool:
        """Return whether the noise is known to be ordinary Gaussian noise (the norm l_2), with kappa the squared length
        of some contribution.

        A larger kappa belongs to another norm, and a kappa that contains a power of d is rounded up.
        """
        least = kappa_pair(self.norm_order, self.dimension)
        return least.r == 2.0 and self.charged_kappa == least.kappa == least.kappa_plus
