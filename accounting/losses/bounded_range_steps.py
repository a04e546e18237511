"""This module bounds the joint cost of several steps of bounded range, even adaptive ones, by one pair from above and
one from below.

A step's pair has the losses t and t - eps, t with P-mass p_t = (e^eps - e^t) / (e^eps - 1), for some t in [0, eps]
(`accounting.losses.exponential`); every t is attained, in the limit. If t may depend on earlier outputs, k steps cost
D_k(x) at x, the largest delta over all ways to choose t:

    D_0(x) = (1 - e^x)_+,     D_k = A D_(k-1),     (A D)(x) = sup over t of p_t D(x - t) + (1 - p_t) D(x - t + eps),

since the rest of a list, given its first output of loss L, costs D_(k-1)(x - L), which is convex in e^-L = dQ/dP, so
that its mean is largest where all mass is at the ends of an interval of losses of length eps (Dong, Durfee & Rogers
2020). D_k falls with x and is convex in e^x, hence the profile of one pair: **the block** of the k steps. If steps have
different eps, D is computed for every number of steps that are left of each kind, and A for the worst kind that is
left: no order of the steps, even one that depends on outputs, costs more.

**Beside other steps.** Let a step that has one pair be U: (U D)(x) = E D(x - L), L its loss. U is linear, so
A U D = sup over t of U (...) <= U A D. Moving such steps to the front therefore only adds: every order of the k steps
and of others costs at most U D_k, which is the composition of the others' pairs with the block's pair. That order, with
each t chosen after all other outputs, attains it. So the block is exact in a list whose other pairs are attained.

**From below** t and x are taken on a lattice that divides eps. If the best choices at x_j attain D_j there, and the
loss is above x_j with probability q_j under Q, they attain D_j - q_j (e^x - e^(x_j)) at least at every other x. The
largest of these lines, of the bounds below 0 that their mirror images give, of 1 - e^x and of 0 is the profile of a
pair that is below D_k everywhere.

**From above.** For t between two points of the lattice, with v = e^-t: both D's are below their chords in v, and p_t,
which is concave in v, is below its tangent in the middle. So the mean is below a quadratic polynomial in v, and that is
below the larger of its values at the ends plus, if it is concave, a quarter of its leading coefficient (with v scaled
to run from 0 to 1). D_k is below the convex minorant of such numbers, because it is convex.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms

Array = NDArray[np.float64]
#: The steps of a list: pairs of the length of a step's interval of losses and the number of steps with that length.
Kinds = tuple[tuple[float, int], ...]

#: The largest and the smallest number of lattice spacings in the shortest interval, and the most work of a recursion.
#: The work is the number of values times the number of choices of t.
_FINEST, _COARSEST, _WORK = 300, 6, 4e7
#: The largest sum of epsilons at which e^x does not overflow.
_LARGEST = 300.0
#: A relative allowance for some ten roundings at each step.
_ROUNDING = 1e-9
#: A negligible mass for losses that would have none, so that the losses of a block stay equally spaced.
_NONE = 1e-300


@dataclass(frozen=True, slots=True)
class BlockLoss(AtomicLoss):
    """The loss of a pair that dominates steps of bounded range, in any order and with any adaptive choices.

    Attributes:
        kinds: The steps.

    Guarantees: profile_is_above_every_adaptive_choice_and_close.
    """

    kinds: Kinds

    symmetric = True

    @property
    def pure_epsilon(self) -> float:
        return math.fsum(size * count for size, count in self.kinds)

    def find_atoms(self) -> Atoms:
        lattice = Lattice.of(self.kinds, upward=True)
        return _atoms_above(lattice, _from_above(lattice))


@dataclass(frozen=True, slots=True)
class AttainedBlockLoss(AtomicLoss):
    """The loss of a pair that bounds such steps from below: at every x, some adaptive choices attain its delta.

    Attributes:
        kinds: The steps.

    Guarantees: profile_is_below_some_adaptive_choice_and_close.
    """

    on_lattice = False
    kinds: Kinds

    symmetric = True

    @property
    def pure_epsilon(self) -> float:
        return math.fsum(size * count for size, count in self.kinds)

    def find_atoms(self) -> Atoms:
        lattice = Lattice.of(self.kinds, upward=False)
        return _atoms_below(lattice.step, *_from_below(lattice))


@dataclass(frozen=True, slots=True)
class TwoLossesLoss(AtomicLoss):
    """One step of bounded range whose t is fixed in advance.

    Attributes:
        epsilon: The length of the interval.
        highest: The number t, between 0 and epsilon.
    """

    epsilon: float
    highest: float

    symmetric = False

    @property
    def pure_epsilon(self) -> float:
        return max(self.highest, self.epsilon - self.highest)

    def find_atoms(self) -> Atoms:
        size, t = self.epsilon, self.highest
        whole = _log_expm1(size)
        masses = np.array([_log_expm1(t) - whole, t + _log_expm1(size - t) - whole])
        return Atoms(masses, np.array([t - size, t]))


@dataclass(frozen=True, slots=True)
class Lattice:
    """A lattice of losses: the multiples of ``step`` up to the sum of all epsilons.

    Attributes:
        step: The spacing of the lattice.
        kinds: Pairs (parts, number). ``number`` steps have an interval of losses that is ``parts`` spacings long.
    """

    step: float
    kinds: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, kinds: Kinds, *, upward: bool) -> Lattice:
        """Return the lattice on which the lengths of the intervals change least when they are rounded, up or down.

        Raises:
            OverflowError: If `fits` says that there is no such lattice.
        """
        finest = _finest(kinds)
        if finest is None:
            raise OverflowError("the recursion over these steps of bounded range would take too long")
        shortest = min(size for size, _ in kinds)

        def parts(step: float) -> tuple[tuple[int, int], ...]:
            # A length that is already a multiple of the spacing is not changed.
            exact = [size / step for size, _ in kinds]
            near = [round(value) for value in exact]
            rounded = [math.ceil(value) if upward else math.floor(value) for value in exact]
            each = [n if abs(value - n) < 1e-12 * n else r for value, n, r in zip(exact, near, rounded, strict=True)]
            return tuple((part, count) for part, (_, count) in zip(each, kinds, strict=True))

        def off(step: float) -> float:
            return max(abs(part * step / size - 1.0) for (part, _), (size, _) in zip(parts(step), kinds, strict=True))

        tried = range(max(_COARSEST, finest // 2), finest + 1) if len(kinds) > 1 else [finest]
        step = shortest / min(tried, key=lambda number: (off(shortest / number), -number))
        return cls(step, parts(step))

    @property
    def last(self) -> int:
        """The largest sum of losses, in spacings of the lattice."""
        return sum(parts * count for parts, count in self.kinds)

    def start(self) -> tuple[Array, Array]:
        """Return D_0 at the lattice points from -last to last, and 1 - e^x at the points further left, where no losses
        lie.
        """
        most = max(parts for parts, _ in self.kinds)
        places = np.arange(-self.last - most, self.last + 1, dtype=np.float64) * np.float64(self.step)
        start: Array = np.maximum(-np.expm1(places), 0.0)
        return start[most:], start[:most]


def fits(kinds: Kinds) -> bool:
    """Return whether the recursion over these steps is affordable.

    >>> fits(((0.1, 100),)), fits(((0.1, 5000),)), fits(((0.1, 20), (0.5, 2)))
    (True, False, True)
    """
    return _finest(kinds) is not None


def _finest(kinds: Kinds) -> int | None:
    """Return the number of lattice spacings in the shortest interval; None if even a coarse lattice takes too long."""
    total, shortest = math.fsum(size * count for size, count in kinds), min(size for size, _ in kinds)
    if not 0.0 < total <= _LARGEST:
        return None
    choices = math.fsum(size / shortest * count / (count + 1) for size, count in kinds)
    states = math.prod(count + 1.0 for _, count in kinds)
    work = states * choices * 2.0 * total / shortest
    parts = min(_FINEST, int(math.sqrt(_WORK / work)))
    return parts if parts >= _COARSEST else None


def _from_above(lattice: Lattice) -> Array:
    """Return bounds of D at the lattice's x from 0 on, for every order of the steps."""
    start, beyond = lattice.start()
    counts = [count for _, count in lattice.kinds]
    pieces = [_pieces(parts, lattice.step) for parts, _ in lattice.kinds]
    known: dict[tuple[int, ...], Array] = {tuple(0 for _ in counts): start}
    growth = 1.0 + _ROUNDING / sum(counts)
    for left in product(*(range(count + 1) for count in counts)):
        if left in known:
            continue
        worst = np.zeros_like(start)
        for kind, number in enumerate(left):
            if number:
                before = (*left[:kind], number - 1, *left[kind + 1 :])
                np.maximum(worst, _worst_of_a_step(known[before], beyond, *pieces[kind]), out=worst)
        known[left] = worst * growth
    return known[tuple(counts)][lattice.last :]


