r"""The generalised Gaussian mechanism adds noise with density proportional to $\exp(-\|z\|_+^2/(2\sigma^2))$.

**Privacy.** Let $\|\cdot\|_+ = \|\cdot\|_r$ and the pair $(\kappa_+, \kappa)$ be as in `regularity`, and let the
released vectors of two neighbours differ by $\mu$. Let $a = z$, $b = z - \alpha\mu$ and $\lambda = 1/\alpha$, so that
$y = z - \mu = (1-\lambda) a + \lambda b$. Expand the squared norm at y, bound it at a and at b by smoothness, and
average the two bounds:

$$(1-\lambda)\|a\|_+^2 + \lambda\|b\|_+^2 - \|y\|_+^2 \le \kappa_+ \lambda(1-\lambda)\|a-b\|_+^2.$$

Multiplied by $\alpha$, this is $-\alpha\|z-\mu\|_+^2 + (\alpha-1)\|z\|_+^2 \le -\|z-\alpha\mu\|_+^2 + \kappa_+
\alpha(\alpha-1) \|\mu\|_+^2$; integration over z gives $D_\alpha \le \alpha\kappa_+\|\mu\|_+^2/(2\sigma^2)$ at every
order. If $\|\mu\|_* \le \Delta$, this is zCDP with $\rho = \kappa\Delta^2/(2\sigma^2)$. Bassily, Guzman & Nandi 2021
expand at z instead, and get $\alpha^2/(\alpha-1)$ in place of $\alpha$.

There is no pure epsilon, because the log-ratio of two shifted densities is unbounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.conversions.rounding import rounded_up
from accounting.errors import InvalidValue, NoCostInFilter
from accounting.events import Event, ZcDp
from accounting.events.regularity import RegularityPair
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, BudgetTarget, GaussianDpTarget, PureDpTarget
from accounting.units import exact
from calibrators.spec import OpenEpsilon, Spec

#: The largest rho that the accounting engine states.
_MOST_RHO = 1e6
#: The smallest allowed scale of noise. Its inverse is the largest allowed scale.
_SMALLEST_SCALE = 1e-30


@dataclass(frozen=True, slots=True)
class Releases:
    r"""A function that makes the event of generalised Gaussian releases from the noise multiplier $\sigma$: zCDP with
    $\rho = s^2/(2\sigma^2)$.

    Attributes:
        relation: The neighbouring relation, with sensitivity s: 2 if a record is replaced, 1 if it becomes the null
            record.
        each: Whether every record takes part in every step, so that every step is charged. Otherwise the releases in
            which a record takes part cost rho together, and one event covers all releases.
    """

    relation: NeighboringRelation
    each: bool

    def __call__(self, noise_multiplier: float, iterations: int, batch_size: int) -> Event:
        rho = rounded_up((exact(self.relation.sensitivity) / exact(noise_multiplier)) ** 2 / 2)
        if rho > _MOST_RHO:
            raise InvalidValue(
                f"a noise multiplier of {noise_multiplier:g} has a rho above {_MOST_RHO:g}, the largest that "
                "can be stated; use more noise, or a target with less privacy loss",
                pointer=("noise_multiplier",),
            )
        return Event(ZcDp(rho), count=iterations if self.each else 1)


def noise_scale(
    regularity: RegularityPair, bound: float, records: int, noise_multiplier: float, releases: int = 1
) -> float:
    r"""Return the scale of the noise on a mean: $\sqrt{\kappa h}\,(c/m)$ times the noise multiplier.

    Args:
        regularity: The regularity of the dual norm, which includes the norm of the noise.
        bound: The bound c on the dual norm of one record's contribution to the sum.
        records: The number m of records in the mean.
        noise_multiplier: The noise multiplier, as `Releases` reads it.
        releases: The number h of releases in which one record takes part, at a joint cost of rho.

    Raises:
        InvalidValue: If the scale is outside the safe range of floating point.

    Source: derived in the docstring of this module.

    >>> from accounting.events.regularity import kappa_pair
    >>> round(noise_scale(kappa_pair(1.5, 100), 0.01, 1, 1.0 / math.sqrt(2.0 * 0.0174689047691)), 10)
    0.0756601436
    """
    scale = math.sqrt(regularity.kappa * releases) * bound / records * noise_multiplier
    if scale != 0.0 and not _SMALLEST_SCALE <= scale <= 1.0 / _SMALLEST_SCALE:
        raise InvalidValue(
            f"the noise scale {scale:g} is outside the safe range of floating point; use other units for the "
            "loss or the parameters",
            pointer=("assumptions", "lipschitz"),
        )
    return scale


def mean_square(regularity: RegularityPair, dimension: int, scale: float) -> float:
    r"""Return $\kappa_+ d \sigma^2$, the expected squared error that noise of this scale adds, in the smooth norm.

    Source: Bassily, Guzman & Nandi 2021, Proposition 8, has $E\|z\|_+^2 = d\sigma^2$. The factor $\kappa_+$ comes from
    adding the noise to other independent vectors.
    """
    return regularity.kappa_plus * dimension * scale**2


def refuse_pure_dp(spec: Spec) -> None:
    """Refuse targets that the noise cannot meet.

    Raises:
        NoCostInFilter: If the target asks for epsilon at delta 0, or for Gaussian DP.
    """
    match spec.target:
        case PureDpTarget() | GaussianDpTarget():
            refused = "kind"
        case ApproximateDpTarget(delta=0.0) | OpenEpsilon(delta=0.0):
            refused = "delta"
        case BudgetTarget(filter=budget, charge_delta=charge_delta) if (
            budget.kind in ("pure_dp", "gaussian_dp") or charge_delta == 0.0
        ):
            refused = "kind"
        case _:
            return
    raise NoCostInFilter(
        "generalised Gaussian noise cannot meet this target. It is rho-zCDP, but it has neither an epsilon at "
        "delta 0 nor a mu of Gaussian DP, because the log-ratio of its shifted densities is unbounded. Use an "
        "approximate_dp target with delta above 0, or a zcdp target",
        pointer=("target", refused),
    )
