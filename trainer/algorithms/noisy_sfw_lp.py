r"""Noisy Frank-Wolfe over an l_p ball in one pass: sums of noisy changes of the gradient, or trees of them.

Source: Bassily, Guzman & Nandi 2021, Algorithm 3 (`Sums`); the extended version and Asi, Feldman, Koren & Talwar 2021
(trees), with constants of our own (`calibrators.bassily_guzman`).
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.algorithm import ExampleRequest
from calibrators.bassily_guzman.tree import Trees
from calibrators.phases.gradient_estimates import EstimatePhase
from calibrators.phases.gradient_trees import GradientTreePhase
from calibrators.phases.structured import StructuredPhase
from calibrators.plan import Plan
from trainer.arrays import Array
from trainer.clipped_sums import ClippedSums, Term
from trainer.exact.generalized_gaussian import spread_of
from trainer.execution import LINEAR_MODELS, Execution, check_lipschitz
from trainer.frank_wolfe import EstimateFrankWolfe, Fresh, check_lp_plan
from trainer.loop import State, Task, Trainer
from trainer.lp_geometry import least_in_ball, norm
from trainer.records import Indices
from trainer.tree_walk import TreeWalk


def make(task: Task) -> Trainer:
    """Return the trainer of the plan's variant."""
    if isinstance(task.plan.phases[0], GradientTreePhase):
        return TreeOfGradients(task)
    return EstimateFrankWolfe(task, {"sums": Sums, "prefix_tree": PrefixTree})


class Sums:
    """Estimates d_t = d_(t-1) + mean change + noise, in which the noise of t changes adds up."""

    def __init__(self, phase: EstimatePhase) -> None:
        self._estimate: Array = None

    def start(self, estimate: Array) -> None:
        self._estimate = estimate

    def advance(self, step: int, fresh: Fresh) -> Array:
        self._estimate = self._estimate + fresh.noised(fresh.total(change=1.0))
        return self._estimate

    def state(self) -> State:
        return {} if self._estimate is None else {"estimate": self._estimate}

    def restore(self, state: State) -> None:
        self._estimate = state.get("estimate")


class PrefixTree:
    """Estimates d_t = d_0 + the noisy sums of the nodes that make up 1..t, one node for each digit 1 in the binary form
    of t.

    Step t completes one node, with the changes of steps (t - 2^i, t], where 2^i is the largest power of two that
    divides t. Its noise is fresh. Its sum is made of the sums of the nodes below it, which are whole numbers and are
    kept without noise.

    Guarantees:
        - a_change_is_in_as_many_nodes_as_were_charged: in one node of each size up to the largest power of two.
    """

    def __init__(self, phase: EstimatePhase) -> None:
        self._first: Array = None
        self._sums: dict[int, Array] = {}
        self._noisy: dict[int, Array] = {}

    def start(self, estimate: Array) -> None:
        self._first = estimate

    def advance(self, step: int, fresh: Fresh) -> Array:
        level = (step & -step).bit_length() - 1
        total = fresh.total(change=1.0)
        for below in range(level):
            total = total + self._sums.pop(below)
            del self._noisy[below]
        self._sums[level], self._noisy[level] = total, fresh.noised(total)
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


class TreeOfGradients(TreeWalk):
    """The steps of a plan of gradient trees: noise on every node, and the best point of the ball at every leaf.

    Raises:
        InvalidValue: If the plan does not have the one phase and the l_p ball of this algorithm, or has a bound that
            floating point cannot keep.
        Unsupported: If the model's gradients are not outer products of one layer.
    """

    def __init__(self, task: Task) -> None:
        self._phase, radius = _checked(task.plan)
        dual_order = self._phase.norm_order / (self._phase.norm_order - 1.0)
        sums = ClippedSums(task.records, task.model, task.plan.algorithm, dual_order=dual_order)
        self._spread = spread_of(task.model.num_parameters, self._phase.noise_order)
        super().__init__(task, self._phase, radius, sums, task.streams.generalized_gaussian_noise())

    def _mean(self, slots: Indices, depth: int, term: Term) -> Array:
        """Return the node's noisy mean."""
        phase, size = self._phase, self._phase.records_per_tree >> depth
        unit = phase.planned_bound(self._radius, depth)
        if unit == 0.0:  # the gradients are constant
            return 0.0 * self._point
        grid = self._sums.grid(phase.scales[depth] * size / unit, self._spread)
        total = self._sums.of(slots, grid, unit, term)
        noise = self._xp.asarray(self._noise.rounded(total.shape[0], phase.noise_order, grid.scale))
        return grid.noised(total, noise, unit / size)

    def _distance(self, entry: Array) -> float:
        return norm(self._xp, self._point - entry, self._phase.norm_order)

    def _moved(self, estimate: Array, tree: int, step_size: float) -> Array:
        target = least_in_ball(self._xp, estimate, self._phase.norm_order, self._radius)
        return (1.0 - step_size) * self._point + step_size * target


def _checked(plan: Plan) -> tuple[GradientTreePhase, float]:
    phase = plan.phases[0]
    if (
        not isinstance(phase, GradientTreePhase)
        or Trees(phase.num_trees, phase.records_per_tree).records > plan.dataset_size
    ):
        raise InvalidValue(
            "a plan with trees of gradients must have one phase, of kind gradient_trees, in which each record is "
            "read once",
            code="invalid_plan",
            pointer=("phases",),
        )
    return phase, check_lp_plan(plan, phase.norm_order, phase.lipschitz)


EXECUTION = Execution(
    phase_type=StructuredPhase,
    make=make,
    check=check_lipschitz,
    models=LINEAR_MODELS,
    requests={
        "frank_wolfe_lp": ExampleRequest(
            "Noisy Frank-Wolfe in one pass over the digits, in an l_1.5 ball",
            {
                "dataset_id": "ds_digits",
                "model": {"kind": "softmax_regression"},
                "iterations": 8,
                "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
                "assumptions": {"norm_order": 1.5, "radius": 4},
            },
        )
    },
)
