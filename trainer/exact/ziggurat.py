r"""Exactly rounded variates, R = round(c X) for X of density proportional to f(x) = exp(-rate |x|^order).

**The law.** The region under f is covered by 256 layers of equal area v, disjoint in height. Layer i >= 1 has the
heights from Y_i to Y_(i+1) and the half-width X_i = v / (Y_(i+1) - Y_i), with f(X_i) <= Y_i. Layer 0 has the heights
below Y_1, up to the place x_0, and a tail beyond it under a exp(-l (|x| - x_0)), which is above f because a is at least
f(x_0), the exponent is convex and l is at most its slope at x_0. A trial is uniform on the union of the layers. It is
accepted iff it is under f, so that an accepted x has the law of X. Inequalities are enough: no equation has to be
solved exactly.

All uniform variates are infinite strings of bits. A program that reads some of them, encloses the outcome over all
completions, answers where one outcome is left, and else reads more bits *of the same strings*, draws the outcome
exactly. Bits are never redrawn. The scale c may be such an unknown itself: it is known between bounds, which can be
made as narrow as one likes (`Scale`).

**The fast path** reads one 64-bit word w: a layer i in its low 8 bits and a signed s in its top 53, for
x = (s + W) X_i 2^-52 with W uniform on [0, 1) and not read yet. Let u = 2^-53, a_i = c X_i 2^-63, c_i = fl(a_i),
t = fl(fl(w) c_i) and T_i = fl(2^11 k_i c_i), where k_i is a lower bound of 2^52 f^-1(Y_(i+1)) / X_i, rounded down.

- |t| < T_i implies |w| < 2^11 k_i, since rounding is monotone, and so -k_i <= s < k_i: x is under f at every height of
  the layer, for any W.
- R = rint(t) is round(c x) for any W if |t - R| < 1/2 - c 2^-48. All X_i are below 3.93. The place s + W differs from
  2^-11 w by less than 1, which moves c x by c 3.93 2^-52 at most; three roundings move t by c 3.93 (3u + 4u^2), and the
  bounds of c are within 2^-100 of each other. Together that is less than c 2^-48. The difference t - R is exact.

**The undecided places** are all others, and each has three words of its own.

- The first one is the start of W. c x is formed in two floating-point numbers: Dekker's product of 2^11 s and c_i
  without error, and the rest, which is below c 2^-48, with an error below c 2^-97. The sum of it and of what rint left
  errs by 2^-53 more. So 2^-50 is slack enough for a tie while c is at most 2^44.
- The second one is the height, compared with slack 2^-40. It covers NumPy's exp, log and power if they err by less than
  2^-45 of their value, or absolutely for exp, for the arguments that occur here. A test measures them against mpmath.
- The third one says where in the tail x is, t = -ln(V) / l. V is read to 2^-64 and to 2^-53 of itself, NumPy's log adds
  2^-45, l is above 3.6, and the roundings of t, x_0 + t and c (x_0 + t) are below 2^-50 each. So the slack for a tie
  there is c (2^-46 + 2^-65 / V). Words below 2^44 are left to exact numbers.

What falls within the slack is decided by `trainer.exact.enclosures` and by more bits.

**Loops.** What is done for each word is a loop of `trainer.exact.loops`, which numba compiles: each operation is
rounded by itself and none is fused with another, as the bounds above assume. exp, log and power stay NumPy's.

**Constant work.** A given number of variates is made of a fixed number of words, and a fixed number of places in them
are treated as undecided, so that the time does not reveal the noise; exceeding either has a probability below 2^-100.
In that case the work takes longer, and the law is still exact. A surplus word fills the place of a rejected word; which
word does so depends only on which words are accepted.

Source: Marsaglia & Tsang 2000 for the ziggurat; Karney 2016 (ACM TOMS 42:3) and Canonne, Kamath & Steinke 2020 for
exact sampling without floating point; Dekker 1971 for the product; the enclosures are derived here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from trainer.exact.enclosures import Interval, ln, times
from trainer.exact.layers import Layers
from trainer.exact.loops import Floats, Places, Signed, Words, decide_at_once, judge, locate
from trainer.keystream import Keystream

State = dict[str, Any]

#: The number of words that are worked on at a time, few enough to stay in a cache.
_AT_ONCE = 1 << 14
#: Before anything is drawn with a scale, its bounds are this many bits close: their relative distance is below 2 to the
#: minus this.
_SCALE_BITS = 100
#: Slack of comparisons in floating point: of heights, of ties, and of ties in the tail over the scale.
_HEIGHT_SLACK, _TIE_SLACK, _TAIL_SLACK = 2.0**-40, 2.0**-50, 2.0**-46


class Scale(Protocol):
    """A positive number c that is known between bounds."""

    def bounds(self, bits: int) -> Interval:
        """Return bounds of c whose ratio is below 1 + 2^-bits."""
        ...


@dataclass(frozen=True)
class Known:
    """A scale that is a rational number."""

    value: Fraction

    def bounds(self, bits: int) -> Interval:
        return self.value, self.value


@dataclass(frozen=True)
class Sources:
    """Separate bits for candidates, for undecided places and for refinement, so that one purpose never shifts the bits
    of another."""

    candidates: Keystream
    places: Keystream
    more: Keystream

    @classmethod
    def of(cls, stream: Keystream) -> Sources:
        """Return three parts of a stream. Each part is longer than all that is ever read."""
        return cls(stream, stream.jumped(1), stream.jumped(2))

    def state(self) -> State:
        """Return everything that is needed to go on from here."""
        return {name: getattr(self, name).state for name in ("candidates", "places", "more")}

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken."""
        for name in ("candidates", "places", "more"):
            getattr(self, name).state = state[name]


