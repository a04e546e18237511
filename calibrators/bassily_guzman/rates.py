r"""This module states rates of stochastic convex optimisation over the l1 ball or a polytope of K vertices. The rates
are correct up to a constant.

Every function returns the expression with constant 1, in loss units. L_0, L_1 and M are as in `tree.Problem`, and D =
M/2.
"""

from __future__ import annotations

import math

from calibrators.bassily_guzman.tree import Problem


def poly_sfw_rate(problem: Problem, num_vertices: int, dataset_size: int, epsilon: float, delta: float) -> float:
    r"""Return the rate of polyhedral stochastic Frank-Wolfe, $M (L_1 M + L_0) \ln K \ln(n/\ln K) \sqrt{\ln(1/\delta)} /
    (\varepsilon \sqrt n)$, for n > ln K.

    Source: Bassily, Guzman & Nandi 2021, Theorem 4.

    >>> round(poly_sfw_rate(Problem(1.0, 1.0, 1.0), 100, 10_000, 1.0, 1e-6), 9)
    2.630262354
    """
    log_k = math.log(num_vertices)
    scale = problem.diameter * (problem.smoothness * problem.diameter + problem.lipschitz)
    logs = log_k * math.log(dataset_size / log_k) * math.sqrt(math.log(1.0 / delta))
    return scale * logs / (epsilon * math.sqrt(dataset_size))


def tree_rate_as_printed(problem: Problem, dimension: int, dataset_size: int, epsilon: float, delta: float) -> float:
    r"""Return the printed rate of tree Frank-Wolfe, $(L_0 D + L_1 D^2)\sqrt{\ln d/n}\,\ln n + L_1 D^2 (\ln d \ln^2 n
    \ln(1/\delta)/(\varepsilon n))^{2/3}$.

    Source: Asi, Feldman, Koren & Talwar 2021 as quoted in Guzman's talk (secondary). The factor $L_1 D^2$ makes the
    second term vanish as $L_1$ goes to 0, which no algorithm achieves. `tree_rate` has the factor $(L_1 D^2)^{1/3} (L_0
    D + L_1 D^2)^{2/3}$ instead.

    >>> round(tree_rate_as_printed(Problem(1.0, 1.0, 2.0), 100, 10_000, 1.0, 1e-6), 10)
    1.0581933641
    """
    radius = problem.diameter / 2.0
    log_d, log_n = math.log(dimension), math.log(dataset_size)
    curvature = problem.smoothness * radius**2
    statistical = (problem.lipschitz * radius + curvature) * math.sqrt(log_d / dataset_size) * log_n
    return statistical + curvature * math.pow(
        log_d * log_n**2 * math.log(1.0 / delta) / (epsilon * dataset_size), 2 / 3
    )


def tree_rate(problem: Problem, num_vertices: int, dataset_size: int, rho: float) -> float:
    r"""Return the rate of tree Frank-Wolfe, $A \sqrt{\ln K/n} + (L_1 M^2)^{1/3} (A \ln K/(n\sqrt\rho))^{2/3}$ with $A =
    (L_0 + L_1 M) M$.

    Source: derived. The rate balances the error $L_1 M^2/2^T$ of the last tree with its selection regret $2^{T/2} A \ln
    K/(b\sqrt\rho)$.
    """
    amplitude, curvature, statistical = _parts(problem, num_vertices, dataset_size)
    noise = amplitude * math.log(num_vertices) / (dataset_size * math.sqrt(rho))
    return statistical + math.pow(curvature, 1 / 3) * math.pow(noise, 2 / 3)


def pure_tree_rate(problem: Problem, num_vertices: int, dataset_size: int, epsilon: float) -> float:
    r"""Return the rate of tree Frank-Wolfe with pure DP, $A \sqrt{\ln K/n} + (L_1 M^2 A \ln K/(n \varepsilon))^{1/2}$
    with $A = (L_0 + L_1 M) M$.

    Source: derived like `tree_rate`; the regret of a selection with pure DP is $2^T A \ln K/(b\varepsilon)$.
    """
    amplitude, curvature, statistical = _parts(problem, num_vertices, dataset_size)
    return statistical + math.sqrt(curvature * amplitude * math.log(num_vertices) / (dataset_size * epsilon))


def frank_wolfe_rate(problem: Problem, num_vertices: int, dataset_size: int, rho: float) -> float:
    r"""Return the rate $A + (L_1 M^2)^{1/3} A^{2/3}$ of the empirical risk, with $A = L_0 M \ln K/(n \sqrt\rho)$.

    Source: derived. The rate balances the error $L_1 M^2/T$ with the regret $A \sqrt T$ of T >= 1 selections.
    """
    regret = problem.lipschitz * problem.diameter * math.log(num_vertices) / (dataset_size * math.sqrt(rho))
    curvature = problem.smoothness * problem.diameter**2
    return regret + math.pow(curvature, 1 / 3) * math.pow(regret, 2 / 3)


def pure_frank_wolfe_rate(problem: Problem, num_vertices: int, dataset_size: int, epsilon: float) -> float:
    r"""Return the rate $A + (L_1 M^2 A)^{1/2}$ of the empirical risk with pure DP, where $A = L_0 M \ln K/(n
    \varepsilon)$.

    Source: derived like `frank_wolfe_rate`; the regret of T selections with pure DP is $T A$.
    """
    regret = problem.lipschitz * problem.diameter * math.log(num_vertices) / (dataset_size * epsilon)
    return regret + math.sqrt(problem.smoothness * problem.diameter**2 * regret)


