"""Samplers that decide for a whole epoch at once who takes part in which of its steps."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from trainer.keystream import Keystream
from trainer.records import Indices
from trainer.samplers import padding
from trainer.samplers.sampler import State


class EpochSampler(ABC):
    """Decides once for every epoch, at its first step, who takes part in which of its steps.

    A checkpoint does not hold these decisions: the stream goes back to where the epoch began, and draws them again.

    Args:
        cuts: shape (k + 1,), from 0 on: the steps at which epochs begin, and the step at which the last one ends; from
            there on they repeat. The phase may end within an epoch.
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
        cuts: As in `EpochSampler`: 0 and t for epochs of t steps.
        steps: The number of draws.
        stream: The source of the draws.

    Guarantees:
        - slots_draw_their_step: each equally likely, by rejection, and anew in every epoch.
        - batches_are_padded: to `padded_size`, whatever was drawn.
    """

    def __init__(self, capacity: int, cuts: Indices, steps: int, stream: Keystream) -> None:
        super().__init__(cuts, stream)
        self._capacity = capacity
        self._size = padding.padded_size(capacity, 1.0 / int(np.diff(cuts).min()), steps)

    def _begin(self, generator: np.random.Generator, length: int) -> None:
        self._step_of = generator.integers(length, size=self._capacity, dtype=np.int32)

    def _batch(self, step: int) -> Indices:
        return padding.padded(np.flatnonzero(self._step_of == step), self._size, self._capacity)
