"""Randomness: AES in counter mode, keyed by the operating system, and the Gaussian noise drawn from it.

Whoever can reproduce the noise can subtract it, so a statistical generator (PCG, Philox, the Mersenne Twister) would
void the guarantee, however good its histograms. A key that was derived from a caller's seed is for public data alone;
the service refuses one with a private data set.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

from accounting.numbers import read_integer

KEY_BYTES = 16
MAX_SEED = 2**128 - 1
#: Normal variates drawn at a time. Ziggurat draws are sequential, so the stream does not depend on it.
_BLOCK = 1 << 14


@dataclass(frozen=True)
class RandomStreams:
    """Independent streams of one run: who takes part in a step, and the noise.

    They are apart so that the noise is the same whatever the number of records: it depends on the plan alone.
    """

    sampling: AESCounter
    noise: AESCounter


def random_streams(seed: int | None = None) -> RandomStreams:
    """Fresh streams, each with a full key of its own from the operating system.

    Args:
        seed: For runs on public data alone: keys are then derived from it, and the run repeats.

    Guarantees:
        - unseeded_streams_differ: without a seed every call has new keys of 128 bits of the system's entropy.
        - seeded_streams_repeat: equal seeds give equal streams; the two streams of a seed are unrelated.

    Raises:
        InvalidValue: the seed is not an integer in [0, 2^128).

    >>> random_streams(3).noise.random_raw() == random_streams(3).noise.random_raw()
    True
    """
    if seed is not None:
        seed = read_integer("seed", seed, 0, MAX_SEED)
    return RandomStreams(sampling=_stream("sampling", seed), noise=_stream("noise", seed))


def _stream(purpose: str, seed: int | None) -> AESCounter:
    if seed is None:
        key = secrets.token_bytes(KEY_BYTES)
    else:
        key = hashlib.sha256(f"epsilond trainer {purpose} {seed}".encode()).digest()[:KEY_BYTES]
    return AESCounter(key=int.from_bytes(key, "little"))


class GaussianNoise:
    """Standard normal variates in float64, from a stream of their own.

    Guarantees:
        - noise_is_standard_normal: independent N(0, 1), as far as float64 goes. It lives on a grid that depends on its
          size, so this source makes no claim against an adversary who reads the last bits of what is released.
        - noise_ignores_how_it_is_asked_for: the n-th variate depends on the key and on n.

    >>> GaussianNoise(random_streams(1).noise).standard_normal((2, 3)).shape
    (2, 3)
    """

    def __init__(self, stream: AESCounter) -> None:
        self._generator = np.random.Generator(stream)
        self._ahead: npt.NDArray[np.float64] = np.empty(0)

    def standard_normal(self, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """The next variates, in the given shape."""
        size = math.prod(shape)
        if size > self._ahead.size:
            fresh = self._generator.standard_normal(max(size, _BLOCK))
            self._ahead = np.concatenate([self._ahead, fresh])
        drawn, self._ahead = self._ahead[:size], self._ahead[size:]
        return drawn.reshape(shape)
