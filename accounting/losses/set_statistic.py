"""This module gives a lower bound for random sets of steps: the loss if only a sum over the steps is seen.

A record is in k of t steps, all sets equally likely. Let Y_i be the ratio of step i, and f a nondecreasing function
with values on a lattice. An observer who sees only

    S = f(Y_1) + ... + f(Y_t)

learns less than one who sees the steps. Without the record S is the sum of t independent terms of law B, that of f
under N(0, s^2); with it, k of them have the law A, that of f under N(1, s^2), *for every set*. So S has the law B^t
against A^k B^(t-k), where powers are convolutions: a pair of atoms that these neighbours attain, for every f.

The sets' own ratio is e_k(Y_1, ..., Y_t) over the number of sets, the coefficient of theta^k in the product of
1 + theta Y_i. At the theta where the product over theta^k is least, its logarithm is close to that of the product, up
to a constant; so f is log(1 + theta Y), rounded to cells. One theta serves all places: half of the theta of Poisson's
ratio, which is 1 - q + q Y with q = k/t, because the places that matter have larger ratios than most.

Convolutions are sums of nonnegative products. So masses have small relative errors, which add up from factor to factor
and from one convolution to the next; each law carries its own, the largest of its masses (`SetStatisticLoss.error`),
and lower bounds allow for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.losses.atom_step import AtomStep
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms

Array = NDArray[np.float64]

#: The largest number of steps for which cells are small compared with one term, and the least noise. With less noise,
#: nearly all terms would be 0.
MOST_BINS, LEAST_NOISE = 10_000, 0.2
#: The least and the largest number of cells in a standard deviation of the sum; the number of cells in a standard
#: deviation of a term; and the number of standard deviations of a term that are cut into cells.
_LEAST_CELLS, _MOST_CELLS, _PER_TERM, _REACH = 100, 150, 11.0, 9.0
#: The mass below which masses are left out of an intermediate law, and the mass that replaces all smaller ones in the
#: pair.
_NEGLIGIBLE, _RARE = 1e-85, 1e-72
#: Outcomes are merged if their losses lie in the same cell of this width.
_TOGETHER = 2e-4
#: Relative error of one term's mass: that of a difference of two normal probabilities.
_ONE_TERM = 4e-13
_ROUNDOFF = 2.0**-53


class _Law(NamedTuple):
    """Masses on a lattice.

    Attributes:
        first: The place of the first mass.
        masses: The masses at this place and the places that follow.
        error: A bound of the relative error of a mass; mass that is trimmed off is not counted.
    """

    first: int
    masses: Array
    error: float


@dataclass(frozen=True, slots=True)
class SetStatisticLoss(AtomicLoss):
    """The loss of one random set if only the sum is seen.

    Attributes:
        noise_multiplier: The noise multiplier s, over the sensitivity.
        bins, participations: t and k, from 1 to t - 1.
    """

    noise_multiplier: float
    bins: int
    participations: int

    symmetric = False
    on_lattice = False

    @property
    def error(self) -> float:
        """A bound of the relative error of a mass, before outcomes are merged."""
        return max(law.error for law in _laws_of(self))

    def find_atoms(self) -> Atoms:
        laws = _laws_of(self)
        low, high = min(law.first for law in laws), max(law.first + law.masses.size for law in laws)
        here, there = (np.pad(law.masses, (law.first - low, high - law.first - law.masses.size)) for law in laws)
        kept = np.maximum(here, there) > _RARE
        here, there = np.maximum(here[kept], _RARE), np.maximum(there[kept], _RARE)
        losses = np.log(here / there)
        order = np.argsort(losses, kind="stable")
        # An outcome starts a new group if its loss is in another cell than the loss before it.
        cells = np.floor(losses[order] / _TOGETHER)
        place = np.flatnonzero(np.concatenate([[True], np.diff(cells) > 0.0]))
        together = np.add.reduceat(here[order], place)
        losses = np.log(together / np.add.reduceat(there[order], place))
        distinct = np.concatenate([[True], np.diff(losses) > 0.0])
        return Atoms(np.log(together)[distinct], losses[distinct])

    def terms(self) -> tuple[_Law, _Law]:
        """Return the laws B and A of one term."""
        mu, share = 1.0 / self.noise_multiplier, self.participations / self.bins
        log_theta = math.log(0.5 * share / (1.0 - share)) - 0.5 * mu * mu
        cells = min(max(_LEAST_CELLS, _PER_TERM * math.sqrt(self.bins)), _MOST_CELLS)
        z = np.linspace(-_REACH, _REACH, 2001)
        weights = np.exp(-0.5 * z * z)
        heights = np.logaddexp(0.0, log_theta + mu * z)
        mean, square = (np.average(heights**power, weights=weights) for power in (1, 2))
        step = math.sqrt(max(square - mean * mean, 1e-12 * square) * self.bins) / cells
        last = max(1, math.ceil(np.logaddexp(0.0, log_theta + mu * (mu + _REACH)) / step))
        tops = (np.arange(last) + 0.5) * step
        # f is below `tops` where z is below `edges`. The edges may be rounded, because any edges define a statistic.
        edges = (tops + np.log(-np.expm1(-tops)) - log_theta) / mu
        return _cells_of(edges), _cells_of(edges - mu)

    def contour_step(self, log_count: float, *, remove: bool) -> AtomStep:
        step = AtomicLoss.contour_step(self, log_count, remove=remove)
        return replace(step, error=self.error)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return delta(eps) - max(0, 1 - e^eps) of one direction, rounded down.

        Guarantees: attained_by_the_sets."""
        exact = AtomicLoss.excess(self, epsilons, remove=remove)
        # The errors of P and Q change (P - e^eps Q)_+ by at most this amount; in it, P's mass of losses above eps
        # counts twice.
        atoms = self.atoms if remove else self.atoms.swapped
        masses = np.concatenate([np.cumsum(np.exp(atoms.log_masses)[::-1])[::-1], [0.0]])
        above = masses[np.searchsorted(atoms.losses, epsilons, side="right")]
        lowered: Array = np.maximum(exact - 3.0 * self.error * above, 0.0)
        return lowered


