r"""Noisy Frank-Wolfe over an l_p ball in one pass: sums of noisy changes of the gradient, or trees of them.

Source: Bassily, Guzman & Nandi 2021, Algorithm 3 (`Sums`); the extended version and Asi, Feldman, Koren & Talwar 2021
(trees), with constants of our own (`calibrators.bassily_guzman`).
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.bassily_guzman.tree import Trees, movement
from calibrators.phases import EstimatePhase, GradientTreePhase
from calibrators.plan import Plan
from trainer.arrays import Array, namespace_of, silent
from trainer.clipped_means import ClippedMeans
from trainer.frank_wolfe import EstimateFrankWolfe, Fresh, check_lp_plan
from trainer.loop import State, Task, Trainer
from trainer.lp_geometry import least_in_ball, norm
from trainer.slots import SecretSlots


def make(task: Task) -> Trainer:
    """The trainer of the plan's variant."""
    if isinstance(task.plan.phases[0], GradientTreePhase):
        return TreeOfGradients(task)
    return EstimateFrankWolfe(task, {"sums": Sums, "prefix_tree": PrefixTree})


class Sums:
    """d_t = d_(t-1) + mean change + noise: the noise of t changes adds up."""

    def __init__(self, phase: EstimatePhase) -> None:
        self._estimate: Array = None

    def start(self, estimate: Array) -> None:
        self._estimate = estimate

    def advance(self, step: int, fresh: Fresh, noise: Array) -> Array:
        self._estimate = self._estimate + (fresh.change() + noise)
        return self._estimate

    def state(self) -> State:
        return {} if self._estimate is None else {"estimate": self._estimate}

    def restore(self, state: State) -> None:
        self._estimate = state.get("estimate")


class PrefixTree:
    """d_t = d_0 + the noisy sums of the nodes that make up 1..t, one for each binary digit 1 of t.

    Step t completes one node: that of the changes of steps (t - 2^i, t], 2^i the lowest digit of t. Its noise is fresh,
    its sum made of the sums of the nodes below it, which are kept without noise.

    Guarantees:
        - a_change_is_in_as_many_nodes_as_were_charged: in one of each size up to the largest power of two.
    """

    def __init__(self, phase: EstimatePhase) -> None:
        self._first: Array = None
        self._sums: dict[int, Array] = {}
        self._noisy: dict[int, Array] = {}

    def start(self, estimate: Array) -> None:
        self._first = estimate

    def advance(self, step: int, fresh: Fresh, noise: Array) -> Array:
        level = (step & -step).bit_length() - 1
        total = fresh.change()
        for below in range(level):
            total = total + self._sums.pop(below)
            del self._noisy[below]
        self._sums[level], self._noisy[level] = total, total + noise
        estimate = self._first
        for node in sorted(self._noisy):
            estimate = estimate + self._noisy[node]
        return estimate

    def state(self) -> State:
        if self._first is None:
            return {}
        return {
            "first": self._first,
            "sums": {str(level): array for level, array in self._sums.items()},
            "noisy": {str(level): array for level, array in self._noisy.items()},
        }

    def restore(self, state: State) -> None:
        self._first = state.get("first")
        self._sums, self._noisy = (
            {int(level): array for level, array in state.get(name, {}).items()} for name in ("sums", "noisy")
        )


