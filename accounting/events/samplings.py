"""Samplings: how records are chosen for a step, and the properties of each scheme.

A relation is refused if a record that comes or goes moves other records into or out of batches. Two neighbours then
differ by more than one contribution, in more than one batch. Under `add_or_remove_one` this happens with batches of a
fixed size, with batches cut from a shuffled ordering and with disjoint batches by position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeVar

from accounting.described import Described, Real, Whole, Word, register
from accounting.errors import InvalidValue
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE
from accounting.relations import NeighboringRelation

_SIZE_KEEPING = (NeighboringRelation.REPLACE_SPECIAL, NeighboringRelation.REPLACE_ONE)
_ADD_REMOVE_OR_NULL = (NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_SPECIAL)


_EVERY_RELATION = tuple(NeighboringRelation)


class Sampling(Described):
    """How records are chosen for a step; a frozen dataclass whose fields are its JSON.

    What a sampled step costs is in `accounting.losses`, in the file of the same name.

    Attributes:
        why_refused: Why it is refused under relations that are not among `relations`.
        filters: The kinds of budget in which sampled steps have a cost; None if the mechanism alone decides. A kind is
            absent if not even a cost without amplification is proved in it: a record may be in a batch several times,
            or may let other records into the batch or push them out, and no moment bound covers this.
        is_drawn_apart: Whether several records of one owner may take part in different steps, while one record has a
            single step. The resolved steps of one record then say nothing about a group of them, unless the mechanism's
            parts cost less.
    """

    __slots__ = ()
    why_refused: ClassVar[str] = ""
    filters: ClassVar[tuple[str, ...] | None] = None
    is_drawn_apart: ClassVar[bool] = False

    @property
    def relations(self) -> tuple[NeighboringRelation, ...]:
        """The relations under which the scheme is accounted."""
        return _EVERY_RELATION

    @property
    def is_amplified(self) -> bool:
        """Return whether the sampling hides records: they are drawn anew at every step or allocation, and not all take
        part."""
        return False

    def resolved(self, count: int) -> tuple[Sampling, int]:
        """Return the sampling and the number of the steps in which one record takes part, out of ``count`` of these
        steps."""
        return self, count

    def charged_sensitivity(self, relation: NeighboringRelation, mechanism: object) -> float:
        """Return the distance between two neighbours' sums for which a step is charged, in contribution bounds.

        Args:
            relation: The neighbouring relation.
            mechanism: The mechanism; some samplings have a closer pair for noise in l2.
        """
        return relation.sensitivity

    def steps_charged(self, count: int) -> int:
        """Return for how many of ``count`` steps a budget that adds up costs is charged."""
        return count

    def check_mechanism(self, mechanism: object) -> None:
        """Refuse a mechanism that contradicts the sampling."""


SamplingClass = TypeVar("SamplingClass", bound=type[Sampling])

#: Every sampling by its kind.
SAMPLINGS: dict[str, type[Sampling]] = {}


def sampling(cls: SamplingClass) -> SamplingClass:
    """Register a sampling under its kind."""
    register(cls, SAMPLINGS)
    return cls


@sampling
@dataclass(frozen=True, slots=True)
class FullBatch(Sampling):
    """Every record takes part in every step."""

    kind: ClassVar[str] = "full_batch"


FULL_BATCH = FullBatch()


@sampling
@dataclass(frozen=True, slots=True)
class Poisson(Sampling):
    """Every record takes part in a step independently, with the same probability."""

    kind: ClassVar[str] = "poisson"
    sampling_probability: Annotated[float, Real(0.0, 1.0, open_lower=True)]

    @property
    def is_amplified(self) -> bool:
        return self.sampling_probability < 1.0

    def resolved(self, count: int) -> tuple[Sampling, int]:
        """Return one full batch for each event: all records at every step are a full batch."""
        return (self, count) if self.sampling_probability < 1.0 else (FULL_BATCH, count)


@dataclass(frozen=True, slots=True)
class FixedSizeBatches(Sampling):
    """Every step draws a batch of a fixed size from a public number of records."""

    relations = _SIZE_KEEPING
    batch_size: Annotated[int, Whole(1, MAX_DATASET_SIZE, "Records in a batch; at most `dataset_size`.")]
    dataset_size: Annotated[int, Whole(1, MAX_DATASET_SIZE, "Number of records, which is public.")]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if self.batch_size > self.dataset_size:
            raise InvalidValue(
                f"batch_size {self.batch_size} is larger than dataset_size {self.dataset_size}", pointer=("batch_size",)
            )


@sampling
@dataclass(frozen=True, slots=True)
class WithoutReplacement(FixedSizeBatches):
    """Every step draws a batch of a fixed size, all batches equally likely; accounted under the replace relations."""

    kind: ClassVar[str] = "without_replacement"
    why_refused = (
        "batches of a fixed size make the number of records public, and a record that comes or goes takes another "
        "one's place in the batch"
    )

    @property
    def sampling_probability(self) -> float:
        """The probability that one record takes part in one step."""
        return self.batch_size / self.dataset_size

    @property
    def is_amplified(self) -> bool:
        return self.sampling_probability < 1.0

    def resolved(self, count: int) -> tuple[Sampling, int]:
        """Return a full batch if batches hold all records."""
        return (self, count) if self.sampling_probability < 1.0 else (FULL_BATCH, count)

    def charged_sensitivity(self, relation: NeighboringRelation, mechanism: object) -> float:
        """Return the distance: a null record is charged as another record where no closer pair is proved."""
        closer = not self.is_amplified or _is_in_l2(mechanism)
        return relation.sensitivity if closer else NeighboringRelation.REPLACE_ONE.sensitivity


@sampling
@dataclass(frozen=True, slots=True)
class WithReplacement(FixedSizeBatches):
    """Every step makes independent draws of one record, which may coincide; accounted under the replace relations.

    Under `replace_special` it is charged as `replace_one`.
    """

    kind: ClassVar[str] = "with_replacement"
    is_amplified = True
    why_refused = (
        "batches of a fixed size make the number of records public, and a record that comes or goes changes how often "
        "every other one is drawn"
    )
    filters = ("approximate_dp", "approximate_gaussian_dp")
    batch_size: Annotated[int, Whole(1, MAX_DATASET_SIZE, "Draws of a step; at most `dataset_size`.")]
    dataset_size: Annotated[int, Whole(2, MAX_DATASET_SIZE, "Number of records, which is public.")]

    def charged_sensitivity(self, relation: NeighboringRelation, mechanism: object) -> float:
        """Return the distance for each time that the record is drawn."""
        return NeighboringRelation.REPLACE_ONE.sensitivity


@sampling
@dataclass(frozen=True, slots=True)
class TruncatedPoisson(Sampling):
    """Poisson batches that are cut to a largest size, either at random (with a price of its own) or in any other way.

    The change that an arbitrary cut may make is added to delta, so that no epsilon is finite unless cuts are rare.
    Under `add_or_remove_one` the number of records is private, and the cost is that of the worst number up to
    `dataset_size`; under the replace relations a random cut is priced for exactly `dataset_size` records. If slots are
    drawn instead of records, their number is public under every relation, and an empty one is a null record.
    """

    kind: ClassVar[str] = "truncated_poisson"
    is_amplified = True
    why_refused = (
        "the adjustment for an arbitrary cut is published for a record that comes, goes or becomes null; a random one "
        'is accounted, with truncation "random" or "random_slots"'
    )
    filters = ("approximate_dp", "approximate_gaussian_dp")
    sampling_probability: Annotated[float, Real(0.0, 1.0, "Of every record, before batches are cut.", True)]
    max_batch_size: Annotated[int, Whole(1, MAX_DATASET_SIZE, "Records that a batch has at most.")]
    dataset_size: Annotated[
        int,
        Whole(
            1,
            MAX_DATASET_SIZE,
            "A public bound on the number of records, of both neighbours; with a random cut under the replace "
            "relations, their number; with `random_slots`, the number of slots.",
        ),
    ]
    truncation: Annotated[
        str,
        Word(
            {
                "arbitrary": "any records of a larger batch may be left out, such as the last ones.",
                "random": "all subsets of `max_batch_size` records of a larger batch are equally likely.",
                "random_slots": (
                    "as `random`, among `dataset_size` slots that hold a record or are empty: an empty slot is "
                    "drawn like the others and takes a place in the batch."
                ),
            }
        ),
    ] = "arbitrary"

    @property
    def relations(self) -> tuple[NeighboringRelation, ...]:
        return _EVERY_RELATION if self.is_random else _ADD_REMOVE_OR_NULL

    @property
    def is_random(self) -> bool:
        """Return whether truncation keeps each subset of a larger batch with the same probability."""
        return self.truncation != "arbitrary"

    def charged_sensitivity(self, relation: NeighboringRelation, mechanism: object) -> float:
        """Return the distance: if batches are cut at random, a record that comes takes the place of another."""
        moves = relation is NeighboringRelation.ADD_OR_REMOVE_ONE and self.truncation == "random"
        return NeighboringRelation.REPLACE_ONE.sensitivity if moves and _is_in_l2(mechanism) else relation.sensitivity

    def resolved(self, count: int) -> tuple[Sampling, int]:
        """Return Poisson batches if nothing is ever cut."""
        if self.max_batch_size >= self.dataset_size:
            return Poisson(self.sampling_probability).resolved(count)
        return self, count


@sampling
@dataclass(frozen=True, slots=True)
class ShuffledEpochs(Sampling):
    """Fixed batches cut from an ordering, each record in one step of every epoch; shuffling does not lower the cost."""

    kind: ClassVar[str] = "shuffled_epochs"
    is_drawn_apart = True
    relations = _SIZE_KEEPING
    why_refused = (
        "in shuffled epochs a record that comes or goes moves every later batch boundary, and so moves other records "
        "between batches"
    )
    steps_per_epoch: Annotated[int, Whole(1, MAX_COUNT, "Batches in an epoch; `count` is in steps.")]

    def resolved(self, count: int) -> tuple[Sampling, int]:
        """Return a full batch for each pass, begun passes included.

        A random order does not amplify, and the number for Poisson batches is not valid: at noise 0.5, over one epoch
        of 10,000 steps, that number is 1.95, but 10.99 is attained.
        """
        return FULL_BATCH, -(-count // self.steps_per_epoch)


@sampling
@dataclass(frozen=True, slots=True)
class DisjointBatches(Sampling):
    """One pass over disjoint batches: each record is in one of the event's `count` steps."""

    kind: ClassVar[str] = "disjoint_batches"
    is_drawn_apart = True
    why_refused = (
        "where batches are cut by position, a record that comes or goes moves the records after it into other batches"
    )
    assignment: Annotated[
        str,
        Word(
            {
                "by_position": "batches are cut from an ordering, so that a record that comes or goes moves others.",
                "independent": "each record's batch is drawn, or computed, for that record alone.",
            }
        ),
    ]

    @property
    def relations(self) -> tuple[NeighboringRelation, ...]:
        return _SIZE_KEEPING if self.assignment == "by_position" else tuple(NeighboringRelation)

    def resolved(self, count: int) -> tuple[Sampling, int]:
        """Return one full batch, for each event."""
        return FULL_BATCH, 1


