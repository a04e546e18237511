"""This module computes moments of the subsampled Gaussian pairs, at real tilts and on a line, by trapezoid rules with
proved errors.

The integrand N(0, s^2) density e^(zL) is analytic in a strip, so a trapezoid rule of spacing h on a line errs by at
most (norm on the line y above + norm on the line y below) / (e^(2 pi y / h) - 1). On the real line the norm grows like
e^(ty) for z = c + it. This is avoided on a line that is shifted by theta towards the side where arg f >= 0: on the
lines at 2 theta and at 0, |e^(itL)| <= 1, so the error is at most

    M(c) [e^((2 theta)^2 / 2 s^2) growth(2 theta) + 1] / (e^(2 pi theta / h) - 1)

for every t >= 0, with growth from `_log_growth`. A smooth share of the law (`Band`) grows by
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
    REMOVE,
    SHARE_ERROR,
    Band,
    Ends,
    GaussianPair,
    Law,
    Pair,
    exponents_at,
    log_growth_of,
    log_share_at,
    shifted_exponents,
    slope_at,
    window_of,
)
from accounting.fourier.steps import (
    ERRORS,
    FAR_ABOVE,
    MEANS,
    MOMENTS,
    TERM_ROUNDING,
    TILTS,
    UNIT,
    VARIANCES,
    Complex,
    StepLine,
    TiltTable,
)
from accounting.fourier.tails import log_tail

Array = NDArray[np.float64]

MAX_NODES = 400_000
#: A rule on the real line or parallel to it: the first node as a multiple of the spacing, the number of nodes, and the
#: spacing.
Rule = tuple[int, int, float]
#: The number of digits by which a table's rule is shorter than a line's, and the least number of digits of a table's
#: rule. The next line has the same two numbers for an envelope.
_FEWER_DIGITS, _LEAST_DIGITS = 24.0, 16.0
_FEWER_OF_ENVELOPE, _LEAST_OF_ENVELOPE = 34.0, 20.0
#: The angles of the lines that make up an envelope, as multiples of the best angle at the given decay.
_ENVELOPE_ANGLES = (0.7, 1.5, 4.0, 12.0)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class GaussianPairStep:
    """One step of a subsampled Gaussian, as `steps.Step`.

    Attributes:
        pair: The pair.
        digits: Quadrature errors are below e^-digits, relatively.
        band: The part of the law that is used; None for all of it.
    """

    pair: GaussianPair
    digits: float
    band: Band | None = None

    def table(self, tilts: Array) -> TiltTable:
        """Return K, K' and K'' at real tilts, computed with one array of (tilts x nodes) to the accuracy that a
        table needs.
        """
        # If participations are rare, K is as small as the square of the probability, so more digits are needed.
        needed = _LEAST_DIGITS - 2.0 * math.log(self.pair.probability)
        return self._table(tilts, min(self.digits, max(self.digits - _FEWER_DIGITS, needed)))

    def _table(self, tilts: Array, digits: float) -> TiltTable:
        law, ends = self.pair.law, self._ends
        rule = _rule_on_axis(law, ends, self._window_on_axis(tilts, digits), digits, tilts)
        spend(TILT * rule[1] * (tilts.size + len(law[2])))
        table = TiltTable(np.zeros((6, tilts.size)))
        _sum_on_axis(law, ends, rule, tilts, digits, self.pair.cancellation, table.rows)
        return table

    def line(self, tilt: float, decay: float) -> StepLine:
        """Return M on Re z = ``tilt``.

        Args:
            decay: A value of Im z at which the envelope should be tight.
        """
        pair, ends = self.pair, self._ends
        table = self._table(np.array([tilt]), self.digits)
        log_moment, log_moment_error = float(table.moments[0]), float(table.errors[0])
        window = self._window(tilt, self.digits)
        rule, angle = _rule_on_line(pair.law, ends, window, self.digits, tilt)
        first, count, spacing = rule
        spend(LINE * count * len(pair.law[2]))
        shares = np.zeros(0, np.complex128)
        if self.band is not None:
            # Bands occur only in directions whose line is above the axis, because ADD has no bands.
            nodes = np.arange(first, first + count, dtype=np.float64) * spacing
            shares = self.band.shifted_log_share(nodes, angle * pair.noise**2)
        measure: Complex = np.empty((2, count), np.complex128)
        kept, mass, first_moment, size, inexact = _weigh(
            pair.law, ends, window, rule, angle, shares, (tilt, log_moment), self.digits, measure
        )
        # The envelope of a band needs more digits, because a single band's transform must fall far. The transform of a
        # whole law is raised to a power and needs to fall less.
        fewer = _FEWER_OF_ENVELOPE if self.band is None else _FEWER_DIGITS
        digits = max(self.digits - fewer, _LEAST_OF_ENVELOPE)
        window = self._window(tilt, digits)
        logs, rates, extra = _envelope(
            pair.law, ends, window, (tilt, decay), log_moment - log_moment_error, digits, pair.cancellation
        )
        return StepLine(
            weights=measure[0, :kept],
            losses=measure[1, :kept],
            log_moment=log_moment,
            log_moment_error=log_moment_error,
            relative_error=inexact,
            rounding=UNIT * (kept + TERM_ROUNDING + 4.0 * size + pair.cancellation * (tilt + 1.0))
            + (0.0 if self.band is None else SHARE_ERROR),
            mass=mass,
            first_moment=first_moment,
            envelope=(logs, rates, extra),
        )

    @property
    def participation(self) -> float:
        return self.pair.probability

    @property
    def largest_loss(self) -> float:
        return -self.pair.log_least if self.pair.pair is Pair.ADD else math.inf

    def largest_tilt(self, count: int, epsilon: float, level: float = FAR_ABOVE) -> float:
        """Return a tilt beyond which no saddle point lies (`steps.Step`).

        If the band ends, the tilt is bounded by the logarithmic slope of the density at the place where one step's loss
        is eps; otherwise by the bound of the pair.
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

    def _window(self, tilt: float, digits: float) -> tuple[float, float]:
        """Return the window in which the integrand of a line is not negligible."""
        return _window(self.pair.law, self._ends, tilt, digits)

    def _window_on_axis(self, tilts: Array, digits: float) -> tuple[float, float]:
        """Return the window in which the integrands of a table are not negligible."""
        return _window_on_axis(self.pair.law, self._ends, tilts, digits)

    @property
    def _ends(self) -> Ends:
        return EVERYTHING if self.band is None else self.band.ends


