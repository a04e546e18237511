"""This module interpolates between lattice points a density that is a mixture of normal densities of one width.

Let q be such a density, and sigma^2 the variance of its parts. T(d) = q(l + d) e^(d^2 / (2 sigma^2) - tau d) is the
Laplace transform of a positive measure, for every l and tau. All its even derivatives are positive, so interpolation
through 2L nodes and interpolation through the inner 2L - 2 of them err in opposite directions, and the truth lies
between the two. The proof is in docs/concepts/fourier.md, "Sums of log-normal variables".

Errors of the nodes are magnified by the sum of Lagrange's weights in absolute value, which is 1 at a node and 1.8 in
the middle between two. So nodes may be several lattice points apart (`Lattice.stride`). The nodes for a place are
chosen such that the place is close to one of them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.steps import UNIT

Array = NDArray[np.float64]

#: Half of the nodes of an interpolation.
HALF = 10
_NODES = np.arange(1 - HALF, 1 + HALF)
#: Rounding errors of an interpolated density, in units of the roundoff. The first number covers the weights, the sum
#: and the exponential; the second covers a node's value apart from its exponent.
_INTERPOLATED, _NODE = 20.0, 4.0
#: The largest error with which a cell is interpolated.
_WORST = 0.01
#: The number of parts into which the places nearest to a node are divided on either side; each part has its own bounds.
_PARTS = 8

Places = NDArray[np.int64]
Table = tuple[Array, Array, Array, Array, Array, float, int]


class Lattice(Protocol):
    """A density on a lattice, such as `log_sums.LogSum`. Nodes of an interpolation are ``stride`` points apart."""

    @property
    def first(self) -> int: ...
    @property
    def step(self) -> float: ...
    @property
    def stride(self) -> int: ...
    @property
    def density(self) -> Array: ...
    @property
    def errors(self) -> Array: ...
    @property
    def logs(self) -> Array: ...
    @property
    def sigma(self) -> float: ...


def _lagrange(places: Array) -> Array:
    """Return weights of the nodes at each 0 <= u <= 1, one row for each."""
    others = np.subtract.outer(places, _NODES)[:, None, :].repeat(2 * HALF, axis=1)
    apart = np.subtract.outer(_NODES, _NODES).astype(np.float64)
    itself = np.eye(2 * HALF, dtype=bool)
    others[:, itself], apart[itself] = 1.0, 1.0
    weights: Array = (others / apart).prod(axis=2)
    return weights


#: The weights in the middle of a cell, and the weights of a difference of order 2L - 2.
_MIDDLE = _lagrange(np.array([0.5]))[0]
_DIFFERENCE = np.array([(-1.0) ** k * math.comb(2 * HALF - 2, k) for k in range(2 * HALF - 1)])


@lru_cache(maxsize=8)
def _magnification(stride: int) -> tuple[Array, Array]:
    """Return bounds for each part of the places that are nearest to a node: first the parts above it, then those below.

    Returns:
        The largest |weight| of each node; the largest |product of (u - node)| of the inner nodes, over (2L - 2)!.
    """
    edges = np.linspace(0.0, 0.5 / stride, _PARTS + 1)
    weights, products = [], []
    for side in (0.0, 1.0):
        for start, end in pairwise(edges):
            places = np.abs(side - np.linspace(start, end, 21))
            weights.append(np.abs(_lagrange(places)).max(axis=0))
            inner = np.abs(np.subtract.outer(places, _NODES[1:-1])).prod(axis=1)
            products.append(float(inner.max()) / math.factorial(2 * HALF - 2))
    return 1.001 * np.array(weights), 1.001 * np.array(products)


def table_of(law: Lattice) -> Table:
    """Return the numbers that interpolation needs in each cell. A cell lies between two nodes, and one begins at every
    lattice point.

    Returns:
        T at the nodes of each cell, T(k) = q_(i+k) e^(curvature k^2 - tilt k) / q_i, one row for each node; q_i; the
        tilts, at which T(0) = T(1); relative errors, one row for each part of the places that are nearest to one end
        of the cell; how log q moves with the rounding of a place; the curvature; the stride.
    """
    stride = law.stride
    largest, inner = _magnification(stride)
    size = law.density.size - (2 * HALF - 1) * stride

    def at_nodes(values: Array) -> Array:
        return np.stack([values[node * stride : node * stride + size] for node in range(2 * HALF)])

    heights, errors = at_nodes(law.density), np.minimum(at_nodes(law.errors), 1e100)
    starts, ends = slice((HALF - 1) * stride, (HALF - 1) * stride + size), slice(HALF * stride, HALF * stride + size)
    height = law.density[starts]
    curvature = 0.5 * (stride * law.step / law.sigma) ** 2
    rises = np.log(law.density[ends] / height)
    tilts = rises + curvature
    curved = curvature * _NODES[:, None] ** 2
    with np.errstate(over="ignore"):
        tilted = np.multiply.outer(_NODES, tilts)
        nodes = np.minimum(heights / height * np.exp(curved - tilted), 1e100)
    errors += UNIT * (_NODE + curved + np.abs(tilted))
    # T is convex and equal at both ends of the cell, so within the cell it is at least twice its middle value less its
    # end value.
    least = 2.0 * (_MIDDLE @ nodes) - 1.0
    wrong = nodes * errors
    differences = [np.abs(_DIFFERENCE @ part) for part in (nodes[:-1], nodes[1:])]
    inexact = [np.abs(_DIFFERENCE) @ part for part in (wrong[:-1], wrong[1:])]
    bracket = np.multiply.outer(inner, np.maximum(*differences) + np.maximum(*inexact))
    wrong_within = (bracket + largest @ wrong) / least + UNIT * _INTERPOLATED
    # If the error is too large, the value q_i is used for the whole cell, because T lies between 0 and its end value.
    coarse = ~((wrong_within.max(axis=0) < _WORST) & (least > 0.5))
    nodes[:, coarse] = 1.0
    wrong_within[:, coarse] = 1.1 + np.maximum(law.errors[starts], law.errors[ends])[coarse]
    slopes = np.abs(rises) / (stride * law.step)
    turned = 4.0 * UNIT * np.maximum(slopes, np.maximum(np.roll(slopes, stride), np.roll(slopes, -stride)))
    return nodes, height, tilts, wrong_within, turned, curvature, stride


@compiled
def weigh(u: float, weights: Array) -> None:
    """Set the weights of Lagrange's interpolation at 0 <= u <= 1."""
    nodes = weights.size
    half = nodes // 2
    if u in (0.0, 1.0):
        weights[:] = 0.0
        weights[half - 1 if u == 0.0 else half] = 1.0
        return
    # The binomial coefficients here are exact.
    binomial = 1.0
    for node in range(nodes):
        weights[node] = binomial / (u - (node - half + 1))
        binomial = -binomial * (nodes - 1 - node) / (node + 1)
    total = 0.0
    for outer in range(half):
        total = total + weights[outer] + weights[nodes - 1 - outer]
    for node in range(nodes):
        weights[node] /= total


