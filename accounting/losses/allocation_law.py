"""This module bounds the likelihood ratio of one random allocation in convex order, from above and from below, by laws
on a few thousand points.

A record takes part in one of t steps. With Y_1, ..., Y_t the unsampled steps' ratios, independent log-normals of mean
1 under the law without the record, the allocation's ratio is X = (Y_1 + ... + Y_t) / t, and every hockey stick of
either direction is the mean of a convex function of X (`random_allocation`). So laws that bound X in convex
order bound both directions, and composition, at once:

* From above (`spread_law`): a value between two points of a geometric grid is split between them so that its mean is
  kept; a value below the grid is split between 0 and its first point, and a value above the grid is put at the last
  point, with its excess as a mass at infinity. Each of these steps only spreads the law. On a geometric grid with n
  points the mean of two laws is 2n - 1 products of diagonals: the position of v x_i + w x_j relative to x_i depends
  on j - i alone.
* From below (`grouped_law`): the law is cut into cells, and the mass of each cell is put at its conditional mean.

Means of independent variables keep the convex order, so that t of them are averaged by halving: {m, m + 1} from
{floor(m/2), floor(m/2) + 1}. As a mean concentrates, the grid is halved, which keeps its points. All terms are
nonnegative, so errors of floating point are relative: see `RatioAtoms.relative_error`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.losses.atoms import Atoms

Array = NDArray[np.float64]

#: The number of points of a law that bounds from above, and of cells of a law that bounds from below.
SPREAD_POINTS = 2500
GROUPED_CELLS = 1000
#: The number of standard deviations of one step that are kept on either side. The mass beyond is less than 1e-32.
_REACH = 12.0
#: The mass, or share of the mean, that the ends of a law may lose to 0 and infinity at each addition.
_NEGLIGIBLE = 1e-35
#: The number of fine cells from which the cells of a law from below are made.
_FINER = 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_Law = TypeVar("_Law")


@dataclass(frozen=True)
class RatioAtoms:
    """A law of X under Q, with mean 1 up to rounding.

    Attributes:
        logs: Logarithms of its positive values, increasing.
        masses: Their Q-masses.
        zero: The Q-mass at 0.
        infinity: The share of the mean at infinity, which is the P-mass of an infinite loss.
        relative_error: The relative rounding error of the mean of any (X - c)_+ or (c - X)_+. It has three sources:
            sums of some thousand nonnegative terms at each halving, t times the error of one step's masses, and the
            digits of the values if the law is narrow.
    """

    logs: Array
    masses: Array
    zero: float
    infinity: float
    relative_error: float

    @cached_property
    def atoms(self) -> Atoms:
        """The atoms of the pair in the remove direction. Masses at an infinite loss are left out."""
        occupied = self.masses > 0.0
        logs = self.logs[occupied]
        return Atoms(np.log(self.masses[occupied]) + logs, logs)


@dataclass(frozen=True)
class _Grid:
    """A law on a geometric grid: masses at e^((first + j) step), at 0 and, of its mean, at infinity."""

    first: int
    step: float
    masses: Array
    zero: float
    infinity: float

    @property
    def logs(self) -> Array:
        logs: Array = self.step * np.arange(self.first, self.first + self.masses.size, dtype=np.float64)
        return logs


@lru_cache(maxsize=64)
def spread_law(noise_multiplier: float, bins: int, points: int = SPREAD_POINTS) -> RatioAtoms:
    """Return a law above that of X in convex order.

    Args:
        noise_multiplier: The noise multiplier s, from 0.05.
        bins: The number t of steps, at least 1.
        points: The approximate number of points.

    Guarantees: above_in_convex_order.
    """
    one = _one_spread(1.0 / noise_multiplier, points)
    law = _mean(one, bins, lambda a, b, share: _spread_mean(a, b, share, points))
    return RatioAtoms(law.logs, law.masses, law.zero, law.infinity, _relative_error(law.logs, law.masses, bins))


@lru_cache(maxsize=64)
def grouped_law(noise_multiplier: float, bins: int, cells: int = GROUPED_CELLS) -> RatioAtoms:
    """Return a law below that of X in convex order. The arguments are those of `spread_law`.

    Guarantees: below_in_convex_order.
    """
    one = _one_grouped(1.0 / noise_multiplier, cells)
    values, masses = _mean(one, bins, lambda a, b, share: _grouped_mean(a, b, share, cells))
    logs = np.log(values)
    return RatioAtoms(logs, masses, 0.0, 0.0, _relative_error(logs, masses, bins))


def _relative_error(logs: Array, masses: Array, bins: int) -> float:
    spread = math.sqrt(max(float(np.sum(masses * np.minimum(logs * logs, 1.0))), 1e-30))
    halvings = 1.0 + math.log2(bins)
    # This is an estimate. It assumes that the log of a tail falls by at most 40 / spread per unit of the log of the
    # value.
    return halvings * (1e-10 + 40.0 * 1e-14 / spread) + 5e-14 * bins


def _mean(one: _Law, count: int, add: Callable[[_Law, _Law, float], _Law]) -> _Law:
    """Return the law of the mean of ``count`` independent variables, from the laws for half as many (rounded down and
    up).

    Args:
        add: A function that takes two laws and the weight of the first, and returns the law of the weighted mean.
    """
    needed = [{count}]
    while max(needed[-1]) > 2:
        needed.append({half for number in needed[-1] for half in (number // 2, number - number // 2)})
    laws = {1: one, 2: one}
    if max(needed[-1]) == 2:
        laws[2] = add(one, one, 0.5)
    for numbers in reversed(needed[:-1]):
        laws = {
            number: add(laws[number // 2], laws[number - number // 2], (number // 2) / number) for number in numbers
        }
    return laws[count]


def _density(z: Array) -> Array:
    density: Array = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return density


def _one_spread(mu: float, points: int) -> _Grid:
    """Return one step's ratio e^(mu z - mu^2/2), z normal, on a grid."""
    step = mu * (mu + 2.0 * _REACH) / points
    first = math.floor((-mu * _REACH - 0.5 * mu * mu) / step)
    last = math.ceil((mu * (mu + _REACH) - 0.5 * mu * mu) / step)
    edges = (np.arange(first, last + 1) * step + 0.5 * mu * mu) / mu
    width = step / mu
    nodes = edges[:-1, None] + 0.5 * width * (1.0 + _NODES)
    densities = _density(nodes) * (0.5 * width * _WEIGHTS)
    upward = np.expm1(0.5 * step * (1.0 + _NODES)) / math.expm1(step)
    masses = np.zeros(last - first + 1)
    masses[1:] += densities @ upward
    masses[:-1] += densities @ (1.0 - upward)
    # Values below the grid are split between 0 and its first point. Values above it go to the last point, with an
    # excess at infinity.
    below, above = float(scipy.special.ndtr(edges[0])), float(scipy.special.ndtr(-edges[-1]))
    kept = float(scipy.special.ndtr(edges[0] - mu)) * math.exp(-first * step)
    masses[0] += kept
    masses[-1] += above
    return _Grid(first, step, masses, max(below - kept, 0.0) + 1e-300, float(scipy.special.ndtr(mu - edges[-1])))


