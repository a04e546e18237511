"""Specs on which an earlier version was wrong, each with a bound that holds for a reason of its own."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.basic import BasicComposition
from accounting.composition.composition import compose
from accounting.composition.convolution import Convolution
from accounting.composition.gaussian_dp import AnalyticGaussian
from accounting.composition.intersection import CROSSING_ALLOWANCE, intersect
from accounting.composition.renyi import RenyiBound
from accounting.events import Event, Gaussian, Laplace, Poisson
from accounting.filters import RenyiFilter, default_orders
from accounting.intervals import Bounds
from accounting.relations import NeighboringRelation

ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE


@pytest.mark.parametrize(
    ("noise", "q", "count", "relation", "delta", "attained"),
    [
        # Losses so large that the weights of the window overflow. `attained` is below the truth by counting hits: each
        # adds about 1 / (2 s^2) to the loss, and their number is Poisson(count q) up to 1e-8.
        (0.05, 1e-8, 10**8, REPLACE, 1e-12, 2000.0),
        (0.06, 1e-7, 10**8, ADD_OR_REMOVE, 1e-10, 3500.0),
        (0.3, 1e-3, 10**8, ADD_OR_REMOVE, 1e-6, 65570.0),
        (0.1, 1e-6, 10**8, ADD_OR_REMOVE, 1e-6, 3518.0),
    ],
)
def test_an_overflow_in_the_window_bounds_nothing(noise, q, count, relation, delta, attained):
    answer = epsilon_for_delta([Event(Gaussian(noise), Poisson(q), count)], relation, delta)
    assert answer.value.upper > attained
    assert answer.value.lower < answer.value.upper


def test_the_alias_bound_of_a_window_that_is_too_short_is_not_cut_at_one():
    composition = compose([Event(Gaussian(0.008587), Poisson(4.79e-8), 1)], REPLACE)
    bounds = Convolution(window=0.5).delta(composition, 1e-6)
    assert bounds is None or bounds.lower <= 4.79e-8 * (1 + 1e-6)


def test_one_step_is_answered_in_closed_form():
    answer = delta_for_epsilon([Event(Gaussian(0.0188038), Poisson(5.66676e-5))], ADD_OR_REMOVE, 893.947)
    # Five hundred digits give 5.66676e-5 to fifteen: nearly all of q lies beyond this epsilon.
    assert answer.value.lower <= 5.66676e-5 <= answer.value.upper
    assert answer.value.width < 1e-11 * 5.66676e-5 * 10
    assert answer.method != Convolution.name


class Broken:
    """An evaluator whose upper bound is below what the proved ones attain."""

    name = "broken"

    def delta(self, composition, epsilon):
        return Bounds(0.0, 1e-30, 1e-30)

    def epsilon(self, composition, delta):
        return Bounds(0.0, 1e-3, 1e-3)


def test_bounds_that_contradict_each_other_discard_the_numerical_evaluator():
    composition = compose([Event(Gaussian(1.0), Poisson(0.5), 10)], ADD_OR_REMOVE)
    quick = (BasicComposition(), AnalyticGaussian(), RenyiBound())
    ask = lambda evaluator: evaluator.epsilon(composition, 1e-5)  # noqa: E731
    narrow = lambda upper: 0.0  # noqa: E731
    proved = intersect(composition, quick, ask, math.inf, narrow)
    assert proved.value.lower > 1e-3 * (1 + CROSSING_ALLOWANCE), "the contradiction is one"
    assert intersect(composition, (*quick, Broken()), ask, math.inf, narrow) == proved


def test_a_nan_in_the_error_budget_discards_the_bounds():
    assert not Bounds(0.0, 1.0, 0.5, {"lattice": math.nan}).is_sound
    assert Bounds(0.0, 1.0, 0.5, {"lattice": 1.0}).is_sound


def test_an_infinite_bound_says_so():
    answer = epsilon_for_delta(
        [Event(Gaussian(1e-3), Poisson(0.999999999999), 85915)], REPLACE, 1e-300, evaluators=(Broken(),) * 0
    )
    assert math.isinf(answer.value.upper)
    assert answer.warnings


@pytest.mark.parametrize("order", [1.000001, 1.0001, 1.005])
def test_a_cost_near_order_one_is_not_below_the_divergence(order):
    """Laplace(1) has KL divergence e^-1, and the divergence grows with the order."""
    renyi = RenyiFilter(1e6, 0.5, (order,))
    [cost] = renyi.cost([Event(Laplace(1.0), count=200000)], ADD_OR_REMOVE).amounts
    assert cost >= math.floor(200000 * math.exp(-1.0) * 1e9)
    with mp.workdps(50):
        tilt = mp.mpf(repr(order)) - 1
        mean = ((tilt + 1) * mp.exp(tilt) + tilt * mp.exp(-(tilt + 1))) / (2 * tilt + 1)
        assert cost >= 200000 * mp.log(mean) / tilt * 10**9


def test_where_the_windows_weights_overflow_the_bound_is_infinite_and_not_a_nan():
    composition = compose([Event(Gaussian(0.05), Poisson(1e-8), 10**8)], REPLACE)
    tilt = RenyiBound().best_tilt(composition, delta=1e-12)
    line = Convolution()._line(composition, composition.directions[0], tilt, 2600.0, math.log(1e-12))
    with np.errstate(all="ignore"):
        assert not math.isnan(line._upper(line.centre - 800.0))
        assert line._upper(line.centre - 800.0) > 1e-12


def test_default_orders_of_extreme_budgets_are_orders_or_a_refusal():
    assert len(default_orders(1.0, 1e-320)) == 16
    from accounting.errors import InvalidValue

    with pytest.raises(InvalidValue, match="too small") as caught:
        default_orders(1e-6, 1e-5)
    assert caught.value.pointer == ("epsilon",)
