"""Checks, on public numbers, that an array library's arithmetic is what the proofs of the trainer need.

`trainer.grid` and the modules of the algorithms bound what one record does to a sum. They rest on:

- elementwise sums, differences, products, quotients and square roots that are rounded once, to the nearest number;
- products of matrices and sums of rows with the error of their own dtype, in any order, with or without fused steps;
- independent rows: whatever a row holds, the results for the others are the same, bit by bit;
- repeatable results: the same numbers always give the same bits;
- powers within 2^-40 of the true ones; whole numbers and signs of zero as IEEE 754 has them.

Exponentials and logarithms need no accuracy: whatever their values are, a record's contribution is bounded afterwards.
The noise is drawn on the host (`trainer.exact`), whose own exponentials and logarithms are tested.

The tests of the proofs run on NumPy's arithmetic. A GPU's arithmetic is checked before it gets any rows: single
precision in 19 bits (TF32), half precision, and sums by atomic additions each break one of these properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrators.plan import DTYPES
from trainer.arrays import Namespace, exponential, silent, squared_norms, to_host

#: The rows, inputs and outputs of the products that are checked: those of small and large batches, and of their parts.
_SHAPES = ((7, 3, 1), (320, 784, 10), (1000, 100, 1), (2048, 784, 256), (64, 33, 5))
_DIGITS = {"float32": 24, "float64": 53}
_COUNT = 4096
#: The largest relative error of a power; `trainer.gradients` allows 2^-30 for a whole norm.
_POWERS = 2.0**-40

Host = npt.NDArray[Any]


def faults_of(xp: Namespace) -> tuple[str, ...]:
    """Return a sentence for each fault of a library's arithmetic; none if everything is as the proofs need it.

    Args:
        xp: An array namespace, with its arrays on the device that a run will use.

    >>> faults_of(np)
    ()
    """
    with silent():
        return tuple(
            f"{words}, in {dtype}." for words, holds in _CHECKS.items() for dtype in DTYPES if not holds(xp, dtype)
        )


def _products_are_exact(xp: Namespace, dtype: str) -> bool:
    """Multiply entries of half the digits, one product in each sum: so nothing is rounded, and a lost digit shows."""
    half = _DIGITS[dtype] // 2
    for rows, inputs, outputs in _SHAPES:
        draw = np.random.default_rng(rows)
        features, deltas = (np.zeros((rows, width), dtype=dtype) for width in (inputs, outputs))
        features[np.arange(rows), np.arange(rows) % inputs] = _odd(draw, (rows,), half)
        deltas[np.arange(outputs) * 37 % rows, np.arange(outputs)] = _odd(draw, (outputs,), half)
        weights, whole = (_odd(draw, shape, half).astype(dtype) for shape in ((inputs, outputs), (rows, inputs)))
        for left, right in ((features, weights), (deltas.T, whole)):
            if not _same(_product(xp, left, right), left.astype(np.float64) @ right.astype(np.float64)):
                return False
    return True


def _sums_keep_their_digits(xp: Namespace, dtype: str) -> bool:
    """Add many ones and a large number: the sums are exact in any order, but not in a shorter type."""
    large = 2.0 ** (_DIGITS[dtype] - 1)
    for rows, inputs, outputs in _SHAPES:
        left = np.ones((rows, inputs), dtype=dtype)
        left[:, inputs // 2] = large
        right = np.ones((inputs, outputs), dtype=dtype)
        if not np.all(_product(xp, left, right) == large + (inputs - 1)):
            return False
        if not np.all(to_host(xp.sum(xp.asarray(left), axis=1)) == large + (inputs - 1)):
            return False
        if not np.all(to_host(xp.sum(xp.asarray(left.T), axis=0)) == large + (inputs - 1)):
            return False
    wide = to_host(xp.sum(xp.asarray(np.full(_COUNT, 1.0 + 2.0**-20, dtype=dtype)), dtype=xp.float64))
    return bool(wide == _COUNT * (1.0 + 2.0**-20))


def _rows_do_not_see_each_other(xp: Namespace, dtype: str) -> bool:
    """Change the last row: all results of the rows before it must stay the same, every time."""
    for rows, inputs, outputs in _SHAPES:
        draw = np.random.default_rng(inputs)
        features = draw.standard_normal((rows, inputs)).astype(dtype)
        weights = draw.standard_normal((inputs, outputs)).astype(dtype)
        expected = list(_by_row(xp, features, weights))
        for value in (1e18, np.nan):
            other = features.copy()
            other[-1] = value
            for one, two in zip(expected, _by_row(xp, other, weights), strict=True):
                if not _same(one[:-1], two[:-1]):
                    return False
        if not all(map(_same, expected, _by_row(xp, features, weights))):
            return False
    return True


def _by_row(xp: Namespace, features: Host, weights: Host) -> Iterator[Host]:
    """Yield the numbers that a run computes for each row: logits, their exponentials, norms and the largest entries."""
    rows = xp.asarray(features)
    logits = rows @ xp.asarray(weights)
    yield to_host(logits)
    yield to_host(exponential(xp, logits - xp.max(logits, axis=1, keepdims=True)))
    yield to_host(squared_norms(xp, rows))
    yield to_host(xp.max(xp.abs(rows), axis=1))


def _sums_repeat(xp: Namespace, dtype: str) -> bool:
    """Add over rows numbers that need rounding, from different memory each time."""
    for rows, inputs, outputs in _SHAPES:
        draw = np.random.default_rng(outputs)
        features = draw.standard_normal((rows, inputs)).astype(dtype)
        deltas = draw.standard_normal((rows, outputs)).astype(dtype)
        found = [
            (to_host(xp.asarray(deltas.copy()).T @ xp.asarray(features.copy())), to_host(xp.sum(held, axis=0)))
            for held in (xp.asarray(deltas.copy()) for _ in range(3))
        ]
        if not all(_same(one, two) for other in found[1:] for one, two in zip(found[0], other, strict=True)):
            return False
    return True


def _operations_round_once(xp: Namespace, dtype: str) -> bool:
    """Compare operations bit by bit with NumPy's, which are those of IEEE 754."""
    draw = np.random.default_rng(1)
    sizes = np.exp2(draw.uniform(-20.0, 20.0, (2, _COUNT)))
    one, other = (sizes * draw.choice([-1.0, 1.0], (2, _COUNT))).astype(dtype)
    here, there = xp.asarray(one), xp.asarray(other)
    return all(
        _same(to_host(found), expected)
        for found, expected in (
            (here + there, one + other),
            (here - there, one - other),
            (here * there, one * other),
            (here / there, one / other),
            (xp.sqrt(xp.abs(here)), np.sqrt(np.abs(one))),
            (xp.astype(here, xp.float32), one.astype(np.float32)),
        )
    )


