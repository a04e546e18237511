"""The versions that a run's numbers rest on."""

from __future__ import annotations

import platform

import numpy as np
import randomgen
import scipy


def versions(engine: str) -> dict[str, str]:
    """Of the accounting engine that priced the plan, and of this process."""
    return {
        "engine": engine,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "randomgen": randomgen.__version__,
    }
