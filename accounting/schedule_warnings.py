"""Warnings that belong beside the numbers of some sampling schemes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.errors import InvalidValue
from accounting.events import (
    Event,
    Poisson,
    ShuffledEpochs,
    ShuffleModel,
)
from accounting.relations import NeighboringRelation

#: The epsilon above which there is a warning.
LARGE_EPSILON = 20.0


def schedule_warnings(
    events: Sequence[Event],
    relation: NeighboringRelation,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
) -> tuple[str, ...]:
    """Return sentences about the list's sampling schemes: what is charged, what is required, and which number is not
    valid.

    Args:
        events: The list, accounted under ``relation``.
        relation: the neighbouring relation.
        delta, epsilon: Exactly one of them, at which Poisson's number is shown for shuffled epochs.

    Guarantees: poisson_is_shown_only_as_not_valid: its number is in the sentence that refuses it, and nowhere else;
    same_randomiser_is_said_to_be_required: whenever shuffled messages are accounted.

    >>> from accounting.events import Gaussian
    >>> [warning] = schedule_warnings(
    ...     [Event(Gaussian(0.5), ShuffledEpochs(10_000), 10_000)], NeighboringRelation.REPLACE_SPECIAL, delta=1e-6
    ... )
    >>> "not valid" in warning, "1.95" in warning
    (True, True)
    """
    if (delta is None) == (epsilon is None):
        raise InvalidValue("give delta or epsilon, exactly one of them")
    warnings = []
    fixed_size = [index for index, event in enumerate(events) if _is_charged_as_replaced(event)]
    if fixed_size and relation is NeighboringRelation.REPLACE_SPECIAL:
        warnings.append(
            f"Batches of a fixed size ({_named(fixed_size)}) are charged as replace_one, with sensitivity 2: a "
            "null record in such a batch counts as another record, because no closer pair of distributions is "
            "proved."
        )
    shuffled = [index for index, event in enumerate(events) if hides_nothing(event)]
    if shuffled:
        warnings.append(
            f"Shuffled epochs ({_named(shuffled)}) are accounted without amplification: a record takes part once "
            "in every epoch, whatever the order. The number for Poisson batches, "
            f"{_poisson_number(events, relation, delta, epsilon)}, is not valid for them."
        )
    requirement = same_randomizer_required(events)
    if requirement is not None:
        warnings.append(requirement)
    return tuple(warnings)


def same_randomizer_required(events: Sequence[Event]) -> str | None:
    """Return a sentence about the requirements of shuffled messages on their senders; None if there are no such
    messages."""
    messages = [index for index, event in enumerate(events) if isinstance(event.sampling, ShuffleModel)]
    if not messages:
        return None
    return (
        f"Shuffled messages ({_named(messages)}) are accounted for users who all apply the same local randomiser in a "
        "round. Where users have randomisers of their own, shuffling may hide nothing, and these numbers are not valid."
    )


def weak_guarantee(
    *, epsilon: float | None = None, delta: float | None = None, records: int | None = None
) -> list[str]:
    """Warn about a guarantee that promises little: a large epsilon, or a delta that allows publishing a record.

    Args:
        epsilon, delta: The guarantee, as far as it is known.
        records: Number of records, if it is public.

    >>> len(weak_guarantee(epsilon=25.0, delta=1e-3, records=1000)), weak_guarantee(epsilon=8.0, delta=1e-5)
    (2, [])
    """
    warnings = []
    if epsilon is not None and LARGE_EPSILON < epsilon < math.inf:
        warnings.append(
            f"epsilon {epsilon:.4g} is above {LARGE_EPSILON:g}: a guarantee of this size promises almost nothing "
            "to a record, unless an attack risk or an audit shows more."
        )
    if delta is not None and records is not None and delta * records >= 1.0:
        warnings.append(
            f"delta {delta:g} is at least 1/n for {records} records: it allows a mechanism that publishes one of them."
        )
    return warnings


def public_size(events: Sequence[Event]) -> int | None:
    """Return the largest number of records that a list names; None if it names none."""
    sizes = [getattr(event.sampling, "dataset_size", getattr(event.sampling, "num_users", None)) for event in events]
    return max((size for size in sizes if size is not None), default=None)


def _is_charged_as_replaced(event: Event) -> bool:
    null = NeighboringRelation.REPLACE_SPECIAL
    return event.sampling.charged_sensitivity(null, event.mechanism) > null.sensitivity


def hides_nothing(event: Event) -> bool:
    """Return whether the batches of an event have no amplification, but are often mistaken for Poisson batches."""
    return isinstance(event.sampling, ShuffledEpochs) and event.sampling.steps_per_epoch > 1


def _poisson_number(
    events: Sequence[Event], relation: NeighboringRelation, delta: float | None, epsilon: float | None
) -> str:
    """Return a sentence about the cost of the list if its batches were drawn anew at every step."""
    wrong = [
        Event(event.mechanism, Poisson(1.0 / event.sampling.steps_per_epoch), event.count)
        if isinstance(event.sampling, ShuffledEpochs)
        else event
        for event in events
    ]
    if delta is not None:
        return f"epsilon {epsilon_for_delta(wrong, relation, delta).value.upper:.4g} at delta {delta:g}"
    assert epsilon is not None
    return f"delta {delta_for_epsilon(wrong, relation, epsilon).value.upper:.4g} at epsilon {epsilon:g}"


def _named(indices: Sequence[int]) -> str:
    """Return the places of the events in words; if there are many, those of the first few."""
    shown = ", ".join(map(str, indices[:5])) + (", ..." if len(indices) > 5 else "")
    return f"{'event' if len(indices) == 1 else 'events'} {shown}"