def _spread_mean(left: _Grid, right: _Grid, share: float, points: int) -> _Grid:
    """Return the law of share X + (1 - share) Y. Each value is split between its two neighbours on the finer of the
    two grids.
    """
    step = min(left.step, right.step)
    left, right = _on_grid(left, step), _on_grid(right, step)
    a, b = left.masses, right.masses
    # If y = x e^(apart step), the mean lies this many steps above x for every x, and never outside of [x, y].
    aparts = right.first - left.first + np.arange(1 - a.size, b.size)
    rises = np.logaddexp(math.log(share), math.log1p(-share) + step * aparts) / step
    rises = np.clip(rises, np.minimum(aparts, 0), np.maximum(aparts, 0))
    whole = np.floor(rises).astype(int)
    uppers = np.clip(np.expm1((rises - whole) * step) / math.expm1(step), 0.0, 1.0)
    first = min(left.first, right.first)
    masses = np.zeros(max(left.first + a.size, right.first + b.size) - first + 1)
    for index in range(aparts.size):
        apart = index - (a.size - 1)
        low, high = max(0, -apart), min(a.size, b.size - apart)
        products = a[low:high] * b[low + apart : high + apart]
        place = left.first - first + low + int(whole[index])
        moved = uppers[index] * products
        masses[place + 1 : place + 1 + products.size] += moved
        products -= moved
        masses[place : place + products.size] += products
    # The mean of 0 and y lies between 0 and y.
    masses[left.first - first : left.first - first + a.size] += right.zero * share * a
    masses[right.first - first : right.first - first + b.size] += left.zero * (1.0 - share) * b
    zero = left.zero * (right.zero + share) + right.zero * (1.0 - share)
    infinity = share * left.infinity + (1.0 - share) * right.infinity
    return _refined(_trimmed(_Grid(first, step, masses, zero, infinity)), points)


