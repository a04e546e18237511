"""Predict whether the evaluation of a list of events takes milliseconds, or seconds to minutes."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.events import (
    ApproximateDp,
    DisjointBatches,
    Event,
    FullBatch,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RenyiDp,
    ShuffledEpochs,
    WithoutReplacement,
    ZcDp,
)

_MECHANISMS = (Gaussian, Laplace, PureDp, ApproximateDp, ZcDp, RenyiDp)
_SAMPLINGS = (FullBatch, Poisson, WithoutReplacement, ShuffledEpochs, DisjointBatches)

#: Each kind of step is integrated by itself, or its moments are found: a thousand kinds take seconds.
MOST_EVENTS = 16


def is_quick(events: Sequence[Event]) -> bool:
    """Return whether closed forms and contour integrals suffice, which almost always takes milliseconds.

    Other kinds of events need distributions that must first be enumerated, averaged or mixed, which takes longer. Long
    lists take long, too. A service should limit such lists.

    >>> from accounting.events import RandomAllocation
    >>> is_quick([Event(Gaussian(1.0), Poisson(0.01), 1000)]), is_quick([Event(Gaussian(1.0), RandomAllocation(9, 1))])
    (True, False)
    >>> is_quick([Event(Gaussian(1.0))] * 17)
    False
    """
    return len(events) <= MOST_EVENTS and all(
        isinstance(event.mechanism, _MECHANISMS) and isinstance(event.sampling, _SAMPLINGS) for event in events
    )
