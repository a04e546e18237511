"""Lower bounds of epsilon from the guesses of many independent trials.

In a trial, a fair coin decides whether a canary takes part, the mechanism runs, and the attacker, who sees its output,
says "member", "non-member" or nothing. Under (epsilon, delta)-DP each kind of guess obeys

    P(it is said | it is right) <= e^epsilon P(it is said | it is wrong) + delta,

in both directions. The rule for guessing must not be chosen on the trials that are counted.

`epsilon_from_guesses` uses the guesses that were made: given their number, the number of right guesses is binomial. It
needs one confidence limit instead of the two of `epsilon_from_rates`, and is stronger at small rates. `mu_from_rates`
is stronger but more specialised: it rules out parameters of Gaussian DP, not values of epsilon.
"""

from __future__ import annotations

import math
from itertools import pairwise

import scipy

from accounting.errors import InvalidValue
from accounting.numbers import MAX_COUNT, read_integer, read_real

#: The share of the error that `epsilon_from_guesses` spends on the rate of right guesses, which is needed only for a
#: positive delta.
_RATE_SHARE = 0.1
#: The relative widening of every limit, which is more than the rounding of the quantiles.
_ROUNDING = 1e-9


def lower_limit(successes: int, trials: int, error: float) -> float:
    """Return Clopper-Pearson's lower limit: the success probability is below it with probability at most ``error``.

    >>> lower_limit(0, 10, 0.05), round(lower_limit(10, 10, 0.05), 6)
    (0.0, 0.741134)
    """
    if successes == 0:
        return 0.0
    return float(scipy.special.betaincinv(successes, trials - successes + 1, error)) * (1.0 - _ROUNDING)


def upper_limit(successes: int, trials: int, error: float) -> float:
    """Return Clopper-Pearson's upper limit: the success probability is above it with probability at most ``error``.

    >>> round(upper_limit(0, 10, 0.05), 6), upper_limit(10, 10, 0.05)
    (0.258866, 1.0)
    """
    if successes == trials:
        return 1.0
    return min(1.0, float(scipy.special.betainccinv(successes + 1, trials - successes, error)) * (1.0 + _ROUNDING))


def epsilon_from_guesses(trials: int, guesses: int, correct: int, delta: float, confidence: float, kinds: int) -> float:
    """Return a lower bound of the mechanism's epsilon at ``delta``, from the odds that a guess is right.

    Let A be the sum, over the kinds of guesses, of the probabilities of a guess if it is right, and B the same if it is
    wrong. Then A <= e^epsilon B + kinds * delta. A guess that was made is right with probability A / (A + B), a guess
    is made and right with probability A / 2, and both are bounded from below by Clopper-Pearson.

    Args:
        trials: The number of independent trials, each with a fair coin, including those without a guess.
        guesses: The number of trials with a guess.
        correct: The number of right guesses.
        delta: In [0, 1).
        confidence: In (0, 1), such as 0.95.
        kinds: 1 if the attacker only ever says "member" (or only "non-member"), 2 if the attacker says both.

    Guarantees:
        - exceeds_the_truth_rarely: the result is above the true epsilon(delta) with probability at most
          1 - confidence, whatever the rule, if it was fixed beforehand.
        - never_negative, never_infinite.

    Raises:
        InvalidValue: If 0 <= correct <= guesses <= trials does not hold, or a number is outside its range.

    Source: Clopper & Pearson 1934; the reduction is ours (at delta 0 it is the one-run audit's).

    >>> round(epsilon_from_guesses(1000, 100, 90, 0.0, 0.95, 2), 4)
    1.6308
    """
    trials, guesses, correct = _counts(trials, guesses, correct)
    delta, error = _delta(delta), _error(confidence)
    kinds = read_integer("kinds", kinds, 1, 2)
    if correct == 0:
        return 0.0
    share = _RATE_SHARE if delta > 0.0 else 0.0
    wrong = upper_limit(guesses - correct, guesses, (1.0 - share) * error)
    right = 2.0 * lower_limit(correct, trials, share * error) if share else 1.0
    kept = 1.0 - kinds * delta / right if right else 0.0
    if kept <= 0.0 or wrong >= 1.0:
        return 0.0
    return max(0.0, math.log((1.0 - wrong) / wrong) + math.log(kept))


