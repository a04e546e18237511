"""Samplers of Poisson batches: of all records, cut to a largest size, or of one group after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from epsilond_client.samplers.sampler import Indices, Sampler, checked_probability, whole


class Poisson(Sampler):
    """Each record takes part in each step with the same probability, independently of all others and of other steps.

    >>> sampler = Poisson(1000, 3, sampling_probability=0.1)
    >>> [len(batch) < 1000 for batch in sampler], sampler.divisor
    ([True, True, True], 100.0)
    """

    kind = "poisson"

    def __init__(self, dataset_size: int, steps: int, *, sampling_probability: float, **options: Any) -> None:
        super().__init__(dataset_size, steps, **options)
        self.sampling = {"kind": self.kind, "sampling_probability": checked_probability(sampling_probability)}

    @property
    def divisor(self) -> float:
        """Return q n."""
        return float(self.sampling["sampling_probability"]) * self.dataset_size

    def batch(self, step: int) -> Indices:
        return self._tossed(self.sampling["sampling_probability"], self._checked(step), self._first, self._last)


class TruncatedPoisson(Sampler):
    """Poisson batches that are truncated: if one has more than `max_batch_size` records, a uniformly random subset is
    kept.

    If slots are drawn, their number does not depend on the number of records, and an empty slot takes a place in a
    batch like the others. So adding or removing a record does not admit or displace another one.

    Args:
        dataset_size: A public bound on the number of records; under the replace relations, their number. If slots are
            drawn, the public number from which the divisor is computed.
        steps: The number of steps of the whole training.
        sampling_probability: The probability of every record before batches are truncated.
        max_batch_size: The most records of a batch, in all shards together.
        truncation: "random" draws records, "random_slots" draws slots.
        slots: The number of slots; needed only if slots are drawn.
        options: Those of `Sampler`.

    >>> sampler = TruncatedPoisson(1000, 5, sampling_probability=0.1, max_batch_size=90)
    >>> max(len(batch) for batch in sampler) <= 90
    True
    >>> sampler = TruncatedPoisson(
    ...     1000, 5, sampling_probability=0.1, max_batch_size=90, truncation="random_slots", slots=1125
    ... )
    >>> sampler.sampling["dataset_size"], sampler.divisor
    (1125, 80.0)
    """

    kind = "truncated_poisson"

    def __init__(
        self,
        dataset_size: int,
        steps: int,
        *,
        sampling_probability: float,
        max_batch_size: int,
        truncation: str = "random",
        slots: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dataset_size, steps, **options)
        if truncation not in ("random", "random_slots"):
            raise ValueError(
                f'batches are cut at random, so truncation must be "random" or "random_slots", got {truncation!r}'
            )
        if (slots is None) == (truncation == "random_slots"):
            raise ValueError('slots, the number of slots, is needed with truncation "random_slots", and only then')
        bound, name = (self.dataset_size, "dataset_size") if slots is None else (slots, "slots")
        if self.records > whole(name, bound, self.dataset_size):
            raise ValueError(f"{name} bounds the number of records, and there are more than {bound} records")
        self.sampling = {
            "kind": self.kind,
            "sampling_probability": checked_probability(sampling_probability),
            "max_batch_size": whole("max_batch_size", max_batch_size, 1),
            "dataset_size": bound,
            "truncation": truncation,
        }
        # Empty slots are drawn as records after the last one.
        self._places = self.records if slots is None else slots

    @property
    def divisor(self) -> float:
        """Return the lesser of q n and the largest batch size; if slots are drawn, the share of n of the slots in
        it."""
        share = min(
            float(self.sampling["sampling_probability"]),
            float(self.sampling["max_batch_size"]) / float(self.sampling["dataset_size"]),
        )
        return share * self.dataset_size

    def batch(self, step: int) -> Indices:
        """Draw the whole batch in every shard, because whether it is truncated depends on all records."""
        drawn = self._tossed(self.sampling["sampling_probability"], self._checked(step), 0, self._places)
        if drawn.size > self.sampling["max_batch_size"]:
            drawn = self._kept(drawn, step)
        return drawn[(drawn >= self._first) & (drawn < self._last)]

    def _kept(self, drawn: Indices, step: int) -> Indices:
        """Return a uniformly random subset: the records with the smallest random words. If two words are equal, all
        words are drawn again.
        """
        attempt = 0
        while True:
            words = self._words("kept", "<u8", 0, self._places, step, attempt)[drawn]
            if np.unique(words).size == words.size:
                return np.sort(drawn[np.argsort(words)[: self.sampling["max_batch_size"]]])
            attempt += 1


class CyclicPoisson(Sampler):
    """Poisson batches from one group of records after another; a record stays in its group for the whole training.

    Step t draws from group t mod `cycle_length`, so that a record's steps are never closer than a cycle: correlated
    noise over that many steps needs this. Groups follow from the key, so they stay the same if a loop goes on.

    Args:
        dataset_size: n, the public number of records.
        steps: The number of steps of the whole training.
        sampling_probability: The sampling probability of each record in the steps of its group.
        cycle_length: How many groups there are.
        assignment: "independent" draws the group of each record independently. "by_position" assigns groups by the
            position of records, so a record that replaces another takes over its group.
        options: Those of `Sampler`.

    >>> sampler = CyclicPoisson(100, 6, sampling_probability=1.0, cycle_length=3, assignment="independent")
    >>> sorted(index for step in range(3) for index in sampler.batch(step).tolist()) == list(range(100))
    True
    """

    kind = "cyclic_poisson"

    def __init__(
        self,
        dataset_size: int,
        steps: int,
        *,
        sampling_probability: float,
        cycle_length: int,
        assignment: str,
        **options: Any,
    ) -> None:
        super().__init__(dataset_size, steps, **options)
        if assignment not in ("independent", "by_position"):
            raise ValueError(f'assignment must be "independent" or "by_position", got {assignment!r}')
        self.sampling = {
            "kind": self.kind,
            "sampling_probability": checked_probability(sampling_probability),
            "cycle_length": whole("cycle_length", cycle_length, 1),
            "assignment": assignment,
        }
        self._groups: tuple[bytes, npt.NDArray[np.int64]] | None = None

    @property
    def divisor(self) -> float:
        """Return the expected size of a batch: the sampling probability times the mean size of a group."""
        return float(self.sampling["sampling_probability"]) * self.dataset_size / int(self.sampling["cycle_length"])

    def batch(self, step: int) -> Indices:
        group = self._checked(step) % int(self.sampling["cycle_length"])
        drawn = self._tossed(self.sampling["sampling_probability"], step, self._first, self._last)
        its_turn: Indices = drawn[self._group_of_each()[drawn - self._first] == group]
        return its_turn

    def _group_of_each(self) -> npt.NDArray[np.int64]:
        """Return the group of every record of the shard. The result is cached."""
        count = int(self.sampling["cycle_length"])
        if self.sampling["assignment"] == "by_position":
            places: npt.NDArray[np.int64] = np.arange(self._first, self._last) % count
            return places
        if self._groups is None or self._groups[0] != self._key:
            self._groups = (self._key, self._drawn_bins(0, count))
        return self._groups[1]
