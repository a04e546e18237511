"""Theorem 12: worked numbers, the balance behind the step size, and its optimisation error against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrators.wang_nonsmooth.holder import gradient_norm_in_ball
from calibrators.wang_nonsmooth.optimisation_error import OptimisationError, Rate, paper_iterations

RATE = Rate(dataset_size=10**4, dimension=50, epsilon=1.0, delta=1e-8, failure_probability=0.05)


def test_worked_numbers_of_the_step_size():
    assert RATE.scale == pytest.approx(0.1835174281, rel=1e-9)
    for exponent, steps, step_size in [(0.25, 398108, 1.368742589e-05), (1.0, 10**4, 0.0005449073748)]:
        assert paper_iterations(10**4, exponent) == steps
        assert RATE.step_size(steps, 1.0) == pytest.approx(step_size, rel=1e-9)
    # What the paper prints, A/T, is smaller than 1/T: its first term would be 1/A > 1.
    assert RATE.scale / 10**4 == pytest.approx(1.835174281e-05, rel=1e-9)


def test_the_corrected_step_size_is_where_the_proofs_two_terms_balance():
    steps, a = 10**4, RATE.scale
    terms = lambda eta: 1.0 / (steps * eta) + steps * eta * a**2  # noqa: E731
    best = RATE.step_size(steps, 1.0)
    for factor in (0.5, 0.99, 1.01, 2.0):
        assert terms(factor * best) > terms(best)


@pytest.mark.parametrize(
    ("n", "exponent", "steps"),
    [
        (100, 0.0, 10**4),
        (1000, 0.0, 10**6),
        (1000, 0.5, 1000),
        (1000, 1.0, 1000),
        (10**6, 0.5, 10**6),
        (16, 1.0 / 3.0, 32),
        (64, 0.125, 1024),
        (1, 0.0, 1),
    ],
)
def test_steps_of_theorem_12_are_rounded_up_but_not_for_rounding_errors(n, exponent, steps):
    assert paper_iterations(n, exponent) == steps


def test_the_longest_gradient_in_the_ball_is_that_of_the_loss_catalogue():
    assert gradient_norm_in_ball(1.5, 1.5, 0.5, 2.0) == pytest.approx(3.621320344, rel=1e-9)
    assert gradient_norm_in_ball(1.5, 1.5, 0.0, 7.0) == 3.0


def test_worked_number_of_the_optimisation_error():
    """Hinge with q = 1.5: G = M + L = 3, A_R = A_* = 4."""
    error = OptimisationError(gradient_norm=3.0, distance=1.0, dimension=50, iterations=10**4, noise_stddev=2.0)
    found = error.with_probability(
        0.01, 0.05, radius=1.0, largest_loss=4.0, largest_loss_at_minimiser=4.0, sampled=True
    )
    assert found == pytest.approx(1.392368865, rel=1e-9)


def test_the_bound_with_probability_is_left_out_where_gamma_is_too_small_for_it():
    error = OptimisationError(3.0, 1.0, dimension=1, iterations=8, noise_stddev=2.0)
    for gamma, there in [(18.0 * math.exp(-1.0) * 1.001, True), (18.0 * math.exp(-1.0) * 0.999, False)]:
        found = error.with_probability(
            0.01, gamma, radius=1.0, largest_loss=4.0, largest_loss_at_minimiser=4.0, sampled=True
        )
        assert (found is not None) is there


def test_the_balanced_step_size_minimises_the_expected_bound():
    for variance in (0.0, 0.3):
        error = OptimisationError(3.0, 0.7, 50, 400, 2.0, variance)
        best = error.balanced_step_size
        assert error.expected(best) == pytest.approx(0.7 * math.sqrt(error.second_moment / 400), rel=1e-12)
        for factor in (0.5, 0.99, 1.01, 2.0):
            assert error.expected(factor * best) > error.expected(best)


def hardest_error(error: OptimisationError, step_size: float, batch: str, runs: int = 400) -> np.ndarray:
    """Optimisation errors of runs on |w_1 - y|: n = 4, labels that pull both ways, d = error.dimension, radius 1.

    R_S is minimal at w_1 = +-distance, where three of four labels are.
    """
    random = np.random.default_rng(5)
    w_star, d, steps = error.distance, error.dimension, error.iterations
    labels = np.array([w_star, w_star, w_star, -w_star])
    w, total = np.zeros((runs, d)), np.zeros((runs, d))
    for _ in range(steps):
        total += w
        if batch == "one":
            counts = np.eye(4)[random.integers(0, 4, runs)]
        elif batch == "poisson":
            counts = (random.random((runs, 4)) < 0.25).astype(float)
        else:
            counts = np.full((runs, 4), 0.25)
        g = error.noise_stddev * random.standard_normal((runs, d))
        g[:, 0] += error.gradient_norm * (counts * np.sign(w[:, :1] - labels)).sum(axis=1)
        w = w - step_size * g
        w /= np.maximum(1.0, np.linalg.norm(w, axis=1, keepdims=True))
    average = total[:, 0] / steps
    risk = lambda x: error.gradient_norm * np.abs(x[:, None] - labels).mean(axis=1)  # noqa: E731
    return risk(average) - risk(np.array([w_star]))


@pytest.mark.parametrize("batch", ["one", "poisson", "full"])
@pytest.mark.parametrize("factor", [0.1, 1.0, 5.0])
def test_simulated_errors_lie_under_both_bounds_and_not_far_under_the_expected_one(batch, factor):
    """Labels make the loss 1-Lipschitz times G; M_0 = G |y| = G distance, so A_R = G (distance + 1)."""
    error = OptimisationError(
        gradient_norm=1.0,
        distance=0.8,
        dimension=3,
        iterations=200,
        noise_stddev=1.5,
        batch_variance=0.75 if batch == "poisson" else 0.0,
    )
    step_size = factor * error.balanced_step_size
    found = hardest_error(error, step_size, batch)
    assert found.mean() + 4.0 * found.std() / math.sqrt(len(found)) <= error.expected(step_size)
    assert found.mean() >= error.expected(step_size) / 60.0
    if batch != "poisson":
        gamma = 0.3
        bound = error.with_probability(
            step_size, gamma, radius=1.0, largest_loss=1.8, largest_loss_at_minimiser=1.6, sampled=batch == "one"
        )
        assert np.mean(found > bound) <= gamma / 3.0


def test_the_second_moment_of_a_poisson_batch_is_what_its_variance_says():
    """n equal gradients of norm G in batches of b expected: E|sum/b|^2 = G^2 (1 + (1 - p)/b), by the binomial."""
    n, b, g = 50, 10, 3.0
    sizes = np.random.default_rng(3).binomial(n, b / n, 400_000)
    error = OptimisationError(g, 1.0, 1, 1, 0.0, (1.0 - b / n) / b)
    assert np.mean((g * sizes / b) ** 2) == pytest.approx(error.second_moment, rel=3e-3)