def _pieces(parts: int, step: float) -> tuple[Array, Array]:
    """Return p_t at the middle of each piece of [0, eps], and the change of its tangent over the piece. The tangent is
    linear in v = e^-t.

    p = (1 - e^-eps / v) / (1 - e^-eps) is computed from differences that keep their digits for every small eps.
    """
    size, starts = parts * step, step * np.arange(parts)
    middle = math.log1p(0.5 * math.expm1(-step))
    masses = -np.expm1(-step * np.arange(parts, 0, -1) - middle) / -math.expm1(-size)
    slopes = math.expm1(-step) * np.exp(starts - 2.0 * middle) / math.expm1(size)
    return masses, slopes


def _worst_of_a_step(deltas: Array, beyond: Array, masses: Array, slopes: Array) -> Array:
    """Return a bound of A D at every point."""
    parts, number = masses.size, deltas.size
    padded = np.concatenate([beyond[beyond.size - parts :], deltas, np.zeros(parts)])
    worst = np.zeros_like(deltas)
    # D(x - t + eps), and the amount by which D(x - t) is larger, at both ends of a piece.
    far = padded[2 * parts : 2 * parts + number]
    gap = np.maximum(padded[parts : parts + number] - far, 0.0)
    for i, (mass, slope) in enumerate(zip(masses.tolist(), slopes.tolist(), strict=True), 1):
        next_far = padded[2 * parts - i : 2 * parts - i + number]
        next_gap = np.maximum(padded[parts - i : parts - i + number] - next_far, 0.0)
        ends = np.maximum(far + (mass - 0.5 * slope) * gap, next_far + (mass + 0.5 * slope) * next_gap)
        np.maximum(worst, ends + 0.25 * np.maximum(slope * (gap - next_gap), 0.0), out=worst)
        far, gap = next_far, next_gap
    return worst


