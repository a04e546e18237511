"""The constants a caller gave, checked against what the algorithm's theorem asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accounting.errors import InvalidValue
from accounting.numbers import read_real
from calibrators.algorithm import Assumption


@dataclass(frozen=True, slots=True)
class Given:
    """Constants in their ranges.

    Attributes:
        values: By name; those with a default are always there.
        missing: Names that the theorem needs and that are not there.
    """

    values: Mapping[str, float]
    missing: tuple[str, ...]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def get(self, name: str) -> float | None:
        """The constant, or None where it was not given and has no default."""
        return self.values.get(name)


def read_assumptions(
    known: Sequence[Assumption], given: Mapping[str, float], *, needed: Sequence[tuple[str, object]] = ()
) -> Given:
    """Read the constants of a spec.

    Args:
        known: The algorithm's.
        given: Of the spec, by name.
        needed: Further inputs that the theorem needs, by name, such as the spec's dimension; None is missing.

    Raises:
        InvalidValue: a constant is outside its range, or the algorithm has none of this name.
    """
    names = [assumption.name for assumption in known]
    for name in given:
        if name not in names:
            there_are = f"it has {', '.join(names)}" if names else "no theorem of its own asks for any"
            raise InvalidValue(
                f"this algorithm has no assumption {name!r}; {there_are}",
                code="unknown_assumption",
                pointer=("assumptions", name),
            )
    values: dict[str, float] = {}
    missing: list[str] = []
    for assumption in known:
        if assumption.name in given:
            values[assumption.name] = _read(assumption, given[assumption.name])
        elif assumption.default is not None:
            values[assumption.name] = assumption.default
        elif assumption.required:
            missing.append(assumption.name)
    missing += [name for name, value in needed if value is None]
    return Given(values, tuple(missing))


def _read(assumption: Assumption, value: object) -> float:
    try:
        return read_real(assumption.name, value, assumption.lower, assumption.upper, open_lower=assumption.open_lower)
    except InvalidValue as error:
        raise error.inside("assumptions") from None
