"""Events as the HTTP contract writes them, and their conversion to the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from accounting.errors import Pointer, inside
from accounting.events import MECHANISMS, SAMPLINGS, Event, FullBatch, check_events
from accounting.events.mechanism import NoiseMultiplier
from accounting.numbers import MAX_COUNT, MAX_EVENTS
from app.kit.fields import Integer, Schema
from app.problems import refused_at
from app.wire.described import DescribedSchema, field_of, record_of, schema_of_any

if TYPE_CHECKING:  # type checkers cannot follow how the schemas are made
    MechanismSchema = DescribedSchema
    SamplingSchema = DescribedSchema
    NoiseMultiplierField = float
else:
    MechanismSchema = schema_of_any(MECHANISMS, "Schema", "Mechanism")
    SamplingSchema = schema_of_any(SAMPLINGS, "Schema", "Sampling")
    NoiseMultiplierField = field_of(NoiseMultiplier)


class EventSchema(Schema):
    """`count` steps of one mechanism on inputs that are sampled in one way."""

    mechanism: MechanismSchema
    sampling: SamplingSchema = Field({"kind": FullBatch.kind}, validate_default=True)
    count: Integer = Field(1, ge=1, le=MAX_COUNT, description="Number of steps.")

    @classmethod
    def of(cls, event: Event) -> EventSchema:
        """Return the engine's event as the contract writes it."""
        return cls.model_validate(event.to_json())

    def to_event(self) -> Event:
        """Return the engine's event.

        Raises:
            AccountingError: numbers that contradict each other, or no theorem covers this mechanism with this sampling.
        """
        with inside("mechanism"):
            mechanism = record_of(self.mechanism, MECHANISMS)
        with inside("sampling"):
            sampling = record_of(self.sampling, SAMPLINGS)
        return Event(mechanism, sampling, self.count)


Events = Annotated[
    list[EventSchema], Field(min_length=1, max_length=MAX_EVENTS, description="What is released, step by step.")
]


def to_events(schemas: Sequence[EventSchema], *pointer: str | int) -> tuple[Event, ...]:
    """Return the engine's events.

    Args:
        schemas: The events of a request.
        pointer: The place of the list in the request body; by default ``events``.

    Raises:
        Problem: 422 at the event that has no proof.
    """
    place: Pointer = pointer or ("events",)
    events: list[Event] = []
    for index, schema in enumerate(schemas):
        with refused_at(*place, index):
            events.append(schema.to_event())
    with refused_at(*place):
        return check_events(events)
