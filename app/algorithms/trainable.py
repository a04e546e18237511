"""Which models and plans an algorithm trains: what a worker would refuse is refused before anything is charged."""

from __future__ import annotations

from accounting.errors import AccountingError, one_of
from app.problems import from_accounting, unprocessable
from calibrators.geometry import L1Ball
from calibrators.phases import (
    EstimatePhase,
    GradientTreePhase,
    LocalizedPhase,
    MedianPhase,
    MirrorPhase,
    OutputPerturbation,
    ProximalPhase,
    RecursiveSelections,
    ShuffledCounts,
    ShuffledMedians,
    TreePhase,
    VarianceReducedEpochs,
    VertexSteps,
)
from calibrators.plan import Clip, Phase, Plan
from trainer import recursive_gradients
from trainer.algorithms import ALGORITHMS, dp_sgd_output, shuffle_vector_mean, tree_sfw_l1
from trainer.blocks import MAX_GRADIENT_EVALUATIONS
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS
from trainer.grid import grid_for
from trainer.losses import Softmax
from trainer.models import MODELS, MeanModel, Model, MultilayerPerceptron

#: Numbers of all slots together, at most: 2 GiB in float64.
MAX_SLOT_NUMBERS = 2**28
#: A slot's label, its square, whether it is filled, and where it is.
_NUMBERS_BESIDE_A_ROW = 4


def models_of(algorithm: str) -> tuple[str, ...]:
    """Kinds of models that a run of the algorithm can train.

    Trees of gradients clip each record's change of its gradient in the l_inf norm, which factorises for linear models
    alone. A link that is smoothed is a function of one logit. Output perturbation rests on convex losses with known
    constants. A mean is one noisy sum, for which there are algorithms of its own: steps that come nearer to it would
    only cost more.
    """
    trainer = ALGORITHMS[algorithm]
    if trainer.means_only:
        return (MeanModel.kind,)
    left_out = {MeanModel.kind} | ({MultilayerPerceptron.kind} if trainer.linear_models_only else set())
    left_out |= {Softmax.kind} if trainer.one_logit_only else set()
    return tuple(kind for kind in MODELS if kind not in left_out)


def check_model(algorithm: str, kind: str) -> None:
    """Refuse a model that the algorithm does not train.

    Raises:
        Problem: 422 ``unsupported_model``.
    """
    known = models_of(algorithm)
    if kind not in known:
        raise unprocessable("unsupported_model", f"{algorithm} trains {one_of(known)}, not {kind}", "model", "kind")


def check_slots(capacity: int, model: Model) -> None:
    """Refuse a data set whose slots take more memory than a worker has.

    Args:
        capacity: Slots of the data set, a public number: filled or not, each takes a row's memory.
        model: Whose features the rows are.

    Raises:
        Problem: 422 ``too_many_slots``.
    """
    numbers = capacity * (model.num_features + _NUMBERS_BESIDE_A_ROW)
    if numbers > MAX_SLOT_NUMBERS:
        detail = (
            f"a run keeps a slot for each of {capacity} possible records, {numbers:.3g} numbers in all, and a worker "
            f"has room for {MAX_SLOT_NUMBERS:.3g}: declare fewer records or fewer columns"
        )
        raise unprocessable("too_many_slots", detail, "dataset_id")


def check_plan(plan: Plan, model: Model) -> None:
    """Refuse a plan whose bounds the trainer's arithmetic, or the model, cannot keep.

    Raises:
        Problem: 422 ``invalid_value``.
    """
    for phase in plan.phases:
        if isinstance(phase, OutputPerturbation):
            _check_output(plan, model)
        elif isinstance(phase, TreePhase | RecursiveSelections | VertexSteps):
            _check_selections(plan, phase)
        elif isinstance(phase, MirrorPhase | EstimatePhase | GradientTreePhase):
            _check_at_least(plan, "lipschitz", phase.lipschitz, "assumptions")
        elif isinstance(phase, VarianceReducedEpochs):
            _check_at_least(plan, "max_grad_norm", phase.max_grad_norm, "gradient_bound")
        elif isinstance(phase, LocalizedPhase | ProximalPhase):
            _check_blocks(plan, phase)
        elif isinstance(phase, ShuffledCounts | ShuffledMedians):
            _check_counts(plan, phase)
        elif isinstance(phase, MedianPhase):
            _check_at_least(plan, "truncation_radius", phase.truncation_radius, "assumptions")
        elif isinstance(phase, Phase):
            _check_gradient_steps(plan, phase, model)


