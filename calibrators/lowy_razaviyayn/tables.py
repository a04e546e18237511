"""This module contains the rates of Lowy & Razaviyayn 2023 for heavy-tailed stochastic optimisation under zCDP, with
the lower bounds.

As in the paper, epsilon stands for rho = epsilon^2 / 2 in zCDP. Delta is not used.
"""

from __future__ import annotations

import math

from calibrators.comparison import Expression, Row, Setting, Table
from calibrators.lowy_razaviyayn.lower_bounds import convex_lower_rate, strongly_convex_lower_rate

_PAPER = "Lowy & Razaviyayn 2023"
_REMARK = "As in the paper, epsilon stands for rho = epsilon^2 / 2 in zero-concentrated differential privacy."


def _noise(at: Setting) -> float:
    """Return the number a = sqrt(d) / (epsilon n), which the rates contain."""
    return math.sqrt(at.dimension) / (at.epsilon * at.dataset_size)


def _log_n(at: Setting) -> float:
    return math.log(at.dataset_size)


def _rho(at: Setting) -> float:
    return at.epsilon**2 / 2.0


def _records(at: Setting) -> float:
    return float(at.dataset_size)


def _passes(at: Setting, power: float) -> float:
    """Return n^(p + 1) ln n with p = 1 + ``power``, for gradients without a bound."""
    return float(at.dataset_size ** (2.0 + power)) * _log_n(at)


def _smooth(at: Setting) -> float:
    k = at.moment_order
    private = max(math.pow(_noise(at), 4.0 * (k - 1.0) / (5.0 * k - 1.0)), math.pow(_noise(at), (k - 1.0) / k))
    return 1.0 / math.sqrt(at.dataset_size) + private


def _square(at: Setting, noise: float) -> float:
    k = at.moment_order
    return at.condition_number * math.pow(noise, 2.0 * (k - 1.0) / k)


CONVEX = Table(
    "heavy_tailed_convex",
    "Convex population risk with heavy-tailed gradients (moments of order k)",
    f"{_PAPER}, Theorems 7, 9 and 12",
    "excess population risk",
    rows=(
        Row(
            "noisy clipped accelerated SGD",
            "smooth",
            Expression(r"n^{-1/2} + \max\{a^{4(k-1)/(5k-1)}, a^{(k-1)/k}\},\; a = \sqrt d/(\varepsilon n)", _smooth),
            Expression("n", _records),
            algorithm="clipped_acsa",
        ),
        Row(
            "localized noisy clipped subgradient method",
            "moments of order 2k of the largest gradient over the domain",
            Expression(
                r"n^{-1/2} + (a \sqrt{\ln n})^{(k-1)/k}",
                lambda at: (
                    at.dataset_size**-0.5
                    + (_noise(at) * math.sqrt(_log_n(at))) ** ((at.moment_order - 1.0) / at.moment_order)
                ),
            ),
            Expression(r"n^{2 + 1/(2k)} \ln n", lambda at: _passes(at, 0.5 / at.moment_order)),
            algorithm="localized_clipped_subgradient",
        ),
    ),
    lower_bound=Expression(
        r"n^{-1/2} + \min\{1, \sqrt d / (\sqrt\rho\, n)\}^{(k-1)/k}",
        lambda at: convex_lower_rate(at.moment_order, 1.0, 1.0, at.dimension, at.dataset_size, _rho(at)),
    ),
    remark=_REMARK,
)

STRONGLY_CONVEX = Table(
    "heavy_tailed_strongly_convex",
    "Strongly convex or proximal-PL population risk with heavy-tailed gradients (moments of order k)",
    f"{_PAPER}, Theorems 8, 11, 18 and 20",
    "excess population risk",
    rows=(
        Row(
            "noisy clipped SGD",
            "smooth, strongly convex",
            Expression(
                r"\kappa\,(1/n + (a \sqrt{\kappa \ln n})^{(2k-2)/k})",
                lambda at: (
                    at.condition_number / at.dataset_size
                    + _square(at, _noise(at) * math.sqrt(at.condition_number * _log_n(at)))
                ),
            ),
            Expression("n", _records),
            algorithm="clipped_sgd_strongly_convex",
        ),
        Row(
            "noisy clipped proximal SGD",
            "smooth part, proximal-PL; not necessarily convex",
            Expression(
                r"\kappa\,((a \kappa \ln n)^{(2k-2)/k} + \kappa \ln n / n)",
                lambda at: (
                    _square(at, _noise(at) * at.condition_number * _log_n(at))
                    + at.condition_number**2 * _log_n(at) / at.dataset_size
                ),
            ),
            Expression("n", _records),
            algorithm="clipped_prox_sgd",
        ),
        Row(
            "localized noisy clipped subgradient method, restarted",
            "strongly convex; moments of order 2k of the largest gradient over the domain",
            Expression(
                r"\kappa\,(1/n + (a \sqrt{\ln n})^{(2k-2)/k})",
                lambda at: at.condition_number / at.dataset_size + _square(at, _noise(at) * math.sqrt(_log_n(at))),
            ),
            Expression(r"n^{2 + 1/k} \ln n", lambda at: _passes(at, 1.0 / at.moment_order)),
            algorithm="localized_clipped_strongly_convex",
        ),
    ),
    lower_bound=Expression(
        r"\kappa\,(1/n + \min\{1, \sqrt d / (\sqrt\rho\, n)\}^{(2k-2)/k})",
        lambda at: strongly_convex_lower_rate(
            at.moment_order, 1.0, 1.0 / at.condition_number, at.dimension, at.dataset_size, _rho(at)
        ),
    ),
    remark=_REMARK,
)

TABLES = (CONVEX, STRONGLY_CONVEX)
