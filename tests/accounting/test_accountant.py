from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import Composition
from accounting.composition.gaussian_dp import AnalyticGaussian
from accounting.composition.intersection import METHODS, QUICK_EVALUATORS
from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian, Laplace, Mechanism, Poisson, PureDp, ZcDp, event_from_json
from accounting.intervals import Answer, Bounds
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())["vectors"]


def ask(vector: dict[str, object]) -> Answer:
    events = [event_from_json(event) for event in vector["events"]]  # type: ignore[attr-defined]  # JSON
    relation = NeighboringRelation(str(vector["neighboring_relation"]))
    if "delta" in vector:
        return epsilon_for_delta(events, relation, float(str(vector["delta"])))
    return delta_for_epsilon(events, relation, float(str(vector["epsilon"])))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_interval_contains_truth(vector: dict[str, object]) -> None:
    value = ask(vector).value
    if "truth" in vector:
        truth, tolerance = float(str(vector["truth"])), float(str(vector["tolerance"]))
        assert value.lower <= truth * (1 + 1e-8) + (tolerance if truth > 1e-2 else 0.0)
        assert value.upper >= truth - tolerance
        assert value.upper - truth <= tolerance
        if str(vector["id"]).startswith("contour"):
            assert value.upper >= truth * (1 - 1e-9)
    if "at_most" in vector:
        assert float(str(vector["at_least"])) <= value.upper <= float(str(vector["at_most"]))


def poisson(noise: float = 1.0, probability: float = 0.1, count: int = 50) -> list[Event]:
    return [Event(Gaussian(noise), Poisson(probability), count)]


def test_same_bits_for_the_same_numbers() -> None:
    """Integers, NumPy scalars and floats: an integer noise of 1 costs what 1.0 costs."""
    reference = epsilon_for_delta(poisson(), ADD_REMOVE, 1e-5)
    for one in (1, np.int64(1), np.float32(1.0), np.float64(1.0)):
        other = epsilon_for_delta([Event(Gaussian(one), Poisson(0.1), np.int64(50))], ADD_REMOVE, np.float64(1e-5))  # type: ignore[arg-type]  # on purpose
        assert other == reference
    assert epsilon_for_delta([Event(Gaussian(1))], ADD_REMOVE, 1e-5) == epsilon_for_delta(
        [Event(Gaussian(1.0))], ADD_REMOVE, 1e-5
    )


def test_replace_one_doubles_the_sensitivity_and_never_the_multiplier() -> None:
    one = epsilon_for_delta([Event(Gaussian(1.0))], REPLACE, 1e-5).value
    half = epsilon_for_delta([Event(Gaussian(0.5))], ADD_REMOVE, 1e-5).value
    assert one == half
    assert one.upper == pytest.approx(9.997256146434301, abs=1e-9)
    assert epsilon_for_delta([Event(Gaussian(1.0))], SPECIAL, 1e-5).value.upper == pytest.approx(4.377178095681137)
    assert epsilon_for_delta([Event(Laplace(2.0), count=3)], REPLACE, 0.0).value.upper == pytest.approx(3.0)
    assert epsilon_for_delta([Event(PureDp(0.5), count=3)], REPLACE, 0.0).value.upper == pytest.approx(1.5)


def test_replace_one_costs_more_than_add_or_remove_under_poisson_sampling() -> None:
    special = epsilon_for_delta(poisson(2.0), SPECIAL, 1e-6).value
    assert special == epsilon_for_delta(poisson(2.0), ADD_REMOVE, 1e-6).value
    replace = epsilon_for_delta(poisson(2.0), REPLACE, 1e-6).value
    doubled = epsilon_for_delta(poisson(1.0), ADD_REMOVE, 1e-6).value
    assert special.upper < replace.lower
    assert replace.upper < 1.3 * doubled.upper


def test_full_batches_add_up_whatever_their_grouping() -> None:
    split = [Event(Gaussian(3.0), count=4), Event(Gaussian(4.0), Poisson(1.0), 16), Event(Gaussian(3.0), count=5)]
    answer = epsilon_for_delta(split, ADD_REMOVE, 1e-5)
    one = epsilon_for_delta([Event(Gaussian(1 / math.sqrt(2)))], ADD_REMOVE, 1e-5)
    assert answer.method == "analytic_gaussian"
    assert answer.value.upper == pytest.approx(one.value.upper, rel=1e-12)


