"""This module finds delta and epsilon by contour integration, in milliseconds for any number of steps.

`accounting.fourier.profiles` has the rule by which a profile is made. This module evaluates the profiles of both
directions. To find an epsilon, it applies Newton's method to log delta on the line of a first guess, and then certifies
the result: at the interval's upper end the upper bound of delta is at most ``delta``, and at its lower end the lower
bound is above ``delta``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import scipy

from accounting.composition.basic import one_step_delta, total_variation
from accounting.composition.composition import Composition
from accounting.fourier.choice import DirectedComposition, choose_line, guess_epsilon
from accounting.fourier.effort import OutOfEffort, renew
from accounting.fourier.profiles import FEW_PARTICIPATIONS, BoundedDelta, DirectedProfiles, chernoff_delta, goal
from accounting.fourier.steps import Step
from accounting.intervals import Bounds
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.privacy_loss import Direction

#: The relative width at which an interval of delta is narrow enough.
DELTA_GOAL = 1e-6
#: Deltas below this are negligible, so the plain contour or Chernoff's bound answers them.
SMALLEST_DELTA = 1e-33
_LOG_LEAST = math.log(SMALLEST_DELTA)
#: The part that a cut leaves out is e to the minus this number, relative to delta.
_LOG_NEGLIGIBLE = 23.0
_CHERNOFF = "renyi_divergence"
_MOST_TRIALS = 14
_LARGEST_EPSILON = 1e15


class FourierInversion:
    """The evaluator by contour integration.

    Guarantees: interval_contains_truth; cost_does_not_depend_on_count; never_nan.
    """

    name = "fourier_inversion"
    methods = ("split_fourier_inversion", "windowed_fourier_inversion", _CHERNOFF)

    def estimate_epsilon(self, composition: Composition, delta: float) -> float | None:
        """Return a quick estimate of epsilon(delta), which is not a bound; None if there is none."""
        here = directed(composition, Direction.REMOVE, math.log(delta))
        return None if here is None else guess_epsilon(here, delta)[0]

    def epsilon_of_removal(self, composition: Composition, delta: float) -> float | None:
        """Return the upper end of epsilon(delta) in the remove direction; None if the plain line gives only a wide
        interval.

        The other direction hardly ever costs more, so a search may use this and certify both directions at its end.
        """
        here = directed(composition, Direction.REMOVE, math.log(delta))
        if here is None:
            return None
        bounds = _on_plain_line(DirectedProfiles(here), delta)
        return bounds.upper if bounds.width <= goal(bounds.upper) else None

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        best: Bounds | None = None
        for direction in composition.directions:
            here = directed(composition, direction)
            if here is None:
                return None
            if here.left_out > 0.0:
                # The steps are cut again for the estimated delta, because the part that may be cut depends on delta.
                log_delta = choose_line(here.table_at(epsilon), epsilon).log_delta
                here = directed(composition, direction, log_delta) or here
                one_step = SMALLEST_DELTA
            else:
                one_step = one_step_delta(composition, epsilon)
            bounds = delta_in_direction(DirectedProfiles(here), one_step, epsilon)
            best = bounds if best is None else larger(best, bounds)
        return best

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        best: Bounds | None = None
        for direction in composition.directions:
            here = directed(composition, direction, math.log(delta))
            if here is None:
                return None
            if best is not None and math.isfinite(best.upper):
                # The other direction needs no search if its delta at the best upper bound is at most ``delta``.
                there = delta_in_direction(DirectedProfiles(here), delta, best.upper, enough=delta)
                if there.upper <= delta:
                    continue
            bounds = _epsilon_in(DirectedProfiles(here), composition, delta)
            best = bounds if best is None else larger(best, bounds)
        return best


def larger(first: Bounds, second: Bounds) -> Bounds:
    """Return bounds of the larger of two numbers, given bounds of each."""
    budget = first.error_budget if first.upper >= second.upper else second.error_budget
    method = first.method if first.upper >= second.upper else second.method
    return Bounds(
        max(first.lower, second.lower),
        max(first.upper, second.upper),
        max(first.estimate, second.estimate),
        budget,
        method,
    )


def delta_in_direction(profiles: DirectedProfiles, one_step: float, epsilon: float, *, enough: float = 0.0) -> Bounds:
    """Return bounds of delta in one direction.

    Args:
        one_step: The delta of one step alone, or another number above SMALLEST_DELTA that is of about the size of the
            answer.
        enough: An upper bound below this number needs no refinement.
    """
    renew()
    if epsilon >= profiles.composition.largest_loss:
        return Bounds(0.0, 0.0, 0.0)
    table = profiles.composition.table_at(epsilon)
    loosest = min(chernoff_delta(table, epsilon) + profiles.composition.left_out, 1.0)
    best = Bounds(0.0, loosest, loosest, {"chernoff": loosest}, _CHERNOFF)
    if loosest <= enough:
        return best
    if loosest <= SMALLEST_DELTA:
        plain = profiles.plain(table, epsilon)
        return best if plain is None else _intersection(best, plain.delta_bounds(epsilon), FourierInversion.name)
    with suppress(OutOfEffort):
        for profile, method in profiles.near(epsilon, math.log(max(one_step, SMALLEST_DELTA)), table):
            best = _intersection(best, profile.delta_bounds(epsilon), method)
            if best.width <= DELTA_GOAL * best.upper or best.upper <= enough:
                break
    return best


def _epsilon_in(profiles: DirectedProfiles, composition: Composition, delta: float) -> Bounds:
    """Return bounds of epsilon in one direction."""
    renew()
    best = _on_plain_line(profiles, delta)
    if best.width <= goal(best.upper):
        return best
    if total_variation(composition) <= delta:
        return Bounds(0.0, 0.0, 0.0)
    best = _intersection(best, Bounds(upper=profiles.chernoff_epsilon(delta)), _CHERNOFF)
    if best.width <= goal(best.upper):
        return best
    one_step = partial(_one_step_epsilon, composition)
    with suppress(OutOfEffort):
        for narrower in _search(profiles, best, _first_try(profiles, one_step, delta), one_step(delta), delta):
            best = narrower
    return best


def _on_plain_line(profiles: DirectedProfiles, delta: float) -> Bounds:
    """Bound epsilon by the plain contour near the saddle-point estimate; return trivial bounds if that takes too many
    points."""
    best = Bounds(upper=profiles.composition.largest_loss, method=_CHERNOFF)
    epsilon, table = guess_epsilon(profiles.composition, delta)
    plain = profiles.plain(table, epsilon, math.log(delta))
    if plain is None:
        return best
    return _intersection(best, certified(plain, root_of(plain, epsilon, delta), delta), FourierInversion.name)


def _one_step_epsilon(composition: Composition, delta: float) -> float:
    """Return an estimate of the epsilon at which one step alone costs ``delta``; 0 if one step never costs as much."""
    if one_step_delta(composition, 0.0) <= delta:
        return 0.0
    low, high = 1e-12, 1.0
    # A law that stands for a step may have mass at infinity, so the search needs an end.
    while one_step_delta(composition, high) > delta and high < _LARGEST_EPSILON:
        low, high = high, 8.0 * high
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if one_step_delta(composition, middle) > delta else (low, middle)
    return low


def _first_try(profiles: DirectedProfiles, one_step: Callable[[float], float], delta: float) -> float:
    """Return a first guess of epsilon if the saddle point misleads. Few participations cost about as much as a
    single one.
    """
    count = sum(count for _, count in profiles.composition.steps)
    mean, variance = profiles.composition.moments
    normal = mean + math.sqrt(variance) * -float(scipy.special.ndtri(delta))
    guess = profiles.guess_epsilon(delta)
    # With few participations both guesses are too large: the saddle point's, and that of a normal law with the same
    # variance.
    return max(one_step(delta / count), min(guess, normal) if profiles.participations < FEW_PARTICIPATIONS else guess)


def _search(profiles: DirectedProfiles, best: Bounds, epsilon: float, lowest: float, delta: float) -> Iterator[Bounds]:
    """Search by Newton's method from profile to profile, and by bisection if a profile does not resolve its own delta.

    Args:
        lowest: An estimate of the smallest number that epsilon can be.

    Yields:
        Bounds of epsilon, each at least as narrow as the one before.
    """
    largest = profiles.composition.largest_loss
    blind: list[float] = []
    for _ in range(_MOST_TRIALS):
        epsilon = min(max(epsilon, best.lower), best.upper)
        if epsilon >= largest:
            epsilon = 0.5 * (best.lower + largest)
        following = math.nan
        for profile, method in profiles.near(epsilon, math.log(delta)):
            here = profile.delta_bounds(epsilon)
            if here.upper <= delta < math.inf:
                best = _intersection(best, Bounds(0.0, epsilon, epsilon, here.error_budget), method)
            elif here.lower > delta:
                best = _intersection(best, Bounds(epsilon, math.inf, epsilon), method)
            if here.lower > 0.5 * here.upper:
                root = root_of(profile, epsilon, delta, largest)
                best = _intersection(best, certified(profile, root, delta), method)
                following = root
            yield best
            if best.width <= goal(best.upper):
                return
            if abs(following - epsilon) > min(0.01 * epsilon, 0.5 / profile.tilt):
                # The line was made for another epsilon and does not resolve delta here.
                break
        else:
            if not math.isnan(following):
                return
        blind += [epsilon] if math.isnan(following) else []
        following = _following(following, blind, best, lowest)
        if abs(following - epsilon) <= 1e-9 * epsilon:
            break
        epsilon = following


def _following(root: float, blind: list[float], best: Bounds, lowest: float) -> float:
    """Return the epsilon to try next: the root that a profile expects, or the middle of the bracket.

    Args:
        blind: Epsilons at which no profile resolved its own delta; asking there again would not help.
        lowest: As in `_search`.
    """
    if best.lower <= root <= best.upper and not any(abs(root - place) <= 1e-4 * place for place in blind):
        return root
    low, high = max(best.lower, 0.5 * lowest, 1e-3 * best.upper), best.upper
    return math.sqrt(low * high) if low < high < math.inf else 0.5 * (blind[-1] if blind else root)


def _intersection(first: Bounds, second: Bounds, method: str) -> Bounds:
    if not second.is_sound:
        return first
    lower, upper = max(first.lower, second.lower), min(first.upper, second.upper)
    if lower > upper:
        raise ArithmeticError("two bounds of one number contradict each other")
    better = second if second.upper <= first.upper else first
    name = method if better is second else first.method
    return Bounds(lower, upper, min(max(better.estimate, lower), upper), better.error_budget, name)


def root_of(profile: BoundedDelta, epsilon: float, delta: float, largest: float = math.inf) -> float:
    """Find the eps below ``largest`` at which the profile's estimate is ``delta``, by Newton's method on log delta."""
    for _ in range(12):
        estimate, slope = profile.estimate(epsilon)
        if not estimate > 0.0 or not slope > 0.0:
            return epsilon
        moved = max(0.0, epsilon + math.log(estimate / delta) * estimate / slope)
        if moved >= largest:
            # delta is convex in e^eps, so a step along the tangent does not go beyond the root, up to rounding.
            moved = epsilon + math.log1p((estimate - delta) / slope)
            if moved >= largest:
                return epsilon
        if abs(moved - epsilon) <= 1e-13 * max(1.0, epsilon):
            return moved
        epsilon = moved
    return epsilon


def certified(profile: BoundedDelta, epsilon: float, delta: float) -> Bounds:
    """Return the narrowest interval around ``epsilon`` whose ends the bounds of delta prove."""
    bounds = profile.delta_bounds(epsilon)
    slope = max(profile.estimate(epsilon)[1], 1e-300)
    above = max((bounds.upper - delta) / slope, 0.0) + 1e-15 * epsilon
    upper = math.inf
    for _ in range(24):
        if profile.delta_bounds(epsilon + above).upper <= delta:
            upper = epsilon + above
            break
        above = 1.5 * above + 1e-14 * max(1.0, epsilon)
    below = max((delta - bounds.lower) / slope, 0.0) + 1e-15 * epsilon
    lower = 0.0
    for _ in range(24):
        if below >= epsilon:
            break
        if profile.delta_bounds(epsilon - below).lower > delta:
            lower = epsilon - below
            break
        below = 1.5 * below + 1e-14 * max(1.0, epsilon)
    terms = {name: width / slope for name, width in bounds.error_budget.items()}
    return Bounds(lower, upper, min(max(epsilon, lower), upper), terms)


def directed(
    composition: Composition, direction: Direction, log_delta: float = _LOG_LEAST
) -> DirectedComposition | None:
    """Return the composition in one direction; None if a step has no line.

    Args:
        log_delta: Logarithm of the wanted delta: steps are cut where hardly any of that delta is left out.
    """
    log_count = math.log(sum(number for _, number in composition.steps))
    steps: list[tuple[Step, int]] = []
    mu_squared, left_out = 0.0, 0.0
    for loss, number in composition.steps:
        if isinstance(loss, GaussianLoss):
            mu_squared += number * loss.mu * loss.mu
            continue
        log_mass = log_delta - _LOG_NEGLIGIBLE - log_count
        step, cut = loss.cut_step(log_count, log_mass, remove=direction is Direction.REMOVE)
        if step is None:
            return None
        steps.append((step, number))
        left_out += number * cut
    return DirectedComposition(tuple(steps), mu_squared, left_out * (1.0 + 1e-14))
