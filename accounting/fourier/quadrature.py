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

from accounting.compiled import compiled
from accounting.fourier.effort import LINE, TILT, spend
from accounting.fourier.moments import moments_at
from accounting.fourier.pairs import (
    ADD,
    EVERYTHING,
    SHARE_ERROR,
    Band,
    Ends,
    GaussianPair,
    Law,
    Pair,
    exponents_at,
    log_share_at,
    shifted_exponents,
    slope_at,
)
from accounting.fourier.steps import FAR_ABOVE, TERM_ROUNDING, UNIT, Complex, StepLine, TiltTable
from accounting.fourier.tails import log_tail

Array = NDArray[np.float64]

MAX_NODES = 400_000
#: By how many fewer digits an envelope's rule has than a line's, and how many it has at least.
_FEWER_DIGITS, _LEAST_DIGITS = 24.0, 20.0
#: Of the lines whose weights an envelope is made of, over the best one at the decay that is asked for.
_ENVELOPE_ANGLES = (0.7, 1.5, 4.0, 12.0)
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
        grid = _grid(left, right, spacing)
        spend(TILT * grid[1] * (tilts.size + len(pair.law[2])))
        moments, means, variances, errors = _table(
            pair.law, self._ends, grid, spacing, tilts, near_one, pair.cancellation
        )
        return TiltTable(tilts, moments, means, variances, errors + 4.0 * math.exp(-self.digits))

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
        first, count = grid = _grid(left, right, spacing)
        spend(LINE * count * len(pair.law[2]))
        shares = np.zeros(0, np.complex128)
        if self.band is not None:
            # ADD has no bands, so the line is above the axis.
            nodes = np.arange(first, first + count, dtype=np.float64) * spacing
            shares = self.band.shifted_log_share(nodes, angle * s**2)
        weights, losses, mass, first_moment, dropped, size = _weigh(
            pair.law, grid, spacing, angle, shares, (tilt, log_moment), -self.digits - 4.0
        )
        beyond = float(log_tail(pair.law, left, right, np.array([tilt]), self._ends)[0]) - log_moment
        tail = math.exp(min(beyond + self._log_growth(angle, tilt), 700.0)) + dropped
        quadrature = (math.exp(growth) + 1.0) * math.exp(-self.digits - growth) * 1.01
        return StepLine(
            weights=weights,
            losses=losses,
            log_moment=log_moment,
            log_moment_error=log_moment_error,
            relative_error=2.0 * (quadrature + tail),
            rounding=UNIT * (weights.size + TERM_ROUNDING + 4.0 * size + pair.cancellation * (tilt + 1.0))
            + (0.0 if self.band is None else SHARE_ERROR),
            mass=mass,
            first_moment=first_moment,
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
            place = min(pair.place_of_loss(epsilon), self.band.high)
            local = max(place / pair.noise**2, 0.0) / max(pair.slope(place), 1e-300)
            exploding = -math.log(pair.probability) * pair.noise**4 / self.band.width**2
            return min(3.0 * max(local, 4.0 / max(epsilon, 1e-12)), max(exploding, 1.0))
        return pair.largest_tilt(count, epsilon, level)

    def _window(self, tilt: float) -> tuple[float, float]:
        """Return a generous window for the part of the law that is integrated."""
        left, right = self.pair.window(tilt)
        if self.band is None:
            return left, right
        band, reach = self.band, 13.0 * self.band.width
        if math.isfinite(band.high):
            # Beyond its end the share falls like a Gaussian of width w, which the tilt moves by less than this.
            end = band.high + reach
            pull = 2.0 * (tilt + 1.0) * self.pair.slope(end) * band.width**2
            right = min(right, end + pull)
        if math.isfinite(band.low):
            left = max(left, band.low - reach)
        return min(left, right - reach), right

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
        digits = max(self.digits - _FEWER_DIGITS, _LEAST_DIGITS)
        spacing = 2.0 * math.pi * strip * s**2 / (digits + self._log_growth(2.0 * strip, tilt))
        logs, rates, dropped = _envelope(
            pair.law, self._ends, _grid(left, right, spacing), spacing, (tilt, decay, strip), log_moment, self.digits
        )
        beyond = float(log_tail(pair.law, left, right, np.array([tilt]), self._ends)[0]) - log_moment
        lifted = math.exp(min(self._log_growth(strip, tilt), 700.0))
        extra = 2.0 * math.exp(-digits) + lifted * (dropped + math.exp(min(beyond, 700.0)))
        return logs + UNIT * pair.cancellation * (tilt + 1.0), rates, extra

    @property
    def _ends(self) -> Ends:
        return EVERYTHING if self.band is None else self.band.ends


@compiled
def _table(
    law: Law, band: Ends, grid: tuple[int, int], spacing: float, tilts: Array, from_one: bool, cancellation: float
) -> tuple[Array, Array, Array, Array]:
    """Sum a rule on the real line: `moments_at`, and the error of log M from rounding and beyond the grid."""
    first, count = grid
    base, loss, log_mass = np.empty(count), np.empty(count), np.empty(count)
    rule = _log_rule(spacing, law[1])
    for j in range(count):
        x = (first + j) * spacing
        base[j], loss[j] = exponents_at(x, law)
        base[j] += log_share_at(x, band)
        log_mass[j] = rule - 0.5 * (x / law[1]) ** 2
    moments, means, variances, errors = moments_at(log_mass, base, loss, 0.0, tilts, from_one, cancellation)
    tails = log_tail(law, first * spacing, (first + count - 1) * spacing, tilts, band)
    for i in range(tilts.size):
        errors[i] = UNIT * errors[i] + math.exp(min(tails[i] - moments[i], 700.0))
    return moments, means, variances, errors


@compiled
def _envelope(
    law: Law,
    band: Ends,
    grid: tuple[int, int],
    spacing: float,
    at: tuple[float, float, float],
    log_moment: float,
    digits: float,
) -> tuple[Array, Array, float]:
    """Weights of a few lines, rounded up, and their rates of decay; and the sum of the weights that are left out.

    Args:
        at: The tilt, the decay that is asked for, and the largest angle.
    """
    tilt, decay, strip = at
    first, count = grid
    s, rule = law[1], _log_rule(spacing, law[1]) - log_moment
    nodes, log_mass, shares = np.empty(count), np.empty(count), np.empty(count)
    kept, dropped, steepest = 0, 0.0, 0.0
    for j in range(count):
        x = (first + j) * spacing
        base, loss = exponents_at(x, law)
        share, mass = log_share_at(x, band), rule - 0.5 * (x / s) ** 2
        log_weight = mass + base + tilt * loss + share
        if log_weight > -digits:
            nodes[kept], log_mass[kept], shares[kept] = x, mass, share
            steepest += math.exp(log_weight) * slope_at(x, law)
            kept += 1
        else:
            dropped += math.exp(log_weight)
    rows = 0
    angles = np.empty(len(_ENVELOPE_ANGLES))
    for factor in _ENVELOPE_ANGLES:
        angles[rows] = min(decay * steepest * factor, strip)
        rows += 1
        if angles[rows - 1] >= strip:
            break
    logs, rates = np.empty((rows, kept)), np.empty((rows, kept))
    for row in range(rows):
        angle = angles[row]
        grown = 0.5 * (angle * s) ** 2
        if band[0] > -math.inf or band[1] < math.inf:
            grown += 0.5 * (angle * s * s / band[2]) ** 2
        base_r, _, loss_r, loss_i = shifted_exponents(nodes[:kept], angle, law)
        for j in range(kept):
            tilted = tilt * loss_r[j]
            rounding = 8.0 * UNIT * (abs(log_mass[j]) + abs(base_r[j]) + abs(tilted))
            logs[row, j] = log_mass[j] + base_r[j] + tilted + shares[j] + grown + rounding
            rates[row, j] = loss_i[j]
    return logs, rates, dropped


@compiled
def _weigh(
    law: Law,
    grid: tuple[int, int],
    spacing: float,
    angle: float,
    log_shares: Complex,
    at: tuple[float, float],
    least: float,
) -> tuple[Complex, Complex, float, float, float, float]:
    """Weights and losses of a rule on the line at ``angle`` s^2; weights below e^least are left out.

    Args:
        log_shares: Of a band, at each node; empty without one.
        at: The tilt, and log M there.

    Returns:
        Weights; losses; the sum of the weights' moduli; the same times those of the losses; the sum of what is left
        out; the largest exponent of a node that is kept.
    """
    first, nodes = grid
    s, (tilt, log_moment) = law[1], at
    x = np.empty(nodes)
    for j in range(nodes):
        x[j] = (first + j) * spacing
    base_r, base_i, loss_r, loss_i = shifted_exponents(x, angle, law)
    rule = _log_rule(spacing, s) + 0.5 * (angle * s) ** 2 - log_moment
    # ADD is integrated below the axis, where the phase of the Gaussian has the other sign.
    turn = angle if law[0] == ADD else -angle
    weights, losses = np.empty(nodes, np.complex128), np.empty(nodes, np.complex128)
    count, mass, first_moment, dropped, size = 0, 0.0, 0.0, 0.0, 0.0
    for j in range(nodes):
        square = (x[j] / s) ** 2
        log_modulus = rule - 0.5 * square + base_r[j] + tilt * loss_r[j]
        phase = turn * x[j] + base_i[j] + tilt * loss_i[j]
        if log_shares.size > 0:
            log_modulus += log_shares[j].real
            phase += log_shares[j].imag
        modulus = math.exp(log_modulus)
        if log_modulus > least:
            weights[count] = complex(modulus * math.cos(phase), modulus * math.sin(phase))
            losses[count] = complex(loss_r[j], loss_i[j])
            mass += modulus
            first_moment += modulus * math.hypot(loss_r[j], loss_i[j])
            size = max(size, abs(base_r[j]) + tilt * abs(loss_r[j]) + square)
            count += 1
        else:
            dropped += modulus
    return weights[:count].copy(), losses[:count].copy(), mass, first_moment, dropped, size


@compiled
def _log_rule(spacing: float, s: float) -> float:
    """log of the rule's weight over the scale of N(0, s^2)."""
    return math.log(spacing / s) - _LOG_SQRT_TWO_PI


def _grid(left: float, right: float, spacing: float) -> tuple[int, int]:
    """The first node, as a multiple of the spacing, and their number."""
    if (right - left) / spacing > MAX_NODES:
        raise OverflowError("the quadrature would need too many nodes")
    first = math.floor(left / spacing)
    return first, math.ceil(right / spacing) + 1 - first
