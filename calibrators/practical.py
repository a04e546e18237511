"""This module contains the rules of the preset `practical`. They choose the values that a request leaves out, from
public numbers alone.

A choice depends on declared sizes, declared bounds and the target. No rule looks at a row, so the choices cost no
privacy. The noise and the charge are computed for the plan that results from the choices.
`docs/concepts/practical_defaults.md` says where the rules come from and how well they work.

The preset takes DP-Adam if no algorithm is named. Adam divides each coordinate of a step by that coordinate's size,
noise included, so the same step size works for losses and features in any unit. The preset also chooses a step size for
the other algorithms with a `step_rule`. All other algorithms keep the steps of their theorems, and the preset chooses
only the values that the theorems leave open (`left_open.py`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from accounting.canonical import Json
from accounting.errors import NoCostInFilter, one_of
from accounting.events import DisjointBatches, FullBatch, TruncatedPoisson
from accounting.targets import BudgetTarget, PureDpTarget
from calibrators.algorithm import StepRule
from calibrators.choices import Choice
from calibrators.partial_spec import BOUND, STEP_SIZE, PartialSpec
from calibrators.plan import MAX_SCHEDULE, Clip, GradientBound, Normalize
from calibrators.presets import Objective, Preset
from calibrators.registry import ALGORITHMS, default_sampling, find_algorithm
from calibrators.spec import Spec
from calibrators.theorem_choices import ITS_OWN
from calibrators.work import FEWEST_STEPS, WORK, affordable_steps

(USUAL,) = (name for name, each in ALGORITHMS.items() if each.is_usual)
MOST_STEPS = 400
#: The smallest share of the records in a sampled batch.
SMALLEST_SHARE = 1 / 64
#: The largest share of the records in a sampled batch, if batches of all records are more work than a worker has time
#: for.
LARGEST_SHARE = 1 / 8
#: The share of the records in a batch, for algorithms that cannot take all records at once.
USUAL_SHARE = 1 / 16
CLIP, REGULARIZER = 0.5, 0.3
#: Adam's step size is the first number, divided by the square root of the number of steps and by the sixth root of the
#: number of parameters. The second number is the number of parameters that is assumed if none is given.
ADAM_STEP, USUAL_DIMENSION = 1.8, 100
#: Adam's step size for models that predict numbers, divided by its step size for models that predict classes.
NUMBERS = 0.25
#: The largest total length of all steps along bounded mean gradients, without noise.
PATH = 250.0
AVERAGED_SHARE = 0.5

_DE = "De et al. 2022 (arXiv 2204.13650)"
_PONOMAREVA = "Ponomareva et al. 2023 (arXiv 2303.00654), section 5"
TUNED = "tuned on the public data sets of benchmarks/defaults"


def choose_algorithm(spec: Spec, objective: Objective) -> Choice:
    """Choose the algorithm: DP-Adam, or the first one that trains the model.

    Raises:
        NoCostInFilter: If the target is pure DP, because Gaussian noise does not have pure DP.
    """
    trained_by = objective.trained_by
    target = spec.target
    if isinstance(target, PureDpTarget) or (isinstance(target, BudgetTarget) and target.filter.kind == "pure_dp"):
        pure = [name for name, each in ALGORITHMS.items() if each.has_pure_dp]
        able = [name for name in pure if trained_by is None or name in trained_by]
        instead = f"name {one_of(able)} as algorithm, with its domain, or " if able else ""
        raise NoCostInFilter(
            "without a named algorithm, one with Gaussian noise is chosen, and Gaussian noise cannot meet a "
            f"target of pure DP: {instead}ask for approximate_dp, zcdp or gaussian_dp",
            code="no_cost_in_filter",
            pointer=("target", "kind"),
        )
    name, source = USUAL, "Li et al. 2022 (arXiv 2110.05679), section 3"
    reason = (
        "Adam divides each coordinate of the noisy mean by that coordinate's size, noise included. So its step "
        "size depends neither on the loss's unit nor on the noise."
    )
    if trained_by is not None and USUAL not in trained_by:
        name = trained_by[0]
        reason, source = "This is the first algorithm in the list that trains this model.", find_algorithm(name).source
    return Choice("algorithm", name, reason, source)


def choose_steps(partial: PartialSpec) -> None:
    """Choose sampling, sizes, gradient bound and, in the preset `practical`, step size and averaging."""
    if not partial.spec.stages:
        _choose_batches(partial)
        if partial.spec.iterations is None and partial.spec.sampling != DisjointBatches.kind:
            _choose_iterations(partial)
    if partial.spec.gradient_bound is None:
        _choose_gradient_bound(partial)
    given = partial.spec.step_size is not None or (
        bool(partial.spec.stages) and all(stage.step_size is not None for stage in partial.spec.stages)
    )
    if partial.preset is Preset.PRACTICAL and not given:
        _choose_step_size(partial)


def _choose_batches(partial: PartialSpec) -> None:
    spec, schemes = partial.spec, partial.algorithm.samplings
    if spec.sampling is None:
        fits = float(spec.dataset_size * (spec.dimension or 1)) * (spec.iterations or FEWEST_STEPS) <= WORK
        if spec.batch_size is None and FullBatch in schemes and fits:
            reason = (
                "Every step takes every record. For the same guarantee, this gives the least noise on a mean, "
                "and a worker has time for the work."
            )
            partial.take("sampling", FullBatch.kind, reason, f"{_DE}; {_PONOMAREVA}", sampling=FullBatch.kind)
        else:
            kind = default_sampling(partial.algorithm, spec.neighboring_relation)
            reason = (
                "This is the first sampling scheme of the algorithm. Batches that are drawn anew in each step gain "
                "privacy amplification."
            )
            partial.take("sampling", kind, reason, partial.algorithm.source, sampling=kind)
    if partial.spec.batch_size is None and partial.spec.sampling == FullBatch.kind:
        partial.spec = replace(partial.spec, batch_size=spec.dataset_size)
    elif partial.spec.batch_size is None and not (partial.spec.sampling == DisjointBatches.kind and spec.iterations):
        choose_batch_size(partial)
    if partial.spec.sampling == TruncatedPoisson.kind and spec.max_batch_size is None:
        assert partial.spec.batch_size is not None, "it was chosen"
        most = min(2 * partial.spec.batch_size, spec.dataset_size)
        reason = "This is twice the nominal size, so a batch is hardly ever truncated."
        partial.take("sampling.max_batch_size", most, reason, TUNED, max_batch_size=most)


def choose_batch_size(partial: PartialSpec) -> None:
    """Choose the batch size from the amount of work that is done by default."""
    records, steps = partial.spec.dataset_size, partial.spec.iterations or FEWEST_STEPS
    if FullBatch in partial.algorithm.samplings and partial.spec.sampling != DisjointBatches.kind:
        affordable = WORK / (steps * (partial.spec.dimension or 1))
        size = math.ceil(min(max(affordable, SMALLEST_SHARE * records), LARGEST_SHARE * records))
        reason = (
            "This is the largest batch that a worker has time for, up to an eighth of the records. In larger "
            "batches, more records share the noise."
        )
    else:
        size = math.ceil(USUAL_SHARE * records)
        reason = "This is a sixteenth of the records. In large batches, many records share the noise."
    partial.take("batch_size", size, reason, f"{_DE}; {_PONOMAREVA}", batch_size=size)


def _choose_iterations(partial: PartialSpec) -> None:
    spec = partial.spec
    steps = FEWEST_STEPS
    if spec.sampling == FullBatch.kind:
        steps = min(affordable_steps(spec.dataset_size, spec.dimension or 1), MOST_STEPS)
    reason = (
        f"This is the number of steps that a worker has time for, between {FEWEST_STEPS} and {MOST_STEPS}. With "
        "full batches, the noise on the sum of all steps does not depend on their number, so more steps cost "
        "only work."
    )
    partial.take("iterations", steps, reason, f"Dong, Roth & Su 2022, Corollary 3.3; {TUNED}", iterations=steps)


def _choose_gradient_bound(partial: PartialSpec) -> None:
    bound: GradientBound | None = None
    theorem: Json = None
    if partial.preset is Preset.THEOREM and partial.algorithm.theorem_bound is not None:
        bound = partial.algorithm.theorem_bound({**partial.known(), **partial.spec.assumptions})
    if bound is not None:
        theorem, reason, source = bound.to_json(), ITS_OWN, partial.algorithm.source
    if bound is None:
        bound = Clip(CLIP) if partial.algorithm.gradient_bounds == (Clip,) else Normalize(REGULARIZER)
        reason = (
            "This bound is small compared with the gradients of features in [-1, 1], so most gradients count "
            "only by their direction. The noise is scaled to the bound, so a small bound means little noise."
        )
        source = f"Bu et al. 2022 (arXiv 2206.07136); Li et al. 2022 (arXiv 2110.05679); {TUNED}"
    said = "" if theorem is None else ITS_OWN
    partial.take(BOUND, bound.to_json(), reason, source, theorem=theorem, theorem_reason=said, gradient_bound=bound)


def _choose_step_size(partial: PartialSpec) -> None:
    spec = partial.spec
    steps = sum(stage.iterations for stage in spec.stages) or spec.iterations
    if steps is None:
        assert spec.batch_size is not None, "one pass over disjoint batches has iterations or batch_size"
        steps = max(1, spec.dataset_size // spec.batch_size)
    assert spec.gradient_bound is not None, "it was chosen"
    if partial.algorithm.step_rule is StepRule.COORDINATES:
        size = ADAM_STEP / math.sqrt(steps) / (spec.dimension or USUAL_DIMENSION) ** (1.0 / 6.0)
        reason = (
            f"The step size is {ADAM_STEP:g}, divided by the square root of the number of steps and by the "
            "sixth root of the number of parameters. Where noise dominates, Adam steps of this size move a "
            "coordinate equally far for any number of steps. The noise in a logit grows with the number of "
            "parameters."
        )
        if partial.objective.predicts_numbers:
            size *= NUMBERS
            reason += (
                f" For models that predict numbers, it is multiplied by {NUMBERS:g}. Numbers lie in [-1, 1], "
                "while a nearly certain class has log-odds of 4 or more, so the parameters have a shorter way "
                "to go."
            )
    else:
        size = PATH / (steps * spec.gradient_bound.contribution_bound) * (1.0 - (spec.momentum or 0.0))
        reason = (
            f"Without noise, all steps together are at most {PATH:g} long. For a given budget, the result "
            "depends on the product of step size and number of steps, not on either alone."
        )
    source = f"Panda et al. 2024 (arXiv 2212.04486); {TUNED}"
    partial.take(STEP_SIZE, size, reason, source, step_size=size)
    if spec.averaged_share is None and steps <= MAX_SCHEDULE:
        reason = (
            "The mean of the last half of the points has less noise than the last point, and averaging costs no "
            "privacy."
        )
        source = f"{_DE}; Shamir & Zhang 2013 (arXiv 1212.1824)"
        share = AVERAGED_SHARE
        partial.take("hyperparameters.averaged_share", share, reason, source, averaged_share=share)
