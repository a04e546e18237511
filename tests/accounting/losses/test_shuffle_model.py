"""Shuffled messages of one local randomiser: the pair of counts, its bound on a grid, and real randomisers."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import compose
from accounting.errors import InvalidValue, NoCostInFilter, Unsupported
from accounting.events import ApproximateDp, Event, Gaussian, PureDp, ShuffleModel, event_from_json
from accounting.filters import approximate_dp_cost, pure_dp_cost
from accounting.losses.shuffle_model import closed_form_epsilon, distance_of_randomizers
from accounting.losses.shuffled_counts import ClonesLoss, ResponsesLoss, ThreeCategoriesLoss
from accounting.relations import NeighboringRelation
from accounting.schedule_warnings import schedule_warnings
from tests.accounting.referee import shuffled_pair

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE
SOAK = pytest.mark.soak


def stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize(
    ("local", "users"), [(0.5, 400), (1.0, 50), (3.0, 300), (0.1, 7), (8.0, 10), (2.0, 2), (1.0, 1)]
)
@pytest.mark.one_in(4)
def test_profile_is_above_the_pair_of_the_theorem_and_close(local: float, users: int) -> None:
    loss = ClonesLoss(local, users)
    p, q = shuffled_pair(local, users)
    for share in (0.0, 0.05, 0.15, 0.5, 0.9):
        exact = stick(p, q, share * local)
        bound = float(loss.excess(np.array([share * local]))[0])
        assert bound >= exact * (1 - 1e-10)
        if exact > 1e-30:
            assert stick(p, q, share * local * (1 - 1e-3) - 1e-3 / math.sqrt(users) * local) >= bound * (1 - 1e-10)
    masses = np.exp(loss.atoms.log_masses)
    assert masses.sum() == pytest.approx(1.0, abs=1e-12)
    assert (masses * np.exp(-loss.atoms.losses)).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.thorough
def test_groups_of_clones_are_a_bound_and_close() -> None:
    """At 1e5 users clones are grouped by a dozen; sums over every number of clones, for the middle of each law."""
    local, users, epsilon = 1.0, 100_000, 0.012
    grown = math.exp(local)
    chance = 2 / (grown + 1)
    clones = np.arange(stats.binom.ppf(1e-9, users - 1, chance), stats.binom.isf(1e-9, users - 1, chance))
    weights = stats.binom.pmf(clones, users - 1, chance)
    # The loss passes epsilon at i = z (C + 1): P and Q beyond, by binomial tails.
    share = (grown * math.exp(epsilon) - 1) / ((grown - 1) * (math.exp(epsilon) + 1))
    first = np.ceil(share * (clones + 1))
    with_, without = stats.binom.sf(first - 2, clones, 0.5), stats.binom.sf(first - 1, clones, 0.5)
    p, q = (grown * with_ + without) / (grown + 1), (with_ + grown * without) / (grown + 1)
    exact = float(weights @ (p - math.exp(epsilon) * q))
    bound = float(ClonesLoss(local, users).excess(np.array([epsilon]))[0])
    assert exact * (1 - 1e-6) <= bound <= exact * 1.01


def test_published_closed_form() -> None:
    assert closed_form_epsilon(0.5, 1024, 1e-6) == pytest.approx(0.269791870551, abs=1e-12)
    assert closed_form_epsilon(1.48413, 1024, 1e-6) is not None
    assert closed_form_epsilon(1.48415, 1024, 1e-6) is None


@pytest.mark.parametrize(("local", "users", "delta"), [(0.5, 1024, 1e-6), pytest.param(2.0, 50_000, 1e-6, marks=SOAK)])
def test_the_pair_is_better_than_the_closed_form(local: float, users: int, delta: float) -> None:
    value = epsilon_for_delta([Event(PureDp(local), ShuffleModel(users, local, 0.0))], REPLACE, delta).value
    closed = closed_form_epsilon(local, users, delta)
    assert closed is not None
    assert value.upper < 0.7 * closed
    if users == 1024:
        assert f"{value.lower:.6f}" == "0.056089"
        assert (
            "between 0.056089 and 0.061895"
            in (Path(__file__).parents[3] / "docs/sampling/shuffle_model.md").read_text()
        )


def responses(local: float, others: tuple[int, ...], mine: int) -> np.ndarray:
    """The law of the number of ones, user by user."""
    law = np.ones(1)
    for bit in (*others, mine):
        one = (math.exp(local) if bit else 1.0) / (math.exp(local) + 1.0)
        law = np.convolve(law, [1.0 - one, one])
    return law


@pytest.mark.parametrize(
    ("local", "users"), [(3.0, 2), (1.0, 6), pytest.param(0.5, 3, marks=SOAK), pytest.param(2.0, 9, marks=SOAK)]
)
def test_binary_randomised_response_is_inside_and_attains_the_lower_end(local: float, users: int) -> None:
    """Any inputs of the others; one round, and three."""
    event = Event(PureDp(local), ShuffleModel(users, local, 0.0))
    for epsilon in (0.0, 0.2 * local, 0.45, 0.9 * local):
        value = delta_for_epsilon([event], REPLACE, epsilon).value
        largest = 0.0
        for others in itertools.combinations_with_replacement((0, 1), users - 1):
            p, q = responses(local, others, 0), responses(local, others, 1)
            largest = max(largest, stick(p, q, epsilon), stick(q, p, epsilon))
        p, q = (responses(local, (0,) * (users - 1), mine) for mine in (0, 1))
        same = max(stick(p, q, epsilon), stick(q, p, epsilon))
        assert value.lower <= same <= largest <= value.upper
        assert value.lower >= same * (1 - 1e-8)
    three = [np.einsum("i,j,k->ijk", law, law, law) for law in (p, q)]
    for epsilon in (0.1 * local, local):
        attained = max(stick(*three, epsilon), stick(*three[::-1], epsilon))
        value = delta_for_epsilon([Event(PureDp(local), event.sampling, 3)], REPLACE, epsilon).value
        assert attained * (1 - 1e-5) <= value.lower <= attained * (1 + 1e-12) <= value.upper


def test_two_users_cost_no_more_than_randomised_response() -> None:
    """Found by an audit: with two users every 3-DP randomiser costs at most this, and the pair no more either."""
    value = delta_for_epsilon([Event(PureDp(3.0), ShuffleModel(2, 3.0, 0.0))], REPLACE, 0.5).value
    assert value.lower <= 0.8329137472539843 <= value.upper
    assert value.lower == pytest.approx(0.8329137472539843, rel=1e-9)
    assert value.upper == pytest.approx(0.8329137472539843, rel=1e-9)


def test_many_ones_are_seen_as_one_from_below() -> None:
    """Against all numbers of ones, in either direction; and where messages hardly hide anything."""
    local, users = 0.5, 200_000
    chance = 1 / (1 + math.exp(local))
    ones = np.arange(users + 1)
    p = stats.binom.pmf(ones, users, chance)
    q = p * ((users - ones) * math.exp(-local) + ones * math.exp(local)) / users
    loss = ResponsesLoss(local, users)
    assert loss.atoms.losses.size < 4000
    for epsilon in (0.0, 0.002, 0.005):
        for remove, exact in ((True, stick(p, q, epsilon)), (False, stick(q, p, epsilon))):
            bound = float(loss.excess(np.array([epsilon]), remove=remove)[0])
            assert exact * (1 - 1e-3) <= bound <= exact * (1 + 1e-9)
    for far, crowd in ((1e-9, 1000), (31.0, 10**9), (800.0, 10)):
        atoms = ResponsesLoss(far, crowd).atoms
        assert np.all(np.diff(atoms.losses) > 0)
        for log_masses in (atoms.log_masses, atoms.log_masses - atoms.losses):
            assert np.exp(log_masses).sum() == pytest.approx(1.0, abs=1e-10)


def test_users_with_randomisers_of_their_own_are_not_covered_and_the_warning_says_so() -> None:
    """Symbols that name their user: shuffling hides nothing, and the cost is above what the same randomiser's is."""
    local, users = 1.0, 40
    event = Event(PureDp(local), ShuffleModel(users, local, 0.0))
    covered = delta_for_epsilon([event], REPLACE, 0.5).value.upper
    own = delta_for_epsilon([Event(PureDp(local))], REPLACE, 0.5).value.lower
    assert covered < 0.1 * own
    for events in ([event], [Event(Gaussian(9.0)), event], [event, event]):
        [warning] = schedule_warnings(events, REPLACE, epsilon=0.5)
        assert "all apply the same local randomiser" in warning
        assert "not valid" in warning


