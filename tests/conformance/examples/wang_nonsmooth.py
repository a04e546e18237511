"""Examples of the algorithms of Wang, Lei, Ying & Zhang."""

from __future__ import annotations

from calibrators.spec import Spec
from tests.conformance.examples.example import TARGET, Example

_HOLDER = {
    "radius": 2.0,
    "holder_exponent": 0.5,
    "holder_constant": 0.3,
    "gradient_at_zero": 0.5,
    "loss_at_zero": 1.0,
    "failure_probability": 0.05,
}

EXAMPLES: dict[str, Example] = {
    "dp_sgd_output": Example(
        Spec(1_000_000, TARGET, dimension=50, assumptions=_HOLDER),
        variants={
            "smooth": {"dataset_size": 100_000, "assumptions": _HOLDER | {"holder_exponent": 1.0}},
            "lipschitz": {
                "dataset_size": 100_000,
                "iterations": 4000,
                "assumptions": {"radius": 2.0, "lipschitz": 1.0, "loss_at_zero": 1.0, "failure_probability": 0.05},
            },
            "all of space": {
                "assumptions": {name: value for name, value in _HOLDER.items() if name != "radius"}
                | {"initial_distance": 2.0}
            },
        },
    ),
    "dp_sgd_gradient": Example(
        Spec(10_000, TARGET, batch_size=50, dimension=20, assumptions=_HOLDER),
        variants={
            "one record each": {"dataset_size": 1000, "batch_size": None},
            "lipschitz": {"assumptions": {"radius": 2.0, "lipschitz": 1.0, "failure_probability": 0.05}},
            "smooth": {"assumptions": _HOLDER | {"holder_exponent": 1.0}},
        },
    ),
}
