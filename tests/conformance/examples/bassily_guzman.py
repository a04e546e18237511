"""Examples of the algorithms of Bassily, Guzmán, Menart & Nandi."""

from __future__ import annotations

from accounting.targets import ApproximateDpTarget
from calibrators.spec import Spec
from tests.conformance.examples.example import TARGET, Example

EXAMPLES: dict[str, Example] = {
    "tree_sfw_l1": Example(
        Spec(100_000, TARGET, dimension=100, assumptions={"lipschitz": 1.0, "smoothness": 0.5, "diameter": 2.0}),
        variants={
            "pure": {"target": ApproximateDpTarget(2.0, 0.0)},
            "radius": {"assumptions": {"lipschitz": 1.0, "smoothness": 0.5, "radius": 1.0, "initial_gap": 0.5}},
        },
    ),
}
