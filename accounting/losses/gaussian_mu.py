"""This module finds the smallest mu of Gaussian DP for mechanisms with a bounded loss, from one point of the
trade-off function.
"""

from __future__ import annotations

import math

import scipy


def mu_of_pure_dp(epsilon: float) -> float:
    """Return the smallest mu such that every epsilon-DP mechanism is mu-GDP: 2 Phi^-1(e^eps / (1 + e^eps)).

    Source: the trade-off function of randomised response is two segments that join (0, 1), (c, c) and (1, 0),
    c = 1 / (1 + e^eps). If Phi(-mu/2) = c, the Gaussian trade-off function is convex and passes through the same three
    points, so it lies below the segments. For a smaller mu it lies above them at c.

    >>> round(mu_of_pure_dp(1.0), 9)
    1.232035385
    """
    return _mu_through(math.tanh(0.5 * epsilon), -epsilon - math.log1p(math.exp(-epsilon)))


def mu_of_laplace(epsilon: float) -> float:
    """Return the smallest mu such that the Laplace mechanism of largest loss epsilon is mu-GDP: -2 Phi^-1(e^(-eps/2) /
    2).

    Source: the trade-off function of two Laplace laws is linear from (0, 1) to (e^-eps / 2, 1/2), then e^-eps / (4 a)
    up to (1/2, e^-eps / 2), then linear to (1, 0). The curve in the middle consists of the points (a, f) = (e^-t / 2,
    e^-(eps-t) / 2). The Gaussian through such a point has mu = g(t) + g(eps - t) with g(t) = -Phi^-1(e^-t / 2). The
    inverse of g is -log(2 (1 - Phi)). Its slope is the hazard rate of the normal law, which grows. So g is concave, and
    t = eps / 2 needs the largest mu. On each segment, the Gaussian trade-off function is convex and at both ends at
    most as large, so it is not above the segment.

    >>> mu_of_laplace(1.0) < mu_of_pure_dp(1.0)
    True
    """
    return _mu_through(-math.expm1(-0.5 * epsilon), -0.5 * epsilon - math.log(2.0))


def mu_of_discrete_laplace(epsilon: float, shift: int) -> float:
    """Return the smallest mu such that the discrete Laplace mechanism of largest loss epsilon is mu-GDP, rounded up.

    Args:
        shift: The distance k of the centres, in grid steps; a = epsilon / k.

    Source: the trade-off function's corners are at (e^(-a m), e^(-a (k+1-m))) / (1 + e^-a), m = 1 .. k, and the
    Gaussian through a middle corner has the largest mu, as for `mu_of_laplace`. Between corners the function is linear.
    """
    a, middle = epsilon / shift, (shift + 1) // 2
    rest = math.log1p(math.exp(-a))
    return _mu_between(_quantile(-a * middle - rest), _quantile(-a * (shift + 1 - middle) - rest))


def mu_of_categorical_response(num_categories: int, flip_probability: float, against_null: bool) -> float:
    """Return the smallest mu such that randomised response on k categories is mu-GDP, rounded up.

    Source: the trade-off function has a corner where a test rejects on one answer alone, and is linear elsewhere. The
    corner is (p/k, (k-1) p/k). Against the null record the corners are (1/k, (k-1) p/k) and its mirror image.
    """
    log_k, log_p = math.log(num_categories), math.log(flip_probability)
    first = _quantile(-log_k if against_null else log_p - log_k)
    kept = (1.0 - flip_probability) + flip_probability / num_categories
    # If ``kept`` is near 1, its logarithm has lost the digits of 1 - ``kept``, so the quantile of the complement is
    # used.
    missed = -_quantile(math.log(kept)) if kept < 0.5 else _quantile(log_p + math.log(num_categories - 1) - log_k)
    return _mu_between(first, missed)


#: A bound of both the relative and the absolute error of a quantile.
_QUANTILE_ALLOWANCE = 1e-13
#: The largest absolute value of a quantile, because masses here are above e^-2000.
_LARGEST_QUANTILE = 64.0


def less_rounding(mu: float) -> float:
    """Return a lower bound of the exact mu, given a mu that `_mu_between` has rounded up.

    `_mu_between` adds an allowance for the errors of both quantiles. The same allowance covers the error below.

    >>> mu = mu_of_discrete_laplace(0.5, 3)
    >>> mu * (1 - 1e-10) < less_rounding(mu) < mu
    True
    """
    return max(0.0, mu - 2.0 * _QUANTILE_ALLOWANCE * (1.0 + 2.0 * _LARGEST_QUANTILE))


def _quantile(log_probability: float) -> float:
    return float(scipy.special.ndtri_exp(log_probability))


def _mu_between(first: float, second: float) -> float:
    """Return the mu, rounded up, of the Gaussian trade-off function through a point. The arguments are the quantiles
    of its coordinates.
    """
    return max(0.0, -math.fsum((first, second))) + _QUANTILE_ALLOWANCE * (1.0 + abs(first) + abs(second))


def _mu_through(total_variation: float, log_error: float) -> float:
    """Return mu of the Gaussian trade-off function through (c, c), c = (1 - total variation) / 2 = e^log_error."""
    if total_variation < 0.5:
        return 2.0 * math.sqrt(2.0) * float(scipy.special.erfinv(total_variation))
    return -2.0 * float(scipy.special.ndtri_exp(log_error))
