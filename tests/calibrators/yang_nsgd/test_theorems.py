"""The derived forms of Yang et al.'s Theorems 3.2 and 3.4: worked numbers, units, optimality, simulation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from accounting.errors import InvalidValue
from calibrators.yang_nsgd.dp_nsgd import normalized_theorem
from calibrators.yang_nsgd.dp_sgd import clipped_theorem
from calibrators.yang_nsgd.nonconvex import Problem

PROBLEM = Problem(initial_gap=2.0, l0=1.0, l1=0.5, tau0=0.3, tau1=0.2, dimension=100)


def test_worked_numbers_of_the_normalised_theorem():
    theorem = normalized_theorem(PROBLEM, regularizer=1.0)
    s, steps = 0.01, 20000
    eta = theorem.step_size(s, steps)
    assert eta == pytest.approx(0.01083259285, rel=1e-9)
    assert theorem.theta == pytest.approx(1.375, rel=1e-12)
    assert theorem.kappa == pytest.approx(0.4661016949, rel=1e-9)
    assert theorem.k0 == pytest.approx(1.6875, rel=1e-12)
    assert theorem.floor == pytest.approx(0.375, rel=1e-12)
    assert theorem.bound(eta, s, steps) == pytest.approx(0.7842684413, rel=1e-9)
    assert theorem.fewest_iterations(s) == pytest.approx(2.754965901, rel=1e-9)
    assert vanishing(theorem.bound(eta, s, steps) - theorem.floor, theorem.theta) == pytest.approx(
        0.07922219824, rel=1e-9
    )


def test_worked_numbers_of_the_clipped_theorem():
    theorem = clipped_theorem(PROBLEM, max_grad_norm=1.5)
    s, steps = 0.015, 20000
    eta = theorem.step_size(s, steps)
    assert eta == pytest.approx(0.007659799862, rel=1e-9)
    assert theorem.theta == pytest.approx(1.0, rel=1e-12)
    assert theorem.k0 == pytest.approx(1.5, rel=1e-12)
    assert theorem.bound(eta, s, steps) == pytest.approx(0.2807391434, rel=1e-9)
    assert theorem.fewest_iterations(s) == pytest.approx(1.515, rel=1e-9)
    assert s**2 * 100 + 1.5**2 == pytest.approx(2.2725, rel=1e-12)
    assert vanishing(theorem.bound(eta, s, steps), theorem.theta) == pytest.approx(0.05222068556, rel=1e-9)


def vanishing(bound: float, threshold: float) -> float:
    """E_T of a bound sqrt(threshold E_T) + E_T."""
    root = (math.sqrt(threshold + 4.0 * bound) - math.sqrt(threshold)) / 2.0
    return root * root


def test_the_least_bound_over_the_regulariser_is_where_the_catalogue_found_it():
    """The bound is flat at its minimum, and has others: a grid over eight decades, then a finer one."""
    s, steps = 0.001, 10**8

    def bound(regularizer: float) -> float:
        theorem = normalized_theorem(PROBLEM, regularizer)
        return theorem.bound(theorem.step_size(s, steps), s, steps)

    coarse = np.geomspace(1e-4, 1e4, 401)
    centre = coarse[int(np.argmin([bound(r) for r in coarse]))]
    fine = np.geomspace(centre / 1.05, centre * 1.05, 2001)
    best = fine[int(np.argmin([bound(r) for r in fine]))]
    assert best == pytest.approx(7.0587, rel=1e-3)
    assert bound(best) == pytest.approx(0.2005154607, rel=1e-9)


def theorems():
    return [normalized_theorem(PROBLEM, 1.0), clipped_theorem(PROBLEM, 1.5)]


@pytest.mark.parametrize("theorem", theorems(), ids=["normalised", "clipped"])
def test_the_recommended_step_size_minimises_the_bound(theorem):
    s, steps = 0.01, 20000
    best = theorem.step_size(s, steps)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert theorem.bound(factor * best, s, steps) > theorem.bound(best, s, steps)


@pytest.mark.parametrize("theorem", theorems(), ids=["normalised", "clipped"])
def test_the_step_size_becomes_valid_exactly_at_the_iteration_threshold(theorem):
    s = 0.01
    threshold = theorem.fewest_iterations(s)
    for steps, valid in ((threshold * 0.999, False), (threshold * 1.001, True)):
        assert (theorem.step_size(s, steps) <= theorem.largest_step_size(s)) is valid


@pytest.mark.parametrize("unit", [1e-3, 10.0, 1e4])
def test_a_change_of_the_gradient_unit_moves_each_number_by_its_power(unit):
    """Measure the loss in units 1/unit as large: loss, gradients and L_0 grow by it, L_1 and tau_1 stay."""
    scaled = replace(PROBLEM, initial_gap=2.0 * unit, l0=unit, tau0=0.3 * unit)
    normalised, clipped = normalized_theorem(scaled, unit), clipped_theorem(scaled, 1.5 * unit)
    # A normalised step does not know the loss's unit: noise and step size stay, the bound is a gradient.
    base = normalized_theorem(PROBLEM, 1.0)
    assert normalised.step_size(0.01, 500) == pytest.approx(base.step_size(0.01, 500), rel=1e-12)
    assert normalised.bound(0.02, 0.01, 500) == pytest.approx(unit * base.bound(0.02, 0.01, 500), rel=1e-12)
    # A clipped step is a gradient times the step size, so the step size shrinks as the gradient grows.
    base_clipped = clipped_theorem(PROBLEM, 1.5)
    assert clipped.step_size(0.01 * unit, 500) == pytest.approx(base_clipped.step_size(0.01, 500) / unit, rel=1e-12)
    assert clipped.bound(0.02 / unit, 0.01 * unit, 500) == pytest.approx(
        unit * base_clipped.bound(0.02, 0.01, 500), rel=1e-12
    )


def test_the_floor_falls_with_the_regularizer_and_vanishes_without_deviation():
    floors = [normalized_theorem(PROBLEM, r).floor for r in (0.1, 1.0, 10.0, 100.0)]
    assert floors == sorted(floors, reverse=True)
    assert floors[-1] < floors[0]
    assert normalized_theorem(replace(PROBLEM, tau0=0.0), 1.0).floor == 0.0


def test_a_clip_threshold_below_the_lemma_is_refused_with_the_smallest_that_works():
    with pytest.raises(InvalidValue, match=r"0\.75") as caught:
        clipped_theorem(PROBLEM, max_grad_norm=0.74)
    assert caught.value.pointer == ("gradient_bound", "max_grad_norm")
    assert clipped_theorem(PROBLEM, max_grad_norm=2.0 * PROBLEM.t0).theta > 0


def test_a_regularizer_of_zero_has_no_theorem():
    with pytest.raises(InvalidValue, match="above 0"):
        normalized_theorem(PROBLEM, 0.0)


def toy_law(factor: Callable[[float], float], gradient: float, tau: float, p: float) -> float:
    """E[h(g) <grad f, g>] for the catalogue's toy law: g = G + tau with probability p, else G - tau p / (1 - p)."""
    up, down = gradient + tau, gradient - tau * p / (1.0 - p)
    return gradient * (p * factor(abs(up)) * up + (1.0 - p) * factor(abs(down)) * down)


