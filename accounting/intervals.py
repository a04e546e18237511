"""Certified intervals: every epsilon and delta leaves the engine as one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Interval:
    """``lower <= truth <= upper``, with a best estimate between.

    Attributes:
        lower: What an attained pair of distributions already costs.
        estimate: The best single number; never outside the interval.
        upper: A proved bound; what a ledger charges. ``inf`` where no finite bound exists.
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
    """An interval, how it was found, and what it is made of.

    Attributes:
        value: The certified interval.
        method: Name of the evaluator that gave the upper bound, such as ``"analytic_gaussian"``.
        error_budget: Width contributed by each named source of error (absolute, in the unit of ``value``).
        warnings: Sentences a reader must see beside the number.
    """

    value: Interval
    method: str
    error_budget: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
