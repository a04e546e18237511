"""Moments of one step, at real tilts and on lines, against 30-digit rules on the real line."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier.pairs import EVERYTHING, Band, GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep, _window_on_axis
from accounting.fourier.steps import StepLine
from tests.accounting.fourier.truths import RealLine

DIGITS = 44.0
#: Those of a step whose tables have as many.
TABLE_DIGITS = 68.0
#: Noise, probability, tilt and the largest Im z that is compared.
SPECS = (
    (1.0, 0.1, 3.0, 400.0),
    (0.5, 0.01, 2.0, 60.0),
    (4.0, 0.3, 10.0, 1000.0),
    (0.5, 1.0 - 1e-6, 2.0, 30.0),
    (40.0, 1e-3, 400.0, 1e4),
)
EVERY_SPEC = pytest.mark.parametrize(("s", "q", "tilt", "largest"), SPECS)
BANDS = (Band(-math.inf, 1.0, 0.25), Band(0.5, 2.0, 0.25), Band(1.5, math.inf, 0.3))


def step_of(kind: Pair, s: float, q: float, digits: float = DIGITS, band: Band | None = None) -> GaussianPairStep:
    return GaussianPairStep(GaussianPair(kind, s, q), digits, band)


def distance(line: StepLine, truth: RealLine, t: float) -> tuple[float, float]:
    """|M(c + it) - truth| / M(c), and what the line allows for it."""
    logs, quadrature, rounding = line.log_ratios(1, 2, t)
    with mp.workdps(30):
        ratio = mp.exp(mp.mpc(logs[1]))
        error = abs(truth.moment(t) / mp.exp(mp.mpf(line.log_moment)) - ratio)
    allowed = float(abs(ratio)) * math.expm1(quadrature[1] + rounding[1])
    return float(error), allowed + math.expm1(min(line.log_moment_error, 700.0))


def assert_line_is_true(line: StepLine, truth: RealLine, largest: float) -> None:
    for t in largest * np.array([1.0, 0.45, 0.1, 0.02, 0.003]):
        error, allowed = distance(line, truth, float(t))
        assert error <= allowed, (t, error, allowed)
        assert error <= 1e-11


@pytest.mark.parametrize("kind", list(Pair))
@EVERY_SPEC
@pytest.mark.one_in(24)
def test_moments_on_a_line_are_within_their_errors(kind: Pair, s: float, q: float, tilt: float, largest: float) -> None:
    """Values of t go from 0 to where a rule on the real line would need ten thousand nodes."""
    step = step_of(kind, s, q)
    assert_line_is_true(step.line(tilt, 3.0 / s), RealLine(kind.value, s, q, tilt, largest), largest)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", [Pair.REMOVE, Pair.REPLACE])
@pytest.mark.parametrize("band", BANDS)
def test_moments_of_a_band_on_a_line_are_within_their_errors(kind: Pair, band: Band) -> None:
    s, q, tilt, largest = 1.0, 0.1, 3.0, 200.0
    truth = RealLine(kind.value, s, q, tilt, largest, (band.low, band.high, band.width))
    step = step_of(kind, s, q, band=band)
    assert_line_is_true(step.line(tilt, 3.0), truth, largest)
    table = replace(step, digits=TABLE_DIGITS).table(np.array([tilt]))
    assert abs(mp.log(truth.moment()) - table.moments[0]) <= table.errors[0] <= 1e-11


@pytest.mark.parametrize("kind", list(Pair))
@EVERY_SPEC
@pytest.mark.one_in(16)
def test_tables_are_within_their_errors(kind: Pair, s: float, q: float, tilt: float, largest: float) -> None:
    """All tilts at once, from tiny ones on; the estimates of mean and variance are about right."""
    tilts = tilt * np.array([1e-6, 0.03, 1.0])
    table = step_of(kind, s, q, TABLE_DIGITS).table(tilts)
    for k, at in enumerate(tilts):
        truth = mp.log(RealLine(kind.value, s, q, float(at)).moment())
        assert abs(truth - table.moments[k]) <= table.errors[k]
        assert table.errors[k] <= 1e-11
        with mp.workdps(30):
            line = RealLine(kind.value, s, q, float(at))
            mean = mp.fsum(w * loss for w, loss in zip(line.weights, line.losses, strict=True)) / line.moment()
            square = mp.fsum(w * loss**2 for w, loss in zip(line.weights, line.losses, strict=True)) / line.moment()
        assert table.means[k] == pytest.approx(float(mean), rel=1e-6, abs=1e-12)
        assert table.variances[k] == pytest.approx(float(square - mean**2), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("kind", list(Pair))
def test_moments_near_one_keep_their_digits(kind: Pair) -> None:
    """log M is 1e-16 to 1e-11 here, known far beyond the unit roundoff: differences from 1 are summed, not values."""
    s, q = 1.0, 1e-6
    tilts = np.array([1e-3, 0.1, 3.0])
    table = step_of(kind, s, q, digits=84.0).table(tilts)
    for k, at in enumerate(tilts):
        truth = mp.log(RealLine(kind.value, s, q, float(at)).moment())
        assert abs(truth - table.moments[k]) <= table.errors[k]
        assert table.errors[k] <= 1e-13 * q


@pytest.mark.parametrize("kind", list(Pair))
@pytest.mark.parametrize("digits", [3.0, 6.0, 12.0, 24.0])
@pytest.mark.one_in(24)
def test_coarse_nodes_grow_the_error_with_the_truth_inside(kind: Pair, digits: float) -> None:
    s, q, tilt = 0.8, 0.2, 4.0
    truth = RealLine(kind.value, s, q, tilt, 60.0)
    coarse, fine = step_of(kind, s, q, digits), step_of(kind, s, q)
    line = coarse.line(tilt, 3.0)
    assert line.relative_error > 1e3 * fine.line(tilt, 3.0).relative_error
    table = coarse.table(np.array([tilt]))
    assert abs(mp.log(truth.moment()) - table.moments[0]) <= table.errors[0]
    for at in (0.3, 2.0, 11.0, 60.0):
        error, allowed = distance(line, truth, at)
        assert error <= allowed


@pytest.mark.parametrize("kind", list(Pair))
@pytest.mark.one_in(3)
def test_the_error_that_is_told_is_needed(kind: Pair) -> None:
    """The rule on the line errs by a visible part of `relative_error`, with few digits and log M(c) exact."""
    seen = []
    for s, q, tilt in ((0.8, 0.2, 4.0), (0.6, 0.5, 1.0), (2.0, 0.3, 8.0)):
        truth = RealLine(kind.value, s, q, tilt, 20.0)
        fine = step_of(kind, s, q).line(tilt, 3.0)
        for digits in (2.0, 3.0, 4.0):
            line = step_of(kind, s, q, digits).line(tilt, 3.0)
            scale = math.exp(line.log_moment - fine.log_moment)
            exact = replace(
                line,
                weights=line.weights * scale,
                log_moment=fine.log_moment,
                log_moment_error=0.0,
                relative_error=line.relative_error * scale,
            )
            for t in (0.5, 3.0, 20.0):
                error, allowed = distance(exact, truth, t)
                assert error <= allowed
                seen.append(error / exact.relative_error)
    assert max(seen) > 0.01


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", list(Pair))
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_narrow_window_grows_the_tail_with_the_truth_inside(
    kind: Pair, side: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One end of the window cut to 2.5 s: the tail that is left out is in the errors of the table and of the line."""
    s, q, tilt = 0.8, 0.2, 2.0
    step = step_of(kind, s, q)
    left, right = step._window(tilt, DIGITS)
    centre = tilt + 1.0 if side > 0.0 and kind is not Pair.ADD else 0.0
    cut = (left, centre + 2.5 * s) if side > 0.0 else (centre - 2.5 * s, right)
    # All nodes that carry mass of N(0, s^2) stay in a table: they are needed for differences from 1.
    around = _window_on_axis(step.pair.law, EVERYTHING, np.zeros(1), DIGITS)
    both = min(cut[0], around[0]), max(cut[1], around[1])
    monkeypatch.setattr(GaussianPairStep, "_window", lambda self, tilt, digits: cut)
    monkeypatch.setattr(GaussianPairStep, "_window_on_axis", lambda self, tilts, digits: both)
    truth = RealLine(kind.value, s, q, tilt, 30.0)
    table = step.table(np.array([tilt]))
    error = float(abs(mp.log(truth.moment()) - table.moments[0]))
    assert error <= table.errors[0]
    line = step.line(tilt, 3.0)
    assert line.relative_error > 1e-6
    largest = 0.0
    for t in (0.5, 3.0, 30.0):
        error, allowed = distance(line, truth, t)
        assert error <= allowed
        largest = max(largest, error)
    assert largest > 1e-9


