"""Rounds of noisy gradient steps towards proximal points, each on records of its own; a random round's start released.

Source: Bassily, Guzman & Menart 2021, weakly convex losses, with full batches and constants of our own
(`calibrators.bassily_guzman.proximal_point`).
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.geometry import L2Ball
from calibrators.phases import ProximalPhase
from calibrators.plan import Plan
from trainer.arrays import Array
from trainer.blocks import BlockSteps, check_blocks
from trainer.localisation import project_near
from trainer.loop import State, Task
from trainer.release import rule_for


class ProximalRounds(BlockSteps):
    """The steps of a plan of proximal rounds: each a block of `BlockSteps`, which ends at the average of its points.

    Guarantees:
        - one_record_moves_a_rounds_sums_by_at_most_the_bound: which is C, or 2 C where a record is replaced.
        - points_stay_near_their_rounds_start: within the radius, and in the domain.
        - every_round_is_alike_likely_to_be_released: drawn before the first step, and without looking at rows.

    Raises:
        InvalidValue: the plan has not the one phase of this algorithm, takes more than a run can do, or has bounds that
            floating point cannot keep.
    """

    def __init__(self, task: Task) -> None:
        self._phase, self._domain = _checked(task.plan)
        phase = self._phase
        super().__init__(task, (phase.records,) * phase.rounds, (phase.inner_iterations,) * phase.rounds)
        self._average: Array = 0.0 * self._point
        self._rule = rule_for(task.plan.release, task.plan.iterations, self._point, task.streams.release)

    def _moved(self, block: int) -> Array:
        """Pi(x_k - 2/(omega (k+1)) (noisy mean + beta (x_k - w'))), and at last the sum of 2k x_k / (T (T+1))."""
        phase, point, centre = self._phase, self._point, self._centre
        assert phase.weak_convexity is not None, "as was checked"
        assert phase.regularizer is not None, "as was checked"
        assert phase.radius is not None, "as was checked"
        # What is kept is the start of a step's round: as rounds have equally many steps, each is alike likely.
        self._rule.see(self._done, centre, point)
        steps = phase.inner_iterations
        k = self._done - block * steps + 1
        before = 0.0 * point if k == 1 else self._average
        self._average = before + 2.0 * k / (steps * (steps + 1.0)) * point
        direction = self._noisy_mean(block, point, phase.max_grad_norm, phase.noise_stddev_on_mean)
        direction = direction + phase.regularizer * (point - centre)
        if k == steps:  # where the last step leads to has no part in the average; it is charged, and taken
            return self._average
        step_size = 2.0 / (phase.weak_convexity * (k + 1.0))
        return project_near(self._domain, centre, phase.radius, self._task.records.xp, point - step_size * direction)

    def released(self) -> Array:
        return self._rule.released()

    def state(self) -> State:
        return super().state() | {"average": self._average, "release": self._rule.state()}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._average = self._task.records.xp.asarray(state["average"])
        self._rule.restore(state["release"])


def _checked(plan: Plan) -> tuple[ProximalPhase, L2Ball | None]:
    """The plan's only phase, and its domain."""
    phase, domain = plan.phases[0], plan.domain
    if len(plan.phases) != 1 or not isinstance(phase, ProximalPhase) or not isinstance(domain, L2Ball | None):
        raise InvalidValue(
            f"{plan.algorithm} runs plans of one phase of proximal_phases, in an l2 ball if in any domain",
            code="invalid_plan",
            pointer=("phases",),
        )
    if plan.penalty is not None:
        raise InvalidValue("proximal rounds have no penalty but their own", pointer=("penalty",))
    check_blocks(plan, phase)
    return phase, domain
