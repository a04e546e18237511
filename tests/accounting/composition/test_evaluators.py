"""Each evaluator against closed forms and long-precision sums, on its own."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.composition.basic import BasicComposition
from accounting.composition.composition import Composition
from accounting.composition.convolution import Convolution
from accounting.composition.evaluator import Evaluator
from accounting.composition.gaussian_dp import AnalyticGaussian, epsilon_of_gaussian
from accounting.composition.lattice import lattice_law
from accounting.composition.renyi import RenyiBound
from accounting.events import Event, GaussianMixture
from accounting.intervals import Bounds
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.laplace import LaplaceLoss
from accounting.losses.poisson import PoissonGaussianLoss, PoissonReplaceLoss
from accounting.losses.stated import RandomizedResponseLoss, ZcdpLoss
from accounting.relations import NeighboringRelation
from tests.accounting.references import (
    gaussian_delta,
    gaussian_epsilon,
    poisson_delta,
    randomized_response_delta,
)

EVERY: tuple[Evaluator, ...] = (BasicComposition(), AnalyticGaussian(), RenyiBound(), Convolution(2**16))


def one(mu: float) -> Composition:
    return Composition(((GaussianLoss(mu), 1),))


def asked(evaluator: Evaluator, composition: Composition, epsilon: float) -> Bounds | None:
    """As the accountant asks: an evaluator that gives up is passed over."""
    try:
        with np.errstate(all="ignore"):
            return evaluator.delta(composition, epsilon)
    except ArithmeticError:
        return None


def holds(bounds: Bounds | None, truth: float, slack: float = 1e-12) -> bool:
    assert bounds is not None
    return bounds.lower <= truth * (1 + slack) and truth * (1 - slack) <= bounds.upper


@pytest.mark.parametrize("mu", [1e-6, 0.1, 8.0, 300.0])
@pytest.mark.one_in(1000)
def test_exact_for_full_batch(mu: float) -> None:
    for delta in (1e-30, 1e-12, 1e-5, 0.3):
        if gaussian_delta(mu, 0.0) <= delta:
            assert epsilon_of_gaussian(mu, delta, upward=True) == 0.0
            continue
        exact = float(gaussian_epsilon(mu, delta))
        bounds = AnalyticGaussian().epsilon(one(mu), delta)
        assert holds(bounds, exact)
        assert bounds is not None
        assert bounds.width <= 1e-9 * max(exact, mu)
        back = AnalyticGaussian().delta(one(mu), exact)
        assert holds(back, float(gaussian_delta(mu, exact)), 1e-13)
        assert back is not None
        assert back.width <= 1e-9 * delta


@pytest.mark.thorough  # test_exact_for_full_batch and test_exact_for_one_step are shorter
def test_interval_contains_truth_for_gaussian_and_randomized_response() -> None:
    """Random compositions with exact answers, through every evaluator, deltas down to 1e-250."""
    draw = random.Random(7)
    checked = 0
    for _ in range(60):
        if draw.random() < 0.6:
            mu, count = 10 ** draw.uniform(-3, 1.2), int(10 ** draw.uniform(0, 6))
            epsilon = mu * mu / 2 + mu * draw.uniform(-1, 10)
            if epsilon <= 0:
                continue
            composition = Composition(((GaussianLoss(mu / math.sqrt(count)), count),))
            truth = float(gaussian_delta(mu, epsilon))
        else:
            count, size = int(10 ** draw.uniform(0, 2.5)), 10 ** draw.uniform(-3, 0.5)
            epsilon = draw.uniform(0, 0.95) * count * size
            composition = Composition(((RandomizedResponseLoss(size), count),))
            truth = float(randomized_response_delta(size, count, epsilon))
        if truth < 1e-250:
            continue
        for evaluator in EVERY:
            bounds = asked(evaluator, composition, epsilon)
            assert bounds is None or holds(bounds, truth, 2.5e-11), (
                evaluator.name,
                composition,
                epsilon,
                truth,
                bounds,
            )
        if bounds is None:
            continue
        with np.errstate(all="ignore"):
            back = Convolution(2**15).epsilon(composition, min(truth, 0.99))
        assert back is not None
        assert back.lower <= epsilon * (1 + 1e-9)
        assert back.upper >= epsilon * (1 - 1e-9)
        checked += 1
    assert checked > 30


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("s", "q"), [(1.0, 0.01), (0.5, 0.2), (4.0, 0.3), (0.1, 0.4)])
def test_exact_for_one_step(s: float, q: float) -> None:
    """Poisson, once: the closed form, and every evaluator around it."""
    for epsilon in (0.01, 0.1, 0.7, 3.0):
        remove = poisson_delta(s, q, epsilon, "remove")
        for composition, truth in (
            (Composition(((PoissonGaussianLoss(s, q), 1),)), float(remove)),
            (Composition(((PoissonReplaceLoss(s, q), 1),)), float(poisson_delta(s, q, epsilon, "replace"))),
        ):
            for evaluator in EVERY:
                bounds = asked(evaluator, composition, epsilon)
                assert bounds is None or holds(bounds, truth), (evaluator.name, s, q, epsilon)
            exact = BasicComposition().delta(composition, epsilon)
            assert exact is not None
            assert exact.width <= 2.5e-11 * truth + 1e-300


def test_canonne_kamath_steinke_for_zcdp() -> None:
    bounds = RenyiBound().epsilon(Composition(((ZcdpLoss(0.5), 1),)), 1e-5)
    assert bounds is not None
    assert 4.72838698 < bounds.upper < 4.728386985
    bounds = RenyiBound().epsilon(Composition(((ZcdpLoss(0.03125), 1),)), 1e-3)
    assert bounds is not None
    assert bounds.upper < 0.6880024556


def test_each_knob_grows_its_term_lattice() -> None:
    """The lattice term and the error grow together when the lattice is coarsened; the truth stays inside."""
    composition = Composition(((GaussianLoss(0.05), 400),))
    truth = float(gaussian_delta(1.0, 3.0))
    raised, lattice = [], []
    for points in (2**12, 2**14, 2**16):
        bounds = Convolution(points).delta(composition, 3.0)
        assert bounds is not None
        assert holds(bounds, truth)
        raised.append(bounds.upper - truth)
        lattice.append(bounds.error_budget["lattice"])
    assert raised[0] > 4 * raised[1] > 16 * raised[2] > 0
    assert lattice[0] > lattice[1] > lattice[2] > raised[2]


def test_each_knob_grows_its_term_truncation() -> None:
    composition = Composition(((GaussianLoss(1.0), 1),))
    truth = float(gaussian_delta(1.0, 3.0))
    terms = []
    for margin in (30.0, 2.0, -3.0, -8.0):
        bounds = Convolution(2**16, truncation_margin=margin).delta(composition, 3.0)
        assert bounds is not None
        assert holds(bounds, truth)
        terms.append(bounds.error_budget["truncation"])
    assert terms == sorted(terms)
    assert terms[-1] > 1e-3 * truth > terms[0]


def test_each_knob_grows_its_term_aliasing() -> None:
    """A window that ends just above epsilon: what lies beyond is folded below and must be added by its bound."""
    composition = Composition(((GaussianLoss(0.05), 400),))
    truth = float(gaussian_delta(1.0, 3.0))
    terms = []
    for window in (1.0, 0.6, 0.45, 0.4, 0.35, 0.3):
        bounds = Convolution(2**16, window=window).delta(composition, 3.0)
        assert bounds is not None
        assert holds(bounds, truth)
        terms.append(bounds.error_budget["aliasing"])
    assert terms == sorted(terms)
    assert terms[-1] > 1e-3 * truth > terms[0]


def test_profile_only_grows_and_is_exact_on_the_lattice() -> None:
    for loss in (GaussianLoss(0.8), PoissonGaussianLoss(0.7, 0.05), LaplaceLoss(1.1), PoissonReplaceLoss(0.9, 0.2)):
        for remove in (True, False):
            law = lattice_law(loss, remove=remove, step=0.01, log_mass=-60.0)
            losses = (law.first + np.arange(law.masses.size)) * law.step
            on = losses[losses >= 0][:200]
            for points, exact in ((on, True), (on + 0.004, False)):
                rounded = np.array([law.masses @ np.maximum(-np.expm1(e - losses), 0.0) for e in points])
                rounded += law.infinite_mass
                profile = loss.excess(points, remove=remove)
                assert np.all(rounded >= profile * (1 - 1e-9) - 1e-15)
                if exact:
                    assert np.allclose(rounded, profile, rtol=1e-9, atol=1e-15)
            assert law.defect < 1e-12


def test_a_lattice_that_is_too_large_is_refused() -> None:
    with pytest.raises(OverflowError, match="too wide a range for a lattice"):
        lattice_law(GaussianLoss(300.0), remove=True, step=1e-6, log_mass=-60.0)


def test_both_directions_are_evaluated() -> None:
    composition = Composition(((PoissonGaussianLoss(0.5, 0.3), 1),))
    assert len(composition.directions) == 2
    assert len(Composition(((PoissonReplaceLoss(0.5, 0.3), 1),)).directions) == 1
    add = poisson_delta(0.5, 0.3, 0.2, "add")
    bounds = BasicComposition().delta(composition, 0.2)
    assert bounds is not None
    assert bounds.lower > float(add)


def test_deltas_below_all_normal_numbers_are_left_to_who_can_bound_them() -> None:
    """Five steps whose delta at 87.674759140234 is the smallest double, by sums of 60 digits."""
    step = Event(GaussianMixture((0.9, 0.1), (3.0, 1.0)), count=5)
    found = epsilon_for_delta([step], NeighboringRelation.ADD_OR_REMOVE_ONE, 5e-324).value
    assert found.lower <= 87.674759140234 <= found.upper
