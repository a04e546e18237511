"""Targets of a calibration as the HTTP contract writes them, and what was achieved in their own fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from accounting.errors import AccountingError
from accounting.intervals import Answer
from accounting.targets import (
    AdvantageTarget,
    ApproximateDpTarget,
    BudgetTarget,
    GaussianDpTarget,
    PureDpTarget,
    Target,
    TruePositiveRateTarget,
    ZcdpTarget,
)
from app.algorithms.schemas import AchievedBody, AlgorithmFields, CertifiedBody
from app.kit.fields import Identifier, Schema
from app.privacy.answers import IntervalBody, error_budget
from app.problems import from_accounting, unprocessable
from calibrators.spec import OpenDelta, OpenEpsilon, Unknown


class ApproximateDpGoal(Schema):
    """(epsilon, delta) of the whole run; the one that is solved for is left out."""

    kind: Literal["approximate_dp"]
    epsilon: float | None = Field(None, gt=0, le=1e6)
    delta: float | None = Field(None, ge=1e-30, le=0.5)


class ApproximateDpTargetBody(Schema):
    """(epsilon, delta) of the whole run."""

    kind: Literal["approximate_dp"]
    epsilon: float = Field(gt=0, le=1e6)
    delta: float = Field(ge=1e-30, le=0.5)


class PureDpGoal(Schema):
    """epsilon of pure differential privacy. Gaussian noise has none; selections with Gumbel noise do."""

    kind: Literal["pure_dp"]
    epsilon: float = Field(gt=0, le=1e6)


class ZcdpGoal(Schema):
    """rho of zero-concentrated differential privacy. Sampling does not lower it."""

    kind: Literal["zcdp"]
    rho: float = Field(gt=0, le=1e6)


class GaussianDpGoal(Schema):
    """mu of Gaussian differential privacy. Sampling does not lower it."""

    kind: Literal["gaussian_dp"]
    mu: float = Field(gt=0, le=1e3)


class AttackRiskGoal(Schema):
    """What a membership attack can reach at most: `advantage`, or `tpr` at `fpr`."""

    kind: Literal["attack_risk"]
    advantage: float | None = Field(
        None, gt=0, lt=1, description="Largest true positive rate less false positive rate: the total variation."
    )
    fpr: float | None = Field(None, ge=1e-30, lt=1, description="False positive rate.")
    tpr: float | None = Field(None, gt=0, lt=1, description="Largest true positive rate there.")


class ChargeGoal(Schema):
    """How a reservation in an approximate_dp budget is priced."""

    delta: float = Field(ge=1e-18, le=0.5)


class BudgetGoal(Schema):
    """What a budget's remaining amounts still admit, priced as its ledger prices it."""

    kind: Literal["budget"]
    budget_id: Identifier
    charge: ChargeGoal | None = Field(None, description="Needed for an approximate_dp budget alone.")


TargetBody = Annotated[
    ApproximateDpGoal | PureDpGoal | ZcdpGoal | GaussianDpGoal | AttackRiskGoal | BudgetGoal,
    Field(discriminator="kind", title="Target"),
]

#: What a run is held under: a guarantee that is stated of its model.
RunTargetBody = Annotated[
    ApproximateDpTargetBody | PureDpGoal | ZcdpGoal | GaussianDpGoal, Field(discriminator="kind", title="RunTarget")
]


class AlgorithmChoice(AlgorithmFields):
    """What a run chooses: everything but the noise, which its target decides."""

    target: RunTargetBody
    solve_for: Literal["noise_multiplier"] = "noise_multiplier"


class AchievedDeltaBody(CertifiedBody):
    """Delta at the target's epsilon."""

    epsilon: float
    delta: IntervalBody


class AchievedRhoBody(CertifiedBody):
    rho: float = Field(description="A proved cost.")


class AchievedPureBody(CertifiedBody):
    epsilon: float = Field(description="A proved cost, without any delta.")


class AchievedMuBody(CertifiedBody):
    mu: float = Field(description="A proved cost.")


class AchievedAdvantageBody(CertifiedBody):
    advantage: IntervalBody


class AchievedTprBody(CertifiedBody):
    fpr: float
    tpr: IntervalBody


class AchievedShareBody(CertifiedBody):
    share_of_remaining: float = Field(
        description="The plan's cost over what remains, at the order that has most room for it. At most 1: it fits."
    )


