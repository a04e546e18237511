"""The Fourier evaluator as the accountant uses it: known values both ways, cost, directions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition import fourier
from accounting.composition.composition import Composition
from accounting.composition.fourier import directed
from accounting.events import Event
from accounting.fourier.choice import DirectedComposition
from accounting.fourier.contour import LineValues, power_values
from accounting.fourier.profiles import DirectedProfiles
from accounting.fourier.steps import StepLine
from accounting.intervals import Bounds
from accounting.losses.privacy_loss import Direction
from accounting.relations import NeighboringRelation
from tests.accounting.composition.fourier_runs import ADD_REMOVE, REPLACE, composition_of, delta_of, epsilon_of, poisson
from tests.accounting.fourier.truths import repeated_delta

#: Noise, probability, count, epsilon, delta under add_or_remove_one and the relative error of delta: contours in 30
#: digits with other tilts and periods, closed forms, nested quadrature.
KNOWN = (
    (1.0, 0.02, 5000, 9.4, 1.0039287035e-5, 1e-10),
    (4.0, 0.01, 10_000, 0.9468668, 1.0000000121e-5, 1e-10),
    (0.7, 0.001, 20_000, 2.02, 1.0062238837e-6, 1e-10),
    (20.0, 0.3, 2000, 3.126, 1.0002769454e-6, 1e-10),
    (0.6, 1e-5, 100_000, 0.2638, 9.893263243e-9, 1e-8),
    (0.5, 0.001, 10, 0.1, 0.00045926152946, 2e-8),
    (0.5, 0.001, 10, 2.1, 1.0010325241e-6, 3e-9),
    (4.0, 0.0001, 10**8, 0.8, 8.3795203131e-5, 1e-10),
    (1.0, 0.01, 1, 0.5, 2.2145190132e-7, 1e-10),
    (0.5, 0.01, 1, 1.0, 0.00027363749225, 1e-10),
    (50.0, 0.5, 10**6, 90.0, 2.2220275351e-5, 1e-10),
    (4.0, 0.01, 1000, 0.8357, 1.0008490687e-25, 1e-10),
    (1.0, 1e-6, 10**8, 0.05, 2.1668888053e-7, 1e-10),
    (0.5, 0.2, 3, 1.0, 0.15593277591, 3e-9),
    (0.3, 0.05, 2, 3.0, 0.034278384413, 1e-10),
    (10.0, 0.9, 300, 5.0, 0.0026461243256, 1e-10),
    (2.0, 0.005, 50_000, 1.5, 0.0023505008696, 1e-10),
    (1.0, 0.001, 1000, 0.2, 4.3850656965e-7, 1e-10),
    (1000.0, 0.1, 10**8, 4.0, 4.7122726175e-5, 1e-10),
    (0.4, 0.0001, 50, 4.0, 5.1354973634e-8, 2e-9),
)


EVERY_KNOWN = pytest.mark.parametrize(("s", "q", "count", "epsilon", "delta", "error"), KNOWN)


@EVERY_KNOWN
def test_interval_contains_truth_of_known_deltas(
    s: float, q: float, count: int, epsilon: float, delta: float, error: float
) -> None:
    for value in (
        delta_of(composition_of(s, q, count), epsilon),
        delta_for_epsilon(poisson(s, q, count), ADD_REMOVE, epsilon).value,
    ):
        assert value.lower <= delta * (1.0 + error)
        assert value.upper >= delta * (1.0 - error)
        assert value.width <= 5e-4 * delta


@EVERY_KNOWN
@pytest.mark.one_in(4)
def test_interval_contains_truth_of_known_epsilons(
    s: float, q: float, count: int, epsilon: float, delta: float, error: float
) -> None:
    """Asked at the ends of what is known of delta."""
    composition = composition_of(s, q, count)
    below, above = epsilon_of(composition, delta * (1.0 - error)), epsilon_of(composition, delta * (1.0 + error))
    assert above.lower <= epsilon
    assert below.upper >= epsilon
    assert below.width <= 1e-5 * max(1.0, epsilon)
    answer = epsilon_for_delta(poisson(s, q, count), ADD_REMOVE, delta).value
    assert answer.lower <= below.upper
    assert above.lower <= answer.upper


@dataclass(frozen=True)
class KnownProfile:
    """delta = e^-eps, known to a tenth, with a slope that is wrong by a factor."""

    factor: float
    tilt: float = 1.0

    def delta_bounds(self, epsilon: float) -> Bounds:
        delta = math.exp(-epsilon)
        return Bounds(0.9 * delta, 1.1 * delta, delta, {"aliasing": 0.2 * delta})

    def estimate(self, epsilon: float) -> tuple[float, float]:
        return math.exp(-epsilon), self.factor * math.exp(-epsilon)


@pytest.mark.parametrize("factor", [1e-3, 0.5, 1.0, 2.0, 30.0, 1e3])
@pytest.mark.parametrize("start", [4.5, 4.99, 5.0, 5.01, 5.5])
def test_ends_of_an_epsilon_are_proved_and_not_estimated(factor: float, start: float) -> None:
    """Slopes and starting points steer and bound nothing: ends that are not proved are not claimed."""
    profile, delta = KnownProfile(factor), math.exp(-5.0)
    found = fourier.certified(profile, start, delta)
    assert found.upper == math.inf or profile.delta_bounds(found.upper).upper <= delta
    assert found.lower == 0.0 or profile.delta_bounds(found.lower).lower > delta
    if factor == 1.0:
        assert found.lower > 0.7 * start
        assert found.upper < 1.3 * start


@pytest.mark.parametrize(
    ("s", "q", "epsilon"), [(0.7, 0.01, 0.5), (1.0, 0.1, 0.3), (0.5, 0.05, 1.5), (2.0, 0.3, 1.0), (0.8, 0.999, 9.0)]
)
@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE])
def test_interval_contains_truth_of_two_steps(
    s: float, q: float, epsilon: float, relation: NeighboringRelation
) -> None:
    """Against nested quadrature, under either relation."""
    kind = "remove" if relation is ADD_REMOVE else "replace"
    truth = repeated_delta(kind, s, q, 2, epsilon)
    composition = composition_of(s, q, 2, relation)
    bounds = delta_of(composition, epsilon)
    assert bounds.lower <= truth * (1.0 + 1e-9)
    assert bounds.upper >= truth * (1.0 - 1e-9)
    assert bounds.width <= 1e-5 * truth
    back = epsilon_of(composition, truth)
    assert back.lower - 1e-8 <= epsilon <= back.upper + 1e-8


def work(monkeypatch: pytest.MonkeyPatch, events: list[Event], delta: float) -> tuple[int, int]:
    """(points of all lines, nodes of all lines times their points) of one epsilon."""
    points, products = [], []
    log_ratios = StepLine.log_ratios

    def counted_values(*arguments: object) -> LineValues:
        points.append(int(arguments[-1]))  # type: ignore[call-overload]  # as `power_values` declares
        return power_values(*arguments)  # type: ignore[arg-type]  # the same

    def counted_ratios(self: StepLine, blocks: int, width: int, spacing: float) -> object:
        products.append(blocks * width * self.weights.size)
        return log_ratios(self, blocks, width, spacing)

    with monkeypatch.context() as patch:
        patch.setattr("accounting.fourier.choice.power_values", counted_values)
        patch.setattr(StepLine, "log_ratios", counted_ratios)
        assert epsilon_for_delta(events, ADD_REMOVE, delta).method == "fourier_inversion"
    return sum(points), sum(products)


def test_cost_does_not_depend_on_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points and nodes, counted: a thousand steps and a million of the same total loss differ by less than half."""
    costs = [
        work(monkeypatch, poisson(1.0, 0.02 * math.sqrt(1e3 / count), count), 1e-6) for count in (10**3, 10**6, 10**8)
    ]
    for points, products in costs[1:]:
        assert points <= 1.5 * costs[0][0]
        # Nodes grow like log T, which the accuracy of every step has to.
        assert products <= 3.0 * costs[0][1]
    more = work(monkeypatch, poisson(50.0, 0.02, 10**6), 1e-6)
    fewer = work(monkeypatch, poisson(50.0, 0.02, 10**3), 1e-6)
    assert more[0] <= 1.5 * fewer[0] + 100


