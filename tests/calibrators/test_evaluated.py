"""Training and evaluation share one target, and the plan says so in its events, bytes and prefixes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue, Unreachable, Unsupported
from accounting.events import Event, Gaussian
from accounting.group_targets import GroupDpTarget
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from accounting.targets import (
    AdvantageTarget,
    ApproximateDpTarget,
    BayesRiskTarget,
    GaussianDpTarget,
    PureDpTarget,
    TruePositiveRateTarget,
    ZcdpTarget,
)
from calibrators.draft import Draft
from calibrators.evaluated import SHARE, EvaluatedRun
from calibrators.held_out import HeldOutEvaluation
from calibrators.plan import Clip, plan_from_canonical
from calibrators.presets import UNKNOWN_OBJECTIVE
from calibrators.spec import Spec
from tests.trainer.plans import phase_of, plan_of

RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE
TARGETS = [
    ApproximateDpTarget(2.0, 1e-5),
    GroupDpTarget(4.0, 1e-5, 2),
    ZcdpTarget(0.2),
    GaussianDpTarget(0.8),
    AdvantageTarget(0.1),
    AdvantageTarget(0.9),
    TruePositiveRateTarget(0.01, 0.05),
    BayesRiskTarget(0.5, 0.4),
    BayesRiskTarget(0.1, 0.09),
]
PLAN = plan_of("dp_sgd", phase_of(Clip(1.0), noise_multiplier=2.0, steps=5))


def spec_of(target, **more) -> Spec:
    given = {"dataset_size": 5000, "dimension": 12, "neighboring_relation": RELATION, "iterations": 60}
    return Spec(target=target, **given | more)


@pytest.mark.parametrize("target", TARGETS, ids=repr)
@pytest.mark.parametrize("sampling", ["poisson", "full_batch"])
def test_together_they_meet_the_target(target, sampling: str) -> None:
    """And use it up to a hundredth, whatever is counted: the target is of all events, the evaluation's among them."""
    found = EvaluatedRun("dp_sgd", spec_of(target, sampling=sampling), None, UNKNOWN_OBJECTIVE).calibrate()
    assert found.plan.evaluation is not None
    assert found.plan.events[-1] == found.plan.evaluation.event
    assert len(found.plan.events) == len(found.plan.phases) + 1
    upper = target.assess(found.plan.events, RELATION).value.upper
    assert found.achieved.value.upper == upper
    assert upper <= target.limit
    assert target.level(upper) >= 0.99 * target.level(target.limit)
    alone = target.assess((found.plan.evaluation.event,), RELATION).value.upper
    assert 0.0 < target.level(alone) < 0.45 * target.level(target.limit)
    training = Draft("dp_sgd", spec_of(target, sampling=sampling), None, UNKNOWN_OBJECTIVE).calibrate()
    assert 1.0 < found.value / training.value < 1.08
    assert found.choices[-1].name == "evaluation.noise_multiplier"


class Dearer(ZcdpTarget):
    """A target under which events of several kinds cost a little more than their sum, which the first guess misses."""

    def assess(self, events, relation, *, quick=False):
        answer = ZcdpTarget.assess(self, events, relation, quick=quick)
        upper = answer.value.upper * (1.0 if len(events) == 1 else 1.012)
        return replace(answer, value=Interval(answer.value.lower, upper, upper))


def test_a_first_guess_that_costs_too_much_is_not_taken() -> None:
    target = Dearer(0.2)
    found = EvaluatedRun("dp_sgd", spec_of(target, sampling="full_batch"), None, UNKNOWN_OBJECTIVE).calibrate()
    assert target.assess(found.plan.events, RELATION).value.upper <= target.limit


def test_the_default_is_a_share_in_squares_of_mu() -> None:
    found = EvaluatedRun(
        "dp_sgd", spec_of(GaussianDpTarget(0.5), sampling="full_batch"), None, UNKNOWN_OBJECTIVE
    ).calibrate()
    assert found.plan.evaluation is not None
    assert found.plan.evaluation.noise_multiplier == pytest.approx(2.0 / SHARE**0.5, rel=1e-5)


def test_noise_that_is_given_is_taken() -> None:
    found = EvaluatedRun("dp_sgd", spec_of(TARGETS[0]), None, UNKNOWN_OBJECTIVE, 40.0).calibrate()
    assert found.plan.evaluation == HeldOutEvaluation(40.0)
    assert all(choice.name != "evaluation.noise_multiplier" for choice in found.choices)
    assert epsilon_for_delta(found.plan.events, RELATION, 1e-5).value.upper <= 2.0


def test_what_the_evaluation_leaves_nothing_of_is_refused() -> None:
    with pytest.raises(Unreachable, match="give a noise_multiplier above 2") as refused:
        EvaluatedRun("dp_sgd", spec_of(GaussianDpTarget(0.5)), None, UNKNOWN_OBJECTIVE, 1.5).calibrate()
    assert refused.value.pointer == ("evaluation", "noise_multiplier")
    with pytest.raises(Unsupported, match="approximate_dp, zcdp, gaussian_dp or attack_risk"):
        EvaluatedRun("dp_fw", spec_of(PureDpTarget(1.0)), None, UNKNOWN_OBJECTIVE).calibrate()


def test_a_plan_with_an_evaluation_travels_and_is_another_plan() -> None:
    evaluated = replace(PLAN, evaluation=HeldOutEvaluation(7.5))
    assert plan_from_canonical(evaluated.canonical(), evaluated.plan_hash) == evaluated
    assert evaluated.plan_hash != PLAN.plan_hash
    assert evaluated.events == (*PLAN.events, Event(Gaussian(7.5)))
    assert "evaluation" not in json.loads(PLAN.canonical())
    assert evaluated.iterations == PLAN.iterations


def test_the_evaluation_is_paid_for_with_the_last_step_and_not_before() -> None:
    evaluated = replace(PLAN, evaluation=HeldOutEvaluation(7.5))
    assert evaluated.cost_of_prefix(5) == evaluated.events
    assert evaluated.cost_of_prefix(4) == PLAN.cost_of_prefix(4)


@pytest.mark.parametrize("noise", [0.0, 0.005, 5000.0, float("nan"), float("inf")])
def test_noise_out_of_range_is_refused(noise: float) -> None:
    with pytest.raises(InvalidValue, match="noise_multiplier"):
        HeldOutEvaluation(noise)
