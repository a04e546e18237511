"""Examples of the algorithms of Lowy & Razaviyayn."""

from __future__ import annotations

from calibrators.plan import Clip
from calibrators.spec import Spec
from tests.conformance.examples.example import TARGET, Example

_HEAVY_TAILED = {
    "smoothness": 2.0,
    "strong_convexity": 0.5,
    "diameter": 2.0,
    "moment_order": 4.0,
    "moment_bound": 1.5,
}

EXAMPLES: dict[str, Example] = {
    "clipped_sgd_strongly_convex": Example(
        Spec(100_000, TARGET, dimension=20, assumptions=_HEAVY_TAILED),
        variants={"own threshold": {"gradient_bound": Clip(3.0), "iterations": 50}},
    ),
}
