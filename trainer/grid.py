r"""This module has the public grid on which sums and noise lie exactly, and the inequality of integers that a run
relies on.

A record's contribution is divided by its bound, so that it is no longer than 1. A sum of contributions is formed piece
by piece; each piece's sum is rounded to a whole multiple of gamma = 2^-k, and the integers are added without error. The
noise is R = round(K Z), drawn exactly (`trainer.exact`), with K the noise multiplier over gamma. Only q + R is
released, and q + round(K Z) = round(q + K Z): what is released is a function of the continuous mechanism's output, so
every bound that is proved for the continuous mechanism holds for the released integers.

One record moves q by at most 1 / gamma in the norm of the claim, for the following reason. The record is in one piece,
and the others are equal bit by bit. Let m be the margin, e the relative error of norms, u the unit roundoff, and E a
piece's summation error. The record moves the sum of its piece by at most (1 - m)(1 + e)(1 + 4u) + 2E, and rounding to
the grid by at most gamma d^(1/r) in the l_r norm, since each of d coordinates moves by gamma/2 on either side. A piece
of k contributions has E <= (k + k (k + 1) / 2)(1 + k u) u, products and sums in any order included. With e = 2^-10 this
gives

| dtype   | u     | k    | 2E        | m    | left for gamma d^(1/r) |
|---------|-------|------|-----------|------|------------------------|
| float32 | 2^-24 | 320  | 0.00616   | 2^-7 | 6.8e-4                 |
| float64 | 2^-53 | 2048 | 4.7e-10   | 1e-5 | 9.9e-6 (e = 2^-40)     |

A finer grid than `_SHARES` is never needed. A coarser one is taken where the noise or the sum would have too many
digits; then contributions are held below their bound by as much more (`Grid.margin`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.errors import InvalidValue
from trainer.arrays import Array
from trainer.clipping import margin as margin_of

#: By dtype, the share of the bound that rounding to the grid may use up without a wider margin.
_SHARES = {"float64": -20, "float32": -13}
#: Noise is drawn fast and exactly up to this scale of its coordinates, in steps of the grid.
LARGEST_SCALE = 2.0**36
#: Sums without noise stay below this many steps, so that sum and noise together are exact in float64.
_LARGEST_SUM = 2.0**52
#: A grid so coarse that it takes a larger share of the bound is refused.
_LARGEST_SHARE = 2.0**-4


@dataclass(frozen=True, slots=True)
class Grid:
    """Whole multiples of ``step``, in units of the contribution bound.

    Attributes:
        step: The step gamma, a power of two.
        margin: The relative distance that contributions keep from their bound.
        scale: The scale K, the noise's standard deviation in steps; not below what was charged.
    """

    step: float
    margin: float
    scale: float

    @property
    def steps_per_unit(self) -> float:
        """1 / gamma: multiplying by it is exact."""
        return 1.0 / self.step

    def noised(self, integers: Array, noise: Array, unit: float) -> Array:
        """Return the released value of a sum: integers plus noise, times the step and the unit. Nothing else is
        released.

        Guarantees:
            - zeros_have_no_sign: minus zero becomes zero. Otherwise a sum that was rounded to minus zero would tell its
              sign wherever the noise is minus zero, too.

        Args:
            integers: shape (d,), whole steps; a secret.
            noise: shape (d,), whole steps, drawn for `scale`; the answer is written over it.
            unit: The contribution bound; a step is gamma times it.
        """
        noise += integers
        noise += 0.0
        noise *= self.step * unit
        return noise

    def decoded(self, integers: Array, unit: float) -> Array:
        """Return the value of the integers, in the unit, shape (d,). It is as secret as the integers are."""
        return integers * (self.step * unit)


def grid_for(
    noise_multiplier: float,
    dimension: int,
    dtype: str,
    contributions: int,
    *,
    norm_order: float = 2.0,
    spread: float = 1.0,
) -> Grid:
    """Return the grid of a noisy sum.

    Args:
        noise_multiplier: The noise's scale over the contribution bound, as it was charged.
        dimension: The dimension d.
        dtype: The numeric type in which a piece is summed: "float64" or "float32".
        contributions: The most contributions that a sum may have: a public number.
        norm_order: The order r of the norm in which contributions are bounded, in [1, infinity].
        spread: The largest scale of one coordinate of the noise, divided by the noise's scale.

    Guarantees:
        - rounding_stays_within_the_margin: gamma d^(1/r) is within the share that the margin leaves.
        - noise_is_not_below_the_charged: ``scale * step >= noise_multiplier``.

    Raises:
        InvalidValue: If there is so much noise, or there are so many contributions, that no grid keeps the bound.

    >>> grid = grid_for(8.4, 200_000, "float64", 1000)
    >>> math.log2(grid.step), grid.scale
    (-29.0, 4509715660.8)
    >>> math.log2(grid_for(1.0, 203_530, "float32", 1000).step)
    -22.0
    """
    exponent = _fitting_exponent(dimension, _SHARES[dtype], norm_order)
    base = margin_of(dtype)
    smallest = max(noise_multiplier * spread / LARGEST_SCALE, contributions / _LARGEST_SUM)
    step = math.ldexp(1.0, exponent)
    widened = 0.0
    while step < smallest:
        step *= 2.0
        widened = step * math.pow(dimension, 1.0 / norm_order)
    if widened > _LARGEST_SHARE:
        raise InvalidValue(
            "so much noise on so many parameters leaves no digits for the sum: use a smaller noise multiplier, or "
            "fewer parameters",
            pointer=("noise_multiplier",),
        )
    return Grid(step, base + widened, noise_multiplier * (1.0 / step))


def _fitting_exponent(dimension: int, share: int, norm_order: float) -> int:
    """Return the largest k with (2^k)^r d <= (2^share)^r, decided in integers for r = 2."""
    if math.isinf(norm_order):
        return share
    if norm_order == 2.0:
        halved = 0
        while (1 << (2 * halved)) < dimension:
            halved += 1
        return share - halved
    return share - math.ceil(math.log2(dimension) / norm_order + 2.0**-30)
