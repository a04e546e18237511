"""One list of events that bounds every candidate."""

from __future__ import annotations

import pytest

from accounting.accountant import delta_for_epsilon
from accounting.errors import Unsupported
from accounting.events import DisjointBatches, Event, Gaussian, Laplace, Poisson
from accounting.relations import NeighboringRelation
from accounting.tuning import selection_moments
from accounting.tuning.candidates import bounding_events
from accounting.tuning.trials import PoissonTrials

CANDIDATES = {
    "noise": [[Event(Gaussian(2.0), Poisson(0.1), 20)], [Event(Gaussian(1.5), Poisson(0.1), 20)]],
    "steps": [[Event(Gaussian(2.0), Poisson(0.1), 20)], [Event(Gaussian(2.0), Poisson(0.1), 30)]],
    "both, the other way round": [[Event(Gaussian(1.0), count=2)], [Event(Gaussian(3.0), count=9)]],
    "phases": [
        [Event(Gaussian(1.0)), Event(Laplace(2.0), count=3)],
        [Event(Gaussian(2.0)), Event(Laplace(1.0), count=3)],
    ],
    "schedules": [[Event(Gaussian(2.0), DisjointBatches("independent"), 5)]] * 2,
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_bounds_each_candidate(name: str) -> None:
    candidates, relation = CANDIDATES[name], NeighboringRelation.ADD_OR_REMOVE_ONE
    bound = bounding_events(candidates)
    assert bound == bounding_events(candidates[::-1])
    law = PoissonTrials(3.0)
    dearest = selection_moments(bound, relation, law, [2.0, 8.0]).epsilons
    for candidate in candidates:
        for epsilon in (0.0, 0.5, 2.0):
            most = delta_for_epsilon(bound, relation, epsilon).value.upper
            assert delta_for_epsilon(candidate, relation, epsilon).value.lower <= most
        own = selection_moments(candidate, relation, law, [2.0, 8.0]).epsilons
        assert all(a <= b * (1 + 1e-9) for a, b in zip(own, dearest, strict=True))


@pytest.mark.parametrize(
    "other",
    [
        [Event(Gaussian(1.0), Poisson(0.2), 10)],
        [Event(Gaussian(1.0), Poisson(0.1), 10), Event(Gaussian(1.0))],
        [Event(Laplace(1.0), Poisson(0.1), 10)],
    ],
)
def test_what_nothing_bounds_is_refused_with_its_place(other: list[Event]) -> None:
    one = [Event(Gaussian(1.0), Poisson(0.1), 10)]
    with pytest.raises(Unsupported, match="step size") as refused:
        bounding_events([one, one, other])
    assert (refused.value.code, refused.value.pointer) == ("candidates_differ", (2,))
