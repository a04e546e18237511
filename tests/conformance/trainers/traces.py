"""What a run does with arrays, call by call: names of functions, shapes and numeric types of what they make.

Arrays are NumPy's, of a class that notes each operation on it, and functions come from a namespace that notes each
call. So a branch on a record's value or on the number of rows, and a shape that depends on either, is seen whatever the
machine's clock says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

Call = tuple[str, tuple[int, ...], str]


class Trace:
    """NumPy with a memory; stands in for it as an array namespace."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        #: Functions that made a subnormal number, with which arithmetic takes far longer than with others.
        self.subnormal: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if isinstance(found, type) or not callable(found):
            return found
        return lambda *args, **kwargs: self.noted(name, found(*_bare(args), **_bare(kwargs)))

    def noted(self, name: str, made: Any) -> Any:
        """Note what a function of this name made, and watch it from now on."""
        if not isinstance(made, np.ndarray | np.generic):
            return made
        self.calls.append((name, made.shape, str(made.dtype)))
        if np.issubdtype(made.dtype, np.floating):
            sizes = np.abs(np.asarray(made))
            if np.any((sizes > 0.0) & (sizes < np.finfo(made.dtype).smallest_normal)):
                self.subnormal.add(name)
        return self.watched(made)

    def watched(self, array: Any) -> Any:
        """The same numbers in an array that notes what is done with it."""
        watched = np.asarray(array).view(_Watched)
        watched.trace = self
        return watched


class _Watched(np.ndarray[Any, Any]):
    trace: Trace

    def __array_finalize__(self, source: Any) -> None:
        if source is not None and isinstance(source, _Watched):
            self.trace = source.trace

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return self.trace

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        outputs = kwargs.get("out")
        if outputs is not None:
            kwargs["out"] = _bare(outputs)
        made = getattr(ufunc, method)(*_bare(inputs), **kwargs)
        noted = self.trace.noted(f"{ufunc.__name__}.{method}", made)
        return noted if outputs is None else outputs[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self.trace.noted(function.__name__, function(*_bare(args), **_bare(kwargs)))


def _bare(value: Any) -> Any:
    if isinstance(value, _Watched):
        return value.view(np.ndarray)
    if isinstance(value, list | tuple):
        return type(value)(_bare(item) for item in value)
    if isinstance(value, dict):
        return {name: _bare(item) for name, item in value.items()}
    return value


@contextmanager
def traced() -> Iterator[Trace]:
    """The trainer sees arrays of this trace as NumPy's own."""
    trace = Trace()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trainer.arrays.np", trace)
        yield trace
