"""The coordinate-wise median of means of all records, with one draw of Gaussian noise.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithm 12.
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.phases import MedianPhase
from calibrators.plan import Plan
from trainer.arrays import Array, silent
from trainer.loop import State, Task
from trainer.median_of_means import ClampedGroups, check_groups, lower_median


class CoordinatewiseMean:
    """The only step of a plan: from the start by the noisy medians, for the model `mean` from 0 to the mean itself.

    Guarantees:
        - one_record_moves_the_medians_by_at_most_what_was_charged: by tau / b in each coordinate, or 2 tau / b where it
          is replaced, for any records.
        - noise_is_added_whatever_the_records_are.

    Raises:
        InvalidValue: the plan has not the one phase of this algorithm, or one that was made for fewer parameters, or
            numbers that the declared records or floating point have no room for.
    """

    def __init__(self, task: Task) -> None:
        self._phase = _checked(task.plan, task.model.num_parameters)
        self._groups = ClampedGroups(task, self._phase.group_size, self._phase.truncation_radius)
        self._unit = self._phase.truncation_radius / self._phase.group_size
        self._grid = self._groups.grid(self._phase.noise_stddev / self._unit)
        self._noise = task.streams.gaussian_noise()
        self._xp = task.records.xp
        self._done = 0
        initial = task.model.initial(task.streams.initialisation)
        self._point: Array = self._xp.asarray(initial, dtype=self._xp.float64)

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        """Take nu~ = median of the groups' means + sigma Z: sums and noise are whole steps of one grid."""
        xp, phase, start = self._xp, self._phase, self._point
        with silent():
            sums = xp.stack([self._groups.next_sum(start, self._grid) for _ in range(phase.groups)])
            noise = xp.asarray(self._noise.rounded(start.shape[0], self._grid.scale))
            self._point = start + self._grid.noised(lower_median(xp, sums), noise, self._unit)
        self._done = 1

    def released(self) -> Array:
        return self._point

    def state(self) -> State:
        return {
            "done": self._done,
            "point": self._point,
            "groups": self._groups.state(),
            "noise": self._noise.state(),
        }

    def restore(self, state: State) -> None:
        self._done, self._point = int(state["done"]), self._xp.asarray(state["point"])
        self._groups.restore(state["groups"])
        self._noise.restore(state["noise"])

    def close(self) -> None:
        self._noise.close()


def _checked(plan: Plan, num_parameters: int) -> MedianPhase:
    """The plan's only phase."""
    phase = plan.phases[0]
    if len(plan.phases) != 1 or not isinstance(phase, MedianPhase):
        raise InvalidValue(
            "coordinatewise_mean runs plans of one phase of median_of_means",
            code="invalid_plan",
            pointer=("phases",),
        )
    if plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise InvalidValue("slots are given to groups by position", pointer=("neighboring_relation",))
    if num_parameters > phase.dimension:  # for fewer there is more noise than they need
        raise InvalidValue(
            f"the noise was planned for {phase.dimension} coordinates at most, and the model has {num_parameters}",
            pointer=("phases", 0, "dimension"),
        )
    check_groups(plan.dataset_size, phase.groups, phase.group_size, phase.truncation_radius)
    return phase
