"""The base of all samplers: steps, shards, states, and pseudorandom words for each record under a key."""

from __future__ import annotations

import hashlib
import operator
import secrets
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

KEY_BYTES = 32
#: A uniform variate is a multiple of 2^-53, as in the service: the leading 16 bits decide for nearly every record.
_BITS, _LEADING = 53, 16
_TRAILING = _BITS - _LEADING
#: The number of records whose words are one output of the hash.
_CHUNK = 4096


class Sampler(ABC):
    """Draws the records of each step.

    Args:
        dataset_size: n, the public number of records, from which the divisor is computed.
        steps: The number of steps of the whole training.
        records: How many records there are, if that is not the public number; it is never shown.
        key: The key of the sampler that this one continues, or whose other shard it draws; None makes a new key.
        shard: This machine's number and the number of machines: it draws only from its own range of records.

    Attributes:
        sampling: How batches are drawn, in the form of an event.

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
        self.dataset_size = whole("dataset_size", dataset_size, 1)
        self.steps = whole("steps", steps, 1)
        self._records = self.dataset_size if records is None else whole("records", records, 0)
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(
                f"a key must have {KEY_BYTES} bytes: leave key out, or take it from another sampler's state_dict"
            )
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else bytes(key)
        number, count = whole("shard[0]", shard[0], 0), whole("shard[1]", shard[1], 1)
        if number >= count:
            raise ValueError(f"shards are numbered from 0 to {count - 1}, got {number}")
        self._first, self._last = (self._records * edge // count for edge in (number, number + 1))
        self._drawn = 0

    @property
    @abstractmethod
    def divisor(self) -> float:
        """Return the public constant that a noisy sum is divided by: the expected batch of all shards."""

    @abstractmethod
    def batch(self, step: int) -> Indices:
        """Return the records of a step that are in this shard, ascending.

        Args:
            step: The step, counted from 0. It has the same batch whenever it is asked for.
        """

    @property
    def records(self) -> int:
        """Return the number of records in all shards. This number is secret if it is secret who is in the data set."""
        return self._records

    @property
    def steps_left(self) -> int:
        """Return how many steps were not handed out yet."""
        return self.steps - self._drawn

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of steps that are drawn together."""
        return 1

    @property
    def is_within_epoch(self) -> bool:
        """Return whether some steps of an epoch are handed out, and others are left."""
        return self._drawn % self.steps_per_epoch != 0 and self.steps_left > 0

    def begin_epoch(self) -> None:
        """Leave out the rest of an epoch that has begun. Records that would be in these steps take no part in the
        epoch."""
        self._drawn = min(-(-self._drawn // self.steps_per_epoch) * self.steps_per_epoch, self.steps)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        """Return the batches of the steps that are left, as lists of indices; one loop is the whole training.

        Raises:
            ValueError: all steps are drawn; the same batches again would not be a fresh sample.
        """
        if not self.steps_left:
            raise ValueError(
                f"all {self.steps} steps were drawn: one loop over the sampler is the whole training, not an "
                "epoch. Make another sampler for further steps"
            )
        return self._rest()

    def _rest(self) -> Iterator[list[int]]:
        while self.steps_left:
            step = self._drawn
            self._drawn += 1
            yield self.batch(step).tolist()

    def micro_batches(self, step: int, size: int) -> Iterator[tuple[Indices, npt.NDArray[np.bool_]]]:
        """Yield a step's records in arrays of one size, for compiled loops. Add up all arrays, and then add the noise
        once.

        Args:
            step: The step, counted from 0.
            size: The size of each array.

        Yields:
            Two arrays of shape (size,): indices, and whether each belongs to the batch. The others repeat index 0 and
            must not count. Each step has at least one pair, even if its batch is empty.
        """
        batch, size = self.batch(step), whole("size", size, 1)
        for start in range(0, max(batch.size, 1), size):
            part = batch[start : start + size]
            indices, mask = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.bool_)
            indices[: part.size], mask[: part.size] = part, True
            yield indices, mask

    def state_dict(self, *, steps_taken: int | None = None) -> dict[str, Any]:
        """Return everything that is needed to go on, including the key; it is as secret as the records.

        Args:
            steps_taken: The steps that the training has taken. None counts the batches that were handed out, which is
                too many for a loader with workers: it asks for some ahead.
        """
        step = self._drawn if steps_taken is None else whole("steps_taken", steps_taken, 0)
        return self._declared() | {"key": self._key.hex(), "step": step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: the state belongs to a sampler that draws differently.
        """
        for name, own in self._declared().items():
            if state.get(name) != own:
                raise ValueError(
                    f"the state belongs to another sampler: its {name} is {state.get(name)!r}, not {own!r}"
                )
        step = whole("step", state["step"], 0)
        if step > self.steps:
            raise ValueError(f"step must be at most {self.steps}, got {step}")
        self._key, self._drawn = bytes.fromhex(state["key"]), step

    def shard(self, number: int, count: int) -> Self:
        """Return the sampler of one of several machines: it draws the same steps from its own range of records.

        The shards of all machines together draw what this sampler draws. Each shard needs the
        same key, so make all shards from one `state_dict`.
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
        """Return the arguments that only this kind of sampler has."""
        return arguments_of(self.sampling)

    def _declared(self) -> dict[str, Any]:
        return {
            "sampling": self.sampling,
            "dataset_size": self.dataset_size,
            "steps": self.steps,
            "records": self._records,
        }

    def _checked(self, step: int) -> int:
        if not 0 <= step < self.steps:
            raise ValueError(f"steps are numbered from 0 to {self.steps - 1}, got {step}")
        return step

    def _digest(self, purpose: str, size: int, *place: int) -> bytes:
        """Return this many pseudorandom bytes, which are independent for different purposes and places."""
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
        """Return the records from ``first`` up to ``last`` that take part, drawn independently for each record and
        step.

        A record takes part when its variate, a multiple of 2^-53, is below floor(q 2^53) / 2^53, which is at most q.
        """
        leading, trailing = divmod(int(probability * 2.0**_BITS), 1 << _TRAILING)
        words = self._words("leading", "<u2", first, last, step)
        taken = words < leading
        for place in np.flatnonzero(words == leading):
            taken[place] = self._word("trailing", step, first + int(place)) >> (64 - _TRAILING) < trailing
        return first + np.flatnonzero(taken)

    def _drawn_bins(self, block: int, count: int) -> npt.NDArray[np.int64]:
        """Return the bin of each record of the shard in a block: each of ``count`` bins is equally likely."""
        beyond = (1 << 64) // count * count  # words at or above this bound would make the first bins more likely
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


def arguments_of(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that only this kind of sampling has; its size may be the number of slots."""
    found = {name: value for name, value in sampling.items() if name not in ("kind", "dataset_size")}
    if sampling.get("truncation") == "random_slots":
        found["slots"] = sampling["dataset_size"]
    return found


def whole(name: str, value: Any, lowest: int) -> int:
    """Return the value as an integer; ValueError if it is below ``lowest``."""
    found = operator.index(value)
    if found < lowest:
        raise ValueError(f"{name} must be {lowest} or more, got {found}")
    return found


def checked_probability(value: float) -> float:
    """Return the probability; ValueError unless it is above 0 and at most 1."""
    if not 0.0 < value <= 1.0:
        raise ValueError(f"sampling_probability must be above 0 and at most 1, got {value!r}")
    return float(value)
