"""Who takes part in a step: the sampling that was charged is the sampling that runs."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

from accounting.errors import Unsupported, one_of
from accounting.events import FullBatch, Poisson, Sampling

Selection = slice | npt.NDArray[np.intp]

#: A uniform variate is a multiple of 2^-53; its leading 16 bits decide for all but one row in 65536.
_BITS = 53
_LEADING = 16
_TRAILING = _BITS - _LEADING


class Sampler(Protocol):
    """Draws the rows of one step after the other."""

    def draw(self) -> Selection:
        """The rows of the next step, ascending."""
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

    >>> from trainer.noise import random_streams
    >>> PoissonSampler(3, 1.0, random_streams(0).sampling).draw().tolist()
    [0, 1, 2]
    """

    def __init__(self, num_rows: int, sampling_probability: float, stream: AESCounter) -> None:
        self._num_rows = num_rows
        threshold = math.floor(sampling_probability * 2.0**_BITS)  # a product with a power of two is exact
        self._leading, self._trailing = divmod(threshold, 1 << _TRAILING)
        self._stream = stream

    def draw(self) -> npt.NDArray[np.intp]:
        words: npt.NDArray[np.uint64] = self._stream.random_raw(-(-self._num_rows * _LEADING // 64))
        leading = words.view(np.uint16)[: self._num_rows]
        rows = np.flatnonzero(leading <= self._leading)
        undecided = leading[rows] == self._leading
        trailing = self._stream.random_raw(int(np.count_nonzero(undecided))) >> np.uint64(64 - _TRAILING)
        taken = np.ones(rows.size, dtype=bool)
        taken[undecided] = trailing < self._trailing
        return rows[taken]


def sampler_for(sampling: Sampling, num_rows: int, stream: AESCounter) -> Sampler:
    """The sampler that runs what ``sampling`` was charged for.

    Raises:
        Unsupported: no sampler of this kind is here.
    """
    if isinstance(sampling, FullBatch):
        return FullBatchSampler(num_rows)
    if isinstance(sampling, Poisson):
        return PoissonSampler(num_rows, sampling.sampling_probability, stream)
    raise Unsupported(
        f"the trainer has no sampler for {sampling.kind}; use {one_of([FullBatch.kind, Poisson.kind])}",
        code="unsupported_sampling",
        pointer=("sampling", "kind"),
    )
