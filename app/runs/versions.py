"""The versions of the programs that computed a run's numbers."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path

import numpy as np
import randomgen
import scipy

import calibrators
import trainer
from accounting import ENGINE_VERSION
from accounting.canonical import canonical_bytes
from trainer.devices import HOST, Device


def versions(engine: str, device: Device = HOST) -> dict[str, str]:
    """Return the versions of the accounting engine that priced the plan, of this process, and of a device's libraries.

    Args:
        engine: The version of the engine that priced the plan.
        device: Where steps are taken.
    """
    return {
        "engine": engine,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "randomgen": randomgen.__version__,
        **device.versions,
    }


def code_version(device: Device = HOST) -> str:
    """Return a hash of everything that determines what a run draws and computes next. A run continues from a checkpoint
    only under the same hash.

    The hash covers the trainer's sources, because people may forget to raise a version number, and the device, which
    may round differently from the host.

    Args:
        device: Where steps are taken.
    """
    on_device = {} if device is HOST else {"device": device.name}
    return hashlib.sha256(
        canonical_bytes({**versions(ENGINE_VERSION, device), "sources": _sources(), **on_device})
    ).hexdigest()


@cache
def _sources() -> str:
    sources = hashlib.sha256()
    for package in (trainer, calibrators):
        folder = Path(package.__path__[0])
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            sources.update(f"{folder.name}/{path.relative_to(folder)} {len(content)}\n".encode())
            sources.update(content)
    return sources.hexdigest()