def _on_grid(law: _Grid, step: float) -> _Grid:
    """Return the same law on a grid that has been halved more often."""
    ratio = round(law.step / step)
    if ratio == 1:
        return law
    masses = np.zeros(ratio * (law.masses.size - 1) + 1)
    masses[::ratio] = law.masses
    return _Grid(law.first * ratio, step, masses, law.zero, law.infinity)


def _refined(law: _Grid, points: int) -> _Grid:
    """Return the same law on a grid that is halved until it has enough points."""
    while 2 * law.masses.size <= points:
        law = _on_grid(law, 0.5 * law.step)
    return law


def _trimmed(law: _Grid) -> _Grid:
    """Cut off the ends with hardly any mass, and split their mass between 0, infinity and the grid that is left."""
    masses, values = law.masses, np.exp(law.logs)
    below = int(np.searchsorted(np.cumsum(masses), _NEGLIGIBLE))
    contributions = np.cumsum((masses * values)[::-1])[::-1]
    end = int(np.count_nonzero(contributions > _NEGLIGIBLE * contributions[0]))
    kept = masses[below:end].copy()
    moved = float((masses[:below] * values[:below]).sum()) / values[below]
    kept[0] += moved
    kept[-1] += masses[end:].sum()
    zero = law.zero + float(masses[:below].sum())
    infinity = law.infinity + float((masses[end:] * values[end:]).sum())
    return _Grid(law.first + below, law.step, kept, zero, infinity)


def _one_grouped(mu: float, cells: int) -> tuple[Array, Array]:
    """Return conditional means and masses of one step's ratio in cells of equal width; the end cells extend to
    infinity."""
    edges = np.linspace(-_REACH, mu + _REACH, cells + 1)
    width = float(edges[1] - edges[0])
    nodes = edges[:-1, None] + 0.5 * width * (1.0 + _NODES)
    densities = _density(nodes) * (0.5 * width * _WEIGHTS)
    masses = densities.sum(axis=1)
    means = (densities * np.exp(mu * nodes - 0.5 * mu * mu)).sum(axis=1)
    masses[0] += scipy.special.ndtr(edges[0])
    means[0] += scipy.special.ndtr(edges[0] - mu)
    masses[-1] += scipy.special.ndtr(-edges[-1])
    means[-1] += scipy.special.ndtr(mu - edges[-1])
    return means / masses, masses


def _grouped_mean(
    left: tuple[Array, Array], right: tuple[Array, Array], share: float, cells: int
) -> tuple[Array, Array]:
    """Return share X + (1 - share) Y, in cells of equal ratio between ends of next to no mass."""
    values = np.add.outer(share * left[0], (1.0 - share) * right[0]).ravel()
    masses = np.multiply.outer(left[1], right[1]).ravel()
    low, high = math.log(values[0]), math.log(values[-1])
    finer = _FINER * cells
    cell = np.minimum((np.log(values) - low) * (finer / (high - low)), finer - 1).astype(int)
    cell = np.maximum(cell, 0)
    fine_masses = np.bincount(cell, masses, finer)
    fine_means = np.bincount(cell, masses * values, finer)
    start = int(np.searchsorted(np.cumsum(fine_masses), _NEGLIGIBLE))
    above = np.cumsum(fine_means[::-1])[::-1]
    end = max(int(np.count_nonzero(above > _NEGLIGIBLE * above[0])), start + 1)
    group = np.clip((np.arange(finer) - start) * cells // (end - start), 0, cells - 1)
    grouped: Array = np.bincount(group, fine_masses, cells).astype(np.float64)
    means: Array = np.bincount(group, fine_means, cells).astype(np.float64)
    occupied = grouped > 0.0
    return means[occupied] / grouped[occupied], grouped[occupied]
