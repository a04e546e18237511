"""The batches of a loader if a library's record does not name them: Poisson samples, or batches of shuffled data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, Poisson, ShuffledEpochs, group_events
from accounting.interoperability.difference import Difference

#: The most by which 1 / sampling probability may differ from a whole number of batches.
_WHOLE = 1e-6

SHUFFLED_CHARGED_AS_POISSON = Difference(
    "shuffled_charged_as_poisson",
    "The batches were cut from a shuffled data set, and the library charged them as Poisson samples. No amplification "
    "by shuffled batches is proved: each record takes part in one step of every epoch, and is charged so.",
    unsound=True,
)


class Batches(StrEnum):
    """The kind of batches that a loader made."""

    POISSON = "poisson"
    """`poisson_sampling=True`, the default."""
    SHUFFLED = "shuffled"
    """`poisson_sampling=False`, or any other loader that cuts a shuffled data set: no amplification."""


def taken_as(events: Sequence[Event], batches: Batches) -> tuple[Event, ...]:
    """Return events that are recorded as Poisson samples, without their order, as the loader really took them.

    Args:
        events: The events as recorded, with equal ones counted together.
        batches: The batches that the loader made.

    Guarantees: shuffled_is_never_amplified; epochs_are_never_cut: steps of several kinds are refused as shuffled, since
        steps that begin inside an epoch may extend over more epochs than their number suggests.

    Requires:
        Shuffled batches come in whole epochs, one after the other; the last one may be cut short.

    Raises:
        Unsupported: If shuffled batches are of steps of several kinds.
        InvalidValue: If the sampling probability of shuffled batches is not 1 over a whole number of batches.

    >>> from accounting.events import Gaussian
    >>> taken_as([Event(Gaussian(1.0), Poisson(0.01), 300)], Batches.SHUFFLED)[0].sampling
    ShuffledEpochs(steps_per_epoch=100)
    """
    if batches is Batches.SHUFFLED and sum(isinstance(event.sampling, Poisson) for event in events) > 1:
        raise Unsupported(
            "the record does not say in which order its steps were taken, and steps of several kinds may share epochs: "
            "state these steps as shuffled_epochs events, one for each part of an epoch with the same noise",
            pointer=("batches",),
        )
    return taken_in_order(events, batches)


def taken_in_order(events: Sequence[Event], batches: Batches) -> tuple[Event, ...]:
    """Return events that are recorded as Poisson samples in order, as the loader really took them.

    Args:
        events: The events as recorded, one after the other.
        batches: The batches that the loader made.

    Guarantees: shuffled_is_never_amplified; epochs_are_never_cut: noise that changes where an epoch ends begins other
        epochs, and noise that changes inside an epoch is refused, since it is not known which records meet which noise.

    Requires, Raises: As `taken_as`.

    >>> from accounting.events import Gaussian
    >>> epochs = [Event(Gaussian(1.0), Poisson(0.1), 20), Event(Gaussian(2.0), Poisson(0.1), 15)]
    >>> [(event.sampling, event.count) for event in taken_in_order(epochs, Batches.SHUFFLED)]
    [(ShuffledEpochs(steps_per_epoch=10), 20), (ShuffledEpochs(steps_per_epoch=10), 15)]
    """
    if batches is Batches.POISSON:
        return group_events(events)
    taken: list[Event] = []
    for event in events:
        shuffled = event
        if isinstance(event.sampling, Poisson):
            per_epoch = _per_epoch(event.sampling.sampling_probability)
            shuffled = replace(event, sampling=ShuffledEpochs(per_epoch))
        if taken and replace(taken[-1], count=1) == replace(shuffled, count=1):
            taken[-1] = replace(shuffled, count=taken[-1].count + shuffled.count)
            continue
        _check_epoch_ends(taken)
        taken.append(shuffled)
    return tuple(taken)


def _check_epoch_ends(taken: Sequence[Event]) -> None:
    """Refuse shuffled steps that change inside an epoch; return whether other steps may follow the last of them."""
    if not taken or not isinstance(taken[-1].sampling, ShuffledEpochs):
        return
    per_epoch = taken[-1].sampling.steps_per_epoch
    if inside := taken[-1].count % per_epoch:
        raise Unsupported(
            f"the noise or the sample rate changes after {inside} of the {per_epoch} batches of an epoch, and it is "
            "not known which records had met which noise: state these steps as shuffled_epochs "
            "events, one for each part of an epoch with the same noise",
            pointer=("batches",),
        )


def _per_epoch(probability: float) -> int:
    number = round(1.0 / probability)
    if abs(probability * number - 1.0) > _WHOLE:
        raise InvalidValue(
            f"batches of a shuffled data set have a sampling probability of 1/n, where n is the whole number of "
            f"batches in an epoch; {probability!r} does not have this form",
            pointer=("batches",),
        )
    return number
