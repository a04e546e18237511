"""Correlated noise: what it is resolved to, published numbers, a Monte Carlo of its release, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import compose
from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import (
    FULL_BATCH,
    BufferedGaussian,
    CorrelatedGaussian,
    CyclicPoisson,
    Event,
    FixedOrderEpochs,
    Gaussian,
    InverseSquareRootGaussian,
    Poisson,
    SquareRootGaussian,
    event_from_json,
)
from accounting.events.schedules import resolve_schedules
from accounting.filters.gaussian_dp import gaussian_dp_cost
from accounting.filters.given_up import tail_of
from accounting.filters.zcdp import zcdp_cost
from accounting.groups import group_epsilon_for_delta
from accounting.losses.rules import loss_of
from accounting.relations import NeighboringRelation
from tests.accounting.test_factorisations import toeplitz

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL


def cyclic(probability: float, cycle: int, assignment: str = "independent") -> CyclicPoisson:
    return CyclicPoisson(probability, cycle, assignment)


@pytest.mark.parametrize(
    ("event", "relation", "delta", "epsilon"),
    [
        (Event(CorrelatedGaussian(2.708087, (1.0,)), cyclic(0.08, 8), 2000), ADD_REMOVE, 1e-5, 1.9999954254),
        (Event(CorrelatedGaussian(3.0, (1.0, 0.5, 0.375)), cyclic(0.12, 3), 1000), ADD_REMOVE, 1e-6, 4.4853869596),
        (Event(SquareRootGaussian(20.0, 100), FixedOrderEpochs(100), 2000), SPECIAL, 1e-5, 1.3658381879),
        (Event(SquareRootGaussian(20.0, 100), FixedOrderEpochs(100), 2000), REPLACE, 1e-5, 2.9640981986),
    ],
)
def test_known_epsilons(event: Event, relation: NeighboringRelation, delta: float, epsilon: float) -> None:
    value = epsilon_for_delta([event], relation, delta).value
    assert value.upper == pytest.approx(epsilon, abs=1e-9)
    assert value.width < 1e-7  # the lower end is of a sensitivity that may be 1e-8 less


@pytest.mark.parametrize(("cycle", "delta"), [(2, 0.0564), (1, 0.1815)])
@pytest.mark.one_in(2)
def test_a_simulated_release_costs_what_is_said(cycle: int, delta: float) -> None:
    """Six steps of c = (0.8, 0.6): as said where the cycle is as long as the noise, and more where it is shorter."""
    c, s, q, steps, epsilon, samples = np.array([0.8, 0.6]), 1.2, 0.3, 6, 0.5, 400_000
    draw = np.random.default_rng(7)
    columns = np.array([[c[i - j] if 0 <= i - j < 2 else 0.0 for i in range(steps)] for j in range(0, steps, cycle)])
    joined = np.array([(np.arange(2 ** len(columns)) >> bit) & 1 for bit in range(len(columns))]).T
    means, weights = joined @ columns, np.prod(np.where(joined == 1, q, 1.0 - q), axis=1)
    y = means[draw.choice(weights.size, samples, p=weights)] + s * draw.standard_normal((samples, steps))
    ratio = np.exp((y @ means.T - 0.5 * np.sum(means**2, axis=1)) / s**2) @ weights
    shown = np.mean(np.maximum(0.0, 1.0 - math.exp(epsilon) / ratio))
    assert shown == pytest.approx(delta, abs=2e-3)
    bound = Event(Gaussian(s), Poisson(q), -(-steps // cycle))
    charged = delta_for_epsilon([bound], ADD_REMOVE, epsilon).value.upper
    assert (shown <= charged + 1e-3) == (cycle == 2)
    if cycle == 2:
        event = Event(CorrelatedGaussian(s, (0.8, 0.6)), cyclic(q, cycle), steps)
        assert delta_for_epsilon([event], ADD_REMOVE, epsilon).value.upper == pytest.approx(charged, rel=1e-9)
    else:
        with pytest.raises(InvalidValue, match="cycle_length of at least 2"):
            Event(CorrelatedGaussian(s, (0.8, 0.6)), cyclic(q, cycle), steps)


def test_noise_is_rounded_down_and_cycles_that_are_begun_count() -> None:
    mechanism = CorrelatedGaussian(3.0, (1.0, 0.5, 0.375))
    (resolved,) = resolve_schedules([Event(mechanism, cyclic(0.12, 4), 9)], ADD_REMOVE)
    assert (resolved.sampling, resolved.count) == (Poisson(0.12), 3)
    assert isinstance(resolved.mechanism, Gaussian)
    assert resolved.mechanism.noise_multiplier**2 * (1.0 + 0.25 + 0.140625) <= 9.0
    assert resolved.mechanism.noise_multiplier == pytest.approx(3.0 / math.sqrt(1.390625), rel=1e-14)
    (everybody,) = resolve_schedules([Event(mechanism, cyclic(1.0, 4), 9)], ADD_REMOVE)
    assert (everybody.sampling, everybody.count) == (FULL_BATCH, 3)


def test_two_events_are_two_streams_of_noise() -> None:
    half, whole = (Event(CorrelatedGaussian(3.0, (1.0,)), cyclic(0.1, 2), count) for count in (5, 10))
    assert compose([half, half], ADD_REMOVE).count == 6
    assert compose([whole], ADD_REMOVE).count == 5


def test_every_family_at_every_step_is_one_gaussian() -> None:
    for mechanism in (
        SquareRootGaussian(4.0, 3),
        InverseSquareRootGaussian(4.0, 2),
        BufferedGaussian(4.0, (0.5,), (0.5,)),
        CorrelatedGaussian(4.0, (1.0, 0.5)),
    ):
        assert event_from_json(Event(mechanism, count=7).to_json()) == Event(mechanism, count=7)
        matrix = toeplitz(mechanism.coefficients_of(7).tolist(), 7)
        mu = np.linalg.norm(matrix @ np.ones(7)) / 4.0
        assert compose([Event(mechanism, count=7)], REPLACE).gaussian_only.mu == pytest.approx(2.0 * mu, rel=1e-12)
        assert loss_of(Event(mechanism), SPECIAL).mu == pytest.approx(0.25, rel=1e-12)
    assert loss_of(Event(CorrelatedGaussian(4.0, (2.0, 1.0))), SPECIAL).mu == pytest.approx(0.5, rel=1e-12)


def test_every_family_has_the_coefficients_that_its_numbers_say() -> None:
    for mechanism, coefficients in (
        (SquareRootGaussian(4.0, 3), [1.0, 0.5, 0.375]),
        (SquareRootGaussian(4.0, 9), [1.0, 0.5, 0.375, 0.3125, 0.2734375]),
        (InverseSquareRootGaussian(4.0, 2), [1.0, 0.5, 0.25, 0.125, 0.0625]),
        (InverseSquareRootGaussian(4.0, 3), [1.0, 0.5, 0.375, 0.25, 0.171875]),
        (BufferedGaussian(4.0, (0.25, 0.5), (0.5, 0.0)), [1.0, 0.75, 0.125, 0.0625, 0.03125]),
        (CorrelatedGaussian(4.0, (1.0, 0.75)), [1.0, 0.75]),
    ):
        assert mechanism.coefficients_of(5).tolist() == pytest.approx(coefficients, rel=1e-12)


def test_costs_in_budgets_are_those_of_what_stands_for_a_run() -> None:
    event = Event(CorrelatedGaussian(2.0, (1.0, 0.5)), FixedOrderEpochs(2), 4)
    (resolved,) = resolve_schedules([event], SPECIAL)
    assert zcdp_cost([event], SPECIAL) == zcdp_cost([resolved], SPECIAL)
    assert gaussian_dp_cost([event], SPECIAL) == gaussian_dp_cost([resolved], SPECIAL)
    for stream in (event, Event(CorrelatedGaussian(2.0, (1.0, 0.5)), cyclic(0.1, 2), 4), replace(event, count=1)):
        assert tail_of([stream], []) == (), "no refund for noise that later steps depend on"
    assert FixedOrderEpochs(4).resolved(9) == (FULL_BATCH, 3)


def test_several_records_of_an_owner_are_charged_through_single_ones() -> None:
    """They may be in different groups, where no pair for all of them is proved."""
    event = Event(CorrelatedGaussian(3.0, (1.0, 0.5)), cyclic(0.1, 2), 20)
    answer = group_epsilon_for_delta([event], ADD_REMOVE, 1e-5, 3)
    assert answer.method == "group_privacy"
    stands = group_epsilon_for_delta(resolve_schedules([event], ADD_REMOVE), ADD_REMOVE, 1e-5, 3)
    assert stands.value.upper < answer.value.upper


@pytest.mark.parametrize(
    ("make", "relation", "words"),
    [
        (
            lambda: Event(CorrelatedGaussian(1.0, (1.0, 0.5)), Poisson(0.1)),
            ADD_REMOVE,
            "use full_batch, cyclic_poisson",
        ),
        (
            lambda: Event(BufferedGaussian(1.0, (0.5,), (0.5,)), cyclic(0.1, 9)),
            ADD_REMOVE,
            "use full_batch or fixed_order",
        ),
        (
            lambda: Event(InverseSquareRootGaussian(1.0, 2), cyclic(0.1, 9)),
            ADD_REMOVE,
            "use full_batch or fixed_order",
        ),
        (lambda: Event(SquareRootGaussian(1.0, 3), cyclic(0.1, 2)), ADD_REMOVE, "cycle_length of at least 3"),
        (lambda: Event(CorrelatedGaussian(1.0, (1.0, 0.5)), cyclic(0.1, 2)), REPLACE, "another group"),
        (lambda: Event(CorrelatedGaussian(1.0, (1.0, 0.5)), cyclic(0.1, 2, "by_position")), ADD_REMOVE, "other groups"),
        (lambda: Event(CorrelatedGaussian(1.0, (1.0, 0.5)), FixedOrderEpochs(2)), ADD_REMOVE, "other batches"),
        (lambda: Event(SquareRootGaussian(1.0, 10**7), count=10**7), ADD_REMOVE, "at most 100000 steps"),
        (lambda: Event(SquareRootGaussian(1.0, 10**5), count=10**5), ADD_REMOVE, "take more noise, or fewer steps"),
        (
            lambda: Event(CorrelatedGaussian(1e6, (0.5,))),
            ADD_REMOVE,
            "noise multiplier .*, more than the largest allowed",
        ),
        (lambda: CorrelatedGaussian(1.0, (1.0, 0.5, 0.75)), ADD_REMOVE, "must not increase"),
        (lambda: CorrelatedGaussian(1.0, (0.0, 0.0)), ADD_REMOVE, "at least 1e-6"),
        (lambda: CorrelatedGaussian(1.0, (9e-7,)), ADD_REMOVE, "at least 1e-6"),
        (lambda: CorrelatedGaussian(1.0, (1.0, -0.5)), ADD_REMOVE, "coefficients"),
        (lambda: BufferedGaussian(1.0, (0.5, 0.5), (0.5,)), ADD_REMOVE, "2 scales and 1 decays"),
        (lambda: BufferedGaussian(1.0, (0.75, 0.5), (0.5, 0.5)), ADD_REMOVE, "at most 1, but"),
    ],
)
def test_what_is_not_proved_is_refused_with_what_would_be(make, relation: NeighboringRelation, words: str) -> None:
    with pytest.raises(AccountingError, match=words) as refused:
        epsilon_for_delta([make()], relation, 1e-5)
    assert isinstance(refused.value, InvalidValue | Unsupported)
