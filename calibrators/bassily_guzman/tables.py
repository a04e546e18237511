"""This module contains rates of private stochastic optimisation in l_p geometries, from Guzman's talk and the papers
that it presents.
"""

from __future__ import annotations

import math

from accounting.events.regularity import kappa_pair
from calibrators.bassily_guzman.rates import lower_bound_rate, poly_sfw_rate, tree_rate_as_printed
from calibrators.bassily_guzman.tree import Problem
from calibrators.comparison import Expression, Row, Setting, Table

_TALK = "Guzman 2022 (talk)"
_BGN = "Bassily, Guzman & Nandi 2021"
_BGM = "Bassily, Guzman & Menart 2021"

#: The constants of the table: Lipschitz constant 1, smoothness 1 and diameter 2 (radius 1).
_UNIT = Problem(1.0, 1.0, 2.0)


def _records(at: Setting) -> float:
    return at.dataset_size * at.epsilon


def _log_d(at: Setting) -> float:
    return math.log(max(2, at.dimension))


def _kappa(at: Setting) -> float:
    return kappa_pair(at.norm_order, at.dimension).kappa


def _root_n(at: Setting) -> float:
    return math.sqrt(at.dataset_size)


def _tree(at: Setting) -> float:
    return tree_rate_as_printed(_UNIT, max(2, at.dimension), at.dataset_size, at.epsilon, at.delta)


def _first_lp(at: Setting) -> float:
    """Return the rate of noisy stochastic Frank-Wolfe as first published: the smaller of the two branches of the
    theorem.
    """
    kappa, n = _kappa(at), at.dataset_size
    slow = math.sqrt(kappa) * math.pow(at.dimension * at.log_delta, 0.25) / math.sqrt(n)
    noise = kappa * math.log(n) * math.sqrt(at.dimension * at.log_delta) / (at.epsilon * math.pow(n, 0.75))
    return min(slow, (kappa + math.log(n)) / math.sqrt(n) + noise)


def _lp_lower(at: Setting) -> float:
    return max(1.0 / _root_n(at), (at.norm_order - 1.0) * math.sqrt(at.dimension) / _records(at))


POLYHEDRAL = Table(
    "l1_population",
    "Convex population risk over the l1 ball",
    f"{_TALK}; {_BGN}, Theorem 4",
    "excess population risk",
    rows=(
        Row(
            "polyhedral stochastic Frank-Wolfe",
            "smooth",
            Expression(
                r"\ln(2d) \ln(n/\ln 2d) \sqrt{\ln(1/\delta)} / (\varepsilon \sqrt n)",
                lambda at: poly_sfw_rate(_UNIT, 2 * at.dimension, at.dataset_size, at.epsilon, at.delta),
            ),
            Expression("n", lambda at: 1.5 * at.dataset_size),
            algorithm="poly_sfw",
        ),
        Row(
            "tree Frank-Wolfe",
            "smooth",
            Expression(r"\sqrt{\ln d / n}\, \ln n + (\ln d \ln^2 n \ln(1/\delta) / (\varepsilon n))^{2/3}", _tree),
            Expression(r"n", lambda at: float(at.dataset_size)),
            algorithm="tree_sfw_l1",
            remark=(
                "The rate is as quoted in the talk. Here the trees are calibrated without amplification by shuffling."
            ),
        ),
        Row(
            "phased mirror descent (Asi et al. 2021)",
            "not necessarily smooth",
            Expression(
                r"\sqrt{\ln d / n} + \sqrt d / (\varepsilon n)",
                lambda at: math.sqrt(_log_d(at) / at.dataset_size) + math.sqrt(at.dimension) / _records(at),
            ),
            remark="The rate is from the abstract, up to logarithms.",
        ),
    ),
    lower_bound=Expression(
        r"\sqrt{\ln d / n} + \min\{\sqrt d / (\varepsilon n), (\ln d / (\varepsilon n))^{2/3}\}",
        lambda at: lower_bound_rate(_UNIT, max(2, at.dimension), at.dataset_size, at.epsilon),
    ),
    remark="Rates hold up to constants. Most of them also hold with high probability.",
)

