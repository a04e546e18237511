"""DP-BandMF is DP-SGD in which a banded matrix correlates the noise over steps (Choquette-Choo et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from accounting.errors import AccountingError
from accounting.events import CyclicPoisson, FixedOrderEpochs
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, StepRule, read_assumptions
from calibrators.as_published import AsPublished, judge
from calibrators.correlation import Alternative, Correlation, Objective
from calibrators.matrix_factorisation.bands import Solved, memory_of, solve
from calibrators.matrix_factorisation.strategy import noise_of_steps
from calibrators.noise import calibration_of
from calibrators.plan import Clip, CorrelatedSteps
from calibrators.provenance import GRADIENT, PARAMETER, PURE, Provenance, ProvenanceKind, Units
from calibrators.scopes import NO_THEOREM
from calibrators.spec import Calibration, Spec, Unknown
from calibrators.step_sizes import Course, StepSizeSchedule
from calibrators.verdicts import UNJUDGED

PAPER = "Choquette-Choo et al. 2023"
AMPLIFIED = f"{PAPER}, Theorem 4"
UNSAMPLED = "Denisov et al. 2022, Theorem 2.1, with the sensitivity of Kalinin & Lampert 2024, Theorem 2"
DERIVED = f"{PAPER}, section 2 (derived: docs/concepts/correlated_noise.md)"

_NOISE_OF_STEP = r"s c \sqrt{\sum_{i \le t} n_i^2},\; n(x) = 1 / c(x)"
NO_BOUND = (
    "No theorem bounds the error of the trained model, so there is no bound. The error of the gradient sums "
    "that training follows is a proxy."
)
OTHER_WORKLOAD = (
    "With a domain or a penalty, the points are no longer sums of gradients, so the errors here do not "
    "describe the run. The privacy guarantee holds all the same."
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise, and an optimiser computes the coefficients. The number of
    bands is chosen if it is open.

    Raises:
        InvalidValue: If a number is outside its range; if there are more bands than batches in a cycle or steps; or if
            an assumption is given, because the algorithm has none.
        Unsupported: If the sampling is not accounted under the relation, or the number of bands and a quantity other
            than the noise are both left open.
        Unreachable: If nothing meets the target.
    """
    read_assumptions(ALGORITHM.assumptions, spec.assumptions)
    solved = solve(spec)
    steps = solved.steps
    momentum = 0.0 if spec.momentum is None else spec.momentum
    phase = CorrelatedSteps(steps.event, spec.clip, steps.batch_size, _step_sizes(spec, steps.event.count), momentum)
    found = calibration_of(
        ALGORITHM.name,
        spec,
        steps,
        phase,
        domain=spec.domain,
        penalty=spec.penalty,
        release=spec.release_of(phase.steps),
        hyperparameters=_hyperparameters(solved, phase),
        utility=_utility(spec, solved, phase),
        warnings=(
            NO_BOUND,
            *((OTHER_WORKLOAD,) if spec.domain or spec.penalty else ()),
            *_of_other_batches(solved),
            *_of_more_memory(solved),
        ),
        as_published=_as_published(spec, solved),
    )
    return replace(found, alternatives=solved.alternatives)


def _step_sizes(spec: Spec, steps: int) -> float | tuple[float, ...] | None:
    """Return the spec's step size, or the step sizes of a schedule whose largest is the spec's step size."""
    schedule = spec.step_size_schedule
    if spec.step_size is None or schedule is None or schedule.is_constant:
        return spec.step_size
    return tuple(spec.step_size * share for share in schedule.shares(steps))


def _of_other_batches(solved: Solved) -> Iterator[str]:
    """Yield a warning that compares batches in a fixed order with sampled batches, each with its best number of
    bands.
    """
    best: dict[str, Alternative] = {}
    for each in solved.alternatives:
        if each.is_allowed and (each.sampling not in best or each.error < best[each.sampling].error):
            best[each.sampling] = each
    if len(best) < 2:
        return
    sampled, fixed = best[CyclicPoisson.kind], best[FixedOrderEpochs.kind]
    more = fixed.error / sampled.error - 1.0
    if more >= 0.0:
        yield (
            f"Batches in a fixed order, for loaders that cannot sample, have {100.0 * more:.0f} % more error "
            f"than cyclic_poisson batches (with {fixed.bands} and {sampled.bands} bands)."
        )
    else:
        yield (
            f"Batches in a fixed order have {-100.0 * more:.0f} % less error than cyclic_poisson batches (with "
            f"{fixed.bands} and {sampled.bands} bands)."
        )


def _of_more_memory(solved: Solved) -> Iterator[str]:
    """Yield a warning about the gain from more bands than are allowed, and about the memory that they need."""
    beyond = [each for each in solved.alternatives if not each.is_allowed]
    if not beyond:
        return
    chosen = next(each for each in solved.alternatives if each.is_chosen)
    best = min(beyond, key=lambda each: each.error)
    if best.memory is None or chosen.memory is None:
        kept = f"{best.bands - 1} vectors of all parameters instead of {chosen.bands - 1}"
    else:
        kept = f"{best.memory} bytes of earlier noise instead of {chosen.memory}"
    yield (
        f"More memory would give less error: {best.bands} bands have "
        f"{100.0 * (1.0 - best.error / chosen.error):.1f} % less than {chosen.bands}, but a run then keeps "
        f"{kept}. To allow this, give {best.bands} for correlation.max_bands."
    )


