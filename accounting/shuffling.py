"""Shuffled epochs: a lower bound of their cost, and the cost of the same training with other batches.

No upper bound below the cost of a full batch for each pass is proved for them, so they are charged that cost. Two pairs
give lower bounds. They are attained under `replace_special`, and under `replace_one`, where the other record may be
null:

* all other contributions are 0: one step among the t of a pass, the pair of random allocation;
* all others pull the other way: see `accounting.losses.largest_coordinate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from accounting.accountant import epsilon_for_delta, epsilon_of_composition
from accounting.composition.composition import Composition, compose
from accounting.events import Event, Gaussian, Poisson, RandomAllocation, ShuffledEpochs
from accounting.intervals import Answer
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.largest_coordinate import LargestCoordinateLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.random_allocation import block_steps
from accounting.relations import NeighboringRelation

#: The most by which rounding makes the second pair's number too high: its masses are right to about 1e-12.
_ALLOWANCE = 1e-7


@dataclass(frozen=True, slots=True)
class Shuffling:
    """Facts about a list with shuffled epochs.

    Attributes:
        attained: A lower bound of the list's epsilon.
        allocated: The cost if each record drew its own step of every pass; None if that has no number.
        poisson: The cost if batches of the same size were Poisson samples; None if that has no number.
    """

    attained: float
    allocated: Answer | None
    poisson: Answer | None

    @property
    def poisson_is_refuted(self) -> bool:
        """Return whether the number for Poisson batches is below the lower bound of the list's cost."""
        return self.poisson is not None and self.poisson.value.upper < self.attained


def is_shuffled(event: Event) -> bool:
    """Return whether an event consists of Gaussian steps in shuffled passes of several batches."""
    sampling = event.sampling
    return (
        isinstance(event.mechanism, Gaussian) and isinstance(sampling, ShuffledEpochs) and sampling.steps_per_epoch > 1
    )


def about_shuffling(events: Sequence[Event], relation: NeighboringRelation, delta: float) -> Shuffling | None:
    """Compare a list's cost with that of other batches; return None if it has no shuffled epochs with Gaussian noise.

    Args:
        delta: The delta of the comparison, in (0, 1).

    Guarantees: attained_is_no_more_than_the_cost.

    >>> loop = [Event(Gaussian(1.0), ShuffledEpochs(1000), 1000)]
    >>> found = about_shuffling(loop, NeighboringRelation.REPLACE_SPECIAL, 1e-6)
    >>> round(found.attained, 3), found.poisson_is_refuted, round(found.allocated.value.upper, 3)
    (3.724, True, 0.172)
    """
    if not any(map(is_shuffled, events)):
        return None
    bounds = [epsilon_of_composition(_shown(events, relation, largest=largest), delta) for largest in (False, True)]
    lowers = [bounds[0].value.lower, bounds[1].value.lower * (1.0 - _ALLOWANCE) - 1e-9]
    allocated = poisson = None
    if relation in RandomAllocation.relations:
        allocated = epsilon_for_delta([_allocated(event) for event in events], relation, delta)
    if relation is not NeighboringRelation.REPLACE_ONE:
        poisson = epsilon_for_delta([_as_poisson(event) for event in events], relation, delta)
    return Shuffling(max(0.0, *lowers), allocated, poisson)


def _allocated(event: Event) -> Event:
    sampling = event.sampling
    if not is_shuffled(event) or not isinstance(sampling, ShuffledEpochs):
        return event
    return replace(event, sampling=RandomAllocation(sampling.steps_per_epoch, 1))


def _as_poisson(event: Event) -> Event:
    sampling = event.sampling
    if not is_shuffled(event) or not isinstance(sampling, ShuffledEpochs):
        return event
    return replace(event, sampling=Poisson(1.0 / sampling.steps_per_epoch))


def _shown(events: Sequence[Event], relation: NeighboringRelation, *, largest: bool) -> Composition:
    """Return the least that each pass reveals, computed in one of two ways; the second one counts only whole passes."""
    others = [event for event in events if not is_shuffled(event)]
    rest = compose(others, relation) if others else Composition(())
    numbers: dict[PrivacyLoss, int] = {}
    for event in events:
        mechanism, sampling = event.mechanism, event.sampling
        if not (isinstance(mechanism, Gaussian) and isinstance(sampling, ShuffledEpochs) and is_shuffled(event)):
            continue
        noise, batches = mechanism.noise_multiplier, sampling.steps_per_epoch
        steps: Sequence[tuple[PrivacyLoss, int]] = block_steps(noise, batches, 1, event.count)
        if largest:
            whole = event.count // batches
            steps = [(LargestCoordinateLoss(noise, batches), whole)] if whole else []
        for loss, number in steps:
            numbers[loss] = numbers.get(loss, 0) + number
    steps_of_all = (*rest.steps, *numbers.items())
    # For a list that is only a part of a pass, the second way gives nothing.
    return Composition(steps_of_all or ((GaussianLoss(1e-12), 1),), rest.failure, rest.discrepancy)
