"""Numbers that papers and libraries print, at the precision that they print, and those that are no account of ours."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import compose
from accounting.dp_events import from_dp_event
from accounting.events import (
    ApproximateDp,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RandomizedResponse,
    RenyiDp,
    ShuffleModel,
    TreeAggregation,
    WithoutReplacement,
)
from accounting.losses.shuffle_model import closed_form_epsilon
from accounting.relations import NeighboringRelation
from tests.accounting.references import poisson_moment

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE


@dataclass(frozen=True)
class Published:
    """An epsilon at a delta.

    Attributes:
        source: Where it is printed.
        least, most: What is printed, with half a unit of its last digit on both sides, or the two ends that are.
    """

    source: str
    events: list[Event]
    relation: NeighboringRelation
    delta: float
    least: float
    most: float


NUMBERS = [
    Published(
        "dp-accounting, pld_privacy_accountant_test, randomised response of four categories: 1",
        [Event(RandomizedResponse(4, 4.0 / (3.0 + math.e)))],
        REPLACE,
        0.0,
        1.0 - 1e-7,
        1.0 + 1e-7,
    ),
    Published(
        "the same against the special record: 1",
        [Event(RandomizedResponse(4, (4.0 - math.e) / 3.0))],
        SPECIAL,
        0.0,
        1.0 - 1e-7,
        1.0 + 1e-7,
    ),
    Published(
        "the same of two categories: 1",
        [Event(RandomizedResponse(2, math.exp(-1.0)))],
        SPECIAL,
        0.0,
        1.0 - 1e-7,
        1.0 + 1e-7,
    ),
    Published(
        "dp-accounting, pld_privacy_accountant_test, discrete Laplace noise: 4",
        [Event(DiscreteLaplace(1.0, 1.0), count=3), Event(DiscreteLaplace(2.0, 1.0), count=2)],
        ADD_REMOVE,
        0.0,
        4.0 - 1e-6,
        4.0 + 1e-6,
    ),
    Published(
        "dp-accounting, pld_privacy_accountant_test, Poisson batches with Laplace noise: 2.46964",
        [Event(Laplace(0.5), Poisson(0.2), 3)],
        ADD_REMOVE,
        0.0,
        2.469635,
        2.469645,
    ),
    Published(
        "dp-accounting, pld_privacy_accountant_test, stated guarantees: 3 at 0.28",
        [Event(ApproximateDp(1.0, 0.1)), Event(ApproximateDp(2.0, 0.2))],
        ADD_REMOVE,
        # At 0.28 itself rounding decides whether there is any epsilon.
        0.28 * (1.0 + 1e-9),
        3.0 - 1e-6,
        3.0 + 1e-6,
    ),
    Published(
        "OpenDP, amplification by a sample of 10 of 100 with Laplace noise of loss 2: above 0.494, at most 0.4941",
        [Event(Laplace(1.0), WithoutReplacement(10, 100))],
        REPLACE,
        0.0,
        0.494,
        0.4941,
    ),
    Published(
        "OpenDP, getting started: three counts with Laplace noise of scale 3 spend 1",
        [Event(Laplace(3.0), count=3)],
        ADD_REMOVE,
        0.0,
        1.0 - 1e-9,
        1.0 + 1e-9,
    ),
]


@pytest.mark.parametrize("published", NUMBERS, ids=[each.source.split(":")[0] for each in NUMBERS])
def test_published_epsilons(published: Published) -> None:
    value = epsilon_for_delta(published.events, published.relation, published.delta).value
    assert published.least <= value.upper <= published.most
    assert value.lower <= published.most


def test_the_shuffle_model_costs_less_than_the_bounds_of_its_authors_clones() -> None:
    """Their README has 0.16754 to 0.17279 for clones with probability e^-e; twice as many hide a user better."""
    value = epsilon_for_delta([Event(PureDp(4.0), ShuffleModel(100_000, 4.0, 0.0))], REPLACE, 1e-6).value
    assert value.upper < 0.72 * 0.1675385583317841
    assert value.lower > 0.68 * 0.1675385583317841


@pytest.mark.parametrize(
    ("noise", "probability", "steps", "order", "printed"),
    [
        # TF Privacy's moments, as autodp's tests print them.
        (0.1, 0.01, 1, 2.0, 90.7896596280238),
        (0.25, 0.01, 1, 1.25, 0.1103603174246269),
        (0.25, 0.01, 1, 4.5, 30.079066903729597),
        (0.5, 0.01, 1, 1.25, 0.0018977736416478479),
        (0.5, 0.01, 1, 2.25, 0.0083541177519165),
        (0.5, 0.01, 1, 128.0, 251.35856863144505),
        # dp-accounting, rdp_privacy_accountant_test.
        (2.5, 0.01, 50, 5.0, 2.18075656e-03),
        (2.5, 0.01, 50, 50.0, 2.38460375e-02),
        (2.5, 0.01, 50, 100.0, 1.67416308e02),
    ],
)
def test_published_renyi_divergences(
    noise: float, probability: float, steps: int, order: float, printed: float
) -> None:
    composed = compose([Event(Gaussian(noise), Poisson(probability), steps)], ADD_REMOVE)
    divergence = float(composed.log_moment(np.array([order - 1.0]))[0]) / (order - 1.0)
    assert divergence == pytest.approx(printed, rel=1e-6)


def test_a_published_divergence_that_is_none() -> None:
    """dp-accounting prints 6.70579741e-04 at order 1.5 for what has 6.50071e-04: safe, and three percent too much."""
    composed = compose([Event(Gaussian(2.5), Poisson(0.01), 50)], ADD_REMOVE)
    divergence = float(composed.log_moment(np.array([0.5]))[0]) / 0.5
    truth = float(50 * poisson_moment(2.5, 0.01, 0.5, "remove") / 0.5)
    assert truth <= divergence <= truth * (1.0 + 1e-7)
    assert truth < 0.971 * 6.70579741e-04


@pytest.mark.parametrize(
    ("event", "relation", "delta", "printed"),
    [
        # Kairouz et al. 2021, noise for one epoch of 1600 steps, in dp-accounting's tests.
        (Event(TreeAggregation(1.13, 1600, 0)), SPECIAL, 1e-6, 19.74),
        (Event(TreeAggregation(8.83, 1600, 0)), SPECIAL, 1e-6, 2.04),
        # dp-accounting, rdp_privacy_accountant_test: a divergence of 1.1 at the orders 2 to 32.
        (Event(RenyiDp(tuple(map(float, range(2, 33))), (1.1,) * 31)), ADD_REMOVE, 1e-5, 1.32783806176),
    ],
)
def test_published_bounds_by_moments_are_not_exceeded(
    event: Event, relation: NeighboringRelation, delta: float, printed: float
) -> None:
    assert 0.8 * printed < epsilon_for_delta([event], relation, delta).value.upper <= printed * (1.0 + 1e-9)


def test_published_law_of_discrete_laplace_losses() -> None:
    """dp-accounting, privacy_loss_distribution_test: noise parameter 1, sensitivity 2; by delta between the losses."""
    masses = {2.0: 0.73105858, 0.0: 0.17000340, -2.0: 0.09893802}
    event = Event(DiscreteLaplace(0.5, 0.5))
    for epsilon in (0.0, 0.7, 1.9):
        printed = sum(mass * -math.expm1(epsilon - loss) for loss, mass in masses.items() if loss > epsilon)
        assert delta_for_epsilon([event], ADD_REMOVE, epsilon).value.upper == pytest.approx(printed, abs=1e-8)


def test_the_closed_form_of_shuffled_messages_is_the_theorem_not_the_code() -> None:
    """The code prints 0.5378 where its paper's Theorem 3.1 gives less: it divides by 1 + e^-(e0 + e), not 1 + e^-e0."""
    local, users, delta = 4.0, 100_000, 1e-6
    theorem = closed_form_epsilon(local, users, delta)
    assert theorem is not None
    spread = math.expm1(theorem) / math.tanh(0.5 * local)
    outer = math.log1p(spread)
    printed = math.log1p(-math.expm1(-local) / (1.0 + math.exp(-local - outer)) * spread)
    assert printed == pytest.approx(0.5378040242374512, rel=1e-12)
    assert theorem < printed


def test_a_cut_at_random_is_not_any_cut() -> None:
    """dp-accounting prints 17.904330 for exactly so many records; for any number up to that, less is proved here."""
    cut = {
        "class_name": "TruncatedSubsampledGaussianDpEvent",
        "sampling_probability": 0.5,
        "truncated_batch_size": 2,
        "noise_multiplier": 1.0,
    }
    parts = [
        {"class_name": "SelfComposedDpEvent", "event": {**cut, "dataset_size": 4}, "count": 3},
        {"class_name": "SelfComposedDpEvent", "event": {**cut, "dataset_size": 3}, "count": 2},
    ]
    events = from_dp_event({"class_name": "ComposedDpEvent", "events": parts}, ADD_REMOVE)
    value = epsilon_for_delta(events, ADD_REMOVE, 1e-6).value
    assert value.upper == pytest.approx(17.006869, abs=1e-5)
    # Where the records left out may be any, delta is less than the chance of a cut: nothing finite is proved.
    arbitrary = [replace(event, sampling=replace(event.sampling, truncation="arbitrary")) for event in events]
    assert epsilon_for_delta(arbitrary, ADD_REMOVE, 1e-6).value.upper == math.inf
