"""This module contains Tables 1 to 3 of Wang, Ye & Xu 2017 on empirical risk minimisation."""

from __future__ import annotations

import math

from calibrators.comparison import Expression, Row, Setting, Table
from calibrators.wang_erm.full_gradient import PAPER


def _log_n(at: Setting) -> float:
    return math.log(at.dataset_size)


def _records(at: Setting) -> float:
    return at.dataset_size * at.epsilon


def _spread(at: Setting) -> float:
    """Return the factor that depends on Gaussian width and diameter."""
    return math.hypot(at.width, 1.0)


_SQUARED = r"d \ln(1/\delta) / (n \varepsilon)^2"
_ROOT = r"\sqrt{d \ln(1/\delta)} / (n \varepsilon)"
_UNSOUND = (
    "The printed noise does not cover the full gradient, which every step uses without noise of its own. Here "
    "the noise covers it."
)
_POWERS = (
    "In the available text, some powers of epsilon in the number of gradients are missing. Here they are restored "
    "by the units."
)

STRONGLY_CONVEX = Table(
    "strongly_convex_erm",
    "Strongly convex empirical risk",
    f"{PAPER}, Table 1",
    "excess empirical risk",
    rows=(
        Row(
            "objective perturbation (Chaudhuri et al. 2011)",
            "smooth loss, no non-smooth penalty",
            Expression(rf"{_SQUARED}", lambda at: at.privacy**2),
        ),
        Row(
            "objective perturbation (Kifer et al. 2012)",
            "smooth loss, any convex penalty",
            Expression(rf"{_SQUARED} + 1/(n \varepsilon)", lambda at: at.privacy**2 + 1.0 / _records(at)),
        ),
        Row(
            "gradient perturbation (Bassily et al. 2014)",
            "any convex penalty",
            Expression(rf"{_SQUARED} \ln^2 n", lambda at: (at.privacy * _log_n(at)) ** 2),
            Expression("n^2", lambda at: float(at.dataset_size) ** 2),
        ),
        Row(
            "output perturbation (Zhang et al. 2017)",
            "smooth loss, no non-smooth penalty",
            Expression(rf"{_SQUARED}", lambda at: at.privacy**2),
            Expression(
                r"n \kappa \ln(n/\kappa)",
                lambda at: (
                    at.dataset_size * at.condition_number * max(1.0, math.log(at.dataset_size / at.condition_number))
                ),
            ),
        ),
        Row(
            "DP-SVRG",
            "smooth loss, any convex penalty",
            Expression(rf"{_SQUARED} \ln n", lambda at: at.privacy**2 * _log_n(at)),
            Expression(
                r"(n + \kappa) \ln(n \mu / d)",
                lambda at: (
                    (at.dataset_size + at.condition_number)
                    * max(1.0, math.log(at.dataset_size / (at.condition_number * at.dimension)))
                ),
            ),
            algorithm="dp_svrg",
            remark=_UNSOUND,
        ),
    ),
    lower_bound=Expression(r"\min(1, d / (n \varepsilon)^2)", lambda at: min(1.0, at.dimension / _records(at) ** 2)),
)

CONVEX = Table(
    "convex_erm",
    "Convex empirical risk",
    f"{PAPER}, Table 2",
    "excess empirical risk",
    rows=(
        Row(
            "objective perturbation (Kifer et al. 2012)",
            "smooth loss, any convex penalty",
            Expression(_ROOT, lambda at: at.privacy),
        ),
        Row(
            "gradient perturbation (Bassily et al. 2014)",
            "any convex penalty",
            Expression(rf"{_ROOT} \cdot \ln^{{3/2}} n", lambda at: at.privacy * _log_n(at) ** 1.5),
            Expression("n^2", lambda at: float(at.dataset_size) ** 2),
        ),
        Row(
            "output perturbation (Zhang et al. 2017)",
            "smooth loss, no non-smooth penalty",
            Expression(rf"({_ROOT})^{{2/3}}", lambda at: at.privacy ** (2.0 / 3.0)),
            Expression(
                r"n (n \varepsilon / d)^{2/3}",
                lambda at: at.dataset_size * (_records(at) / at.dimension) ** (2.0 / 3.0),
            ),
        ),
        Row(
            "DP-SVRG++",
            "smooth loss, any convex penalty",
            Expression(_ROOT, lambda at: at.privacy),
            Expression(
                r"n \varepsilon / \sqrt d + n \ln(n \varepsilon / d)",
                lambda at: (
                    at.dataset_size * at.epsilon / math.sqrt(at.dimension)
                    + at.dataset_size * max(1.0, math.log(_records(at) / at.dimension))
                ),
            ),
            algorithm="dp_svrg_pp",
            remark=_UNSOUND,
        ),
    ),
    lower_bound=Expression(
        r"\min(1, \sqrt d / (n \varepsilon))", lambda at: min(1.0, math.sqrt(at.dimension) / _records(at))
    ),
)

CONSTRAINED = Table(
    "high_dimensional_erm",
    "Convex empirical risk over a set of small Gaussian width G_C",
    f"{PAPER}, Table 3",
    "excess empirical risk",
    rows=(
        Row(
            "mirror descent (Talwar et al. 2014)",
            "any convex penalty",
            Expression(
                r"\sqrt{G_C^2 + \|C\|^2}\, \ln n / (n \varepsilon)", lambda at: _spread(at) * _log_n(at) / _records(at)
            ),
            Expression(
                r"n^3 \varepsilon^2 / ((G_C^2 + \|C\|^2) \ln^2 n)",
                lambda at: at.dataset_size * (_records(at) / (_spread(at) * _log_n(at))) ** 2,
            ),
        ),
        Row(
            "objective perturbation (Talwar et al. 2014)",
            "no non-smooth penalty",
            Expression(r"(G_C + \lambda \|C\|^2) / (n \varepsilon)", lambda at: (at.width + 1.0) / _records(at)),
        ),
        Row(
            "Frank-Wolfe (Talwar et al. 2015)",
            "any convex penalty",
            Expression(
                r"G_C^{2/3} \ln^2 n / (n \varepsilon)^{2/3}",
                lambda at: (at.width / _records(at)) ** (2.0 / 3.0) * _log_n(at) ** 2,
            ),
            Expression(r"(n \varepsilon)^{2/3} / G_C^{2/3}", lambda at: (_records(at) / at.width) ** (2.0 / 3.0)),
            remark="As printed. The paper counts steps, each of which reads all records.",
        ),
        Row(
            "DP-AccMD",
            "smooth loss, no non-smooth penalty",
            Expression(
                r"\sqrt{(G_C^2 + \|C\|^2) \ln(1/\delta)} / (n \varepsilon)",
                lambda at: _spread(at) * math.sqrt(at.log_delta) / _records(at),
            ),
            Expression(
                r"n^{1.5} \sqrt\varepsilon / (G_C^2 + \|C\|^2)^{1/4}",
                lambda at: at.dataset_size**1.5 * math.sqrt(at.epsilon / _spread(at)),
            ),
            algorithm="dp_accmd",
            remark=(
                "As printed, one of the two steps is not private at all. Here both use the noisy gradient. The "
                "table leaves out the factor ln(1/delta) of the theorem."
            ),
        ),
    ),
    remark=f"The paper's table leaves out ln(1/delta), which the compared works have in different powers. {_POWERS}",
)

TABLES = (STRONGLY_CONVEX, CONVEX, CONSTRAINED)
