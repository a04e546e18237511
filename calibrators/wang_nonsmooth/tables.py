"""This module contains Table 1 of Wang, Lei, Ying & Zhang 2022 on convex population risk."""

from __future__ import annotations

import math

from calibrators.comparison import Expression, Row, Setting, Table

_PAPER = "Wang, Lei, Ying & Zhang 2022"


def _root_n(at: Setting) -> float:
    return math.sqrt(at.dataset_size)


def _output(at: Setting) -> float:
    """Return the private rate (d ln(1/delta))^(1/4) / sqrt(n epsilon)."""
    return math.pow(at.dimension * at.log_delta, 0.25) / math.sqrt(at.dataset_size * at.epsilon)


def _log_n_over_delta(at: Setting) -> float:
    return math.log(at.dataset_size / at.delta)


def _bounded_steps(at: Setting) -> float:
    alpha, n = at.holder_exponent, float(at.dataset_size)
    return float(n ** ((2.0 - alpha) / (1.0 + alpha)) + n)


def _unbounded_steps(at: Setting) -> float:
    alpha, n = at.holder_exponent, float(at.dataset_size)
    return float(n ** ((6.0 - 3.0 * alpha - alpha**2) / ((1.0 + alpha) * (3.0 + alpha))) + n)


def _unbounded(at: Setting) -> float:
    power, n = 1.0 / (3.0 + at.holder_exponent), float(at.dataset_size)
    noise = math.sqrt(at.dimension * at.log_delta) / (math.pow(n, 2.0 * power) * at.epsilon)
    return (noise + math.pow(n, -power)) * _log_n_over_delta(at)


_OPTIMAL = Expression(
    r"\sqrt{d \ln(1/\delta)} / (n \varepsilon) + 1/\sqrt n", lambda at: at.privacy + 1.0 / _root_n(at)
)

POPULATION = Table(
    "convex_population",
    "Convex population risk, losses that need not be smooth",
    f"{_PAPER}, Table 1",
    "excess population risk",
    rows=(
        Row(
            "output perturbation (Wu et al. 2017)",
            "Lipschitz and smooth, bounded domain",
            Expression(r"(d \ln(1/\delta))^{1/4} / \sqrt{n \varepsilon}", _output),
            Expression("n", lambda at: float(at.dataset_size)),
        ),
        Row(
            "gradient perturbation (Bassily et al. 2019)",
            "Lipschitz and smooth, bounded domain",
            _OPTIMAL,
            Expression(
                r"n^{1.5} \sqrt\varepsilon + (n \varepsilon)^{2.5} / (d \ln(1/\delta))",
                lambda at: (
                    at.dataset_size**1.5 * math.sqrt(at.epsilon)
                    + (at.dataset_size * at.epsilon) ** 2.5 / (at.dimension * at.log_delta)
                ),
            ),
        ),
        Row(
            "gradient perturbation with Moreau smoothing (Bassily et al. 2019)",
            "Lipschitz, bounded domain",
            _OPTIMAL,
            Expression(
                r"n^{4.5} \sqrt\varepsilon + n^{6.5} \varepsilon^{4.5} / (d \ln(1/\delta))^2",
                lambda at: (
                    at.dataset_size**4.5 * math.sqrt(at.epsilon)
                    + at.dataset_size**6.5 * at.epsilon**4.5 / (at.dimension * at.log_delta) ** 2
                ),
            ),
        ),
        Row(
            "phased output perturbation (Feldman et al. 2020)",
            "Lipschitz and smooth, bounded domain",
            _OPTIMAL,
            Expression("n", lambda at: float(at.dataset_size)),
        ),
        Row(
            "phased empirical risk minimisation (Feldman et al. 2020)",
            "Lipschitz, bounded domain",
            _OPTIMAL,
            Expression(r"n^2 \ln(1/\delta)", lambda at: at.dataset_size**2 * at.log_delta),
        ),
        Row(
            "gradient perturbation (Bassily et al. 2020)",
            "Lipschitz, bounded domain",
            _OPTIMAL,
            Expression("n^2", lambda at: float(at.dataset_size) ** 2),
        ),
        Row(
            "DP-SGD-Output, bounded domain (Theorem 10)",
            "alpha-Hoelder smooth, bounded domain",
            Expression(
                r"(d \ln(1/\delta))^{1/4} \sqrt{\ln(n/\delta)} / \sqrt{n \varepsilon}",
                lambda at: _output(at) * math.sqrt(_log_n_over_delta(at)),
            ),
            Expression(r"n^{(2-\alpha)/(1+\alpha)} + n", _bounded_steps),
            algorithm="dp_sgd_output",
        ),
        Row(
            "DP-SGD-Output, R^d (Theorem 9)",
            "alpha-Hoelder smooth",
            Expression(
                r"\frac{\sqrt{d \ln(1/\delta)} \ln(n/\delta)}{n^{2/(3+\alpha)} \varepsilon} "
                r"+ \frac{\ln(n/\delta)}{n^{1/(3+\alpha)}}",
                _unbounded,
            ),
            Expression(r"n^{(6-3\alpha-\alpha^2)/((1+\alpha)(3+\alpha))} + n", _unbounded_steps),
            algorithm="dp_sgd_output",
        ),
        Row(
            "DP-SGD-Gradient (Theorem 12)",
            "alpha-Hoelder smooth, bounded domain",
            _OPTIMAL,
            Expression(r"n^{(2-\alpha)/(1+\alpha)} + n", _bounded_steps),
            algorithm="dp_sgd_gradient",
            remark=(
                "With so few steps, privacy needs more noise than the theorem assumes. The rate is not attained "
                "for alpha >= 1/2."
            ),
        ),
    ),
)

TABLES = (POPULATION,)
