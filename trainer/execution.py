"""An algorithm's file in `trainer.algorithms` has a record ``EXECUTION`` that says how the algorithm is carried out.

The formulas' side of an algorithm is `calibrators.algorithm.Algorithm`. The two are joined by the name of their files:
calibrators import no trainer, and a worker that carries out a plan needs no formulas.

A record's check refuses plans that the trainer's arithmetic cannot carry out, before anything is charged. The refusal
points to the member of the request that holds the number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from accounting.errors import InvalidValue
from calibrators.algorithm import ExampleRequest
from calibrators.phases.structured import StructuredPhase
from calibrators.plan import FLOAT32, BoundedSteps, Clip, Normalize, Plan
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS
from trainer.loop import Task, Trainer, check_sampling_of, grid_of
from trainer.losses import Softmax
from trainer.models import MODELS, MeanModel, Model, MultilayerPerceptron


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed run.

    Attributes:
        plan: The plan to carry out.
        model: The trained model.
        capacity: The number of slots of the data set; a batch may hold all of them.
    """

    plan: Plan
    model: Model
    capacity: int


#: Refuses what a trainer cannot carry out, by raising an InvalidValue or Unsupported.
Check = Callable[[Proposal], None]


def check_gradient_steps(proposal: Proposal) -> None:
    """Refuse noisy gradient steps whose batches cannot be drawn, or whose clip threshold or noise cannot be kept.

    Raises:
        InvalidValue: If the threshold is too small, or the noise is too small or too large against it; or if correlated
            noise would need too many numbers to be kept.
        Unsupported: If the trainer cannot draw batches as they are charged.
    """
    for phase in proposal.plan.phases:
        assert isinstance(phase, BoundedSteps), "the algorithm's plans have no other phases"
        check_sampling_of(proposal.plan, phase, proposal.capacity)
        if isinstance(phase.gradient_bound, Clip):
            check_at_least(proposal.plan, "max_grad_norm", phase.gradient_bound.max_grad_norm, "gradient_bound")
        grid_of(proposal.plan, phase, proposal.model, proposal.capacity)


def bounded_by(name: str, where: str) -> Check:
    """Return a check that a bound of each phase is not too small for the numeric type.

    Args:
        name: The name of the phases' field, and of the request's member inside ``where``.
        where: The member of the request that holds the bound.
    """

    def check(proposal: Proposal) -> None:
        for phase in proposal.plan.phases:
            check_at_least(proposal.plan, name, getattr(phase, name), where)

    return check


check_lipschitz = bounded_by("lipschitz", "assumptions")
check_max_grad_norm = bounded_by("max_grad_norm", "gradient_bound")
check_truncation_radius = bounded_by("truncation_radius", "assumptions")


def check_at_least(plan: Plan, name: str, value: float, where: str) -> None:
    """Refuse a bound that the plan's numeric type cannot keep.

    Raises:
        InvalidValue: If the bound is too small. The error points at ``where`` and ``name``.
    """
    smallest = SMALLEST_MAX_GRAD_NORMS[plan.dtype]
    if value < smallest:
        instead = "rescale the data, or leave dtype out" if plan.dtype == FLOAT32 else "rescale the data"
        raise InvalidValue(
            f"{name} must be at least {smallest:g} to be kept in {plan.dtype}, got {value!r}; {instead}",
            pointer=(where, name),
        )


#: The kind of model of an algorithm that estimates a mean. One noisy sum gives the mean; further steps would only cost
#: more.
MEANS: tuple[str, ...] = (MeanModel.kind,)
#: The kinds of models that predict a label.
PREDICTORS: tuple[str, ...] = tuple(kind for kind in MODELS if kind != MeanModel.kind)
#: The models whose gradients are one outer product; clipping in norms other than l2 needs this, and so do known
#: constants.
LINEAR_MODELS: tuple[str, ...] = tuple(kind for kind in PREDICTORS if kind != MultilayerPerceptron.kind)
#: The models whose loss is a function of one logit, which can be smoothed.
MODELS_OF_ONE_LOGIT: tuple[str, ...] = tuple(kind for kind in LINEAR_MODELS if kind != Softmax.kind)

#: Why a mean is estimated in float64.
READS_ONCE = (
    "The run takes float64: it reads every record once, so that float32 would save little, and its margin of 2^-7 "
    "below the clip threshold would show in the mean."
)


class Coordinates(Enum):
    """How an update mixes coordinates if there is neither a domain to project onto nor a penalty. This decides
    whether canaries of one run are independent."""

    MIXED = "mixed"
    """Coordinates influence each other."""
    SEPARATE = "separate"
    """Each coordinate is treated alone."""
    SUBTRACTED = "subtracted"
    """Each coordinate is treated alone: the noisy sum, times the step size over the divisor, is subtracted."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The way in which the plans of one algorithm are carried out.

    Attributes:
        phase_type: The type of every phase of its plans.
        make: Makes the trainer of a task.
        check: Refuses a plan that the trainer's arithmetic, or the model, cannot keep.
        models: Kinds of models that a run of the algorithm can train.
        requests: Examples of ``POST /v1/runs``, each under a unique name.
        gradient_bound: The kind of gradient bound that every `BoundedSteps` of its plans has; None for other phases.
        coordinates: The assumption about the update that an audit may make.
        float64_because: Why float64 is better for its runs, whatever the plan; empty if nothing speaks against float32.
    """

    phase_type: type[BoundedSteps] | type[StructuredPhase]
    make: Callable[[Task], Trainer]
    check: Check
    models: tuple[str, ...]
    requests: Mapping[str, ExampleRequest]
    gradient_bound: type[Clip] | type[Normalize] | None = None
    coordinates: Coordinates = Coordinates.MIXED
    float64_because: str = ""
