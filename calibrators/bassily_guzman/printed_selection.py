r"""Report-noisy-max as Guzman's talk prints it: Laplace noise of the scores' sensitivity over epsilon.

The talk's scale is $\Delta_\infty/\varepsilon_0$ where a score changes by $\Delta_\infty$ at most. Scores of opposite
vertices move apart by twice that, so the selection is $2\varepsilon_0$-DP and no better. For the mean gradient of n
records over a ball of diameter M, $\Delta_\infty = L_0 M/n$.

The following instance loses nearly that much: d = 1, losses $\pm L_0 x$, all records alike. The gap of the two scores
is $g = n \varepsilon_0$ in units of the scale, and $g - 2\varepsilon_0$ once a record is replaced by its opposite. The
less likely of two vertices at a gap of g scales is selected with probability $\tfrac12 (1 + g/2) e^{-g}$, whatever was
selected before, since no gradient ever changes. So the log-ratio of selecting it in each of T steps is T times

$$2\varepsilon_0 - \ln \frac{1 + g/2}{1 + (g - 2\varepsilon_0)/2},\qquad g = n \varepsilon_0,$$

which is above $T \varepsilon_0$ for every n >= 2, because the logarithm is below $\varepsilon_0$.
"""

from __future__ import annotations

import math

from accounting.events import Event, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, PureDpTarget
from calibrators.as_published import AsPublished, Verdict, judge
from calibrators.spec import Spec
from calibrators.verdicts import UNJUDGED

SOURCE = "Guzman's talk of April 2022, report-noisy-max and composition (secondary source)"
FORMULA = r"\lambda = \Delta_\infty/\varepsilon_0,\quad \varepsilon = \varepsilon_0 \sqrt{2 T \ln(1/\delta)}"
PURE_FORMULA = r"\lambda = \Delta_\infty/\varepsilon_0,\quad \varepsilon = T \varepsilon_0"


def attained_loss(epsilon: float, dataset_size: int) -> float:
    """Return the log-ratio of one selection between two neighbours, with the talk's noise for ``epsilon``.

    Args:
        epsilon: The talk's epsilon of one selection.
        dataset_size: The number n of records, at least 2.

    >>> round(attained_loss(1.0, 100), 6)
    1.980197
    """
    gap = dataset_size * epsilon
    return 2.0 * epsilon - math.log((1.0 + gap / 2.0) / (1.0 + (gap - 2.0 * epsilon) / 2.0))


def laplace_rho(range_over_scale: float) -> float:
    r"""Return zCDP of one report-noisy-max with Laplace noise: $a \tanh(a/2)$, as of every a-DP mechanism.

    >>> round(laplace_rho(0.1), 9)
    0.004995837
    """
    return range_over_scale * math.tanh(range_over_scale / 2.0)


def printed_calibration(spec: Spec, iterations: int) -> AsPublished | None:
    """Return the talk's noise for T selections at the spec's target, with a verdict; None if the talk does not treat
    such targets.

    The result is never executable.
    """
    target, dataset_size = spec.target, spec.dataset_size
    if not isinstance(target, ApproximateDpTarget | PureDpTarget):
        return None
    delta = target.delta if isinstance(target, ApproximateDpTarget) else 0.0
    if delta >= 1.0:
        return None
    if delta == 0.0:
        each = target.limit / iterations
        loss = iterations * attained_loss(each, dataset_size)
        why = (
            f"Scores of opposite vertices move apart, which the printed noise does not count. On losses +-L_0 x over "
            f"the ball in one dimension, two neighbours select the unlikelier vertex in all {iterations} steps with a "
            f"log-ratio of {loss:.6g}, above the target of {target.limit:.6g}."
        )
        return AsPublished(Verdict.UNSOUND, why, SOURCE, PURE_FORMULA)
    each = target.limit / math.sqrt(2.0 * iterations * math.log(1.0 / delta))
    rho = laplace_rho(2.0 * each)
    cost = UNJUDGED[1]
    if spec.judge_published:
        _, cost = judge(
            [Event(ZcDp(rho), count=iterations)],
            NeighboringRelation.REPLACE_ONE,
            target,
            printed=1.0,
            needed=None,
            setting="full batches, replace_one, by the zCDP that its selections have",
        )
    attained = attained_loss(each, dataset_size)
    why = (
        f"Its proof takes a selection of this noise for {each:.6g}-DP at a target of {target.limit:.6g}. Scores of "
        f"opposite vertices move apart, and one selection attains a log-ratio of {attained:.6g}. {cost}"
    )
    return AsPublished(Verdict.UNSOUND, why, SOURCE, FORMULA)
