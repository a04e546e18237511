"""The best that anyone can do against a filter, exactly: every history of a small game, by backward induction.

A game has a menu of plans. A plan has a price and a list of steps; a step is a pair of laws on a few outcomes. Who
plays may at any moment, looking at all outcomes: start a plan of the menu where the rule admits its price, run the next
step of any plan that was started, give up the tail of one for what the rule gives back, or stop. At the end the hockey
stick E_P (1 - e^(epsilon - L))_+ is attained, L the sum of the losses; an outcome that the other hypothesis never gives
counts in full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from operator import sub

from accounting.units import Amounts, add_saturating

#: (probability under P, loss); what Q alone gives is left out.
Step = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Plan:
    """What it costs, the pairs of its steps in their order, and what is given back after so many of them."""

    price: Amounts
    steps: tuple[Step, ...]
    back: Mapping[int, Amounts] = field(default_factory=dict)


def pair(p: Sequence[float], q: Sequence[float]) -> Step:
    """Return a step from both laws."""
    losses = ((a, math.inf if b == 0.0 else math.log(a / b)) for a, b in zip(p, q, strict=True) if a > 0.0)
    return tuple(losses)


def response(epsilon: float, delta: float = 0.0) -> Step:
    """Return randomised response that fails: the largest (epsilon, delta)-DP pair."""
    likely = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    rest = 1.0 - delta - likely
    return pair((delta, likely, rest, 0.0), (0.0, rest, likely, delta))


def binned_gaussian(noise: float, q: float, edges: Sequence[float], *, remove: bool) -> Step:
    """Return a step of the sampled Gaussian of which only the bin of the output is told."""

    def law(mean: float) -> list[float]:
        below = [0.0, *(0.5 * math.erfc((mean - edge) / (noise * math.sqrt(2.0))) for edge in edges), 1.0]
        return [right - left for left, right in pairwise(below)]

    null = law(0.0)
    mixed = [(1.0 - q) * a + q * b for a, b in zip(null, law(1.0), strict=True)]
    return pair(mixed, null) if remove else pair(null, mixed)


def best_attack(menu: Sequence[Plan], admits: Callable[[Amounts], bool], epsilon: float, most_steps: int) -> float:
    """Return the largest hockey stick at ``epsilon`` that any strategy of so many steps attains.

    A plan may be started again and again; each start pays. A tail is given up where the rule admits what is used then.
    """
    zero = (0,) * len(menu[0].price)

    @cache
    def value(used: Amounts, running: tuple[tuple[int, int], ...], loss: float, left: int) -> float:
        if loss == math.inf:
            return 1.0
        best = -math.expm1(epsilon - loss) if loss > epsilon else 0.0
        if left == 0:
            return best
        for at, (index, done) in enumerate(running):
            plan = menu[index]
            after = running[:at] + ((index, done + 1),) * (done + 1 < len(plan.steps)) + running[at + 1 :]
            best = max(
                best,
                math.fsum(
                    p * value(used, tuple(sorted(after)), round(loss + gain, 9), left - 1)
                    for p, gain in plan.steps[done]
                ),
            )
            back = plan.back.get(done)
            if back is not None:
                less = tuple(map(sub, used, back))
                if admits(less):
                    best = max(best, value(less, running[:at] + running[at + 1 :], loss, left))
        # What is started is run at once: until then starting changes nothing but what is free.
        for index, plan in enumerate(menu):
            more = add_saturating(used, plan.price)
            if not admits(more):
                continue
            after = running + ((index, 1),) * (len(plan.steps) > 1)
            best = max(
                best,
                math.fsum(
                    p * value(more, tuple(sorted(after)), round(loss + gain, 9), left - 1) for p, gain in plan.steps[0]
                ),
            )
        return best

    return value(zero, (), 0.0, most_steps)
