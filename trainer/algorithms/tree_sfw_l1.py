r"""Tree Frank-Wolfe over the l1 ball: averages of gradients along binary trees, report-noisy-max at every leaf.

One step is one leaf. Leaf l of a tree of depth tau first refreshes one node: the root where l = 0, else the right child
at depth tau less the number of trailing zero bits of l; the nodes below it are left children, which copy it. So one
estimate and one entry point per depth are all that is kept. Source: Asi, Feldman, Koren & Talwar 2021
(arXiv 2103.01516), and the talk of Bassily, Guzman & others, with constants of our own (`calibrators.bassily_guzman`).

Why a margin of 1e-5 covers rounding. All sums are in float64, in pieces of at most `PIECE` records, added in order: the
sum of m contributions of size c is off by at most (PIECE + m / PIECE) m 2^-53 c, twice that between neighbours, which
is below 1e-5 c up to m = 2^22. What a record contributes is a function of the record and of the points alone, bit by
bit, so that the other contributions are those of the neighbour. Gumbel noise is float64's: its upper tail ends at 36
scales, and no claim is made about events rarer than that or about the last bits of what is released.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue, Unsupported
from accounting.relations import NeighboringRelation
from calibrators.bassily_guzman.tree import movement
from calibrators.geometry import L1Ball
from calibrators.phases import TreePhase
from calibrators.plan import Plan
from trainer.arrays import Array, as_float64, silent
from trainer.clipping import MARGINS, SMALLEST_MAX_GRAD_NORMS, clip_factors
from trainer.gradients import PIECE_ROWS, Layer, OuterProducts
from trainer.loop import State, Task
from trainer.models import LinearModel, Model
from trainer.records import Block
from trainer.samplers import occupied

#: Records summed by one product.
PIECE = 8 * PIECE_ROWS
#: Records at a root, up to which the margin covers rounding.
MAX_RECORDS_PER_TREE = 1 << 22
_MARGIN = MARGINS["float64"]
_SMALLEST = SMALLEST_MAX_GRAD_NORMS["float64"]


class TreeFrankWolfe:
    """The steps of a plan of tree Frank-Wolfe, one leaf each.

    Slots are given to nodes by a permutation that is drawn before the first step from the declared size alone; a slot
    without a row contributes nothing, and rows beyond the declared size are never read.

    Guarantees:
        - no_record_is_read_twice: each slot belongs to one node of one tree, or to none.
        - a_node_moves_by_what_was_charged: between neighbours the estimate of a node at depth j differs by at most
          s c_j 2^j / b in the largest entry, for any losses, and not at all where the record is another node's.
        - iterates_stay_in_the_ball: each is a convex combination of the last one and of a vertex.

    Raises:
        InvalidValue: the plan has not the one phase and the l1 ball of this algorithm, or a bound that floating point
            cannot keep.
        Unsupported: the model's gradients are no outer products of one layer.
    """

    def __init__(self, task: Task) -> None:
        self._phase, self._radius = _checked(task.plan)
        self._model = _one_layer(task.model)
        self._records = task.records
        self._noise = task.streams.gumbel_noise()
        slots = np.random.Generator(task.streams.sampling).permutation(task.plan.dataset_size)
        self._order: npt.NDArray[np.intp] = slots.astype(np.intp)
        self._taken = 0
        self._done = 0
        self._point: Array = task.records.xp.zeros(task.model.num_parameters, dtype=task.records.xp.float64)
        self._estimates: list[Array] = []
        self._entries: list[Array] = []

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        tree = (self._done + 2).bit_length() - 1
        leaf = self._done + 2 - (1 << tree)
        with silent():
            self._refresh(tree, 0 if leaf == 0 else tree - _trailing_zeros(leaf))
            self._move(self._phase.noise_scales[tree - 1])

    def released(self) -> Array:
        return self._point

    def state(self) -> State:
        return {
            "done": self._done,
            "taken": self._taken,
            "order": self._order,
            "point": self._point,
            "estimates": {str(depth): estimate for depth, estimate in enumerate(self._estimates)},
            "entries": {str(depth): entry for depth, entry in enumerate(self._entries)},
            "noise": self._noise.state(),
        }

    def restore(self, state: State) -> None:
        xp = self._records.xp
        self._done, self._taken = int(state["done"]), int(state["taken"])
        self._order = np.asarray(state["order"], dtype=np.intp)
        self._point = xp.asarray(state["point"])
        self._estimates, self._entries = (
            [xp.asarray(state[name][str(depth)]) for depth in range(len(state[name]))]
            for name in ("estimates", "entries")
        )
        self._noise.restore(state["noise"])

    def close(self) -> None:
        """Nothing is drawn ahead."""

    def _refresh(self, tree: int, depth: int) -> None:
        """Enter the node at this depth, and the left children below it."""
        if depth == 0:
            estimate = self._mean_gradient()
        else:
            estimate = self._estimates[depth - 1] + self._mean_change(self._entries[depth - 1], depth)
        below = tree + 1 - depth
        self._estimates = self._estimates[:depth] + [estimate] * below
        self._entries = self._entries[:depth] + [self._point] * below

    def _move(self, noise_scale: float) -> None:
        """x + 2/(k+2) (u - x) for the vertex u = +-D e_i of least noisy score."""
        xp, estimate = self._records.xp, self._estimates[-1]
        scores = self._radius * xp.concat([estimate, -estimate])
        noise = xp.asarray(self._noise.gumbel((2 * estimate.shape[0],)))
        chosen = int(xp.argmin(scores - noise_scale * noise))
        sign, index = (1.0, chosen) if chosen < estimate.shape[0] else (-1.0, chosen - estimate.shape[0])
        step_size = 2.0 / (self._done + 2.0)
        point = (1.0 - step_size) * self._point
        point[index] = point[index] + step_size * sign * self._radius
        self._point = point
        self._done += 1

    def _mean_gradient(self) -> Array:
        """The mean gradient at the current point over a root's records, each clipped to L_0 in the largest entry."""
        point = self._in_dtype(self._point)
        return self._mean(
            self._phase.records_per_tree,
            self._phase.lipschitz,
            lambda block: self._layer(point, block),
        )

    def _mean_change(self, entry: Array, depth: int) -> Array:
        """The mean change of the gradient since ``entry`` over a right child's records, each clipped.

        The distance is public, since the selections are; the one that was planned for stays a bound.
        """
        xp = self._records.xp
        distance = min(float(xp.sum(xp.abs(self._point - entry))), movement(2.0 * self._radius, depth))
        bound = min(2.0 * self._phase.lipschitz, self._phase.smoothness * distance)
        here, there = self._in_dtype(self._point), self._in_dtype(entry)

        def change(block: Block) -> Layer:
            new, old = self._layer(here, block), self._layer(there, block)
            return Layer(new.inputs, new.deltas - old.deltas, new.has_bias)

        return self._mean(self._phase.records_per_tree >> depth, bound, change)

    def _mean(self, size: int, bound: float, layer_of: Callable[[Block], Layer]) -> Array:
        """The mean over the next ``size`` slots of outer products of largest entry at most ``bound``."""
        xp = self._records.xp
        total = xp.zeros(self._point.shape, dtype=xp.float64)
        rows = occupied(self._records.positions, self._order[self._taken : self._taken + size])
        self._taken += size
        if bound < _SMALLEST:  # of changes alone, where the point has hardly moved
            return total
        for start in range(0, rows.size, PIECE):
            block = self._records.block(rows[start : start + PIECE], self._model.piece_rows)
            gradients = OuterProducts(xp, (layer_of(block),))
            sizes = gradients.dual_norms()
            usable = xp.isfinite(sizes) & (sizes > 0.0)
            if not bool(xp.all(usable)):
                gradients, sizes = gradients.keep(usable), xp.where(usable, sizes, xp.ones_like(sizes))
            total = total + gradients.weighted_sum(clip_factors(sizes, bound, _MARGIN) * block.valid, wide=True)
        return total / size

    def _layer(self, point: Array, block: Block) -> Layer:
        """The gradients' only layer, with derivatives in float64."""
        [layer] = self._model.gradients(point, block).layers
        return Layer(as_float64(block.xp, layer.inputs), as_float64(block.xp, layer.deltas), layer.has_bias)

    def _in_dtype(self, point: Array) -> Array:
        return self._records.xp.astype(point, self._records.all.features.dtype)


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1


