"""Proposition 32: worked numbers, the recursion of its proof on random problems, batches that are drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle
from calibrators.lowy_razaviyayn.moments import Moments
from calibrators.lowy_razaviyayn.strongly_convex import StronglyConvexProblem

PROBLEM = StronglyConvexProblem(4.0, 1.0, 2.0, 10, Moments(3.0, 2.0))
RECORDS = 20_000


@pytest.mark.parametrize(
    ("last", "size", "clip", "noise", "bias", "variance", "printed", "derived", "evaluated"),
    [
        (212, 93, 15.14667653, 0.1061032766, 0.01743513401, 1.104043519, 0.3764674413, 0.1059942987, 0.06690451506),
        (238, 83, 14.85743486, 0.1281715027, 0.01812058949, 1.329907798, 0.4031592356, 0.1137307122, 0.07327498461),
    ],
)
def test_the_worked_numbers(last, size, clip, noise, bias, variance, printed, derived, evaluated):
    """The last is not the catalogue's: computed by a program of its own, with the sharp constants of the oracle."""
    assert PROBLEM.clip_threshold(last, RECORDS, 1.0) == pytest.approx(clip, rel=1e-9)
    assert RECORDS // (last + 1) == size
    oracle = MeanOracle(PROBLEM.clip_threshold(last, RECORDS, 1.0), size, 2.0, 10, PROBLEM.moments)
    assert oracle.noise_variance == pytest.approx(noise, rel=1e-9)
    assert oracle.bias == pytest.approx(bias, rel=1e-9)
    assert oracle.variance == pytest.approx(variance, rel=1e-9)
    assert PROBLEM.printed_bound(last, oracle) == pytest.approx(printed, rel=1e-9)
    assert PROBLEM.closed_form(last, oracle) == pytest.approx(derived, rel=1e-9)
    assert PROBLEM.evaluated_bound(PROBLEM.schedule(last), oracle) == pytest.approx(evaluated, rel=1e-9)


def test_the_worked_preset():
    assert PROBLEM.printed_iterations(RECORDS, 1.0) == 212
    assert PROBLEM.recommended_iterations(RECORDS, 1.0) == 238
    logarithm = math.log(547842.8381)
    assert math.ceil(16.0 * logarithm) == 212
    assert math.ceil(18.0 * logarithm) == 238
    assert PROBLEM.rate(RECORDS, 1.0) == pytest.approx(0.000597422177, rel=1e-9)


def test_the_preset_of_an_easy_problem_is_one():
    easy = StronglyConvexProblem(1.0, 1.0, 0.001, 10, Moments(2.0, 1.0))
    assert easy.recommended_iterations(100, 1.0) == 1


@pytest.mark.parametrize("last", [1, 3, 9, 10, 50, 238, 1000])
@pytest.mark.parametrize("noise_multiplier", [0.1, 2.0, 50.0])
def test_the_evaluated_bound_is_below_the_closed_form(last, noise_multiplier):
    oracle = MeanOracle(5.0, RECORDS // (last + 1), noise_multiplier, 10, PROBLEM.moments)
    assert PROBLEM.evaluated_bound(PROBLEM.schedule(last), oracle) <= PROBLEM.closed_form(last, oracle)


@pytest.mark.thorough
def test_the_recursion_of_the_proof_holds_in_every_step():
    """Before expectations are taken, with the noise's own mean-zero term, on random quadratics with a projection."""
    rng = np.random.default_rng(7)
    for _ in range(600):
        d = int(rng.integers(1, 4))
        eigenvalues = rng.uniform(0.2, 3.0, d)
        mu, beta = float(eigenvalues.min()), float(eigenvalues.max())
        rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
        hessian, centre = rotation @ np.diag(eigenvalues) @ rotation.T, rng.normal(size=d) * 0.7
        radius = 1.0

        def risk(w, hessian=hessian, centre=centre):
            return 0.5 * float((w - centre) @ hessian @ (w - centre))

        optimum = np.zeros(d)
        for _ in range(400):
            optimum = project(optimum - hessian @ (optimum - centre) / beta, radius)
        eta = rng.uniform(0.05, 1.0) / (beta + 0.5 * mu)
        w = project(rng.normal(size=d), radius)
        gradient = hessian @ (w - centre)
        b, noise = rng.normal(size=d) * rng.exponential(1.0), rng.normal(size=d) * rng.exponential(1.0)
        after = project(w - eta * (gradient + b + noise), radius)
        without_noise = project(w - eta * (gradient + b), radius)
        left = float((after - optimum) @ (after - optimum))
        right = (1.0 - 0.5 * mu * eta) * float((w - optimum) @ (w - optimum))
        right -= 2.0 * eta * (risk(after) - risk(optimum))
        right += 2.0 * eta**2 * float(noise @ noise) + 4.0 * eta * float(b @ b) / mu
        right -= 2.0 * eta * float(noise @ (without_noise - optimum))
        assert left <= right + 1e-9


def project(w, radius):
    length = float(np.linalg.norm(w))
    return w if length <= radius else w * (radius / length)


def test_batches_that_are_drawn_deviate_as_the_formula_says():
    """The oracle's mean given what is left, over that of fixed batches: its squared distance from 1, by simulation."""
    rounds, records, size = 6, 100, 16
    rng = np.random.default_rng(3)
    counts = rng.multinomial(records, [1.0 / rounds] * rounds, size=200_000)
    left = records - np.concatenate([np.zeros((counts.shape[0], 1)), np.cumsum(counts, axis=1)[:, :-1]], axis=1)
    alpha = left / (rounds - np.arange(rounds)) / size - 1.0
    simulated = (alpha**2).mean(axis=0)
    share = np.arange(rounds, 0, -1) / rounds
    load = records / (rounds * size)
    formula = (load - 1.0) ** 2 + load * (1.0 - share) / (share * rounds * size)
    np.testing.assert_allclose(simulated, formula, rtol=0.02)
    # Without bias, noise or start, what is left of the bound is this drift alone.
    problem = StronglyConvexProblem(1.0, 1.0, 1e-9, 1, Moments(2.0, 1.0))
    schedule = problem.schedule(rounds - 1)
    oracle = MeanOracle(1e9, size, 1e-30, 1, problem.moments)
    drift, noise = 4.0 * formula, 2.0 * load / size
    expected = 0.5 * schedule.worst_case(0.0, noise, drift)
    assert problem.evaluated_bound_of_drawn_batches(schedule, oracle, records) == pytest.approx(expected, rel=1e-6)


def test_drawn_batches_have_the_larger_bound():
    oracle = MeanOracle(5.0, RECORDS // 239, 2.0, 10, PROBLEM.moments)
    schedule = PROBLEM.schedule(238)
    drawn = PROBLEM.evaluated_bound_of_drawn_batches(schedule, oracle, RECORDS)
    assert PROBLEM.evaluated_bound(schedule, oracle) < drawn < 2.5 * PROBLEM.evaluated_bound(schedule, oracle)


def test_a_penalty_counts_in_the_trivial_risk_and_not_in_the_moments():
    with_penalty = StronglyConvexProblem(4.0, 1.0, 2.0, 10, Moments(3.0, 1.0), penalty_strength=0.5)
    assert with_penalty.trivial_excess_risk == pytest.approx(1.5**2 / 2.0)
    assert with_penalty.least_moment_bound == pytest.approx(0.5)
