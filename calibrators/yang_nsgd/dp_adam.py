"""DP-Adam clips every record's gradient, adds noise and takes Adam's step (Yang et al. 2022, Appendix D)."""

from __future__ import annotations

from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, StepRule
from calibrators.plan import Clip
from calibrators.scopes import NO_THEOREM
from calibrators.spec import Calibration, Spec
from calibrators.yang_nsgd.adam import ERRATA, calibrate_adam
from calibrators.yang_nsgd.nonconvex import PAPER, RELATIONS, SAMPLINGS, VERDICT


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise, and the step size is the caller's.

    Raises:
        As `calibrate_adam` does.
    """
    return calibrate_adam(ALGORITHM, spec)


ALGORITHM = Algorithm(
    name="dp_adam",
    summary="Clip each record's gradient to l2 norm c, sum, add Gaussian noise, and apply Adam to the mean.",
    source=f"{PAPER}, Appendix D with equation (2)",
    update=(
        r"\tilde g = \frac{1}{B}\left(\sum_i \min(1, c/\|g_i\|)\, g_i + c\,\sigma Z\right),\quad "
        r"x \leftarrow x - \eta\, \frac{\hat m}{\sqrt{\hat v} + \xi}"
    ),
    samplings=SAMPLINGS,
    in_stages=True,
    step_rule=StepRule.COORDINATES,
    is_usual=True,
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    assumptions=(),
    guarantee="(epsilon, delta)-differential privacy of all iterates together, hence of the released point.",
    gradient_complexity="T B",
    verdict=VERDICT,
    errata=ERRATA,
    calibrate=calibrate,
    scope=NO_THEOREM,
    example=Example(
        Spec(
            50_000,
            EXAMPLE_TARGET,
            batch_size=1000,
            iterations=5000,
            gradient_bound=Clip(1.5),
            dimension=20,
            step_size=0.001,
        ),
        bounded=False,
    ),
    requests={
        "dp_adam_poisson": ExampleRequest(
            "DP-Adam, Poisson batches; the step size is the caller's",
            {
                "dataset_size": 50000,
                "batch_size": 1000,
                "iterations": 2000,
                "sampling": "poisson",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.001},
                "dtype": "float32",
            },
        )
    },
)