def epsilon_from_rates(hits: int, members: int, alarms: int, others: int, delta: float, confidence: float) -> float:
    """Return a lower bound of the mechanism's epsilon at ``delta``, from limits on both rates of one test.

    It is the larger of ln((TPR - delta) / FPR) and ln((1 - FPR - delta) / (1 - TPR)), with the true positive rate
    bounded from below and the false positive rate from above, each with half of the error.

    Args:
        hits: The number of members that were taken for members, in ``members`` independent trials.
        alarms: The number of others that were taken for members, in ``others`` independent trials.
        delta: In [0, 1).
        confidence: In (0, 1).

    Guarantees:
        - exceeds_the_truth_rarely: with probability at most 1 - confidence, if the test was fixed beforehand.

    Raises:
        InvalidValue: If there are more hits than members or more alarms than others, or a number is outside its range.

    Source: Nasr et al. 2021 (arXiv 2101.04535), with Clopper-Pearson limits of both rates.

    >>> round(epsilon_from_rates(500, 1000, 10, 1000, 1e-5, 0.95), 4)
    3.242
    """
    tpr, fpr = rate_limits(hits, members, alarms, others, confidence)
    delta = _delta(delta)
    return max(0.0, _log_ratio(tpr - delta, fpr), _log_ratio(1.0 - fpr - delta, 1.0 - tpr))


def mu_from_rates(hits: int, members: int, alarms: int, others: int, confidence: float) -> float:
    """Return a mu below which the mechanism is not mu-Gaussian-DP.

    It says nothing about epsilon if the trade-off function is not that of a Gaussian. Use it against a claim of
    Gaussian DP, for which it is far stronger than a bound at one delta.

    Guarantees:
        - exceeds_the_truth_rarely: it is above the smallest mu for which the mechanism is mu-Gaussian-DP with
          probability at most 1 - confidence, if the test was fixed beforehand.

    Raises:
        InvalidValue: As `epsilon_from_rates` does.

    Source: Nasr et al. 2023 (arXiv 2302.07956); Dong, Roth & Su 2022, Definition 2.6.

    >>> round(mu_from_rates(691, 1000, 309, 1000, 0.95), 4)
    0.8322
    """
    tpr, fpr = rate_limits(hits, members, alarms, others, confidence)
    if tpr <= 0.0 or fpr >= 1.0:
        return 0.0
    return max(0.0, float(scipy.special.ndtri(tpr) - scipy.special.ndtri(fpr)) - _ROUNDING)


def rate_limits(hits: int, members: int, alarms: int, others: int, confidence: float) -> tuple[float, float]:
    """Return the true positive rate from below and the false positive rate from above, together at ``confidence``."""
    members, hits = _counts(members, hits)
    others, alarms = _counts(others, alarms)
    error = _error(confidence)
    return lower_limit(hits, members, error / 2.0), upper_limit(alarms, others, error / 2.0)


def _log_ratio(numerator: float, denominator: float) -> float:
    # A confidence limit is 0 only in a numerator; the denominators here are upper limits.
    return math.log(numerator / denominator) if numerator > 0.0 else 0.0


def _counts(*decreasing: int) -> tuple[int, ...]:
    """Return counts, each of which is at most the one before."""
    counts = tuple(read_integer("count", count, 0, MAX_COUNT) for count in decreasing)
    if any(later > earlier for earlier, later in pairwise(counts)):
        raise InvalidValue(
            f"each of {list(counts)} counts a part of the number before it, and must not exceed that number"
        )
    return counts


def _delta(delta: float) -> float:
    return read_real("delta", delta, 0.0, math.nextafter(1.0, 0.0))


def _error(confidence: float) -> float:
    return 1.0 - read_real("confidence", confidence, 0.0, math.nextafter(1.0, 0.0), open_lower=True)
