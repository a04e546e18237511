"""Private Frank-Wolfe over the l1 ball on generalised linear losses whose scalar links were smoothed.

Source: after Bassily, Guzman & Menart 2021; the steps are those of `trainer.algorithms.dp_fw`, on Moreau envelopes
(`trainer.losses.envelope`).
"""

from __future__ import annotations

from dataclasses import replace

from accounting.errors import Unsupported
from calibrators.algorithm import ExampleRequest
from calibrators.phases.smoothed_vertex_steps import SmoothedVertexSteps
from trainer.algorithms.dp_fw import FrankWolfe
from trainer.execution import MODELS_OF_ONE_LOGIT, Execution, check_lipschitz
from trainer.loop import Task
from trainer.losses.envelope import Envelope
from trainer.models import LinearModel


def make(task: Task) -> FrankWolfe:
    """Return Frank-Wolfe steps on the model's losses with the plan's smoothing.

    Raises:
        InvalidValue: As `FrankWolfe` does, for plans of one phase of `SmoothedVertexSteps`.
        Unsupported: If the model is not linear in one logit.
    """
    phase, model = task.plan.phases[0], task.model
    if not isinstance(model, LinearModel):
        raise Unsupported(
            f"{task.plan.algorithm} smooths the loss of a linear model as a function of its logit; {model.kind} is "
            "not a linear model",
            code="unsupported_model",
            pointer=("model", "kind"),
        )
    if isinstance(phase, SmoothedVertexSteps):  # the steps refuse any other phase
        model = replace(model, loss=Envelope(model.loss, phase.smoothing))
    return FrankWolfe(replace(task, model=model), SmoothedVertexSteps)


EXECUTION = Execution(
    phase_type=SmoothedVertexSteps,
    make=make,
    check=check_lipschitz,
    models=MODELS_OF_ONE_LOGIT,
    requests={
        "smoothed_frank_wolfe": ExampleRequest(
            "A sparse support vector machine: Frank-Wolfe in an l1 ball on the hinge, smoothed",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "q_norm_hinge", "q": 1},
                "iterations": 20,
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "assumptions": {"radius": 5},
            },
        )
    },
)
