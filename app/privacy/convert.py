"""Request and answer of `/v1/convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Union

from fastapi.openapi.models import Example
from pydantic import Field

from accounting.conversions import Converted, convert
from accounting.described import Real
from accounting.guarantees import GUARANTEES, LOSS, AttackRisk, Guarantee, guarantee_from_json
from accounting.numbers import MAX_ORDER, MAX_ORDERS
from app.context import Context
from app.kit.fields import Schema
from app.kit.process_pool import too_much_work
from app.problems import refused_at
from app.wire.described import DescribedSchema, schema_of

#: The largest amount that a request may state; an answer may be larger.
MAX_AMOUNT = 1e6

Probability = Annotated[float, Field(ge=0, le=1)]
Orders = Annotated[
    list[Annotated[float, Field(gt=1, le=MAX_ORDER)]],
    Field(min_length=1, max_length=MAX_ORDERS, description="Increasing."),
]
Omega = Annotated[float, Field(gt=1, le=MAX_ORDER, description="The largest order.")]


class AttackRiskIn(Schema):
    """A bound on the advantage of every membership inference; `fpr` and `tpr` alone bound too little to convert."""

    kind: Literal["attack_risk"]
    advantage: Probability | None = None
    fpr: Probability | None = None
    tpr: Probability | None = None


if TYPE_CHECKING:  # type checkers cannot follow how the schemas are made
    GuaranteeIn = DescribedSchema | AttackRiskIn
else:
    _DESCRIBED = [cls for cls in GUARANTEES.values() if cls is not AttackRisk]
    _AMOUNTS = {LOSS: Real(0.0, MAX_AMOUNT)}
    GuaranteeIn = Annotated[
        Union[(*(schema_of(each, "In", _AMOUNTS) for each in _DESCRIBED), AttackRiskIn)],
        Field(discriminator="kind", title="Guarantee"),
    ]


class ToPlainKind(Schema):
    """A kind without parameters."""

    kind: Literal["pure_dp", "zcdp", "gaussian_dp"] = Field(
        description="`pure_dp`: The smallest epsilon. `zcdp`: The smallest rho. `gaussian_dp`: The smallest mu."
    )


class ToApproximateDp(Schema):
    """The smallest epsilon at this delta."""

    kind: Literal["approximate_dp"]
    delta: Probability


class ToTruncatedZcdp(Schema):
    """The smallest rho up to this order."""

    kind: Literal["truncated_zcdp"]
    omega: Omega


class ToRenyiDp(Schema):
    """The smallest divergences at these orders."""

    kind: Literal["renyi_dp"]
    orders: Orders


class ToAttackRisk(Schema):
    """The result of the best attack: its advantage, its true positive rate at `fpr`, or its Bayes risk at `prior`."""

    kind: Literal["attack_risk"]
    fpr: Probability | None = Field(None, description="The false positive rate that the attacker accepts.")
    prior: Probability | None = Field(None, description="The attacker's prior probability of membership.")


TargetIn = Annotated[
    ToPlainKind | ToApproximateDp | ToTruncatedZcdp | ToRenyiDp | ToAttackRisk,
    Field(discriminator="kind", title="Target"),
]


class ConvertRequest(Schema):
    """A guarantee that holds, and the kind that is wanted."""

    stated: GuaranteeIn = Field(alias="from")
    to: TargetIn


class GuaranteeBody(Schema):
    """A guarantee: the fields of its kind, and no others."""

    kind: Literal["pure_dp", "approximate_dp", "zcdp", "truncated_zcdp", "gaussian_dp", "renyi_dp", "attack_risk"] = (
        Field(
            description="`pure_dp`: The guarantee epsilon-DP. `approximate_dp`: The guarantee (epsilon, delta)-DP. "
            "`zcdp`: The Renyi divergence of every order a > 1 is at most rho a. `truncated_zcdp`: As zCDP, for orders "
            "up to omega. `gaussian_dp`: No test tells neighbours apart better than N(0, 1) from N(mu, 1). `renyi_dp`: "
            "The divergence of each order is at most the epsilon beside it. `attack_risk`: What the best attack on "
            "membership reaches."
        )
    )
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    omega: float | None = None
    mu: float | None = None
    orders: list[float] | None = None
    epsilons: list[float] | None = None
    advantage: float | None = Field(
        None, description="The largest value of the true positive rate minus the false positive rate."
    )
    fpr: float | None = None
    tpr: float | None = Field(None, description="Largest true positive rate at `fpr`.")
    prior: float | None = None
    bayes_risk: float | None = Field(None, description="Smallest probability of error of an attacker with `prior`.")

    @classmethod
    def of(cls, guarantee: Guarantee) -> GuaranteeBody:
        return cls.model_validate(guarantee.to_json())


class AlternativeBody(Schema):
    """The result of a formula that textbooks and libraries use; it is never better than the answer."""

    method: str
    guarantee: GuaranteeBody


class ConvertAnswer(Schema):
    """The guarantee that follows, for the neighbouring relation of the stated one."""

    guarantee: GuaranteeBody = Field(
        description="A guarantee that holds whenever the stated one does, rounded outward."
    )
    method: str
    tight: bool = Field(
        description="Whether some mechanism with the stated guarantee has no better guarantee of this kind."
    )
    source: str = Field(description="Paper and theorem.")
    alternatives: list[AlternativeBody]

    @classmethod
    def of(cls, converted: Converted) -> ConvertAnswer:
        return cls(
            guarantee=GuaranteeBody.of(converted.guarantee),
            method=converted.method,
            tight=converted.tight,
            source=converted.source,
            alternatives=[
                AlternativeBody(method=alternative.method, guarantee=GuaranteeBody.of(alternative.guarantee))
                for alternative in converted.alternatives
            ],
        )


def answer_conversion(context: Context, request: ConvertRequest) -> ConvertAnswer:
    """Return the guarantee of another kind that follows from the stated one.

    Raises:
        Problem: 422 when the stated guarantee makes no sense, nothing of the wanted kind follows from it, or finding it
            takes too long.
    """
    wanted = request.to.model_dump(exclude={"kind"}, exclude_none=True)
    with refused_at("from"):
        stated = guarantee_from_json(request.stated.model_dump(exclude_none=True))
    with refused_at(), too_much_work("the conversion", "state fewer orders", "from"):
        return ConvertAnswer.of(context.processes.run(convert, stated, request.to.kind, **wanted))


CONVERT_EXAMPLES: dict[str, Example] = {
    "zcdp_to_approximate_dp": {
        "summary": "zCDP: epsilon at delta 1e-5, tight, with the textbook's beside it",
        "value": {"from": {"kind": "zcdp", "rho": 0.5}, "to": {"kind": "approximate_dp", "delta": 1e-5}},
    },
    "gaussian_dp_to_advantage": {
        "summary": "Gaussian DP: the largest advantage of membership inference",
        "value": {"from": {"kind": "gaussian_dp", "mu": 1.0}, "to": {"kind": "attack_risk"}},
    },
    "approximate_dp_to_true_positive_rate": {
        "summary": "(epsilon, delta): the largest true positive rate at a false positive rate of 0.1 %",
        "value": {
            "from": {"kind": "approximate_dp", "epsilon": 2.0, "delta": 1e-5},
            "to": {"kind": "attack_risk", "fpr": 0.001},
        },
    },
    "renyi_dp_to_approximate_dp": {
        "summary": "Renyi DP at four orders: epsilon at delta 1e-6",
        "value": {
            "from": {"kind": "renyi_dp", "orders": [2, 4, 8, 16], "epsilons": [0.1, 0.21, 0.45, 1.1]},
            "to": {"kind": "approximate_dp", "delta": 1e-6},
        },
    },
    "pure_dp_to_zcdp": {
        "summary": "Pure DP: the smallest rho",
        "value": {"from": {"kind": "pure_dp", "epsilon": 1.0}, "to": {"kind": "zcdp"}},
    },
    "pure_dp_to_gaussian_dp": {
        "summary": "Pure DP: the smallest mu of Gaussian DP",
        "value": {"from": {"kind": "pure_dp", "epsilon": 1.0}, "to": {"kind": "gaussian_dp"}},
    },
    "gaussian_dp_to_renyi_dp": {
        "summary": "Gaussian DP: the Renyi divergences at three orders",
        "value": {"from": {"kind": "gaussian_dp", "mu": 0.5}, "to": {"kind": "renyi_dp", "orders": [2, 8, 32]}},
    },
    "truncated_zcdp_to_approximate_dp": {
        "summary": "Truncated zCDP, up to order 32: epsilon at delta 1e-6",
        "value": {
            "from": {"kind": "truncated_zcdp", "rho": 0.05, "omega": 32},
            "to": {"kind": "approximate_dp", "delta": 1e-6},
        },
    },
    "zcdp_to_truncated_zcdp": {
        "summary": "zCDP: what of it is used, where orders up to 16 are all that is asked for",
        "value": {"from": {"kind": "zcdp", "rho": 0.05}, "to": {"kind": "truncated_zcdp", "omega": 16}},
    },
    "advantage_to_approximate_dp": {
        "summary": "A bound on every attack's advantage: epsilon at delta 0.1",
        "value": {
            "from": {"kind": "attack_risk", "advantage": 0.1},
            "to": {"kind": "approximate_dp", "delta": 0.1},
        },
    },
    "approximate_dp_to_pure_dp": {
        "summary": "(epsilon, delta) with delta 0: pure DP at the same epsilon",
        "value": {"from": {"kind": "approximate_dp", "epsilon": 1.0, "delta": 0}, "to": {"kind": "pure_dp"}},
    },
}
