"""Held-out rows: a secret coin for each row of a data set, tossed once, when the rows are stored.

A run trains on the other rows, and pays for what it releases about the held-out rows (docs/concepts/held_out_rows.md).
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from app.datasets.persons import PersonArray

#: Shape (rows,): true for a row that is held out. It is as secret as the rows.
CoinArray = NDArray[np.bool_]

#: The least and the largest share that may be held out.
LEAST_SHARE, LARGEST_SHARE = 0.01, 0.5
_WORD_BYTES = 8


def toss(rows: int, share: float, persons: PersonArray | None = None) -> CoinArray:
    """Toss a coin for each row, or for each person if the rows have persons, so that no person is in both parts.

    Coins are independent of each other and of what the rows hold: they come from the operating system's generator.

    Args:
        rows: The number of rows.
        share: The probability with which a row is held out.
        persons: The person of each row, if known.

    >>> toss(4, 0.5, np.array([[1, 1], [2, 2], [1, 1], [2, 2]], np.uint64))[:2].size
    2
    """
    places = np.arange(rows)
    if persons is not None:
        _, places = np.unique(persons, axis=0, return_inverse=True)
    words = np.frombuffer(secrets.token_bytes(_WORD_BYTES * rows), dtype="<u8")
    return (words < int(share * 2.0**64))[places.reshape(-1)]


def split_size(declared_size: int, share: float | None) -> tuple[int, int]:
    """Return how many rows are trained on and how many are held out, computed from the declared size; both numbers are
    public.

    >>> split_size(1000, 0.2), split_size(1000, None)
    ((800, 200), (1000, 0))
    """
    held_out = 0 if share is None else min(round(declared_size * share), declared_size - 1)
    return declared_size - held_out, held_out
