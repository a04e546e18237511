"""Bounded ranges of losses, and the selections that have one or have none."""

from __future__ import annotations

import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.errors import InvalidValue
from accounting.events import Event, Exponential, Gaussian, PureDp, ReportNoisyMax, event_from_json
from accounting.losses.exponential import BoundedRangeLoss, BoundedRangePairLoss
from accounting.losses.report_noisy_max import FewCandidatesLoss, NoisyMaxLoss, TwoCandidatesLoss
from accounting.relations import NeighboringRelation
from tests.accounting.fourier import ratio_checks

PAGE = Path(__file__).parents[3] / "docs/concepts/mechanisms.md"
ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
EPSILONS = (1e-6, 0.1, 1.0, 7.0, 60.0)


@mp.workdps(60)
def extreme_pair(epsilon: float, t: mp.mpf) -> tuple[list[mp.mpf], list[mp.mpf]]:
    """Losses t and t - epsilon, with the masses that make both laws add up to 1."""
    e = mp.mpf(epsilon)
    likely = (mp.exp(e) - mp.exp(t)) / mp.expm1(e)
    return [likely, 1 - likely], [likely * mp.exp(-t), (1 - likely) * mp.exp(e - t)]


@pytest.mark.parametrize("epsilon", EPSILONS)
@mp.workdps(60)
def test_profile_is_the_largest_over_the_extreme_pairs(epsilon: float) -> None:
    """Above all of them on a grid, and attained at t = (epsilon + x) / 2."""
    loss = BoundedRangeLoss(epsilon)
    for share in (-0.9, -0.4, 0.0, 0.3, 0.8):
        x = share * epsilon
        found = mp.mpf(float(loss.excess(np.array([x]))[0])) + max(mp.mpf(0), -mp.expm1(mp.mpf(x)))
        best = mp.mpf(0)
        for place in [mp.mpf(1 + share) / 2, *(mp.mpf(k) / 40 for k in range(1, 40))]:
            p, q = extreme_pair(epsilon, place * epsilon)
            delta = mp.fsum(max(a - mp.exp(mp.mpf(x)) * b, mp.mpf(0)) for a, b in zip(p, q, strict=True))
            best = max(best, delta)
        assert abs(found - best) <= mp.mpf("1e-11") * best, share


@pytest.mark.parametrize("epsilon", [0.1, 60.0, *(pytest.param(e, marks=pytest.mark.soak) for e in (1e-6, 1.0, 7.0))])
@mp.workdps(60)
def test_moments_are_exact_and_rounded_up(epsilon: float) -> None:
    """The moment of a bounded range is the largest over t, found by search; that of the pair integrates its density."""
    half = mp.mpf(epsilon) / 2
    for tilt in (1e-9, 0.01, 0.7, 3.0, 1e4):
        x = mp.mpf(tilt)
        found = mp.mpf(float(BoundedRangeLoss(epsilon).log_moment(np.array([tilt]))[0]))
        low, high = mp.mpf(0), mp.mpf(epsilon)

        def moment(t: mp.mpf, x: mp.mpf = x) -> mp.mpf:
            p, _ = extreme_pair(epsilon, t)
            return p[0] * mp.exp(x * t) + p[1] * mp.exp(x * (t - epsilon))

        # The moment as a function of t has one maximum.
        for _ in range(120):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (left, high) if moment(left) < moment(right) else (low, right)
        largest = mp.log(moment(low))
        assert largest <= found <= largest * (1 + mp.mpf("3e-12"))
        assert found <= mp.mpf(epsilon) ** 2 / 8 * x * (x + 1) * (1 + mp.mpf("3e-12"))
        pair = mp.log(mp.sinh((2 * x + 1) * half) / ((2 * x + 1) * mp.sinh(half)))
        assert 0 <= float(BoundedRangePairLoss(epsilon).log_moment(np.array([tilt]))[0]) / pair - 1 < 3e-12


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_rho_bounds_the_moments_and_is_attained(epsilon: float) -> None:
    loss = BoundedRangeLoss(epsilon)
    tilts = np.geomspace(1e-7, 1e4, 4000)
    largest = float(np.max(loss.log_moment(tilts) / (tilts * (tilts + 1.0))))
    assert largest * (1 - 3e-12) <= loss.zcdp_rho <= largest * (1 + 3e-6)
    assert loss.zcdp_rho <= epsilon**2 / 8


