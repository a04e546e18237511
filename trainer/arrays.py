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
from calibrators.plan import DTYPES

Array = Any
Namespace = Any

#: By dtype: the magnitude below which factors of a product become zero. All other numbers are whole multiples of a
#: number whose square is normal, so that no product or sum of products is subnormal: arithmetic with
#: subnormal numbers takes ten times as long, and would reveal a record that has some.
TINY = {"float64": 2.0**-450, "float32": 2.0**-40}
#: By dtype: the lower bound to which exponents are raised, so that exponentials are not subnormal.
_SMALLEST_EXPONENTS = {"float64": -300.0, "float32": -27.0}
#: The names of dtypes by NumPy's character. Asking NumPy or CuPy for the name takes ten times as long.
_NAMES = {"f": "float32", "d": "float64"}
#: The most squares added in their own dtype: in float32 the sum's relative error is at most 4096 2^-24 = 2^-12.
_LONGEST_NARROW_SUM = 4096


class _Standard(Protocol):
    def __array_namespace__(self) -> Namespace: ...


def namespace_of(array: object) -> Namespace:
    """Return the library that ``array`` belongs to; anything that is not an array (a list, a memoryview) is left to
    NumPy.

    >>> namespace_of(np.zeros(2)).__name__
    'numpy'
    >>> namespace_of([1.0, 2.0]).__name__
    'numpy'
    """
    if hasattr(array, "__array_namespace__"):
        return cast(_Standard, array).__array_namespace__()
    library = type(array).__module__.split(".")[0]
    if library == "cupy":  # CuPy releases without this method; the array exists, so its library has been imported
        return sys.modules[library]
    return np


def on_host(xp: Namespace) -> bool:
    """Return whether the arrays of ``xp`` are plain NumPy arrays."""
    return xp is np


def to_host(array: Array) -> npt.NDArray[Any]:
    """Return ``array`` as a NumPy array, copied from the device if it is on one."""
    get = getattr(array, "get", None)
    return np.asarray(get() if callable(get) else array)


def float_dtype(xp: Namespace, name: str) -> Any:
    """Return the floating type of ``xp`` with this name.

    Raises:
        InvalidValue: If ``name`` is not in `DTYPES`.

    >>> float_dtype(np, "float32") is np.float32
    True
    """
    if name not in DTYPES:
        raise InvalidValue(f"dtype must be {one_of(DTYPES)}, got {name!r}", pointer=("dtype",))
    return getattr(xp, name)


def as_float64(xp: Namespace, array: Array) -> Array:
    """Return ``array`` as float64 in ``xp``; a number too large for it becomes an infinity."""
    converted = xp.asarray(array)
    return converted if converted.dtype == xp.float64 else xp.astype(converted, xp.float64)


def dtype_name(array: Array) -> str:
    """Return the name of an array's floating type: "float64" or "float32".

    >>> dtype_name(np.zeros(2, dtype=np.float32))
    'float32'
    """
    return _NAMES.get(getattr(array.dtype, "char", "")) or str(array.dtype).rsplit(".", 1)[-1]


def flushed(xp: Namespace, array: Array, tiny: float) -> Array:
    """Return the array with zeros in place of numbers below ``tiny`` in magnitude; NaN stays.

    >>> flushed(np, np.array([1e-20, -2.0]), 1e-12).tolist()
    [0.0, -2.0]
    """
    return cleared(xp, array, xp.abs(array) < tiny)


def cleared(xp: Namespace, array: Array, here: Array) -> Array:
    """Return the array with zeros where ``here`` is true, whatever it holds there.

    NumPy's `where` branches on each choice: it takes ten times as long if these are hard to predict, so its time would
    reveal the choices. A mask over the bits takes the same time for all values.

    Args:
        array: An array of a floating dtype.
        here: Booleans that broadcast to its shape.

    >>> cleared(np, np.array([[float("nan"), 2.0], [3.0, 4.0]]), np.array([[True], [False]])).tolist()
    [[0.0, 0.0], [3.0, 4.0]]
    """
    if not on_host(xp):
        return xp.where(here, xp.zeros((), dtype=array.dtype), array)
    integers = np.int64 if array.dtype == np.float64 else np.int32
    mask = xp.astype(here, integers)
    mask -= 1
    return (mask & array.view(integers)).view(array.dtype)


def exponential(xp: Namespace, array: Array) -> Array:
    """Return exp of each number. Very negative numbers are raised to a bound first, so that nothing is subnormal.

    >>> float(exponential(np, np.array([-1000.0], dtype=np.float32))[0]) > 1e-12
    True
    """
    floor = _SMALLEST_EXPONENTS[dtype_name(array)]
    return xp.exp(xp.maximum(array, xp.asarray(floor, dtype=array.dtype)))


def silent() -> AbstractContextManager[object]:
    """Turn off NumPy's floating-point warnings within the block.

    Whether an exponential overflows depends on the records, so a warning would reveal something about them. The code
    inside replaces numbers that are not finite by zero itself, and does not rely on warnings.
    """
    return np.errstate(all="ignore")


def squared_norms(xp: Namespace, rows: Array) -> Array:
    """Return an upper bound of the squared l2 norm of each row, which is tight unless the square underflows.

    Args:
        rows: An array of shape (B, m) and a floating dtype.

    Returns:
        shape (B,), float64: the computed square plus m times the smallest normal number of the rows' dtype, which
        covers a square that underflowed. It is positive, and not finite exactly if the row is not or its square
        overflows.

    >>> squared_norms(np, np.array([[3.0, 4.0]])).tolist()
    [25.0]
    """
    if rows.shape[1] <= _LONGEST_NARROW_SUM and hasattr(xp, "vecdot"):
        computed = xp.vecdot(rows, rows)
    else:
        computed = xp.sum(rows * rows, axis=1, dtype=xp.float64)
    return as_float64(xp, computed) + rows.shape[1] * float(xp.finfo(rows.dtype).smallest_normal)
