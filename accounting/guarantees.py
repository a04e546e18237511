"""Privacy guarantees: what is known about a mechanism, whatever it does inside.

Each is a statement about every pair of neighbours in both directions, for whichever neighbouring relation it was made.
`accounting.conversions` says what one of them implies about another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import ClassVar

from accounting.canonical import Json
from accounting.errors import InvalidValue, one_of
from accounting.numbers import MAX_ORDER, MAX_ORDERS, read_real

#: Of epsilon, rho and Renyi divergences. Requests stay far below it, so that what follows from them stays within.
MAX_PRIVACY_LOSS = 1e15
MAX_MU = 1e6


@dataclass(frozen=True, slots=True)
class PureDpGuarantee:
    """epsilon-DP: no output is more than e^epsilon times as likely under one neighbour as under the other."""

    kind: ClassVar[str] = "pure_dp"
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_real("epsilon", self.epsilon, 0.0, MAX_PRIVACY_LOSS))

    def to_json(self) -> dict[str, Json]:
        return _to_json(self)


@dataclass(frozen=True, slots=True)
class ApproximateDpGuarantee:
    """(epsilon, delta)-DP: P(S) <= e^epsilon Q(S) + delta for every set S of outputs."""

    kind: ClassVar[str] = "approximate_dp"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_real("epsilon", self.epsilon, 0.0, MAX_PRIVACY_LOSS))
        object.__setattr__(self, "delta", read_real("delta", self.delta, 0.0, 1.0))

    def to_json(self) -> dict[str, Json]:
        return _to_json(self)


@dataclass(frozen=True, slots=True)
class ZcdpGuarantee:
    """rho-zCDP: the Renyi divergence of every order a > 1 is at most rho a (Bun & Steinke 2016)."""

    kind: ClassVar[str] = "zcdp"
    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", read_real("rho", self.rho, 0.0, MAX_PRIVACY_LOSS))

    def to_json(self) -> dict[str, Json]:
        return _to_json(self)


@dataclass(frozen=True, slots=True)
class TruncatedZcdpGuarantee:
    """(rho, omega)-tCDP: the Renyi divergence of order a is at most rho a for 1 < a < omega.

    Source: Bun, Dwork, Rothblum & Steinke 2018. The divergence is continuous from below in its order, so that the
    bound holds at omega too.
    """

    kind: ClassVar[str] = "truncated_zcdp"
    rho: float
    omega: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", read_real("rho", self.rho, 0.0, MAX_PRIVACY_LOSS))
        object.__setattr__(self, "omega", read_real("omega", self.omega, 1.0, MAX_ORDER, open_lower=True))

    def to_json(self) -> dict[str, Json]:
        return _to_json(self)


@dataclass(frozen=True, slots=True)
class GaussianDpGuarantee:
    """mu-GDP: no test tells the neighbours apart better than N(0, 1) from N(mu, 1) (Dong, Roth & Su 2022)."""

    kind: ClassVar[str] = "gaussian_dp"
    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", read_real("mu", self.mu, 0.0, MAX_MU))

    def to_json(self) -> dict[str, Json]:
        return _to_json(self)


@dataclass(frozen=True, slots=True)
class RenyiDpGuarantee:
    """Renyi DP at some orders: the divergence of ``orders[i]`` is at most ``epsilons[i]`` (Mironov 2017).

    Attributes:
        orders: 1 to 64 numbers above 1, increasing.
        epsilons: As many divergences; nothing else is asked of them.
    """

    kind: ClassVar[str] = "renyi_dp"
    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        orders = read_orders(self.orders)
        if len(self.epsilons) != len(orders):
            raise InvalidValue(
                f"epsilons must have one number for each of the {len(orders)} orders, got {len(self.epsilons)}",
                pointer=("epsilons",),
            )
        epsilons = tuple(
            _read_item("epsilons", index, value, 0.0, MAX_PRIVACY_LOSS) for index, value in enumerate(self.epsilons)
        )
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "epsilons", epsilons)

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "orders": list(self.orders), "epsilons": list(self.epsilons)}


@dataclass(frozen=True, slots=True)
class AttackRisk:
    """What membership inference can reach at most, by the best attack; exactly one of three statements.

    Attributes:
        advantage: Largest true positive rate minus false positive rate: the total variation of the neighbours.
        fpr, tpr: At this false positive rate the true positive rate is at most ``tpr``.
        prior, bayes_risk: An attacker who holds membership for likely with probability ``prior`` errs at least with
            probability ``bayes_risk``.

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
            raise InvalidValue("an attack risk has advantage alone, or fpr and tpr, or prior and bayes_risk")
        for name in given:
            object.__setattr__(self, name, read_real(name, getattr(self, name), 0.0, 1.0))

    def to_json(self) -> dict[str, Json]:
        return _to_json(self)


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
    """Orders of Renyi divergences: 1 to 64 numbers above 1 and at most 1e7, increasing.

    >>> read_orders([2, 8])
    (2.0, 8.0)
    """
    if isinstance(values, str) or not isinstance(values, Sequence) or not 1 <= len(values) <= MAX_ORDERS:
        raise InvalidValue(f"orders must be a list of 1 to {MAX_ORDERS} numbers", pointer=("orders",))
    orders = tuple(
        _read_item("orders", index, value, 1.0, MAX_ORDER, open_lower=True) for index, value in enumerate(values)
    )
    for index, (first, second) in enumerate(pairwise(orders)):
        if first >= second:
            raise InvalidValue("orders must increase", pointer=("orders", index + 1))
    return orders


def _read_item(name: str, index: int, value: object, lower: float, upper: float, *, open_lower: bool = False) -> float:
    try:
        return read_real(name, value, lower, upper, open_lower=open_lower)
    except InvalidValue as error:
        error.pointer = (name, index)
        raise


def _to_json(guarantee: Guarantee) -> dict[str, Json]:
    numbers = {field.name: getattr(guarantee, field.name) for field in fields(guarantee)}
    return {"kind": guarantee.kind} | {name: number for name, number in numbers.items() if number is not None}
