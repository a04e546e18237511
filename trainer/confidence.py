"""Confidence intervals from noisy sums: they are exact for ratios of sums, and based on bounds for everything else.

Only the noise of the release counts as random. Its distribution is public: independent normal numbers with one standard
deviation. The intervals do not account for the choice of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A number that is estimated from noisy sums.

    Attributes:
        estimate: The likely value; None if the noise is too large for one.
        lower, upper: Bounds between which the true value lies with the requested confidence. None means no bound.
    """

    estimate: float | None
    lower: float | None
    upper: float | None

    def times(self, unit: float) -> Estimate:
        """Return the estimate in another, positive unit."""
        return Estimate(*(None if value is None else value * unit for value in (self.estimate, self.lower, self.upper)))


def two_sided(risk: float) -> float:
    """Return z such that a standard normal number is beyond -z or z with probability ``risk``.

    >>> round(two_sided(0.05), 4)
    1.96
    """
    return NormalDist().inv_cdf(1.0 - risk / 2.0)


def linear(weights: FloatArray, sums: FloatArray, stddev: float, risk: float) -> Estimate:
    """Return the interval of a weighted sum, which is at least 0."""
    found, half = float(weights @ sums), two_sided(risk) * stddev * float(np.linalg.norm(weights))
    return Estimate(max(found, 0.0), max(found - half, 0.0), max(found + half, 0.0))


def ratio(
    above: FloatArray, below: FloatArray, sums: FloatArray, stddev: float, risk: float, within: tuple[float, float]
) -> Estimate:
    """Return the interval of (above . true sums) / (below . true sums).

    For the true ratio r, (above - r below) . sums is a normal number of mean 0 and known variance. The interval
    consists of the r for which this number is not too large.

    Args:
        above, below: The weights of the sums, shape (d,).
        sums: The noisy sums, shape (d,).
        stddev: The standard deviation of the noise on each of them.
        risk: The largest probability with which the true ratio is not in the interval.
        within: Bounds of the ratio that hold whatever the rows are.

    Source: Fieller 1954, "Some problems in interval estimation".

    >>> found = ratio(np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([80.0, 20.0]), 1.0, 0.05, (0.0, 1.0))
    >>> found.estimate, round(found.lower, 4), round(found.upper, 4)
    (0.8, 0.7841, 0.8164)
    """
    least, most = within
    a, b = float(above @ sums), float(below @ sums)
    estimate = min(max(a / b, least), most) if b > 0.0 else None
    spread = (two_sided(risk) * stddev) ** 2
    leading = b * b - spread * float(below @ below)
    if leading <= 0.0 or b <= 0.0:
        return Estimate(estimate, least, most)
    middle = a * b - spread * float(above @ below)
    last = a * a - spread * float(above @ above)
    root = math.sqrt(max(middle * middle - leading * last, 0.0))
    low, high = (min(max((middle + sign * root) / leading, least), most) for sign in (-1.0, 1.0))
    return Estimate(estimate, low, high)


def sum_of_absolute_values(count: int, risk: float) -> float:
    """Return a number that the sum of ``count`` absolute values of standard normals exceeds with probability at most
    ``risk``.

    It is a Chernoff bound, by E exp(t |Z|) = 2 exp(t^2 / 2) Phi(t).

    >>> 0.0 < sum_of_absolute_values(15, 0.05) - 15 * math.sqrt(2 / math.pi) < 8.0
    True
    """
    phi = NormalDist().cdf
    tilts = np.linspace(0.05, 12.0, 240)
    bounds = [(count * (t * t / 2.0 + math.log(2.0 * phi(t))) - math.log(risk)) / t for t in tilts.tolist()]
    return float(min(bounds))


def bilinear_noise(matrix: FloatArray, left: FloatArray, right: FloatArray, stddev: float, risk: float) -> float:
    """Return d such that p M n of the noisy vectors exceeds the true value by more than d with probability <= ``risk``.

    With p' = p + r and n' = n + s, p M n = p' M n' - r M n' - p' M s + r M s. The noise r is independent of n', and s
    is independent of p', so the first two are normal. Given s, the third is normal, too, and |M s| is nearly never
    longer than |M|_F + |M|_2 sqrt(2 ln(1/risk)) deviations. Each of the four events has a quarter of the risk.

    Args:
        matrix: The matrix M, shape (k, k).
        left, right: The noisy vectors p' and n', shape (k,).
        stddev: The standard deviation of the noise on each of their coordinates.
        risk: The probability on one side; the same d holds on the other.

    Guarantees:
        - is_a_norm_of_the_matrix: along a line of matrices it grows no faster than this norm of their direction.
    """
    z = NormalDist().inv_cdf(1.0 - risk / 4.0)
    linear_part = float(np.linalg.norm(matrix @ right)) + float(np.linalg.norm(left @ matrix))
    longest = float(np.linalg.norm(matrix)) + float(np.linalg.norm(matrix, 2)) * math.sqrt(2.0 * math.log(4.0 / risk))
    return z * stddev * (linear_part + stddev * longest)
