"""Drawing the number of trials of a selection exactly, and the cost of the cap on that number.

A service cannot run any number of trials, so it draws K from its law given that K is at most M. With f(x) = E x^K and
p_1 = P(K = 1), f' is at least p_1 on [0, 1], and the cap reduces it by at most the tail tau = E[K; K > M]. So the
derivative that gives the selection's density (`selection`) stays between (1 - t) f' and f' / (1 - t), where t = tau /
p_1, on both neighbours, and

* the Renyi divergence of order a grows by at most -(2 a - 1) / (a - 1) log(1 - t);
* epsilon at delta is at most epsilon at (1 - t) delta plus -2 log(1 - t).

M is the first cap with t below `CUT`, and its cost is charged. Weights are integers, and the draw is one integer from
the operating system. So the only rounding is that of the weights, which `CUT` covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from accounting.errors import Unsupported
from accounting.guarantees import RenyiDpGuarantee
from accounting.tuning.trials import PoissonTrials, RandomTrials

#: The most trials that a selection draws.
MAX_TRIALS = 10_000
#: The largest t: one half is for the tail, the other half for the rounding of the weights, which is far smaller.
CUT = 1e-9
#: The number of bits of the weight of the smallest number of trials.
_BITS = 256
#: A relative allowance for the cost of `CUT`, which covers the rounding of two logarithms.
_ALLOWANCE = 1e-6


def draw_trials(trials: RandomTrials, below: Callable[[int], int]) -> int:
    """Draw the number of trials of a selection.

    Args:
        trials: The law.
        below: A function that draws uniformly from 0 to its argument less one; in production `secrets.randbelow`.

    Guarantees:
        law_given_the_cap: each number up to the cap has its conditional probability given the cap, up to a relative
            2^-200.

    Raises:
        Unsupported: As `most_trials` does.

    >>> draw_trials(PoissonTrials(2.0), lambda total: 0), draw_trials(PoissonTrials(2.0), lambda total: total // 2)
    (0, 2)
    """
    weights = _weights(trials)
    place = below(sum(weights))
    return next(number for number, reached in enumerate(accumulate(weights)) if place < reached)


def most_trials(trials: RandomTrials) -> int:
    """Return the cap: no draw is above it.

    Raises:
        Unsupported: With code ``too_many_trials``, if the number would be above `MAX_TRIALS`.
    """
    return len(_weights(trials)) - 1


def trials_quantile(trials: RandomTrials, probability: float) -> int:
    """Return the smallest number that a draw does not exceed with this probability. It is public, since it follows from
    the law.

    >>> from accounting.tuning.trials import TruncatedNegativeBinomial
    >>> trials_quantile(TruncatedNegativeBinomial(1.0, 0.1), 0.999)
    66
    """
    weights = _weights(trials)
    wanted = Fraction(probability) * sum(weights)
    return next((number for number, reached in enumerate(accumulate(weights)) if reached >= wanted), len(weights) - 1)


def capped_moments(moments: RenyiDpGuarantee) -> RenyiDpGuarantee:
    """Return Renyi divergences of a selection whose number of trials is drawn here, from those under the law itself."""
    growth = _loss_of_cut()
    epsilons = [
        (epsilon + (2.0 * order - 1.0) / (order - 1.0) * growth) * (1.0 + 1e-15)
        for order, epsilon in zip(moments.orders, moments.epsilons, strict=True)
    ]
    # The added term falls with the order. A divergence is at most that of every larger order, which keeps them sorted.
    for index in range(len(epsilons) - 2, -1, -1):
        epsilons[index] = min(epsilons[index], epsilons[index + 1])
    return RenyiDpGuarantee(moments.orders, tuple(epsilons))


def delta_before_cap(delta: float) -> float:
    """Return the delta at which to evaluate the law without a cap. `capped_epsilon` turns the epsilon there into the
    epsilon at ``delta``."""
    return delta * (1.0 - CUT) * (1.0 - 1e-15)


def capped_epsilon(epsilon: float) -> float:
    """Return epsilon of a selection with a capped number of trials, from the epsilon without a cap at
    `delta_before_cap`."""
    return (epsilon + 2.0 * _loss_of_cut()) * (1.0 + 1e-15)


def _loss_of_cut() -> float:
    return -math.log1p(-CUT) * (1.0 + _ALLOWANCE)


@lru_cache(maxsize=64)
def _weights(trials: RandomTrials) -> tuple[int, ...]:
    """Return numbers in proportion to P(K = 0), P(K = 1) and so on up to the cap, rounded down to integers.

    Successive probabilities are in the ratios mean / (k + 1), or (1 - gamma) (k + eta) / (k + 1).
    """
    is_poisson = isinstance(trials, PoissonTrials)
    mean = Fraction(trials.mean) if isinstance(trials, PoissonTrials) else Fraction(0)
    kept, eta = (
        (Fraction(0), Fraction(0))
        if isinstance(trials, PoissonTrials)
        else (1 - Fraction(trials.gamma), Fraction(trials.eta))
    )
    first = 1 << _BITS
    # For Poisson P(K = 0) = P(K = 1) / mean.
    weights = [int(first / mean) if is_poisson else 0, first]
    while len(weights) - 1 <= MAX_TRIALS:
        number = len(weights) - 1
        ratio = mean / (number + 1) if is_poisson else kept * (number + eta) / (number + 1)
        following = weights[-1] * ratio.numerator // ratio.denominator
        # Further terms k P(K = k) fall at least as fast as this.
        fall = mean / (number + 1) if is_poisson else kept * (1 + max(eta, Fraction(0)) / (number + 1))
        if fall < 1 and (number + 1) * (following + 1) <= (1 - fall) * first * Fraction(CUT) / 2:
            return tuple(weights)
        weights.append(following)
    raise Unsupported(
        f"a selection makes at most {MAX_TRIALS} trials, and this distribution exceeds that number too often; give "
        "fewer expected trials, or a distribution that is spread less widely (poisson, geometric)",
        code="too_many_trials",
        pointer=("trials",),
    )
