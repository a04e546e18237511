"""Units of the numbers in theorems: their words and their scaling."""

from __future__ import annotations

import pytest

from calibrators.provenance import GRADIENT, LOSS, PARAMETER, PURE, SMOOTHNESS, STEP, Units

NAMED = {
    LOSS: "loss",
    PARAMETER: "parameter",
    GRADIENT: "loss / parameter",
    SMOOTHNESS: "loss / parameter^2",
    STEP: "parameter^2 / loss",
    PURE: "pure number",
    Units(loss=-1): "1 / loss",
    Units(parameter=-1): "1 / parameter",
    Units(loss=2, parameter=1): "loss^2 parameter",
    Units(loss=1, parameter=-1, holder=-1): "loss / parameter^(1 + alpha)",
    Units(loss=-1, parameter=1, holder=1): "parameter^(1 + alpha) / loss",
    Units(holder=2): "parameter^(0 + 2 alpha)",
}


@pytest.mark.parametrize("units", NAMED, ids=str)
def test_units_have_words(units: Units) -> None:
    assert str(units) == NAMED[units]


@pytest.mark.parametrize(
    ("units", "factor"),
    [
        (PURE, 1.0),
        (LOSS, 100.0),
        (PARAMETER, 10.0),
        (GRADIENT, 10.0),
        (SMOOTHNESS, 1.0),
        (STEP, 1.0),
        (Units(loss=-2), 1e-4),
        (Units(loss=1, parameter=-1, holder=-1), 100.0 * 10.0**-1.5),
    ],
    ids=str,
)
def test_a_change_of_units_moves_a_number_by_its_powers(units: Units, factor: float) -> None:
    """The loss in hundredths, the parameters in tenths, a Hoelder exponent of one half."""
    assert units.scale(loss=100.0, parameter=10.0, holder_exponent=0.5) == pytest.approx(factor, rel=1e-14)


def test_a_step_times_a_gradient_is_a_parameter_and_a_smoothness_is_a_gradient_for_each_parameter() -> None:
    def times(one: Units, other: Units) -> Units:
        return Units(one.loss + other.loss, one.parameter + other.parameter, one.holder + other.holder)

    assert times(STEP, GRADIENT) == PARAMETER
    assert times(SMOOTHNESS, PARAMETER) == GRADIENT
    assert times(GRADIENT, PARAMETER) == LOSS
    assert times(STEP, SMOOTHNESS) == PURE
