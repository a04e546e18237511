"""Privacy guarantees: what is known about a mechanism, whatever it does inside.

Each guarantee is a statement about every pair of neighbours, in both directions, under the neighbouring relation for
which it was made. `accounting.conversions` derives one guarantee from another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, ClassVar

from accounting.canonical import Json
from accounting.described import Described, Real, Reals
from accounting.errors import InvalidValue, one_of
from accounting.numbers import MAX_ORDER, MAX_ORDERS, read_real

#: The largest epsilon, rho and Renyi divergence. Requests stay far below it, so that derived numbers stay within it.
MAX_PRIVACY_LOSS = 1e15
MAX_MU = 1e6
LOSS = Real(0.0, MAX_PRIVACY_LOSS)
Loss = Annotated[float, LOSS]
ORDERS = Reals(Real(1.0, MAX_ORDER, open_lower=True), MAX_ORDERS, "Increasing.")


@dataclass(frozen=True, slots=True)
class PureDpGuarantee(Described):
    """epsilon-DP: no event is more than e^epsilon times as likely under one neighbour as under the other."""

    kind: ClassVar[str] = "pure_dp"
    epsilon: Loss


@dataclass(frozen=True, slots=True)
class ApproximateDpGuarantee(Described):
    """(epsilon, delta)-DP: an event is at most e^epsilon times as likely as under the neighbour, plus delta."""

    kind: ClassVar[str] = "approximate_dp"
    epsilon: Loss
    delta: Annotated[float, Real(0.0, 1.0)]


@dataclass(frozen=True, slots=True)
class ZcdpGuarantee(Described):
    """rho-zCDP: the Renyi divergence of every order a > 1 is at most rho a.

    Source: Bun & Steinke 2016.
    """

    kind: ClassVar[str] = "zcdp"
    rho: Loss


@dataclass(frozen=True, slots=True)
class TruncatedZcdpGuarantee(Described):
    """(rho, omega)-tCDP: as zCDP, for orders up to omega.

    Source: Bun, Dwork, Rothblum & Steinke 2018. Their orders are below omega; the divergence is continuous
    from below in its order, so the bound holds at omega, too.
    """

    kind: ClassVar[str] = "truncated_zcdp"
    rho: Loss
    omega: Annotated[float, Real(1.0, MAX_ORDER, "The largest order.", open_lower=True)]


@dataclass(frozen=True, slots=True)
class GaussianDpGuarantee(Described):
    """mu-GDP: no test tells neighbours apart better than N(0, 1) from N(mu, 1).

    Source: Dong, Roth & Su 2022.
    """

    kind: ClassVar[str] = "gaussian_dp"
    mu: Annotated[float, Real(0.0, MAX_MU)]


@dataclass(frozen=True, slots=True)
class RenyiDpGuarantee(Described):
    """Renyi DP: the divergence of ``orders[i]`` is at most ``epsilons[i]``.

    Attributes:
        epsilons: One number for each order. There is no other condition.

    Source: Mironov 2017.
    """

    kind: ClassVar[str] = "renyi_dp"
    orders: Annotated[tuple[float, ...], ORDERS]
    epsilons: Annotated[tuple[float, ...], Reals(LOSS, MAX_ORDERS)]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        check_increasing(self.orders)
        if len(self.epsilons) != len(self.orders):
            raise InvalidValue(
                f"epsilons must have one number for each of the {len(self.orders)} orders, got {len(self.epsilons)}",
                pointer=("epsilons",),
            )


@dataclass(frozen=True, slots=True)
class AttackRisk(Described):
    """A limit on the best membership inference attack: exactly one of three statements.

    Attributes:
        advantage: Largest true positive rate minus false positive rate: the total variation of the neighbours.
        fpr, tpr: At this false positive rate the true positive rate is at most ``tpr``.
        prior, bayes_risk: An attacker whose prior probability of membership is ``prior`` errs with probability at least
            ``bayes_risk``.

    >>> AttackRisk(advantage=0.25).to_json()
    {'kind': 'attack_risk', 'advantage': 0.25}
    """

    kind: ClassVar[str] = "attack_risk"
    advantage: float | None = None
    fpr: float | None = None
    tpr: float | None = None
    prior: float | None = None
    bayes_risk: float | None = None

    def __post_init__(self) -> None:
        given = tuple(field.name for field in fields(self) if getattr(self, field.name) is not None)
        if given not in (("advantage",), ("fpr", "tpr"), ("prior", "bayes_risk")):
            raise InvalidValue("an attack risk must state advantage alone, or fpr and tpr, or prior and bayes_risk")
        for name in given:
            object.__setattr__(self, name, read_real(name, getattr(self, name), 0.0, 1.0))

    def to_json(self) -> dict[str, Json]:
        return {name: number for name, number in Described.to_json(self).items() if number is not None}


Guarantee = (
    PureDpGuarantee
    | ApproximateDpGuarantee
    | ZcdpGuarantee
    | TruncatedZcdpGuarantee
    | GaussianDpGuarantee
    | RenyiDpGuarantee
    | AttackRisk
)

GUARANTEES: dict[str, type[Guarantee]] = {
    cls.kind: cls
    for cls in (
        PureDpGuarantee,
        ApproximateDpGuarantee,
        ZcdpGuarantee,
        TruncatedZcdpGuarantee,
        GaussianDpGuarantee,
        RenyiDpGuarantee,
        AttackRisk,
    )
}


def guarantee_from_json(value: Mapping[str, object]) -> Guarantee:
    """Read what a guarantee's ``to_json`` wrote.

    >>> guarantee_from_json({"kind": "zcdp", "rho": 1})
    ZcdpGuarantee(rho=1.0)
    """
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in GUARANTEES:
        raise InvalidValue(f"kind must be {one_of(list(GUARANTEES))}", pointer=("kind",))
    cls = GUARANTEES[kind]
    known = {field.name for field in fields(cls)}
    arguments = {name: item for name, item in value.items() if name != "kind"}
    if unknown := sorted(set(arguments) - known):
        raise InvalidValue(f"a {kind} guarantee has no {one_of(unknown)}", pointer=(unknown[0],))
    if cls is not AttackRisk and (missing := sorted(known - set(arguments))):
        raise InvalidValue(f"a {kind} guarantee needs {missing[0]}", pointer=(missing[0],))
    return cls(**arguments)  # type: ignore[arg-type]  # each class reads its own numbers


def read_orders(values: object) -> tuple[float, ...]:
    """Read orders of Renyi divergences: 1 to 64 increasing numbers, above 1 and at most 1e7.

    >>> read_orders([2, 8])
    (2.0, 8.0)
    """
    return check_increasing(ORDERS.read("orders", values))


def check_increasing(orders: tuple[float, ...]) -> tuple[float, ...]:
    """Return the orders. Raise an error if they do not increase."""
    for index, (first, second) in enumerate(pairwise(orders)):
        if first >= second:
            raise InvalidValue("orders must increase", pointer=("orders", index + 1))
    return orders
