"""This module has the inner loops of the exact noise, over counters, words and earlier noise. Numba compiles them.

`trainer.exact.ziggurat` and `trainer.exact.correlated` define the names and prove the bounds.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from accounting.compiled import compiled

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
Signed = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
Kept = npt.NDArray[np.int32]

#: The low bits of a word choose a layer, and its top bits a place in it.
_LAYER, _TOP = 255, -(2**11)
#: If the word for the tail is below this number, floating point is too inaccurate to compute the place in the tail.
_SMALLEST_TAIL = np.uint64(1 << 44)
#: Dekker's constant: a product with it splits a float64 into halves whose products are exact.
_SPLITTER = 2.0**27 + 1.0
#: The number of columns of earlier noise that are worked on at a time, few enough to stay in a cache.
_AT_ONCE = 1024


@compiled
def count_on(counters: Words, low: np.uint64, high: np.uint64) -> None:
    """Write the halves (low, high), (low + 1, high), ... of numbers of 128 bits: shape (n, 2)."""
    for place in range(counters.shape[0]):
        counters[place, 0] = low + np.uint64(place)
        counters[place, 1] = high


@compiled
def decide_at_once(
    words: Signed, factors: Floats, limits: Floats, surely: float, whole: Floats, undecided: Places
) -> int:
    """Write rint(t) for each word, and the places where rint(t) may differ from R, in order. Return the number of
    places.

    No branch depends on a word: each place is written, and the next one overwrites it unless it is undecided.

    Args:
        words: The words w, as signed numbers; shape (n,).
        factors, limits, surely: As in `Tables`.
        whole: Written to, shape (n,).
        undecided: Written to; no shorter than n.
    """
    count = 0
    for place in range(words.size):
        word = words[place]
        layer = word & _LAYER
        value = word * factors[layer]
        nearest = np.rint(value)
        whole[place] = nearest
        undecided[count] = place
        count += not ((abs(value) < limits[layer]) & (abs(value - nearest) < surely))
    return count


@compiled
def locate(words: Signed, own: Words, widths: Floats, sizes: Floats, tails: Floats) -> None:
    """Write |x| without W, and the uniform variate V of the tail, which is no less than 2^-64: shape (n,) each."""
    for place in range(words.size):
        word = words[place]
        sizes[place] = abs((word & _TOP) * widths[word & _LAYER] * 2.0**-63)
        tails[place] = max(own[2, place] * 2.0**-64, 2.0**-64)


@compiled
def judge(
    words: Signed,
    own: Words,
    sizes: Floats,
    tails: Floats,
    in_tail: Flags,
    beyond: Floats,
    density: Floats,
    factors: Floats,
    rests: Floats,
    starts: Floats,
    spans: Floats,
    tail_start: float,
    tail_height: float,
    lower: float,
    height_slack: float,
    tie_slack: float,
    tail_slack: float,
    whole: Floats,
    accepted: Flags,
    exactly: Flags,
) -> None:
    """Write for each place round(c x), whether it is under f, and whether only exact numbers can decide that.

    Args:
        words: The words w, as signed numbers; shape (n,), like every other array over places.
        own: Three words of each place; shape (3, n).
        sizes, tails: As `locate` wrote them.
        in_tail: Whether a place is in the tail.
        beyond: The distance t from the start of the tail, for a place in the tail.
        density: The density f at the place; in the tail, f divided by exp(-l t).
        factors, rests, lower: As in `Tables`.
        starts, spans, tail_start, tail_height: As in `Layers`.
        height_slack, tie_slack, tail_slack: Slacks: within these distances floating point does not decide.
        whole, accepted, exactly: Written to.
    """
    for place in range(words.size):
        layer = words[place] & _LAYER
        signed = float(words[place] & _TOP)  # 2^11 s
        height = own[1, place] * 2.0**-64
        inside, open_inside = _rounded(signed, own[0, place], factors[layer], rests[layer], tie_slack)
        exact_tail = lower * math.copysign(tail_start + beyond[place], signed)
        outside = np.rint(exact_tail)
        open_outside = abs(exact_tail - outside) >= 0.5 - lower * (tail_slack + 2.0**-65 / tails[place])
        is_out = in_tail[place]
        in_layer, under_envelope = starts[layer] + height * spans[layer], height * tail_height
        above = density[place] - (under_envelope if is_out else in_layer)
        near_tail = (layer == 0) & (abs(sizes[place] - tail_start) <= 2.0**-44)
        whole[place] = outside if is_out else inside
        accepted[place] = above > 0.0
        exactly[place] = (
            (open_outside if is_out else open_inside)
            | (abs(above) <= height_slack)
            | near_tail
            | (is_out & (own[2, place] < _SMALLEST_TAIL))
        )


@compiled
def _rounded(signed: float, word: int, factor: float, rest: float, slack: float) -> tuple[float, bool]:
    """Return round(c x) by the first 64 bits of W, and whether these bits leave it undecided.

    Args:
        signed: The number 2^11 s.
        word: The bits of W.
        factor, rest: The factor c_i and the rest a_i - c_i.
        slack: The distance from a tie within which the result is undecided.
    """
    product = signed * factor
    s_high = _SPLITTER * signed - (_SPLITTER * signed - signed)
    c_high = _SPLITTER * factor - (_SPLITTER * factor - factor)
    s_low, c_low = signed - s_high, factor - c_high
    left = ((s_high * c_high - product) + s_high * c_low + s_low * c_high) + s_low * c_low
    left += signed * rest + word * 2.0**-53 * factor
    whole = np.rint(product)
    left += product - whole
    carried = np.rint(left)
    return whole + carried, abs(left - carried) >= 0.5 - slack


@compiled
def solve(values: Floats, kept: Kept, weights: Floats, oldest: int, first: float) -> None:
    """Write round((values - weights kept) / first) over the values and over the oldest row that is kept, exactly.

    Args:
        values: Whole numbers; shape (d,).
        kept: The rows of earlier noise that are kept; shape (b - 1, d).
        weights: Whole numbers; shape (b - 1,).
        oldest: The index of the oldest row.
        first: The first coefficient n_0.
    """
    rows, size = kept.shape
    inverse = 1.0 / first
    for start in range(0, size, _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        row = 0
        while row + 4 <= rows:  # four at a time are loaded and stored once
            one, two = kept[row, start : start + _AT_ONCE], kept[row + 1, start : start + _AT_ONCE]
            three, four = kept[row + 2, start : start + _AT_ONCE], kept[row + 3, start : start + _AT_ONCE]
            a, b, c, d = weights[row], weights[row + 1], weights[row + 2], weights[row + 3]
            for place in range(part.size):
                part[place] -= (a * one[place] + b * two[place]) + (c * three[place] + d * four[place])
            row += 4
        while row < rows:
            one, a = kept[row, start : start + _AT_ONCE], weights[row]
            for place in range(part.size):
                part[place] -= a * one[place]
            row += 1
        for place in range(part.size):
            # The quotient errs by less than 1/2: the whole number nearest to it is the answer or is next to the answer.
            nearest = np.rint(part[place] * inverse)
            twice = 2.0 * (part[place] - nearest * first)
            part[place] = nearest + (1.0 if twice >= first else 0.0) - (1.0 if twice < -first else 0.0)
        if rows:
            kept[oldest, start : start + _AT_ONCE] = part
