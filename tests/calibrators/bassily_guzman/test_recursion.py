"""The accountant of recursive estimates: worked numbers, transcripts of small instances, explicit bounds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest

from calibrators.bassily_guzman.recursion import (
    Recursion,
    excess_risk_bound,
    geometric_sum,
    mean_gap_bound,
    participations,
    squared_errors,
)
from calibrators.bassily_guzman.tree import Problem
from tests.transcriptions.dp_fw import Vector
from tests.transcriptions.recursive_sfw import trajectory

ORDERS = (1.0001, 2.0, 5.0, 20.0, 100.0)


def test_the_worked_participations_and_scales() -> None:
    """W6: steps and batches of many sizes, L_0 = L_1 = M = 1."""
    eta = (1.0, 2**-0.5, 3**-0.5, 0.5)
    w = [0.02]
    for t, m in ((1, 50), (2, 33), (3, 25)):
        each = Recursion(2, 1, m, eta[t])
        # The change is over the step before, whose size is another one.
        change = Recursion(2, 1, m, eta[t - 1]).change_bound(Problem(1.0, 1.0, 1.0))
        w.append(2.0 * ((1.0 - each.step_size) * change + each.step_size) / m)
    assert w == pytest.approx([0.02, 0.04, 0.053103561207, 0.063094010768], rel=1e-10)
    squares, sums = participations(eta)
    assert squares == pytest.approx([1.10494177653, 1.223290993693, 1.25, 1.0], rel=1e-11)
    assert sums == pytest.approx([1.478580078945, 1.633974596216, 1.5, 1.0], rel=1e-11)
    gumbel = max(width * math.sqrt(part / (8 * 0.02)) for width, part in zip(w, squares, strict=True))
    assert gumbel == pytest.approx(0.157735026919, rel=1e-10)
    assert 2.0 * gumbel == pytest.approx(0.315470053838, rel=1e-10)
    assert max(width * part for width, part in zip(w, sums, strict=True)) == pytest.approx(0.0796553418102, rel=1e-10)


@pytest.mark.parametrize("eta", [1e-7, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("selections", [1, 2, 40])
def test_steps_of_one_size_have_the_closed_forms(eta: float, selections: int) -> None:
    squares, sums = participations([eta] * selections)
    assert geometric_sum((1.0 - eta) ** 2, selections) == pytest.approx(squares[0], rel=1e-8)
    assert geometric_sum(1.0 - eta, selections) == pytest.approx(sums[0], rel=1e-8)
    problem, recursion = Problem(2.0, 3.0, 2.0), Recursion(selections, 7, 3, eta)
    first, other = recursion.ranges(problem)
    widths = [first, *[other] * (selections - 1)]
    assert recursion.zcdp_width(problem) == pytest.approx(
        max(w * math.sqrt(s) for w, s in zip(widths, squares, strict=True)), rel=1e-8
    )
    assert recursion.pure_width(problem) == pytest.approx(
        max(w * b for w, b in zip(widths, sums, strict=True)), rel=1e-8
    )


class Forced:
    """Selects what a sequence says, and adds up how likely each of that was."""

    def __init__(self, sequence: tuple[int, ...], scale: float) -> None:
        self._left, self._scale, self.log_probability = iter(sequence), scale, 0.0

    def select(self, scores: Vector) -> int:
        chosen, exponents = next(self._left), -scores / self._scale
        self.log_probability += float(exponents[chosen] - np.logaddexp.reduce(exponents))
        return chosen


def law(signs: Vector, waves: Vector, recursion: Recursion, problem: Problem, scale: float) -> npt.NDArray[np.float64]:
    """Log-probability of every sequence of vertices; gradients have no property, so that clipping acts."""
    found = []
    for sequence in itertools.product(range(2), repeat=recursion.selections):
        forced = Forced(sequence, scale)
        trajectory(
            np.zeros(1),
            lambda x, i: signs[i] * 9.0 * np.sin(waves[i] * x + i),
            range(recursion.records),
            forced.select,
            T=recursion.selections,
            n0=recursion.first_batch,
            m=recursion.batch,
            eta=recursion.step_size,
            D=0.5 * problem.diameter,
            L0=problem.lipschitz,
            L1=problem.smoothness,
        )
        found.append(forced.log_probability)
    return np.array(found)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("recursion", "smoothness"),
    [(Recursion(5, 2, 1, 0.2), 1.0), (Recursion(5, 4, 2, 0.5), 50.0), (Recursion(4, 1, 1, 1.0), 0.3)],
)
def test_no_transcript_loses_more_than_is_charged_whatever_the_gradients(
    recursion: Recursion, smoothness: float
) -> None:
    """Each record turned around, or gone: at all orders, and in the log-ratio."""
    problem, rho, epsilon = Problem(1.0, smoothness, 2.0), 0.4, 0.9
    scales = {
        False: 2.0 * recursion.zcdp_width(problem) / math.sqrt(8.0 * rho),
        True: 2.0 * recursion.pure_width(problem) / epsilon,
    }
    generator, ratios = np.random.default_rng(2), []
    last = recursion.records - 1
    for _ in range(2):
        signs, waves = generator.choice([-1.0, 1.0], size=recursion.records), 20.0 * generator.normal(size=20)
        own = {pure: law(signs, waves, recursion, problem, scale) for pure, scale in scales.items()}
        for changed, to in itertools.product((0, recursion.first_batch, last), (-1.0, 0.0)):
            other = signs.copy()
            other[changed] *= to
            half = 1.0 if to < 0.0 else 2.0
            p, q = own[True], law(other, waves, recursion, problem, scales[True])
            ratios.append(half * float(np.max(np.abs(p - q))) / epsilon)
            p, q = own[False], law(other, waves, recursion, problem, scales[False])
            for order in ORDERS:
                divergence = float(np.logaddexp.reduce(order * p + (1.0 - order) * q) / (order - 1.0))
                ratios.append(half**2 * divergence / (order * rho))
    assert max(ratios) <= 1.0 + 1e-9
    assert max(ratios) >= 0.25


def test_the_charge_is_nearly_attained() -> None:
    """One record of the first batch pulls either way, no gradient changes, and all others have none."""
    problem, recursion, rho = Problem(1.0, 0.0, 2.0), Recursion(5, 2, 1, 0.3), 0.02
    scale = 2.0 * recursion.zcdp_width(problem) / math.sqrt(8.0 * rho)

    def pulled(sign: float) -> npt.NDArray[np.float64]:
        found = []
        for sequence in itertools.product(range(2), repeat=recursion.selections):
            forced = Forced(sequence, scale)
            trajectory(
                np.zeros(1),
                lambda x, i: np.array([sign if i == 0 else 0.0]),
                range(recursion.records),
                forced.select,
                T=recursion.selections,
                n0=recursion.first_batch,
                m=recursion.batch,
                eta=recursion.step_size,
                D=1.0,
            )
            found.append(forced.log_probability)
        return np.array(found)

    p, q = pulled(1.0), pulled(-1.0)
    divergence = float(np.sum(np.exp(p) * (p - q)))  # at order 1
    assert 0.97 * rho < divergence <= rho


def test_the_bounds_are_their_recursions_step_by_step() -> None:
    problem, recursion, kappa, scale, gap = Problem(2.0, 0.7, 3.0), Recursion(30, 20, 4, 0.07), 2.5, 0.1, 4.0
    c = recursion.increment_bound(problem)
    assert c == pytest.approx(0.93 * 0.7 * 0.07 * 3.0 + 0.07 * 2.0)
    r, gamma, total, errors = 4 * kappa * 4.0 / 20, gap, 0.0, []
    for t in range(30):
        if t > 0:
            r = 0.93**2 * r + 4 * kappa * c**2 / 4
        errors.append(r)
        noise = 3.0 * math.sqrt(r) + scale * math.log(50)
        gamma = 0.93 * gamma + 0.07 * noise + 0.5 * 0.7 * 9.0 * 0.07**2
        total += noise
    np.testing.assert_allclose(squared_errors(problem, recursion, kappa), errors, rtol=1e-12)
    changes = {"num_vertices": 50, "kappa": kappa, "initial_gap": gap}
    assert excess_risk_bound(problem, recursion, scale, **changes) == pytest.approx(gamma, rel=1e-12)
    expected = gap / (0.07 * 30) + total / 30 + 0.5 * 0.7 * 9.0 * 0.07
    assert mean_gap_bound(problem, recursion, scale, **changes) == pytest.approx(expected, rel=1e-12)


def test_the_bounds_hold_in_simulation() -> None:
    """Least squares with features of random signs, whose risk and gradient are known."""
    generator = np.random.default_rng(7)
    d, D, target = 5, 1.0, np.array([0.6, -0.3, 0.0, 0.0, 0.0])
    problem, recursion = Problem(2.0, 1.0, 2.0 * D), Recursion(60, 200, 4, 0.05)
    risks, gaps, scale = [], [], 0.02
    for _ in range(20):
        A = generator.choice([-1.0, 1.0], size=(recursion.records, d))
        y = A @ target
        path = trajectory(
            np.zeros(d),
            lambda x, i: A[i] * (A[i] @ x - y[i]),  # noqa: B023 - called at once
            range(recursion.records),
            lambda scores: int(np.argmin(scores - scale * generator.gumbel(size=scores.size))),
            T=recursion.selections,
            n0=recursion.first_batch,
            m=recursion.batch,
            eta=recursion.step_size,
            D=D,
        )
        points = [np.zeros(d), *(x for _, x in path)]
        risks.append(0.5 * float(np.sum((points[-1] - target) ** 2)))
        gaps.append(float(np.mean([(x - target) @ x + D * np.max(np.abs(x - target)) for x in points[:-1]])))
    gap = 0.5 * float(target @ target)
    changes = {"num_vertices": 2 * d, "kappa": 5.0, "initial_gap": gap}
    assert np.mean(risks) <= excess_risk_bound(problem, recursion, scale, **changes)
    assert np.mean(gaps) <= mean_gap_bound(problem, recursion, scale, **changes)
