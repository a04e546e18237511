"""DP-SVRG: a full gradient at a snapshot, then noisy proximal steps on small batches beside it.

One step is one inner step; the first of an epoch also takes the snapshot's gradients. They have no noise, but every
direction that they enter gets noise, so no release contains them without noise. They are kept for the epoch's batches
(`trainer.kept_contributions`), and computed anew if a run goes on from a checkpoint.

A step is charged for the distance by which a record moves the mean direction, in which its gradient at x~ cancels: it
enters the full gradient with weight 1/n and, if the record is drawn, the batch with -1/b. So both sums are made of the
same contribution, bit by bit, and the charge rests on three sums: those of the batch at x and at x~, and the full one.
They lie on a grid as `trainer.grid` says. Their combination v = (q_x - q_x~)/b + q/n, in units of G, is formed in
float64 and rounded to a grid of its own, and the noise is added there. Otherwise the noiseless q would show in the last
digits.

In the inequality of `trainer.grid`, a record's part in the mean is that of one sum, but the errors are those of three
sums and of the rounding of v. So contributions stay below G by four margins, one for each error. The grid of v is fine
against 2/n. Float64 adds at most 6 u (2 + c/n) between neighbours, with c the capacity and u = 2^-53: plans are refused
if that is more than a tenth of a margin on 2/n.

Source: Wang, Ye & Xu 2017 (arXiv 1802.05251), Algorithm 1, with clipping, which guarantees the Lipschitz constant.
"""

from __future__ import annotations

from dataclasses import replace

from accounting.errors import InvalidValue
from accounting.events import WithoutReplacement
from calibrators.algorithm import ExampleRequest
from calibrators.phases.variance_reduced_epochs import VarianceReducedEpochs
from calibrators.plan import Clip
from trainer.arrays import Array, silent
from trainer.domains import project
from trainer.execution import PREDICTORS, Execution, check_max_grad_norm
from trainer.grid import grid_for
from trainer.kept_contributions import KeptContributions
from trainer.loop import State, Step, StreamPlace, Task
from trainer.records import Selection
from trainer.structured_steps import StructuredSteps, check_kept, check_positions, initial_point, only_phase
from trainer.sums import BoundedSum


