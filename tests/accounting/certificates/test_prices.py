"""Prices of Gaussian budgets are certified as they are charged, and false prices are refuted or refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction

import pytest
from epsilond_verifier import check

from accounting.canonical import canonical_text, number_to_string
from accounting.certificates import AT_MOST, MORE_THAN, NoCertificate, certify_price
from accounting.certificates.certificate import Statement
from accounting.certificates.prices import PriceStatement, price_bytes
from accounting.certificates.prover import witnesses
from accounting.composition.gaussian_dp import delta_of_gaussian
from accounting.events import ApproximateDp, Event, Gaussian, Laplace, Poisson, PureDp
from accounting.filters import ApproximateGaussianDpFilter, GaussianDpFilter
from accounting.relations import NeighboringRelation

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
BUDGET = ApproximateGaussianDpFilter(8.0, 1e-5)
RATE = Fraction(str(BUDGET.delta_per_mu_squared))
TRAINING = (Event(Gaussian(1.0), Poisson(0.01), 2000),)


@pytest.fixture(scope="module")
def honest() -> bytes:
    return certify_price(TRAINING, ADD, BUDGET.cost(TRAINING, ADD).amounts, RATE).data


def altered(data: bytes, part: str, **values: object) -> bytes:
    read = json.loads(data)
    read[part].update(values)
    return canonical_text(read).encode()


def test_the_amounts_that_are_charged_are_stated_and_verified(honest: bytes) -> None:
    mu_squared, failure, _ = BUDGET.cost(TRAINING, ADD).amounts
    stated = json.loads(honest)["statement"]
    assert (stated["nano_mu_squared"], stated["atto_failure"]) == (str(mu_squared), str(failure))
    verdict = check(honest)
    assert verdict.verdict == "verified"
    assert f"mu squared {mu_squared}e-9 with failure {failure}e-18" in verdict.statement
    assert any("adaptively chosen steps add up" in theorem for theorem in verdict.assumed)
    assert len(honest) < 8192


@pytest.mark.parametrize(
    ("events", "relation"),
    [
        ((Event(Gaussian(5.0), count=3),), ADD),
        ((Event(Gaussian(5.0), count=3), Event(Gaussian(3.0), count=7)), REPLACE),
        ((Event(PureDp(0.25), count=3),), ADD),
        ((Event(PureDp(0.25), count=3), Event(Gaussian(5.0), count=3)), ADD),
    ],
)
def test_lists_without_sampling_have_one_in_both_gaussian_budgets(
    events: tuple[Event, ...], relation: NeighboringRelation
) -> None:
    for budget in (BUDGET, GaussianDpFilter(3.0)):
        amounts = budget.cost(events, relation).amounts
        data = certify_price(events, relation, amounts, RATE).data
        assert check(data).verdict == "verified"
        if "nodes" not in json.loads(data)["witness"]:
            less = altered(data, "statement", nano_mu_squared=str(amounts[0] - max(1, amounts[0] // 1000)))
            assert check(less).verdict == "cannot check"


def test_a_pure_epsilon_that_is_too_small_is_refused() -> None:
    events = (Event(PureDp(0.25), count=3),)
    data = certify_price(events, ADD, BUDGET.cost(events, ADD).amounts, RATE).data
    assert json.loads(data)["statement"]["nano_pure_epsilon"] == "750000000"
    verdict = check(altered(data, "statement", nano_pure_epsilon="749999999"))
    assert verdict.verdict == "cannot check"
    assert "pure epsilon" in verdict.reason


def test_a_mu_that_is_too_small_is_refuted() -> None:
    mu_squared = BUDGET.cost(TRAINING, ADD).amounts[0] * 97 // 100
    failure = int(mu_squared * RATE * 10**9)
    d, mu = failure / 1e18, (mu_squared / 1e9) ** 0.5
    for epsilon in (1.0, 2.0, 2.5):
        lower = d + (1 - d) * delta_of_gaussian(mu, epsilon, upward=True)
        for data in witnesses(Statement(MORE_THAN, TRAINING, ADD, epsilon, lower)):
            if check(data).verdict != "verified":
                break
            witness = json.loads(data)["witness"]
            node = {"deltas": [1.0], "directions": witness["directions"], "epsilons": [epsilon]}
            more = PriceStatement(MORE_THAN, TRAINING, ADD, mu_squared, failure)
            assert check(price_bytes(more, int(witness["precision"]), [node])).verdict == "verified"
            false = replace(more, claim=AT_MOST)
            assert check(price_bytes(false, int(witness["precision"]), [node])).verdict == "refuted"
            return
    pytest.fail("no epsilon shows that the price is false")


def test_what_is_false_is_not_verified(honest: bytes) -> None:
    stated, witness = json.loads(honest)["statement"], json.loads(honest)["witness"]
    mu_squared, event, nodes = int(stated["nano_mu_squared"]), stated["events"][0], witness["nodes"]
    more = dict(event, sampling=dict(event["sampling"], sampling_probability="0.0101"))
    first, last = dict(nodes[0]), dict(nodes[-1])
    first |= {"epsilons": first["epsilons"][1:], "deltas": first["deltas"][1:]}
    last |= {"epsilons": last["epsilons"][:-1], "deltas": last["deltas"][:-1]}
    lower = dict(nodes[0], deltas=[number_to_string(0.9 * float(nodes[0]["deltas"][0])), *nodes[0]["deltas"][1:]])
    one_way = dict(nodes[0], directions={"remove": nodes[0]["directions"]["remove"]})
    false = [
        altered(honest, "statement", nano_mu_squared=str(mu_squared * 999 // 1000)),
        altered(honest, "statement", atto_failure="0"),
        altered(honest, "statement", events=[dict(event, count="2020")]),
        altered(honest, "statement", events=[more]),
        altered(honest, "statement", events=[event, dict(event, count="1")]),
        altered(honest, "statement", relation="replace_one"),
        altered(honest, "witness", nodes=[one_way, *nodes[1:]]),
        altered(honest, "witness", nodes=nodes[1:]),
        altered(honest, "witness", nodes=nodes[:-1]),
        altered(honest, "witness", nodes=[lower, *nodes[1:]]),
    ]
    false += [altered(honest, "witness", nodes=[first, *nodes[1:]])] if first["epsilons"] else []
    false += [altered(honest, "witness", nodes=[*nodes[:-1], last])] if last["epsilons"] else []
    assert [number for number, data in enumerate(false) if check(data).verdict == "verified"] == []


def test_flipped_bytes_never_verify_another_statement(honest: bytes) -> None:
    rng = random.Random(7)
    for _ in range(40):
        flipped = bytearray(honest)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(7)
        if check(bytes(flipped)).verdict == "verified":
            stated, before = json.loads(flipped)["statement"], json.loads(honest)["statement"]
            # What a flip may state is weaker: fewer steps, or more that is charged.
            assert int(stated["nano_mu_squared"]) >= int(before["nano_mu_squared"])
            assert int(stated["atto_failure"]) >= int(before["atto_failure"])
            assert int(stated["events"][0]["count"]) <= int(before["events"][0]["count"])


def test_there_is_none_of_stated_deltas_and_of_infinite_amounts() -> None:
    events = (Event(ApproximateDp(0.1, 1e-7)),)
    with pytest.raises(NoCertificate):
        certify_price(events, ADD, BUDGET.cost(events, ADD).amounts, RATE)
    with pytest.raises(NoCertificate, match="no finite mu squared"):
        certify_price(TRAINING, ADD, (2**61, 0, 2**61), RATE)


def test_laplace_noise_has_its_own_mu_in_a_gaussian_budget() -> None:
    events = (Event(Laplace(4.0), count=3), Event(Gaussian(4.0)))
    data = certify_price(events, ADD, GaussianDpFilter(3.0).cost(events, ADD).amounts).data
    assert check(data).verdict == "verified"
