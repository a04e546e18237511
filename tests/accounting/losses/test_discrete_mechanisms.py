"""Randomised response, discrete Laplace and discrete Gaussian noise against their laws, outcome by outcome."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import privacy_accountant
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition import exact_lattice
from accounting.composition.composition import compose
from accounting.composition.exact_lattice import ExactLattice
from accounting.composition.fourier import FourierInversion
from accounting.errors import InvalidValue, Unsupported
from accounting.events import DiscreteGaussian, DiscreteLaplace, Event, Gaussian, RandomizedResponse, event_from_json
from accounting.losses.concentration import smallest_rho
from accounting.losses.discrete_gaussian import MOST_ENUMERATED
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import loss_of
from accounting.relations import NeighboringRelation
from tests.accounting.losses import discrete_laws

PAGE = Path(__file__).parents[3] / "docs/concepts/mechanisms.md"
ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
Laws = tuple[discrete_laws.Law, discrete_laws.Law]

CASES: list[tuple[Event, NeighboringRelation, Callable[[], Laws]]] = [
    (Event(RandomizedResponse(2, 0.3)), REPLACE, lambda: discrete_laws.randomized_response(2, 0.3, False)),
    (Event(RandomizedResponse(10, 0.9)), REPLACE, lambda: discrete_laws.randomized_response(10, 0.9, False)),
    (Event(RandomizedResponse(10, 0.9)), SPECIAL, lambda: discrete_laws.randomized_response(10, 0.9, True)),
    (Event(RandomizedResponse(10**6, 0.999)), REPLACE, lambda: discrete_laws.randomized_response(10**6, 0.999, False)),
    (Event(RandomizedResponse(5, 1 - 1e-6)), SPECIAL, lambda: discrete_laws.randomized_response(5, 1 - 1e-6, True)),
    (Event(DiscreteLaplace(2.0, 1.0)), ADD_REMOVE, lambda: discrete_laws.discrete_laplace(0.5, 1)),
    (Event(DiscreteLaplace(0.5, 0.25)), REPLACE, lambda: discrete_laws.discrete_laplace(0.5, 8)),
    (Event(DiscreteLaplace(1e3, 0.125)), REPLACE, lambda: discrete_laws.discrete_laplace(1.25e-4, 16)),
    (Event(DiscreteGaussian(0.75, 1.0)), ADD_REMOVE, lambda: discrete_laws.discrete_gaussian(0.75, 1)),
    (Event(DiscreteGaussian(1.5, 0.5)), REPLACE, lambda: discrete_laws.discrete_gaussian(3.0, 4)),
    (Event(DiscreteGaussian(20.0, 1.0)), SPECIAL, lambda: discrete_laws.discrete_gaussian(20.0, 1)),
    # Here the null record's direction is the worse one.
    (Event(RandomizedResponse(3, 0.1)), SPECIAL, lambda: discrete_laws.randomized_response(3, 0.1, True)),
]
NAMES = [f"{event.mechanism}, {relation}" for event, relation, _ in CASES]
each_case = pytest.mark.parametrize(("event", "relation", "laws"), CASES, ids=NAMES)


@each_case
def test_profile_is_exact(event: Event, relation: NeighboringRelation, laws: Callable[[], Laws]) -> None:
    """Both directions, either sign of epsilon."""
    loss, (first, second) = loss_of(event, relation), laws()
    for remove, p, q in ((True, first, second), (False, second, first)):
        for epsilon in (-2.0, -0.3, 0.0, 1e-7, 0.2, 1.7):
            exact = discrete_laws.excess(p, q, epsilon)
            found = float(loss.excess(np.array([epsilon]), remove=remove)[0])
            assert abs(found - exact) <= 1e-12 * abs(exact) + 1e-38, (epsilon, remove)


@pytest.mark.parametrize("share", [1e-15, 1e-12, 1e-6])
@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_near_an_atom_of_sparse_noise_the_truth_is_still_inside(noise: float, share: float) -> None:
    """Between two losses the profile falls by many powers of ten, so that it is decided by the last digits of one."""
    for y in (0, 1, 2):
        with mp.workdps(50):
            s = mp.mpf(noise)
            epsilon = float((y + mp.mpf(0.5)) / s**2 * (1 - share))
            masses = {each: mp.exp(-((mp.mpf(each) / s) ** 2) / 2) for each in range(-20, 21)}
            gains = [mass * -mp.expm1(epsilon - (each + 0.5) / s**2) for each, mass in masses.items()]
            exact = mp.fsum(gain for gain in gains if gain > 0) / mp.fsum(masses.values())
            value = delta_for_epsilon([Event(DiscreteGaussian(noise, 1.0))], ADD_REMOVE, epsilon).value
            assert value.lower <= exact <= value.upper <= exact * (1 + 1e-14 / share)


@pytest.mark.parametrize(("k", "p"), [(3, 1 - 2.0**-53), (10**9, 1 - 2.0**-50), (2, 1 - 2.0**-52)])
def test_the_largest_loss_of_answers_that_are_nearly_noise_is_rounded_up(k: int, p: float) -> None:
    with mp.workdps(50):
        largest = mp.log1p(k * (1 - mp.mpf(p)) / p)
        for count in (1, 7):
            event = Event(RandomizedResponse(k, p), count=count)
            value = epsilon_for_delta([event], REPLACE, 0.0).value
            assert value.lower <= count * largest <= value.upper
            assert delta_for_epsilon([event], REPLACE, float(count * largest * (1 - 1e-15))).value.upper > 0.0


@pytest.mark.parametrize(("count", "epsilon", "exact"), [(3, 1450.0, 1 / 8), (7, 3384.0, 29 / 128)])
def test_an_enumeration_allows_for_masses_that_are_differences(count: int, epsilon: float, exact: float) -> None:
    """Against the null record both answers of two are equally likely; each mass is computed from a long logarithm."""
    event = Event(RandomizedResponse(2, 1e-300), count=count)
    value = delta_for_epsilon([event], SPECIAL, epsilon).value
    assert value.lower <= exact <= value.upper <= exact * (1.0 + 1e-11)


@each_case
def test_moment_is_exact_and_rounded_up(event: Event, relation: NeighboringRelation, laws: Callable[[], Laws]) -> None:
    loss, (first, second) = loss_of(event, relation), laws()
    for tilt in (1e-7, 0.3, 1.0, 2.0, 30.0):
        exact, found = discrete_laws.log_moment(first, second, tilt), float(loss.log_moment(np.array([tilt]))[0])
        assert exact * (1 - mp.mpf("1e-20")) <= found
        # Canonne, Kamath & Steinke's bound of the discrete Gaussian is attained at integer tilts.
        if not isinstance(event.mechanism, DiscreteGaussian) or (tilt == 1.0 and not math.isinf(found)):
            assert found <= exact * (1 + mp.mpf("3e-12"))


@pytest.mark.parametrize(("event", "relation", "laws"), CASES[1:8], ids=NAMES[1:8])
@pytest.mark.one_in(4)
def test_zcdp_rho_bounds_the_moments_and_is_attained(
    event: Event, relation: NeighboringRelation, laws: Callable[[], Laws]
) -> None:
    loss, (first, second) = loss_of(event, relation), laws()
    least, rho = smallest_rho(loss.log_moment, loss.pure_epsilon)
    assert least <= rho <= least * (1 + 2e-6)
    ratios = [
        discrete_laws.log_moment(first, second, tilt) / (mp.mpf(tilt) * (tilt + 1))
        for tilt in np.geomspace(1e-4, 1e7, 250).tolist()
    ]
    assert max(ratios) <= rho <= max(ratios) * (1 + 4e-3)


@pytest.mark.parametrize(
    ("event", "relation", "laws", "count", "epsilon"),
    [
        (*CASES[1], 6, 1.3),
        (*CASES[2], 9, 0.8),
        (*CASES[5], 12, 2.0),
        (*CASES[6], 3, 5.0),
        (*CASES[8], 3, 4.0),
    ],
    ids=[NAMES[case] for case in (1, 2, 5, 6, 8)],
)
def test_compositions_are_sums_over_outcomes(
    event: Event, relation: NeighboringRelation, laws: Callable[[], Laws], count: int, epsilon: float
) -> None:
    """interval_contains_truth, exact_on_the_lattice; contour integrals of the same agree."""
    first, second = discrete_laws.composed(*laws(), count)
    truth = max(discrete_laws.hockey_stick(*pair, epsilon) for pair in ((first, second), (second, first)))
    repeated = Event(event.mechanism, event.sampling, count)
    composition = compose([repeated], relation)
    exact = ExactLattice().delta(composition, epsilon)
    contour = FourierInversion().delta(composition, epsilon)
    assert exact is not None
    assert contour is not None
    for bounds in (exact, contour):
        assert mp.mpf(bounds.lower) <= truth <= mp.mpf(bounds.upper)
    assert exact.width <= 1e-10 * truth
    answer = epsilon_for_delta([repeated], relation, float(truth)).value
    assert answer.lower * (1 - 1e-9) <= epsilon <= answer.upper * (1 + 1e-9)
    assert answer.width <= 1e-6


@pytest.mark.parametrize("case", [1, 2, 5])
def test_the_transform_agrees_with_the_enumeration(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """interval_contains_truth, where there are too many outcomes to enumerate."""
    event, relation, _ = CASES[case]
    composition = compose([Event(event.mechanism, count=60)], relation)
    enumerated = ExactLattice().epsilon(composition, 1e-7)
    assert enumerated is not None
    monkeypatch.setattr(exact_lattice, "MAX_ENUMERATED", 0)
    transformed = ExactLattice().epsilon(composition, 1e-7)
    at_epsilon = ExactLattice().delta(composition, enumerated.estimate)
    assert transformed is not None
    assert at_epsilon is not None
    assert transformed.lower <= enumerated.upper
    assert enumerated.lower <= transformed.upper
    assert transformed.width <= 1e-8
    assert at_epsilon.lower <= 1e-7 * (1 + 1e-9)
    assert 1e-7 * (1 - 1e-9) <= at_epsilon.upper <= 1.0001e-7


def library_distribution(event: Event, relation: NeighboringRelation, interval: float) -> object:
    mechanism, factory = event.mechanism, privacy_loss_distribution
    if isinstance(mechanism, RandomizedResponse):
        neighbours = privacy_accountant.NeighboringRelation[relation.name]
        one = factory.from_randomized_response(
            mechanism.flip_probability,
            mechanism.num_categories,
            value_discretization_interval=interval,
            neighboring_relation=neighbours,
        )
    else:
        assert isinstance(mechanism, DiscreteLaplace | DiscreteGaussian)
        shift = round(relation.sensitivity / mechanism.grid)
        scale = mechanism.noise_multiplier / mechanism.grid
        make = factory.from_discrete_gaussian_mechanism
        if isinstance(mechanism, DiscreteLaplace):
            scale, make = 1.0 / scale, factory.from_discrete_laplace_mechanism
        one = make(scale, shift, value_discretization_interval=interval)
    return one.self_compose(event.count)


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (Event(RandomizedResponse(10, 0.9), count=100), REPLACE),
        (Event(RandomizedResponse(10, 0.9), count=100), SPECIAL),
        (Event(DiscreteLaplace(2.0, 0.1), count=30), REPLACE),
        (Event(DiscreteGaussian(2.0, 1.0), count=30), ADD_REMOVE),
        (Event(DiscreteGaussian(4.0, 0.5), count=10), REPLACE),
    ],
    ids=str,
)
def test_dp_accounting_agrees(event: Event, relation: NeighboringRelation) -> None:
    """Its pessimistic distribution is above the truth, by its lattice at most."""
    referee = library_distribution(event, relation, 1e-3).get_epsilon_for_delta(1e-6)  # type: ignore[attr-defined]
    value = epsilon_for_delta([event], relation, 1e-6).value
    assert value.lower <= referee * (1 + 1e-9)
    assert referee <= value.upper * 1.005
    assert value.width <= 1e-8


@pytest.mark.soak
def test_steps_of_fine_noise_are_one_step() -> None:
    """The sum of two discrete Gaussians is compared with the enumerated sum, for noise of three grid steps and more."""
    first, second = discrete_laws.composed(*discrete_laws.discrete_gaussian(3.0, 2), 2)
    for epsilon in (0.1, 1.5, 4.0):
        truth = discrete_laws.hockey_stick(first, second, epsilon)
        value = delta_for_epsilon([Event(DiscreteGaussian(1.5, 0.5), count=2)], SPECIAL, epsilon).value
        assert mp.mpf(value.lower) * (1 - mp.mpf("1e-11")) <= truth <= mp.mpf(value.upper) * (1 + mp.mpf("1e-11"))
        assert value.width <= 1e-10 * truth


def test_two_gaussians_enclose_fine_noise() -> None:
    """At the end of enumeration the enclosure contains what is enumerated there."""
    fine = MOST_ENUMERATED * (1.0 + 1e-9)
    for noise, epsilon in ((1.0, 0.3), (1.0, 6.0)):
        grid = 1.0 / MOST_ENUMERATED
        enumerated = delta_for_epsilon([Event(DiscreteGaussian(noise, grid))], ADD_REMOVE, epsilon).value
        enclosed = delta_for_epsilon(
            [Event(DiscreteGaussian(noise * fine / MOST_ENUMERATED, grid))], ADD_REMOVE, epsilon
        )
        assert enclosed.value.lower <= enumerated.estimate <= enclosed.value.upper * (1 + 1e-7)
        assert enclosed.value.width <= 3e-5 * enclosed.value.upper
        assert "enclosure" in enclosed.error_budget


@settings(max_examples=4, deadline=None)
@given(
    k=st.integers(2, 50),
    p=st.floats(1e-3, 0.999),
    count=st.integers(1, 200),
    special=st.booleans(),
    more=st.floats(1.001, 2),
)
def test_monotone_in_flips_and_count(k: int, p: float, count: int, special: bool, more: float) -> None:
    relation = SPECIAL if special else REPLACE
    base = epsilon_for_delta([Event(RandomizedResponse(k, p), count=count)], relation, 1e-5).value
    flipped = epsilon_for_delta([Event(RandomizedResponse(k, min(1.0, p * more)), count=count)], relation, 1e-5).value
    longer = epsilon_for_delta([Event(RandomizedResponse(k, p), count=count + 1)], relation, 1e-5).value
    assert flipped.lower <= base.upper
    assert base.lower <= longer.upper
    assert 0.0 <= base.lower <= base.estimate <= base.upper < math.inf


def test_mixed_lists_contain_both_evaluators() -> None:
    events = [Event(DiscreteGaussian(5.0, 0.1), count=10), Event(Gaussian(3.0)), Event(RandomizedResponse(4, 0.95))]
    value = epsilon_for_delta(events, SPECIAL, 1e-6).value
    alone = epsilon_for_delta(events[:2], SPECIAL, 1e-6).value
    assert alone.upper < value.lower
    assert value.width <= 1e-5


@pytest.mark.soak
def test_extremes_stay_numbers() -> None:
    mechanisms = [
        RandomizedResponse(10**9, 1e-300),
        RandomizedResponse(2, 1.0),
        *(
            kind(noise, grid)
            for kind in (DiscreteLaplace, DiscreteGaussian)
            for noise, grid in ((0.05, 1.0), (1e3, 1e-3))
        ),
    ]
    for mechanism in mechanisms:
        for count, delta in ((1, 0.5), (10**8, 1e-30)):
            value = epsilon_for_delta([Event(mechanism, count=count)], REPLACE, delta).value
            assert 0.0 <= value.lower <= value.estimate <= value.upper < math.inf
            assert 0.0 <= delta_for_epsilon([Event(mechanism, count=count)], REPLACE, 1.0).value.upper <= 1.0


def test_what_is_refused_says_what_is_right() -> None:
    with pytest.raises(Unsupported, match="number of answers") as relation:
        epsilon_for_delta([Event(RandomizedResponse(3, 0.5))], ADD_REMOVE, 1e-5)
    assert relation.value.code == "unsupported_relation"
    for kind in (DiscreteLaplace, DiscreteGaussian):
        with pytest.raises(InvalidValue, match=r"1/3 = 0\.333.* 1/4 = 0\.25") as grid:
            kind(1.0, 0.3)
        assert grid.value.pointer == ("grid",)
        with pytest.raises(InvalidValue):
            kind(1.0, 1e-5)
        with pytest.raises(InvalidValue):
            kind(1.0, 2.0)
        assert loss_of(Event(kind(1.0, 1.0 / 3.0)), NeighboringRelation.REPLACE_SPECIAL) is not None
    for categories, probability, pointer in ((1, 0.5, "num_categories"), (3, 0.0, "flip_probability")):
        with pytest.raises(InvalidValue) as value:
            RandomizedResponse(categories, probability)
        assert value.value.pointer == (pointer,)


def test_same_bits_and_round_trip() -> None:
    assert RandomizedResponse(4.0, 1) == RandomizedResponse(np.int64(4), 1.0)  # type: ignore[arg-type]  # on purpose
    assert DiscreteLaplace(2, 1) == DiscreteLaplace(np.float32(2.0), 1.0)  # type: ignore[arg-type]  # on purpose
    for mechanism in (RandomizedResponse(4, 0.5), DiscreteLaplace(2.0, 0.25), DiscreteGaussian(2.0, 0.25)):
        event = Event(mechanism, count=3)
        assert event_from_json(event.to_json()) == event


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (Event(RandomizedResponse(10, 0.9), count=20), REPLACE),
        (Event(DiscreteLaplace(10.0, 1.0), count=12), ADD_REMOVE),
        (Event(DiscreteGaussian(2.0, 1.0), count=30), ADD_REMOVE),
    ],
    ids=str,
)
def test_worked_numbers_of_the_page(event: Event, relation: NeighboringRelation) -> None:
    value = epsilon_for_delta([event], relation, 1e-6).value
    assert f"epsilon is {value.estimate:.6f}" in PAGE.read_text()


def losses() -> list[PrivacyLoss]:
    return [loss_of(event, relation) for event, relation, _ in CASES]


def test_losses_lie_where_they_say() -> None:
    """delta at the upper end of the support is at most its mass, and of the swapped pair at the lower end."""
    for loss in losses():
        for remove in (True, False):
            support = loss.support(-40.0, remove=remove)
            at_the_end = float(loss.excess(np.array([support.upper]), remove=remove)[0])
            assert at_the_end <= support.upper_mass * (1 + 1e-12) + 1e-15 * support.upper
            below = float(loss.excess(np.array([-support.lower]), remove=not remove)[0])
            assert below <= math.exp(-40.0) * 1.01 - 1e-15 * support.lower