class Svrg(StructuredSteps):
    """The inner steps of a plan of variance-reduced epochs, each from a fresh batch of the declared slots.

    v = ((sum over the batch of clipped gradients at x) - (the same at x~) + sigma b Z) / b + the snapshot's gradient,
    x <- the penalty's prox, then the projection, of x - eta v. After an epoch x~ is the mean of its points.

    Guarantees:
        - every_gradient_is_clipped: at x, at x~ and in the full gradient, so that between neighbours a batch's sum of
          changes moves by at most 4 G, and not at all if the record is not in it; the full gradient moves by 2 G/n.
        - a_record_moves_the_mean_direction_by_its_gradient: weighted by the chance of being drawn, by at most 2 G/n.
        - every_direction_is_noised: releases are made of noisy directions and public numbers.
        - nothing_is_drawn_from_the_number_of_rows: batches are of declared slots; divisors are b and n as declared.

    Raises:
        InvalidValue: If the plan is not one of such epochs or is not executable, or its bound is too small for the
            dtype.
    """

    kept = (
        *StructuredSteps.kept,
        "_epoch",
        "_within",
        "_snapshot",
        "_sum",
        "_sampler",
        "_sampling",
    )

    def __init__(self, task: Task) -> None:
        self._phase = phase = _checked(task)
        records, n = task.records, task.plan.dataset_size
        super().__init__(
            task, task.streams.gaussian_noise(), project(task.plan.domain, records.xp, initial_point(task))
        )
        self._snapshot: Array = self._point
        self._sum: Array = 0.0 * self._snapshot
        self._kept: KeptContributions | None = None
        self._full_gradient: Array = self._sum
        self._sums = BoundedSum(task.model, records, task.plan.dtype)
        self._bound, self._divisor = Clip(phase.max_grad_norm), phase.records_per_step
        # In units of G, the full gradient moves by 1/n if a record comes or goes.
        self._unit = phase.max_grad_norm / n
        self._grid = grid_for(phase.noise_stddev_on_mean / self._unit, self._point.shape[0], task.plan.dtype, 4 * n)
        sums = task.grid(0.0)
        self._sum_grid = replace(sums, margin=3.0 * sums.margin + self._grid.margin)
        sampling = WithoutReplacement(phase.records_per_step, n)
        self._sampler = task.streams.sampler(sampling, phase.steps, phase.records_per_step, n, records)
        self._everybody = records.positions[:n]
        self._sampling = StreamPlace(task.streams.sampling)
        self._epoch, self._within = 0, 0

    def step(self) -> None:
        with silent():
            if self._within == 0:
                self._point, self._kept = self._start_of_epoch(), None
            step = self._step(self._noisy_direction(self._sampler.draw()))
            self._point = step.project(step.prox(self._point - step.step_size * step.noisy_mean))
            self._sum = self._sum + self._point
        self._done += 1
        self._within += 1
        if self._within == self._phase.inner_iterations[self._epoch]:
            self._snapshot, self._sum = self._sum / self._within, 0.0 * self._sum
            self._epoch, self._within = self._epoch + 1, 0

    def released(self) -> Array:
        """Return the mean of the last epoch's points."""
        return self._snapshot

    def close(self) -> None:
        self._noise.close()

    def _start_of_epoch(self) -> Array:
        """Return to the snapshot, as Algorithm 1 does."""
        return self._snapshot

    def restore(self, state: State) -> None:
        super().restore(state)
        self._kept = None

    def _noisy_direction(self, slots: Selection) -> Array:
        """Return v + sigma Z in gradient units, rounded to its grid; the noise is rounded with it."""
        grid, sums, n, xp = self._grid, self._sum_grid, self._task.plan.dataset_size, self._task.records.xp
        if self._kept is None:
            self._kept = KeptContributions(self._sums, self._snapshot, self._everybody, self._bound, sums)
            self._full_gradient = sums.decoded(self._kept.over(self._everybody), 1.0) / n
        change = self._sums.at(self._point, slots, self._bound, sums) - self._kept.over(slots)
        direction = sums.decoded(change, 1.0) / self._divisor + self._full_gradient
        in_steps = xp.round(direction * (n * grid.steps_per_unit))
        noise = xp.asarray(self._noise.rounded(direction.shape[0], grid.scale))
        return grid.noised(in_steps, noise, self._unit)

    def _step(self, direction: Array) -> Step:
        phase, task = self._phase, self._task
        assert phase.step_size is not None, "an executable plan has a step size"
        return Step(direction, 1, phase.step_size, task.plan.domain, task.plan.penalty)


def _checked(task: Task) -> VarianceReducedEpochs:
    """Return the plan's only phase."""
    plan, phase = task.plan, only_phase(task.plan, VarianceReducedEpochs)
    if not phase.is_executable:
        raise InvalidValue(
            "this plan only states a privacy cost: a run needs a step_size", pointer=("phases", 0, "step_size")
        )
    check_positions(plan, "batches of a fixed size are drawn by position")
    if phase.records_per_step > plan.dataset_size:
        raise InvalidValue(
            f"a batch of {phase.records_per_step} is larger than dataset_size {plan.dataset_size}",
            pointer=("phases", 0, "records_per_step"),
        )
    check_kept("max_grad_norm", phase.max_grad_norm, plan.dtype, "features")
    # 6 u (2 + c/n) <= 2 (m/10) / n, with the smaller margin of the two dtypes.
    if 6.0 * 2.0**-53 * (2.0 * plan.dataset_size + task.records.capacity) > 2e-6:
        raise InvalidValue(
            "with so many records, floating point has too few digits for the contribution of one record: use a "
            "smaller data set",
            pointer=("dataset_size",),
        )
    return phase


EXECUTION = Execution(
    phase_type=VarianceReducedEpochs,
    make=Svrg,
    check=check_max_grad_norm,
    models=PREDICTORS,
    requests={
        "variance_reduced": ExampleRequest(
            "DP-SVRG: logistic regression with an l2 penalty, noisy steps beside full gradients",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 3,
                "batch_size": 100,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "penalty": {"kind": "l2", "strength": 0.1},
                "assumptions": {"inner_iterations": 20},
                "hyperparameters": {"step_size": 0.2},
            },
        )
    },
)
