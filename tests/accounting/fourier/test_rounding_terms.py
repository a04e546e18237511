"""Compares the rounding errors that the loops declare with long precision, where no other error covers them."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier.contour import (
    Contour,
    LineValues,
    _add_line,
    _aliases,
    _gaussian_line,
    gaussian_table,
    power_values,
)
from accounting.fourier.moments import moments_at
from accounting.fourier.pairs import EVERYTHING, GaussianPair, Pair
from accounting.fourier.steps import UNIT, TiltTable
from accounting.fourier.tails import _log_sum, log_tail


def contour_of(
    ratios: np.ndarray,
    *,
    errors: np.ndarray | None = None,
    rounding: np.ndarray | None = None,
    log_scale: float = 0.0,
    log_scale_error: float = 0.0,
    tilt: float = 1.3,
    period: float = 7.0,
    window: float = 0.0,
) -> Contour:
    """A line whose transform is what it says, but for the errors that it declares; nothing lies beyond its points."""
    none = np.zeros(ratios.size)
    values = LineValues(
        ratios.astype(np.complex128),
        none if errors is None else errors,
        none if rounding is None else rounding,
        log_scale,
        log_scale_error,
        -math.inf,
        1.0,
    )
    tilts = np.geomspace(1e-9, 2e3, 120)
    nothing = TiltTable.of(tilts, np.full(120, -5000.0), np.zeros(120), np.zeros(120), np.zeros(120))
    return Contour(tilt, period, values, window, nothing)


def kernel(contour: Contour, k: int) -> mp.mpc:
    z = mp.mpc(contour.tilt, k * 2 * mp.pi / mp.mpf(contour.period))
    return (1 if k == 0 else 2) / mp.mpf(contour.period) / (z * (z + 1))


def exact_sum(contour: Contour, epsilon: float) -> mp.mpf:
    """The rule's sum of the line's doubles."""
    values, total = contour.values, mp.mpf(0)
    for k, ratio in enumerate(values.ratios.tolist()):
        turn = mp.exp(-mp.mpc(0, k * 2 * mp.pi / mp.mpf(contour.period)) * mp.mpf(epsilon))
        total += mp.re(mp.mpc(ratio) * turn * kernel(contour, k))
    return total * mp.exp(mp.mpf(values.log_scale) - mp.mpf(contour.tilt) * mp.mpf(epsilon))


def random_ratios(rng: np.random.Generator, points: int) -> np.ndarray:
    return np.asarray(rng.normal(size=points) + 1j * rng.normal(size=points))


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.3, 40.0, 1e4, 3e7])
def test_the_sum_is_within_its_rounding(epsilon: float) -> None:
    """The epsilon's part of the rounding goes from none to almost all of it, at angles of ten million turns."""
    rng = np.random.default_rng(1)
    with mp.workdps(60):
        for _ in range(150):
            contour = contour_of(
                random_ratios(rng, int(rng.integers(1, 5))),
                tilt=min(rng.uniform(0.1, 5.0), 600.0 / max(epsilon, 1.0)),
                period=rng.uniform(3.0, 9.0),
            )
            assert contour.delta_bounds(epsilon).upper >= exact_sum(contour, epsilon)


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 300.7])
def test_the_scale_is_within_its_rounding(epsilon: float) -> None:
    """The exponent is large, or a difference of large numbers: its rounding is that of its parts."""
    rng = np.random.default_rng(2)
    with mp.workdps(60):
        for _ in range(60):
            tilt = rng.uniform(1.0, 1.9)
            contour = contour_of(
                np.array([1.0]), tilt=tilt, period=5.0, log_scale=rng.uniform(513.0, 640.0) if epsilon < 1.0 else
                tilt * epsilon + rng.uniform(-1.0, 1.0)
            )  # fmt: skip
            assert contour.delta_bounds(epsilon).upper >= exact_sum(contour, epsilon)


def test_sums_of_bounds_are_rounded_up() -> None:
    """Every ratio is 0 and may be wrong by 1, in the direction that moves the sum most: no other term helps."""
    with mp.workdps(40):
        for points, scale_error in ((1, 0.0), (5, 0.1), *((number, 0.0) for number in range(10, 150, 7))):
            contour = contour_of(np.zeros(points), errors=np.ones(points), period=7.1, log_scale_error=scale_error)
            worst = mp.exp(scale_error) * mp.fsum(abs(kernel(contour, k)) for k in range(points))
            assert contour.delta_bounds(0.0).upper >= worst
            contour = contour_of(np.zeros(points), rounding=np.ones(points), period=7.1, log_scale_error=scale_error)
            assert contour.delta_bounds(0.0).upper >= worst


