"""Batches have a public size, which a whole run exceeds with a negligible probability."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from trainer.samplers import (
    PoissonSampler,
)
from trainer.samplers.padding import padded_size
from trainer.streams import random_streams


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("capacity", "probability", "steps"),
    [(60_000, 1024 / 60_000, 10_000), (1000, 0.1, 1000), (50, 0.5, 3), (7, 1e-9, 1)],
)
def test_batches_are_padded(capacity: int, probability: float, steps: int) -> None:
    """To the least size that a whole run exceeds with a probability of 2^-60 at most; so no batch's own size shows."""
    size = padded_size(capacity, probability, steps)
    exceeds = [
        sum(mp_binomial(capacity, k, probability) for k in range(least + 1, min(capacity, least + 2000) + 1))
        for least in (size, size - 1)
    ]
    assert steps * exceeds[0] <= mpmath.mpf(2) ** -60
    assert size == 1 or steps * exceeds[1] > mpmath.mpf(2) ** -60
    sampler = PoissonSampler(capacity, probability, steps, random_streams(3).sampling)
    for _ in range(3):
        drawn = sampler.draw()
        assert drawn.size == size
        assert np.all(np.diff(drawn[drawn < capacity]) > 0)


def mp_binomial(n: int, k: int, p: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        q = mpmath.mpf(p)
        return mpmath.binomial(n, k) * q**k * (1 - q) ** (n - k)
