"""The parts of a split composition against nested quadrature, against the plain contour and against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier.choice import DirectedComposition, choose_line, contour_at
from accounting.fourier.contour import Contour, truncation_point
from accounting.fourier.pairs import Band, GaussianPair, Pair
from accounting.fourier.profiles import DirectedProfiles
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.split import Cut, SplitStep, top_for
from accounting.fourier.steps import Step
from accounting.intervals import Bounds
from tests.accounting.fourier.truths import RealLine, repeated_delta

DIGITS = 48.0


def step_of(kind: Pair, s: float, q: float) -> GaussianPairStep:
    return GaussianPairStep(GaussianPair(kind, s, q), DIGITS)


def chain(
    step: GaussianPairStep, count: int, cuts: Sequence[float], log_left_out: float = -40.0
) -> tuple[list[SplitStep], float, float]:
    """Splits at the losses ``cuts`` and far out, the band's width, and the mass that is left out."""
    s = step.pair.noise
    width = 0.25 * min(s, s * s)
    top = top_for(step.pair, width, log_left_out)
    places = [step.pair.place_of_loss(cut) for cut in cuts]
    cut = Cut(step, step.pair, width)
    return cut.chain(count, [*places, top]), width, count * cut.mass_beyond(top)


def band_of(step: Step) -> Band:
    assert isinstance(step, GaussianPairStep)
    assert step.band is not None
    return step.band


def bulk_bound(split: SplitStep, epsilon: float) -> float:
    """The bound of D_nu without a line."""
    bulk = split.bulk
    assert isinstance(bulk, GaussianPairStep)
    return Cut(bulk, bulk.pair, band_of(bulk).width).bulk_bound(band_of(bulk).high, split.count, epsilon)


def rest_contour(split: SplitStep, epsilon: float, most: float = 300.0) -> Contour:
    """D_j's own line, through the public constructors."""
    table = split.rest_table(np.concatenate([[0.0], most / epsilon * 1.35 ** -np.arange(30.0, -1.0, -1.0)]))
    choice = choose_line(table, epsilon)
    line = split.rest_line(choice.tilt, split.decay)
    last = truncation_point(line.log_envelope, split.decay, choice.log_tolerance)
    points = math.ceil(last * choice.period / (2.0 * math.pi)) + 1
    return Contour(choice.tilt, choice.period, line.values(choice.period, max(8, points)), 0.0, table)


def bulk_bounds(split: SplitStep, epsilon: float) -> Bounds:
    """D_nu on a line of its own, or its bound where that line is too long, or rounding makes more of it."""
    composition = DirectedComposition(((split.bulk, split.count),), 0.0)
    contour = contour_at(composition, composition.table_at(epsilon), epsilon, 30_000)
    if contour is None:
        return Bounds(0.0, bulk_bound(split, epsilon), 0.0)
    found = contour.delta_bounds(epsilon)
    return replace(found, upper=min(found.upper, bulk_bound(split, epsilon)))


def total(parts: Sequence[Bounds], left_out: float) -> Bounds:
    return Bounds(sum(p.lower for p in parts), sum(p.upper for p in parts) + left_out, sum(p.estimate for p in parts))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("kind", "s", "q", "count", "epsilon"),
    [
        (Pair.REMOVE, 0.7, 0.01, 2, 0.5),
        (Pair.REMOVE, 0.3, 0.05, 2, 3.0),
        (Pair.REMOVE, 1.0, 0.1, 2, 0.3),
        (Pair.REMOVE, 0.5, 0.2, 3, 1.0),
        (Pair.REMOVE, 0.5, 0.01, 3, 0.4),
        (Pair.REPLACE, 0.7, 0.01, 2, 0.5),
        (Pair.REPLACE, 0.5, 0.05, 2, 1.5),
    ],
)
def test_the_parts_add_up_to_the_truth(kind: Pair, s: float, q: float, count: int, epsilon: float) -> None:
    """D_nu + D_1 + D_2 + what is left out, against nested quadrature; without any of them the truth is outside."""
    splits, _, left_out = chain(step_of(kind, s, q), count, (0.15 * epsilon, 1.6 * epsilon))
    truth = repeated_delta(kind.value, s, q, count, epsilon)
    parts = [bulk_bounds(splits[0], epsilon)]
    parts += [rest_contour(split, epsilon).delta_bounds(epsilon) for split in splits]
    whole = total(parts, left_out)
    assert whole.lower <= truth * (1.0 + 1e-9)
    assert whole.upper >= truth * (1.0 - 1e-9)
    assert whole.width <= 1e-6 * truth
    for part in parts[1:]:
        assert whole.upper - part.lower < truth * (1.0 - 1e-6)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", [Pair.REMOVE, Pair.REPLACE])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_each_part_is_the_profile_of_its_measure(kind: Pair, epsilon: float) -> None:
    """Two steps: D_nu of the bulk's own law, and every D_j the difference of two shares' profiles."""
    s, q = 0.7, 0.05
    splits, width, _ = chain(step_of(kind, s, q), 2, (0.4 * epsilon, 1.6 * epsilon))
    ends = [band_of(split.bulk).high for split in splits] + [band_of(splits[-1].rest).high]
    truths = [repeated_delta(kind.value, s, q, 2, epsilon, (-math.inf, end, width)) for end in ends]
    bulk = bulk_bounds(splits[0], epsilon)
    assert bulk.lower <= truths[0] * (1.0 + 1e-7)
    assert bulk.upper >= truths[0] * (1.0 - 1e-7)
    for split, (low, high) in zip(splits, pairwise(truths), strict=True):
        bounds = rest_contour(split, epsilon).delta_bounds(epsilon)
        assert bounds.lower <= (high - low) + 1e-8 * high
        assert bounds.upper >= (high - low) - 1e-8 * high
        assert bounds.width <= 1e-6 * bounds.upper


