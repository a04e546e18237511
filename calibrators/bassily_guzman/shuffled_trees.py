r"""This module contains what is known of the calibration of Asi, Feldman, Koren & Talwar 2021 for their tree
Frank-Wolfe.

They use Laplace noise, and for delta > 0 their proof uses amplification by shuffling each level's records. The numbers
come from a secondary source. For delta > 0 they are known only up to a constant. For delta = 0 the printed scale of
tree t is $2 L_0 D\, 2^t/(b \varepsilon)$ with $b = n/\ln^2 n$ and a *radius* D. With this noise, the privacy loss of
the trees is twice the stated one.

The following instance shows this: d = 1 and losses $\pm L_0 x$ on [-D, D], so the gradients never change. One record of
the root moves the gap between the two scores by $4 L_0 D/b$ at each of the $2^t$ leaves of its tree. This is
$2\varepsilon/2^t$ times the noise scale. If the gap is g noise scales, the less likely vertex is selected with
probability $\tfrac12 (1 + g/2) e^{-g}$. So in the first tree, the event that this vertex is selected at both leaves has
the log-ratio

$$2\varepsilon - 2 \ln \frac{1 + g/2}{1 + (g - \varepsilon)/2}, \qquad g = b\varepsilon/2.$$

The log-ratio is above $\varepsilon$ for every b (the logarithm is below $\varepsilon/2$, since $g \ge \varepsilon$),
and tends to $2\varepsilon$ as b grows.
"""

from __future__ import annotations

import math

from calibrators.as_published import AsPublished, Verdict

SOURCE = "Asi, Feldman, Koren & Talwar 2021, tree Frank-Wolfe (secondary source)"
FORMULA = r"\lambda \propto L_0 D\, 2^{T/2} \ln(n/\delta) / (b \varepsilon),\quad b = n/\ln^2 n"
PURE_FORMULA = r"\lambda_t = 2 L_0 D\, 2^t / (b \varepsilon),\quad b = n/\ln^2 n"


def attained_loss(epsilon: float, records_per_tree: int) -> float:
    """Return the log-ratio of the probabilities of one event in the first tree under two neighbours, with the printed
    noise for delta = 0.

    >>> round(attained_loss(1.0, 427), 6)
    1.990698
    """
    gap = records_per_tree * epsilon / 2.0
    return 2.0 * (epsilon - math.log((1.0 + gap / 2.0) / (1.0 + (gap - epsilon) / 2.0)))


def printed_calibration(epsilon: float, delta: float, dataset_size: int) -> AsPublished:
    """Return the paper's noise at this target, with a verdict. The printed noise is never executed."""
    if delta > 0.0:
        why = (
            "There is nothing to certify. The printed noise is known only up to a constant, and its proof "
            "relies on amplification by shuffling, which is not accounted here."
        )
        return AsPublished(Verdict.UNSOUND, why, SOURCE, FORMULA)
    records = max(2, math.floor(dataset_size / math.log(dataset_size) ** 2))
    why = (
        "The printed noise uses the radius where the diameter is needed. Example: losses +-L_0 x over [-D, D], "
        f"with b = {records}. For the event that the less likely vertex is selected at both leaves of the first "
        f"tree, the log-ratio between two neighbours is {attained_loss(epsilon, records):.6g}. This is above "
        f"the target of {epsilon:.6g}."
    )
    return AsPublished(Verdict.UNSOUND, why, SOURCE, PURE_FORMULA)
