"""delta(eps) of a composition by a line integral in long precision, twice with different free parameters.

delta(eps) = (1/2 pi i) * integral over Re z = c of M(z) e^(-z eps) / (z (z+1)) dz, c > 0, by a trapezoid rule with step
2 pi/period: the sum equals sum_m e^(c m P) delta(eps + m P), so a long enough period leaves delta(eps). Where M decays
slowly the integrand is multiplied by the flat window 1 - (1 - W)^ORDER, W = e^(eta^2 z (z+1)/2) (Gaussian smoothing,
extrapolated `ORDER` times towards none); its effect vanishes like eta^(2 ORDER) where delta is smooth around eps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import mpmath as mp
import numpy as np
from numpy.typing import NDArray

from tests.high_precision.loss_quadrature import Choice, Rule, Step

MAX_POINTS = 60_000
#: Of the window.
ORDER = 12


@dataclass(frozen=True)
class Problem:
    """Steps with counts, a Gaussian part N(0, 1) against N(mu, 1) with mu^2 = ``mu_squared``, and where to look."""

    steps: tuple[tuple[Step, int], ...]
    mu_squared: mp.mpf
    epsilon: float
    smooth_within: float | None = None

    @property
    def atomic(self) -> bool:
        return self.smooth_within is not None and any(step.atomic for step, _ in self.steps)


class Guide:
    """log M in double precision, to choose the line and the period."""

    def __init__(self, problem: Problem, largest_tilt: float) -> None:
        self._parts = [(step.coarse(largest_tilt), count) for step, count in problem.steps]
        self._mu_squared = float(problem.mu_squared)

    def log_moment(self, c: float) -> float:
        total = self._mu_squared * c * (c + 1.0) / 2.0
        for (mass, loss), count in self._parts:
            exponent = c * loss
            if np.max(mass + exponent) < 50.0:
                near = np.exp(mass) * np.expm1(np.minimum(exponent, 1.0))
                excess = np.where(exponent < 1.0, near, np.exp(mass + exponent) - np.exp(mass))
                total += count * math.log1p(float(np.sum(excess)))
            else:
                top = float(np.max(mass + exponent))
                total += count * (top + math.log(float(np.sum(np.exp(mass + exponent - top)))))
        return total


@dataclass(frozen=True)
class Line:
    """Re z = ``tilt``; ``lost`` decimal digits cancel between the integrand and delta (about e^estimate)."""

    tilt: float
    period: float
    estimate: float
    lost: float


def _objective(guide: Guide, eps: float, c: float) -> float:
    return guide.log_moment(c) - c * eps - math.log(c) - math.log1p(c)


def choose_line(problem: Problem, digits: int, estimate: float | None = None) -> tuple[Line, Guide]:
    """A line, and a period whose aliases are below 10^-digits of delta.

    The saddle point of the integrand on the real axis needs the fewest digits; where it lies next to a kink of log M
    its period is long, and a smaller tilt with more digits is cheaper. ``estimate`` is log delta where it is known.
    """
    eps, largest = problem.epsilon, 4.0
    while True:
        guide = Guide(problem, largest * 4.0)
        tilts = np.geomspace(1e-4, largest, 160)
        objective = np.array([_objective(guide, eps, float(c)) for c in tilts])
        best = int(np.argmin(objective))
        if best < len(tilts) - 12:
            break
        largest *= 4.0
    saddle = float(tilts[best])
    tilts = np.concatenate([[0.0], tilts, np.geomspace(largest, 4.0 * largest, 20)[1:]])
    # Chernoff: delta <= M(x) x^x / (1+x)^(1+x) e^(-x eps).
    chernoff = np.array([guide.log_moment(float(x)) for x in tilts]) - tilts * eps
    chernoff += tilts * np.log(np.maximum(tilts, 1e-300)) - (1.0 + tilts) * np.log1p(tilts)
    if estimate is None:
        estimate = _objective(guide, eps, saddle) - 2.0
    tau = estimate - math.log(10.0) * digits
    lines = []
    for c in saddle * np.geomspace(1.0, 0.02, 24):
        right, left = tilts > c * 1.02, tilts < c * 0.98
        periods = [float(np.min((chernoff[side] - tau) / np.abs(tilts[side] - c))) for side in (right, left)]
        lost = max(0.0, _objective(guide, eps, float(c)) - estimate) / math.log(10.0)
        lines.append(Line(float(c), max(periods), estimate, lost))
    return min(lines, key=lambda line: line.period * (60.0 + line.lost) ** 2), guide


def log_chernoff(problem: Problem, enough: float) -> float:
    """log of an upper bound of delta, min over x > 0 of M(x) x^x/(1+x)^(1+x) e^(-x eps), in double precision.

    The search ends where the bound is below ``enough`` or grows again.
    """
    best, reach, guide = math.inf, 0.0, None
    for x in map(float, np.geomspace(1e-2, 3000.0, 60)):
        if guide is None or x > reach:
            reach = 6.0 * x
            guide = Guide(problem, reach)
        bound = guide.log_moment(x) - x * problem.epsilon + x * math.log(x) - (1.0 + x) * math.log1p(x)
        best = min(best, bound)
        if best < enough or bound > best + 5.0:
            break
    return best


def line_values(rule: Rule, step: mp.mpf, bits: int) -> Iterator[mp.mpc]:
    """M(c + i k step)/M(c), k = 0, 1, ...: powers of e^(i step loss) by multiplication in fixed point."""
    one = 1 << bits
    total = mp.fsum(rule.tilted).real
    values = [w / total for w in rule.tilted]
    factors = [mp.exp(mp.mpc(0, step) * loss) for loss in rule.losses]

    def fixed(numbers: Sequence[mp.mpf]) -> NDArray[np.object_]:
        return np.array([int(mp.nint(number * one)) for number in numbers], dtype=object)

    x, y = fixed([v.real for v in values]), fixed([v.imag for v in values])
    a, b = fixed([f.real for f in factors]), fixed([f.imag for f in factors])
    while True:
        yield mp.mpc(mp.mpf(int(x.sum())) / one, mp.mpf(int(y.sum())) / one)
        x, y = (x * a - y * b) >> bits, (x * b + y * a) >> bits


@dataclass(frozen=True)
class Result:
    delta: mp.mpf
    points: int
    nodes: int


def integrate(problem: Problem, digits: int, *, variant: int) -> Result:
    """One evaluation; the variant fixes tilt, period, distance of the nodes' line, their spacing and the window."""
    tilt_factor, period_factor, shift, extra, narrow = ((1.0, 1.0, 1.0, 4, 1.0), (0.9, 1.27, 0.8, 11, 0.7))[variant]
    largest_count = max((count for _, count in problem.steps), default=1)
    estimate, aim = None, digits
    while True:
        line, _ = choose_line(problem, aim + 4, estimate)
        line = Line(line.tilt * tilt_factor, line.period * period_factor / tilt_factor, line.estimate, line.lost)
        inner = aim + extra + int(line.lost / tilt_factor) + int(math.log10(largest_count)) + 6
        bits = int(3.33 * (inner + 12)) + 16
        with mp.workprec(bits + 40):
            result = _sum(problem, line, aim, inner, bits, shift, narrow)
            size = float(mp.log(abs(result.delta)))
        if size > line.estimate - 7.0 and aim == digits:
            return result
        # The saddle point's estimate was far too large: find the size first, with few digits.
        if size > line.estimate - 7.0:
            estimate, aim = size, digits
        else:
            estimate, aim = (size if result.delta > 0 else line.estimate - 2.0 * aim), 12


