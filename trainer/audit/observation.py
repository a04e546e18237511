"""Runs of the real trainer on canaries, seen as the accountant assumes: with every point that a step reaches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from calibrators.plan import BoundedSteps, CorrelatedSteps, Plan
from trainer.arrays import to_host
from trainer.audit.canaries import model, places, rows
from trainer.audit.scores import Floats, Observation
from trainer.execution import Coordinates
from trainer.loop import GradientSteps, Task
from trainer.records import prepare
from trainer.run import execution_of, usual_capacity
from trainer.samplers import TurnsSampler
from trainer.streams import random_streams


def observe(
    plan: Plan,
    members: npt.NDArray[np.bool_],
    design: str,
    seed: int | None,
    before_step: Callable[[], None] = lambda: None,
) -> Observation:
    """Carry out the plan on the canaries that take part, as `trainer.run` does, and return what an attacker observes.

    Args:
        plan: An executable plan.
        members: Whether each canary takes part, shape (m,).
        design: A name in `canaries.DESIGNS`.
        seed: The seed of the run's randomness; None draws from the operating system.
        before_step: A function that is called before every step. An exception from it ends the run.

    Raises:
        InvalidValue: If the plan cannot be carried out.
        Unsupported: If there is no trainer of this name, or no sampler for a kind of sampling in the plan.
    """
    features = rows(plan, members, design)
    trained, streams = model(members.size), random_streams(seed)
    # The declared size is public. It is at least the number of canaries plus one other record, even if the plan
    # declares fewer records.
    capacity = max(usual_capacity(plan), members.size + 1)
    records = prepare(trained, features, np.zeros(len(features)), plan.dtype, capacity, streams.slots)
    trainer = execution_of(plan).make(Task(plan, trained, records, streams))
    slots = records.positions[places(plan, members, design)]
    try:
        path = [to_host(trainer.point)] if isinstance(trainer, GradientSteps) else []
        turns: list[npt.NDArray[np.bool_]] = []
        while trainer.steps_done < plan.iterations:
            before_step()
            trainer.step()
            if isinstance(trainer, GradientSteps):
                path.append(to_host(trainer.point))
                if isinstance(trainer.sampler, TurnsSampler):
                    turns.append(trainer.sampler.had_the_turn(slots))
        released = to_host(trainer.released())
    finally:
        trainer.close()
    return Observation(-released, noisy_sums(plan, np.array(path)), np.array(turns) if turns else None)


def noisy_sums(plan: Plan, path: Floats) -> Floats | None:
    """Return the noisy sum of each step over the contribution bound, from the points x_0, ..., x_T of a run.

    Returns:
        The sums, shape (T, m); None if the algorithm's points do not determine them.
    """
    subtracts = execution_of(plan).coordinates is Coordinates.SUBTRACTED
    if not subtracts or plan.domain is not None or plan.penalty is not None:
        return None
    sums: Floats = -np.diff(path, axis=0)
    first = 0
    for phase in plan.phases:
        assert isinstance(phase, BoundedSteps), "others do not subtract their sums"
        sizes = np.array([phase.step_size_at(index) for index in range(phase.steps)])
        part = sums[first : first + phase.steps]
        part /= sizes[:, None]
        if isinstance(phase, CorrelatedSteps):
            part[1:] -= phase.momentum * part[:-1]
        part *= phase.divisor / phase.gradient_bound.contribution_bound
        first += phase.steps
    return sums
