r"""DP-SGD-Output takes projected steps without noise, each on one record, and releases the noisy average of its points.

Source: Wang, Lei, Ying & Zhang 2022 (arXiv 2101.08925), Algorithm 1.

The charge is valid only if the loss of every possible record has the planned properties. So models are linear, labels
are within their range (`trainer.records`), and rows longer than B are scaled down to length B. Here B is the largest
length for which the model's constants are within the plan's. A record's loss is then convex with the planned Hoelder
constants, and its gradients have at most the planned length. Rows that are not finite have no loss.

A margin of 2^-7 on B covers rounding, for the following reason. All numbers are in float64, whose unit roundoff is u =
2^-53. Let p be the number of inputs with the intercept's constant, w the point, eta the step size, G the bound on
gradients, R the radius of the ball and T the number of steps. A step is a deterministic function of its record and its
point, so two runs are identical until the differing record is first drawn. A computed logit is the exact logit of a
point at most (p + 2) u |w| away, and the same holds for every column of the sum of p products. The computed step is the
exact step at that point, up to 16 u eta G and the rounding of norms in the projection. So both runs together deviate
from the exact runs by at most 2 (3 p + 20) u (R + eta G) in each step, and the mean of T points deviates by its share
of this bound. The sum over T steps is at most 2^-8 eta G, or else the plan is refused for having too many steps. This
is half of the margin by which a drawn record's gradient stays below the charged bound. Rounding the average to the grid
of the noise moves it by less than the other half. The charged distance is capped at 2 R, so the ball is reduced by the
grid's margin to keep within this cap.
"""

from __future__ import annotations

import math

from accounting.errors import InvalidValue, Unsupported
from accounting.events import WithoutReplacement
from calibrators.algorithm import ExampleRequest
from calibrators.geometry import L2Ball
from calibrators.phases.output_perturbation import OutputPerturbation
from calibrators.plan import Plan
from calibrators.release import AverageIterate
from calibrators.wang_nonsmooth.stability import iterate_radius
from trainer.arrays import Array, as_float64, silent
from trainer.execution import LINEAR_MODELS, Execution, Proposal
from trainer.grid import Grid, grid_for
from trainer.loop import State, StreamPlace, Task
from trainer.models import LinearModel, Model
from trainer.structured_steps import StructuredSteps

#: The relative margin by which rows are kept shorter than the longest row that the plan's constants allow.
MARGIN = 2.0**-7
_UNIT = 2.0**-53
_BISECTIONS = 200
_SMALLEST = 1e-100


class OutputPerturbationSteps(StructuredSteps):
    """The steps of an output-perturbation plan. Noise is drawn only in the last step.

    Guarantees:
        - the_noise_alone_makes_the_release: points and indices are not released.
        - losses_are_the_planned_ones: for every data set.
        - one_record_is_drawn_uniformly: from the declared slots, anew in each step; an empty slot moves nothing.

    Raises:
        InvalidValue: If the plan does not have the one phase of this algorithm, or the model's constants are not within
            the plan's.
        Unsupported: If the model is not linear.
    """

    kept = (*StructuredSteps.kept, "_sum", "_sampler", "_sampling")

    def __init__(self, task: Task) -> None:
        super().__init__(task, task.streams.gaussian_noise())
        self._phase = phase_of(task.plan)
        self._model = linear(task.model)
        self._longest = longest_row(task.plan, self._model)
        self._records, size = task.records, task.plan.dataset_size
        self._domain = task.plan.domain
        self._sum: Array = 0.0 * self._point
        self._unit = unit_of(task.plan)
        self._grid = grid_of(task.plan, self._model)
        self._sampler = task.streams.sampler(WithoutReplacement(1, size), self._phase.iterations, 1, size, task.records)
        self._sampling = StreamPlace(task.streams.sampling)
        self._released: Array | None = None

    def step(self) -> None:
        phase, records = self._phase, self._records
        with silent():
            slots = self._sampler.draw()
            assert not isinstance(slots, slice), "single slots are drawn"
            self._sum = self._sum + self._point
            self._point = self._inside(self._point - phase.step_size * self._gradient(int(slots[0])))
            self._done += 1
            if self._done == phase.iterations:
                grid, average = self._grid, self._sum / phase.iterations
                in_steps = records.xp.round(average * (grid.steps_per_unit / self._unit))
                noise = records.xp.asarray(self._noise.rounded(average.shape[0], grid.scale))
                self._released = grid.noised(in_steps, noise, self._unit)

    def released(self) -> Array:
        assert self._released is not None, "released after the last step"
        return self._released

    def state(self) -> State:
        return super().state() | ({} if self._released is None else {"released": self._released})

    def restore(self, state: State) -> None:
        super().restore(state)
        if "released" in state:
            self._released = self._xp.asarray(state["released"])

    def close(self) -> None:
        self._noise.close()

    def _gradient(self, slot: int) -> Array:
        """Return the scaled gradient of the record in this slot. No other record's numbers are read."""
        model, xp, everything = self._model, self._records.xp, self._records.all
        outputs, width = model.num_outputs, model.features
        length = max(math.sqrt(float(everything.squares[slot])), _SMALLEST)
        x = as_float64(xp, everything.features[slot, :]) * min(1.0, self._longest / length)
        weights = xp.reshape(self._point[: width * outputs], (width, outputs))
        logits = xp.sum(x[:, None] * weights, axis=0)
        if model.fit_intercept:
            logits = logits + self._point[width * outputs :]
        labels = everything.labels[slot : slot + 1]
        labels = labels if model.num_classes else as_float64(xp, labels)
        slope = model.loss.residuals(xp, logits[None, :], labels)[0, :] * float(everything.valid[slot])
        gradient = xp.reshape(x[:, None] * slope[None, :], (-1,))
        return xp.concat([gradient, slope]) if model.fit_intercept else gradient

    def _inside(self, point: Array) -> Array:
        """Return the point's projection onto a slightly smaller ball than the plan's. Without a ball, return the point
        itself."""
        if not isinstance(self._domain, L2Ball):
            return point
        radius = self._domain.radius * (1.0 - self._grid.margin)
        length = float(self._records.xp.sqrt(self._records.xp.sum(point * point)))
        return point * min(1.0, radius / max(length, _SMALLEST))


