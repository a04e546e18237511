"""Bounds on the cost of the best of a random number of runs, from the runs' deltas and Renyi divergences.

One run on two neighbours gives the laws Q and Q' of an outcome with its score. Order the outcomes from best to worst,
with ties broken by a coin, and let u(y), v(y) be the probabilities under Q and Q' of outcomes better than y. With
f(x) = E x^K, the selection A of the best of K runs has the density f'(1 - u(y)) with respect to Q, A' has f'(1 - v(y))
with respect to Q', and both release nothing with probability f(0) = P(K = 0). All (u, v) are pairs that a test of the
neighbours reaches.

* **Renyi** (Papernot & Steinke 2022, Lemma 7). The moment of order a, without the f(0), is at most Q's times the
  largest f'(1 - u)^a f'(1 - v)^(1 - a) over such pairs; `trials` has it from deltas, exactly, and by Theorem 2.
* **Profile.** With c at least the largest log f'(1 - u) - log f'(1 - v), and f' <= f'(1) = E K,
  delta_A(eps) = integral of (f'(1 - u) dQ - e^eps f'(1 - v) dQ')_+ <= E[K] integral of (dQ - e^(eps - c) dQ')_+,
  so epsilon_A(delta) <= c + epsilon_Q(delta / E[K]). (Koskela, Redberg & Wang 2024 have this form.) It holds at delta
  0, too: for the negative binomial laws c <= (1 + eta) epsilon_Q(0), which is Corollary 3.

  `orders` has the best bound of this kind, with a shift for each outcome instead of c for all.

From below: a score may be constant, so that the selection is one run. Or it may prefer the set that tells the
neighbours apart best: if one run hits it with probabilities p and p', the selection hits it with 1 - f(1 - p) and 1 -
f(1 - p'). Scores that are nearly the worst possible put another set before this one (`orders`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.accountant import MAX_EPSILON, delta_for_epsilon, deltas_for_epsilons, epsilon_for_delta
from accounting.composition.basic import pure_epsilon
from accounting.composition.binomial import BinomialComposition
from accounting.composition.composition import Composition, compose
from accounting.composition.evaluator import Evaluator
from accounting.composition.fourier import FourierInversion
from accounting.composition.intersection import EVALUATORS, QUICK_EVALUATORS
from accounting.events import Event
from accounting.intervals import Answer, Interval
from accounting.losses.privacy_loss import Direction
from accounting.relations import NeighboringRelation
from accounting.tuning.orders import attained_epsilon, delta_of_shifts, deltas_by_direction, weights_of_shifts
from accounting.tuning.trials import RandomTrials, TruncatedNegativeBinomial

Array = NDArray[np.float64]

#: The evaluators for the lines. Many lines are needed, wider deltas matter little, and a convolution takes seconds for
#: each.
_EVALUATORS_OF_LINES: tuple[Evaluator, ...] = (BinomialComposition(), FourierInversion(), *QUICK_EVALUATORS)
#: The relative tolerance of the point where a line touches the edge of the pairs (u, v); the bound is flat there.
_TOLERANCE = 1e-5
#: The number of lines on either side of the best place, for Renyi moments; more lines only make the bounds tighter.
_LINES, _REACH = 12, 4.0
#: Covers the rounding of sums of a few terms.
_ALLOWANCE = 1e-12
#: The deltas at which an attacker's set is searched, as multiples of delta / E[K].
_SETS = (1.1, 2.0, 5.0, 20.0, 100.0)
_CELLS = 600
#: The numbers of deltas of one run between which chords are taken, of lines at the edge of the tests, and of halvings
#: of an interval.
_PLACES, _EDGES, _BISECTIONS = 160, 120, 50
#: The epsilon beyond which the bounds of `orders` are not used.
_FARTHEST = 200.0


@dataclass
class Selection:
    """The best of a random number of runs of one list of events.

    Attributes:
        events: The events of one run, fixed before the first output is seen; if runs differ (another step size),
            they must bound each of them.
        relation: The neighbouring relation.
        trials: The law of the number of runs, drawn in secret and without looking at the data.
        evaluators: The evaluators that are asked for the epsilon of one run.
        evaluators_of_lines: The evaluators that are asked for its deltas.
        by_orders: Whether the profile is bounded as in `orders`, which takes hundreds of its deltas.
    """

    events: tuple[Event, ...]
    relation: NeighboringRelation
    trials: RandomTrials
    evaluators: Sequence[Evaluator] = EVALUATORS
    evaluators_of_lines: Sequence[Evaluator] = _EVALUATORS_OF_LINES
    by_orders: bool = True
    _deltas: dict[float, Interval] = field(default_factory=dict, repr=False)
    _log_ratio: float | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.composition: Composition = compose(self.events, self.relation)

    @property
    def log_ratio(self) -> float:
        """The number c, an upper bound of log f'(1 - u) - log f'(1 - v).

        For the negative binomial laws, c is decided by a line through (-1 / b, -1 / b) that touches the edge of the
        pairs (u, v): delta(eps) = (e^eps - 1) / b, b = 1 / gamma - 1. For the Poisson law, it is the line at epsilon 0.
        """
        if self._log_ratio is None:
            self.delta(0.0)
            if isinstance(self.trials, TruncatedNegativeBinomial):
                self._touch(self.trials)
            self._log_ratio = self.trials.log_ratio(*self.lines())
        return self._log_ratio

    def delta(self, epsilon: float) -> Interval:
        """Return the interval of one run's delta at an epsilon."""
        if epsilon not in self._deltas:
            found = delta_for_epsilon(self.events, self.relation, epsilon, evaluators=self.evaluators_of_lines)
            self._deltas[epsilon] = found.value
        return self._deltas[epsilon]

    def lines(self) -> tuple[Array, Array]:
        """Return slopes e^epsilon (rounded up) and deltas of all lines known so far."""
        epsilons = np.array(sorted(self._deltas))
        slopes: Array = np.exp(epsilons) * (1.0 + 1e-15)
        return slopes, np.array([self._deltas[epsilon].upper for epsilon in epsilons])

    def epsilon_by_profile(self, delta: float) -> Answer:
        """Return c + epsilon(delta / E[K]), rounded up."""
        share = delta / (self.trials.expected_trials * (1.0 + _ALLOWANCE))
        # If less than one run is expected, c + epsilon also holds at a delta above 1, with epsilon 0.
        run = epsilon_for_delta(self.events, self.relation, min(share, 1.0), evaluators=self.evaluators)
        upper = (self.log_ratio + run.value.upper) * (1.0 + _ALLOWANCE)
        if self.by_orders and delta > 0.0 and 0.0 < upper < _FARTHEST:
            upper = self._by_orders(delta, upper)
        return Answer(Interval(0.0, upper, upper), "selection_profile", {}, run.warnings)

    def _by_orders(self, delta: float, most: float) -> float:
        """Return the smallest x up to ``most`` at which the sums of shifted deltas are certainly at most ``delta``."""
        # The other direction's profile bounds how much a test may prefer one neighbour.
        directions = self.composition.directions
        both = [(each, other) for each, other in zip(directions, directions[::-1], strict=True)]
        return max(self._by_order(delta, most, direction, other) for direction, other in both)

    def _by_order(self, delta: float, most: float, direction: Direction, other: Direction) -> float:
        edge = self.log_ratio * np.linspace(0.0, 1.5, _EDGES)
        known, known_deltas = self.lines()
        slopes = np.concatenate([known, np.exp(edge) * (1.0 + 1e-15)])
        deltas = np.concatenate([known_deltas, self._deltas_in(other, edge)])
        shifts = weights_of_shifts(self.trials, slopes, deltas, self.trials.log_ratio(slopes, deltas))
        epsilons = np.linspace(0.0, most, _PLACES)
        bounds = self._deltas_in(direction, epsilons)
        low, high = 0.0, most
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            if delta_of_shifts(shifts, epsilons, bounds, middle) <= delta:
                high = middle
            else:
                low = middle
        return high * (1.0 + _ALLOWANCE)

    def _deltas_in(self, direction: Direction, epsilons: Array) -> Array:
        """Return bounds of one run's deltas from above, of one direction if that is known."""
        found = deltas_by_direction(self.composition, direction, epsilons)
        uppers = [math.inf if each is None else each.upper for each in found]
        if not np.all(np.isfinite(uppers)):
            answers = deltas_for_epsilons(self.events, self.relation, epsilons.tolist())
            uppers = [min(answer.value.upper, upper) for answer, upper in zip(answers, uppers, strict=True)]
        return np.array(uppers)

    def divergences(self, orders: Array) -> Array:
        """Return Renyi divergences at orders above 1, rounded up; inf if none is known."""
        if not self._has_moments:
            return np.full(orders.shape, math.inf)
        run = self.run_divergences(orders)
        self._place_lines(orders)
        slopes, deltas = self.lines()
        bounds = np.full(orders.shape, math.inf)
        finite = np.isfinite(run)
        for index in np.flatnonzero(finite):
            order = float(orders[index])
            factor = self.trials.log_renyi_factor(order, slopes, deltas)
            if isinstance(self.trials, TruncatedNegativeBinomial):
                by_moments = self.trials.log_renyi_factor_by_moments(order, orders[finite], run[finite])
                factor = min(factor, by_moments)
            moment = (order - 1.0) * run[index] + factor
            if self.trials.none_probability:
                moment = float(np.logaddexp(math.log(self.trials.none_probability), moment))
            bounds[index] = max(moment, 0.0) / (order - 1.0) * (1.0 + _ALLOWANCE)
        # A divergence is at most that of every larger order.
        descending: Array = np.minimum.accumulate(bounds[::-1])[::-1]
        return np.minimum(descending, (self.log_ratio + pure_epsilon(self.composition)) * (1.0 + _ALLOWANCE))

    def least_epsilon(self, delta: float) -> float:
        """Return an epsilon that the selection costs with some score, rounded down."""
        something = 1.0 - self.trials.none_probability
        silent = 0.0
        if delta < something:
            silent = epsilon_for_delta(
                self.events, self.relation, min(delta / something * (1.0 + _ALLOWANCE), 1.0), evaluators=self.evaluators
            ).value.lower
        if delta <= 0.0:
            return silent
        share = delta / self.trials.expected_trials
        found = [self._by_preferred_set(delta, min(times * share, 0.5)) for times in _SETS]
        largest = epsilon_for_delta(self.events, self.relation, min(share, 1.0), evaluators=self.evaluators_of_lines)
        if largest.value.lower < _FARTHEST:
            reach = min(3.0 * self.log_ratio, _FARTHEST)
            found.append(attained_epsilon(self.composition, self.trials, delta, largest.value.lower, reach))
        return max(silent, *found)

    def _by_preferred_set(self, delta: float, base_delta: float) -> float:
        """Return the epsilon of a score that prefers a set at which one run's delta is about ``base_delta``.

        There p >= s p' + d with s = e^eps and d a lower bound of delta(eps), for some p' between 0 and the slope of a
        chord on the left of delta, which is a convex function of s. e^eps_A is at least the smallest (h(s p' + d) -
        delta) / h(p'), h(x) = 1 - f(1 - x), cell by cell.
        """
        quick = self.evaluators_of_lines
        place = epsilon_for_delta(self.events, self.relation, base_delta, evaluators=quick).value.lower
        if not 0.0 < place < 700.0:
            return 0.0
        slope, before = math.exp(place), math.exp(0.95 * place)
        least = self.delta(place).lower
        if least <= 0.0:
            return 0.0
        chord = (self.delta(0.95 * place).upper - least) / (slope - before)
        largest = min(max(chord, 1e-300), (1.0 - least) / slope)
        ends = largest * np.concatenate([[0.0], np.geomspace(1e-9, 1.0, _CELLS)])
        chance = self.trials.chance_that_the_best_is_in
        gains = chance(np.minimum(slope * ends[:-1] * (1.0 - 1e-14) + least, 1.0)) * (1.0 - _ALLOWANCE) - delta
        smallest = float(np.min(gains / (chance(ends[1:]) * (1.0 + _ALLOWANCE))))
        return math.log(smallest) * (1.0 - _ALLOWANCE) if smallest > 1.0 else 0.0

    def run_divergences(self, orders: Array) -> Array:
        """Return one run's divergences, rounded up; inf if none is known."""
        if not self._has_moments:
            return np.full(orders.shape, math.inf)
        tilts = orders - 1.0
        with np.errstate(all="ignore"):
            run = self.composition.log_moment(tilts) / tilts * (1.0 + 4e-16)
        return np.where(np.isnan(run), math.inf, run)

    @property
    def _has_moments(self) -> bool:
        """Return whether moments exist: not if a step may fail outright, or is only close to its composition."""
        return self.composition.failure.upper == 0.0 and not self.composition.discrepancy

    def _touch(self, trials: TruncatedNegativeBinomial) -> None:
        """Add lines near the one that decides c, which is at an epsilon of at most log(1 / gamma)."""
        largest = -math.log(trials.gamma)
        if largest < 1e-15:
            return
        log_odds = math.log(math.expm1(largest))

        def excess(log_epsilon: float) -> float:
            epsilon = math.exp(log_epsilon)
            upper = max(self.delta(epsilon).upper, 1e-300)
            return math.log(upper) + log_odds - math.log(math.expm1(epsilon))

        low, high = math.log(largest) - 3.0, math.log(largest)
        while excess(low) < 0.0 and low > -40.0:
            low, high = low - 3.0, low
        if excess(low) > 0.0 > excess(high):
            scipy.optimize.brentq(excess, low, high, xtol=_TOLERANCE, maxiter=60)

    def _place_lines(self, orders: Array) -> None:
        """Add lines at which the factors of these orders are small."""
        if isinstance(self.trials, TruncatedNegativeBinomial):
            place = max(self.log_ratio / (1.0 + self.trials.eta), 1e-9) if self.trials.eta > -1.0 else 1.0
            wanted = place * np.geomspace(1.0 / _REACH, _REACH, _LINES)
        else:
            wanted = np.log1p(1.0 / (orders - 1.0))
        for epsilon in wanted:
            self.delta(min(float(epsilon), MAX_EPSILON))
