"""Rounded Gaussian noise: R = round(K Z) for a standard normal Z, with exactly that law for ideal random bits.

`trainer.exact.ziggurat` draws it and has the proof. Numbers are drawn in chunks, ahead of their use.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np

from trainer.exact.layers import Layers
from trainer.exact.loops import Floats, solve
from trainer.exact.normal_layers import AREA, CERTAIN, HEIGHTS, TAIL_START
from trainer.exact.ziggurat import Known, Sources, State, Tables, rounded
from trainer.keystream import Keystream

#: The most outputs of a chunk, unless one draw has more.
_LARGEST_CHUNK = 1 << 17
#: The smallest chunk that is drawn in a thread of its own.
_WORTH_A_THREAD = 1 << 14

#: The layers of exp(-x^2 / 2); at x, where the tail begins, the exponent has slope x.
NORMAL = Layers(
    rate=Fraction(1, 2),
    order=Fraction(2),
    tail_start=Fraction(TAIL_START, 1 << 50),
    tail_rate=Fraction(TAIL_START, 1 << 50),
    area=AREA,
    heights=HEIGHTS,
    certain=CERTAIN,
)


class RoundedGaussian:
    """A source of round(K Z) for independent standard normal Z, drawn in chunks, ahead of their use.

    Args:
        stream: The source of all bits; nothing else may draw from it.

    Guarantees:
        - noise_has_the_law_of_a_rounded_normal: for ideal bits, with no error at all, for K in [2^-1074, 2^36].
        - restored_noise_goes_on: after `restore` the numbers that follow are those that followed `state`.
        - work_is_public: the number of words that are drawn and processed depends only on the requested sizes and
          scales.

    >>> from trainer.streams import random_streams
    >>> RoundedGaussian(random_streams(1).noise).rounded(3, 1000.0).shape
    (3,)
    """

    def __init__(self, stream: Keystream) -> None:
        self._sources = Sources.of(stream)
        self._began = self._sources.state()
        self._chunk: Floats = np.empty(0)
        self._scale = 1.0
        self._used = 0
        self._draws = 1
        self._ahead: Future[tuple[State, Floats]] | None = None
        self._ahead_size = 0
        self._worker: ThreadPoolExecutor | None = None

    def rounded(self, size: int, scale: float) -> Floats:
        """Return the next numbers, shape (size,): whole numbers in an array that belongs to the caller.

        Args:
            size: The number of variates.
            scale: The scale K. If it differs from the last one, numbers that were drawn ahead are discarded; 0 draws
                nothing.
        """
        if scale == 0.0:
            return np.zeros(size)
        if scale != self._scale:
            self._discard()
            self._scale = scale
        if size <= self._chunk.size - self._used:
            self._used += size
            return self._chunk[self._used - size : self._used]  # no other draw gets this part of the chunk
        parts = []
        while self._used + size > self._chunk.size:
            parts.append(self._chunk[self._used :])
            size -= parts[-1].size
            self._next_chunk(size)
        parts.append(self._chunk[self._used : self._used + size])
        self._used += size
        return np.concatenate(parts)

    def _next_chunk(self, size: int) -> None:
        """Take the chunk that was drawn ahead, or draw one. Start drawing the next one, twice as large, if it is worth
        a thread."""
        drawn = self._draw(size * self._draws) if self._ahead is None else self._ahead.result()
        self._began, self._chunk = drawn
        self._used = 0
        self._draws = max(1, min(2 * self._draws, _LARGEST_CHUNK // size))
        self._draw_ahead(size * self._draws)

    def _draw_ahead(self, size: int) -> None:
        self._ahead, self._ahead_size = None, size if size >= _WORTH_A_THREAD else 0
        if self._ahead_size:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="noise")
            self._ahead = self._worker.submit(self._draw, size)

    def _draw(self, size: int) -> tuple[State, Floats]:
        return self._sources.state(), rounded_normals(self._sources, size, self._scale)

    def _discard(self) -> None:
        """Forget the numbers that were drawn but not used. The streams continue after them."""
        if self._ahead is not None:
            self._ahead.result()
        self._ahead, self._ahead_size = None, 0
        self._chunk, self._used, self._draws = np.empty(0), 0, 1
        self._began = self._sources.state()

    def state(self) -> State:
        """Return everything that is needed to go on from here: the start of the chunk in use, and the number of its
        used values.

        The chunk that is drawn ahead counts, too: if the scale changes it is discarded, and the streams continue after
        it.
        """
        return {
            "sources": self._began,
            "size": self._chunk.size,
            "used": self._used,
            "scale": self._scale,
            "draws": self._draws,
            "ahead": self._ahead_size,
        }

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken."""
        self.close()
        self._sources.restore(state["sources"])
        self._scale, self._used, size = float(state["scale"]), int(state["used"]), int(state["size"])
        self._draws, self._began = int(state["draws"]), state["sources"]
        self._chunk = rounded_normals(self._sources, size, self._scale) if size else np.empty(0)
        self._draw_ahead(int(state["ahead"]))

    def close(self) -> None:
        """Draw nothing more."""
        if self._worker is not None:
            self._worker.shutdown()
        self._worker = self._ahead = None
        self._ahead_size = 0


def rounded_normals(sources: Sources, size: int, scale: float) -> Floats:
    """Return this many numbers round(K Z): shape (size,), whole numbers."""
    return rounded(_tables(scale), sources, size, scale)


@cache
def load_noise() -> None:
    """Load the compiled loops of the noise, once in a process; it takes about half a second, so do it before timing."""
    rounded_normals(Sources.of(Keystream(key=0)), 1, 1.0)
    solve(np.zeros(1), np.zeros((1, 1), dtype=np.int32), np.zeros(1), 0, 1.0)


@lru_cache(maxsize=64)
def _tables(scale: float) -> Tables:
    return Tables.of(NORMAL, Known(Fraction(scale)))
