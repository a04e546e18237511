"""One example for each algorithm: what the conformance suites ask of it, and what its page shows.

A new algorithm adds its entry to `EXAMPLES`; the suites do the rest. The spec leaves out what the paper chooses itself
(sampling and relation always, other sizes where the algorithm can choose them), and gives every constant that the
algorithm's theorem needs, well inside the theorem's conditions, so that each can be moved by a power of ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from accounting.targets import ApproximateDpTarget
from calibrators.plan import Clip, Normalize
from calibrators.spec import Spec


@dataclass(frozen=True, slots=True)
class Example:
    """A request that an algorithm answers in full.

    Attributes:
        spec: With all that the theorem needs.
        variants: Changes of the spec that bring out other forms of the theorem, by a word for each.
    """

    spec: Spec
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def specs(self) -> dict[str, Spec]:
        """The spec and its variants, by their words."""
        return {"": self.spec} | {word: replace(self.spec, **changes) for word, changes in self.variants.items()}


TARGET = ApproximateDpTarget(2.0, 1e-6)

_NONCONVEX = {
    "initial_gap": 2.0,
    "generalized_smoothness_l0": 1.0,
    "generalized_smoothness_l1": 0.05,
    "deviation_tau0": 0.3,
    "deviation_tau1": 0.2,
}
_SMOOTH = {"smoothness": 2.0, "initial_gap": 1.0}
_HOLDER = {
    "radius": 2.0,
    "holder_exponent": 0.5,
    "holder_constant": 0.3,
    "gradient_at_zero": 0.5,
    "loss_at_zero": 1.0,
    "failure_probability": 0.05,
}
_HEAVY_TAILED = {
    "smoothness": 2.0,
    "strong_convexity": 0.5,
    "diameter": 2.0,
    "moment_order": 4.0,
    "moment_bound": 1.5,
}

EXAMPLES: dict[str, Example] = {
    "dp_sgd": Example(
        Spec(
            50_000,
            TARGET,
            batch_size=1000,
            iterations=5000,
            gradient_bound=Clip(1.5),
            dimension=20,
            assumptions=_NONCONVEX,
        )
    ),
    "dp_nsgd": Example(
        Spec(
            50_000,
            TARGET,
            batch_size=1000,
            iterations=5000,
            gradient_bound=Normalize(1.0),
            dimension=20,
            assumptions=_NONCONVEX,
        )
    ),
    "dp_sgd_gradient": Example(
        Spec(10_000, TARGET, batch_size=50, dimension=20, assumptions=_HOLDER),
        variants={
            "one record each": {"dataset_size": 1000, "batch_size": None},
            "lipschitz": {"assumptions": {"radius": 2.0, "lipschitz": 1.0, "failure_probability": 0.05}},
            "smooth": {"assumptions": _HOLDER | {"holder_exponent": 1.0}},
        },
    ),
    "dp_gd": Example(
        Spec(10_000, TARGET, gradient_bound=Clip(1.0), dimension=20, assumptions=_SMOOTH | {"pl_constant": 0.2}),
        variants={"any smooth loss": {"assumptions": _SMOOTH}, "own steps": {"iterations": 30, "step_size": 0.1}},
    ),
    "clipped_sgd_strongly_convex": Example(
        Spec(100_000, TARGET, dimension=20, assumptions=_HEAVY_TAILED),
        variants={"own threshold": {"gradient_bound": Clip(3.0), "iterations": 50}},
    ),
    "tree_sfw_l1": Example(
        Spec(100_000, TARGET, dimension=100, assumptions={"lipschitz": 1.0, "smoothness": 0.5, "diameter": 2.0}),
        variants={
            "pure": {"target": ApproximateDpTarget(2.0, 0.0)},
            "radius": {"assumptions": {"lipschitz": 1.0, "smoothness": 0.5, "radius": 1.0, "initial_gap": 0.5}},
        },
    ),
}
