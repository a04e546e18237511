"""Event and relation in, privacy loss of the dominating pair out: the one thing that composition sees.

A pair (P, Q) has the privacy loss L = log dP/dQ under P. Its profile is delta(eps) = E_P (1 - e^(eps - L))_+ and its
log-moment function is K(x) = log E_P e^(x L), x > 0, which is x times the Renyi divergence of order x + 1. Both
directions (P, Q) and (Q, P) belong to a guarantee; `DIRECTIONS` lists them where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accounting.events import (
    ApproximateDp,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RenyiDp,
    WithoutReplacement,
    ZcDp,
    check_events,
    group_events,
)
from accounting.failure import Failure
from accounting.mechanisms.gaussian import GaussianLoss
from accounting.mechanisms.laplace import LaplaceLoss
from accounting.mechanisms.plain import ApproximateDpLoss, RandomizedResponseLoss, RenyiCurveLoss, ZcdpLoss
from accounting.mechanisms.support import Support
from accounting.relations import NeighboringRelation
from accounting.sampling.laplace import PoissonLaplaceLoss, PoissonLaplaceReplaceLoss
from accounting.sampling.poisson import PoissonGaussianLoss, PoissonReplaceLoss
from accounting.sampling.schedules import charged_sensitivity, check_relation, resolve_schedules
from accounting.sampling.without_replacement import SymmetrizedLoss

Array = NDArray[np.float64]


class Direction(Enum):
    """Which of two neighbours is P. Named after what happens to the record on the way from P to Q."""

    REMOVE = "remove"
    ADD = "add"


class PrivacyLoss(Protocol):
    """The loss of one step.

    Attributes:
        pure_epsilon: Largest possible loss in either direction; inf where there is none.
        symmetric: Both directions have the same law, so that one is enough.
        has_pair: Whether one pair dominates the mechanism; without it only moments are known.
    """

    @property
    def pure_epsilon(self) -> float: ...
    @property
    def symmetric(self) -> bool: ...
    @property
    def has_pair(self) -> bool: ...

    def log_moment(self, tilts: Array) -> Array:
        """K(x) of the worse direction for every x > 0 in ``tilts``, rounded up; inf where it is not tried."""

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        """delta(eps) - max(0, 1 - e^eps) of one direction, relatively accurate for either sign of eps.

        For eps >= 0 this is the profile; for eps < 0 it is e^eps times the other direction's profile at -eps.
        """

    def support(self, log_mass: float, *, remove: bool) -> Support:
        """Where the loss lies, up to P-mass e^log_mass on each side."""


@dataclass(frozen=True, slots=True)
class Composition:
    """Independent steps, grouped.

    Attributes:
        steps: Each loss with the number of its steps, given that none fails.
        failure: Probability that a step with a stated delta fails outright; the losses are those of the others.
    """

    steps: tuple[tuple[PrivacyLoss, int], ...]
    failure: Failure = field(default_factory=Failure)

    @property
    def count(self) -> int:
        """Number of steps after grouping; full-batch Gaussians count as one."""
        return sum(count for _, count in self.steps)

    @property
    def directions(self) -> tuple[Direction, ...]:
        if all(loss.symmetric for loss, _ in self.steps):
            return (Direction.REMOVE,)
        return (Direction.REMOVE, Direction.ADD)

    @property
    def has_pairs(self) -> bool:
        return all(loss.has_pair for loss, _ in self.steps)

    def log_moment(self, tilts: Array) -> Array:
        """Upper bound of K of the whole composition; shape of ``tilts``."""
        total = np.zeros_like(tilts)
        for loss, count in self.steps:
            total = total + count * loss.log_moment(tilts)
        return total * (1.0 + 1e-15 * len(self.steps))

    @property
    def gaussian_only(self) -> GaussianLoss | None:
        """The composition as one Gaussian pair, when it is one."""
        loss, count = self.steps[0]
        return loss if len(self.steps) == 1 and count == 1 and isinstance(loss, GaussianLoss) else None


def loss_of(event: Event, relation: NeighboringRelation) -> PrivacyLoss:
    """The loss of one step of ``event``; a step of a fixed schedule counts as a full batch.

    Guarantees: dominates_every_neighbour: the pair's hockey-stick divergence of every order is at least that of any
    two neighbours' outputs (Gaussian and Laplace: shift of the largest norm; sampled: the theorems in
    `sampling.poisson`, `sampling.laplace` and `sampling.without_replacement`; stated guarantees: `mechanisms.plain`).

    Raises:
        Unsupported: the scheme is not accounted under the relation.
    """
    mechanism, sampling = event.mechanism, event.sampling
    check_relation(sampling, relation)
    if not isinstance(mechanism, Gaussian | Laplace):
        return _stated(mechanism)
    sensitivity = charged_sensitivity(sampling, relation)
    if isinstance(sampling, Poisson | WithoutReplacement) and is_amplified(event):
        return _sampled(mechanism, sampling, relation, sensitivity)
    if isinstance(mechanism, Laplace):
        return LaplaceLoss(sensitivity / mechanism.noise_multiplier)
    return GaussianLoss(sensitivity / mechanism.noise_multiplier)


def _sampled(
    mechanism: Gaussian | Laplace,
    sampling: Poisson | WithoutReplacement,
    relation: NeighboringRelation,
    sensitivity: float,
) -> PrivacyLoss:
    """The loss of a step on a part of the records, drawn anew at every step."""
    noise, probability = mechanism.noise_multiplier, sampling.sampling_probability
    laplace = isinstance(mechanism, Laplace)
    if isinstance(sampling, Poisson) and relation is NeighboringRelation.REPLACE_ONE:
        # The pair is between contributions of length 1 in opposite directions.
        return (
            PoissonLaplaceReplaceLoss(1.0 / noise, probability) if laplace else PoissonReplaceLoss(noise, probability)
        )
    pair: PoissonGaussianLoss | PoissonLaplaceLoss = PoissonGaussianLoss(noise / sensitivity, probability)
    if laplace:
        pair = PoissonLaplaceLoss(sensitivity / noise, probability)
    return SymmetrizedLoss(pair) if isinstance(sampling, WithoutReplacement) else pair


def _stated(mechanism: PureDp | ApproximateDp | ZcDp | RenyiDp) -> PrivacyLoss:
    """The loss of a guarantee that is taken as stated."""
    if isinstance(mechanism, PureDp):
        return RandomizedResponseLoss(mechanism.epsilon)
    if isinstance(mechanism, ApproximateDp):
        return ApproximateDpLoss(mechanism.epsilon, mechanism.delta)
    if isinstance(mechanism, ZcDp):
        return ZcdpLoss(mechanism.rho)
    return RenyiCurveLoss(mechanism.orders, mechanism.epsilons)


def compose(events: Sequence[Event], relation: NeighboringRelation) -> Composition:
    """The losses of a list of events; all full-batch Gaussians become one with mu^2 = sum of count / scale^2.

    Fixed schedules are resolved first, event by event, and equal steps are counted together after that: two schedules
    of half an epoch each are two participations, not one.

    Guarantees: schedules_never_merge; sampling_everything_is_a_full_batch.

    Raises:
        Unsupported: a scheme is not accounted under the relation; the pointer begins with the event's index.
    """
    mu_squared: list[float] = []
    steps: list[tuple[PrivacyLoss, int]] = []
    failures: list[tuple[float, int]] = []
    for event in group_events(resolve_schedules(check_events(events), relation)):
        loss = loss_of(event, relation)
        if isinstance(loss, GaussianLoss):
            mu_squared.append(event.count * loss.mu * loss.mu)
            continue
        if isinstance(loss, ApproximateDpLoss):
            failures.append((loss.delta, event.count))
            loss = loss.without_failure
        steps.append((loss, event.count))
    if mu_squared:
        steps.append((GaussianLoss(math.sqrt(math.fsum(mu_squared))), 1))
    return Composition(tuple(steps), Failure.of(failures))


def is_amplified(event: Event) -> bool:
    """Whether sampling hides the event's records: a sampling probability below 1, drawn anew at every step."""
    return isinstance(event.sampling, Poisson | WithoutReplacement) and event.sampling.sampling_probability < 1.0