class _PairLaw:
    """The dominating pair, by its closed form."""

    def __init__(self, epsilon: float) -> None:
        self.half = mp.mpf(epsilon) / 2

    def moment(self, z: mp.mpc) -> mp.mpc:
        return mp.sinh((2 * z + 1) * self.half) / ((2 * z + 1) * mp.sinh(self.half))


@pytest.mark.parametrize("epsilon", [3.0, pytest.param(0.1, marks=pytest.mark.soak)])
def test_line_and_moments_of_the_pair_within_their_errors(epsilon: float) -> None:
    step = BoundedRangePairLoss(epsilon).contour_step(ratio_checks.LOG_COUNT, remove=True)
    law = _PairLaw(epsilon)
    table = step.table(np.array([1e-3, 0.4, 9.0]))
    for tilt, moment, error in zip(table.tilts, table.moments, table.errors, strict=True):
        with mp.workdps(30):
            assert abs(mp.log(law.moment(mp.mpf(float(tilt)))) - mp.mpf(float(moment))) <= error + 1e-25
    for tilt in (0.2, 4.0):
        line = step.line(tilt, 1.0)
        for t in np.array([1e-3, 0.5, 20.0, 300.0]) / epsilon:
            logs, quadrature, rounding = line.log_ratios(1, 2, float(t))
            with mp.workdps(30):
                truth = law.moment(mp.mpc(tilt, t)) / law.moment(mp.mpf(tilt))
                error = float(abs(truth - mp.exp(mp.mpc(logs[1]))))
            assert error <= math.expm1(quadrature[1] + rounding[1]) + 4e-16 * t * epsilon
        ratio_checks.check_envelope(step, tilt, 60.0 / epsilon)


def exponential_mechanism(scores: np.ndarray, epsilon: float) -> np.ndarray:  # type: ignore[type-arg]
    weights = np.exp(0.5 * epsilon * (scores - scores.max()))
    return weights / weights.sum()


def permute_and_flip(scores: list[float], epsilon: float) -> list[mp.mpf]:
    """P(r) = p_r times the integral over (0, 1) of the product of 1 - p_s t over the others."""
    p = [mp.exp(mp.mpf(epsilon) / 2 * (score - max(scores))) for score in scores]
    return [
        p[r] * mp.quad(lambda t, r=r: mp.fprod(1 - p[s] * t for s in range(len(p)) if s != r), [0, 1])
        for r in range(len(p))
    ]


@settings(max_examples=10, deadline=None)
@given(
    scores=st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=6),
    moves=st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=6),
    x=st.floats(0.0, 0.9),
)
def test_no_exponential_mechanism_exceeds_the_bound(scores: list[float], moves: list[float], x: float) -> None:
    """Three equal steps on explicit neighbours: their delta is at most what is reported."""
    here, there = np.array(scores), np.array(scores) + np.array(moves[: len(scores)])
    p, q = exponential_mechanism(here, 0.8), exponential_mechanism(there, 0.8)
    losses = np.log(p / q)
    assert losses.max() - losses.min() <= 0.8 * (1 + 1e-12)
    products = np.multiply.outer(np.multiply.outer(p, p), p) - math.exp(x) * np.multiply.outer(
        np.multiply.outer(q, q), q
    )
    attained = float(np.maximum(products, 0.0).sum())
    assert attained <= delta_for_epsilon([Event(Exponential(0.8), count=3)], ADD_REMOVE, x).value.upper + 1e-14


def test_many_candidates_come_near_one_step() -> None:
    """attained: scores of a share of many candidates fall by Delta, those of the others rise by as much."""
    epsilon, x = 1.0, 0.2
    t = 0.5 * (epsilon + x)
    likely = (math.exp(epsilon) - math.exp(t)) / math.expm1(epsilon)
    # Many candidates of equal scores stand for two of any weights.
    p = np.array([likely, 1.0 - likely])
    q = p * np.exp([-0.5 * epsilon, 0.5 * epsilon])
    q /= q.sum()
    attained = float(np.maximum(p - math.exp(x) * q, 0.0).sum())
    value = delta_for_epsilon([Event(Exponential(epsilon))], ADD_REMOVE, x).value
    assert value.lower <= attained * (1 + 1e-12)
    assert value.upper == pytest.approx(attained, rel=1e-10)


