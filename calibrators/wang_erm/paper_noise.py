"""The paper's own noise for full gradients, of which it leaves the constant open."""

from __future__ import annotations

import math

from accounting.errors import AccountingError
from accounting.events import Event, FullBatch, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.literal import Literal, Verdict, judge
from calibrators.noise import GaussianSteps, solve_steps
from calibrators.spec import Spec
from calibrators.wang_erm.full_gradient import PAPER

SOURCE = f"{PAPER}, section 6, noise of Algorithm 4 (c is order_constant)"
FORMULA = r"\sigma^2 = c\, G^2 T \ln(1/\delta) / (n^2 \varepsilon^2)"
SETTING = "full batches, replace_one"


def printed_noise_stddev_on_mean(
    epsilon: float, delta: float, dataset_size: int, iterations: int, lipschitz: float, order_constant: float = 1.0
) -> float:
    """sigma of the averaged gradient, per coordinate, in gradient units.

    >>> round(printed_noise_stddev_on_mean(1.0, 1e-6, 10**4, 100, 1.0), 12)
    0.003716922189
    """
    root = math.sqrt(order_constant * iterations * -math.log(delta))
    return lipschitz * root / (dataset_size * epsilon)


def sufficient_order_constant(epsilon: float, delta: float) -> float:
    """The c with which the printed noise is the one that zCDP asks for: 2 (1 + sqrt(1 + epsilon / ln(1/delta)))^2.

    It tends to 8 where epsilon is small against ln(1/delta) and grows without limit in epsilon, so that no single c
    serves "for all epsilon".

    >>> round(sufficient_order_constant(8.0, 1e-6), 8)
    10.18454368
    """
    return 2.0 * (1.0 + math.sqrt(1.0 + epsilon / -math.log(delta))) ** 2


def paper_noise(spec: Spec, iterations: int, lipschitz: float, order_constant: float) -> Literal | None:
    """The printed noise at this spec with the engine's verdict; None for targets that the paper does not speak of."""
    target = spec.target
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    printed = printed_noise_stddev_on_mean(
        target.epsilon, target.delta, spec.dataset_size, iterations, lipschitz, order_constant
    )
    multiplier = printed * spec.dataset_size / lipschitz
    try:
        event = Event(Gaussian(multiplier), FullBatch(), iterations)
    except AccountingError as error:
        why = f"The engine takes no such noise: {error.detail}"
        return Literal(Verdict.UNSOUND, why, SOURCE, FORMULA, noise_stddev_on_mean=printed)
    verdict, why = judge(
        [event],
        NeighboringRelation.REPLACE_ONE,
        target,
        printed=multiplier,
        needed=_needed(spec, iterations),
        setting=f"{SETTING}, c = {order_constant:g}",
    )
    return Literal(verdict, why, SOURCE, FORMULA, noise_stddev_on_mean=printed)


def _needed(spec: Spec, iterations: int) -> float | None:
    own = GaussianSteps(FullBatch.kind, spec.dataset_size, NeighboringRelation.REPLACE_ONE)
    question = Spec(spec.dataset_size, spec.target, neighboring_relation=NeighboringRelation.REPLACE_ONE)
    try:
        return solve_steps(question, own, iterations=iterations, batch_size=spec.dataset_size).noise_multiplier
    except AccountingError:
        return None