def _hyperparameters(solved: Solved, phase: CorrelatedSteps) -> Iterator[Provenance]:
    norm = math.sqrt(math.fsum(value * value for value in phase.coefficients))
    cyclic = isinstance(phase.event.sampling, CyclicPoisson)
    yield _derived(
        "bands",
        float(solved.bands),
        r"b = \arg\min_b s_b \|B\|",
        "chosen by the error of gradient sums, as a proxy for the error of training",
    )
    yield _derived(
        "coefficients",
        phase.coefficients,
        r"\arg\min_c \|c\|^2 \sum_i w_i d_i^2,\; d(x) = a(x) / c(x),\; c_0 \ge c_1 \ge \cdots \ge 0",
        "whole multiples of a power of two; a worse matrix increases the error but not the privacy cost",
    )
    yield Provenance(
        "noise_over_coefficient_norm",
        phase.noise_multiplier / norm,
        r"s / \|c\|",
        AMPLIFIED if cyclic else UNSAMPLED,
        ProvenanceKind.EXACT,
        ("the noise multiplier of independent steps with the same cost as the run",) if cyclic else (),
    )


def _utility(spec: Spec, solved: Solved, phase: CorrelatedSteps) -> Iterator[Provenance]:
    steps, strategy = phase.steps, solved.strategy
    yield Provenance(
        "gradient_evaluations", float(steps * phase.divisor), "T B", ALGORITHM.source, ProvenanceKind.EXACT
    )
    first, last = noise_of_steps(phase.coefficients, steps)
    on_sum, on_mean = phase.noise_stddev_on_sum, phase.noise_stddev_on_mean
    of_sums = "standard deviation per coordinate of the noise in the sum of the steps' mean gradients"
    if spec.step_size_schedule is not None and not spec.step_size_schedule.is_constant:
        of_sums += ", with each step weighted by its step size over the largest"
    of_step = "privacy does not depend on this number, but on C and s"
    for name, value, formula, remark in (
        (
            "error_of_sums",
            strategy.mean * on_mean,
            r"\frac{s c}{B} \sqrt{\tfrac{1}{T} \sum_t \|B_t\|^2},\; B = A C^{-1}",
            f"{of_sums}; root mean square over the steps",
        ),
        (
            "largest_error_of_sums",
            strategy.largest * on_mean,
            r"\frac{s c}{B} \max_t \|B_t\|,\; B = A C^{-1}",
            f"{of_sums}; for the worst step",
        ),
        ("first_step_noise", first * on_sum, _NOISE_OF_STEP, f"the noise on the sum of the first step; {of_step}"),
        ("last_step_noise", last * on_sum, _NOISE_OF_STEP, f"the noise on the sum of the last step; {of_step}"),
    ):
        yield _derived(name, value, formula, remark, units=GRADIENT)
    if spec.step_size is not None:
        yield _derived(
            "error_of_points",
            spec.step_size * strategy.mean * on_mean,
            r"\eta \frac{s c}{B} \sqrt{\tfrac{1}{T} \sum_t \|B_t\|^2}",
            "how far the noise alone would move a coordinate of the points, if the gradients did not depend on "
            "the points",
            units=PARAMETER,
        )
    ratio = next((each.ratio for each in solved.alternatives if each.is_chosen), None)
    if ratio is not None:
        yield _derived(
            "error_over_independent_noise",
            ratio,
            r"\frac{s_b \|B_b\|}{s_1 \|B_1\|}",
            "compared with fresh noise in every step and Poisson batches of the same size, at the same target",
        )
    if spec.dimension is not None:
        yield _derived(
            "memory_bytes",
            float(memory_of(len(phase.coefficients), spec.dimension)),
            r"4 (b - 1) d",
            "the noise of the last b - 1 steps; it must be kept as secret as the records",
        )


def _derived(name: str, value: float | tuple[float, ...], formula: str, remark: str, units: Units = PURE) -> Provenance:
    return Provenance(name, value, formula, DERIVED, ProvenanceKind.DERIVED, (remark,), units=units)


