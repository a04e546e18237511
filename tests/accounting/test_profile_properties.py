"""What every answer of the accountant owes, whatever the evaluator: order, monotonicity, grouping, the same bits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.errors import Unsupported
from accounting.events import Event, FullBatch, Gaussian, Laplace, Poisson, WithoutReplacement
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
RANDOM_SPECS = 8
NOISES, PROBABILITIES, COUNTS, DELTAS = (0.05, 1e3), (1e-8, 1.0), (1, 10**8), (1e-30, 0.5)


def random_events(rng: np.random.Generator, relation: NeighboringRelation) -> list[Event]:
    """One to three steps of moderate size under any scheme that the relation has."""
    events = []
    for _ in range(int(rng.integers(1, 4))):
        noise, count = float(np.exp(rng.uniform(-0.5, 3.0))), int(np.exp(rng.uniform(0.0, 6.0)))
        kind = int(rng.integers(4))
        if kind == 0:
            events.append(Event(Gaussian(noise * math.sqrt(count)), FullBatch(), count))
        elif kind == 1 and relation is REPLACE:
            events.append(Event(Gaussian(2.0 * noise), WithoutReplacement(int(rng.integers(1, 50)), 1000), count))
        elif kind == 2:
            events.append(Event(Laplace(noise * count), FullBatch(), count))
        else:
            events.append(Event(Gaussian(noise), Poisson(float(np.exp(rng.uniform(-7.0, -0.7)))), count))
    return events


SPECS = [
    (seed, relation, random_events(np.random.default_rng([3, seed]), relation))
    for seed in range(RANDOM_SPECS)
    for relation in (ADD_REMOVE, REPLACE)
]
every_spec = pytest.mark.parametrize(("seed", "relation", "events"), SPECS, ids=lambda value: str(value)[:12])


def epsilon(events: Sequence[Event], relation: NeighboringRelation, delta: float = 1e-6) -> Interval:
    return epsilon_for_delta(events, relation, delta).value


def delta(events: Sequence[Event], relation: NeighboringRelation, at: float) -> Interval:
    return delta_for_epsilon(events, relation, at).value


def assert_no_more(better: Interval, worse: Interval) -> None:
    """The truth at the more private point is at most the other, so the intervals cannot say the contrary."""
    assert better.lower <= worse.upper
    assert better.lower <= better.estimate <= better.upper


@pytest.mark.one_in(4)
@every_spec
def test_intervals_are_ordered_and_back_again(seed: int, relation: NeighboringRelation, events: list[Event]) -> None:
    """delta at the upper epsilon is at most the target, at the lower epsilon at least: as far as intervals can tell."""
    target = 10.0 ** -float(np.random.default_rng([4, seed]).uniform(2.0, 9.0))
    value = epsilon(events, relation, target)
    assert 0.0 <= value.lower <= value.estimate <= value.upper < math.inf
    assert delta(events, relation, value.upper).lower <= target
    if value.lower > 0.0:
        assert delta(events, relation, value.lower).upper >= target * (1.0 - 1e-9)


def change(event: Event, *, noise: float = 1.0, probability: float = 1.0, count: int = 0) -> Event:
    mechanism, sampling = event.mechanism, event.sampling
    assert isinstance(mechanism, Gaussian | Laplace)
    if isinstance(sampling, Poisson):
        sampling = Poisson(min(1.0, sampling.sampling_probability * probability))
    if isinstance(sampling, WithoutReplacement) and probability > 1.0:
        sampling = WithoutReplacement(sampling.batch_size + 1, sampling.dataset_size)
    return Event(type(mechanism)(mechanism.noise_multiplier * noise), sampling, event.count + count)


@every_spec
@pytest.mark.one_in(12)
def test_monotone_in_every_parameter(seed: int, relation: NeighboringRelation, events: list[Event]) -> None:
    """More noise, fewer steps, less sampling and a larger delta never cost more."""
    factor = 1.0 + float(np.random.default_rng([5, seed]).choice([1e-3, 0.03, 0.3]))
    base = epsilon(events, relation)
    first, rest = events[0], events[1:]
    assert_no_more(epsilon([change(first, noise=factor), *rest], relation), base)
    assert_no_more(base, epsilon([change(first, count=1), *rest], relation))
    assert_no_more(base, epsilon([change(first, probability=factor), *rest], relation))
    assert_no_more(epsilon(events, relation, 1e-6 * factor), base)
    at = base.upper
    assert_no_more(delta(events, relation, at * factor), delta(events, relation, at))


@pytest.mark.one_in(4)
@every_spec
def test_replacing_costs_at_least_what_removing_costs(
    seed: int, relation: NeighboringRelation, events: list[Event]
) -> None:
    """Where both relations are accounted: a record that becomes another can become a null record first."""
    try:
        special = epsilon(events, NeighboringRelation.REPLACE_SPECIAL)
    except Unsupported:
        pytest.fail("replace_special accounts for every scheme drawn here")
    assert_no_more(special, epsilon(events, REPLACE))


@pytest.mark.one_in(3)
@every_spec
def test_composition_is_associative(seed: int, relation: NeighboringRelation, events: list[Event]) -> None:
    """A count split in two gives the same bits as the whole; the order of events matters up to the widths."""
    whole = epsilon(events, relation)
    rng = np.random.default_rng([6, seed])
    split: list[Event] = []
    for event in events:
        part = int(rng.integers(1, event.count)) if event.count > 1 else 1
        parts = (part, event.count - part) if event.count > 1 else (1,)
        split.extend(Event(event.mechanism, event.sampling, count) for count in parts)
    assert epsilon(split, relation) == whole
    shuffled = [events[k] for k in rng.permutation(len(events))]
    other = epsilon(shuffled, relation)
    assert other.lower <= whole.upper
    assert whole.lower <= other.upper


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE])
def test_same_bits_for_integers_floats_and_numpy_scalars(relation: NeighboringRelation) -> None:
    target = 0.0078125
    for sampling in (FullBatch(), Poisson(0.25)):
        reference = epsilon([Event(Gaussian(2.0), sampling, 16)], relation, target)
        forms = itertools.product(
            (2, np.int64(2), np.float32(2.0), np.float64(2.0)),
            (16, 16.0, np.int32(16), np.float64(16.0)),
            (np.float32(target), np.float64(target)),
        )
        for noise, count, at in forms:
            same = Event(Gaussian(noise), sampling, count)  # type: ignore[arg-type]  # NumPy scalars, on purpose
            assert epsilon([same], relation, at) == reference  # type: ignore[arg-type]  # NumPy scalars, on purpose
    probability = epsilon([Event(Gaussian(2.0), Poisson(1.0), 3)], relation, target)
    assert epsilon([Event(Gaussian(2.0), Poisson(1), 3)], relation, target) == probability
    at_one = delta([Event(Laplace(2.0), count=3)], relation, 1.0)
    for form in (1, np.int64(1), np.float32(1.0)):
        assert delta([Event(Laplace(2), count=3)], relation, form) == at_one  # type: ignore[arg-type]  # on purpose


def assert_sound_shape(value: Interval, most: float) -> None:
    assert not any(math.isnan(number) for number in (value.lower, value.estimate, value.upper))
    assert 0.0 <= value.lower <= value.estimate <= value.upper <= most


CORNERS = [
    pytest.param(corner, id=str(corner), marks=[pytest.mark.soak] if number % 2 else [])
    for number, corner in enumerate(itertools.product(NOISES, PROBABILITIES, COUNTS, DELTAS))
]


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE])
@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.one_in(30)
def test_corners_of_the_range(relation: NeighboringRelation, corner: tuple[float, float, int, float]) -> None:
    """Neither NaN nor an exception nor inf at the ends of every range, for both questions."""
    noise, probability, count, target = corner
    events = [Event(Gaussian(noise), Poisson(probability), count)]
    value = epsilon(events, relation, target)
    assert_sound_shape(value, 1e15)
    assert_sound_shape(delta(events, relation, value.upper), 1.0)
    if math.isclose(target, DELTAS[0]):
        assert_sound_shape(delta(events, relation, 0.0), 1.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.one_in(3)
def test_random_extremes(seed: int) -> None:
    """Anywhere in the range, alone and in lists of two, every scheme: an interval, whatever the numbers."""
    rng = np.random.default_rng([7, seed])

    def log_uniform(bounds: tuple[float, float]) -> float:
        return float(np.exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1]))))

    def count() -> int:
        return round(log_uniform((COUNTS[0], COUNTS[1])))

    size = round(log_uniform((2, 1e8)))
    batch = min(size, max(1, round(size * log_uniform(PROBABILITIES))))
    poisson = Event(Gaussian(log_uniform(NOISES)), Poisson(log_uniform(PROBABILITIES)), count())
    laplace = Event(Laplace(log_uniform(NOISES)), FullBatch(), count())
    fixed = Event(Gaussian(log_uniform(NOISES)), WithoutReplacement(batch, size), count())
    for events, relation in (([poisson], ADD_REMOVE), ([poisson, laplace], REPLACE), ([fixed], REPLACE)):
        target = log_uniform(DELTAS)
        value = epsilon(events, relation, target)
        assert_sound_shape(value, 1e15)
        assert_sound_shape(delta(events, relation, value.estimate), 1.0)
