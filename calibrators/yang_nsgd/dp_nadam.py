"""DP-NAdam normalises every record's gradient, adds noise and takes Adam's step (Yang et al. 2022, Appendix D).

The N stands for normalised, not for Nesterov.
"""

from __future__ import annotations

from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, StepRule
from calibrators.plan import Normalize
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
    name="dp_nadam",
    summary="Divide each record's gradient g by (r + |g|), sum, add Gaussian noise, and apply Adam to the mean.",
    source=f"{PAPER}, Appendix D with equation (3)",
    update=(
        r"\tilde g = \frac{1}{B}\left(\sum_i \frac{g_i}{r + \|g_i\|} + \sigma Z\right),\quad "
        r"x \leftarrow x - \eta\, \frac{\hat m}{\sqrt{\hat v} + \xi}"
    ),
    samplings=SAMPLINGS,
    in_stages=True,
    step_rule=StepRule.COORDINATES,
    relations=RELATIONS,
    gradient_bounds=(Normalize,),
    assumptions=(),
    guarantee="(epsilon, delta)-differential privacy of all iterates together, hence of the released point.",
    gradient_complexity="T B",
    verdict=VERDICT,
    errata=(*ERRATA, "The noise on the sum is sigma for every r. Scaling the noise by r would void the guarantee."),
    calibrate=calibrate,
    scope=NO_THEOREM,
    example=Example(
        Spec(
            50_000,
            EXAMPLE_TARGET,
            batch_size=1000,
            iterations=5000,
            gradient_bound=Normalize(1.0),
            dimension=20,
            step_size=0.001,
        ),
        bounded=False,
    ),
    requests={
        "dp_nadam_replace_one": ExampleRequest(
            "DP-NAdam (normalised Adam) in the paper's own setting: batches of a fixed size, replace-one",
            {
                "dataset_size": 50000,
                "batch_size": 1000,
                "iterations": 2000,
                "gradient_bound": {"kind": "normalize", "regularizer": 0.1},
                "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.001},
            },
        )
    },
)