def test_pure_parts_add_up_at_delta_zero_and_gaussians_have_no_bound_there() -> None:
    events = [Event(Laplace(1.0), count=3), Event(PureDp(0.5), count=2)]
    assert epsilon_for_delta(events, ADD_REMOVE, 0.0).value.upper == pytest.approx(4.0, abs=1e-12)
    assert delta_for_epsilon(events, ADD_REMOVE, 4.0 + 1e-9).value.upper == 0.0
    for mechanism in (Gaussian(1e3), ZcDp(1e-6)):
        answer = epsilon_for_delta([*events, Event(mechanism)], ADD_REMOVE, 0.0)
        assert math.isinf(answer.value.upper)
        assert "No finite epsilon" in answer.warnings[0]


def test_mixed_lists_are_between_their_parts_and_simple_composition() -> None:
    gaussian, laplace = Event(Gaussian(2.0), count=2), Event(Laplace(5.0), count=3)
    for relation in NeighboringRelation:
        for others in ([laplace], [Event(PureDp(0.2), count=3)], [Event(ZcDp(0.01))], poisson(3.0, 0.05, 20)):
            mixed = epsilon_for_delta([gaussian, *others], relation, 1e-6).value
            alone = epsilon_for_delta([gaussian], relation, 1e-6).value
            assert alone.lower <= mixed.lower
            assert mixed.upper <= (alone.upper + sum(e.count for e in others) * 1.0)
            assert 0 < mixed.upper - mixed.lower < 0.5


def test_epsilon_and_delta_are_inverse() -> None:
    for relation in NeighboringRelation:
        events = [*poisson(0.8, 0.05, 300), Event(Gaussian(5.0), count=3)]
        epsilon = epsilon_for_delta(events, relation, 1e-7).value
        assert delta_for_epsilon(events, relation, epsilon.upper).value.lower <= 1e-7
        assert delta_for_epsilon(events, relation, epsilon.lower * (1 - 1e-6)).value.upper >= 1e-7


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    noise=st.floats(0.4, 8.0),
    probability=st.floats(1e-4, 0.6),
    count=st.integers(1, 3000),
    delta=st.floats(1e-12, 1e-2),
    relation=st.sampled_from(list(NeighboringRelation)),
)
def test_more_noise_fewer_steps_and_larger_delta_never_cost_more(
    noise: float, probability: float, count: int, delta: float, relation: NeighboringRelation
) -> None:
    base = epsilon_for_delta(poisson(noise, probability, count), relation, delta).value.lower
    for events, other_delta in (
        (poisson(0.9 * noise, probability, count), delta),
        (poisson(noise, min(1.0, 1.1 * probability), count), delta),
        (poisson(noise, probability, 2 * count), delta),
        (poisson(noise, probability, count), 0.5 * delta),
    ):
        assert epsilon_for_delta(events, relation, other_delta).value.upper >= base


def random_events(draw: random.Random) -> list[Event]:
    kinds: list[Mechanism] = [
        Gaussian(10 ** draw.uniform(math.log10(0.05), 3)),
        Laplace(10 ** draw.uniform(-1, 3)),
        PureDp(10 ** draw.uniform(-6, 1)),
        ZcDp(10 ** draw.uniform(-8, 1)),
    ]
    events = []
    for _ in range(draw.choice([1, 1, 2, 3])):
        count = int(10 ** draw.uniform(0, 7.9))
        if draw.random() < 0.5:
            events.append(Event(kinds[0], Poisson(10 ** draw.uniform(-8, 0)), count))
        else:
            events.append(Event(draw.choice(kinds), count=count))
    return events


