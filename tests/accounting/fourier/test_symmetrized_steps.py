"""Batches of a fixed size: the symmetrised pairs on lines and in compositions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.composition.composition import compose
from accounting.composition.fourier import FourierInversion
from accounting.events import Event, Gaussian, WithoutReplacement
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss
from accounting.losses.without_replacement import SymmetrizedLoss
from accounting.relations import NeighboringRelation
from tests.accounting.fourier import ratio_checks, ratio_truths

#: Noise, probability, tilt and the largest Im z that is compared.
GAUSSIANS = (
    (4.0, 0.02, 10.0, 3000.0),
    (1.0, 0.3, 3.0, 100.0),
    (0.5, 1e-4, 1.5, 30.0),
    (2.0, 1e-7, 0.7, 100.0),
    (20.0, 0.9, 100.0, 2000.0),
)
LAPLACES = ((1.0, 0.02, 5.0, 800.0), (0.05, 0.5, 30.0, 1500.0), (6.0, 1e-3, 2.0, 40.0))
EVERY_GAUSSIAN = pytest.mark.parametrize(("s", "q", "tilt", "largest"), GAUSSIANS)
EVERY_LAPLACE = pytest.mark.parametrize(("size", "q", "tilt", "largest"), LAPLACES)


@pytest.mark.one_in(1000)
@EVERY_GAUSSIAN
def test_gaussian_moment_line_and_envelope(s: float, q: float, tilt: float, largest: float) -> None:
    """moment_within_its_error, line_within_its_error, envelope_is_above_and_falls."""
    step = SymmetrizedLoss(PoissonGaussianLoss(s, q)).contour_step(ratio_checks.LOG_COUNT, remove=True)
    law = ratio_truths.symmetrized_gaussian(s, q, tilt)
    assert math.isclose(float(law.masses[-1]), step.at_zero, rel_tol=1e-14)
    ratio_checks.check_table(step, law, [1e-3, tilt])
    ratio_checks.check_line(step, law, tilt, largest)
    ratio_checks.check_envelope(step, tilt, largest)


@pytest.mark.one_in(2)
@EVERY_LAPLACE
def test_laplace_moment_line_and_envelope(size: float, q: float, tilt: float, largest: float) -> None:
    """moment_within_its_error, line_within_its_error, envelope_is_above_and_falls."""
    step = SymmetrizedLoss(PoissonLaplaceLoss(size, q)).contour_step(ratio_checks.LOG_COUNT, remove=True)
    law = ratio_truths.laplace(size, q, "symmetrized")
    assert math.isclose(float(law.masses[-1]), step.at_zero, rel_tol=1e-14)
    ratio_checks.check_table(step, law, [1e-3, tilt])
    ratio_checks.check_line(step, law, tilt, largest)
    ratio_checks.check_envelope(step, tilt, largest)


def test_envelope_is_close_where_many_steps_need_it() -> None:
    """At about the decay that a training configuration asks for, its exponent is within a tenth of the truth's."""
    step = SymmetrizedLoss(PoissonGaussianLoss(4.0, 0.02)).contour_step(ratio_checks.log_count_for(45.0), remove=True)
    decay = 20.0
    value, envelope = ratio_checks.decay_of(step.line(6.0, decay), decay)
    assert -0.1 < value <= envelope <= 0.9 * value


@pytest.mark.parametrize(
    ("noise", "batch", "records", "steps", "truth"),
    [(8.0, 1024, 50_000, 10_000, 2.2977843), (5.0, 10, 1000, 50, 0.1067001)],
)
def test_epsilon_of_training_is_narrow_and_needs_no_window(
    noise: float, batch: int, records: int, steps: int, truth: float
) -> None:
    event = Event(Gaussian(noise), WithoutReplacement(batch, records), count=steps)
    bounds = FourierInversion().epsilon(compose([event], NeighboringRelation.REPLACE_ONE), 1e-5)
    assert bounds is not None
    assert bounds.method == "fourier_inversion"
    assert bounds.width <= 1e-8
    assert math.isclose(bounds.upper, truth, abs_tol=5e-8)


#: (noise, batch, records, steps, epsilon) and delta from `tests.high_precision`, to 12 digits.
KNOWN = (
    (1.0, 5, 100, 1, 0.5, 0.0116179427875),
    (1.0, 5, 100, 2, 1.0, 0.0123924466557),
    (8.0, 1024, 50_000, 10_000, 2.2977843, 1.000000093e-05),
    (2.0, 100, 10_000, 1000, 2.2, 9.92320195199e-06),
    (1.0, 5, 100, 20, 8.3, 0.000125651459651),
    (4.0, 10, 10_000, 100_000, 0.9, 1.79528177416e-07),
    (20.0, 600, 1000, 3000, 20.5, 1.58675831064e-06),
    (100.0, 1, 100, 10**8, 10.0, 1.22877119988e-05),
)


@pytest.mark.parametrize(("noise", "batch", "records", "steps", "epsilon", "delta"), KNOWN)
def test_references_are_inside(
    noise: float, batch: int, records: int, steps: int, epsilon: float, delta: float
) -> None:
    event = Event(Gaussian(noise), WithoutReplacement(batch, records), count=steps)
    bounds = FourierInversion().delta(compose([event], NeighboringRelation.REPLACE_ONE), epsilon)
    assert bounds is not None
    assert bounds.lower <= delta * (1.0 + 1e-11)
    assert delta * (1.0 - 1e-11) <= bounds.upper
    assert bounds.width <= (2e-8 if steps > 100 else 1e-5) * delta


def test_lists_with_full_batches_are_inside() -> None:
    """Delta from `tests.high_precision`."""
    events = [Event(Gaussian(2.0), WithoutReplacement(50, 1000), count=100), Event(Gaussian(10.0), count=3)]
    bounds = FourierInversion().delta(compose(events, NeighboringRelation.REPLACE_ONE), 4.0)
    assert bounds is not None
    assert bounds.lower <= 1.5650876178e-05 * (1.0 + 1e-11)
    assert bounds.upper >= 1.5650876178e-05 * (1.0 - 1e-11)
    assert bounds.width <= 1e-8 * bounds.upper


@pytest.mark.thorough
def test_symmetry_of_the_pair() -> None:
    """E e^((-1/2 + it) L) is real where the loss's law is its own mirror image: M(z) = M(-1 - z)."""
    step = SymmetrizedLoss(PoissonGaussianLoss(2.0, 0.1)).contour_step(ratio_checks.LOG_COUNT, remove=True)
    # The masses of opposite losses differ by e^loss.
    moments = step.table(np.array([0.25, 1.5])).moments
    law = ratio_truths.symmetrized_gaussian(2.0, 0.1, 2.0)
    for tilt, moment in zip((0.25, 1.5), moments, strict=True):
        assert math.isclose(math.exp(moment), float(law.moment(-1.0 - tilt).real), rel_tol=1e-13)