def test_permute_and_flip_has_no_bounded_range() -> None:
    """Two candidates that swap their scores: losses of +-0.8318 for epsilon 1, which is charged as pure DP."""
    p, q = permute_and_flip([0.0, -1.0], 1.0), permute_and_flip([-1.0, 0.0], 1.0)
    losses = [float(mp.log(a / b)) for a, b in zip(p, q, strict=True)]
    assert max(losses) - min(losses) == pytest.approx(1.6636, abs=1e-4)
    assert max(losses) == pytest.approx(0.8318, abs=1e-4)
    value = epsilon_for_delta([Event(ReportNoisyMax(1.0, "exponential"), count=7)], ADD_REMOVE, 1e-6).value
    pure = epsilon_for_delta([Event(PureDp(1.0), count=7)], ADD_REMOVE, 1e-6).value
    assert (value.estimate, value.upper) == (pure.estimate, pure.upper)


@pytest.mark.parametrize("epsilon", [1e-4, 1.0, 9.0])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
@mp.workdps(40)
@pytest.mark.one_in(3)
def test_two_candidates_of_permute_and_flip(epsilon: float, share: float) -> None:
    """One ahead, then behind; three steps of it add up as enumerated, and the list costs that much at least."""
    ahead = share * epsilon
    # Scores are in sensitivities, epsilon / 2 in scales.
    p = permute_and_flip([2.0 * share, 0.0], epsilon)
    q = permute_and_flip([0.0, 2.0 * (1.0 - share)], epsilon)
    atoms = TwoCandidatesLoss(epsilon, ahead).atoms
    assert [float(mp.log(a / b)) for a, b in zip(p[::-1], q[::-1], strict=True)] == pytest.approx(
        atoms.losses.tolist(), rel=1e-9
    )
    assert [float(a) for a in p[::-1]] == pytest.approx(np.exp(atoms.log_masses).tolist(), rel=1e-12)
    x = 0.3 * epsilon
    attained = sum(
        math.comb(3, k) * float(p[0] ** k * p[1] ** (3 - k)) * max(0.0, 1.0 - math.exp(x - k * l0 - (3 - k) * l1))
        for l1, l0 in [atoms.losses.tolist()]
        for k in range(4)
    )
    value = delta_for_epsilon([Event(ReportNoisyMax(epsilon, "exponential"), count=3)], ADD_REMOVE, x).value
    assert attained <= value.upper * (1 + 1e-9)
    assert value.lower <= value.upper