@compiled
def _sum_on_axis(
    law: Law, band: Ends, rule: Rule, tilts: Array, digits: float, cancellation: float, rows: Array
) -> None:
    """Sum a rule on the real line into the rows of a table: the moments of `moments_at`, and the errors of the rule."""
    first, count, spacing = rule
    base, loss, log_mass = np.empty(count), np.empty(count), np.empty(count)
    log_weight = _log_weight(spacing, law[1])
    for j in range(count):
        x = (first + j) * spacing
        base[j], loss[j] = exponents_at(x, law)
        base[j] += log_share_at(x, band)
        log_mass[j] = log_weight - 0.5 * (x / law[1]) ** 2
    from_one = band[0] == -math.inf
    moments, means, variances, errors = moments_at(log_mass, base, loss, 0.0, tilts, from_one, cancellation)
    tails = log_tail(law, first * spacing, (first + count - 1) * spacing, tilts, band)
    for i in range(tilts.size):
        rows[TILTS, i], rows[MOMENTS, i], rows[MEANS, i], rows[VARIANCES, i] = (
            tilts[i],
            moments[i],
            means[i],
            variances[i],
        )
        rows[ERRORS, i] = UNIT * errors[i] + math.exp(min(tails[i] - moments[i], 700.0)) + 4.0 * math.exp(-digits)


