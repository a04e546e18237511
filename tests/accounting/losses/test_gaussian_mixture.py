"""Gaussian noise of a random scale: the mixture of pairs, its compositions, and what hides its branch."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountant import delta_for_epsilon, epsilon_for_delta, epsilons_for_deltas
from accounting.composition.composition import Composition, compose
from accounting.errors import InvalidValue, Unsupported
from accounting.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    DisjointBatches,
    Event,
    Gaussian,
    GaussianMixture,
    Laplace,
    Poisson,
    ShuffledEpochs,
    event_from_json,
)
from accounting.groups import group_delta_for_epsilon
from accounting.intervals import Interval
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.rules import loss_of
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.relations import NeighboringRelation
from tests.accounting.references import gaussian_delta, mixture_delta, mixture_epsilon, poisson_moment

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
PAGE = Path(__file__).parents[3] / "docs/concepts/mechanisms.md"
EPSILONS = np.array([-3.0, -0.5, -1e-3, 0.0, 1e-3, 0.7, 3.0, 9.0])


def test_profile_is_the_weighted_sum() -> None:
    loss = loss_of(Event(GaussianMixture((0.3, 0.7), (1.0, 2.5))), NeighboringRelation.REPLACE_ONE)
    profile = loss.excess(np.abs(EPSILONS), remove=True)
    for epsilon, value in zip(np.abs(EPSILONS), profile, strict=True):
        exact = mp.mpf("0.3") * gaussian_delta(2.0, epsilon) + mp.mpf("0.7") * gaussian_delta(0.8, epsilon)
        assert value == pytest.approx(float(exact), rel=1e-12)
    assert loss.excess(EPSILONS, remove=False) == pytest.approx(np.exp(np.minimum(EPSILONS, 0)) * profile, rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "mus"), [((0.3, 0.7), (2.0, 0.8)), ((0.5, 0.5), (1e-4, 2e-4)), ((0.9, 0.1), (9, 40))]
)
def test_moment_is_the_weighted_sum(weights: tuple[float, ...], mus: tuple[float, ...]) -> None:
    loss = VisibleMixtureLoss(weights, tuple(GaussianLoss(mu) for mu in mus))
    tilts = np.array([1e-6, 0.1, 3.0, 40.0])
    for tilt, moment in zip(tilts, loss.log_moment(tilts), strict=True):
        with mp.workdps(40):
            x = mp.mpf(float(tilt))
            moments = [mp.mpf(mu) ** 2 * x * (x + 1) / 2 for mu in mus]
            exact = mp.log1p(mp.fsum(mp.mpf(w) * mp.expm1(m) for w, m in zip(weights, moments, strict=True)))
        assert exact <= moment <= exact * (1 + mp.mpf(10) ** -13)


def test_support_holds_the_profile() -> None:
    loss = VisibleMixtureLoss((1 - 1e-6, 1e-6), (GaussianLoss(0.2), PoissonGaussianLoss(0.5, 0.1)))
    for remove in (True, False):
        support = loss.support(-30.0, remove=remove)
        beyond = float(loss.excess(np.array([support.upper]), remove=remove)[0])
        assert beyond <= support.upper_mass <= math.exp(-30.0) * 1.001


def test_random_scales_that_are_hidden_cost_no_more() -> None:
    """The pair of the same mechanism without its branch, by integration: below."""
    x = np.linspace(-60.0, 61.0, 400_001)
    cell = float(x[1] - x[0])
    for weights, scales in (((0.5, 0.5), (1.0, 4.0)), ((0.99, 0.01), (3.0, 0.3))):
        at_one, at_zero = (
            sum(w * np.exp(-(((x - mean) / s) ** 2) / 2) / s for w, s in zip(weights, scales, strict=True))
            for mean in (1.0, 0.0)
        )
        for epsilon in (0.0, 0.3, 1.0, 2.5):
            hidden = float(np.maximum(at_one - math.exp(epsilon) * at_zero, 0.0).sum()) * cell / math.sqrt(2 * math.pi)
            seen = delta_for_epsilon([Event(GaussianMixture(weights, scales))], ADD_REMOVE, epsilon).value.upper
            assert hidden <= seen * (1 + 1e-6)


@pytest.mark.parametrize(
    ("branches", "steps", "relation"),
    [
        ([(0.9, 6.0), (0.1, 3.0)], 10, ADD_REMOVE),
        pytest.param([(0.5, 20.0), (0.5, 8.0)], 25, REPLACE, marks=pytest.mark.soak),
    ],
)
def test_compositions_are_those_outcome_by_outcome(
    branches: list[tuple[float, float]], steps: int, relation: NeighboringRelation
) -> None:
    weights, scales = zip(*branches, strict=True)
    event = Event(GaussianMixture(weights, scales), count=steps)
    for delta in (1e-3, 1e-9):
        value = epsilon_for_delta([event], relation, delta).value
        exact = float(mixture_epsilon(branches, steps, relation.sensitivity, delta))
        assert value.lower - 1e-12 <= exact <= value.upper + 1e-12
        assert value.width <= 1e-6
        found = delta_for_epsilon([event], relation, exact).value
        assert found.lower * (1 - 1e-9) <= delta <= found.upper * (1 + 1e-9)
    assert [a.value.upper for a in epsilons_for_deltas([event], relation, [1e-3, 1e-4])] == pytest.approx(
        [epsilon_for_delta([event], relation, delta).value.upper for delta in (1e-3, 1e-4)], abs=1e-6
    )


def test_rare_branches_weigh_what_is_said_and_are_paid_for() -> None:
    """A branch as rare as a millionth of delta stays; one far below is left out, and its price is in the interval."""
    loss = VisibleMixtureLoss((0.9, 0.1 - 3e-12, 2e-12, 1e-12), tuple(GaussianLoss(mu) for mu in (0.1, 0.2, 9.0, 30.0)))
    kept, dropped = loss.without_rare_branches(3.1e-12)
    assert kept.losses == loss.losses[:2]
    assert 3e-12 <= dropped <= 3.01e-12
    assert math.fsum(kept.weights) == pytest.approx(1.0, abs=1e-15)
    assert loss.without_rare_branches(0.9e-12) == (loss, 0.0)
    assert loss.without_rare_branches(1.0)[0].losses == loss.losses[:1]
    for weight, steps in ((1e-19, 50), (1e-13, 50)):
        branches = [(1.0 - weight, 30.0), (weight, 0.5)]
        event = Event(GaussianMixture((1.0 - weight, weight), (30.0, 0.5)), count=steps)
        value = delta_for_epsilon([event], ADD_REMOVE, 1.0).value
        exact = float(mixture_delta(branches, steps, 1.0, 1.0))
        assert value.lower * (1 - 1e-9) <= exact <= value.upper * (1 + 1e-9)


def test_a_composition_without_its_rare_branches_is_as_near_as_it_says() -> None:
    weights, mus, epsilon = (0.9, 0.08, 0.02), (0.3, 0.6, 4.0), 0.8
    whole = Composition(((VisibleMixtureLoss(weights, tuple(GaussianLoss(mu) for mu in mus)), 2),))
    pruned = whole.without_rare_branches(0.041)
    assert len(pruned.steps[0][0].losses) == 2  # type: ignore[attr-defined]
    assert 0.04 <= pruned.discrepancy.at(epsilon) <= 0.0401
    assert whole.without_rare_branches(0.039) == whole

    def delta(kept: int) -> float:
        total = math.fsum(weights[:kept])
        chosen = itertools.product(zip(weights[:kept], mus, strict=False), repeat=2)
        return math.fsum(
            w * v / total**2 * float(gaussian_delta(math.hypot(mu, nu), epsilon)) for (w, mu), (v, nu) in chosen
        )

    near = pruned.discrepancy.around(Interval(delta(2), delta(2), delta(2)), epsilon)
    assert near.lower < delta(3) < near.upper
    # Without what it says the bound would be wrong.
    assert delta(3) > delta(2) * 1.5


@pytest.mark.soak
def test_a_rare_branch_of_little_noise_keeps_a_sound_interval() -> None:
    branches = [(1.0 - 1e-8, 30.0), (1e-8, 0.05)]
    value = epsilon_for_delta(
        [Event(GaussianMixture((1.0 - 1e-8, 1e-8), (30.0, 0.05)), count=4)], ADD_REMOVE, 1e-5
    ).value
    assert mixture_delta(branches, 4, 1.0, value.upper) <= 1e-5 <= mixture_delta(branches, 4, 1.0, value.lower)
    assert value.upper < 2.0


def test_sampled_batches_mix_the_sampled_pairs() -> None:
    event = Event(GaussianMixture((0.8, 0.2), (4.0, 2.0)), Poisson(0.02), 200)
    [(loss, count)] = compose([event], ADD_REMOVE).steps
    assert loss == VisibleMixtureLoss((0.8, 0.2), (PoissonGaussianLoss(4.0, 0.02), PoissonGaussianLoss(2.0, 0.02)))
    assert count == 200
    value = epsilon_for_delta([event], ADD_REMOVE, 1e-6).value
    low, high = (
        epsilon_for_delta([Event(Gaussian(s), Poisson(0.02), 200)], ADD_REMOVE, 1e-6).value for s in (4.0, 2.0)
    )
    assert low.upper < value.lower <= value.upper < high.lower
    assert value.width <= 1e-6
    mixed = mp.log(sum(w * mp.exp(poisson_moment(s, 0.02, 3.0, "remove")) for w, s in ((0.8, 4.0), (0.2, 2.0))))
    assert loss.log_moment(np.array([3.0]))[0] == pytest.approx(float(mixed), rel=1e-8)


def test_branches_alike_are_the_gaussian_itself() -> None:
    for mechanism in (GaussianMixture((1,), (4,)), GaussianMixture((0.5, 0.5), (4.0, 4.0))):
        assert compose([Event(mechanism, count=7)], REPLACE) == compose([Event(Gaussian(4.0), count=7)], REPLACE)


@settings(max_examples=8, deadline=None)
@given(st.floats(0.01, 0.99), st.floats(1.0, 20.0), st.floats(1.0, 20.0), st.integers(1, 50))
def test_monotone_in_noise_and_count(weight: float, noise: float, other: float, steps: int) -> None:
    def epsilon(scale: float, count: int) -> float:
        mechanism = GaussianMixture((weight, 1.0 - weight), (scale, other))
        return epsilon_for_delta([Event(mechanism, count=count)], ADD_REMOVE, 1e-5).value.upper

    assert epsilon(noise, steps) <= epsilon(noise * 0.9, steps) + 1e-6
    assert epsilon(noise, steps) <= epsilon(noise, steps + 3) + 1e-6


def test_what_it_is_written_as_and_what_is_refused() -> None:
    event = Event(GaussianMixture((np.float64(0.25), 0.75), (1, np.int64(3))), count=3)
    assert event == Event(GaussianMixture((0.25, 0.75), (1.0, 3.0)), count=3) == event_from_json(event.to_json())
    for weights, scales, pointer in (
        ((0.5, 0.6), (1.0, 2.0), ("weights",)),
        ((1.0, 0.0), (1.0, 2.0), ("weights", 1)),
        ((), (), ("weights",)),
        ((0.5, 0.5), (1.0,), ("noise_multipliers",)),
        ((0.5, 0.5), (1.0, 0.0), ("noise_multipliers", 1)),
    ):
        with pytest.raises(InvalidValue) as caught:
            GaussianMixture(weights, scales)
        assert caught.value.pointer == pointer
    with pytest.raises(Unsupported, match="is not accounted under add_or_remove_one"):
        compose(
            [event_from_json({**event.to_json(), "sampling": {"kind": "shuffled_epochs", "steps_per_epoch": 3}})],
            ADD_REMOVE,
        )


def test_worked_number_of_the_page() -> None:
    event = Event(GaussianMixture((0.9, 0.1), (20.0, 10.0)), count=100)
    value = epsilon_for_delta([event], ADD_REMOVE, 1e-6).value
    assert f"{value.upper:.6f}" == "2.638691"
    assert "epsilon = 2.638691" in PAGE.read_text()


# Records in different batches.

#: A tenth of all steps tell what they hide.
TELLING = GaussianMixture((0.9, 0.1), (10.0, 0.01))


def _two_steps(mechanism: GaussianMixture, epsilon: float) -> float:
    """Delta of two steps that are moved by one contribution each, their scales drawn by themselves and seen."""
    branches = list(zip(mechanism.weights, mechanism.noise_multipliers, strict=True))
    pairs = itertools.product(branches, repeat=2)
    return float(sum(w * v * gaussian_delta(math.hypot(1 / s, 1 / t), epsilon) for (w, s), (v, t) in pairs))


def test_a_record_that_lands_in_another_batch_is_refused_because_two_draws_tell_more_than_one() -> None:
    independent, by_position = (Event(TELLING, DisjointBatches(how), 5) for how in ("independent", "by_position"))
    charged = delta_for_epsilon([by_position], REPLACE, 3.0).value
    assert charged.upper < 0.1001
    assert _two_steps(TELLING, 3.0) > 0.1899
    with pytest.raises(Unsupported, match="two steps of this mechanism") as caught:
        delta_for_epsilon([independent], REPLACE, 3.0)
    assert caught.value.pointer == (0, "sampling", "assignment")
    assert "by_position, or add_or_remove_one or replace_special" in caught.value.detail
    for relation in (ADD_REMOVE, NeighboringRelation.REPLACE_SPECIAL):
        assert delta_for_epsilon([independent], relation, 3.0).value.upper < 0.1001


@pytest.mark.parametrize(
    "sampling", [ShuffledEpochs(5), DisjointBatches("by_position"), DisjointBatches("independent")]
)
def test_a_group_may_be_in_several_batches_each_with_a_draw_of_its_own(sampling: ShuffledEpochs) -> None:
    relation = NeighboringRelation.REPLACE_SPECIAL
    apart = group_delta_for_epsilon([Event(TELLING, sampling, 5)], relation, 3.0, 2).value
    assert apart.upper >= _two_steps(TELLING, 3.0)
    # All of a group are in the same full batch.
    assert group_delta_for_epsilon([Event(TELLING)], relation, 3.0, 2).value.upper < 0.1001


@pytest.mark.parametrize("deviation", [0.2, 0.5, 1.0, 2.5])
@pytest.mark.parametrize("kind", [DiscreteGaussian, DiscreteLaplace])
def test_parts_of_noise_on_a_grid_cost_less_than_the_whole(kind: type, deviation: float) -> None:
    """By enumeration of both steps: no epsilon has a larger delta than one step that is moved by the sum."""
    assert kind.parts_cost_less
    assert Gaussian.parts_cost_less
    assert Laplace.parts_cost_less
    assert not GaussianMixture.parts_cost_less
    y = np.arange(-60, 61)
    law = np.exp(-((y / deviation) ** 2) / 2) if kind is DiscreteGaussian else np.exp(-abs(y) / deviation)
    law /= law.sum()
    for step in (1, 2, 3):
        moved, farther = (np.interp(y - step * k, y, law, left=0.0, right=0.0) for k in (1, 2))
        for epsilon in np.linspace(0.0, 12.0, 49):
            both = np.maximum(np.outer(law, law) - np.exp(epsilon) * np.outer(moved, moved), 0.0).sum()
            whole = np.maximum(law - np.exp(epsilon) * farther, 0.0).sum()
            assert both <= whole * (1 + 1e-9) + 1e-13