def worst_first_order_term(factor: Callable[[float], float], gradient: float, tau: float) -> float:
    return min(toy_law(factor, gradient, tau, p) for p in np.linspace(0.01, 0.5, 50))


@pytest.mark.parametrize("gradient", [0.02, 0.1, 0.3, 0.7, 1.5, 5.0])
def test_the_first_order_lower_bounds_hold_on_the_toy_law(gradient):
    """Lemmas A.3 and A.5 with tau_1 = 0: what the proofs need from the direction that is followed."""
    tau, r, c = 0.5, 0.8, 1.2
    problem = Problem(initial_gap=1.0, l0=1.0, l1=0.0, tau0=tau, tau1=0.0, dimension=1)
    normal = worst_first_order_term(lambda norm: 1.0 / (r + norm), gradient, tau)
    if gradient >= problem.t0:
        assert normal >= gradient**2 / (r + tau + gradient) - 1e-12
    else:
        assert normal >= gradient * (gradient - 2.0 * tau**2 / r) / (r + gradient) - 1e-12
    clipped = worst_first_order_term(lambda norm: min(1.0, c / norm) if norm else 1.0, gradient, tau)
    g_c = clipped_theorem(problem, c).theta
    assert clipped >= g_c * min(gradient, gradient**2 / g_c) - 1e-12


