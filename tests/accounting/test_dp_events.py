"""Events as dp-accounting's, and back; what is handed over costs the same in its own accountants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation as TheirRelation
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.dp_event_reader import FIELDS, MAX_DEPTH, REFUSED, one_gaussian
from accounting.dp_events import NoiseOver, from_dp_event, to_dp_event
from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import (
    ApproximateDp,
    DiscreteGaussian,
    DiscreteLaplace,
    DisjointBatches,
    Event,
    Exponential,
    FullBatch,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RandomAllocation,
    RandomizedResponse,
    RenyiDp,
    ReportNoisyMax,
    ShuffledEpochs,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
    ZcDp,
    group_events,
)
from accounting.events.schedules import resolve_schedules
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL

noises = st.floats(1e-3, 1e6) | st.integers(1, 1000)
fixed_sizes = st.integers(2, 1000).flatmap(lambda n: st.builds(WithoutReplacement, st.integers(1, n), st.just(n)))
samplings = st.one_of(
    st.just(FullBatch()),
    st.builds(Poisson, st.floats(1e-8, 1.0)),
    fixed_sizes,
    st.builds(ShuffledEpochs, st.integers(1, 1000)),
    st.builds(DisjointBatches, st.sampled_from(["by_position", "independent"])),
)
counts = st.integers(1, 10**6)
events = st.one_of(
    st.builds(Event, st.builds(Gaussian, noises) | st.builds(Laplace, noises), samplings, counts),
    st.builds(Event, st.builds(ZcDp, st.floats(0, 1e6)), st.just(FullBatch()), counts),
)


@settings(max_examples=200, deadline=None)
@given(
    listed=st.lists(events, max_size=6),
    relation=st.sampled_from(list(NeighboringRelation)),
    noise_over=st.sampled_from(list(NoiseOver)),
)
def test_round_trip(listed: list[Event], relation: NeighboringRelation, noise_over: NoiseOver) -> None:
    if not all(relation in event.sampling.relations for event in listed):
        with pytest.raises(Unsupported) as refusal:
            to_dp_event(listed, relation, noise_over=noise_over)
        first = next(i for i, event in enumerate(listed) if relation not in event.sampling.relations)
        assert refusal.value.pointer == (first, "sampling", "kind")
        return
    theirs = to_dp_event(listed, relation, noise_over=noise_over)
    assert from_dp_event(theirs, relation, noise_over=noise_over) == group_events(resolve_schedules(listed, relation))
    # What they write themselves, they read.
    assert dp.DpEvent.from_named_tuple(theirs.to_named_tuple()) == theirs or isinstance(theirs, dp.ComposedDpEvent)


NEWER: list[tuple[Event, Any]] = [
    (Event(RandomizedResponse(5, 0.4), count=3), dp.SelfComposedDpEvent(dp.RandomizedResponseDpEvent(0.4, 5), 3)),
    (Event(DiscreteLaplace(4.0, 0.25)), dp.DiscreteLaplaceDpEvent(0.0625, 4)),
    (Event(TreeAggregation(3.0, 40, 0)), dp.SingleEpochTreeAggregationDpEvent(3.0, [7, 40])),
    (
        Event(Gaussian(3.0), TruncatedPoisson(0.05, 40, 300, "random"), 5),
        dp.SelfComposedDpEvent(dp.TruncatedSubsampledGaussianDpEvent(300, 0.05, 40, 3.0), 5),
    ),
    (
        Event(Gaussian(3.0), WithReplacement(20, 1000), 50),
        dp.SelfComposedDpEvent(dp.SampledWithReplacementDpEvent(1000, 20, dp.GaussianDpEvent(3.0)), 50),
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), NEWER, ids=lambda value: type(getattr(value, "mechanism", value)).__name__)
def test_events_of_other_mechanisms_and_samplings(ours: Event, theirs: Any) -> None:
    [found] = from_dp_event(theirs, SPECIAL)
    if isinstance(ours.mechanism, DiscreteLaplace):
        assert isinstance(found.mechanism, DiscreteLaplace)
        assert found.mechanism.grid == ours.mechanism.grid
        assert 0.0 <= 1.0 - found.mechanism.noise_multiplier / ours.mechanism.noise_multiplier < 2e-15
    else:
        assert found == ours
        assert from_dp_event(to_dp_event([ours], SPECIAL), SPECIAL) == (ours,)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("theirs", "relation"),
    [
        (dp.RandomizedResponseDpEvent(0.4, 5), REPLACE),
        (dp.RandomizedResponseDpEvent(0.4, 5), SPECIAL),
        (dp.DiscreteLaplaceDpEvent(0.25, 4), SPECIAL),
        (dp.TruncatedSubsampledGaussianDpEvent(300, 0.05, 40, 3.0), SPECIAL),
    ],
)
def test_what_is_read_costs_what_their_pld_says_or_more(theirs: Any, relation: NeighboringRelation) -> None:
    """Batches that are cut at random cost less than their one pair for all relations says."""
    accountant = PLDAccountant(TheirRelation[relation.name]).compose(theirs)
    for epsilon in (0.1, 0.6):
        truth = delta_for_epsilon(from_dp_event(theirs, relation), relation, epsilon).value
        their_delta = accountant.get_delta(epsilon)
        assert truth.upper <= their_delta * (1 + 1e-3)
        if not isinstance(theirs, dp.TruncatedSubsampledGaussianDpEvent):
            assert truth.upper >= their_delta * (1 - 1e-3) - 1e-9


UNRELEASED_CLASSES = {
    "DiscreteGaussianDpEvent",
    "EpsilonDeltaDpEvent",
    "ExponentialMechanismDpEvent",
    "PermuteAndFlipDpEvent",
    "RandomAllocationDpEvent",
}
#: Classes that dp-accounting 0.6 does not have yet, as JSON.
UNRELEASED: list[tuple[dict[str, Any], NeighboringRelation, Event]] = [
    ({"class_name": "EpsilonDeltaDpEvent", "epsilon": 0.5, "delta": 0}, REPLACE, Event(PureDp(0.5))),
    ({"class_name": "EpsilonDeltaDpEvent", "epsilon": 0.5, "delta": 1e-6}, REPLACE, Event(ApproximateDp(0.5, 1e-6))),
    ({"class_name": "ExponentialMechanismDpEvent", "epsilon": 0.5}, REPLACE, Event(Exponential(0.5))),
    ({"class_name": "PermuteAndFlipDpEvent", "epsilon": 0.5}, REPLACE, Event(ReportNoisyMax(0.5, "exponential"))),
    (
        {
            "class_name": "SelfComposedDpEvent",
            "count": 3,
            "event": {
                "class_name": "RandomAllocationDpEvent",
                "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 2},
                "num_selected": 2,
                "num_steps": 20,
            },
        },
        SPECIAL,
        Event(Gaussian(2.0), RandomAllocation(20, 2), 60),
    ),
]


@pytest.mark.parametrize(("theirs", "relation", "ours"), UNRELEASED)
def test_classes_of_their_sources_are_read_from_json(
    theirs: dict[str, Any], relation: NeighboringRelation, ours: Event
) -> None:
    assert from_dp_event(theirs, relation) == (ours,)


def test_discrete_gaussian_noise_of_one_coordinate_and_of_many() -> None:
    def read(relation: NeighboringRelation, **fields: Any) -> Any:
        [found] = from_dp_event({"class_name": "DiscreteGaussianDpEvent", "sigma": 6.0, **fields}, relation)
        return found.mechanism

    one = read(SPECIAL, sensitivity=3, dimension=1)
    assert isinstance(one, DiscreteGaussian)
    assert (one.noise_multiplier, one.grid) == (pytest.approx(2.0, rel=1e-14), 1.0 / 3.0)
    assert one.noise_multiplier <= 2.0
    for fields in ({"dimension": 7}, {"dimension": None}, {}):
        assert read(SPECIAL, sensitivity=3, **fields) == ZcDp(0.125 * (1.0 + 2.0**-50))
        assert read(REPLACE, sensitivity=3, **fields).rho == pytest.approx(0.5)
    assert read(SPECIAL, sensitivity=1.5, dimension=1).rho == pytest.approx(0.03125)


def test_an_arbitrary_cut_has_no_event_of_theirs() -> None:
    with pytest.raises(Unsupported, match="uniformly random subset") as caught:
        to_dp_event([Event(Gaussian(3.0), TruncatedPoisson(0.05, 40, 300), 5)], SPECIAL)
    assert caught.value.pointer == (0, "sampling", "truncation")


def test_restarted_trees_are_so_many_trees() -> None:
    written = to_dp_event([Event(TreeAggregation(3.0, 40, 2))], SPECIAL)
    assert written == dp.SelfComposedDpEvent(dp.SingleEpochTreeAggregationDpEvent(3.0, 40), 3)
    again = from_dp_event(written, SPECIAL)
    for events in (again, [Event(TreeAggregation(3.0, 40, 2))]):
        assert epsilon_for_delta(events, SPECIAL, 1e-6).value.upper == pytest.approx(
            epsilon_for_delta([Event(Gaussian(3.0), count=18)], SPECIAL, 1e-6).value.upper, rel=1e-12
        )


def test_a_mechanisms_relation_is_kept() -> None:
    for theirs in (dp.RandomizedResponseDpEvent(0.5, 2), dp.SingleEpochTreeAggregationDpEvent(1.0, 4)):
        with pytest.raises(Unsupported) as refusal:
            from_dp_event(theirs, ADD_REMOVE)
        assert refusal.value.code == "unsupported_relation"


def test_several_coordinates_of_discrete_laplace_cost_no_more_than_one() -> None:
    """An integer contribution of l1 norm 4 may be spread: shifts k and 4 - k are dominated by one shift of 4."""
    for parameter in (0.05, 0.5, 2.0):
        whole = from_dp_event(dp.DiscreteLaplaceDpEvent(parameter, 4), SPECIAL)
        for one in (1, 2):
            parts = [dp.DiscreteLaplaceDpEvent(parameter, shift) for shift in (one, 4 - one)]
            spread = from_dp_event(dp.ComposedDpEvent(parts), SPECIAL)
            for epsilon in (0.0, parameter, 2.5 * parameter):
                low = delta_for_epsilon(spread, SPECIAL, epsilon).value.lower
                assert low <= delta_for_epsilon(whole, SPECIAL, epsilon).value.upper


def test_floats_only() -> None:
    """Every number is a plain float or int, whatever came in: an integer noise breaks their Renyi accountant."""
    for noise in (1, np.int64(1), np.float32(1.0), 1.0):
        written = to_dp_event([Event(Gaussian(noise), Poisson(np.float64(0.5)), np.int64(7))], ADD_REMOVE)  # type: ignore[arg-type]  # on purpose
        assert type(written.count) is int
        assert type(written.event.sampling_probability) is float
        assert type(written.event.event.noise_multiplier) is float
        assert written == dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(1.0)), 7)


def test_same_events_for_the_same_numbers() -> None:
    expected = (Event(Gaussian(1.0), Poisson(0.25), 12),)
    for one, quarter, twelve in ((1, 0.25, 12), (np.int32(1), np.float32(0.25), np.int64(12)), (1.0, 0.25, 12.0)):
        batch = dp.SelfComposedDpEvent(dp.GaussianDpEvent(one), np.int64(1))
        for inner in (dp.GaussianDpEvent(one), batch, dp.ComposedDpEvent([batch])):
            found = from_dp_event(dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(quarter, inner), twelve), ADD_REMOVE)
            assert found == expected


def test_one_batch_is_sampled_once() -> None:
    """One hundred Gaussians on one batch are one with a tenth of the noise: 88.6, where an integer 1 made it 2.13."""
    batch = dp.PoissonSampledDpEvent(0.1, dp.SelfComposedDpEvent(dp.GaussianDpEvent(1), 100))
    [event] = from_dp_event(dp.SelfComposedDpEvent(batch, 3), ADD_REMOVE)
    assert event.count == 3
    assert isinstance(event.mechanism, Gaussian)
    assert event.mechanism.noise_multiplier == pytest.approx(0.1, rel=1e-14)
    assert event.mechanism.noise_multiplier < 0.1
    ours = epsilon_for_delta([event], ADD_REMOVE, 1e-5).value
    repeated = epsilon_for_delta([Event(Gaussian(1.0), Poisson(0.1), 300)], ADD_REMOVE, 1e-5).value
    assert ours.lower > 5 * repeated.upper
    theirs = RdpAccountant().compose(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(0.1)), 3).get_epsilon(1e-5)
    assert ours.lower <= theirs


def test_noise_is_rounded_down() -> None:
    for noises_ in ([0.1] * 7, [3.0, 1e3, 0.7], [1e-1, 1e5]):
        found = one_gaussian([Event(Gaussian(noise), count=3) for noise in noises_]).noise_multiplier
        exact = 1 / math.sqrt(sum(3 / noise**2 for noise in noises_))
        assert exact * (1 - 3e-15) < found < exact


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_several_gaussians_on_one_batch_cost_what_simulation_says(relation: NeighboringRelation) -> None:
    """The privacy loss of two Gaussians on one Poisson batch, in two dimensions, against one Gaussian's."""
    first, second, probability, epsilon = 0.7, 1.3, 0.3, 0.4
    draw, size = np.random.default_rng(7), 2_000_000
    inside = draw.random(size) < probability
    x = draw.normal(0, 1, (2, size)) * np.array([[first], [second]]) + inside
    likely = np.exp(((2 * x[0] - 1) / first**2 + (2 * x[1] - 1) / second**2) / 2)
    against = np.exp(((-2 * x[0] - 1) / first**2 + (-2 * x[1] - 1) / second**2) / 2)
    other = 1 - probability + probability * against if relation is REPLACE else 1.0
    losses = np.log((1 - probability + probability * likely) / other)
    sample = np.maximum(1 - np.exp(epsilon - losses), 0)
    batch = dp.ComposedDpEvent([dp.GaussianDpEvent(first), dp.GaussianDpEvent(second)])
    found = from_dp_event(dp.PoissonSampledDpEvent(probability, batch), relation)
    truth = delta_for_epsilon(found, relation, epsilon).value
    error = 5 * float(sample.std()) / math.sqrt(size)
    assert truth.lower - error <= float(sample.mean()) <= truth.upper + error
    assert error < 0.01 * truth.upper
    # One Gaussian of either noise alone is far outside.
    alone = [Event(Gaussian(noise), Poisson(probability)) for noise in (first, second)]
    assert all(delta_for_epsilon([each], relation, epsilon).value.upper < truth.lower - 4 * error for each in alone)


