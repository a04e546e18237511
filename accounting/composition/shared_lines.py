"""This module finds many deltas or epsilons of one composition. Neighbouring values share a line and are evaluated as
arrays.

A line that was made for one epsilon also gives good bounds near it. The list of values is sorted. The line of the
middle value is evaluated at all epsilons by one array of (epsilons x points), and answers those whose intervals are
narrow enough. The values on either side of these are treated in the same way. Values that no plain line answers are
left to the evaluator that takes one number at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from accounting.composition.composition import Composition
from accounting.composition.fourier import FourierInversion, directed, larger
from accounting.fourier.choice import guess_epsilon
from accounting.fourier.contour import Contour
from accounting.fourier.profiles import DirectedProfiles, goal
from accounting.intervals import Bounds
from accounting.losses.privacy_loss import Direction

Array = NDArray[np.float64]
Found = list[Bounds | None]

_NEWTON_STEPS = 8


def deltas_on_shared_lines(composition: Composition, epsilons: Sequence[float]) -> Found:
    """Return bounds of delta at each epsilon; None for an epsilon that needs an evaluation of its own."""
    order = np.argsort(epsilons)
    ascending = np.asarray(epsilons, dtype=np.float64)[order]
    found: Found | None = None
    for direction in composition.directions:
        here = directed(composition, direction)
        if here is None:
            return [None] * len(epsilons)
        bounds = deltas_in_direction(DirectedProfiles(here), ascending)
        found = bounds if found is None else [_both(a, b) for a, b in zip(found, bounds, strict=True)]
    return _unsorted(found or [], order)


def epsilons_on_shared_lines(composition: Composition, deltas: Sequence[float]) -> Found:
    """Return bounds of epsilon at each delta; None for a delta that needs an evaluation of its own."""
    order = np.argsort(deltas)[::-1]
    descending = np.asarray(deltas, dtype=np.float64)[order]
    first = directed(composition, Direction.REMOVE, float(np.log(descending[-1])))
    if first is None:
        return [None] * len(deltas)
    found = _divided(descending.size, lambda low, high: _epsilons(DirectedProfiles(first), descending[low:high]))
    if len(composition.directions) == 1:
        return _unsorted(found, order)
    other = directed(composition, Direction.ADD)
    known = [index for index, bounds in enumerate(found) if bounds is not None]
    uppers = np.array([bounds.upper for bounds in found if bounds is not None])
    there = deltas_in_direction(DirectedProfiles(other), uppers) if other is not None else [None] * uppers.size
    for index, bounds in zip(known, there, strict=True):
        # An epsilon needs no search in the other direction if that direction's delta at it is at most the wanted delta.
        if bounds is None or not bounds.upper <= descending[index]:
            found[index] = None
    return _unsorted(found, order)


def deltas_in_direction(profiles: DirectedProfiles, ascending: Array) -> Found:
    """Bound one direction's delta at each epsilon; None for an epsilon that needs an evaluation of its own."""
    return _divided(ascending.size, lambda low, high: _deltas_on_a_line(profiles, ascending[low:high]))


def _divided(size: int, solve: Callable[[int, int], Found]) -> Found:
    """Solve a range on the line of its middle, then the rest on either side in the same way."""
    found: Found = [None] * size
    ranges = [(0, size)]
    while ranges:
        low, high = ranges.pop()
        if low >= high:
            continue
        part = solve(low, high)
        middle = (high - low) // 2
        left, right = middle, middle + 1
        if part and part[middle] is not None:
            while left > 0 and part[left - 1] is not None:
                left -= 1
            while right < len(part) and part[right] is not None:
                right += 1
            found[low + left : low + right] = part[left:right]
        if part:
            ranges += [(low, low + left), (low + right, high)]
    return found


def _deltas_on_a_line(profiles: DirectedProfiles, epsilons: Array) -> Found:
    """Bound the deltas at some epsilons on the line of the middle one; return an empty list if it has no line."""
    middle = float(epsilons[epsilons.size // 2])
    if middle >= profiles.composition.largest_loss:
        return [Bounds(0.0, 0.0, 0.0) if e >= profiles.composition.largest_loss else None for e in epsilons]
    plain = profiles.plain(profiles.composition.table_at(middle), middle)
    if plain is None:
        return []
    values = plain.evaluate(epsilons)
    allowed = np.maximum(
        np.array([goal(float(e)) for e in epsilons]) * plain.estimates(epsilons)[1], 1e-9 * values.upper
    )
    narrow = values.upper - values.lower <= allowed
    terms = [{name: float(term[i]) for name, term in values.terms.items()} for i in range(epsilons.size)]
    return [
        Bounds(float(low), float(up), float(mid), budget, FourierInversion.name) if good else None
        for low, up, mid, budget, good in zip(values.lower, values.upper, values.estimate, terms, narrow, strict=True)
    ]


def _epsilons(profiles: DirectedProfiles, deltas: Array) -> Found:
    """Bound the epsilons at some deltas on the line of the middle one; return an empty list if it has no line."""
    middle = float(deltas[deltas.size // 2])
    guess, table = guess_epsilon(profiles.composition, middle)
    plain = profiles.plain(table, guess, float(np.log(deltas.min())))
    if plain is None:
        return []
    epsilons = np.maximum(guess + np.log(middle / deltas) / plain.tilt, 0.0)
    for _ in range(_NEWTON_STEPS):
        estimates, slopes = plain.estimates(epsilons)
        step = np.log(estimates / deltas) * estimates / slopes
        epsilons = np.maximum(epsilons + np.where(np.isfinite(step), step, 0.0), 0.0)
    return _certified(plain, epsilons, deltas)


def _certified(plain: Contour, epsilons: Array, deltas: Array) -> Found:
    """Return intervals around ``epsilons`` whose ends the bounds of delta prove; None for an interval that is not
    proved or too wide.
    """
    values, slopes = plain.evaluate(epsilons), np.maximum(plain.estimates(epsilons)[1], 1e-300)
    # The intervals are one and a half times as wide as the errors require, so that both ends are proved.
    above = 1.5 * np.maximum(values.upper - deltas, 0.0) / slopes + 1e-14 * np.maximum(epsilons, 1.0)
    below = 1.5 * np.maximum(deltas - values.lower, 0.0) / slopes + 1e-14 * np.maximum(epsilons, 1.0)
    uppers, lowers = epsilons + above, epsilons - below
    proved = (plain.evaluate(uppers).upper <= deltas) & (lowers > 0.0)
    proved &= plain.evaluate(np.maximum(lowers, 0.0)).lower > deltas
    narrow = np.array([up - low <= goal(float(up)) for up, low in zip(uppers, lowers, strict=True)])
    return [
        Bounds(
            float(lowers[i]),
            float(uppers[i]),
            float(min(max(epsilons[i], lowers[i]), uppers[i])),
            {name: float(term[i] / slopes[i]) for name, term in values.terms.items()},
            FourierInversion.name,
        )
        if proved[i] and narrow[i]
        else None
        for i in range(epsilons.size)
    ]


def _both(first: Bounds | None, second: Bounds | None) -> Bounds | None:
    return None if first is None or second is None else larger(first, second)


def _unsorted(found: Found, order: NDArray[np.intp]) -> Found:
    result: Found = [None] * len(found)
    for place, bounds in zip(order, found, strict=True):
        result[int(place)] = bounds
    return result