@lru_cache(maxsize=32)
def _laws_of(loss: SetStatisticLoss) -> tuple[_Law, _Law]:
    """Return the laws of S with the record and without it."""
    without, taking_part = loss.terms()
    rest = _power(without, loss.bins - loss.participations)
    return (
        _added(rest, _power(taking_part, loss.participations)),
        _added(rest, _power(without, loss.participations)),
    )


def _cells_of(edges: Array) -> _Law:
    """Return the standard normal probabilities of the cells between edges, and of the cells beyond the first and the
    last edge.
    """
    below, above = scipy.special.ndtr(edges), scipy.special.ndtr(-edges)
    left = np.diff(np.concatenate([[0.0], below, [1.0]]))
    right = -np.diff(np.concatenate([[1.0], above, [0.0]]))
    masses: Array = np.where(np.concatenate([edges, [math.inf]]) > 0.0, right, left)
    return _trimmed(_Law(0, np.maximum(masses, 0.0), _ONE_TERM))


def _power(law: _Law, count: int) -> _Law:
    """Return the law of a sum of this many independent terms."""
    total = _Law(0, np.ones(1), 0.0)
    while count:
        if count & 1:
            total = _added(total, law)
        count >>= 1
        if count:
            law = _added(law, law)
    return total


def _added(left: _Law, right: _Law) -> _Law:
    rounding = (min(left.masses.size, right.masses.size) + 1) * _ROUNDOFF
    error = (1.0 + left.error) * (1.0 + right.error) * (1.0 + rounding) - 1.0 + 4.0 * _ROUNDOFF
    return _trimmed(_Law(left.first + right.first, np.convolve(left.masses, right.masses), error))


def _trimmed(law: _Law) -> _Law:
    occupied = np.flatnonzero(law.masses > _NEGLIGIBLE)
    return _Law(law.first + int(occupied[0]), law.masses[occupied[0] : occupied[-1] + 1], law.error)
