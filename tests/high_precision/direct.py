"""Direct evaluations that share nothing with the line integral: closed forms, nested quadrature, convolutions.

They exist for a few steps only and are the third method behind the references that they cover.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import mpmath as mp

from tests.accounting.references import gaussian_delta, poisson_delta
from tests.high_precision.loss_quadrature import FixedSizeGaussian, PoissonGaussian, PoissonLaplace, Step


def single_step(step: Step, epsilon: mp.mpf) -> mp.mpf:
    """delta of one step at any real epsilon, by the hockey stick over the half line where P exceeds e^eps Q."""
    if isinstance(step, PoissonGaussian):
        return poisson_delta(step.s, step.q, epsilon, step.direction)
    if isinstance(step, FixedSizeGaussian):
        if epsilon >= 0:
            return poisson_delta(step.s / 2, step.q, epsilon, "remove")
        return 1 - mp.exp(epsilon) + mp.exp(epsilon) * poisson_delta(step.s / 2, step.q, -epsilon, "remove")
    if isinstance(step, PoissonLaplace):
        return _single_laplace(step, epsilon)
    raise TypeError(type(step).__name__)


def _single_laplace(step: PoissonLaplace, epsilon: mp.mpf) -> mp.mpf:
    """Half lines: where the ratio f(x) = 1 - q + q e^(lam (|x| - |x - 1|)) is large (remove) or small (add)."""
    lam, q, alpha = 1 / mp.mpf(step.b), mp.mpf(step.q), mp.exp(epsilon)

    def above(x: mp.mpf, centre: int) -> mp.mpf:
        y = (x - centre) * lam
        return mp.exp(-y) / 2 if y >= 0 else 1 - mp.exp(y) / 2

    threshold = alpha if step.direction == "remove" else 1 / alpha
    ratio = (threshold - 1 + q) / q
    if ratio <= mp.exp(-lam):
        cut = mp.mpf("-inf")
    elif ratio >= mp.exp(lam):
        cut = mp.mpf("inf")
    else:
        cut = (1 + mp.log(ratio) / lam) / 2
    base, shifted = (above(cut, 0), above(cut, 1)) if mp.isfinite(cut) else ((1, 1) if cut < 0 else (0, 0))
    mixed = (1 - q) * base + q * shifted
    if step.direction == "remove":
        return mixed - alpha * base
    return (1 - base) - alpha * (1 - mixed)


def two_steps(step: Step, epsilon: mp.mpf) -> mp.mpf:
    """E over the first step's loss of the second step's delta at what is left: a nested quadrature with its kink."""
    with mp.workdps(28):
        if isinstance(step, PoissonGaussian):
            return _two_gaussian(step, mp.mpf(epsilon))
        if isinstance(step, FixedSizeGaussian):
            return _two_fixed_size(step, mp.mpf(epsilon))
        if isinstance(step, PoissonLaplace):
            return _two_laplace(step, mp.mpf(epsilon))
        raise TypeError(type(step).__name__)


def _density(x: mp.mpf, mean: mp.mpf, s: mp.mpf) -> mp.mpf:
    return mp.exp(-(((x - mean) / s) ** 2) / 2) / (s * mp.sqrt(2 * mp.pi))


def _piecewise(integrand: Callable[[mp.mpf], mp.mpf], points: list[mp.mpf]) -> mp.mpf:
    return mp.fsum(mp.quad(integrand, [a, b]) for a, b in pairwise(points))


def _grid(first: mp.mpf, last: mp.mpf, panels: int, extra: list[mp.mpf]) -> list[mp.mpf]:
    points = [first + (last - first) * k / panels for k in range(panels + 1)]
    return sorted([*points, *(x for x in extra if first < x < last)])


def _two_gaussian(step: PoissonGaussian, epsilon: mp.mpf) -> mp.mpf:
    s, q = mp.mpf(step.s), mp.mpf(step.q)

    def ratio(x: mp.mpf) -> mp.mpf:
        return 1 - q + q * mp.exp((2 * x - 1) / (2 * s * s))

    def integrand(x: mp.mpf) -> mp.mpf:
        mixed = (1 - q) * _density(x, mp.mpf(0), s) + q * _density(x, mp.mpf(1), s)
        if step.direction == "remove":
            return mixed * single_step(step, epsilon - mp.log(ratio(x)))
        if step.direction == "add":
            return _density(x, mp.mpf(0), s) * single_step(step, epsilon + mp.log(ratio(x)))
        return mixed * single_step(step, epsilon - mp.log(ratio(x)) + mp.log(ratio(-x)))

    # The second step's delta is analytic except where what is left equals the end log(1-q) of its support.
    kinks = []
    if step.direction == "remove":
        left = (mp.exp(epsilon) / (1 - q) - 1 + q) / q
        kinks = [s * s * mp.log(left) + mp.mpf(1) / 2] if left > 0 else []
    if step.direction == "add":
        left = (mp.exp(-epsilon) / (1 - q) - 1 + q) / q
        kinks = [s * s * mp.log(left) + mp.mpf(1) / 2] if left > 0 else []
    return _piecewise(integrand, _grid(-15 * s, 1 + 15 * s, 24, kinks))


def _two_fixed_size(step: FixedSizeGaussian, epsilon: mp.mpf) -> mp.mpf:
    nu, q = mp.mpf(step.s) / 2, mp.mpf(step.batch) / step.size

    def ratio(x: mp.mpf) -> mp.mpf:
        return 1 - q + q * mp.exp((2 * x - 1) / (2 * nu * nu))

    def integrand(x: mp.mpf) -> mp.mpf:
        base, loss = _density(x, mp.mpf(0), nu), mp.log(ratio(x))
        gain = ratio(x) * base * single_step(step, epsilon - loss)
        return gain + base * single_step(step, epsilon + loss)

    half = mp.mpf(1) / 2
    kink = nu * nu * mp.log((mp.exp(epsilon) - 1 + q) / q) + half
    points = _grid(half, 1 + 15 * nu, 16, [kink])
    atom = 1 - _piecewise(lambda x: (ratio(x) + 1) * _density(x, mp.mpf(0), nu), points)
    return _piecewise(integrand, points) + atom * single_step(step, epsilon)


def _two_laplace(step: PoissonLaplace, epsilon: mp.mpf) -> mp.mpf:
    lam, q = 1 / mp.mpf(step.b), mp.mpf(step.q)
    sign = 1 if step.direction == "remove" else -1

    def ratio(x: mp.mpf) -> mp.mpf:
        return 1 - q + q * mp.exp(lam * (2 * x - 1))

    def value(x: mp.mpf, base: mp.mpf) -> mp.mpf:
        f = ratio(x)
        return base * (f if sign > 0 else 1) * single_step(step, epsilon - sign * mp.log(f))

    kinks = []
    for end in (mp.mpf(0), mp.mpf(1)):
        left = (mp.exp(sign * epsilon) / ratio(end) - 1 + q) / q
        if left > 0:
            kinks.append((1 + mp.log(left) / lam) / 2)
    inside = _piecewise(lambda x: value(x, lam * mp.exp(-lam * x) / 2), _grid(mp.mpf(0), mp.mpf(1), 4, kinks))
    return inside + value(mp.mpf(0), mp.mpf(1) / 2) + value(mp.mpf(1), mp.exp(-lam) / 2)


def laplace_steps(scale: float, count: int, epsilon: mp.mpf) -> mp.mpf:
    """Full batches: the loss of one step has atoms +-lam and the P-density e^((l - lam)/2)/4 between.

    The sum of k densities is e^(l/2) times a spline of degree k-1 with knots k lam - 2 lam m.
    """
    with mp.workdps(80):
        lam, eps = 1 / mp.mpf(scale), mp.mpf(epsilon)
        total = mp.mpf(0)
        for up in range(count + 1):
            for down in range(count - up + 1):
                k = count - up - down
                ways = mp.binomial(count, up) * mp.binomial(count - up, down)
                mass = ways * mp.mpf(2) ** (-up) * (mp.exp(-lam) / 2) ** down
                shift = (up - down) * lam
                if k == 0:
                    total += mass * max(mp.mpf(0), 1 - mp.exp(eps - shift))
                else:
                    total += mass * _spline(k, lam, eps - shift)
        return total


def _spline(k: int, lam: mp.mpf, eps: mp.mpf) -> mp.mpf:
    """Integral of (1 - e^(eps - l)) over l > eps of the k-fold density: exact, by parts on the power functions."""

    def antiderivative(rate: mp.mpf, first: mp.mpf, last: mp.mpf, knot: mp.mpf) -> mp.mpf:
        """Integral of e^(rate l) (l - knot)^(k-1)/(k-1)!."""

        def at(loss: mp.mpf) -> mp.mpf:
            y = loss - knot
            powers = (y ** (k - 1 - j) / mp.factorial(k - 1 - j) * (-1 / rate) ** j for j in range(k))
            return mp.exp(rate * loss) / rate * mp.fsum(powers)

        return at(last) - at(first)

    end, total = k * lam, mp.mpf(0)
    if eps >= end:
        return total
    half = mp.mpf(1) / 2
    for m in range(k + 1):
        knot = -end + 2 * lam * m
        first = max(knot, eps)
        if first < end:
            sign = (-1) ** m * mp.binomial(k, m)
            piece = antiderivative(half, first, end, knot) - mp.exp(eps) * antiderivative(-half, first, end, knot)
            total += sign * piece
    return (mp.exp(-lam / 2) / 4) ** k * total


def full_batch(mu_squared: mp.mpf, epsilon: float) -> mp.mpf:
    """Gaussian shifts alone."""
    return gaussian_delta(mp.sqrt(mu_squared), epsilon)


def bound_with_cut(step: PoissonGaussian, count: int, epsilon: float, cut: float, tilt: float) -> mp.mpf:
    """An upper bound of delta (remove): some output is beyond ``cut``, or Chernoff for the losses that are left."""
    with mp.workdps(40):
        s, q, c, edge = mp.mpf(step.s), mp.mpf(step.q), mp.mpf(tilt), mp.mpf(cut)

        def integrand(x: mp.mpf) -> mp.mpf:
            ratio = 1 - q + q * mp.exp((2 * x - 1) / (2 * s * s))
            return ratio ** (c + 1) * _density(x, mp.mpf(0), s)

        moment = _piecewise(integrand, _grid(-20 * s, edge, 80, []))
        beyond = (1 - q) * mp.erfc(edge / (s * mp.sqrt(2))) / 2 + q * mp.erfc((edge - 1) / (s * mp.sqrt(2))) / 2
        chernoff = c * mp.log(c) - (1 + c) * mp.log1p(c) - c * mp.mpf(epsilon)
        return count * beyond + moment**count * mp.exp(chernoff)
