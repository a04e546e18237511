"""A partial spec holds the values that a request gives, and each choice that was made for a value that the request
leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from accounting.canonical import Json
from calibrators.algorithm import Algorithm
from calibrators.choices import Choice
from calibrators.presets import Objective, Preset
from calibrators.spec import Spec

#: Members of a request that a preset chooses, and that a theorem chooses, too, if it chooses the gradient bound.
BOUND, STEP_SIZE = "gradient_bound", "hyperparameters.step_size"


class PartialSpec:
    """The values that a request gives, and the values that were chosen for it so far.

    Attributes:
        algorithm: The algorithm's record.
        spec: The request with the values that were chosen for it.
        preset: The preset that chooses the values that are still missing.
        objective: The public facts about the objective.
        choices: The choices, in the order in which they were made.
    """

    def __init__(
        self, algorithm: Algorithm, spec: Spec, preset: Preset, objective: Objective, choices: list[Choice]
    ) -> None:
        self.algorithm, self.spec, self.preset, self.objective = algorithm, spec, preset, objective
        self.choices = choices

    def take(
        self,
        member: str,
        value: Json,
        reason: str,
        source: str,
        *,
        theorem: Json = None,
        theorem_reason: str = "",
        **fields: Any,
    ) -> None:
        """Record a choice and set its fields in the spec.

        Args:
            member, value, reason, source, theorem, theorem_reason: As in `Choice`.
            fields: The fields of the spec that the choice sets, with their values.
        """
        self.spec = replace(self.spec, **fields)
        self.choices.append(Choice(member, value, reason, source, theorem, theorem_reason))

    def derived(self) -> Mapping[str, float]:
        """Return the derived constants that the theorem needs. The result is empty if neither the step size nor the
        privacy needs a theorem.
        """
        if self.spec.step_size is not None and self.algorithm.gradient_bound_required:
            return {}
        return self.known()

    def known(self) -> dict[str, float]:
        """Return those of the algorithm's constants that follow from the declared bounds."""
        names = {assumption.name for assumption in self.algorithm.assumptions}
        given = self.spec.assumptions
        known = self.objective.derive(self.algorithm.order_of_norm(given, self.spec.domain), given)
        return {name: value for name, value in known.items() if name in names and name not in given}

    def missing(self) -> list[str]:
        """Return the names of the constants that the theorem needs and that are neither given nor known."""
        known = {**self.known(), **self.spec.assumptions}
        return [
            each.name
            for each in self.algorithm.assumptions
            if each.required and each.default is None and each.name not in known
        ]
