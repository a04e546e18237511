"""This module contains Lemma 3.1, the paper's own calibration, with explicit values for the constants that it leaves
open.
"""

from __future__ import annotations

import math

from accounting.events import WithoutReplacement
from accounting.targets import ApproximateDpTarget
from calibrators.as_published import AsPublished, Verdict
from calibrators.noise import GaussianSteps
from calibrators.plan import Phase
from calibrators.spec import Spec
from calibrators.verdicts import RELATION, judge_steps
from calibrators.yang_nsgd.nonconvex import PAPER

SOURCE = f"{PAPER}, Lemma 3.1 (constants derived, sensitivity 1 as in its Proposition E.3)"
FORMULA = r"\sigma = q \sqrt{13 T / (2 \rho')},\; \rho' = (\sqrt{\ln(1/\delta) + \varepsilon} - \sqrt{\ln(1/\delta)})^2"
SETTING = "batches without replacement, replace_one"


def printed_noise_multiplier(
    epsilon: float, delta: float, sampling_fraction: float, iterations: int, sensitivity: float = 1.0
) -> float:
    """Return the sigma of Lemma 3.1: the noise on the sum, divided by the contribution bound.

    Source: Yang et al. 2022, Lemma 3.1 with Proposition E.3. The constant follows from the term 13 q^2 rho alpha.

    >>> round(printed_noise_multiplier(8.0, 1e-5, 0.02, 5000), 9)
    3.520105986
    """
    rho = _rho(epsilon, delta)
    return sensitivity * sampling_fraction * math.sqrt(13.0 * iterations / (2.0 * rho))


def failed_conditions(epsilon: float, delta: float, sampling_fraction: float, iterations: int) -> tuple[str, ...]:
    """Return the conditions of the lemma that do not hold, in words.

    >>> failed_conditions(8.0, 1e-5, 0.02, 5000)
    ()
    """
    rho, log_delta = _rho(epsilon, delta), math.log(1.0 / delta)
    square = sampling_fraction**2 * iterations
    conditions = (
        (sampling_fraction <= 0.1, f"q <= 0.1 (q is {sampling_fraction:.4g})"),
        (rho <= 1.3 * square, f"sigma >= sqrt(5) (rho' = {rho:.4g} is above 1.3 q^2 T = {1.3 * square:.4g})"),
        (
            rho + math.sqrt(log_delta * rho) <= 3.25 * square * math.log(1.0 / sampling_fraction),
            "alpha <= omega (the required Renyi order is outside the range of the amplification theorem)",
        ),
    )
    return tuple(words for holds, words in conditions if not holds)


def lemma_3_1(spec: Spec, phase: Phase) -> AsPublished | None:
    """Return the noise of the lemma at this spec, with a verdict; None for targets that the lemma does not treat."""
    target = spec.target
    if not isinstance(target, ApproximateDpTarget) or target.delta == 0.0:
        return None
    steps, size = phase.steps, phase.divisor
    fraction = size / spec.dataset_size
    failed = failed_conditions(target.epsilon, target.delta, fraction, steps)
    if failed:
        return AsPublished(Verdict.UNSOUND, f"The lemma does not apply: it needs {'; '.join(failed)}.", SOURCE, FORMULA)
    printed = printed_noise_multiplier(target.epsilon, target.delta, fraction, steps)
    batches = GaussianSteps(WithoutReplacement.kind, spec.dataset_size, RELATION)
    verdict, why = judge_steps(spec, batches, printed, iterations=steps, batch_size=size, setting=SETTING)
    return AsPublished(verdict, why, SOURCE, FORMULA, noise_multiplier=printed)


def _rho(epsilon: float, delta: float) -> float:
    log_delta = math.log(1.0 / delta)
    # This computes the squared difference of the roots without cancellation.
    return (epsilon / (math.sqrt(log_delta + epsilon) + math.sqrt(log_delta))) ** 2
