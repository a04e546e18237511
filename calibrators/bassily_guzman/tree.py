r"""This module describes the trees of tree Frank-Wolfe: which records a node reads, and how far one record moves the
node's gradient.

Tree $\tau = 1..T$ has depth $\tau$ and $2^\tau$ leaves; every leaf is one Frank-Wolfe step, $\eta_k = 2/(k+2)$ with k
counted through all trees. The root averages gradients over b fresh records, a left child copies its parent, and a
right child at depth j adds the mean of gradient *changes*, between its parent's entry point and its own, over $b/2^j$
fresh records.

**The excess population risk.**

Consider a step towards $v_k$, with estimate $d_k$ of $\nabla F(x_k)$ and expected selection regret $a_k$: $F(x_{k+1})
\le F(x_k) + \eta_k \langle \nabla F(x_k), v_k - x_k \rangle + \tfrac12 L_1 M^2 \eta_k^2$, and $\langle \nabla F, v_k -
x_k\rangle \le \langle \nabla F - d_k, v_k - x^* \rangle + \langle \nabla F, x^* - x_k\rangle + a_k$. Hence
$\Gamma_{k+1} = (1-\eta_k)\Gamma_k + \eta_k (M \sqrt{r_k} + a_k) + \tfrac12 L_1 M^2 \eta_k^2$ bounds the excess, where
$r_k \ge E\|d_k - \nabla F(x_k)\|_*^2$. The nodes on a leaf's path average fresh records, so their errors are martingale
differences and regularity of the dual norm gives $r = 4\kappa L_0^2/b + \sum_{j:\,\text{right at } j} 4 \kappa c_j^2\,
2^j/b$ with $c_j = \min(2 L_0, L_1 M \min(1, 2^{1-j}))$ (centring at most doubles the length of a vector).

With $\eta_k = 2/(k+2)$ the recursion has the closed form
$\Gamma_N = \frac{1}{N(N+1)} \sum_{k<N} \left(2(k+1)(M\sqrt{r_k} + a_k) + 2 L_1 M^2 \frac{k+1}{k+2}\right)$: the first
step goes all the way to a vertex, so $\Gamma_0$ does not occur.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.bassily_guzman.selection import expected_regret
from calibrators.phases.trees import MAX_TREES, node_bound


@dataclass(frozen=True, slots=True)
class Problem:
    """The constants of losses over a polytope.

    Attributes:
        lipschitz: The bound L_0 on a record's gradient, in the dual norm.
        smoothness: The bound L_1 on the change of a gradient, in the dual norm, per unit of distance.
        diameter: The diameter M of the polytope, in the primal norm.
    """

    lipschitz: float
    smoothness: float
    diameter: float

    def contribution_bound(self, depth: int) -> float:
        """Return the bound c_j on the dual norm of one record's contribution to the mean of a node at this depth j."""
        return node_bound(self.lipschitz, self.smoothness, self.diameter, depth)


@dataclass(frozen=True, slots=True)
class Trees:
    """The number of trees, and of records at each root.

    Attributes:
        num_trees: The number T of trees.
        records_per_tree: The number b of records at a root: a power of two, at least 2^T.
    """

    num_trees: int
    records_per_tree: int

    @property
    def steps(self) -> int:
        """The number of steps, which is the number of leaves of all trees.

        >>> Trees(4, 4096).steps
        30
        """
        return (1 << (self.num_trees + 1)) - 2

    @property
    def records(self) -> int:
        r"""The number of records that are read, $b (T + T (T+1)/4)$. Each is read once.

        >>> Trees(4, 4096).records
        36864
        """
        return self.records_per_tree * (self.num_trees * (self.num_trees + 5)) // 4

    @property
    def gradient_evaluations(self) -> int:
        r"""The number of per-record gradients, $b \sum_\tau (1 + \tau)$: one for a record of a root, two for any other
        record.

        >>> Trees(4, 4096).gradient_evaluations
        57344
        """
        return self.records_per_tree * (self.num_trees * (self.num_trees + 3)) // 2

    def zcdp_width(self, problem: Problem, tree: int) -> float:
        r"""Return the root of the sum of the squared score ranges that one record causes in this tree.

        A record at depth j moves the scores of $2^{\tau-j}$ selections by a range of at most $M c_j 2^j/b$ each, so
        $u_\tau = M \max_j c_j 2^j b^{-1} 2^{(\tau-j)/2}$. If a record is replaced, the result must be doubled.
        """
        return max(self._range(problem, depth) * math.sqrt(1 << (tree - depth)) for depth in range(tree + 1))

    def pure_width(self, problem: Problem, tree: int) -> float:
        """Return the sum of the score ranges that one record causes in this tree."""
        return max(self._range(problem, depth) * (1 << (tree - depth)) for depth in range(tree + 1))

    def _range(self, problem: Problem, depth: int) -> float:
        records = self.records_per_tree >> depth
        return problem.diameter * problem.contribution_bound(depth) / records


def largest_records_per_tree(dataset_size: int, num_trees: int) -> int:
    r"""Return b, the largest power of two for which every record is read at most once; 0 if not even one tree fits.

    >>> largest_records_per_tree(50_000, 4), largest_records_per_tree(1, 1)
    (4096, 0)
    """
    share = 4 * dataset_size // (num_trees * (num_trees + 5))
    return 1 << (share.bit_length() - 1) if share else 0


def possible_trees(dataset_size: int, records_per_tree: int | None = None) -> list[Trees]:
    """Return the layouts that this many records allow. In a layout, b is at least 2^T and every record is read at most
    once.

    >>> [trees.records_per_tree for trees in possible_trees(100)]
    [64, 16, 16]
    """
    layouts = (Trees(t, records_per_tree or largest_records_per_tree(dataset_size, t)) for t in range(1, MAX_TREES + 1))
    return [
        trees for trees in layouts if trees.records_per_tree >= 1 << trees.num_trees and trees.records <= dataset_size
    ]


def excess_risk_bound(
    problem: Problem, trees: Trees, noise_scales: Sequence[float], *, num_vertices: int, kappa: float
) -> float:
    r"""Return the excess risk bound $\Gamma_N$ after the last leaf, in loss units.

    Args:
        problem: The constants of the losses, which are convex, L_0-Lipschitz and L_1-smooth.
        trees: The number of trees, and of records at a root.
        noise_scales: The Gumbel scale in each tree.
        num_vertices: The number K of vertices of the polytope.
        kappa: The regularity constant of the dual norm (`kappa_pair`).

    Source: derived in the docstring of this module.
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
    """Return the bound r on the expected squared dual norm of the gradient's error at each leaf of a tree, shape
    (2^tree,).
    """
    errors = np.array([_node(problem, trees, 0, kappa)])
    for depth in range(1, tree + 1):
        errors = np.stack([errors, errors + _node(problem, trees, depth, kappa)], axis=1).ravel()
    return errors


def _node(problem: Problem, trees: Trees, depth: int, kappa: float) -> float:
    return 4.0 * kappa * problem.contribution_bound(depth) ** 2 / (trees.records_per_tree >> depth)
