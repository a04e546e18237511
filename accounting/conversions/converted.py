"""This module defines the targets and the answers of conversions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.guarantees import GUARANTEES, Guarantee, read_orders
from accounting.numbers import MAX_ORDER, read_real

#: The parameters that each kind of target needs.
_NEEDED: dict[str, tuple[str, ...]] = {
    "approximate_dp": ("delta",),
    "renyi_dp": ("orders",),
    "truncated_zcdp": ("omega",),
}
_OPTIONAL: dict[str, tuple[str, ...]] = {"attack_risk": ("fpr", "prior")}


@dataclass(frozen=True, slots=True)
class Target:
    """The kind of guarantee that is wanted, with the parameters that are chosen rather than implied.

    Attributes:
        kind: One of `accounting.guarantees.GUARANTEES`.
        delta: For ``approximate_dp``, in [0, 1].
        orders: For ``renyi_dp``.
        omega: For ``truncated_zcdp``.
        fpr, prior: For ``attack_risk``, at most one of them; without both the advantage is wanted.

    Raises:
        InvalidValue: If the kind is unknown, or if a parameter is missing, is out of range, or does not belong to this
            kind.
    """

    kind: str
    delta: float | None = None
    orders: tuple[float, ...] | None = None
    omega: float | None = None
    fpr: float | None = None
    prior: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in GUARANTEES:
            raise InvalidValue(f"kind must be {one_of(list(GUARANTEES))}", pointer=("kind",))
        needed, optional = _NEEDED.get(self.kind, ()), _OPTIONAL.get(self.kind, ())
        for name in ("delta", "orders", "omega", "fpr", "prior"):
            value = getattr(self, name)
            if value is None:
                if name in needed:
                    raise InvalidValue(f"a conversion to {self.kind} needs {name}", pointer=(name,))
                continue
            if name not in needed and name not in optional:
                raise InvalidValue(
                    f"{name} does not belong to a conversion to {self.kind}; leave it out", pointer=(name,)
                )
            object.__setattr__(self, name, _read(name, value))
        if self.fpr is not None and self.prior is not None:
            raise InvalidValue(
                "an attack risk is computed at a false positive rate or at a prior, not at both; give fpr or prior",
                pointer=("prior",),
            )


def _read(name: str, value: object) -> float | tuple[float, ...]:
    if name == "orders":
        return read_orders(value)
    if name == "omega":
        return read_real(name, value, 1.0, MAX_ORDER, open_lower=True)
    return read_real(name, value, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A guarantee that follows by a formula from textbooks or libraries. It is never better than the answer."""

    method: str
    guarantee: Guarantee


@dataclass(frozen=True, slots=True)
class Converted:
    """A guarantee that follows from another one.

    Attributes:
        guarantee: The guarantee that follows. It holds for every mechanism with the stated guarantee, and is rounded
            outward.
        method: Name of the formula that gave the guarantee.
        tight: Whether some mechanism with the stated guarantee has no better guarantee of the new kind, up to rounding.
        source: Paper and theorem.
        alternatives: The textbook forms.
    """

    guarantee: Guarantee
    method: str
    tight: bool
    source: str
    alternatives: tuple[Alternative, ...] = ()


def refusal(source: str, target: str, why: str, working: Sequence[str], parameter: str = "kind") -> Unsupported:
    """Return the error that no finite guarantee of the kind ``target`` follows or is proved.

    ``working`` lists the kinds to which ``source`` can be converted.
    """
    return Unsupported(
        f"{source} does not convert to {target}: {why}. It converts to {one_of(list(working))}",
        code="no_such_conversion",
        pointer=("to", parameter),
    )