def toy_term(factor: Callable[[float], float], gradient: float) -> float:
    """The catalogue's law with tau_0 = 1 and p = 1/3: 1 above the gradient, or 1/2 below it."""
    return toy_law(factor, gradient, 1.0, 1.0 / 3.0)


@pytest.mark.parametrize(
    ("gradient", "r", "expected"),
    [(0.1, 1.0, -0.001587301587), (0.02, 1.0, -0.0009579876907), (0.02, 10.0, 6.372868206e-06)],
)
def test_near_a_stationary_point_normalised_steps_may_climb(gradient, r, expected):
    assert toy_term(lambda norm: 1.0 / (r + norm), gradient) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("r", "gradient"), [(1.0, 0.1374586088), (10.0, 0.01638464077)])
def test_normalised_steps_descend_from_this_gradient_on(r, gradient):
    below, above = (toy_term(lambda norm: 1.0 / (r + norm), gradient * (1.0 + 1e-8 * sign)) for sign in (-1, 1))
    assert below < 0.0 < above


@pytest.mark.parametrize(("c", "expected"), [(2.0, 0.01), (0.5, -0.01)])
def test_clipped_steps_may_climb_only_below_the_theorems_threshold(c, expected):
    assert toy_term(lambda norm: min(1.0, c / norm), 0.1) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("regularizer", [0.5, 2.0])
def test_the_bound_holds_in_simulation(regularizer):
    """DP-NSGD on a least-squares objective whose constants are known exactly."""
    rng = np.random.default_rng(7)
    dimension, steps, s = 5, 400, 0.05
    offsets = rng.uniform(-0.2, 0.2, (40, dimension))
    offsets -= offsets.mean(axis=0)
    start = np.full(dimension, 1.0)
    # f(x) = mean |x - offset_i|^2 / 2: gradient x, per-record gradient x - offset_i, L_0 = 1.
    problem = Problem(
        initial_gap=float(start @ start) / 2.0,
        l0=1.0,
        l1=0.0,
        tau0=float(np.linalg.norm(offsets, axis=1).max()),
        tau1=0.0,
        dimension=dimension,
    )
    theorem = normalized_theorem(problem, regularizer)
    eta = theorem.step_size(s, steps)
    smallest = []
    for _ in range(30):
        x, best = start.copy(), math.inf
        for _ in range(steps):
            best = min(best, float(np.linalg.norm(x)))
            g = x - offsets[rng.integers(0, 40, 8)]
            h = 1.0 / (regularizer + np.linalg.norm(g, axis=1))
            x = x - eta * ((h[:, None] * g).mean(axis=0) + s * rng.standard_normal(dimension))
        smallest.append(best)
    assert np.mean(smallest) <= theorem.bound(eta, s, steps)


def test_the_trivial_gradient_norm_is_the_root_of_its_equation():
    """G^2 = 2 (L_0 + L_1 G) D_0; with L_1 = 0 the familiar sqrt(2 L_0 D_0), attained by a quadratic."""
    g = PROBLEM.trivial_gradient_norm
    assert g * g == pytest.approx(2.0 * (PROBLEM.l0 + PROBLEM.l1 * g) * PROBLEM.initial_gap, rel=1e-12)
    assert replace(PROBLEM, l1=0.0).trivial_gradient_norm == pytest.approx(2.0, rel=1e-12)