def test_an_adaptive_second_query_on_the_same_batch_gains_nothing_over_the_one_gaussian() -> None:
    """Replace-one, the second contribution chosen after the first output: attained delta is below the bound."""
    draw, size, noise, probability = np.random.default_rng(11), 1_000_000, 0.8, 0.4
    found = from_dp_event(
        dp.PoissonSampledDpEvent(probability, dp.SelfComposedDpEvent(dp.GaussianDpEvent(noise), 2)), REPLACE
    )
    for epsilon in (0.2, 1.5):
        bound = delta_for_epsilon(found, REPLACE, epsilon).value.upper
        adversaries = (np.ones_like, np.sign, lambda y: np.where(y > 0.5, 1.0, 0.0), lambda y: np.tanh(3 * y))
        for adversary in adversaries:
            inside = draw.random(size) < probability
            x = draw.normal(0, noise, size) + inside
            shift = adversary(x)
            y = draw.normal(0, noise, size) + inside * shift
            plus = np.exp(((2 * x - 1) + (2 * y * shift - shift**2)) / (2 * noise**2))
            minus = np.exp(((-2 * x - 1) + (-2 * y * shift - shift**2)) / (2 * noise**2))
            odds = (1 - probability + probability * plus) / (1 - probability + probability * minus)
            sample = np.maximum(1 - np.exp(epsilon) / odds, 0)
            error = 5 * float(sample.std()) / math.sqrt(size)
            assert float(sample.mean()) <= bound + error
            if adversary is np.ones_like:  # asks the same again, which is the one Gaussian
                assert float(sample.mean()) >= bound - error > 0.9 * bound


