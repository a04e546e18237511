"""A record in another one's place against a null record: moments, lines and envelopes, against 30 digits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.fourier.displacement_path import DisplacementPart
from accounting.losses.displacement import DisplacementLoss
from tests.accounting.fourier import ratio_checks, ratio_truths

#: Noise, probability, tilt and the largest Im z that is compared.
CASES = (
    (8.0, 0.02, 10.0, 1500.0),
    (1.0, 0.3, 3.0, 60.0),
    (0.7, 1e-3, 1.5, 30.0),
    (2.0, 1e-7, 0.7, 60.0),
    (20.0, 0.95, 60.0, 1000.0),
)


@pytest.mark.one_in(1000)
@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("s", "r", "tilt", "largest"), CASES)
def test_moment_line_and_envelope(s: float, r: float, tilt: float, largest: float, remove: bool) -> None:
    """moment_within_its_error, line_within_its_error, envelope_is_above_and_falls."""
    step = DisplacementLoss(s, r).contour_step(ratio_checks.LOG_COUNT, remove=remove)
    law = ratio_truths.displaced(s, r, tilt, remove=remove)
    assert math.isclose(float(law.masses[-1]), step.at_zero, rel_tol=1e-13)
    ratio_checks.check_table(step, law, [1e-3, tilt])
    ratio_checks.check_line(step, law, tilt, largest)
    ratio_checks.check_envelope(step, tilt, largest)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("upward", [True, False])
@pytest.mark.parametrize(("s", "r", "tilt"), [(8.0, 0.02, 20.0), (0.6, 1e-4, 3.0), (1.0, 0.9, 8.0), (3.0, 1e-9, 40.0)])
def test_norms_of_shifted_lines_are_within_their_growth(s: float, r: float, tilt: float, upward: bool) -> None:
    """|integrand| on the line at an angle, summed, over what the growth says; and arg f is never below 0 there."""
    part = DisplacementPart.of(s, r, upward=upward)
    reach = part.reach(tilt, 40.0)
    u = np.arange(-45.0, 2000.0, 0.02)
    sign = 1.0 if upward else -1.0
    for scale in (0.25, 0.05, 0.01):
        nodes = u[u < reach / scale + 30.0]
        norms = []
        for angle in (0.0, 0.7, 1.5, 2.0):
            y, derivative = part._path(nodes, angle, scale)
            log_f = part._log_f(y)
            assert (log_f.imag >= 0.0).all()
            logs = part._log_mass(y).real + sign * tilt * log_f.real + np.log(np.abs(derivative) * 0.02)
            norms.append(float(np.logaddexp.reduce(logs)))
            growth = float(part.log_growth(np.array([scale]), angle, tilt, reach)[0])
            assert norms[-1] <= max(norms[0], 0.0) + growth + 1e-9
            assert angle > 0.0 or growth <= 1.0


def test_ratio_keeps_its_digits_near_one() -> None:
    part = DisplacementPart.of(2.0, 1e-9, upward=True)
    y = np.array([1e-12, 1e-6, 0.2, 3.0])
    exact = np.expm1(y) * 1.0 / (1.0 + math.exp(part.log_k) * np.exp(-y))
    assert part.log_f(y) == pytest.approx(np.log1p(exact), rel=1e-13)
