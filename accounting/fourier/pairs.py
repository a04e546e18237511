"""This module evaluates the subsampled Gaussian pairs on the real line and on lines parallel to it.

s = noise multiplier, q = sampling probability, a(x) = (2x - 1) / (2 s^2), f(x) = 1 - q + q e^a(x), x ~ N(0, s^2).
f vanishes only at Im x = pi s^2 (2k + 1), so everything here is analytic for |Im x| < pi s^2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.normal import log_normal_below

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


#: A pair as the compiled loops know it: its number, s, the places k, their weights, the logs of the weights, and the
#: log of the infimum of f.
Law = tuple[int, float, Array, Array, Array, float]
REMOVE, ADD, REPLACE = 0, 1, 2
#: A band as the compiled loops know it: low, high and width.
Ends = tuple[float, float, float]
EVERYTHING: Ends = (-math.inf, math.inf, 1.0)
#: A bound of the relative error of the complex error function.
SHARE_ERROR = 2e-13
#: For x < 0, 1 - Phi(x + iy) is 1 within e^-40 where x^2 - y^2 is at least this.
_FAR_LEFT = 80.0


class Pair(Enum):
    """The three kinds of pairs, which differ in the exponents of f in the moment M(z).

    REMOVE: M(z) = E f(x)^(z+1). ADD: E f(x)^(-z). REPLACE: E f(x)^(z+1) f(-x)^(-z).
    """

    REMOVE = "remove"
    ADD = "add"
    REPLACE = "replace"


_NUMBERS = {Pair.REMOVE: REMOVE, Pair.ADD: ADD, Pair.REPLACE: REPLACE}


@dataclass(frozen=True, slots=True)
class Band:
    """A smooth share of a law: Phi((high - x) / width) - Phi((low - x) / width).

    Adjacent bands of the same width add up to the whole law.

    Attributes:
        low, high: The ends of the band, in units of x; -inf or inf if it has no end on that side.
        width: The width w, > 0.
    """

    low: float
    high: float
    width: float

    @property
    def ends(self) -> Ends:
        """The band as the compiled loops know it."""
        return self.low, self.high, self.width

    def log_share(self, x: Array) -> Array:
        """Return the log of the band's share on the real line."""
        return _log_shares(x, self.ends)

    def shifted_log_share(self, u: Array, shift: float) -> Complex:
        """Return log of the share at u + i shift: its real part exceeds that at u by at most shift^2 / (2 width^2)."""
        x: Complex = (u + 1j * shift).astype(np.complex128)
        if math.isinf(self.low):
            return log_normal_tail((x - self.high) / self.width)
        if math.isinf(self.high):
            return log_normal_tail((self.low - x) / self.width)
        # Each side is computed from its nearer end, so that nothing cancels.
        left = u < 0.5 * (self.low + self.high)
        near: Complex = np.where(left, self.low - x, x - self.high)
        far: Complex = np.where(left, self.high - x, x - self.low)
        larger, smaller = log_normal_tail(near / self.width), log_normal_tail(far / self.width)
        share: Complex = larger + np.log1p(-np.exp(smaller - larger))
        return share


def log_normal_tail(z: Complex) -> Complex:
    """Return the log of 1 - Phi(z) = erfc(z / sqrt 2) / 2, continued analytically, within `SHARE_ERROR`."""
    log_tail = np.zeros(z.shape, np.complex128)
    # |Phi(z)| <= e^((y^2 - x^2) / 2) where x = Re z < 0, y = Im z. So far to the left Phi(z) is negligible.
    near = (z.real >= 0.0) | (z.real * z.real - z.imag * z.imag < _FAR_LEFT)
    v = z[near] / math.sqrt(2.0)
    # erfc(v) = e^(-v^2) wofz(iv) where Re v >= 0, by reflection elsewhere.
    right = v.real >= 0.0
    folded = np.where(right, v, -v)
    own = np.log(0.5 * scipy.special.wofz(1j * folded)) - folded * folded
    with np.errstate(under="ignore"):
        tail = np.exp(np.where(right, -800.0, own))
    log_tail[near] = np.where(right, own, np.log1p(-tail))
    return log_tail


