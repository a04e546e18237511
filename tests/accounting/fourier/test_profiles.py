"""The rule between the methods, profiles in parts, and what happens when one of them fails."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import compose
from accounting.composition.fourier import FourierInversion, directed
from accounting.events import Event, Gaussian, Poisson
from accounting.fourier import profiles as profiles_module
from accounting.fourier.choice import DirectedComposition, contour_at
from accounting.fourier.contour import Contour
from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.profiles import DirectedProfiles, SumProfile, goal, known_log_delta, windowed_contours
from accounting.fourier.quadrature import GaussianPairStep
from accounting.intervals import Bounds
from accounting.losses.privacy_loss import Direction
from accounting.relations import NeighboringRelation
from tests.accounting.fourier.truths import repeated_delta
from tests.accounting.references import gaussian_delta

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE


def poisson(s: float, q: float, count: int) -> list[Event]:
    return [Event(Gaussian(s), Poisson(q), count)]


def profiles_of(kind: Pair, s: float, q: float, count: int, mu_squared: float = 0.0) -> DirectedProfiles:
    step = GaussianPairStep(GaussianPair(kind, s, q), 44.0 + math.log(count))
    return DirectedProfiles(DirectedComposition(((step, count),), mu_squared))


# --- the rule


@pytest.mark.parametrize(
    ("events", "relation", "epsilon", "method"),
    [
        # Training runs.
        (poisson(1.0, 0.02, 5000), ADD_REMOVE, 9.4, "fourier_inversion"),
        (poisson(4.0, 0.01, 10000), ADD_REMOVE, 0.9468668, "fourier_inversion"),
        (poisson(0.7, 0.001, 20000), ADD_REMOVE, 2.02, "fourier_inversion"),
        (poisson(1.0, 0.02, 2000), REPLACE, 12.0, "fourier_inversion"),
        # A few participations.
        (poisson(0.5, 0.001, 10), ADD_REMOVE, 2.1, "split_fourier_inversion"),
        (poisson(0.4, 0.0001, 50), ADD_REMOVE, 4.0, "split_fourier_inversion"),
        # The same with another step beside it: no equal steps to split.
        ([*poisson(0.5, 0.001, 10), *poisson(0.6, 0.001, 10)], ADD_REMOVE, 2.1, "windowed_fourier_inversion"),
        # Full batches alone have a closed form, and so has one step.
        ([Event(Gaussian(2.0), count=9)], ADD_REMOVE, 1.0, "analytic_gaussian"),
        (poisson(1.0, 0.01, 1), ADD_REMOVE, 0.5, "basic_composition"),
    ],
)
def test_the_rule_chooses_the_method(
    events: list[Event], relation: NeighboringRelation, epsilon: float, method: str
) -> None:
    answer = delta_for_epsilon(events, relation, epsilon)
    assert answer.method == method
    assert 0.0 < answer.value.lower <= answer.value.upper <= answer.value.lower * (1.0 + 1e-4)
    back = epsilon_for_delta(events, relation, answer.value.estimate)
    assert back.value.lower - 1e-5 <= epsilon <= back.value.upper + 1e-5


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("kind", "s", "q", "count", "epsilon"),
    [(Pair.REMOVE, 0.7, 0.01, 2, 0.5), (Pair.REMOVE, 0.5, 0.2, 3, 1.0), (Pair.ADD, 1.0, 0.3, 2, 0.2),
     (Pair.REPLACE, 0.5, 0.05, 2, 1.5), (Pair.REPLACE, 1.0, 0.1, 2, 0.3)],
)  # fmt: skip
def test_every_method_of_the_rule_is_sound_where_all_of_them_serve(
    kind: Pair, s: float, q: float, count: int, epsilon: float
) -> None:
    """Each profile that the rule would try, not only the first one, at its epsilon and around it."""
    around = [epsilon * factor for factor in (0.5, 0.99, 1.0, 1.02, 1.6)]
    truths = [repeated_delta(kind.value, s, q, count, at) for at in around]
    methods = set()
    for profile, method in profiles_of(kind, s, q, count).near(epsilon, math.log(truths[2])):
        methods.add(method)
        for at, truth in zip(around, truths, strict=True):
            bounds = profile.delta_bounds(at)
            assert bounds.lower <= truth * (1.0 + 1e-9), method
            assert bounds.upper >= truth * (1.0 - 1e-9), method
        assert profile.tilt > 0.0
    assert len(methods) >= 2 or kind is Pair.ADD


def test_steps_of_several_kinds_and_a_gaussian_are_one_contour() -> None:
    """A full batch among subsampled steps: mu^2 on the line, and the plain contour converges."""
    events = [*poisson(1.0, 0.02, 500), *poisson(0.8, 0.01, 100), Event(Gaussian(2.0), count=3)]
    composition = directed(compose(events, ADD_REMOVE), Direction.REMOVE)
    assert composition is not None
    assert composition.mu_squared == pytest.approx(0.75)
    assert len(composition.steps) == 2
    assert composition.largest_loss == math.inf
    found = epsilon_for_delta(events, ADD_REMOVE, 1e-6)
    assert found.method == "fourier_inversion"
    assert found.value.width <= 1e-6 * max(1.0, found.value.upper)


def test_the_largest_loss_of_add_is_summed_and_rounded_up() -> None:
    composition = directed(compose(poisson(0.5, 0.3, 7), ADD_REMOVE), Direction.ADD)
    assert composition is not None
    largest = -7.0 * math.log1p(-0.3)
    assert largest <= composition.largest_loss <= largest * (1.0 + 1e-13)


def test_participations_are_counted_over_all_steps() -> None:
    assert profiles_of(Pair.REMOVE, 1.0, 0.01, 50).participations == pytest.approx(0.5)
    assert profiles_of(Pair.REMOVE, 1.0, 0.01, 50, 0.1).participations == math.inf


# --- profiles in parts


def gaussian_contour(mu: float, epsilon: float) -> Contour:
    composition = DirectedComposition((), mu * mu)
    contour = contour_at(composition, composition.table_at(epsilon), epsilon, 3000)
    assert contour is not None
    return contour


def test_a_sum_of_parts_adds_bounds_and_counts_what_is_left_out_from_above_only() -> None:
    epsilon, bound = 3.0, 1e-7
    parts = (gaussian_contour(1.0, epsilon), gaussian_contour(0.8, epsilon))
    profile = SumProfile(parts, bound, 2.9)
    bounds, alone = profile.delta_bounds(epsilon), [part.delta_bounds(epsilon) for part in parts]
    truth = float(gaussian_delta(1.0, epsilon)) + float(gaussian_delta(0.8, epsilon))
    assert bounds.lower == pytest.approx(sum(part.lower for part in alone), rel=1e-15)
    assert bounds.upper == pytest.approx(sum(part.upper for part in alone) + bound, rel=1e-15)
    assert bounds.error_budget["left_out"] == bound
    assert bounds.lower <= truth * (1.0 + 1e-13) <= truth + bound <= bounds.upper * (1.0 + 1e-13)
    for name in ("truncation", "aliasing", "rounding", "quadrature"):
        assert bounds.error_budget[name] == pytest.approx(sum(part.error_budget[name] for part in alone))
    for found, of_parts in zip(
        profile.estimate(epsilon), zip(*(part.estimate(epsilon) for part in parts), strict=True), strict=True
    ):
        assert found == pytest.approx(sum(of_parts))
    # The bound of everything else was made for epsilons from 2.9 on: below, it says nothing.
    assert profile.delta_bounds(2.8).upper == math.inf
    assert profile.delta_bounds(2.8).lower > 0.0


@pytest.mark.thorough
def test_the_bound_of_the_bulk_stands_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is allowed to be a visible part of delta it is in `left_out`, and the truth is inside."""
    monkeypatch.setattr(profiles_module, "_NEGLIGIBLE", 1e-2)
    monkeypatch.setattr(profiles_module, "goal", lambda epsilon: 1.0)
    s, q, count = 0.6, 0.05, 3
    seen = 0
    for epsilon in (0.3, 0.6, 1.0):
        truth = repeated_delta("remove", s, q, count, epsilon)
        for profile in islice(profiles_of(Pair.REMOVE, s, q, count).split(epsilon, math.log(truth)), 3):
            bounds = profile.delta_bounds(epsilon)
            assert bounds.lower <= truth * (1.0 + 1e-9)
            assert bounds.upper >= truth * (1.0 - 1e-9)
            others = sum(width for name, width in bounds.error_budget.items() if name != "left_out")
            seen += truth - bounds.estimate > 2.0 * others
    # The bulk was really missing somewhere: without its bound the truth would lie outside.
    assert seen > 0


