"""The participations of one record, and the checks that refuse schedules and mechanisms under a relation.

A schedule that is fixed in advance hides nothing: a record that takes part in n steps costs n full batches.
`accounting.events.samplings` resolves the steps of each sampling; this module resolves lists of events.
"""

from __future__ import annotations

from collections.abc import Sequence

from accounting.errors import Unsupported, inside, one_of
from accounting.events.event import Event
from accounting.events.samplings import DisjointBatches, FullBatch, Poisson
from accounting.relations import NeighboringRelation


def resolve_schedules(events: Sequence[Event], relation: NeighboringRelation) -> tuple[Event, ...]:
    """Return the list with every fixed schedule written as the full batches that one record takes part in.

    Two events are two schedules: a record may take part in both, whatever sampling each has.

    Guarantees: schedules_never_merge: participations are counted event by event, before equal events are grouped.

    Raises:
        Unsupported: If the scheme is not accounted under the relation. The pointer names the event.
    """
    resolved = []
    for index, event in enumerate(events):
        with inside(index):
            check_event(event, relation)
            resolved.append(resolve_schedule(event))
    return tuple(resolved)


def check_event(event: Event, relation: NeighboringRelation) -> None:
    """Refuse a scheme under a relation in which one record moves another, and a mechanism without a bound under the
    relation.

    Raises:
        Unsupported: If the scheme is not accounted; the detail says why, and what works.
    """
    sampling, mechanism = event.sampling, event.mechanism
    possible = sampling.relations
    if relation not in possible:
        or_poisson = ", or poisson sampling" if Poisson in mechanism.samplings else ""
        raise Unsupported(
            f"{sampling.kind} is not accounted under {relation}: {sampling.why_refused}. Use "
            f"{one_of([str(each) for each in possible])}{or_poisson}",
            code="unsupported_relation",
            pointer=("sampling", "kind"),
        )
    in_any_batch = isinstance(sampling, DisjointBatches) and sampling.assignment == "independent"
    if in_any_batch and relation is NeighboringRelation.REPLACE_ONE and not mechanism.parts_cost_less:
        raise Unsupported(
            f"{mechanism.kind} in disjoint batches with independent assignment is not accounted under {relation}: the "
            "record in another one's place may be in another batch, and two steps of this mechanism, each moved by one "
            "contribution, may cost more than one that is moved by two. Use assignment by_position, or "
            f"{one_of([str(each) for each in possible if each is not relation])}",
            code="unsupported_relation",
            pointer=("sampling", "assignment"),
        )
    if relation not in mechanism.relations:
        raise Unsupported(
            f"{mechanism.kind} is not accounted under {relation}: {mechanism.why_refused}. Use "
            f"{one_of([str(each) for each in mechanism.relations])}",
            code="unsupported_relation",
            pointer=("mechanism", "kind"),
        )


def resolve_schedule(event: Event) -> Event:
    """Return one event as the steps in which a record takes part, for every relation under which it is accounted.

    `Poisson` and `WithoutReplacement` samples of less than all records stay as they are, and allocations stay whole.
    """
    mechanism, sampling, count = event.mechanism.resolved(event.sampling, event.count)
    if mechanism is event.mechanism and sampling is event.sampling and count == event.count:
        return event
    return Event(mechanism, sampling, count)


def is_sampled(event: Event) -> bool:
    """Return whether an event of a resolved list is sampled: every other schedule has become full batches."""
    return not isinstance(event.sampling, FullBatch)