@dataclass(frozen=True)
class GaussianPair:
    """One of the three pairs with its noise and its probability. Its losses are functions of x.

    Attributes:
        noise: The noise s.
        probability: The probability q, in (0, 1).
    """

    pair: Pair
    noise: float
    probability: float

    def exponents(self, x: Array) -> tuple[Array, Array]:
        """Return (log density of P over N(0, s^2), loss) on the real line, both of the shape of ``x``."""
        return _exponents(x, self.law)

    def shifted_exponents(self, u: Array, angle: float) -> tuple[Array, Array, Array, Array]:
        """Return the exponents on the line u + i angle s^2 (ADD: u - i angle s^2), as real and imaginary parts.

        The imaginary part of the loss is nonnegative for 0 <= angle <= pi, so e^(itL) decays for t > 0.
        """
        return shifted_exponents(u, angle, self.law)

    def slope(self, x: float) -> float:
        """Return |d loss / dx|."""
        return slope_at(x, self.law)

    @cached_property
    def law(self) -> Law:
        """The pair as the compiled loops know it."""
        weights, log_weights = np.array(self._weights)
        places = np.arange(weights.size) / (weights.size - 1.0)
        return _NUMBERS[self.pair], self.noise, places, weights, log_weights, self.log_least

    @property
    def _weights(self) -> tuple[Sequence[float], Sequence[float]]:
        """Each place's weight, and its logarithm."""
        q = self.probability
        return (1.0 - q, q), (math.log1p(-q), math.log(q))

    @property
    def log_least(self) -> float:
        """log of the infimum of f."""
        return math.log1p(-self.probability)

    @cached_property
    def cancellation(self) -> float:
        """The rounding of log f that is not proportional to log f itself, in units of the unit roundoff.

        It is as large as the largest |log w_k|, because a term of size 1 has an exponent of the size of log w_k.
        """
        _, log_weights = self._weights
        return -8.0 * min(log_weights) + 8.0 * len(log_weights)

    def largest_tilt(self, count: int, epsilon: float, level: float) -> float:
        """Bound the tilt as `steps.Step` says. This does not apply to ADD.

        The bound follows from M(x) >= q^(x+1) e^(x(x+1)/(2 s^2)), which is the contribution of batches that hold the
        record.
        """
        return steepest_tilt(math.log(self.probability), 0.5 / self.noise**2, count, epsilon, level)

    def mass_beyond(self, x: float, width: float) -> float:
        """Return the P-mass beyond x, up to rounding, if further noise of this width is added to x (not for ADD)."""
        s, q = math.hypot(self.noise, width), self.probability
        return float((1.0 - q) * scipy.special.ndtr(-x / s) + q * scipy.special.ndtr((1.0 - x) / s))

    def place_of_loss(self, loss: float) -> float:
        """Return the x at which the loss is ``loss`` > 0. The loss grows with x in the directions that are cut."""
        if self.pair is Pair.REMOVE:
            # This a solves log(1 - q + q e^a) = loss.
            q = self.probability
            a = math.log1p(math.expm1(loss) / q) if loss < 30.0 else loss - math.log(q)
            return 0.5 + a * self.noise**2
        return self._searched_place(loss)

    def _searched_place(self, loss: float) -> float:
        low, high = -20.0 * self.noise, 20.0 * self.noise + 1.0
        while loss_at(high, self.law) < loss:
            low, high = high, 2.0 * high
        for _ in range(60):
            middle = 0.5 * (low + high)
            if loss_at(middle, self.law) < loss:
                low = middle
            else:
                high = middle
        return high


@compiled
def window_of(law: Law, tilt: float, reach: float) -> tuple[float, float]:
    """Return a window outside which density e^(tilt L) N(0, s^2) has little mass.

    It reaches ``reach`` standard deviations beyond the places where the centres of this mass may be.
    """
    number, s, places, _, log_weights, _ = law
    width = reach * s
    # Left of the floor, f is nearly equal to its infimum and hardly changes.
    floor = 0.5 * places[1] + s * s * (log_weights[0] - log_weights[1]) / places[1]
    pull = min(tilt, max(0.0, -floor))
    if number == REMOVE:
        return -width, tilt + 1.0 + width
    if number == ADD:
        return -width - pull, width
    return -width, tilt + 1.0 + width + pull


@compiled
def log_growth_of(law: Law, angle: float, tilt: float) -> float:
    """Return the log of the factor by which |density e^(tilt L)| can grow from the real line to the line at ``angle``
    s^2.

    The Gaussian's own factor e^(angle^2 s^2 / 2) is not included. f(u) cos(v / (2 s^2)) <= |f(u + iv)| <= f(u), because
    |A + B e^(i phi)|^2 = (A + B)^2 - 2AB (1 - cos phi) >= (A + B)^2 cos^2(phi / 2) for A, B >= 0.
    """
    return 0.0 if law[0] == REMOVE else -tilt * math.log(math.cos(0.5 * angle))


@compiled
def log_ratio_at(x: float, law: Law) -> float:
    """Return log f(x) without overflow, relatively accurate where f is near 1."""
    _, s, places, weights, log_weights, _ = law
    change, top = 0.0, log_weights[0]
    for h in range(1, places.size):
        exponent = (x - 0.5 * places[h]) * (places[h] / (s * s))
        top = max(top, exponent + log_weights[h])
        if exponent < 1.0:
            change += weights[h] * math.expm1(exponent)
        else:
            # A term above e counts as less than it is. This is harmless, because f is then far from 1.
            change += math.exp(min(exponent + log_weights[h], 1.0)) - weights[h]
    if abs(change) < 0.3:
        return math.log1p(change)
    total = 0.0
    for h in range(places.size):
        total += math.exp((x - 0.5 * places[h]) * (places[h] / (s * s)) + log_weights[h] - top)
    return float(top + math.log(total))


@compiled
def exponents_at(x: float, law: Law) -> tuple[float, float]:
    """Return (log density of P over N(0, s^2), loss) at x."""
    here = log_ratio_at(x, law)
    if law[0] == REMOVE:
        return here, here
    if law[0] == ADD:
        return 0.0, -here
    return here, here - log_ratio_at(-x, law)


