"""This module chooses the numeric type of a run if nobody names one: float32, unless that would harm the result.

float32 halves the memory of the rows and takes about 0.6 of the time of a step on many features. Every plan that a
trainer accepts is sound in both types: contributions are held below their bound by the margin of the type
(`trainer.grid`), and norms, clip factors, totals, estimates, points and noise are float64 in both. What differs is how
exact the sums are. So float64 is taken

- for means. One pass over the records is little work, and in a mean of clipped records the margin, 2^-7 of the
  threshold in float32, would often be larger than the noise;
- for output perturbation: its steps compute with one record in float64 anyway, so float32 would only round the records;
- for thresholds below `SMALLEST_MAX_GRAD_NORMS`, which float32 cannot keep;
- for noise below 2^-7 of the contribution bound: that is the margin, so that the type would cost more accuracy than the
  noise does;
- for changes of gradients that are bounded by less than 2^-12 of the gradients: float32 computes a gradient to 2^-24
  of it, so that most of the digits of such a change would be rounding.

Neither many parameters nor much noise is a reason: the grid is widened to the same step in both types, and refused in
both or in none (`trainer.grid.grid_for`). Nor are small step sizes, since points are float64. So the choice depends on
the plan alone, and a calibration makes the plan of the run without knowing its model.
"""

from __future__ import annotations

from dataclasses import replace

from calibrators.geometry import L1Ball, LpBall
from calibrators.plan import FLOAT32, FLOAT64, AnyPhase, Plan
from trainer.clipping import MARGINS, SMALLEST_MAX_GRAD_NORMS
from trainer.run import execution_of

#: Noise below this share of the contribution bound is smaller than what the margin of float32 takes from one record.
SMALLEST_NOISE = MARGINS[FLOAT32]
#: Changes of gradients below this share of the gradients lose too many of their digits in float32.
SMALLEST_CHANGE = 2.0**-12


def carried_out(plan: Plan, dtype: str | None) -> tuple[Plan, str | None]:
    """Return the plan in a numeric type, and the reason for float64 if it was not asked for.

    Args:
        plan: The plan of an algorithm in `trainer.algorithms`.
        dtype: "float32" or "float64"; None takes float32 unless there is a reason against it.

    Guarantees:
        - a_named_type_is_taken: even if there is a reason against it; plans that no trainer can carry out are refused
          elsewhere.
        - float64_has_a_reason: if it was not asked for.

    Raises:
        InvalidValue: If the type is unknown.
        Unsupported: If there is no trainer of this name.

    >>> from accounting.events import Event, Gaussian
    >>> from accounting.relations import NeighboringRelation
    >>> from calibrators.plan import Clip, Phase
    >>> phase = Phase(Event(Gaussian(1.0), count=5), Clip(1.0), divisor=2, step_size=0.5)
    >>> plan = Plan("dp_sgd", 2, NeighboringRelation.ADD_OR_REMOVE_ONE, (phase,))
    >>> narrow, why = carried_out(plan, None)
    >>> narrow.dtype, why
    ('float32', None)
    >>> carried_out(plan, "float64")[0] == plan
    True
    """
    reason = _reason_against_float32(plan) if dtype is None else None
    return replace(plan, dtype=dtype or (FLOAT64 if reason else FLOAT32)), reason


def _reason_against_float32(plan: Plan) -> str | None:
    """Return, as a sentence, why the plan is better carried out in float64."""
    always = execution_of(plan).float64_because
    if always:
        return always
    return next((reason for reason in (_reason_of(phase, plan) for phase in plan.phases) if reason is not None), None)


def _reason_of(phase: AnyPhase, plan: Plan) -> str | None:
    smallest, bound = SMALLEST_MAX_GRAD_NORMS[FLOAT32], phase.smallest_bound
    if bound < smallest:
        return (
            f"The run takes float64: float32 keeps bounds on gradients of at least {smallest:g}, but this plan has "
            f"{bound:.3g}; rescale the features or the loss to use float32."
        )
    noise = phase.smallest_noise
    if noise is not None and noise < SMALLEST_NOISE:
        return (
            f"The run takes float64: the noise is {noise:.3g} of the bound on a record's contribution, less than the "
            f"margin {SMALLEST_NOISE:.3g} that float32 keeps below that bound."
        )
    change = phase.smallest_change(plan.domain.radius if isinstance(plan.domain, L1Ball | LpBall) else 0.0)
    if change is not None and change < SMALLEST_CHANGE:
        return (
            f"The run takes float64: gradients change by at most {change:.3g} of their bound from point to point, "
            "and float32 would round off most of the digits of such a change."
        )
    return None