def test_a_capped_profile_counts_the_far_tail_as_lost() -> None:
    """The top so low that a visible part of delta lies beyond it."""
    s, q, count, epsilon = 0.5, 0.2, 3, 1.0
    truth = repeated_delta("remove", s, q, count, epsilon)
    profiles = profiles_of(Pair.REMOVE, s, q, count)
    for log_scale in (math.log(truth), math.log(truth) + 12.0, math.log(truth) + 17.0):
        made = [
            *profiles.capped(epsilon, log_scale, windowed=False),
            *profiles.capped(epsilon, log_scale, windowed=True),
        ]
        for profile in made:
            bounds = profile.delta_bounds(epsilon)
            assert bounds.lower <= truth * (1.0 + 1e-9)
            assert bounds.upper >= truth * (1.0 - 1e-9)


def test_windows_widen_until_the_points_suffice() -> None:
    """Fewer points, a wider window, a wider interval; always around the truth."""
    s, q, count, epsilon = 0.7, 0.1, 2, 0.5
    truth = repeated_delta("remove", s, q, count, epsilon)
    profiles = profiles_of(Pair.REMOVE, s, q, count)
    table = profiles.composition.table_at(epsilon)
    widths = []
    for points in (100_000, 20_000, 3_000):
        contour = next(windowed_contours(profiles.composition, table, epsilon, None, points, {}), None)
        assert contour is not None
        bounds = contour.delta_bounds(epsilon)
        assert bounds.lower <= truth * (1.0 + 1e-9)
        assert bounds.upper >= truth * (1.0 - 1e-9)
        assert contour.values.ratios.size <= 1.1 * points + 100
        widths.append(bounds.width)
    assert widths == sorted(widths)


