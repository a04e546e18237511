"""Targets of calibrations: a number that the events' certified cost must not exceed.

| target | the number | what it means for a list of events |
|---|---|---|
| approximate_dp | epsilon | the certified epsilon at delta |
| approximate_dp of groups | epsilon | the certified epsilon at delta for this many records of one owner |
| pure_dp | epsilon | the sum of epsilons; Gaussian noise and stated rhos have none |
| zcdp | rho | the zCDP cost; sampling does not lower it |
| gaussian_dp | mu | the Gaussian-DP cost; sampling does not lower it |
| attack_risk | advantage | the certified delta at epsilon 0, which is the total variation |
| attack_risk | tpr at fpr | the certified largest true positive rate |
| attack_risk | bayes_risk at prior | the certified delta at the prior's log-odds, which decides the Bayes risk |
| budget | share | the filter's own cost over the remaining room, at the order that has most room for it |

A sampled Gaussian has no amplified zCDP or Gaussian-DP cost (its Renyi divergence divided by the order tends to that of
the unsampled one), so these two targets pay as if every record took part in every step, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, Protocol

from accounting.accountant import epsilon_for_delta, estimate_epsilon
from accounting.attack_risk_targets import AdvantageTarget, BayesRiskTarget, TruePositiveRateTarget
from accounting.conversions.rounding import root_rounded_up, rounded_up
from accounting.described import Described, Real
from accounting.events import Event, FullBatch, Gaussian, Poisson, check_events
from accounting.events.schedules import is_sampled, resolve_schedules
from accounting.filters import ApproximateDpFilter, Cost, PrivacyFilter, gaussian_dp_cost, zcdp_cost
from accounting.filters.costs import checked, total
from accounting.filters.privacy_filter import shares_of
from accounting.filters.pure_dp import pure_epsilon
from accounting.group_targets import GroupDpTarget
from accounting.intervals import Answer, Interval
from accounting.relations import NeighboringRelation
from accounting.units import NANO, Amounts, exact

__all__ = [
    "AdvantageTarget",
    "ApproximateDpTarget",
    "BayesRiskTarget",
    "BudgetTarget",
    "GaussianDpTarget",
    "GroupDpTarget",
    "PureDpTarget",
    "Target",
    "TruePositiveRateTarget",
    "ZcdpTarget",
]

_NO_AMPLIFICATION = (
    "Sampling does not lower {figure}: no amplified {guarantee} holds for a sampled Gaussian, so it counts as if every "
    "record took part in every step. A target in (epsilon, delta) or in attack risk makes use of the sampling."
)


class Target(Protocol):
    """A number, and the limit that it must not exceed.

    Attributes:
        additive: Whether the number is a proved sum over the events, rather than the outcome of an evaluator.
        limit: The target is met if the certified upper end of `assess` is at most this.
    """

    kind: ClassVar[str]
    additive: ClassVar[bool]

    @property
    def limit(self) -> float: ...

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        """Return the events' cost in the unit of ``limit``; ``quick`` returns an estimate, which is not a bound."""

    def level(self, figure: float) -> float:
        """Return an increasing function of the number whose log is nearly linear in the log of the noise multiplier."""

    def say(self, figure: float) -> str:
        """Return the number in words, such as ``epsilon 2 at delta 1e-05``."""


@dataclass(frozen=True, slots=True)
class ApproximateDpTarget(Described):
    """(epsilon, delta)-differential privacy of the whole list."""

    kind: ClassVar[str] = "approximate_dp"
    additive: ClassVar[bool] = False
    epsilon: Annotated[float, Real(0.0, 1e9, open_lower=True)]
    delta: Annotated[float, Real(0.0, 1.0)]

    @property
    def limit(self) -> float:
        return self.epsilon

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        if quick and 0.0 < self.delta < 1.0:
            estimate = estimate_epsilon(events, relation, self.delta)
            return Answer(Interval(0.0, estimate, estimate), "estimate")
        return epsilon_for_delta(events, relation, self.delta)

    def level(self, figure: float) -> float:
        return figure

    def say(self, figure: float) -> str:
        return f"epsilon {figure:.6g} at delta {self.delta:g}"


@dataclass(frozen=True, slots=True)
class PureDpTarget(Described):
    """epsilon-differential privacy of the whole list, with delta 0."""

    kind: ClassVar[str] = "pure_dp"
    additive: ClassVar[bool] = True
    epsilon: Annotated[float, Real(0.0, 1e6, open_lower=True)]

    @property
    def limit(self) -> float:
        return self.epsilon

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        """Return the sum of epsilons. If no event is sampled, independent coins or Laplace noise attain it.

        Guarantees: the decimal with which the upper end is written is at least the sum.

        Raises:
            NoCostInFilter: If an event has no epsilon at delta 0, as Gaussian noise has none.
        """
        resolved = checked(check_events(events), relation, self.kind)
        epsilon = total(resolved, relation, pure_epsilon).most
        upper = float(epsilon)
        if exact(upper) < epsilon:
            upper = math.nextafter(upper, math.inf)
        lower = 0.0 if any(is_sampled(event) for event in resolved) else upper
        return Answer(Interval(lower, upper, upper), f"{self.kind}_cost")

    def level(self, figure: float) -> float:
        return figure

    def say(self, figure: float) -> str:
        return f"epsilon {figure:.6g} at delta 0"


