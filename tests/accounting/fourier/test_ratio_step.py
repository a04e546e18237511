"""Steps whose quadrature no tilt is small enough for."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.fourier.ratio_step import _FEWER_DIGITS, RatioStep
from accounting.losses.laplace import LaplaceLoss
from tests.accounting.fourier.ratio_checks import log_count_for


class Endless:
    """An integral that would take too many nodes at every tilt."""

    def best_scale(self, *_: float) -> None:
        raise OverflowError


def test_a_step_without_any_rule_is_given_up() -> None:
    step = RatioStep((Endless(),), (), 0.0, 40.0, 1.0, np.inf)  # type: ignore[arg-type]  # stands for a part
    with pytest.raises(OverflowError):
        step.table(np.array([0.5, 2.0]))


@pytest.mark.parametrize(("size", "tilt"), [(0.1, 3.0), (4.0, 0.5), (20.0, 0.5)])
def test_the_error_of_a_table_holds_that_of_its_rule(size: float, tilt: float) -> None:
    """With two digits only the rule errs by more than all that is rounded or left out, and says so."""
    tilts = np.array([tilt])
    coarse = LaplaceLoss(size).contour_step(log_count_for(_FEWER_DIGITS + 2.0), remove=True).table(tilts)
    fine = LaplaceLoss(size).contour_step(log_count_for(_FEWER_DIGITS + 40.0), remove=True).table(tilts)
    wrong = np.abs(coarse.moments - fine.moments)
    assert wrong[0] > 1e-3
    assert (wrong <= coarse.errors + fine.errors).all()