@dataclass(frozen=True)
class Tables:
    """A law, a scale, and the numbers that the fast path reads for each layer.

    Attributes:
        layers: The layers of the law.
        scale: The scale c.
        lower: A lower bound of c, rounded.
        factors: The factors c_i.
        rests: a_i - c_i, rounded.
        limits: The limits T_i.
        surely: The distance of t from a whole number within which R is surely that number.
    """

    layers: Layers
    scale: Scale
    lower: float
    factors: Floats
    rests: Floats
    limits: Floats
    surely: float

    @classmethod
    def of(cls, layers: Layers, scale: Scale) -> Tables:
        """Return the tables; c is rounded down to 128 bits, and X_i to multiples of 2^-128."""
        low, _ = scale.bounds(_SCALE_BITS)
        shift = 128 - low.numerator.bit_length() + low.denominator.bit_length()
        digits = math.floor(low * Fraction(2) ** shift)
        products = [digits * width for width in layers.whole_widths]
        rounded_products = [float(product) for product in products]
        rests = [float(product - int(whole)) for product, whole in zip(products, rounded_products, strict=True)]
        factors = np.ldexp(rounded_products, -shift - 128 - 63)
        limits = np.array(layers.certain, dtype=np.float64) * 2.0**11 * factors
        lower = float(low)
        return cls(layers, scale, lower, factors, np.ldexp(rests, -shift - 128 - 63), limits, 0.5 - lower * 2.0**-48)


def rounded(tables: Tables, sources: Sources, size: int, most: float) -> Floats:
    """Return ``size`` numbers round(c X): shape (size,), whole numbers.

    Args:
        tables: The tables of the law of X, and of c. The random bits of c do not depend on anything here.
        sources: The sources of bits.
        size: The number of variates.
        most: A public number that c exceeds with probability 2^-100 at most; the work is planned for it.
    """
    made, rejected = _candidates(tables, sources, enough(size, tables.layers.rejected), most)
    behind = int(np.searchsorted(rejected, size))
    surplus = np.delete(made[size:], rejected[behind:] - size)
    while surplus.size < behind:  # with probability 2^-100
        more, rejected_more = _candidates(tables, sources, _AT_ONCE, most)
        surplus = np.concatenate([surplus, np.delete(more, rejected_more)])
    made[rejected[:behind]] = surplus[:behind]
    return made[:size]


def enough(size: int, share: float) -> int:
    """Return a number of trials that give ``size`` successes, except with probability 2^-100, if a share of them
    fails."""
    return math.ceil(size / (1.0 - share) + 13.0 * math.sqrt(size * share) + 16.0)


def _candidates(tables: Tables, sources: Sources, count: int, most: float) -> tuple[Floats, Places]:
    """Return ``count`` trials: the rounded value of each, and the places of the rejected trials, in order."""
    made = np.empty(count)
    places, words = [], []
    undecided: Places = np.empty(_AT_ONCE, np.intp)
    for start in range(0, count, _AT_ONCE):
        part: Words = sources.candidates.words(min(_AT_ONCE, count - start))
        whole = made[start : start + part.size]
        number = decide_at_once(part.view(np.int64), tables.factors, tables.limits, tables.surely, whole, undecided)
        found = undecided[:number]
        places.append(start + found)
        words.append(part[found])
    share = min(1.0, tables.layers.undecided + most * 2.0**-46)
    planned = math.ceil(count * share + 13.0 * math.sqrt(count * share) + 16.0)
    return made, _decide(tables, sources, np.concatenate(words), np.concatenate(places), planned, made)