@compiled
def _envelope(
    law: Law,
    band: Ends,
    window: tuple[float, float],
    at: tuple[float, float],
    log_moment: float,
    digits: float,
    cancellation: float,
) -> tuple[Array, Array, float]:
    """Return (log weights, decay rates) of a few lines, rounded up, and the errors of their rules: see
    `StepLine.log_envelope`.

    The modulus on the line at an angle is itself analytic in u, as far as angle + strip <= pi/2, where arg f still
    grows. So the rule that sums it has an error of its own, which is the same for every t >= 0.

    Args:
        at: The tilt, and the decay that is asked for.
    """
    tilt, decay = at
    s = law[1]
    strip = min(0.25 * math.pi, math.sqrt(2.0 / _curvature(law, band, tilt)))
    spacing = 2.0 * math.pi * strip * s**2 / (digits + _log_growth(law, band, 2.0 * strip, tilt))
    first, count = _grid(window, spacing)
    log_rule = _log_weight(spacing, s) - log_moment
    nodes, log_mass, shares = np.empty(count), np.empty(count), np.empty(count)
    kept, dropped, steepest = 0, 0.0, 0.0
    for j in range(count):
        x = (first + j) * spacing
        base, loss = exponents_at(x, law)
        share, mass = log_share_at(x, band), log_rule - 0.5 * (x / s) ** 2
        log_weight = mass + base + tilt * loss + share
        if log_weight > -digits - 4.0:
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
    inexact = UNIT * cancellation * (tilt + 1.0)
    for row in range(rows):
        angle = angles[row]
        grown = 0.5 * (angle * s) ** 2
        if band[0] > -math.inf or band[1] < math.inf:
            grown += 0.5 * (angle * s * s / band[2]) ** 2
        base_r, _, loss_r, loss_i = shifted_exponents(nodes[:kept], angle, law)
        for j in range(kept):
            tilted = tilt * loss_r[j]
            rounding = 8.0 * UNIT * (abs(log_mass[j]) + abs(base_r[j]) + abs(tilted)) + inexact
            logs[row, j] = log_mass[j] + base_r[j] + tilted + shares[j] + grown + rounding
            rates[row, j] = loss_i[j]
    lifted = math.exp(min(_log_growth(law, band, strip, tilt), 700.0))
    beyond = _log_beyond(law, band, window, tilt) - log_moment
    return logs, rates, 2.0 * math.exp(-digits) + lifted * (dropped + math.exp(min(beyond, 700.0)))


@compiled
def _weigh(
    law: Law,
    band: Ends,
    window: tuple[float, float],
    rule: Rule,
    angle: float,
    log_shares: Complex,
    at: tuple[float, float],
    digits: float,
    nodes: Complex,
) -> tuple[int, float, float, float, float]:
    """Fill ``nodes`` with weights and losses of a rule on the line at ``angle`` s^2; negligible ones are left out.

    Args:
        log_shares: The logarithms of a band's shares at each node; empty without a band.
        at: The tilt, and log M there.

    Returns:
        The number of nodes that are kept; the sum of the moduli of the weights; the sum of the moduli of weights times
        losses; the largest exponent of a node that is kept; a bound of the error of M(c + it)/M(c).
    """
    first, count, spacing = rule
    s, (tilt, log_moment) = law[1], at
    x = np.empty(count)
    for j in range(count):
        x[j] = (first + j) * spacing
    base_r, base_i, loss_r, loss_i = shifted_exponents(x, angle, law)
    log_rule = _log_weight(spacing, s) + 0.5 * (angle * s) ** 2 - log_moment
    # ADD is integrated below the axis, where the phase of the Gaussian has the other sign.
    turn = angle if law[0] == ADD else -angle
    kept, mass, first_moment, dropped, size = 0, 0.0, 0.0, 0.0, 0.0
    for j in range(count):
        square = (x[j] / s) ** 2
        log_modulus = log_rule - 0.5 * square + base_r[j] + tilt * loss_r[j]
        phase = turn * x[j] + base_i[j] + tilt * loss_i[j]
        if log_shares.size > 0:
            log_modulus += log_shares[j].real
            phase += log_shares[j].imag
        modulus = math.exp(log_modulus)
        if log_modulus > -digits - 4.0:
            nodes[0, kept] = complex(modulus * math.cos(phase), modulus * math.sin(phase))
            nodes[1, kept] = complex(loss_r[j], loss_i[j])
            mass += modulus
            first_moment += modulus * math.hypot(loss_r[j], loss_i[j])
            size = max(size, abs(base_r[j]) + tilt * abs(loss_r[j]) + square)
            kept += 1
        else:
            dropped += modulus
    beyond = _log_beyond(law, band, window, tilt) - log_moment
    tail = math.exp(min(beyond + _log_growth(law, band, angle, tilt), 700.0)) + dropped
    growth = _log_growth(law, band, 2.0 * angle, tilt)
    quadrature = (math.exp(growth) + 1.0) * math.exp(-digits - growth) * 1.01
    return kept, mass, first_moment, size, 2.0 * (quadrature + tail)


@compiled
def _log_beyond(law: Law, band: Ends, window: tuple[float, float], tilt: float) -> float:
    """Return log of a bound of the tilted mass outside a window."""
    tilts = np.empty(1)
    tilts[0] = tilt
    return float(log_tail(law, window[0], window[1], tilts, band)[0])