LP = Table(
    "lp_population",
    "Convex population risk over an l_p ball, 1 < p <= 2",
    f"{_TALK}; {_BGN}, Theorem 9",
    "excess population risk",
    rows=(
        Row(
            "noisy stochastic Frank-Wolfe, linear time",
            "smooth",
            Expression(
                r"\sqrt{\kappa/n} + \kappa \sqrt d / (\varepsilon n)",
                lambda at: (
                    math.sqrt(_kappa(at) / at.dataset_size) + _kappa(at) * math.sqrt(at.dimension) / _records(at)
                ),
            ),
            Expression("n", lambda at: float(at.dataset_size)),
            algorithm="noisy_sfw_lp",
            remark="Trees with generalised Gaussian noise; the rate is up to the square of ln n.",
        ),
        Row(
            "noisy stochastic Frank-Wolfe as first published",
            "smooth",
            Expression(
                r"\min\{\sqrt\kappa (d \ln(1/\delta))^{1/4}/\sqrt n, (\kappa + \ln n)/\sqrt n + \kappa \ln n "
                r"\sqrt{d \ln(1/\delta)}/(\varepsilon n^{3/4})\}",
                _first_lp,
            ),
            Expression("1.5 n", lambda at: 1.5 * at.dataset_size),
            algorithm="noisy_sfw_lp",
            remark=(
                "Near p = 1 the paper takes kappa = 2 ln d, which is not a regularity constant and gives too "
                "little noise."
            ),
        ),
        Row(
            "Euclidean noisy SGD, p = 2",
            "not necessarily smooth",
            Expression(
                r"1/\sqrt n + \sqrt{d \ln(1/\delta)} / (n \varepsilon)", lambda at: 1 / _root_n(at) + at.privacy
            ),
        ),
    ),
    lower_bound=Expression(r"\max\{1/\sqrt n, (p-1) \sqrt d / (\varepsilon n)\}", _lp_lower),
    remark=(
        "kappa is the regularity constant of the dual space for p and d. The lower bound holds up to logarithms, "
        "for delta below 1/n."
    ),
)

NONCONVEX = Table(
    "nonconvex_population",
    "Stationary points of non-convex population risk",
    f"{_TALK}; {_BGM}",
    "Frank-Wolfe gap, or closeness to a stationary point",
    rows=(
        Row(
            "private stochastic Frank-Wolfe, l1 ball",
            "smooth",
            Expression(
                r"\ln^{2/3} d / (n \varepsilon)^{1/3}", lambda at: (_log_d(at) ** 2 / _records(at)) ** (1.0 / 3.0)
            ),
            Expression("n", lambda at: float(at.dataset_size)),
            algorithm="private_sfw_nonconvex_l1",
        ),
        Row(
            "noisy stochastic Frank-Wolfe, l_p ball, 1 < p <= 2",
            "smooth",
            Expression(
                r"n^{-1/3} + (\sqrt d / (n \varepsilon))^{2/5}",
                lambda at: at.dataset_size ** (-1.0 / 3.0) + (math.sqrt(at.dimension) / _records(at)) ** 0.4,
            ),
            Expression("n", lambda at: float(at.dataset_size)),
            algorithm="noisy_sfw_nonconvex_lp",
        ),
        Row(
            "proximally guided private mirror descent, 1 <= p <= 2",
            "weakly convex, not necessarily smooth",
            Expression(
                r"n^{-1/4} + (\sqrt d / (n \varepsilon))^{1/3}",
                lambda at: at.dataset_size**-0.25 + (math.sqrt(at.dimension) / _records(at)) ** (1.0 / 3.0),
            ),
            Expression(
                r"\min\{n^{3/2}, n^2 \varepsilon / \sqrt d\}",
                lambda at: min(at.dataset_size**1.5, at.dataset_size**2 * at.epsilon / math.sqrt(at.dimension)),
            ),
            algorithm="proximal_weakly_convex",
            remark="The number of gradients is up to logarithms.",
        ),
    ),
    remark="It is open whether these rates are optimal, because no lower bound is known.",
)

TABLES = (POLYHEDRAL, LP, NONCONVEX)
