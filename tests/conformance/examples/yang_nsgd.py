"""Examples of the algorithms of Yang, Zhang, Chen & Liu."""

from __future__ import annotations

from calibrators.plan import Clip, Normalize
from calibrators.spec import Spec
from tests.conformance.examples.example import TARGET, Example

_NONCONVEX = {
    "initial_gap": 2.0,
    "generalized_smoothness_l0": 1.0,
    "generalized_smoothness_l1": 0.05,
    "deviation_tau0": 0.3,
    "deviation_tau1": 0.2,
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
    "dp_adam": Example(
        Spec(
            50_000,
            TARGET,
            batch_size=1000,
            iterations=5000,
            gradient_bound=Clip(1.5),
            dimension=20,
            step_size=0.001,
        ),
        bounded=False,
    ),
    "dp_nadam": Example(
        Spec(
            50_000,
            TARGET,
            batch_size=1000,
            iterations=5000,
            gradient_bound=Normalize(1.0),
            dimension=20,
            step_size=0.001,
        ),
        bounded=False,
    ),
}
