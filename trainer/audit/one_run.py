"""The audit with one run: many canaries at once, each included or not by its own coin, without assuming independence.

The guesses about one run are not independent, because a mechanism may reveal all canaries together. Under
pure DP the number of right guesses is still dominated by that of independent randomised responses. With delta > 0 a
mechanism may fail with probability delta per canary, and choose how many guesses it gets right when it does; the term
``2 m delta alpha`` covers the worst such choice.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from accounting.errors import InvalidValue
from accounting.numbers import MAX_COUNT, read_integer, read_real

#: The relative widening of a p-value, which is more than the rounding of the binomial sums.
_ROUNDING = 1e-9
#: The width at which the search for the bound ends. The lower end of the final bracket is returned.
_RESOLUTION = 1e-9


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Return an upper bound of the probability of this many right guesses or more under (epsilon, delta)-DP.

        P(W >= v) + 2 m delta max_{i >= 1} P(v > W >= v - i) / i,    W binomial(r, e^epsilon / (1 + e^epsilon))

    Args:
        canaries: The number m of canaries. Each is in the data with probability 1/2, independently.
        guesses: The number r of guesses, which is fixed before the run. There is no guess about the other canaries.
        correct: The number v of correct guesses.
        epsilon: The epsilon of the hypothesis, >= 0.
        delta: The delta of the hypothesis, in [0, 1].

    Guarantees:
        - bounds_the_probability: that of v or more right guesses, over coins and mechanism, for every (epsilon,
          delta)-DP mechanism on the m coins and every rule that makes at most r guesses.

    Raises:
        InvalidValue: If 0 <= v <= r <= m does not hold, or a number is outside its range.

    Source: Steinke, Nasr & Jagielski 2023 (arXiv 2305.08846), Theorem 5.2.

    >>> round(p_value(100, 10, 10, 0.0, 0.0) * 1024, 6)
    1.0
    """
    counts = [read_integer("count", count, 0, MAX_COUNT) for count in (canaries, guesses, correct)]
    canaries, guesses, correct = counts
    if not correct <= guesses <= canaries:
        raise InvalidValue(
            f"{correct} right guesses of {guesses} about {canaries} canaries are impossible: correct <= guesses <= "
            "canaries must hold"
        )
    epsilon = read_real("epsilon", epsilon, 0.0, 1e6)
    delta = read_real("delta", delta, 0.0, 1.0)
    rate = float(scipy.special.expit(epsilon))
    tail = float(scipy.stats.binom.sf(correct - 1, guesses, rate))
    if delta > 0.0 and correct > 0:
        sums = np.cumsum(scipy.stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, rate))
        alpha = float(np.max(sums / np.arange(1, correct + 1)))
        tail += 2.0 * canaries * delta * alpha
    return min(1.0, tail * (1.0 + _ROUNDING))


def epsilon_from_one_run(canaries: int, guesses: int, correct: int, delta: float, confidence: float) -> float:
    """Return the largest epsilon that the guesses are found to reject at ``delta``. Every smaller epsilon is rejected,
    too.

    (epsilon, delta)-DP implies (epsilon', delta)-DP for every larger epsilon', so rejecting one rejects all below it.

    Guarantees:
        - exceeds_the_truth_rarely: it is above the true epsilon(delta) with probability at most 1 - confidence.
        - the_result_is_rejected: its own p-value is at most 1 - confidence, unless it is 0.

    Raises:
        InvalidValue: As `p_value` does, or if the confidence is not in (0, 1).

    Source: Steinke, Nasr & Jagielski 2023 (arXiv 2305.08846), Theorem 5.2 and Appendix D.

    >>> round(epsilon_from_one_run(1000, 100, 90, 0.0, 0.95), 4)
    1.6308
    """
    error = 1.0 - read_real("confidence", confidence, 0.0, math.nextafter(1.0, 0.0), open_lower=True)
    if p_value(canaries, guesses, correct, 0.0, delta) > error:
        return 0.0
    # With v = r, the right guesses alone allow ln(p / (1 - p)), p = error^(1/r); no larger epsilon is rejected.
    rejected, allowed = 0.0, 1.0
    while p_value(canaries, guesses, correct, allowed, delta) <= error:
        rejected, allowed = allowed, 2.0 * allowed
    while allowed - rejected > _RESOLUTION:
        middle = 0.5 * (rejected + allowed)
        if p_value(canaries, guesses, correct, middle, delta) <= error:
            rejected = middle
        else:
            allowed = middle
    return rejected