def _powers_are_near(xp: Namespace, dtype: str) -> bool:
    """Compare powers in float64, in which norms are computed whatever the dtype of the rows."""
    base = np.random.default_rng(2).random(_COUNT).astype(dtype).astype(np.float64)
    return all(
        bool(np.all(np.abs(to_host(xp.asarray(base) ** order) - base**order) <= _POWERS * base**order))
        for order in (0.3, 1.0 / 3.0, 1.5, 2.0, 3.0, 24.0)
    )


def _whole_numbers_are_whole(xp: Namespace, dtype: str) -> bool:
    """Check that halves round to even, that -0.0 + 0.0 is 0.0, and that finite numbers are recognised."""
    halves = (np.arange(-50, 50) / 2.0).astype(dtype)
    negative = xp.asarray(np.full(8, -0.0, dtype=dtype))
    negative += 0.0
    special = np.array([np.nan, np.inf, -np.inf, 1.0, 0.0], dtype=dtype)
    return (
        _same(to_host(xp.round(xp.asarray(halves))), np.rint(halves))
        and not np.any(np.signbit(to_host(negative)))
        and _same(to_host(xp.isfinite(xp.asarray(special))), np.isfinite(special))
        and _same(to_host(xp.abs(xp.asarray(special)) <= 1e18), np.abs(special) <= 1e18)
    )


_CHECKS: dict[str, Callable[[Namespace, str], bool]] = {
    "Products of matrices lose digits (TF32, or half precision)": _products_are_exact,
    "Sums lose digits": _sums_keep_their_digits,
    "A row of a product depends on other rows": _rows_do_not_see_each_other,
    "Sums of the same numbers differ from time to time": _sums_repeat,
    "Operations are not rounded as IEEE 754 says": _operations_round_once,
    "Powers are too far from the true ones": _powers_are_near,
    "Whole numbers, signs of zero or infinities are not as IEEE 754 has them": _whole_numbers_are_whole,
}


def _product(xp: Namespace, left: Host, right: Host) -> Host:
    return to_host(xp.asarray(left) @ xp.asarray(right))


def _odd(draw: np.random.Generator, shape: tuple[int, ...], digits: int) -> Host:
    """Return odd whole numbers of this many binary digits: the 12 of half a float32 are one more than TF32 keeps."""
    return (2 * draw.integers(2 ** (digits - 2), 2 ** (digits - 1), shape) + 1).astype(np.float64)


def _same(one: Host, other: Host) -> bool:
    """Return whether the numbers are equal, NaN counted as equal to NaN; whole numbers may be in different types."""
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