@pytest.mark.thorough
def test_crowds_with_laplace_noise_are_the_exponential_mechanism() -> None:
    """A thousand candidates on either side: odds e^d where one side is ahead by d of the noise's scales."""
    crowd, y = 1000, np.linspace(-5.0, 45.0, 200_001)
    below = np.where(y < 0, 0.5 * np.exp(np.minimum(y, 0.0)), 1 - 0.5 * np.exp(-np.maximum(y, 0.0)))
    step = y[1] - y[0]
    for ahead in (0.0, 0.5, 1.0):
        shift = round(ahead / step)
        first = crowd * below ** (crowd - 1) * 0.5 * np.exp(-np.abs(y))
        other = np.roll(below, shift)
        other[:shift] = 0.0
        named = float(np.sum(first * other**crowd)) * step
        assert named == pytest.approx(1.0 / (1.0 + math.exp(ahead)), rel=2e-3)
    for count in (1, 7):
        value = epsilon_for_delta([Event(ReportNoisyMax(0.3, "laplace"), count=count)], ADD_REMOVE, 1e-6).value
        crowds = epsilon_for_delta([Event(Exponential(0.3), count=count)], ADD_REMOVE, 1e-6).value
        assert value.lower == pytest.approx(crowds.lower, rel=1e-9)
        assert value.lower < value.upper


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.5])
@pytest.mark.one_in(3)
def test_no_candidates_with_laplace_noise_have_a_larger_advantage(epsilon: float) -> None:
    """Random scores of up to six candidates on either side; and the square of the largest one's density."""
    rng, y = np.random.default_rng(3), np.linspace(-40.0, 60.0, 100_001)
    step = y[1] - y[0]
    masses = np.exp(NoisyMaxLoss(epsilon, "laplace").dominating.atoms.log_masses)
    bound = float(masses[2] - masses[0])
    assert bound == pytest.approx(epsilon / 3, rel=1e-9)

    def law(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z = y[:, None] - scores
        below = np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0.0)), 1 - 0.5 * np.exp(-np.maximum(z, 0.0)))
        whole = below.prod(axis=1)
        return whole, whole * (0.5 * np.exp(-np.abs(z)) / below).sum(axis=1)

    largest = 0.0
    for _ in range(12):
        first, second = (rng.normal(scale=2.0, size=int(rng.integers(1, 7))) for _ in range(2))
        _, density = law(first)
        assert float(np.sum(density**2)) * step <= 1.0 / 3.0
        below, below_shifted = law(second)[0], law(second + epsilon)[0]
        advantage = float(np.sum(density * (below - below_shifted))) * step
        assert advantage <= bound
        largest = max(largest, advantage)
    assert largest > 0.3 * bound


@pytest.mark.parametrize(("first", "others"), [(1, 2), (2, 2), (3, 2)])
@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 4.0, 30.0])
@pytest.mark.one_in(6)
def test_attained_by_candidates(first: int, others: int, epsilon: float) -> None:
    """Chances by another quadrature with 25 digits; losses are never above theirs."""
    loss = FewCandidatesLoss(epsilon, 0.4 * epsilon, first, others)
    with mp.workdps(25):

        def chance(behind: float) -> mp.mpf:
            def below(y: mp.mpf) -> mp.mpf:
                return mp.exp(y) / 2 if y < 0 else 1 - mp.exp(-y) / 2

            def term(y: mp.mpf) -> mp.mpf:
                density = others * below(y) ** (others - 1) * mp.exp(-abs(y)) / 2
                return density * (1 - below(y + mp.mpf(behind)) ** first)

            return mp.quad(term, sorted({mp.mpf(-100), mp.mpf(-behind), mp.mpf(0), mp.mpf(100)}))

        p, q = chance(-0.4 * epsilon), chance(epsilon - 0.4 * epsilon)
        exact = float(mp.log(p / q)), float(mp.log((1 - p) / (1 - q)))
    high, low = float(loss.atoms.losses[1]), float(loss.atoms.losses[0])
    assert high <= exact[0]
    assert low >= exact[1]
    assert high == pytest.approx(exact[0], rel=1e-4)
    assert low == pytest.approx(exact[1], rel=1e-4)
    assert float(np.exp(loss.atoms.log_masses[1])) == pytest.approx(float(p), rel=1e-11)


@pytest.mark.thorough
def test_two_against_three_with_laplace_noise_cost_more_than_crowds_over_many_steps() -> None:
    value = epsilon_for_delta([Event(ReportNoisyMax(0.1, "laplace"), count=100)], ADD_REMOVE, 1e-6).value
    crowds = epsilon_for_delta([Event(Exponential(0.1), count=100)], ADD_REMOVE, 1e-6).value
    assert 1.18 * crowds.upper < value.lower < value.upper < value.lower / 0.69
    # In one step crowds come nearer to epsilon.
    alone = epsilon_for_delta([Event(ReportNoisyMax(1.0, "laplace"))], ADD_REMOVE, 1e-6).value
    assert alone.width < 2e-3


def test_single_losses_of_noisy_max_come_near_epsilon() -> None:
    """A candidate 40 scales behind, or level, gains on the other: at delta 0 nothing is known but epsilon."""
    tails = {"laplace": lambda s: math.exp(-s) * (2.0 + s) / 4.0, "exponential": lambda s: math.exp(-s) / 2.0}
    for noise, tail in tails.items():
        loss = math.log(tail(40.0) / tail(41.0))
        assert loss == pytest.approx(1.0, abs=0.025)
        assert loss <= epsilon_for_delta([Event(ReportNoisyMax(1.0, noise))], ADD_REMOVE, 0.0).value.upper


