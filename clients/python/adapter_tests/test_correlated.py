"""Correlated noise drawn by the real torch: its covariance, its continuation bit for bit, and its memory."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from epsilond_client.noise import CorrelatedNoise

C, STDDEV, SIZE, STEPS = (0.75, 0.5, 0.25), 2.0, 1000, 9


def noise_of(key: bytes | None = bytes(32), dtype: torch.dtype = torch.float64) -> CorrelatedNoise:
    def draw(seed: int) -> torch.Tensor:
        return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed), dtype=dtype)

    return CorrelatedNoise(C, STDDEV, SIZE, steps=STEPS, key=key, draw=draw)


def test_c_applied_to_what_was_drawn_is_independent_noise() -> None:
    noise = noise_of()
    drawn = torch.stack([noise.draw() for _ in range(STEPS)])
    matrix = sum(value * torch.diag(torch.ones(STEPS - lag, dtype=torch.float64), -lag) for lag, value in enumerate(C))
    applied = matrix @ drawn / STDDEV
    for step in range(STEPS):
        own = torch.randn(SIZE, generator=torch.Generator().manual_seed(noise.seed(step)), dtype=torch.float64)
        torch.testing.assert_close(applied[step], own, rtol=0.0, atol=1e-12)
    covariance = applied @ applied.T / SIZE
    assert torch.allclose(covariance, torch.eye(STEPS, dtype=torch.float64), atol=0.15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("stop", range(STEPS))
def test_a_checkpoint_goes_on_bit_for_bit(stop: int, dtype: torch.dtype) -> None:
    """torch saves and loads the checkpoint as data without any code."""
    whole, cut = noise_of(dtype=dtype), noise_of(dtype=dtype)
    expected = [whole.draw() for _ in range(STEPS)]
    found = [cut.draw() for _ in range(stop)]
    file = io.BytesIO()
    torch.save(cut.state_dict(), file)
    file.seek(0)
    other = noise_of(key=None, dtype=dtype)
    other.load_state_dict(torch.load(file, weights_only=True))
    found += [other.draw() for _ in range(STEPS - stop)]
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))


def test_a_checkpoint_without_earlier_noise_is_refused() -> None:
    noise = noise_of()
    noise.draw()
    state: dict[str, Any] = noise.state_dict() | {"earlier": []}
    with pytest.raises(ValueError, match="must have the noise of 1 earlier steps"):
        noise_of().load_state_dict(state)


def test_memory_is_what_tensors_take() -> None:
    for dtype, share in ((torch.float64, 1), (torch.float32, 2)):
        noise = noise_of(dtype=dtype)
        for _ in range(STEPS):
            assert noise.draw().dtype == dtype
        kept = sum(each.nbytes for each in noise.state_dict()["earlier"])
        assert noise.memory == share * kept == 2 * 8 * SIZE