@sampling
@dataclass(frozen=True, slots=True)
class ShuffleModel(Sampling):
    """Every user sends one message of the same local randomiser, and the messages of a round are seen shuffled.

    All users of a round MUST apply the same randomiser: users with randomisers of their own may get no amplification
    at all, and the number is not valid for them. The event's mechanism is the local randomiser: `pure_dp`, or
    `approximate_dp`, with the same numbers. `count` is in rounds, each with fresh randomness of the same users.
    """

    kind: ClassVar[str] = "shuffle_model"
    is_amplified = True
    relations = _SIZE_KEEPING
    why_refused = "messages are counted, so that a user who comes or goes is seen"
    filters = ("approximate_dp", "approximate_gaussian_dp")
    num_users: Annotated[int, Whole(1, MAX_DATASET_SIZE, "Users of a round, whose number is public.")]
    local_epsilon: Annotated[float, Real(0.0, 1e6, "Of the randomiser of all users; the mechanism's `epsilon`.")]
    local_delta: Annotated[float, Real(0.0, 1.0, "The mechanism's `delta`; 0 for `pure_dp`.")] = 0.0

    def check_mechanism(self, mechanism: object) -> None:
        """Check that the sampling and the mechanism say the same about the local randomiser."""
        stated = {"local_epsilon": getattr(mechanism, "epsilon", None), "local_delta": getattr(mechanism, "delta", 0.0)}
        for name, value in stated.items():
            if getattr(self, name) != value:
                raise InvalidValue(
                    f"{name} is {getattr(self, name)!r}, but the mechanism, which is the local randomiser, says "
                    f"{value!r}",
                    pointer=("sampling", name),
                )


