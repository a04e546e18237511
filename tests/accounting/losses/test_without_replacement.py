from __future__ import annotations

import itertools
import random

import mpmath as mp
import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import compose
from accounting.events import Event, Gaussian, Laplace, Poisson, WithoutReplacement
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss
from accounting.losses.without_replacement import SymmetrizedLoss
from accounting.relations import NeighboringRelation
from tests.accounting.losses import sampled_references as references

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL


def loss_of_one(mechanism: Gaussian | Laplace, batch: int, size: int) -> SymmetrizedLoss:
    (loss, _), *rest = compose([Event(mechanism, WithoutReplacement(batch, size))], REPLACE).steps
    assert not rest
    assert isinstance(loss, SymmetrizedLoss)
    return loss


def test_sensitivity_is_two_where_a_record_is_replaced() -> None:
    gaussian, laplace = loss_of_one(Gaussian(3.0), 1, 50), loss_of_one(Laplace(4.0), 1, 50)
    assert gaussian.pair == PoissonGaussianLoss(1.5, 0.02)
    assert laplace.pair == PoissonLaplaceLoss(0.5, 0.02)
    # Nothing closer is proved here for Laplace noise.
    event = Event(Laplace(4.0), WithoutReplacement(1, 50))
    assert compose([event], REPLACE) == compose([event], SPECIAL)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize(("scale", "batch", "size"), [(2.0, 1, 4), (6.0, 3, 100), (0.9, 1, 1000)])
def test_excess_is_the_integral_of_the_densities_for_both_signs(
    noise: str, scale: float, batch: int, size: int
) -> None:
    """For eps >= 0 the sampled law against the other, for eps < 0 the other way round."""
    q = batch / size
    if noise == "gaussian":
        near, far = references.gaussian(0.0, scale / 2), references.gaussian(1.0, scale / 2)
        loss, width = loss_of_one(Gaussian(scale), batch, size), 3 + 16 * scale / 2
    else:
        near, far = references.laplace(0.0, 2 / scale), references.laplace(1.0, 2 / scale)
        loss, width = loss_of_one(Laplace(scale), batch, size), 3 + 80 * scale / 2
    mixed = references.mixture(q, far, near)
    for epsilon in (-1.3, -0.2, 0.0, 0.4, 2.0):
        with mp.workdps(25):
            p, other = (mixed, near) if epsilon >= 0 else (near, mixed)
            stick = references.hockey_stick(p, other, epsilon, [0.0, 0.5, 1.0], width)
            exact = stick - max(mp.mpf(0), 1 - mp.exp(mp.mpf(epsilon)))
        value = float(loss.excess(np.array([epsilon]))[0])
        assert value == pytest.approx(float(exact), rel=1e-11, abs=1e-17)


@pytest.mark.parametrize("mechanism", [Gaussian(2.0), Gaussian(1.1), Laplace(3.0)])
def test_moment_belongs_to_the_profile(mechanism: Gaussian | Laplace) -> None:
    """M(x) = 1 + x (x+1) int over eps > 0 of (e^(x eps) + e^(-(x+1) eps)) delta(eps), by quadrature of the profile."""
    loss = loss_of_one(mechanism, 1, 20)
    for tilt in (0.3, 2.0, 7.0):
        end = min(loss.pure_epsilon, 60.0)
        nodes, weights = np.polynomial.legendre.leggauss(60)
        total = 0.0
        for low, high in itertools.pairwise(np.linspace(0.0, end, 121)):
            epsilons = 0.5 * (low + high) + 0.5 * (high - low) * nodes
            kernel = np.exp(tilt * epsilons) + np.exp(-(tilt + 1) * epsilons)
            total += 0.5 * (high - low) * float(weights @ (kernel * loss.excess(epsilons)))
        exact = np.log1p(tilt * (tilt + 1) * total)
        value = float(loss.log_moment(np.array([tilt]))[0])
        assert exact * (1 - 1e-10) <= value
        assert value == pytest.approx(exact, rel=3e-9)


