"""Bounds for losses that lie between two pairs: a pair that dominates them, and a pair that some neighbours attain.

A composition of dominating pairs bounds the numbers of a list from above. A composition of attained pairs bounds them
from below. The moments of the list itself give another upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from accounting.composition.bounded_range import METHOD, Steps, together
from accounting.composition.composition import Composition
from accounting.composition.intersection import NO_FINITE_BOUND
from accounting.intervals import Answer, Bounds, Interval
from accounting.losses.exponential import BoundedRangeLoss
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.report_noisy_max import NoisyMaxLoss

#: Losses whose attained pair depends on the requested epsilon or delta.
_CHOICES = (BoundedRangeLoss, NoisyMaxLoss)


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Compositions that bound a list with such losses from above and from below.

    Attributes:
        above: The list costs no more than this composition.
        below: The list costs no less than this composition.
        one_step: The list costs no less than any single step of this composition, if it is given.
        simpler: Another composition, if it is given, that costs at least as much as the list.
        has_own_moments: Whether the list's own moments may give a smaller bound than ``above``.
        method: The name of the method behind ``above``, if it is not the name of an evaluator.
    """

    above: Composition
    below: Composition
    one_step: Composition | None
    simpler: Composition | None
    has_own_moments: bool
    method: str | None = None


def enclosure(composition: Composition, tilt: Callable[[], float] | None = None) -> Enclosure | None:
    """Return the enclosure of a composition; None if every step is one attained pair, or taken as stated.

    Steps that contour integrals can bound directly stay as they are if the list has other steps, too. Steps of bounded
    range are combined.

    Args:
        tilt: A function that estimates -d log delta / d eps at the value that is asked for; the attained pairs are
            chosen for it.
    """
    enclosed = [loss for loss, _ in composition.steps if loss.is_enclosed]
    if not enclosed:
        return None
    some_stay = not is_inverted(composition)
    above, below, tight, simpler = Steps(), Steps(), Steps(), Steps()
    ranges = [(loss, count) for loss, count in composition.steps if isinstance(loss, BoundedRangeLoss)]
    choices = any(isinstance(loss, _CHOICES) or isinstance(loss.attained, _CHOICES) for loss, _ in composition.steps)
    near = tilt() if choices and tilt is not None else None
    if ranges:
        above.extend(together(ranges, near)[0])
        simpler.extend(above)
        tight.extend((loss.dominating, count) for loss, count in ranges)
    attained = [(_attained(loss, near), count) for loss, count in composition.steps]
    reached = [(loss, count) for loss, count in attained if isinstance(loss, BoundedRangeLoss)]
    if reached:
        below.extend(together(reached, near)[1])
    for (loss, count), (least, _) in zip(composition.steps, attained, strict=True):
        if isinstance(loss, BoundedRangeLoss):
            continue
        if some_stay and loss.is_inverted:
            above.append((loss, count))
            below.append((loss, count))
            simpler.append((loss, count))
            continue
        above.append((loss.dominating, count))
        if not isinstance(least, BoundedRangeLoss):
            below.append((least, count))
        simpler.append((loss.simpler or loss.dominating, count))
        if loss.is_tight:
            tight.append(above[-1])
    one_step = Composition(tuple(tight)) if tight else None
    has_own_moments = any(loss.is_enclosed and loss.has_own_moments for loss, _ in composition.steps)
    is_simpler = any(loss.simpler is not None for loss, _ in composition.steps)
    return Enclosure(
        above=_with_one_gaussian(composition, above),
        below=_with_one_gaussian(composition, below),
        one_step=one_step,
        simpler=_with_one_gaussian(composition, simpler) if is_simpler else None,
        has_own_moments=has_own_moments,
        method=METHOD if len(ranges) == len(composition.steps) and composition.count > 1 else None,
    )


def narrower(above: Answer, simpler: Answer) -> Answer:
    """Return the answer with the smaller upper end; both are sound from above."""
    return simpler if simpler.value.upper < above.value.upper else above


def _attained(loss: PrivacyLoss, tilt: float | None) -> PrivacyLoss:
    if isinstance(loss, BoundedRangeLoss):
        return loss
    least = loss if isinstance(loss, NoisyMaxLoss) else loss.attained
    return least.attained_near(tilt) if isinstance(least, NoisyMaxLoss) else least


def named(answer: Answer, method: str | None) -> Answer:
    """Return the answer with the name of a method, if one is given."""
    return answer if method is None else replace(answer, method=method)


def dominating(composition: Composition) -> Composition:
    """Return a dominating composition: the upper one of the enclosure, or the composition itself if it has no
    enclosure."""
    enclosed = None if is_inverted(composition) else enclosure(composition)
    return composition if enclosed is None else enclosed.above


def is_inverted(composition: Composition) -> bool:
    """Return whether contour integrals bound the composition itself, and not only pairs around it."""
    return all(loss.is_inverted or not loss.is_enclosed for loss, _ in composition.steps)


def bounds_of(answer: Answer | None) -> Bounds | None:
    """Convert an answer to bounds."""
    if answer is None:
        return None
    value = answer.value
    return Bounds(value.lower, value.upper, value.estimate, answer.error_budget, answer.method)


def between(above: Answer, below: Answer, one_step: float, others: Sequence[Bounds | None]) -> Answer:
    """Combine the upper end of one answer and the lower end of another, or narrower ends of further answers.

    Args:
        one_step: Another lower bound.
    """
    upper, budget, method = above.value.upper, above.error_budget, above.method
    lower = max(below.value.lower, one_step)
    for bounds in others:
        if bounds is not None:
            lower = max(lower, bounds.lower)
            if bounds.upper < upper:
                upper, budget, method = bounds.upper, bounds.error_budget, bounds.method or "renyi_divergence"
    lower = min(lower, upper)
    estimate = min(max(above.value.estimate, lower), upper)
    gap = max(0.0, upper - lower - math.fsum(budget.values()))
    warnings = tuple(dict.fromkeys(each for each in above.warnings if each != NO_FINITE_BOUND or math.isinf(upper)))
    return Answer(Interval(lower, estimate, upper), method, {**budget, "enclosure": gap}, warnings)


def _with_one_gaussian(composition: Composition, steps: list[tuple[PrivacyLoss, int]]) -> Composition:
    """Merge full-batch Gaussians into one again: their mu^2 add up."""
    others = [(loss, count) for loss, count in steps if not isinstance(loss, GaussianLoss)]
    squares = [count * loss.mu * loss.mu for loss, count in steps if isinstance(loss, GaussianLoss)]
    if squares:
        others.append((GaussianLoss(math.sqrt(math.fsum(squares))), 1))
    return Composition(tuple(others), composition.failure, composition.discrepancy)