@compiled
def placed(along: float, stride: int, parts: int) -> tuple[int, float, int]:
    """Return the cell in which a density is interpolated at a place between lattice points.

    One end of the cell is the lattice point nearest to the place.

    Args:
        along: The place, in lattice points from the first one with a cell.
        parts: Rows of errors.

    Returns:
        The lattice point at which the cell begins; the position of the place in the cell; its row of errors.
    """
    nearest = math.floor(along + 0.5)
    beyond = along - nearest
    part = min(int(parts * abs(beyond)), parts // 2 - 1)
    if beyond >= 0.0:
        return nearest, beyond / stride, part
    return nearest - stride, 1.0 + beyond / stride, parts // 2 + part


def interpolated(law: Lattice, table: Table, places: Array) -> tuple[Array, Array]:
    """Return a density between the points of its lattice, and relative errors.

    Args:
        law: A mixture of normal densities of variance sigma^2.
        table: The table of this law.
        places: Places at least `HALF` nodes from either end.
    """
    nodes, height, tilts, wrong, turned, curvature, stride = table
    along = (places - law.logs[(HALF - 1) * stride]) / law.step
    cells, parts, u, weights = _placed(along, stride, wrong.shape[0])
    sums = np.einsum("ki,ki->i", weights, nodes[:, cells])
    values: Array = height[cells] * np.exp(tilts[cells] * u - curvature * u * u) * sums
    errors: Array = wrong[parts, cells] + turned[cells] * (np.abs(places) + law.step * abs(law.first) + 1.0)
    return values, errors


@compiled
def _placed(along: Array, stride: int, parts: int) -> tuple[Places, Places, Array, Array]:
    """Return the cell of each place, its row of errors, its position in the cell, and Lagrange's weights there, in
    columns.
    """
    cells, rows = np.empty(along.size, np.int64), np.empty(along.size, np.int64)
    within, weights, of_one = np.empty(along.size), np.empty((2 * HALF, along.size)), np.empty(2 * HALF)
    for place in range(along.size):
        cells[place], within[place], rows[place] = placed(along[place], stride, parts)
        weigh(within[place], of_one)
        weights[:, place] = of_one
    return cells, rows, within, weights
