"""Audits of evaluations: honest vectors stay under their claim and come near it, and broken ones are refuted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mpmath import mp

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian
from accounting.relations import NeighboringRelation
from calibrators.held_out import HeldOutEvaluation
from calibrators.plan import Clip
from tests.trainer.plans import phase_of, plan_of
from trainer import held_out
from trainer.audit.audit import audit
from trainer.audit.canaries import ORTHOGONAL
from trainer.audit.held_out import HELD_OUT, TWO_CLASSES, EvaluationAttack
from trainer.audit.result import CONSISTENT, VIOLATED
from trainer.exact.gaussian import RoundedGaussian
from trainer.held_out import GRAIN, Layout, noise_stddev, sums_in_grains
from trainer.streams import random_streams

NOISE = 0.7
EVALUATED = replace(
    plan_of("dp_sgd", phase_of(Clip(1.0), probability=0.5, steps=2)), evaluation=HeldOutEvaluation(NOISE)
)
LAYOUTS = {
    "two classes": TWO_CLASSES,
    "five classes": Layout(5, has_probabilities=True),
    "many classes": Layout(23, has_probabilities=True),
    "no probabilities": Layout(2, has_probabilities=False),
    "numbers": Layout(0, has_probabilities=False),
}


def attacked(trials: int = 500, seed: int = 1, **given: Any) -> Any:
    return audit(EVALUATED, design=HELD_OUT, method="gaussian_dp", trials=trials, seed=seed, **given)


def test_the_claim_is_of_what_is_attacked() -> None:
    """Of the evaluation's event alone, or of the training's."""
    claims = {}
    for design, events in ((HELD_OUT, [Event(Gaussian(NOISE))]), (ORTHOGONAL, [EVALUATED.phases[0].event])):
        result = audit(EVALUATED, design=design, trials=20, seed=1)
        claims[design] = result.claim
        certified = epsilon_for_delta(events, EVALUATED.neighboring_relation, 1e-5).value
        assert result.claim.upper == pytest.approx(certified.upper, rel=1e-6)
    whole = epsilon_for_delta(EVALUATED.events, EVALUATED.neighboring_relation, 1e-5).value
    assert max(claim.upper for claim in claims.values()) < whole.lower


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_the_canary_attains_the_bound(name: str, relation: NeighboringRelation) -> None:
    """The vectors with and without it are C apart; under replace_one further, and 2 C at most."""
    layout = LAYOUTS[name]
    attack = EvaluationAttack(HeldOutEvaluation(1.0), relation, layout)
    apart = float(np.linalg.norm(attack._direction)) / layout.bound
    if relation is NeighboringRelation.REPLACE_ONE:
        assert 1.0 < apart <= 2.0
    else:
        assert 1.0 - 1e-6 < apart <= 1.0
    (rows, labels), streams = attack._rows(True), random_streams(0)
    seen = GRAIN * sums_in_grains(layout, attack._model, attack._parameters, rows, labels, 2, streams)
    np.testing.assert_array_equal(seen, attack._middle + attack._direction / 2.0)


def test_the_score_is_the_ratio_of_the_densities_of_the_rounded_noise() -> None:
    """Coordinate by coordinate: the probabilities of whole grains, by the normal distribution function."""
    layout = LAYOUTS["no probabilities"]
    attack = EvaluationAttack(HeldOutEvaluation(NOISE), NeighboringRelation.REPLACE_ONE, layout)
    stddev = noise_stddev(HeldOutEvaluation(NOISE), layout)
    seen = held_out.noisy_sums(
        HeldOutEvaluation(NOISE), attack._model, attack._parameters, *attack._rows(True), 2, random_streams(3)
    )
    with_it, without = attack._expected(True), attack._expected(False)

    def log_probability(expected: np.ndarray) -> Any:
        ends = [
            [(mp.mpf(y - v) + side * mp.mpf(GRAIN) / 2) / mp.mpf(stddev) for side in (-1, 1)]
            for y, v in zip(seen, expected, strict=True)
        ]
        return mp.fsum(mp.log(mp.ncdf(upper) - mp.ncdf(lower)) for lower, upper in ends)

    with mp.workdps(40):
        exact = float(log_probability(with_it) - log_probability(without))
    assert attack.score(member=True, seed=3) == pytest.approx(exact, rel=1e-6, abs=1e-8)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LAYOUTS)
def test_honest_evaluations_stay_under_the_claim_and_the_attack_comes_near_it(name: str) -> None:
    result = attacked(layout=LAYOUTS[name])
    assert result.verdict == CONSISTENT
    assert 0.4 * result.claim.upper < result.epsilon_lower <= result.claim.upper
    assert (result.canaries_per_run, result.runs) == (1, 600)
    assert result.finding.rule.score == "likelihood_ratio"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_every_relation_is_attacked(relation: NeighboringRelation) -> None:
    plan = replace(EVALUATED, neighboring_relation=relation)
    result = audit(plan, design=HELD_OUT, trials=500, seed=2)
    assert result.verdict == CONSISTENT
    assert 0.1 * result.claim.upper < result.epsilon_lower <= result.claim.upper


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LAYOUTS)
def test_halved_noise_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    honest = RoundedGaussian.rounded
    monkeypatch.setattr(RoundedGaussian, "rounded", lambda noise, size, scale: honest(noise, size, scale / 2.0))
    assert attacked(layout=LAYOUTS[name], confidence=0.999).verdict == VIOLATED


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("method", "relation"), [("guesses", "add_or_remove_one"), ("gaussian_dp", "replace_one")])
def test_halved_noise_is_caught_by_other_methods_and_relations(
    monkeypatch: pytest.MonkeyPatch, method: str, relation: str
) -> None:
    honest = RoundedGaussian.rounded
    monkeypatch.setattr(RoundedGaussian, "rounded", lambda noise, size, scale: honest(noise, size, scale / 2.0))
    plan = replace(EVALUATED, neighboring_relation=NeighboringRelation(relation))
    assert audit(plan, design=HELD_OUT, method=method, trials=800, seed=3).verdict == VIOLATED


def test_a_bound_that_forgets_parts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for a row that would be in one part, where it is in five."""
    monkeypatch.setattr(Layout, "bound", 1.0)
    assert attacked().verdict == VIOLATED


def test_a_log_loss_without_its_cap_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with a probability of almost 0 then adds whatever it likes."""
    honest = held_out._whole
    monkeypatch.setattr(held_out, "_whole", lambda values: honest(np.where(values == 1.0, 30.0, values)))
    assert attacked().verdict == VIOLATED


def test_a_seed_makes_an_audit_repeat() -> None:
    ones = [attacked(trials=60, seed=seed).to_json() for seed in (1, 1, 2)]
    assert ones[0] == ones[1] != ones[2]


def test_plans_without_an_evaluation_are_refused() -> None:
    with pytest.raises(InvalidValue, match="no evaluation on held-out rows") as refusal:
        audit(replace(EVALUATED, evaluation=None), design=HELD_OUT, trials=20)
    assert refusal.value.pointer == ("design",)
    with pytest.raises(InvalidValue, match="orthogonal"):
        audit(EVALUATED, design=HELD_OUT, method="one_run", trials=20)
    assert math.isfinite(attacked(trials=20).claim.upper)
