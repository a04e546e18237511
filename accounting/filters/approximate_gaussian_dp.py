"""The filter of approximate Gaussian DP adds up mu squared, the delta of failures, and the pure epsilon."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Self

from accounting.canonical import Json
from accounting.composition.composition import compose
from accounting.composition.gaussian_dp import delta_of_gaussian, mu_of_gaussian
from accounting.conversions.regions import GaussianRegion
from accounting.conversions.rounding import root_rounded_up
from accounting.errors import InvalidValue
from accounting.events import Event, check_events
from accounting.filters.costs import Cost, checked, same_randomizer_warning, total, without_failures
from accounting.filters.gaussian_cover import TOLERANCE, Cover, about, cover, failure_of
from accounting.filters.gaussian_dp import mu_squared
from accounting.filters.given_up import Worth, tail_of, worth_of
from accounting.filters.privacy_filter import (
    GivenBack,
    PrivacyFilter,
    float_of_nano,
    read_limit,
    read_number,
    shares_of,
)
from accounting.filters.pure_dp import pure_epsilon
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation
from accounting.units import (
    ATTO,
    NANO,
    SATURATED,
    Amounts,
    Between,
    exact,
    from_atto,
    from_nano,
    to_atto_down,
    to_atto_up,
    to_nano_down,
    to_nano_up,
)

#: Shares of delta: one for failures in the prices of sampled steps, and one that is kept for stated deltas and for
#: tails that are given up.
FAILURE_SHARE, RESERVE_SHARE = 0.1, 0.05
#: The smallest delta of a budget: failures are counted in units of 1e-18.
SMALLEST_DELTA_OF_FAILURES = 1e-15
#: The share of the reserve that is spent for one tail that is given up.
_SHARE_OF_A_TAIL = Fraction(1, 10)
#: Significant decimal digits of a rate.
_RATE_DIGITS = 6


def approximate_gaussian_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation, rate: Fraction) -> Cost:
    """Price a list by the failing Gaussian that covers it, and by its cost as a list of pure steps.

    Full-batch Gaussians alone cost their own mu squared, without failures. A list whose squares of mu add up to less
    than its cover costs that sum, without failures as well. Stated deltas count as failures.

    Args:
        events: One reservation.
        relation: The budget's relation.
        rate: The delta of failures per unit of mu squared.

    Returns:
        mu squared in nano-units, delta in atto-units, and the pure epsilon in nano-units; `SATURATED` if no bound
        is finite.

    Guarantees:
        no_attained_pair_costs_more; a_concatenation_costs_no_more_than_its_parts: up to the search's tolerance, and for
            mechanisms with a known pair. For mechanisms with stated moments the profile of a list is only a bound, so
            the whole list may cost a few percent more.

    Raises:
        NoCostInFilter, Unsupported: As `pure_dp_cost` does.

    >>> from accounting.events import Gaussian, Poisson
    >>> rate = Fraction(1, 10**5)
    >>> approximate_gaussian_dp_cost((Event(Gaussian(4.0)),), NeighboringRelation.ADD_OR_REMOVE_ONE, rate).amounts[:2]
    (62500000, 0)
    >>> training = (Event(Gaussian(4.0), Poisson(0.01), 10_000),)
    >>> mu_squared, delta, _ = approximate_gaussian_dp_cost(
    ...     training, NeighboringRelation.ADD_OR_REMOVE_ONE, rate
    ... ).amounts
    >>> round(mu_squared / 1e9, 3), delta == mu_squared * 10**4
    (0.065, True)
    """
    parts = _parts(events, relation, rate)
    amount, failure = parts.most
    failure = SATURATED if amount >= SATURATED else _failing(failure, parts.stated)
    return Cost((amount, failure, parts.pure_most), same_randomizer_warning(parts.events))


def least_approximate_gaussian_dp_cost(
    events: tuple[Event, ...], relation: NeighboringRelation, rate: Fraction
) -> Amounts:
    """Return the lower end of `approximate_gaussian_dp_cost`.

    Raises:
        NoCostInFilter, Unsupported: As `approximate_gaussian_dp_cost` does.
    """
    parts = _parts(events, relation, rate)
    amount, failure = parts.least
    return amount, _failing(failure, parts.stated), parts.pure_least


@dataclass(frozen=True, slots=True)
class _Parts:
    """Hold the parts of a price: mu squared with the delta of its failures, the stated deltas, and the pure epsilon.

    Attributes:
        least, most: The lower and the upper end of mu squared, each with the delta of its failures.
        stated: The sum of the stated deltas.
        covered, summed: mu squared of the cover, and the sum of all steps' mu squared; `SATURATED` if there is none.
    """

    events: tuple[Event, ...]
    least: tuple[int, int]
    most: tuple[int, int]
    stated: Fraction
    pure_least: int
    pure_most: int
    covered: int
    summed: int


# Verification asks for both ends of a price, one after the other; finding them may take seconds.
@lru_cache(maxsize=64)
def _parts(events: tuple[Event, ...], relation: NeighboringRelation, rate: Fraction) -> _Parts:
    events = checked(events, relation, "approximate_gaussian_dp")
    as_pure, stated = without_failures(events)
    as_pure = tuple(event for event in as_pure if not event.mechanism.reveals_nothing)
    summed = _sum(as_pure, relation, "gaussian_dp")
    found = Cover(0, SATURATED if as_pure else 0)
    if as_pure and (summed is None or compose(as_pure, relation).gaussian_only is None):
        found = cover(as_pure, relation, rate)
    # A loss is positive if anything is revealed, however little.
    unit = 1 if as_pure else 0
    least = max(found.least, unit), failure_of(found.least, rate)
    most = max(found.most, unit), failure_of(found.most, rate)
    if summed is not None:
        if found.most == SATURATED or to_nano_up(summed.most) <= most[0]:
            most = max(to_nano_up(summed.most), unit), 0
        if found.most == SATURATED or to_nano_up(summed.least) <= least[0]:
            least = max(to_nano_up(summed.least), unit), 0
        least = min(least[0], most[0]), min(least[1], most[1])
    pure = None if stated else _sum(as_pure, relation, "pure_dp")
    pure_least, pure_most = (SATURATED, SATURATED) if pure is None else (to_nano_up(pure.least), to_nano_up(pure.most))
    sum_of_squares = SATURATED if summed is None else to_nano_up(summed.most)
    return _Parts(events, least, most, stated, pure_least, pure_most, found.most, sum_of_squares)


def _sum(events: tuple[Event, ...], relation: NeighboringRelation, kind: str) -> Between | None:
    """Return the cost of a list in another kind of budget, in which costs add up step by step; None if the list has no
    cost there."""
    for event in events:
        working = event.sampling.filters
        if kind not in event.mechanism.filters or (working is not None and kind not in working):
            return None
    return total(events, relation, pure_epsilon if kind == "pure_dp" else mu_squared)


def _failing(failure: int, stated: Fraction) -> int:
    """Return the probability that the cover or a step fails, in atto-units, rounded up."""
    return to_atto_up(1 - (1 - Fraction(failure, ATTO)) * (1 - min(stated, Fraction(1)))) if stated else failure


@dataclass(frozen=True)
class ApproximateGaussianDpFilter(PrivacyFilter):
    """A budget in (epsilon, delta) that prices plans as Gaussians that may fail, near their tight epsilon.

    It admits a total that is within one of two limits. The Gaussian limit bounds mu squared and the delta of failures;
    the pure limit bounds the sum of pure epsilons by epsilon.

    Attributes:
        epsilon, delta: The guarantee of all charges together, even if they are chosen adaptively and plans are
            interleaved and stopped early.
        reserve_share: The share of delta that is kept for stated deltas and for tails that are given up.
        delta_per_mu_squared: The delta of failures per unit of mu squared, on which prices depend. The budget keeps it
            for ever. If it is None, it is chosen so that failures get ``failure_share`` of delta.
        failure_share: Read only where ``delta_per_mu_squared`` is None. 0.1 suits plans with hundreds of
            participations; 0.3 suits plans with few, or with noise below 0.7.
        caps: mu squared in nano-units, delta in atto-units, the pure epsilon in nano-units.

    The price of a reservation is that of its whole list, which is fixed in advance. Plans may be interleaved and
    abandoned.

    Guarantees: never_passes_both_limits.

    Source: this project, `docs/concepts/gaussian_filter.md`.

    >>> budget = ApproximateGaussianDpFilter(1.0, 1e-5)
    >>> budget.delta_per_mu_squared, budget.caps
    (1.41904e-05, (70469900, 1499996068960, 1000000000))
    >>> budget.admits((70_469_900, 0, 2**61)), budget.admits((70_469_901, 0, 2**61)), budget.admits((2**61, 0, 10**9))
    (True, False, True)
    """

    kind: ClassVar[str] = "approximate_gaussian_dp"
    limits = ("epsilon", "delta")
    price_tolerance: ClassVar[float] = TOLERANCE
    prefix_may_depend_on_outputs: ClassVar[bool] = False
    gives_back: ClassVar[bool] = True
    epsilon: float
    delta: float
    reserve_share: float = RESERVE_SHARE
    delta_per_mu_squared: float | None = None
    failure_share: float = field(default=FAILURE_SHARE, compare=False, repr=False)
    caps: Amounts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        epsilon = read_limit("epsilon", self.epsilon)
        delta = read_limit("delta", self.delta, smallest=SMALLEST_DELTA_OF_FAILURES, largest=0.5)
        reserve = read_real("reserve_share", self.reserve_share, 0.0, 0.9)
        rate = self.delta_per_mu_squared
        if rate is None:
            share = read_real("failure_share", self.failure_share, 0.0, 0.9 - reserve, open_lower=True)
            rate = _rate_for(epsilon, delta, share, reserve)
        rate = read_real("delta_per_mu_squared", rate, 0.0, 1e9, open_lower=True)
        named = ("epsilon", epsilon), ("delta", delta), ("reserve_share", reserve), ("delta_per_mu_squared", rate)
        for name, value in named:
            object.__setattr__(self, name, value)
        object.__setattr__(self, "caps", _caps(epsilon, delta, reserve, rate))

    @property
    def price_terms(self) -> tuple[str, tuple[float, ...]]:
        assert self.delta_per_mu_squared is not None, "chosen at creation"
        return "delta_per_mu_squared", (self.delta_per_mu_squared,)

    @property
    def _rate(self) -> Fraction:
        return exact(self.price_terms[1][0])

    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        return approximate_gaussian_dp_cost(check_events(events), relation, self._rate)

    def least_cost(
        self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None
    ) -> Amounts:
        """Return a lower bound of every cover of the list, and the lower end of the pure epsilon."""
        return least_approximate_gaussian_dp_cost(check_events(events), relation, self._rate)

    def given_back(
        self,
        held: Amounts,
        events: Sequence[Event],
        kept: Sequence[Event],
        relation: NeighboringRelation,
        failure: int | None = None,
    ) -> GivenBack | None:
        """Return the worth of the steps that were not taken, as a Gaussian.

        A plan with a pure price gets nothing, because amounts must only grow while the pure epsilons decide. A plan
        that was charged less than it costs today gets nothing either.

        >>> from accounting.events import Gaussian, Poisson
        >>> budget, relation = ApproximateGaussianDpFilter(1.0, 1e-5), NeighboringRelation.ADD_OR_REMOVE_ONE
        >>> whole, half = ([Event(Gaussian(4.69), Poisson(0.05), count)] for count in (600, 300))
        >>> paid = budget.cost(whole, relation).amounts
        >>> back = budget.given_back(paid, whole, half, relation).amounts
        >>> 1.0 < (paid[0] - back[0]) / budget.cost(half, relation).amounts[0] < 1.06, back[1:]
        (True, (-50000000000, 0))
        """
        plan = check_events(events)
        parts, tail = _parts(plan, relation, self._rate), tail_of(plan, kept)
        if held[2] < SATURATED or not tail:
            return None
        if failure is None:
            failure = to_atto_down(exact(self.reserve_share) * exact(self.delta) * _SHARE_OF_A_TAIL)
        covered = _failing(failure_of(parts.covered, self._rate), parts.stated) if parts.covered < SATURATED else 0
        stated = _failing(0, parts.stated)
        found = [Worth(0, 0, 0)]
        if held[0] >= parts.summed and held[1] >= stated:
            # The steps were paid for as Gaussians of their own.
            worth = to_nano_down(total(tail, relation, mu_squared).most)
            found.append(Worth(worth, worth, 0))
        if held[0] >= parts.covered and held[1] >= covered:
            found.append(worth_of(tail, relation, failure))
        best = max(found, key=lambda each: each.least)
        if best.least < 1:
            return None
        return GivenBack((best.least, -best.failure, 0), (max(each.most for each in found), -best.failure, 0))

    def may_give_back(self, held: Amounts, back: Amounts) -> bool:
        """Return whether only mu squared is given back, and the plan has no pure price.

        A delta of failures may be spent for it.
        """
        amount, failure, pure = back
        return held[2] >= SATURATED and 0 < amount <= held[0] and failure <= 0 and pure == 0

    def describe_given_back(self, back: Amounts) -> dict[str, Json]:
        amount, failure, _ = back
        return {"mu_squared": from_nano(amount), "failure_delta": from_atto(-failure)}

    def estimate(
        self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None
    ) -> Amounts:
        """Return roughly what a list costs, from a few estimates of epsilon; the exact cost takes a search."""
        steps = check_events(events)
        if compose(steps, relation).gaussian_only is not None:
            return self.cost(steps, relation).amounts
        amount = to_nano_up(Fraction(about(steps, relation, self._rate)))
        return amount, failure_of(amount, self._rate), SATURATED

    def share(self, amounts: Amounts, room: Amounts) -> float:
        """Return the smaller of the shares of the two limits. The share of the Gaussian limit is the larger of its
        two."""
        gaussian, pure = shares_of(amounts[:2], room[:2]), shares_of(amounts[2:], room[2:])
        return min(max(gaussian) if len(gaussian) == 2 else math.inf, *pure, math.inf)

    def headroom(self, used: Amounts) -> int:
        """Return the larger of the rooms of the two limits; the Gaussian limit's room is the smaller of its two."""
        amount, failure, pure = (cap - each for cap, each in zip(self.caps, used, strict=True))
        return max(min(amount, failure), pure)

    def _epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """Return the smaller of the pure epsilon and the epsilon at which the failing Gaussian's profile is delta.

        The Gaussian is that of the smallest full budget with room for the amounts, among the budgets of this rate and
        reserve at ``delta``. An interaction that stops before the number would pass an epsilon fixed beforehand has
        therefore stayed within the limit of one such budget, or within that much pure epsilon.
        """
        amount, failure, pure = amounts
        found = math.inf if pure >= SATURATED else float_of_nano(pure)
        kept = to_atto_down(exact(self.reserve_share) * exact(delta))
        if failure > kept:
            amount = max(amount, math.ceil(Fraction(failure - kept, ATTO // NANO) / self._rate))
        failing = failure_of(amount, self._rate) + kept
        left = _left_of(delta, failing)
        if amount < SATURATED and left > 0.0:
            found = min(found, GaussianRegion(root_rounded_up(Fraction(amount, NANO))).epsilon(left))
        return None if math.isinf(found) else found

    def limit_epsilon_at(self, delta: float) -> float | None:
        """Return the larger of the epsilons of the two limits, because a full budget may be full in either."""
        amount, failure, pure = self.caps
        gaussian = self.epsilon_at((amount, failure, SATURATED), delta)
        return None if gaussian is None else max(gaussian, float_of_nano(pure))

    def stated(self, amounts: Amounts) -> int:
        """Return epsilon at the budget's own delta; `SATURATED` if none is finite."""
        epsilon = self.epsilon_at(amounts, self.delta)
        found = SATURATED if epsilon is None else to_nano_up(exact(epsilon))
        # Admitted charges are within the limit by the theorem, however the conversion is rounded.
        return min(found, self.stated_limit) if self.admits(amounts) else found

    def describe(self, amounts: Amounts) -> dict[str, Json]:
        """Return the amounts, and the epsilon that they cost at the budget's delta (0 if nothing is used)."""
        return {"epsilon": from_nano(self.stated(amounts))} | self._own(amounts)

    def describe_remaining(self, used: Amounts) -> dict[str, Json]:
        """Return what is left of each amount; ``epsilon`` is the limit minus the epsilon used. It does not say how
        large the next charge may be."""
        return {"epsilon": from_nano(self.left(used))} | self._own(self.remaining(used))

    def describe_limit(self) -> dict[str, Json]:
        return {"epsilon": from_nano(self.stated_limit)} | self._own(self.caps)

    def _own(self, amounts: Amounts) -> dict[str, Json]:
        amount, failure, pure = amounts
        return {
            "mu_squared": from_nano(amount),
            "failure_delta": from_atto(failure),
            "pure_epsilon": None if pure >= SATURATED else from_nano(pure),
        }

    def to_json(self) -> dict[str, Json]:
        terms = {"reserve_share": self.reserve_share, "delta_per_mu_squared": self.delta_per_mu_squared}
        return PrivacyFilter.to_json(self) | terms

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        epsilon, delta = (read_number(value, name) for name in cls.limits)
        others = ("reserve_share", "delta_per_mu_squared", "failure_share")
        return cls(epsilon, delta, **{name: read_number(value, name) for name in others if value.get(name) is not None})


def _left_of(delta: float, failing: int) -> float:
    """Return (delta - d) / (1 - d), rounded down, d in atto-units; not positive where failures take all of delta."""
    share = Fraction(failing, ATTO)
    if share >= 1:
        return -1.0
    left = (exact(delta) - share) / (1 - share)
    return math.nextafter(float(left), -math.inf) if left > 0 else -1.0


def _rate_for(epsilon: float, delta: float, share: float, reserve: float) -> float:
    """Return the rate at which failures get their share of delta when mu squared is full, rounded down."""
    failing = exact(share) * exact(delta)
    left = (exact(delta) * (1 - exact(reserve)) - failing) / (1 - failing)
    full = mu_of_gaussian(epsilon, float(left)) ** 2
    rate = Decimal(float(failing)) / Decimal(full)
    return float(Context(prec=_RATE_DIGITS, rounding=ROUND_FLOOR).plus(rate))


# A ledger builds its filters again for every command, so their caps are remembered.
@lru_cache(maxsize=1024)
def _caps(epsilon: float, delta: float, reserve: float, rate: float) -> Amounts:
    """Return the largest mu squared with d + (1 - d) delta_G(epsilon) <= delta, its d, and epsilon."""
    kept = to_atto_down(exact(reserve) * exact(delta))

    def fits(amount: int) -> bool:
        left = _left_of(delta, failure_of(amount, exact(rate)) + kept)
        mu = root_rounded_up(Fraction(amount, NANO))
        return left > 0.0 and delta_of_gaussian(mu, epsilon, upward=True) <= left

    low, high = 0, max(1, math.ceil(mu_of_gaussian(epsilon, delta) ** 2 * 1.001 * NANO))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if low == 0:
        raise InvalidValue(
            f"epsilon {epsilon:g} is too small at delta {delta:g}: mu squared is counted in units of 1e-9, and the "
            "limit would be less than one unit; take a larger epsilon or delta, or a smaller failure_share and "
            "reserve_share",
            pointer=("epsilon",),
        )
    return low, failure_of(low, exact(rate)) + kept, to_nano_down(exact(epsilon))
