"""The filter of Gaussian differential privacy: mu squared adds up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from accounting.canonical import Json
from accounting.conversions.regions import GaussianRegion
from accounting.conversions.rounding import root_rounded_up
from accounting.errors import InvalidValue
from accounting.events import Event, check_events
from accounting.filters.costs import Cost, checked, total, unamplified
from accounting.filters.privacy_filter import PrivacyFilter, read_limit
from accounting.losses.rules import ChargedStep, rules_of
from accounting.relations import NeighboringRelation
from accounting.units import MAX_LIMIT, NANO, SATURATED, Amounts, Between, exact, from_nano, to_nano_down, to_nano_up


def gaussian_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation) -> Cost:
    """Return the sum of squares of mu; a sampled Gaussian counts as a full batch, with a warning.

    Guarantees: no_amplified_cost_of_a_gaussian.

    Raises:
        NoCostInFilter, Unsupported: As `pure_dp_cost` does.

    >>> from accounting.events import Gaussian
    >>> gaussian_dp_cost((Event(Gaussian(4.0), count=8),), NeighboringRelation.REPLACE_ONE).amounts
    (2000000000,)
    """
    events = checked(events, relation, "gaussian_dp")
    return Cost((to_nano_up(total(events, relation, mu_squared).most),), unamplified(events, "gaussian_dp"))


def mu_squared(event: Event, relation: NeighboringRelation) -> Between:
    """Return mu squared of one step of a resolved event; a sampled Gaussian's is that of a full batch."""
    return rules_of(event.mechanism).mu_squared(event.mechanism, ChargedStep(event, relation))


@dataclass(frozen=True)
class GaussianDpFilter(PrivacyFilter):
    """A budget in mu of Gaussian DP. The squares of the charges' mu add up, even if charges are chosen adaptively.

    Attributes:
        mu: The guarantee of all charges together.
        caps: mu squared in nano-units.

    Source: Smith & Thakurta 2022, "Fully Adaptive Composition for Gaussian Differential Privacy"; Koskela, Tobaben &
    Honkela 2023, "Individual Privacy Accounting with Gaussian Differential Privacy".

    >>> GaussianDpFilter(0.5).caps, GaussianDpFilter(0.5).describe((160_000_000,))
    ((250000000,), {'mu': '0.4', 'mu_squared': '0.16'})
    """

    kind: ClassVar[str] = "gaussian_dp"
    limits = ("mu",)
    mu: float
    caps: Amounts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        mu = read_limit("mu", self.mu, largest=math.sqrt(MAX_LIMIT))
        cap = to_nano_down(exact(mu) ** 2)
        if cap == 0:
            raise InvalidValue(
                f"mu must be at least 3.2e-5, because mu squared is counted in units of 1e-9; got {mu!r}",
                pointer=("mu",),
            )
        object.__setattr__(self, "mu", mu)
        object.__setattr__(self, "caps", (cap,))

    def cost(self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None) -> Cost:
        return gaussian_dp_cost(check_events(events), relation)

    def least_cost(
        self, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float | None = None
    ) -> Amounts:
        """Return the sum of the costs of the steps, each reduced by its rounding allowance, rounded up to whole
        units."""
        steps = checked(check_events(events), relation, self.kind)
        return (to_nano_up(total(steps, relation, mu_squared).least),)

    def _epsilon_at(self, amounts: Amounts, delta: float) -> float | None:
        """Return the epsilon of the Gaussian mechanism with the charges' mu, which attains it; None at delta 0."""
        if amounts[0] >= SATURATED or delta == 0.0:
            return None
        return GaussianRegion(root_rounded_up(Fraction(amounts[0], NANO))).epsilon(delta)

    def stated(self, amounts: Amounts) -> int:
        """Return mu; `SATURATED` if it is not known."""
        return SATURATED if amounts[0] >= SATURATED else _root_down(amounts[0] * NANO - 1) + 1

    def describe(self, amounts: Amounts) -> dict[str, Json]:
        """Return mu squared exactly, and mu rounded up to 1e-9."""
        return {"mu": from_nano(self.stated(amounts)), "mu_squared": from_nano(amounts[0])}

    def describe_remaining(self, used: Amounts) -> dict[str, Json]:
        """Return mu squared exactly; ``mu`` is the limit minus the mu used. It does not say how large the next charge
        may be."""
        return {"mu": from_nano(self.left(used)), "mu_squared": from_nano(self.remaining(used)[0])}

    def describe_limit(self) -> dict[str, Json]:
        """Return the limit as it was given, to nine decimals, and the cap that is kept."""
        return {"mu": from_nano(self.stated_limit), "mu_squared": from_nano(self.caps[0])}


def _root_down(square: int) -> int:
    """Return the largest integer whose square is at most ``square``; -1 below zero."""
    return math.isqrt(square) if square >= 0 else -1