@pytest.mark.parametrize("local", [0.5, 1.5])
@pytest.mark.one_in(2)
def test_randomised_response_of_real_users_stays_below(local: float) -> None:
    """k categories, six users, every multiset of messages: any inputs of the others."""
    users, kinds = 6, 3
    grown = math.exp(local)

    def law(inputs: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        laws: dict[tuple[int, ...], float] = {(0,) * kinds: 1.0}
        for value in inputs:
            following: dict[tuple[int, ...], float] = {}
            for counts, mass in laws.items():
                for sent in range(kinds):
                    chance = (grown if sent == value else 1.0) / (grown + kinds - 1)
                    key = tuple(c + (k == sent) for k, c in enumerate(counts))
                    following[key] = following.get(key, 0.0) + mass * chance
            laws = following
        return laws

    event = Event(PureDp(local), ShuffleModel(users, local, 0.0))
    nearest = 0.0
    for others in itertools.combinations_with_replacement(range(kinds), users - 1):
        p, q = law((0, *others)), law((1, *others))
        for epsilon in (0.0, 0.2 * local, 0.6 * local):
            bound = delta_for_epsilon([event], REPLACE, epsilon).value.upper
            attained = sum(max(mass - math.exp(epsilon) * q[key], 0.0) for key, mass in p.items())
            assert attained <= bound
            nearest = max(nearest, attained / bound)
    assert nearest > 0.5


@pytest.mark.parametrize(("local", "users"), [(0.7, 3), (1.5, 3), pytest.param(3.0, 4, marks=SOAK)])
def test_extreme_randomisers_stay_below_and_come_near(local: float, users: int) -> None:
    """Corners of the set of all e-DP randomisers on four inputs, any inputs of the others, every multiset."""
    rng, grown, inputs = np.random.default_rng(8), math.exp(local), 4
    patterns = np.array(list(itertools.product((1.0, grown), repeat=inputs)))
    event = Event(PureDp(local), ShuffleModel(users, local, 0.0))
    epsilons = [share * local for share in (0.0, 0.2, 0.6, 0.9)]
    bounds = [delta_for_epsilon([event], REPLACE, epsilon).value.upper for epsilon in epsilons]
    nearest = 0.0
    for _ in range(25):
        corner = optimize.linprog(rng.normal(size=len(patterns)), A_eq=patterns.T, b_eq=np.ones(inputs)).x
        randomizer = (patterns * corner[:, None])[corner > 1e-12].T
        assert (randomizer.max(axis=0) <= grown * randomizer.min(axis=0) * (1 + 1e-9)).all()
        symbols = range(randomizer.shape[1])
        for others in itertools.combinations_with_replacement(range(inputs), users - 1):
            laws: list[dict[tuple[int, ...], float]] = [{}, {}]
            for sent in itertools.product(symbols, repeat=users - 1):
                chance = math.prod(float(randomizer[x, m]) for x, m in zip(others, sent, strict=True))
                for mine, law in enumerate(laws):
                    for m in symbols:
                        key = tuple(sorted((m, *sent)))
                        law[key] = law.get(key, 0.0) + chance * float(randomizer[mine, m])
            p, q = (np.array([law[key] for key in laws[0]]) for law in laws)
            for epsilon, bound in zip(epsilons, bounds, strict=True):
                attained = max(stick(p, q, epsilon), stick(q, p, epsilon))
                assert attained <= bound * (1 + 1e-9)
                nearest = max(nearest, attained / bound)
    assert nearest > 0.9


@pytest.mark.parametrize(("local", "users"), [(1.0, 2), (2.0, 40), (0.5, 300), (5.0, 1000)])
def test_profile_is_below_what_three_categories_attain_and_close(local: float, users: int) -> None:
    """The difference of two counts, user by user."""
    grown = math.exp(local)
    law = np.ones(1)
    for _ in range(users - 1):
        law = np.convolve(law, np.array([1.0, grown, 1.0]) / (grown + 2))
    p, q = (np.convolve(law, np.array(mine) / (grown + 2)) for mine in ((1.0, 1.0, grown), (grown, 1.0, 1.0)))
    loss = ThreeCategoriesLoss(local, users)
    for share in (0.0, 0.1, 0.3, 0.6):
        exact, found = stick(p, q, share * local), float(loss.excess(np.array([share * local]))[0])
        assert exact * (1 - 1e-3) <= found <= exact * (1 + 1e-9)


@pytest.mark.thorough
def test_three_categories_cost_more_than_a_bit_where_few_lie() -> None:
    """What is attained comes within some thousandths of what is proved, where the local epsilon is large."""
    event = Event(PureDp(4.0), ShuffleModel(100_000, 4.0, 0.0))
    value = epsilon_for_delta([event], REPLACE, 1e-6).value
    assert isinstance(compose([event], REPLACE).steps[0][0].attained, ThreeCategoriesLoss)
    assert value.upper * (1 - 0.012) < value.lower < value.upper
    few = compose([Event(PureDp(3.0), ShuffleModel(2, 3.0, 0.0))], REPLACE).steps[0][0]
    assert isinstance(few.attained, ResponsesLoss)


@pytest.mark.parametrize("local", [0.1, 0.5, math.log(2.0), 1.0, 3.0])
def test_no_score_of_many_messages_tells_more_than_the_two_randomisers_of_the_lower_end(local: float) -> None:
    """A linear programme over all e-DP randomisers: messages by their ratios to the others' law, on a grid."""
    e = math.exp(local)
    grid = np.exp(local * np.linspace(-1.0, 1.0, 81))
    p, q = (each.ravel() for each in np.meshgrid(grid, grid))
    private = (p <= e * q * (1.0 + 1e-12)) & (q <= e * p * (1.0 + 1e-12))
    p, q = p[private], q[private]
    found = optimize.linprog(-((p - q) ** 2), A_eq=np.array([np.ones_like(p), p, q]), b_eq=np.ones(3))
    bit, three = (e - 1.0) ** 2 / e, 2.0 * (e - 1.0) ** 2 / (e + 2.0)
    assert -found.fun == pytest.approx(max(bit, three), rel=1e-9)
    # Which is what the lower end's losses have, with as many users: the chi-square divergence times the users.
    users = 10**6
    loss = (ResponsesLoss if bit >= three else ThreeCategoriesLoss)(local, users)
    assert users * math.expm1(float(loss.log_moment(np.ones(1))[0])) == pytest.approx(max(bit, three), rel=2e-3)


def test_rounds_compose_the_pair_and_no_round_is_free() -> None:
    """Three rounds of few users, outcome by outcome."""
    local, users = 1.0, 4
    p, q = (law.reshape(-1) for law in shuffled_pair(local, users))
    keep = p + q > 0
    p, q = p[keep], q[keep]
    three = (np.einsum("i,j,k->ijk", law, law, law) for law in (p, q))
    p3, q3 = three
    event = Event(PureDp(local), ShuffleModel(users, local, 0.0), 3)
    for epsilon in (0.0, 0.7, 1.8):
        exact = stick(p3, q3, epsilon)
        value = delta_for_epsilon([event], REPLACE, epsilon).value
        assert exact * (1 - 1e-9) <= value.upper
        assert value.lower <= exact * 1.01


@SOAK
def test_twenty_rounds_cost_more_than_one_and_less_than_twenty_times_that() -> None:
    one = epsilon_for_delta([Event(PureDp(0.5), ShuffleModel(500, 0.5, 0.0))], REPLACE, 1e-6).value
    many = epsilon_for_delta([Event(PureDp(0.5), ShuffleModel(500, 0.5, 0.0), 20)], REPLACE, 1e-6).value
    assert one.upper < many.lower <= many.upper < 20 * one.upper


def test_local_delta_adds_a_total_variation() -> None:
    local, users, tiny = 1.0, 50, 1e-12
    event = Event(ApproximateDp(local, tiny), ShuffleModel(users, local, tiny))
    pure = Event(PureDp(local), ShuffleModel(users, local, 0.0))
    kept = math.exp(-local)
    distance = tiny / (1 + math.e) + 49 * 2 * kept * tiny * (1 + 1 / (1 + math.e))
    assert distance_of_randomizers(local, tiny, users) == pytest.approx(distance, rel=1e-12)
    for epsilon in (0.0, 0.8):
        mine, other = (delta_for_epsilon([each], REPLACE, epsilon).value for each in (event, pure))
        assert mine.upper - other.upper == pytest.approx(distance * (1 + math.exp(epsilon)), rel=1e-3)
        assert 0.0 <= other.lower - mine.lower <= 1.01 * distance * (1 + math.exp(epsilon))
    assert math.isinf(epsilon_for_delta([event], REPLACE, 1e-13).value.upper)
    assert compose([Event(ApproximateDp(local, 0.0), ShuffleModel(users, local, 0.0))], REPLACE).steps == (
        compose([pure], REPLACE).steps
    )


def test_a_randomiser_that_fails_at_times_stays_below() -> None:
    """Randomised response that tells its input outright with probability d: (e, d)-DP; three users, all outcomes."""
    local, fails, users = 0.8, 0.01, 3
    grown = math.exp(local)
    response = np.array([[grown, 1.0], [1.0, grown]]) / (grown + 1)
    randomizer = np.hstack([(1 - fails) * response, fails * np.eye(2)])
    event = Event(ApproximateDp(local, fails), ShuffleModel(users, local, fails))
    for others in itertools.product((0, 1), repeat=users - 1):
        laws = []
        for mine in (0, 1):
            law: dict[tuple[int, ...], float] = {}
            for sent in itertools.product(range(4), repeat=users):
                chance = math.prod(randomizer[x, m] for x, m in zip((mine, *others), sent, strict=True))
                key = tuple(sorted(sent))
                law[key] = law.get(key, 0.0) + float(chance)
            laws.append(law)
        for epsilon in (0.0, 0.3, 0.8):
            attained = sum(max(mass - math.exp(epsilon) * laws[1][key], 0.0) for key, mass in laws[0].items())
            assert attained <= delta_for_epsilon([event], REPLACE, epsilon).value.upper


@pytest.mark.thorough
def test_ends_have_numbers() -> None:
    assert epsilon_for_delta([Event(PureDp(0.0), ShuffleModel(9, 0, 0), 5)], REPLACE, 0.0).value.upper == 0.0
    value = epsilon_for_delta([Event(PureDp(0.5), ShuffleModel(1024, 0.5, 0.0), 3)], REPLACE, 0.0).value
    assert value.upper == pytest.approx(1.5, rel=1e-12)
    for local in (800.0,):
        value = epsilon_for_delta([Event(PureDp(local), ShuffleModel(10, local, 0.0), 2)], REPLACE, 1e-6).value
        assert 0.0 <= value.lower <= value.upper <= 2 * local * (1 + 1e-12)


def test_one_user_alone_is_randomised_response() -> None:
    alone, response = Event(PureDp(0.7), ShuffleModel(1, 0.7, 0.0), 40), Event(PureDp(0.7), count=40)
    assert compose([alone], REPLACE) == compose([response], REPLACE)


def test_what_is_charged_and_what_is_refused() -> None:
    event = Event(PureDp(0.5), ShuffleModel(np.int64(100), 0.5, 0), 3)
    assert event == event_from_json(event.to_json())
    assert compose([event], REPLACE) == compose([event], SPECIAL)
    with pytest.raises(Unsupported, match=r"messages are counted.* Use replace_special or replace_one$"):
        compose([event], ADD_REMOVE)
    with pytest.raises(Unsupported, match="no amplification by shuffle_model"):
        Event(Gaussian(1.0), ShuffleModel(100, 0.5, 0.0))
    for mechanism, sampling, name in (
        (PureDp(0.5), ShuffleModel(100, 0.6, 0.0), "local_epsilon"),
        (PureDp(0.5), ShuffleModel(100, 0.5, 1e-9), "local_delta"),
        (ApproximateDp(0.5, 1e-8), ShuffleModel(100, 0.5, 1e-9), "local_delta"),
    ):
        with pytest.raises(InvalidValue, match="which is the local randomiser") as caught:
            Event(mechanism, sampling)
        assert caught.value.pointer == ("sampling", name)
    amounts = approximate_dp_cost((event,), REPLACE, 1e-6).amounts
    assert 0 <= amounts[0] - 1e9 * epsilon_for_delta([event], REPLACE, 1e-6).value.upper <= 1
    with pytest.raises(NoCostInFilter, match="it has one in approximate_dp"):
        pure_dp_cost((event,), REPLACE)
