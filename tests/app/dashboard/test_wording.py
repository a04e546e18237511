"""Numbers in words: each rounded to the side that promises less."""

from __future__ import annotations

import pytest

from app.dashboard.wording import at_least, at_most, recommended


@pytest.mark.parametrize("name", ["noise_multiplier", "noise_stddev", "excess_risk_bound", "gradient_norm_bound"])
def test_noise_and_bounds_are_rounded_up(name: str) -> None:
    assert recommended({"name": name, "value": 1.0000001}) == "1.00001"
    assert recommended({"name": name, "value": [1.0000001, 2.0000001]}) == "1.00001 … 2.00001 (2 values)"


def test_what_bounds_nothing_is_rounded_to_the_nearest() -> None:
    assert recommended({"name": "step_size", "value": 1.0000001}) == "1"


@pytest.mark.parametrize("value", [-0.12345678, 0.0, 1.2345678e-12, 99999.96, 12345678.9])
def test_a_bound_is_on_its_side_however_large_the_number(value: float) -> None:
    assert float(at_least(value)) <= value <= float(at_most(value))
    assert float(at_most(value)) - float(at_least(value)) <= 1.0001e-5 * abs(value)
