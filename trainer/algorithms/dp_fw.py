"""Full-batch Frank-Wolfe over the l1 ball: a vertex in every step by report-noisy-max, from all records' gradients.

Source: Talwar, Thakurta & Zhang 2015, and Guzman's talk of April 2022, with Gumbel noise and constants of our own
(`calibrators.bassily_guzman`). What rounding does to the sums is in `trainer.clipped_sums`.
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from accounting.events import FullBatch
from calibrators.geometry import L1Ball
from calibrators.phases import VertexSteps
from calibrators.plan import Plan
from trainer.arrays import Array, silent
from trainer.clipped_sums import SMALLEST, ClippedSums, Term
from trainer.loop import State, Task
from trainer.vertices import noisy_vertex, towards


class FrankWolfe:
    """The steps of a plan of full-batch Frank-Wolfe.

    The sum of all slots' clipped gradients is divided by the declared size, whatever the number of rows.

    Args:
        task: Of such a plan.
        phase_type: What its phase is, to the letter: a kind that says more is carried out by who knows what it says.

    Guarantees:
        - a_gradient_moves_by_what_was_charged: between neighbours by at most s L_0 / n in the largest entry, for any
          losses.
        - iterates_stay_in_the_ball: each is a convex combination of the last one and of a vertex.

    Raises:
        InvalidValue: the plan has not the one phase and the l1 ball of this algorithm, or a bound that floating point
            cannot keep.
        Unsupported: the model is not linear.
    """

    def __init__(self, task: Task, phase_type: type[VertexSteps] = VertexSteps) -> None:
        self._phase, self._radius = _checked(task.plan, phase_type)
        self._sums = ClippedSums(task.records, task.model, task.plan.algorithm)
        self._everything = slice(0, task.records.capacity)
        self._noise = task.streams.selections()
        self._xp = task.records.xp
        self._done = 0
        self._point: Array = self._xp.zeros(task.model.num_parameters, dtype=self._xp.float64)

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        phase = self._phase
        with silent():
            gradient = self._sums.mean(self._everything, phase.divisor, Term(self._point, phase.lipschitz))
            vertex = noisy_vertex(gradient, self._radius, self._noise, phase.gumbel_scale)
            self._point = towards(self._point, vertex, 2.0 / (self._done + 2.0))
        self._done += 1

    def released(self) -> Array:
        return self._point

    def state(self) -> State:
        return {"done": self._done, "point": self._point, "noise": self._noise.state()}

    def restore(self, state: State) -> None:
        self._done = int(state["done"])
        self._point = self._xp.asarray(state["point"])
        self._noise.restore(state["noise"])

    def close(self) -> None:
        """Nothing is drawn ahead."""


def _checked(plan: Plan, phase_type: type[VertexSteps]) -> tuple[VertexSteps, float]:
    """The plan's only phase and the radius of its ball."""
    phase, domain = plan.phases[0], plan.domain
    if len(plan.phases) != 1 or type(phase) is not phase_type or not isinstance(domain, L1Ball):
        raise InvalidValue(
            f"{plan.algorithm} runs plans of one phase of {phase_type.kind} in an l1 ball",
            code="invalid_plan",
            pointer=("phases",),
        )
    assert isinstance(phase, phase_type)
    if phase.event.sampling != FullBatch():
        raise InvalidValue("every step reads all records", pointer=("phases", 0, "event", "sampling"))
    if phase.lipschitz < SMALLEST:
        raise InvalidValue(
            f"lipschitz must be at least {SMALLEST:g} to be kept in floating point; rescale the losses",
            pointer=("phases", 0, "lipschitz"),
        )
    return phase, domain.radius
