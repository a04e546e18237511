"""The HTTP form of the targets of a calibration, and of the guarantees that were achieved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from accounting.groups import MAX_GROUP_SIZE
from accounting.intervals import Answer
from accounting.targets import (
    AdvantageTarget,
    ApproximateDpTarget,
    BayesRiskTarget,
    BudgetTarget,
    GaussianDpTarget,
    GroupDpTarget,
    PureDpTarget,
    Target,
    TruePositiveRateTarget,
    ZcdpTarget,
)
from app.algorithms.schemas import AchievedBody, AlgorithmFields, CertifiedBody
from app.kit.fields import Identifier, Integer, Schema
from app.problems import refused_at, unprocessable
from app.wire.answers import IntervalBody, error_budget
from calibrators.spec import OpenDelta, OpenEpsilon, Unknown


def _is_absent(value: float | None) -> bool:
    return value is None


class _OfRecords(Schema):
    """A guarantee of epsilon and delta, for one record or for all records of one owner."""

    kind: Literal["approximate_dp"]
    group_size: Integer = Field(
        1,
        ge=1,
        le=MAX_GROUP_SIZE,
        exclude_if=lambda size: size == 1,
        description="The guarantee is for this many records of one owner together. You must make sure that no owner "
        "has more.",
    )


class ApproximateDpGoal(_OfRecords):
    """(epsilon, delta) of the whole run; leave out the one that is solved for."""

    epsilon: float | None = Field(None, gt=0, le=1e6)
    delta: float | None = Field(None, ge=1e-30, le=0.5)


class ApproximateDpTargetBody(_OfRecords):
    """(epsilon, delta) of the whole run."""

    epsilon: float = Field(gt=0, le=1e6)
    delta: float = Field(ge=1e-30, le=0.5)


class PureDpGoal(Schema):
    """epsilon of pure differential privacy. Gaussian noise has none; selections with Gumbel noise have one."""

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
    """A limit on membership attacks: the largest `advantage`, the largest `tpr` at `fpr`, or the smallest `bayes_risk`
    at `prior`."""

    kind: Literal["attack_risk"]
    advantage: float | None = Field(
        None,
        gt=0,
        lt=1,
        exclude_if=_is_absent,
        description="The largest value of the true positive rate minus the false positive rate: the total variation.",
    )
    fpr: float | None = Field(None, ge=1e-30, lt=1, exclude_if=_is_absent, description="False positive rate.")
    tpr: float | None = Field(None, gt=0, lt=1, exclude_if=_is_absent, description="Largest true positive rate there.")
    prior: float | None = Field(
        None, gt=0, lt=1, exclude_if=_is_absent, description="The attacker's prior probability of membership."
    )
    bayes_risk: float | None = Field(
        None, gt=0, lt=0.5, exclude_if=_is_absent, description="Smallest probability that such an attacker errs."
    )


class ChargeGoal(Schema):
    """A reservation in an approximate_dp budget is priced at this delta."""

    delta: float = Field(ge=1e-18, le=0.5)


class BudgetGoal(Schema):
    """The plan must fit into what remains of a budget, at the ledger's price."""

    kind: Literal["budget"]
    budget_id: Identifier
    charge: ChargeGoal | None = Field(None, description="Needed only for an approximate_dp budget.")


TargetBody = Annotated[
    ApproximateDpGoal | PureDpGoal | ZcdpGoal | GaussianDpGoal | AttackRiskGoal | BudgetGoal,
    Field(discriminator="kind", title="Target"),
]

#: The targets of runs, of advice, and of lists of events. Each is a guarantee of what is released.
RunTargetBody = Annotated[
    ApproximateDpTargetBody | PureDpGoal | ZcdpGoal | GaussianDpGoal | AttackRiskGoal,
    Field(discriminator="kind", title="RunTarget"),
]


class AlgorithmChoice(AlgorithmFields):
    """An algorithm with its options and its target, as a run states them; only the noise is solved for."""

    target: RunTargetBody
    solve_for: Literal["noise_multiplier"] = "noise_multiplier"


class AchievedOfGroupsBody(CertifiedBody):
    """The achieved epsilon at the target's delta, for groups of records of one owner."""

    epsilon: IntervalBody
    delta: float
    group_size: int


class AchievedDeltaBody(CertifiedBody):
    """The achieved delta at the target's epsilon."""

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


class AchievedBayesRiskBody(CertifiedBody):
    prior: float
    bayes_risk: IntervalBody = Field(description="Its lower end bounds every attack, and is at least the target.")


class AchievedShareBody(CertifiedBody):
    share_of_remaining: float = Field(
        description="The plan's cost divided by what remains, at the order that has most room for it. It fits if this "
        "is at most 1."
    )


AnyAchievedBody = (
    AchievedBody
    | AchievedOfGroupsBody
    | AchievedDeltaBody
    | AchievedRhoBody
    | AchievedPureBody
    | AchievedMuBody
    | AchievedAdvantageBody
    | AchievedTprBody
    | AchievedBayesRiskBody
    | AchievedShareBody
)


