"""The engine against long-precision references that share nothing with it."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.events import Event, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from tests.high_precision.direct import bound_with_cut
from tests.high_precision.loader import KnownDelta, load_references
from tests.high_precision.loss_quadrature import PoissonGaussian

REFERENCES = load_references()
#: Widths of entries marked as goals, in units of max(1e-6, 1e-6 epsilon).
WIDTH_IN_GOALS = 1.0
#: Smallest delta that is asked for backwards: the contract's range ends there.
SMALLEST_DELTA = Decimal("1e-30")

every_reference = pytest.mark.parametrize("known", REFERENCES, ids=lambda known: known.id)
every_reference_in_range = pytest.mark.parametrize(
    "known", [known for known in REFERENCES if known.delta >= SMALLEST_DELTA], ids=lambda known: known.id
)


@every_reference
@pytest.mark.one_in(16)
def test_delta_contains_the_reference(known: KnownDelta) -> None:
    value = delta_for_epsilon(known.events, known.relation, known.epsilon).value
    assert Decimal(value.lower) <= known.delta + known.error
    assert Decimal(value.upper) >= known.delta - known.error


@every_reference_in_range
@pytest.mark.one_in(4)
def test_epsilon_contains_the_reference(known: KnownDelta) -> None:
    """Asked at the nearest floats on both sides of the reference's delta, so that its own rounding cannot decide."""
    above = float(known.delta + known.error)
    below = float(known.delta - known.error)
    above = above if Decimal(above) >= known.delta + known.error else math.nextafter(above, math.inf)
    below = below if Decimal(below) <= known.delta - known.error else math.nextafter(below, 0.0)
    lower = epsilon_for_delta(known.events, known.relation, above).value.lower
    upper = epsilon_for_delta(known.events, known.relation, below).value.upper
    assert lower <= known.epsilon <= upper


@pytest.mark.parametrize("known", [known for known in REFERENCES if known.goal], ids=lambda known: known.id)
def test_epsilon_is_as_narrow_as_the_goal(known: KnownDelta) -> None:
    value = epsilon_for_delta(known.events, known.relation, float(known.delta)).value
    assert value.width <= WIDTH_IN_GOALS * max(1e-6, 1e-6 * value.upper)


def test_gap_between_many_small_losses_and_one_large_one() -> None:
    """Far below the smallest delta: add is exactly zero there, and remove has an elementary bound."""
    noise, probability, count, epsilon = 5.2, 4.8e-6, 2598, 0.077
    assert -count * math.log1p(-probability) < epsilon
    bound = bound_with_cut(PoissonGaussian(noise, probability, "remove"), count, epsilon, cut=250.0, tilt=20_000.0)
    assert 0 < bound < 1e-300
    events = [Event(Gaussian(noise), Poisson(probability), count)]
    value = delta_for_epsilon(events, NeighboringRelation.ADD_OR_REMOVE_ONE, epsilon).value
    assert value.lower <= bound
    assert value.upper < 1e-6


def test_references_cover_the_range() -> None:
    """Noise 0.05 to 1e3, probabilities 1e-8 to 1, counts 1 to 1e8, delta 1e-30 to 0.5, all schemes and relations."""
    assert len(REFERENCES) >= 60
    events = [event for known in REFERENCES for event in known.events]
    assert max(event.count for event in events) == 10**8
    assert {event.sampling.kind for event in events} >= {"full_batch", "poisson", "without_replacement"}
    assert {event.mechanism.kind for event in events} == {"gaussian", "laplace"}
    deltas = sorted(known.delta for known in REFERENCES)
    assert deltas[0] < Decimal("1e-30")
    assert deltas[-1] > Decimal("0.1")
