"""Draws with replacement: a witness chooses the shares of a pair that dominates, and says nothing from below."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from epsilond_verifier import check
from epsilond_verifier.bounds import CannotCheck
from epsilond_verifier.forms import Asked, read_form
from epsilond_verifier.laws import Draws, FixedSize, Mixture, Step
from epsilond_verifier.reading import Reader
from flint import arb, fmpq

from accounting.accountant import epsilon_for_delta
from accounting.canonical import number_to_string
from accounting.certificates import AT_MOST, MORE_THAN, Certificate, NoCertificate, certify
from accounting.certificates.certificate import Statement
from accounting.certificates.prover import witnesses
from accounting.events import Event, Gaussian, Poisson, WithReplacement
from accounting.groups import group_epsilon_for_delta
from tests.clients.verifier.cases import ADD, NULL, REPLACE, changed, mutated, numbers

DELTA = 1e-6


pytestmark = pytest.mark.usefixtures("precise")


def _ball(number: Fraction) -> arb:
    return arb(fmpq(number.numerator, number.denominator))


def _hits(size: int, records: int) -> list[Fraction]:
    """Return w_h as the number of batches in which record 0 is drawn h times, over all of them."""
    counted = [0] * (size + 1)
    for batch in product(range(records), repeat=size):
        counted[batch.count(0)] += 1
    return [Fraction(number, records**size) for number in counted]


def _shares(weights: list[Fraction], excess: list[int]) -> list[Fraction]:
    """Return sound shares of 2, 3, ... draws: what is above the probabilities of 1, 2, ... adds up to w_0."""
    more = [weights[0] * each / sum(excess) for each in excess]
    return [w + each for w, each in zip(weights[2:], more[1:], strict=False)]


def _seen(s: float, size: int, records: int, shares: list[Fraction]) -> tuple[Mixture, arb]:
    return Draws(arb(s), size, _ball(Fraction(1, records))).seen([_ball(share) for share in shares])


@pytest.mark.parametrize(("size", "records"), [(2, 2), (2, 5), (3, 3), (4, 3)])
def test_any_sound_shares_make_the_law_of_the_draws(size: int, records: int) -> None:
    """The branches hold each number of draws with its probability, and together none with that of no draw."""
    weights, rng = _hits(size, records), random.Random(2)
    for most in range(2, size + 1):
        mixture, beyond = _seen(3.0, size, records, _shares(weights, [rng.randint(1, 99) for _ in range(most)]))
        assert beyond.overlaps(_ball(sum(weights[most + 1 :], Fraction(0))))
        assert float(beyond.rad()) < 1e-35
        never = arb(0)
        for h, (share, law) in enumerate(mixture.branches, 1):
            assert isinstance(law, FixedSize)
            assert law.s.overlaps(arb(3) / (2 * h))
            assert (share * law.q).overlaps(_ball(weights[h]))
            never += share * (1 - law.q)
        assert never.overlaps(_ball(weights[0]))
        assert h == most


@pytest.mark.parametrize(
    ("size", "records", "relation"), [(2, 3, REPLACE), (3, 3, REPLACE), (2, 4, REPLACE), (4, 2, NULL), (3, 3, NULL)]
)
def test_no_data_set_loses_more_than_a_sound_choice_says(size: int, records: int, relation: object) -> None:
    """Every batch of small data sets is counted; on either side the step is a mixture of normal laws."""
    rng, weights, s = random.Random(7), _hits(size, records), 1.5
    places = np.linspace(-size - 12.0 * s, size + 12.0 * s, 6001)
    batches = np.array(list(product(range(records), repeat=size)))
    closest = math.inf
    for attempt in range(15):
        # At first all others are where the record goes, and each branch moves the mean by nearly the same.
        most = size if attempt == 0 else rng.randint(2, size)
        others = [rng.choice([-1.0, 1.0, rng.uniform(-1.0, 1.0)]) if attempt else -1.0 for _ in range(records - 1)]
        excess = [rng.randint(1, 99) if attempt else int(10**6 * h * weights[h]) for h in range(1, most + 1)]
        densities = []
        for own in (1.0, 0.0 if relation is NULL else -1.0):
            sums = np.array([own, *others])[batches].sum(axis=1)
            normal = np.exp(-((places[:, None] - sums) ** 2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
            densities.append(normal.mean(axis=1))
        law, beyond = _seen(s, size, records, _shares(weights, excess))
        prove = read_form(Reader({"form": "one_step"}, "form"), Asked([Step(law, 1, "")], "both"))
        for epsilon in (0.0, 0.2, 0.7, 1.5):
            bound = float((prove(arb(epsilon)).above + beyond).upper())
            for p, q in (densities, densities[::-1]):
                truth = float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), places))
                assert truth <= bound + 1e-12, (others, excess, epsilon)
                closest = min(closest, 1.0 - truth / bound)
    assert closest < (0.6 if relation is NULL else 0.1), closest


# Whole certificates.

CASES = {
    "usual": ((Event(Gaussian(12.0), WithReplacement(20, 1000), 600),), REPLACE),
    "null": ((Event(Gaussian(8.0), WithReplacement(1024, 50_000), 10_000),), NULL),
    "in a list": ((Event(Gaussian(20.0), WithReplacement(200, 400), 100), Event(Gaussian(40.0), count=3)), REPLACE),
    "one step": ((Event(Gaussian(3.0), WithReplacement(8, 50)),), REPLACE),
}


@lru_cache
def _certified(name: str) -> tuple[Certificate, float]:
    events, relation = CASES[name]
    upper = epsilon_for_delta(events, relation, DELTA).value.upper
    return certify(AT_MOST, events, relation, upper, DELTA), upper


def _lost(events: tuple[Event, ...], relation: object) -> float:
    """Return an epsilon that some neighbours lose: h draws move the sum by 2h, or by h to null, and h is hidden.

    As h is binomial, that is what a group of as many records as there are draws has in Poisson batches.
    """
    first = events[0]
    batches, noise = first.sampling, first.mechanism.noise_multiplier * (0.5 if relation is REPLACE else 1.0)
    assert isinstance(batches, WithReplacement)
    hidden = Event(Gaussian(noise), Poisson(1.0 / batches.dataset_size), first.count)
    return group_epsilon_for_delta((hidden,), ADD, DELTA, min(batches.batch_size, 1000)).value.lower


@pytest.mark.parametrize("name", CASES)
def test_what_the_engine_answers_is_verified(name: str) -> None:
    certificate, _ = _certified(name)
    assert len(certificate.data) <= 4096
    assert any("how often a record is drawn" in assumed for assumed in certificate.assumed)
    events, relation = CASES[name]
    with pytest.raises(NoCertificate, match="is not attained"):
        certify(MORE_THAN, events, relation, 1e-3, DELTA)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["usual", "one step"])
def test_what_some_neighbours_lose_is_never_stated_lower(name: str) -> None:
    """The honest witness does not prove it, nor its own, nor either of them with two numbers altered."""
    events, relation = CASES[name]
    false = _lost(events, relation) * (1.0 - 1e-6)
    certificate, upper = _certified(name)
    assert 0.1 * upper < false < upper
    lower = changed(certificate.data, ["statement", "epsilon"], number_to_string(false))
    fresh = next(witnesses(Statement(AT_MOST, events, relation, false, DELTA)))
    rng = random.Random(5)
    for data in (lower, fresh):
        assert check(data).verdict == "cannot check"
        for _ in range(6):
            moved = data
            for where, text in rng.sample(numbers(data), 2):
                moved = changed(moved, where, mutated(text, rng))
            assert check(moved).verdict == "cannot check"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_an_event_that_costs_more_is_not_verified(name: str) -> None:
    data = _certified(name)[0].data
    event = json.loads(data)["statement"]["events"][0]
    sampling = event["sampling"]
    for where, value in (
        (["count"], int(event["count"]) + 1),
        (["sampling", "batch_size"], int(sampling["batch_size"]) + 1),
        (["sampling", "dataset_size"], int(sampling["dataset_size"]) - 1),
        (["mechanism", "noise_multiplier"], float(event["mechanism"]["noise_multiplier"]) * 0.999),
    ):
        altered = changed(data, ["statement", "events", 0, *where], number_to_string(float(value)))
        assert check(altered).verdict == "cannot check", where


def _share(data: bytes, place: int, value: float) -> bytes:
    return changed(data, ["witness", "directions", "both", "draws", 0, "shares", place], number_to_string(value))


@pytest.mark.parametrize("name", CASES)
def test_shares_that_are_unsound_are_refused(name: str) -> None:
    data = _certified(name)[0].data
    shares = [float(share) for share in json.loads(data)["witness"]["directions"]["both"]["draws"][0]["shares"]]
    batches = CASES[name][0][0].sampling
    assert isinstance(batches, WithReplacement)
    b, n = batches.batch_size, batches.dataset_size
    for place in range(len(shares)):
        h = place + 2
        weight = math.comb(b, h) * (n - 1) ** (b - h) / n**b
        assert shares[place] >= weight
        found = check(_share(data, place, weight * (1.0 - 1e-13)))
        assert found.verdict == "cannot check"
        assert f"the share of {h} draws is at least" in found.reason
    # The others leave one draw less than it needs, or less than nothing.
    never, once = (1 - 1 / n) ** b, b / n * (1 - 1 / n) ** (b - 1)
    most = shares[0] + 1.0 - sum(shares) - once
    assert most > shares[0] or never < 1e-3
    for value in (most * (1.0 + 1e-9), 1.0):
        found = check(_share(data, 0, value))
        assert found.verdict == "cannot check"
        assert "the share of 1 draws is at least" in found.reason


def test_fewer_draws_leave_more_out() -> None:
    """The last share is left away: what it was for weighs on delta in full."""
    certificate, _ = _certified("usual")
    where = ["witness", "directions", "both"]
    form = json.loads(certificate.data)["witness"]["directions"]["both"]
    for kept in (2, 3):
        data = changed(certificate.data, [*where, "draws", 0, "shares"], form["draws"][0]["shares"][: kept - 1])
        places = form["steps"][0]["branches"][:kept]
        data = changed(data, [*where, "steps", 0, "branches"], places)
        # 600 steps in which more than two draws have a probability of 1e-6, more than three of 4e-9.
        assert check(data).verdict == "cannot check"
        wider = changed(data, ["statement", "delta"], "0.001" if kept == 2 else "1e-05")
        assert check(wider).verdict == "verified"
    # With all shares stated, branches may be left out as those of other mixtures: at their shares, which are larger.
    rare = changed(changed(certificate.data, [*where, "kept"], ["3"]), [*where, "steps", 0, "branches"], places)
    assert check(rare).verdict == "cannot check"
    assert check(changed(rare, ["statement", "delta"], "0.0012")).verdict == "cannot check"
    assert check(changed(rare, ["statement", "delta"], "0.0013")).verdict == "verified"


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        (["witness", "directions", "both", "draws"], None, "lacks draws"),
        (["witness", "directions", "both", "draws"], [{"shares": ["0.5"]}] * 2, "draws must be a list of length 1"),
        (
            ["witness", "directions", "both", "draws", 0, "shares"],
            ["0.001"] * 20,
            "for more draws of a record than are made",
        ),
        (["witness", "directions", "both", "draws", 0, "shares"], ["0.001"] * 65, "must be a list of length 1 to 64"),
        (["witness", "directions", "both", "draws", 0, "shares"], ["0"], "must be a number"),
        (["witness", "directions", "both", "draws", 0, "others"], "1", "has unknown keys: ['others']"),
        (
            ["witness", "directions", "both", "draws", 0, "shares"],
            ["0.02"],
            "branches must be a list of length 2",
        ),
        (["statement", "relation"], "add_or_remove_one", "this verifier does not cover this sampling"),
        (["statement", "group_size"], "2", "must be one of full_batch, shuffled_epochs"),
    ],
)
def test_what_it_cannot_read_is_refused_with_the_reason(where: list[str | int], value: object, reason: str) -> None:
    found = check(changed(_certified("usual")[0].data, where, value))
    assert found.verdict == "cannot check"
    assert reason in found.reason


def test_one_draw_is_a_batch_of_one_record() -> None:
    """No shares have to be chosen, so that it is decided from both sides."""
    events = (Event(Gaussian(3.0), WithReplacement(1, 50), 10),)
    answer = epsilon_for_delta(events, REPLACE, DELTA).value
    data = certify(AT_MOST, events, REPLACE, answer.upper, DELTA).data
    assert "draws" not in json.loads(data)["witness"]["directions"]["both"]
    # A step of draws without shares is no law of which anything is known.
    step = Step(Draws(arb(3), 2, arb(0.5)), 1, "")
    with pytest.raises(CannotCheck, match="lacks draws"):
        read_form(Reader({"form": "one_step"}, "form"), Asked([step], "both"))
