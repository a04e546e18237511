"""The engine's inner loops, compiled to machine code by numba.

A function under `compiled` is plain Python over floats and arrays, and computes the same numbers when it is not
compiled: no operation is reordered, and no product and sum are fused. Set ``NUMBA_DISABLE_JIT=1`` to step through it.
What is compiled is kept on disk, under a name that depends on the sources: a change of any of them compiles anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.config

Function = TypeVar("Function", bound=Callable[..., Any])

_FOLDER = Path(__file__).parent


def compiled(function: Function) -> Function:
    """Compile a function when it is first called with arguments of new types.

    Division by zero gives an infinity or a NaN, as in NumPy, and the interpreter's lock is released meanwhile.

    >>> @compiled
    ... def halved(x: float) -> float:
    ...     return 0.5 * x
    >>> halved(3.0)
    1.5
    """
    try:
        dispatcher = numba.njit(cache=True, error_model="numpy", nogil=True)(function)
    except RuntimeError:  # There is no folder to keep it in, or no file that it came from.
        dispatcher = numba.njit(error_model="numpy", nogil=True)(function)
    return cast("Function", dispatcher)


def _cache_folder() -> str:
    """Return a folder for what is compiled: beside the sources or, where these cannot be written, in the user's cache.

    numba itself compares a function's own file with what is kept, but not the files of the functions that it calls.
    """
    digest = hashlib.sha256()
    for source in sorted(_FOLDER.glob("fourier/*.py")):
        digest.update(source.read_bytes())
    name = digest.hexdigest()[:16]
    beside = _FOLDER / "__pycache__" / "compiled"
    try:
        beside.mkdir(parents=True, exist_ok=True)
        if os.access(beside, os.W_OK):
            return str(beside / name)
    except OSError:
        pass
    return str(Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "epsilond" / name)


if "NUMBA_CACHE_DIR" not in os.environ:
    vars(numba.core.config)["CACHE_DIR"] = _cache_folder()
