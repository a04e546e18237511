"""The noise that Opacus finds, beside what its own search returned."""

from __future__ import annotations

import pytest

from accounting.errors import Unreachable
from accounting.interoperability.opacus_noise import noise_that_opacus_finds


# What `get_noise_multiplier` of Opacus 1.6.0 returns; clients/python/adapter_tests asks it again.
@pytest.mark.parametrize(
    ("accountant", "epsilon", "delta", "rate", "steps", "noise"),
    [
        ("rdp", 3.0, 1e-5, 0.01, 1000, 0.865478515625),
        ("rdp", 1.0, 1e-6, 0.02, 500, 2.24609375),
        ("rdp", 8.0, 1e-5, 0.1, 100, 0.99365234375),
        ("prv", 3.0, 1e-5, 0.01, 1000, 0.8154296875),
        ("prv", 1.0, 1e-6, 0.02, 500, 2.12890625),
        ("prv", 8.0, 1e-5, 0.1, 100, 0.9368896484375),
        ("prv", 0.5, 1e-5, 0.004, 5000, 2.1875),
        ("gdp", 3.0, 1e-5, 0.01, 1000, 0.7421875),
        ("gdp", 0.5, 1e-5, 0.004, 5000, 2.109375),
    ],
)
@pytest.mark.one_in(4)
def test_it_is_what_opacus_finds(
    accountant: str, epsilon: float, delta: float, rate: float, steps: int, noise: float
) -> None:
    assert noise_that_opacus_finds(accountant, epsilon, delta, rate, steps) == noise


def test_a_target_that_no_noise_meets_is_refused() -> None:
    with pytest.raises(Unreachable, match="finds no noise"):
        noise_that_opacus_finds("rdp", 1e-9, 1e-5, 1.0, 10**8)
