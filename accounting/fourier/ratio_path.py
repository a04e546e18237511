"""This module integrates over a sampled likelihood ratio whose law has an end, with an error bound that is the same for
every t.

Under Q, y, the log of the unsampled ratio, has density e^(a - y/2 - k y^2/2) between two ends; f(y) = 1 - q + q e^y is
the sampled ratio. The module computes the integrals of density f^(z+1) (losses log f under P) and of density f^(-z)
(losses -log f under Q), z = c + it, with errors that do not grow with t. A trapezoid rule on the line Im u = phi of

    y(u) = low + S (log(1 + e^u) - log(1 + e^(u - D))),   D = (high - low) / S,

achieves this. The lines between 0 and 2 phi are mapped above the real axis, where arg f >= 0 and |e^(itL)| <= 1. Points
gather at the ends at every scale, and for large t all that remains of the integral comes from there. (For -log f the
path is the mirror image below the axis.) With r = 2 phi, |1 + e^(u + ir)| is between (1 + e^u) cos(r/2) and 1 + e^u, so
that

    |y'(u + ir)| <= y'(u) / cos^2(r/2),   |Re y(u + ir) - y(u)| <= d = S log(1 / cos(r/2)),   0 <= Im y <= S r

(with one cosine and only the lower sign if there is no upper end). This bounds the norm on the line at r by the real
integral: see `RatioPart.log_growth`. The modulus of the integrand on the line at phi is analytic, too, and its norm is
the geometric mean of the norms on the lines at 0 and at 2 phi. So the same rule sums it with the same error.

The losses log f may be cut smoothly at y = b: the density is then multiplied by Phi((b - y) / w), which is entire in y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.pairs import log_normal_tail
from accounting.fourier.steps import Complex, log1p_complex

Array = NDArray[np.float64]

MAX_NODES = 200_000
#: The angle of the shifted line, whose strip reaches to twice that angle, and the angle of the strip around the real
#: line.
LINE_ANGLE = 1.0
REAL_ANGLE = 1.5
#: The widest excursion of the path from the real line. It is below pi, so f is not zero on the path.
_HIGHEST = 2.5
REACH = 13.0
#: The densities underflow if the ends are farther apart than this.
_WIDEST = 600.0
#: The edges of the tail's panels, in units of the noise. If losses are cut, the panels are finer and reach farther,
#: because tilts are larger.
_FAR_STEPS = np.concatenate([np.arange(40) * 0.25, 10.0 * 1.35 ** np.arange(16)])
_CUT_STEPS = np.concatenate([np.arange(80) * 0.125, 10.0 * 1.1 ** np.arange(120)])
_SCALES = 0.5 ** np.arange(0.0, 30.0, 0.5)


@dataclass(frozen=True, slots=True)
class RatioPart:
    """One integral over the ratio.

    Attributes:
        probability: The probability q, in (0, 1]; 1 means no sampling.
        log_scale: The log-scale a.
        curvature: The curvature k; s^2 for Gaussian noise, 0 for Laplace noise.
        low, high: The ends; high is inf if k > 0, and then low is 0.
        upward: If true, losses are log f with the density times f; otherwise -log f with the density itself.
        cut: The pair (b, w) of the share Phi((b - y) / w) by which the density is multiplied (only if k > 0 and
            ``upward``); None for the whole density.
    """

    probability: float
    log_scale: float
    curvature: float
    low: float
    high: float
    upward: bool
    cut: tuple[float, float] | None = None

    #: Widest excursion of the path from the real line.
    highest: ClassVar[float] = _HIGHEST

    def log_f(self, y: Array) -> Array:
        """Return log f on the real line."""
        return self._log_f(y.astype(np.complex128)).real

    def log_density(self, y: Array) -> Array:
        log_density: Array = self.log_scale - 0.5 * y - 0.5 * self.curvature * y * y
        return log_density

    @property
    def has_profile(self) -> bool:
        """Return whether `profile` applies."""
        return self.curvature == 0.0 and self.high - self.low < _WIDEST

    def profile(self, epsilons: Array) -> tuple[Array, Array]:
        """Return the integral's profile D(eps) at every real eps, and -dD/d eps, in closed form. This needs k = 0.

        If ``upward``, let f(y*) = e^eps. The integral of density (f - f(y*)) over y > y* is 8 q e^(a + y*/2) sinh^2(h /
        4) with h = high - y*. Otherwise, let f(y*) = e^-eps. The integral of density (1 - f / f(y*)) over y < y* is
        e^eps times the same expression with h = y* - low. If y* lies outside the ends, every loss is on the same side
        of eps. Nothing cancels.
        """
        q, length = self.probability, self.high - self.low
        lowest, highest = self.log_f(np.array([self.low, self.high])).tolist()
        scale, mass = math.exp(self.log_scale), math.exp(self.log_scale - 0.5 * self.low)
        mass *= -2.0 * math.expm1(-0.5 * length)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if self.upward:
                # The distance is measured from the upper end, or from the lower end if f is resolved better there.
                inside = np.clip(epsilons, lowest, highest)
                rise = -np.expm1(inside - highest) * math.exp(highest - self.high - math.log(q))
                from_low = np.log1p(np.expm1(inside - lowest) * math.exp(lowest - self.low - math.log(q)))
                h = np.where(rise < 0.5, -np.log1p(-np.minimum(rise, 0.5)), length - np.minimum(from_low, length))
                h = np.where(epsilons <= lowest, length, h)
                root = np.exp(0.5 * (self.high - h))
                delta = 8.0 * q * scale * root * np.sinh(0.25 * h) ** 2
                delta += math.exp(lowest) * np.maximum(-np.expm1(epsilons - lowest), 0.0) * mass
                slope = np.exp(epsilons) * scale * 2.0 / root * -np.expm1(-0.5 * h)
            else:
                inside = np.clip(epsilons, -highest, -lowest)
                h = np.log1p(-np.expm1(inside + lowest) * np.exp(-inside - self.low - math.log(q)))
                h = np.where(epsilons <= -highest, length, np.minimum(h, length))
                root = np.exp(0.5 * (self.low + h))
                grown = np.exp(np.minimum(epsilons, -lowest))
                delta = 8.0 * q * scale * grown * root * np.sinh(0.25 * h) ** 2
                delta += np.maximum(-np.expm1(epsilons + highest), 0.0) * mass
                first = np.exp(-0.5 * self.low) - 1.0 / root
                slope = 2.0 * scale * grown * ((1.0 - q) * first + q * (root - math.exp(0.5 * self.low)))
        return delta, slope

    def log_growth(self, scales: Array, angle: float, tilt: float, reach: float) -> Array:
        """Return the log of a bound of the integrand's norm on the line Im u = ``angle``, relative to the larger of
        M(``tilt``) and 1.

        The bound holds for every t >= 0.

        Args:
            reach: The y up to which f's growth is bounded by its growth at that y; `_log_tail` bounds the weight of the
                rest.

        |f(y)| <= f(Re y), and |f|^2 = f^2 (1 - 4 p (1-p) sin^2(Im y / 2)), p = q e^y / f at Re y. With an upper end,
        f(y + d) / f(y) = 1 + p (e^d - 1) is largest at the end. Without one (k > 0), the normal density at y - d is the
        one at y times e^(kyd + d/2 - kd^2/2): completing the square moves f by d, and f(y + d) <= e^d f(y). There
        |f(y)| grows with Re y and falls with Im y below pi/2, so it is smallest at -d + i height. The share of a
        cut is the mass of a normal law. At y, its modulus is at most e^((Im y)^2 / (2 w^2)) times its value at Re y.
        That value falls, so it moves with the density.
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
        if self.cut is not None:
            spread = spread + 0.5 * (height / self.cut[1]) ** 2
        if self.upward:
            # After the square is completed, the part below y = 0 has a mass of less than 1.
            tails = self._log_tail(reach, np.full(d.shape, tilt), d)
            near = (tilt + 1.0) * np.log1p(share * np.expm1(d)) + math.log(2.0)
            return np.asarray(spread + np.logaddexp(near, tails))
        smallest = self._log_f(-d + 1j * height).real
        return np.asarray(spread - tilt * np.where(height <= 0.5 * math.pi, smallest, -math.inf))

    def best_scale(self, angle: float, tilt: float, digits: float) -> tuple[float, float, float]:
        """Return (S, log growth, reach) with about the fewest nodes."""
        reach = self.reach(tilt, digits)
        length = reach - self.low
        scales = min(self.highest / angle, length) * _SCALES
        growth = self.log_growth(scales, angle, tilt, reach)
        ends = 2.0 if math.isfinite(self.high) else 1.0
        nodes = (digits + growth) * (ends * digits + length / scales)
        best = int(np.nanargmin(nodes))
        return float(scales[best]), float(growth[best]), reach

    def reach(self, tilt: float, digits: float) -> float:
        """Return the upper end, or a place beyond which the rest of the integral is negligible."""
        if math.isfinite(self.high):
            return self.high
        s = math.sqrt(self.curvature)
        if not self.upward:
            return REACH / s
        farthest = math.inf
        if self.cut is not None:
            # Beyond the cut, the share falls like a normal law of standard deviation w, which the tilt moves by less
            # than this.
            end, width = self.cut
            farthest = max(end, 0.0) + REACH * width + 2.0 * (tilt + 1.0) * width * width
        # If q is small, the tilt moves the law less far than it would without sampling, so nearer places are tried.
        for share in (0.0, 0.03, 0.1, 0.3):
            place = min(REACH / s + share * (tilt + 1.0) / self.curvature, farthest)
            if float(self._log_tail(place, np.array([tilt]))[0]) < -digits - 25.0:
                return place
        return min(REACH / s + (tilt + 1.0) / self.curvature, farthest)

    def grid(self, scale: float, spacing: float, digits: float, reach: float) -> Array:
        """Return the nodes u between the two places where the rule's weights are e^-digits, or up to ``reach``."""
        length = (reach - self.low) / scale
        right = length + (digits + 4.0 if math.isfinite(self.high) else 1.0)
        left = -digits - 4.0
        if not (right - left) / spacing < MAX_NODES:
            raise OverflowError("the quadrature would need too many nodes")
        return np.arange(math.floor(left / spacing), math.ceil(right / spacing) + 1, dtype=np.float64) * spacing

    def log_left_out(self, nodes: Array, scale: float, tilts: Array, growth: float = 0.0, angle: float = 0.0) -> Array:
        """Return log of a bound of the part that the rule leaves out beyond its nodes, for every tilt.

        Args:
            growth: `log_growth` of a shifted line. At the ends, the path does not leave the axis.
            angle: The angle of that line, which moves the tail by the d of the module's docstring.
        """
        direction = 1.0 if self.upward else -1.0

        def beside(end: float, rate: float) -> Array:
            # Weights fall like e^-|u| near the end. The factor 2 covers the difference between sum and integral, and
            # the change of the integrand.
            at: Complex = np.array([end], dtype=np.complex128)
            value = self._log_mass(at).real[0] + direction * tilts * self._log_f(at).real[0]
            return np.asarray(value + math.log(2.0 * scale) + rate)

        total = beside(self.low, float(nodes[0]))
        if math.isfinite(self.high):
            length = (self.high - self.low) / scale
            return np.asarray(np.logaddexp(total, beside(self.high, length - float(nodes[-1]))))
        beyond = scale * (float(nodes[-2]) + math.log(math.cos(0.5 * angle)))
        return np.asarray(np.logaddexp(total, growth + self._log_tail(beyond, tilts)))

    def _log_tail(self, end: float, tilts: Array, ahead: Array | None = None) -> Array:
        """Bound the log of the integral beyond ``end``, if there is no upper end; f may be taken at y + ``ahead``.

        The bound begins at the last node but one, because a sum over a falling function is below its integral from one
        node earlier on.
        """
        s = math.sqrt(self.curvature)
        if not self.upward:
            return np.full(tilts.shape, float(scipy.special.log_ndtr(-s * end - 0.5 / s)))
        power = tilts + 1.0
        # On each panel, the bound is f at the farther end times the mass beyond the nearer end. Beyond the last panel f
        # e^-y falls, so f^p <= (f e^-y)^p e^(py), a Gaussian.
        ends = end + (_FAR_STEPS if self.cut is None else _CUT_STEPS) / s
        log_f = self.log_f(ends[None, :] if ahead is None else ends + ahead[:, None])
        mass = scipy.special.log_ndtr(-s * ends - 0.5 / s) + self._log_share(ends)
        panels = np.logaddexp.reduce(power[:, None] * log_f[:, 1:] + mass[:-1], axis=1)
        shifted = scipy.special.log_ndtr(-s * ends[-1] - 0.5 / s + power / s) + self._log_share(ends[-1:])
        far = power * (log_f[:, -1] - ends[-1]) + 0.5 * tilts * power / self.curvature + shifted
        return np.asarray(np.logaddexp(panels, far))

    def real_nodes(self, nodes: Array, spacing: float, scale: float) -> tuple[Array, Array, Array]:
        """Return log masses of the law without a cut, log shares, and losses, of the rule on the real line."""
        y, derivative = self._path(nodes, 0.0, scale)
        log_f = self.log_f(y.real)
        log_mass = self._log_mass(y).real + np.log(np.maximum(derivative.real, 1e-300) * spacing)
        return log_mass, self._log_share(y.real), log_f if self.upward else -log_f

    def line_nodes(self, nodes: Array, spacing: float, scale: float, tilt: float) -> tuple[Complex, Complex]:
        """Return (log weights, losses) of the rule on the shifted line, weights with the factor e^(tilt L)."""
        y, derivative = self._path(nodes, LINE_ANGLE, scale)
        log_f = self._log_f(y)
        log_mass = self._log_mass(y) + np.log(derivative * spacing)
        if self.cut is not None:
            log_mass = log_mass + log_normal_tail((y - self.cut[0]) / self.cut[1])
        if self.upward:
            return log_mass + tilt * log_f, log_f
        return np.conj(log_mass - tilt * log_f), -np.conj(log_f)

    def _log_mass(self, y: Complex) -> Complex:
        """Return the log of the density of the masses, without a cut."""
        density: Complex = self.log_scale - 0.5 * y - 0.5 * self.curvature * y * y
        return density + self._log_f(y) if self.upward else density

    def _log_share(self, y: Array) -> Array:
        """Return the log of the share that a cut leaves, on the real line."""
        if self.cut is None:
            return np.zeros(y.size)
        return np.asarray(scipy.special.log_ndtr((self.cut[0] - y) / self.cut[1]))

    def _share(self, y: float) -> float:
        """Return q e^y / f."""
        return 1.0 / (1.0 + (1.0 - self.probability) / self.probability * math.exp(-y))

    def _path(self, u: Array, angle: float, scale: float) -> tuple[Complex, Complex]:
        """Return (y, dy/du) at u + i angle; imaginary parts keep their sign at the ends."""
        here: Complex = (u + 1j * angle).astype(np.complex128)
        if math.isinf(self.high):
            return self.low + scale * _softplus(here), scale * _logistic(here)
        length = (self.high - self.low) / scale
        left = u < 0.5 * length
        # The path is computed from the nearer end, so that nothing cancels.
        near: Complex = np.where(left, here, length - here)
        farther: Complex = near - length
        away = scale * (_softplus(near) - _softplus(farther))
        y: Complex = np.where(left, self.low + away, self.high - away)
        derivative: Complex = scale * -math.expm1(-length) * _logistic(near) * _logistic(length - near)
        return y, derivative

    def _log_f(self, y: Complex) -> Complex:
        """Return log f in 0 <= |Im y| <= pi without overflow, relatively accurate where f is near 1."""
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
    """Return log(1 + e^z)."""
    right = z.real > 0.0
    folded: Complex = np.exp(np.where(right, -z, z))
    return np.where(right, z, 0.0) + log1p_complex(folded)


def _logistic(z: Complex) -> Complex:
    """Return 1 / (1 + e^-z)."""
    right = z.real > 0.0
    folded: Complex = np.exp(np.where(right, -z, z))
    logistic: Complex = np.where(right, 1.0, folded) / (1.0 + folded)
    return logistic
