"""Padding of batches by the spare slot, so that their sizes follow from public numbers alone.

A step that draws more slots than a padded batch has, which happens with probability 2^-60 in a whole phase, takes a
multiple of that size: its law stays exact, but its time may reveal that this happened.
"""

from __future__ import annotations

import numpy as np
import scipy

from trainer.records import Indices

#: The probability that any step of a phase draws more slots than a padded batch has.
OVERFLOW = 2.0**-60


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