@pytest.mark.parametrize(
    ("kind", "s", "q", "count", "epsilon"),
    [(Pair.REMOVE, 1.0, 0.02, 500, 2.0), (Pair.REMOVE, 4.0, 0.3, 20, 1.5), (Pair.REPLACE, 1.0, 0.05, 40, 1.5)],
)
def test_the_parts_agree_with_the_plain_contour(kind: Pair, s: float, q: float, count: int, epsilon: float) -> None:
    step = step_of(kind, s, q)
    composition = DirectedComposition(((step, count),), 0.0)
    plain = contour_at(composition, composition.table_at(epsilon), epsilon, 3000)
    assert plain is not None
    here = plain.delta_bounds(epsilon)
    splits, _, left_out = chain(step, count, (0.8 * epsilon,))
    parts = [bulk_bounds(splits[0], epsilon)]
    parts += [rest_contour(split, epsilon, 60.0).delta_bounds(epsilon) for split in splits]
    there = total(parts, left_out)
    assert max(here.lower, there.lower) <= min(here.upper, there.upper)
    assert here.width < 1e-7 * here.upper
    assert there.width < 1e-6 * there.upper


def test_bands_of_different_ratios_agree() -> None:
    """Cuts at other places, and more of them: the intervals overlap, all near each other."""
    s, q, count, epsilon = 0.5, 1e-3, 10, 0.1
    known = 4.5926152946e-4
    for ratio, first in ((4.0, 0.2), (8.0, 0.1), (16.0, 0.15), (32.0, 0.12), (1e9, 0.2)):
        cuts = [first * epsilon * ratio**k for k in range(1 + int(math.log(60.0 / epsilon) / math.log(ratio)))]
        splits, _, left_out = chain(step_of(Pair.REMOVE, s, q), count, [cut for cut in cuts if cut < 12.0])
        parts = [bulk_bounds(splits[0], epsilon)]
        parts += [rest_contour(split, epsilon).delta_bounds(epsilon) for split in splits]
        whole = total(parts, left_out)
        assert whole.lower <= known * (1.0 + 1e-8)
        assert whole.upper >= known * (1.0 - 1e-8)
        assert whole.width <= 1e-6 * known


@pytest.mark.parametrize("kind", [Pair.REMOVE, Pair.REPLACE])
@pytest.mark.parametrize(("s", "q"), [(0.7, 0.01), (0.5, 0.2), (1.5, 1e-4), (0.3, 1e-3)])
@pytest.mark.parametrize("share", [0.15, 0.47, 0.75, 2.0])
@pytest.mark.one_in(16)
def test_bulk_bound_is_above_the_bulk(kind: Pair, s: float, q: float, share: float) -> None:
    """Two steps, by nested quadrature; wherever the cut is, below eps and above."""
    for epsilon in (0.05, 0.6, 3.0):
        splits, width, _ = chain(step_of(kind, s, q), 2, (share * epsilon,))
        end = band_of(splits[0].bulk).high
        truth = repeated_delta(kind.value, s, q, 2, epsilon, (-math.inf, end, width))
        assert bulk_bound(splits[0], epsilon) >= truth * (1.0 - 1e-6) - 1e-15