@pytest.mark.parametrize("source", ["errors", "rounding", None])
@pytest.mark.parametrize("window", [0.01, 3.0])
def test_the_correction_of_a_window_is_rounded_up(source: str | None, window: float) -> None:
    """eta^2 e^(eta^2/8) times the density of the worst ratios that the errors allow, in long precision."""
    rng = np.random.default_rng(3)
    with mp.workdps(40):
        for _ in range(40):
            points = int(rng.integers(1, 40))
            ratios, declared = random_ratios(rng, points), rng.uniform(0.0, 3.0, points)
            contour = contour_of(ratios, window=window, **({} if source is None else {source: declared}))
            for epsilon in (0.0, 1.7):
                density = mp.mpf(0)
                for k, ratio in enumerate(ratios.tolist()):
                    turn = mp.exp(-mp.mpc(0, k * 2 * mp.pi / mp.mpf(contour.period)) * epsilon)
                    wrong = 0.0 if source is None else float(declared[k])
                    # The first point counts half; what is declared of it may be counted whole.
                    density += (mp.re(mp.mpc(ratio) * turn) + wrong) * (0.5 if k == 0 else 1)
                scale = mp.exp(-mp.mpf(contour.tilt) * epsilon) * 2 / mp.mpf(contour.period)
                correction = mp.mpf(window) ** 2 * mp.exp(mp.mpf(window) ** 2 / 8) * scale * max(density, 0)
                assert contour.delta_bounds(epsilon).error_budget["window"] >= correction


def test_the_density_of_a_correction_is_within_its_rounding() -> None:
    """Angles of ten million turns: their rounding is more than that of all sums of bounds."""
    rng, epsilon = np.random.default_rng(10), 3e7
    with mp.workdps(40):
        for _ in range(100):
            contour = contour_of(random_ratios(rng, 3), window=0.01, tilt=1e-6)
            density = mp.mpf(0)
            for k, ratio in enumerate(contour.values.ratios.tolist()):
                turn = mp.exp(-mp.mpc(0, k * 2 * mp.pi / mp.mpf(contour.period)) * epsilon)
                density += mp.re(mp.mpc(ratio) * turn) * (0.5 if k == 0 else 1)
            scale = mp.exp(-mp.mpf(contour.tilt) * epsilon) * 2 / mp.mpf(contour.period)
            found = contour.delta_bounds(epsilon).error_budget["window"]
            assert found >= mp.mpf(0.01) ** 2 * mp.exp(mp.mpf(0.01) ** 2 / 8) * scale * density


@pytest.mark.parametrize("log_scale", [-695.0, -720.0, -900.0])
def test_among_the_subnormals_an_upper_bound_is_left(log_scale: float) -> None:
    with mp.workdps(40):
        for ratio in (1.0, 1e-40):
            contour = contour_of(np.array([ratio]), log_scale=log_scale)
            bounds = contour.delta_bounds(0.0)
            assert bounds.lower <= exact_sum(contour, 0.0) <= bounds.upper
            assert bounds.upper > 0.0


def test_aliases_are_rounded_up() -> None:
    """The bound's own formula, with exponents of hundreds that cancel."""
    rng = np.random.default_rng(4)
    with mp.workdps(40):
        for _ in range(300):
            tilts, tilt, period = np.array([1.0, 3.0]) * rng.uniform(1.0, 1.3), 2.0, rng.uniform(20.0, 60.0)
            epsilon = float(rng.uniform(200.0, 230.0))
            logs = tilts * epsilon + rng.uniform(0.0, 20.0, 2)
            found = float(_aliases(np.array([epsilon]), tilts, logs, tilt, period)[0])
            truth = mp.mpf(0)
            for x, log in zip(tilts.tolist(), logs.tolist(), strict=True):
                gap = abs(mp.mpf(x) - tilt) * mp.mpf(period)
                truth += mp.exp(mp.mpf(log) - mp.mpf(x) * mp.mpf(epsilon)) / mp.expm1(gap)
            assert truth <= found <= truth * (1 + mp.mpf(10) ** -8)


