"""DP-NAdam: normalise every record's gradient, add noise, take Adam's step (Yang et al. 2022, Appendix D).

The N is for normalised, not for Nesterov.
"""

from __future__ import annotations

from calibrators.algorithm import Algorithm
from calibrators.plan import Normalize
from calibrators.spec import Calibration, Spec
from calibrators.yang_nsgd.adam import ERRATA, calibrate_adam
from calibrators.yang_nsgd.nonconvex import PAPER, RELATIONS, SAMPLINGS, VERDICT


def calibrate(spec: Spec) -> Calibration:
    """Noise from the engine; the step size is the caller's.

    Raises:
        As `calibrate_adam`.
    """
    return calibrate_adam(DP_NADAM, spec)


DP_NADAM = Algorithm(
    name="dp_nadam",
    summary="Divide each record's gradient g by (r + |g|), sum, add Gaussian noise, and feed the mean to Adam.",
    source=f"{PAPER}, Appendix D with equation (3)",
    update=(
        r"\tilde g = \frac{1}{B}\left(\sum_i \frac{g_i}{r + \|g_i\|} + \sigma Z\right),\quad "
        r"x \leftarrow x - \eta\, \frac{\hat m}{\sqrt{\hat v} + \xi}"
    ),
    samplings=SAMPLINGS,
    relations=RELATIONS,
    gradient_bounds=(Normalize,),
    assumptions=(),
    guarantee="(epsilon, delta)-differential privacy of all iterates together, hence of the released last one.",
    gradient_complexity="T B",
    verdict=VERDICT,
    errata=(*ERRATA, "The noise on the sum is sigma whatever r is: scaling it by r voids the guarantee."),
    calibrate=calibrate,
)