def test_known_log_delta_only_where_it_is_known() -> None:
    contour = gaussian_contour(1.0, 3.0)
    found = known_log_delta(contour, 3.0)
    assert found == pytest.approx(math.log(gaussian_delta(1.0, 3.0)), abs=1e-6)
    assert known_log_delta(contour, 60.0) is None


def test_the_goal_is_relative_beyond_a_thousandth() -> None:
    assert goal(1e-5) == goal(1e-3) == 1e-9
    assert goal(30.0) == pytest.approx(3e-5)


def test_chernoff_bounds_hold() -> None:
    profiles = profiles_of(Pair.REMOVE, 1.0, 0.02, 5000)
    for delta, epsilon in ((1.0039287035e-5, 9.4),):
        assert profiles.chernoff_epsilon(delta) >= epsilon


# --- faults


def broken(*_: object) -> Bounds:
    raise FloatingPointError("the evaluator broke")


def nan_bounds(*_: object) -> Bounds:
    return Bounds(math.nan, math.nan, math.nan)


def nan_budget(*_: object) -> Bounds:
    return Bounds(0.0, 0.1, 0.05, {"quadrature": math.nan})


def crossed(*_: object) -> Bounds:
    return Bounds(0.2, 0.1, 0.15)


def nothing(*_: object) -> None:
    return None


@pytest.mark.one_in(2)
@pytest.mark.parametrize("fault", [broken, nan_bounds, nan_budget, crossed, nothing])
def test_a_fault_gives_the_next_evaluators_sound_answer(fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FourierInversion, "epsilon", fault)
    monkeypatch.setattr(FourierInversion, "delta", fault)
    answer = epsilon_for_delta(poisson(1.0, 0.02, 200), ADD_REMOVE, 1e-6)
    monkeypatch.undo()
    truth = epsilon_for_delta(poisson(1.0, 0.02, 200), ADD_REMOVE, 1e-6)
    assert truth.method == "fourier_inversion"
    assert answer.method in {"privacy_loss_distribution", "renyi_divergence", "basic_composition"}
    assert answer.value.lower <= truth.value.upper
    assert truth.value.lower <= answer.value.upper < math.inf


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "value"), [("delta_bounds", math.nan), ("estimate", math.nan), ("estimate", -1.0)])
def test_a_profile_gone_wrong_never_leaves_the_interval_without_the_truth(
    name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = epsilon_for_delta(poisson(1.0, 0.02, 200), ADD_REMOVE, 1e-6).value
    wrong = Bounds(value, value, value) if name == "delta_bounds" else (1e-6, value)
    monkeypatch.setattr(Contour, name, lambda self, epsilon: wrong)
    answer = epsilon_for_delta(poisson(1.0, 0.02, 200), ADD_REMOVE, 1e-6).value
    assert answer.lower <= truth.upper
    assert truth.lower <= answer.upper
    assert np.isfinite(answer.upper)
