"""Samplers whose steps are independent of each other: full, Poisson, truncated Poisson and fixed-size batches."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from accounting.events import TruncatedPoisson
from trainer.keystream import Keystream
from trainer.records import Indices
from trainer.samplers import padding
from trainer.samplers.sampler import MemorylessSampler

#: A uniform variate is a multiple of 2^-53; its leading 16 bits decide for all but one slot in 65536.
_BITS = 53
_LEADING = 16
_TRAILING = _BITS - _LEADING


class FullBatchSampler(MemorylessSampler):
    """Takes every slot in every step.

    >>> FullBatchSampler(3).draw()
    slice(0, 3, None)
    """

    def __init__(self, capacity: int) -> None:
        self._everything = slice(0, capacity)

    def draw(self) -> slice:
        return self._everything


class PoissonSampler(MemorylessSampler):
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
        self._size = padding.padded_size(capacity, sampling_probability, steps)
        self._undecided = padding.padded_size(capacity, 2.0**-_LEADING, steps)
        self._stream = stream

    def draw(self) -> Indices:
        words = self._stream.words(-(-self._capacity * _LEADING // 64))
        leading = words.view(np.uint16)[: self._capacity]
        slots = np.flatnonzero(leading <= self._leading)
        undecided = np.flatnonzero(leading[slots] == self._leading)
        trailing = self._stream.words(max(self._undecided, undecided.size))[: undecided.size]
        taken = np.ones(slots.size, dtype=bool)
        taken[undecided] = trailing >> np.uint64(64 - _TRAILING) < self._trailing
        return padding.padded(slots[taken], self._size, self._capacity)


class TruncatedPoissonSampler(MemorylessSampler):
    """Takes Poisson batches of the places that are charged for, and keeps a uniformly random subset of a larger one.

    A place without a record is treated like the others, as a null record. It may be kept instead of a record.

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


class WithoutReplacementSampler(MemorylessSampler):
    """Takes a batch of this many of the declared places, all such batches equally likely; steps are independent.

    Args:
        positions: shape (N,): the slot of each place.
        batch_size: Places of a batch.
        dataset_size: Declared places.
        stream: The source of the draws.

    Guarantees:
        - batches_of_slots_are_equally_likely: drawn by rejection, without the bias of a modulus. So are their orders:
          the record at one place of the batch says nothing about the others.
    """

    def __init__(self, positions: Indices, batch_size: int, dataset_size: int, stream: Keystream) -> None:
        self._positions, self._batch_size, self._dataset_size = positions, batch_size, dataset_size
        self._generator = stream.generator()

    def draw(self) -> Indices:
        return self._positions[self._generator.choice(self._dataset_size, self._batch_size, replace=False)]
