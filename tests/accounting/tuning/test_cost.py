"""Selections: bounds against exact enumeration, attacks, simulation, and dp-accounting's Renyi accountant."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting.rdp import RdpAccountant
from scipy.special import ndtr

from accounting.errors import AccountingError, Unsupported
from accounting.events import ApproximateDp, Event, Gaussian, Laplace, Poisson, PureDp, ZcDp
from accounting.guarantees import RenyiDpGuarantee
from accounting.relations import NeighboringRelation
from accounting.tuning import (
    DEFAULT_ORDERS,
    FixedTrials,
    PoissonTrials,
    TruncatedNegativeBinomial,
    selection_event,
    selection_moments,
    tuning_cost,
)
from accounting.tuning.cost import selection_epsilon
from accounting.tuning.orders import weights_of_shifts
from accounting.tuning.selection import Selection
from accounting.tuning.solving import SelectionTarget, solve_noise_factor, with_noise_factor
from accounting.tuning.trials import RandomTrials

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
GEOMETRIC = TruncatedNegativeBinomial(1, 0.05)
LAWS: list[RandomTrials] = [
    GEOMETRIC,
    TruncatedNegativeBinomial(0, 0.02),
    TruncatedNegativeBinomial(-0.5, 0.01),
    TruncatedNegativeBinomial(2.5, 0.2),
    PoissonTrials(5),
    PoissonTrials(0.4),
]


def selected(law: RandomTrials, outcomes: np.ndarray) -> np.ndarray:
    """The exact law of the best of K runs; the first outcome is the best, the last entry is "nothing".

    An outcome of mass m after better ones of mass x has (1 - f(1 - x - m)) - (1 - f(1 - x)), without cancellation.
    """
    better = np.concatenate([[0.0], np.cumsum(outcomes)[:-1]])
    if isinstance(law, PoissonTrials):
        chances = np.exp(-law.mean * better) * -np.expm1(-law.mean * outcomes)
        return np.append(chances, law.none_probability)
    odds = 1.0 / law.gamma - 1.0
    steps = np.log1p(odds * outcomes / (1.0 + odds * better))
    if law.eta == 0.0:
        return np.append(steps / -math.log(law.gamma), 0.0)
    falling = np.exp(-law.eta * np.log1p(odds * better)) * np.expm1(-law.eta * steps)
    return np.append(falling / math.expm1(law.eta * math.log(law.gamma)), 0.0)


def delta_of(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)))


def divergence_of(p: np.ndarray, q: np.ndarray, order: float) -> float:
    kept = p > 0
    return math.log(float(np.sum(p[kept] ** order * q[kept] ** (1.0 - order)))) / (order - 1.0)


def pure_laws(epsilon: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring laws on four outcomes with all ratios e^epsilon or e^-epsilon."""
    shares = generator.dirichlet([0.3, 0.3]), generator.dirichlet([0.3, 0.3])
    high = 1.0 / (1.0 + math.exp(-epsilon))
    p = np.concatenate([high * shares[0], (1.0 - high) * shares[1]])
    q = np.concatenate([(1.0 - high) * shares[0], high * shares[1]])
    return p, q


@pytest.mark.one_in(16)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_no_score_costs_more_by_exact_enumeration(law: RandomTrials) -> None:
    """Every order of the outcomes of random neighbours that attain epsilon-DP, in both directions."""
    generator = np.random.default_rng(7)
    orders = (1.5, 2.0, 6.0, 40.0)
    for epsilon in (0.2, 1.0):
        events = (Event(PureDp(epsilon)),)
        moments = selection_moments(events, ADD_REMOVE, law, orders).epsilons
        selection, every_order = Selection(events, ADD_REMOVE, law), selection_moments(events, ADD_REMOVE, law)
        uppers = {delta: selection_epsilon(selection, delta, every_order)[0].value.upper for delta in (0.0, 1e-3, 0.05)}
        for _ in range(4):
            p, q = pure_laws(epsilon, generator)
            for places in itertools.permutations(range(4)):
                order = list(places)
                pair = selected(law, p[order]), selected(law, q[order])
                for first, second in (pair, pair[::-1]):
                    for delta, upper in uppers.items():
                        assert delta_of(first, second, upper) <= delta + 1e-12
                    for at, bound in zip(orders, moments, strict=True):
                        assert divergence_of(first, second, at) <= bound + 1e-12


