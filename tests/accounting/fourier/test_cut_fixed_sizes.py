"""Batches of a fixed size with their losses cut: moments, lines, and the parts of few steps."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType

import mpmath as mp
import numpy as np
import pytest
import scipy

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian, WithoutReplacement
from accounting.fourier import pairs, profiles, quadrature, ratio_path, ratio_step
from accounting.fourier.choice import DirectedComposition
from accounting.fourier.contour import Array
from accounting.fourier.pairs import Band, GaussianPair, Pair, log_normal_tail
from accounting.fourier.profiles import DirectedProfiles
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.fourier.split import Cut, top_for
from accounting.fourier.steps import UNIT
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.without_replacement import SymmetrizedLoss
from accounting.relations import NeighboringRelation
from tests.accounting.fourier.ratio_checks import LOG_COUNT

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(30)
#: Noise, probability, and a place and a width of a cut in units of x; much of the mass lies beyond the first two.
CUTS = ((0.2, 0.015, 0.6, 0.01), (0.7, 0.3, 1.1, 0.1), (2.0, 0.01, 9.0, 0.4), (5.0, 1e-7, 40.0, 1.25))


def step_of(s: float, q: float) -> RatioStep:
    return SymmetrizedLoss(PoissonGaussianLoss(s, q)).contour_step(LOG_COUNT, remove=True)


def cut_moment(s: float, q: float, high: float, width: float, z: mp.mpc) -> mp.mpc:
    """E_P of the share's e^(zL), in 25 digits."""
    noise = mp.mpf(s)

    def f(x: mp.mpf) -> mp.mpf:
        return 1 - mp.mpf(q) + mp.mpf(q) * mp.exp((2 * x - 1) / (2 * noise**2))

    def density(x: mp.mpf) -> mp.mpf:
        return mp.npdf(x, 0, noise)

    above = mp.linspace(mp.mpf("0.5"), mp.mpf(high) + 13 * mp.mpf(width), 40)
    below = mp.linspace(mp.mpf("0.5"), mp.mpf("0.5") + 13 * noise, 20)
    upward = mp.quad(lambda x: density(x) * f(x) ** (z + 1) * mp.ncdf((high - x) / mp.mpf(width)), above)
    return (
        upward
        + mp.quad(lambda x: density(x) * f(x) ** (-z), below)
        + (1 - mp.mpf(q)) * mp.erf(0.5 / noise / mp.sqrt(2))
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("s", "q", "high", "width"), CUTS)
@pytest.mark.one_in(4)
def test_moments_and_lines_of_what_lies_below_a_cut(s: float, q: float, high: float, width: float) -> None:
    """Within their errors at the tilts 0 and 3 and on the line; a third of the mass may be beyond the cut."""
    step = step_of(s, q).below(high, width)
    line, table = step.line(3.0, 10.0), replace(step, digits=step.digits + 22.0).table(np.array([0.0, 3.0]))
    with mp.workdps(25):
        scale = cut_moment(s, q, high, width, mp.mpc(3))
        for tilt, moment, error in zip((0, 3), table.moments, table.errors, strict=True):
            assert abs(mp.log(cut_moment(s, q, high, width, mp.mpc(tilt)).real) - mp.mpf(moment)) <= error <= 1e-11
        for t in (0.5, 5.0, 40.0):
            logs, quadrature, rounding = line.log_ratios(1, 2, t)
            truth = cut_moment(s, q, high, width, mp.mpc(3, t)) / scale
            allowed = math.expm1(quadrature[1] + rounding[1] + line.log_moment_error) * abs(np.exp(logs[1]))
            assert abs(complex(truth) - complex(np.exp(logs[1]))) <= allowed + 1e-15
            assert abs(truth) <= math.exp(line.log_envelope(np.array([t]))[0]) * (1.0 + 1e-10)


