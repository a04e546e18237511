"""CuPy, if it is here and has a device."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class NoGpu(Exception):
    """There is no device to measure on; the text says what is missing."""


def cupy() -> Any:
    """Return the library, with a device.

    Raises:
        NoGpu: If CuPy is not installed, or finds no device.
    """
    try:
        library: Any = import_module("cupy")
        devices = library.cuda.runtime.getDeviceCount()
    except ImportError:
        raise NoGpu("CuPy is not installed") from None
    except Exception as error:  # CuPy's own error, which has no name while it is not here
        raise NoGpu(f"CuPy finds no device: {error}") from None
    if devices < 1:
        raise NoGpu("CuPy finds no device")
    return library


def name(library: Any) -> str:
    """Return what the first device calls itself."""
    called: bytes = library.cuda.runtime.getDeviceProperties(0)["name"]
    return called.decode()
