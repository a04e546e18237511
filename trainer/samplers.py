"""Samplers of the records that take part in a step: the sampling that was charged is the sampling that runs.

Every scheme draws slots, of which there are as many as public numbers say, and never looks at what they hold. A batch
is padded by the spare slot to a size that public numbers fix, too: how many slots a Poisson step has drawn must stay as
secret as which. A step that draws more than that, which happens with probability 2^-60 in a whole phase, takes another
such batch: its law stays exact, and its time may show it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy

from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.events import (
    Blocks,
    CyclicPoisson,
    DisjointBatches,
    FixedOrderEpochs,
    FullBatch,
    Poisson,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
)
from accounting.relations import NeighboringRelation
from trainer.keystream import Keystream
from trainer.records import Indices, Records, Selection

State = dict[str, Any]

#: A uniform variate is a multiple of 2^-53; its leading 16 bits decide for all but one slot in 65536.
_BITS = 53
_LEADING = 16
_TRAILING = _BITS - _LEADING
#: The probability that any step of a phase draws more slots than a padded batch has.
OVERFLOW = 2.0**-60

#: The sampling schemes that have a sampler.
SAMPLINGS = (
    FullBatch,
    Poisson,
    TruncatedPoisson,
    WithoutReplacement,
    RandomAllocation,
    Blocks,
    ShuffledEpochs,
    DisjointBatches,
    CyclicPoisson,
    FixedOrderEpochs,
)


class Sampler(Protocol):
    """Draws the slots of one step after the other."""

    def draw(self) -> Selection:
        """Return the slots of the next step, padded by the spare slot."""
        ...

    def state(self) -> State:
        """Return what it holds beside the state of the stream that it draws from."""
        ...

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken, once the stream is where it was."""
        ...


