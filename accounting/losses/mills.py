"""This module computes the Mills ratio m(x) = (1 - Phi(x)) / phi(x) and its differences, without cancellation.

Every Gaussian profile here is a multiple of G(a, d) = phi(a) (m(a) - m(a + d)), d >= 0.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SQRT_HALF_PI = math.sqrt(math.pi / 2.0)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_FAR_LEFT = -9.0
_ASYMPTOTIC = 50.0
_SQRT_HALF = math.sqrt(0.5)
#: The series about the middle is cut where its terms fall below this share of their sum.
_NEGLIGIBLE = 1e-18


def mills(x: Array) -> Array:
    """Return m(x) for x > -37; for smaller x it overflows."""
    ratio: Array = _SQRT_HALF_PI * scipy.special.erfcx(x / math.sqrt(2.0))
    return ratio


def normal_density(x: Array) -> Array:
    """Return phi(x)."""
    density: Array = np.exp(-0.5 * x * x) / _SQRT_TWO_PI
    return density


def scaled_mills_difference(a: Array, d: float) -> Array:
    """Return G(a, d) = phi(a) (m(a) - m(a + d)).

    Args:
        a: The point, in standard deviations; any shape, any sign.
        d: The distance of the two points, at least 0.

    Returns:
        G, of the shape of ``a``, between 0 and 1.

    Guarantees:
        mills_difference_is_accurate: relative error below 1e-14 (1 + a^2) for a <= 40.

    Source: integration of m' = x m - 1 over [a, a + d]; the integrand 1 - x m(x) is positive, so nothing cancels.

    >>> float(scaled_mills_difference(np.array([0.0]), 1.0)[0]) > 0
    True
    """
    a = np.asarray(a, dtype=np.float64)
    result = np.empty_like(a)
    left = a < _FAR_LEFT
    result[left] = _far_left(a[left], d)
    rest = a[~left]
    if d >= 1.0:
        result[~left] = normal_density(rest) * (mills(rest) - mills(rest + d))
    else:
        nodes, weights = _nodes()
        integral = _minus_mills_derivative(rest[..., None] + d * nodes) @ weights
        result[~left] = normal_density(rest) * d * integral
    return np.clip(result, 0.0, 1.0)


def mills_difference(centre: float, d: float) -> tuple[float, float]:
    """Return m(centre - d / 2) - m(centre + d / 2), and m(centre + d / 2), for single numbers instead of arrays.

    Args:
        centre: The middle of the two points, at least 0; a = centre - d / 2 is in [-9, 40].
        d: The distance of the two points, positive.

    Returns:
        The difference, and an approximation of m at the farther point, which guides iterations and has no proved error.

    Guarantees:
        plain_difference_is_accurate: relative error of the difference below 5.5e-15 (1 + a^2), if SciPy's erfcx
            keeps to what `docs/concepts/floating_point.md` says.

    Source: if d >= 1 or d (1 + centre) >= 2, (m(a) + m(a + d)) / (m(a) - m(a + d)) is at most 3.5 (1 + a^2), and the
    two numbers are subtracted. Otherwise the odd terms of Taylor's series about the middle c are added. Let u_n be the
    integral of t^n e^(-c t - t^2 / 2) over t > 0. The difference is 2 sum of u_n (d / 2)^n / n! over odd n, with u_0 =
    m(c), u_1 = 1 - c m(c) and u_(n+1) = n u_(n-1) - c u_n. Each term is at most d^2 / (4 (n + 2)) times the one before.
    An error of m(c) enters the sum multiplied by the odd part of e^(c d / 2 + d^2 / 8), which is below 0.7 c d here.
    The sum itself is above 0.9 d / (2 + c^2).

    >>> difference, farther = mills_difference(0.5, 1.0)
    >>> round(difference, 9), round(farther, 9)
    (0.597634595, 0.655679542)
    """
    half = 0.5 * d
    if d >= 1.0 or d * (1.0 + centre) >= 2.0:
        farther = _plain_mills(centre + half)
        return _plain_mills(centre - half) - farther, farther
    even = _plain_mills(centre)
    odd = 1.0 - centre * even
    order, weight = 1.0, half
    near, total = even, weight * odd
    while True:
        even = order * even - centre * odd
        weight *= half / (order + 1.0)
        near += weight * even
        odd = (order + 1.0) * odd - centre * even
        weight *= half / (order + 2.0)
        order += 2.0
        if not weight * odd > _NEGLIGIBLE * total:
            return 2.0 * total, near - total
        total += weight * odd


def _plain_mills(x: float) -> float:
    return _SQRT_HALF_PI * float(scipy.special.erfcx(_SQRT_HALF * x))


def _far_left(a: Array, d: float) -> Array:
    """Return the difference for a < -9. There Phi(-a) is 1 to machine precision, and so is Phi(-a-d) unless d is
    large.
    """
    exponent = d * (a + 0.5 * d)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        near: Array = -np.expm1(exponent)
        across: Array = 1.0 - np.exp(exponent + scipy.special.log_ndtr(-(a + d)))
    far: Array = np.where(a + d < _FAR_LEFT + 0.5, near, across)
    return far


def _minus_mills_derivative(x: Array) -> Array:
    """Return 1 - x m(x) = -m'(x) > 0."""
    direct: Array = 1.0 - x * mills(x)
    if not bool(np.any(x > _ASYMPTOTIC)):
        return direct
    inverse = 1.0 / np.maximum(x, _ASYMPTOTIC) ** 2
    series = inverse * (1.0 - inverse * (3.0 - inverse * (15.0 - inverse * (105.0 - 945.0 * inverse))))
    return np.where(x > _ASYMPTOTIC, series, direct)


@lru_cache(maxsize=1)
def _nodes() -> tuple[Array, Array]:
    """Return twelve Gauss-Legendre nodes on (0, 1). For d <= 1 and x >= -9 they integrate -m' exactly to machine
    precision.
    """
    nodes, weights = np.polynomial.legendre.leggauss(12)
    return 0.5 * (nodes + 1.0), 0.5 * weights