@pytest.mark.parametrize("end", [0.15, 0.2])
@pytest.mark.one_in(1000)
def test_mass_that_no_node_carries_is_an_error(end: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that end too early: differences from 1 leave out mass beyond the cut, where the share itself is nothing."""
    reach = RatioPart.reach

    def too_near(part: RatioPart, tilt: float, digits: float) -> float:
        whole = part.upward and part.cut is None
        return end * reach(part, tilt, digits) if whole else reach(part, tilt, digits)

    monkeypatch.setattr(RatioPart, "reach", too_near)
    s, q, high, width = CUTS[1]
    table = step_of(s, q).below(high, width).table(np.array([0.0]))
    with mp.workdps(25):
        truth = mp.log(cut_moment(s, q, high, width, mp.mpc(0)).real)
    assert 1e-6 < abs(float(truth) - table.moments[0]) <= table.errors[0]


def test_the_rounding_of_a_share_is_counted() -> None:
    """Where the tilt makes the share's tail what counts, its logarithm is large, and wrong by that much."""
    step = step_of(0.7, 0.3).below(0.8, 0.01)
    part, tilt = step.parts[0], 3000.0
    assert part.cut is not None
    table = replace(step, digits=step.digits + 22.0).table(np.array([tilt]))
    y = np.linspace(0.0, part.reach(tilt, 40.0), 200_000)
    place = (part.cut[0] - y) / part.cut[1]
    log_share = scipy.special.log_ndtr(place)
    weight = part.log_density(y) + (tilt + 1.0) * part.log_f(y) + log_share
    weight = np.exp(weight - weight.max())
    wrong = 8.0 * UNIT * float(weight @ ((1.0 + place * place) * -log_share)) / float(weight.sum())
    assert wrong > 1e-11
    assert wrong <= 1.01 * table.errors[0]


@pytest.mark.parametrize(
    ("step", "user"),
    [
        (step_of(0.7, 0.3).below(0.8, 0.1), ratio_path),
        (GaussianPairStep(GaussianPair(Pair.REMOVE, 0.7, 0.3), 48.0, Band(-math.inf, 0.8, 0.1)), pairs),
    ],
)
def test_an_error_of_a_shares_continuation_is_inside(
    step: RatioStep | GaussianPairStep, user: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the complex error function, made as large as it is told to be, with one sign on either side of the cut."""
    own = step.line(3.0, 10.0)
    for module in (ratio_step, quadrature):
        monkeypatch.setattr(module, "SHARE_ERROR", 1e-6)
    told = step.line(3.0, 10.0)
    monkeypatch.setattr(user, "log_normal_tail", lambda z: log_normal_tail(z) + 1e-6 * np.sign(z.real))
    wrong = step.line(3.0, 10.0)
    for t in (2.0, 5.0, 20.0):
        truth, other = (np.exp(line.log_ratios(1, 2, t)[0][1]) for line in (own, wrong))
        logs, quadrature_error, rounding = told.log_ratios(1, 2, t)
        allowed = math.expm1(quadrature_error[1] + rounding[1]) * abs(np.exp(logs[1]))
        assert 1e-9 < abs(other - truth) <= allowed


@pytest.mark.parametrize("tilt", [0.5, 8.0, 300.0])
@pytest.mark.parametrize(("s", "q", "high", "width"), CUTS)
def test_norms_with_a_cut_are_bounded(s: float, q: float, high: float, width: float, tilt: float) -> None:
    """The bound is tried on the farthest line, at wide and narrow scales; the wide ones show the cut's own growth."""
    part = step_of(s, q).below(high, width).parts[0]
    assert part.cut is not None
    chosen, _, reach = part.best_scale(2.0, tilt, 40.0)
    moment = float(step_of(s, q).below(high, width).table(np.array([tilt])).moments[0])
    for scale in chosen * np.array([0.3, 1.0, 3.0]):
        if not scale < 1.2:
            continue
        u = np.arange(-40.0, reach / scale + 40.0, 0.01)
        y, derivative = part._path(u, 2.0, float(scale))
        real = (y * y).real
        logs = part.log_scale - 0.5 * y.real - 0.5 * part.curvature * real + np.log(np.abs(derivative) * 0.01)
        logs = logs + (tilt + 1.0) * part._log_f(y).real + log_normal_tail((y - part.cut[0]) / part.cut[1]).real
        bound = float(part.log_growth(np.array([scale]), 2.0, tilt, reach)[0])
        assert float(np.logaddexp.reduce(logs)) <= bound + max(moment, 0.0)


def two_steps(s: float, q: float, epsilon: float) -> float:
    """delta of two steps, over the first one's loss; panels end where the second's profile has its kink."""
    loss, step = SymmetrizedLoss(PoissonGaussianLoss(s, q)), step_of(s, q)

    def profile(epsilons: Array) -> Array:
        return loss.excess(epsilons) + np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)

    kink = 0.5 + s * s * math.log1p(math.expm1(epsilon) / q)
    ends = np.unique(np.concatenate([np.linspace(0.5, 1.5 + 13.0 * s, 300), [kink]]))
    half = 0.5 * np.diff(ends)[:, None]
    x = (0.5 * (ends[1:] + ends[:-1])[:, None] + half * _NODES).ravel()
    log_f = np.log1p(q * np.expm1((2.0 * x - 1.0) / (2.0 * s * s)))
    mass = (half * _WEIGHTS).ravel() * np.exp(-0.5 * (x / s) ** 2) / (s * math.sqrt(2.0 * math.pi))
    total = (mass * np.exp(log_f)) @ profile(epsilon - log_f) + mass @ profile(epsilon + log_f)
    return float(total + step.at_zero * profile(np.array([epsilon]))[0])


@pytest.mark.one_in(1000)
@pytest.mark.parametrize(
    ("s", "q", "epsilon"), [(0.2, 0.015, 20.0), (0.7, 0.01, 0.5), (0.5, 0.2, 1.0), (2.0, 1e-4, 3e-3)]
)
def test_the_parts_of_two_steps_add_up(s: float, q: float, epsilon: float) -> None:
    """Every cut of the rule, and the cap; the truth is outside where a part is missing."""
    truth = two_steps(s, q, epsilon)
    made = DirectedProfiles(DirectedComposition(((step_of(s, q), 2),), 0.0))
    split = list(made.split(epsilon, math.log(truth)))
    assert split
    for profile in [*split, *made.capped(epsilon, math.log(truth), windowed=False)]:
        bounds = profile.delta_bounds(epsilon)
        assert bounds.lower <= truth * (1.0 + 1e-10)
        assert bounds.upper >= truth * (1.0 - 1e-10)
        for part in profile.parts:
            own = part.delta_bounds(epsilon).lower
            assert own <= 1e-6 * truth or bounds.upper - own < truth * (1.0 - 1e-7)
    assert min(profile.delta_bounds(epsilon).width for profile in split) <= 1e-6 * truth


def test_the_far_tail_is_lost_where_the_atoms_of_the_rest_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So much of it that it shows: the parts alone are below the truth."""
    s, q, epsilon = 1.0, 0.5, 0.3
    truth = two_steps(s, q, epsilon)
    monkeypatch.setattr(profiles, "_log_left_out", lambda log_scale, count: math.log(1e-2 * truth))
    monkeypatch.setattr(profiles, "contour_at", lambda *arguments, **options: None)
    made = DirectedProfiles(DirectedComposition(((step_of(s, q), 2),), 0.0))
    (profile,) = made.capped(epsilon, math.log(truth), windowed=False)
    bounds = profile.delta_bounds(epsilon)
    assert bounds.upper - profile.bound < truth * (1.0 - 1e-3)
    assert bounds.lower <= truth <= bounds.upper


def test_what_a_band_has_too_much_below_zero_is_paid_for() -> None:
    """A cut so near to 0 that it shows: the parts are above the truth, and the lower end is not."""
    s, q, epsilon = 0.7, 0.3, 0.4
    step, truth = step_of(s, q), two_steps(s, q, epsilon)
    assert step.pair is not None
    cut = Cut(step, step.pair, 0.15)
    top = top_for(step.pair, cut.width, -45.0)
    profile = profiles._split_at(cut, 2, [0.62, top], epsilon, 2.0 * cut.mass_beyond(top))
    assert profile is not None
    bounds = profile.delta_bounds(epsilon)
    assert bounds.lower <= truth <= bounds.upper
    assert bounds.lower + profile.too_much > truth * (1.0 + 1e-6)


@pytest.mark.one_in(9)
@pytest.mark.parametrize(("s", "q"), [(0.7, 0.01), (0.5, 0.2), (0.3, 1e-3)])
@pytest.mark.parametrize("share", [0.15, 0.47, 0.75, 2.0])
def test_bulk_bound_is_above_the_bulk(s: float, q: float, share: float) -> None:
    """Against its own line, of two steps and of twenty."""
    step = step_of(s, q)
    assert step.pair is not None
    for epsilon in (0.05, 0.6, 3.0):
        place = step.pair.place_of_loss(share * epsilon)
        cut = Cut(step, step.pair, min(0.25 * s * s, (place - 0.5) / 9.0))
        for count in (2, 20):
            composition = DirectedComposition(((cut.below(place), count),), 0.0)
            found = next(
                profiles.windowed_contours(composition, composition.table_at(epsilon), epsilon, None, 60_000, {})
            )
            assert cut.bulk_bound(place, count, epsilon) >= found.delta_bounds(epsilon).lower


@pytest.mark.parametrize(
    ("event", "delta", "truth"),
    [
        # The first is inside what dp-accounting and an exact tail bound leave, [2.9876e-6, 2.9968e-6].
        (Event(Gaussian(10.0), WithoutReplacement(1, 10**7), 1000), 1e-12, 2.99215877e-6),
        (Event(Gaussian(4.4829784), WithoutReplacement(2, 10**9), 570), 5.6e-15, 1.2405147e-7),
    ],
)
def test_epsilon_at_small_probabilities_is_narrow(event: Event, delta: float, truth: float) -> None:
    value = epsilon_for_delta([event], NeighboringRelation.REPLACE_ONE, delta).value
    assert value.lower == pytest.approx(truth, rel=1e-5)
    assert value.width <= 1e-5 * truth
