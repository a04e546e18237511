"""The coordinate-wise median of means of groups that send shuffled bits.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithm 13, with P_1D (its Algorithm 14) in each coordinate.

All users of a group send: an empty slot sends as a record of zeros does. What leaves a group is a whole number for each
coordinate, so that no record changes how others are rounded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.phases import ShuffledMedians
from trainer.algorithms.shuffle_vector_mean import check
from trainer.arrays import Array, silent, to_host
from trainer.loop import State, Task
from trainer.median_of_means import ClampedGroups, check_groups, lower_median
from trainer.shuffle.bits import BitProtocol


class ShuffleCoordinatewiseMean:
    """The only step of a plan: from the start by the medians, for the model `mean` from 0 to the mean itself.

    Guarantees:
        - a_record_is_in_one_group: whose integers it moves by what the phase charges for, whatever the records are.
        - everybody_sends: as many bits are drawn whatever the number of rows.

    Raises:
        InvalidValue: the plan has not the one phase of this algorithm, is not of its relation or of this model, or has
            numbers that the declared records or floating point have no room for, or more bits than a run draws.
    """

    def __init__(self, task: Task) -> None:
        self._phase = phase = _checked(task)
        self._xp = task.records.xp
        self._groups = ClampedGroups(task, phase.users, phase.truncation_radius)
        self._protocol = BitProtocol(phase.truncation_radius, phase.levels, phase.noise_bits)
        self._coins = task.streams.coins()
        initial = task.model.initial(task.streams.initialisation)
        self._point: Array = self._xp.asarray(initial, dtype=self._xp.float64)
        self._done = 0
        # At most as many as were planned for: fewer coordinates have a part in fewer messages, and cost less.
        self._width = task.model.num_parameters

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        with silent():
            means = np.stack([self._next_mean() for _ in range(self._phase.groups)])
            self._point = self._point + self._xp.asarray(lower_median(np, means))
        self._done = 1

    def _next_mean(self) -> npt.NDArray[np.float64]:
        """nu~_j^i of the next group, in all coordinates: shape (d,)."""
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

    def released(self) -> Array:
        return self._point

    def state(self) -> State:
        return {
            "done": self._done,
            "point": self._point,
            "groups": self._groups.state(),
            "coins": self._coins.state(),
        }

    def restore(self, state: State) -> None:
        self._done, self._point = int(state["done"]), self._xp.asarray(state["point"])
        self._groups.restore(state["groups"])
        self._coins.restore(state["coins"])

    def close(self) -> None:
        """Nothing is drawn ahead."""


def _checked(task: Task) -> ShuffledMedians:
    plan, phase = task.plan, task.plan.phases[0]
    if len(plan.phases) != 1 or not isinstance(phase, ShuffledMedians):
        raise InvalidValue(
            f"{plan.algorithm} runs plans of one phase of shuffled_medians", code="invalid_plan", pointer=("phases",)
        )
    if plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise InvalidValue("messages are counted, so that n is public", pointer=("neighboring_relation",))
    if phase.change < plan.neighboring_relation.sensitivity:
        raise InvalidValue(
            "the phase charges for smaller changes of a record than the relation allows",
            pointer=("phases", 0, "change"),
        )
    if phase.dimension < task.model.num_parameters:
        raise InvalidValue(
            f"the messages are of {phase.dimension} coordinates, and the model has {task.model.num_parameters}",
            code="invalid_plan",
            pointer=("phases", 0, "dimension"),
        )
    check_groups(plan.dataset_size, phase.groups, phase.users, phase.truncation_radius)
    check(plan)
    return phase