@pytest.mark.parametrize(("eta", "gamma"), [(1.0, 1e-5), (0.0, 1e-5), (2.0, 1e-4)])
def test_the_pure_bound_is_attained(eta: float, gamma: float) -> None:
    """What is better than y is likelier under the neighbour, y itself less likely: (2 + eta) epsilon, nearly."""
    epsilon, law = 0.5, TruncatedNegativeBinomial(eta, gamma)
    upper = tuning_cost([Event(PureDp(epsilon))], ADD_REMOVE, law, 0.0).epsilon.value.upper
    assert upper <= (2.0 + eta) * epsilon * (1 + 1e-9)
    # y is tiny, p(y) = e^epsilon q(y), and what is better than y has 0.3 under p, 0.3 e^epsilon under q.
    better, odds = 0.3, 1.0 / gamma - 1.0
    densities = (1.0 + eta) * math.log((1.0 + odds * better * math.exp(epsilon)) / (1.0 + odds * better))
    assert 0.98 * upper < epsilon + densities <= upper


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("noise", [pytest.param(0.7, marks=pytest.mark.soak), 3.0])
def test_the_lower_end_is_attained_by_a_score_and_the_upper_end_by_none(law: RandomTrials, noise: float) -> None:
    """A score that prefers what lies below one threshold, then what lies above another: every pair of thresholds."""
    found = tuning_cost([Event(Gaussian(noise))], ADD_REMOVE, law, 1e-5).epsilon.value
    below, above = np.linspace(-6.0, 1.0, 141)[:, None], np.linspace(0.0, 10.0, 401)
    chance, mu = law.chance_that_the_best_is_in, 1.0 / noise
    first, second = ndtr(below - mu), ndtr(below)
    hits = chance(first + ndtr(mu - above)) - chance(first)
    misses = chance(second + ndtr(-above)) - chance(second)
    kept = (hits > 1e-5) & (misses > 1e-12) & (below < above)
    attack = float(np.max(np.log((hits[kept] - 1e-5) / misses[kept])))
    run = tuning_cost([Event(Gaussian(noise))], ADD_REMOVE, law, 1e-5).run.value.upper
    assert attack <= found.upper
    assert found.lower <= max(attack, run) * (1.0 + 2e-3)
    if law.expected_trials > 2.0:
        assert 0.985 * found.upper < found.lower


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_sums_of_shifted_deltas_are_above_every_pair_of_densities(law: RandomTrials) -> None:
    """Psi by a fine search over the edge of a Gaussian's tests; and at 0 and beyond c."""
    slopes = np.exp(np.linspace(0.0, 5.0, 200))
    deltas = np.array([ndtr(0.25 - 2 * x) - math.exp(x) * ndtr(-0.25 - 2 * x) for x in np.log(slopes)])
    shifts, weights = weights_of_shifts(law, slopes, deltas, law.log_ratio(slopes, deltas))
    u = np.concatenate([[0.0], np.geomspace(1e-14, 1.0, 200_000)])
    v = np.minimum((slopes[:, None] * u + deltas[:, None]).min(axis=0), 1.0)
    for y in (-3.0, -0.5, 0.0, 0.2, 0.4, 0.7, 1.0):
        truth = max(0.0, float(np.max(law.density(u) - math.exp(y) * law.density(v))))
        bound = float(weights @ np.maximum(-np.expm1(y - shifts), 0.0))
        assert truth <= bound * (1.0 + 1e-12) + 1e-15
        assert bound <= truth * 1.02 + 2e-3 * law.expected_trials


def test_the_law_of_the_best_is_the_one_that_is_simulated() -> None:
    generator = np.random.default_rng(11)
    outcomes = np.array([0.02, 0.08, 0.3, 0.6])
    edges = np.cumsum(outcomes)
    for law, draws in (
        (TruncatedNegativeBinomial(1, 0.2), generator.geometric(0.2, 60_000)),
        (TruncatedNegativeBinomial(0, 0.1), generator.logseries(0.9, 60_000)),
        (PoissonTrials(2.0), generator.poisson(2.0, 60_000)),
    ):
        uniform = generator.random(int(draws.sum()))
        best = np.ones(draws.size)
        ran = draws > 0
        starts = np.concatenate([[0], np.cumsum(draws)[:-1]])[ran]
        best[ran] = np.minimum.reduceat(uniform, starts)
        counts = np.bincount(np.searchsorted(edges, best[ran], side="right"), minlength=4)
        exact = selected(law, outcomes)
        seen = np.append(counts, draws.size - ran.sum())
        deviation = np.abs(seen - draws.size * exact) / np.sqrt(draws.size * exact + 1e-9)
        assert float(np.max(deviation)) < 5.0