def _checked(plan: Plan) -> tuple[TreePhase, float]:
    """The plan's only phase and the radius of its ball."""
    phase, domain = plan.phases[0], plan.domain
    if len(plan.phases) != 1 or not isinstance(phase, TreePhase) or not isinstance(domain, L1Ball):
        raise InvalidValue(
            "tree_sfw_l1 runs plans of one phase of vertex_trees in an l1 ball",
            code="invalid_plan",
            pointer=("phases",),
        )
    if plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise InvalidValue("slots are given to nodes by position", pointer=("neighboring_relation",))
    if phase.lipschitz < _SMALLEST:
        raise InvalidValue(
            f"lipschitz must be at least {_SMALLEST:g} to be kept in floating point; rescale the losses",
            pointer=("phases", 0, "lipschitz"),
        )
    if phase.records_per_tree > MAX_RECORDS_PER_TREE:
        raise InvalidValue(
            f"sums of more than {MAX_RECORDS_PER_TREE} records are not known to be exact enough",
            pointer=("phases", 0, "records_per_tree"),
        )
    return phase, domain.radius


def _one_layer(model: Model) -> LinearModel:
    if not isinstance(model, LinearModel):
        raise Unsupported(
            f"tree_sfw_l1 clips changes of gradients in the l_inf norm, which factorises for linear models alone; "
            f"{model.kind} is none",
            code="unsupported_model",
            pointer=("model", "kind"),
        )
    return model
