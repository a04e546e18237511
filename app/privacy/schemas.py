"""Events as the HTTP contract writes them, and the way to the engine's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from accounting.errors import AccountingError, Pointer
from accounting.events import (
    ApproximateDp,
    DisjointBatches,
    Event,
    FullBatch,
    Gaussian,
    Laplace,
    Mechanism,
    Poisson,
    PureDp,
    RenyiDp,
    Sampling,
    ShuffledEpochs,
    WithoutReplacement,
    ZcDp,
    check_events,
)
from accounting.numbers import (
    MAX_COUNT,
    MAX_DATASET_SIZE,
    MAX_EVENTS,
    MAX_NOISE_MULTIPLIER,
    MAX_ORDER,
    MAX_ORDERS,
    MIN_NOISE_MULTIPLIER,
)
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


class ApproximateDpSchema(Schema):
    """Any mechanism with a proof of (epsilon, delta)-DP under the relation of the request."""

    kind: Literal["approximate_dp"]
    epsilon: float = Field(ge=0, le=1e6)
    delta: float = Field(ge=0, le=1, description="Probability that the guarantee of epsilon fails.")

    def to_mechanism(self) -> Mechanism:
        return ApproximateDp(self.epsilon, self.delta)


class ZcDpSchema(Schema):
    """Any mechanism with a proof of rho-zCDP under the relation of the request."""

    kind: Literal["zcdp"]
    rho: float = Field(ge=0, le=1e6)

    def to_mechanism(self) -> Mechanism:
        return ZcDp(self.rho)


class RenyiDpSchema(Schema):
    """Any mechanism with a proof of Renyi DP at some orders under the relation of the request."""

    kind: Literal["renyi_dp"]
    orders: list[Annotated[float, Field(gt=1, le=MAX_ORDER)]] = Field(
        min_length=1, max_length=MAX_ORDERS, description="Numbers above 1, increasing."
    )
    epsilons: list[Annotated[float, Field(ge=0, le=1e6)]] = Field(
        min_length=1, max_length=MAX_ORDERS, description="The Renyi divergence at each order; it never decreases."
    )

    def to_mechanism(self) -> Mechanism:
        return RenyiDp(tuple(self.orders), tuple(self.epsilons))


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


class WithoutReplacementSchema(Schema):
    """Every step draws a batch of a fixed size, all such batches alike likely; accounted under the replace relations.

    Under `replace_special` it is charged as `replace_one`.
    """

    kind: Literal["without_replacement"]
    batch_size: Integer = Field(ge=1, le=MAX_DATASET_SIZE, description="Records in a batch; at most `dataset_size`.")
    dataset_size: Integer = Field(ge=1, le=MAX_DATASET_SIZE, description="Number of records, which is public.")

    def to_sampling(self) -> Sampling:
        return WithoutReplacement(self.batch_size, self.dataset_size)


class ShuffledEpochsSchema(Schema):
    """Fixed batches cut from an ordering, each record in one step of every epoch; shuffling does not lower the cost."""

    kind: Literal["shuffled_epochs"]
    steps_per_epoch: Integer = Field(ge=1, le=MAX_COUNT, description="Batches in an epoch; `count` is in steps.")

    def to_sampling(self) -> Sampling:
        return ShuffledEpochs(self.steps_per_epoch)


class DisjointBatchesSchema(Schema):
    """One pass over disjoint batches: each record is in one of the event's `count` steps."""

    kind: Literal["disjoint_batches"]
    assignment: Literal["by_position", "independent"] = Field(
        description="`by_position`: batches are cut from an ordering, so that a record that comes or goes moves "
        "others. `independent`: each record's batch is drawn, or computed, for that record alone."
    )

    def to_sampling(self) -> Sampling:
        return DisjointBatches(self.assignment)


MechanismSchema = Annotated[
    GaussianSchema | LaplaceSchema | PureDpSchema | ApproximateDpSchema | ZcDpSchema | RenyiDpSchema,
    Field(discriminator="kind", title="Mechanism"),
]
SamplingSchema = Annotated[
    FullBatchSchema | PoissonSchema | WithoutReplacementSchema | ShuffledEpochsSchema | DisjointBatchesSchema,
    Field(discriminator="kind", title="Sampling"),
]


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
            AccountingError: numbers that contradict each other, or no theorem covers this mechanism with this sampling.
        """
        try:
            mechanism = self.mechanism.to_mechanism()
        except AccountingError as error:
            raise error.inside("mechanism") from None
        try:
            sampling = self.sampling.to_sampling()
        except AccountingError as error:
            raise error.inside("sampling") from None
        return Event(mechanism, sampling, self.count)


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