def _decide(tables: Tables, sources: Sources, words: Words, places: Places, room: int, made: Floats) -> Places:
    """Write the outcome of the undecided places, and return those that are rejected.

    ``room`` places are worked on, with padding if there are fewer. Each has three words of its own: for W, for the
    height, and for where in the tail it is.
    """
    of = tables.layers
    widths, starts, spans = of.floats
    rate, order, tail_start, tail_rate = (float(x) for x in (of.rate, of.order, of.tail_start, of.tail_rate))
    room = max(room, places.size)
    padded = np.zeros(room, dtype=np.uint64)
    padded[: places.size] = words
    chosen: Signed = padded.view(np.int64)
    own: Words = sources.places.words(3 * room).reshape(3, room)
    sizes, tails = np.empty((2, room))
    locate(chosen, own, widths, sizes, tails)
    in_tail = ((chosen & 255) == 0) & (sizes >= tail_start)
    # These are NumPy's functions; the slack covers their errors.
    beyond = np.log(tails) / -tail_rate
    exponents = -rate * np.where(in_tail, tail_start + beyond, sizes) ** order
    exponents += np.where(in_tail, tail_rate * beyond, 0.0)
    density = np.exp(exponents)
    whole, accepted, exactly = np.empty(room), *np.empty((2, room), np.bool_)
    judge(
        chosen,
        own,
        sizes,
        tails,
        in_tail,
        beyond,
        density,
        tables.factors,
        tables.rests,
        starts,
        spans,
        tail_start,
        float(of.tail_height),
        tables.lower,
        _HEIGHT_SLACK,
        _TIE_SLACK,
        _TAIL_SLACK,
        whole,
        accepted,
        exactly,
    )
    for index in np.flatnonzero(exactly[: places.size]).tolist():
        word = int(chosen[index])
        trial = Trial(of, word & 255, word >> 11, tuple(own[:, index].tolist()))
        accepted[index], whole[index] = trial.outcome(tables.scale, sources.more)
    made[places] = whole[: places.size]
    rejected: Places = places[~accepted[: places.size]]
    return rejected


class Trial:
    """One trial in exact numbers, whose bits are read as far as needed.

    Args:
        layers: The layers of the law.
        layer: The index i of the layer.
        signed: s; x is (s + W) X_i 2^-52.
        words: The first 64 bits of W, of the height's uniform variate, and of the tail's.
    """

    def __init__(self, layers: Layers, layer: int, signed: int, words: tuple[int, ...]) -> None:
        self._layers, self._layer, self._signed = layers, layer, signed
        self._fraction, self._height, self._tail = words
        self._bits = 64

    def outcome(self, scale: Scale, more: Keystream) -> tuple[bool, int]:
        """Return whether the trial is accepted, and round(c x); 0 if it is not."""
        while True:
            found = self._decided(scale.bounds(_SCALE_BITS + self._bits - 64))
            if found is not None:
                return found
            fraction, height, tail = (int(word) for word in more.words(3))
            self._fraction = (self._fraction << 64) + fraction
            self._height = (self._height << 64) + height
            self._tail = (self._tail << 64) + tail
            self._bits += 64

    def _decided(self, scale: Interval) -> tuple[bool, int] | None:
        """Return the outcome if it is the same for all completions of the bits that were read."""
        layers, precision = self._layers, 64 + self._bits
        step = layers.widths[self._layer] / (1 << 52)
        place = tuple(end * step for end in _uniform(self._fraction, self._bits))
        x = place[0] + self._signed * step, place[1] + self._signed * step
        near, far = sorted((abs(x[0]), abs(x[1])))
        height = _uniform(self._height, self._bits)
        if self._layer == 0 and near < layers.tail_start < far:
            return None
        if self._layer == 0 and near >= layers.tail_start:
            return self._in_tail(scale, height, _uniform(self._tail, self._bits), precision)
        if abs(self._signed) + 1 <= layers.certain[self._layer]:  # under f at every height
            return _answer(True, scale, x)
        start, end = (Fraction(y, 1 << 64) for y in (layers.starts[self._layer], layers.heights[self._layer]))
        low, high = (start + part * (end - start) for part in height)
        return _answer(_is_below((low, high), layers.density((near, far), precision)), scale, x)

    def _in_tail(self, scale: Interval, height: Interval, tail: Interval, precision: int) -> tuple[bool, int] | None:
        """Return the outcome in the tail. The height under the envelope is the product of ``height``, a and
        ``tail``."""
        layers = self._layers
        if tail[0] == 0:
            return None
        least, most = ln(tail, precision)
        place = layers.tail_start - most / layers.tail_rate, layers.tail_start - least / layers.tail_rate
        low, high = (part * layers.tail_height * rest for part, rest in zip(height, tail, strict=True))
        x = place if self._signed >= 0 else (-place[1], -place[0])
        return _answer(_is_below((low, high), layers.density(place, precision)), scale, x)


def _uniform(value: int, bits: int) -> Interval:
    """Return bounds of a uniform variate of which this many bits are known."""
    return Fraction(value, 1 << bits), Fraction(value + 1, 1 << bits)


def _is_below(one: Interval, other: Interval) -> bool | None:
    """Return whether the numbers of one interval are below those of the other; None if the intervals overlap."""
    if one[1] <= other[0]:
        return True
    return False if one[0] >= other[1] else None


def _answer(is_under: bool | None, scale: Interval, x: Interval) -> tuple[bool, int] | None:
    if is_under is None:
        return None
    if not is_under:
        return False, 0
    one, other = (math.floor(2 * end + 1) // 2 for end in times(scale, x))
    return (True, one) if one == other else None