def generalized_linear_rate(problem: Problem, num_vertices: int, dataset_size: int, rho: float) -> float:
    r"""Return the rate $L_0 M\,[(\ln K/(n \sqrt\rho))^{1/2} + (\ln K/n)^{1/2}]$ for generalised linear losses that need
    not be smooth.

    Source: derived. The rate balances $L_0 M/\sqrt T$, the smallest error of smoothing and T steps, with the regret of
    T selections. Bassily, Guzman & Menart 2021, abstract (secondary), has it with $1/\varepsilon$ for $1/\sqrt\rho$.
    """
    log_k = math.log(num_vertices)
    noise = log_k / (dataset_size * math.sqrt(rho))
    return problem.lipschitz * problem.diameter * (math.sqrt(noise) + math.sqrt(log_k / dataset_size))


def pure_generalized_linear_rate(problem: Problem, num_vertices: int, dataset_size: int, epsilon: float) -> float:
    r"""Return the rate $L_0 M\,[(\ln K/(n \varepsilon))^{1/3} + (\ln K/n)^{1/2}]$ for generalised linear losses with
    pure DP.

    Source: derived like `generalized_linear_rate`; T selections with pure DP have T times the regret of one selection.
    """
    log_k = math.log(num_vertices)
    noise = log_k / (dataset_size * epsilon)
    return problem.lipschitz * problem.diameter * (math.pow(noise, 1 / 3) + math.sqrt(log_k / dataset_size))


def gap_rate(problem: Problem, num_vertices: int, dataset_size: int, rho: float) -> float:
    r"""Return the rate $(L_0 + L_1 M) M\,[n^{-1/3} + (\ln K/(n \sqrt\rho))^{2/5}]$ of the gap, for losses that need not
    be convex.

    Source: derived. The rate balances $1/\sqrt T$ with the error $\sqrt{T^{1/2}/n}$ and the regret $T^{3/4} \ln K/(n
    \sqrt\rho)$ of single-round Frank-Wolfe.
    """
    amplitude, _, _ = _parts(problem, num_vertices, dataset_size)
    noise = math.log(num_vertices) / (dataset_size * math.sqrt(rho))
    return amplitude * (math.pow(dataset_size, -1 / 3) + math.pow(noise, 2 / 5))


def pure_gap_rate(problem: Problem, num_vertices: int, dataset_size: int, epsilon: float) -> float:
    r"""Return the rate $(L_0 + L_1 M) M\,[n^{-1/3} + (\ln K/(n \varepsilon))^{1/3}]$ of the gap with pure DP.

    Source: derived like `gap_rate`; the regret of selections with pure DP is $T \ln K/(n \varepsilon)$.
    """
    amplitude, _, _ = _parts(problem, num_vertices, dataset_size)
    noise = math.log(num_vertices) / (dataset_size * epsilon)
    return amplitude * (math.pow(dataset_size, -1 / 3) + math.pow(noise, 1 / 3))


def printed_gap_rate(problem: Problem, dimension: int, dataset_size: int, epsilon: float) -> float:
    r"""Return the printed rate of the gap, $L_0 M \ln^{2/3} d/(n \varepsilon)^{1/3}$.

    Source: Bassily, Guzman & Menart 2021, abstract, and Guzman's talk (secondary), in units of $L_0 M$.

    >>> round(printed_gap_rate(Problem(1.0, 1.0, 1.0), 100, 10_000, 1.0), 12)
    0.128478499619
    """
    logs = math.pow(math.log(dimension), 2 / 3)
    return problem.lipschitz * problem.diameter * logs / math.pow(dataset_size * epsilon, 1 / 3)


def lower_bound_rate(problem: Problem, dimension: int, dataset_size: int, epsilon: float | None) -> float:
    r"""Return the lower bound $L_0 D\,(\sqrt{\ln d/n} + \min\{\sqrt d/(\varepsilon n), (\ln d/(\varepsilon
    n))^{2/3}\})$, up to logarithms.

    Without epsilon (for example, for rho-zCDP), return only the first, non-private term.

    Source: Asi, Feldman, Koren & Talwar 2021, abstract (secondary).

    >>> round(lower_bound_rate(Problem(1.0, 1.0, 2.0), 100, 10_000, 1.0), 12)
    0.022459660263
    """
    log_d = math.log(dimension)
    rate = math.sqrt(log_d / dataset_size)
    if epsilon is not None:
        records = epsilon * dataset_size
        rate += min(math.sqrt(dimension) / records, math.pow(log_d / records, 2 / 3))
    return problem.lipschitz * problem.diameter / 2.0 * rate


def _parts(problem: Problem, num_vertices: int, dataset_size: int) -> tuple[float, float, float]:
    amplitude = (problem.lipschitz + problem.smoothness * problem.diameter) * problem.diameter
    statistical = amplitude * math.sqrt(math.log(num_vertices) / dataset_size)
    return amplitude, problem.smoothness * problem.diameter**2, statistical
