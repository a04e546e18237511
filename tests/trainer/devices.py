"""Devices that tests carry runs out on: a strict array library everywhere, and a GPU where there is one."""

from __future__ import annotations

from functools import cache

import array_api_strict
import pytest

from trainer.devices import Device, DeviceUnusable, cuda_device

#: Arrays that are not NumPy's go the way that a GPU's go.
STRICT = Device("array_api_strict", array_api_strict)


@cache
def cuda_or_why_not() -> Device | str:
    try:
        return cuda_device()
    except DeviceUnusable as unusable:
        return str(unusable)


def cuda() -> Device:
    """The GPU; the test is skipped, with the reason, where there is none."""
    found = cuda_or_why_not()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def device_of(name: str) -> Device:
    return STRICT if name == "strict" else cuda()


every_device = pytest.mark.parametrize("device", ["strict", pytest.param("cuda", marks=pytest.mark.gpu)])
