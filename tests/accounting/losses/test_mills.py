from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from accounting.losses.mills import scaled_mills_difference
from tests.accounting.references import normal_cdf


@pytest.mark.parametrize("d", [1e-8, 1e-3, 0.3, 0.99, 1.0, 1.5, 10.0, 100.0, 5000.0])
def test_mills_difference_is_accurate(d: float) -> None:
    points = [-4000.0, -60.0, -31.0, -9.5, -8.9, -3.0, -0.5, 0.0, 0.3, 2.0, 6.0, 12.0, 20.0, 35.0]
    values = scaled_mills_difference(np.array(points), d)
    for a, value in zip(points, values, strict=True):
        exact = normal_cdf(-mp.mpf(a)) - mp.exp(mp.mpf(a) * d + mp.mpf(d) ** 2 / 2) * normal_cdf(-mp.mpf(a) - d)
        if exact > 1e-290:
            assert abs(value / exact - 1) <= 1e-14 * (1 + a * a)
        assert 0.0 <= value <= 1.0
