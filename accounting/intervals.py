"""Certified intervals: every epsilon and delta that the engine returns is one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval with ``lower <= truth <= upper``, and the best estimate inside it.

    Attributes:
        lower: The cost of an attained pair of distributions.
        estimate: The best single number. It is never outside the interval.
        upper: A proved bound, which a ledger charges; ``inf`` if no finite bound exists.
    """

    lower: float
    estimate: float
    upper: float

    def __post_init__(self) -> None:
        if math.isnan(self.lower) or math.isnan(self.upper) or not self.lower <= self.estimate <= self.upper:
            raise ValueError(f"not an interval: {self.lower} <= {self.estimate} <= {self.upper} is false")

    @property
    def width(self) -> float:
        return self.upper - self.lower


@dataclass(frozen=True, slots=True)
class Answer:
    """An interval, the method that found it, and the parts of its width.

    Attributes:
        value: The certified interval.
        method: Name of the evaluator that gave the upper bound, such as ``"analytic_gaussian"``.
        error_budget: Width contributed by each named source of error (absolute, in the unit of ``value``).
        warnings: Sentences that a reader must see beside the number.
    """

    value: Interval
    method: str
    error_budget: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one evaluator on one number.

    Attributes:
        lower: A number of at most the truth; 0 if the evaluator only bounds from above.
        upper: A number of at least the truth; inf if the evaluator only bounds from below.
        estimate: The evaluator's best single number, or NaN if it has none.
        error_budget: Width by named source, in the unit of the number.
        method: The name of the evaluator's own method that gave the upper bound; empty if it has only one method.
    """

    lower: float = 0.0
    upper: float = math.inf
    estimate: float = math.nan
    error_budget: Mapping[str, float] = field(default_factory=dict)
    method: str = ""

    @property
    def is_sound(self) -> bool:
        """Return whether the numbers are in order and none is NaN. Callers discard bounds that are not sound."""
        return 0.0 <= self.lower <= self.upper and not any(map(math.isnan, self.error_budget.values()))

    @property
    def width(self) -> float:
        return self.upper - self.lower
