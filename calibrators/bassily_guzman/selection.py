r"""Report-noisy-max with Gumbel noise: select the vertex of least noisy score.

The scores of a linear function over a set of diameter M in the norm $\|\cdot\|$ change, when the linear function moves
by $\Delta$ in the dual norm, within a *range* of width $w \le M \Delta$; what is common to all scores changes nothing.

$\arg\min_j (s_j - \lambda G_j)$ with standard Gumbel G selects j with probability proportional to
$\exp(-s_j/\lambda)$. Between neighbours the log-likelihood ratio lies in an interval of length $a = w/\lambda$ that
contains 0. Hence:

* it is a-DP;
* its Renyi divergence is at most $\alpha a^2/8$ at every order (Hoeffding's lemma for the ratio's cumulants), which is
  $w^2/(8\lambda^2)$-zCDP. Laplace noise of the same scale is also a-DP, but no better than $a \tanh(a/2)$-zCDP: four
  times as much for small a;
* the expected regret is at most $\lambda \ln K$: the softmin's mean score plus $\lambda$ times its entropy is the
  least over all laws.
"""

from __future__ import annotations

import math


def scale_for_zcdp(width: float, rho: float, selections: float = 1.0) -> float:
    """Gumbel scale of each of several selections that together are rho-zCDP.

    Args:
        width: Range of the change of the scores, in their unit.
        rho: Of all selections together.
        selections: How many of them one record takes part in.

    >>> round(scale_for_zcdp(0.0008, 0.02, selections=100), 9)
    0.02
    """
    return width * math.sqrt(selections / (8.0 * rho))


def zcdp_of_scale(width: float, scale: float) -> float:
    """rho of one selection.

    >>> zcdp_of_scale(2.0, 1.0)
    0.5
    """
    return (width / scale) ** 2 / 8.0


def scale_for_pure_dp(width: float, epsilon: float, selections: float = 1.0) -> float:
    """Gumbel (or Laplace) scale of each of several selections that together are epsilon-DP.

    >>> scale_for_pure_dp(0.0008, 1.0, selections=100)
    0.08
    """
    return width * selections / epsilon


def expected_regret(scale: float, num_vertices: int) -> float:
    """Largest expected excess of the selected score over the least, with Gumbel noise.

    >>> expected_regret(0.5, 1)
    0.0
    """
    return scale * math.log(num_vertices)
