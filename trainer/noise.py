"""Randomness: AES in counter mode, keyed by the operating system, and the noise drawn from it.

Whoever can reproduce the noise can subtract it, so a statistical generator (PCG, Philox, the Mersenne Twister) would
void the guarantee, however good its histograms. A key that was derived from a caller's seed is for public data alone;
the service refuses one with a private data set.
"""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

Floats = npt.NDArray[np.float64]
State = dict[str, Any]

#: Normal variates drawn at a time: at most, once a run has shown that it is long, unless one draw has more.
_LARGEST_BLOCK = 1 << 17
#: Blocks from here on are worth a thread.
_WORTH_A_THREAD = 1 << 14


class Noise(Protocol):
    """A source of independent standard normal variates."""

    def standard_normal(self, shape: tuple[int, ...]) -> Floats:
        """The next ones, in an array of the caller's own."""
        ...

    def rounded(self, size: int, scale: float) -> Floats: ...

    def state(self) -> State:
        """All that is needed to go on from here."""
        ...

    def restore(self, state: State) -> None:
        """Go on from where `state` was taken."""
        ...

    def close(self) -> None:
        """Nothing more is drawn."""
        ...


class GaussianNoise:
    """Standard normal variates in float64, from a stream of their own, drawn ahead by a thread of its own.

    Ziggurat draws are sequential, so that the stream does not depend on how many are drawn at a time.

    Guarantees:
        - noise_is_standard_normal: independent N(0, 1), as far as float64 goes. It lives on a grid that depends on its
          size, so this source makes no claim against an adversary who reads the last bits of what is released.
        - noise_ignores_how_it_is_asked_for: the n-th variate depends on the key and on n.
        - restored_noise_goes_on: after `restore` the variates that follow are those that followed `state`.

    >>> from trainer.streams import random_streams
    >>> GaussianNoise(random_streams(1).noise).standard_normal((2, 3)).shape
    (2, 3)
    """

    def __init__(self, stream: AESCounter) -> None:
        self._stream = stream
        self._generator = np.random.Generator(stream)
        self._start: Any = stream.state
        self._block: Floats = np.empty(0)
        self._used = 0
        self._draws = 1
        self._ahead: Future[tuple[Any, Floats]] | None = None
        self._worker: ThreadPoolExecutor | None = None

    def standard_normal(self, shape: tuple[int, ...]) -> Floats:
        size = math.prod(shape)
        left = self._block.size - self._used
        if 0 < left < size:
            return np.concatenate([self.standard_normal((left,)), self.standard_normal((size - left,))]).reshape(shape)
        if size > left:
            self._next_block(size)
            return self.standard_normal(shape)
        drawn = self._block[self._used : self._used + size]
        self._used += size
        return drawn.reshape(shape)

    def _next_block(self, size: int) -> None:
        """Take the block that was drawn ahead, or draw one; have the next drawn, twice as large, if that is worth it.

        Blocks hold whole draws of ``size``, so that draws of one size never lie across two of them.
        """
        drawn = self._draw(size * self._draws) if self._ahead is None else self._ahead.result()
        self._start, self._block = drawn
        self._used, self._ahead = 0, None
        self._draws = max(1, min(2 * self._draws, _LARGEST_BLOCK // size))
        if size * self._draws >= _WORTH_A_THREAD:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="noise")
            self._ahead = self._worker.submit(self._draw, size * self._draws)

    def _draw(self, size: int) -> tuple[Any, Floats]:
        return self._stream.state, self._generator.standard_normal(size)

    def rounded(self, size: int, scale: float) -> Floats:
        drawn: Floats = np.rint(scale * self.standard_normal((size,)))
        return drawn

    def state(self) -> State:
        return {"stream": self._start, "size": self._block.size, "used": self._used}

    def restore(self, state: State) -> None:
        self.close()
        self._stream.state = state["stream"]
        self._start, self._used = state["stream"], int(state["used"])
        self._block = self._generator.standard_normal(int(state["size"]))

    def close(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()
        self._worker = self._ahead = None
