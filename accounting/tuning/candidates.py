"""One list of events that bounds each of several candidates, which the cost of a selection among them requires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from accounting.errors import Unsupported
from accounting.events import Event, Gaussian, Laplace


def bounding_events(candidates: Sequence[Sequence[Event]]) -> tuple[Event, ...]:
    """Return events from which every candidate follows by post-processing: the same steps with less noise, or more
    steps.

    A step with more Gaussian or Laplace noise is a step with less noise plus further noise; fewer steps are the first
    of more steps. So the list's deltas and Renyi divergences are at least those of each candidate, and of a mixture of
    them.

    Args:
        candidates: Lists of the same length whose events agree in sampling and mechanism, except for noise multipliers
            and counts.

    Guarantees: bounds_each_candidate.

    Raises:
        Unsupported: With code ``candidates_differ``, if nothing here bounds all candidates. The pointer has the
            candidate's index.

    >>> few, many = [Event(Gaussian(1.0), count=10)], [Event(Gaussian(2.0), count=30)]
    >>> bounding_events([few, many])
    (Event(mechanism=Gaussian(noise_multiplier=1.0), sampling=FullBatch(), count=30),)
    """
    first, *others = [tuple(events) for events in candidates]
    for index, events in enumerate(others, 1):
        if len(events) != len(first):
            raise _differ(index, "the candidates have different numbers of phases")
        first = tuple(_bound(index, one, other) for one, other in zip(first, events, strict=True))
    return first


def _bound(index: int, one: Event, other: Event) -> Event:
    count = max(one.count, other.count)
    if one.sampling != other.sampling:
        raise _differ(index, "the candidates' samplings differ (a different batch size is a different sampling)")
    if one.mechanism == other.mechanism:
        return replace(one, count=count)
    a, b = one.mechanism, other.mechanism
    if isinstance(a, Gaussian) and isinstance(b, Gaussian):
        return Event(Gaussian(min(a.noise_multiplier, b.noise_multiplier)), one.sampling, count)
    if isinstance(a, Laplace) and isinstance(b, Laplace):
        return Event(Laplace(min(a.noise_multiplier, b.noise_multiplier)), one.sampling, count)
    raise _differ(
        index, ("the candidates' mechanisms differ in more than the noise multiplier of Gaussian or Laplace noise")
    )


def _differ(index: int, why: str) -> Unsupported:
    return Unsupported(
        f"no single list of events bounds every candidate: {why}. Candidates may differ in everything that does "
        "not change the events, such as the step size and the clip threshold. They may also differ in noise and "
        "in numbers of steps: the most expensive value of each is charged",
        code="candidates_differ",
        pointer=(index,),
    )
