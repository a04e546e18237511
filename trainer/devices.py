"""A run's arrays are NumPy's in the host's memory, or CuPy's on a CUDA device.

The trainer's code is the same for both: the array library is that of the arrays that a run is given. All randomness
is drawn on the host in either case, and noise goes to the device as whole numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from trainer.arithmetic import faults_of
from trainer.arrays import Array, Namespace

#: Settings of CUDA's libraries, which must be made before these are loaded. With them, no product of float32 matrices
#: has fewer digits (TF32) or is emulated by products in shorter types, and cuBLAS's choices do not depend on other
#: streams.
ENVIRONMENT = {
    "CUPY_ACCELERATORS": "",
    "CUPY_TF32": "0",
    "NVIDIA_TF32_OVERRIDE": "0",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "0",
    "CUBLAS_EMULATE_DOUBLE_PRECISION": "0",
}


class DeviceUnusable(Exception):
    """There is no device, or its arithmetic is not what the proofs need. The message says what would be right."""


class DeviceFull(Exception):
    """The device has too little memory for the request."""


@dataclass(frozen=True)
class Device:
    """The device that computes: the host, unless a subclass overrides it.

    Attributes:
        name: "cpu", or "cuda: " and the card's name.
        xp: The array namespace of the device.
        versions: The versions of the libraries that compute there, by name.
    """

    name: str
    xp: Namespace
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def holding(self, array: Array) -> Array:
        """Return the array on this device. An array that is already there is returned unchanged."""
        return self.xp.asarray(array)

    def settle(self) -> None:
        """Wait until the device has done everything that was asked of it."""

    @contextmanager
    def used(self) -> Iterator[None]:
        """Make and use arrays within the block; after it, their memory is free for other processes.

        Raises:
            DeviceFull: If the device has too little memory.
        """
        yield


class CudaDevice(Device):
    """A CUDA device, whose calls return before their results are computed."""

    def settle(self) -> None:
        self.xp.cuda.Device().synchronize()

    @contextmanager
    def used(self) -> Iterator[None]:
        try:
            yield
        except self.xp.cuda.memory.OutOfMemoryError:
            raise DeviceFull from None
        finally:
            self.xp.get_default_memory_pool().free_all_blocks()


HOST = Device("cpu", np)


def cuda_device() -> Device:
    """Return the first CUDA device that this process sees, after checking its arithmetic.

    CuPy's own reductions add the same numbers in the same order each time, so the reductions of other libraries are
    turned off. Products of matrices are computed by cuBLAS in pedantic mode on one stream. NVIDIA documents that these
    repeat bit by bit on one kind of card.

    Guarantees:
        - no_unsound_device_is_returned: `trainer.arithmetic.faults_of` finds nothing.

    Raises:
        DeviceUnusable: If CuPy is not installed, finds no device, or has arithmetic that the proofs do not allow.
    """
    os.environ |= ENVIRONMENT
    try:
        cupy: Any = import_module("cupy")
        settings: Any = import_module("cupy._core")
        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        raise DeviceUnusable(
            f"CuPy cannot be loaded ({error}): install the package for the machine's version of CUDA, cupy-cuda12x "
            "or cupy-cuda13x"
        ) from None
    except Exception as error:  # CuPy's own type of error, which cannot be named before CuPy is loaded
        raise DeviceUnusable(f"CuPy finds no CUDA device ({error}): check nvidia-smi and the driver") from None
    if count < 1:
        raise DeviceUnusable("CuPy finds no CUDA device: check nvidia-smi and CUDA_VISIBLE_DEVICES")
    settings.set_reduction_accelerators([])
    settings.set_routine_accelerators([])
    settings.set_elementwise_accelerators([])
    pedantic = import_module("cupy._core._routines_linalg").COMPUTE_TYPE_PEDANTIC
    for dtype in (np.float32, np.float64):
        settings.set_compute_type(dtype, pedantic)
    if faults := faults_of(cupy):
        raise DeviceUnusable(
            f"The device's arithmetic is not what private runs need. {' '.join(faults)} Check the driver, and the "
            "environment variables of CUDA's libraries."
        )
    return CudaDevice(f"cuda: {_card_name(cupy)}", cupy, _versions(cupy))


def _card_name(cupy: Any) -> str:
    called: bytes = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
    return called.decode()


def _versions(cupy: Any) -> Mapping[str, str]:
    runtime, driver = cupy.cuda.runtime.runtimeGetVersion(), cupy.cuda.runtime.driverGetVersion()
    products = import_module("cupy_backends.cuda.libs.cublas").getVersion(cupy.cuda.device.get_cublas_handle())
    numbers = {"cuda": runtime, "cuda_driver": driver}
    return MappingProxyType(
        {"cupy": cupy.__version__, "cublas": str(products)}
        | {name: f"{number // 1000}.{number % 1000 // 10}" for name, number in numbers.items()}
    )
