r"""Rounded Gaussian noise: R = round(K Z) for a standard normal Z, with exactly that law for ideal random bits.

**Why it is exact.** Z is drawn by a ziggurat (`trainer.exact.layers`): the layers cover the region under
f(x) = exp(-x^2/2), a trial is uniform on their union, and a trial under f is accepted, so that its x is normal. All
uniform variates are infinite strings of bits. A program that reads some of them, encloses the outcome over all
completions, answers where one outcome is left, and else reads more bits *of the same strings*, draws the outcome
exactly. Bits are never redrawn.

**The fast path** reads one 64-bit word: a layer i in 8 bits and a signed s in 53, for x = (s + W) X_i 2^-52 with W
uniform on [0, 1) and not read yet. With c_i = fl(K X_i 2^-52), t = fl(s c_i) and T_i = fl(k_i c_i):

- |t| < T_i implies |s| <= k_i - 1, since rounding is monotone: x is under f at every height of the layer, for any W.
- R = rint(t) is round(K x) for any W if |t - R| < 1/2 - K 2^-49: the error of t is at most K 3.93 2^-52 (1 + u), and W
  moves K x by as much at most. The difference t - R is exact.

Words for which one of the two does not hold are worked on one by one, with more bits. Floating-point comparisons have
slack for that: 2^-40 where a height is compared, K 2^-44 for a tail's rounding. It covers NumPy's exp and log if they
err by less than 2^-45 for the arguments that occur here, [-7.8, 0] and [2^-20, 1]; a test measures them against mpmath.
What falls within the slack is decided by integers, and by decimal's exp and ln, which are correctly rounded.

**Constant work.** A chunk of n outputs is made of a fixed number of words, and a fixed number of places in it are
worked on as undecided, so that the time does not tell the noise; exceeding either has a probability below 2^-100, and
then the chunk takes longer and keeps its law. A rejected word's place is filled by a surplus one, by acceptance alone.

Source: Marsaglia & Tsang 2000 for the ziggurat; Karney 2016 (ACM TOMS 42:3) and Canonne, Kamath & Steinke 2020 for
exact sampling without floating point; the enclosures are derived here.
"""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

from trainer.exact.layers import AREA, CERTAIN, HEIGHTS, TAIL_START

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
State = dict[str, Any]

#: Outputs of a chunk, at most, unless one draw has more.
_LARGEST_CHUNK = 1 << 17
#: Chunks from here on are worth a thread.
_WORTH_A_THREAD = 1 << 14
#: Words that are worked on at a time: they stay in a cache.
_AT_ONCE = 1 << 14
#: Shares of words that are rejected, and that are not accepted at once: no less than the true ones.
_REJECTED, _UNDECIDED = 0.00671, 0.01495

_STARTS = (0, *HEIGHTS[:-1])  # Y_i, in units of 2^-64
_ENDS = HEIGHTS
_TAIL_START = Fraction(TAIL_START, 1 << 50)
_R = float(_TAIL_START)
_WIDTHS = tuple(
    Fraction(AREA, HEIGHTS[0]) if layer == 0 else Fraction(AREA, HEIGHTS[layer] - HEIGHTS[layer - 1])
    for layer in range(256)
)
#: The tail's envelope a exp(-r t): a = r (v - r Y_1) is its value at r, and no less than f(r).
_TAIL_HEIGHT = _TAIL_START * (Fraction(AREA, 1 << 64) - _TAIL_START * Fraction(HEIGHTS[0], 1 << 64))
_WIDTHS_FLOAT = np.array([float(width) for width in _WIDTHS])
_STARTS_FLOAT = np.array([start * 2.0**-64 for start in _STARTS])
_SPANS_FLOAT = np.array([(end - start) * 2.0**-64 for start, end in zip(_STARTS, _ENDS, strict=True)])
_HEIGHT_SLACK = 2.0**-40


