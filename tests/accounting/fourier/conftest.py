from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def as_the_accountant_calls() -> Iterator[None]:
    """Overflow and underflow are part of the bounds, as in `accounting.accountant`."""
    with np.errstate(all="ignore"):
        yield
