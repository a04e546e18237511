"""The inner loops of the engine and of the exact noise, compiled to machine code by numba.

A function under `compiled` is plain Python over floats and arrays, and computes the same numbers when it is not
compiled: no operation is reordered, and no product and sum are fused. Set ``NUMBA_DISABLE_JIT=1`` to step through it;
functions of `math` then raise where compiled code returns an infinity. Compiled code is kept on disk, in the folder of
its source, under a name that depends on all sources of that folder and on this file, so a change of any of them leads
to a new compilation. A compiled function therefore calls only compiled functions of its own folder. `trainer.warm_up`
compiles everything at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache, update_wrapper
from pathlib import Path
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

_ROOT = Path(__file__).resolve().parents[1]
#: The folders with compiled functions.
FOLDERS = tuple(_ROOT / name for name in ("accounting/fourier", "accounting/losses", "trainer/exact"))
_COMPLETE = "complete"

_lock = threading.RLock()
_functions: list[_Uncompiled] = []


def compiled(function: Function) -> Function:
    """Compile a function when it is first called with arguments of new types.

    Division by zero gives an infinity or a NaN, as in NumPy, and the interpreter's lock is released meanwhile. numba
    itself is loaded at the first call of any such function, since much of the service runs without it.

    >>> @compiled
    ... def halved(x: float) -> float:
    ...     return 0.5 * x
    >>> halved(3.0)
    1.5
    """
    uncompiled = _Uncompiled(function)
    _functions.append(uncompiled)
    return cast("Function", uncompiled)


def compiled_functions() -> list[Callable[..., Any]]:
    """Return what numba made of every function under `compiled` so far."""
    _load()
    return [each.dispatcher for each in _functions if each.dispatcher is not None]


class _Uncompiled:
    """Stands for a function until numba is loaded, and forwards calls after that."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.dispatcher: Callable[..., Any] | None = None
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        if self.dispatcher is None:
            _load()
        assert self.dispatcher is not None
        return self.dispatcher(*args)


def _load() -> None:
    """Hand every waiting function to numba, which finds the functions that it calls by their names in its module."""
    with _lock:
        # Intel's vector functions round differently, so they are off unless the environment says otherwise.
        os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")
        import numba  # noqa: PLC0415 -- a sixth of a second, which many processes never need

        waiting = [each for each in _functions if each.dispatcher is None]
        for each in waiting:
            if "NUMBA_CACHE_DIR" not in os.environ:
                sources = Path(str(sys.modules[each.function.__module__].__file__)).parent
                vars(numba.core.config)["CACHE_DIR"] = _cache_folder(sources)
            try:
                each.dispatcher = numba.njit(cache=True, error_model="numpy", nogil=True)(each.function)
            except RuntimeError:  # The function comes from no file, as in an example on a page.
                each.dispatcher = numba.njit(error_model="numpy", nogil=True)(each.function)
        for module in {each.function.__module__ for each in waiting}:
            names = vars(sys.modules[module])
            names.update({name: value.dispatcher for name, value in names.items() if isinstance(value, _Uncompiled)})


@lru_cache
def _cache_folder(sources: Path) -> str:
    """Return a folder for compiled code: beside the sources, or where the user or the system keeps such files.

    numba compares the kept code with a function's own file, but not with the files of the functions that it calls. It
    reads nothing from a folder that it cannot write to; code that was compiled at installation is then copied.
    """
    # This file is included because it determines how functions are compiled.
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for source in sorted(sources.glob("*.py")):
        digest.update(source.read_bytes())
    name = digest.hexdigest()[:16]
    beside = sources / "__pycache__" / "compiled" / name
    if _is_writable(beside):
        return str(beside)
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "epsilond" / name
    if not _is_writable(own):
        own = Path(tempfile.mkdtemp(prefix="epsilond-compiled-"))  # of this process alone
    if beside.is_dir() and not any(own.iterdir()):
        copy = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=own.parent))
        shutil.copytree(beside, copy, dirs_exist_ok=True)
        try:
            copy.rename(own)
        except OSError:  # Another process was first.
            shutil.rmtree(copy, ignore_errors=True)
    return str(own)


def note_complete() -> None:
    """Record, in the cache, that everything is compiled."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    for folder in FOLDERS:
        (Path(_cache_folder(folder)) / _COMPLETE).touch()


def is_complete() -> bool:
    """Return whether everything was compiled from the sources as they are now, so that nobody waits for a compiler.

    If ``NUMBA_CACHE_DIR`` names another folder, its contents are not known here, and the answer is yes.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return True
    return all((Path(_cache_folder(folder)) / _COMPLETE).exists() for folder in FOLDERS)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
