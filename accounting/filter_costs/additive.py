"""Costs in pure_dp, zcdp and gaussian_dp budgets: one number per step, added up."""

from __future__ import annotations

from fractions import Fraction

from accounting.events import Event, Gaussian, Laplace, PureDp, ZcDp
from accounting.filter_costs.gaussian_mu import mu_of_laplace, mu_of_pure_dp
from accounting.filter_costs.table import (
    NO_AMPLIFICATION,
    Cost,
    CostWarning,
    checked,
    exact,
    is_sampled,
    rounded_up,
    total,
)
from accounting.mechanisms.laplace import LaplaceLoss
from accounting.mechanisms.plain import RandomizedResponseLoss
from accounting.privacy_loss import loss_of
from accounting.relations import NeighboringRelation
from accounting.units import to_nano_up

_NAMES = {"zcdp": "zCDP", "gaussian_dp": "Gaussian DP"}


def pure_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation) -> Cost:
    """Sum of epsilons.

    Args:
        events: 1 to `MAX_EVENTS`, of one reservation.
        relation: Of the budget.

    Returns:
        Nano-units of epsilon, rounded up.

    Raises:
        NoCostInFilter: an event has no cost in the filter; the detail names the filters in which it has.
        Unsupported: a sampling is not accounted under the relation.

    >>> pure_dp_cost((Event(Laplace(4.0), count=3),), NeighboringRelation.REPLACE_ONE).amounts
    (1500000000,)
    """
    return Cost((to_nano_up(total(checked(events, relation, "pure_dp"), relation, pure_epsilon)),))


def zcdp_cost(events: tuple[Event, ...], relation: NeighboringRelation) -> Cost:
    """Sum of rhos; a sampled Gaussian counts as a full batch, with a warning.

    Guarantees: no_amplified_cost_of_a_gaussian.

    Raises:
        NoCostInFilter, Unsupported: as `pure_dp_cost`.

    >>> zcdp_cost((Event(Gaussian(4.0), count=8),), NeighboringRelation.REPLACE_ONE).amounts
    (1000000000,)
    """
    events = checked(events, relation, "zcdp")
    return Cost((to_nano_up(total(events, relation, zcdp_rho)),), _unamplified(events, "zcdp"))


def gaussian_dp_cost(events: tuple[Event, ...], relation: NeighboringRelation) -> Cost:
    """Sum of squares of mu; a sampled Gaussian counts as a full batch, with a warning.

    Guarantees: no_amplified_cost_of_a_gaussian.

    Raises:
        NoCostInFilter, Unsupported: as `pure_dp_cost`.

    >>> gaussian_dp_cost((Event(Gaussian(4.0), count=8),), NeighboringRelation.REPLACE_ONE).amounts
    (2000000000,)
    """
    events = checked(events, relation, "gaussian_dp")
    return Cost((to_nano_up(total(events, relation, _mu_squared)),), _unamplified(events, "gaussian_dp"))


def pure_epsilon(event: Event, relation: NeighboringRelation) -> Fraction:
    """Largest loss of one step of a pure or Laplace event; sampled, never more than without sampling."""
    mechanism = event.mechanism
    if isinstance(mechanism, PureDp):
        return exact(mechanism.epsilon)
    assert isinstance(mechanism, Laplace)
    full = exact(relation.sensitivity) / exact(mechanism.noise_multiplier)
    return min(full, rounded_up(loss_of(event, relation).pure_epsilon)) if is_sampled(event) else full


def zcdp_rho(event: Event, relation: NeighboringRelation) -> Fraction:
    """Of one step. A sampled step reveals no more than the unsampled one: divergences are jointly quasi-convex."""
    mechanism, sensitivity = event.mechanism, exact(relation.sensitivity)
    if isinstance(mechanism, Gaussian):
        return (sensitivity / exact(mechanism.noise_multiplier)) ** 2 / 2
    if isinstance(mechanism, ZcDp):
        return exact(mechanism.rho)
    if isinstance(mechanism, PureDp):
        return rounded_up(RandomizedResponseLoss(mechanism.epsilon).zcdp_rho)
    assert isinstance(mechanism, Laplace)
    full = rounded_up(LaplaceLoss(relation.sensitivity / mechanism.noise_multiplier).zcdp_rho)
    if not is_sampled(event):
        return full
    return min(full, rounded_up(RandomizedResponseLoss(loss_of(event, relation).pure_epsilon).zcdp_rho))


def _mu_squared(event: Event, relation: NeighboringRelation) -> Fraction:
    """Of one step. A sampled step reveals no more than the unsampled one: trade-off functions are convex."""
    mechanism, sensitivity = event.mechanism, exact(relation.sensitivity)
    if isinstance(mechanism, Gaussian):
        return (sensitivity / exact(mechanism.noise_multiplier)) ** 2
    if isinstance(mechanism, PureDp):
        return rounded_up(mu_of_pure_dp(mechanism.epsilon) ** 2)
    assert isinstance(mechanism, Laplace)
    full = rounded_up(mu_of_laplace(relation.sensitivity / mechanism.noise_multiplier) ** 2)
    if not is_sampled(event):
        return full
    return min(full, rounded_up(mu_of_pure_dp(loss_of(event, relation).pure_epsilon) ** 2))


def _unamplified(events: tuple[Event, ...], kind: str) -> tuple[CostWarning, ...]:
    if not any(is_sampled(event) and isinstance(event.mechanism, Gaussian) for event in events):
        return ()
    detail = (
        f"Sampling does not lower the cost in a {kind} budget: no amplified {_NAMES[kind]} holds for a sampled "
        "Gaussian, so it is charged as if every record took part in every step. A renyi_dp budget charges the "
        "amplified cost."
    )
    return (CostWarning(NO_AMPLIFICATION, detail),)
