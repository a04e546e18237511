"""This module integrates over the ratio of two sampled laws: a record takes another's place, or leaves that place
empty.

With probability r the batch loses the contribution that is as far away as possible, and gains the record or nothing. In
units of the contribution bound, the laws are (1-r) N(0, s^2) + r N(2, s^2) against (1-r) N(0, s^2) + r N(1, s^2). With
y = the log of N(2) over N(1), whose density under N(1) is e^(a - y/2 - s^2 y^2 / 2), and k = e^(-1/s^2) (1-r)/r,

    f(y) = (e^(2y) + k) / (e^y + k),    density of the first law r (e^y + k e^-y), of the second r (1 + k e^-y),

where the last two are relative to the density of N(1). The module computes, over y > 0, where f > 1, the integrals of
the first density times f^z (losses log f) and of the second times f^-z (losses -log f). The path is that of
`ratio_path`, with excursions of at most h = 1/2 from the axis, and so at most d = 0.16 to the left of it. There, with
A = e^(Re y) and v = Im y:

* arg f >= 0, so that |e^(itL)| <= 1: tan arg(A^2 e^(2iv) + k) >= tan arg(A e^(iv) + k) wherever
  A^2 + k (2 A cos v - 1) >= 0, and 2 e^-d cos h > 1.
* |f(y)| <= f(Re y) / cos(v/2), from |A e^(iv) + k| >= (A + k) cos(v/2).
* f grows along the axis from -log 2 on. The slope of log f is 2 A^2/(A^2 + k) - A/(A + k). It is at most 2, and at most
  2 A^2/(A^2 + k), which grows.
* |f| grows with A at each v, where e^-d >= cos v / (2 cos 2v), and falls with v at A = e^-d: it is smallest at -d + ih.
  (Both are derivatives of a quotient whose numerator is a sum over powers of k with nonnegative coefficients.)

Let y be a place of the real path. On the line at an angle, the real part of the path is between y - d and y. There the
normal density is at most its value at y - d or, for y < d, at most e^(d/2) times its value at 0. So the norm is bounded
by the real integral, shifted by d in the first case and cut to y < d in the second (see `DisplacementPart.log_growth`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.ratio_path import REACH, RatioPart
from accounting.fourier.steps import Complex, log1p_complex

Array = NDArray[np.float64]

#: A bound of d for every line, because excursions are at most 1/2 and angles are at most 2.
_MOST_AHEAD = 0.16
#: Beyond this place, f is not near 1 for any k.
_NEAR = 100.0
_FAR_STEPS = np.concatenate([np.arange(40) * 0.25, 10.0 * 1.35 ** np.arange(16)])


@dataclass(frozen=True, slots=True)
class DisplacementPart(RatioPart):
    """One of the two integrals; ``probability`` is r, below 1, and ``curvature`` is s^2.

    Attributes:
        upward: Whether the losses are log f with masses of the first law; otherwise they are -log f with masses of the
            second.
    """

    highest: ClassVar[float] = 0.5

    @classmethod
    def of(cls, noise: float, probability: float, *, upward: bool) -> DisplacementPart:
        """Make the part from s and r."""
        log_scale = math.log(noise) - 0.5 * math.log(2.0 * math.pi) - 0.125 / noise**2
        return cls(probability, log_scale, noise * noise, 0.0, math.inf, upward)

    @property
    def log_k(self) -> float:
        """The log of k, which is always finite."""
        return math.log1p(-self.probability) - math.log(self.probability) - 1.0 / self.curvature

    def log_growth(self, scales: Array, angle: float, tilt: float, reach: float) -> Array:
        """Return the log of a bound of the integrand's norm on the line Im u = ``angle``, relative to the larger of
        M(``tilt``) and 1.

        The bound holds for every t >= 0. The density is shifted by at most d. The shift multiplies the masses by at
        most e^d and moves the argument of f by at most d. The part with y < d grows by at most e^(2d + k d^2/2), where
        k is the curvature.
        """
        d = -scales * math.log(math.cos(0.5 * angle))
        height, curvature = scales * angle, self.curvature
        spread = -math.log(math.cos(0.5 * angle)) + 0.5 * curvature * height * height
        first = 2.0 * d + 0.5 * curvature * d * d
        if not self.upward:
            smallest = self._log_f(-d + 1j * height).real
            return np.asarray(spread + np.logaddexp(first, d) - tilt * np.minimum(smallest, 0.0))
        steepest = np.minimum(2.0, 2.0 * scipy.special.expit(2.0 * (reach + d) - self.log_k))
        tail = self._log_tail(reach, np.array([tilt]))
        shifted = d + np.logaddexp(tilt * steepest * d, tail)
        return np.asarray(spread - tilt * np.log(np.cos(0.5 * height)) + np.logaddexp(first, shifted))

    def reach(self, tilt: float, digits: float) -> float:
        """Return a place beyond which the rest of the integral is negligible."""
        s = math.sqrt(self.curvature)
        if not self.upward:
            return REACH / s
        for share in (0.0, 0.03, 0.1, 0.3):
            place = REACH / s + (2.0 * share * tilt + 0.5) / self.curvature
            if float(self._log_tail(place, np.array([tilt]))[0]) < -digits - 25.0:
                return place
        return REACH / s + (tilt + 0.5) / self.curvature

    def _log_tail(self, end: float, tilts: Array, ahead: Array | None = None) -> Array:
        """Bound the log of the integral beyond ``end``, with f up to `_MOST_AHEAD` farther."""
        s, r = math.sqrt(self.curvature), self.probability
        ends = end + _FAR_STEPS / s
        x = 1.5 / s + s * ends
        shares = np.array([[math.log1p(-r)], [math.log(r)]])
        places = np.array([[0.0], [2.0 if self.upward else 1.0]]) / s
        mass = np.logaddexp.reduce(shares + scipy.special.log_ndtr(places - x), axis=0)
        if not self.upward:
            return np.full(tilts.shape, float(mass[0]))
        panels = np.logaddexp.reduce(tilts[:, None] * self.log_f(ends[1:] + _MOST_AHEAD) + mass[:-1], axis=1)
        # Beyond the last place, f <= e^y, and e^(tilt y) moves each normal law.
        means = np.array([[-1.5], [0.5]]) / self.curvature
        moved = tilts * means + 0.5 * tilts * tilts / self.curvature
        beyond = shares + moved + scipy.special.log_ndtr(places - x[-1] + tilts / s)
        far = tilts * _MOST_AHEAD + np.logaddexp.reduce(beyond, axis=0)
        return np.asarray(np.logaddexp(panels, far))

    def _log_mass(self, y: Complex) -> Complex:
        """Return the log of the density of the loss at y, in the direction of this path."""
        normal: Complex = self.log_scale - 0.5 * y - 0.5 * self.curvature * y * y
        ratio = self._log_sum(2.0 * y if self.upward else y)
        mass: Complex = normal + math.log(self.probability) - y + ratio
        return mass

    def _log_f(self, y: Complex) -> Complex:
        """Return log f, relatively accurate where f is near 1."""
        log_sum = self._log_sum(y)
        # f - 1 = (e^y - 1) e^y / (e^y + k).
        change = np.expm1(np.minimum(y.real, _NEAR) + 1j * y.imag) * np.exp(y - log_sum)
        result: Complex = np.where(np.abs(change) < 0.3, log1p_complex(change), self._log_sum(2.0 * y) - log_sum)
        return result

    def _log_sum(self, y: Complex) -> Complex:
        """Return log(e^y + k)."""
        top = np.maximum(y.real, self.log_k)
        total: Complex = top + np.log(np.exp(y - top) + np.exp(self.log_k - top))
        return total
