"""Batches of independent draws: hits, the bound against every small data set, compositions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import compose
from accounting.convention import convention
from accounting.errors import InvalidValue, NoCostInFilter, Unsupported
from accounting.events import Event, Gaussian, Laplace, PureDp, WithoutReplacement, WithReplacement, event_from_json
from accounting.filters import approximate_dp_cost, renyi_dp_cost
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.relations import NeighboringRelation
from accounting.schedule_warnings import schedule_warnings

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE


def loss_of_one(mechanism: Gaussian | Laplace, draws: int, records: int) -> VisibleMixtureLoss:
    [(loss, _)] = compose([Event(mechanism, WithReplacement(draws, records))], REPLACE).steps
    assert isinstance(loss, VisibleMixtureLoss)
    return loss


@pytest.mark.parametrize(("noise", "records", "draws"), [(2.0, 3, 2), (3.0, 3, 3), (1.0, 2, 2)])
def test_no_pair_of_small_data_sets_is_above_the_pair(noise: float, records: int, draws: int) -> None:
    """Every sequence of draws counted, gradients on a grid, both signs of eps."""
    loss = loss_of_one(Gaussian(noise), draws, records)
    x = np.linspace(-24.0, 24.0, 4801)
    cell = float(x[1] - x[0])

    def output(values: tuple[float, ...]) -> np.ndarray:
        law = np.zeros_like(x)
        for drawn in itertools.product(values, repeat=draws):
            law += np.exp(-((x - sum(drawn)) ** 2) / (2 * noise * noise))
        return law / (noise * math.sqrt(2 * math.pi) * records**draws)

    epsilons = np.array([-1.2, -0.3, 0.0, 0.2, 0.8, 1.6])
    bounds = loss.excess(epsilons, remove=True)
    nearest = 0.0
    for others in itertools.combinations_with_replacement((-1.0, 0.2, 1.0), records - 1):
        for mine, theirs in ((1.0, -1.0), (-1.0, 1.0), (1.0, 0.0), (0.3, -1.0)):
            p, other = output((*others, mine)), output((*others, theirs))
            for epsilon, bound in zip(epsilons, bounds, strict=True):
                stick = float(np.maximum(p - math.exp(epsilon) * other, 0.0).sum()) * cell
                excess = stick - max(0.0, -math.expm1(epsilon))
                assert excess <= bound + 1e-9
                nearest = max(nearest, excess / bound)
    assert nearest > 0.75


def test_the_theorem_for_laplace_noise_on_small_data_sets() -> None:
    scale, records, draws = 3.0, 3, 2
    loss = loss_of_one(Laplace(scale), draws, records)
    x = np.linspace(-90.0, 90.0, 60_001)
    cell = float(x[1] - x[0])

    def output(values: tuple[float, ...]) -> np.ndarray:
        laws = [np.exp(-np.abs(x - sum(drawn)) / scale) for drawn in itertools.product(values, repeat=draws)]
        return np.asarray(sum(laws)) / (2 * scale * records**draws)

    for others in ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0)):
        p, other = output((*others, 1.0)), output((*others, -1.0))
        for epsilon in (0.0, 0.2, 0.6, 1.0):
            bound = float(loss.excess(np.array([epsilon]), remove=True)[0])
            for a, b in ((p, other), (other, p)):
                assert float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) * cell <= bound + 1e-5


def test_one_draw_is_a_batch_of_one_record() -> None:
    for mechanism in (Gaussian(3.0), Laplace(9.0)):
        with_, without = (
            epsilon_for_delta([Event(mechanism, sampling(1, 200), 30)], REPLACE, 1e-5).value
            for sampling in (WithReplacement, WithoutReplacement)
        )
        assert with_.upper == pytest.approx(without.upper, rel=2e-6)


@pytest.mark.parametrize(
    ("noise", "draws", "records", "steps"),
    [(5.0, 10, 1000, 50), pytest.param(12.0, 20, 100, 100, marks=pytest.mark.soak)],
)
def test_compositions_are_between_what_is_attained_and_narrow(
    noise: float, draws: int, records: int, steps: int
) -> None:
    """All others are this record's opposite: a sum moved by 2k, k hidden. And coinciding draws cost more than none."""
    event = Event(Gaussian(noise), WithReplacement(draws, records), steps)
    value = epsilon_for_delta([event], REPLACE, 1e-5).value
    assert value.width <= 1e-6
    fixed = epsilon_for_delta([Event(Gaussian(noise), WithoutReplacement(draws, records), steps)], REPLACE, 1e-5).value
    assert fixed.upper < value.lower < 1.3 * fixed.upper
    shifts = range(min(draws, 8) + 1)
    chances = [math.comb(draws, k) / records**k * (1 - 1 / records) ** (draws - k) for k in shifts]
    chances[0] += 1.0 - math.fsum(chances)
    attained = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        noise, [2.0 * k for k in shifts], chances, value_discretization_interval=1e-3
    )
    cost = attained.self_compose(steps).get_epsilon_for_delta(1e-5)
    assert 0.9 * value.upper < cost < value.upper


def test_largest_loss_of_laplace_noise_is_near_that_of_hidden_draws() -> None:
    """An output beyond all centres has the ratio E e^(2h/30), h draws of the record; seen hits cost hardly more."""
    event = Event(Laplace(30.0), WithReplacement(10, 1000), 50)
    value = epsilon_for_delta([event], REPLACE, 0.0).value
    attained = 50 * 10 * math.log1p(1e-3 * math.expm1(2 / 30))
    assert attained < value.upper < 1.4 * attained
    assert value.width < 1e-9


def test_what_is_charged_under_each_relation() -> None:
    event = Event(Gaussian(3.0), WithReplacement(np.int64(5), 100.0), 7)
    assert event == event_from_json(event.to_json())
    assert compose([event], REPLACE) == compose([event], SPECIAL)
    assert convention(SPECIAL, [event])["sensitivity"] == 2.0
    assert "replace_one" in schedule_warnings([event], SPECIAL, delta=1e-5)[0]
    with pytest.raises(Unsupported, match="how often every other one is drawn"):
        compose([event], ADD_REMOVE)
    with pytest.raises(Unsupported, match="no amplification by with_replacement"):
        Event(PureDp(1.0), WithReplacement(5, 100))
    for draws, records, pointer in ((0, 5, "batch_size"), (6, 5, "batch_size"), (1, 1, "dataset_size")):
        with pytest.raises(InvalidValue) as caught:
            WithReplacement(draws, records)
        assert caught.value.pointer == (pointer,)


def test_only_a_certified_epsilon_is_a_cost() -> None:
    event = Event(Laplace(30.0), WithReplacement(2, 1000))
    amounts = approximate_dp_cost((event,), REPLACE, 1e-6).amounts
    assert 0 <= amounts[0] - 1e9 * epsilon_for_delta([event], REPLACE, 1e-6).value.upper <= 1
    with pytest.raises(NoCostInFilter, match="with with_replacement batches"):
        renyi_dp_cost((event,), REPLACE, (2.0,))


@pytest.mark.soak
def test_delta_pays_for_the_hits_that_are_left_out() -> None:
    event = Event(Gaussian(8.0), WithReplacement(20, 1000), 200)
    value = delta_for_epsilon([event], REPLACE, 0.2).value
    assert value.lower <= value.estimate <= value.upper <= value.lower * (1 + 1e-6)
    assert epsilon_for_delta([event], REPLACE, value.estimate).value.upper == pytest.approx(0.2, abs=1e-5)
