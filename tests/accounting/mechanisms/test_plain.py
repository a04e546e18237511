from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.errors import Unsupported
from accounting.mechanisms.plain import RandomizedResponseLoss, ZcdpLoss


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 2.0, 50.0, 900.0])
def test_randomized_response_moment_and_rho(epsilon: float) -> None:
    loss, e = RandomizedResponseLoss(epsilon), mp.mpf(epsilon)
    rho = mp.mpf(loss.zcdp_rho) * (1 + mp.mpf(10) ** -12)
    assert rho <= e * e / 2 * (1 + mp.mpf(10) ** -11)
    for tilt in (1e-3, 0.5, 1.0, 30.0, 1000.0):
        x = mp.mpf(tilt)
        exact = mp.log(mp.cosh((x + 0.5) * e) / mp.cosh(e / 2))
        assert 0 <= float(loss.log_moment(np.array([tilt]))[0]) / exact - 1 < 3e-12
        assert exact <= rho * x * (x + 1)
    x = mp.mpf("1e-9")
    assert mp.log(mp.cosh((x + 0.5) * e) / mp.cosh(e / 2)) >= rho * x * (x + 1) * mp.mpf("0.9999")


def test_profile_of_randomized_response() -> None:
    loss = RandomizedResponseLoss(1.0)
    likely = math.e / (1 + math.e)
    assert float(loss.excess(np.array([0.0]))[0]) == pytest.approx(2 * likely - 1, rel=1e-14)
    assert float(loss.excess(np.array([1.0]))[0]) == 0.0


def test_zcdp_has_moments_and_no_pair() -> None:
    loss = ZcdpLoss(0.5)
    assert float(loss.log_moment(np.array([3.0]))[0]) == pytest.approx(6.0)
    with pytest.raises(Unsupported, match="no pair"):
        loss.excess(np.zeros(1))
    with pytest.raises(Unsupported, match="no pair"):
        loss.support(-10.0)
