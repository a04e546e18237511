r"""This module describes the paper's moment assumptions, and the bounds that follow from them before any algorithm
runs.

**Assumption 2.** $\sup_{w \in W} \mathbb{E}\|\nabla f(w, x)\|^k \le r_k^k$ with a real $k \ge 2$. Then $r_a \le r_b$
for $a \le b$ (Jensen), so $r_2$ may be replaced by $r_k$, and $F = \mathbb{E} f$ is $r_1$-Lipschitz on $W$. The
constants must be public knowledge, because an estimate of them on the private records would be a release with its own
privacy cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calibrators.algorithm import Assumption
from calibrators.provenance import GRADIENT, PARAMETER, PURE

PAPER = "Lowy & Razaviyayn 2023"

#: The range of a problem's constants. Within it, powers of the constants neither overflow nor underflow.
SMALLEST, LARGEST = 1e-12, 1e12

DIAMETER = Assumption(
    "diameter",
    "D",
    PARAMETER,
    "the diameter D of the domain. Without a domain, the domain is the l2 ball of radius D/2; with an l2 ball "
    "as domain, D is twice its radius",
    lower=SMALLEST,
    upper=LARGEST,
)
MOMENT_ORDER = Assumption(
    "moment_order",
    "k",
    PURE,
    "the order k of the bounded moment of a gradient's norm; a real number",
    lower=2.0,
    upper=1e6,
)
MOMENT_BOUND = Assumption(
    "moment_bound",
    "r_k",
    GRADIENT,
    "the bound r_k with E[|grad f(w, x)|^k]^(1/k) <= r_k at every point of the domain, for gradients before "
    "clipping and without a penalty",
    lower=SMALLEST,
    upper=LARGEST,
)
MOMENT_BOUND_2 = Assumption(
    "moment_bound_2",
    "r_2",
    GRADIENT,
    "the same bound for the second moment; if left out, r_k is used",
    lower=SMALLEST,
    upper=LARGEST,
    required=False,
)
ORDER_CONSTANT = Assumption(
    "order_constant",
    "c",
    PURE,
    "the constant factor of the printed rates; the paper leaves it open",
    lower=SMALLEST,
    upper=LARGEST,
    required=False,
    default=1.0,
)


@dataclass(frozen=True, slots=True)
class Moments:
    """The constants of Assumption 2.

    Attributes:
        order: The order k, at least 2.
        bound: The bound r_k, in gradient units.
        bound_2: The bound r_2, at most r_k; None means r_k.
    """

    order: float
    bound: float
    bound_2: float | None = None

    @property
    def second(self) -> float:
        """The bound r_2, or r_k if it is not known."""
        return self.bound if self.bound_2 is None else min(self.bound, self.bound_2)


def moment_bound_of_coordinates(coordinate_bound: float, order: float, dimension: int) -> float:
    r"""Return r_k from a bound on the k-th central moment of each coordinate (Assumption 3): $r_k \le 2\sqrt
    d\,\gamma^{1/k}$.

    Args:
        coordinate_bound: gamma^(1/k), in gradient units, where E|<grad f - grad F, e_j>|^k <= gamma for every j and
            |grad F| <= sqrt(d) gamma^(1/k).

    The paper's Lemma 21 has 4 in place of 2. The proof splits off grad F by Minkowski's inequality in L^k, and then
    uses |v|^k <= d^(k/2) mean_j |v_j|^k.

    >>> round(moment_bound_of_coordinates(2.0 ** (1 / 3), 3.0, 9), 9)
    7.559526299
    """
    assert order >= 2.0, "Assumption 3 is for k >= 2"
    return 2.0 * math.sqrt(dimension) * coordinate_bound


def trivial_excess_risk(lipschitz: float, diameter: float, strong_convexity: float = 0.0) -> float:
    r"""Return the bound on the excess risk that holds before any step: $F(w) - F^* \le \min(L D, L^2 / (2 \mu))$ at
    every point of the domain.

    Args:
        lipschitz: The Lipschitz constant L of F on the domain; r_1 <= r_2 is enough.

    >>> trivial_excess_risk(2.0, 2.0), trivial_excess_risk(2.0, 2.0, strong_convexity=1.0)
    (4.0, 2.0)
    """
    flat = lipschitz * diameter
    return min(flat, lipschitz**2 / (2.0 * strong_convexity)) if strong_convexity > 0.0 else flat
