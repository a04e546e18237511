"""Regularity constants of the dual of l_p^d: they say what noise of a smooth norm costs, and how means concentrate in
that norm."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegularityPair:
    r"""The smooth norm that stands for the dual norm, with its constants.

    With $\|\cdot\|_+ = \|\cdot\|_r$: $\|x+y\|_+^2 \le \|x\|_+^2 + \langle \nabla \|x\|_+^2, y \rangle + \kappa_+
    \|y\|_+^2$ and $\|x\|_*^2 \le \|x\|_+^2 \le (\kappa/\kappa_+) \|x\|_*^2$.

    Attributes:
        r: Exponent of the smooth norm, in [2, infinity).
        kappa_plus: $\kappa_+ = r - 1$.
        kappa: $\kappa$. A sum of independent mean-zero vectors of dual norm at most D has an expected squared dual norm
            of at most $\kappa D^2$ per summand.
    """

    r: float
    kappa_plus: float
    kappa: float


def kappa_pair(norm_order: float, dimension: int) -> RegularityPair:
    r"""Return the pair of least $\kappa(r) = (r-1)\, d^{2/r - 2/q}$ over r in [2, q], where 1/p + 1/q = 1.

    Both constants are chosen jointly: separate minima are no regularity constants, and neither is $2 \ln d$ for p = 1.

    Args:
        norm_order: The p of the norm of the parameters, in [1, 2].
        dimension: The dimension d; for the norm of a polytope, its number of vertices up to sign.

    Source: derived; the stationary points of $\ln \kappa(r)$ solve $r^2 - 2 r \ln d + 2 \ln d = 0$.

    >>> pair = kappa_pair(1.0, 1000)
    >>> round(pair.r, 10), round(pair.kappa, 10)
    (12.7302609626, 34.7236671602)
    """
    inverse_q = (norm_order - 1.0) / norm_order
    largest = math.inf if inverse_q == 0.0 else 1.0 / inverse_q
    log_d = math.log(dimension)
    candidates = [2.0] if math.isinf(largest) else [2.0, largest]
    discriminant = log_d * log_d - 2.0 * log_d
    if discriminant > 0.0:
        root = math.sqrt(discriminant)
        candidates += [r for r in (log_d - root, log_d + root) if 2.0 <= r <= largest]

    def kappa(r: float) -> float:
        return (r - 1.0) * math.exp((2.0 / r - 2.0 * inverse_q) * log_d)

    best = min(candidates, key=kappa)
    return RegularityPair(best, best - 1.0, kappa(best))
