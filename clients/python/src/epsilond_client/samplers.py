"""Samplers for your own training loops: they draw what their event says (needs NumPy).

    sampler = samplers.for_event(plan.events[0], dataset_size=50_000)
    for indices in sampler:        # one loop is the training; an empty batch has noise like others
        ...                        # clip, sum, add noise, divide by sampler.divisor

PyTorch takes a sampler as ``DataLoader(batch_sampler=...)``; `epsilond_client.adapters.pytorch` makes a loader that can
do with empty batches, and `epsilond_client.adapters.grain` a dataset of Grain.

A sampler is a random function under a key of the operating system. Who takes part in a step follows from the key, the
step and the record alone, so that nothing is stored, a loop goes on where it was, and every machine draws its own part
without a word to the others. Key and batches are as secret as the noise: whoever knows who was in a batch has lost the
amplification that was charged.
"""

from __future__ import annotations

import hashlib
import operator
import secrets
import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

KEY_BYTES = 32
#: A uniform variate is a multiple of 2^-53, as in the service: the leading 16 bits decide for nearly every record.
_BITS, _LEADING = 53, 16
_TRAILING = _BITS - _LEADING
#: Records whose words are one output of the hash.
_CHUNK = 4096


class Sampler(ABC):
    """Draws the records of each step.

    Args:
        dataset_size: n, the public number of records, from which the divisor is computed.
        steps: The number of steps of the whole training.
        records: How many records there are, if that is not the public number; it is never shown.
        key: The key of the sampler that this one continues, or of which it draws another shard; None makes a new one.
        shard: This machine's number and the number of machines: it draws only from its own range of records.

    Attributes:
        sampling: How batches are drawn, as an event says it.

    Raises:
        ValueError: a number is outside its range.
    """

    kind: ClassVar[str]
    sampling: dict[str, Any]

    def __init__(
        self,
        dataset_size: int,
        steps: int,
        *,
        records: int | None = None,
        key: bytes | None = None,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        self.dataset_size = _whole("dataset_size", dataset_size, 1)
        self.steps = _whole("steps", steps, 1)
        self._records = self.dataset_size if records is None else _whole("records", records, 0)
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes: leave it out, or take it from another sampler's state_dict")
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else bytes(key)
        number, count = _whole("shard[0]", shard[0], 0), _whole("shard[1]", shard[1], 1)
        if number >= count:
            raise ValueError(f"shards are numbered from 0 to {count - 1}, got {number}")
        self._first, self._last = (self._records * edge // count for edge in (number, number + 1))
        self._drawn = 0

    @property
    @abstractmethod
    def divisor(self) -> float:
        """The public constant that a noisy sum is divided by: the expected batch of all shards."""

    @abstractmethod
    def batch(self, step: int) -> Indices:
        """Return the records of a step that are in this shard, ascending.

        Args:
            step: From 0 on. The same step has the same batch, however often it is asked for.
        """

    @property
    def records(self) -> int:
        """Return how many records there are, of all shards; as secret as membership is."""
        return self._records

    @property
    def steps_left(self) -> int:
        """The steps that were not handed out yet."""
        return self.steps - self._drawn

    @property
    def steps_per_epoch(self) -> int:
        """The steps that are drawn as a whole."""
        return 1

    @property
    def is_within_epoch(self) -> bool:
        """Return whether some steps of an epoch are handed out, and others are left."""
        return self._drawn % self.steps_per_epoch != 0 and self.steps_left > 0

    def begin_epoch(self) -> None:
        """Leave out the rest of an epoch that has begun: whoever drew one of these steps takes no part in the epoch."""
        self._drawn = min(-(-self._drawn // self.steps_per_epoch) * self.steps_per_epoch, self.steps)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the steps that are left, as lists of indices; one loop is the whole training.

        Raises:
            ValueError: all steps are drawn; the same batches again would not be a fresh sample.
        """
        if not self.steps_left:
            raise ValueError(
                f"all {self.steps} steps are drawn: one loop over the sampler is the whole training, and not an epoch. "
                "Make another sampler for further steps"
            )
        return self._rest()

    def _rest(self) -> Iterator[list[int]]:
        while self.steps_left:
            step = self._drawn
            self._drawn += 1
            yield self.batch(step).tolist()

    def micro_batches(self, step: int, size: int) -> Iterator[tuple[Indices, npt.NDArray[np.bool_]]]:
        """Yield a step's records in arrays of one size, for compiled loops: sum up over them, then add the noise once.

        Args:
            step: From 0 on.
            size: The size of each array.

        Yields:
            shape (size,): indices, and whether each is of the batch; the others repeat index 0 and must not count. At
            least one pair for each step, an empty one included.
        """
        batch, size = self.batch(step), _whole("size", size, 1)
        for start in range(0, max(batch.size, 1), size):
            part = batch[start : start + size]
            indices, mask = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.bool_)
            indices[: part.size], mask[: part.size] = part, True
            yield indices, mask

    def state_dict(self, *, steps_taken: int | None = None) -> dict[str, Any]:
        """Return everything that is needed to go on, including the key; it is as secret as the records.

        Args:
            steps_taken: The steps that the training has taken. None counts the batches that were handed out; a loader
                with workers asks for some ahead.
        """
        step = self._drawn if steps_taken is None else _whole("steps_taken", steps_taken, 0)
        return self._declared() | {"key": self._key.hex(), "step": step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state.

        Raises:
            ValueError: the state belongs to a sampler that draws differently.
        """
        for name, own in self._declared().items():
            if state.get(name) != own:
                raise ValueError(
                    f"the state is of another sampler: {name} is {state.get(name)!r} there and {own!r} here"
                )
        step = _whole("step", state["step"], 0)
        if step > self.steps:
            raise ValueError(f"step must be at most {self.steps}, got {step}")
        self._key, self._drawn = bytes.fromhex(state["key"]), step

    def shard(self, number: int, count: int) -> Self:
        """Return the sampler of one of several machines: the same steps, of its own range of records.

        All of them together draw what this one draws. Each needs the same key: make them from one `state_dict`.
        """
        return type(self)(
            self.dataset_size,
            self.steps,
            records=self._records,
            key=self._key,
            shard=(number, count),
            **self._parameters(),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.sampling}, {self.steps} steps>"

    def _parameters(self) -> dict[str, Any]:
        """Return the arguments that only this kind has."""
        return _arguments_of(self.sampling)

    def _declared(self) -> dict[str, Any]:
        return {
            "sampling": self.sampling,
            "dataset_size": self.dataset_size,
            "steps": self.steps,
            "records": self._records,
        }

    def _digest(self, purpose: str, size: int, *place: int) -> bytes:
        """Return this many pseudorandom bytes of a purpose and a place; other ones have nothing to do with them."""
        context = purpose.encode().ljust(8, b"\0") + struct.pack(f"<{len(place)}Q", *place)
        return hashlib.shake_256(self._key + context).digest(size)

    def _words(self, purpose: str, dtype: str, first: int, last: int, *place: int) -> npt.NDArray[Any]:
        """Return a word for each record from ``first`` up to ``last``, which depends on the record and the place."""
        size = np.dtype(dtype).itemsize * _CHUNK
        start = first // _CHUNK
        chunks = [self._digest(purpose, size, *place, chunk) for chunk in range(start, -(-last // _CHUNK))]
        words: npt.NDArray[Any] = np.frombuffer(b"".join(chunks), dtype=dtype)
        return words[first - start * _CHUNK : last - start * _CHUNK]

    def _word(self, purpose: str, *place: int) -> int:
        return int.from_bytes(self._digest(purpose, 8, *place), "little")

    def _tossed(self, probability: float, step: int, first: int, last: int) -> Indices:
        """Return the records from ``first`` up to ``last`` whose coin came up: each by itself, and anew in every step.

        A record takes part when its variate, a multiple of 2^-53, is below floor(q 2^53) / 2^53, which is at most q.
        """
        leading, trailing = divmod(int(probability * 2.0**_BITS), 1 << _TRAILING)
        words = self._words("leading", "<u2", first, last, step)
        taken = words < leading
        for place in np.flatnonzero(words == leading):
            taken[place] = self._word("trailing", step, first + int(place)) >> (64 - _TRAILING) < trailing
        return first + np.flatnonzero(taken)

    def _drawn_bins(self, block: int, count: int) -> npt.NDArray[np.int64]:
        """Return the bin of each record of the shard, which the block decides: all of this many are equally likely."""
        beyond = (1 << 64) // count * count  # words from here on would favour the first bins
        words = np.array(self._words("bins", "<u8", self._first, self._last, block))
        if beyond < 1 << 64:
            for place in np.flatnonzero(words >= np.uint64(beyond)):
                words[place] = self._accepted(block, self._first + int(place), beyond)
        return (words % np.uint64(count)).astype(np.int64)

    def _accepted(self, block: int, record: int, beyond: int) -> int:
        attempt, word = 0, beyond
        while word >= beyond:
            word = self._word("again", block, record, attempt)
            attempt += 1
        return word


class Poisson(Sampler):
    """Each record takes part in each step with the same probability, independently of all others and of other steps.

    >>> sampler = Poisson(1000, 3, sampling_probability=0.1)
    >>> [len(batch) < 1000 for batch in sampler], sampler.divisor
    ([True, True, True], 100.0)
    """

    kind = "poisson"

    def __init__(self, dataset_size: int, steps: int, *, sampling_probability: float, **options: Any) -> None:
        super().__init__(dataset_size, steps, **options)
        self.sampling = {"kind": self.kind, "sampling_probability": _probability(sampling_probability)}

    @property
    def divisor(self) -> float:
        """Return q n."""
        return float(self.sampling["sampling_probability"]) * self.dataset_size

    def batch(self, step: int) -> Indices:
        return self._tossed(self.sampling["sampling_probability"], _step(step, self.steps), self._first, self._last)


class TruncatedPoisson(Sampler):
    """Poisson batches; of one with more than `max_batch_size` records a uniformly random subset of that size is kept.

    If slots are drawn, their number does not depend on the number of records, and an empty slot takes a place in a
    batch like the others. So a record that comes or goes does not let another record in or out.

    Args:
        dataset_size: A public bound on the number of records; under the replace relations, their number. If slots are
            drawn, the public number from which the divisor is computed.
        steps: The number of steps of the whole training.
        sampling_probability: The probability of every record before batches are cut.
        max_batch_size: Records that a batch has at most, in all shards together.
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
                f'batches are cut at random here: truncation must be "random" or "random_slots", got {truncation!r}'
            )
        if (slots is None) == (truncation == "random_slots"):
            raise ValueError('slots is the number of slots, which truncation "random_slots" needs and no other takes')
        bound, name = (self.dataset_size, "dataset_size") if slots is None else (slots, "slots")
        if self.records > _whole(name, bound, self.dataset_size):
            raise ValueError(f"{name} is a bound on the number of records, and there are more than {bound}")
        self.sampling = {
            "kind": self.kind,
            "sampling_probability": _probability(sampling_probability),
            "max_batch_size": _whole("max_batch_size", max_batch_size, 1),
            "dataset_size": bound,
            "truncation": truncation,
        }
        # Empty slots are drawn as records behind the last one.
        self._places = self.records if slots is None else slots

    @property
    def divisor(self) -> float:
        """Return the largest batch size, or q n where that is less; of slots, the share of it that n of them have."""
        share = min(
            float(self.sampling["sampling_probability"]),
            float(self.sampling["max_batch_size"]) / float(self.sampling["dataset_size"]),
        )
        return share * self.dataset_size

    def batch(self, step: int) -> Indices:
        """Return whether a batch is cut depends on all records, so that every shard draws the whole batch."""
        drawn = self._tossed(self.sampling["sampling_probability"], _step(step, self.steps), 0, self._places)
        if drawn.size > self.sampling["max_batch_size"]:
            drawn = self._kept(drawn, step)
        return drawn[(drawn >= self._first) & (drawn < self._last)]

    def _kept(self, drawn: Indices, step: int) -> Indices:
        """Return a uniformly random subset: those with the least words, which are drawn again where two are equal."""
        attempt = 0
        while True:
            words = self._words("kept", "<u8", 0, self._places, step, attempt)[drawn]
            if np.unique(words).size == words.size:
                return np.sort(drawn[np.argsort(words)[: self.sampling["max_batch_size"]]])
            attempt += 1


class Blocks(Sampler):
    """Each record takes part in one step of every block, drawn independently for each record and block.

    Args:
        dataset_size: n, the public number of records.
        steps: The number of steps of the whole training.
        num_bins: The number of steps that are cut into blocks; after them it begins again.
        participations: How many blocks: block b of them, from 0 on, begins at step floor(b num_bins / participations).
        options: Those of `Sampler`.

    >>> sampler = Blocks(100, 7, num_bins=7, participations=2)
    >>> sorted(index for step in range(3) for index in sampler.batch(step).tolist()) == list(range(100))
    True
    """

    kind = "blocks"

    def __init__(self, dataset_size: int, steps: int, *, num_bins: int, participations: int, **options: Any) -> None:
        super().__init__(dataset_size, steps, **options)
        bins, blocks = _whole("num_bins", num_bins, 1), _whole("participations", participations, 1)
        if blocks > bins:
            raise ValueError(f"participations must be at most num_bins, {bins}, got {blocks}")
        self.sampling = {"kind": self.kind, "num_bins": bins, "participations": blocks}
        self._starts = [block * bins // blocks for block in range(blocks + 1)]
        self._block: tuple[int, bytes, npt.NDArray[np.int64]] | None = None

    @property
    def divisor(self) -> float:
        """Return n times the number of blocks over that of their steps."""
        return self.dataset_size * int(self.sampling["participations"]) / int(self.sampling["num_bins"])

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of bins."""
        return int(self.sampling["num_bins"])

    def batch(self, step: int) -> Indices:
        epoch, place = divmod(_step(step, self.steps), self.steps_per_epoch)
        block = bisect_right(self._starts, place) - 1
        first, end = self._starts[block], self._starts[block + 1]
        bins = self._bins(epoch * (len(self._starts) - 1) + block, end - first)
        return self._first + np.flatnonzero(bins == place - first)

    def _bins(self, block: int, count: int) -> npt.NDArray[np.int64]:
        """Return the bin of every record of the shard in a block; the last one that was asked for is kept."""
        if self._block is None or self._block[:2] != (block, self._key):
            self._block = (block, self._key, self._drawn_bins(block, count))
        return self._block[2]


class RandomAllocation(Blocks):
    """Each record takes part in one of every `num_bins` steps, drawn independently for each record and epoch.

    >>> sampler = RandomAllocation(1000, 10, num_bins=5)
    >>> sorted(index for step in range(5) for index in sampler.batch(step).tolist()) == list(range(1000))
    True
    """

    kind = "random_allocation"

    def __init__(
        self, dataset_size: int, steps: int, *, num_bins: int, participations: int = 1, **options: Any
    ) -> None:
        if participations != 1:
            raise ValueError(
                f"one step of every allocation is drawn here: participations must be 1, got {participations}; or take "
                "Blocks"
            )
        super().__init__(dataset_size, steps, num_bins=num_bins, participations=1, **options)


class CyclicPoisson(Sampler):
    """Poisson batches from one group of the records after the other; a record is in one group for the whole training.

    Step t draws from group t mod `cycle_length`, so that a record's steps are never closer than a cycle: correlated
    noise over that many steps needs this. Groups follow from the key, so they stay the same if a loop goes on.

    Args:
        dataset_size: n, the public number of records.
        steps: The number of steps of the whole training.
        sampling_probability: The sampling probability of each record in the steps of its group.
        cycle_length: How many groups there are.
        assignment: "independent" draws each record's group for it alone; "by_position" assigns groups by the place of a
            record, so a record that replaces another keeps its group.
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
            "sampling_probability": _probability(sampling_probability),
            "cycle_length": _whole("cycle_length", cycle_length, 1),
            "assignment": assignment,
        }
        self._groups: tuple[bytes, npt.NDArray[np.int64]] | None = None

    @property
    def divisor(self) -> float:
        """Return q n over the number of groups."""
        return float(self.sampling["sampling_probability"]) * self.dataset_size / int(self.sampling["cycle_length"])

    def batch(self, step: int) -> Indices:
        group = _step(step, self.steps) % int(self.sampling["cycle_length"])
        drawn = self._tossed(self.sampling["sampling_probability"], step, self._first, self._last)
        its_turn: Indices = drawn[self._group_of_each()[drawn - self._first] == group]
        return its_turn

    def _group_of_each(self) -> npt.NDArray[np.int64]:
        """Return the group of every record of the shard; it is kept."""
        count = int(self.sampling["cycle_length"])
        if self.sampling["assignment"] == "by_position":
            places: npt.NDArray[np.int64] = np.arange(self._first, self._last) % count
            return places
        if self._groups is None or self._groups[0] != self._key:
            self._groups = (self._key, self._drawn_bins(0, count))
        return self._groups[1]


class FixedOrderEpochs(Sampler):
    """Every epoch has the same batches in the same order: consecutive records, every record once an epoch.

    >>> sampler = FixedOrderEpochs(10, 5, steps_per_epoch=4)
    >>> [batch for batch in sampler]
    [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9], [0, 1]]
    """

    kind = "fixed_order_epochs"

    def __init__(self, dataset_size: int, steps: int, *, steps_per_epoch: int, **options: Any) -> None:
        super().__init__(dataset_size, steps, **options)
        self.sampling = {"kind": self.kind, "steps_per_epoch": _whole("steps_per_epoch", steps_per_epoch, 1)}

    @property
    def divisor(self) -> float:
        """Return n over the number of batches."""
        return self.dataset_size / int(self.sampling["steps_per_epoch"])

    def batch(self, step: int) -> Indices:
        count = int(self.sampling["steps_per_epoch"])
        place = _step(step, self.steps) % count
        first, last = (self._records * edge // count for edge in (place, place + 1))
        return np.arange(max(first, self._first), min(last, self._last))


def for_event(event: Mapping[str, Any], *, dataset_size: int, **options: Any) -> Sampler:
    """Return the sampler that draws what an event says, of a calibration or of a reservation.

    Args:
        event: An event with its `sampling` and `count`.
        dataset_size: The public number of records.
        options: Those of `Sampler`.

    Raises:
        ValueError: there is no sampler for it.

    >>> event = {"sampling": {"kind": "poisson", "sampling_probability": 0.5}, "count": 3}
    >>> for_event(event, dataset_size=10).divisor
    5.0
    """
    sampling = event.get("sampling") or {"kind": "full_batch"}
    kind, arguments = sampling["kind"], _arguments_of(sampling)
    if kind not in SAMPLERS:
        raise ValueError(f"there is no sampler for {kind}; there is one for each of {', '.join(SAMPLERS)}")
    if "slots" not in arguments and sampling.get("dataset_size", dataset_size) != dataset_size:
        raise ValueError(f"the event is of {sampling['dataset_size']} records, and dataset_size is {dataset_size}")
    return SAMPLERS[kind](dataset_size, int(event.get("count", 1)), **arguments, **options)


SAMPLERS: dict[str, type[Sampler]] = {
    cls.kind: cls for cls in (Poisson, TruncatedPoisson, RandomAllocation, Blocks, CyclicPoisson, FixedOrderEpochs)
}


def _arguments_of(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that only this kind of sampling has; its size may be the number of slots."""
    found = {name: value for name, value in sampling.items() if name not in ("kind", "dataset_size")}
    if sampling.get("truncation") == "random_slots":
        found["slots"] = sampling["dataset_size"]
    return found


def _whole(name: str, value: Any, lowest: int) -> int:
    found = operator.index(value)
    if found < lowest:
        raise ValueError(f"{name} must be {lowest} or more, got {found}")
    return found


def _probability(value: float) -> float:
    if not 0.0 < value <= 1.0:
        raise ValueError(f"sampling_probability must be above 0 and at most 1, got {value!r}")
    return float(value)


def _step(step: int, steps: int) -> int:
    if not 0 <= step < steps:
        raise ValueError(f"steps are numbered from 0 to {steps - 1}, got {step}")
    return step