@pytest.mark.parametrize("larger", list(Direction))
def test_the_larger_direction_is_reported(larger: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it is. Removal always was in all cases known, so the other one is made to be here."""
    little, much = composition_of(1.2, 0.02, 300), composition_of(1.0, 0.02, 300)

    def swapped(composition: Composition, direction: Direction, log_delta: float = 0.0) -> DirectedComposition | None:
        return directed(much if direction is larger else little, Direction.REMOVE)

    epsilon, delta = epsilon_of(much, 1e-6), delta_of(much, 1.0)
    monkeypatch.setattr(fourier, "directed", swapped)
    found = epsilon_of(little, 1e-6)
    assert found.upper == pytest.approx(epsilon.upper, rel=1e-6)
    assert found.lower == pytest.approx(epsilon.lower, rel=1e-6)
    assert delta_of(little, 1.0).upper == pytest.approx(delta.upper, rel=1e-6)
    assert delta_of(little, 1.0).lower == pytest.approx(delta.lower, rel=1e-6)


@pytest.mark.parametrize(("s", "q", "count", "epsilon"), [(1.0, 0.1, 2, 0.05), (0.8, 0.3, 2, 0.3), (2.0, 0.5, 2, 0.4)])
def test_the_direction_of_adding_is_sound(s: float, q: float, count: int, epsilon: float) -> None:
    """On its own, against nested quadrature: the evaluator's number is the larger of both directions."""
    composition = composition_of(s, q, count)
    add = directed(composition, Direction.ADD)
    assert add is not None
    truth = repeated_delta("add", s, q, count, epsilon)
    best = Bounds(0.0, 1.0)
    for profile, _ in DirectedProfiles(add).near(epsilon, math.log(truth)):
        bounds = profile.delta_bounds(epsilon)
        assert bounds.lower <= truth * (1.0 + 1e-9)
        assert bounds.upper >= truth * (1.0 - 1e-9)
        best = Bounds(max(best.lower, bounds.lower), min(best.upper, bounds.upper))
    assert best.width <= 1e-4 * truth
    assert delta_of(composition, epsilon).lower >= truth * (1.0 - 1e-9)


def test_adding_ends_at_its_largest_loss() -> None:
    """delta of two steps of ADD just below -2 log(1 - q), and 0 from there on; removal has no such end."""
    s, q = 0.5, 0.3
    add = directed(composition_of(s, q, 2), Direction.ADD)
    assert add is not None
    largest = -2.0 * math.log1p(-q)
    for epsilon in (0.9 * largest, 0.99 * largest, largest * (1.0 - 1e-4), largest * (1.0 - 1e-9)):
        truth = repeated_delta("add", s, q, 2, epsilon)
        for profile, _ in DirectedProfiles(add).near(epsilon, math.log(max(truth, 1e-30))):
            bounds = profile.delta_bounds(epsilon)
            assert bounds.lower <= truth * (1.0 + 1e-9) + 1e-16
            assert bounds.upper >= truth * (1.0 - 1e-9) - 1e-16
        both = delta_of(composition_of(s, q, 2), epsilon)
        assert both.lower >= truth
    beyond = delta_of(composition_of(s, q, 2), largest * (1.0 + 1e-9))
    removal = repeated_delta("remove", s, q, 2, largest * (1.0 + 1e-9))
    assert beyond.lower <= removal * (1.0 + 1e-9)
    assert beyond.upper >= removal * (1.0 - 1e-9)
