r"""The noise that Bassily, Guzman & Nandi 2021 print for l_p balls, with the regularity constant that they name.

Theorems 9 and 10 take $\kappa = \min\{1/(p-1), 2\ln d\}$. The first is a regularity constant of l_q. If the second is
smaller, it is no regularity constant: it is below the least constant of every l_r norm, and noise that is scaled by it
is too small.
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
#: The relative difference within which two constants are the same.
_SAME = 1e-12


def printed_kappa(norm_order: float, dimension: int) -> float:
    r"""Return $\min\{1/(p-1), 2 \ln d\}$.

    >>> printed_kappa(1.5, 100)
    2.0
    """
    return min(1.0 / (norm_order - 1.0), 2.0 * math.log(dimension))


def printed_mirror_descent(setting: LpSetting, dataset_size: int, epsilon: float, delta: float) -> tuple[int, float]:
    r"""Return the printed number of steps and $\sigma^2$ of noisy mirror descent; no steps if d is 1."""
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
        f"The printed noise has sigma^2 = {square:.6g} at each of {steps} steps, and the factor T is lost: in full "
        f"batches the steps cost rho {steps * once:.6g}, where their proof spends {once:.6g} on all. The minibatches "
        "that are to make up for it have no proof: amplification by sampling is not shown for this noise."
    )
    return AsPublished(Verdict.UNSOUND, why, MIRROR_SOURCE, MIRROR_FORMULA)


def naive_as_published(spec: Spec, setting: LpSetting) -> AsPublished | None:
    """Return the verdict on Algorithm 3's noise with its own sizes; None for targets that the paper does not treat."""
    target, n = spec.target, spec.dataset_size
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    kappa, valid = printed_kappa(setting.norm_order, setting.dimension), setting.regularity.kappa
    if kappa < valid * (1.0 - _SAME):
        why = (
            f"The printed kappa, {kappa:.6g}, is 2 ln d, which is no regularity constant of the dual norm: the least "
            f"that any l_r norm has is {valid:.6g}, so that the proof has no norm to stand on."
        )
        return AsPublished(Verdict.UNSOUND, why, NAIVE_SOURCE, NAIVE_FORMULA)
    multiplier = printed_naive_multiplier(setting, n, target.epsilon, target.delta)
    verdict, why = judge_steps(
        spec,
        Releases(RELATION, each=False),
        multiplier,
        iterations=1,
        batch_size=1,
        setting="disjoint batches, replace_one, sums of changes without trees",
    )
    return AsPublished(verdict, why, NAIVE_SOURCE, NAIVE_FORMULA, noise_multiplier=multiplier)


def printed_naive_multiplier(setting: LpSetting, dataset_size: int, epsilon: float, delta: float) -> float:
    r"""Return the noise multiplier $2/\sqrt{2\rho}$ of the release that costs a record most.

    With $n_0 = \lfloor n/2 \rfloor$, $T = \lfloor\sqrt n\rfloor$ and $m = \lfloor (n - n_0)/T \rfloor$, which may be
    below n/2 and $\sqrt n/2$, the values in the formulas.
    """
    n = dataset_size
    first, steps = n // 2, math.isqrt(n)
    batch = (n - first) // steps
    scale = epsilon / math.sqrt(-32.0 * printed_kappa(setting.norm_order, setting.dimension) * math.log(delta))
    widths = [n / first * scale]
    change = setting.problem.smoothness * setting.problem.diameter * math.log(n) / (2.0 * math.sqrt(n))
    if change > 0.0:
        widths.append(min(1.0, 2.0 * setting.problem.lipschitz / change) * math.sqrt(n) / batch * scale)
    # Each of these is the sensitivity of one record's part over the printed sigma.
    return 1.0 / (math.sqrt(setting.regularity.kappa) * max(widths))


def unknown_as_published(spec: Spec, source: str, formula: str) -> AsPublished | None:
    """Say that the published constants are unknown; None for targets that the paper does not treat."""
    if not isinstance(spec.target, ApproximateDpTarget) or not 0.0 < spec.target.delta < 1.0:
        return None
    why = "The constants of the published noise are not known here, so that there is nothing to certify."
    return AsPublished(Verdict.UNSOUND, why, source, formula)