LISTS = [
    [Event(Gaussian(1.0))],
    [Event(Gaussian(2), Poisson(0.05), 200), Event(Gaussian(5.0), count=3)],
    [Event(Laplace(3.0), count=4), Event(Gaussian(4.0), Poisson(0.2), 10)],
]
THEIRS = {
    ADD_REMOVE: TheirRelation.ADD_OR_REMOVE_ONE,
    REPLACE: TheirRelation.REPLACE_ONE,
    SPECIAL: TheirRelation.REPLACE_SPECIAL,
}


@pytest.mark.parametrize("relation", list(NeighboringRelation))
@pytest.mark.parametrize("listed", LISTS)
@pytest.mark.one_in(8)
def test_their_pld_accountant_finds_the_same_epsilon_on_what_is_handed_over(
    listed: list[Event], relation: NeighboringRelation
) -> None:
    theirs = to_dp_event(listed, relation)
    accountant = PLDAccountant(THEIRS[relation])
    if not accountant.supports(theirs):
        assert relation is REPLACE
        assert any(isinstance(event.mechanism, Laplace) for event in listed)
        return
    ours = epsilon_for_delta(listed, relation, 1e-6).value
    epsilon = accountant.compose(theirs).get_epsilon(1e-6)
    assert ours.lower <= epsilon + 1e-6
    assert epsilon == pytest.approx(ours.upper, rel=2e-3)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_their_renyi_accountant_is_sound_on_multiples_of_the_sensitivity_alone(relation: NeighboringRelation) -> None:
    """Gaussian(1.0) under replace-one: their two accountants read the same event as 10.0 and as 4.73."""
    listed = [Event(Gaussian(1.0)), Event(Laplace(8.0))]
    ours = epsilon_for_delta(listed, relation, 1e-5).value
    found = {
        reading: RdpAccountant(neighboring_relation=THEIRS[relation])
        .compose(to_dp_event(listed, relation, noise_over=reading))
        .get_epsilon(1e-5)
        for reading in NoiseOver
    }
    assert found[NoiseOver.SENSITIVITY] >= ours.lower
    assert (found[NoiseOver.CONTRIBUTION_BOUND] < ours.lower) == (relation is REPLACE)


