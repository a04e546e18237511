r"""Explicit bounds for Frank-Wolfe steps by the estimates of `recursion`, at one step size $\eta$.

The errors of $d_t$ are martingale sums, and regularity of the dual norm gives
$E\|d_t - \nabla F(x_t)\|_*^2 \le r_t$ with $r_0 = 4\kappa L_0^2/n_0$ and $r_t = (1-\eta)^2 r_{t-1} + 4 \kappa c^2/m$,
$c = (1-\eta) \min(2 L_0, L_1 \eta M) + \eta L_0$: a centred vector is at most twice as long. A step satisfies

$$F(x_{t+1}) \le F(x_t) + \eta \langle \nabla F(x_t), v_t - x_t \rangle + \tfrac12 L_1 M^2 \eta^2,\qquad
\langle \nabla F, v_t - x_t \rangle \le M \|d_t - \nabla F\|_* + \lambda \ln K + \min_v \langle \nabla F, v - x_t
\rangle$$

in the mean, $\lambda \ln K$ for the selection's regret. Convex losses: the minimum is at most $-(F(x_t) - \min F)$, and
$\Gamma_{t+1} = (1-\eta)\Gamma_t + \eta(M\sqrt{r_t} + \lambda \ln K) + \tfrac12 L_1 M^2\eta^2$. Any smooth losses: the
minimum is minus the gap $\max_y \langle \nabla F, x_t - y\rangle$, and summed over t the mean gap of a uniformly drawn
$x_0..x_{T-1}$ is at most
$\Gamma_0/(\eta T) + \tfrac1T \sum_t (M \sqrt{r_t} + \lambda \ln K) + \tfrac12 L_1 M^2 \eta$.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibrators.bassily_guzman.recursion import Recursion, geometric_sum
from calibrators.bassily_guzman.selection import expected_regret
from calibrators.bassily_guzman.tree import Problem


def squared_errors(problem: Problem, recursion: Recursion, kappa: float) -> npt.NDArray[np.float64]:
    """r_t, shape (T,): bounds of the expected squared dual norm of the estimates' errors."""
    fresh = 4.0 * kappa * recursion.increment_bound(problem) ** 2 / recursion.batch
    square = (1.0 - recursion.step_size) ** 2
    left = square ** np.arange(recursion.selections, dtype=np.float64)
    found: npt.NDArray[np.float64] = 4.0 * kappa * problem.lipschitz**2 / recursion.first_batch * left
    return found + fresh * (1.0 - left) / (1.0 - square)


def excess_risk_bound(
    problem: Problem, recursion: Recursion, noise_scale: float, *, num_vertices: int, kappa: float, initial_gap: float
) -> float:
    r"""$\Gamma_T$ after the last step, in loss units, for convex losses.

    Args:
        problem: L_0, L_1, M.
        recursion: The steps.
        noise_scale: Of the Gumbel noise.
        num_vertices: K.
        kappa: Regularity constant of the dual norm (`regularity.kappa_pair`).
        initial_gap: $\Gamma_0 \ge F(x_0) - \min F$.

    Source: derived; see the module.
    """
    eta, steps = recursion.step_size, recursion.selections
    kept = (1.0 - eta) ** np.arange(steps - 1, -1, -1, dtype=np.float64)
    errors = problem.diameter * float(np.sum(kept * np.sqrt(squared_errors(problem, recursion, kappa))))
    each = expected_regret(noise_scale, num_vertices) + 0.5 * problem.smoothness * problem.diameter**2 * eta
    return (1.0 - eta) ** steps * initial_gap + eta * (errors + each * geometric_sum(1.0 - eta, steps))


def mean_gap_bound(
    problem: Problem, recursion: Recursion, noise_scale: float, *, num_vertices: int, kappa: float, initial_gap: float
) -> float:
    """The mean gap of a uniformly drawn starting point of a step, in loss units, whether or not losses are convex.

    Args, Source: as `excess_risk_bound`.
    """
    eta, steps = recursion.step_size, recursion.selections
    errors = problem.diameter * float(np.mean(np.sqrt(squared_errors(problem, recursion, kappa))))
    each = expected_regret(noise_scale, num_vertices) + 0.5 * problem.smoothness * problem.diameter**2 * eta
    return initial_gap / (eta * steps) + errors + each
