"""The generator is the block cipher that it is said to be, the noise has the planned law, however asked for."""

from __future__ import annotations

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from trainer.noise import GaussianNoise
from trainer.streams import random_streams


def test_the_generator_is_aes_in_counter_mode() -> None:
    """The example vector of FIPS 197, appendix B/C.1: key 00..0f, plaintext (here the counter) 00112233..ff."""
    key = int.from_bytes(bytes(range(16)), "little")
    counter = int.from_bytes(bytes.fromhex("00112233445566778899aabbccddeeff"), "little")
    words = AESCounter(key=key, counter=counter).random_raw(2)
    assert np.asarray(words, dtype="<u8").tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


def test_noise_is_standard_normal() -> None:
    drawn = GaussianNoise(random_streams(41).noise).standard_normal((400, 500))
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-3
    assert stats.kstest(drawn.sum(axis=1) / np.sqrt(500), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(drawn.ravel()[:-1], drawn.ravel()[1:])[0, 1]) < 4 / np.sqrt(drawn.size)


def test_noise_ignores_how_it_is_asked_for() -> None:
    whole = GaussianNoise(random_streams(2).noise).standard_normal((60_000,))
    source = GaussianNoise(random_streams(2).noise)
    pieces = [source.standard_normal(shape).ravel() for shape in [(3, 5), (20_000,), (0, 4), (39_985,)]]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    source.close()


@pytest.mark.parametrize("shape", [(5,), (7000,), (40_000,)])
@pytest.mark.parametrize("draws", [0, 1, 3, 10])
def test_restored_noise_goes_on(shape: tuple[int, ...], draws: int) -> None:
    source = GaussianNoise(random_streams(3).noise)
    for _ in range(draws):
        source.standard_normal(shape)
    state = source.state()
    expected = [source.standard_normal(shape) for _ in range(5)]
    source.close()
    other = GaussianNoise(random_streams(999).noise)
    other.standard_normal((11,))
    other.restore(state)
    np.testing.assert_array_equal([other.standard_normal(shape) for _ in range(5)], expected)
    other.close()
