"""Logistic noise against integrals of its densities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.errors import Unsupported
from accounting.events import MECHANISMS, Event, Poisson, ShuffledEpochs, event_from_json
from accounting.events.logistic import Logistic
from accounting.filters import approximate_dp_cost, gaussian_dp_cost, pure_dp_cost, renyi_dp_cost, zcdp_cost
from accounting.groups import group_delta_for_epsilon
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
NOISE = 2.0
X = np.linspace(-80.0, 80.0, 400_001)


def density(shift: float) -> np.ndarray:
    tails = np.exp(-np.abs(X - shift))
    law: np.ndarray = tails / (1.0 + tails) ** 2
    return law


def true_delta(shift: float, epsilon: float) -> float:
    difference = np.maximum(density(shift) - math.exp(epsilon) * density(0.0), 0.0)
    return float(difference.sum() * (X[1] - X[0]))


def test_it_is_found() -> None:
    event = Event(Logistic(NOISE), count=3)
    assert MECHANISMS["logistic"] is Logistic
    assert event_from_json(event.to_json()) == event


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3, 0.45])
def test_one_step_and_a_group(epsilon: float) -> None:
    event = Event(Logistic(NOISE))
    one = delta_for_epsilon([event], ADD_REMOVE, epsilon).value
    assert one.upper == pytest.approx(true_delta(0.5, epsilon), rel=1e-4)
    three = group_delta_for_epsilon([event], ADD_REMOVE, epsilon, 3).value
    assert three.upper == pytest.approx(true_delta(1.5, epsilon), rel=1e-4)


def test_a_composition_against_drawn_losses() -> None:
    count, delta = 20, 1e-2
    value = epsilon_for_delta([Event(Logistic(NOISE), count=count)], ADD_REMOVE, delta).value
    rng = np.random.default_rng(7)
    draws = rng.logistic(0.5, 1.0, (100_000, count))
    losses = (0.5 + 2.0 * (np.log1p(np.exp(-draws)) - np.log1p(np.exp(0.5 - draws)))).sum(axis=1)
    for epsilon, above in ((value.upper, True), (value.lower, False)):
        missed = -np.expm1(np.minimum(epsilon - losses, 0.0))
        error = 4.0 * missed.std() / math.sqrt(losses.size)
        assert missed.mean() <= delta + error if above else missed.mean() >= delta - error
    assert value.width < 1e-3 * value.upper


def test_costs_and_refusals() -> None:
    events = (Event(Logistic(NOISE), count=4),)
    assert pure_dp_cost(events, ADD_REMOVE).amounts[0] == pytest.approx(2e9, rel=1e-9)
    for cost in (zcdp_cost(events, ADD_REMOVE), gaussian_dp_cost(events, ADD_REMOVE)):
        assert 0 < cost.amounts[0] < 2e9
    assert approximate_dp_cost(events, ADD_REMOVE, 1e-3).amounts[0] < 2_000_000_001
    assert renyi_dp_cost(events, ADD_REMOVE, (2.0,)).amounts[0] > 0
    with pytest.raises(Unsupported, match="logistic"):
        Event(Logistic(NOISE), Poisson(0.1))
    with pytest.raises(Unsupported, match="shuffled_epochs"):
        delta_for_epsilon([Event(Logistic(NOISE), ShuffledEpochs(2))], ADD_REMOVE, 0.1)
