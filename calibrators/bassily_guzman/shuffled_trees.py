r"""The calibration of Asi, Feldman, Koren & Talwar 2021 for their tree Frank-Wolfe, as far as we know it.

Their noise is Laplace, and for delta > 0 their proof amplifies by shuffling each level's records. The numbers come from
a secondary source: for delta > 0 they are known up to a constant only. For delta = 0 the printed scale of tree t is
$2 L_0 D\, 2^t/(b \varepsilon)$ with $b = n/\ln^2 n$ and a *radius* D, which gives only half of the privacy loss of the
trees.

The following instance attains it: d = 1, losses $\pm L_0 x$ on [-D, D], so that no gradient ever changes. One record of
the root moves the gap of the two scores by $4 L_0 D/b$, which is $2\varepsilon/2^t$ times the noise scale, at each of
the $2^t$ leaves of its tree. The less likely of two vertices at a gap of g scales is selected with probability
$\tfrac12 (1 + g/2) e^{-g}$; hence in the first tree the event that it is selected at both leaves has the log-ratio

$$2\varepsilon - 2 \ln \frac{1 + g/2}{1 + (g - \varepsilon)/2}, \qquad g = b\varepsilon/2,$$

which is above $\varepsilon$ for every b (the logarithm is below $\varepsilon/2$, since $g \ge \varepsilon$), and tends
to $2\varepsilon$ as b grows.
"""

from __future__ import annotations

import math

from calibrators.as_published import AsPublished, Verdict

SOURCE = "Asi, Feldman, Koren & Talwar 2021, tree Frank-Wolfe (secondary source)"
FORMULA = r"\lambda \propto L_0 D\, 2^{T/2} \ln(n/\delta) / (b \varepsilon),\quad b = n/\ln^2 n"
PURE_FORMULA = r"\lambda_t = 2 L_0 D\, 2^t / (b \varepsilon),\quad b = n/\ln^2 n"


def attained_loss(epsilon: float, records_per_tree: int) -> float:
    """Return the log-ratio of one event between two neighbours in the first tree, with the printed noise for delta = 0.

    >>> round(attained_loss(1.0, 427), 6)
    1.990698
    """
    gap = records_per_tree * epsilon / 2.0
    return 2.0 * (epsilon - math.log((1.0 + gap / 2.0) / (1.0 + (gap - epsilon) / 2.0)))


def printed_calibration(epsilon: float, delta: float, dataset_size: int) -> AsPublished:
    """Return the paper's noise at this target, with a verdict. It is never executed."""
    if delta > 0.0:
        why = (
            "The constants are unspecified: the printed noise is known up to a factor, and its proof amplifies by "
            "shuffling, which is not accounted here. There is nothing to certify."
        )
        return AsPublished(Verdict.UNSOUND, why, SOURCE, FORMULA)
    records = max(2, math.floor(dataset_size / math.log(dataset_size) ** 2))
    why = (
        f"The printed noise takes the radius for the diameter. On losses +-L_0 x over [-D, D], with b = {records}, two "
        f"neighbours select the unlikelier vertex at both leaves of the first tree with a log-ratio of "
        f"{attained_loss(epsilon, records):.6g}, above the target of {epsilon:.6g}."
    )
    return AsPublished(Verdict.UNSOUND, why, SOURCE, PURE_FORMULA)