class RoundedGaussian:
    """Draws round(K Z) for independent standard normal Z, in chunks, ahead of their use.

    Args:
        stream: Where all bits come from; nothing else may draw from it.

    Guarantees:
        - noise_has_the_law_of_a_rounded_normal: for ideal bits, with no error at all, for K in [2^-1074, 2^36].
        - restored_noise_goes_on: after `restore` the numbers that follow are those that followed `state`.
        - work_is_public: how many words are drawn and worked on depends on the sizes and scales that are asked for.

    >>> from trainer.streams import random_streams
    >>> RoundedGaussian(random_streams(1).noise).rounded(3, 1000.0).shape
    (3,)
    """

    def __init__(self, stream: AESCounter) -> None:
        self._sources = _Sources(stream, stream.jumped(1), stream.jumped(2))
        self._began = self._sources.state()
        self._chunk: Floats = np.empty(0)
        self._scale = 1.0
        self._used = 0
        self._draws = 1
        self._ahead: Future[tuple[State, Floats]] | None = None
        self._worker: ThreadPoolExecutor | None = None

    def rounded(self, size: int, scale: float) -> Floats:
        """Return the next numbers, shape (size,): whole numbers in an array of the caller's own.

        Args:
            size: How many.
            scale: K. Where it is another one than before, what was drawn ahead is discarded; 0 draws nothing.
        """
        if scale == 0.0:
            return np.zeros(size)
        if scale != self._scale:
            self._discard()
            self._scale = scale
        parts = []
        while self._used + size > self._chunk.size:
            parts.append(self._chunk[self._used :])
            size -= parts[-1].size
            self._next_chunk(size)
        parts.append(self._chunk[self._used : self._used + size])
        self._used += size
        return np.concatenate(parts)

    def _next_chunk(self, size: int) -> None:
        """Take the chunk that was drawn ahead, or draw one; have the next one drawn, twice as large, if worth it."""
        drawn = self._draw(size * self._draws) if self._ahead is None else self._ahead.result()
        self._began, self._chunk = drawn
        self._used, self._ahead = 0, None
        self._draws = max(1, min(2 * self._draws, _LARGEST_CHUNK // size))
        if size * self._draws >= _WORTH_A_THREAD:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="noise")
            self._ahead = self._worker.submit(self._draw, size * self._draws)

    def _draw(self, size: int) -> tuple[State, Floats]:
        return self._sources.state(), rounded_normals(self._sources, size, self._scale)

    def _discard(self) -> None:
        """Forget what was drawn and not used; the streams go on behind it."""
        if self._ahead is not None:
            self._ahead.result()
        self._ahead, self._chunk, self._used, self._draws = None, np.empty(0), 0, 1
        self._began = self._sources.state()

    def state(self) -> State:
        """Return all that is needed to go on from here: where the chunk in use began, and how much of it is used."""
        began = self._began if self._chunk.size or self._ahead is None else self._ahead.result()[0]
        return {
            "sources": began,
            "size": self._chunk.size,
            "used": self._used,
            "scale": self._scale,
            "draws": self._draws,
        }

    def restore(self, state: State) -> None:
        """Go on from where `state` was taken."""
        self.close()
        self._sources.restore(state["sources"])
        self._scale, self._used, size = float(state["scale"]), int(state["used"]), int(state["size"])
        self._draws, self._began = int(state["draws"]), state["sources"]
        self._chunk = rounded_normals(self._sources, size, self._scale) if size else np.empty(0)

    def close(self) -> None:
        """Draw nothing more."""
        if self._worker is not None:
            self._worker.shutdown()
        self._worker = self._ahead = None


@dataclass(frozen=True)
class _Sources:
    """Bits for candidates, for the places that are undecided, and for refinement: apart, so that none shifts another.

    The last two are the first one's stream, 2^64 and 2^65 blocks ahead.
    """

    candidates: AESCounter
    places: AESCounter
    more: AESCounter

    def state(self) -> State:
        return {name: getattr(self, name).state for name in ("candidates", "places", "more")}

    def restore(self, state: State) -> None:
        for name in ("candidates", "places", "more"):
            getattr(self, name).state = state[name]


def rounded_normals(sources: _Sources, size: int, scale: float) -> Floats:
    """Return so many numbers round(K Z): shape (size,), whole numbers."""
    made, kept = _candidates(sources, _enough(size, _REJECTED), scale)
    while np.count_nonzero(kept) < size:  # with probability 2^-100
        more, more_kept = _candidates(sources, _AT_ONCE, scale)
        made, kept = np.concatenate([made, more]), np.concatenate([kept, more_kept])
    found: Floats = made[kept][:size]
    return found


def _enough(size: int, share: float) -> int:
    """Return as many trials as give ``size`` successes where a share of them fail, but for probability 2^-100."""
    return math.ceil(size / (1.0 - share) + 13.0 * math.sqrt(size * share) + 16.0)


def _candidates(sources: _Sources, count: int, scale: float) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return ``count`` trials: what each is rounded to, and whether it is accepted."""
    steps = scale * 2.0**-52  # a product with a power of two is exact
    factors = np.array([float(Fraction(steps) * width) for width in _WIDTHS])
    limits = np.array(CERTAIN, dtype=np.float64) * factors
    surely = 0.5 - scale * 2.0**-49
    made, kept = np.empty(count), np.empty(count, dtype=bool)
    places, words = [], []
    factor, values, sizes = (np.empty(_AT_ONCE) for _ in range(3))
    for start in range(0, count, _AT_ONCE):
        part: Words = sources.candidates.random_raw(min(_AT_ONCE, count - start))
        at = slice(0, part.size)
        layers = part.astype(np.uint8).astype(np.intp)
        np.take(factors, layers, out=factor[at], mode="clip")
        np.multiply(part.view(np.int64) >> 11, factor[at], out=values[at])
        rounded = np.rint(values[at], out=made[start : start + part.size])
        np.abs(values[at], out=sizes[at])
        np.take(limits, layers, out=factor[at], mode="clip")
        inside = np.less(sizes[at], factor[at], out=kept[start : start + part.size])
        values[at] -= rounded
        np.abs(values[at], out=values[at])
        undecided = np.flatnonzero(~(inside & (values[at] < surely)))
        places.append(start + undecided)
        words.append(part[undecided])
    _decide(sources, np.concatenate(words), np.concatenate(places), scale, made, kept)
    return made, kept


def _decide(
    sources: _Sources,
    words: Words,
    places: npt.NDArray[np.intp],
    scale: float,
    made: Floats,
    kept: npt.NDArray[np.bool_],
) -> None:
    """Write what the undecided places are; a fixed number of places is worked on, repeating one where there are fewer.

    Each place has two words of its own: for the height, and for where in the tail it is.
    """
    share = min(1.0, _UNDECIDED + scale * 2.0**-47)
    expected = math.ceil(made.size * share + 13.0 * math.sqrt(made.size * share) + 16.0)
    room = max(expected, places.size)
    chosen = np.zeros(room, dtype=np.uint64)
    chosen[: places.size] = words
    own: Words = sources.places.random_raw(2 * room).reshape(2, room)
    layers = (chosen & np.uint64(255)).astype(np.intp)
    signed = chosen.view(np.int64) >> 11
    x = signed.astype(np.float64) * (_WIDTHS_FLOAT[layers] * 2.0**-52)
    first, second = (own >> np.uint64(11)).astype(np.float64) * 2.0**-53
    # Under f, or not: by the height in the layer, or in the tail by its height under the envelope.
    height = _STARTS_FLOAT[layers] + first * _SPANS_FLOAT[layers]
    above = np.exp(-0.5 * x * x) - height
    in_tail = (layers == 0) & (np.abs(x) >= _R)
    t = -np.log(np.maximum(second, 2.0**-53)) / _R
    above = np.where(in_tail, np.exp(-0.5 * (_R * _R + t * t)) - first * float(_TAIL_HEIGHT), above)
    beyond = scale * np.where(in_tail, np.copysign(_R + t, x), x)
    whole = np.rint(beyond)
    tie = np.abs(np.abs(beyond - whole) - 0.5) <= np.where(in_tail, scale * 2.0**-44, scale * 2.0**-49)
    near_tail = (layers == 0) & (np.abs(np.abs(x) - _R) <= 2.0**-44)
    exactly = tie | (np.abs(above) <= _HEIGHT_SLACK) | near_tail | (in_tail & (own[1] < np.uint64(1 << 44)))
    accepted = above > 0.0
    for index in np.flatnonzero(exactly[: places.size]):
        trial = _Trial(int(layers[index]), int(signed[index]), (int(own[0, index]), int(own[1, index])))
        accepted[index], whole[index] = trial.outcome(Fraction(scale), sources.more)
    made[places] = whole[: places.size]
    kept[places] = accepted[: places.size]


class _Trial:
    """One trial whose bits are read as far as it takes: everything in exact numbers.

    Args:
        layer: i.
        signed: s; x is (s + W) X_i 2^-52.
        words: The first 64 bits of the height's uniform variate, and of the tail's.
    """

    def __init__(self, layer: int, signed: int, words: tuple[int, int]) -> None:
        self._layer, self._signed = layer, signed
        self._bits = 0, 64, 64
        self._values = 0, *words

    def outcome(self, scale: Fraction, more: AESCounter) -> tuple[bool, int]:
        """Return whether the trial is accepted, and round(K x); 0 where it is not."""
        while True:
            found = self._decided(scale)
            if found is not None:
                return found
            extended = [int(word) for word in more.random_raw(3)]
            self._values = tuple((value << 64) + word for value, word in zip(self._values, extended, strict=True))  # type: ignore[assignment]
            self._bits = tuple(bits + 64 for bits in self._bits)  # type: ignore[assignment]

    def _decided(self, scale: Fraction) -> tuple[bool, int] | None:
        """Return the outcome if all completions of the bits that were read have the same one."""
        (x_low, x_high), height, tail = self._place(), self._uniform(1), self._uniform(2)
        smaller, larger = sorted((abs(x_low), abs(x_high)))
        if self._layer == 0 and smaller < _TAIL_START < larger:
            return None
        if self._layer == 0 and smaller >= _TAIL_START:
            return self._in_tail(scale, height, tail)
        if abs(self._signed) + 1 <= CERTAIN[self._layer]:  # under f at every height
            return _answer(True, scale * x_low, scale * x_high)
        start, end = (Fraction(y, 1 << 64) for y in (_STARTS[self._layer], _ENDS[self._layer]))
        low, high = (start + u * (end - start) for u in height)
        is_under = _is_below(high, low, _exp(-larger * larger / 2)[0], _exp(-smaller * smaller / 2)[1])
        return _answer(is_under, scale * x_low, scale * x_high)

    def _in_tail(
        self, scale: Fraction, height: tuple[Fraction, Fraction], tail: tuple[Fraction, Fraction]
    ) -> tuple[bool, int] | None:
        if tail[0] == 0:
            return None
        near, far = -_ln(tail[1])[1] / _TAIL_START, -_ln(tail[0])[0] / _TAIL_START
        square = _TAIL_START * _TAIL_START
        low, high = (u * _TAIL_HEIGHT for u in height)
        is_under = _is_below(high, low, _exp(-(square + far * far) / 2)[0], _exp(-(square + near * near) / 2)[1])
        nearest, farthest = scale * (_TAIL_START + near), scale * (_TAIL_START + far)
        ends = (nearest, farthest) if self._signed >= 0 else (-farthest, -nearest)
        return _answer(is_under, *ends)

    def _place(self) -> tuple[Fraction, Fraction]:
        """Return bounds of x."""
        fraction = Fraction(self._values[0], 1 << self._bits[0])
        step = _WIDTHS[self._layer] / (1 << 52)
        low = (self._signed + fraction) * step
        return low, low + step / (1 << self._bits[0])

    def _uniform(self, which: int) -> tuple[Fraction, Fraction]:
        """Return bounds of a uniform variate."""
        value, bits = self._values[which], self._bits[which]
        return Fraction(value, 1 << bits), Fraction(value + 1, 1 << bits)


def _is_below(high: Fraction, low: Fraction, least: Fraction, most: Fraction) -> bool | None:
    """Return whether a number in [low, high] is below one in [least, most]; None where that is open."""
    if high <= least:
        return True
    return False if low >= most else None


def _answer(is_under: bool | None, low: Fraction, high: Fraction) -> tuple[bool, int] | None:
    if is_under is None:
        return None
    if not is_under:
        return False, 0
    one, other = (math.floor(2 * end + 1) // 2 for end in (low, high))
    return (True, one) if one == other else None


def _exp(exponent: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of exp."""
    return _bounds(exponent, Decimal.exp, Fraction(1))


def _ln(number: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of the natural logarithm of a positive number."""
    return _bounds(number, Decimal.ln, 1 / number)


def _bounds(argument: Fraction, function: Any, slope: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of a function whose slope near the argument is at most twice the given one.

    Decimal's functions are correctly rounded, so that they are off by one unit in the last place at most.
    """
    digits = 40 + max(argument.denominator.bit_length(), 64) // 3
    with localcontext() as context:
        context.prec = digits
        given = Decimal(argument.numerator) / Decimal(argument.denominator)
        found = Fraction(function(given))
    error = abs(found) * Fraction(10) ** (1 - digits)
    error += 2 * slope * abs(argument) * Fraction(10) ** (1 - digits)
    return found - error, found + error