THEIRS = {
    "gaussian": ([Event(Gaussian(2.0))], dp.GaussianDpEvent(2.0)),
    "laplace": ([Event(Laplace(2.0))], dp.LaplaceDpEvent(2.0)),
    "poisson": (
        [Event(Gaussian(1.1), Poisson(0.01), 500)],
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.1)), 500),
    ),
}


@pytest.mark.parametrize(
    ("which", "mean", "shape"),
    [
        ("gaussian", 20, 1.0),
        ("gaussian", 20, 0.0),
        ("gaussian", 5, 0.5),
        ("gaussian", 10, math.inf),
        ("laplace", 20, 1.0),
        ("poisson", 20, 0.0),
    ],
)
def test_never_above_theorem_2_and_6_as_dp_accounting_has_them(which: str, mean: float, shape: float) -> None:
    events, theirs = THEIRS[which]
    law: RandomTrials = PoissonTrials(mean)
    if math.isfinite(shape):
        law = TruncatedNegativeBinomial.with_expected_trials(shape, mean)
    accountant = RdpAccountant(orders=list(DEFAULT_ORDERS))
    accountant.compose(dp.RepeatAndSelectDpEvent(theirs, mean, shape))
    # Theorem 6 leaves out that nothing may be run; here its probability e^-mean is in the moment.
    nothing = np.log1p(law.none_probability / mean) / (np.array(DEFAULT_ORDERS) - 1.0)
    moments = selection_moments(events, ADD_REMOVE, law, DEFAULT_ORDERS)
    assert np.all(np.array(moments.epsilons) <= (accountant.rdp + nothing) * (1 + 1e-6))
    assert tuning_cost(events, ADD_REMOVE, law, 1e-6).epsilon.value.upper < accountant.get_epsilon(1e-6)


def test_corollary_4_of_the_paper() -> None:
    """zCDP runs: 2 sqrt(rho log E[K]) + 2 (1 + eta) sqrt(rho log(1 / gamma)) - eta rho at small orders."""
    rho, eta, gamma = 0.1, 1.0, 0.01
    law = TruncatedNegativeBinomial(eta, gamma)
    published = (
        2 * math.sqrt(rho * math.log(law.expected_trials)) + 4 * math.sqrt(rho * math.log(1 / gamma)) - eta * rho
    )
    order = 1 + math.sqrt(math.log(law.expected_trials) / rho)
    orders = sorted({2.0, order, math.sqrt(math.log(1 / gamma) / rho)})
    moments = selection_moments([Event(ZcDp(rho))], ADD_REMOVE, law, orders)
    assert moments.epsilons[0] <= published
    assert moments.epsilons[0] > 0.5 * published


def test_one_trial_costs_one_run_and_fixed_trials_compose() -> None:
    events = [Event(Gaussian(2.0)), Event(Laplace(5.0))]
    for once in (TruncatedNegativeBinomial(1, 1), TruncatedNegativeBinomial(-1, 0.1)):
        found = tuning_cost(events, ADD_REMOVE, once, 1e-6)
        assert found.epsilon.value.upper == pytest.approx(found.run.value.upper, rel=1e-9)
        assert found.epsilon.value.lower == pytest.approx(found.run.value.lower, rel=1e-9)
    three = tuning_cost(events, ADD_REMOVE, FixedTrials(3), 1e-6)
    assert three.epsilon == three.composition
    assert three.moments is not None
    single = selection_moments(events, ADD_REMOVE, FixedTrials(1), three.moments.orders)
    np.testing.assert_allclose(three.moments.epsilons, 3 * np.array(single.epsilons), rtol=1e-9)


def test_costs_grow_with_the_trials_and_fall_with_the_noise() -> None:
    def cost(noise: float, law: RandomTrials) -> float:
        return tuning_cost([Event(Gaussian(noise))], ADD_REMOVE, law, 1e-6).epsilon.value.upper

    geometric = [cost(2.0, TruncatedNegativeBinomial(1, gamma)) for gamma in (0.5, 0.1, 1e-3)]
    assert geometric == sorted(geometric)
    etas = [cost(2.0, TruncatedNegativeBinomial.with_expected_trials(eta, 10)) for eta in (-0.5, 0.0, 1.0, 3.0)]
    assert etas == sorted(etas)
    noises = [cost(noise, PoissonTrials(10)) for noise in (4.0, 1.0, 0.5)]
    assert noises == sorted(noises)
    assert cost(2, TruncatedNegativeBinomial(1, np.float64(0.5))) == geometric[0]  # type: ignore[arg-type]


