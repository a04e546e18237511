"""This module judges the noise that the paper prints, for steps with Gaussian noise and for shuffled bits."""

from __future__ import annotations

import math

from accounting.events import DisjointBatches, FullBatch
from accounting.targets import ApproximateDpTarget, Target, ZcdpTarget
from calibrators.as_published import AsPublished, Verdict
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.shuffled_noise import solve_counts
from calibrators.lowy_razaviyayn.shuffled_sums import (
    composed_epsilon,
    noise_bits,
    reach_of_coordinates,
    share_of_delta,
)
from calibrators.lowy_razaviyayn.zcdp import proposition_3_rho
from calibrators.noise import GaussianSteps
from calibrators.phases.shuffled_counts import ShuffledBits
from calibrators.phases.shuffled_medians import ShuffledMedians
from calibrators.plan import Phase
from calibrators.spec import OpenDelta, OpenEpsilon, Spec
from calibrators.verdicts import RELATION, judge_steps, target_of

FORMULA = (
    r"\sigma^2 = \frac{4 C^2 T^2}{\varepsilon_p^2 n^2},\; \varepsilon_p = \sqrt{2 \rho},\;"
    r" \rho = (\sqrt{\ln(1/\delta) + \varepsilon} - \sqrt{\ln(1/\delta)})^2"
)


def printed_noise(spec: Spec, phase: Phase, *, algorithm: int, rounds: int) -> AsPublished | None:
    """Return the printed noise of an algorithm at this spec with a verdict; None for targets that the paper does not
    treat.

    The listing reads batches of n/T records. If there are more rounds than T, or if T does not divide n, such batches
    need more records than there are. The noise is therefore judged on batches of the plan's size s, for which the same
    standard deviation on the mean is a smaller multiple of C/s.

    Args:
        algorithm: The number of the algorithm in the paper.
        rounds: The T that is printed in the noise.
    """
    rho = rho_of(spec.target)
    if rho is None:
        return None
    oracle = "" if algorithm == 1 else "with Algorithm 1, and "
    source = f"{PAPER}, Algorithm {algorithm} ({oracle}Proposition 3 for targets in epsilon and delta)"
    size, steps = phase.divisor, phase.steps
    printed = printed_noise_multiplier(rho, rounds, size, spec.dataset_size)
    verdict, why = judged(spec, printed, steps, size)
    return AsPublished(
        verdict,
        _shares(steps, rounds, size, spec.dataset_size) + why,
        source,
        FORMULA,
        noise_multiplier=printed,
        noise_stddev_on_mean=printed * phase.gradient_bound.contribution_bound / size,
    )


def rho_of(target: Target | OpenEpsilon | OpenDelta) -> float | None:
    """Return the rho that the paper would use for a target: the target's rho, or the rho from Proposition 3. None if
    there is none.
    """
    if isinstance(target, ZcdpTarget):
        return target.rho
    if isinstance(target, ApproximateDpTarget) and 0.0 < target.delta < 1.0:
        return proposition_3_rho(target.epsilon, target.delta)
    return None


def judged(spec: Spec, noise_multiplier: float, steps: int, size: int) -> tuple[Verdict | None, str]:
    """Return the verdict on printed noise in one pass over batches of ``size`` records, if a record is replaced."""
    own = GaussianSteps(FullBatch.kind if steps == 1 else DisjointBatches.kind, spec.dataset_size, RELATION)
    setting = "all records in one step, replace_one" if steps == 1 else "one pass over disjoint batches, replace_one"
    return judge_steps(spec, own, noise_multiplier, iterations=steps, batch_size=size, setting=setting)


def _shares(steps: int, rounds: int, size: int, records: int) -> str:
    """Return a sentence about the problem with batches of n/T records; empty if there is no problem."""
    if steps > rounds:
        return (
            f"T + 1 = {steps} batches of n/T records need more records than there are, so the noise is judged on "
            f"batches of {size} records. "
        )
    if size * rounds != records:
        return (
            f"The batch size n/T = {records}/{rounds} is not a whole number, so the noise is judged on batches of "
            f"{size} records. "
        )
    return ""