def _check_gradient_steps(plan: Plan, phase: Phase, model: Model) -> None:
    if isinstance(phase.gradient_bound, Clip):
        _check_at_least(plan, "max_grad_norm", phase.gradient_bound.max_grad_norm, "gradient_bound")
    multiplier = phase.noise_stddev_on_sum / phase.gradient_bound.contribution_bound
    try:
        grid_for(multiplier, model.num_parameters, plan.dtype, plan.dataset_size)
    except AccountingError as error:
        raise from_accounting(error) from None


def _check_output(plan: Plan, model: Model) -> None:
    try:
        dp_sgd_output.check(plan, model)
    except AccountingError as error:
        raise from_accounting(error) from None


def _check_counts(plan: Plan, phase: ShuffledCounts | ShuffledMedians) -> None:
    if isinstance(phase, ShuffledMedians):
        _check_at_least(plan, "truncation_radius", phase.truncation_radius, "assumptions")
    else:
        _check_at_least(plan, "max_grad_norm", phase.max_grad_norm, "gradient_bound")
    try:
        shuffle_vector_mean.check(plan)
    except AccountingError as error:
        raise from_accounting(error) from None


def _check_blocks(plan: Plan, phase: LocalizedPhase | ProximalPhase) -> None:
    if isinstance(phase, LocalizedPhase):
        smallest, name = min(phase.max_grad_norm), "localization_power"
        instead = (
            "give a localization_power nearer to 1, the least, or use clipped_acsa or clipped_sgd_strongly_convex, "
            "which read every record once"
        )
    else:
        smallest, name = phase.max_grad_norm, "inner_iterations"
        instead = "give fewer inner_iterations, which are the steps of a round"
    _check_at_least(plan, "max_grad_norm", smallest, "gradient_bound")
    if phase.gradient_evaluations > MAX_GRADIENT_EVALUATIONS:
        detail = (
            f"this plan takes {phase.gradient_evaluations:.3g} per-record gradients, and a run at most "
            f"{MAX_GRADIENT_EVALUATIONS:.0e}: {instead}"
        )
        raise unprocessable("invalid_value", detail, "assumptions", name)


def _check_selections(plan: Plan, phase: TreePhase | RecursiveSelections | VertexSteps) -> None:
    _check_at_least(plan, "lipschitz", phase.lipschitz, "assumptions")
    radius = plan.domain.radius if isinstance(plan.domain, L1Ball) else 0.0
    if isinstance(phase, RecursiveSelections) and not recursive_gradients.rounding_is_paid_for(phase, radius):
        detail = "so many steps of this size round the estimate by more than the margin pays for; ask for fewer"
        raise unprocessable("invalid_value", detail, "iterations")
    if isinstance(phase, TreePhase) and not tree_sfw_l1.rounding_is_paid_for(phase, radius):
        detail = (
            f"changes of gradients are so small against gradients that float64 has no digits for the part of one of "
            f"{phase.records_per_tree} records: give a smaller batch_size, which is that number"
        )
        raise unprocessable("invalid_value", detail, "batch_size")


def _check_at_least(plan: Plan, name: str, value: float, where: str) -> None:
    smallest = SMALLEST_MAX_GRAD_NORMS[plan.dtype]
    if value < smallest:
        detail = f"{name} must be at least {smallest:g} to be kept in {plan.dtype}, got {value!r}; rescale the data"
        raise unprocessable("invalid_value", detail, where, name)