@pytest.mark.parametrize(
    ("s", "q", "count", "epsilon"), [(0.6, 1e-4, 2000, 0.2), (0.8, 0.01, 30, 0.5), (1.0, 0.05, 5, 1.0)]
)
def test_bulk_bound_is_above_the_bulk_of_many_steps(s: float, q: float, count: int, epsilon: float) -> None:
    """Against the bulk's own line; somewhere it is within a factor of a thousand, so that it is no idle number."""
    factors = []
    for share in (0.2, 0.4, 0.6, 0.9):
        splits, _, _ = chain(step_of(Pair.REMOVE, s, q), count, (share * epsilon,))
        bulk = bulk_bounds(splits[0], epsilon)
        bound = bulk_bound(splits[0], epsilon)
        assert bound >= bulk.lower
        if bulk.lower > 0.5 * bulk.upper:
            factors.append(bound / bulk.estimate)
    assert min(factors) < 1e3


@pytest.mark.one_in(6)
@pytest.mark.parametrize("kind", [Pair.REMOVE, Pair.REPLACE])
@pytest.mark.parametrize("count", [1, 2, 50])
def test_moments_of_a_rest_are_within_their_errors(kind: Pair, count: int) -> None:
    """log(M^T - M_nu^T) at real tilts and M^T - M_nu^T on the line, in 30 digits."""
    s, q, epsilon, tilt = 0.8, 0.05, 0.5, 3.0
    # Of its digits, tables have all but 24.
    step = replace(step_of(kind, s, q), digits=DIGITS + 24.0)
    split = chain(step, count, (0.4 * epsilon, 3.0))[0][0]
    shares = [(-math.inf, band.high, band.width) for band in (band_of(split.rest), band_of(split.bulk))]
    lines = [RealLine(kind.value, s, q, tilt, 30.0, share) for share in shares]

    def rest(t: float) -> mp.mpc:
        with mp.workdps(30):
            whole, bulk = (line.moment(t) ** count for line in lines)
            return whole - bulk

    table = split.rest_table(np.array([0.0, 1.0, tilt, 9.0]))
    assert abs(float(mp.log(rest(0.0))) - table.moments[2]) <= table.errors[2] + 1e-15
    assert table.errors[2] <= 1e-10
    line = split.rest_line(tilt, split.decay)
    assert abs(line.log_scale - table.moments[2]) <= 1e-12
    for t in (0.4, 3.0, 30.0):
        values = line.values(2.0 * math.pi / t, 2)
        with mp.workdps(30):
            error = abs(rest(t) / mp.exp(mp.mpf(line.log_scale)) - mp.mpc(values.ratios[1]))
        assert float(error) <= values.errors[1] + values.rounding[1] + 2.0 * values.log_scale_error
        assert float(error) <= 1e-9


@pytest.mark.parametrize("kind", [Pair.REMOVE, Pair.REPLACE])
@pytest.mark.parametrize("count", [1, 3, 300])
def test_the_envelope_of_a_rest_decreases_and_bounds_it(kind: Pair, count: int) -> None:
    split = chain(step_of(kind, 0.6, 0.01), count, (0.2, 2.0))[0][0]
    line = split.rest_line(4.0, split.decay)
    spacing, points = split.decay / 150.0, 400
    values = line.values(2.0 * math.pi / spacing, points)
    t = (np.arange(values.ratios.size) * spacing).astype(np.float64)
    envelope = line.log_envelope(t)
    assert np.all(np.diff(envelope) <= 1e-12)
    modulus = np.abs(values.ratios) - values.errors - values.rounding
    assert np.all(modulus <= np.exp(envelope) * (1.0 + 1e-10))
    short = line.values(2.0 * math.pi / spacing, 100)
    assert np.abs(values.ratios[short.ratios.size :]).max() <= math.exp(short.log_tail)


@pytest.mark.parametrize("part", ["bulk", "rest"])
@pytest.mark.parametrize("count", [1, 30, 1000])
def test_errors_of_a_rest_contain_the_worst_errors_of_its_steps(part: str, count: int) -> None:
    """Lines that differ by as much as they declare, in rounding, in quadrature and in log M(c)."""
    split = chain(step_of(Pair.REMOVE, 0.7, 0.02), count, (0.2, 2.0))[0][0]
    line = split.rest_line(2.0, split.decay)
    own = getattr(line, part)
    period = 2.0 * math.pi / (split.decay / 40.0)
    for size in (1e-8, 1e-6):
        for phase in (1.0, -1.0, 1j, -1j):
            weights, losses = np.append(own.weights, -size * phase), np.append(own.losses, 1e9j)
            cases = [
                (replace(own, rounding=size), replace(own, weights=own.weights * (1.0 + size * phase))),
                (replace(own, relative_error=size), replace(own, weights=weights, losses=losses)),
            ]
            if isinstance(phase, float):
                shifted = replace(
                    own, weights=own.weights * math.exp(-size * phase), log_moment=own.log_moment + size * phase
                )
                cases.append((replace(own, log_moment_error=size), shifted))
            for told, wrong in cases:
                here = replace(line, **{part: told}).values(period, 40)
                other = replace(line, **{part: wrong})
                there = other.values(period, 40)
                # Both in the scale of the first.
                moved = np.abs(there.ratios * math.exp(other.log_scale - line.log_scale) - here.ratios)
                common = np.abs(here.ratios) * math.expm1(here.log_scale_error)
                allowed = (here.errors + here.rounding + common)[1:]
                assert np.all(moved[1:] <= allowed * (1.0 + 1e-5) + 1e-300)
                assert abs(other.log_scale - line.log_scale) <= here.log_scale_error * (1.0 + 1e-6)


