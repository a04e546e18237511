"""The Fourier evaluator: invariance, monotonicity, and the ends of its range."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.basic import total_variation
from accounting.composition.composition import compose
from accounting.composition.fourier import FourierInversion
from accounting.events import Event, Gaussian, Poisson, ZcDp
from accounting.relations import NeighboringRelation
from tests.accounting.composition.fourier_runs import ADD_REMOVE, REPLACE, composition_of, delta_of, epsilon_of, poisson
from tests.accounting.fourier.truths import repeated_delta


def test_int_float_and_numpy_give_the_same_bits() -> None:
    reference = epsilon_for_delta(poisson(2.0, 0.125, 64), ADD_REMOVE, 2.0**-20)
    assert reference.method == "fourier_inversion"
    for number in (int, np.int64, np.float64, np.float32):
        s = number(2)
        events = [Event(Gaussian(s), Poisson(np.float32(0.125)), np.int32(64))]  # type: ignore[arg-type]  # on purpose
        assert epsilon_for_delta(events, ADD_REMOVE, np.float64(2.0**-20)) == reference
        assert delta_for_epsilon(events, ADD_REMOVE, number(1)) == delta_for_epsilon(
            poisson(2.0, 0.125, 64), ADD_REMOVE, 1.0
        )


def test_epsilon_falls_with_noise_and_delta_and_grows_with_steps_and_probability() -> None:
    """A seeded draw over both relations: certified ends never cross."""
    draw = random.Random(20)
    for _ in range(8):
        s, q = 10.0 ** draw.uniform(-0.2, 1.2), 10.0 ** draw.uniform(-3.0, -0.3)
        count = int(10.0 ** draw.uniform(1.5, 5.0))
        delta, relation = 10.0 ** draw.uniform(-12.0, -3.0), draw.choice([ADD_REMOVE, REPLACE])
        base = epsilon_of(composition_of(s, q, count, relation), delta)
        cheaper = (
            (composition_of(1.2 * s, q, count, relation), delta),
            (composition_of(s, 0.9 * q, count, relation), delta),
            (composition_of(s, q, math.ceil(0.8 * count), relation), delta),
            (composition_of(s, q, count, relation), 1.5 * delta),
        )
        for composition, at in cheaper:
            found = epsilon_of(composition, at)
            assert found.lower <= base.upper
            assert found.upper <= base.upper * (1.0 + 1e-5) + 1e-5
            assert found.lower <= base.lower * (1.0 + 1e-5) + 1e-5


def test_delta_falls_with_epsilon_on_every_line() -> None:
    composition = composition_of(1.0, 0.02, 2000)
    bounds = [delta_of(composition, float(epsilon)) for epsilon in np.linspace(0.0, 12.0, 25)]
    for near, far in pairwise(bounds):
        assert far.lower <= near.upper
        assert far.estimate < near.estimate


def test_epsilon_is_exactly_zero_from_the_total_variation_on() -> None:
    """At delta = 1 - prod (1 - delta_i(0)) and above nothing is charged."""
    composition = composition_of(1.0, 0.01, 20)
    edge = total_variation(composition)
    for delta in (edge, 1.5 * edge, 0.9):
        found = epsilon_of(composition, delta)
        assert (found.lower, found.upper) == (0.0, 0.0)
        assert epsilon_for_delta(poisson(1.0, 0.01, 20), ADD_REMOVE, delta).value.upper == 0.0
    below = epsilon_of(composition, 0.05 * edge)
    assert below.lower > 0.0


@pytest.mark.parametrize(("s", "q"), [(1.0, 0.1), (0.8, 0.3), (2.0, 0.5), (0.6, 0.01)])
def test_delta_at_epsilon_zero(s: float, q: float) -> None:
    """The total variation of two steps."""
    truth = repeated_delta("remove", s, q, 2, 0.0)
    value = delta_for_epsilon(poisson(s, q, 2), ADD_REMOVE, 0.0).value
    assert value.lower <= truth * (1.0 + 1e-9)
    assert value.upper >= truth * (1.0 - 1e-9)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("delta", [1e-15, 1e-30, 5e-324])
def test_tiny_deltas(delta: float) -> None:
    """Within what doubles can say, by the contour; below, Chernoff's bound alone."""
    composition = composition_of(1.0, 0.01, 1000)
    found = epsilon_of(composition, delta)
    ordinary = epsilon_of(composition, 1e-12)
    assert found.upper >= ordinary.lower
    assert math.isfinite(found.upper)
    if delta >= 1e-30:
        assert found.width <= 1e-6 * found.upper
        back = delta_of(composition, found.upper)
        assert back.lower <= delta
        assert delta_of(composition, found.lower).upper >= delta


