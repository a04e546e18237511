"""Randomised response on k categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Real, Whole
from accounting.events.mechanism import Mechanism, mechanism
from accounting.relations import NeighboringRelation


@mechanism
@dataclass(frozen=True, slots=True)
class RandomizedResponse(Mechanism):
    """Every record answers with its category, or with one drawn uniformly; accounted under the replace relations.

    Attributes:
        num_categories: The number k of categories.
        flip_probability: p. The true category is reported with probability 1 - p + p/k.

    Source: Warner 1965; Kairouz, Bonawitz & Ramage 2016 for k > 2.
    """

    kind: ClassVar[str] = "randomized_response"
    relations = (NeighboringRelation.REPLACE_SPECIAL, NeighboringRelation.REPLACE_ONE)
    why_refused = "every record sends an answer, so that the number of answers shows who came or went"
    filters = ("pure_dp", "approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
    num_categories: Annotated[int, Whole(2, 10**9)]
    flip_probability: Annotated[
        float,
        Real(
            1e-300, 1.0, "Probability that the answer is drawn uniformly from all categories, the true one among them."
        ),
    ]

    @property
    def reveals_nothing(self) -> bool:
        return self.flip_probability == 1.0
