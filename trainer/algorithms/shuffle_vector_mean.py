"""The clipped mean from shuffled bits (P_vec): Algorithms 10, 11 and 14 of Lowy & Razaviyayn 2023 (arXiv 2209.07403).

A record is minus its gradient at the starting point: for the model `mean`, the record itself. All declared users send:
a slot without a row sends as a record of zeros does. What leaves the records is a whole number for each coordinate,
the sum of their integers, so that no record changes how others are rounded. Clipping keeps the margin of
`trainer.clipping`, which pays for the rounding of norms and of (x + C) g / (2 C).
"""

from __future__ import annotations

import numpy as np

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.phases import ShuffledCounts, ShuffledMedians
from calibrators.plan import Plan
from trainer.arrays import Array, silent, to_host
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS, clip_factors, margin
from trainer.loop import State, Task
from trainer.shuffle.bits import BitProtocol
from trainer.sums import narrowed

#: Bits of all users and coordinates, at most: about a minute of one core, at 5e9 a second.
MAX_MESSAGE_BITS = 3 * 10**11
#: Numbers of the records that are read at a time.
_BLOCK_NUMBERS = 1 << 22


class ShuffleVectorMean:
    """The only step of a plan of `ShuffledCounts`.

    Guarantees:
        - integers_of_neighbours_are_near: in the l2 norm by what the phase charges for, whatever the records are.
        - everybody_sends: as many bits are drawn whatever the number of rows.

    Raises:
        InvalidValue: the plan has not the one phase of this algorithm or is not of its relation; a threshold that
            floating point cannot keep; more bits than a run draws.
    """

    def __init__(self, task: Task) -> None:
        self._phase = _checked(task)
        self._task = task
        self._protocol = BitProtocol(self._phase.max_grad_norm, self._phase.levels, self._phase.noise_bits)
        self._coins = task.streams.coins()
        xp = task.records.xp
        self._point: Array = xp.asarray(task.model.initial(task.streams.initialisation), dtype=xp.float64)
        self._done = 0
        # At most as many as were planned for: fewer coordinates have a part in fewer messages, and cost less.
        self._width = task.model.num_parameters

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        phase, xp = self._phase, self._task.records.xp
        with silent():
            ones = self._integers() + self._coins.heads(phase.users * phase.noise_bits, self._width)
            mean = self._protocol.sums(ones, phase.users) / phase.users
            self._point = self._point + xp.asarray(mean)
        self._done += 1

    def _integers(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The sums of all users' integers: shape (d,)."""
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
        """Of the users in these slots: clipped records, or zeros; shape (stop - start, d), float64."""
        phase, task = self._phase, self._task
        xp = task.records.xp
        block = task.records.block(task.records.positions[start:stop])
        gradients = task.model.gradients(narrowed(task.records, self._point, task.plan.dtype), block)
        norms = gradients.norms()
        usable = xp.isfinite(norms)
        norms = xp.where(usable, norms, xp.ones_like(norms))
        factors = clip_factors(norms, phase.max_grad_norm, margin(task.plan.dtype))
        factors = xp.where(usable & block.valid, factors, xp.zeros_like(factors))
        return -gradients.keep(usable).entries() * factors[:, None]

    def released(self) -> Array:
        return self._point

    def state(self) -> State:
        return {"done": self._done, "point": self._point, "coins": self._coins.state()}

    def restore(self, state: State) -> None:
        self._done = int(state["done"])
        self._point = self._task.records.xp.asarray(state["point"])
        self._coins.restore(state["coins"])

    def close(self) -> None:
        """Nothing is drawn ahead."""


def check(plan: Plan) -> None:
    """Refuse more messages than a run draws.

    Raises:
        InvalidValue: the phase has more bits than `MAX_MESSAGE_BITS`.
    """
    for phase in plan.phases:
        if isinstance(phase, ShuffledCounts | ShuffledMedians) and phase.message_bits > MAX_MESSAGE_BITS:
            raise InvalidValue(
                f"the messages have {phase.message_bits:.3g} bits ({phase.batch_size} records, {phase.dimension} "
                f"coordinates, {phase.levels + phase.noise_bits} bits each), and a run draws at most "
                f"{MAX_MESSAGE_BITS:.0e}: ask for a larger epsilon, or trust a curator with "
                "clipped_mean or coordinatewise_mean",
                pointer=("target",),
            )


def _checked(task: Task) -> ShuffledCounts:
    plan, phase = task.plan, task.plan.phases[0]
    if len(plan.phases) != 1 or not isinstance(phase, ShuffledCounts):
        raise InvalidValue(
            f"{plan.algorithm} runs plans of one phase of shuffled_counts", code="invalid_plan", pointer=("phases",)
        )
    if plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise InvalidValue("messages are counted, so that n is public", pointer=("neighboring_relation",))
    if phase.change < plan.neighboring_relation.sensitivity:
        raise InvalidValue(
            "the phase charges for smaller changes of a record than the relation allows",
            pointer=("phases", 0, "change"),
        )
    if phase.users != plan.dataset_size or phase.dimension < task.model.num_parameters:
        raise InvalidValue(
            f"every declared record sends every coordinate: {plan.dataset_size} records with "
            f"{task.model.num_parameters} numbers, and the phase has {phase.users} with {phase.dimension}",
            code="invalid_plan",
            pointer=("phases", 0),
        )
    smallest = SMALLEST_MAX_GRAD_NORMS[task.plan.dtype]
    if phase.max_grad_norm < smallest:
        raise InvalidValue(
            f"max_grad_norm must be at least {smallest:g} to be kept in {task.plan.dtype}; rescale the features",
            pointer=("phases", 0, "max_grad_norm"),
        )
    check(plan)
    return phase
