from __future__ import annotations

import math

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue, Unreachable
from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp
from accounting.relations import NeighboringRelation
from accounting.solve import EventsAt, solve_noise_multiplier

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


def poisson(probability: float, count: int) -> EventsAt:
    return lambda noise: [Event(Gaussian(noise), Poisson(probability), count)]


CASES = [
    (poisson(0.1, 512), ADD_REMOVE, 1.0, 1e-6),
    (poisson(0.02, 5000), ADD_REMOVE, 1.0, 1e-5),
    (poisson(0.2, 100), NeighboringRelation.REPLACE_ONE, 1.0, 1e-5),
    (poisson(1e-3, 10000), NeighboringRelation.REPLACE_SPECIAL, 8.0, 1e-6),
    (poisson(0.01, 10), ADD_REMOVE, 0.05, 1e-9),
    (poisson(1.0, 100), NeighboringRelation.REPLACE_ONE, 1.0, 1e-5),
    (lambda s: [Event(Laplace(s), count=10)], ADD_REMOVE, 2.0, 0.0),
    (lambda s: [Event(Laplace(s), count=40)], ADD_REMOVE, 2.0, 1e-6),
    (lambda s: [Event(Gaussian(s), Poisson(0.1), 100), Event(PureDp(0.3))], ADD_REMOVE, 1.0, 1e-6),
]


@pytest.mark.parametrize(("events_at", "relation", "epsilon", "delta"), CASES)
def test_never_misses_and_target_is_used(
    events_at: EventsAt, relation: NeighboringRelation, epsilon: float, delta: float
) -> None:
    found = solve_noise_multiplier(events_at, relation, epsilon=epsilon, delta=delta)
    assert found.achieved == epsilon_for_delta(events_at(found.noise_multiplier), relation, delta)
    assert epsilon * (1 - 1e-5) <= found.achieved.value.upper <= epsilon
    less = epsilon_for_delta(events_at(found.noise_multiplier * (1 - 2e-5)), relation, delta)
    assert less.value.upper > epsilon * (1 - 1e-5)


def test_never_misses_where_the_cost_jumps() -> None:
    """Half a millionth above the target on one side of 2, well below it on the other."""

    def jumping(noise: float) -> list[Event]:
        return [Event(PureDp(0.9 if noise >= 2.0 else 1.0000005))]

    found = solve_noise_multiplier(jumping, ADD_REMOVE, epsilon=1.0, delta=0.0)
    assert found.achieved.value.upper == pytest.approx(0.9)
    assert 2.0 <= found.noise_multiplier <= 2.0 * (1 + 2e-7)


def test_known_answer_is_rounded_up() -> None:
    """512 steps at probability 0.1 for (1, 1e-6): 9.661755; the 9.66 that is quoted for it misses its target."""
    found = solve_noise_multiplier(poisson(0.1, 512), ADD_REMOVE, epsilon=1.0, delta=1e-6)
    assert 9.661755 <= found.noise_multiplier <= 9.6619
    assert epsilon_for_delta(poisson(0.1, 512)(9.66), ADD_REMOVE, 1e-6).value.lower > 1.0


def test_full_batch_is_solved_analytically() -> None:
    found = solve_noise_multiplier(poisson(1.0, 9), ADD_REMOVE, epsilon=4.377178095681137, delta=1e-5)
    assert found.noise_multiplier == pytest.approx(3.0, rel=1e-9)
    assert found.achieved.method == "analytic_gaussian"


def test_unreachable_targets_say_why() -> None:
    fixed = [Event(PureDp(2.0))]
    with pytest.raises(Unreachable, match="even noise multiplier 1e\\+06 costs epsilon"):
        solve_noise_multiplier(lambda s: [Event(Gaussian(s)), *fixed], ADD_REMOVE, epsilon=1.0, delta=1e-9)
    with pytest.raises(Unreachable, match="unbounded"):
        solve_noise_multiplier(poisson(0.1, 10), ADD_REMOVE, epsilon=1.0, delta=0.0)
    with pytest.raises(Unreachable, match="every noise multiplier"):
        solve_noise_multiplier(poisson(1e-8, 1), ADD_REMOVE, epsilon=1.0, delta=1e-3)


def test_targets_outside_their_range_are_refused() -> None:
    for epsilon, delta in ((0.0, 1e-5), (-1.0, 1e-5), (math.nan, 1e-5), (1.0, -1e-5), (1.0, 2.0)):
        with pytest.raises(InvalidValue):
            solve_noise_multiplier(poisson(0.1, 10), ADD_REMOVE, epsilon=epsilon, delta=delta)
