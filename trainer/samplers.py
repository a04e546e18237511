"""Who takes part in a step: the sampling that was charged is the sampling that runs.

Schemes of a fixed size draw from the declared number of slots. The i-th row that was given is in slot i; a slot without
a row contributes nothing, and rows beyond the declared size are in no slot. So nothing is drawn from the realised
number of rows, which is private.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.events import DisjointBatches, FullBatch, Poisson, Sampling, WithoutReplacement

Indices = npt.NDArray[np.intp]
Selection = slice | Indices
State = dict[str, Any]

#: A uniform variate is a multiple of 2^-53; its leading 16 bits decide for all but one row in 65536.
_BITS = 53
_LEADING = 16
_TRAILING = _BITS - _LEADING

#: What there are samplers for.
SAMPLINGS = (FullBatch, Poisson, WithoutReplacement, DisjointBatches)


class Sampler(Protocol):
    """Draws the rows of one step after the other."""

    def draw(self) -> Selection:
        """Positions of the rows of the next step, ascending."""
        ...

    def state(self) -> State:
        """What it holds beside the state of the stream that it draws from."""
        ...

    def restore(self, state: State) -> None:
        """Go on from where `state` was taken, once the stream is where it was."""
        ...


class FullBatchSampler:
    """Every row, every step.

    >>> FullBatchSampler(3).draw()
    slice(0, 3, None)
    """

    def __init__(self, num_rows: int) -> None:
        self._everything = slice(0, num_rows)

    def draw(self) -> slice:
        return self._everything

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class PoissonSampler:
    """Each row with the same probability, independently of the others and of earlier steps.

    A row takes part when its uniform variate u, a multiple of 2^-53, is below floor(q 2^53) / 2^53. The leading 16 bits
    of u are drawn first; the other 37 only where these leave it open, which changes the cost and not the law.

    Args:
        num_rows: Realised number of rows; private, it decides nothing but how many variates are drawn.
        sampling_probability: q in (0, 1], a public constant.
        stream: Where the bits come from.

    Guarantees:
        - realised_probability_is_not_above_the_charged: it is floor(q 2^53) / 2^53 <= q, less than 2^-53 below q.
        - inclusions_are_independent: between rows and between steps. Batches vary in size and may be empty.

    >>> from trainer.streams import random_streams
    >>> PoissonSampler(3, 1.0, random_streams(0).sampling).draw().tolist()
    [0, 1, 2]
    """

    def __init__(self, num_rows: int, sampling_probability: float, stream: AESCounter) -> None:
        self._num_rows = num_rows
        threshold = math.floor(sampling_probability * 2.0**_BITS)  # a product with a power of two is exact
        self._leading, self._trailing = divmod(threshold, 1 << _TRAILING)
        self._stream = stream

    def draw(self) -> Indices:
        words: npt.NDArray[np.uint64] = self._stream.random_raw(-(-self._num_rows * _LEADING // 64))
        leading = words.view(np.uint16)[: self._num_rows]
        rows = np.flatnonzero(leading <= self._leading)
        undecided = leading[rows] == self._leading
        trailing = self._stream.random_raw(int(np.count_nonzero(undecided))) >> np.uint64(64 - _TRAILING)
        taken = np.ones(rows.size, dtype=bool)
        taken[undecided] = trailing < self._trailing
        return rows[taken]

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class WithoutReplacementSampler:
    """A batch of so many of the declared slots, all such batches alike likely; steps are independent.

    Args:
        positions: shape (n,): where the row of slot i stands.
        batch_size: Slots of a batch.
        dataset_size: Slots, the declared size.
        stream: Where the draws come from.

    Guarantees:
        - batches_of_slots_are_alike_likely: drawn by rejection, without the bias of a modulus.
    """

    def __init__(self, positions: Indices, batch_size: int, dataset_size: int, stream: AESCounter) -> None:
        self._positions, self._batch_size, self._dataset_size = positions, batch_size, dataset_size
        self._generator = np.random.Generator(stream)

    def draw(self) -> Indices:
        slots = self._generator.choice(self._dataset_size, self._batch_size, replace=False, shuffle=False)
        return occupied(self._positions, slots)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class DisjointBatchesByPosition:
    """One pass over batches that are cut from a secret permutation of the declared slots.

    Args:
        positions: shape (n,): where the row of slot i stands.
        steps: Batches.
        batch_size: Slots of a batch.
        dataset_size: Slots, the declared size; at least steps times batch_size.
        stream: Where the permutation is drawn from.

    Guarantees:
        - slots_take_part_once_at_most: in one of the steps.
        - the_permutation_ignores_data: it depends on the key and on the declared size.

    """

    def __init__(self, positions: Indices, steps: int, batch_size: int, dataset_size: int, stream: AESCounter) -> None:
        self._positions, self._batch_size, self._drawn = positions, batch_size, 0
        self._order: Indices = np.random.Generator(stream).permutation(dataset_size)[: steps * batch_size]

    def draw(self) -> Indices:
        start = self._drawn * self._batch_size
        self._drawn += 1
        return occupied(self._positions, self._order[start : start + self._batch_size])

    def state(self) -> State:
        return {"order": self._order, "drawn": self._drawn}

    def restore(self, state: State) -> None:
        self._order, self._drawn = np.asarray(state["order"], dtype=np.intp), int(state["drawn"])


class DisjointBatchesIndependent:
    """One pass in which each row draws the step that it takes part in, independently of the others.

    Args:
        num_rows: Realised number of rows; private.
        steps: Batches.
        stream: Where the draws come from.

    Guarantees:
        - rows_draw_their_step: each alike likely, by rejection.
    """

    def __init__(self, num_rows: int, steps: int, stream: AESCounter) -> None:
        self._steps: Indices = np.random.Generator(stream).integers(steps, size=num_rows, dtype=np.intp)
        self._drawn = 0

    def draw(self) -> Indices:
        self._drawn += 1
        return np.flatnonzero(self._steps == self._drawn - 1)

    def state(self) -> State:
        return {"steps": self._steps, "drawn": self._drawn}

    def restore(self, state: State) -> None:
        self._steps, self._drawn = np.asarray(state["steps"], dtype=np.intp), int(state["drawn"])


def occupied(positions: Indices, slots: Indices) -> Indices:
    """Positions of the rows in these slots, ascending; empty slots are left out.

    >>> occupied(np.array([2, 0, 1]), np.array([3, 0, 1])).tolist()
    [0, 2]
    """
    found: Indices = np.sort(positions[slots[slots < positions.size]])
    return found


def check_sampling(sampling: Sampling, steps: int, divisor: int, dataset_size: int) -> None:
    """Refuse what `sampler_for` cannot draw.

    Raises:
        InvalidValue: disjoint batches need more slots than there are.
        Unsupported: no sampler of this kind is here.
    """
    if not isinstance(sampling, SAMPLINGS):
        raise Unsupported(
            f"the trainer has no sampler for {sampling.kind}; use {one_of([cls.kind for cls in SAMPLINGS])}",
            code="unsupported_sampling",
            pointer=("sampling", "kind"),
        )
    by_position = isinstance(sampling, DisjointBatches) and sampling.assignment == "by_position"
    if by_position and steps * divisor > dataset_size:
        raise InvalidValue(
            f"{steps} disjoint batches of {divisor} need {steps * divisor} records; dataset_size is {dataset_size}",
            pointer=("divisor",),
        )


def sampler_for(
    sampling: Sampling, steps: int, divisor: int, dataset_size: int, positions: Indices, stream: AESCounter
) -> Sampler:
    """The sampler that runs what ``sampling`` was charged for.

    Args:
        steps: Of the phase: as many draws.
        divisor: The nominal batch size: of disjoint batches by position, the batch size.
        dataset_size: The declared size.
        positions: shape (n,): where each row that was given stands.
        stream: Where draws come from.

    Raises:
        InvalidValue, Unsupported: as `check_sampling`.
    """
    check_sampling(sampling, steps, divisor, dataset_size)
    match sampling:
        case FullBatch():
            return FullBatchSampler(positions.size)
        case Poisson():
            return PoissonSampler(positions.size, sampling.sampling_probability, stream)
        case WithoutReplacement():
            return WithoutReplacementSampler(positions, sampling.batch_size, sampling.dataset_size, stream)
        case DisjointBatches(assignment="by_position"):
            return DisjointBatchesByPosition(positions, steps, divisor, dataset_size, stream)
        case DisjointBatches():
            return DisjointBatchesIndependent(positions.size, steps, stream)
    raise AssertionError(f"unreachable: {sampling.kind} was refused")