@compiled
def _rule_on_axis(law: Law, band: Ends, window: tuple[float, float], digits: float, tilts: Array) -> Rule:
    """Return the rule on the real line for some tilts, with the strip that allows the coarsest rule."""
    tilt = _largest(tilts)
    widest = math.pi * 0.999 if law[0] == REMOVE else 2.0
    angle = min(widest, math.sqrt(digits / _curvature(law, band, tilt)))
    spacing = 2.0 * math.pi * angle * law[1] ** 2 / (digits + _log_growth(law, band, angle, tilt))
    first, count = _grid(window, spacing)
    return first, count, spacing


@compiled
def _rule_on_line(law: Law, band: Ends, window: tuple[float, float], digits: float, tilt: float) -> tuple[Rule, float]:
    """Return the rule on a line, and the angle of the line. Weights grow by at most e^3, and arg f >= 0 up to twice the
    angle.
    """
    widest = 0.5 * math.pi if law[0] == REMOVE else 1.4
    angle = min(widest, math.sqrt(2.0 / _curvature(law, band, tilt)))
    spacing = 2.0 * math.pi * angle * law[1] ** 2 / (digits + _log_growth(law, band, 2.0 * angle, tilt))
    first, count = _grid(window, spacing)
    return (first, count, spacing), angle


@compiled
def _largest(tilts: Array) -> float:
    largest = 0.0
    for i in range(tilts.size):
        largest = max(largest, tilts[i])
    return largest


@compiled
def _window_on_axis(law: Law, band: Ends, tilts: Array, digits: float) -> tuple[float, float]:
    """Return the common window of several tilts. Differences from 1 need every node that carries mass of N(0, s^2)."""
    left, right = _window(law, band, _largest(tilts), digits)
    if band[0] > -math.inf:
        return left, right
    whole = _window(law, EVERYTHING, 0.0, digits)
    return min(left, whole[0]), max(right, whole[1])


@compiled
def _window(law: Law, band: Ends, tilt: float, digits: float) -> tuple[float, float]:
    """Return a generous window for the part of the law that is integrated; `log_tail` bounds what is left out."""
    low, high, width = band
    left, right = window_of(law, tilt, _reach(digits))
    if low == -math.inf and high == math.inf:
        return left, right
    reach = 13.0 * width
    if high < math.inf:
        # Beyond the end of the band, the share falls like a Gaussian of width w, which the tilt moves by less than
        # this.
        pull = 2.0 * (tilt + 1.0) * slope_at(high + reach, law) * width**2
        right = min(right, high + reach + pull)
    if low > -math.inf:
        left = max(left, low - reach)
    return min(left, right - reach), right


@compiled
def _reach(digits: float) -> float:
    """Return a number of standard deviations outside which N(0, s^2) has a mass of less than e^-digits."""
    return 1.0 + math.sqrt(2.0 * digits)


@compiled
def _log_growth(law: Law, band: Ends, angle: float, tilt: float) -> float:
    """Return the log of the factor by which the integrand's norm can grow from the real line to the line at ``angle``
    s^2."""
    s = law[1]
    growth = 0.5 * (angle * s) ** 2 + log_growth_of(law, angle, tilt)
    if band[0] > -math.inf or band[1] < math.inf:
        growth += 0.5 * (angle * s * s / band[2]) ** 2
    return growth


@compiled
def _curvature(law: Law, band: Ends, tilt: float) -> float:
    """Return the curvature of the log-growth: the log-growth is at most about curvature angle^2 for small angles."""
    s = law[1]
    curvature = 0.5 * s * s
    if law[0] != REMOVE:
        curvature += 0.16 * tilt
    if band[0] > -math.inf or band[1] < math.inf:
        curvature += 0.5 * (s * s / band[2]) ** 2
    return curvature


@compiled
def _log_weight(spacing: float, s: float) -> float:
    """Return the log of the rule's weight: the spacing times the constant factor of the density N(0, s^2)."""
    return math.log(spacing / s) - _LOG_SQRT_TWO_PI


@compiled
def _grid(window: tuple[float, float], spacing: float) -> tuple[int, int]:
    """Return the first node, as a multiple of the spacing, and the number of nodes."""
    left, right = window
    if (right - left) / spacing > MAX_NODES:
        raise OverflowError("the quadrature would need too many nodes")
    first = math.floor(left / spacing)
    return first, math.ceil(right / spacing) + 1 - first
