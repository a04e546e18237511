"""Samplers that deal slots out to parts once, before the first step; then the parts take turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from accounting.events import CyclicPoisson
from trainer.keystream import Keystream
from trainer.records import Indices
from trainer.samplers import padding
from trainer.samplers.independent import PoissonSampler
from trainer.samplers.sampler import State


class TurnsSampler(ABC):
    """Deals slots out once, before the first step; then the parts take turns, always in the same order.

    Each slot stays in its part for the whole phase. Correlated noise is charged under that assumption: a slot's steps
    are at least as many apart as there are parts. So checkpoints hold the parts.

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
        """Return whether the last step was the turn of these slots' part. It is a secret, which only audits read."""
        found: npt.NDArray[np.bool_] = self._turn_of[slots] == (self._drawn - 1) % self._turns
        return found

    def state(self) -> State:
        return {"turn_of": self._turn_of, "drawn": self._drawn}

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken.

        Raises:
            InvalidValue: If the parts are not there. Other parts would bring a slot's steps closer together.
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
        - realised_probability_is_not_above_the_charged, inclusions_are_independent: given the groups, as in
          `PoissonSampler`.
        - batches_are_padded: to a `padded_size`, whatever groups and batches were drawn, and so are lists of groups.
    """

    def __init__(self, turn_of: npt.NDArray[np.int32], sampling: CyclicPoisson, steps: int, stream: Keystream) -> None:
        self._sampling, self._steps, self._stream = sampling, steps, stream
        groups, probability, self._spare = sampling.cycle_length, sampling.sampling_probability, turn_of.size
        if sampling.assignment == "by_position":
            self._group_size = -(-int(np.count_nonzero(turn_of >= 0)) // groups)
            self._size = padding.padded_size(self._group_size, probability, steps)
        else:
            self._group_size = padding.padded_size(turn_of.size, 1.0 / groups, groups)
            self._size = padding.padded_size(turn_of.size, probability / groups, steps)
        super().__init__(turn_of, groups)

    def _deal(self) -> None:
        super()._deal()
        places = max(self._group_size, *(part.size for part in self._parts))
        # The last place, which pads the coins' batch, holds the spare slot, and so do places that short groups lack.
        self._groups = np.full((self._turns, places + 1), self._spare, dtype=np.intp)
        for group, part in zip(self._groups, self._parts, strict=True):
            group[: part.size] = part
        self._coins = PoissonSampler(places, self._sampling.sampling_probability, self._steps, self._stream)

    def _batch(self, turn: int) -> Indices:
        drawn = self._groups[turn][self._coins.draw()]
        return padding.padded(drawn[drawn != self._spare], self._size, self._spare)


class FixedOrderSampler(TurnsSampler):
    """Takes the same batches in the same order in every epoch: they are cut once from a secret permutation."""

    def _batch(self, turn: int) -> Indices:
        return self._parts[turn]


def dealt_out(positions: Indices, turns: int, dataset_size: int, stream: Keystream) -> npt.NDArray[np.int32]:
    """Cut a secret permutation of the declared places into equal parts, and return the part of each slot: shape (N,).

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