def test_never_nan() -> None:
    """Extreme inputs: no exception, no NaN, no inf, and no two bounds that contradict each other."""
    draw = random.Random(3)
    for _ in range(16):
        events, relation = random_events(draw), draw.choice(list(NeighboringRelation))
        if sum(event.count for event in events) > 10**8:
            continue
        delta = 10 ** draw.uniform(-30, math.log10(0.5))
        for answer in (
            epsilon_for_delta(events, relation, delta),
            delta_for_epsilon(events, relation, 10 ** draw.uniform(-3, 2)),
        ):
            assert 0 <= answer.value.lower <= answer.value.estimate <= answer.value.upper < math.inf
            assert all(math.isfinite(term) and term >= 0 for term in answer.error_budget.values())
            assert answer.method in METHODS


CORNERS = [
    (Event(Gaussian(0.05), Poisson(1e-8), 10**8), 1e-30),
    (Event(Gaussian(1e3), Poisson(1e-8), 1), 1e-30),
    (Event(Gaussian(0.05), count=10**8), 0.5),
    (Event(Gaussian(1e3), Poisson(0.999999), 10**8), 1e-30),
    (Event(Laplace(0.05), count=10**8), 1e-30),
]


@pytest.mark.thorough  # tests/accounting/test_profile_properties.py has the shorter ones
@pytest.mark.parametrize(("event", "delta"), CORNERS)
@pytest.mark.one_in(3)
def test_corners_of_the_range(event: Event, delta: float) -> None:
    for relation in NeighboringRelation:
        assert math.isfinite(epsilon_for_delta([event], relation, delta).value.upper)


class Broken:
    """An evaluator that fails in every way."""

    name = "broken"

    def __init__(self, answers: object) -> None:
        self.answers = answers

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        return self.epsilon(composition, epsilon)

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        if isinstance(self.answers, Exception):
            raise self.answers
        assert isinstance(self.answers, Bounds)
        return self.answers


@pytest.mark.parametrize(
    "failure", [OverflowError("no"), ValueError("no"), Bounds(math.nan, 1.0), Bounds(0.0, math.nan), Bounds(3.0, 1.0)]
)
def test_a_failing_evaluator_leaves_the_others_sound_answer(failure: object) -> None:
    expected = epsilon_for_delta(poisson(), ADD_REMOVE, 1e-5, evaluators=QUICK_EVALUATORS)
    found = epsilon_for_delta(poisson(), ADD_REMOVE, 1e-5, evaluators=(Broken(failure), *QUICK_EVALUATORS))
    assert found == expected
    alone = epsilon_for_delta(poisson(), ADD_REMOVE, 1e-5, evaluators=(Broken(failure),))
    assert math.isinf(alone.value.upper)
    assert delta_for_epsilon(poisson(), ADD_REMOVE, 1.0, evaluators=(Broken(failure),)).value.upper == 1.0


def test_contradicting_bounds_leave_the_answer_to_the_proved_evaluators() -> None:
    low = Broken(Bounds(lower=5.0, upper=math.inf))
    answer = epsilon_for_delta(poisson(5.0), ADD_REMOVE, 1e-5, evaluators=(low, *QUICK_EVALUATORS))
    assert answer == epsilon_for_delta(poisson(5.0), ADD_REMOVE, 1e-5, evaluators=QUICK_EVALUATORS)


def test_numbers_outside_their_range_are_refused() -> None:
    for delta in (-0.1, 1.5, math.nan, "x", True):
        with pytest.raises(InvalidValue):
            epsilon_for_delta(poisson(), ADD_REMOVE, delta)  # type: ignore[arg-type]  # on purpose
    for epsilon in (-1.0, math.inf, None):
        with pytest.raises(InvalidValue):
            delta_for_epsilon(poisson(), ADD_REMOVE, epsilon)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidValue, match="1 to 1000"):
        epsilon_for_delta([], ADD_REMOVE, 1e-5)
    assert epsilon_for_delta(poisson(), ADD_REMOVE, 1.0).value.upper == 0.0


def test_gaussian_lists_are_answered_by_the_closed_form_alone() -> None:
    assert epsilon_for_delta([Event(Gaussian(2.0))], ADD_REMOVE, 1e-5).method == AnalyticGaussian.name


def test_importing_the_package_does_not_import_dp_accounting() -> None:
    code = (
        "import sys, accounting.accountant, accounting.solve, accounting.filters, accounting.dp_accounting_adapter;"
        "sys.exit(any(name.startswith('dp_accounting') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2]).returncode == 0
