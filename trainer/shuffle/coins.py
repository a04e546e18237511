"""This module tosses fair coins and draws uniform variates, from a stream of random words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.keystream import Keystream

Bits = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
State = dict[str, Any]

_WORD = 64
#: The number of words that are drawn at a time: 2 MB, which fit into a cache.
_BLOCK = 1 << 18


class Coins:
    """Tosses of fair coins. They are the bits of a stream's words, each of which is used once.

    Guarantees:
        - tosses_are_fair: each toss is a bit of the stream, so that a number of heads is exactly binomial.
        - counted_tosses_are_tosses: `heads` counts those that `tosses` would show.

    >>> from trainer.streams import random_streams
    >>> int(random_streams(1).coins().heads(1000, 1)[0]) == int(random_streams(1).coins().tosses(1000).sum())
    True
    """

    def __init__(self, stream: Keystream) -> None:
        self._stream = stream

    def heads(self, tosses: int, coordinates: int) -> Counts:
        """Return the number of heads in the given number of tosses, with new tosses for each coordinate: shape
        (coordinates,)."""
        return np.array([self._heads(tosses) for _ in range(coordinates)], dtype=np.int64)

    def _heads(self, tosses: int) -> int:
        words, rest = divmod(tosses, _WORD)
        found = 0
        for start in range(0, words, _BLOCK):
            drawn = self._stream.words(min(_BLOCK, words - start))
            found += int(np.bitwise_count(drawn).sum(dtype=np.int64))
        if rest:
            found += (self._stream.word() & ((1 << rest) - 1)).bit_count()
        return found

    def tosses(self, count: int) -> Bits:
        """Return zeros and ones, shape (count,)."""
        words = self._stream.words(-(-count // _WORD)).astype("<u8")
        return np.unpackbits(words.view(np.uint8), count=count, bitorder="little")

    def uniforms(self, shape: tuple[int, ...]) -> Floats:
        """Return multiples of 2^-53 in [0, 1), all of them equally likely."""
        words = self._stream.words(int(np.prod(shape))) >> np.uint64(11)
        drawn: Floats = words.astype(np.float64) * 2.0**-53
        return drawn.reshape(shape)

    def state(self) -> State:
        """Return everything that is needed to go on from here."""
        return {"stream": self._stream.state}

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken."""
        self._stream.state = state["stream"]
