r"""This module judges report-noisy-max as in Guzman's talk, with Laplace noise of scale sensitivity over epsilon.

The scale in the talk is $\Delta_\infty/\varepsilon_0$, where a score changes by at most $\Delta_\infty$. The scores of
opposite vertices can move apart by twice that, so the selection is only $2\varepsilon_0$-DP. For the mean gradient of n
records over a ball of diameter M, $\Delta_\infty = L_0 M/n$.

The following instance has nearly this privacy loss: d = 1, losses $\pm L_0 x$, all records equal. In units of the
scale, the gap between the two scores is $g = n \varepsilon_0$. It becomes $g - 2\varepsilon_0$ if a record is replaced
by its opposite. If the gap is g, the less likely vertex is selected with probability $\tfrac12 (1 + g/2) e^{-g}$. This
holds in every step, because the gradients never change. So the log-ratio for the event that this vertex is selected in
each of T steps is T times

$$2\varepsilon_0 - \ln \frac{1 + g/2}{1 + (g - 2\varepsilon_0)/2},\qquad g = n \varepsilon_0.$$

The result is above $T \varepsilon_0$ for every n >= 2, because the logarithm is below $\varepsilon_0$.
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
    """Return the log-ratio of the probabilities of one selection under two neighbours, with the talk's noise for
    ``epsilon``.

    Args:
        epsilon: The epsilon that the talk states for one selection.
        dataset_size: The number n of records, at least 2.

    >>> round(attained_loss(1.0, 100), 6)
    1.980197
    """
    gap = dataset_size * epsilon
    return 2.0 * epsilon - math.log((1.0 + gap / 2.0) / (1.0 + (gap - 2.0 * epsilon) / 2.0))


def laplace_rho(range_over_scale: float) -> float:
    r"""Return the zCDP of one report-noisy-max with Laplace noise: $a \tanh(a/2)$, as for every a-DP mechanism.

    >>> round(laplace_rho(0.1), 9)
    0.004995837
    """
    return range_over_scale * math.tanh(range_over_scale / 2.0)


def printed_calibration(spec: Spec, iterations: int) -> AsPublished | None:
    """Return the talk's noise for T selections at the spec's target, with a verdict. None if the talk does not treat
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
            "The printed noise does not account for scores of opposite vertices moving apart. Example: losses "
            "+-L_0 x in one dimension. For the event that the less likely vertex is selected in all "
            f"{iterations} steps, the log-ratio between two neighbours is {loss:.6g}. This is above the target "
            f"of {target.limit:.6g}."
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
            setting="full batches, replace_one, by the zCDP of its selections",
        )
    attained = attained_loss(each, dataset_size)
    why = (
        f"For a target of {target.limit:.6g}, the proof treats a selection with this noise as {each:.6g}-DP. "
        f"But scores of opposite vertices move apart, and one selection has a log-ratio of {attained:.6g}. "
        f"{cost}"
    )
    return AsPublished(Verdict.UNSOUND, why, SOURCE, FORMULA)
