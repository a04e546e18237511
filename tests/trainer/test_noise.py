"""The generator is the block cipher that it is said to be, and the noise is normal at the planned scale."""

from __future__ import annotations

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from accounting.errors import InvalidValue
from trainer.noise import GaussianNoise, random_streams


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


def test_unseeded_streams_differ() -> None:
    words = {
        int(stream.random_raw()) for _ in range(50) for s in [random_streams()] for stream in (s.noise, s.sampling)
    }
    assert len(words) == 100


def test_seeded_streams_repeat() -> None:
    first, second = random_streams(7), random_streams(7)
    assert first.noise.random_raw() == second.noise.random_raw()
    assert first.sampling.random_raw() == second.sampling.random_raw()
    assert len({int(s.random_raw()) for n in (7, 8) for r in [random_streams(n)] for s in (r.noise, r.sampling)}) == 4


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, 2**128])
def test_seeds_that_are_none_are_refused(seed: object) -> None:
    with pytest.raises(InvalidValue, match="seed"):
        random_streams(seed)  # type: ignore[arg-type]  # on purpose