def test_no_pair_of_small_data_sets_is_above_the_pair() -> None:
    """Four records, batches of two, gradients on a grid: every hockey stick of both directions, both signs of eps."""
    s, size, batch = 1.5, 4, 2
    loss = loss_of_one(Gaussian(s), batch, size)
    x = np.linspace(-14.0, 14.0, 4001)
    cell = float(x[1] - x[0])

    def output(records: tuple[float, ...]) -> np.ndarray:
        sums = [sum(chosen) for chosen in itertools.combinations(records, batch)]
        laws = [np.exp(-((x - total) ** 2) / (2 * s * s)) / (s * np.sqrt(2 * np.pi)) for total in sums]
        return np.asarray(np.mean(laws, axis=0))

    epsilons = (-0.8, -0.2, 0.0, 0.3, 1.0)
    worst = dict.fromkeys(epsilons, 0.0)
    for others in itertools.combinations_with_replacement((-1.0, -0.3, 0.5, 1.0), size - 1):
        for mine, theirs in [(1.0, -1.0), (-1.0, 1.0), (1.0, 0.0), (0.4, -1.0)]:
            p, other = output((*others, mine)), output((*others, theirs))
            for epsilon in epsilons:
                stick = float(np.maximum(p - np.exp(epsilon) * other, 0.0).sum()) * cell
                worst[epsilon] = max(worst[epsilon], stick - max(0.0, 1.0 - float(np.exp(epsilon))))
    for epsilon in epsilons:
        bound = float(loss.excess(np.array([epsilon]))[0])
        assert worst[epsilon] <= bound + 1e-6
        # Attained at one step: all other records alike, this one the opposite.
        assert worst[epsilon] == pytest.approx(bound, abs=1e-5)


@pytest.mark.parametrize(
    ("noise", "batch", "size", "count", "certified", "attained"),
    [(8.0, 1024, 50_000, 10_000, 2.298, 2.0924), (5.0, 10, 1000, 50, 0.1068, 0.099457)],
)
def test_one_direction_alone_is_only_attained_once_steps_compose(
    noise: float, batch: int, size: int, count: int, certified: float, attained: float
) -> None:
    """All other records alike: their sum shifts by 2 when the record is drawn. Certified is above what this costs."""
    ours = epsilon_for_delta([Event(Gaussian(noise), WithoutReplacement(batch, size), count)], REPLACE, 1e-5).value
    single = epsilon_for_delta([Event(Gaussian(noise / 2), Poisson(batch / size), count)], ADD_REMOVE, 1e-5).value
    assert single.upper == pytest.approx(attained, rel=1e-4)
    assert single.upper < ours.lower
    assert ours.upper <= certified
    # The sensitivity of a removed record would be below what is attained.
    wrong = epsilon_for_delta([Event(Gaussian(noise), Poisson(batch / size), count)], ADD_REMOVE, 1e-5).value
    assert wrong.upper < attained


def test_one_step_costs_what_is_attained() -> None:
    event = Event(Gaussian(2.0), WithoutReplacement(3, 30))
    ours = delta_for_epsilon([event], REPLACE, 0.4).value
    single = delta_for_epsilon([Event(Gaussian(1.0), Poisson(0.1))], ADD_REMOVE, 0.4).value
    assert ours.upper == pytest.approx(single.upper, rel=1e-11)


def test_random_batches_are_between_one_direction_and_full_batches() -> None:
    draw = random.Random(11)
    for _ in range(4):
        size = draw.randrange(20, 5000)
        batch = draw.randrange(1, size // 4)
        noise, count, delta = 10 ** draw.uniform(-0.1, 1.0), draw.randrange(2, 300), 10 ** draw.uniform(-9, -2)
        ours = epsilon_for_delta([Event(Gaussian(noise), WithoutReplacement(batch, size), count)], REPLACE, delta).value
        single = epsilon_for_delta([Event(Gaussian(noise / 2), Poisson(batch / size), count)], ADD_REMOVE, delta).value
        full = epsilon_for_delta([Event(Gaussian(noise), count=count)], REPLACE, delta).value
        assert single.lower <= ours.upper <= full.upper * (1 + 1e-12)
        assert ours.lower <= ours.estimate <= ours.upper


def test_a_null_record_in_a_batch_of_a_fixed_size_costs_more_than_poisson_says() -> None:
    """q = .02, s = 1, eps = 1: record +1 among records -1 becomes null, so that its batch moves from +2 to +1."""
    s, q, epsilon = 1.0, 0.02, 1.0
    with mp.workdps(25):
        common = references.gaussian(0.0, s)
        before = references.mixture(q, references.gaussian(2.0, s), common)
        after = references.mixture(q, references.gaussian(1.0, s), common)
        attained = float(references.hockey_stick(before, after, epsilon, [0.0, 1.0, 2.0], 20.0))
    assert attained == pytest.approx(6.1e-4, rel=0.02)
    poisson = delta_for_epsilon([Event(Gaussian(s), Poisson(q))], SPECIAL, epsilon).value.upper
    assert poisson == pytest.approx(1.4e-7, rel=0.05)
    charged = delta_for_epsilon([Event(Gaussian(s), WithoutReplacement(20, 1000))], SPECIAL, epsilon).value.upper
    assert attained <= charged


def test_profile_is_below_the_full_batch() -> None:
    epsilons = np.linspace(-3, 6, 91)
    loss = loss_of_one(Gaussian(2.0), 1, 10)
    assert np.all(loss.excess(epsilons) <= GaussianLoss(1.0).excess(epsilons))
    support = loss.support(-40.0)
    assert float(loss.excess(np.array([support.upper]))[0]) <= support.upper_mass
    assert support.lower == -support.upper
