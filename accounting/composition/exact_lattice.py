"""This module answers lists of equal steps whose losses lie on one lattice, by exact sums over outcomes.

The losses of one step are offset + h j, j integers, so those of n steps are n offset + h J, and nothing is rounded to a
lattice. The sum over outcomes

    delta(eps) = sum over losses above eps of mass (1 - e^(eps - loss))

differs from the truth only by the rounding of the losses themselves, which moves eps, and by floating point. Up to
`MAX_ENUMERATED` outcomes are enumerated: a sum of positive terms, which has relative accuracy even next to the largest
loss. More outcomes take one transform, tilted as in `convolution`. It adds an error by its periodicity ("aliasing") and
one by floating point ("rounding", an estimate with a margin).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.composition.composition import Composition
from accounting.composition.convolution import LEFT_TILTS, RIGHT_TILTS, choose_tilt, convolve, window_length
from accounting.composition.lattice import LatticeLaw
from accounting.composition.line import Line, LoweringTerms
from accounting.composition.renyi import RenyiBound
from accounting.intervals import Bounds
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.privacy_loss import Direction

Array = NDArray[np.float64]

#: Largest transform, in lattice points.
MAX_TRANSFORM = 2**20
#: The most outcomes that are enumerated.
MAX_ENUMERATED = 4096
_UNIT = 2.0**-53
_BISECTIONS = 60
#: The lower bound needs no correction, since nothing was rounded to the lattice.
_EXACT = LoweringTerms(eta=1e-30, kappa=7e-30, usable=True)


@dataclass(frozen=True)
class _Lattice:
    """The law of one step: masses at offset + step (first + j).

    Attributes:
        law: The masses, with losses relative to the offset.
        offset: The loss nearest to 0, to which the lattice of losses is shifted.
    """

    law: LatticeLaw
    offset: float


class ExactLattice:
    """The evaluator for equal steps whose losses lie on one lattice.

    Guarantees: interval_contains_truth; exact_on_the_lattice: no term for rounding losses to the lattice.
    """

    name = "lattice_sum"
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        loss, count = composition.steps[0]
        if len(composition.steps) != 1 or not isinstance(loss, AtomicLoss) or not loss.on_lattice:
            return None
        if count * (loss.atoms.losses.size - 1) < MAX_ENUMERATED:
            outcomes = [_Enumerated.of(atoms, count) for atoms in _directed(composition, loss)]
            return _larger([each.delta(epsilon) for each in outcomes])
        tilt = RenyiBound().best_tilt(composition, epsilon=epsilon)
        target = RenyiBound().delta(composition, epsilon)
        assert target is not None
        bounds: list[Bounds] = []
        for atoms in _directed(composition, loss):
            lattice = _lattice(atoms)
            line = _line(composition, lattice, count, tilt, epsilon, math.log(target.upper) - 8.0)
            if line is None:
                return None
            bounds.append(_Shifted(line, count * lattice.offset).delta(epsilon))
        return _larger(bounds)

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        loss, count = composition.steps[0]
        if len(composition.steps) != 1 or not isinstance(loss, AtomicLoss) or not loss.on_lattice:
            return None
        if count * (loss.atoms.losses.size - 1) < MAX_ENUMERATED:
            outcomes = [_Enumerated.of(atoms, count) for atoms in _directed(composition, loss)]
            return _larger([each.epsilon(delta) for each in outcomes])
        tilt = RenyiBound().best_tilt(composition, delta=delta)
        guess = RenyiBound().epsilon(composition, delta)
        assert guess is not None
        bounds: list[Bounds] = []
        for atoms in _directed(composition, loss):
            lattice = _lattice(atoms)
            centre = max(0.0, guess.upper - 4.0 / tilt)
            line = _line(composition, lattice, count, tilt, centre, math.log(delta))
            if line is None:
                return None
            bounds.append(_Shifted(line, count * lattice.offset).epsilon(delta, guess.upper))
        return _larger(bounds)


def _directed(composition: Composition, loss: AtomicLoss) -> list[Atoms]:
    return [loss.atoms if way is Direction.REMOVE else loss.atoms.swapped for way in composition.directions]


@dataclass(frozen=True)
class _Enumerated:
    """All outcomes of some steps.

    Attributes:
        atoms: The atoms of the sum of the losses.
        mass_error: Relative error of every mass.
        loss_error: Absolute error of every loss.
    """

    atoms: Atoms
    mass_error: float
    loss_error: float

    @classmethod
    def of(cls, atoms: Atoms, count: int) -> _Enumerated:
        size = float(np.abs(atoms.losses).max())
        masses = _power(np.exp(atoms.log_masses), count)
        first, last = count * float(atoms.losses[0]), count * float(atoms.losses[-1])
        kept = masses > 0.0
        places = np.linspace(first, last, masses.size)[kept]
        # Each step adds the rounding of its logarithm, which may be the difference of the other direction's logarithm
        # and the loss. Each sum of products adds the rounding of its terms.
        rounding = count * (8.0 + float(np.abs(atoms.log_masses).max()) + size) + 4.0 * masses.size
        return cls(Atoms(np.log(masses[kept]), places), 2.0 * _UNIT * rounding + 1e-13, 8.0 * _UNIT * count * size)

    def delta(self, epsilon: float) -> Bounds:
        above = self._at(epsilon - self.loss_error) * (1.0 + self.mass_error) + 5e-324
        below = self._at(epsilon + self.loss_error) * (1.0 - self.mass_error)
        return Bounds(below, min(above, 1.0), 0.5 * (below + min(above, 1.0)), {"rounding": above - below})

    def epsilon(self, delta: float) -> Bounds:
        upper = self._last(lambda x: self.delta(x).upper > delta)[1]
        lower = self._last(lambda x: self.delta(x).lower > delta)[0]
        return Bounds(lower, upper, 0.5 * (lower + upper), {"rounding": upper - lower})

    def _last(self, above: Callable[[float], bool]) -> tuple[float, float]:
        """Return two neighbouring numbers of which ``above`` is true only at the first; zeros if it is true nowhere."""
        low, high = 0.0, float(self.atoms.losses[-1]) + 2.0 * self.loss_error
        if not above(low):
            return 0.0, 0.0
        while low < (middle := 0.5 * (low + high)) < high:
            low, high = (middle, high) if above(middle) else (low, middle)
        return low, high

    def _at(self, epsilon: float) -> float:
        return float(self.atoms.profile(np.array([epsilon]))[0])


def _power(masses: Array, count: int) -> Array:
    """Return the law of the sum of ``count`` independent indices."""
    total, square = np.ones(1), masses
    while True:
        if count % 2:
            total = np.convolve(total, square)
        count //= 2
        if not count:
            return total
        square = np.convolve(square, square)


@dataclass(frozen=True)
class _Shifted:
    """A line that was computed for losses less ``offset``. Its answers are about the original losses."""

    line: Line
    offset: float

    def delta(self, epsilon: float) -> Bounds:
        slack = self._slack(epsilon)
        above = self.line.delta_bounds(epsilon - self.offset - slack)
        below = self.line.delta_bounds(epsilon - self.offset + slack)
        lower = min(below.lower, above.upper)
        estimate = min(max(above.estimate, lower), above.upper)
        return Bounds(lower, above.upper, estimate, {**above.error_budget, "losses": max(0.0, above.lower - lower)})

    def epsilon(self, delta: float, most: float) -> Bounds:
        """Return bounds of epsilon, given the upper bound ``most``. The bounds hold for any line, even one made for
        another epsilon.
        """
        low, upper = 0.0, most
        if self.delta(low).upper <= delta:
            return Bounds(0.0, 0.0, 0.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + upper)
            if not low < middle < upper:
                break
            low, upper = (low, middle) if self.delta(middle).upper <= delta else (middle, upper)
        lower, gap = 0.0, 1e-14 * upper
        while gap < upper:
            # Far from its centre the line says nothing, so the search for the lower end starts at the upper end.
            if self.delta(upper - gap).lower > delta:
                lower = upper - gap
                break
            gap *= 2.0
        return Bounds(lower, upper, 0.5 * (lower + upper), {"rounding": upper - lower})

    def _slack(self, epsilon: float) -> float:
        return 8.0 * _UNIT * (2.0 * abs(self.offset) + abs(epsilon))


def _lattice(atoms: Atoms) -> _Lattice:
    """Return the lattice of a law whose losses are equally spaced (see `AtomicLoss.on_lattice`)."""
    masses, losses = np.exp(atoms.log_masses), atoms.losses
    zero = int(np.argmin(np.abs(losses)))
    step = float((losses[-1] - losses[0]) / (losses.size - 1))
    defect = abs(math.fsum(masses.tolist()) - 1.0)
    none = np.zeros_like(masses)
    return _Lattice(LatticeLaw(-zero, step, masses, none, 0.0, 0.0, defect), float(losses[zero]))


def _line(
    composition: Composition, lattice: _Lattice, count: int, tilt: float, centre: float, log_delta: float
) -> Line | None:
    """Return the composed law around ``centre``; None if the transform would be too large."""
    law, step = lattice.law, lattice.law.step
    tilt, _ = choose_tilt(composition, tilt, centre, log_delta)
    shifted = centre - count * lattice.offset
    tilts = np.concatenate([[tilt], RIGHT_TILTS * tilt, LEFT_TILTS * tilt])
    moments = count * law.log_moments(tilts)
    margin = min(12.0 / tilt, 300.0 / (tilt + 1.0))
    period = window_length(tilt, moments, tilts, shifted, log_delta - 21.0) + 2.0 * margin + 4.0 * step
    if not period / step < MAX_TRANSFORM:
        return None
    points = scipy.fft.next_fast_len(math.ceil(max(256.0, period / step)), real=True)
    first = math.floor((shifted - margin) / step)
    values, rounding = convolve([(law, count)], tilt, points, first)
    return Line(
        values=values,
        first=first,
        step=step,
        tilt=tilt,
        centre=shifted,
        log_scale=float(moments[0]) - tilt * shifted,
        tilts=tilts[1:],
        moments=moments[1:],
        rounding=rounding,
        infinite_mass=0.0,
        lumped_mass=0.0,
        lowering=_EXACT,
    )


def _larger(bounds: list[Bounds]) -> Bounds:
    """Return the interval of the larger of the two directions' numbers."""
    worst = max(bounds, key=lambda item: item.upper)
    lower = min(max(item.lower for item in bounds), worst.upper)
    estimate = min(max(*(item.estimate for item in bounds), lower), worst.upper)
    return Bounds(lower, worst.upper, estimate, worst.error_budget)
