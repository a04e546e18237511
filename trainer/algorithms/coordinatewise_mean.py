"""The coordinate-wise median of means of all records, with one draw of Gaussian noise.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithm 12.
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.algorithm import ExampleRequest
from calibrators.phases.median_of_means import MedianPhase
from calibrators.plan import Plan
from trainer.arrays import silent
from trainer.execution import MEANS, READS_ONCE, Execution, check_truncation_radius
from trainer.loop import Task
from trainer.median_of_means import ClampedGroups, check_groups, lower_median
from trainer.structured_steps import StructuredSteps, check_positions, initial_point, only_phase


class CoordinatewiseMean(StructuredSteps):
    """The only step of a plan: it moves from the start by the noisy medians. For the model `mean`, that leads from 0 to
    the mean.

    Guarantees:
        - one_record_moves_the_medians_by_at_most_what_was_charged: by tau / b in each coordinate, or by 2 tau / b if it
          is replaced, for any records.
        - noise_is_added_whatever_the_records_are.

    Raises:
        InvalidValue: If the plan does not have the one phase of this algorithm, has one that was made for fewer
            parameters, or has numbers that the declared records or floating point have no room for.
    """

    kept = (*StructuredSteps.kept, "_groups")

    def __init__(self, task: Task) -> None:
        self._phase = _checked(task.plan, task.model.num_parameters)
        super().__init__(task, task.streams.gaussian_noise(), initial_point(task))
        self._groups = ClampedGroups(task, self._phase.group_size, self._phase.truncation_radius)
        self._unit = self._phase.truncation_radius / self._phase.group_size
        self._grid = self._groups.grid(self._phase.noise_stddev / self._unit)

    def step(self) -> None:
        """Take nu~ = median of the groups' means + sigma Z: sums and noise are whole steps of one grid."""
        xp, phase, start = self._xp, self._phase, self._point
        with silent():
            sums = xp.stack([self._groups.next_sum(start, self._grid) for _ in range(phase.groups)])
            noise = xp.asarray(self._noise.rounded(start.shape[0], self._grid.scale))
            self._point = start + self._grid.noised(lower_median(xp, sums), noise, self._unit)
        self._done = 1

    def close(self) -> None:
        self._noise.close()


def _checked(plan: Plan, num_parameters: int) -> MedianPhase:
    """Return the plan's only phase."""
    phase = only_phase(plan, MedianPhase)
    check_positions(plan, "slots are given to groups by position")
    if num_parameters > phase.dimension:  # with fewer coordinates, there is more noise than they need
        raise InvalidValue(
            f"the noise was planned for at most {phase.dimension} coordinates, but the model has {num_parameters}",
            pointer=("phases", 0, "dimension"),
        )
    check_groups(plan.dataset_size, phase.groups, phase.group_size, phase.truncation_radius)
    return phase


EXECUTION = Execution(
    phase_type=MedianPhase,
    make=CoordinatewiseMean,
    check=check_truncation_radius,
    models=MEANS,
    float64_because=READS_ONCE,
    requests={
        "median_of_means": ExampleRequest(
            "The coordinate-wise median of means of all features, which lie in [-1, 1] once they are scaled",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "mean"},
                "target": {"kind": "zcdp", "rho": 2},
                "assumptions": {"truncation_radius": 1, "num_groups": 5},
            },
        )
    },
)
