"""DP-Adam: clip every record's gradient, add noise, take Adam's step (Yang et al. 2022, Appendix D)."""

from __future__ import annotations

from calibrators.algorithm import Algorithm
from calibrators.plan import Clip
from calibrators.spec import Calibration, Spec
from calibrators.yang_nsgd.adam import ERRATA, calibrate_adam
from calibrators.yang_nsgd.nonconvex import PAPER, RELATIONS, SAMPLINGS, VERDICT


def calibrate(spec: Spec) -> Calibration:
    """Noise from the engine; the step size is the caller's.

    Raises:
        As `calibrate_adam`.
    """
    return calibrate_adam(DP_ADAM, spec)


DP_ADAM = Algorithm(
    name="dp_adam",
    summary="Clip each record's gradient to l2 norm c, sum, add Gaussian noise, and feed the mean to Adam.",
    source=f"{PAPER}, Appendix D with equation (2)",
    update=(
        r"\tilde g = \frac{1}{B}\left(\sum_i \min(1, c/\|g_i\|)\, g_i + c\,\sigma Z\right),\quad "
        r"x \leftarrow x - \eta\, \frac{\hat m}{\sqrt{\hat v} + \xi}"
    ),
    samplings=SAMPLINGS,
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    assumptions=(),
    guarantee="(epsilon, delta)-differential privacy of all iterates together, hence of the released last one.",
    gradient_complexity="T B",
    verdict=VERDICT,
    errata=ERRATA,
    calibrate=calibrate,
)
