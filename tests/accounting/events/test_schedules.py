"""Which schemes are accounted under which relation, and what a fixed schedule costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.composition.composition import compose
from accounting.errors import Unsupported
from accounting.events import (
    ApproximateDp,
    DisjointBatches,
    Event,
    FullBatch,
    Gaussian,
    Laplace,
    Mechanism,
    Poisson,
    PureDp,
    RenyiDp,
    Sampling,
    ShuffledEpochs,
    WithoutReplacement,
    ZcDp,
)
from accounting.events.schedules import resolve_schedules
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.laplace import LaplaceLoss
from accounting.losses.poisson import PoissonGaussianLoss, PoissonReplaceLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss, PoissonLaplaceReplaceLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import loss_of
from accounting.losses.without_replacement import NullRecordLoss, SymmetrizedLoss
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
POSITION, INDEPENDENT = DisjointBatches("by_position"), DisjointBatches("independent")
FIXED, SHUFFLED = WithoutReplacement(1, 50), ShuffledEpochs(10)
FIXED_GAUSSIAN = SymmetrizedLoss(PoissonGaussianLoss(2.0, 0.02), FIXED)
FIXED_NULL = NullRecordLoss.of(4.0, FIXED)
FIXED_LAPLACE = SymmetrizedLoss(PoissonLaplaceLoss(0.5, 0.02), FIXED)

#: 25 steps of noise multiplier 4: the losses of one step and how many of them, or None where it is refused.
TABLE: list[tuple[Sampling, NeighboringRelation, tuple[PrivacyLoss, int] | None, tuple[PrivacyLoss, int] | None]] = [
    (FullBatch(), ADD_REMOVE, (GaussianLoss(5 / 4), 1), (LaplaceLoss(0.25), 25)),
    (FullBatch(), SPECIAL, (GaussianLoss(5 / 4), 1), (LaplaceLoss(0.25), 25)),
    (FullBatch(), REPLACE, (GaussianLoss(5 / 2), 1), (LaplaceLoss(0.5), 25)),
    (Poisson(0.02), ADD_REMOVE, (PoissonGaussianLoss(4.0, 0.02), 25), (PoissonLaplaceLoss(0.25, 0.02), 25)),
    (Poisson(0.02), SPECIAL, (PoissonGaussianLoss(4.0, 0.02), 25), (PoissonLaplaceLoss(0.25, 0.02), 25)),
    (Poisson(0.02), REPLACE, (PoissonReplaceLoss(4.0, 0.02), 25), (PoissonLaplaceReplaceLoss(0.25, 0.02), 25)),
    (FIXED, ADD_REMOVE, None, None),
    (FIXED, SPECIAL, (FIXED_NULL, 25), (FIXED_LAPLACE, 25)),
    (FIXED, REPLACE, (FIXED_GAUSSIAN, 25), (FIXED_LAPLACE, 25)),
    (SHUFFLED, ADD_REMOVE, None, None),
    (SHUFFLED, SPECIAL, (GaussianLoss(math.sqrt(3) / 4), 1), (LaplaceLoss(0.25), 3)),
    (SHUFFLED, REPLACE, (GaussianLoss(math.sqrt(3) / 2), 1), (LaplaceLoss(0.5), 3)),
    (POSITION, ADD_REMOVE, None, None),
    (POSITION, SPECIAL, (GaussianLoss(1 / 4), 1), (LaplaceLoss(0.25), 1)),
    (POSITION, REPLACE, (GaussianLoss(2 / 4), 1), (LaplaceLoss(0.5), 1)),
    (INDEPENDENT, ADD_REMOVE, (GaussianLoss(1 / 4), 1), (LaplaceLoss(0.25), 1)),
    (INDEPENDENT, SPECIAL, (GaussianLoss(1 / 4), 1), (LaplaceLoss(0.25), 1)),
    (INDEPENDENT, REPLACE, (GaussianLoss(2 / 4), 1), (LaplaceLoss(0.5), 1)),
]
STATED: list[Mechanism] = [PureDp(0.1), ApproximateDp(0.1, 1e-6), ZcDp(0.1), RenyiDp((2.0,), (0.1,))]


@pytest.mark.parametrize(("sampling", "relation", "gaussian", "laplace"), TABLE)
def test_every_cell_of_the_table(
    sampling: Sampling,
    relation: NeighboringRelation,
    gaussian: tuple[PrivacyLoss, int] | None,
    laplace: tuple[PrivacyLoss, int] | None,
) -> None:
    assert (relation in sampling.relations) == (gaussian is not None)
    for mechanism, expected in ((Gaussian(4.0), gaussian), (Laplace(4.0), laplace)):
        event = Event(mechanism, sampling, 25)
        if expected is not None:
            [(loss, count)] = compose([event], relation).steps
            assert count == expected[1]
            if isinstance(loss, GaussianLoss) and isinstance(expected[0], GaussianLoss):
                assert loss.mu == pytest.approx(expected[0].mu, rel=1e-15)
            else:
                assert loss == expected[0]
            continue
        with pytest.raises(Unsupported) as caught:
            compose([Event(Gaussian(1.0)), event], relation)
        assert caught.value.code == "unsupported_relation"
        assert caught.value.pointer == (1, "sampling", "kind")
        # Why, and what works.
        assert "comes or goes" in caught.value.detail
        for named in ("replace_special", "replace_one", "poisson"):
            assert named in caught.value.detail
        with pytest.raises(Unsupported):
            loss_of(event, relation)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_stated_guarantees_are_taken_as_stated_on_full_batches_alone(relation: NeighboringRelation) -> None:
    for mechanism in STATED:
        assert compose([Event(mechanism)], relation) == compose([Event(mechanism)], ADD_REMOVE)
        for sampling in (Poisson(0.02), FIXED, SHUFFLED, POSITION, INDEPENDENT):
            with pytest.raises(Unsupported, match="no amplification") as caught:
                Event(mechanism, sampling)
            assert "full_batch" in caught.value.detail


def test_schedules_never_merge() -> None:
    """Two events of half an epoch each: a record may take part in both."""
    half = Event(Gaussian(2.0), ShuffledEpochs(10), 5)
    assert compose([half, half], SPECIAL).steps == ((GaussianLoss(math.sqrt(0.5)), 1),)
    assert compose([Event(Gaussian(2.0), ShuffledEpochs(10), 10)], SPECIAL).steps == ((GaussianLoss(0.5), 1),)
    once = Event(Laplace(2.0), INDEPENDENT, 7)
    assert compose([once, once, once], ADD_REMOVE).steps == ((LaplaceLoss(0.5), 3),)


def test_participations_are_rounded_up() -> None:
    for steps, count, participations in [(10, 1, 1), (10, 10, 1), (10, 11, 2), (3, 10**8, 33_333_334), (1, 7, 7)]:
        [event] = resolve_schedules([Event(Gaussian(1.0), ShuffledEpochs(steps), count)], SPECIAL)
        assert event == Event(Gaussian(1.0), FullBatch(), participations)


def test_sampling_everything_is_a_full_batch() -> None:
    for sampling in (Poisson(1.0), WithoutReplacement(7, 7)):
        event = Event(Gaussian(3.0), sampling, 4)
        assert not event.sampling.is_amplified
        assert resolve_schedules([event], SPECIAL) == (Event(Gaussian(3.0), FullBatch(), 4),)
        assert compose([event], REPLACE) == compose([Event(Gaussian(3.0), count=4)], REPLACE)
    with pytest.raises(Unsupported):
        compose([Event(Gaussian(3.0), WithoutReplacement(7, 7))], ADD_REMOVE)
    assert FIXED.is_amplified
    assert not SHUFFLED.is_amplified


def test_shuffling_costs_what_fixed_batches_cost_and_not_what_poisson_would() -> None:
    shuffled = epsilon_for_delta([Event(Gaussian(0.5), ShuffledEpochs(10_000), 10_000)], SPECIAL, 1e-6).value
    assert shuffled.upper == pytest.approx(10.9971512, abs=1e-6)
    assert shuffled.lower >= 10.99
    poisson = epsilon_for_delta([Event(Gaussian(0.5), Poisson(1e-4), 10_000)], SPECIAL, 1e-6).value
    assert poisson.upper == pytest.approx(1.95, abs=0.01)


def test_why_shuffled_epochs_are_refused_when_a_record_comes_or_goes() -> None:
    """One epoch of 10 batches, s = 0.5. All gradients are +1 but one, which is -1 and goes.

    With it, its own batch (uniformly drawn) has a sum smaller by 2. Without it every later batch is filled from the
    next one, so all sums are equal but the last, which is one short. An analyst who knows the rest sees mean -2 in a
    random batch against mean -1 in the last.
    """
    s, batches, samples, epsilon = 0.5, 10, 400_000, 10.997
    claimed = epsilon_for_delta([Event(Gaussian(s))], ADD_REMOVE, 1e-6).value
    assert claimed.upper == pytest.approx(epsilon, abs=1e-3)
    draw = np.random.default_rng(5)
    sums = s * draw.standard_normal((samples, batches))
    sums[np.arange(samples), draw.integers(0, batches, samples)] -= 2.0

    def log_likelihood_ratio(x: np.ndarray) -> np.ndarray:
        moved = np.logaddexp.reduce((-2.0 * x - 2.0) / s**2, axis=1) - np.log(batches)
        return np.asarray(moved - (-x[:, -1] - 0.5) / s**2)

    delta = float(np.mean(np.maximum(-np.expm1(epsilon - log_likelihood_ratio(sums)), 0.0)))
    assert delta == pytest.approx(0.16, abs=0.01)