def to_target(
    body: TargetBody | RunTargetBody, unknown: Unknown, budget: BudgetTarget | None
) -> Target | OpenEpsilon | OpenDelta:
    """Return the engine's target.

    Args:
        body: The target of a request.
        unknown: The name of the quantity for which the request solves.
        budget: The budget, if the body names one.

    Raises:
        Problem: 422 at the field of the target that is missing, given twice or impossible.
    """
    if unknown in (Unknown.EPSILON, Unknown.DELTA) and not isinstance(body, ApproximateDpGoal):
        raise unprocessable(
            "unsupported",
            f"{unknown} is solved for under an approximate_dp target, which gives either epsilon or delta and leaves "
            f"the other open; a {body.kind} target has neither",
            "target",
            "kind",
        )
    target: Target | OpenEpsilon | OpenDelta
    with refused_at("target"):
        match body:
            case ApproximateDpGoal():
                target = _approximate_dp(body, unknown)
            case ApproximateDpTargetBody():
                target = _of_records(body.epsilon, body.delta, body.group_size)
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
    return target


def achieved_body(target: Target | OpenEpsilon | OpenDelta, answer: Answer) -> AnyAchievedBody:
    """Return the achieved guarantee in the fields of the target's kind. A value is an interval, or an upper bound alone
    (rho, mu, pure epsilon, and the share of a budget)."""
    shared: Mapping[str, Any] = {"method": answer.method, "error_budget": error_budget(answer)}
    interval, upper = IntervalBody.of(answer.value), answer.value.upper
    body: AnyAchievedBody
    match target:
        case ApproximateDpTarget() | OpenEpsilon():
            body = AchievedBody(epsilon=interval, delta=target.delta, **shared)
        case GroupDpTarget():
            body = AchievedOfGroupsBody(epsilon=interval, delta=target.delta, group_size=target.group_size, **shared)
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
        case BayesRiskTarget():
            risk = IntervalBody.of(target.risk(answer.value))
            body = AchievedBayesRiskBody(prior=target.prior, bayes_risk=risk, **shared)
        case _:
            body = AchievedShareBody(share_of_remaining=upper, **shared)
    return body


def _approximate_dp(
    body: ApproximateDpGoal, unknown: Unknown
) -> ApproximateDpTarget | GroupDpTarget | OpenEpsilon | OpenDelta:
    for name, value in (("epsilon", body.epsilon), ("delta", body.delta)):
        if unknown == name and value is not None:
            raise unprocessable(
                "overdetermined", f"solve_for names {name}: leave {name} out of the target", "target", name
            )
        if unknown != name and value is None:
            raise unprocessable("missing", f"this target needs {name}", "target", name)
    if body.group_size > 1 and (body.epsilon is None or body.delta is None):
        detail = (
            "epsilon or delta can be solved for only if the guarantee is for single records: leave group_size "
            f"out, and ask /v1/account about the events of the answer with group_size {body.group_size}"
        )
        raise unprocessable("unsupported", detail, "target", "group_size")
    if body.epsilon is None:
        assert body.delta is not None, "one is the unknown, so that the other is given"
        return OpenEpsilon(body.delta)
    return OpenDelta(body.epsilon) if body.delta is None else _of_records(body.epsilon, body.delta, body.group_size)


def _of_records(epsilon: float, delta: float, group_size: int) -> ApproximateDpTarget | GroupDpTarget:
    return ApproximateDpTarget(epsilon, delta) if group_size == 1 else GroupDpTarget(epsilon, delta, group_size)


#: The ways to state an attack risk, each with the fields that it needs.
_RISKS: tuple[tuple[str, ...], ...] = (("advantage",), ("fpr", "tpr"), ("prior", "bayes_risk"))


def _attack_risk(body: AttackRiskGoal) -> AdvantageTarget | TruePositiveRateTarget | BayesRiskTarget:
    given = [name for names in _RISKS for name in names if getattr(body, name) is not None]
    if not given:
        words = "an attack_risk target needs advantage, or fpr and tpr, or prior and bayes_risk"
        raise unprocessable("missing", words, "target", "advantage")
    names = next(names for names in _RISKS if given[0] in names)
    if other := [name for name in given if name not in names]:
        words = "give only one of these: advantage, tpr with fpr, or bayes_risk with prior"
        raise unprocessable("overdetermined", words, "target", other[0])
    if missing := [name for name in names if name not in given]:
        words = f"this target needs {missing[0]}: it limits {names[1]} at {names[0]}"
        raise unprocessable("missing", words, "target", missing[0])
    if body.advantage is not None:
        return AdvantageTarget(body.advantage)
    if body.fpr is not None and body.tpr is not None:
        return TruePositiveRateTarget(body.fpr, body.tpr)
    assert body.prior is not None  # only the Bayes risk remains
    assert body.bayes_risk is not None
    return BayesRiskTarget(body.prior, body.bayes_risk)