def test_fixed_size_batches_are_handed_over_with_both_sizes() -> None:
    listed = [Event(Gaussian(5.0), WithoutReplacement(10, 1000), 50)]
    theirs = to_dp_event(listed, REPLACE, noise_over=NoiseOver.SENSITIVITY)
    expected = dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(1000, 10, dp.GaussianDpEvent(2.5)), 50)
    assert theirs == expected
    # Their accountant's answer for noise 2.5 over the sensitivity.
    loose = RdpAccountant(neighboring_relation=TheirRelation.REPLACE_ONE).compose(theirs).get_epsilon(1e-5)
    assert loose == pytest.approx(0.2296, abs=1e-3)
    several = dp.SampledWithoutReplacementDpEvent(1000, 10, dp.SelfComposedDpEvent(dp.GaussianDpEvent(4.0), 4))
    [event] = from_dp_event(several, SPECIAL)
    assert isinstance(event.sampling, WithoutReplacement)
    assert isinstance(event.mechanism, Gaussian)
    assert event.mechanism.noise_multiplier == pytest.approx(2.0, rel=1e-14)


def test_the_default_reading_never_reports_too_little() -> None:
    """The default reads a multiple of the bound: where the sensitivity was meant, the true noise is larger."""
    theirs = dp.GaussianDpEvent(1.0)
    default = epsilon_for_delta(from_dp_event(theirs, REPLACE), REPLACE, 1e-5).value
    other = epsilon_for_delta(from_dp_event(theirs, REPLACE, noise_over=NoiseOver.SENSITIVITY), REPLACE, 1e-5).value
    assert default.upper == pytest.approx(9.997256146434301, abs=1e-9)
    assert other.upper == pytest.approx(4.377178095681137, abs=1e-9)


