"""Laplace noise with Poisson sampling: on lines and in compositions."""

from __future__ import annotations

import math

import pytest

from accounting.composition.composition import compose
from accounting.composition.fourier import FourierInversion
from accounting.events import Event, Gaussian, Laplace, Poisson
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.poisson_laplace import PoissonLaplaceLoss, PoissonLaplaceReplaceLoss
from accounting.relations import NeighboringRelation
from tests.accounting.fourier import ratio_checks, ratio_truths

#: Largest loss without sampling, probability, tilt, and the largest Im z that is compared.
SPECS = ((1.0, 1e-5, 5.0, 800.0), (0.05, 0.5, 30.0, 1500.0), (6.0, 1e-3, 2.0, 40.0))
KINDS = ("remove", "add", "replace")


def step_of(size: float, q: float, kind: str) -> RatioStep:
    if kind == "replace":
        return PoissonLaplaceReplaceLoss(size, q).contour_step(ratio_checks.LOG_COUNT, remove=True)
    return PoissonLaplaceLoss(size, q).contour_step(ratio_checks.LOG_COUNT, remove=kind == "remove")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "q", "tilt", "largest"), SPECS)
@pytest.mark.one_in(4)
def test_moment_line_and_envelope(kind: str, size: float, q: float, tilt: float, largest: float) -> None:
    """moment_within_its_error, line_within_its_error, envelope_is_above_and_falls."""
    step = step_of(size, q, kind)
    law = ratio_truths.laplace(size, q, kind)
    ratio_checks.check_table(step, law, [1e-3, tilt])
    ratio_checks.check_line(step, law, tilt, largest)
    ratio_checks.check_envelope(step, tilt, largest)


@pytest.mark.parametrize("kind", KINDS)
def test_largest_loss_is_the_end_of_the_law(kind: str) -> None:
    step = step_of(1.0, 0.3, kind)
    law = ratio_truths.laplace(1.0, 0.3, kind, panels=2)
    end = float(max(law.losses))
    assert end <= step.largest_loss <= end * (1.0 + 1e-12)


def test_second_moment_bounds_the_tilted_one() -> None:
    """The envelope between samples rests on it."""
    step, law = step_of(1.0, 0.02, "replace"), ratio_truths.laplace(1.0, 0.02, "replace")
    for tilt in (0.01, 2.0, 30.0):
        truth = float(law.second_moment(tilt))
        line = step.line(tilt, 1.0)
        assert truth <= step._second_moment(tilt, line.first_moment) <= 1.3 * truth


#: (noise, probability, steps, epsilon) and delta from `tests.high_precision`, to 12 digits.
KNOWN = (
    (1.0, 0.1, 1, 0.08, 0.0178857235128),
    (1.0, 0.1, 2, 0.2, 0.006859131643),
    (0.5, 0.1, 10, 0.56, 0.0801955033974),
    (1.0, 0.02, 400, 1.0, 0.000754079575853),
    (2.0, 0.005, 10_000, 1.2, 1.51415320327e-08),
)


@pytest.mark.parametrize(("noise", "probability", "steps", "epsilon", "delta"), KNOWN)
def test_references_are_inside(noise: float, probability: float, steps: int, epsilon: float, delta: float) -> None:
    event = Event(Laplace(noise), Poisson(probability), count=steps)
    bounds = FourierInversion().delta(compose([event], NeighboringRelation.ADD_OR_REMOVE_ONE), epsilon)
    assert bounds is not None
    assert bounds.lower <= delta * (1.0 + 1e-11)
    assert delta * (1.0 - 1e-11) <= bounds.upper
    assert bounds.width <= (1e-8 if steps > 100 else 1e-5) * delta


def test_lists_with_gaussian_noise_are_narrow() -> None:
    """One line each; the answer lies between those of the two kinds of step alone."""
    laplace = Event(Laplace(1.0), Poisson(0.01), count=1000)
    gaussian = Event(Gaussian(1.0), Poisson(0.01), count=1000)
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    both, one, other = (
        FourierInversion().epsilon(compose(events, relation), 1e-6)
        for events in ([laplace, gaussian], [laplace], [gaussian])
    )
    assert both is not None
    assert one is not None
    assert other is not None
    assert both.width <= 1e-7
    assert max(one.upper, other.upper) < both.lower
    assert both.upper < one.lower + other.lower
    assert math.isfinite(both.estimate)
