"""DP-AccMD's printed noise: of steps that no noise makes private."""

from __future__ import annotations

from accounting.targets import ApproximateDpTarget
from calibrators.literal import Literal, Verdict
from calibrators.spec import Spec
from calibrators.wang_erm.full_gradient import PAPER
from calibrators.wang_erm.paper_noise import FORMULA, printed_noise_stddev_on_mean


def printed_accmd(spec: Spec, iterations: int, lipschitz: float, order_constant: float) -> Literal | None:
    """The printed noise at this spec, unsound whatever its constant; None for targets that it does not speak of."""
    target = spec.target
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    printed = printed_noise_stddev_on_mean(
        target.epsilon, target.delta, spec.dataset_size, iterations, lipschitz, order_constant
    )
    return Literal(
        Verdict.UNSOUND,
        f"No such noise meets epsilon {target.epsilon:.6g}: the printed step for y uses the gradient without noise, "
        "and y_T is released. With T = 1 the released point has no noise at all, so that one record with another "
        "gradient at x_0 is seen for certain (delta = 1). With T = 2 and linear losses the released point moves by 5 "
        "times the sensitivity over the noise where the proof charges sqrt(2). Where iterates are seen, as its "
        "composition allows, every y is exact; and with a mirror map of larger modulus no sigma suffices for any T.",
        f"{PAPER}, Algorithm 3, equation (9) (c is order_constant)",
        FORMULA,
        noise_stddev_on_mean=printed,
    )