def test_a_narrow_window_is_in_the_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    """The left end, where losses hardly turn, decides about large t: without it the envelope would be too low."""
    s, q, tilt = 0.8, 0.2, 2.0
    step = step_of(Pair.REMOVE, s, q)
    cut = (-s, step._window(tilt, DIGITS)[1])
    monkeypatch.setattr(GaussianPairStep, "_window", lambda self, tilt, digits: cut)
    line = step.line(tilt, 3.0)
    bare = replace(line, envelope=(*line.envelope[:2], 0.0))
    truth = RealLine("remove", s, q, tilt, 100.0)
    for t in (10.0, 50.0, 100.0):
        modulus = float(mp.log(abs(truth.moment(t)) / truth.moment()))
        assert bare.log_envelope(np.array([t]))[0] < modulus <= line.log_envelope(np.array([t]))[0]


@pytest.mark.parametrize("kind", [Pair.REMOVE, Pair.REPLACE])
@pytest.mark.one_in(1000)
def test_a_narrow_window_of_a_table_is_in_its_errors(kind: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tilted law lies beyond all mass of N(0, s^2) here, and the window ends 2.5 s above its centre."""
    s, q, tilt = 0.8, 0.2, 20.0
    step = step_of(kind, s, q)
    cut = (step._window_on_axis(np.array([tilt]), DIGITS)[0], tilt + 1.0 + 2.5 * s)
    monkeypatch.setattr(GaussianPairStep, "_window_on_axis", lambda self, tilts, digits: cut)
    table = step.table(np.array([tilt]))
    error = float(abs(mp.log(RealLine(kind.value, s, q, tilt).moment()) - table.moments[0]))
    assert 1e-4 < error <= table.errors[0]


@pytest.mark.parametrize("kind", list(Pair))
@EVERY_SPEC
def test_the_envelope_decreases_and_bounds_the_modulus(
    kind: Pair, s: float, q: float, tilt: float, largest: float
) -> None:
    """Bounds |M(c + it')| for every t' >= t, on a fine grid of t', wherever it was asked to be good."""
    step = step_of(kind, s, q)
    for decay in (0.3 / s, 3.0 / s, 100.0 / s):
        line = step.line(tilt, decay)
        for furthest in (3.0 * decay, largest):
            points = 200
            logs, quadrature, rounding = line.log_ratios(1, points, furthest / points)
            envelope = line.log_envelope((np.arange(points) * (furthest / points)).astype(np.float64))
            assert np.all(np.diff(envelope) <= 0.0)
            modulus = np.exp(logs.real) * np.exp(-quadrature - rounding) - math.expm1(line.log_moment_error)
            # So the envelope at t bounds the largest modulus from t on.
            later = np.maximum.accumulate(modulus[::-1])[::-1]
            assert np.all(later <= np.exp(envelope) * (1.0 + 1e-12))


@pytest.mark.parametrize("kind", [Pair.REMOVE, Pair.REPLACE])
@pytest.mark.parametrize("band", BANDS)
def test_the_envelope_of_a_band_bounds_its_modulus(kind: Pair, band: Band) -> None:
    line = step_of(kind, 1.0, 0.1, band=band).line(3.0, 4.0)
    logs, quadrature, rounding = line.log_ratios(10, 40, 0.25)
    envelope = line.log_envelope((np.arange(400) * 0.25).astype(np.float64))
    assert np.all(np.diff(envelope) <= 0.0)
    assert np.all(np.exp(logs.real - quadrature - rounding) - line.log_moment_error <= np.exp(envelope) * (1.0 + 1e-12))


def test_the_envelope_is_near_the_modulus_where_it_was_asked_to_be() -> None:
    """Within a factor of 20 of the truth: it decides how many points a line needs."""
    line = step_of(Pair.REMOVE, 1.0, 0.5).line(3.0, 3.0)
    logs, _, _ = line.log_ratios(1, 2, 3.0)
    assert logs[1].real <= line.log_envelope(np.array([3.0]))[0] <= logs[1].real + 3.0


def test_imaginary_parts_of_losses_are_never_negative() -> None:
    """Weights only decay with t: no node can grow."""
    for kind in Pair:
        for s, q, tilt, _ in SPECS:
            assert step_of(kind, s, q).line(tilt, 1.0).losses.imag.min() >= 0.0


def test_a_rule_with_too_many_nodes_is_refused() -> None:
    with pytest.raises(OverflowError, match="too many nodes"):
        step_of(Pair.ADD, 1.0, 0.5).table(np.array([1e13]))


def test_errors_of_a_line_are_used_as_told() -> None:
    """`relative_error` is absolute in M(c + it)/M(c): it counts for more where the ratio is small."""
    line = step_of(Pair.REMOVE, 0.8, 0.2).line(3.0, 3.0)
    told = replace(line, relative_error=1e-6)
    logs, quadrature, _ = told.log_ratios(1, 3, 4.0)
    assert np.allclose(np.exp(logs.real) * np.expm1(quadrature), 1e-6, rtol=1e-9)