class _AdditiveTarget(Described):
    """A figure that follows from a proved sum of squared mu, in which a sampled Gaussian counts as a full batch.

    Attributes:
        figure: The field with the limit.
        guarantee: The kind of guarantee, which sampling does not amplify for a Gaussian.
        cost: The additive cost of a list in nano-units, each of which stands for ``unit`` of squared mu.
        of_squares: The figure of a sum of squared mu, rounded up.
    """

    __slots__ = ()
    additive: ClassVar[bool] = True
    figure: ClassVar[str]
    guarantee: ClassVar[str]
    unit: ClassVar[int]
    cost: Callable[[tuple[Event, ...], NeighboringRelation], Cost]
    of_squares: Callable[[Fraction], float]

    @property
    def limit(self) -> float:
        return float(getattr(self, self.figure))

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        """Bound the figure; an attained lower bound is known only for Gaussian noise on full batches.

        Raises:
            NoCostInFilter: If an event has no proved cost of this kind.
        """
        squares = _sum_of_squares(check_events(events), relation, self.cost, self.unit)
        upper = self.of_squares(squares.total)
        interval = Interval(upper if squares.attained else 0.0, upper, upper)
        warning = _NO_AMPLIFICATION.format(figure=self.figure, guarantee=self.guarantee)
        return Answer(interval, f"{self.kind}_cost", {}, (warning,) if squares.unamplified else ())

    def level(self, figure: float) -> float:
        return figure

    def say(self, figure: float) -> str:
        return f"{self.figure} {figure:.6g}"


@dataclass(frozen=True, slots=True)
class ZcdpTarget(_AdditiveTarget):
    """rho-zero-concentrated differential privacy of the whole list."""

    kind: ClassVar[str] = "zcdp"
    figure: ClassVar[str] = "rho"
    guarantee: ClassVar[str] = "zCDP guarantee"
    unit: ClassVar[int] = 2
    cost = staticmethod(zcdp_cost)
    of_squares = staticmethod(lambda squares: rounded_up(squares / 2))
    rho: Annotated[float, Real(0.0, 1e6, open_lower=True)]


@dataclass(frozen=True, slots=True)
class GaussianDpTarget(_AdditiveTarget):
    """mu-Gaussian differential privacy of the whole list."""

    kind: ClassVar[str] = "gaussian_dp"
    figure: ClassVar[str] = "mu"
    guarantee: ClassVar[str] = "Gaussian-DP guarantee"
    unit: ClassVar[int] = 1
    cost = staticmethod(gaussian_dp_cost)
    of_squares = staticmethod(root_rounded_up)
    mu: Annotated[float, Real(0.0, 1e6, open_lower=True)]


@dataclass(frozen=True, slots=True)
class BudgetTarget:
    """A target that the events fit into a budget's remaining room, priced as its ledger prices them.

    Attributes:
        filter: The budget's privacy filter.
        used: The spent and reserved amounts, in the filter's units.
        charge_delta: The delta at which the events are priced; an approximate_dp filter alone reads it.
    """

    kind: ClassVar[str] = "budget"
    additive: ClassVar[bool] = True
    filter: PrivacyFilter
    used: Amounts
    charge_delta: float | None = None

    @property
    def limit(self) -> float:
        """The whole remaining room, which is 1."""
        return 1.0

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        """Return the cost of the events as a share of the remaining room. It is at most 1 exactly if the filter admits
        them.

        Raises:
            NoCostInFilter: If an event has no proved additive cost in the budget's filter.
            AccountingError: With code ``missing_charge_delta``, if an event needs a charge delta and none is given.
        """
        if quick and self.filter.price_tolerance:
            share = self._share(self.filter.estimate(events, relation, self.charge_delta))
            return Answer(Interval(0.0, share, share), "estimate")
        cost = self.filter.cost(events, relation, self.charge_delta)
        share = self._share(cost.amounts)
        if self.filter.admits(self.filter.add(self.used, cost.amounts)):
            share = min(share, 1.0)
        else:
            share = max(share, math.nextafter(1.0, 2.0))
        warnings = tuple(warning.detail for warning in cost.warnings)
        return Answer(Interval(share, share, share), f"{self.filter.kind}_filter", {}, warnings)

    def level(self, figure: float) -> float:
        return figure

    def say(self, figure: float) -> str:
        if math.isinf(figure):
            return "more than the budget has left"
        return f"{figure:.6g} times what remains of the budget"

    def _share(self, amounts: Amounts) -> float:
        room = self.filter.remaining(self.used)
        if isinstance(self.filter, ApproximateDpFilter):
            # The charge delta is given and not solved for. If it does not fit into the room, no list of events fits.
            return min(shares_of(amounts[:1], room[:1]), default=math.inf) if amounts[1] <= room[1] else math.inf
        return self.filter.share(amounts, room)


@dataclass(frozen=True, slots=True)
class _Squares:
    """A sum of squared mu, whether all of it is attained, and whether a sampling was ignored."""

    total: Fraction
    attained: bool
    unamplified: bool


def _sum_of_squares(
    events: tuple[Event, ...],
    relation: NeighboringRelation,
    cost: Callable[[tuple[Event, ...], NeighboringRelation], Cost],
    unit: int,
) -> _Squares:
    """Sum the squared mu of the events.

    A Gaussian with full batches or Poisson sampling has (sensitivity / noise multiplier)^2, exactly; any other event
    has ``unit`` times its cost.
    """
    unamplified = bool(cost(events, relation).warnings)
    total, attained = Fraction(0), True
    for event in resolve_schedules(events, relation):
        if isinstance(event.mechanism, Gaussian) and isinstance(event.sampling, FullBatch | Poisson):
            total += event.count * (exact(relation.sensitivity) / exact(event.mechanism.noise_multiplier)) ** 2
        else:
            total += Fraction(unit * cost((event,), relation).amounts[0], NANO)
            attained = False
    return _Squares(total, attained and not unamplified, unamplified)
