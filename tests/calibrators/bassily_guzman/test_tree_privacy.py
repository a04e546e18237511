"""The privacy of tree Frank-Wolfe, without its proof: every transcript of small instances, and forced trajectories.

The selections are all that the run reveals. On small instances their whole law is enumerated for two neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from calibrators.bassily_guzman.tree import Problem, Trees
from tests.transcriptions.tree_sfw_l1 import Vector, trajectory

Gradient = Callable[[Vector, int], Vector]
ORDERS = (1.0001, 1.5, 2.0, 5.0, 20.0, 100.0)


def clipped_waves(generator: np.random.Generator, records: int, dimension: int) -> Gradient:
    """Gradients without any property: they jump with the point, far beyond every bound, so that clipping acts."""
    directions = generator.normal(size=(records, dimension, dimension)) * 30.0
    phases = generator.uniform(0.0, 7.0, size=(records, dimension))

    def gradient(x: Vector, i: int) -> Vector:
        return np.asarray(9.0 * np.sin(directions[i] @ x + phases[i]))

    return gradient


class Forced:
    """Selects what a sequence says, and adds up how likely each of that was."""

    def __init__(self, sequence: tuple[int, ...], scales: tuple[float, ...]) -> None:
        self._left = iter(sequence)
        self._scales = scales
        self.log_probability = 0.0

    def select(self, scores: Vector, tau: int) -> int:
        chosen = next(self._left)
        exponents = -scores / self._scales[tau - 1]
        self.log_probability += float(exponents[chosen] - np.logaddexp.reduce(exponents))
        return chosen


def transcript_law(
    gradient: Gradient, order: list[int], trees: Trees, problem: Problem, dimension: int, scales: tuple[float, ...]
) -> npt.NDArray[np.float64]:
    """Log-probability of every sequence of selected vertices."""
    found = []
    for sequence in itertools.product(range(2 * dimension), repeat=trees.steps):
        forced = Forced(sequence, scales)
        trajectory(
            np.zeros(dimension),
            gradient,
            order,
            forced.select,
            T=trees.num_trees,
            b=trees.records_per_tree,
            D=problem.diameter / 2.0,
            L0=problem.lipschitz,
            L1=problem.smoothness,
        )
        found.append(forced.log_probability)
    return np.array(found)


def renyi(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64], order: float) -> float:
    return float(np.logaddexp.reduce(order * p + (1.0 - order) * q) / (order - 1.0))


def replaced(gradient: Gradient, changed: int, by: Gradient) -> Gradient:
    return lambda x, i: by(x, i) if i == changed else gradient(x, i)


def negative(gradient: Gradient) -> Gradient:
    return lambda x, i: -gradient(x, i)


def null(x: Vector, i: int) -> Vector:
    return np.zeros_like(x)


def zcdp_scales(trees: Trees, problem: Problem, rho: float) -> tuple[float, ...]:
    return tuple(2.0 * trees.zcdp_width(problem, tree) / math.sqrt(8.0 * rho) for tree in range(1, trees.num_trees + 1))


CASES = [
    (Trees(1, 2), 2, Problem(1.0, 0.4, 2.0)),
    (Trees(1, 4), 2, Problem(0.5, 9.0, 1.0)),
    (Trees(2, 4), 1, Problem(1.0, 0.1, 2.0)),
    (Trees(2, 4), 1, Problem(1.0, 1.0, 2.0)),
    (Trees(2, 4), 1, Problem(1.0, 20.0, 2.0)),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("trees", "dimension", "problem"), CASES)
def test_no_transcript_loses_more_than_is_charged_whatever_the_gradients(
    trees: Trees, dimension: int, problem: Problem
) -> None:
    """Renyi divergence against alpha rho, and log-ratios against epsilon, for a record in every node."""
    generator = np.random.default_rng(17)
    rho, epsilon = 0.4, 0.9
    scales = zcdp_scales(trees, problem, rho)
    pure = tuple(2.0 * trees.pure_width(problem, tree) / epsilon for tree in range(1, trees.num_trees + 1))
    order = list(range(trees.records))
    worst_zcdp = worst_pure = worst_null = 0.0
    for _ in range(3):
        gradient = clipped_waves(generator, trees.records, dimension)
        law = transcript_law(gradient, order, trees, problem, dimension, scales)
        pure_law = transcript_law(gradient, order, trees, problem, dimension, pure)
        assert np.logaddexp.reduce(law) == pytest.approx(0.0, abs=1e-9)
        for changed in order[:: 1 if dimension == 2 else 3]:
            other = replaced(gradient, changed, negative(gradient))
            moved = transcript_law(other, order, trees, problem, dimension, scales)
            for p, q in ((law, moved), (moved, law)):
                worst_zcdp = max(worst_zcdp, *(renyi(p, q, alpha) / (alpha * rho) for alpha in ORDERS))
            moved = transcript_law(other, order, trees, problem, dimension, pure)
            worst_pure = max(worst_pure, float(np.max(np.abs(moved - pure_law))) / epsilon)
            absent = transcript_law(replaced(gradient, changed, null), order, trees, problem, dimension, scales)
            worst_null = max(worst_null, *(renyi(law, absent, alpha) / (alpha * rho / 4.0) for alpha in ORDERS))
    assert 0.0 < worst_zcdp <= 1.0
    assert 0.0 < worst_pure <= 1.0
    assert 0.0 < worst_null <= 1.0, "a null record moves scores half as far: a quarter of rho"


def test_the_charge_is_nearly_attained_at_the_root_and_at_a_leaf() -> None:
    """The noise has no slack to speak of: an instance loses 0.97 of it and more."""

    def pulled(sign: float) -> Gradient:
        """One record of the first root pulls; the others are balanced."""
        return lambda x, i: np.array([sign if i == 0 else 0.0])

    root, problem, rho = Trees(1, 4), Problem(1.0, 0.0, 2.0), 0.02
    scales = zcdp_scales(root, problem, rho)
    laws = [transcript_law(pulled(sign), list(range(6)), root, problem, 1, scales) for sign in (1.0, -1.0)]
    ratio = max(renyi(laws[0], laws[1], alpha) / (alpha * rho) for alpha in ORDERS)
    assert 0.97 < ratio <= 1.0

    def turning(sign: float) -> Gradient:
        """The only record of the first tree's right leaf: its gradient turns around as the point moves."""
        return lambda x, i: np.array([sign * np.sign(float(x[0]))]) if i == 2 else np.array([0.0])

    leaf, problem = Trees(1, 2), Problem(1.0, 50.0, 2.0)
    scales = zcdp_scales(leaf, problem, rho)
    laws = [transcript_law(turning(sign), list(range(3)), leaf, problem, 1, scales) for sign in (1.0, -1.0)]
    ratio = max(renyi(laws[0], laws[1], alpha) / (alpha * rho) for alpha in ORDERS)
    assert 0.2 < ratio <= 1.0