@pytest.mark.parametrize("shift", [-1e-6, 1e-6])
@pytest.mark.parametrize("part", ["bulk", "rest"])
def test_an_error_of_log_m_is_inside_the_bounds(part: str, shift: float) -> None:
    """It is no common factor of M^T - M_nu^T on the line, and amplified with it."""
    epsilon, count = 0.5, 40
    split = chain(step_of(Pair.REMOVE, 0.7, 0.05), count, (0.4 * epsilon, 8.0))[0][0]
    good = rest_contour(split, epsilon)
    for factor in (0.5, 1.0, 2.0):
        line = split.rest_line(good.tilt * factor, split.decay)
        own = getattr(line, part)
        moved = replace(
            own,
            log_moment=own.log_moment + shift,
            weights=own.weights * math.exp(-shift),
            log_moment_error=abs(shift),
        )
        values = replace(line, **{part: moved}).values(4.0 * good.period, 4 * good.values.ratios.size)
        found = Contour(good.tilt * factor, 4.0 * good.period, values, 0.0, good.table).delta_bounds(epsilon)
        truth = good.delta_bounds(epsilon)
        assert found.lower <= truth.upper
        assert found.upper >= truth.lower


def test_a_cut_that_leaves_too_much_beyond_it_is_refused() -> None:
    split = chain(step_of(Pair.REMOVE, 0.7, 0.5), 10**6, (0.01, 5.0))[0][0]
    with pytest.raises(OverflowError, match="too much probability"):
        split.rest_line(2.0, split.decay).values(50.0, 20)


@pytest.mark.parametrize(("s", "q"), [(0.5, 1e-3), (1.0, 0.3), (40.0, 0.01), (0.1, 1e-8)])
def test_what_lies_beyond_the_top_is_bounded(s: float, q: float) -> None:
    """P-mass outside the band that ends at the top: (1 - q) Phi(-top/r) + q Phi((1 - top)/r), r^2 = s^2 + w^2."""
    pair, width = GaussianPair(Pair.REMOVE, s, q), 0.2 * s
    for log_mass in (-3.0, -20.0, -60.0):
        top = top_for(pair, width, log_mass)
        found = Cut(GaussianPairStep(pair, DIGITS), pair, width).mass_beyond(top)
        assert 0.0 < found <= math.exp(log_mass)
        with mp.workdps(30):
            r = mp.sqrt(mp.mpf(s) ** 2 + mp.mpf(width) ** 2)
            truth = (1 - mp.mpf(q)) * mp.ncdf(-top / r) + mp.mpf(q) * mp.ncdf((1 - mp.mpf(top)) / r)
        assert truth <= found <= truth * (1.0 + 1e-8)


@pytest.mark.one_in(1000)
@pytest.mark.parametrize("log_scale", [-16.0, 0.0, 8.0, 13.0, 15.0])
def test_what_is_left_out_grows_with_the_truth_inside(log_scale: float) -> None:
    """The top lowered until a tenth of delta lies beyond it: counted as an infinite loss, from above only."""
    s, q, count, epsilon = 0.5, 0.01, 3, 1.0
    truth = repeated_delta("remove", s, q, count, epsilon)
    profiles = DirectedProfiles(DirectedComposition(((step_of(Pair.REMOVE, s, q), count),), 0.0))
    found = [profile.delta_bounds(epsilon) for profile in profiles.split(epsilon, log_scale)]
    assert found
    for bounds in found:
        assert bounds.lower <= truth * (1.0 + 1e-9)
        assert bounds.upper >= truth * (1.0 - 1e-9)
        if log_scale >= 13.0:
            # More is left out than everything else is wrong by.
            assert bounds.estimate < truth * (1.0 - 1e-5)
            assert bounds.error_budget["left_out"] > 1e-5 * truth


def test_a_moment_that_overflows_bounds_nothing() -> None:
    """All of them do here, and no warning reaches the caller."""
    pair = GaussianPair(Pair.REMOVE, 0.009459505888331483, 1e-10)
    cut = Cut(GaussianPairStep(pair, 57.8), pair, 2.23705629128445e-05)
    assert cut.bulk_bound(0.7463391082555589, 10**6, 5692.157651492892) > 1.0
