"""This module computes output noise by two rules other than the mixture: the paper's rule, with a verdict, and the
analytic rule.
"""

from __future__ import annotations

import math
from dataclasses import replace

from accounting.errors import Unreachable
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.as_published import AsPublished, Verdict
from calibrators.spec import Spec
from calibrators.wang_nonsmooth.holder import PAPER, HolderProblem
from calibrators.wang_nonsmooth.mixture import Mixture, draws_of
from calibrators.wang_nonsmooth.stability import Stability

SOURCE = f"{PAPER}, Theorem 8 with the Delta of Theorem 7"
FORMULA = (
    r"\sigma = \sqrt{2 \ln(2.5/\delta)}\, \Delta(\delta/2) / \varepsilon,\;"
    r" \Delta(\gamma)^2 = e \left[c_0^2 + 4 G^2 \eta^2 (1 + \kappa) \kappa\right]"
)
#: Printed noise is called loose only if it exceeds the least noise that meets the target by more than this ratio.
_SLACK = 1.01


def printed_stddev(stability: Stability, dataset_size: int, target: ApproximateDpTarget) -> float:
    """Return the sigma of Theorem 8, in parameter units.

    >>> hinge = Stability(0.5, 1.5, 3.0, 0.02, 1000, 1.0)
    >>> round(printed_stddev(hinge, 1000, ApproximateDpTarget(1.0, 1e-6)), 7)
    70.6073349
    """
    width = stability.printed(dataset_size, target.delta / 2.0)
    return math.sqrt(2.0 * (math.log(2.5) - math.log(target.delta))) * width / target.epsilon


def quantile(iterations: int, dataset_size: int, probability: float) -> int:
    """Return the least k for which P(Bin(T, 1/n) > k) is certified to be at most this probability.

    >>> quantile(1000, 1000, 5e-7), quantile(1000, 1000, 5e-10)
    (9, 12)
    """
    law = draws_of(iterations, dataset_size)
    above = law.outside
    for count, mass in zip(law.counts[::-1].tolist(), law.probabilities[::-1].tolist(), strict=True):
        if above + mass > probability:
            return int(count)
        above += mass
    return int(law.counts[0])


def analytic_stddev(
    stability: Stability, dataset_size: int, sensitivity: float, target: ApproximateDpTarget
) -> float | None:
    """Return Delta_k divided by the exact mu of (epsilon, delta/2), in parameter units; None if the engine finds no
    such noise.
    """
    draws = quantile(stability.iterations, dataset_size, target.delta / 2.0)
    width = stability.displacement(draws, sensitivity)
    try:
        return width * Mixture(1, 1, 0.0, 1.0, math.inf).noise_multiplier(target.epsilon, target.delta / 2.0)
    except Unreachable:
        return None


def printed_stability(problem: HolderProblem, stability: Stability) -> Stability:
    r"""Return the stability with the paper's G. On all of R^d, this is M + L (C_alpha T eta)^(alpha/2), which is larger
    than needed.

    C_alpha is (1 - alpha)/(1 + alpha) L^(2/(1 - alpha)) + 2 M_0. The paper drops a power of eta because eta < 1. Here
    this 1 is read as 1/c, as for the step size.

    Raises:
        OverflowError: If C_alpha has no value in floating point, as for alpha near 1.
    """
    alpha, loss, longest = stability.exponent, problem.loss_at_zero, problem.gradient_norm
    if longest is not None or loss is None or problem.gradient_at_zero is None:
        return stability
    first = 0.0
    if alpha < 1.0:
        dropped = math.pow(problem.order_constant, -(1.0 + alpha) / (1.0 - alpha))
        first = (1.0 - alpha) / (1.0 + alpha) * math.pow(stability.constant, 2.0 / (1.0 - alpha)) * dropped
    reached = math.pow((first + 2.0 * loss) * stability.iterations * stability.step_size, 0.5 * alpha)
    return replace(stability, gradient_norm=problem.gradient_at_zero + stability.constant * reached)


def theorem_8(spec: Spec, problem: HolderProblem, stability: Stability) -> AsPublished | None:
    """Return a verdict on the printed noise under the paper's relation; None for targets that the paper does not
    treat.
    """
    target = spec.target
    if not isinstance(target, ApproximateDpTarget):
        return None
    try:
        stddev = printed_stddev(printed_stability(problem, stability), spec.dataset_size, target)
    except OverflowError:
        why = (
            f"At holder_exponent {stability.exponent:g}, the paper's C_alpha has no finite value, and neither does "
            "its noise."
        )
        return AsPublished(Verdict.UNSOUND, why, SOURCE, FORMULA)
    sensitivity = NeighboringRelation.REPLACE_ONE.sensitivity
    cap = 2.0 * stability.radius / stability.draw
    own = Mixture(stability.iterations, spec.dataset_size, stability.drift / stability.draw, sensitivity, cap)
    multiplier = stddev / stability.draw
    found = own.delta(target.epsilon, multiplier)
    why = f"With the printed noise, the certified delta at epsilon {target.epsilon:.6g} is at most {found:.6g}"
    if found > target.delta:
        verdict, why = Verdict.UNSOUND, f"{why}. This does not meet the target of {target.delta:.6g}."
    else:
        verdict, why = _judged(own, target, multiplier, why)
    if target.epsilon > 1.0:
        why += " Its formula is proved only for epsilon <= 1, so the paper's proof does not cover this target."
    return AsPublished(verdict, why, SOURCE, FORMULA, noise_stddev_on_mean=stddev)


def _judged(own: Mixture, target: ApproximateDpTarget, multiplier: float, why: str) -> tuple[Verdict, str]:
    try:
        needed = own.noise_multiplier(target.epsilon, target.delta)
    except Unreachable:
        return Verdict.SOUND, f"{why}. This meets the target of {target.delta:.6g}."
    if multiplier <= _SLACK * needed:
        return Verdict.SOUND, f"{why}. This meets the target of {target.delta:.6g}."
    ratio = multiplier / needed
    return Verdict.LOOSE, f"{why}. It meets the target with {ratio:.4g} times the noise that is needed."
