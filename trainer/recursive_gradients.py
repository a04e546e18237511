r"""This module takes Frank-Wolfe steps over the l1 ball, with a gradient estimate that is carried on from batch to
batch.

A record's contribution to a mean stays below its bound by the margin of `trainer.grid`, half of which pays for sums.
The other half pays for carrying the estimate on: each step rounds the estimate by 2^-53 of its size, and the added
terms by a little more; the rounding error of one step then shrinks by (1 - eta) at each step, as a record's part does.
So between neighbours, rounding puts estimates off by at most E = (3 + 16 eta) 2^-53 |d| / eta, where |d| <= L_0 + c /
eta for changes of gradients of at most c. By Minkowski's inequality a record's part, in the root of the sum of squared
ranges or in their sum, is then at most M E sqrt(T) or M E T above what it would be. A plan is refused if that excess is
more than half the margin of the charge.
"""

from __future__ import annotations

import math

from accounting.errors import InvalidValue
from accounting.events import PureDp
from calibrators.bassily_guzman.recursion import Recursion
from calibrators.bassily_guzman.tree import Problem
from calibrators.geometry import L1Ball
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.plan import Plan
from trainer.arrays import Array, silent
from trainer.clipped_sums import ClippedSums, Term
from trainer.clipping import MARGINS
from trainer.execution import Proposal, check_lipschitz
from trainer.loop import Task
from trainer.release import rule_for
from trainer.slots import SecretSlots
from trainer.structured_steps import StructuredSteps, check_kept, check_positions, domain_of, only_phase
from trainer.vertices import noisy_vertex, towards

_ROUNDING = 2.0**-53


class RecursiveFrankWolfe(StructuredSteps):
    """The steps of a plan of recursive selections.

    A permutation gives slots to steps. It is drawn before the first step, from the declared size alone. A slot without
    a row contributes nothing, and rows beyond the declared size are never read.

    Args:
        task: The task of a plan of one phase of recursive selections in an l1 ball.

    Guarantees:
        - no_record_is_read_twice: each slot belongs to one step, or to none.
        - an_estimate_moves_by_what_was_charged: given the selections, a record moves the estimate of its own step by at
          most s w/M in the largest entry, for any losses; at each later step this shrinks by the factor 1 - eta.
        - iterates_stay_in_the_ball: each iterate is a convex combination of the last one and of a vertex.

    Raises:
        InvalidValue: If the plan does not have the one phase and the l1 ball, or has bounds that floating point cannot
            keep.
        Unsupported: If the model is not linear.
    """

    kept = (*StructuredSteps.kept, "_slots", "_earlier", "_estimate", "_rule")

    def __init__(self, task: Task) -> None:
        super().__init__(task, task.streams.selections())
        self._phase, self._radius = _checked(task.plan)
        self._sums = ClippedSums(task.records, task.model, task.plan.algorithm)
        self._slots = SecretSlots(task)
        self._earlier, self._estimate = self._point, self._point
        self._rule = rule_for(task.plan.release, task.plan.iterations, self._point, task.streams.release)

    def step(self) -> None:
        phase, start = self._phase, self._point
        with silent():
            self._estimate = self._first() if self._done == 0 else self._corrected()
            vertex = noisy_vertex(self._estimate, self._radius, self._noise, phase.gumbel_scale)
            self._earlier, self._point = start, towards(start, vertex, phase.step_size)
        self._rule.see(self._done, start, self._point)
        self._done += 1

    def released(self) -> Array:
        return self._rule.released()

    def _first(self) -> Array:
        """Return the mean gradient over the first batch."""
        size = self._phase.first_batch
        return self._sums.mean(self._slots.take(size), size, Term(self._point, self._phase.lipschitz))

    def _corrected(self) -> Array:
        """Return (1 - eta)(d + mean change) + eta mean gradient, in a form in which only the last addition rounds d.

        The distance of the last two points is public, since the selections are. The planned distance remains a bound.
        """
        phase, xp = self._phase, self._xp
        slots, eta = self._slots.take(phase.batch), phase.step_size
        distance = min(float(xp.sum(xp.abs(self._point - self._earlier))), eta * 2.0 * self._radius)
        bound = min(2.0 * phase.lipschitz, phase.smoothness * distance)
        change = self._sums.mean(slots, phase.batch, Term(self._point, bound, self._earlier))
        gradient = self._sums.mean(slots, phase.batch, Term(self._point, phase.lipschitz))
        return self._estimate + (eta * (gradient - self._estimate) + (1.0 - eta) * change)


def rounding_is_paid_for(phase: RecursiveSelections, radius: float) -> bool:
    """Return whether the rounding of the estimates is within half the margin; see the docstring of the module."""
    recursion = Recursion(phase.selections, phase.first_batch, phase.batch, phase.step_size)
    problem, eta = Problem(phase.lipschitz, phase.smoothness, 2.0 * radius), phase.step_size
    largest = phase.lipschitz + recursion.change_bound(problem) / eta
    off = problem.diameter * (3.0 + 16.0 * eta) * _ROUNDING * largest / eta
    if isinstance(phase.event.mechanism, PureDp):
        return off * phase.selections <= 0.5 * MARGINS["float64"] * recursion.pure_width(problem)
    return off * math.sqrt(phase.selections) <= 0.5 * MARGINS["float64"] * recursion.zcdp_width(problem)


def check_rounding(proposal: Proposal) -> None:
    """Refuse a Lipschitz constant that floating point cannot keep, and steps whose rounding exceeds half the margin.

    Raises:
        InvalidValue: As `check_lipschitz` does, or if the estimates round by more than half the margin.
    """
    check_lipschitz(proposal)
    radius = proposal.plan.domain.radius if isinstance(proposal.plan.domain, L1Ball) else 0.0
    for phase in proposal.plan.phases:
        assert isinstance(phase, RecursiveSelections), "plans of recursive gradients have no other phases"
        if not rounding_is_paid_for(phase, radius):
            raise InvalidValue(
                "the rounding error of so many steps of this size exceeds the margin that is kept for rounding; "
                "ask for fewer steps",
                pointer=("iterations",),
            )


def _checked(plan: Plan) -> tuple[RecursiveSelections, float]:
    """Return the plan's only phase and the radius of its ball."""
    where = " in an l1 ball"
    phase = only_phase(plan, RecursiveSelections, where=where)
    radius = domain_of(plan, L1Ball, RecursiveSelections, where).radius
    check_positions(plan, "slots are given to steps by position")
    if phase.first_batch + (phase.selections - 1) * phase.batch > plan.dataset_size:
        raise InvalidValue("the batches need more records than are declared", pointer=("phases", 0, "batch"))
    check_kept("lipschitz", phase.lipschitz)
    if not rounding_is_paid_for(phase, radius):
        raise InvalidValue(
            "the rounding error of so many steps of this size exceeds the margin that is kept for rounding; use "
            "fewer steps",
            pointer=("phases", 0, "selections"),
        )
    return phase, radius