@pytest.mark.thorough
def test_gumbel_noise_is_the_exponential_mechanism() -> None:
    for count in (1, 40):
        gumbel = epsilon_for_delta([Event(ReportNoisyMax(0.3, "gumbel"), count=count)], ADD_REMOVE, 1e-6)
        assert gumbel == epsilon_for_delta([Event(Exponential(0.3), count=count)], ADD_REMOVE, 1e-6)


@pytest.mark.soak
@settings(max_examples=4, deadline=None)
@given(epsilon=st.floats(1e-3, 3.0), count=st.integers(1, 300), more=st.floats(1.001, 2.0))
def test_between_half_and_the_whole_of_pure_dp(epsilon: float, count: int, more: float) -> None:
    """Monotone, above what is attained and below the same epsilon as a pure guarantee."""
    value = epsilon_for_delta([Event(Exponential(epsilon), count=count)], ADD_REMOVE, 1e-6).value
    attained = epsilon_for_delta([Event(PureDp(0.5 * epsilon), count=count)], ADD_REMOVE, 1e-6).value
    pure = epsilon_for_delta([Event(PureDp(epsilon), count=count)], ADD_REMOVE, 1e-6).value
    assert attained.lower * (1 - 1e-9) <= value.lower <= value.upper <= pure.upper * (1 + 1e-9)
    larger = epsilon_for_delta([Event(Exponential(epsilon * more), count=count)], ADD_REMOVE, 1e-6).value
    longer = epsilon_for_delta([Event(Exponential(epsilon), count=count + 1)], ADD_REMOVE, 1e-6).value
    assert value.lower <= min(larger.upper, longer.upper)


def test_lists() -> None:
    mixed = epsilon_for_delta([Event(Exponential(0.1), count=10), Event(Gaussian(3.0))], ADD_REMOVE, 1e-6).value
    assert epsilon_for_delta([Event(Gaussian(3.0))], ADD_REMOVE, 1e-6).value.upper < mixed.lower < mixed.upper
    assert epsilon_for_delta([Event(Exponential(1.5), count=3)], ADD_REMOVE, 0.0).value.upper == pytest.approx(4.5)


@pytest.mark.parametrize(("count", "delta"), [(1, 0.5), (10**8, 1e-30)])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1e6])
@pytest.mark.one_in(6)
def test_extremes_have_numbers(epsilon: float, count: int, delta: float) -> None:
    for mechanism in (Exponential(epsilon), ReportNoisyMax(epsilon, "exponential")):
        value = epsilon_for_delta([Event(mechanism, count=count)], ADD_REMOVE, delta).value
        assert 0.0 <= value.lower <= value.estimate <= value.upper < math.inf


def test_same_bits_round_trip_and_refusals() -> None:
    assert Exponential(1) == Exponential(np.float32(1.0))  # type: ignore[arg-type]  # on purpose
    for mechanism in (Exponential(0.25), ReportNoisyMax(0.25, "gumbel")):
        event = Event(mechanism, count=3)
        assert event_from_json(event.to_json()) == event
    with pytest.raises(InvalidValue, match="laplace, gumbel or exponential") as noise:
        ReportNoisyMax(1.0, "normal")
    assert noise.value.pointer == ("noise",)
    with pytest.raises(InvalidValue):
        Exponential(-1.0)


def test_worked_numbers_of_the_page() -> None:
    value = epsilon_for_delta([Event(Exponential(0.1), count=100)], ADD_REMOVE, 1e-6).value
    page = PAGE.read_text()
    assert f"epsilon is {value.upper:.6f} at most and {value.lower:.6f} at least" in page
    named = epsilon_for_delta([Event(ReportNoisyMax(0.1, "laplace"), count=100)], ADD_REMOVE, 1e-6).value
    assert f"epsilon is {named.upper:.6f} at most" in page
    pure = epsilon_for_delta([Event(PureDp(0.1), count=100)], ADD_REMOVE, 1e-6).value
    assert f"it would be {pure.estimate:.6f}" in page