@pytest.mark.parametrize("q", [0.999, 1.0 - 1e-6, 1.0 - 1e-9, 1.0 - 1e-12, 1.0 - 2.0**-53])
@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE])
def test_a_probability_near_one_is_nearly_a_full_batch(q: float, relation: NeighboringRelation) -> None:
    """Above the truth with a little less of it, below that of the full batch."""
    full = delta_for_epsilon([Event(Gaussian(2.0), count=4)], relation, 3.0).value
    bounds = delta_for_epsilon(poisson(2.0, q, 4), relation, 3.0).value
    assert bounds.lower <= full.upper
    assert bounds.upper >= full.lower * (1.0 - 60.0 * (1.0 - q)) * (1.0 - 1e-9)
    assert bounds.upper <= full.upper * (1.0 + 1e-6)
    two = repeated_delta("remove" if relation is ADD_REMOVE else "replace", 2.0, q, 2, 1.0)
    here = delta_for_epsilon(poisson(2.0, q, 2), relation, 1.0).value
    assert here.lower <= two * (1.0 + 1e-9)
    assert here.upper >= two * (1.0 - 1e-9)


@pytest.mark.parametrize(
    ("s", "q", "count"),
    [(0.05, 1e-8, 2), (0.05, 0.5, 10), (1e3, 1e-8, 10**8), (1e3, 0.999, 10**8), (0.06, 0.1, 10**6), (300.0, 1e-3, 2)],
)
@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE])
@pytest.mark.one_in(4)
def test_never_nan_at_the_ends_of_the_range(s: float, q: float, count: int, relation: NeighboringRelation) -> None:
    """Both ways, and the two agree."""
    epsilon = epsilon_for_delta(poisson(s, q, count), relation, 1e-6).value
    assert 0.0 <= epsilon.lower <= epsilon.upper < math.inf
    assert delta_for_epsilon(poisson(s, q, count), relation, epsilon.upper * (1.0 + 1e-9)).value.lower <= 1e-6
    if epsilon.lower > 0.0:
        assert delta_for_epsilon(poisson(s, q, count), relation, epsilon.lower * (1.0 - 1e-9)).value.upper >= 1e-6


def test_compositions_without_a_line_are_left_to_others() -> None:
    composition = compose([Event(ZcDp(0.1)), *poisson(1.0, 0.01, 10)], ADD_REMOVE)
    assert FourierInversion().delta(composition, 1.0) is None
    assert FourierInversion().epsilon(composition, 1e-6) is None


def test_a_long_list_of_different_steps() -> None:
    """Every step to its own count: as one list, whatever its order."""
    events = [event for k in range(1, 6) for event in poisson(0.8 + 0.1 * k, 0.01 * k, 40 * k)]
    forth, back = epsilon_for_delta(events, ADD_REMOVE, 1e-6), epsilon_for_delta(events[::-1], ADD_REMOVE, 1e-6)
    assert forth.value.upper == pytest.approx(back.value.upper, rel=1e-9)
    assert forth.value.width <= 1e-6 * max(1.0, forth.value.upper)
    halves = [Event(e.mechanism, e.sampling, e.count // 2) for e in events] * 2
    assert epsilon_for_delta(halves, ADD_REMOVE, 1e-6).value.upper == pytest.approx(forth.value.upper, rel=1e-9)
