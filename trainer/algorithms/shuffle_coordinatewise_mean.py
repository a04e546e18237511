"""The coordinate-wise median of means of groups that send shuffled bits.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithm 13, with P_1D (its Algorithm 14) in each coordinate.

All users of a group send: an empty slot sends as a record of zeros does. Only a whole number for each coordinate leaves
a group, so no record changes the rounding of others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from calibrators.algorithm import ExampleRequest
from calibrators.phases.shuffled_medians import ShuffledMedians
from trainer.arrays import Array, silent, to_host
from trainer.execution import MEANS, READS_ONCE, Execution, Proposal, check_truncation_radius
from trainer.loop import Task
from trainer.median_of_means import ClampedGroups, check_groups, lower_median
from trainer.shuffle.bits import BitProtocol
from trainer.shuffle.messages import check_bits, check_messages
from trainer.structured_steps import StructuredSteps, initial_point, only_phase


class ShuffleCoordinatewiseMean(StructuredSteps):
    """The only step of a plan: it moves from the start by the medians. For the model `mean`, that leads from 0 to the
    mean.

    Guarantees:
        - a_record_is_in_one_group: whose integers it moves by no more than the phase charges for, whatever the records
          are.
        - everybody_sends: as many bits are drawn whatever the number of rows.

    Raises:
        InvalidValue: If the plan does not have the one phase of this algorithm, is not of its relation or of this
            model, or has numbers that the declared records or floating point have no room for, or more bits than a run
            draws.
    """

    kept = ("_done", "_point", "_groups", "_coins")

    def __init__(self, task: Task) -> None:
        self._phase = phase = _checked(task)
        super().__init__(task, task.streams.coins(), initial_point(task))
        self._groups = ClampedGroups(task, phase.users, phase.truncation_radius)
        self._protocol = BitProtocol(phase.truncation_radius, phase.levels, phase.noise_bits)
        self._coins = self._noise
        # There may be fewer coordinates than were planned; they need fewer messages and cost less.
        self._width = task.model.num_parameters

    def step(self) -> None:
        with silent():
            means = np.stack([self._next_mean() for _ in range(self._phase.groups)])
            self._point = self._point + self._xp.asarray(lower_median(np, means))
        self._done = 1

    def _next_mean(self) -> npt.NDArray[np.float64]:
        """Return nu~_j^i of the next group, in all coordinates: shape (d,)."""
        phase = self._phase
        ones = np.zeros(self._width, dtype=np.int64)
        for piece in self._groups.next_group(self._point):
            ones += self._integers(piece)
        ones += self._coins.heads(phase.users * phase.noise_bits, self._width)
        return self._protocol.sums(ones, phase.users) / phase.users

    def _integers(self, rows: Array) -> npt.NDArray[np.int64]:
        uniforms = self._xp.asarray(self._coins.uniforms((rows.shape[0], self._width)))
        total: npt.NDArray[np.int64] = to_host(self._xp.sum(self._protocol.rounded(self._xp, rows, uniforms), axis=0))
        return total


def _checked(task: Task) -> ShuffledMedians:
    plan, phase = task.plan, only_phase(task.plan, ShuffledMedians)
    check_messages(plan, phase)
    if phase.dimension < task.model.num_parameters:
        raise InvalidValue(
            f"the phase has messages for {phase.dimension} coordinates, but the model has {task.model.num_parameters}",
            code="invalid_plan",
            pointer=("phases", 0, "dimension"),
        )
    check_groups(plan.dataset_size, phase.groups, phase.users, phase.truncation_radius)
    check_bits(plan)
    return phase


def check_request(proposal: Proposal) -> None:
    """Refuse a truncation radius that floating point cannot keep, and more messages than a run draws.

    Raises:
        InvalidValue: As `check_truncation_radius` and `check_bits` do.
    """
    check_truncation_radius(proposal)
    check_bits(proposal.plan)


EXECUTION = Execution(
    phase_type=ShuffledMedians,
    make=ShuffleCoordinatewiseMean,
    check=check_request,
    models=MEANS,
    float64_because=READS_ONCE,
    requests={
        "shuffled_medians": ExampleRequest(
            "Medians of groups' means of all features by the shuffle protocol",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "mean"},
                "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
                "assumptions": {"truncation_radius": 1, "num_groups": 5},
            },
        )
    },
)