def printed_noise_multiplier(rho: float, iterations: int, batch_size: int, records: int) -> float:
    """Return the printed sigma as a noise multiplier: sigma s / C = sqrt(2 / rho) s T / n. If s T < n, it is below
    sqrt(2 / rho), the multiplier that batches of s records need.

    >>> printed_noise_multiplier(0.5, iterations=4, batch_size=20, records=100)
    1.6
    """
    return math.sqrt(2.0 / rho) * batch_size * iterations / records


_REPLACED = 2.0


def printed_coordinate_epsilon(epsilon: float, delta: float, dimension: int) -> float:
    """Return the epsilon_j that Algorithm 13 prints, with its delta_j = delta / (2 d).

    >>> round(printed_coordinate_epsilon(1.0, 1e-5, 8), 10)
    0.0165360615
    """
    return epsilon / (4.0 * math.sqrt(2.0 * dimension * math.log(1.0 / share_of_delta(delta, dimension))))


def printed_composition(epsilon: float, delta: float, dimension: int) -> float:
    """Return the epsilon' of the proof: d calls at 2 epsilon_j, by advanced composition with delta_j.

    >>> round(printed_composition(1.0, 1e-5, 8), 10)
    0.5088964235
    """
    twice = 2.0 * printed_coordinate_epsilon(epsilon, delta, dimension)
    spread = math.sqrt(2.0 * dimension * math.log(1.0 / share_of_delta(delta, dimension)))
    return dimension * twice * math.expm1(twice) + twice * spread


def printed_calibration(spec: Spec, phase: ShuffledMedians) -> AsPublished | None:
    """Return the printed epsilon_j with the plan's levels, and a verdict for the case that a record is replaced."""
    target = spec.target
    if not isinstance(target, ApproximateDpTarget):
        return None
    dimension, users, levels = phase.dimension, phase.users, phase.levels
    each = printed_coordinate_epsilon(target.epsilon, target.delta, dimension)
    bits = noise_bits(users, levels, each, share_of_delta(target.delta, dimension))
    printed = math.sqrt(users * bits) / levels
    reach = reach_of_coordinates(_REPLACED, dimension, levels)
    cost = composed_epsilon(each, 0.5 * target.delta, reach)
    own = printed_composition(target.epsilon, target.delta, dimension)
    side = "within" if own <= target.limit else "above"
    why = (
        f"The paper's own composition gives epsilon' = {own:.6g}, which is {side} the target. Our composition "
        f"certifies {cost:.6g}"
    )
    verdict, why = judge_counts(spec, why, cost, printed, phase, reach)
    return AsPublished(
        verdict,
        why,
        f"{PAPER}, Algorithm 13, Proposition 53",
        r"\varepsilon_j = \tfrac{\varepsilon}{4 \sqrt{2 d \ln(1/\delta_j)}},\; \delta_j = \tfrac{\delta}{2d}",
        noise_multiplier=printed,
        noise_stddev_on_mean=printed * phase.truncation_radius / users,
    )


def judge_counts(
    spec: Spec, why: str, cost: float, printed: float, phase: ShuffledBits, reach: float
) -> tuple[Verdict, str]:
    """Judge printed noise bits by their cost if a record is replaced. The cost is computed in the same way as for the
    plan.

    Args:
        spec: The spec, with a target in epsilon and delta.
        why: The first words of the reason.
        cost: The cost of the printed bits.
        printed: The noise multiplier of the printed bits.
        phase: The phase of the plan. Its sizes are used for the printed noise, too.
        reach: The reach K if a record is replaced.
    """
    target = target_of(spec)
    if cost > target.limit:
        return Verdict.UNSOUND, f"{why}. This is above the target of {target.limit:.6g}."
    question = Spec(spec.dataset_size, target, neighboring_relation=RELATION)
    needed = solve_counts(question, phase.users, phase.dimension, phase.levels, reach).counts.noise_multiplier
    return Verdict.LOOSE, f"{why}. This meets the target with {printed / needed:.4g} times the noise that is needed."