def test_what_releases_nothing_is_no_event() -> None:
    gaussian = dp.GaussianDpEvent(1.0)
    for nothing in (
        dp.NoOpDpEvent(),
        dp.ComposedDpEvent([]),
        dp.SelfComposedDpEvent(gaussian, 0),
        dp.PoissonSampledDpEvent(0.0, gaussian),
        dp.PoissonSampledDpEvent(0.5, dp.NoOpDpEvent()),
        dp.SampledWithoutReplacementDpEvent(10, 0, gaussian),
    ):
        assert from_dp_event(nothing, REPLACE) == ()
        assert from_dp_event(dp.ComposedDpEvent([nothing, gaussian, nothing]), REPLACE) == (Event(Gaussian(1.0)),)
    assert to_dp_event([], ADD_REMOVE) == dp.NoOpDpEvent()


def test_counts_multiply_and_equal_events_come_together() -> None:
    gaussian, laplace = dp.GaussianDpEvent(1.0), dp.LaplaceDpEvent(2.0)
    pair = dp.ComposedDpEvent([gaussian, dp.SelfComposedDpEvent(laplace, 2)])
    found = from_dp_event(dp.ComposedDpEvent([dp.SelfComposedDpEvent(pair, 5), gaussian]), ADD_REMOVE)
    assert found == (Event(Gaussian(1.0), count=6), Event(Laplace(2.0), count=10))
    with pytest.raises(InvalidValue, match="count"):
        from_dp_event(dp.SelfComposedDpEvent(dp.SelfComposedDpEvent(gaussian, 10**6), 10**6), ADD_REMOVE)