def _sum(problem: Problem, line: Line, digits: int, inner: int, bits: int, shift: float, narrow: float) -> Result:
    c, eps, step = mp.mpf(line.tilt), mp.mpf(problem.epsilon), 2 * mp.pi / mp.mpf(line.period)
    within = problem.smooth_within
    eta = None if within is None else mp.mpf(within * narrow / 60.0)
    frequency = 0.0 if eta is None else math.sqrt(5.0 * (inner + 10)) / float(eta)
    rules = [(step_.rule(line.tilt, Choice(inner, shift, frequency)), count) for step_, count in problem.steps]
    generators = [(line_values(rule, step, bits), count) for rule, count in rules]
    log_scale = problem.mu_squared * c * (c + 1) / 2 - c * eps
    for rule, count in rules:
        log_scale += count * mp.log(mp.fsum(rule.tilted).real)
    scale = mp.exp(log_scale)
    total, largest, small, k = mp.mpf(0), mp.mpf(0), 0, 0
    tolerance = mp.mpf(10) ** (-digits - 4)
    while True:
        z = mp.mpc(c, k * step)
        term = mp.exp(problem.mu_squared * ((z * (z + 1)) - c * (c + 1)) / 2) if problem.mu_squared else mp.mpf(1)
        for values, count in generators:
            term *= next(values) ** count
        phase = mp.exp(mp.mpc(0, -k * step * eps))
        window = mp.mpf(1)
        if eta is not None:
            window = 1 - (1 - mp.exp(eta * eta * z * (z + 1) / 2)) ** ORDER
        value = term * phase * window / (z * (z + 1))
        total += value.real / 2 if k == 0 else value.real
        bound = abs(window / (z * (z + 1))) * (1 if problem.atomic else abs(term))
        small = small + 1 if bound * k < tolerance * abs(total) else 0
        largest = max(largest, abs(value))
        k += 1
        if small > 40 + k // 20:
            break
        if k > MAX_POINTS:
            raise RuntimeError(f"the integrand has not decayed after {k} points")
    nodes = sum(len(rule.tilted) for rule, _ in rules)
    return Result(scale * step / mp.pi * total, k, nodes)
