"""Examples of the algorithms of Wang, Ye & Xu."""

from __future__ import annotations

from calibrators.geometry import L1Ball
from calibrators.plan import Clip
from calibrators.spec import Spec
from tests.conformance.examples.example import TARGET, Example

_SMOOTH = {"smoothness": 2.0, "initial_gap": 1.0}
_HOLDER = {
    "radius": 2.0,
    "holder_exponent": 0.5,
    "holder_constant": 0.3,
    "gradient_at_zero": 0.5,
    "loss_at_zero": 1.0,
    "failure_probability": 0.05,
}

EXAMPLES: dict[str, Example] = {
    "dp_gd": Example(
        Spec(10_000, TARGET, gradient_bound=Clip(1.0), dimension=20, assumptions=_SMOOTH | {"pl_constant": 0.2}),
        variants={"any smooth loss": {"assumptions": _SMOOTH}, "own steps": {"iterations": 30, "step_size": 0.1}},
    ),
    "dp_svrg": Example(
        Spec(
            100_000,
            TARGET,
            iterations=12,
            gradient_bound=Clip(1.0),
            dimension=20,
            assumptions=_SMOOTH | {"strong_convexity": 0.2},
        ),
        variants={
            "own steps": {
                "batch_size": 500,
                "step_size": 0.01,
                "assumptions": _SMOOTH | {"strong_convexity": 0.2, "inner_iterations": 2500.0},
            }
        },
    ),
    "dp_svrg_pp": Example(
        Spec(
            100_000,
            TARGET,
            iterations=8,
            gradient_bound=Clip(1.0),
            dimension=20,
            assumptions=_SMOOTH | {"initial_distance": 1.5},
        ),
        variants={"own m": {"assumptions": _SMOOTH | {"initial_distance": 1.5, "inner_iterations": 100.0}}},
    ),
    "dp_accmd": Example(
        Spec(10_000, TARGET, gradient_bound=Clip(1.0), dimension=20, assumptions={"smoothness": 2.0, "radius": 1.0}),
        variants={
            "l1 ball": {"domain": L1Ball(1.0), "assumptions": {"smoothness": 2.0}},
            "own steps": {"iterations": 20, "step_size": 0.2},
        },
    ),
}
