r"""This module describes P_1D (Algorithm 14, Lemma 56), which computes a sum of numbers from shuffled single-bit
messages, and its cost.

Each of s users holds a number in $[0, g]$, rounds it to a neighbouring integer at random without bias, and sends this
many ones, filled up with zeros to g bits, and b fair coins. A shuffler puts all $s (g + b)$ bits in a random order. So
only the number of ones remains, which is the sum of the integers plus $\mathrm{Bin}(s b, \tfrac12)$.

**Lemma 56.** For $p < \tfrac12$, $\epsilon \le 15$ and $s b p \ge 90 g^2 \ln(2/\delta)/\epsilon^2$ the laws of
$\mathrm{Bin}(s b, p)$ and of the same plus an integer $j \le g$ differ by at most $\delta$ at the level $\epsilon j/g$,
in both directions. The paper chooses b so that p is just under one half; here $p = \tfrac12$, where the lemma holds,
too, because for fixed $s b$ both sides are continuous in p. So every noise bit is one fair coin, drawn exactly.

*Conditions.* The printed $g \ge \tau \sqrt s$ mixes units and concerns the variance: rounding adds at most 1/4 a user,
so $g \ge \sqrt s$ suffices. The proof takes $\alpha = \epsilon/(3g)$ and needs
$\ln\frac{1+\alpha}{1-\alpha} \le 3\alpha$, which is $g \ge 0.389\,\epsilon$; for $g = 1$ and $\epsilon \ge 11$ the
claim is false, by exact evaluation. `LEAST_LEVELS` levels suffice for all $\epsilon \le 15$. It also needs
$\epsilon \le 15 \ln(2/\delta)$, which $\delta < \tfrac12$ and $\epsilon \le 15$ give.

**Coordinates.** A record that changes moves its coordinate i by $j_i$ levels. Given the two data sets the
coordinates are independent and each is $(\hat\epsilon j_i/g, \hat\delta)$-indistinguishable, hence
$\hat\delta$-approximately $\tfrac12 (\hat\epsilon j_i/g)^2$-zCDP; together they are $d\hat\delta$-approximately
$\tfrac12 (\hat\epsilon K)^2$-zCDP with $K^2 \ge \sum_i (j_i/g)^2$, and Proposition 3 with the rest of delta gives

$$\epsilon = \rho + 2\sqrt{\rho \ln\frac{1}{\delta - d\hat\delta}}, \qquad \rho = \tfrac12 (\hat\epsilon K)^2.$$

Rounding moves each of two integers by less than 1, so vectors at most $2 C \cdot$ `distance` apart in the l2 norm,
with coordinates spread over $[-C, C]$, have $K \le$ `distance` $+ 2\sqrt d/g$ by the triangle inequality.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calibrators.lowy_razaviyayn.zcdp import proposition_3_epsilon, proposition_3_rho

#: The largest epsilon of one coordinate for which Lemma 56 is proved.
LARGEST_EPSILON = 15.0
#: The least number of levels. It is above 0.389 times the largest epsilon, as the proof of Lemma 56 needs.
LEAST_LEVELS = 6
#: The most noise bits of a user for a coordinate. Every JSON parser can represent this number.
MAX_NOISE_BITS = 2**53
#: The constant of Lemma 56 for s b instead of s b p: twice the printed 90, because p is one half.
_NEEDED = 180.0


@dataclass(frozen=True, slots=True)
class ShuffledSum:
    """The messages of one coordinate.

    Attributes:
        users: The number s of users.
        levels: The number g of levels; a user's number is an integer from 0 to g.
        noise_bits: The number b of noise bits, fair coins of each user.

    >>> coordinate = ShuffledSum(users=400, levels=20, noise_bits=163808)
    >>> round(coordinate.epsilon(5e-8), 6)
    0.138689
    """

    users: int
    levels: int
    noise_bits: int

    @property
    def noise_multiplier(self) -> float:
        """The standard deviation of the noise on the sum, divided by half the range of the numbers: sqrt(s b) / g."""
        return math.sqrt(float(self.users) * float(self.noise_bits)) / self.levels

    @property
    def multiplier_with_rounding(self) -> float:
        """The noise multiplier that includes the largest variance of random rounding, a quarter of a squared level per
        user.
        """
        return math.sqrt(float(self.users) * (float(self.noise_bits) + 1.0)) / self.levels

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon that Lemma 56 gives for integers that differ by g."""
        return math.sqrt(_NEEDED * math.log(2.0 / delta)) / self.noise_multiplier


def noise_bits(users: int, levels: int, epsilon: float, delta: float) -> float:
    """Return the smallest whole number b that Lemma 56 allows. It may be too large for any plan.

    >>> noise_bits(400, 20, 0.1386894102, 5e-8)
    163808.0
    """
    return math.floor(_NEEDED * levels**2 * math.log(2.0 / delta) / (epsilon**2 * users)) + 1.0


def noise_bits_for(users: int, levels: int, noise_multiplier: float) -> float:
    """Return the smallest b with at least this noise. For the noise multiplier of a plan, it is the plan's b."""
    return max(1.0, math.ceil((noise_multiplier * levels) ** 2 / users * (1.0 - 1e-14)))


def share_of_delta(delta: float, dimension: int) -> float:
    """Return the delta_hat of each coordinate. Half of delta is for the coordinates, the other half for the
    conversion.
    """
    return delta / (2.0 * dimension)


def coordinate_epsilon(epsilon: float, delta: float, reach: float) -> float:
    """Return the epsilon_hat per coordinate for which all coordinates together cost epsilon at delta.

    Args:
        reach: The number K, the l2 distance between the counts of neighbours divided by g.

    >>> round(coordinate_epsilon(1.0, 1e-6, 1.0 + 2.0 * 10**0.5 / 20), 10)
    0.1386894102
    """
    return math.sqrt(2.0 * proposition_3_rho(epsilon, 0.5 * delta)) / reach


def composed_epsilon(epsilon: float, left_delta: float, reach: float) -> float:
    """Return the epsilon of all coordinates together, if each costs epsilon_hat. ``left_delta`` is the part of delta
    that the coordinates leave.
    """
    return proposition_3_epsilon(0.5 * (epsilon * reach) ** 2, left_delta)


def reach_in_l2(distance: float, dimension: int, levels: int) -> float:
    """Return K for vectors that are at most 2 C ``distance`` apart in the l2 norm."""
    return distance + 2.0 * math.sqrt(dimension) / levels


def reach_of_coordinates(change: float, dimension: int, levels: int) -> float:
    """Return K for vectors whose coordinates move independently, each by at most ``change`` half ranges.

    A null record is the middle of the range. If g is odd, it is rounded away from the middle by half a level.

    >>> reach_of_coordinates(2.0, 4, 7), reach_of_coordinates(1.0, 4, 8)
    (2.0, 1.0)
    """
    return math.sqrt(dimension) * math.ceil(0.5 * change * levels) / levels


def levels_for(users: int, least: float = 0.0) -> int:
    """Return the smallest g for which rounding adds at most 1/4 of a squared half range to the variance of a sum."""
    return math.ceil(max(LEAST_LEVELS, math.sqrt(users), least))