@dataclass(frozen=True, slots=True)
class Allocations(Sampling):
    """Each record draws, for itself alone, which steps of every `num_bins` it takes part in."""

    relations = _ADD_REMOVE_OR_NULL
    why_refused = (
        "the record and the one in its place would be allocated separately, and no pair for that is proved here"
    )
    num_bins: Annotated[int, Whole(1, MAX_COUNT, "Steps of one allocation; `count` is in steps.")]
    participations: Annotated[int, Whole(1, MAX_COUNT, "Of one record in one allocation.")]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if self.participations > self.num_bins:
            raise InvalidValue(
                f"participations {self.participations} is more than num_bins {self.num_bins}",
                pointer=("participations",),
            )

    @property
    def is_amplified(self) -> bool:
        return self.participations < self.num_bins

    def resolved(self, count: int) -> tuple[Sampling, int]:
        """Return full batches if every step is chosen, otherwise whole allocations, which budgets that add up costs
        charge."""
        if self.participations == self.num_bins:
            return FULL_BATCH, count
        whole = -(-count // self.num_bins) * self.num_bins
        return self, whole if whole <= MAX_COUNT else count

    def steps_charged(self, count: int) -> int:
        """Return the number of steps in which a record may take part, with begun allocations counted in full."""
        return self.participations * -(-count // self.num_bins)


@sampling
@dataclass(frozen=True, slots=True)
class RandomAllocation(Allocations):
    """Each record takes part in some of every `num_bins` steps, all such choices equally likely.

    Draws are independent between records and between allocations. If the last allocation is cut short, only its steps
    that were taken are charged if each record has one participation; otherwise all are.
    """

    kind: ClassVar[str] = "random_allocation"


@sampling
@dataclass(frozen=True, slots=True)
class CyclicPoisson(Sampling):
    """Poisson batches from one group of the records after the other; a record is in one group for the whole run.

    In step t each record of group t mod `cycle_length` takes part with the same probability, independently. Noise may
    be correlated over at most `cycle_length` steps, since two steps of a record are never closer. Groups that are drawn
    anew are not covered.
    """

    kind: ClassVar[str] = "cyclic_poisson"
    is_drawn_apart = True
    why_refused = (
        "with `independent` groups a record in another one's place may be in another group, and no pair for that is "
        "proved; with groups `by_position` a record that comes or goes moves others into other groups"
    )
    sampling_probability: Annotated[
        float,
        Real(0.0, 1.0, "Of a record in a step of its group: `cycle_length` times its share of all steps.", True),
    ]
    cycle_length: Annotated[int, Whole(1, MAX_COUNT, "Groups, which take turns.")]
    assignment: Annotated[
        str,
        Word(
            {
                "independent": "each record's group is drawn, or computed, for that record alone.",
                "by_position": "groups are cut from an ordering, and the place of a record keeps its group.",
            }
        ),
    ]

    @property
    def relations(self) -> tuple[NeighboringRelation, ...]:
        return _SIZE_KEEPING if self.assignment == "by_position" else _ADD_REMOVE_OR_NULL

    @property
    def is_amplified(self) -> bool:
        return self.sampling_probability < 1.0

    def resolved(self, count: int) -> tuple[Sampling, int]:
        """Return one Poisson batch for each cycle; a cycle that is begun counts."""
        return Poisson(self.sampling_probability).resolved(-(-count // self.cycle_length))

    def check_mechanism(self, mechanism: object) -> None:
        """Refuse noise that reaches from one step of a record to the next one."""
        bands = getattr(mechanism, "bands", 1)
        if bands > self.cycle_length:
            raise InvalidValue(
                f"noise that is correlated over {bands} steps does not fit into a cycle of {self.cycle_length}, so the "
                f"steps of a record cannot be counted separately: use a cycle_length of at least {bands}, or fewer "
                "coefficients",
                pointer=("sampling", "cycle_length"),
            )


@sampling
@dataclass(frozen=True, slots=True)
class Blocks(Allocations):
    """Each record takes part in one step of every block; its steps are drawn independently.

    Every `num_bins` steps are cut into `participations` consecutive blocks: block b, counted from 0, begins at step
    floor(b num_bins / participations).
    """

    kind: ClassVar[str] = "blocks"


@sampling
@dataclass(frozen=True, slots=True)
class FixedOrderEpochs(Sampling):
    """The same batches in the same order in every epoch: a record's steps are exactly one epoch apart."""

    kind: ClassVar[str] = "fixed_order_epochs"
    relations = _SIZE_KEEPING
    why_refused = "a record that comes or goes moves the records after it into other batches"
    steps_per_epoch: Annotated[int, Whole(1, MAX_COUNT, "Batches in an epoch; `count` is in steps.")]

    def resolved(self, count: int) -> tuple[Sampling, int]:
        """Return a full batch for each pass, begun passes included."""
        return FULL_BATCH, -(-count // self.steps_per_epoch)


def _is_in_l2(mechanism: object) -> bool:
    return getattr(mechanism, "norm", "") == "l2"


#: Schedules that are fixed in advance: each step is a full batch to every record that takes part in it.
SCHEDULES: tuple[type[Sampling], ...] = (FullBatch, ShuffledEpochs, DisjointBatches)
#: Schedules, beside full batches, with which correlated noise can be used.
SEPARATED: tuple[type[Sampling], ...] = (CyclicPoisson, FixedOrderEpochs)
#: Samplings of batches of records whose contributions are summed up.
BATCHES: tuple[type[Sampling], ...] = tuple(
    cls for cls in SAMPLINGS.values() if cls is not ShuffleModel and cls not in SEPARATED
)