def _atoms_above(lattice: Lattice, deltas: Array) -> Atoms:
    """Return the atoms of the pair whose profile is the convex minorant of the bounds at x = 0, step, ..., and its
    mirror image below 0.

    D(-x) = 1 - e^-x + e^-x D(x), because the mirror image of a choice is a choice.
    """
    places: Array = np.float64(lattice.step) * np.arange(deltas.size, dtype=np.float64)
    corners = _convex_minorant(places, deltas)
    x, delta = places[corners], deltas[corners]
    # The slopes are -dD / d(e^x) between corners. The Q-mass of a loss is the amount by which the slope falls at its
    # corner.
    slopes = np.append(-np.diff(delta) * np.exp(-x[:-1]) / np.expm1(np.diff(x)), 0.0)
    masses = np.full(2 * deltas.size - 1, _NONE)
    last = deltas.size - 1
    above = np.maximum((slopes[:-1] - slopes[1:]) * np.exp(x[1:]), 0.0)
    masses[last + corners[1:]] += above
    masses[last - corners[1:]] += above * np.exp(-x[1:])
    masses[last] = max(1.0 - delta[0] - 2.0 * slopes[0], _NONE)
    losses: Array = np.float64(lattice.step) * np.arange(-last, last + 1, dtype=np.float64)
    return Atoms(np.log(masses), losses)


