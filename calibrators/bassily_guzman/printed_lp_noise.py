r"""This module computes the noise that Bassily, Guzman & Nandi 2021 print for l_p balls, with the regularity constant
that they use.

Theorems 9 and 10 take $\kappa = \min\{1/(p-1), 2\ln d\}$. The first number is a regularity constant of l_q. If the
second number is smaller, it is not a regularity constant: it is below the smallest constant of every l_r norm. Noise
that is scaled by it is too small.
"""

from __future__ import annotations

import math

from accounting.targets import ApproximateDpTarget
from calibrators.as_published import AsPublished, Verdict
from calibrators.bassily_guzman.generalized_gaussian import Releases
from calibrators.bassily_guzman.lp_setting import LpSetting
from calibrators.spec import Spec
from calibrators.verdicts import RELATION, judge_steps

PAPER = "Bassily, Guzman & Nandi 2021"
MIRROR_SOURCE = f"{PAPER}, Algorithm 2"
MIRROR_FORMULA = r"\sigma^2 = 8 \kappa L_0^2 \ln(1/\delta) / (\varepsilon n)^2"
NAIVE_SOURCE = f"{PAPER}, Algorithm 3"
NAIVE_FORMULA = (
    r"\sigma_0^2 = 32 \kappa L_0^2 \ln(1/\delta)/(n^2\varepsilon^2),\;"
    r" \sigma^2 = 32 \kappa L_1^2 M^2 \eta^2 \ln(1/\delta)/(n \varepsilon^2)"
)
#: Two constants count as the same if their relative difference is at most this number.
_SAME = 1e-12


def printed_kappa(norm_order: float, dimension: int) -> float:
    r"""Return the kappa that the paper prints, $\min\{1/(p-1), 2 \ln d\}$.

    >>> printed_kappa(1.5, 100)
    2.0
    """
    return min(1.0 / (norm_order - 1.0), 2.0 * math.log(dimension))


def printed_mirror_descent(setting: LpSetting, dataset_size: int, epsilon: float, delta: float) -> tuple[int, float]:
    r"""Return the printed number of steps and the printed $\sigma^2$ of noisy mirror descent; the number of steps is 0
    if d is 1.
    """
    kappa = printed_kappa(setting.norm_order, setting.dimension)
    log_delta = -math.log(delta)
    records = epsilon * dataset_size
    steps = records**2 / (16.0 * setting.dimension * kappa * log_delta) if kappa > 0.0 else 0.0
    return math.floor(steps), 8.0 * kappa * setting.problem.lipschitz**2 * log_delta / records**2


def mirror_as_published(spec: Spec, setting: LpSetting) -> AsPublished | None:
    """Return the verdict on the printed noise of mirror descent; None for targets that the paper does not treat."""
    target = spec.target
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    steps, square = printed_mirror_descent(setting, spec.dataset_size, target.epsilon, target.delta)
    once = target.epsilon**2 / (-4.0 * math.log(target.delta))
    why = (
        f"The printed noise has sigma^2 = {square:.6g} at each of {steps} steps, and lacks the factor T. In "
        f"full batches the steps together cost rho {steps * once:.6g}, while the proof spends only {once:.6g} "
        "on all of them. The paper relies on minibatches to make up for this, but amplification by sampling is "
        "not proved for this kind of noise."
    )
    return AsPublished(Verdict.UNSOUND, why, MIRROR_SOURCE, MIRROR_FORMULA)


def naive_as_published(spec: Spec, setting: LpSetting) -> AsPublished | None:
    """Return the verdict on the noise of Algorithm 3 with the paper's sizes; None for targets that the paper does not
    treat.
    """
    target, n = spec.target, spec.dataset_size
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    kappa, valid = printed_kappa(setting.norm_order, setting.dimension), setting.regularity.kappa
    if kappa < valid * (1.0 - _SAME):
        why = (
            f"The printed kappa, {kappa:.6g}, is 2 ln d. This is not a regularity constant of the dual norm, "
            f"because the smallest constant that any l_r norm gives is {valid:.6g}. So the proof does not hold "
            "for any norm."
        )
        return AsPublished(Verdict.UNSOUND, why, NAIVE_SOURCE, NAIVE_FORMULA)
    multiplier = printed_naive_multiplier(setting, n, target.epsilon, target.delta)
    verdict, why = judge_steps(
        spec,
        Releases(RELATION, each=False),
        multiplier,
        iterations=1,
        batch_size=1,
        setting="disjoint batches, replace_one, the variant without trees",
    )
    return AsPublished(verdict, why, NAIVE_SOURCE, NAIVE_FORMULA, noise_multiplier=multiplier)


def printed_naive_multiplier(setting: LpSetting, dataset_size: int, epsilon: float, delta: float) -> float:
    r"""Return the noise multiplier $2/\sqrt{2\rho}$, where $\rho$ is the cost of the release that costs a record most.

    The batch sizes are $n_0 = \lfloor n/2 \rfloor$ and $m = \lfloor (n - n_0)/T \rfloor$ with $T = \lfloor\sqrt
    n\rfloor$. They may be below n/2 and $\sqrt n/2$, the values in the paper's formulas.
    """
    n = dataset_size
    first, steps = n // 2, math.isqrt(n)
    batch = (n - first) // steps
    scale = epsilon / math.sqrt(-32.0 * printed_kappa(setting.norm_order, setting.dimension) * math.log(delta))
    widths = [n / first * scale]
    change = setting.problem.smoothness * setting.problem.diameter * math.log(n) / (2.0 * math.sqrt(n))
    if change > 0.0:
        widths.append(min(1.0, 2.0 * setting.problem.lipschitz / change) * math.sqrt(n) / batch * scale)
    # Each width is the sensitivity to one record, divided by the printed sigma.
    return 1.0 / (math.sqrt(setting.regularity.kappa) * max(widths))


def unknown_as_published(spec: Spec, source: str, formula: str) -> AsPublished | None:
    """Return a verdict which says that the published constants are unknown; None for targets that the paper does not
    treat.
    """
    if not isinstance(spec.target, ApproximateDpTarget) or not 0.0 < spec.target.delta < 1.0:
        return None
    why = "The constants of the published noise are not known here, so there is nothing to certify."
    return AsPublished(Verdict.UNSOUND, why, source, formula)