def test_stated_deltas_count_expected_trials_times() -> None:
    """Where a run fails with probability d, the best of K has failed with E[K] d at most."""
    events = [Event(ApproximateDp(0.1, 1e-7))]
    assert tuning_cost(events, ADD_REMOVE, GEOMETRIC, 1e-5).moments is None
    assert tuning_cost(events, ADD_REMOVE, GEOMETRIC, 1e-5).epsilon.value.upper < 0.32
    assert math.isinf(tuning_cost(events, ADD_REMOVE, GEOMETRIC, 1.9e-6).epsilon.value.upper)
    with pytest.raises(Unsupported) as refusal:
        selection_moments(events, ADD_REMOVE, GEOMETRIC, [2.0])
    assert refusal.value.code == "no_renyi_divergence"


def test_the_whole_is_one_event() -> None:
    moments = selection_moments([Event(Gaussian(2.0))], ADD_REMOVE, GEOMETRIC, [2, 4, 8])
    assert selection_event(moments).to_json()["mechanism"] == moments.to_json()
    with pytest.raises(Unsupported):
        selection_event(RenyiDpGuarantee((2.0,), (1e7,)))


@pytest.mark.parametrize(
    "law", [pytest.param(GEOMETRIC, marks=pytest.mark.soak), PoissonTrials(10), FixedTrials(10)], ids=str
)
def test_noise_is_solved(law: RandomTrials) -> None:
    events = [Event(Gaussian(1.0)), Event(Laplace(4.0)), Event(PureDp(0.01))]
    target = SelectionTarget(3.0, 1e-6, law)
    found = solve_noise_factor(events, ADD_REMOVE, target)
    assert 3.0 * (1 - 1e-5) < found.achieved.value.upper <= 3.0
    scaled = with_noise_factor(events, found.value)
    assert scaled[2] == events[2]
    assert tuning_cost(scaled, ADD_REMOVE, law, 1e-6).epsilon.value.upper <= 3.0
    with pytest.raises(AccountingError):
        solve_noise_factor([Event(PureDp(0.1))], ADD_REMOVE, target)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("noise", [0.05, 1e3])
@pytest.mark.parametrize("delta", [0.0, 1e-30, 0.5])
@pytest.mark.parametrize("law", [TruncatedNegativeBinomial(-0.5, 0.01), PoissonTrials(1e5)], ids=str)
def test_corners_have_an_answer(noise: float, delta: float, law: RandomTrials) -> None:
    for event in (Event(Gaussian(noise)), Event(Laplace(noise))):
        selection = Selection((event,), ADD_REMOVE, law)
        upper, lower = selection.epsilon_by_profile(delta).value.upper, selection.least_epsilon(delta)
        assert 0.0 <= lower <= upper * (1 + 1e-9)
        assert not math.isnan(upper)
        assert not np.any(np.isnan(selection.divergences(np.array([1.01, 2.0, 1000.0]))))


@pytest.mark.soak
def test_a_thousand_random_selections_stay_within_their_bounds() -> None:
    """Random laws on six outcomes with random ratios; their own profile, stated as pure and approximate, is the run."""
    generator = np.random.default_rng(2110_03620)
    for _ in range(1000):
        eta = float(generator.choice([-0.7, -0.3, 0.0, 0.5, 1.0, 4.0]))
        law: RandomTrials = TruncatedNegativeBinomial(eta, float(np.exp(generator.uniform(-7.0, 0.0))))
        if generator.random() < 0.3:
            law = PoissonTrials(float(np.exp(generator.uniform(-2.0, 4.0))))
        epsilon = float(np.exp(generator.uniform(-3.0, 1.2)))
        failing = float(generator.choice([0.0, 1e-4, 1e-2]))
        p, q = pure_laws(epsilon, generator)
        # With probability `failing` the outcome says which neighbour it was.
        p = np.concatenate([(1.0 - failing) * p, [failing, 0.0]])
        q = np.concatenate([(1.0 - failing) * q, [0.0, failing]])
        run = Event(ApproximateDp(epsilon, failing)) if failing else Event(PureDp(epsilon))
        selection = Selection((run,), ADD_REMOVE, law)
        moments = None if failing else selection_moments([run], ADD_REMOVE, law)
        for delta in (1e-6, 1e-3, 0.05):
            upper = min(selection_epsilon(selection, delta, moments)[1].values())
            if math.isinf(upper):
                continue
            for _ in range(4):
                order = generator.permutation(6)
                first, second = selected(law, p[order]), selected(law, q[order])
                assert delta_of(first, second, upper) <= delta * (1 + 1e-9) + 1e-13
                assert delta_of(second, first, upper) <= delta * (1 + 1e-9) + 1e-13
