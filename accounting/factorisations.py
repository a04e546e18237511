r"""Lower triangular Toeplitz matrices that correlate noise, and the distance by which one record moves their output.

A mechanism that releases C G + s Z, with G the T sums of bounded contributions, C lower triangular and Z independent
standard normal numbers, has the squared sensitivity sens^2 = max over the sets p of steps that a record may be in of
|sum over p of C e_i|^2, where contributions are at most 1 in l2 and C^T C has no negative entry. C is Toeplitz here,
with coefficients

    c_0 > 0,    c_0 >= c_1 >= ... >= 0.

Theorem (Kalinin & Lampert 2024, arXiv 2405.13763, Theorem 2). If a record's steps are at least m apart, the worst steps
are 0, m, 2m, ..., all of them below T. The reason: an entry of C^T C is sum over r < T - j of c_r c_(r+j-i) for i <= j,
which rises neither with j nor with j - i. The l-th of the record's steps is at least lm, and its l-th and l'-th steps
are at least |l - l'| m apart, so each term is at most that of the claimed steps. Without monotone coefficients the
theorem is false: with (1, 0, 1), T = 6, m = 1 and two steps, steps 0 and 1 give 4, but steps 0 and 2 give 6.

The column of all these steps together is y_t = c_t + y_(t-m), and sens^2 is the sum of y_t^2. All numbers are
nonnegative, so every rounding error is relative to the number in which it is made, and sums are rounded up by a bound
of their error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.errors import InvalidValue

Array = NDArray[np.float64]

#: The most steps for which coefficients of an infinite sequence are computed.
MOST_COEFFICIENTS = 10**5
_UNIT = 2.0**-53
#: The relative error of a power, in units of `_UNIT`: NumPy's are within a few units of the last place.
_OF_A_POWER = 64.0


def participation_norm(coefficients: Array, steps: int, separation: int) -> float:
    """Return an upper bound of the distance by which a record moves C G, in contribution bounds, to a relative 1e-9.

    Args:
        coefficients: c_0, c_1, ...: nonnegative and not increasing. At most ``steps`` of them count; later ones are 0.
        steps: The number T of steps.
        separation: The number m: two steps of one record are at least m apart.

    >>> participation_norm(np.array([1.0, 0.5, 0.375]), 1, 1)
    1.0000000000000018
    >>> round(participation_norm(np.array([1.0, 0.5]), 4, 1) ** 2, 12)
    7.75
    """
    known = coefficients[:steps]
    bands = known.size
    if separation >= bands:
        # Columns of different steps do not overlap; the last one may be cut short.
        times = -(-steps // separation)
        last = known[: steps - (times - 1) * separation]
        total = (times - 1) * math.fsum(known * known) + math.fsum(last * last)
        return math.sqrt(total) * (1.0 + 16.0 * _UNIT)
    rows = -(-min(steps, bands + separation) // separation)
    column = np.zeros(rows * separation)
    column[:bands] = known
    column = np.cumsum(column.reshape(rows, separation), axis=0).ravel()
    squares = column * column
    if steps <= column.size:
        total = math.fsum(squares[:steps])
    else:
        # After the last coefficient, the column repeats itself.
        period = squares[bands : bands + separation]
        whole, rest = divmod(steps - bands, separation)
        total = math.fsum([*squares[:bands], whole * math.fsum(period), *period[:rest]])
    return math.sqrt(total) * (1.0 + (2.0 * rows + 16.0) * _UNIT)


def listed(coefficients: Sequence[float]) -> Array:
    """Return the given coefficients as an array."""
    return np.array(coefficients, dtype=np.float64)


def square_root(steps: int) -> Array:
    """Return upper bounds of the coefficients of (1 - x)^(-1/2): 1, 1/2, 3/8, ..., each being (2j - 1)/(2j) times the
    one before.

    >>> square_root(4).round(12).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    _check_number(steps)
    places = np.arange(1.0, steps)
    found: Array = np.concatenate([[1.0], np.cumprod((2.0 * places - 1.0) / (2.0 * places))])
    return found * (1.0 + 4.0 * _UNIT * np.arange(steps))


@lru_cache(maxsize=16)
def inverse_of_root(bands: int, steps: int) -> Array:
    """Return non-increasing upper bounds of C's coefficients, where C^-1 has the first coefficients of (1 - x)^(1/2).

    The coefficients of (1 - x)^(1/2) are 1 and then negative, so those of C are sums of products of positive numbers.

    Args:
        bands: The number of coefficients of C^-1.
        steps: The number T of steps.

    Source: Kalinin et al. 2025, arXiv 2505.12128.

    >>> inverse_of_root(2, 4).round(12).tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    _check_number(steps)
    places = np.arange(2.0, max(bands, 2))
    negative = -0.5 * np.concatenate([[1.0], np.cumprod((2.0 * places - 3.0) / (2.0 * places))])[: max(bands - 1, 0)]
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    found = np.asarray(scipy.signal.lfilter([1.0], [1.0, *negative], impulse), dtype=np.float64)
    return not_increasing(found * (1.0 + (5.0 * bands + 4.0) * _UNIT * np.arange(steps)))


@lru_cache(maxsize=16)
def buffered(scales: tuple[float, ...], decays: tuple[float, ...], steps: int) -> Array:
    """Return upper bounds of 1, sum of scales, sum of scales decays, sum of scales decays^2, ...

    Source: buffered linear Toeplitz matrices, Dvijotham et al. 2024, arXiv 2404.16706.

    >>> buffered((0.25, 0.25), (0.5, 0.0), 4).round(12).tolist()
    [1.0, 0.5, 0.125, 0.0625]
    """
    _check_number(steps)
    places = np.arange(steps - 1.0)
    found = np.ones(steps)
    found[1:] = sum(scale * decay**places for scale, decay in zip(scales, decays, strict=True))
    found[1:] *= 1.0 + (len(scales) + _OF_A_POWER) * _UNIT
    return not_increasing(found)


def _check_number(steps: int) -> None:
    if steps > MOST_COEFFICIENTS:
        raise InvalidValue(
            f"the coefficients of this matrix are computed for at most {MOST_COEFFICIENTS} steps, got {steps}",
            pointer=("count",),
        )


def not_increasing(coefficients: Array) -> Array:
    """Replace each coefficient by the largest of it and its successors: a bound for these coefficients also holds for
    C."""
    lifted: Array = np.maximum.accumulate(coefficients[::-1])[::-1]
    # Searches ask for the same coefficients again and again, so they are kept.
    lifted.flags.writeable = False
    return lifted
