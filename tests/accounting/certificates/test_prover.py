"""Certificates of the engine's own answers, verified; and what has none, with the reason."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.canonical import sha256_hex
from accounting.certificates import AT_MOST, MORE_THAN, NoCertificate, certify, prices, prover
from accounting.certificates.prices import certify_price
from accounting.certificates.prover import NOT_INSTALLED
from accounting.events import (
    MECHANISMS,
    SAMPLINGS,
    ApproximateDp,
    Blocks,
    BufferedGaussian,
    CorrelatedGaussian,
    CyclicPoisson,
    DiscreteGaussian,
    DiscreteLaplace,
    DisjointBatches,
    Event,
    Exponential,
    FixedOrderEpochs,
    Gaussian,
    GaussianMixture,
    GeneralizedGaussian,
    InverseSquareRootGaussian,
    Laplace,
    Poisson,
    PureDp,
    RandomAllocation,
    RandomizedResponse,
    RenyiDp,
    ReportNoisyMax,
    ShuffledEpochs,
    ShuffleModel,
    SquareRootGaussian,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
    ZcDp,
)
from accounting.relations import NeighboringRelation
from tests.accounting.certificates.requests import drawn
from tests.soak.test_certified_schemes import judge

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
NULL = NeighboringRelation.REPLACE_SPECIAL

ANSWERS = {
    "full batch": ((Event(Gaussian(3.0), count=10),), ADD),
    "one poisson step": ((Event(Gaussian(0.7), Poisson(0.02)),), ADD),
    "poisson": ((Event(Gaussian(4.0), Poisson(0.01), 10_000),), ADD),
    "poisson, replaced": ((Event(Gaussian(2.0), Poisson(0.02), 2000),), REPLACE),
    "poisson, null": ((Event(Gaussian(1.0), Poisson(0.01), 3000),), NULL),
    "fixed size": ((Event(Gaussian(8.0), WithoutReplacement(1024, 50_000), 10_000),), REPLACE),
    "one step of a fixed size": ((Event(Gaussian(2.0), WithoutReplacement(10, 500)),), REPLACE),
    "list": (
        (
            Event(Gaussian(1.2), Poisson(0.02), 800),
            Event(Gaussian(6.0), WithoutReplacement(50, 5000), 700),
            Event(Gaussian(30.0), count=20),
        ),
        REPLACE,
    ),
    "few participations": ((Event(Gaussian(0.5), Poisson(0.001), 10),), ADD),
    "shuffled epochs": ((Event(Gaussian(3.0), ShuffledEpochs(10), 25),), REPLACE),
    "one laplace step": ((Event(Laplace(2.0)),), ADD),
    "full batches that protect nobody": ((Event(Gaussian(0.14), count=6450),), ADD),
    "laplace": ((Event(Laplace(8.0), count=40),), ADD),
    "many laplace steps": ((Event(Laplace(60.0), count=300),), REPLACE),
    "more laplace steps than are added up": ((Event(Laplace(20.0), count=3000),), ADD),
    "discrete laplace": ((Event(DiscreteLaplace(8.0, 0.25), count=40),), REPLACE),
    "discrete gaussian": ((Event(DiscreteGaussian(2.0, 0.5), count=3),), ADD),
    "discrete gaussian, coarse": ((Event(DiscreteGaussian(2.0, 1.0), count=6),), NULL),
    "response": ((Event(RandomizedResponse(2, 0.5), count=40),), REPLACE),
    "response, null": ((Event(RandomizedResponse(5, 0.3), count=12),), NULL),
    "three outcomes": ((Event(RandomizedResponse(10, 0.6), count=9),), REPLACE),
    "pure": ((Event(PureDp(0.1), count=100),), ADD),
    "laplace beside a full batch": ((Event(Laplace(20.0), count=10), Event(Gaussian(10.0), count=4)), ADD),
    "disjoint batches": ((Event(Gaussian(3.0), DisjointBatches("independent"), 10),), ADD),
    "mixture": ((Event(GaussianMixture((0.5, 0.5), (30.0, 50.0)), count=100),), ADD),
    "mixture on poisson batches": (
        (Event(GaussianMixture((0.25, 0.75), (2.0, 3.0)), Poisson(0.01), 500), Event(Gaussian(9.0))),
        REPLACE,
    ),
    "correlated": ((Event(CorrelatedGaussian(3.0, (1.0, 0.5, 0.25)), count=20),), ADD),
    "correlated, cycles": (
        (Event(CorrelatedGaussian(1.5, (1.0, 0.5)), CyclicPoisson(0.1, 10, "independent"), 3000),),
        ADD,
    ),
    "correlated, epochs": ((Event(SquareRootGaussian(5.0, 12), FixedOrderEpochs(8), 40),), NULL),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ANSWERS)
def test_both_ends_of_an_answer_are_proved(name: str) -> None:
    events, relation = ANSWERS[name]
    delta = 1e-6
    answer = epsilon_for_delta(events, relation, delta).value
    above = certify(AT_MOST, events, relation, answer.upper, delta)
    below = certify(MORE_THAN, events, relation, answer.lower * (1 - 1e-12), delta)
    for certificate, claim in ((above, AT_MOST), (below, MORE_THAN)):
        read = json.loads(certificate.data)
        assert read["statement"]["claim"] == claim
        assert certificate.sha256 == sha256_hex(certificate.data)
        stated = json.dumps(read["statement"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert certificate.statement_sha256 == sha256_hex(stated.encode())
        assert len(certificate.data) <= 4096
        assert certificate.assumed
    # The other way round, the same numbers have no certificate: what is false is not certified.
    with pytest.raises(NoCertificate):
        certify(AT_MOST, events, relation, answer.lower * (1 - 1e-4), delta)


#: Events, with what the reason says of them. All that the engine accounts is here, in `ANSWERS` or in `FROM_ABOVE`.
WITHOUT = {
    "stated zCDP": (Event(ZcDp(0.1)), "zcdp with full_batch"),
    "stated Renyi DP": (Event(RenyiDp((2.0, 4.0), (0.1, 0.2))), "renyi_dp with full_batch"),
    "stated delta": (Event(ApproximateDp(0.1, 1e-6)), "approximate_dp with full_batch"),
    "fine discrete Gaussian": (Event(DiscreteGaussian(5.0, 1e-3)), "no contour integral"),
    "discrete Laplace in epochs": (Event(DiscreteLaplace(2.0, 0.5), ShuffledEpochs(2), 4), "must be one of full_batch"),
    "generalised Gaussian": (Event(GeneralizedGaussian(1.5, 10, 3.0, 5.0)), "generalized_gaussian with full_batch"),
    "exponential": (Event(Exponential(0.1), count=5), "exponential with full_batch"),
    "noisy max": (Event(ReportNoisyMax(0.1, "laplace"), count=5), "report_noisy_max with full_batch"),
    "tree": (Event(TreeAggregation(3.0, 16, 0), count=16), "tree_aggregation with full_batch"),
    "shuffle model": (Event(PureDp(1.0), ShuffleModel(1000, 1.0)), "pure_dp with shuffle_model"),
    "random allocation": (Event(Gaussian(1.0), RandomAllocation(10, 2), 20), "gaussian with random_allocation"),
    "blocks": (Event(Gaussian(1.0), Blocks(10, 2), 20), "gaussian with blocks"),
    "cut batches": (
        Event(Gaussian(1.0), TruncatedPoisson(0.01, 30, 1000), 20),
        "gaussian with truncated_poisson",
    ),
    "noise of buffers": (Event(BufferedGaussian(3.0, (0.5,), (0.9,)), count=10), "got 'buffered_gaussian'"),
    "noise of an inverse": (Event(InverseSquareRootGaussian(3.0, 5), count=10), "got 'inverse_square_root_gaussian'"),
    "Laplace on Poisson batches": (Event(Laplace(1.0), Poisson(0.1), 20), "laplace with poisson"),
}

#: Events whose pairs nobody attains, so that their upper ends alone have one.
FROM_ABOVE = (
    Event(Gaussian(12.0), WithReplacement(20, 1000), 600),
    Event(Gaussian(4.0), TruncatedPoisson(0.05, 20, 300, "random"), 100),
)


@pytest.mark.parametrize("event", FROM_ABOVE, ids=lambda event: event.sampling.kind)
def test_a_pair_that_nobody_attains_is_certified_from_above_alone(event: Event) -> None:
    answer = epsilon_for_delta((event,), REPLACE, 1e-6).value
    assert certify(AT_MOST, (event,), REPLACE, answer.upper, 1e-6)
    with pytest.raises(NoCertificate, match="dominates these batches but is not attained"):
        certify(MORE_THAN, (event,), REPLACE, answer.lower, 1e-6)


@pytest.mark.parametrize("name", WITHOUT)
def test_what_has_no_theorem_has_no_certificate(name: str) -> None:
    """Alone or beside what has one, from above or from below, the reason names it."""
    event, reason = WITHOUT[name]
    allowed = set(event.sampling.relations) & set(event.mechanism.relations)
    relation = next(each for each in NeighboringRelation if each in allowed)
    for claim, events in ((AT_MOST, (event,)), (MORE_THAN, (Event(Gaussian(5.0)), event))):
        with pytest.raises(NoCertificate) as refused:
            certify(claim, events, relation, 5.0, 1e-5)
        assert reason in str(refused.value)


def test_every_mechanism_and_every_sampling_has_one_or_a_reason() -> None:
    known = [event for events, _ in ANSWERS.values() for event in events] + [event for event, _ in WITHOUT.values()]
    known += FROM_ABOVE
    assert {event.mechanism.kind for event in known} >= set(MECHANISMS)
    assert {event.sampling.kind for event in known} >= set(SAMPLINGS)


def test_a_search_that_takes_too_many_nodes_is_given_up() -> None:
    with pytest.raises(NoCertificate, match="would need too many nodes"):
        certify(AT_MOST, (Event(Gaussian(0.001), Poisson(0.5)), Event(Gaussian(1.0))), ADD, 5.0, 1e-5)


def test_more_of_a_wider_pair_is_not_certified() -> None:
    events = (Event(Gaussian(6.0), WithoutReplacement(50, 5000), 2000),)
    answer = epsilon_for_delta(events, NULL, 1e-6).value
    with pytest.raises(NoCertificate, match="a wider dominating pair than these batches"):
        certify(MORE_THAN, events, NULL, answer.lower, 1e-6)
    # From above the wider pair dominates, too.
    assert certify(AT_MOST, events, NULL, 3.0 * answer.upper, 1e-6)


def test_without_the_verifier_there_is_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "epsilond_verifier", None)  # As where python-flint is missing.
    with pytest.raises(NoCertificate) as refused:
        certify(AT_MOST, (Event(Gaussian(1.0)),), ADD, 5.0, 1e-5)
    assert str(refused.value) == NOT_INSTALLED


def test_certificates_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer or a price that the verifier does not verify has no certificate."""
    events = (Event(Gaussian(30.0), count=5),)
    epsilon, mu_squared = epsilon_for_delta(events, ADD, 1e-6).value.upper, 10**8
    verdict = prover.verifier()(certify(AT_MOST, events, ADD, epsilon, 1e-6).data)
    assert certify_price(events, ADD, (mu_squared,))
    unsure = replace(verdict, verdict="cannot check", reason="for a test")
    for module in (prover, prices):
        monkeypatch.setattr(module, "verifier", lambda: lambda _: unsure)
    with pytest.raises(NoCertificate, match="the verifier says cannot check: for a test"):
        certify(AT_MOST, events, ADD, epsilon, 1e-6)
    with pytest.raises(NoCertificate, match="the verifier says cannot check: for a test"):
        certify_price(events, ADD, (mu_squared,))


@pytest.mark.parametrize("number", range(6))
@pytest.mark.one_in(6)
def test_random_answers_are_proved(number: int) -> None:
    request = drawn(number)
    assert certify(AT_MOST, request.events, request.relation, request.upper, request.delta)
    assert certify(MORE_THAN, request.events, request.relation, request.lower, request.delta)


@pytest.mark.parametrize("number", [5, 9, 13])
def test_lower_ends_of_correlated_noise_hold_although_sensitivities_are_rounded_up(number: int) -> None:
    """A lower end that is taken of the rounded sensitivity is 1e-14 too high, which the verifier refutes."""
    assert judge("correlated_gaussian", number).refuted == []


def test_a_search_that_overflows_warns_nobody() -> None:
    request = drawn(32)
    assert certify(AT_MOST, request.events, request.relation, request.upper, request.delta)
