r"""The explicit bound on the excess population risk of tree Frank-Wolfe.

For a step in direction $v_k$ with estimate $d_k$ of $\nabla F(x_k)$ and expected selection regret $a_k$:
$F(x_{k+1}) \le F(x_k) + \eta_k \langle \nabla F(x_k), v_k - x_k \rangle + \tfrac12 L_1 M^2 \eta_k^2$, and
$\langle \nabla F, v_k - x_k\rangle \le \langle \nabla F - d_k, v_k - x^* \rangle + \langle \nabla F, x^* - x_k\rangle +
a_k$. Hence $\Gamma_{k+1} = (1-\eta_k)\Gamma_k + \eta_k (M \sqrt{r_k} + a_k) + \tfrac12 L_1 M^2 \eta_k^2$ bounds the
excess, where $r_k \ge E\|d_k - \nabla F(x_k)\|_*^2$. The nodes on a leaf's path average fresh records, so their errors
are martingale differences and regularity of the dual norm gives
$r = 4\kappa L_0^2/b + \sum_{j:\,\text{right at } j} 4 \kappa c_j^2\, 2^j/b$ with
$c_j = \min(2 L_0, L_1 M \min(1, 2^{1-j}))$ (a centred vector is at most twice as long).

With $\eta_k = 2/(k+2)$ the recursion has the closed form
$\Gamma_N = \frac{1}{N(N+1)} \sum_{k<N} \left(2(k+1)(M\sqrt{r_k} + a_k) + 2 L_1 M^2 \frac{k+1}{k+2}\right)$: the first
step goes all the way to a vertex, so $\Gamma_0$ has no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from calibrators.bassily_guzman.selection import expected_regret
from calibrators.bassily_guzman.tree import Problem, Trees


def excess_risk_bound(
    problem: Problem, trees: Trees, noise_scales: Sequence[float], *, num_vertices: int, kappa: float
) -> float:
    r"""$\Gamma_N$ after the last leaf, in loss units.

    Args:
        problem: Convex losses, L_0-Lipschitz and L_1-smooth.
        trees: The layout.
        noise_scales: Gumbel scale in each tree.
        num_vertices: K of the polytope.
        kappa: Regularity constant of the dual norm (`kappa_pair`).

    Source: derived; see the module.
    """
    total = 0.0
    for tree, scale in enumerate(noise_scales, start=1):
        first = (1 << tree) - 2
        k = np.arange(first, first + (1 << tree), dtype=np.float64)
        error = problem.diameter * np.sqrt(squared_errors(problem, trees, tree, kappa))
        curvature = problem.smoothness * problem.diameter**2 * (k + 1.0) / (k + 2.0)
        total += float(np.sum(2.0 * (k + 1.0) * (error + expected_regret(scale, num_vertices)) + 2.0 * curvature))
    return total / (trees.steps * (trees.steps + 1.0))


def squared_errors(problem: Problem, trees: Trees, tree: int, kappa: float) -> npt.NDArray[np.float64]:
    """r at each leaf of a tree: bounds of the expected squared dual norm of the gradient's error; shape (2^tree,)."""
    errors = np.array([_node(problem, trees, 0, kappa)])
    for depth in range(1, tree + 1):
        errors = np.stack([errors, errors + _node(problem, trees, depth, kappa)], axis=1).ravel()
    return errors


def _node(problem: Problem, trees: Trees, depth: int, kappa: float) -> float:
    return 4.0 * kappa * problem.contribution_bound(depth) ** 2 / (trees.records_per_tree >> depth)
