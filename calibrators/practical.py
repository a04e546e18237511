"""The rules of the preset `practical`: choices for what a request leaves out, from public numbers alone.

A choice depends on declared sizes, declared bounds and the target. No row is looked at, so nothing is charged for it;
noise and charge are those of the plan that the choices lead to. `docs/concepts/practical_defaults.md` says where the
rules come from and what they attain.

The preset takes DP-Adam if no algorithm is named. Its noise is divided out of its steps, coordinate by coordinate, so
that one step size serves losses and features in any unit. Algorithms with a `step_rule` get a step size in the same
way; all others keep the steps of their theorems, and only what these leave open is chosen (`left_open.py`).
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
#: A batch that is sampled is no smaller than this share of the records.
SMALLEST_SHARE = 1 / 64
#: A sampled batch is no larger than this share if all records at once are more work than a worker has time for.
LARGEST_SHARE = 1 / 8
#: Batches of algorithms that cannot take all records at once.
USUAL_SHARE = 1 / 16
CLIP, REGULARIZER = 0.5, 0.3
#: Adam's step size times the root of the number of steps and the sixth root of the number of parameters; and the number
#: of parameters that is supposed if it is not given.
ADAM_STEP, USUAL_DIMENSION = 1.8, 100
#: The ratio of Adam's step sizes for models of numbers and for models of classes.
NUMBERS = 0.25
#: The length of all steps of bounded mean gradients together, without noise.
PATH = 250.0
AVERAGED_SHARE = 0.5

_DE = "De et al. 2022 (arXiv 2204.13650)"
_PONOMAREVA = "Ponomareva et al. 2023 (arXiv 2303.00654), section 5"
TUNED = "tuned on the public data sets of benchmarks/defaults"


def choose_algorithm(spec: Spec, objective: Objective) -> Choice:
    """Choose the algorithm: DP-Adam, or the first one that trains the model.

    Raises:
        NoCostInFilter: If the target is pure DP, which Gaussian noise does not have.
    """
    trained_by = objective.trained_by
    target = spec.target
    if isinstance(target, PureDpTarget) or (isinstance(target, BudgetTarget) and target.filter.kind == "pure_dp"):
        pure = [name for name, each in ALGORITHMS.items() if each.has_pure_dp]
        able = [name for name in pure if trained_by is None or name in trained_by]
        instead = f"name {one_of(able)} as algorithm, with its domain, or " if able else ""
        raise NoCostInFilter(
            "if no algorithm is named, one with Gaussian noise is chosen, which has no pure DP: "
            f"{instead}ask for approximate_dp, zcdp or gaussian_dp",
            code="no_cost_in_filter",
            pointer=("target", "kind"),
        )
    name, source = USUAL, "Li et al. 2022 (arXiv 2110.05679), section 3"
    reason = (
        "Adam divides each coordinate of the noisy mean by its own size, noise included, so that its step size "
        "needs to know neither the loss's unit nor the noise."
    )
    if trained_by is not None and USUAL not in trained_by:
        name = trained_by[0]
        reason, source = "The first algorithm that trains this model.", find_algorithm(name).source
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
                "Every step takes every record: for the same guarantee that is the least noise on a mean, and the "
                "work fits a worker."
            )
            partial.take("sampling", FullBatch.kind, reason, f"{_DE}; {_PONOMAREVA}", sampling=FullBatch.kind)
        else:
            kind = default_sampling(partial.algorithm, spec.neighboring_relation)
            reason = "The first of the algorithm's: batches that are drawn anew are amplified by their sampling."
            partial.take("sampling", kind, reason, partial.algorithm.source, sampling=kind)
    if partial.spec.batch_size is None and partial.spec.sampling == FullBatch.kind:
        partial.spec = replace(partial.spec, batch_size=spec.dataset_size)
    elif partial.spec.batch_size is None and not (partial.spec.sampling == DisjointBatches.kind and spec.iterations):
        choose_batch_size(partial)
    if partial.spec.sampling == TruncatedPoisson.kind and spec.max_batch_size is None:
        assert partial.spec.batch_size is not None, "it was chosen"
        most = min(2 * partial.spec.batch_size, spec.dataset_size)
        reason = "Twice the nominal size: a batch is hardly ever cut."
        partial.take("sampling.max_batch_size", most, reason, TUNED, max_batch_size=most)


def choose_batch_size(partial: PartialSpec) -> None:
    """Choose the batch size by the work that is done by default."""
    records, steps = partial.spec.dataset_size, partial.spec.iterations or FEWEST_STEPS
    if FullBatch in partial.algorithm.samplings and partial.spec.sampling != DisjointBatches.kind:
        affordable = WORK / (steps * (partial.spec.dimension or 1))
        size = math.ceil(min(max(affordable, SMALLEST_SHARE * records), LARGEST_SHARE * records))
        reason = "The largest batch whose work fits a worker, up to an eighth of the records: more share the noise."
    else:
        size = math.ceil(USUAL_SHARE * records)
        reason = "A sixteenth of the records: large batches share the noise."
    partial.take("batch_size", size, reason, f"{_DE}; {_PONOMAREVA}", batch_size=size)


def _choose_iterations(partial: PartialSpec) -> None:
    spec = partial.spec
    steps = FEWEST_STEPS
    if spec.sampling == FullBatch.kind:
        steps = min(affordable_steps(spec.dataset_size, spec.dimension or 1), MOST_STEPS)
    reason = (
        f"Between {FEWEST_STEPS} and {MOST_STEPS}, as many as fit a worker. Under full batches the noise of the "
        "sum of all steps does not depend on their number, so that more of them cost work alone."
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
            "Small against gradients of features in [-1, 1], so that most gradients count by their direction: "
            "noise is scaled to the bound, and a small one costs little."
        )
        source = f"Bu et al. 2022 (arXiv 2206.07136); Li et al. 2022 (arXiv 2110.05679); {TUNED}"
    said = "" if theorem is None else ITS_OWN
    partial.take(BOUND, bound.to_json(), reason, source, theorem=theorem, theorem_reason=said, gradient_bound=bound)


def _choose_step_size(partial: PartialSpec) -> None:
    spec = partial.spec
    steps = sum(stage.iterations for stage in spec.stages) or spec.iterations
    if steps is None:
        assert spec.batch_size is not None, "one pass over disjoint batches has one of both"
        steps = max(1, spec.dataset_size // spec.batch_size)
    assert spec.gradient_bound is not None, "it was chosen"
    if partial.algorithm.step_rule is StepRule.COORDINATES:
        size = ADAM_STEP / math.sqrt(steps) / (spec.dimension or USUAL_DIMENSION) ** (1.0 / 6.0)
        reason = (
            f"{ADAM_STEP:g} over the root of the number of steps and the sixth root of that of parameters. Where "
            "noise dominates, Adam steps of such a size move a coordinate as far whatever their number is, and the "
            "noise in a logit grows with the number of parameters."
        )
        if partial.objective.predicts_numbers:
            size *= NUMBERS
            reason += (
                f" Times {NUMBERS:g} for numbers: they lie in [-1, 1], while a class that is nearly sure has "
                "log-odds of 4 and more, so that parameters have less far to go."
            )
    else:
        size = PATH / (steps * spec.gradient_bound.contribution_bound) * (1.0 - (spec.momentum or 0.0))
        reason = (
            f"All steps together are at most {PATH:g} long without noise. At a given budget the product of step "
            "size and number of steps decides, and neither of them alone."
        )
    source = f"Panda et al. 2024 (arXiv 2212.04486); {TUNED}"
    partial.take(STEP_SIZE, size, reason, source, step_size=size)
    if spec.averaged_share is None and steps <= MAX_SCHEDULE:
        reason = "The mean of the last half of the points has less noise than the last one, and costs no privacy."
        source = f"{_DE}; Shamir & Zhang 2013 (arXiv 1212.1824)"
        share = AVERAGED_SHARE
        partial.take("hyperparameters.averaged_share", share, reason, source, averaged_share=share)
