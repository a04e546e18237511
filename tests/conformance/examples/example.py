"""One example for each algorithm: what the conformance suites ask of it, and what its page shows.

A new algorithm adds its entry to its paper's file; the suites do the rest. The spec leaves out what the paper chooses
itself (sampling and relation always, other sizes where the algorithm can choose them), and gives every constant that
the algorithm's theorem needs, well inside the theorem's conditions, so that each can be moved by a power of ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from accounting.targets import ApproximateDpTarget
from calibrators.spec import Spec


@dataclass(frozen=True, slots=True)
class Example:
    """A request that an algorithm answers in full.

    Attributes:
        spec: With all that the theorem needs.
        variants: Changes of the spec that bring out other forms of the theorem, by a word for each.
        bounded: Whether a theorem speaks of what the algorithm attains. Where none does, there are no constants to give
            and no bound to serve, and a warning says so.
    """

    spec: Spec
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bounded: bool = True

    def specs(self) -> dict[str, Spec]:
        """The spec and its variants, by their words."""
        return {"": self.spec} | {word: replace(self.spec, **changes) for word, changes in self.variants.items()}


TARGET = ApproximateDpTarget(2.0, 1e-6)