class TreeOfGradients:
    """The steps of a plan of gradient trees, one leaf each: the nodes of `tree_sfw_l1`, with noise on each.

    Leaf l of a tree of depth tau first refreshes one node: the root where l = 0, else the right child at depth tau less
    the number of trailing zero bits of l; the nodes below it are left children, which copy it.

    Guarantees:
        - no_record_is_read_twice: each slot belongs to one node of one tree, or to none.
        - a_node_moves_by_what_was_charged: between neighbours the mean of a node at depth j differs by at most
          s c_j 2^j / b in the l_q norm, for any losses, and not at all where the record is another node's.
        - iterates_stay_in_the_ball.

    Raises:
        InvalidValue: the plan has not the one phase and the l_p ball of this algorithm, or a bound or a number of
            records that floating point cannot keep.
        Unsupported: the model's gradients are no outer products of one layer.
    """

    def __init__(self, task: Task) -> None:
        self._phase, self._radius = _checked(task.plan)
        dual_order = self._phase.norm_order / (self._phase.norm_order - 1.0)
        self._means = ClippedMeans(task.records, task.model, task.plan.algorithm, dual_order=dual_order)
        self._slots = SecretSlots(task)
        self._noise = task.streams.generalized_gaussian_noise()
        self._xp = task.records.xp
        self._done = 0
        self._point: Array = self._xp.zeros(task.model.num_parameters, dtype=self._xp.float64)
        self._estimates: list[Array] = []
        self._entries: list[Array] = []

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        tree = (self._done + 2).bit_length() - 1
        leaf = self._done + 2 - (1 << tree)
        with silent():
            self._refresh(tree, 0 if leaf == 0 else tree + 1 - (leaf & -leaf).bit_length())
            target = least_in_ball(self._xp, self._estimates[-1], self._phase.norm_order, self._radius)
            step_size = 2.0 / (self._done + 2.0)
            self._point = (1.0 - step_size) * self._point + step_size * target
        self._done += 1

    def _refresh(self, tree: int, depth: int) -> None:
        """Enter the node at this depth, and the left children below it."""
        phase, size = self._phase, self._phase.records_per_tree >> depth
        rows = self._slots.take(size)
        noise = self._xp.asarray(self._noise.vector(self._point.shape[0], phase.noise_order))
        if depth == 0:
            estimate = self._means.of_gradients(rows, size, self._point, phase.lipschitz) + phase.scales[0] * noise
        else:
            entry = self._entries[depth - 1]
            mean = self._means.of_changes(rows, size, self._point, entry, self._bound(entry, depth))
            estimate = self._estimates[depth - 1] + (mean + phase.scales[depth] * noise)
        below = tree + 1 - depth
        self._estimates = self._estimates[:depth] + [estimate] * below
        self._entries = self._entries[:depth] + [self._point] * below

    def _bound(self, entry: Array, depth: int) -> float:
        """On a change since the entry; the distance is public, and what was planned for stays a bound."""
        moved = norm(self._xp, self._point - entry, self._phase.norm_order)
        distance = min(moved, movement(2.0 * self._radius, depth))
        return min(2.0 * self._phase.lipschitz, self._phase.smoothness * distance)

    def released(self) -> Array:
        return self._point

    def state(self) -> State:
        return {
            "done": self._done,
            "point": self._point,
            "estimates": {str(depth): estimate for depth, estimate in enumerate(self._estimates)},
            "entries": {str(depth): entry for depth, entry in enumerate(self._entries)},
            "slots": self._slots.state(),
            "noise": self._noise.state(),
        }

    def restore(self, state: State) -> None:
        xp = namespace_of(self._point)
        self._done, self._point = int(state["done"]), xp.asarray(state["point"])
        self._estimates, self._entries = (
            [xp.asarray(state[name][str(depth)]) for depth in range(len(state[name]))]
            for name in ("estimates", "entries")
        )
        self._slots.restore(state["slots"])
        self._noise.restore(state["noise"])

    def close(self) -> None:
        """Nothing is drawn ahead."""


def _checked(plan: Plan) -> tuple[GradientTreePhase, float]:
    phase = plan.phases[0]
    if (
        not isinstance(phase, GradientTreePhase)
        or Trees(phase.num_trees, phase.records_per_tree).records > plan.dataset_size
    ):
        raise InvalidValue(
            "trees of gradients are plans of one phase of gradient_trees, each record read once",
            code="invalid_plan",
            pointer=("phases",),
        )
    return phase, check_lp_plan(plan, phase.norm_order, phase.lipschitz, phase.records_per_tree)