def phase_of(plan: Plan) -> OutputPerturbation:
    """Return the plan's one phase.

    Raises:
        InvalidValue: If the plan belongs to another algorithm.
    """
    [phase] = plan.phases if len(plan.phases) == 1 else [None]
    if not isinstance(phase, OutputPerturbation):
        raise InvalidValue(
            f"{plan.algorithm} takes only plans with one phase, of kind {OutputPerturbation.kind}",
            pointer=("phases",),
        )
    if plan.release != AverageIterate() or plan.penalty is not None:
        raise InvalidValue(
            "a plan of this algorithm must release the average and have no penalty", pointer=("release",)
        )
    if plan.domain is not None and not (isinstance(plan.domain, L2Ball) and plan.domain.radius <= phase.radius):
        raise InvalidValue("the domain must be the l2 ball of the phase's radius, or absent", pointer=("domain",))
    return phase


def linear(model: Model) -> LinearModel:
    """Return the model, if it is linear.

    Raises:
        Unsupported: If the model is not linear.
    """
    if not isinstance(model, LinearModel):
        raise Unsupported(
            f"dp_sgd_output trains only linear models, not {model.kind}: its cost rests on convex losses with known "
            "Hoelder constants, which clipping does not give",
            code="unsupported_model",
            pointer=("model", "kind"),
        )
    return model


def longest_row(plan: Plan, model: LinearModel) -> float:
    """Return the l2 norm to which longer rows are scaled down, without the constant feature of an intercept.

    Guarantees:
        - constants_are_within_the_plans: those of every record's loss, by the margin.

    Raises:
        InvalidValue: If no row is short enough, or there are too many steps for float64.
    """
    phase, loss = phase_of(plan), model.loss
    input_norm = min(_smooth_enough(phase, model), _short_enough(phase, model)) * (1.0 - MARGIN)
    least = 1.0 if model.fit_intercept else 0.0
    if not input_norm > least + _SMALLEST:
        raise InvalidValue(
            f"{model.kind} keeps the plan's holder_constant {phase.holder_constant:g} and gradients of at most "
            f"{phase.gradient_norm:g} for inputs of l2 norm {input_norm:.4g} only, but every input has a norm of "
            f"at least {least:g} (the intercept's constant): give the constants that belong to the model",
            pointer=("assumptions", "holder_constant"),
        )
    if plan.domain is None:
        if loss.holder_constant == 0.0:
            raise InvalidValue(
                f"{model.kind} has a loss without a minimum, so nothing bounds the points: give a radius",
                pointer=("assumptions", "radius"),
            )
        reached = iterate_radius(
            phase.holder_exponent,
            phase.holder_constant,
            phase.gradient_norm,
            loss.value_at_zero,
            phase.step_size,
            phase.iterations,
        )
        if reached > phase.radius * (1.0 + 1e-12):
            raise InvalidValue(
                f"{model.kind} has a loss of up to {loss.value_at_zero:g} at 0, with which points may leave the plan's "
                f"radius {phase.radius:g}: give loss_at_zero, or a radius",
                pointer=("assumptions", "loss_at_zero"),
            )
    wide, moved = model.features + model.fit_intercept, phase.step_size * phase.gradient_norm
    rounding = 2.0 * phase.iterations * (3.0 * wide + 20.0) * _UNIT * (phase.radius + moved)
    if rounding > 0.5 * MARGIN * moved:
        raise InvalidValue(
            f"{phase.iterations} steps of size {phase.step_size:g} are too many for float64: their rounding could "
            "exceed the margin of what was charged; use fewer steps, or larger ones",
            pointer=("iterations",),
        )
    return math.sqrt(max(input_norm**2 - least, 0.0))