def _as_published(spec: Spec, solved: Solved) -> AsPublished | None:
    """Return the noise of Theorem 4 in the paper's setting, which is cyclic Poisson batches under replace_special."""
    target = spec.target
    if not isinstance(target, ApproximateDpTarget) or target.delta == 0.0:
        return None
    formula = r"\lceil T/b \rceil \text{ Poisson steps, } q = b B / n,\; s / \max_i \|C e_i\|"
    relation, steps = NeighboringRelation.REPLACE_SPECIAL, solved.steps
    assert spec.correlation is not None, "the registry fills in the correlation"
    own = replace(
        spec,
        unknown=Unknown.NOISE_MULTIPLIER,
        noise_multiplier=None,
        sampling=CyclicPoisson.kind,
        neighboring_relation=relation,
        iterations=steps.event.count,
        batch_size=steps.batch_size,
        correlation=replace(spec.correlation, bands=solved.bands),
    )
    try:
        found = solve(own).steps
    except AccountingError as error:
        why = f"The accounting engine finds no noise in the paper's setting: {error.detail.rstrip('.')}."
        return AsPublished(None, why, AMPLIFIED, formula)
    printed, setting = found.noise_multiplier, "cyclic Poisson batches, replace_special"
    verdict, why = UNJUDGED
    if spec.judge_published:
        verdict, why = judge([found.event], relation, target, printed=printed, needed=printed, setting=setting)
    return AsPublished(verdict, why, AMPLIFIED, formula, noise_multiplier=printed)


ALGORITHM = Algorithm(
    name="dp_bandmf",
    summary=(
        "Each record's gradient is clipped and summed, Gaussian noise that a banded matrix correlates over steps "
        "is added, and the points follow the noisy mean."
    ),
    source=f"{PAPER}, Algorithm 1 with Theorem 4",
    update=r"x_t = \frac{1}{c_0}\left(s c Z_t - \sum_{j=1}^{b-1} c_j x_{t-j}\right),\quad "
    r"m \leftarrow \beta m + \frac{1}{B}\left(\sum_i \min(1, c/\|g_i\|)\, g_i + x_t\right),\quad "
    r"\theta \leftarrow \theta - \eta m",
    samplings=(CyclicPoisson, FixedOrderEpochs),
    relations=(
        NeighboringRelation.ADD_OR_REMOVE_ONE,
        NeighboringRelation.REPLACE_ONE,
        NeighboringRelation.REPLACE_SPECIAL,
    ),
    gradient_bounds=(Clip,),
    assumptions=(),
    guarantee="(epsilon, delta)-differential privacy of all iterates together, hence of the released point.",
    gradient_complexity="T B",
    verdict=(
        "Sound in the paper's setting. By Theorem 4, a run costs no more than certain independent steps, and the "
        "engine solves for the noise of these steps."
    ),
    errata=(
        "The paper cuts the records into groups of equal size, so adding or removing a record would move "
        "others into other groups. Here groups are cut like this only under the replace relations. Under "
        "add_or_remove_one, each record draws its group independently.",
        (
            "The sampling probability follows from the declared number of records. It never depends on the size of "
            "a group, because that size is private."
        ),
        (
            "Here coefficients are nonnegative and do not increase. The paper allows other matrices, but for them "
            "it is not known in general which steps of a record change the sums most."
        ),
        (
            "Some implementations only try numbers of bands that divide a number of records. There is no reason "
            "for this: every number up to n/B is possible, and it need not divide the number of steps."
        ),
    ),
    calibrate=calibrate,
    scope=NO_THEOREM,
    example=Example(
        Spec(
            50_000,
            EXAMPLE_TARGET,
            batch_size=500,
            iterations=2000,
            gradient_bound=Clip(1.5),
            dimension=20,
            step_size=0.05,
            correlation=Correlation(bands=8),
        ),
        {
            "chosen": {"correlation": Correlation()},
            "momentum": {"momentum": 0.9, "correlation": Correlation(bands=16, objective=Objective.MAX)},
            "cooldown": {"momentum": 0.9, "step_size_schedule": StepSizeSchedule(Course.LINEAR, cooldown=0.5)},
        },
        bounded=False,
    ),
    requests={
        "dp_bandmf_chosen_bands": ExampleRequest(
            "DP-BandMF: correlated noise, the number of bands chosen by the error",
            {
                "dataset_size": 50000,
                "dimension": 7850,
                "batch_size": 500,
                "iterations": 2000,
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.05},
                "correlation": {"bands": "auto", "objective": "mean"},
            },
        ),
        "dp_bandmf_fixed_order": ExampleRequest(
            "DP-BandMF where batches cannot be sampled: the same order in every epoch, momentum 0.9",
            {
                "dataset_size": 50000,
                "dimension": 7850,
                "batch_size": 500,
                "iterations": 2000,
                "sampling": "fixed_order_epochs",
                "neighboring_relation": "replace_special",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.05, "momentum": 0.9},
                "correlation": {"bands": 64, "objective": "mean"},
            },
        ),
        "dp_bandmf_cooldown": ExampleRequest(
            "DP-BandMF: momentum 0.9, and step sizes that fall linearly over the last fifth of the steps",
            {
                "dataset_size": 50000,
                "dimension": 7850,
                "batch_size": 500,
                "iterations": 2000,
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
                "hyperparameters": {
                    "step_size": 0.05,
                    "momentum": 0.9,
                    "step_size_schedule": {"kind": "linear", "cooldown": 0.2},
                },
                "correlation": {"bands": 16, "objective": "mean"},
            },
        ),
    },
    correlates=True,
    step_rule=StepRule.BOUNDED_MEAN,
)