AnyAchievedBody = (
    AchievedBody
    | AchievedDeltaBody
    | AchievedRhoBody
    | AchievedPureBody
    | AchievedMuBody
    | AchievedAdvantageBody
    | AchievedTprBody
    | AchievedShareBody
)


def to_target(
    body: TargetBody | RunTargetBody, unknown: Unknown, budget: BudgetTarget | None
) -> Target | OpenEpsilon | OpenDelta:
    """The engine's target.

    Args:
        body: Of a request.
        unknown: What is solved for.
        budget: Of a body that names one.

    Raises:
        Problem: 422 at the field of the target that is missing, given twice or impossible.
    """
    if unknown in (Unknown.EPSILON, Unknown.DELTA) and not isinstance(body, ApproximateDpGoal):
        raise unprocessable(
            "unsupported",
            f"{unknown} is solved for under an approximate_dp target, which gives the other one of epsilon and delta; "
            f"a {body.kind} target has neither",
            "target",
            "kind",
        )
    target: Target | OpenEpsilon | OpenDelta
    try:
        match body:
            case ApproximateDpGoal():
                target = _approximate_dp(body, unknown)
            case ApproximateDpTargetBody():
                target = ApproximateDpTarget(body.epsilon, body.delta)
            case PureDpGoal():
                target = PureDpTarget(body.epsilon)
            case ZcdpGoal():
                target = ZcdpTarget(body.rho)
            case GaussianDpGoal():
                target = GaussianDpTarget(body.mu)
            case AttackRiskGoal():
                target = _attack_risk(body)
            case _:
                assert budget is not None, "the caller looks up the budget"
                target = budget
    except AccountingError as error:
        raise from_accounting(error, "target") from None
    return target


def achieved_body(target: Target | OpenEpsilon | OpenDelta, answer: Answer) -> AnyAchievedBody:
    """What was achieved, in the target's own fields: an interval, or a number where a cost is proved."""
    shared: Mapping[str, Any] = {"method": answer.method, "error_budget": error_budget(answer)}
    interval, upper = IntervalBody.of(answer.value), answer.value.upper
    body: AnyAchievedBody
    match target:
        case ApproximateDpTarget() | OpenEpsilon():
            body = AchievedBody(epsilon=interval, delta=target.delta, **shared)
        case OpenDelta():
            body = AchievedDeltaBody(epsilon=target.epsilon, delta=interval, **shared)
        case ZcdpTarget():
            body = AchievedRhoBody(rho=upper, **shared)
        case PureDpTarget():
            body = AchievedPureBody(epsilon=upper, **shared)
        case GaussianDpTarget():
            body = AchievedMuBody(mu=upper, **shared)
        case AdvantageTarget():
            body = AchievedAdvantageBody(advantage=interval, **shared)
        case TruePositiveRateTarget():
            body = AchievedTprBody(fpr=target.fpr, tpr=interval, **shared)
        case _:
            body = AchievedShareBody(share_of_remaining=upper, **shared)
    return body


def _approximate_dp(body: ApproximateDpGoal, unknown: Unknown) -> ApproximateDpTarget | OpenEpsilon | OpenDelta:
    for name, value in (("epsilon", body.epsilon), ("delta", body.delta)):
        if unknown == name and value is not None:
            raise unprocessable(
                "overdetermined", f"{name} is what is solved for; leave it out of the target", "target", name
            )
        if unknown != name and value is None:
            raise unprocessable("missing", f"this target needs {name}", "target", name)
    if body.epsilon is None:
        assert body.delta is not None, "one is the unknown, so that the other is given"
        return OpenEpsilon(body.delta)
    return OpenDelta(body.epsilon) if body.delta is None else ApproximateDpTarget(body.epsilon, body.delta)


def _attack_risk(body: AttackRiskGoal) -> AdvantageTarget | TruePositiveRateTarget:
    if body.advantage is not None:
        if body.fpr is not None or body.tpr is not None:
            raise unprocessable(
                "overdetermined", "give advantage, or tpr at fpr; not both", "target", "fpr" if body.fpr else "tpr"
            )
        return AdvantageTarget(body.advantage)
    if body.fpr is None and body.tpr is None:
        raise unprocessable("missing", "an attack_risk target needs advantage, or fpr and tpr", "target", "advantage")
    if body.fpr is None or body.tpr is None:
        name = "fpr" if body.fpr is None else "tpr"
        raise unprocessable(
            "missing", f"this target needs {name}: the true positive rate is held at fpr", "target", name
        )
    return TruePositiveRateTarget(body.fpr, body.tpr)
