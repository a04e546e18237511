"""The worked conversions: Proposition 3, and what the engine has beside it."""

from __future__ import annotations

import pytest

from accounting.events import DisjointBatches, Event, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.lowy_razaviyayn.zcdp import paper_epsilon, paper_rho, proposition_3_epsilon, proposition_3_rho


@pytest.mark.parametrize(
    ("rho", "delta", "printed", "exact"),
    [(0.5, 1e-6, 5.756521770, 4.886554117), (0.01, 1e-5, 0.6886140424, 0.4969753639)],
)
def test_the_worked_conversions(rho, delta, printed, exact):
    assert proposition_3_epsilon(rho, delta) == pytest.approx(printed, rel=1e-9)
    assert proposition_3_rho(printed, delta) == pytest.approx(rho, rel=1e-9)
    noise_multiplier = (2.0 / rho) ** 0.5
    passes = [Event(Gaussian(noise_multiplier), DisjointBatches("by_position"), 5)]
    epsilon = ApproximateDpTarget(1.0, delta).assess(passes, NeighboringRelation.REPLACE_ONE).value.upper
    assert epsilon == pytest.approx(exact, rel=1e-8), "the pass is Gaussian DP with the paper's epsilon_p"


def test_the_worked_inverse():
    assert proposition_3_rho(1.0, 1e-6) == pytest.approx(0.01746890477, rel=1e-9)


def test_the_papers_epsilon_is_read_off_the_noise():
    assert paper_epsilon(2.0) == 1.0
    assert paper_rho(2.0) == 0.5
