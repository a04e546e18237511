"""This module judges the paper's noise for full gradients, which has an open constant, for DP-GD and for DP-AccMD as
printed.
"""

from __future__ import annotations

import math

from accounting.events import FullBatch
from accounting.targets import ApproximateDpTarget
from calibrators.as_published import AsPublished, Verdict
from calibrators.noise import GaussianSteps
from calibrators.spec import Spec
from calibrators.verdicts import RELATION, judge_steps
from calibrators.wang_erm.full_gradient import PAPER

SOURCE = f"{PAPER}, section 6, noise of Algorithm 4 (c is order_constant)"
FORMULA = r"\sigma^2 = c\, G^2 T \ln(1/\delta) / (n^2 \varepsilon^2)"
SETTING = "full batches, replace_one"


def printed_noise_stddev_on_mean(
    epsilon: float, delta: float, dataset_size: int, iterations: int, lipschitz: float, order_constant: float = 1.0
) -> float:
    """Return the printed standard deviation of the noise on the mean gradient, per coordinate, in gradient units.

    >>> round(printed_noise_stddev_on_mean(1.0, 1e-6, 10**4, 100, 1.0), 12)
    0.003716922189
    """
    root = math.sqrt(order_constant * iterations * -math.log(delta))
    return lipschitz * root / (dataset_size * epsilon)


def sufficient_order_constant(epsilon: float, delta: float) -> float:
    """Return the c for which the printed noise equals the noise that zCDP needs: 2 (1 + sqrt(1 + epsilon /
    ln(1/delta)))^2.

    This c tends to 8 if epsilon is small compared with ln(1/delta), and grows without limit in epsilon. So no single c
    suffices "for all epsilon".

    >>> round(sufficient_order_constant(8.0, 1e-6), 8)
    10.18454368
    """
    return 2.0 * (1.0 + math.sqrt(1.0 + epsilon / -math.log(delta))) ** 2


def paper_noise(spec: Spec, iterations: int, lipschitz: float, order_constant: float) -> AsPublished | None:
    """Return the printed noise at this spec, with a verdict; None for targets that the paper does not treat."""
    target = spec.target
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    printed = printed_noise_stddev_on_mean(
        target.epsilon, target.delta, spec.dataset_size, iterations, lipschitz, order_constant
    )
    verdict, why = judge_steps(
        spec,
        GaussianSteps(FullBatch.kind, spec.dataset_size, RELATION),
        printed * spec.dataset_size / lipschitz,
        iterations=iterations,
        batch_size=spec.dataset_size,
        setting=f"{SETTING}, c = {order_constant:g}",
    )
    return AsPublished(verdict, why, SOURCE, FORMULA, noise_stddev_on_mean=printed)


def printed_accmd(spec: Spec, iterations: int, lipschitz: float, order_constant: float) -> AsPublished | None:
    """Return the printed noise of DP-AccMD, which is unsound for every constant; None for targets that the paper does
    not treat.
    """
    target = spec.target
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    printed = printed_noise_stddev_on_mean(
        target.epsilon, target.delta, spec.dataset_size, iterations, lipschitz, order_constant
    )
    return AsPublished(
        Verdict.UNSOUND,
        f"No noise of this form meets epsilon {target.epsilon:.6g}: the printed step for y uses the gradient "
        "without noise, and y_T is released. With T = 1 the released point has no noise at all, so a record "
        "with a different gradient at x_0 is detected with certainty (delta = 1). With T = 2 and linear "
        "losses, the released point moves by 5 times the ratio of sensitivity to noise, but the proof charges "
        "only sqrt(2) times. If iterates are seen, as the paper's composition allows, every y is exact. With a "
        "mirror map of larger modulus, no sigma suffices for any T.",
        f"{PAPER}, Algorithm 3, equation (9) (c is order_constant)",
        FORMULA,
        noise_stddev_on_mean=printed,
    )
