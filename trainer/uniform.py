"""Products in which no row depends on where it stands: measured, since no library promises it.

A matrix product of a fixed shape may still round its rows differently: kernels treat the last rows of a block, or the
rows of another thread's share, by other instructions. Then one record more would move others to other places and change
their last bits, which large parameters turn into large changes. So before a shape is used, the library at hand is
asked.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from trainer.arrays import Array, Namespace, to_host
from trainer.products import a_core_is_left

#: Rows of the tries; each is put in every place.
_TRIES = 16
#: Numbers of one try's output at most, all places together.
_MOST_NUMBERS = 1 << 22


def uniform_rows(xp: Namespace, matrix: Array, piece: int) -> int:
    """How many rows may be multiplied by the matrix together, so that all places treat a row alike.

    Args:
        matrix: shape (m, K); its shape, dtype and layout matter, its numbers do not.
        piece: The most that are wanted.

    Returns:
        The largest divisor of ``piece`` for which random rows, each put in every place, give the same row of the
        product in every place, bit by bit. One row is always alike.

    Guarantees:
        - places_are_alike: of a shape for which a place was seen to differ, no product is made.

    Requires:
        A library that does the same for every product of one shape, dtype and layout, on as many threads.
    """
    flags = getattr(matrix, "flags", None)
    is_transposed = flags is not None and not getattr(flags, "c_contiguous", True)
    dtype = str(matrix.dtype).split(".")[-1]
    return _uniform_rows(xp, matrix.shape[0], matrix.shape[1], dtype, is_transposed, piece, a_core_is_left())


@lru_cache(maxsize=1024)
def _uniform_rows(
    xp: Namespace, inputs: int, outputs: int, dtype: str, is_transposed: bool, piece: int, _a_core_is_left: bool
) -> int:
    divisors = (rows for rows in range(piece, 1, -1) if piece % rows == 0)
    return next((rows for rows in divisors if _is_uniform(xp, inputs, outputs, dtype, is_transposed, rows)), 1)


def _is_uniform(xp: Namespace, inputs: int, outputs: int, dtype: str, is_transposed: bool, piece: int) -> bool:
    rng = np.random.default_rng(piece)
    shape = (outputs, inputs) if is_transposed else (inputs, outputs)
    matrix = xp.asarray(rng.standard_normal(shape).astype(dtype))
    together = max(1, min(_TRIES, _MOST_NUMBERS // max(1, piece * max(inputs, outputs))))
    for _ in range(0, _TRIES, together):
        rows = rng.standard_normal((together, 1, inputs)).astype(dtype)
        spread = xp.asarray(np.ascontiguousarray(np.broadcast_to(rows, (together, piece, inputs))))
        product = to_host(spread @ (matrix.T if is_transposed else matrix))
        if not np.array_equal(product, np.broadcast_to(product[:, :1, :], product.shape)):
            return False
    return True