class FullBatchSampler:
    """Takes every slot in every step.

    >>> FullBatchSampler(3).draw()
    slice(0, 3, None)
    """

    def __init__(self, capacity: int) -> None:
        self._everything = slice(0, capacity)

    def draw(self) -> slice:
        return self._everything

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class PoissonSampler:
    """Takes each slot with the same probability, independently of the others and of earlier steps.

    A slot takes part when its uniform variate u, a multiple of 2^-53, is below floor(q 2^53) / 2^53. The leading 16
    bits of u are drawn first; the other 37 only where these leave it open, which changes the cost and not the law.

    Args:
        capacity: N, the number of slots; slot N is the spare one.
        sampling_probability: q in (0, 1], a public constant.
        steps: The number of draws.
        stream: The source of the bits.

    Guarantees:
        - realised_probability_is_not_above_the_charged: it is floor(q 2^53) / 2^53 <= q, less than 2^-53 below q.
        - inclusions_are_independent: between slots and between steps. Batches vary in size and may be empty.
        - batches_are_padded: to `padded_size`, whatever was drawn.

    >>> from trainer.streams import random_streams
    >>> PoissonSampler(3, 1.0, 5, random_streams(0).sampling).draw().tolist()
    [0, 1, 2]
    """

    def __init__(self, capacity: int, sampling_probability: float, steps: int, stream: Keystream) -> None:
        self._capacity = capacity
        threshold = math.floor(sampling_probability * 2.0**_BITS)  # a product with a power of two is exact
        self._leading, self._trailing = divmod(threshold, 1 << _TRAILING)
        self._size = padded_size(capacity, sampling_probability, steps)
        self._undecided = padded_size(capacity, 2.0**-_LEADING, steps)
        self._stream = stream

    def draw(self) -> Indices:
        words = self._stream.words(-(-self._capacity * _LEADING // 64))
        leading = words.view(np.uint16)[: self._capacity]
        slots = np.flatnonzero(leading <= self._leading)
        undecided = np.flatnonzero(leading[slots] == self._leading)
        trailing = self._stream.words(max(self._undecided, undecided.size))[: undecided.size]
        taken = np.ones(slots.size, dtype=bool)
        taken[undecided] = trailing >> np.uint64(64 - _TRAILING) < self._trailing
        return padded(slots[taken], self._size, self._capacity)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class TruncatedPoissonSampler:
    """Takes Poisson batches of the places that are charged for, and keeps a uniformly random subset of a larger one.

    A place without a record is one like the others, and may take another one's place in a batch: it is a null record.

    Args:
        positions: shape (N,): the slot of each place; slot N is the spare one.
        sampling: With q, the largest batch size B and the places: the declared ones, or all slots.
        steps: The number of draws.
        stream: The source of the bits.

    Guarantees:
        - subsets_are_equally_likely: those with the least random words are kept; equal words are drawn again.
        - batches_have_one_size: B, or that of a padded Poisson batch if that is less, whatever was drawn.
    """

    def __init__(self, positions: Indices, sampling: TruncatedPoisson, steps: int, stream: Keystream) -> None:
        places = sampling.dataset_size
        self._slots: Indices = np.append(positions[:places], positions.size)  # the spare place's slot is the spare slot
        self._coins = PoissonSampler(places, sampling.sampling_probability, steps, stream)
        self._places, self._largest, self._stream = places, sampling.max_batch_size, stream

    def draw(self) -> Indices:
        drawn = self._coins.draw()
        order = self._order(drawn == self._places)
        return self._slots[drawn[order[: self._largest]]]

    def _order(self, is_spare: npt.NDArray[np.bool_]) -> Indices:
        """Return a random order in which spare places come last."""
        while True:
            words = self._stream.words(is_spare.size) >> np.uint64(1)
            keys = words | (is_spare.astype(np.uint64) << np.uint64(63))
            order: Indices = np.argsort(keys)
            if not np.any(keys[order[1:]] == keys[order[:-1]]):
                return order

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class WithoutReplacementSampler:
    """Takes a batch of this many of the declared places, all such batches equally likely; steps are independent.

    Args:
        positions: shape (N,): the slot of each place.
        batch_size: Places of a batch.
        dataset_size: Declared places.
        stream: The source of the draws.

    Guarantees:
        - batches_of_slots_are_equally_likely: drawn by rejection, without the bias of a modulus; in each order, too, so
          that who stands at a place of the batch tells nothing of the others.
    """

    def __init__(self, positions: Indices, batch_size: int, dataset_size: int, stream: Keystream) -> None:
        self._positions, self._batch_size, self._dataset_size = positions, batch_size, dataset_size
        self._generator = stream.generator()

    def draw(self) -> Indices:
        return self._positions[self._generator.choice(self._dataset_size, self._batch_size, replace=False)]

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class EpochSampler(ABC):
    """Decides once for every epoch, at its first step, who takes part in which of its steps.

    Nothing of that is kept in a checkpoint: the stream goes back to where the epoch began, and draws it again.

    Args:
        cuts: shape (k + 1,), from 0 on: the steps at which epochs begin, and where the last one ends; there it begins
            anew. The phase may end within an epoch.
        stream: The source of the draws.
    """

    def __init__(self, cuts: Indices, stream: Keystream) -> None:
        self._cuts, self._stream = cuts, stream
        self._drawn, self._epoch = 0, stream.state

    def draw(self) -> Indices:
        step, length = self._place(self._drawn)
        if step == 0:
            self._epoch = self._stream.state
            self._begin(self._stream.generator(), length)
        self._drawn += 1
        return self._batch(step)

    def state(self) -> State:
        return {"epoch": self._epoch, "drawn": self._drawn}

    def restore(self, state: State) -> None:
        self._epoch, self._drawn = state["epoch"], int(state["drawn"])
        if self._drawn:
            self._stream.state = self._epoch
            _, length = self._place(self._drawn - 1)
            self._begin(self._stream.generator(), length)

    def _place(self, drawn: int) -> tuple[int, int]:
        """Return the place of a step in its epoch, and the steps of that epoch."""
        step = drawn % int(self._cuts[-1])
        epoch = int(np.searchsorted(self._cuts, step, side="right"))
        return step - int(self._cuts[epoch - 1]), int(self._cuts[epoch] - self._cuts[epoch - 1])

    @abstractmethod
    def _begin(self, generator: np.random.Generator, length: int) -> None:
        """Draw an epoch of this many steps."""

    @abstractmethod
    def _batch(self, step: int) -> Indices:
        """Return the slots of a step of the epoch, padded by the spare slot."""


class ShuffledSampler(EpochSampler):
    """Cuts batches from a secret permutation of the declared places, a new one for each epoch.

    Args:
        positions: shape (N,): the slot of each place.
        edges: shape (t + 1,): where the batches of an epoch begin in the permutation, and where the last one ends;
            public numbers.
        dataset_size: Declared places.
        stream: The source of the permutations.

    Guarantees:
        - slots_take_part_once_at_most: in one of the steps of an epoch.
        - the_permutations_ignore_data: they depend on the key and on the declared size.
    """

    def __init__(self, positions: Indices, edges: Indices, dataset_size: int, stream: Keystream) -> None:
        super().__init__(np.array([0, len(edges) - 1]), stream)
        self._positions, self._edges, self._dataset_size = positions, edges, dataset_size

    def _begin(self, generator: np.random.Generator, length: int) -> None:
        self._order: Indices = generator.permutation(self._dataset_size)

    def _batch(self, step: int) -> Indices:
        return self._positions[self._order[self._edges[step] : self._edges[step + 1]]]


class AllocationSampler(EpochSampler):
    """Lets each slot draw the step of each epoch that it takes part in, independently of all others.

    Args:
        capacity: N, the number of slots; slot N is the spare one.
        cuts: As `EpochSampler` has them: 0 and t for epochs of t steps.
        steps: The number of draws.
        stream: The source of the draws.

    Guarantees:
        - slots_draw_their_step: each equally likely, by rejection, and anew in every epoch.
        - batches_are_padded: to `padded_size`, whatever was drawn.
    """

    def __init__(self, capacity: int, cuts: Indices, steps: int, stream: Keystream) -> None:
        super().__init__(cuts, stream)
        self._capacity = capacity
        self._size = padded_size(capacity, 1.0 / int(np.diff(cuts).min()), steps)

    def _begin(self, generator: np.random.Generator, length: int) -> None:
        self._step_of = generator.integers(length, size=self._capacity, dtype=np.int32)

    def _batch(self, step: int) -> Indices:
        return padded(np.flatnonzero(self._step_of == step), self._size, self._capacity)


class TurnsSampler(ABC):
    """Deals slots out once, before the first step; then the parts take turns, always in the same order.

    Who is in which part stays the same for the whole phase, which correlated noise is charged for: a slot's steps are
    at least as many apart as there are parts. So it is kept in a checkpoint.

    Args:
        turn_of: shape (N,): the part of each slot; -1 for a slot that is in none.
        turns: Parts.
    """

    def __init__(self, turn_of: npt.NDArray[np.int32], turns: int) -> None:
        self._turn_of, self._turns = turn_of, turns
        self._drawn = 0
        self._deal()

    def draw(self) -> Indices:
        turn = self._drawn % self._turns
        self._drawn += 1
        return self._batch(turn)

    def had_the_turn(self, slots: Indices) -> npt.NDArray[np.bool_]:
        """Return whether the last step was the turn of these slots' part: a secret, which an audit knows."""
        found: npt.NDArray[np.bool_] = self._turn_of[slots] == (self._drawn - 1) % self._turns
        return found

    def state(self) -> State:
        return {"turn_of": self._turn_of, "drawn": self._drawn}

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken.

        Raises:
            InvalidValue: the parts are not there. Others would bring a slot's steps closer together.
        """
        turn_of: Any = state.get("turn_of")
        if np.shape(turn_of) != self._turn_of.shape:
            raise InvalidValue(
                "the checkpoint lacks the groups of the records, which are fixed for a run",
                code="checkpoint_refused",
            )
        self._turn_of, self._drawn = np.asarray(turn_of, dtype=np.int32), int(state["drawn"])
        self._deal()

    def _deal(self) -> None:
        """Make a list of the slots of each part."""
        order = np.argsort(self._turn_of, kind="stable")
        edges = np.searchsorted(self._turn_of[order], np.arange(self._turns + 1))
        self._parts: list[Indices] = [order[start:end] for start, end in pairwise(edges.tolist())]

    @abstractmethod
    def _batch(self, turn: int) -> Indices:
        """Return the slots of the next step, padded with the spare slot; it is the turn of part ``turn``."""


class CyclicPoissonSampler(TurnsSampler):
    """Takes each slot of one group with the same probability; groups take turns, and a slot stays in its group.

    Args:
        turn_of: shape (N,): the group of each slot; -1 for a slot that is in none.
        sampling: With the number of groups and q.
        steps: The number of draws.
        stream: The source of the coins.

    Guarantees:
        - realised_probability_is_not_above_the_charged, inclusions_are_independent: given the groups, as
          `PoissonSampler` has them.
        - batches_are_padded: to a `padded_size`, whatever groups and batches were drawn, and so are lists of groups.
    """

    def __init__(self, turn_of: npt.NDArray[np.int32], sampling: CyclicPoisson, steps: int, stream: Keystream) -> None:
        self._sampling, self._steps, self._stream = sampling, steps, stream
        groups, probability, self._spare = sampling.cycle_length, sampling.sampling_probability, turn_of.size
        if sampling.assignment == "by_position":
            self._group_size = -(-int(np.count_nonzero(turn_of >= 0)) // groups)
            self._size = padded_size(self._group_size, probability, steps)
        else:
            self._group_size = padded_size(turn_of.size, 1.0 / groups, groups)
            self._size = padded_size(turn_of.size, probability / groups, steps)
        super().__init__(turn_of, groups)

    def _deal(self) -> None:
        super()._deal()
        places = max(self._group_size, *(part.size for part in self._parts))
        # The last place is that of a draw that took too few: it has the spare slot, as those of short groups have.
        self._groups = np.full((self._turns, places + 1), self._spare, dtype=np.intp)
        for group, part in zip(self._groups, self._parts, strict=True):
            group[: part.size] = part
        self._coins = PoissonSampler(places, self._sampling.sampling_probability, self._steps, self._stream)

    def _batch(self, turn: int) -> Indices:
        drawn = self._groups[turn][self._coins.draw()]
        return padded(drawn[drawn != self._spare], self._size, self._spare)


class FixedOrderSampler(TurnsSampler):
    """Takes the same batches in the same order in every epoch: they are cut once from a secret permutation."""

    def _batch(self, turn: int) -> Indices:
        return self._parts[turn]


def dealt_out(positions: Indices, turns: int, dataset_size: int, stream: Keystream) -> npt.NDArray[np.int32]:
    """Return the part of each slot where a secret permutation of the declared places is cut equally: shape (N,).

    Args:
        positions: shape (N,): the slot of each place.
        turns: Parts; their sizes are public numbers, and differ by one at most.
        dataset_size: Declared places; the slots of others are in no part.
        stream: The stream from which the permutation is drawn.
    """
    turn_of = np.full(positions.size, -1, dtype=np.int32)
    order = stream.generator().permutation(dataset_size)
    turn_of[positions[order]] = np.arange(dataset_size) * turns // dataset_size
    return turn_of


def padded_size(capacity: int, probability: float, steps: int) -> int:
    """Return the least B with ``steps`` P(Bin(capacity, probability) > B) <= `OVERFLOW`.

    >>> padded_size(60_000, 1024 / 60_000, 10_000), padded_size(1000, 0.1, 1000)
    (1348, 201)
    """
    low, high = 0, capacity
    while low < high:
        middle = (low + high) // 2
        # P(Bin(n, p) > k) is the regularised incomplete beta function at p of k + 1 and n - k.
        if (
            steps * float(scipy.special.betainc(middle + 1.0, float(capacity - middle), min(probability, 1.0)))
            <= OVERFLOW
        ):
            high = middle
        else:
            low = middle + 1
    return max(low, 1)


def padded(slots: Indices, size: int, spare: int) -> Indices:
    """Return the slots and as many spare ones as fill the batch, or a whole number of batches.

    >>> padded(np.array([4, 7]), 3, 9).tolist(), padded(np.arange(4), 3, 9).tolist()
    ([4, 7, 9], [0, 1, 2, 3, 9, 9])
    """
    batches = max(1, -(-slots.size // size))
    filled: Indices = np.full(batches * size, spare, dtype=np.intp)
    filled[: slots.size] = slots
    return filled


def check_sampling(
    sampling: Sampling, steps: int, divisor: int, dataset_size: int, capacity: int, relation: NeighboringRelation
) -> None:
    """Refuse what `sampler_for` cannot draw as it is charged under the relation.

    Args:
        sampling, steps, divisor, dataset_size: As `sampler_for` has them.
        capacity: Slots of the data set.
        relation: The relation under which the sampling is charged.

    Raises:
        InvalidValue: disjoint batches need more slots than there are, or truncated ones are charged for others.
        Unsupported: no sampler of this kind is here, none for more than one step of each allocation, or none that cuts
            batches in this way or under this relation.
    """
    if not isinstance(sampling, SAMPLINGS):
        raise Unsupported(
            f"the trainer has no sampler for {sampling.kind}; use {one_of([cls.kind for cls in SAMPLINGS])}",
            code="unsupported_sampling",
            pointer=("sampling", "kind"),
        )
    if isinstance(sampling, RandomAllocation) and sampling.participations > 1:
        raise Unsupported(
            f"the trainer draws one step of each allocation, not {sampling.participations}; use participations 1, or "
            "blocks",
            code="unsupported_sampling",
            pointer=("sampling", "participations"),
        )
    if isinstance(sampling, TruncatedPoisson):
        _check_truncation(sampling, dataset_size, capacity, relation)
    by_position = isinstance(sampling, DisjointBatches) and sampling.assignment == "by_position"
    if by_position and steps * divisor > dataset_size:
        raise InvalidValue(
            f"{steps} disjoint batches of {divisor} need {steps * divisor} records; dataset_size is {dataset_size}",
            pointer=("divisor",),
        )


def _check_truncation(
    sampling: TruncatedPoisson, dataset_size: int, capacity: int, relation: NeighboringRelation
) -> None:
    """Places are drawn, whether or not there is a record: the declared ones, or all where the number is private."""
    if not sampling.is_random:
        raise Unsupported(
            'the trainer keeps a random subset of a batch that is too large; use truncation "random" or "random_slots"',
            code="unsupported_sampling",
            pointer=("sampling", "truncation"),
        )
    of_slots = sampling.truncation == "random_slots"
    if relation is NeighboringRelation.ADD_OR_REMOVE_ONE and not of_slots:
        raise Unsupported(
            "the trainer cuts batches of places, empty ones among them, which this truncation is not charged for under "
            'add_or_remove_one; use truncation "random_slots"',
            code="unsupported_sampling",
            pointer=("sampling", "truncation"),
        )
    what, places = ("slots", capacity) if of_slots else ("records", dataset_size)
    if sampling.dataset_size != places:
        name = "the data set has a capacity of" if of_slots else "dataset_size is"
        raise InvalidValue(
            f"truncated batches are charged for {sampling.dataset_size} {what}, and {name} {places}",
            pointer=("sampling", "dataset_size"),
        )


def sampler_for(
    sampling: Sampling, steps: int, divisor: int, dataset_size: int, records: Records, stream: Keystream
) -> Sampler:
    """Return the sampler that runs what ``sampling`` was charged for.

    Args:
        steps: The number of steps of the phase, and of draws.
        divisor: The nominal batch size: of disjoint batches by position, the batch size.
        dataset_size: The declared size; no more than the records' capacity.
        records: The records whose slots are drawn.
        stream: The source of the draws.

    Requires:
        `check_sampling` lets it pass.
    """
    sampler: Sampler
    match sampling:
        case FullBatch():
            sampler = FullBatchSampler(records.capacity)
        case Poisson():
            sampler = PoissonSampler(records.capacity, sampling.sampling_probability, steps, stream)
        case TruncatedPoisson():
            sampler = TruncatedPoissonSampler(records.positions, sampling, steps, stream)
        case WithoutReplacement():
            sampler = WithoutReplacementSampler(records.positions, sampling.batch_size, sampling.dataset_size, stream)
        case RandomAllocation() | Blocks():
            cuts = np.arange(sampling.participations + 1) * sampling.num_bins // sampling.participations
            sampler = AllocationSampler(records.capacity, cuts, steps, stream)
        case ShuffledEpochs():
            edges = np.arange(sampling.steps_per_epoch + 1) * dataset_size // sampling.steps_per_epoch
            sampler = ShuffledSampler(records.positions, edges, dataset_size, stream)
        case CyclicPoisson(assignment="by_position"):
            turn_of = dealt_out(records.positions, sampling.cycle_length, dataset_size, stream)
            sampler = CyclicPoissonSampler(turn_of, sampling, steps, stream)
        case CyclicPoisson():
            drawn = stream.generator().integers(sampling.cycle_length, size=records.capacity, dtype=np.int32)
            sampler = CyclicPoissonSampler(drawn, sampling, steps, stream)
        case FixedOrderEpochs():
            turn_of = dealt_out(records.positions, sampling.steps_per_epoch, dataset_size, stream)
            sampler = FixedOrderSampler(turn_of, sampling.steps_per_epoch)
        case DisjointBatches(assignment="by_position"):
            sampler = ShuffledSampler(records.positions, np.arange(steps + 1) * divisor, dataset_size, stream)
        case DisjointBatches():
            sampler = AllocationSampler(records.capacity, np.array([0, steps]), steps, stream)
        case _:
            raise AssertionError(f"{sampling.kind} is refused by check_sampling")
    return sampler
