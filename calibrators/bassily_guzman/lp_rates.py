r"""This module states rates of private optimisation over l_p balls, 1 < p <= 2. They are correct up to a constant.

The rates are pure numbers. Multiply them by $(L_0 + L_1 M) M$ or $L_0 M$ to get loss units. $\kappa$ is the constant of
`regularity.kappa_pair`.
"""

from __future__ import annotations

import math

from accounting.targets import ApproximateDpTarget
from calibrators.bassily_guzman.lp_setting import LpSetting
from calibrators.noise import Steps
from calibrators.provenance import LOSS, Provenance, ProvenanceKind
from calibrators.spec import OpenDelta, OpenEpsilon, Spec

PAPER = "Bassily, Guzman & Nandi 2021"
TALK = f"{PAPER}, extended version, as quoted in Guzman's talk (secondary)"


def smooth_rate(kappa: float, dimension: int, dataset_size: int, epsilon: float) -> float:
    r"""Return $\sqrt{\kappa/n} + \kappa\sqrt d/(\varepsilon n)$, the rate of one pass for smooth convex losses, without
    logarithms.

    >>> round(smooth_rate(2.0, 100, 10_000, 1.0), 13)
    0.0161421356237
    """
    return math.sqrt(kappa / dataset_size) + kappa * math.sqrt(dimension) / (epsilon * dataset_size)


def naive_rate(setting: LpSetting, dataset_size: int, epsilon: float, delta: float) -> float:
    r"""Return the rate of the naive variant, $(\kappa L_0 M + L_1 M^2 \ln n)/\sqrt n + \kappa L_1 M^2 \ln n \sqrt{d
    \ln(1/\delta)}/(\varepsilon n^{3/4})$.
    """
    problem, kappa, n = setting.problem, setting.regularity.kappa, dataset_size
    curvature = problem.smoothness * problem.diameter**2 * math.log(n)
    statistical = (kappa * problem.lipschitz * problem.diameter + curvature) / math.sqrt(n)
    noise = math.sqrt(-setting.dimension * math.log(delta)) / (epsilon * math.pow(n, 0.75))
    return statistical + kappa * curvature * noise


def mirror_descent_rate(kappa: float, dimension: int, dataset_size: int, epsilon: float, delta: float) -> float:
    r"""Return $\kappa\sqrt{d \ln(1/\delta)}/(\varepsilon n)$, the rate of the empirical risk of noisy mirror
    descent.
    """
    return kappa * math.sqrt(-dimension * math.log(delta)) / (epsilon * dataset_size)


def nonconvex_rate(dimension: int, dataset_size: int, epsilon: float) -> float:
    r"""Return $n^{-1/3} + (\sqrt d/(n\varepsilon))^{2/5}$, the rate of the stationarity gap for smooth losses, without
    logarithms.

    >>> round(nonconvex_rate(100, 10_000, 1.0), 12)
    0.109511622784
    """
    return math.pow(dataset_size, -1 / 3) + math.pow(math.sqrt(dimension) / (dataset_size * epsilon), 2 / 5)


def population_lower_bound(norm_order: float, dimension: int, dataset_size: int, epsilon: float | None) -> float:
    r"""Return the lower bound $\max\{1/\sqrt n, (p-1)\sqrt d/(\varepsilon n)\}$, for 1 < p < 2 and $\delta < 1/n$.
    Without epsilon, return only the first term.

    >>> population_lower_bound(1.5, 100, 10_000, 1.0)
    0.01
    """
    statistical = 1.0 / math.sqrt(dataset_size)
    if epsilon is None:
        return statistical
    return max(statistical, (norm_order - 1.0) * math.sqrt(dimension) / (epsilon * dataset_size))


def empirical_lower_bound(norm_order: float, dimension: int, dataset_size: int, epsilon: float, delta: float) -> float:
    r"""Return the lower bound $(p-1)\sqrt{d \ln(1/\delta)}/(\varepsilon n)$, for 1 < p < 2 and $\delta < 1/n$.

    >>> round(empirical_lower_bound(1.5, 100, 10_000, 1.0, 1e-6), 14)
    0.00185846109442
    """
    return (norm_order - 1.0) * math.sqrt(-dimension * math.log(delta)) / (epsilon * dataset_size)


def order(setting: LpSetting, name: str, value: float, formula: str, source: str, *holds: str) -> Provenance:
    """Return a number in loss units that is known only up to a constant, which the caller gives."""
    assumed = ("known only up to the factor order_constant", *holds)
    number = setting.order_constant * value
    return Provenance(name, number, rf"c\,{formula}", source, ProvenanceKind.ORDER, assumed, units=LOSS)


def epsilon_and_delta(spec: Spec, steps: Steps) -> tuple[float, float] | None:
    """Return the target's epsilon and delta, including the one that was solved for. None if the target has no
    epsilon.
    """
    found = steps.achieved.value.upper
    epsilon, delta = 0.0, 0.0
    match spec.target:
        case ApproximateDpTarget():
            epsilon, delta = spec.target.epsilon, spec.target.delta
        case OpenEpsilon():
            epsilon, delta = found, spec.target.delta
        case OpenDelta():
            epsilon, delta = spec.target.epsilon, found
    return (epsilon, delta) if 0.0 < epsilon < math.inf and 0.0 < delta < 1.0 else None
