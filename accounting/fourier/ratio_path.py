"""Integrals over a sampled likelihood ratio whose law ends somewhere: a path on which they are the same for every t.

Under Q, y = log of the unsampled ratio has density e^(a - y/2 - k y^2/2) between two ends; f(y) = 1 - q + q e^y is the
sampled ratio. Wanted are the integrals of density f^(z+1) (losses log f under P) and of density f^(-z) (losses -log f
under Q), z = c + it, with errors that do not grow with t. A trapezoid rule on the line Im u = phi of

    y(u) = low + S (log(1 + e^u) - log(1 + e^(u - D))),   D = (high - low) / S,

does it: the lines between 0 and 2 phi are mapped above the real axis, where arg f >= 0 and |e^(itL)| <= 1, and points
gather at the ends at every scale, where for large t all that is left of the integral comes from. (For -log f the path
is the mirror image below the axis.) With r = 2 phi, |1 + e^(u + ir)| is between (1 + e^u) cos(r/2) and 1 + e^u, so that

    |y'(u + ir)| <= y'(u) / cos^2(r/2),   |Re y(u + ir) - y(u)| <= d = S log(1 / cos(r/2)),   0 <= Im y <= S r

(one cosine and only the lower sign where there is no upper end), which bounds the norm on the line at r by the real
one: see `RatioPart.log_growth`. The modulus of the integrand on the line at phi is analytic too, with the geometric
mean of the norms on the lines at 0 and at 2 phi: the same rule sums it with the same error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.steps import Complex, log1p_complex

Array = NDArray[np.float64]

MAX_NODES = 20_000
#: Angles: of the shifted line (its strip reaches to twice that), and of the strip around the real line.
LINE_ANGLE = 1.0
REAL_ANGLE = 1.5
#: Widest excursion from the real line, below pi, where f is not zero.
_HIGHEST = 2.5
_REACH = 13.0
#: Panels of the tail, in units of the noise.
_FAR_STEPS = np.concatenate([np.arange(40) * 0.25, 10.0 * 1.35 ** np.arange(16)])
_SCALES = 0.5 ** np.arange(0.0, 30.0, 0.5)


@dataclass(frozen=True, slots=True)
class RatioPart:
    """One integral.

    Attributes:
        probability: q, in (0, 1]; 1 is no sampling.
        log_scale: a.
        curvature: k; s^2 for Gaussian noise, 0 for Laplace noise.
        low, high: The ends; high is inf where k > 0, and then low is 0.
        upward: Losses log f with masses density f; otherwise -log f with masses density.
    """

    probability: float
    log_scale: float
    curvature: float
    low: float
    high: float
    upward: bool

    def log_f(self, y: Array) -> Array:
        """Return log f on the real line."""
        return self._log_f(y.astype(np.complex128)).real

    def log_density(self, y: Array) -> Array:
        log_density: Array = self.log_scale - 0.5 * y - 0.5 * self.curvature * y * y
        return log_density

    def log_growth(self, scales: Array, angle: float, tilt: float, reach: float) -> Array:
        """log of a bound of the integrand's norm on the line Im u = ``angle`` over M(``tilt``), for every t >= 0.

        Args:
            reach: y up to which f's growth is bounded by its growth there; the rest weighs what `_log_tail` says.

        |f(y)| <= f(Re y), and |f|^2 = f^2 (1 - 4 p (1-p) sin^2(Im y / 2)), p = q e^y / f at Re y. With an upper end,
        f(y + d) / f(y) = 1 + p (e^d - 1) is largest at the end. Without one (k > 0), the normal density at y - d is the
        one at y times e^(kyd + d/2 - kd^2/2): completing the square moves f by d, and f(y + d) <= e^d f(y). There
        |f(y)| grows with Re y and falls with Im y below pi/2, so that it is smallest at -d + i height.
        """
        d = -scales * math.log(math.cos(0.5 * angle))
        height, k = scales * angle, self.curvature
        turn = -math.log(math.cos(0.5 * angle))
        share = self._share(reach)
        if math.isfinite(self.high):
            spread = 2.0 * turn + 0.5 * d
            if self.upward:
                return np.asarray(spread + (tilt + 1.0) * np.log1p(share * np.expm1(d)))
            beyond = np.array([min(self._share(self.high + float(step)), 0.5) for step in d])
            dip = -0.5 * np.log1p(-4.0 * beyond * (1.0 - beyond) * np.sin(0.5 * height) ** 2)
            return np.asarray(spread + tilt * (dip - np.log1p(share * np.expm1(-d))))
        spread = turn + 0.5 * k * (height * height + d * d)
        if self.upward:
            # The part of the square below y = 0 holds less than 1, and M is at least 1.
            tail = float(self._log_tail(reach, np.array([tilt]), np.array([tilt + 1.0]))[0])
            near = (tilt + 1.0) * np.log1p(share * np.expm1(d)) + math.log(2.0)
            return np.asarray(spread + np.logaddexp(near, (tilt + 1.0) * d + tail))
        smallest = self._log_f(-d + 1j * height).real
        return np.asarray(spread - tilt * np.where(height <= 0.5 * math.pi, smallest, -math.inf))

    def best_scale(self, angle: float, tilt: float, digits: float) -> tuple[float, float, float]:
        """(S, log growth, reach) with about the fewest nodes."""
        reach = self.reach(tilt, digits)
        length = reach - self.low
        scales = min(_HIGHEST / angle, length) * _SCALES
        growth = self.log_growth(scales, angle, tilt, reach)
        ends = 2.0 if math.isfinite(self.high) else 1.0
        nodes = (digits + growth) * (ends * digits + length / scales)
        best = int(np.nanargmin(nodes))
        return float(scales[best]), float(growth[best]), reach

    def reach(self, tilt: float, digits: float) -> float:
        """The upper end, or a place beyond which next to nothing is left."""
        if math.isfinite(self.high):
            return self.high
        s = math.sqrt(self.curvature)
        if not self.upward:
            return _REACH / s
        # Small q: f does not move the law as far as the tilt could.
        for share in (0.0, 0.03, 0.1, 0.3):
            place = _REACH / s + share * (tilt + 1.0) / self.curvature
            if float(self._log_tail(place, np.array([tilt]), np.array([tilt + 1.0]))[0]) < -digits - 25.0:
                return place
        return _REACH / s + (tilt + 1.0) / self.curvature

    def grid(self, scale: float, spacing: float, digits: float, reach: float) -> Array:
        """Nodes u, from where the rule's weights are e^-digits to where they are again, or to ``reach``."""
        length = (reach - self.low) / scale
        right = length + (digits + 4.0 if math.isfinite(self.high) else 1.0)
        left = -digits - 4.0
        if not (right - left) / spacing < MAX_NODES:
            raise OverflowError("the quadrature would need too many nodes")
        return np.arange(math.floor(left / spacing), math.ceil(right / spacing) + 1, dtype=np.float64) * spacing

    def log_left_out(self, nodes: Array, scale: float, tilts: Array, growth: float = 0.0) -> Array:
        """log of a bound of what the rule leaves out beyond its nodes, for every tilt.

        Args:
            growth: `log_growth` of a shifted line. At the ends themselves the path does not leave the axis.
        """
        power = tilts + 1.0 if self.upward else -tilts

        def beside(end: float, rate: float) -> Array:
            # Weights fall like e^-|u| there; 2 covers the sum instead of the integral, and the integrand's change.
            value = self.log_density(np.array([end]))[0] + power * self.log_f(np.array([end]))[0]
            return np.asarray(value + math.log(2.0 * scale) + rate)

        total = beside(self.low, float(nodes[0]))
        if math.isfinite(self.high):
            length = (self.high - self.low) / scale
            return np.asarray(np.logaddexp(total, beside(self.high, length - float(nodes[-1]))))
        return np.asarray(np.logaddexp(total, growth + self._log_tail(scale * float(nodes[-2]), tilts, power)))

    def _log_tail(self, end: float, tilts: Array, power: Array) -> Array:
        """log of a bound of the integral beyond ``end``, where there is no upper end.

        Seen from the last node but one: a sum over a falling function is below the integral from one node earlier.
        """
        s = math.sqrt(self.curvature)
        if not self.upward:
            return np.full(tilts.shape, float(scipy.special.log_ndtr(-s * end - 0.5 / s)))
        # Over panels, f at the farther end times the mass beyond the nearer one; behind the last, f e^-y falls, so that
        # f^p <= (f e^-y)^p e^(py), a Gaussian.
        ends = end + _FAR_STEPS / s
        log_f = self.log_f(ends)
        mass = scipy.special.log_ndtr(-s * ends - 0.5 / s)
        panels = np.logaddexp.reduce(power[:, None] * log_f[1:] + mass[:-1], axis=1)
        shifted = scipy.special.log_ndtr(-s * ends[-1] - 0.5 / s + power / s)
        far = power * (log_f[-1] - ends[-1]) + 0.5 * tilts * power / self.curvature + shifted
        return np.asarray(np.logaddexp(panels, far))

    def real_nodes(self, nodes: Array, spacing: float, scale: float) -> tuple[Array, Array]:
        """(log masses, losses) of the rule on the real line."""
        y, derivative = self._path(nodes, 0.0, scale)
        log_f = self.log_f(y.real)
        log_mass = self.log_density(y.real) + np.log(np.maximum(derivative.real, 1e-300) * spacing)
        return (log_mass + log_f, log_f) if self.upward else (log_mass, -log_f)

    def line_nodes(self, nodes: Array, spacing: float, scale: float, tilt: float) -> tuple[Complex, Complex]:
        """(log weights, losses) of the rule on the shifted line, weights with the factor e^(tilt L)."""
        y, derivative = self._path(nodes, LINE_ANGLE, scale)
        log_f = self._log_f(y)
        log_mass = self.log_scale - 0.5 * y - 0.5 * self.curvature * y * y + np.log(derivative * spacing)
        if self.upward:
            return log_mass + (tilt + 1.0) * log_f, log_f
        return np.conj(log_mass - tilt * log_f), -np.conj(log_f)

    def _share(self, y: float) -> float:
        """q e^y / f."""
        return 1.0 / (1.0 + (1.0 - self.probability) / self.probability * math.exp(-y))

    def _path(self, u: Array, angle: float, scale: float) -> tuple[Complex, Complex]:
        """(y, dy/du) at u + i angle; imaginary parts keep their sign at the ends."""
        here: Complex = (u + 1j * angle).astype(np.complex128)
        if math.isinf(self.high):
            return self.low + scale * _softplus(here), scale * _logistic(here)
        length = (self.high - self.low) / scale
        left = u < 0.5 * length
        # From the nearer end, so that nothing cancels.
        near: Complex = np.where(left, here, length - here)
        farther: Complex = near - length
        away = scale * (_softplus(near) - _softplus(farther))
        y: Complex = np.where(left, self.low + away, self.high - away)
        derivative: Complex = scale * -math.expm1(-length) * _logistic(near) * _logistic(length - near)
        return y, derivative

    def _log_f(self, y: Complex) -> Complex:
        """log f in 0 <= |Im y| <= pi without overflow, relatively accurate where f is near 1."""
        q, u, v = self.probability, y.real, y.imag
        if q == 1.0:
            return y
        cosine, sine = np.cos(v), np.sin(v)
        scaled = u + math.log(q)
        small = scaled < 0.0
        term = np.exp(-np.abs(scaled))
        real = np.where(small, (1.0 - q) + term * cosine, cosine + (1.0 - q) * term)
        imaginary = np.where(small, term * sine, sine)
        change = q * (np.expm1(np.minimum(u, -math.log(q))) * cosine - 2.0 * np.sin(0.5 * v) ** 2)
        near_one = small & (np.abs(change) < 0.3) & (np.abs(imaginary) < 0.3)
        square = np.where(near_one, change * (2.0 + change) + imaginary * imaginary, 0.0)
        with np.errstate(divide="ignore"):
            far = np.where(small, 0.0, scaled) + np.log(np.hypot(real, imaginary))
        result = np.empty(y.shape, dtype=np.complex128)
        result.real = np.where(near_one, 0.5 * np.log1p(square), far)
        result.imag = np.arctan2(imaginary, real)
        return result


def _softplus(z: Complex) -> Complex:
    """log(1 + e^z)."""
    right = z.real > 0.0
    folded: Complex = np.exp(np.where(right, -z, z))
    return np.where(right, z, 0.0) + log1p_complex(folded)


def _logistic(z: Complex) -> Complex:
    """1 / (1 + e^-z)."""
    right = z.real > 0.0
    folded: Complex = np.exp(np.where(right, -z, z))
    logistic: Complex = np.where(right, 1.0, folded) / (1.0 + folded)
    return logistic
