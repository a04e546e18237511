"""What selections cost, from the noise multiplier that is solved for, and the scale of their Gumbel noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accounting.conversions.rounding import rounded_up
from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, PureDp, ZcDp
from accounting.filter_costs import exact
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, BudgetTarget, GaussianDpTarget, PureDpTarget
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.spec import OpenEpsilon, Spec

#: Above it the engine states no rho.
_MOST_RHO = 1e6
#: Of noise, in loss units; its inverse is the largest.
_SMALLEST_SCALE = 1e-30


@dataclass(frozen=True, slots=True)
class Selections:
    r"""The event of selections, from the noise multiplier: sens^2 / (2 sigma^2), or sens / sigma.

    Attributes:
        pure: Whether epsilon at delta 0 is stated, rather than rho.
        relation: Its sensitivity sens is 2 where a record is replaced by another, 1 where it comes, goes or becomes the
            null record.
        per_step: Whether each step is one selection of that cost; else all of them together are.

    >>> Selections(False, NeighboringRelation.REPLACE_ONE)(2.0, 5, 1).mechanism
    ZcDp(rho=0.5)
    >>> Selections(False, NeighboringRelation.REPLACE_ONE, per_step=True)(2.0, 5, 1).count
    5
    """

    pure: bool
    relation: NeighboringRelation
    per_step: bool = False

    def __call__(self, noise_multiplier: float, iterations: int, batch_size: int) -> Event:
        """The batches have no part in it: the noise scales have."""
        count = iterations if self.per_step else 1
        distance = exact(self.relation.sensitivity) / exact(noise_multiplier)
        if self.pure:
            return Event(PureDp(rounded_up(distance)), count=count)
        rho = rounded_up(distance**2 / 2)
        if rho > _MOST_RHO:
            raise InvalidValue(
                f"no rho above {_MOST_RHO:g} is stated; use more noise than {noise_multiplier:g}, or aim lower",
                pointer=("noise_multiplier",),
            )
        return Event(ZcDp(rho), count=count)


def is_pure(spec: Spec) -> bool:
    """Whether the target asks for epsilon at delta 0, or for what follows from it and not from rho."""
    match spec.target:
        case PureDpTarget() | GaussianDpTarget():
            return True
        case ApproximateDpTarget(delta=delta) | OpenEpsilon(delta=delta):
            return delta == 0.0
        case BudgetTarget(filter=budget, charge_delta=charge_delta):
            return budget.kind in ("pure_dp", "gaussian_dp") or charge_delta == 0.0
    return False


def checked_scales(scales: Sequence[float]) -> tuple[float, ...]:
    """The scales, where floating point holds them.

    Raises:
        InvalidValue: one is too small or too large.
    """
    if not all(_SMALLEST_SCALE <= scale <= 1.0 / _SMALLEST_SCALE for scale in scales):
        raise InvalidValue(
            f"the noise would have the scales {tuple(scales)}, which floating point does not hold safely: choose other "
            "units",
            pointer=("assumptions", "lipschitz"),
        )
    return tuple(scales)


def refuse_penalty(spec: Spec) -> None:
    """Frank-Wolfe steps have none.

    Raises:
        Unsupported: there is one.
    """
    if spec.penalty is not None:
        raise Unsupported("Frank-Wolfe steps have no proximal part: leave penalty out", pointer=("penalty",))


def multiplier(noise_multiplier: float, pure: bool, source: str, *holds: str) -> Provenance:
    """The noise multiplier as a hyperparameter."""
    return Provenance(
        "noise_multiplier",
        noise_multiplier,
        r"\epsilon = s/\sigma" if pure else r"\rho = s^2/(2\sigma^2)",
        source,
        ProvenanceKind.DERIVED,
        holds,
    )
