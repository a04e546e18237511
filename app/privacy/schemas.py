"""Events as the HTTP contract writes them, and the way to the engine's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from accounting.errors import AccountingError, Pointer
from accounting.events import (
    Event,
    FullBatch,
    Gaussian,
    Laplace,
    Mechanism,
    Poisson,
    PureDp,
    Sampling,
    ZcDp,
    check_events,
)
from accounting.numbers import MAX_COUNT, MAX_EVENTS, MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from app.kit.fields import Integer, Schema
from app.problems import from_accounting

NoiseMultiplier = Annotated[
    float,
    Field(
        ge=MIN_NOISE_MULTIPLIER,
        le=MAX_NOISE_MULTIPLIER,
        description="Scale of the noise on the SUM of contributions over one record's contribution bound: standard "
        "deviation for Gaussian kinds, scale b for Laplace kinds; the same under every neighbouring relation.",
    ),
]


class GaussianSchema(Schema):
    """Gaussian noise on a sum of contributions of bounded l2 norm."""

    kind: Literal["gaussian"]
    noise_multiplier: NoiseMultiplier

    def to_mechanism(self) -> Mechanism:
        return Gaussian(self.noise_multiplier)


class LaplaceSchema(Schema):
    """Laplace noise on a sum of contributions of bounded l1 norm."""

    kind: Literal["laplace"]
    noise_multiplier: NoiseMultiplier

    def to_mechanism(self) -> Mechanism:
        return Laplace(self.noise_multiplier)


class PureDpSchema(Schema):
    """Any mechanism with a proof of epsilon-DP under the relation of the request."""

    kind: Literal["pure_dp"]
    epsilon: float = Field(ge=0, le=1e6)

    def to_mechanism(self) -> Mechanism:
        return PureDp(self.epsilon)


class ZcDpSchema(Schema):
    """Any mechanism with a proof of rho-zCDP under the relation of the request."""

    kind: Literal["zcdp"]
    rho: float = Field(ge=0, le=1e6)

    def to_mechanism(self) -> Mechanism:
        return ZcDp(self.rho)


class FullBatchSchema(Schema):
    """Every record takes part in every step."""

    kind: Literal["full_batch"]

    def to_sampling(self) -> Sampling:
        return FullBatch()


class PoissonSchema(Schema):
    """Every record takes part in a step independently, with the same probability."""

    kind: Literal["poisson"]
    sampling_probability: float = Field(gt=0, le=1)

    def to_sampling(self) -> Sampling:
        return Poisson(self.sampling_probability)


MechanismSchema = Annotated[
    GaussianSchema | LaplaceSchema | PureDpSchema | ZcDpSchema, Field(discriminator="kind", title="Mechanism")
]
SamplingSchema = Annotated[FullBatchSchema | PoissonSchema, Field(discriminator="kind", title="Sampling")]


class EventSchema(Schema):
    """`count` steps of one mechanism on inputs that are sampled in one way."""

    mechanism: MechanismSchema
    sampling: SamplingSchema = FullBatchSchema(kind="full_batch")
    count: Integer = Field(1, ge=1, le=MAX_COUNT, description="Number of steps.")

    @classmethod
    def of(cls, event: Event) -> EventSchema:
        """The engine's event as the contract writes it."""
        return cls.model_validate(event.to_json())

    def to_event(self) -> Event:
        """The engine's event.

        Raises:
            AccountingError: no theorem covers this mechanism with this sampling.
        """
        return Event(self.mechanism.to_mechanism(), self.sampling.to_sampling(), self.count)


Events = Annotated[
    list[EventSchema], Field(min_length=1, max_length=MAX_EVENTS, description="What is released, step by step.")
]


def to_events(schemas: Sequence[EventSchema], *pointer: str | int) -> tuple[Event, ...]:
    """The engine's events.

    Args:
        schemas: The events of a request.
        pointer: Where the list is in the request body; ``events`` unless told.

    Raises:
        Problem: 422 at the event that has no proof.
    """
    place: Pointer = pointer or ("events",)
    events: list[Event] = []
    for index, schema in enumerate(schemas):
        try:
            events.append(schema.to_event())
        except AccountingError as error:
            raise from_accounting(error, *place, index) from None
    try:
        return check_events(events)
    except AccountingError as error:
        raise from_accounting(error, *place) from None