def unit_of(plan: Plan) -> float:
    """Return the smaller of two lengths: the smallest charged distance between the averages of neighbours, and the
    radius."""
    phase = phase_of(plan)
    return min(phase.step_size * phase.gradient_norm, phase.radius)


def grid_of(plan: Plan, model: LinearModel) -> Grid:
    """Return the grid to which the average is rounded, in units of `unit_of`.

    Raises:
        InvalidValue: If the noise is so large compared with one step that every grid for it would exceed the rounding
            margin.
    """
    phase, unit = phase_of(plan), unit_of(plan)
    grid = grid_for(phase.noise_stddev / unit, model.num_parameters, "float64", math.ceil(phase.radius / unit))
    if grid.margin > 0.5 * MARGIN:
        raise InvalidValue(
            "the noise is so large against one step that its grid would exceed the margin of what was charged; use "
            "larger steps",
            pointer=("step_size",),
        )
    return grid


def _smooth_enough(phase: OutputPerturbation, model: LinearModel) -> float:
    """Return the largest norm of an input for which the loss has the plan's Hoelder constants."""
    loss, found = model.loss, []
    if loss.holder_constant == 0.0:
        # A gradient that is the same at every point is Hoelder continuous with any exponent.
        return math.inf
    if loss.holder_exponent == phase.holder_exponent and loss.holder_constant > 0.0:
        found.append(math.pow(phase.holder_constant / loss.holder_constant, 1.0 / (1.0 + phase.holder_exponent)))
    if phase.holder_exponent == 0.0 and loss.lipschitz is not None:
        found.append(phase.holder_constant / (2.0 * loss.lipschitz))
    if not found:
        raise InvalidValue(
            f"{model.kind} has the Hoelder exponent {loss.holder_exponent:g}, but the plan is for "
            f"{phase.holder_exponent:g}: give the constants that belong to the model",
            pointer=("assumptions", "holder_exponent"),
        )
    return max(found)


def _short_enough(phase: OutputPerturbation, model: LinearModel) -> float:
    """Return the largest norm of an input for which gradients stay within the plan's bound at every reachable point."""
    loss = model.loss

    def longest(norm: float) -> float:
        power = math.pow(norm, 1.0 + loss.holder_exponent) * math.pow(phase.radius, loss.holder_exponent)
        grown = loss.slope_at_zero * norm + loss.holder_constant * power
        return grown if loss.lipschitz is None else min(grown, loss.lipschitz * norm)

    low, high = 0.0, phase.gradient_norm / loss.slope_at_zero
    if loss.lipschitz is not None:
        high = max(high, phase.gradient_norm / loss.lipschitz)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if longest(middle) <= phase.gradient_norm else (low, middle)
    return low


def check_request(proposal: Proposal) -> None:
    """Raise an error, before anything is charged, if the model's constants are not within the plan's.

    Raises:
        InvalidValue, Unsupported: As `OutputPerturbationSteps` does.
    """
    longest_row(proposal.plan, linear(proposal.model))
    grid_of(proposal.plan, linear(proposal.model))


EXECUTION = Execution(
    phase_type=OutputPerturbation,
    make=OutputPerturbationSteps,
    check=check_request,
    models=LINEAR_MODELS,
    float64_because=(
        "The run takes float64: each step computes with one record in float64, so that float32 would only round the "
        "records."
    ),
    requests={
        "output_perturbation": ExampleRequest(
            "DP-SGD-Output: logistic regression in a ball, noise on the average of the points alone",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 600,
                "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
                "assumptions": {"radius": 2, "failure_probability": 0.05},
            },
        )
    },
)
