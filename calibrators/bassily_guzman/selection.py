r"""Report-noisy-max with Gumbel noise selects the vertex with the smallest noisy score.

Consider the scores of a linear function over a set of diameter M in the norm $\|\cdot\|$. If the function moves by
$\Delta$ in the dual norm, the scores change within a *range* of width $w \le M \Delta$. A change that is common to all
scores has no effect.

$\arg\min_j (s_j - \lambda G_j)$ with standard Gumbel G selects j with probability proportional to
$\exp(-s_j/\lambda)$. Between neighbours the log-likelihood ratio lies in an interval of length $a = w/\lambda$ that
contains 0. Hence:

* the selection is a-DP;
* its Renyi divergence is at most $\alpha a^2/8$ at every order (Hoeffding's lemma for the cumulants of the log-ratio),
  so it is $w^2/(8\lambda^2)$-zCDP. Laplace noise of the same scale is also a-DP, but its zCDP is $a \tanh(a/2)$, which
  is four times as much for small a;
* the expected regret is at most $\lambda \ln K$, because the softmin distribution minimises the mean score minus
  $\lambda$ times the entropy over all distributions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.conversions.rounding import rounded_up
from accounting.errors import InvalidValue
from accounting.events import Event, PureDp, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, BudgetTarget, GaussianDpTarget, PureDpTarget
from accounting.units import exact
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.spec import OpenEpsilon, Spec


def expected_regret(scale: float, num_vertices: int) -> float:
    r"""Return the bound $\lambda \ln K$ on how far the selected score is above the smallest score in expectation, with
    Gumbel noise.

    >>> expected_regret(0.5, 1)
    0.0
    """
    return scale * math.log(num_vertices)


#: The largest rho that the accounting engine states.
_MOST_RHO = 1e6
NO_PENALTY = "Frank-Wolfe steps cannot handle a penalty: leave penalty out"
#: The smallest allowed scale of noise, in loss units. Its inverse is the largest allowed scale.
_SMALLEST_SCALE = 1e-30


@dataclass(frozen=True, slots=True)
class Selections:
    r"""A function that makes the event of selections from the noise multiplier sigma. The cost is the rho sens^2 / (2
    sigma^2) or the epsilon sens / sigma.

    Attributes:
        pure: Whether the cost is an epsilon at delta 0 rather than a rho.
        relation: The neighbouring relation. Its sensitivity sens is 2 if a record is replaced by another, and 1 if it
            is added, removed or becomes the null record.
        per_step: Whether each step is one selection with that cost. Otherwise all steps together have that cost.

    >>> Selections(False, NeighboringRelation.REPLACE_ONE)(2.0, 5, 1).mechanism
    ZcDp(rho=0.5)
    >>> Selections(False, NeighboringRelation.REPLACE_ONE, per_step=True)(2.0, 5, 1).count
    5
    """

    pure: bool
    relation: NeighboringRelation
    per_step: bool = False

    def __call__(self, noise_multiplier: float, iterations: int, batch_size: int) -> Event:
        """Return the event. It does not depend on the batch sizes, because the noise scales are adapted to them."""
        count = iterations if self.per_step else 1
        distance = exact(self.relation.sensitivity) / exact(noise_multiplier)
        if self.pure:
            return Event(PureDp(rounded_up(distance)), count=count)
        rho = rounded_up(distance**2 / 2)
        if rho > _MOST_RHO:
            raise InvalidValue(
                f"a noise multiplier of {noise_multiplier:g} has a rho above {_MOST_RHO:g}, the largest that "
                "can be stated; use more noise, or a target with less privacy loss",
                pointer=("noise_multiplier",),
            )
        return Event(ZcDp(rho), count=count)


def is_pure(spec: Spec) -> bool:
    """Return whether the target asks for epsilon at delta 0, or for a number that follows only from that."""
    match spec.target:
        case PureDpTarget() | GaussianDpTarget():
            return True
        case ApproximateDpTarget(delta=delta) | OpenEpsilon(delta=delta):
            return delta == 0.0
        case BudgetTarget(filter=budget, charge_delta=charge_delta):
            return budget.kind in ("pure_dp", "gaussian_dp") or charge_delta == 0.0
    return False


def checked_scales(scales: Sequence[float]) -> tuple[float, ...]:
    """Return the scales if floating point can represent them safely.

    Raises:
        InvalidValue: If a scale is too small or too large.
    """
    if not all(_SMALLEST_SCALE <= scale <= 1.0 / _SMALLEST_SCALE for scale in scales):
        raise InvalidValue(
            f"the noise scales {tuple(scales)} are outside the safe range of floating point; use other units "
            "for the loss or the parameters",
            pointer=("assumptions", "lipschitz"),
        )
    return tuple(scales)


def multiplier(noise_multiplier: float, pure: bool, source: str, *holds: str) -> Provenance:
    """Return the noise multiplier as a recommended number with its source."""
    return Provenance(
        "noise_multiplier",
        noise_multiplier,
        r"\epsilon = s/\sigma" if pure else r"\rho = s^2/(2\sigma^2)",
        source,
        ProvenanceKind.DERIVED,
        holds,
    )
