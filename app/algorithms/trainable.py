"""Which models and plans an algorithm trains: what a worker would refuse is refused before anything is charged."""

from __future__ import annotations

from accounting.errors import one_of
from app.problems import unprocessable
from calibrators.phases import TreePhase
from calibrators.plan import Clip, Phase, Plan
from trainer.algorithms import ALGORITHMS
from trainer.algorithms.tree_sfw_l1 import MAX_RECORDS_PER_TREE
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS
from trainer.models import MODELS, MultilayerPerceptron

#: Workers run in float64.
_SMALLEST = SMALLEST_MAX_GRAD_NORMS["float64"]


def models_of(algorithm: str) -> tuple[str, ...]:
    """Kinds of models that a run of the algorithm can train.

    Trees of gradients clip each record's change of its gradient in the l_inf norm, which factorises for linear models
    alone.
    """
    if ALGORITHMS[algorithm].linear_models_only:
        return tuple(kind for kind in MODELS if kind != MultilayerPerceptron.kind)
    return MODELS


def check_model(algorithm: str, kind: str) -> None:
    """Refuse a model that the algorithm does not train.

    Raises:
        Problem: 422 ``unsupported_model``.
    """
    known = models_of(algorithm)
    if kind not in known:
        raise unprocessable("unsupported_model", f"{algorithm} trains {one_of(known)}, not {kind}", "model", "kind")


def check_plan(plan: Plan) -> None:
    """Refuse a plan whose bounds the trainer's arithmetic cannot keep.

    Raises:
        Problem: 422 ``invalid_value``.
    """
    for phase in plan.phases:
        if isinstance(phase, TreePhase):
            _check_at_least("lipschitz", phase.lipschitz, "assumptions")
            if phase.records_per_tree > MAX_RECORDS_PER_TREE:
                detail = (
                    f"sums of more than {MAX_RECORDS_PER_TREE} records are not known to be exact enough, and a root of "
                    f"this plan has {phase.records_per_tree}: give a batch_size, which is that number"
                )
                raise unprocessable("invalid_value", detail, "batch_size")
        elif isinstance(phase, Phase) and isinstance(phase.gradient_bound, Clip):
            _check_at_least("max_grad_norm", phase.gradient_bound.max_grad_norm, "gradient_bound")


def _check_at_least(name: str, value: float, where: str) -> None:
    if value < _SMALLEST:
        detail = f"{name} must be at least {_SMALLEST:g} to be kept in floating point, got {value!r}; rescale the data"
        raise unprocessable("invalid_value", detail, where, name)
