"""The derived forms of Theorems 6.2 and 6.3: worked numbers, best numbers of steps, exact risks and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.numbers import MAX_COUNT
from calibrators.wang_erm.full_gradient import NonConvex, PolyakLojasiewicz, Smooth
from calibrators.wang_erm.paper_noise import printed_noise_stddev_on_mean, sufficient_order_constant

#: zCDP noise of one step at n = 10^4, epsilon 1, delta 1e-6, G = 1: sqrt(2 / rho) / n.
ZCDP_STEP = math.sqrt(2.0 / 0.01746890477) / 1e4


def test_the_worked_number_of_the_pl_bound():
    theorem = PolyakLojasiewicz(Smooth(1.0, 1.0, dimension=10), pl_constant=0.1)
    assert theorem.bound(0.008449357779, 100) == pytest.approx(0.003596048929, rel=2e-9)


def test_the_worked_numbers_of_the_nonconvex_bound():
    theorem = NonConvex(Smooth(1.0, 1.0, dimension=10))
    at = [theorem.bound(ZCDP_STEP * math.sqrt(steps), steps) ** 2 for steps in (417, 418, 419)]
    assert at[1] == pytest.approx(0.009570335325, rel=1e-9)
    assert theorem.best_iterations(ZCDP_STEP) == 418
    assert at[1] == min(at)
    # The optimum over the reals: (4 G / n) sqrt(L D_0 p / rho), a hair below the best integer's.
    assert 4.0 / 1e4 * math.sqrt(10.0 / 0.01746890477) == pytest.approx(0.009570335277, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "constant", "zcdp", "printed"),
    [
        (1.0, 8.287000772, 0.01069996012, 0.003716922189 * 1.0),
        (0.5, 8.144121515, 0.02121463615, 0.003716922189 * 2.0),
        (8.0, 10.18454368, 0.001482737496, 0.003716922189 / 8.0),
    ],
)
def test_the_worked_numbers_of_the_printed_noise(epsilon, constant, zcdp, printed):
    assert sufficient_order_constant(epsilon, 1e-6) == pytest.approx(constant, rel=1e-9)
    with_it = printed_noise_stddev_on_mean(epsilon, 1e-6, 10**4, 100, 1.0, constant)
    assert with_it == pytest.approx(zcdp, rel=1e-9)
    assert printed_noise_stddev_on_mean(epsilon, 1e-6, 10**4, 100, 1.0) == pytest.approx(printed, rel=1e-9)


def theorems_at_random(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        smoothness, gap, step = 10.0 ** rng.uniform(-2, 2), 10.0 ** rng.uniform(-2, 2), rng.choice([None, 0.9, 0.3])
        problem = Smooth(smoothness, gap, int(rng.integers(1, 50)), None if step is None else step / smoothness)
        noise = math.sqrt(smoothness * gap) * 10.0 ** rng.uniform(-3, 1)
        yield NonConvex(problem), noise
        yield PolyakLojasiewicz(problem, smoothness * 10.0 ** rng.uniform(-2, 0)), noise


def test_the_chosen_number_of_steps_has_the_least_bound_of_all():
    for theorem, noise in theorems_at_random(1, 60):
        chosen = theorem.best_iterations(noise)
        bounds = [theorem.bound(noise * math.sqrt(steps), steps) for steps in range(1, 3 * chosen + 50)]
        assert theorem.bound(noise * math.sqrt(chosen), chosen) <= min(bounds) * (1.0 + 1e-12)


def test_a_step_that_needs_hardly_any_noise_is_repeated_as_often_as_a_plan_can_hold():
    for theorem in (NonConvex(Smooth(1.0, 1.0, 1)), PolyakLojasiewicz(Smooth(1.0, 1.0, 1), 1e-9)):
        assert theorem.best_iterations(1e-200) == MAX_COUNT
        assert theorem.best_iterations(1e-30) == MAX_COUNT


def test_a_loss_as_convex_as_it_is_smooth_takes_one_step():
    assert PolyakLojasiewicz(Smooth(2.0, 1.0, 3), 2.0).best_iterations(1e-6) == 1


@pytest.mark.parametrize("fraction", [1.0, 0.7, 0.1])
def test_the_pl_bound_is_above_the_exact_risk_of_quadratics_and_equal_to_it_for_the_worst(fraction):
    """E f(x_T) of a quadratic with noise is known in closed form, eigenvalue by eigenvalue."""
    rng = np.random.default_rng(2)
    smoothness, mu, noise = 3.0, 0.2, 0.4
    eta = fraction / smoothness
    for eigenvalues in [rng.uniform(mu, smoothness, 6) for _ in range(20)] + [np.full(6, smoothness)]:
        start = rng.normal(size=6)
        problem = Smooth(smoothness, float(eigenvalues @ start**2) / 2.0, 6, eta)
        theorem = PolyakLojasiewicz(problem, float(eigenvalues.min()))
        for steps in (1, 2, 7, 40, 400):
            kept = (1.0 - eta * eigenvalues) ** 2
            squares = kept**steps * start**2 + eta**2 * noise**2 * (1.0 - kept**steps) / (1.0 - kept)
            risk = float(eigenvalues @ squares) / 2.0
            assert risk <= theorem.bound(noise, steps) * (1.0 + 1e-12)
            if eigenvalues.min() == smoothness:
                assert risk == pytest.approx(theorem.bound(noise, steps), rel=1e-12)


@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_the_nonconvex_bound_holds_in_simulation(fraction):
    """f(x) = sum of x_j^2 / (1 + x_j^2): smooth with L = 2, not convex, inf f = 0."""
    rng = np.random.default_rng(3)
    steps, noise, eta, dimension = 60, 0.05, fraction / 2.0, 4
    theorem = NonConvex(Smooth(2.0, dimension * 0.8, dimension, eta))
    x = np.full((2000, dimension), 2.0)
    squares = []
    for _ in range(steps):
        gradient = 2.0 * x / (1.0 + x**2) ** 2
        squares.append(np.mean(np.sum(gradient**2, axis=1)))
        x = x - eta * (gradient + noise * rng.standard_normal(x.shape))
    assert np.mean(squares) <= theorem.bound(noise, steps) ** 2
    assert theorem.bound(noise, steps) ** 2 <= 6.0 * np.mean(squares), "and the bound is not far above"


def test_noise_dimension_and_gap_raise_the_bounds():
    def bound(kind, gap=1.0, dimension=10, noise=0.1):
        problem = Smooth(1.0, gap, dimension)
        return (NonConvex(problem) if kind == "nonconvex" else PolyakLojasiewicz(problem, 0.1)).bound(noise, 20)

    for kind in ("nonconvex", "pl"):
        assert bound(kind) < bound(kind, gap=2.0)
        assert bound(kind) < bound(kind, dimension=11)
        assert bound(kind) < bound(kind, noise=0.11)


def test_a_smaller_step_than_1_over_l_contracts_less_and_costs_less_noise():
    """So that at a given number of steps neither step size is better for every noise."""
    full, half = (PolyakLojasiewicz(Smooth(1.0, 1.0, 10, eta), 0.1) for eta in (1.0, 0.5))
    assert full.bound(0.0, 30) < half.bound(0.0, 30)
    assert full.bound(0.5, 300) > half.bound(0.5, 300)


def test_what_no_theorem_covers_is_refused_with_a_pointer():
    with pytest.raises(InvalidValue, match=r"at most 1/smoothness = 0\.25") as caught:
        Smooth(4.0, 1.0, 1, step_size=0.2501)
    assert caught.value.pointer == ("step_size",)
    assert Smooth(3.0, 1.0, 1, step_size=1.0 / 3.0).eta == 1.0 / 3.0
    with pytest.raises(InvalidValue, match="pl_constant must be at most smoothness") as caught:
        PolyakLojasiewicz(Smooth(1.0, 1.0, 1), 1.01)
    assert caught.value.pointer == ("assumptions", "pl_constant")
