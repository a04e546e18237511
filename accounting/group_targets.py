"""The target for groups of records: epsilon and delta for all records of one owner together; see `targets`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Described, Real, Whole
from accounting.events import Event
from accounting.groups import MAX_GROUP_SIZE, estimate_group_epsilon, group_epsilon_for_delta
from accounting.intervals import Answer, Interval
from accounting.relations import NeighboringRelation


@dataclass(frozen=True, slots=True)
class GroupDpTarget(Described):
    """(epsilon, delta)-differential privacy of the whole list for groups of records, such as those of one person.

    >>> from accounting.events import Gaussian
    >>> target = GroupDpTarget(4.4, 1e-5, 4)
    >>> target.assess([Event(Gaussian(4.0))], NeighboringRelation.ADD_OR_REMOVE_ONE).value.upper < target.limit
    True
    """

    kind: ClassVar[str] = "approximate_dp"
    additive: ClassVar[bool] = False
    epsilon: Annotated[float, Real(0.0, 1e9, open_lower=True)]
    delta: Annotated[float, Real(0.0, 1.0)]
    group_size: Annotated[int, Whole(2, MAX_GROUP_SIZE, "The most records of one owner.")]

    @property
    def limit(self) -> float:
        return self.epsilon

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        if quick and 0.0 < self.delta < 1.0:
            estimate = estimate_group_epsilon(events, relation, self.delta, self.group_size)
            if estimate is not None:
                return Answer(Interval(0.0, estimate, estimate), "estimate")
        return group_epsilon_for_delta(events, relation, self.delta, self.group_size)

    def level(self, figure: float) -> float:
        return figure

    def say(self, figure: float) -> str:
        return f"epsilon {figure:.6g} at delta {self.delta:g} for groups of {self.group_size}"
