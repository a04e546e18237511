"""This module imports CuPy, if it is installed and finds a GPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class NoGpu(Exception):
    """There is no GPU to measure on. The message says what is missing."""


def cupy() -> Any:
    """Return the module of CuPy.

    Raises:
        NoGpu: If CuPy is not installed, or finds no device.
    """
    try:
        library: Any = import_module("cupy")
        devices = library.cuda.runtime.getDeviceCount()
    except ImportError:
        raise NoGpu("CuPy is not installed") from None
    except Exception as error:  # The class of CuPy's own error cannot be named, since CuPy may not be installed.
        raise NoGpu(f"CuPy finds no device: {error}") from None
    if devices < 1:
        raise NoGpu("CuPy finds no device")
    return library


def name(library: Any) -> str:
    """Return the name of the first device."""
    called: bytes = library.cuda.runtime.getDeviceProperties(0)["name"]
    return called.decode()
