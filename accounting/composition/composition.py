"""This module makes the form in which evaluators see a list: independent steps with their losses, from events and a
relation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from accounting.discrepancy import Discrepancy
from accounting.errors import InvalidValue
from accounting.events import Event, check_events, group_events
from accounting.events.schedules import resolve_schedules
from accounting.failure import Failure
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.privacy_loss import Direction, PrivacyLoss
from accounting.losses.rules import loss_of, sampling_rules_of
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Composition:
    """Independent steps, grouped.

    Attributes:
        steps: Each loss with the number of its steps. The losses are those of steps that do not fail.
        failure: Probability that a step with a stated delta fails outright; the losses are those of the others.
        discrepancy: How far the list may be from the steps that stand for it.
        from_below: The composition from which lower ends are computed, if the steps may cost a little more than the
            list.
    """

    steps: tuple[tuple[PrivacyLoss, int], ...]
    failure: Failure = field(default_factory=Failure)
    discrepancy: Discrepancy = field(default_factory=Discrepancy)
    from_below: Composition | None = None

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
        """Return an upper bound of the whole composition's log-moment K at each tilt, in the shape of ``tilts``."""
        total = np.zeros_like(tilts)
        for loss, count in self.steps:
            total = total + count * loss.log_moment(tilts)
        return total * (1.0 + 1e-15 * len(self.steps))

    @property
    def gaussian_only(self) -> GaussianLoss | None:
        """The composition as one Gaussian pair; None if it is not Gaussian."""
        loss, count = self.steps[0]
        alone = len(self.steps) == 1 and count == 1 and not self.discrepancy
        return loss if alone and isinstance(loss, GaussianLoss) else None

    @property
    def has_mixtures(self) -> bool:
        return any(loss.is_mixture for loss, _ in self.steps)

    def without_rare_branches(self, mass: float) -> Composition:
        """Leave out the rarest branches of mixtures, whose moments may explode; this changes delta by ``mass`` at most.

        The output shows which branch is taken, and the branch does not depend on the data. If no step takes a rare
        branch, nothing else changes. So the profile changes by at most the probability that some step takes a rare
        branch.

        Guarantees: rare_branches_weigh_what_is_said_and_are_paid_for.
        """
        steps: list[tuple[PrivacyLoss, int]] = []
        discrepancy = self.discrepancy
        for loss, count in self.steps:
            kept, dropped = loss.without_rare_branches(mass / count / len(self.steps))
            discrepancy = discrepancy.plus(Discrepancy.of_common_branch(dropped, count))
            steps.append((kept, count))
        return Composition(tuple(steps), self.failure, discrepancy)


def compose(events: Sequence[Event], relation: NeighboringRelation, *, runs: int = 1) -> Composition:
    """Return the losses of a list of events. All full-batch Gaussians become one, with mu^2 = sum of count / scale^2.

    Fixed schedules are resolved first, event by event. Only then are equal steps counted together. So two schedules of
    half an epoch each count as two participations.

    Args:
        runs: Number of times that the whole list is run, one after another; every run has its own schedules.

    Guarantees: schedules_never_merge; sampling_everything_is_a_full_batch; runs_are_the_list_repeated: to the bit.

    Raises:
        Unsupported: If a scheme is not accounted under the relation. The pointer begins with the event's index.
        InvalidValue: If the runs have more than `MAX_COUNT` equal steps. The pointer is ``runs``.

    >>> from accounting.events import Gaussian, ShuffledEpochs
    >>> epoch_and_a_half = [Event(Gaussian(1.0), ShuffledEpochs(10), 15)]
    >>> compose(epoch_and_a_half, NeighboringRelation.REPLACE_SPECIAL, runs=2).gaussian_only
    GaussianLoss(mu=2.0)
    """
    checked = check_events(events)
    composition = _composed(checked, relation, runs)
    mechanisms = [event.mechanism.from_below for event in checked]
    if all(least is event.mechanism for least, event in zip(mechanisms, checked, strict=True)):
        return composition
    # Events without a lower bound are left out here, because each costs at least 0.
    known = [(event, least) for event, least in zip(checked, mechanisms, strict=True) if least is not None]
    below = [replace(event, mechanism=least) for event, least in known]
    return replace(composition, from_below=_composed(below, relation, runs) if below else Composition(()))


def _composed(checked: Sequence[Event], relation: NeighboringRelation, runs: int) -> Composition:
    mu_squared: list[float] = []
    steps: list[tuple[PrivacyLoss, int]] = []
    failures: list[tuple[float, int]] = []
    resolved = resolve_schedules(checked, relation)
    own, alike = _steps_by_event(checked, resolved)
    for loss, number in own:
        if isinstance(loss, GaussianLoss):
            mu_squared.append(_in_all(number, runs) * loss.mu * loss.mu)
        else:
            steps.append((loss, _in_all(number, runs)))
    discrepancy = Discrepancy()
    for grouped in group_events(alike):
        whole = grouped if runs == 1 else replace(grouped, count=_in_all(grouped.count, runs))
        event, off = sampling_rules_of(whole.sampling).stand_in(whole, whole.sampling)
        discrepancy = discrepancy.plus(off)
        loss = loss_of(event, relation)
        if isinstance(loss, GaussianLoss):
            mu_squared.append(event.count * loss.mu * loss.mu)
            continue
        failures.append((loss.failure_probability, event.count))
        steps.append(loss.without_failure.repeated(event.count))
    if mu_squared:
        steps.append((GaussianLoss(math.sqrt(math.fsum(mu_squared))), 1))
    return Composition(tuple(steps), Failure.of(failures), discrepancy)


def _in_all(count: int, runs: int) -> int:
    """Return the steps of all runs. Counts must not be multiplied before schedules are resolved."""
    if count * runs > MAX_COUNT:
        raise InvalidValue(f"together the runs have more than {MAX_COUNT} equal steps", pointer=("runs",))
    return count * runs


def _steps_by_event(
    events: Sequence[Event], resolved: Sequence[Event]
) -> tuple[list[tuple[PrivacyLoss, int]], list[Event]]:
    """Split a list into two parts: the steps of events that are counted one by one, and the events that are counted
    together with equal events.
    """
    counts: dict[PrivacyLoss, int] = {}
    alike = []
    for event, whole in zip(events, resolved, strict=True):
        steps = sampling_rules_of(whole.sampling).steps(whole.mechanism, whole.sampling, event.count)
        if steps is None:
            alike.append(whole)
            continue
        for loss, number in steps:
            counts[loss] = counts.get(loss, 0) + number
    return list(counts.items()), alike
