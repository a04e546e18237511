"""The paper's own noise, sigma(beta) of Theorem 11, with the engine's verdict."""

from __future__ import annotations

from accounting.errors import AccountingError
from accounting.events import Event, Gaussian, WithoutReplacement
from accounting.numbers import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.literal import Literal, Verdict, judge
from calibrators.noise import GaussianSteps, solve_steps
from calibrators.plan import Phase
from calibrators.spec import Spec
from calibrators.wang_nonsmooth.holder import PAPER
from calibrators.wang_nonsmooth.theorem_11 import Theorem11

SOURCE = f"{PAPER}, Theorem 11, with beta nearest to 1/2 among those that meet its conditions"
FORMULA = (
    r"\sigma^2 = \frac{14\,G^2\,T\,\lambda}{\beta\,n^2\,\varepsilon},\;"
    r" \lambda = \frac{\ln(1/\delta)}{(1-\beta)\varepsilon} + 1"
)
SETTING = "batches without replacement, replace_one"


def theorem_11(spec: Spec, phase: Phase) -> Literal | None:
    """The theorem at this spec's steps and batches; None for targets that it does not speak of."""
    target = spec.target
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    steps, size, bound = phase.steps, phase.divisor, phase.gradient_bound.contribution_bound
    theorem = Theorem11(spec.dataset_size, steps, target.epsilon, target.delta, size)
    split = theorem.literal()
    if split is None:
        return Literal(Verdict.UNSOUND, _nothing_feasible(theorem), SOURCE, FORMULA)
    stddev = bound * split.relative_variance**0.5
    multiplier = stddev * size / bound
    why = f"beta = {split.beta:.4g}, lambda = {split.order:.4g}"
    why += ". " if split.beta == 0.5 else ", since beta = 1/2 does not meet the conditions. "
    if not MIN_NOISE_MULTIPLIER <= multiplier <= MAX_NOISE_MULTIPLIER:
        why += f"The noise multiplier {multiplier:.4g} is beyond what the engine certifies."
        return Literal(Verdict.UNSOUND, why, SOURCE, FORMULA, noise_stddev_on_mean=stddev)
    verdict, reason = judge(
        [Event(Gaussian(multiplier), WithoutReplacement(size, spec.dataset_size), steps)],
        NeighboringRelation.REPLACE_ONE,
        target,
        printed=multiplier,
        needed=_needed(spec, steps, size),
        setting=SETTING,
    )
    return Literal(verdict, why + reason, SOURCE, FORMULA, noise_stddev_on_mean=stddev)


def _nothing_feasible(theorem: Theorem11) -> str:
    near = theorem.nearest_to_feasible()
    return (
        "The theorem has no noise here: no beta in (0, 1) meets its conditions (32) and (33). The nearest, beta = "
        f"{near.beta:.4g}, has sigma^2/G^2 = {near.relative_variance:.4g} and meets them by {near.ratio_margin:.4g} "
        f"and {near.order_margin:.4g}, where neither may be negative."
    )


def _needed(spec: Spec, steps: int, size: int) -> float | None:
    relation = NeighboringRelation.REPLACE_ONE
    own = GaussianSteps(WithoutReplacement.kind, spec.dataset_size, relation)
    question = Spec(spec.dataset_size, spec.target, neighboring_relation=relation)
    try:
        return solve_steps(question, own, iterations=steps, batch_size=size).noise_multiplier
    except AccountingError:
        return None