def _convex_minorant(places: Array, deltas: Array) -> NDArray[np.int64]:
    """Return corners of the largest function below the points that is convex in e^x."""
    x, y = places.tolist(), deltas.tolist()
    corners: list[int] = []
    falls: list[float] = []
    for i in range(len(x)):
        while corners:
            j = corners[-1]
            fall = (y[j] - y[i]) * math.exp(-x[j]) / math.expm1(x[i] - x[j])
            if len(corners) > 1 and fall >= falls[-1]:
                corners.pop()
                falls.pop()
                continue
            falls.append(fall)
            break
        corners.append(i)
    return np.array(corners)


def _from_below(lattice: Lattice) -> tuple[Array, Array]:
    """Return the deltas that choices of t attain at x = 0, step, ..., and Q(L > x) for the same choices.

    Steps with the longest intervals come last in the list, so that their t can be chosen after all others.
    """
    deltas, beyond = lattice.start()
    last, step, most = lattice.last, lattice.step, beyond.size
    surely = np.ones(most)
    likely = np.where(np.arange(-last, last + 1) < 0, 1.0, 0.0)
    shrink = 1.0 - _ROUNDING / sum(count for _, count in lattice.kinds)
    for parts, count in sorted(lattice.kinds, reverse=True):
        size, t = parts * step, step * np.arange(parts + 1)
        masses = np.exp(t) * np.expm1(size - t) / math.expm1(size)
        under_q = np.expm1(size - t) / math.expm1(size)
        for _ in range(count):
            padded = np.concatenate([beyond[most - parts :], deltas, np.zeros(parts)])
            chances = np.concatenate([surely[:parts], likely, np.zeros(parts)])
            best, best_q = np.zeros_like(deltas), np.zeros_like(deltas)
            for i, (mass, mass_q) in enumerate(zip(masses.tolist(), under_q.tolist(), strict=True)):
                near, far = slice(parts - i, parts - i + best.size), slice(2 * parts - i, 2 * parts - i + best.size)
                tried = padded[far] + mass * (padded[near] - padded[far])
                better = tried > best
                best = np.where(better, tried, best)
                best_q = np.where(better, chances[far] + mass_q * (chances[near] - chances[far]), best_q)
            deltas, likely = best * shrink, best_q
    return deltas[last:], likely[last:]


def _atoms_below(step: float, deltas: Array, chances: Array) -> Atoms:
    """Return the atoms of the pair whose profile is the maximum of lines in e^x and their mirror images. Line j
    passes through (e^x_j, D_j) with slope -q_j.
    """
    chances = chances.copy()
    # At 0 the mirror image of the first line may be flatter than the line itself.
    chances[0] = min(chances[0], 1.0 - deltas[0] - chances[0])
    kept, starts = [0], [0.0]
    for j in range(1, deltas.size):
        if not 0.0 <= chances[j] < chances[kept[-1]]:
            continue
        while True:
            i = kept[-1]
            x = step * i
            below = (deltas[i] - deltas[j]) * math.exp(-x) - chances[j] * math.expm1(step * (j - i))
            share = below / (chances[i] - chances[j])
            place = x + math.log1p(share) if share > -1.0 else -math.inf
            if place > starts[-1] or len(kept) == 1:
                break
            kept.pop()
            starts.pop()
        kept.append(j)
        starts.append(place)
    losses = np.array(starts[1:])
    falls = -np.diff(chances[kept])
    usable = losses > 0.0
    losses, falls = losses[usable], falls[usable]
    middle = max(1.0 - float(falls @ (np.exp(losses) + 1.0)), _NONE)
    masses = np.concatenate([falls[::-1], [middle], falls * np.exp(losses)])
    return Atoms(np.log(masses), np.concatenate([-losses[::-1], [0.0], losses]))


def _log_expm1(y: float) -> float:
    """Return log(e^y - 1), y > 0."""
    return y + math.log(-math.expm1(-y))