@compiled
def loss_at(x: float, law: Law) -> float:
    """Return the loss at x."""
    return exponents_at(x, law)[1]


@compiled
def slope_at(x: float, law: Law) -> float:
    """Return |d loss / dx| at x."""
    slope = _mean_place(x, law)
    if law[0] == REPLACE:
        slope += _mean_place(-x, law)
    return slope / (law[1] * law[1])


@compiled
def _mean_place(x: float, law: Law) -> float:
    """Return the mean of k under the weights of f's terms."""
    _, s, places, _, log_weights, _ = law
    top = -math.inf
    for h in range(places.size):
        top = max(top, (x - 0.5 * places[h]) * (places[h] / (s * s)) + log_weights[h])
    total, mean = 0.0, 0.0
    for h in range(places.size):
        weight = math.exp((x - 0.5 * places[h]) * (places[h] / (s * s)) + log_weights[h] - top)
        total += weight
        mean += weight * places[h]
    return mean / total


@compiled
def _exponents(x: Array, law: Law) -> tuple[Array, Array]:
    base, loss = np.empty(x.size), np.empty(x.size)
    for j in range(x.size):
        base[j], loss[j] = exponents_at(x[j], law)
    return base, loss


@compiled
def _shifted_log_ratio(u: float, law: Law, turns: Array) -> tuple[float, float]:
    """Return log |f| and arg f at u + i angle s^2.

    Args:
        turns: One column for each place; the rows are the cosine and the sine of its phase k angle, and 1 less the
            cosine.
    """
    _, s, places, weights, log_weights, _ = law
    top = log_weights[0]
    for h in range(1, places.size):
        top = max(top, (u - 0.5 * places[h]) * (places[h] / (s * s)) + log_weights[h])
    change, real, imaginary = 0.0, 0.0, 0.0
    for h in range(places.size):
        exponent = (u - 0.5 * places[h]) * (places[h] / (s * s))
        weight = math.exp(exponent + log_weights[h] - top)
        real += weight * turns[0, h]
        imaginary += weight * turns[1, h]
        if exponent < 1.0:
            change += weights[h] * (math.expm1(exponent) * turns[0, h] - turns[2, h])
        else:
            change += math.exp(min(exponent + log_weights[h], 1.0)) * turns[0, h] - weights[h]
    small = math.exp(min(top, 1.0)) * imaginary
    if abs(change) < 0.3 and abs(small) < 0.3 and top <= 1.0:
        modulus = 0.5 * math.log1p(change * (2.0 + change) + small * small)
    else:
        modulus = top + math.log(max(math.hypot(real, imaginary), 1e-300))
    return modulus, math.atan2(imaginary, real)


@compiled
def shifted_exponents(u: Array, angle: float, law: Law) -> tuple[Array, Array, Array, Array]:
    """Compute `GaussianPair.shifted_exponents`."""
    number, places = law[0], law[2]
    turns = np.empty((3, places.size))
    for h in range(places.size):
        turns[0, h], turns[1, h] = math.cos(angle * places[h]), math.sin(angle * places[h])
        turns[2, h] = 2.0 * math.sin(0.5 * angle * places[h]) ** 2
    base_r, base_i, loss_r, loss_i = np.zeros(u.size), np.zeros(u.size), np.empty(u.size), np.empty(u.size)
    for j in range(u.size):
        modulus, argument = _shifted_log_ratio(u[j], law, turns)
        if number == ADD:
            loss_r[j], loss_i[j] = -modulus, argument
            continue
        base_r[j], base_i[j], loss_r[j], loss_i[j] = modulus, argument, modulus, argument
        if number == REPLACE:
            other_modulus, other_argument = _shifted_log_ratio(-u[j], law, turns)
            loss_r[j] -= other_modulus
            loss_i[j] += other_argument
    return base_r, base_i, loss_r, loss_i


@compiled
def log_share_at(x: float, band: Ends) -> float:
    """Compute `Band.log_share` at x."""
    low, high, width = band
    if low == -math.inf:
        return 0.0 if high == math.inf else log_normal_below((high - x) / width)
    if high == math.inf:
        return log_normal_below((x - low) / width)
    if x < 0.5 * (low + high):
        larger, smaller = log_normal_below((x - low) / width), log_normal_below((x - high) / width)
    else:
        larger, smaller = log_normal_below((high - x) / width), log_normal_below((low - x) / width)
    return larger + math.log1p(-math.exp(smaller - larger))


@compiled
def _log_shares(x: Array, band: Ends) -> Array:
    shares = np.empty(x.size)
    for j in range(x.size):
        shares[j] = log_share_at(x[j], band)
    return shares


def steepest_tilt(log_weight: float, half: float, count: int, epsilon: float, level: float) -> float:
    """Return the tilt x at which count ((x + 1) log_weight + half x (x + 1)) - x eps equals ``level``."""
    slope = half + log_weight - epsilon / count
    return (-slope + math.sqrt(slope * slope + 4.0 * half * (level / count - log_weight))) / (2.0 * half)
