"""The noise that Algorithm 6 prints, at the batches that its T + 1 rounds can have."""

from __future__ import annotations

import math

from accounting.errors import AccountingError
from accounting.events import DisjointBatches, Event, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, ZcdpTarget
from calibrators.literal import Literal, Verdict, judge
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.zcdp import proposition_3_rho
from calibrators.noise import GaussianSteps, solve_steps
from calibrators.plan import Phase
from calibrators.spec import Spec

SOURCE = f"{PAPER}, Algorithm 6 with Algorithm 1 (Proposition 3 for targets in epsilon and delta)"
FORMULA = (
    r"\sigma^2 = \frac{4 C^2 T^2}{\varepsilon_p^2 n^2},\; \varepsilon_p = \sqrt{2 \rho},\;"
    r" \rho = (\sqrt{\ln(1/\delta) + \varepsilon} - \sqrt{\ln(1/\delta)})^2"
)
_RELATION = NeighboringRelation.REPLACE_ONE
_SETTING = "one pass over disjoint batches, replace_one"


def printed_noise(spec: Spec, phase: Phase) -> Literal | None:
    """Algorithm 6's noise at this spec with the engine's verdict; None for targets that the paper does not speak of.

    Its T + 1 rounds read batches of n/T, which is n/T records more than there are. The noise is therefore judged on
    batches of floor(n/(T + 1)), where its standard deviation on the mean is that of a smaller multiple of C/s.
    """
    target = spec.target
    if isinstance(target, ZcdpTarget):
        rho = target.rho
    elif isinstance(target, ApproximateDpTarget) and 0.0 < target.delta < 1.0:
        rho = proposition_3_rho(target.epsilon, target.delta)
    else:
        return None
    rounds, size = phase.steps, phase.divisor
    printed = printed_noise_multiplier(rho, rounds - 1, size, spec.dataset_size)
    try:
        event = Event(Gaussian(printed), DisjointBatches("by_position"), rounds)
    except AccountingError as error:
        # It is for comparison: what the engine does not take refuses no request.
        why = f"The engine takes no such noise: {error.detail}"
        return Literal(Verdict.UNSOUND, why, SOURCE, FORMULA, noise_multiplier=printed)
    needed = _needed(spec, rounds, size)
    verdict, why = judge([event], _RELATION, target, printed=printed, needed=needed, setting=_SETTING)
    shares = f"T + 1 = {rounds} batches of n/T records are more records than there are; judged on batches of {size}. "
    return Literal(
        verdict,
        shares + why,
        SOURCE,
        FORMULA,
        noise_multiplier=printed,
        noise_stddev_on_mean=printed * phase.gradient_bound.contribution_bound / size,
    )


def printed_noise_multiplier(rho: float, iterations: int, batch_size: int, records: int) -> float:
    """sigma of Algorithm 6, times s / C: sqrt(2 / rho) s T / n, a little below the sqrt(2 / rho) that s needs.

    >>> printed_noise_multiplier(0.5, iterations=4, batch_size=20, records=100)
    1.6
    """
    return math.sqrt(2.0 / rho) * batch_size * iterations / records


def _needed(spec: Spec, rounds: int, size: int) -> float | None:
    question = Spec(spec.dataset_size, spec.target, neighboring_relation=_RELATION)
    own = GaussianSteps(DisjointBatches.kind, spec.dataset_size, _RELATION)
    try:
        return solve_steps(question, own, iterations=rounds, batch_size=size).noise_multiplier
    except AccountingError:
        return None