GAUSSIAN = dp.GaussianDpEvent(1.0)
UNKNOWN: list[tuple[Any, str]] = [
    (dp.NonPrivateDpEvent(), "without any privacy"),
    (dp.UnsupportedDpEvent(), "nobody has described"),
    (dp.RepeatAndSelectDpEvent(GAUSSIAN, 3.0, 1.0), "selection"),
    (dp.MixtureOfGaussiansDpEvent(1.0, [1.0], [1.0]), "random sensitivity"),
    (dp.SampledWithReplacementDpEvent(10, 2, dp.SelfComposedDpEvent(GAUSSIAN, 2)), "with replacement"),
    (dp.ZCDpEvent(1.0, 0.5), "xi"),
    (dp.DpEvent(), "does not know this class"),
    (dp.PoissonSampledDpEvent(0.5, dp.PoissonSampledDpEvent(0.5, GAUSSIAN)), "product"),
    (dp.PoissonSampledDpEvent(0.5, dp.SelfComposedDpEvent(dp.LaplaceDpEvent(1.0), 2)), "laplace"),
    (dp.PoissonSampledDpEvent(0.5, dp.ComposedDpEvent([GAUSSIAN, dp.LaplaceDpEvent(1.0)])), "gaussian or laplace"),
    (dp.PoissonSampledDpEvent(0.5, dp.ZCDpEvent(1.0)), "zcdp"),
]


