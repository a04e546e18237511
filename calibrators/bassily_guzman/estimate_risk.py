r"""This module contains explicit bounds for Frank-Wolfe with estimated gradients over an l_p ball.

Let $r_t \ge E\|d_t - \nabla F(x_t)\|_*^2$ and $x_{t+1} = (1-\eta)x_t + \eta v_t$, where $v_t$ is the point of the ball
that minimises $\langle d_t, v\rangle$.

- For convex losses, $\Gamma_{t+1} = (1-\eta)\Gamma_t + \eta M\sqrt{r_t} + \tfrac12 L_1 M^2\eta^2$ bounds the excess
  risk. This is the recursion of `tree` without a selection regret.
- For all smooth losses, with the error $e_t = d_t - \nabla F(x_t)$, $F(x_{t+1}) \le F(x_t) - \eta\,\mathrm{Gap}(x_t) +
  \eta M\|e_t\|_* + \tfrac12 L_1 M^2\eta^2$. A telescoping sum bounds the mean of $\mathrm{Gap}(x) = \max_y \langle
  \nabla F(x), x - y\rangle$.

The errors are martingale differences, so their squares add up by regularity of the dual norm. A mean of m centred
vectors of dual norm at most 2c adds $4\kappa c^2/m$, and generalised Gaussian noise adds $\kappa_+ d\sigma^2$. Source:
derived. The recursions are those of Bassily, Guzman & Nandi 2021, except that their first recursion has 2M in place of
M.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibrators.bassily_guzman.generalized_gaussian import mean_square
from calibrators.bassily_guzman.lp_setting import LpSetting
from calibrators.bassily_guzman.tree import Trees
from calibrators.phases.gradient_estimates import EstimatePhase
from calibrators.phases.gradient_trees import GradientTreePhase

Floats = npt.NDArray[np.float64]


def squared_errors(setting: LpSetting, phase: EstimatePhase) -> Floats:
    """Return the bound r on the squared error of each step's estimate, shape (steps,), in squared gradient units."""
    problem, kappa, eta = setting.problem, setting.regularity.kappa, phase.step_size
    change = min(2.0 * problem.lipschitz, problem.smoothness * eta * problem.diameter)
    noise = mean_square(setting.regularity, setting.dimension, phase.scale)
    first = 4.0 * kappa * problem.lipschitz**2 / phase.first_batch
    first += mean_square(setting.regularity, setting.dimension, phase.first_scale)
    t = np.arange(phase.estimates, dtype=np.int64)
    if phase.estimator == "momentum":
        fresh = 4.0 * kappa * fresh_bound(setting, eta) ** 2 / phase.batch + noise
        forgotten = (1.0 - eta) ** (2.0 * t)
        return forgotten * first + fresh * (1.0 - forgotten) / (eta * (2.0 - eta))
    added = t if phase.estimator == "sums" else np.bitwise_count(t)
    return first + 4.0 * kappa * change**2 / phase.batch * t + noise * added


def fresh_bound(setting: LpSetting, step_size: float) -> float:
    r"""Return $(1-\eta)\min(2 L_0, L_1 \eta M) + \eta L_0$, the largest contribution of one record to a momentum
    estimate.
    """
    problem = setting.problem
    change = min(2.0 * problem.lipschitz, problem.smoothness * step_size * problem.diameter)
    return (1.0 - step_size) * change + step_size * problem.lipschitz


def excess_risk_bound(setting: LpSetting, phase: EstimatePhase) -> float:
    r"""Return the excess risk bound $\Gamma$ after the last step, in loss units. The recursion starts from the initial
    gap, or from $L_0 M$.
    """
    problem, eta = setting.problem, phase.step_size
    errors = np.sqrt(squared_errors(setting, phase))
    per_step = eta * problem.diameter * errors + 0.5 * problem.smoothness * (problem.diameter * eta) ** 2
    left = (1.0 - eta) ** np.arange(phase.estimates - 1.0, -1.0, -1.0)
    return float((1.0 - eta) ** phase.estimates * setting.trivial_gap + np.sum(left * per_step))


def mean_gap_bound(setting: LpSetting, phase: EstimatePhase) -> float:
    r"""Return the bound $\Gamma_0/(\eta T) + \tfrac1T\sum_t M\sqrt{r_t} + \tfrac12 L_1 M^2\eta$ on the mean gap, in
    loss units.
    """
    problem, eta = setting.problem, phase.step_size
    errors = float(np.mean(np.sqrt(squared_errors(setting, phase))))
    start = setting.trivial_gap / (eta * phase.estimates)
    return start + problem.diameter * errors + 0.5 * problem.smoothness * problem.diameter**2 * eta


def tree_excess_risk_bound(setting: LpSetting, phase: GradientTreePhase) -> float:
    r"""Return the excess risk bound $\Gamma_N$ after the last leaf, in loss units. The step sizes are $2/(k+2)$. The
    first step has size 1, so the bound does not depend on the start.
    """
    problem = setting.problem
    trees = Trees(phase.num_trees, phase.records_per_tree)
    nodes = [
        4.0 * setting.regularity.kappa * problem.contribution_bound(depth) ** 2 / (phase.records_per_tree >> depth)
        + mean_square(setting.regularity, setting.dimension, scale)
        for depth, scale in enumerate(phase.scales)
    ]
    total = 0.0
    for tree in range(1, phase.num_trees + 1):
        errors = np.array(nodes[:1])
        for depth in range(1, tree + 1):
            errors = np.stack([errors, errors + nodes[depth]], axis=1).ravel()
        first = (1 << tree) - 2
        k = np.arange(first, first + (1 << tree), dtype=np.float64)
        curvature = problem.smoothness * problem.diameter**2 * (k + 1.0) / (k + 2.0)
        total += float(np.sum(2.0 * (k + 1.0) * problem.diameter * np.sqrt(errors) + 2.0 * curvature))
    return total / (trees.steps * (trees.steps + 1.0))
