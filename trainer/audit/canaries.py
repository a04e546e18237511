"""Canaries: records whose gradients are known, are the same at every point, and are long enough to be clipped.

The loss of a record is linear in the parameters, so its gradient is the record itself and no step hides it.

- ``orthogonal``: each canary has a coordinate to itself. If records are drawn independently, that coordinate of the
  clipped noisy sum in step t is b_t + sigma Z_t, as in the accountant's worst-case pair: b_t says whether the canary is
  in the batch, and Z_t is standard noise. The noise is independent between coordinates, and other canaries do not touch
  this coordinate. So one run with m canaries is equivalent to m independent runs with one canary each, and their
  guesses can be counted as independent trials.
- ``opposed``: one canary, and one other record that points the other way and is shorter. If a faulty trainer bounds the
  sum as a whole instead of each record, the canary reverses the sum's direction, which is twice the distance that was
  charged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.events import Blocks, CyclicPoisson, DisjointBatches, FullBatch, Poisson, RandomAllocation, Sampling
from accounting.numbers import MAX_DATASET_SIZE
from accounting.relations import NeighboringRelation
from calibrators.geometry import Box
from calibrators.plan import AnyPhase, BoundedSteps, Clip, Plan
from calibrators.release import RandomIterate
from trainer.arrays import Array, Namespace
from trainer.audit.scores import Floats
from trainer.execution import Coordinates
from trainer.losses import Loss
from trainer.models import LinearModel
from trainer.run import execution_of

ORTHOGONAL = "orthogonal"
OPPOSED = "opposed"
DESIGNS = (ORTHOGONAL, OPPOSED)

#: The length of a canary's gradient, divided by the largest contribution of a record. A gradient of this length is
#: certainly clipped, or normalised to a length of nearly 1.
_LENGTH = 1e6
#: The length of the shorter record's gradient, divided by the largest contribution of a record.
_OUTWEIGHED = 1e3
#: The record that replaces a canary which does not take part, in units of the canary.
_STAND_IN = {NeighboringRelation.REPLACE_ONE: -1.0, NeighboringRelation.REPLACE_SPECIAL: 0.0}


@dataclass(frozen=True)
class Linear(Loss):
    """The loss is the logit itself. Its derivative is 1 at every point, so a record's gradient is its features."""

    kind = "canaries"
    num_classes = 0
    value_at_zero = 0.0

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        """Return 1."""
        return 1.0

    def largest_change(self, norm_order: float) -> float:
        """Return 0."""
        return 0.0

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return 1."""
        return xp.ones_like(logits)

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        return logits[:, 0]


def model(canaries: int) -> LinearModel:
    """Return the model that is trained on canaries: one parameter for each, all zero at the start."""
    return LinearModel(Linear(), canaries, fit_intercept=False)


def dependence(plan: Plan) -> str:
    """Return the reason why the canaries of one run are not independent trials, or an empty string if they are.

    Guarantees:
        - independence_is_proved_or_refused: an empty answer means that, with orthogonal canaries and independent noise
          in every coordinate, the coordinates of all points of the run are independent given the coins.
    """
    if execution_of(plan).coordinates is Coordinates.MIXED:
        return f"{plan.algorithm} lets coordinates influence each other"
    if plan.domain is not None and not isinstance(plan.domain, Box):
        return "the projection onto the domain lets coordinates influence each other"
    if isinstance(plan.release, RandomIterate):
        return "one step is drawn for all coordinates of the released model"
    for phase in plan.phases:
        sampling = phase.event.sampling
        if not _is_by_record(sampling):
            return f"{sampling.kind} sampling lets records exclude each other"
    return ""


def largest_number_of_rows(plan: Plan) -> int:
    """Return the largest number of rows that a run reads. Fixed-size schemes have as many places as the plan
    declares."""
    free = all(_has_every_slot(event.sampling) for event in plan.events)
    return MAX_DATASET_SIZE if free else plan.dataset_size


def _is_by_record(sampling: Sampling) -> bool:
    """Return whether each record is drawn independently of the other records."""
    if isinstance(sampling, DisjointBatches):
        return sampling.assignment == "independent"
    return _has_every_slot(sampling)


def _has_every_slot(sampling: Sampling) -> bool:
    """Return whether a batch is drawn from every slot of the data set, and not from the declared places alone."""
    if isinstance(sampling, CyclicPoisson):
        return sampling.assignment == "independent"
    return isinstance(sampling, FullBatch | Poisson | RandomAllocation | Blocks)


def rows(plan: Plan, members: npt.NDArray[np.bool_], design: str) -> Floats:
    """Return the gradients of the records of one run.

    Args:
        members: Whether each canary takes part, shape (m,).

    Returns:
        The gradients, shape (n, m). A canary that does not take part has no row; under ``replace_special`` it has a row
        of zeros, and under ``replace_one`` its opposite.
    """
    length = _LENGTH * _unit(plan)
    levels = np.where(members, 1.0, _STAND_IN.get(plan.neighboring_relation, 0.0))
    canaries: Floats = (length * np.diag(levels))[_have_a_row(plan, members)]
    if design == ORTHOGONAL:
        return canaries
    outweighed = np.full((1, members.size), -_OUTWEIGHED * _unit(plan))
    return np.concatenate([outweighed, canaries])


def places(plan: Plan, members: npt.NDArray[np.bool_], design: str) -> npt.NDArray[np.intp]:
    """Return the index of each canary's row, shape (m,). A canary without a row gets the index of an empty place after
    all rows."""
    present = _have_a_row(plan, members)
    first = 0 if design == ORTHOGONAL else 1
    found = np.empty(members.size, dtype=np.intp)
    found[present] = first + np.arange(np.count_nonzero(present))
    found[~present] = first + np.arange(np.count_nonzero(present), members.size)
    return found


def _have_a_row(plan: Plan, members: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return members | (plan.neighboring_relation in _STAND_IN)


def _unit(plan: Plan) -> float:
    """Return a bound on a record's contribution in any phase, including the addition to its norm by normalisation."""
    return max(_bound(phase) for phase in plan.phases)


def _bound(phase: AnyPhase) -> float:
    if not isinstance(phase, BoundedSteps):
        return phase.contribution_bound
    bound = phase.gradient_bound
    return bound.max_grad_norm if isinstance(bound, Clip) else 1.0 + bound.regularizer
