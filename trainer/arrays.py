"""Array namespaces: one code for NumPy, CuPy and any other library that follows the Python array API standard.

No static type covers the arrays of all these libraries, so they are `Array` in signatures; docstrings give the shapes.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue, one_of

Array = Any
Namespace = Any

DTYPES = ("float64", "float32")
#: So many squares are added in their own dtype: in float32 their sum is wrong by 4096 2^-24 = 2^-12 of it at most.
_LONGEST_NARROW_SUM = 4096


class _Standard(Protocol):
    def __array_namespace__(self) -> Namespace: ...


def namespace_of(array: object) -> Namespace:
    """The library that ``array`` belongs to; anything that is no array (a list, a memoryview) is NumPy's to read.

    >>> namespace_of(np.zeros(2)).__name__
    'numpy'
    >>> namespace_of([1.0, 2.0]).__name__
    'numpy'
    """
    if hasattr(array, "__array_namespace__"):
        return cast(_Standard, array).__array_namespace__()
    library = type(array).__module__.split(".")[0]
    if library == "cupy":  # releases before the method existed; whoever made the array has imported it
        return sys.modules[library]
    return np


def on_host(xp: Namespace) -> bool:
    """Whether the arrays of ``xp`` are plain NumPy arrays."""
    return xp is np


def to_host(array: Array) -> npt.NDArray[Any]:
    """``array`` as a NumPy array, copied from the device where it is on one."""
    get = getattr(array, "get", None)
    return np.asarray(get() if callable(get) else array)


def float_dtype(xp: Namespace, name: str) -> Any:
    """The floating type of ``xp`` that ``name`` means.

    Raises:
        InvalidValue: ``name`` is not in `DTYPES`.

    >>> float_dtype(np, "float32") is np.float32
    True
    """
    if name not in DTYPES:
        raise InvalidValue(f"dtype must be {one_of(DTYPES)}, got {name!r}", pointer=("dtype",))
    return getattr(xp, name)


def as_float64(xp: Namespace, array: Array) -> Array:
    """``array`` as float64 in ``xp``; a number too large for it becomes an infinity."""
    converted = xp.asarray(array)
    return converted if converted.dtype == xp.float64 else xp.astype(converted, xp.float64)


def silent() -> AbstractContextManager[object]:
    """NumPy's floating-point warnings off.

    Whether an exponential overflows depends on the records, so a warning would tell something about them. The code
    inside replaces what is not finite by zero itself; nothing relies on being warned.
    """
    return np.errstate(all="ignore")


def squared_norms(xp: Namespace, rows: Array) -> Array:
    """An upper bound of the squared l2 norm of each row, tight unless the square is too small to be shown.

    Args:
        rows: shape (B, m), a floating dtype.

    Returns:
        shape (B,), float64: the computed square plus m times the smallest normal number of the rows' dtype, by which a
        square that vanished below it is not missed. Positive; not finite exactly where the row is not or its square
        overflows.

    >>> squared_norms(np, np.array([[3.0, 4.0]])).tolist()
    [25.0]
    """
    if rows.shape[1] <= _LONGEST_NARROW_SUM and hasattr(xp, "vecdot"):
        computed = xp.vecdot(rows, rows)
    else:
        computed = xp.sum(rows * rows, axis=1, dtype=xp.float64)
    return as_float64(xp, computed) + rows.shape[1] * float(xp.finfo(rows.dtype).smallest_normal)