@pytest.mark.parametrize(("theirs", "words"), UNKNOWN, ids=lambda value: type(value).__name__)
def test_what_no_theorem_covers_is_refused_by_name_with_the_reason(theirs: Any, words: str) -> None:
    for inside, path in (
        (theirs, ()),
        (dp.ComposedDpEvent([GAUSSIAN, dp.SelfComposedDpEvent(theirs, 2)]), ("events", 1, "event")),
    ):
        with pytest.raises(Unsupported, match=words) as refusal:
            from_dp_event(inside, REPLACE)
        assert refusal.value.pointer[: len(path)] == path


def test_every_class_of_theirs_is_read_or_refused_by_name() -> None:
    classes = {
        name for name, value in vars(dp).items() if isinstance(value, type) and issubclass(value, dp.DpEvent)
    } - {"DpEvent"}
    # Some are in their sources and in no release yet.
    assert set(FIELDS) | set(REFUSED) == classes | UNRELEASED_CLASSES


@pytest.mark.parametrize(
    ("theirs", "pointer"),
    [
        (dp.GaussianDpEvent(0.0), ("noise_multiplier",)),
        (dp.GaussianDpEvent("1"), ("noise_multiplier",)),
        (dp.SelfComposedDpEvent(dp.LaplaceDpEvent(math.nan), 2), ("event", "noise_multiplier")),
        (dp.PoissonSampledDpEvent(1.5, GAUSSIAN), ("sampling_probability",)),
        (dp.SelfComposedDpEvent(GAUSSIAN, -1), ("count",)),
        (dp.SelfComposedDpEvent(GAUSSIAN, 1.5), ("count",)),
        (dp.SampledWithoutReplacementDpEvent(10, 11, GAUSSIAN), ("batch_size",)),
        (dp.ComposedDpEvent([GAUSSIAN, "gaussian"]), ("events", 1)),
        (dp.ZCDpEvent(-1.0), ("rho",)),
    ],
)
def test_malformed_events_are_pointed_at(theirs: Any, pointer: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidValue) as refusal:
        from_dp_event(theirs, REPLACE)
    assert refusal.value.pointer == pointer


def test_deep_and_wide_events_are_refused_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounting.dp_event_reader.MAX_NODES", 5000)
    deep: Any = GAUSSIAN
    for _ in range(MAX_DEPTH + 2):
        deep = dp.SelfComposedDpEvent(deep, 1)
    with pytest.raises(InvalidValue, match="levels"):
        from_dp_event(deep, ADD_REMOVE)
    doubled: Any = GAUSSIAN
    for _ in range(40):
        doubled = dp.ComposedDpEvent([doubled, doubled])
    with pytest.raises(InvalidValue, match="events"):
        from_dp_event(doubled, ADD_REMOVE)
    with pytest.raises(InvalidValue, match="1000 different"):
        from_dp_event(dp.ComposedDpEvent([dp.GaussianDpEvent(1.0 + i) for i in range(1001)]), ADD_REMOVE)


def test_fixed_sizes_are_refused_under_add_or_remove() -> None:
    with pytest.raises(Unsupported, match="replace_special"):
        from_dp_event(dp.SampledWithoutReplacementDpEvent(10, 1, GAUSSIAN), ADD_REMOVE)


def test_stated_guarantees_that_they_have_no_event_for_are_refused() -> None:
    for stated in (PureDp(1.0), ApproximateDp(1.0, 1e-6), RenyiDp((2.0,), (1.0,))):
        with pytest.raises(AccountingError, match=stated.kind) as refusal:
            to_dp_event([Event(Gaussian(1.0)), Event(stated)], ADD_REMOVE)
        assert refusal.value.pointer == (1, "mechanism", "kind")
