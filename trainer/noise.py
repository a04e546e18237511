"""Randomness: AES in counter mode, keyed by the operating system, and the noise drawn from it.

Whoever can reproduce the noise can subtract it, so a statistical generator (PCG, Philox, the Mersenne Twister) would
void the guarantee, however good its histograms. A key that was derived from a caller's seed is for public data alone;
the service refuses one with a private data set.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

Floats = npt.NDArray[np.float64]
State = dict[str, Any]


class Noise(Protocol):
    """A source of rounded normal variates (`trainer.exact.gaussian`)."""

    def rounded(self, size: int, scale: float) -> Floats:
        """Return the next round(scale Z), shape (size,): whole numbers in an array of the caller's own."""
        ...

    def state(self) -> State:
        """All that is needed to go on from here."""
        ...

    def restore(self, state: State) -> None:
        """Go on from where `state` was taken."""
        ...

    def close(self) -> None:
        """Nothing more is drawn."""
        ...


class GumbelNoise:
    """Standard Gumbel variates -ln(-ln U) in float64, from a stream of their own.

    >>> from trainer.streams import random_streams
    >>> GumbelNoise(random_streams(1).noise).gumbel((2, 3)).shape
    (2, 3)
    """

    def __init__(self, stream: AESCounter) -> None:
        self._stream = stream
        self._generator = np.random.Generator(stream)

    def gumbel(self, shape: tuple[int, ...]) -> Floats:
        """The next variates, in the given shape."""
        return self._generator.gumbel(size=shape)

    def state(self) -> State:
        """All that is needed to go on from here."""
        return {"stream": self._stream.state}

    def restore(self, state: State) -> None:
        """Go on from where `state` was taken."""
        self._stream.state = state["stream"]
