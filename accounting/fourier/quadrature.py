"""Moments of the subsampled Gaussian pairs: trapezoid rules with proved errors, at real tilts and on a line.

The integrand N(0, s^2) density e^(zL) is analytic in a strip, so a trapezoid rule of spacing h on a line errs by at
most (norm on the line y above + norm on the line y below) / (e^(2 pi y / h) - 1). On the real line the norm grows like
e^(ty) for z = c + it; on a line shifted by theta towards the side where arg f >= 0 it does not: for the line at 2 theta
and the line at 0, |e^(itL)| <= 1, so the error is at most

    M(c) [e^((2 theta)^2 / 2 s^2) growth(2 theta) + 1] / (e^(2 pi theta / h) - 1)

for every t >= 0, with growth from `GaussianPair.log_growth`. A smooth share of the law (`Band`) grows by
e^(y^2 / 2 w^2) on the line at y.

Rounding is kept proportional to what changes: M(c + it)/M(c) - 1 = sum of w_j (e^(i t l_j) - 1), and log M(c) comes
from the sum of density e^(cL) - 1 over all nodes that carry mass of N(0, s^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.pairs import Band, GaussianPair, Pair
from accounting.fourier.steps import FAR_ABOVE, UNIT, Complex, StepLine, TiltTable, summation

Array = NDArray[np.float64]

MAX_NODES = 400_000
#: Of the complex error function, relatively.
_SHARE_ERROR = 2e-13
_ENVELOPE_DIGITS = 40.0
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class GaussianPairStep:
    """One step of a subsampled Gaussian, as `steps.Step`.

    Attributes:
        pair: The pair.
        digits: Quadrature errors are below e^-digits, relatively.
        band: The part of the law that is meant; all of it without one.
    """

    pair: GaussianPair
    digits: float
    band: Band | None = None

    def table(self, tilts: Array) -> TiltTable:
        """K, K', K'' at real tilts, by one array of (tilts x nodes)."""
        pair, s = self.pair, self.pair.noise
        left, right = self._window(float(tilts.max()))
        near_one = self.band is None or math.isinf(self.band.low)
        if near_one:
            # Differences from 1 need every node that carries mass of N(0, s^2).
            left, right = min(left, pair.window(0.0)[0]), max(right, pair.window(0.0)[1])
        angle = self._best_angle(float(tilts.max()))
        spacing = 2.0 * math.pi * angle * s**2 / (self.digits + self._log_growth(angle, float(tilts.max())))
        nodes = _grid(left, right, spacing)
        base, loss = pair.exponents(nodes)
        exponent = base + tilts[:, None] * loss
        log_mass = self._log_mass(nodes, spacing)
        if self.band is not None:
            exponent = exponent + self.band.log_share(nodes)
        tilted = exponent + log_mass
        top = tilted.max(axis=1, keepdims=True)
        weights = np.exp(tilted - top)
        total = weights.sum(axis=1)
        mean = (weights @ loss) / total
        variance = np.maximum((weights @ (loss * loss)) / total - mean * mean, 0.0)
        moments = top[:, 0] + np.log(total)
        accumulation = summation(nodes.size) + 16.0
        rounding = accumulation + 8.0 * np.abs(exponent).max(axis=1) + pair.cancellation * (tilts + 1.0)
        if near_one:
            moments, rounding = self._from_differences(exponent, tilted, log_mass, moments, rounding, accumulation)
            # Weights of terms that are a little wrong change M - 1 by as much, relatively, and M's tilt times more.
            rounding = rounding + 2.0 * pair.cancellation * (tilts + 1.0) * np.abs(np.expm1(np.minimum(moments, 1.0)))
        tail = np.exp(np.minimum(pair.log_tail(left, right, tilts, self.band) - moments, 700.0))
        return TiltTable(tilts, moments, mean, variance, UNIT * rounding + tail + 4.0 * math.exp(-self.digits))

    def line(self, tilt: float, decay: float) -> StepLine:
        """M on Re z = ``tilt``.

        Args:
            decay: a value of Im z at which the envelope should be good.
        """
        pair, s = self.pair, self.pair.noise
        table = self.table(np.array([tilt]))
        log_moment, log_moment_error = float(table.moments[0]), float(table.errors[0])
        angle = self._line_angle(tilt)
        growth = self._log_growth(2.0 * angle, tilt)
        spacing = 2.0 * math.pi * angle * s**2 / (self.digits + growth)
        left, right = self._window(tilt)
        nodes = _grid(left, right, spacing)
        base_r, base_i, loss_r, loss_i = pair.shifted_exponents(nodes, angle)
        log_weight = self._log_mass(nodes, spacing) + 0.5 * (angle * s) ** 2 + base_r + tilt * loss_r - log_moment
        log_share = np.zeros(nodes.shape, dtype=np.complex128)
        if self.band is not None:
            # ADD has no bands, so the line is above the axis.
            log_share = self.band.shifted_log_share(nodes, angle * s**2)
            log_weight = log_weight + log_share.real
        kept = log_weight > -self.digits - 4.0
        dropped = float(np.exp(log_weight[~kept]).sum())
        nodes, log_weight = nodes[kept], log_weight[kept]
        # ADD is integrated below the axis, where the phase of the Gaussian has the other sign.
        turn = nodes * angle if pair.pair is Pair.ADD else -nodes * angle
        phase = turn + base_i[kept] + tilt * loss_i[kept] + log_share.imag[kept]
        modulus = np.exp(log_weight)
        weights: Complex = modulus * np.exp(1j * phase)
        losses: Complex = loss_r[kept] + 1j * loss_i[kept]
        size = np.abs(base_r[kept]) + tilt * np.abs(loss_r[kept]) + (nodes / s) ** 2
        log_tail = float(pair.log_tail(left, right, np.array([tilt]), self.band)[0]) - log_moment
        tail = math.exp(min(log_tail + self._log_growth(angle, tilt), 700.0)) + dropped
        quadrature = (math.exp(growth) + 1.0) * math.exp(-self.digits - growth) * 1.01
        return StepLine(
            weights=weights,
            losses=losses,
            log_moment=log_moment,
            log_moment_error=log_moment_error,
            relative_error=2.0 * (quadrature + tail),
            rounding=UNIT * (nodes.size + 24.0 + 4.0 * float(size.max(initial=0.0)) + pair.cancellation * (tilt + 1.0))
            + (0.0 if self.band is None else _SHARE_ERROR),
            mass=float(modulus.sum()),
            first_moment=float(modulus @ np.abs(losses)),
            envelope=self._envelope(tilt, decay, log_moment - log_moment_error),
        )

    @property
    def participation(self) -> float:
        return self.pair.probability

    @property
    def largest_loss(self) -> float:
        return -self.pair.log_least if self.pair.pair is Pair.ADD else math.inf

    def largest_tilt(self, count: int, epsilon: float, level: float = FAR_ABOVE) -> float:
        """Return a tilt beyond which no saddle point lies (`steps.Step`).

        A band that ends bounds it by the logarithmic slope of the density where one step's loss is eps; for a band
        that does not end, it is the pair's.
        """
        pair = self.pair
        if pair.pair is Pair.ADD:
            return math.inf
        if self.band is not None and math.isfinite(self.band.high):
            place = np.array([min(pair.place_of_loss(epsilon), self.band.high)])
            local = max(float(place[0]) / pair.noise**2, 0.0) / max(float(pair.slope(place)[0]), 1e-300)
            exploding = -math.log(pair.probability) * pair.noise**4 / self.band.width**2
            return min(3.0 * max(local, 4.0 / max(epsilon, 1e-12)), max(exploding, 1.0))
        return pair.largest_tilt(count, epsilon, level)

    def _from_differences(
        self, exponent: Array, tilted: Array, log_mass: Array, moments: Array, rounding: Array, accumulation: float
    ) -> tuple[Array, Array]:
        """log M from M - 1 where M is close to 1, which loses no digits there."""
        mass = np.exp(log_mass)
        near = mass * np.expm1(np.minimum(exponent, 1.0))
        terms = np.where(exponent < 1.0, near, np.exp(np.minimum(tilted, 700.0)) - mass)
        change = terms.sum(axis=1)
        # Exponents that are large and cancel have roundings of their own size.
        spread = (np.abs(terms) * (accumulation + 4.0 * (np.abs(log_mass) + np.abs(exponent)))).sum(axis=1)
        small = np.abs(change) < 0.5
        return (
            np.where(small, np.log1p(np.where(small, change, 0.0)), moments),
            np.where(small, 2.0 * spread, rounding),
        )

    def _window(self, tilt: float) -> tuple[float, float]:
        """Return a generous window for the part of the law that is integrated."""
        left, right = self.pair.window(tilt)
        if self.band is None:
            return left, right
        band, reach = self.band, 13.0 * self.band.width
        if math.isfinite(band.high):
            # Beyond its end the share falls like a Gaussian of width w, which the tilt moves by less than this.
            end = band.high + reach
            pull = 2.0 * (tilt + 1.0) * float(self.pair.slope(np.array([end]))[0]) * band.width**2
            right = min(right, end + pull)
        if math.isfinite(band.low):
            left = max(left, band.low - reach)
        return min(left, right - reach), right

    def _log_mass(self, nodes: Array, spacing: float) -> Array:
        """log of the rule's weight times N(0, s^2)."""
        s = self.pair.noise
        log_mass: Array = -0.5 * (nodes / s) ** 2 + (math.log(spacing / s) - _LOG_SQRT_TWO_PI)
        return log_mass

    def _log_growth(self, angle: float, tilt: float) -> float:
        """log of how much the integrand's norm can grow from the real line to the one at ``angle`` s^2."""
        s = self.pair.noise
        growth = 0.5 * (angle * s) ** 2 + self.pair.log_growth(angle, tilt)
        return growth if self.band is None else growth + 0.5 * (angle * s * s / self.band.width) ** 2

    def _curvature(self, tilt: float) -> float:
        """Growth is at most about curvature angle^2 for small angles."""
        s = self.pair.noise
        poles = 0.0 if self.pair.pair is Pair.REMOVE else 0.16 * tilt
        return 0.5 * s * s + poles + (0.0 if self.band is None else 0.5 * (s * s / self.band.width) ** 2)

    def _best_angle(self, tilt: float) -> float:
        """Half-width of the strip that lets a rule on the real line be coarsest."""
        widest = math.pi * 0.999 if self.pair.pair is Pair.REMOVE else 2.0
        return min(widest, math.sqrt(self.digits / self._curvature(tilt)))

    def _line_angle(self, tilt: float) -> float:
        """Shift of the line: weights grow by e^3 at most, and arg f >= 0 as far as twice the shift."""
        widest = 0.5 * math.pi if self.pair.pair is Pair.REMOVE else 1.4
        return min(widest, math.sqrt(2.0 / self._curvature(tilt)))

    def _envelope(self, tilt: float, decay: float, log_moment: float) -> tuple[Array, Array, float]:
        """(log weights, decay rates) of a few lines, and what their rules add: see `StepLine.log_envelope`.

        The modulus on the line at an angle is itself analytic in u, as far as angle + strip <= pi/2, where arg f still
        grows; so the rule that sums it has an error of its own, the same for every t >= 0.
        """
        pair, s = self.pair, self.pair.noise
        left, right = self._window(tilt)
        strip = min(0.25 * math.pi, math.sqrt(2.0 / self._curvature(tilt)))
        spacing = 2.0 * math.pi * strip * s**2 / (_ENVELOPE_DIGITS + self._log_growth(2.0 * strip, tilt))
        nodes = _grid(left, right, spacing)
        base, loss = pair.exponents(nodes)
        log_mass = self._log_mass(nodes, spacing) - log_moment
        real = log_mass + base + tilt * loss
        if self.band is not None:
            real = real + self.band.log_share(nodes)
        weight = np.exp(real)
        kept = real > -self.digits
        dropped = float(weight[~kept].sum())
        nodes, log_mass = nodes[kept], log_mass[kept]
        steepest = float(weight[kept] @ pair.slope(nodes))
        angles = np.unique(np.minimum(decay * steepest * np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0]), strip))
        logs, rates = [], []
        for angle in angles:
            base_r, _, loss_r, loss_i = pair.shifted_exponents(nodes, float(angle))
            log_weight = log_mass + base_r + tilt * loss_r + 0.5 * (float(angle) * s) ** 2
            log_weight = log_weight + 8.0 * UNIT * (np.abs(log_mass) + np.abs(base_r) + tilt * np.abs(loss_r))
            log_weight = log_weight + UNIT * pair.cancellation * (tilt + 1.0)
            if self.band is not None:
                shift = float(angle) * s * s
                log_weight = log_weight + self.band.log_share(nodes) + 0.5 * (shift / self.band.width) ** 2
            logs.append(log_weight)
            rates.append(loss_i)
        log_tail = float(pair.log_tail(left, right, np.array([tilt]), self.band)[0]) - log_moment
        lifted = math.exp(min(self._log_growth(strip, tilt), 700.0))
        extra = 2.0 * math.exp(-_ENVELOPE_DIGITS) + lifted * (dropped + math.exp(min(log_tail, 700.0)))
        return np.array(logs), np.array(rates), extra


def _grid(left: float, right: float, spacing: float) -> Array:
    if (right - left) / spacing > MAX_NODES:
        raise OverflowError("the quadrature would need too many nodes")
    return np.arange(math.floor(left / spacing), math.ceil(right / spacing) + 1, dtype=np.float64) * spacing