class WrittenLine:
    """A line that is written down: no error but what its numbers say."""

    def __init__(self, log_moment: float, logs: np.ndarray) -> None:
        self.log_moment, self.log_moment_error, self.logs = log_moment, 0.0, logs

    def log_ratios(self, blocks: int, width: int, spacing: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        logs = np.resize(self.logs, blocks * width)
        return logs, np.zeros(logs.size), np.zeros(logs.size)

    def log_envelope(self, t: np.ndarray) -> np.ndarray:
        return np.zeros_like(t)


@pytest.mark.thorough
def test_scales_and_logarithms_of_compositions_are_within_their_rounding() -> None:
    rng = np.random.default_rng(5)
    with mp.workdps(40):
        for _ in range(200):
            mu_squared, tilt, count = rng.uniform(0.1, 9.0), rng.uniform(0.1, 9.0), int(rng.integers(1, 10**6))
            gaussian = mp.mpf(mu_squared) * mp.mpf(tilt) * (mp.mpf(tilt) + 1) / 2
            alone = power_values([], mu_squared, tilt, 7.0, 4)
            assert abs(alone.log_scale - gaussian) <= alone.log_scale_error
            table = gaussian_table(mu_squared, np.array([tilt]))
            assert abs(table.moments[0] - gaussian) <= table.errors[0]
            line = WrittenLine(rng.normal(), -np.abs(rng.normal(size=4)) + 1j * rng.normal(size=4))
            both = power_values([(line, count), (line, 7)], 0.0, tilt, 7.0, 4)
            assert abs(both.log_scale - (count + 7) * mp.mpf(line.log_moment)) <= both.log_scale_error
            spacing = 2.0 * math.pi / 7.0
            logs, quadrature, rounding = np.empty(4, np.complex128), np.zeros(4), np.empty(4)
            _gaussian_line(mu_squared, tilt, spacing, logs, rounding)
            for k in range(4):
                t = k * mp.mpf(spacing)
                truth = mp.mpc(-mu_squared * t * t / 2, mu_squared * t * (2 * mp.mpf(tilt) + 1) / 2)
                assert abs(mp.mpc(logs[k]) - truth) <= rounding[k]
            before = logs.copy()
            none = np.zeros(4)
            _add_line(logs, quadrature, rounding, (line.logs, none, none), float(count))
            own = UNIT * 8.0 * np.abs(before)
            for k in range(4):
                truth = mp.mpc(before[k]) + count * mp.mpc(line.logs[k])
                assert abs(mp.mpc(logs[k]) - truth) <= rounding[k] - own[k] + UNIT * abs(before[k])


def moment(log_mass: np.ndarray, base: np.ndarray, loss: np.ndarray, at_zero: float, tilt: float) -> mp.mpf:
    """log M in long precision, of the nodes as they stand."""
    terms = [
        mp.exp(mp.mpf(m) + mp.mpf(b) + mp.mpf(tilt) * mp.mpf(y))
        for m, b, y in zip(log_mass.tolist(), base.tolist(), loss.tolist(), strict=True)
    ]
    return mp.log(mp.fsum([mp.mpf(at_zero), *terms]))


def assert_moment_is_within(
    log_mass: np.ndarray, base: np.ndarray, loss: np.ndarray, at_zero: float, tilt: float
) -> None:
    logs, _, _, rounding = moments_at(log_mass, base, loss, at_zero, np.array([tilt]), False, 0.0)
    assert abs(mp.mpf(logs[0]) - moment(log_mass, base, loss, at_zero, tilt)) <= UNIT * rounding[0]


@pytest.mark.parametrize("size", [0.0, 0.7, 260.0, 520.0])
def test_moments_are_within_their_rounding(size: float) -> None:
    """Of one node, whose exponent is a sum of numbers of this size; with a shift where it is above 600."""
    rng = np.random.default_rng(6)
    with mp.workdps(60):
        for _ in range(300):
            log_mass, base = np.array([rng.normal() - size / 2]), np.array([rng.normal() + size / 2])
            loss, tilt = np.array([rng.normal() * 0.1 + size / 3.0]), 1.5 + rng.random()
            assert_moment_is_within(log_mass, base, loss, 0.0, tilt)


def test_moments_that_are_far_from_one_are_within_their_rounding() -> None:
    """Two nodes of tiny mass whose exponents are nothing: log M itself has a rounding of its size."""
    rng = np.random.default_rng(8)
    with mp.workdps(60):
        for _ in range(300):
            log_mass = np.array([-1.0, -1.0]) * rng.uniform(1.0, 590.0) + rng.normal(size=2)
            assert_moment_is_within(log_mass, np.zeros(2), rng.normal(size=2) * 1e-3, 0.0, 1.5)


def test_moments_of_many_nodes_are_within_their_rounding() -> None:
    """A thousand nodes, each far below the largest, whose exponents are large: they count together."""
    with mp.workdps(60):
        for exponent in (301.123, 388.77, 431.9):
            loss = np.append(np.full(1000, exponent / 1.7), 0.0)
            log_mass = np.append(np.full(1000, -exponent - 4.0), 0.0)
            assert_moment_is_within(log_mass, np.zeros(1001), loss, 0.0, 1.7)


@pytest.mark.parametrize("from_one", [False, True])
def test_sums_of_moments_are_compensated(from_one: bool) -> None:
    """Three thousand terms that are each below half a unit of the first one."""
    number = 3000
    loss = np.append(1.0, np.full(number, 1.0))
    log_mass = np.append(math.log(0.125), np.full(number, math.log(0.125) + math.log(0.7) - 37.0))
    at_zero = 1.0 - float(np.exp(log_mass).sum())
    tilt = np.array([0.9])
    logs, _, _, rounding = moments_at(log_mass, np.zeros(number + 1), loss, at_zero, tilt, from_one, 0.0)
    with mp.workdps(40):
        first, other = mp.exp(mp.mpf(log_mass[0])), mp.exp(mp.mpf(log_mass[1]))
        change = (first + number * other) * mp.expm1(mp.mpf(0.9))
        # Masses that are differences to 1 add up to it exactly.
        whole = 1 + change if from_one else mp.mpf(at_zero) + (first + number * other) * mp.exp(mp.mpf(0.9))
        assert abs(mp.mpf(logs[0]) - mp.log(whole)) <= UNIT * rounding[0]


def test_differences_from_one_of_large_exponents_are_within_their_rounding() -> None:
    """M - 1 is a term of mass e^-500 and size e^500: the rounding of its exponent decides."""
    rng = np.random.default_rng(7)
    with mp.workdps(300):
        for _ in range(200):
            log_mass = np.array([-rng.uniform(515.0, 560.0)])
            tilt = rng.uniform(1.1, 1.9)
            loss = np.array([(-log_mass[0] - rng.uniform(1.5, 3.0)) / tilt])
            # The rest of the mass has no loss.
            mass = mp.exp(mp.mpf(log_mass[0]))
            truth = mp.log1p(mass * mp.expm1(mp.mpf(tilt) * mp.mpf(loss[0])))
            logs, _, _, rounding = moments_at(log_mass, np.zeros(1), loss, 1.0, np.array([tilt]), True, 0.0)
            assert abs(mp.mpf(logs[0]) - truth) <= UNIT * rounding[0]


@pytest.mark.parametrize("size", [0.1, 3.0])
def test_what_is_told_of_bases_and_losses_is_in_the_rounding_of_moments(size: float) -> None:
    """Terms wrong by ``cancellation`` units for the base and as much, times the tilt, for the loss."""
    cancellation, tilt = 1e9, 2.0
    own = cancellation * (tilt + 1.0) * UNIT
    loss, log_mass = np.array([size, -size]), np.log(np.array([0.5, 0.5]))
    for from_one in (False, True):
        logs, _, _, rounding = moments_at(log_mass, np.zeros(2), loss, 0.0, np.array([tilt]), from_one, cancellation)
        change = math.expm1(logs[0])
        near = from_one and abs(change) < 0.5
        moved = abs(math.log1p(change * (1.0 + own)) - logs[0]) if near else math.log1p(own)
        assert moved <= UNIT * rounding[0] <= 100.0 * own


def test_sums_of_tails_are_rounded_up() -> None:
    rng = np.random.default_rng(9)
    with mp.workdps(40):
        for _ in range(300):
            first, second = (float(each) for each in rng.uniform(300.0, 302.0) + rng.normal(size=2))
            assert _log_sum(first, second) >= mp.log(mp.exp(mp.mpf(first)) + mp.exp(mp.mpf(second)))


def test_the_tail_beyond_all_panels_counts() -> None:
    """A tilt so large that the tilted law lies where no panel is."""
    s, q, tilt = 0.05, 0.3, 200.0
    bound = float(log_tail(GaussianPair(Pair.REMOVE, s, q).law, -1.0, 1.0, np.array([tilt]), EVERYTHING)[0])
    power = tilt + 1.0
    # f >= q e^a, so that this much of its power is beyond.
    assert bound >= power * math.log(q) + 0.5 * power * (power - 1.0) / s**2 - 1e-3
