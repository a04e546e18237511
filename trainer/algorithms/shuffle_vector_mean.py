"""The clipped mean from shuffled bits (P_vec): Algorithms 10, 11 and 14 of Lowy & Razaviyayn 2023 (arXiv 2209.07403).

A record is minus its gradient at the starting point: for the model `mean`, the record itself. All declared users send:
a slot without a row sends as a record of zeros does. Only the sum of their integers leaves the records, a whole number
for each coordinate, so no record changes the rounding of others. Clipping keeps the margin of `trainer.clipping`, which
pays for the rounding of norms and of (x + C) g / (2 C).
"""

from __future__ import annotations

import numpy as np

from accounting.errors import InvalidValue
from calibrators.algorithm import ExampleRequest
from calibrators.phases.shuffled_counts import ShuffledCounts
from trainer.arrays import Array, cleared, silent, to_host
from trainer.clipping import clip_factors, margin
from trainer.execution import MEANS, READS_ONCE, Execution, Proposal, check_max_grad_norm
from trainer.loop import Task
from trainer.shuffle.bits import BitProtocol
from trainer.shuffle.messages import check_bits, check_messages
from trainer.structured_steps import StructuredSteps, check_kept, initial_point, only_phase
from trainer.sums import narrowed

#: The most numbers of records that are read at a time.
_BLOCK_NUMBERS = 1 << 22


class ShuffleVectorMean(StructuredSteps):
    """The only step of a plan of `ShuffledCounts`.

    Guarantees:
        - integers_of_neighbours_are_near: within the l2 distance that the phase charges for, whatever the records are.
        - everybody_sends: as many bits are drawn whatever the number of rows.

    Raises:
        InvalidValue: If the plan does not have the one phase of this algorithm, or has another relation; if floating
            point cannot keep a threshold; or if there are more bits than a run draws.
    """

    kept = ("_done", "_point", "_coins")

    def __init__(self, task: Task) -> None:
        self._phase = _checked(task)
        super().__init__(task, task.streams.coins(), initial_point(task))
        self._protocol = BitProtocol(self._phase.max_grad_norm, self._phase.levels, self._phase.noise_bits)
        self._coins = self._noise
        # There may be fewer coordinates than were planned; they need fewer messages and cost less.
        self._width = task.model.num_parameters

    def step(self) -> None:
        phase, xp = self._phase, self._task.records.xp
        with silent():
            ones = self._integers() + self._coins.heads(phase.users * phase.noise_bits, self._width)
            mean = self._protocol.sums(ones, phase.users) / phase.users
            self._point = self._point + xp.asarray(mean)
        self._done += 1

    def _integers(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the sums of all users' integers: shape (d,)."""
        phase, xp = self._phase, self._task.records.xp
        total = np.zeros(self._width, dtype=np.int64)
        size = max(1, min(self._task.model.block_rows, _BLOCK_NUMBERS // self._width))
        for start in range(0, phase.users, size):
            stop = min(start + size, phase.users)
            uniforms = xp.asarray(self._coins.uniforms((stop - start, self._width)))
            integers = self._protocol.rounded(xp, self._vectors(start, stop), uniforms)
            total += to_host(xp.sum(integers, axis=0))
        return total

    def _vectors(self, start: int, stop: int) -> Array:
        """Return clipped records, or zeros, of the users in these slots: shape (stop - start, d), float64."""
        phase, task = self._phase, self._task
        xp = task.records.xp
        block = task.records.block(task.records.positions[start:stop])
        gradients = task.model.gradients(narrowed(task.records, self._point, task.plan.dtype), block)
        norms = gradients.norms()
        usable = xp.isfinite(norms)
        norms = xp.where(usable, norms, xp.ones_like(norms))
        factors = clip_factors(norms, phase.max_grad_norm, margin(task.plan.dtype))
        factors = cleared(xp, factors, xp.logical_not(usable & block.valid))
        return -gradients.keep(usable).entries() * factors[:, None]


def _checked(task: Task) -> ShuffledCounts:
    plan, phase = task.plan, only_phase(task.plan, ShuffledCounts)
    check_messages(plan, phase)
    if phase.users != plan.dataset_size or phase.dimension < task.model.num_parameters:
        raise InvalidValue(
            f"every declared record must send every coordinate: the plan has {plan.dataset_size} records with "
            f"{task.model.num_parameters} numbers, but the phase has {phase.users} with {phase.dimension}",
            code="invalid_plan",
            pointer=("phases", 0),
        )
    check_kept("max_grad_norm", phase.max_grad_norm, plan.dtype, "features")
    check_bits(plan)
    return phase


def check_request(proposal: Proposal) -> None:
    """Refuse a clip threshold that floating point cannot keep, and more messages than a run draws.

    Raises:
        InvalidValue: As `check_max_grad_norm` and `check_bits` do.
    """
    check_max_grad_norm(proposal)
    check_bits(proposal.plan)


EXECUTION = Execution(
    phase_type=ShuffledCounts,
    make=ShuffleVectorMean,
    check=check_request,
    models=MEANS,
    float64_because=READS_ONCE,
    requests={
        "shuffled_mean": ExampleRequest(
            "The same mean by the shuffle protocol: bits of every user, of which only the counts are seen",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "mean"},
                "gradient_bound": {"kind": "clip", "max_grad_norm": 4.0},
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
            },
        )
    },
)
